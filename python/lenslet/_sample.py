"""Samples of electron microscopy, and what is computed of them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from . import _ase, _keys, _lenslet, _toml
from ._plan import Plan, Progress
from ._results import Micrographs, Scan
from ._system import _call, _write
from .errors import LensletWarning

if TYPE_CHECKING:
    from typing import Unpack

    from ._keywords import SampleKeywords

__all__ = ["Sample"]


class Sample:
    """A specimen and how electrons image it: crystal, potential, beam, scan, detectors, lens.

    Keywords are the keys of a sample file by their names: ``file`` or ``crystal``, ``tile``, ``pixel``, ``semi_angle``
    (mrad), ``defocus`` (Å) and so on, with ``energy`` in eV, ``specimen_tilt``, ``beam_tilt`` and ``imaging_tilt`` in
    mrad, and ``beam_direction``. Lengths are in ångström.

    Raises
    ------
    InputError
        For an unknown keyword, or a value that makes no sense; it names the key.

    Examples
    --------
    >>> import lenslet as ls
    >>> sample = ls.Sample(
    ...     file="book/systems/SI100.XYZ", tile=[2, 2, 5], grid=[128, 128], slice_thickness=1.3575, energy=100e3,
    ...     semi_angle=20.0, window=[[0.0, 1.3575], [0.0, 0.5]], step=[0.67875, 0.5], annuli=[[60.0, 90.0]],
    ... )
    >>> scan = sample.stem()
    >>> [round(1e4 * share) for share in scan.annulus_0[:, 0]]
    [32, 9]
    """

    __slots__ = ("_parsed",)

    _parsed: _lenslet.ParsedSample

    def __init__(self, **keywords: Unpack[SampleKeywords]) -> None:
        self._parsed = _lenslet.ParsedSample.from_dict(_keys.nested("sample", keywords))

    @classmethod
    def _of(cls, parsed: _lenslet.ParsedSample) -> Sample:
        made = cls.__new__(cls)
        made._parsed = parsed
        return made

    # Other ways to make a sample

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Sample:
        """Read a sample file (TOML).

        Raises
        ------
        FileError
            Where the file cannot be read.
        InputError
            With the first line that makes no sense.
        """
        return cls._of(_lenslet.ParsedSample.from_file(os.fspath(path)))

    @classmethod
    def from_toml(cls, text: str, *, name: str = "") -> Sample:
        """Parse the text of a sample file; other files are relative to the folder of ``name``."""
        return cls._of(_lenslet.ParsedSample.from_toml(text, os.fspath(name)))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Sample:
        """The sample of a dictionary with the tables of a sample file, as :meth:`to_dict` returns it."""
        return cls._of(_lenslet.ParsedSample.from_dict(_keys.mapping(values)))

    @classmethod
    def from_ase(
        cls,
        atoms: Any,
        *,
        displacements: float | Mapping[str, float] | ArrayLike | None = None,
        **keywords: Unpack[SampleKeywords],
    ) -> Sample:
        """Make a sample of atoms of ASE.

        The beam enters at the far end of the third side of the cell, as for a file of the same atoms, so that x and y
        of images are those of the atoms. abTEM lets it enter at z = 0, which is ``beam_direction="+z"``: then y of the
        images is the length of the cell minus y of the atoms.

        Parameters
        ----------
        atoms : ase.Atoms
            Atoms in a cell with right angles; or in any cell that has a volume, if a ``zone_axis`` to cut it along is
            given. Outside the cell, atoms are moved into it along periodic sides. Images are periodic along all sides.
            Occupancies are those of ``atoms.arrays["occupancies"]`` or ``"occupancy"``, or of the sites that ASE reads
            from a CIF, with all their elements. Velocities, constraints and calculators are not read.
        displacements : float or dict of str to float or array_like, shape (N,), optional
            One-dimensional rms displacements [Å], for frozen phonons: of all atoms, of each element, or of each atom.
            Unless given, those of ``atoms.arrays["displacement"]``, or of the Debye-Waller factors B = 8π²u² [Å²] in
            ``atoms.arrays["debye_waller_factors"]``.
        **keywords
            As for :class:`Sample`, without ``file``, ``crystal`` and ``cell``.

        Raises
        ------
        InputError
            For no atoms, a cell without a volume or, where there is no ``zone_axis``, without right angles, or arrays
            that make no sense.

        Examples
        --------
        >>> import lenslet as ls
        >>> from ase.build import bulk
        >>> atoms = bulk("Si", cubic=True)
        >>> silicon = ls.Sample.from_ase(atoms, displacements={"Si": 0.076}, energy=100e3, tile=[2, 2, 5])
        >>> silicon.summary["atoms"]
        [['Si', 160.0]]
        """
        for name in ("file", "crystal", "cell"):
            if keywords.get(name) is not None:
                raise _keys.refused(name, keywords.get(name), "no such keyword, as atoms are given")
        text = _ase.extended_xyz(atoms, displacements, keywords.get("zone_axis") is not None)
        given: dict[str, Any] = {**keywords, "crystal": text}
        if isinstance(displacements, Mapping):
            given["rms"] = {**(keywords.get("rms") or {}), **displacements}
        return cls(**given)

    def to_ase(self) -> Any:
        """Return the crystal of the sample as ``ase.Atoms``, before it is cut, tiled and turned.

        It has the arrays ``"occupancies"`` and, where there are displacements, ``"debye_waller_factors"`` [Å²], as ASE
        reads and writes them for other programs. A file is read by ASE, which knows CIF (without displacements) and
        both kinds of XYZ.

        Raises
        ------
        ImportError
            Where ASE is not installed: ``pip install "lenslet[ase]"``.
        """
        values = self.to_dict()
        specimen, displacements = values["sample"], values.get("phonons", {}).get("rms", {})
        return _ase.atoms_of(specimen.get("crystal"), _crystal_path(self._parsed), specimen.get("cell"), displacements)

    # What a sample is

    def to_toml(self) -> str:
        """Write the text of a sample file, with its own comments, or else the meaning and unit of each key."""
        text = self._parsed.source()[0]
        return text if "#" in text else _toml.text("sample", self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """All given values, table by table."""
        return self._parsed.to_dict()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the sample file, with comments."""
        _write(path, self.to_toml())

    def replace(self, changes: Mapping[str, Any] | None = None, /, **keywords: Unpack[SampleKeywords]) -> Sample:
        """Make a copy with other values.

        Parameters
        ----------
        changes : dict, optional
            Values by path, such as ``{"beam.c3": 1e7}``; ``None`` removes a value.
        **keywords
            As for :class:`Sample`. A dictionary changes the keys of a table that it has; a list replaces the whole
            list.
        """
        both = _keys.edits("sample", self.to_dict() if keywords else {}, keywords, changes)
        return self._of(self._parsed.edited(both)) if both else self

    @property
    def algorithm(self) -> str:
        """``"multislice"``, ``"prism"`` or ``"hrtem"``."""
        return self._parsed.method()[0]

    @property
    def summary(self) -> dict[str, Any]:
        """Cell [Å] and atoms of the specimen, samples, pixel [Å], slices, largest angle [mrad] and warnings."""
        return self._parsed.summary()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sample):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return _keys.hashed(self._key())

    def _key(self) -> dict[str, Any]:
        """All values, with the crystal's file by its absolute path."""
        values, path = self.to_dict(), _crystal_path(self._parsed)
        return values if path is None else {**values, "sample": {**values["sample"], "file": path}}

    # copy.replace() of Python 3.13
    __replace__ = replace

    def __reduce__(self) -> tuple[Any, ...]:
        return _sample, self._parsed.source()

    def __repr__(self) -> str:
        values = self.to_dict()
        specimen, beam = values.get("sample", {}), values.get("beam", {})
        crystal = specimen.get("file", "crystal in the text")
        energy = f", {beam['energy_kev']} keV" if "energy_kev" in beam else ""
        return f"<lenslet.Sample: {crystal}{energy}, {self.algorithm}>"

    def _repr_html_(self) -> str:
        return f"<details><summary>{escape(repr(self))}</summary><pre>{escape(self.to_toml())}</pre></details>"

    # Images

    def stem_plan(
        self,
        *,
        keep: Iterable[str] = (),
        compare: int | None = None,
        device: str = "cpu",
        **keywords: Unpack[SampleKeywords],
    ) -> Plan[Scan]:
        """Plan of :meth:`stem`, with the same parameters."""
        sample = self.replace(**keywords)
        if sample.algorithm == "hrtem":
            raise _keys.refused("algorithm", "hrtem", "multislice or prism: a plane wave is imaged by hrtem()")
        kept: list[str] = [keep] if isinstance(keep, str) else _listed(keep)
        if not all(isinstance(name, str) for name in kept):
            raise _keys.refused("keep", keep, "names among potential, probe and smatrix")
        if isinstance(compare, bool):
            raise _keys.refused("compare", compare, "a whole number not below 1")
        compare = None if compare is None else _keys.count("compare", compare)
        planned = sample._parsed.plan_stem(kept, compare, device, sample._parsed.method()[1])
        call = _call("stem", keywords).replace("System", "Sample")
        return Plan(planned, lambda *found: _warned(Scan._of(sample, found)), call)

    def stem(
        self,
        *,
        keep: Iterable[str] = (),
        compare: int | None = None,
        device: str = "cpu",
        progress: Progress = None,
        **keywords: Unpack[SampleKeywords],
    ) -> Scan:
        """Images of a scanning transmission electron microscope, by multislice or PRISM.

        Parameters
        ----------
        keep : iterable of str
            Intermediate results that are returned, too: ``"potential"``, ``"probe"``, ``"smatrix"``.
        compare : int, optional
            Compare PRISM with multislice at so many probes: ``comparison`` of the result has the errors, and
            ``compared_prism`` and ``compared_multislice``, (…, probe, x, y), the exit waves of both methods in the
            first configuration of the phonons, at the positions ``compared_places``, (probe, axis).
        device : str
            ``"cpu"``, ``"cuda"`` or ``"cuda:K"``.
        progress : bool or callable, optional
            ``True`` for a bar, or a callable of stage, done and total.
        **keywords
            Keywords of :class:`Sample` in place of those of the sample: ``semi_angle``, ``energy``, ``annuli``,
            ``algorithm``, ``precision``, …

        Returns
        -------
        Scan
            ``annular``, (x, y, ring); ``annulus_0``, …, (x, y); ``centre_of_mass``; ``four_d``: shares of the
            electrons.

        Notes
        -----
        Kirkland (2010), *Advanced Computing in Electron Microscopy*; PRISM: Ophus (2017), Adv. Struct. Chem. Imaging 3,
        13.
        """
        plan = self.stem_plan(keep=keep, compare=compare, device=device, **keywords)
        return plan.run(progress=progress)

    def hrtem_plan(
        self,
        *,
        waves: bool = False,
        potential: bool = False,
        device: str = "cpu",
        **keywords: Unpack[SampleKeywords],
    ) -> Plan[Micrographs]:
        """Plan of :meth:`hrtem`, with the same parameters."""
        if keywords.get("algorithm", "hrtem") != "hrtem":
            raise _keys.refused("algorithm", keywords.get("algorithm"), "hrtem: probes are scanned by stem()")
        given: Any = {**keywords, "algorithm": "hrtem"}
        sample = self.replace(**given)
        planned = sample._parsed.plan_hrtem(waves, potential, device, sample._parsed.method()[1])
        call = _call("hrtem", keywords).replace("System", "Sample")
        return Plan(planned, lambda *found: _warned(Micrographs._of(sample, found)), call)

    def hrtem(
        self,
        *,
        waves: bool = False,
        potential: bool = False,
        device: str = "cpu",
        progress: Progress = None,
        **keywords: Unpack[SampleKeywords],
    ) -> Micrographs:
        """High-resolution images of a plane wave.

        Parameters
        ----------
        waves, potential : bool
            Return the exit waves and the potential, too.
        device, progress
            As for :meth:`stem`.
        **keywords
            Keywords of :class:`Sample` in place of those of the sample: ``defocus``, ``c3``, ``aperture``,
            ``focal_spread``, …

        Returns
        -------
        Micrographs
            ``image``, (…, x, y), with axes of ``defocus`` and ``thickness`` where there are several.
        """
        plan = self.hrtem_plan(waves=waves, potential=potential, device=device, **keywords)
        return plan.run(progress=progress)


def _warned(result: Any) -> Any:
    for warning in [*result.summary.get("warnings", []), *result.warnings]:
        warnings.warn(warning, LensletWarning, stacklevel=4)
    return result


def _listed(entries: Any) -> list[Any]:
    return list(entries) if isinstance(entries, Iterable) else [entries]


def _sample(text: str, name: str) -> Sample:
    return Sample.from_toml(text, name=name)


def _crystal_path(parsed: _lenslet.ParsedSample) -> str | None:
    """The absolute path of the crystal's file; ``None`` where the crystal is in the text."""
    file = parsed.to_dict().get("sample", {}).get("file")
    return None if file is None else os.path.abspath(os.path.join(os.path.dirname(parsed.source()[1]), file))
