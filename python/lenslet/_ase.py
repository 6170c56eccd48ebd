"""Crystals of ASE as the text of an extended XYZ file, and back."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._data import _import
from ._keys import refused

#: Debye-Waller factor B [Å²] of a squared one-dimensional rms displacement [Å²].
_B_OF_SQUARE = 8.0 * np.pi**2
#: Arrays of ``ase.Atoms`` with occupancies, and with displacements [Å] or Debye-Waller factors [Å²].
_OCCUPANCIES = ("occupancies", "occupancy")
_DISPLACEMENTS = ("displacement",)
_FACTORS = ("debye_waller_factors", "DW")


def extended_xyz(atoms: Any, displacements: float | Mapping[str, float] | ArrayLike | None, cut: bool) -> str:
    """Text of an extended XYZ file of atoms, with their cell, and occupancies and displacements where they have such.

    Parameters
    ----------
    atoms : ase.Atoms
        The atoms, in the order of the file.
    displacements : float or dict or array_like or None
        One-dimensional rms displacements [Å]; those of a dictionary are not written, but given by element elsewhere.
    cut : bool
        Whether a cell with right angles is cut later.
    """
    cell = np.asarray(atoms.cell, dtype=np.float64)
    _check_cell(cell, cut)
    if len(atoms) == 0:
        raise refused("atoms", "no atoms", "at least one atom")
    symbols, positions = atoms.get_chemical_symbols(), np.asarray(atoms.get_positions(), dtype=np.float64)
    if "X" in symbols:
        raise refused(f"atoms[{symbols.index('X')}].symbol", "X", "an element, which a dummy atom is not")
    occupancies, displaced = _occupancies(atoms), _displacements(atoms, displacements)
    columns = "species:S:1:pos:R:3"
    if occupancies is not None:
        columns += ":occupancy:R:1"
    if displaced is not None:
        columns += ":displacement:R:1"
    lines = []
    for k, position in enumerate(positions):
        for symbol, occupancy in [(symbols[k], None)] if occupancies is None else occupancies[k]:
            numbers = [*position, occupancy, None if displaced is None else displaced[k]]
            lines.append(" ".join([symbol, *(repr(float(number)) for number in numbers if number is not None)]))
    lattice = " ".join(repr(float(side)) for side in cell.flat)
    periodic = " ".join("T" if flag else "F" for flag in np.broadcast_to(atoms.pbc, 3))
    return "\n".join([str(len(lines)), f'Lattice="{lattice}" Properties={columns} pbc="{periodic}"', *lines, ""])


def _check_cell(cell: NDArray[np.float64], cut: bool) -> None:
    """Reject cells without a volume, and those without right angles unless one with right angles is cut."""
    lengths = np.linalg.norm(cell, axis=1)
    if not np.all(np.isfinite(cell)) or not np.all(lengths > 0.0):
        expected = "three sides in Å: atoms.center(vacuum=5.0, axis=2) makes a third one around a layer"
        raise refused("atoms.cell", str(cell.tolist()), expected)
    unit = cell / lengths[:, None]
    if abs(np.linalg.det(unit)) < 1e-6:
        raise refused("atoms.cell", str(cell.tolist()), "three sides that span a volume")
    if not cut and np.abs(unit @ unit.T - np.eye(3)).max() > 1e-6:
        expected = "sides at right angles, or a zone_axis like [0, 0, 1], the lattice vector to cut such a cell along"
        raise refused("atoms.cell", str(cell.tolist()), expected)


def _occupancies(atoms: Any) -> list[list[tuple[str, float | None]]] | None:
    """Elements at each site with their occupancies; ``None`` where all sites have one atom."""
    name, symbols = _first(atoms, _OCCUPANCIES), atoms.get_chemical_symbols()
    if name is not None:
        given = _column(
            f"atoms.arrays[{name!r}]", atoms.arrays[name], len(atoms), "occupancies from 0 to 1", highest=1.0
        )
        return [[(symbol, float(share))] for symbol, share in zip(symbols, given, strict=True)]
    shares, kinds = atoms.info.get("occupancy"), atoms.arrays.get("spacegroup_kinds")
    if not shares or kinds is None:
        return None
    sites: list[list[tuple[str, float | None]]] = []
    for symbol, kind in zip(symbols, kinds, strict=True):
        site = shares.get(str(kind), shares.get(int(kind), {symbol: 1.0}))
        values = _column(
            "atoms.info['occupancy']", list(site.values()), len(site), "occupancies from 0 to 1", highest=1.0
        )
        sites.append(list(zip(site, map(float, values), strict=True)))
    return sites


def _displacements(atoms: Any, given: float | Mapping[str, float] | ArrayLike | None) -> NDArray[np.float64] | None:
    """One-dimensional rms displacements [Å] of the atoms; ``None`` where they have none."""
    if given is not None and not isinstance(given, Mapping):
        values = np.asarray(given)
        expected = "rms displacements in Å, not negative"
        return _column(
            "displacements", np.full(len(atoms), values) if values.ndim == 0 else values, len(atoms), expected
        )
    name = _first(atoms, _DISPLACEMENTS)
    if name is not None:
        expected = "one-dimensional rms displacements in Å, not negative"
        return _column(f"atoms.arrays[{name!r}]", atoms.arrays[name], len(atoms), expected)
    name = _first(atoms, _FACTORS)
    if name is None:
        return None
    expected = "Debye-Waller factors B = 8π²u² in Å², not negative"
    factors = _column(f"atoms.arrays[{name!r}]", atoms.arrays[name], len(atoms), expected)
    return np.asarray(np.sqrt(factors / _B_OF_SQUARE))


def _first(atoms: Any, names: Sequence[str]) -> str | None:
    return next((name for name in names if name in atoms.arrays), None)


def _column(key: str, given: Any, count: int, expected: str, highest: float = np.inf) -> NDArray[np.float64]:
    """Numbers of all atoms, between 0 and the highest."""
    try:
        values = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise refused(key, str(given), f"{expected}, one for each atom") from None
    if values.shape != (count,):
        raise refused(key, f"an array of shape {values.shape}", f"{expected}, of shape ({count},)")
    wrong = np.flatnonzero(~((values >= 0.0) & (values <= highest) & np.isfinite(values)))
    if wrong.size > 0:
        raise refused(f"{key}[{wrong[0]}]", str(values[wrong[0]]), expected)
    return values


def atoms_of(
    text: str | None, path: str | None, lengths: Sequence[float] | None, displacements: Mapping[str, float]
) -> Any:
    """Atoms of a crystal in a text or a file, with other sides and displacements [Å] by element, if given."""
    ase = _import("ase.io", "ase")
    if text is None:
        assert path is not None
        with open(path, encoding="utf-8") as file:
            text = file.read()
    lines = text.splitlines()
    is_cif = (path or "").lower().endswith(".cif") or any(line.lower().startswith("data_") for line in lines)
    kind = "cif" if is_cif else "prismatic" if any(line.strip() == "-1" for line in lines) else "extxyz"
    atoms = ase.read(io.BytesIO(text.encode()) if is_cif else io.StringIO(text), format=kind)
    if kind == "prismatic":
        atoms.pbc = True
    if lengths is not None:
        factors = np.asarray(lengths) / atoms.cell.lengths()
        atoms.set_cell(factors[:, None] * atoms.cell.array, scale_atoms=True)
    shares, displaced = _occupancies(atoms), _displacements(atoms, None)
    for name in (*_OCCUPANCIES, *_DISPLACEMENTS, *_FACTORS):
        atoms.arrays.pop(name, None)
    if not is_cif:
        atoms.set_array(
            "occupancies", np.array([1.0 if shares is None else shares[k][0][1] for k in range(len(atoms))])
        )
    by_element = list(_by_element(atoms.get_chemical_symbols(), displaced, displacements))
    if any(by_element):
        atoms.set_array("debye_waller_factors", _B_OF_SQUARE * np.array(by_element) ** 2)
    return atoms


def _by_element(symbols: Sequence[str], own: NDArray[np.float64] | None, given: Mapping[str, float]) -> Iterator[float]:
    """Displacement of each atom: that of its element, or else its own."""
    for k, symbol in enumerate(symbols):
        yield float(given.get(symbol, 0.0 if own is None else own[k]))
