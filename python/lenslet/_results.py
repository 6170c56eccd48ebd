"""Results of systems and samples."""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._data import Coordinate, DataSet, Variable, _import, load, made, numbers
from ._device import DeviceReconstructor
from .errors import InputError, LensletWarning

if TYPE_CHECKING:
    from ._sample import Sample
    from ._system import System

__all__ = [
    "Covariance",
    "Estimate",
    "Micrographs",
    "Parameter",
    "ProfileFit",
    "Psf",
    "Reconstructor",
    "Scan",
    "Simulation",
]

#: Variables, attributes and facts, as the compiled module returns them.
Found = tuple[dict[str, Any], dict[str, Any], Any]


class Result(DataSet):
    """Result of a computation of a system."""

    system: System

    @classmethod
    def _of(cls, system: System, found: Any) -> Any:
        variables, attributes, facts = found
        result = cls.__new__(cls)
        DataSet.__init__(result, *made((variables, attributes)))
        # The text of the system stays a variable, so that files have it, and the attribute is the system itself.
        result.system = system
        result._take(facts or {})
        return result

    def _take(self, facts: dict[str, Any]) -> None:
        pass


class Covariance(Result):
    """Covariances of slopes, and of wavefronts and slopes.

    Attributes
    ----------
    slope_slope : numpy.ndarray, shape (S, S, 2, 2, 2N-1, 2N-1)
        Toeplitz form [rad²]: covariance of component ``a`` of sensor ``p`` with component ``b`` of sensor ``q``, whose lenslet is displaced from
        that of ``p`` by ``j - N + 1`` lenslets along x and ``i - N + 1`` along y, for the indices ``[p, q, a, b, i, j]``.
    slope_slope_dense : numpy.ndarray, shape (n, n)
        Dense form [rad²]: star by star, all x before all y, valid lenslets by rows.
    wavefront_slope : numpy.ndarray, shape (T, S, 2, K, K)
        Toeplitz form [m rad], where there are targets and ``[phase]``.
    wavefront_slope_dense : numpy.ndarray, shape (T, M, M, n)
        Dense form [m rad].
    wavefront_wavefront : numpy.ndarray, shape (T, T, 2M-1, 2M-1)
        Covariance of the wavefronts of two targets by the displacement of two points [m²]; the middle is no displacement.
    valid : numpy.ndarray
        Valid lenslets.
    system : System
        The system.
    """

    def _take(self, facts: dict[str, Any]) -> None:
        # The last two axes of a Toeplitz form are displacements, of which the file has the pitch.
        pitch = self.variables.get("pitch")
        step = float(np.ravel(pitch.values)[0]) if pitch is not None and isinstance(pitch.values, np.ndarray) else 1.0
        for name, one in self.variables.items():
            if name.startswith("slope_slope") and isinstance(one.values, np.ndarray) and one.values.ndim == 6:
                half = one.values.shape[-1] // 2
                lags = tuple(Coordinate(f"{axis}_lag", "m", "uniform", (-half * step, step)) for axis in "yx")
                self.variables[name] = replace(one, coordinates=(*one.coordinates[:4], *lags))

    @property
    def form(self) -> str:
        """``"toeplitz"``, ``"blocks"`` or ``"dense"``."""
        if "slope_slope" in self.variables:
            return "toeplitz"
        return "dense" if "slope_slope_dense" in self.variables else "blocks"

    def __getitem__(self, name: str) -> Any:
        dense = f"{name}_dense"
        return super().__getitem__(dense if name not in self.variables and dense in self.variables else name)

    def __getattr__(self, name: str) -> Any:
        dense = f"{name}_dense"
        return super().__getattr__(dense if dense in self.__dict__.get("variables", {}) else name)


class Reconstructor(Result):
    """Tomographic reconstructor and covariance of its error, for each of T targets.

    ``R @ slopes`` applies it: slopes of shape (n,) give (T, m), and (frames, n) give (frames, T, m).

    Attributes
    ----------
    reconstructor : numpy.ndarray, shape (T, m, n)
        From slopes of all guide stars to what was asked for: slopes of a truth sensor towards each target; wavefronts [m] at the M² points of
        ``[phase]``, row by row; or strokes [m] of all mirrors, for each target or for all of them.
    to : str
        ``"slopes"``, ``"wavefront"`` or ``"actuators"``.
    error_covariance : numpy.ndarray, shape (T, m, m)
        Covariance of the residual error, where slopes are reconstructed [rad²].
    rms : numpy.ndarray, shape (T,)
        Residual wavefront error [m], with tilt.
    rms_without_tilt : numpy.ndarray, shape (T,)
        The same without tilt [m].
    system : System
        The system, with the options of the reconstructor.
    """

    rms: NDArray[np.float64]
    rms_without_tilt: NDArray[np.float64]

    def _take(self, facts: dict[str, Any]) -> None:
        errors = facts.get("errors", [])
        self.rms = np.array([error["rms"] for error in errors], dtype=np.float64)
        self.rms_without_tilt = np.array([error["rms_without_tilt"] for error in errors], dtype=np.float64)

    @property
    def to(self) -> str:
        """What the reconstructor gives: ``"slopes"``, ``"wavefront"`` or ``"actuators"``."""
        return str(self.attributes.get("to", "slopes"))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Reconstructor:
        """Read a reconstructor that :meth:`save` or the command ``lenslet reconstruct`` wrote.

        Raises
        ------
        InputError
            Where the file has no reconstructor, or not the system that it belongs to.
        FileError
            Where the file cannot be read.
        """
        from ._system import System

        data = load(path)
        text = data.get("system")
        matrix = data.get("reconstructor")
        if not isinstance(text, str) or not isinstance(matrix, np.ndarray) or matrix.ndim != 3:
            expected = "a file of a reconstructor, with its system"
            raise InputError(f"{os.fspath(path)}: expected {expected}", file=os.fspath(path), expected=expected)
        # NumPy's archives have attributes as arrays, and FITS has the unit of the matrix alone.
        in_metres = data.variables["reconstructor"].unit == "m/rad"
        quantity = "actuators" if "actuator_mirror" in data else "wavefront" if in_metres else "slopes"
        found = cls.__new__(cls)
        DataSet.__init__(found, data.variables, {"to": str(data.get("to", quantity)), **data.attributes})
        found.system = System.from_toml(text)
        rms = data.get("error_rms", np.empty((0, 2)))
        found.rms, found.rms_without_tilt = rms[:, 0], rms[:, 1]
        return found

    def apply(self, slopes: ArrayLike, *, device: str = "cpu", precision: str = "f64") -> DataSet:
        """Multiply frames of slopes, and name what results.

        Parameters
        ----------
        slopes : array_like, shape (n,) or (frames, n)
            Slopes [rad], as for :meth:`System.estimate`.
        device : str
            ``"cpu"``, ``"cuda"`` or ``"cuda:K"``.
        precision : {"f64", "f32"}
            Precision of a GPU.

        Returns
        -------
        DataSet
            ``wavefront``, (frames, T, M, M) [m], axis 2 is y; or ``slopes``, (frames, T, m) [rad]; or ``strokes``, (frames, T or 1, actuators) [m].

        Raises
        ------
        InputError
            For slopes of another shape.
        """
        frames = np.atleast_2d(numbers("slopes", slopes, "numbers, (n,) or (frames, n)"))
        product = self @ frames if device == "cpu" else self.to_device(device, precision=precision) @ frames
        unit, name = {"slopes": ("rad", "slopes"), "wavefront": ("m", "wavefront")}.get(self.to, ("m", "strokes"))
        dims = {"slopes": ("frame", "target", "truth_slope"), "wavefront": ("frame", "target", "y", "x")}
        if self.to == "wavefront":
            across = int(round(product.shape[-1] ** 0.5))
            product = product.reshape(*product.shape[:-1], across, across)
        coordinates = tuple(Coordinate(one) for one in dims.get(self.to, ("frame", "command", "actuator")))
        return DataSet({name: Variable(name, product, coordinates, unit)}, {"to": self.to})

    def _matrix(self) -> NDArray[np.float64]:
        if "reconstructor" not in self.variables:
            raise InputError(
                "no reconstructor was kept: errors_only = True", key="errors_only", value="True", expected="False"
            )
        matrix: NDArray[np.float64] = self["reconstructor"]
        return matrix

    def to_device(self, device: str = "cuda", *, precision: str = "f64") -> DeviceReconstructor:
        """A copy of the reconstructor in the memory of a GPU, which multiplies slopes of CuPy, PyTorch and JAX there.

        Parameters
        ----------
        device : str
            ``"cuda"`` or ``"cuda:K"``.
        precision : {"f64", "f32"}
            Precision of the copy, which the slopes must have, too.

        Raises
        ------
        DeviceError, OutOfMemoryError
            Where there is no such GPU, or too little memory.
        """
        return DeviceReconstructor(self._matrix(), device, precision)

    def __matmul__(self, slopes: ArrayLike) -> NDArray[np.float64]:
        matrix = self._matrix()
        expected = f"({matrix.shape[-1]},) or (frames, {matrix.shape[-1]})"
        values = numbers("slopes", slopes, expected)
        if values.ndim not in (1, 2) or values.shape[-1] != matrix.shape[-1]:
            message = f"shape of slopes = {values.shape}: expected {expected}"
            raise InputError(message, key="slopes", value=str(values.shape), expected=expected)
        rows = matrix.reshape(-1, matrix.shape[-1])
        product: NDArray[np.float64] = values @ rows.T
        return product.reshape(*values.shape[:-1], *matrix.shape[:-1])


class Estimate(Result):
    """Estimated wavefronts of several frames, with iterations, residuals and goodness of fit.

    Attributes
    ----------
    wavefront : numpy.ndarray, shape (frames, T, M, M)
        Wavefronts [m]; axis 2 is y.
    iterations : numpy.ndarray, shape (frames,)
        Iterations of the solver for each frame.
    residual : numpy.ndarray, shape (frames,)
        Relative residual ‖s − (Θ + C_n) c‖ / ‖s‖ for each frame; the largest one of a row, where a reconstructor was
        formed for all frames.
    chi_squared : numpy.ndarray, shape (frames,)
        χ²/n for each frame: 1 on average if the model is right. Where a reconstructor was formed, for a sample of the
        frames, and NaN for others.
    converged : numpy.ndarray, shape (frames,)
        Whether the tolerance was met.
    shortfall : list
        For each frame why the solver ended short of its tolerance, or ``None``.
    system : System
        The system.
    """

    shortfall: list[str | None]

    def _take(self, facts: dict[str, Any]) -> None:
        self.shortfall = list(facts.get("shortfall", []))


class Simulation(Result):
    """Simulated slopes and wavefronts of all frames.

    Attributes
    ----------
    slopes : numpy.ndarray, shape (frames, n)
        Slopes with their noise [rad].
    wavefront : numpy.ndarray, shape (frames, T, M, M)
        True wavefronts [m], where there are targets and ``[phase]``; axis 2 is y.
    system : System
        The system.
    """


class Psf(Result):
    """Point-spread functions and error budgets of all targets.

    Attributes
    ----------
    wavelengths : numpy.ndarray, shape (W,)
        Wavelengths [m].
    pixel : numpy.ndarray, shape (W,)
        Sides of a pixel [mas].
    strehl : numpy.ndarray, shape (T, W)
        Strehl ratios.
    fwhm : numpy.ndarray, shape (T, W)
        Full widths at half maximum [mas]; NaN where wider than half the image.
    budget : list of dict
        For each target the wavefront error [m rms] by cause, and their ``"total"``; a covariance of causes has the sign of its effect.
    ensquared : numpy.ndarray, shape (T, W, boxes)
        Share of the light in the boxes of ``ensquared``.
    targets : list of dict
        All that is known of each target.
    system : System
        The system, with the options of the images.
    """

    wavelengths: NDArray[np.float64]
    pixel: NDArray[np.float64]
    strehl: NDArray[np.float64]
    fwhm: NDArray[np.float64]
    ensquared: NDArray[np.float64]
    budget: list[dict[str, float]]
    targets: list[dict[str, Any]]

    def _take(self, facts: dict[str, Any]) -> None:
        self.targets = facts["targets"]
        self.wavelengths = np.array(facts["wavelengths"], dtype=np.float64)
        self.pixel = np.array(facts["pixel_mas"], dtype=np.float64)
        if np.all(self.pixel == self.pixel[0]):
            for name in ("psf", "open_loop", "diffraction"):
                self._set_pixels(name, float(self.pixel[0]))
        count = len(self.targets), len(self.wavelengths)
        self.strehl = np.array([target["strehl"] for target in self.targets], dtype=np.float64).reshape(count)
        widths = [[np.nan if width is None else width for width in target["fwhm_mas"]] for target in self.targets]
        self.fwhm = np.array(widths, dtype=np.float64).reshape(count)
        ensquared = np.array([target["ensquared"] for target in self.targets], dtype=np.float64)
        self.ensquared = ensquared.reshape(*count, -1) if ensquared.size else np.zeros((*count, 0))
        self.budget = [{name: 1e-9 * value for name, value in target["budget_nm"].items()} for target in self.targets]

    def _set_pixels(self, name: str, side: float) -> None:
        """Give the last two axes of an image their angles from the middle pixel."""
        one = self.variables.get(name)
        if one is None or not isinstance(one.values, np.ndarray) or len(one.coordinates) < 2:
            return
        angles = tuple(
            Coordinate(coordinate.name, "mas", "uniform", (-(count // 2) * side, side))
            for coordinate, count in zip(one.coordinates[-2:], one.values.shape[-2:], strict=True)
        )
        self.variables[name] = replace(one, coordinates=(*one.coordinates[:-2], *angles))

    def to_fits(self, path: str | os.PathLike[str]) -> int:
        """Write all images, with the layout of TIPTOP's files, into a FITS file; returns its length [bytes]."""
        if not os.fspath(path).lower().endswith((".fits", ".fit", ".fts")):
            expected = "a file name that ends in .fits, .fit or .fts"
            raise InputError(
                f"path = {path}: expected {expected}", key="path", value=os.fspath(path), expected=expected
            )
        return self.save(path)

    def to_scopesim(self, path: str | os.PathLike[str]) -> int:
        """Write the images of the field, or else of the targets, into a FITS file for ScopeSim's effect ``FieldVaryingPSF``.

        Parameters
        ----------
        path : path-like
            Name of the file, which ends in ``.fits``.

        Returns
        -------
        int
            Length of the file [bytes].

        Raises
        ------
        InputError
            Where the images were not kept: ``psf(whole_field=True)`` keeps them; or for another ending.
        FileError
            Where the file cannot be written.

        Notes
        -----
        The file has an index map of the field, and for each wavelength a cube of images with an odd number of pixels. ScopeSim takes the wavelength nearest
        to the middle of its band, and the image of the nearest direction. Version 0.11 scales images wrongly to pixels of another size: let the key
        ``pixel`` of ``[image]`` be the pixel of the detector.
        """
        names = [name for name in self.variables if name == "psf_index" or re.fullmatch(r"psf_\d+", name)]
        if "psf_index" not in names:
            expected = "True, which keeps the images of the field"
            raise InputError(
                f"whole_field = False: expected {expected}", key="whole_field", value="False", expected=expected
            )
        if not os.fspath(path).lower().endswith(".fits"):
            expected = "a file name that ends in .fits"
            raise InputError(
                f"path = {path}: expected {expected}", key="path", value=os.fspath(path), expected=expected
            )
        return DataSet({name: self.variables[name] for name in names}, self.attributes).save(path)


@dataclass(frozen=True)
class Parameter:
    """A fitted value, with its standard error if the slopes determine it.

    Attributes
    ----------
    name : str
        What it is.
    value : float
        The value, in SI units.
    error : float or None
        Its standard error; ``None`` where the slopes do not determine it.
    """

    name: str
    value: float
    error: float | None


class ProfileFit(Result):
    """Result of a fit of turbulence and sensors to slopes.

    Attributes
    ----------
    parameters : dict of str to Parameter
        Fitted values with their standard errors.
    system : System
        The system with the fitted values.
    start : System
        The system that the fit started from.
    misfit : float or None
        Sum of squares over its expectation: 1 if the model is right.
    converged : bool
        Whether the fit ended by itself.
    independent_frames : float
        Number of independent frames that the slopes are worth; fewer than the frames where the turbulence outlasts a frame.
    warnings : list of str
        What the slopes do not determine.
    """

    start: System
    parameters: dict[str, Parameter]
    misfit: float | None
    converged: bool
    independent_frames: float
    warnings: list[str]

    def _take(self, facts: dict[str, Any]) -> None:
        from ._system import System

        self.start = self.system
        self.system = System.from_toml(facts["system"], name=self.start._parsed.source()[1])
        self.misfit, self.converged, self.warnings = facts["misfit"], facts["converged"], facts["warnings"]
        self.independent_frames = float(facts["independent_frames"])
        self.parameters = {"r0": _parameter("r0", self["fried_parameter"][0], self["fried_parameter_error"][0])}
        for group, name in (("fraction", "fraction of layer"), ("noise", "noise of star")):
            for k, (value, error) in enumerate(zip(self[group], self[f"{group}_error"], strict=True)):
                self.parameters[f"{name} {k}"] = _parameter(f"{name} {k}", value, error)
        for name, value, error in facts["values"]:
            self.parameters.setdefault(name, _parameter(name, value, np.nan if error is None else error))


def _parameter(name: str, value: float, error: float) -> Parameter:
    return Parameter(name, float(value), None if np.isnan(error) else float(error))


class SampleResult(DataSet):
    """Result of a computation of a sample."""

    summary: dict[str, Any]
    comparison: dict[str, Any] | None
    sample: Sample
    warnings: list[str]

    @classmethod
    def _of(cls, sample: Sample, found: Any) -> Any:
        variables, attributes, facts = found
        result = cls.__new__(cls)
        DataSet.__init__(result, *made((variables, attributes)))
        text = result.variables.pop("system", None)
        if text is not None:
            result.attributes["system"] = text.values
        result.sample, result.summary, result.comparison = sample, facts.get("summary", {}), facts.get("comparison")
        result.warnings = facts.get("warnings", [])
        return result

    def to_hyperspy(self, variable: str | None = None) -> Any:
        """Return one variable as a signal of HyperSpy, as HyperSpy opens it from a file ``.hspy`` of this result.

        HyperSpy indexes images by y before x, so that axes of a scan and of a pattern are exchanged, without a copy of
        the numbers. Foci and thicknesses are navigation axes; so are x and y of a scan where more than one number is
        recorded at each position, and otherwise they are those of the image.

        Parameters
        ----------
        variable : str, optional
            Name of the variable; ``four_d``, or the first annulus, or the first array unless given.

        Returns
        -------
        hyperspy.api.signals.BaseSignal
            ``Signal1D``, ``Signal2D`` or ``ComplexSignal2D``, or the class that an extension of HyperSpy has for
            ``"electron_diffraction"``.

        Raises
        ------
        InputError
            For a variable that there is not.
        ImportError
            Where HyperSpy is not installed: ``pip install "lenslet[hyperspy]"``.
        """
        one = self._chosen(variable)
        assert isinstance(one.values, np.ndarray)
        signals = _import("hyperspy.api", "hyperspy").signals
        series, scanned, recorded = _kinds(one)
        moved = series + scanned if recorded else series
        order = _drawn_order(one)
        shape = one.values.shape
        axes = [_hyperspy_axis(one.coordinates[axis], shape[axis], k < moved) for k, axis in enumerate(order)]
        pattern = recorded == 2 and all(axis.unit in ("1/Å", "1/nm") for axis in one.coordinates[moved:])
        kind = "electron_diffraction" if pattern else ""
        metadata: dict[str, Any] = {"General": {"title": one.name}, "Signal": {"signal_type": kind}}
        # What HyperSpy has no place for, as in a file.
        words = {"units": one.unit, "long_name": one.long_name}
        named = {axis.name: axis.positions for axis in one.coordinates if axis.kind == "labels" and axis.positions}
        labels = {f"labels_{name}": "\n".join(map(str, positions)) for name, positions in named.items()}
        metadata["Lenslet"] = {**one.attributes, **{key: text for key, text in words.items() if text}, **labels}
        metadata["Lenslet"] |= {"order": " ".join(map(str, order)), "navigation": series + scanned}
        instrument = {key: self.attributes[key] for key in _INSTRUMENT if key in self.attributes}
        if len(instrument) == len(_INSTRUMENT):
            metadata["Acquisition_instrument"] = {"TEM": instrument}
        picture, facts = one.values.transpose(order), self._facts()
        signal = signals.BaseSignal(picture, axes=axes, metadata=metadata, original_metadata=facts)
        # The class follows from the kind; that no package for diffraction patterns is installed is no reason to warn.
        logger = logging.getLogger("hyperspy.io")
        level = logger.level
        logger.setLevel(logging.ERROR)
        try:
            signal.set_signal_type(kind)
        finally:
            logger.setLevel(level)
        return signal

    def _facts(self) -> dict[str, Any]:
        """Return what files hold besides arrays: attributes and texts, with lists as arrays."""
        texts = {one.name: one.values for one in self.variables.values() if isinstance(one.values, str)}
        facts = {**self.attributes, **texts}
        return {key: np.asarray(fact) if isinstance(fact, list) else fact for key, fact in facts.items()}

    def _chosen(self, name: str | None) -> Variable:
        if name is not None:
            if name not in self.variables:
                expected = f"one of {', '.join(self.variables)}"
                message = f"variable = {name!r}: expected {expected}"
                raise InputError(message, key="variable", value=name, expected=expected)
            return self.variables[name]
        arrays = [one for one in self.variables.values() if isinstance(one.values, np.ndarray)]
        patterns = [one for one in arrays if one.name == "four_d"]
        annuli = [one for one in arrays if one.name.startswith("annulus")]
        return (patterns or annuli or arrays)[0]


class Scan(SampleResult):
    """Images of a scanning transmission electron microscope.

    Attributes
    ----------
    annular : numpy.ndarray, shape (x, y, ring)
        Share of the electrons in rings of scattering angles.
    annulus_0, … : numpy.ndarray, shape (x, y)
        Share of the electrons in the annular detectors of ``annuli``.
    centre_of_mass : numpy.ndarray, shape (x, y, 2)
        Mean transverse momentum [1/Å].
    four_d : numpy.ndarray, shape (x, y, q_x, q_y)
        Diffraction patterns.
    comparison : dict or None
        Errors of PRISM against multislice at some probes, if they were asked for.
    summary : dict
        What is known of the specimen and the samples.
    sample : Sample
        The sample.
    """

    def to_py4dstem(
        self, variable: str = "four_d", *, defocus: float | None = None, thickness: float | None = None
    ) -> Any:
        """Return diffraction patterns as a ``py4DSTEM.DataCube``, as py4DSTEM opens them from a file of this result.

        Its numbers are those of the scan, (x, y, q_x, q_y), without a copy. All other arrays are in its tree,
        ``cube.tree("annulus_0")``, and facts in its root, ``cube.root.metadata["simulation"]``.

        Parameters
        ----------
        variable : str
            Name of the variable with patterns.
        defocus, thickness : float, optional
            Which of several foci and thicknesses [Å]; needed where there are several.

        Returns
        -------
        py4DSTEM.DataCube
            Calibrated in Å and 1/Å, with the convergence semi-angle in mrad.

        Raises
        ------
        InputError
            Where the scan has no diffraction patterns, or for a focus or a thickness that it does not have.
        ImportError
            Where py4DSTEM is not installed: ``pip install "lenslet[py4dstem]"``.

        Warns
        -----
        LensletWarning
            Where pixels are not squares: py4DSTEM has one size for both axes, which is that of x.
        """
        chosen = {name: value for name, value in (("defocus", defocus), ("thickness", thickness)) if value is not None}
        self._check_cube(variable, chosen)
        arrays = [_selected(one, chosen) for one in self.variables.values() if isinstance(one.values, np.ndarray)]
        cube = next(one for one in arrays if one.name == variable)
        assert isinstance(cube.values, np.ndarray)
        py4dstem = _import("py4DSTEM", "py4dstem")
        emdfile = _import("emdfile", "py4dstem")
        calibration = py4dstem.Calibration()
        for name, first in (("R", 0), ("Q", 2)):
            steps = [_uniform(axis) for axis in cube.coordinates[first : first + 2]]
            (_, step), (_, other) = steps
            if abs(other - step) > 1e-6 * abs(step):
                size = f"{step:.6g} × {other:.6g} {cube.coordinates[first].unit}"
                message = f"pixels of {variable} are {size}: py4DSTEM has one size for both axes, which is the first"
                warnings.warn(message, LensletWarning, stacklevel=2)
            calibration[f"{name}_pixel_size"] = step
            calibration[f"{name}_pixel_units"] = _spelt(cube.coordinates[first].unit)
        if "convergence_angle" in self.attributes:
            calibration["convergence_semiangle_mrad"] = self.attributes["convergence_angle"]
        made = py4dstem.DataCube(data=cube.values, name=cube.name, calibration=calibration)
        simulation = emdfile.Metadata(name="simulation", data=self._facts())
        made.root.name = "lenslet"
        made.root.metadata = simulation
        for one in arrays:
            if one is cube:
                continue
            if _kinds(one) == (0, 2, 2):
                node = py4dstem.DataCube(data=one.values, name=one.name)
                made.attach(node)
                node.calibrate()
            else:
                made.tree(_emd_array(emdfile, one))
        return made

    def _check_cube(self, name: str, chosen: Mapping[str, float]) -> None:
        """Reject a variable without diffraction patterns, and settings that do not choose one of its series."""
        one = self.variables.get(name)
        if one is None or _kinds(one)[1:] != (2, 2):
            expected = "a variable with diffraction patterns: four_d={} of Sample.stem records them"
            raise InputError(f"variable = {name!r}: expected {expected}", key="variable", value=name, expected=expected)
        series = {axis.name: axis.positions for axis in one.coordinates if axis.navigation and axis.kind == "values"}
        for key in chosen:
            if key not in series:
                value, expected = str(chosen[key]), f"no such keyword, as the scan has one {key}"
                raise InputError(f"{key} = {value}: expected {expected}", key=key, value=value, expected=expected)
        for key, positions in series.items():
            if key not in chosen:
                expected = f"one of {positions}, as a cube of py4DSTEM has one {key}"
                raise InputError(f"{key}: missing: expected {expected}", key=key, expected=expected)


class Micrographs(SampleResult):
    """High-resolution images of a plane wave, and its exit waves.

    Attributes
    ----------
    image : numpy.ndarray, shape (…, x, y)
        Intensities, where 1 is without a specimen; in front an axis of ``defocus`` and of ``thickness`` where there are
        several.
    wave : numpy.ndarray, shape (…, x, y)
        Complex exit waves, if they were asked for.
    summary : dict
        What is known of the specimen and the samples.
    sample : Sample
        The sample.
    """


#: Attributes of the instrument, by the names that HyperSpy has for them.
_INSTRUMENT = ("beam_energy", "convergence_angle", "acquisition_mode")


def _kinds(one: Variable) -> tuple[int, int, int]:
    """How many dimensions are a series of settings, a scan, and recorded; they come in this order."""
    moved = [axis for axis in one.coordinates if axis.navigation]
    series = sum(axis.kind == "values" for axis in moved)
    return series, len(moved) - series, len(one.coordinates) - len(moved)


def _drawn_order(one: Variable) -> list[int]:
    """Dimensions with y before x, where a scan has two of them and where a pattern has."""
    series, scanned, recorded = _kinds(one)
    order = list(range(len(one.coordinates)))
    for first, count in ((series, scanned), (series + scanned, recorded)):
        if count == 2:
            order[first], order[first + 1] = first + 1, first
    return order


def _uniform(axis: Coordinate) -> tuple[float, float]:
    """Offset and step of a dimension; of a list of values the first one and the mean step."""
    if axis.kind == "uniform" and axis.positions is not None:
        offset, step = axis.positions
        return float(offset), float(step)
    if axis.kind == "values":
        values = np.asarray(axis.positions, dtype=np.float64)
        return float(values[0]), float((values[-1] - values[0]) / (values.size - 1)) if values.size > 1 else 1.0
    return 0.0, 1.0


def _hyperspy_axis(axis: Coordinate, count: int, navigate: bool) -> dict[str, Any]:
    """Describe a dimension of ``count`` samples as HyperSpy does."""
    about: dict[str, Any] = {"name": axis.name, "units": axis.unit, "navigate": navigate, "is_binned": False}
    offset, step = _uniform(axis)
    if axis.kind == "values":
        values = np.asarray(axis.positions, dtype=np.float64)
        largest = max(abs(step), float(np.abs(values).max()))
        if np.abs(values - (offset + step * np.arange(values.size))).max() > 1e-9 * largest:
            return {**about, "_type": "DataAxis", "axis": values}
    return {**about, "_type": "UniformDataAxis", "size": count, "offset": offset, "scale": step}


def _selected(one: Variable, chosen: Mapping[str, float]) -> Variable:
    """Take the part of a variable at the chosen setting of each series, as a view."""
    values, coordinates = one.values, list(one.coordinates)
    for name, wanted in chosen.items():
        axis = next((k for k, axis in enumerate(coordinates) if axis.kind == "values" and axis.name == name), None)
        if axis is None:
            continue
        positions = np.asarray(coordinates[axis].positions, dtype=np.float64)
        (found,) = np.nonzero(np.abs(positions - wanted) <= 1e-6 * np.maximum(1.0, np.abs(positions)))
        if found.size == 0:
            expected = f"one of {coordinates[axis].positions}"
            raise InputError(f"{name} = {wanted}: expected {expected}", key=name, value=str(wanted), expected=expected)
        assert isinstance(values, np.ndarray)
        values = values[(slice(None),) * axis + (int(found[0]),)]
        del coordinates[axis]
    return one if values is one.values else replace(one, values=values, coordinates=tuple(coordinates))


def _spelt(unit: str) -> str:
    """Spell a unit as py4DSTEM does: ``A^-1``."""
    return (f"{unit[2:]}^-1" if unit.startswith("1/") else unit).replace("Å", "A")


def _emd_array(emdfile: Any, one: Variable) -> Any:
    """Make an array of EMD of a variable, with its positions, of which a dimension has two at least."""
    assert isinstance(one.values, np.ndarray)
    dims = [axis.values(max(count, 2)) for axis, count in zip(one.coordinates, one.values.shape, strict=True)]
    names, units = ([axis.name for axis in one.coordinates], [_spelt(axis.unit) for axis in one.coordinates])
    return emdfile.Array(one.values, name=one.name, dims=dims, dim_names=names, dim_units=units)
