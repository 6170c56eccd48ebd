"""Results of systems and samples."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._data import Coordinate, DataSet, Variable, _import, made
from ._device import DeviceReconstructor, on_host
from .errors import InputError

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
        result.__dict__.pop("system", None)
        text = result.variables.pop("system", None)
        result.system = system
        if text is not None:
            result.attributes["system"] = text.values
        result._take(facts or {})
        return result

    def _take(self, facts: dict[str, Any]) -> None:
        pass


class Covariance(Result):
    """Covariances of slopes, and of wavefronts and slopes.

    Attributes
    ----------
    slope_slope : numpy.ndarray
        In Toeplitz form (S, S, 2, 2, 2N-1, 2N-1) [rad²]: covariance of component ``a`` of sensor ``p`` with component ``b`` of sensor ``q`` at
        the displacement ``(i - N + 1, j - N + 1)`` lenslets; in dense form (n, n).
    wavefront_slope : numpy.ndarray
        In Toeplitz form (T, S, 2, K, K) [m rad], where there are targets and ``[phase]``; in dense form (T, M, M, n).
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
                lags = tuple(Coordinate(f"{axis} lag", "m", "uniform", (-half * step, step)) for axis in "yx")
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
    """A tomographic reconstructor, and the error that it leaves.

    ``R @ slopes`` applies it: slopes of shape (n,) give (T, m), and (frames, n) give (frames, T, m).

    Attributes
    ----------
    reconstructor : numpy.ndarray, shape (T, m, n)
        From slopes of all guide stars to what was asked for, of each target.
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

    def _matrix(self) -> NDArray[np.float64]:
        if "reconstructor" not in self.variables:
            raise InputError("no reconstructor was kept: errors_only = True", key="errors_only", value="True", expected="False")
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
        values = on_host(slopes)
        if values.ndim not in (1, 2) or values.shape[-1] != matrix.shape[-1]:
            expected = f"({matrix.shape[-1]},) or (frames, {matrix.shape[-1]})"
            raise InputError(f"shape of slopes = {values.shape}: expected {expected}", key="slopes", value=str(values.shape), expected=expected)
        rows = matrix.reshape(-1, matrix.shape[-1])
        product: NDArray[np.float64] = values @ rows.T
        return product.reshape(*values.shape[:-1], *matrix.shape[:-1])


class Estimate(Result):
    """Estimated wavefronts.

    Attributes
    ----------
    wavefront : numpy.ndarray, shape (frames, T, M, M)
        Wavefronts [m]; axis 2 is y.
    iterations : numpy.ndarray, shape (frames,)
        Iterations of the solver.
    residual : numpy.ndarray, shape (frames,)
        Relative residual.
    chi_squared : numpy.ndarray, shape (frames,)
        χ² over the number of slopes: 1 on average if the model is right.
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
    """Simulated slopes and wavefronts.

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
    """Point-spread functions and error budgets.

    Attributes
    ----------
    wavelengths : numpy.ndarray, shape (W,)
        Wavelengths [m].
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
    strehl: NDArray[np.float64]
    fwhm: NDArray[np.float64]
    ensquared: NDArray[np.float64]
    budget: list[dict[str, float]]
    targets: list[dict[str, Any]]

    def _take(self, facts: dict[str, Any]) -> None:
        self.targets = facts["targets"]
        self.wavelengths = np.array(facts["wavelengths"], dtype=np.float64)
        self.strehl = np.array([target["strehl"] for target in self.targets], dtype=np.float64)
        widths = [[np.nan if width is None else width for width in target["fwhm_mas"]] for target in self.targets]
        self.fwhm = np.array(widths, dtype=np.float64)
        self.ensquared = np.array([target["ensquared"] for target in self.targets], dtype=np.float64)
        self.budget = [{name: 1e-9 * value for name, value in target["budget_nm"].items()} for target in self.targets]

    def to_fits(self, path: str | os.PathLike[str]) -> int:
        """Write all images, with the layout of TIPTOP's files, into a FITS file; returns its length [bytes]."""
        if not os.fspath(path).lower().endswith((".fits", ".fit", ".fts")):
            expected = "a file name that ends in .fits, .fit or .fts"
            raise InputError(f"path = {path}: expected {expected}", key="path", value=os.fspath(path), expected=expected)
        return self.save(path)


@dataclass(frozen=True)
class Parameter:
    """A fitted value.

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
    """A turbulence profile fitted to slopes.

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
    warnings : list of str
        What the slopes do not determine.
    """

    start: System
    parameters: dict[str, Parameter]
    misfit: float | None
    converged: bool
    warnings: list[str]

    def _take(self, facts: dict[str, Any]) -> None:
        from ._system import System

        self.start = self.system
        self.system = System.from_toml(facts["system"], name=self.start._parsed.source()[1])
        self.misfit, self.converged, self.warnings = facts["misfit"], facts["converged"], facts["warnings"]
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
            result.attributes["sample"] = text.values
        result.sample, result.summary, result.comparison = sample, facts.get("summary", {}), facts.get("comparison")
        result.warnings = facts.get("warnings", [])
        return result

    def to_hyperspy(self, variable: str | None = None) -> Any:
        """One variable as a signal of HyperSpy, without a copy, with its axes, units and the instrument.

        Parameters
        ----------
        variable : str, optional
            Name of the variable; the only one, or ``four_d``, or the first annulus unless given.

        Returns
        -------
        hyperspy.api.signals.BaseSignal

        Raises
        ------
        ImportError
            Where HyperSpy is not installed.
        """
        signals = _import("hyperspy.api", "hyperspy").signals
        one = self._chosen(variable)
        assert isinstance(one.values, np.ndarray)
        # HyperSpy wants y before x, as images are drawn; Lenslet has x before y.
        order = _drawn_order(one)
        axes = []
        for axis in order:
            about = one.coordinates[axis]
            positions = about.values(one.values.shape[axis])
            numeric = positions.dtype.kind in "if" and positions.size > 0
            scale = float(positions[1] - positions[0]) if numeric and positions.size > 1 else 1.0
            axes.append({
                "size": one.values.shape[axis], "name": about.name, "units": about.unit, "scale": scale,
                "offset": float(positions[0]) if numeric else 0.0, "navigate": about.navigation,
            })
        values = one.values.transpose(order)
        inner = sum(not axis["navigate"] for axis in axes)
        if inner == 0 and len(axes) >= 2:
            for axis in axes[-2:]:
                axis["navigate"] = False
            inner = 2
        kind = {1: signals.Signal1D, 2: signals.Signal2D}.get(inner, signals.BaseSignal)
        signal = kind(values, axes=axes)
        signal.metadata.General.title = one.long_name or one.name
        return signal

    def _chosen(self, name: str | None) -> Variable:
        if name is not None:
            if name not in self.variables:
                expected = f"one of {', '.join(self.variables)}"
                raise InputError(f"variable = {name!r}: expected {expected}", key="variable", value=name, expected=expected)
            return self.variables[name]
        arrays = [one for one in self.variables.values() if isinstance(one.values, np.ndarray)]
        first = [one for one in arrays if one.name == "four_d"] or [one for one in arrays if one.name.startswith("annulus")]
        return (first or arrays)[0]


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

    def to_py4dstem(self, variable: str = "four_d") -> Any:
        """The diffraction patterns as a ``py4DSTEM.DataCube``, calibrated in Å and 1/Å.

        Raises
        ------
        InputError
            Where the scan has no diffraction patterns: ``four_d={}`` records them.
        ImportError
            Where py4DSTEM is not installed.
        """
        if variable not in self.variables:
            expected = "a scan with diffraction patterns: four_d={} records them"
            raise InputError(f"variable = {variable!r}: expected {expected}", key="variable", value=variable, expected=expected)
        one = self.variables[variable]
        assert isinstance(one.values, np.ndarray)
        steps = []
        for axis in (0, 2):
            positions = one.coordinates[axis].values(one.values.shape[axis])
            steps.append(float(positions[1] - positions[0]) if positions.size > 1 else 1.0)
        py4dstem = _import("py4DSTEM", "py4dstem")
        cube = py4dstem.DataCube(data=one.values)
        cube.calibration.set_R_pixel_size(steps[0])
        cube.calibration.set_R_pixel_units("A")
        # py4DSTEM has no milliradians without an energy: angles become spatial frequencies.
        unit = one.coordinates[2].unit
        second = one.coordinates[2].second
        if second is not None and unit == "mrad":
            steps[1] *= second[2]
        cube.calibration.set_Q_pixel_size(steps[1])
        cube.calibration.set_Q_pixel_units("A^-1")
        return cube


class Micrographs(SampleResult):
    """High-resolution images of a plane wave.

    Attributes
    ----------
    image : numpy.ndarray, shape (…, x, y)
        Intensities, where 1 is without a specimen; in front an axis of ``defocus`` and of ``thickness`` where there are several.
    wave : numpy.ndarray, shape (…, x, y)
        Complex exit waves, if they were asked for.
    summary : dict
        What is known of the specimen and the samples.
    sample : Sample
        The sample.
    """


def _drawn_order(one: Variable) -> list[int]:
    """Axes with y before x, for scans and for patterns."""
    names = [coordinate.name for coordinate in one.coordinates]
    order = list(range(len(names)))
    for first, second in (("x", "y"), ("q_x", "q_y")):
        if first in names and second in names:
            a, b = names.index(first), names.index(second)
            order[a], order[b] = b, a
    return order


