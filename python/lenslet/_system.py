"""Systems of adaptive optics, and what is computed of them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _keys, _lenslet, _toml
from ._data import numbers
from ._plan import Plan, Progress, reporting
from ._results import Covariance, Estimate, ProfileFit, Psf, Reconstructor, Simulation
from .errors import FileError, InputError, LensletWarning

if TYPE_CHECKING:
    from typing import Unpack

    from ._keywords import ImageKeywords, ReconstructorKeywords, SystemKeywords

__all__ = ["Estimator", "System"]


class System:
    """An adaptive-optics system: atmosphere, telescope, guide stars with their sensors, targets, mirrors, camera.

    Keywords are the keys of a system file: those of ``[atmosphere]``, ``[telescope]``, ``[lenslet_array]`` and
    ``[covariance]`` by their names, lists as ``layers``, ``guide_stars``, ``targets``, ``optimisation`` and ``mirrors``, and other tables
    as dictionaries, such as ``phase={"points": 17}``. Lengths are in metres, zenith distances in arcsec, azimuths in degrees.

    Raises
    ------
    InputError
        For an unknown keyword, or a value that makes no sense; it names the key.

    Examples
    --------
    >>> import lenslet as ls
    >>> system = ls.System(
    ...     r0=0.15, outer_scale=25.0, layers=[{"altitude": 0.0, "fraction": 1.0}],
    ...     diameter=8.0, lenslets=16, guide_stars=[{"zenith": 30.0}],
    ... )
    >>> system.pitch, system.slopes
    (0.5, 416)
    >>> system.replace(r0=0.12).r0
    0.12
    """

    __slots__ = ("_parsed", "_summary")

    _parsed: _lenslet.ParsedSystem
    _summary: dict[str, Any]

    def __init__(self, **keywords: Unpack[SystemKeywords]) -> None:
        self._take(_lenslet.ParsedSystem.from_dict(_keys.nested("system", keywords)))

    def _take(self, parsed: _lenslet.ParsedSystem, stacklevel: int = 3) -> None:
        self._parsed = parsed
        self._summary = parsed.summary()
        for warning in parsed.warnings():
            warnings.warn(warning, LensletWarning, stacklevel=stacklevel)

    @classmethod
    def _of(cls, parsed: _lenslet.ParsedSystem) -> System:
        made = cls.__new__(cls)
        made._take(parsed, 4)
        return made

    # Other ways to make a system

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> System:
        """Read a system file (TOML).

        Raises
        ------
        FileError
            Where the file cannot be read.
        InputError
            With the first line that makes no sense.
        """
        return cls._of(_lenslet.ParsedSystem.from_file(os.fspath(path)))

    @classmethod
    def from_toml(cls, text: str, *, name: str = "") -> System:
        """Parse the text of a system file.

        Parameters
        ----------
        text : str
            The text.
        name : str, optional
            Name of the file in errors; other files are relative to its folder.
        """
        return cls._of(_lenslet.ParsedSystem.from_toml(text, os.fspath(name)))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> System:
        """The system of a dictionary with the tables of a system file, as :meth:`to_dict` returns it."""
        return cls._of(_lenslet.ParsedSystem.from_dict(_keys.mapping(values)))

    @classmethod
    def from_tiptop(cls, path: str | os.PathLike[str]) -> System:
        """Read a parameter file of TIPTOP (``.ini``); what is described otherwise than there is a :class:`LensletWarning`."""
        text, notes = _lenslet.import_tiptop(_read(path), os.fspath(path))
        for note in notes:
            warnings.warn(note, LensletWarning, stacklevel=2)
        return cls._of(_lenslet.ParsedSystem.from_toml(text, os.fspath(path)))

    @classmethod
    def from_aot(cls, path: str | os.PathLike[str]) -> System:
        """The system of telemetry in the Adaptive Optics Telemetry format (``.fits``); what is assumed is a :class:`LensletWarning`."""
        text, notes = _lenslet.import_aot(os.fspath(path))
        for note in notes:
            warnings.warn(note, LensletWarning, stacklevel=2)
        return cls._of(_lenslet.ParsedSystem.from_toml(text, os.fspath(path)))

    # What a system is

    def to_toml(self) -> str:
        """The text of a system file, with comments: those of the file it was read from, or else the meaning and unit of each key."""
        text = self._parsed.source()[0]
        return text if "#" in text else _toml.text("system", self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """All given values, table by table."""
        return self._parsed.to_dict()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the system file, with comments."""
        _write(path, self.to_toml())

    def replace(self, changes: Mapping[str, Any] | None = None, /, **keywords: Unpack[SystemKeywords]) -> System:
        """A copy with other values.

        Parameters
        ----------
        changes : dict, optional
            Values by path, such as ``{"guide_star[1].noise": 1e-14}``; ``None`` removes a value.
        **keywords
            As for :class:`System`. A dictionary changes the keys of a table that it has; a list replaces the whole list.

        Examples
        --------
        >>> import lenslet as ls
        >>> system = ls.System.from_file("book/systems/small-moao.toml")
        >>> system.replace({"guide_star[0].zenith": 20.0}, r0=0.2).to_dict()["guide_star"][0]["zenith"]
        20.0
        """
        both = _keys.edits("system", self.to_dict() if keywords else {}, keywords, changes)
        return self._of(self._parsed.edited(both)) if both else self

    def _with(self, table: str, keywords: Mapping[str, Any]) -> System:
        """A copy with other values in one table, given by the keys of that table or as other keywords."""
        known = [path.rpartition(".")[2] for path in _keys.rows("system") if path.rpartition(".")[0] == table]
        own = {f"{table}.{key}": value for key, value in keywords.items() if key in known}
        others = {key: value for key, value in keywords.items() if key not in known}
        for key in others:
            if key not in _keys.keywords("system"):
                raise _keys.unknown(key, [*known, *_keys.keywords("system")])
        return self.replace(own, **others)

    @property
    def r0(self) -> float:
        """Fried parameter [m] at :attr:`wavelength`."""
        return float(self._summary["r0"])

    @property
    def wavelength(self) -> float:
        """Wavelength that :attr:`r0` belongs to [m]."""
        return float(self._summary["wavelength"])

    @property
    def diameter(self) -> float | None:
        """Diameter of the telescope [m]; ``None`` where there is no telescope."""
        value = self._summary["diameter"]
        return None if value is None else float(value)

    @property
    def lenslets(self) -> int:
        """Lenslets across the array."""
        return int(self._summary["lenslets"])

    @property
    def pitch(self) -> float:
        """Side of a lenslet on the pupil [m]."""
        return float(self._summary["pitch"])

    @property
    def slopes(self) -> int:
        """Slopes of all guide stars in a frame, n: star by star, all x before all y, valid lenslets by rows."""
        return int(self._summary["slopes"])

    @property
    def points(self) -> int | None:
        """Wavefront points across, M; ``None`` without a table ``[phase]``."""
        value = self._summary["points"]
        return None if value is None else int(value)

    @property
    def valid_lenslets(self) -> list[NDArray[np.bool_]]:
        """Valid lenslets of each guide star, (N, N); axis 0 is y."""
        return self._parsed.valid_lenslets()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, System):
            return NotImplemented
        return self.to_dict() == other.to_dict() and _folder(self._parsed) == _folder(other._parsed)

    def __hash__(self) -> int:
        return _keys.hashed(self.to_dict())

    # copy.replace() of Python 3.13
    __replace__ = replace

    def __reduce__(self) -> tuple[Any, ...]:
        return _system, self._parsed.source()

    def __repr__(self) -> str:
        about = self._summary
        across = f"{about['diameter']} m, " if about["diameter"] else ""
        counts = (("guide_stars", "guide star"), ("slopes", "slope"), ("layers", "layer"), ("targets", "target"))
        return (
            f"<lenslet.System: {across}r0 {about['r0']:.3g} m, "
            + ", ".join(f"{about[key]} {noun}{'' if about[key] == 1 else 's'}" for key, noun in counts)
            + ">"
        )

    def _repr_html_(self) -> str:
        return f"<details><summary>{escape(repr(self))}</summary><pre>{escape(self.to_toml())}</pre></details>"

    # Covariances

    def covariance_plan(
        self,
        *,
        method: Literal["direct", "spectral"] = "direct",
        samples: int | None = None,
        oversampling: int | None = None,
        form: Literal["auto", "toeplitz", "blocks", "dense"] = "auto",
        slopes_only: bool = False,
        device: str = "cpu",
        precision: str = "f64",
    ) -> Plan[Covariance]:
        """Plan of :meth:`covariance`, with the same parameters."""
        if (samples is None) != (oversampling is None):
            expected = "both samples and oversampling, or neither"
            key = "oversampling" if oversampling is None else "samples"
            raise InputError(f"{key} = None: expected {expected}", key=key, value="None", expected=expected)
        sampling = None if samples is None or oversampling is None else (samples, oversampling)
        options = {"form": form, "slopes_only": slopes_only}
        planned = self._parsed.plan_covariance(options, (method, sampling), device, precision)
        return Plan(
            planned, lambda *found: Covariance._of(self, found), _call("covariance", {"method": method, **options})
        )

    def covariance(
        self,
        *,
        method: Literal["direct", "spectral"] = "direct",
        samples: int | None = None,
        oversampling: int | None = None,
        form: Literal["auto", "toeplitz", "blocks", "dense"] = "auto",
        slopes_only: bool = False,
        device: str = "cpu",
        precision: str = "f64",
        progress: Progress = None,
    ) -> Covariance:
        """Covariances of slopes and, with targets and ``[phase]``, of wavefronts and slopes.

        Parameters
        ----------
        method : {"direct", "spectral"}
            Method: sums of closed forms in real space (direct), or Fourier transforms of the power spectrum (spectral).
            The direct method is exact to 1e-10 of the variance.
        samples, oversampling : int, optional
            Sampling of the spectral method, both or neither: points across, and how many times finer than a lenslet.
        form : {"auto", "toeplitz", "blocks", "dense"}
            Form of the covariances: by displacement (Toeplitz), in blocks of lattices, or dense.
        slopes_only : bool
            Whether the wavefronts are omitted.
        device : str
            ``"cpu"``, ``"cuda"`` or ``"cuda:K"``.
        precision : {"f64", "f32"}
            Precision of a GPU.
        progress : bool or callable, optional
            ``True`` for a bar, or a callable of stage, done and total.

        Returns
        -------
        Covariance
            In Toeplitz form ``slope_slope``, (S, S, 2, 2, 2N-1, 2N-1) [rad²], and ``wavefront_slope``, (T, S, 2, K, K) [m rad]; in dense form
            ``slope_slope_dense``, (n, n), and ``wavefront_slope_dense``, (T, M, M, n); ``wavefront_wavefront``; ``valid``, (N, N). Which form
            ``"auto"`` chooses depends on the system: name the form where the names of the arrays matter.

        Raises
        ------
        InputError
            Where the system has no such form; DeviceError, OutOfMemoryError.
        """
        plan = self.covariance_plan(
            method=method,
            samples=samples,
            oversampling=oversampling,
            form=form,
            slopes_only=slopes_only,
            device=device,
            precision=precision,
        )
        return plan.run(progress=progress)

    def covariance_operator(self, *, progress: Progress = None) -> Any:
        """The covariance of the measurements, their noise included, as an operator that multiplies without a matrix.

        Returns
        -------
        scipy.sparse.linalg.LinearOperator, shape (n, n)
            Symmetric; ``C @ x`` [rad²] for ``x`` of shape (n,) or (n, k), in the order of slopes.

        Raises
        ------
        ImportError
            Where SciPy is not installed: ``pip install "lenslet[scipy]"``.
        """
        from ._operator import covariance_operator

        with reporting(progress) as report:
            return covariance_operator(self._parsed.covariance_operator(report))

    # Reconstructors

    def reconstructor_plan(
        self,
        *,
        covariances: bool = False,
        device: str = "cpu",
        precision: str = "f64",
        **keywords: Unpack[ReconstructorKeywords],
    ) -> Plan[Reconstructor]:
        """Plan of :meth:`reconstructor`, with the same parameters."""
        system = self._with("reconstructor", keywords)
        planned = system._parsed.plan_reconstructor(covariances, device, precision)
        return Plan(planned, lambda *found: Reconstructor._of(system, found), _call("reconstructor", keywords))

    def reconstructor(
        self,
        *,
        covariances: bool = False,
        device: str = "cpu",
        precision: str = "f64",
        progress: Progress = None,
        **keywords: Unpack[ReconstructorKeywords],
    ) -> Reconstructor:
        """The tomographic reconstructor of minimum mean square error, and the error that it leaves.

        Parameters
        ----------
        to : {"slopes", "wavefront", "actuators"}
            What is reconstructed, default "slopes". Slopes of the truth sensor [rad], the wavefront at the points of ``[phase]`` [m],
            or strokes of the mirrors [m].
        covariances : bool
            Whether the covariances C_mm, C_tm and C_tt are kept with the results.
        device, precision, progress
            As for :meth:`covariance`.
        method : {"auto", "cholesky", "eigen", "iterative"}
            How the covariance is inverted, default "auto".
        filter : float
            Eigenvalues below this share of the largest are dropped; ≥ 0, < 1, default 0.0.
        delay : float
            Time by which the truth is later than the measurements [s]; 0 to 1, default 0.0.
        predict : bool
            Whether the reconstructor predicts over ``delay``, default true.
        errors_only : bool
            Whether errors are wanted without the matrix, default false.
        tolerance : float
            Relative residual of an iterative solution; > 0, < 1, default 1e-6.
        **keywords
            All keywords of :class:`System`, in place of those of the system.

        Returns
        -------
        Reconstructor
            ``reconstructor``, (T, m, n); ``error_covariance``; ``R @ slopes`` applies it.

        Notes
        -----
        R = C_tm C_mm⁻¹, Vidal, Gendron and Rousset (2010), J. Opt. Soc. Am. A 27, A253.
        """
        plan = self.reconstructor_plan(covariances=covariances, device=device, precision=precision, **keywords)
        return plan.run(progress=progress)

    # Estimates

    def estimator(
        self,
        *,
        frames: int = 1,
        device: str = "cpu",
        precision: str = "f64",
        progress: Progress = None,
        **options: Any,
    ) -> Estimator:
        """Prepare the estimate of wavefronts once, for many calls.

        Parameters
        ----------
        frames : int
            Number of frames that will follow, for the memory and run time in a plan.
        device, precision, progress
            As for :meth:`covariance`.
        **options
            ``method`` and further options of :meth:`estimate`.

        Returns
        -------
        Estimator
            Call it with slopes.
        """
        given = _estimate_options(options, frames)
        with reporting(progress) as report:
            prepared = self._parsed.estimator(given, device, precision, report)
        return Estimator(self, prepared, _call("estimate", options))

    def estimate(
        self,
        slopes: ArrayLike,
        *,
        warm_start: bool = False,
        device: str = "cpu",
        precision: str = "f64",
        progress: Progress = None,
        **options: Any,
    ) -> Estimate:
        """Wavefronts of minimum mean square error of measured slopes.

        Parameters
        ----------
        slopes : array_like, shape (n,) or (frames, n)
            Slopes [rad]: star by star, all x before all y, valid lenslets by rows. An array of double precision in C order is not copied.
        warm_start : bool
            Start each frame from the solution of the one before.
        device, precision, progress
            As for :meth:`covariance`.
        method : {"auto", "cholesky", "eigen", "iterative"}
            Solution by a factor of the covariance matrix or by iterations.
        form : {"auto", "toeplitz", "blocks", "dense"}
            Form of the covariances; the dense form needs no interpolation of layers, but memory for a matrix.
        exact : bool
            Whether the dense form is preferred to one that interpolates layers, where the form is not given.
        interpolation : {"linear", "cubic", "quintic"}
            Interpolation of the layers to the pupil, where guide stars are at a finite height.
        filter : float
            Eigenvalues below this share of the largest are dropped, where eigenvectors solve.
        solver : {"conjugate-gradients", "minres"}
            Iterative solver of the normal equations.
        preconditioned : bool
            Whether the solver has the circulant preconditioner.
        tolerance : float
            Largest relative residual that is accepted, between 0 and 1.
        iterations : int, optional
            Largest number of iterations; by default twice the number of slopes, and at least 1000.

        Returns
        -------
        Estimate
            ``wavefront``, (frames, T, M, M) [m], axis 2 is y; ``iterations``, ``residual``, ``chi_squared`` (over n), ``converged``.

        Raises
        ------
        InputError
            For slopes of another shape or that are not finite, or a system without targets or ``[phase]``.
        """
        frames = _frames(slopes)
        with reporting(progress) as report:
            prepared = self._parsed.estimator(
                _estimate_options(options, max(len(frames), 1)), device, precision, report
            )
        estimator = Estimator(self, prepared, _call("estimate", options))
        return estimator._estimate(frames, warm_start, progress)

    # Simulations

    def simulation_plan(self, *, frames: int = 1, seed: int = 1, **options: Any) -> Plan[Simulation]:
        """Plan of :meth:`simulate`, with the same parameters."""
        given = {"frames": _keys.count("frames", frames), "seed": _keys.count("seed", seed, 0), **options}
        planned = self._parsed.plan_simulation(given)
        return Plan(planned, lambda *found: Simulation._of(self, found), _call("simulate", given))

    def simulate(self, *, frames: int = 1, seed: int = 1, progress: Progress = None, **options: Any) -> Simulation:
        """Slopes that the sensors would measure, with their noise, and the true wavefronts.

        Parameters
        ----------
        frames : int
            Number of independent frames.
        seed : int
            Seed of all frames; frames of different seeds are independent.
        progress
            As for :meth:`covariance`.

        Returns
        -------
        Simulation
            ``slopes``, (frames, n) [rad]; with targets and ``[phase]`` ``wavefront``, (frames, T, M, M) [m], axis 2 is y.
        """
        return self.simulation_plan(frames=frames, seed=seed, **options).run(progress=progress)

    # Point-spread functions

    def psf_plan(
        self,
        *,
        whole_field: bool = False,
        device: str = "cpu",
        precision: str = "f64",
        **keywords: Unpack[ImageKeywords],
    ) -> Plan[Psf]:
        """Plan of :meth:`psf`, with the same parameters."""
        system = self._with("image", keywords)
        planned = system._parsed.plan_psf(whole_field, device, precision)
        return Plan(planned, lambda *found: Psf._of(system, found), _call("psf", keywords))

    def psf(
        self,
        *,
        whole_field: bool = False,
        device: str = "cpu",
        precision: str = "f64",
        progress: Progress = None,
        **keywords: Unpack[ImageKeywords],
    ) -> Psf:
        """Long-exposure point-spread functions of the targets behind the mirrors, with error budgets.

        Parameters
        ----------
        whole_field : bool
            Keep whole images of all directions of ``[field]``.
        device, precision, progress
            As for :meth:`covariance`.
        wavelengths : sequence of float
            Wavelengths of the images [m]; 1e-9 to 1e-3, default [1.65e-6].
        pixel : float
            Side of a pixel [mas]; 0.02 to 3.6e6, near λ/D.
        pixels : int
            Pixels across; 1 to 16384, default 256.
        terms : sequence of {"tomography", "fitting", "bandwidth", "aliasing", "anisoplanatism"}
            Errors that enter.
        structure : {"exact", "stationary"}
            Structure function of the tomographic error, default "exact".
        extra : float
            Rms of an extra error [nm]; 1e-3 to 1e6, or 0, default 0.0.
        jitter : float
            Rms of the image's position along each axis [mas]; 0.01 to 1e6, or 0, default 0.0.
        ensquared : sequence of float
            Sides of the boxes of ensquared energy [mas]; 0.02 to 3.6e6, near λ/D, default [].
        **keywords
            All keywords of :class:`System`, in place of those of the system.

        Returns
        -------
        Psf
            ``strehl`` and ``fwhm``, (targets, wavelengths); ``budget``, a dictionary for each target [m]; the images.
        """
        plan = self.psf_plan(whole_field=whole_field, device=device, precision=precision, **keywords)
        return plan.run(progress=progress)

    # Profiles

    def fit_profile(
        self,
        slopes: ArrayLike,
        *,
        fit: Iterable[str] = ("strengths", "altitudes"),
        steps: int | None = None,
        progress: Progress = None,
    ) -> ProfileFit:
        """Fit the turbulence profile, and where sensors look, to measured slopes (Learn & Apply).

        Parameters
        ----------
        slopes : array_like, shape (frames, n)
            Slopes [rad], as for :meth:`estimate`.
        fit : iterable of str
            Groups of parameters that are fitted; the noise is always fitted. ``"strengths"``, ``"altitudes"``, ``"outer-scale"``,
            ``"shifts"``, ``"rotations"`` or ``"magnifications"``.
        steps : int, optional
            Largest number of steps of the fit.
        progress
            As for :meth:`covariance`.

        Returns
        -------
        ProfileFit
            ``system``, the fitted system; ``parameters``, values with standard errors by name.

        Notes
        -----
        Vidal, Gendron and Rousset (2010), J. Opt. Soc. Am. A 27, A253.
        """
        frames = _frames(slopes)
        options: dict[str, Any] = {"fit": [fit] if isinstance(fit, str) else list(fit)}
        if steps is not None:
            options["steps"] = _keys.count("steps", steps)
        plan: Plan[ProfileFit] = Plan(
            self._parsed.plan_fit(frames, options),
            lambda *found: ProfileFit._of(self, found),
            _call("fit_profile", options),
        )
        fitted: ProfileFit = plan.run(progress=progress)
        for warning in fitted.warnings:
            warnings.warn(warning, LensletWarning, stacklevel=2)
        return fitted

    def read_slopes(self, path: str | os.PathLike[str]) -> NDArray[np.float64]:
        """Slopes of a file (``.npy``, ``.npz``, FITS or AOT telemetry) in the order of the system.

        Returns
        -------
        numpy.ndarray, shape (frames, n)
            Slopes [rad].
        """
        return self._parsed.read_slopes(os.fspath(path))


class Estimator:
    """An estimate of wavefronts that is prepared: call it with slopes, as often as there are frames.

    Made by :meth:`System.estimator`.
    """

    def __init__(self, system: System, prepared: _lenslet.PreparedEstimator, call: str) -> None:
        self._system = system
        self._prepared = prepared
        self._call = call

    @property
    def slopes(self) -> int:
        """Slopes of a frame, n."""
        return self._prepared.slopes()

    def __call__(self, slopes: ArrayLike, *, warm_start: bool = False, progress: Progress = None) -> Estimate:
        """Estimate the wavefronts of slopes, (n,) or (frames, n) [rad]; see :meth:`System.estimate`."""
        return self._estimate(_frames(slopes), warm_start, progress)

    def _estimate(self, frames: NDArray[np.float64], warm_start: bool, progress: Progress) -> Estimate:
        with reporting(progress) as report:
            found = self._prepared.estimate(frames, warm_start, self._call, report)
        estimate: Estimate = Estimate._of(self._system, found)
        short = [reason for reason in estimate.shortfall if reason]
        if short:
            message = f"{len(short)} of {len(frames)} frames fell short of the tolerance: {short[0]}"
            warnings.warn(message, LensletWarning, stacklevel=3)
        return estimate


def _frames(slopes: ArrayLike) -> NDArray[np.float64]:
    """Slopes as frames in rows; not copied where they are of double precision."""
    expected = "numbers, (n,) or (frames, n)"
    given = numbers("slopes", slopes, expected)
    if given.ndim not in (1, 2):
        message = f"shape of slopes = {given.shape}: expected {expected}"
        raise InputError(message, key="slopes", value=str(given.shape), expected=expected)
    return np.atleast_2d(given)


def _estimate_options(options: Mapping[str, Any], frames: int) -> dict[str, Any]:
    return {
        "frames": _keys.count("frames", frames),
        **{key: value for key, value in options.items() if value is not None},
    }


def _system(text: str, name: str) -> System:
    return System.from_toml(text, name=name)


def _folder(parsed: _lenslet.ParsedSystem) -> str:
    """The folder of files that a system names; empty where it names none."""
    values = repr(parsed.to_dict())
    names_files = any(f"'{key}': '" in values for key in ("noise", "pupil", "influence"))
    return os.path.dirname(os.path.abspath(parsed.source()[1])) if names_files else ""


def _call(method: str, options: Mapping[str, Any]) -> str:
    """The call of a method, for the provenance of its result."""
    given = ", ".join(f"{key}={value!r}" for key, value in options.items())
    return f"lenslet.System.{method}({given if len(given) < 200 else '…'})"


def _read(path: str | os.PathLike[str]) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError) as failure:
        raise FileError(f"cannot read {path}: {failure}", file=os.fspath(path)) from failure


def _write(path: str | os.PathLike[str], text: str) -> None:
    temporary = f"{os.fspath(path)}.part"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except (OSError, ValueError) as failure:
        raise FileError(f"cannot write {path}: {failure}", file=os.fspath(path)) from failure
