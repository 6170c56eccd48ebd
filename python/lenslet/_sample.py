"""Samples of electron microscopy, and what is computed of them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _keys, _lenslet, _toml
from ._plan import Plan, Progress
from ._results import Micrographs, Scan
from ._system import _call, _write
from .errors import InputError, LensletWarning

if TYPE_CHECKING:
    from typing import Unpack

    from ._keywords import SampleKeywords

__all__ = ["Sample"]


class Sample:
    """A specimen and how electrons image it: crystal, potential, beam, scan, detectors, lens.

    Keywords are the keys of a sample file by their names: ``file`` or ``crystal``, ``tile``, ``pixel``, ``semi_angle`` (mrad), ``defocus`` (Å)
    and so on, with ``energy`` in eV, ``specimen_tilt``, ``beam_tilt`` and ``imaging_tilt`` in mrad, and ``beam_direction``. Lengths are in ångström.

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
        return cls._of(_lenslet.ParsedSample.from_dict(dict(values)))

    @classmethod
    def from_ase(
        cls, atoms: Any, *, displacements: Mapping[str, float] | None = None, **keywords: Unpack[SampleKeywords]
    ) -> Sample:
        """The sample of atoms of ASE, whose cell is taken as it is; the beam runs along z.

        Parameters
        ----------
        atoms : ase.Atoms
            Atoms in a right-angled cell; an array ``"occupancies"`` or ``info["occupancy"]`` of ASE is not read.
        displacements : dict of str to float, optional
            One-dimensional rms displacement of each element [Å], for frozen phonons.
        **keywords
            As for :class:`Sample`, without ``file``, ``crystal`` and ``cell``.

        Raises
        ------
        InputError
            For a cell that is not right-angled, without a volume, or for no atoms.
        """
        cell = np.asarray(atoms.cell)
        sides = np.diag(cell)
        if len(atoms) == 0 or not np.all(sides > 0.0) or not np.allclose(cell, np.diag(sides), atol=1e-6 * sides.max()):
            expected = "atoms in a cell with right angles and a volume: ase.build.cut and ase.geometry make one, and so does Sample(file=…, zone_axis=…)"
            raise InputError(f"atoms.cell = {cell.tolist()}: expected {expected}", key="atoms.cell", value=str(cell.tolist()), expected=expected)
        for name in ("file", "crystal", "cell"):
            if name in keywords:
                expected = "no such keyword, as atoms are given"
                raise InputError(f"{name}: expected {expected}", key=name, value=str(keywords.get(name)), expected=expected)
        lines = [str(len(atoms)), 'Lattice="' + " ".join(f"{float(x)!r}" for x in cell.flat) + '" Properties=species:S:1:pos:R:3']
        for symbol, position in zip(atoms.get_chemical_symbols(), atoms.get_positions(), strict=True):
            lines.append(f"{symbol} " + " ".join(f"{float(x)!r}" for x in position))
        given: dict[str, Any] = {"crystal": "\n".join(lines) + "\n", **keywords}
        if displacements is not None:
            given["rms"] = dict(displacements)
        return cls(**given)

    # What a sample is

    def to_toml(self) -> str:
        """The text of a sample file, with comments: those of the file it was read from, or else the meaning and unit of each key."""
        text = self._parsed.source()[0]
        return text if "#" in text else _toml.text("sample", self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """All given values, table by table."""
        return self._parsed.to_dict()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the sample file, with comments."""
        _write(path, self.to_toml())

    def replace(self, changes: Mapping[str, Any] | None = None, /, **keywords: Unpack[SampleKeywords]) -> Sample:
        """A copy with other values: by path, such as ``{"beam.c3": 1e7}``, or by keyword; ``None`` removes a value."""
        both = {**_keys.changes("sample", keywords), **(changes or {})}
        return self._of(self._parsed.edited(both)) if both else self

    @property
    def algorithm(self) -> str:
        """``"multislice"``, ``"prism"`` or ``"hrtem"``."""
        return self._parsed.method()[0]

    @property
    def summary(self) -> dict[str, Any]:
        """What is known of the specimen and the samples: cell [Å], atoms by element, samples, pixel [Å], slices, warnings."""
        return self._parsed.summary()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sample):
            return NotImplemented
        return self.to_dict() == other.to_dict() and _folder(self._parsed) == _folder(other._parsed)

    def __hash__(self) -> int:
        return hash(repr(sorted(self.to_dict().items())))

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
        precision: str | None = None,
        **keywords: Unpack[SampleKeywords],
    ) -> Plan[Scan]:
        """Plan of :meth:`stem`, with the same parameters."""
        sample = self.replace(**keywords)
        if sample.algorithm == "hrtem":
            expected = "multislice or prism: a plane wave is imaged by hrtem()"
            raise InputError(f"algorithm = 'hrtem': expected {expected}", key="algorithm", value="hrtem", expected=expected)
        kept = [keep] if isinstance(keep, str) else list(keep)
        planned = sample._parsed.plan_stem(kept, compare, device, precision or sample._parsed.method()[1])
        return Plan(planned, lambda *found: _warned(Scan._of(sample, found)), _call("stem", keywords).replace("System", "Sample"))

    def stem(
        self,
        *,
        keep: Iterable[str] = (),
        compare: int | None = None,
        device: str = "cpu",
        precision: str | None = None,
        progress: Progress = None,
        **keywords: Unpack[SampleKeywords],
    ) -> Scan:
        """Images of a scanning transmission electron microscope, by multislice or PRISM.

        Parameters
        ----------
        keep : iterable of str
            Intermediate results that are returned, too: ``"potential"``, ``"probe"``, ``"smatrix"``.
        compare : int, optional
            Compare PRISM with multislice at so many probes.
        device : str
            ``"cpu"``, ``"cuda"`` or ``"cuda:K"``.
        precision : {"f32", "f64"}, optional
            Precision of the waves; that of the sample unless given.
        progress : bool or callable, optional
            ``True`` for a bar, or a callable of stage, done and total.
        **keywords
            Keywords of :class:`Sample` in place of those of the sample: ``semi_angle``, ``energy``, ``annuli``, ``algorithm``, …

        Returns
        -------
        Scan
            ``annular``, (x, y, ring); ``annulus_0``, …, (x, y); ``centre_of_mass``; ``four_d``: shares of the electrons.

        Notes
        -----
        Kirkland (2010), *Advanced Computing in Electron Microscopy*; PRISM: Ophus (2017), Adv. Struct. Chem. Imaging 3, 13.
        """
        plan = self.stem_plan(keep=keep, compare=compare, device=device, precision=precision, **keywords)
        return plan.run(progress=progress)

    def hrtem_plan(
        self,
        *,
        waves: bool = False,
        potential: bool = False,
        device: str = "cpu",
        precision: str | None = None,
        **keywords: Unpack[SampleKeywords],
    ) -> Plan[Micrographs]:
        """Plan of :meth:`hrtem`, with the same parameters."""
        given: Any = {**keywords, "algorithm": "hrtem"}
        sample = self.replace(**given)
        planned = sample._parsed.plan_hrtem(waves, potential, device, precision or sample._parsed.method()[1])
        return Plan(planned, lambda *found: _warned(Micrographs._of(sample, found)), _call("hrtem", keywords).replace("System", "Sample"))

    def hrtem(
        self,
        *,
        waves: bool = False,
        potential: bool = False,
        device: str = "cpu",
        precision: str | None = None,
        progress: Progress = None,
        **keywords: Unpack[SampleKeywords],
    ) -> Micrographs:
        """High-resolution images of a plane wave.

        Parameters
        ----------
        waves, potential : bool
            Return the exit waves and the potential, too.
        device, precision, progress
            As for :meth:`stem`.
        **keywords
            Keywords of :class:`Sample` in place of those of the sample: ``defocus``, ``c3``, ``aperture``, ``focal_spread``, …

        Returns
        -------
        Micrographs
            ``image``, (…, x, y), with axes of ``defocus`` and ``thickness`` where there are several.
        """
        plan = self.hrtem_plan(waves=waves, potential=potential, device=device, precision=precision, **keywords)
        return plan.run(progress=progress)


def _warned(result: Any) -> Any:
    for warning in [*result.summary.get("warnings", []), *result.warnings]:
        warnings.warn(warning, LensletWarning, stacklevel=4)
    return result


def _sample(text: str, name: str) -> Sample:
    return Sample.from_toml(text, name=name)


def _folder(parsed: _lenslet.ParsedSample) -> str:
    """The folder of the crystal file; empty where the crystal is in the text."""
    has_file = "file" in parsed.to_dict().get("sample", {})
    return os.path.dirname(os.path.abspath(parsed.source()[1])) if has_file else ""
