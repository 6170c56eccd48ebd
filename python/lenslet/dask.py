"""Sweeps, simulations, fields and scans as graphs of Dask, for one machine or a cluster.

Every function returns a lazy object: nothing is computed before its ``compute()``. The tasks run on whatever
scheduler Dask uses, the threads of this process or the workers of a ``distributed.Client``, and give the numbers of a
run without Dask.

Threads
-------
All tasks in one process share the threads of Lenslet, whose number is fixed when the first one computes. In a worker
process of ``distributed`` it is the ``threads_per_worker`` of the cluster, and with ``device="cuda"`` at least the
worker's share of the cores of the machine. The environment variable ``RAYON_NUM_THREADS`` takes precedence over both.

Graphics processors
-------------------
A worker whose environment has ``CUDA_VISIBLE_DEVICES``, as those of dask-cuda have, takes the first of them where
``device="cuda"`` is asked for.

Examples
--------
>>> import lenslet as ls
>>> import lenslet.dask
>>> system = ls.System.from_file("book/systems/small-moao.toml")
>>> swept = lenslet.dask.sweep(system, {"r0": [0.12, 0.15]}, "psf", variables=["strehl"]).compute()
>>> swept.strehl.shape
(2, 2, 1)
>>> [round(float(ratio), 3) for ratio in swept.strehl[1, :, 0]]
[0.664, 0.534]
"""

from __future__ import annotations

import inspect
import itertools
import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from . import _keys
from ._data import Coordinate, DataSet, Variable, _same
from ._results import Psf, Reconstructor, Scan, Simulation
from ._sample import Sample, _warned
from ._system import System
from .errors import InputError, LensletWarning

try:
    import dask.array
    from dask.delayed import Delayed, delayed
except ImportError as missing:
    raise ImportError('dask is not installed: pip install "lenslet[dask]"') from missing

if TYPE_CHECKING:
    from typing import Unpack

    from ._keywords import ImageKeywords, SampleKeywords

__all__ = ["field", "simulate", "stem", "sweep", "sweep_points"]

#: A system or a sample.
Described = System | Sample
D = TypeVar("D", System, Sample)

#: Methods that a sweep computes, with those that plan them.
_METHODS = {
    "psf": "psf_plan",
    "reconstructor": "reconstructor_plan",
    "covariance": "covariance_plan",
    "simulate": "simulation_plan",
    "stem": "stem_plan",
    "hrtem": "hrtem_plan",
}

#: Tasks for a scan where neither shares nor configurations divide it as requested.
_TASKS = 16


# Sweeps


def sweep(
    system: Described | Mapping[str, Described],
    over: Mapping[str, Iterable[Any]] | None = None,
    compute: str | Callable[..., Any] | None = None,
    *,
    variables: Iterable[str] | None = None,
    device: str = "cpu",
    **options: Any,
) -> Delayed:
    """One computation for all combinations of some values, as a delayed data set with the values as coordinates.

    Parameters
    ----------
    system : System or Sample, or dict of str to System or Sample
        What is varied; or several by name, along a dimension ``"system"`` or ``"sample"`` of labels.
    over : dict of str to sequence
        Values by keyword (``"r0"``), by path (``"guide_star[0].noise"``), or by parameter of the computation
        (``"seed"``). The first varies slowest.
    compute : str or callable, optional
        Method of the system or sample: ``"psf"`` (the default), ``"reconstructor"``, ``"covariance"``,
        ``"simulate"``, ``"stem"`` (the default for a sample), ``"hrtem"``. Or a function that takes the system or
        sample and returns a data set, a dictionary of arrays, an array, or a number.
    variables : iterable of str, optional
        Variables that are gathered, all unless given; others stay on the workers.
    device : str
        ``"cpu"``, ``"cuda"`` or ``"cuda:K"``, for methods that have such a parameter.
    **options
        Further parameters of the computation, the same for all values.

    Returns
    -------
    dask.delayed.Delayed of DataSet
        Each variable of the results behind the dimensions of the sweep, of which that of ``"guide_star[0].noise"`` is
        ``guide_star_0_noise``. Those of a :class:`Psf` include ``strehl``,
        ``fwhm``, ``ensquared`` and ``budget`` [m], those of a :class:`Reconstructor` ``rms`` and ``rms_without_tilt``
        [m]. They equal those of the same computations without Dask in every bit, if all processors are of one type.

    Raises
    ------
    InputError
        Here for values, keys and options that make no sense, and from ``compute()`` for those that only the
        computation rejects.

    Warns
    -----
    LensletWarning
        For variables whose shapes differ over the sweep, which are left out; :func:`sweep_points` returns each result
        by itself.

    Examples
    --------
    >>> import lenslet as ls
    >>> import lenslet.dask
    >>> system = ls.System.from_file("book/systems/small-moao.toml")
    >>> over = {"r0": [0.1, 0.15], "guide_star[0].noise": [1e-14, 4e-14, 1e-13]}
    >>> lenslet.dask.sweep(system, over, "reconstructor", variables=["rms"]).compute().rms.shape
    (2, 3, 2)
    """
    chosen = None if variables is None else _names(variables)
    points, coordinates = _points(system, over, compute, device, options, (chosen,))
    name = compute if isinstance(compute, str) or compute is None else getattr(compute, "__name__", "")
    call = f"lenslet.dask.sweep({name or ''})"
    gathered: Delayed = delayed(_stacked, pure=False)(list(points.flat), points.shape, coordinates, call)
    return gathered


def sweep_points(
    system: Described | Mapping[str, Described],
    over: Mapping[str, Iterable[Any]] | None = None,
    compute: str | Callable[..., Any] | None = None,
    *,
    device: str = "cpu",
    **options: Any,
) -> NDArray[np.object_]:
    """The results of a sweep one by one, as :func:`sweep` computes them, each delayed.

    Parameters are those of :func:`sweep`.

    Returns
    -------
    numpy.ndarray of dask.delayed.Delayed
        An axis for each swept value. Each element computes what the method, or the function, returns.
    """
    return _points(system, over, compute, device, options, None)[0]


def _points(
    system: Described | Mapping[str, Described],
    over: Mapping[str, Iterable[Any]] | None,
    compute: str | Callable[..., Any] | None,
    device: str,
    options: Mapping[str, Any],
    chosen: tuple[list[str] | None] | None,
) -> tuple[NDArray[np.object_], list[Coordinate]]:
    """Delayed results of all points, and the coordinates of the sweep."""
    systems = system if isinstance(system, Mapping) else {"": system}
    kinds = {type(one) for one in systems.values()}
    if len(kinds) != 1 or not kinds <= {System, Sample}:
        raise _keys.refused("system", repr(system), "a System, a Sample, or a dictionary of either by name")
    kind = "system" if kinds == {System} else "sample"
    compute = compute or ("psf" if kind == "system" else "stem")
    parameters = _parameters(next(iter(systems.values())), compute)
    coordinates: list[Coordinate] = []
    if isinstance(system, Mapping):
        coordinates.append(Coordinate(kind, kind="labels", positions=list(system)))
    values = {name: list(given) for name, given in (over or {}).items()}
    for name, given in values.items():
        if not given:
            raise _keys.refused(name, repr(given), "at least one value")
        coordinates.append(_coordinate(kind, name, given))
    shape = tuple(len(given) for given in ([systems] if isinstance(system, Mapping) else []) + list(values.values()))
    given_device = {"device": device} if parameters is None or "device" in parameters else {}
    tasks: list[Any] = []
    for one, combination in itertools.product(systems.values(), itertools.product(*values.values())):
        point = dict(zip(values, combination, strict=True))
        own = {name: point.pop(name) for name in list(point) if _is_option(kind, name, parameters)}
        paths = {name: point.pop(name) for name in list(point) if name not in _keys.keywords(kind)}
        changed = _portable(one.replace(paths, **point))
        if not tasks and isinstance(compute, str):
            getattr(changed, _METHODS[compute])(**options, **own)
        tasks.append(delayed(_computed, pure=False)(changed, compute, {**options, **own}, given_device, chosen))
    points = np.empty(len(tasks), dtype=object)
    points[:] = tasks
    return points.reshape(shape), coordinates


def _parameters(described: Described, compute: str | Callable[..., Any]) -> set[str] | None:
    """Parameters of a method; ``None`` for a function, whose parameters are its own."""
    if callable(compute):
        return None
    methods = [name for name in _METHODS if hasattr(described, name)]
    if compute not in methods:
        raise _keys.refused(
            "compute", repr(compute), f"{', '.join(methods)}, or a function of the {type(described).__name__.lower()}"
        )
    own = inspect.signature(getattr(described, compute)).parameters.values()
    return {one.name for one in own if one.kind is one.KEYWORD_ONLY} - {"progress"}


def _is_option(kind: str, name: str, parameters: set[str] | None) -> bool:
    """Whether a swept value is a parameter of the computation rather than one of the system or sample."""
    return parameters is not None and (name in parameters or (name.isidentifier() and name not in _keys.keywords(kind)))


def _coordinate(kind: str, name: str, values: list[Any]) -> Coordinate:
    """The coordinate of swept values: numbers with their unit, or labels. Its name is an identifier."""
    path, known = re.sub(r"\[\d+\]", "", _keys.keywords(kind).get(name, name)), _keys.rows(kind)
    row = known.get(path) or known.get(f"image.{path}") or known.get(f"reconstructor.{path}") or {}
    unit = "eV" if name == "energy" else str(row.get("unit") or "")
    name = re.sub(r"\W+", "_", name).strip("_")
    if all(
        isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool) for value in values
    ):
        return Coordinate(name, unit, "values", [float(value) for value in values], navigation=True)
    return Coordinate(name, kind="labels", positions=[str(value) for value in values], navigation=True)


def _computed(
    described: Described,
    compute: str | Callable[..., Any],
    options: dict[str, Any],
    device: dict[str, str],
    chosen: tuple[list[str] | None] | None,
) -> Any:
    """A result, or where variables are chosen, those of them."""
    own = _prepare_worker(device.get("device", "cpu"))
    device = dict.fromkeys(device, own)
    if callable(compute):
        accepted = inspect.signature(compute).parameters
        result = compute(described, **options, **(device if "device" in accepted else {}))
    else:
        result = getattr(described, compute)(**options, **device)
    if chosen is None:
        return result
    found = _variables(result, getattr(compute, "__name__", "value"))
    if chosen[0] is None:
        return found
    for name in chosen[0]:
        if name not in found.variables:
            raise _keys.refused("variables", repr(name), f"some of {', '.join(found.variables)}")
    return DataSet({name: found.variables[name] for name in chosen[0]}, found.attributes)


def _variables(result: Any, name: str) -> DataSet:
    """All that a result has as arrays."""
    if not isinstance(result, DataSet):
        return DataSet.from_arrays(result if isinstance(result, Mapping) else {name: result})
    found = dict(result.variables)
    if isinstance(result, Psf):
        target = Coordinate("target")
        wavelength = Coordinate("wavelength", "m", "values", [float(value) for value in result.wavelengths])
        causes = sorted({cause for budget in result.budget for cause in budget} - {"total"}) + ["total"]
        budget = np.array([[one.get(cause, np.nan) for cause in causes] for one in result.budget])
        for key, values, unit, meaning in (
            ("strehl", result.strehl, "", "Strehl ratio"),
            ("fwhm", result.fwhm, "mas", "full width at half maximum"),
        ):
            found[key] = Variable(key, values, (target, wavelength), unit, meaning)
        if result.ensquared.ndim == 3:
            box = Coordinate("box")
            found["ensquared"] = Variable(
                "ensquared", result.ensquared, (target, wavelength, box), "", "ensquared energy"
            )
        cause = Coordinate("cause", kind="labels", positions=causes)
        found["budget"] = Variable("budget", budget, (target, cause), "m", "wavefront error by cause, rms")
    if isinstance(result, Reconstructor):
        target = Coordinate("target")
        found["rms"] = Variable("rms", result.rms, (target,), "m", "residual wavefront error, rms")
        without = "residual wavefront error without tilt, rms"
        found["rms_without_tilt"] = Variable("rms_without_tilt", result.rms_without_tilt, (target,), "m", without)
    return DataSet(found, result.attributes)


def _stacked(found: list[DataSet], shape: tuple[int, ...], coordinates: list[Coordinate], call: str) -> DataSet:
    """The variables of all points of a sweep behind its dimensions."""
    first, differing = found[0], list[str]()
    variables: dict[str, Variable] = {}
    for name, one in first.variables.items():
        others = [data.variables[name] for data in found if name in data.variables]
        arrays = [other.values for other in others if isinstance(other.values, np.ndarray)]
        if not isinstance(one.values, np.ndarray):
            if len(others) == len(found) and all(_same(other.values, one.values) for other in others):
                variables[name] = one
        elif len(arrays) < len(found) or any(array.shape != one.values.shape for array in arrays):
            differing.append(name)
        else:
            stacked = np.stack(arrays).reshape(*shape, *one.values.shape)
            dimensions = (*coordinates, *_common(others))
            variables[name] = Variable(name, stacked, dimensions, one.unit, one.long_name, one.attributes, one.rounded)
    if differing:
        names = ", ".join(differing)
        message = f"{names}: shapes differ over the sweep, so they are left out; use sweep_points for single results"
        warnings.warn(message, LensletWarning, stacklevel=2)
    return DataSet(variables, {**_same_attributes(found), "command": call})


def _common(variables: Sequence[Variable]) -> tuple[Coordinate, ...]:
    """The coordinates of a variable, counted where they differ from result to result."""
    first = variables[0]
    own = first.coordinates or tuple(Coordinate(name) for name in first.dims)
    common = []
    for axis, one in enumerate(own):
        same = all(not other.coordinates or other.coordinates[axis] == one for other in variables)
        common.append(one if same else Coordinate(one.name, navigation=one.navigation))
    return tuple(common)


def _same_attributes(found: Sequence[DataSet]) -> dict[str, Any]:
    """Attributes that all results have in common, and the date of the last."""
    same = {
        key: value
        for key, value in found[0].attributes.items()
        if all(data.attributes.get(key) == value for data in found)
    }
    dates = [str(data.attributes["date"]) for data in found if "date" in data.attributes]
    return {**same, "date": max(dates)} if dates else same


# Simulated slopes


@overload
def simulate(
    system: System, *, frames: int, seeds: Iterable[int], wavefronts: Literal[False] = False, **options: Any
) -> dask.array.Array: ...
@overload
def simulate(
    system: System, *, frames: int, seeds: Iterable[int], wavefronts: Literal[True], **options: Any
) -> tuple[dask.array.Array, dask.array.Array]: ...
def simulate(
    system: System, *, frames: int, seeds: Iterable[int], wavefronts: bool = False, **options: Any
) -> dask.array.Array | tuple[dask.array.Array, dask.array.Array]:
    """Simulated slopes of many seeds as a lazy array, with a chunk for each seed.

    Parameters
    ----------
    system : System
        The system.
    frames : int
        Frames of each seed.
    seeds : iterable of int
        Seeds; frames of different seeds are independent.
    wavefronts : bool
        Return the true wavefronts, too, from the same tasks.
    **options
        Further parameters of :meth:`System.simulate`.

    Returns
    -------
    dask.array.Array, shape (seeds, frames, n)
        Slopes [rad]: those of ``system.simulate(frames=frames, seed=seed)``, in every bit, for each seed. With
        ``wavefronts`` a pair of these and of an array of shape (seeds, frames, T, M, M) [m].

    Raises
    ------
    InputError
        For no seeds, or wavefronts of a system without targets or ``[phase]``.

    Examples
    --------
    >>> import lenslet as ls
    >>> import lenslet.dask
    >>> system = ls.System.from_file("book/systems/small-moao.toml")
    >>> slopes = lenslet.dask.simulate(system, frames=10, seeds=range(4))
    >>> slopes.shape, slopes.chunksize
    ((4, 10, 232), (1, 10, 232))
    >>> float(slopes.std()) > 0.0
    True
    """
    numbers = [int(seed) for seed in seeds]
    if not numbers:
        raise _keys.refused("seeds", repr(numbers), "at least one seed")
    system.simulation_plan(frames=frames, seed=numbers[0], **options)
    shapes: dict[str, tuple[int, ...]] = {"slopes": (frames, system.slopes)}
    if wavefronts:
        targets, points = int(system._summary["targets"]), system.points
        if targets == 0 or points is None:
            raise _keys.refused("wavefronts", repr(wavefronts), "False, or a system with targets and [phase]")
        shapes["wavefront"] = (frames, targets, points, points)
    shared = delayed(_portable(system), pure=False, traverse=False)
    tasks = [delayed(_simulated, pure=False)(shared, frames, seed, options, list(shapes)) for seed in numbers]
    lazy: Any = dask.array
    arrays: list[dask.array.Array] = []
    for name, shape in shapes.items():
        chunks = [lazy.from_delayed(task[name], (1, *shape), np.float64) for task in tasks]
        arrays.append(lazy.concatenate(chunks))
    return (arrays[0], arrays[1]) if wavefronts else arrays[0]


def _simulated(
    system: System, frames: int, seed: int, options: dict[str, Any], names: list[str]
) -> dict[str, NDArray[np.float64]]:
    _prepare_worker("cpu")
    found: Simulation = system.simulate(frames=frames, seed=seed, **options)
    return {name: found[name][None] for name in names}


# Directions of a field


def field(
    system: System,
    directions: Iterable[tuple[float, float]],
    *,
    chunk: int = 1,
    variables: Iterable[str] | None = None,
    device: str = "cpu",
    precision: str = "f64",
    **keywords: Unpack[ImageKeywords],
) -> Delayed:
    """Point-spread functions in many directions behind the mirrors of a system, as a delayed data set.

    The directions take the place of the targets. Mirrors are optimised as those of the system are: over its targets
    and ``optimisation``, over its guide star, or with ``mode = "moao"`` for each direction by itself.

    Parameters
    ----------
    system : System
        The system.
    directions : iterable of (float, float)
        Zenith distance [arcsec] and azimuth [degrees] of each direction.
    chunk : int
        Directions that a task computes. What all directions have in common is computed by each task.
    variables : iterable of str, optional
        Variables that are gathered, all unless given: ``"strehl"``, ``"fwhm"``, ``"ensquared"``, ``"budget"``,
        ``"psf"``, …
    device, precision, **keywords
        As for :meth:`System.psf`.

    Returns
    -------
    dask.delayed.Delayed of DataSet
        Variables of :func:`sweep` for ``"psf"``, whose dimension ``target`` counts the directions, with ``zenith``
        [arcsec] and ``azimuth`` [degrees].

    Raises
    ------
    InputError
        For no directions, and for mirrors in common without a target or ``optimisation`` that defines them.

    Examples
    --------
    >>> import lenslet as ls
    >>> import lenslet.dask
    >>> system = ls.System.from_file("book/systems/small-moao.toml")
    >>> field = lenslet.dask.field(system, [(0.0, 0.0), (30.0, 180.0)], variables=["strehl"])
    >>> [round(float(ratio), 3) for ratio in field.compute().strehl[:, 0]]
    [0.664, 0.534]
    """
    angles = [(float(zenith), float(azimuth)) for zenith, azimuth in directions]
    if not angles:
        raise _keys.refused("directions", repr(angles), "at least one direction")
    if chunk < 1:
        raise _keys.refused("chunk", repr(chunk), "at least 1")
    prepared = system._with("image", keywords)
    values = prepared.to_dict()
    optimisation = _optimisation(values)
    chosen = None if variables is None else _names(variables)
    options = {"precision": precision}
    tasks = []
    for start in range(0, len(angles), chunk):
        targets: list[dict[str, float]] = [
            {"zenith": zenith, "azimuth": azimuth} for zenith, azimuth in angles[start : start + chunk]
        ]
        changes: dict[str, Any] = {"target": targets}
        if optimisation:
            changes["optimisation"] = optimisation
        changed = _portable(prepared.replace(changes))
        tasks.append(delayed(_computed, pure=False)(changed, "psf", options, {"device": device}, (chosen,)))
    joined: Delayed = delayed(_joined, pure=False)(tasks, angles)
    return joined


def _optimisation(values: Mapping[str, Any]) -> list[dict[str, float]]:
    """Directions over which common mirrors are optimised; none where mirrors follow the targets or a guide star."""
    mode = values.get("correction", {}).get("mode", "moao")
    if mode in ("moao", "scao"):
        return []
    given, targets = list(values.get("optimisation", [])), list(values.get("target", []))
    if mode == "ltao":
        given = given or targets[:1]
    else:
        weights = [target.get("weight", 0.0 if given else 1.0) for target in targets]
        weighted = zip(targets, weights, strict=True)
        given += [{**target, "weight": weight} for target, weight in weighted if weight > 0.0]
    if not given:
        expected = f"directions over which the mirror is optimised, as correction.mode = {mode!r} requires"
        raise InputError(f"optimisation: expected {expected}", key="optimisation", expected=expected)
    return [{key: one[key] for key in ("zenith", "azimuth", "weight") if key in one} for one in given]


def _joined(found: list[DataSet], angles: list[tuple[float, float]]) -> DataSet:
    """The variables of chunks of directions one behind the other."""
    variables: dict[str, Variable] = {}
    for name, one in found[0].variables.items():
        if "target" not in one.dims:
            if all(isinstance(one.values, np.ndarray) and np.array_equal(data[name], one.values) for data in found):
                variables[name] = one
            continue
        axis = one.dims.index("target")
        joined = np.concatenate([np.asarray(data[name]) for data in found], axis=axis)
        coordinates = list(_common([data.variables[name] for data in found]))
        coordinates[axis] = Coordinate("target")
        variables[name] = Variable(
            name, joined, tuple(coordinates), one.unit, one.long_name, one.attributes, one.rounded
        )
    for axis, (name, unit, meaning) in enumerate(
        (("zenith", "arcsec", "distance from the axis"), ("azimuth", "deg", "direction from the axis"))
    ):
        values = np.array([pair[axis] for pair in angles])
        variables[name] = Variable(name, values, (Coordinate("target"),), unit, meaning)
    return DataSet(variables, {**_same_attributes(found), "command": "lenslet.dask.field()"})


# Scans


def stem(
    sample: Sample,
    *,
    shares: int | None = None,
    configurations_per_task: int | None = None,
    device: str = "cpu",
    **keywords: Unpack[SampleKeywords],
) -> Delayed:
    """Images of a scanning transmission electron microscope, divided by positions and by frozen-phonon configurations.

    Parameters
    ----------
    sample : Sample
        The sample.
    shares : int, optional
        Shares of the positions. By default one with PRISM, whose positions have the plane waves in common, and with
        multislice as many as are needed for 16 tasks.
    configurations_per_task : int, optional
        Configurations that a task computes; 1 unless given. Readings of each are kept until all of a share are there:
        ``shares`` bounds the memory.
    device, **keywords
        As for :meth:`Sample.stem`.

    Returns
    -------
    dask.delayed.Delayed of Scan
        The scan of ``sample.stem()``, in every bit.

    Raises
    ------
    InputError
        For more shares than positions, less than one configuration in a task, or a sample for :meth:`Sample.hrtem`.

    Notes
    -----
    The mean over configurations is formed in their order, as a run does: Welford (1962), Technometrics 4, 419.

    Examples
    --------
    >>> import lenslet as ls
    >>> import lenslet.dask
    >>> sample = ls.Sample(
    ...     file="book/systems/SI100.XYZ", tile=[2, 2, 5], grid=[128, 128], slice_thickness=1.3575, energy=100e3,
    ...     semi_angle=20.0, window=[[0.0, 1.3575], [0.0, 0.5]], step=[0.67875, 0.5], annuli=[[60.0, 90.0]],
    ... )
    >>> scan = lenslet.dask.stem(sample, shares=2).compute()
    >>> scan == sample.stem()
    True
    """
    sample = sample.replace(**keywords)
    if sample.algorithm == "hrtem":
        raise _keys.refused("algorithm", repr("hrtem"), "multislice or prism: a plane wave is imaged by hrtem()")
    places, configurations = sample._parsed.stem_size()
    group = 1 if configurations_per_task is None else configurations_per_task
    if group < 1:
        raise _keys.refused("configurations_per_task", repr(group), "at least 1")
    groups = [(start, min(start + group, configurations)) for start in range(0, configurations, group)]
    if shares is None:
        shares = 1 if sample.algorithm == "prism" else min(-(-_TASKS // len(groups)), places)
    if not 1 <= shares <= places:
        raise _keys.refused("shares", repr(shares), f"from 1 to {places}, the positions of the scan")
    precision = sample._parsed.method()[1]
    shared = delayed(_portable(sample), pure=False, traverse=False)
    readings = []
    for share in range(shares):
        place = (share * places // shares, (share + 1) * places // shares)
        if len(groups) == 1:
            readings.append(delayed(_share, pure=False)(shared, place, device, precision))
            continue
        parts = [delayed(_configurations, pure=False)(shared, place, some, device, precision) for some in groups]
        readings.append(delayed(_averaged, pure=False)(shared, parts))
    collected: Delayed = delayed(_collected, pure=False)(shared, readings, precision)
    return collected


def _share(sample: Sample, places: tuple[int, int], device: str, precision: str) -> Any:
    return sample._parsed.stem_share(places, _prepare_worker(device), precision)


def _configurations(
    sample: Sample, places: tuple[int, int], configurations: tuple[int, int], device: str, precision: str
) -> Any:
    return sample._parsed.stem_configurations(places, configurations, _prepare_worker(device), precision)


def _averaged(sample: Sample, parts: list[Any]) -> Any:
    return sample._parsed.average([_aligned(part) for part in parts])


def _aligned(part: tuple[Any, ...]) -> Any:
    """Readings whose arrays begin where numbers may: those that another worker has sent may begin at any byte."""
    return tuple(np.require(one, requirements="A") if isinstance(one, np.ndarray) else one for one in part)


def _collected(sample: Sample, readings: list[Any], precision: str) -> Scan:
    _prepare_worker("cpu")
    found = sample._parsed.collect([_aligned(part) for part in readings], precision, "lenslet.dask.stem()")
    scan: Scan = _warned(Scan._of(sample, found))
    return scan


# Workers


def _portable(described: D) -> D:
    """The same system or sample, with files that are found from any folder, where machines share a file system."""
    text, name = described._parsed.source()
    if os.path.isabs(name) or not _names_files(described.to_dict()):
        return described
    kind = type(described).__name__.lower()
    return type(described).from_toml(text, name=os.path.abspath(name or f"<{kind}>"))


def _names_files(values: Mapping[str, Any]) -> bool:
    """Whether a system or sample has a value that may be the name of a file."""
    for key, value in values.items():
        if key in ("file", "noise", "pupil", "influence") and isinstance(value, str):
            return True
        tables = value if isinstance(value, list) else [value]
        if any(_names_files(table) for table in tables if isinstance(table, Mapping)):
            return True
    return False


def _prepare_worker(device: str) -> str:
    """Give a worker process its share of threads before it computes; the device of the worker.

    Parameters
    ----------
    device : str
        Device that was asked for.

    Returns
    -------
    str
        ``"cuda:0"`` for ``"cuda"`` in a worker with ``CUDA_VISIBLE_DEVICES``, else ``device``.
    """
    try:
        from distributed import get_worker

        worker = get_worker()
    except (ImportError, ValueError):
        return device
    visible = [one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]
    if worker.nanny is not None and "RAYON_NUM_THREADS" not in os.environ:
        threads = worker.state.nthreads
        if device != "cpu":
            affinity = getattr(os, "sched_getaffinity", None)
            cores = len(affinity(0)) if affinity else os.cpu_count() or 1
            threads = max(threads, cores // max(len(visible), 1))
        os.environ["RAYON_NUM_THREADS"] = str(threads)
    return "cuda:0" if device == "cuda" and visible else device


def _names(variables: Iterable[str]) -> list[str]:
    return [variables] if isinstance(variables, str) else list(variables)
