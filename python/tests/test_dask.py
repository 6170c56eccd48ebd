"""Sweeps, simulations, fields and scans by Dask against the same computations without it."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lenslet as ls
import numpy as np
import pytest

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
cloudpickle = pytest.importorskip("cloudpickle")

import lenslet.dask as lsd  # noqa: E402

# Workers cannot import this file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

SYSTEMS = Path(__file__).parents[2] / "book" / "systems"


def small_system(**changes: Any) -> ls.System:
    """A telescope of 2 m with two guide stars of different noise, two layers and two targets."""
    layers = [
        {"altitude": 0.0, "fraction": 0.7, "wind_speed": 7.0, "wind_direction": 20.0},
        {"altitude": 6000.0, "fraction": 0.3, "wind_speed": 12.0, "wind_direction": 75.0},
    ]
    stars = [{"zenith": 20.0, "noise": 1e-14}, {"zenith": 25.0, "azimuth": 140.0, "noise": 2e-14}]
    given: dict[str, Any] = {
        "r0": 0.15,
        "outer_scale": 25.0,
        "layers": layers,
        "diameter": 2.0,
        "obstruction": 0.2,
        "lenslets": 4,
        "guide_stars": stars,
        "targets": [{"zenith": 5.0}, {"zenith": 12.0, "azimuth": 200.0}],
        "truth_sensor": {"lenslets": 4},
        "phase": {"points": 5},
        "mirrors": [{"actuators": 5}],
        "loop": {"kind": "open", "rate": 500.0, "delay": 1.0},
        "image": {"wavelengths": [1.65e-6, 2.2e-6], "pixel": 40.0, "pixels": 16, "ensquared": [200.0]},
    }
    return ls.System(**{**given, **changes})


def small_sample(**changes: Any) -> ls.Sample:
    """Silicon on a coarse grid: 15 positions, 5 configurations, 2 defoci and 2 thicknesses, in single precision."""
    given: dict[str, Any] = {
        "file": str(SYSTEMS / "SI100.XYZ"),
        "tile": [2, 2, 2],
        "grid": [64, 64],
        "slice_thickness": 1.3575,
        "energy": 100e3,
        "semi_angle": 20.0,
        "defocus": [0.0, 30.0],
        "thicknesses": [5.43, 10.86],
        "window": [[0.0, 2.0], [0.0, 1.5]],
        "step": [0.4, 0.5],
        "annuli": [[20.0, 50.0]],
        "centre_of_mass": True,
        "configurations": 5,
        "seed": 3,
        "precision": "f32",
    }
    return ls.Sample(**{**given, **changes})


PRISM = {"algorithm": "prism", "interpolation": [1, 1]}


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "120s", "distributed.scheduler.allowed-failures": 10}),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.wait_for_workers(2, timeout=120)
        yield client


# Sweeps


def test_sweeps_are_the_runs_of_each_point() -> None:
    system = small_system()
    noise = [1e-14, 5e-14, 2e-13]
    swept = lsd.sweep(
        system, {"r0": [0.1, 0.2], "guide_star[1].noise": noise, "seed": [4]}, "simulate", frames=2
    ).compute()
    assert swept.slopes.shape == (2, 3, 1, 2, system.slopes)
    assert swept.wavefront.shape == (2, 3, 1, 2, 2, 5, 5)
    for i, r0 in enumerate([0.1, 0.2]):
        for j, value in enumerate(noise):
            alone = system.replace({"guide_star[1].noise": value}, r0=r0).simulate(frames=2, seed=4)
            assert np.array_equal(swept.slopes[i, j, 0], alone.slopes)
            assert np.array_equal(swept.wavefront[i, j, 0], alone.wavefront)
    assert not np.array_equal(swept.slopes[0, 0], swept.slopes[0, 1])
    coordinates = swept.variables["slopes"].coordinates
    assert [one.name for one in coordinates[:3]] == ["r0", "guide_star_1_noise", "seed"]
    assert coordinates[0].unit == "m" and coordinates[0].positions == [0.1, 0.2]
    assert coordinates[1].positions == noise
    assert swept.attributes["program"] == "lenslet" and "system" not in swept.attributes
    assert swept.attributes["date"] >= "2026" and swept.attributes["command"] == "lenslet.dask.sweep(simulate)"


def test_sweeps_of_images_have_strehl_ratios_and_budgets() -> None:
    system = small_system()
    swept = lsd.sweep(system, {"r0": [0.1, 0.2]}, variables=["strehl", "budget", "fwhm", "ensquared", "psf"]).compute()
    assert list(swept) == ["strehl", "budget", "fwhm", "ensquared", "psf"]
    for k, r0 in enumerate([0.1, 0.2]):
        alone = system.replace(r0=r0).psf()
        for name in ["strehl", "psf", "fwhm", "ensquared"]:
            assert np.array_equal(swept[name][k], getattr(alone, name)), name
        causes = swept.variables["budget"].coordinates[-1].positions
        assert causes is not None and set(causes) == set(alone.budget[0])
        expected = [[budget[str(cause)] for cause in causes] for budget in alone.budget]
        assert np.array_equal(swept.budget[k], expected)
    assert np.all(swept.strehl[1] > swept.strehl[0])
    assert swept.variables["strehl"].coordinates[-1].positions == [1.65e-6, 2.2e-6]
    assert swept.variables["budget"].unit == "m"


def test_sweeps_of_options_and_reconstructors() -> None:
    system = small_system()
    swept = lsd.sweep(system, {"delay": [0.0, 0.004]}, "reconstructor", variables="rms").compute()
    assert swept.variables["rms"].coordinates[0].unit == "s"
    for k, delay in enumerate([0.0, 0.004]):
        assert np.array_equal(swept.rms[k], system.reconstructor(delay=delay).rms)
    assert np.all(swept.rms[1] > swept.rms[0])


def test_sweeps_of_several_systems_by_a_function() -> None:
    systems = {"calm": small_system(), "windy": small_system(r0=0.08)}

    def variance(system: ls.System, frames: int) -> dict[str, Any]:
        return {"variance": np.var(system.simulate(frames=frames, seed=1).slopes)}

    swept = lsd.sweep(systems, {"outer_scale": [10.0, 40.0]}, variance, frames=4).compute()
    assert swept.variables["variance"].dims == ("system", "outer_scale")
    assert list(swept.variables["variance"].coordinates[0].values(2)) == ["calm", "windy"]
    expected = [
        [variance(one.replace(outer_scale=scale), 4)["variance"] for scale in (10.0, 40.0)] for one in systems.values()
    ]
    assert np.array_equal(swept.variance, expected)
    points = lsd.sweep_points(systems, {"outer_scale": [10.0, 40.0]}, "simulate", frames=4, seed=1)
    assert points.shape == (2, 2)
    result = points[1, 0].compute()
    assert isinstance(result, ls.Simulation) and np.var(result.slopes) == swept.variance[1, 0]


def test_variables_of_differing_shapes_are_left_out() -> None:
    system = small_system()
    with pytest.warns(ls.LensletWarning, match="slopes.*sweep_points"):
        swept = lsd.sweep(system, {"lenslets": [4, 5]}, "simulate").compute(scheduler="synchronous")
    assert "slopes" not in swept and swept.wavefront.shape == (2, 1, 2, 5, 5)


def test_sweeps_become_xarray_and_files(tmp_path: Path) -> None:
    swept = lsd.sweep(small_system(), {"r0": [0.1, 0.2]}, "simulate").compute()
    swept.save(tmp_path / "swept.npz")
    assert np.array_equal(ls.load(tmp_path / "swept.npz").slopes, swept.slopes)
    pytest.importorskip("xarray")
    array = swept.to_xarray()
    assert np.array_equal(array.slopes.sel(r0=0.2), swept.slopes[1])
    assert array.r0.attrs["units"] == "m"


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (({"r0": [0.1, -1.0]}, "psf"), "r0"),
        (({"r0": []}, "psf"), "r0"),
        (({"guide_star[7].noise": [1e-14]}, "psf"), "guide_star"),
        (({"r0": [0.1]}, "fit_profile"), "compute"),
        (({"pixls": [32]}, "psf"), "pixls"),
    ],
)
def test_sweeps_that_make_no_sense_are_refused_at_once(arguments: Any, key: str) -> None:
    with pytest.raises(ls.InputError) as refused:
        lsd.sweep(small_system(), *arguments)
    assert refused.value.key is not None and key in refused.value.key


def test_unknown_options_and_variables_are_refused() -> None:
    with pytest.raises(ls.InputError, match="wavelenths"):
        lsd.sweep(small_system(), {"r0": [0.1]}, "psf", wavelenths=[1e-6])
    with pytest.raises(ls.InputError, match="slope_slope"):
        lsd.sweep(small_system(), {"r0": [0.1]}, "covariance", variables="strehl").compute()
    with pytest.raises(ls.InputError, match="a System, a Sample"):
        lsd.sweep("small.toml", {"r0": [0.1]})  # type: ignore[arg-type]


# Simulated slopes


def test_simulated_slopes_are_those_of_each_seed() -> None:
    system = small_system()
    slopes = lsd.simulate(system, frames=3, seeds=[7, 2, 9])
    assert slopes.shape == (3, 3, system.slopes)
    assert slopes.chunks == ((1, 1, 1), (3,), (system.slopes,))
    for k, seed in enumerate([7, 2, 9]):
        assert np.array_equal(slopes[k].compute(), system.simulate(frames=3, seed=seed).slopes)
    slopes, wavefronts = lsd.simulate(system, frames=3, seeds=[7, 2], wavefronts=True)
    both = dask.compute(slopes, wavefronts)
    alone = system.simulate(frames=3, seed=2)
    assert np.array_equal(both[0][1], alone.slopes) and np.array_equal(both[1][1], alone.wavefront)
    assert wavefronts.shape == (2, 3, 2, 5, 5)
    assert np.isclose(float((slopes**2).mean().compute()), np.mean(both[0] ** 2))


def test_simulations_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ls.InputError, match="seeds"):
        lsd.simulate(small_system(), frames=1, seeds=[])
    with pytest.raises(ls.InputError, match="wavefronts"):
        lsd.simulate(small_system(phase=None), frames=1, seeds=[1], wavefronts=True)
    with pytest.raises(ls.InputError, match="frames"):
        lsd.simulate(small_system(), frames=-1, seeds=[1])


# Fields


@pytest.mark.parametrize("mode", ["moao", "ltao", "scao", "glao"])
def test_fields_are_images_behind_the_mirrors_of_the_system(mode: str) -> None:
    system = small_system(correction={"mode": mode})
    alone = system.psf()
    directions = [(5.0, 0.0), (12.0, 200.0), (30.0, 90.0)]
    names = ["strehl", "psf", "budget"]
    found = lsd.field(system, directions, variables=names).compute()
    np.testing.assert_allclose(found.strehl[:2], alone.strehl, rtol=1e-9)
    np.testing.assert_allclose(found.psf[:, :2], alone.psf, rtol=1e-7, atol=1e-12)
    together = lsd.field(system, directions, chunk=2, variables=names).compute()
    np.testing.assert_allclose(together.strehl, found.strehl, rtol=1e-9)
    assert np.array_equal(found.zenith, [5.0, 12.0, 30.0]) and found.variables["azimuth"].unit == "deg"
    assert found.variables["psf"].dims[:2] == ("wavelength", "target") and found.psf.shape[1] == 3


def test_fields_that_make_no_sense_are_refused() -> None:
    system = small_system(correction={"mode": "glao"})
    with pytest.raises(ls.InputError, match="directions"):
        lsd.field(system, [])
    with pytest.raises(ls.InputError, match="chunk"):
        lsd.field(system, [(0.0, 0.0)], chunk=0)
    without = system.replace(targets=None)
    with pytest.raises(ls.InputError, match="optimisation") as refused:
        lsd.field(without, [(0.0, 0.0)])
    assert refused.value.key == "optimisation"


# Scans


@pytest.mark.parametrize("method", [{}, PRISM, {"configurations": 0}], ids=["multislice", "prism", "rest"])
@pytest.mark.parametrize(("shares", "per_task"), [(None, None), (1, 1), (4, 2), (3, 5), (2, 99)])
def test_scans_are_whole_ones_to_the_bit(method: dict[str, Any], shares: int | None, per_task: int | None) -> None:
    sample = small_sample(**method)
    whole = sample.stem()
    found = lsd.stem(sample, shares=shares, configurations_per_task=per_task).compute()
    assert isinstance(found, ls.Scan) and found == whole
    assert set(found) == set(whole) and found.summary == whole.summary
    for about in (found.attributes, whole.attributes):
        about.pop("date"), about.pop("command")
    assert found.attributes == whole.attributes and found.sample == sample


def test_scans_take_keywords_and_precision() -> None:
    sample = small_sample(defocus=0.0)
    found = lsd.stem(sample, shares=2, precision="f64", semi_angle=15.0).compute()
    assert found == sample.stem(precision="f64", semi_angle=15.0)
    assert found != sample.stem()


def test_scans_that_make_no_sense_are_refused() -> None:
    sample = small_sample()
    for options, key in (
        ({"shares": 16}, "shares"),
        ({"shares": 0}, "shares"),
        ({"configurations_per_task": 0}, "configurations_per_task"),
        ({"algorithm": "hrtem"}, "algorithm"),
        ({"semi_angel": 3.0}, "semi_angel"),
    ):
        with pytest.raises(ls.InputError) as refused:
            lsd.stem(sample, **options)
        assert refused.value.key == key


def test_parts_at_any_byte_are_averaged() -> None:
    sample = small_sample()
    parts = [sample._parsed.stem_configurations((0, 15), (c, c + 1), "cpu", "f32") for c in range(5)]
    expected = sample._parsed.average(parts)

    def moved(values: Any) -> Any:
        bytes_ = np.frombuffer(b"\0" + values.tobytes(), np.uint8)[1:]
        return bytes_.view(values.dtype).reshape(values.shape)

    shifted = [(places, some, moved(values)) for places, some, values in parts]
    assert not any(part[2].flags.aligned for part in shifted)
    found = lsd._averaged(sample, shifted)
    assert np.array_equal(found[2], expected[2]) and np.array_equal(found[3], expected[3])


def test_parts_of_another_scan_are_refused() -> None:
    sample = small_sample()
    parts = [sample._parsed.stem_configurations((0, 15), (c, c + 1), "cpu", "f32") for c in range(5)]
    assert sample._parsed.average(parts[::-1])[1] == (5, 0)
    with pytest.raises(ls.InputError, match="leave positions out"):
        sample._parsed.average(parts[1:])
    with pytest.raises(ls.InputError, match="overlap"):
        sample._parsed.average([*parts, parts[2]])
    with pytest.raises(ls.InputError, match="some of 5 configurations"):
        sample._parsed.stem_configurations((0, 15), (4, 6), "cpu", "f32")
    with pytest.raises(ls.InputError, match="of this plan"):
        small_sample(thicknesses=None)._parsed.average(parts)


# Workers


def test_systems_samples_and_results_travel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    system, sample = small_system(), small_sample()
    assert pickle.loads(pickle.dumps(system)) == system and pickle.loads(pickle.dumps(sample)) == sample
    result = system.simulate()
    back = pickle.loads(pickle.dumps(result))
    assert back == result and back.system == system and back.attributes == result.attributes
    monkeypatch.chdir(SYSTEMS)
    for given in (ls.Sample.from_file("silicon-stem.toml"), small_sample(file="SI100.XYZ")):
        moved, expected = pickle.dumps(lsd._portable(given)), given.summary
        monkeypatch.chdir(tmp_path)
        assert pickle.loads(moved).summary == expected
        with pytest.raises(ls.FileError):
            _ = given.summary
        monkeypatch.chdir(SYSTEMS)
    assert lsd._portable(system) is system


def test_two_processes_compute_what_one_does(client: Any) -> None:
    assert len(client.scheduler_info()["workers"]) == 2
    system, sample = small_system(), small_sample()
    slopes = lsd.simulate(system, frames=2, seeds=range(6))
    assert np.array_equal(
        slopes.compute(), np.stack([system.simulate(frames=2, seed=seed).slopes for seed in range(6)])
    )
    assert lsd.stem(sample, shares=2).compute() == sample.stem()
    both = lsd.sweep(system, {"r0": [0.1, 0.2]}, "simulate", variables="slopes").compute()
    assert np.array_equal(both.slopes[1], system.replace(r0=0.2).simulate().slopes)
    images = lsd.sweep(system, {"r0": [0.1, 0.2]}, variables=["psf", "budget"]).compute()
    with_all_threads = lsd.sweep(system, {"r0": [0.1, 0.2]}, variables=["psf", "budget"]).compute(scheduler="sync")
    assert np.array_equal(images.psf[1], system.replace(r0=0.2).psf().psf)
    assert np.array_equal(images.psf, with_all_threads.psf) and np.array_equal(images.budget, with_all_threads.budget)

    def process(system: ls.System) -> dict[str, Any]:
        time.sleep(0.3)
        return {"process": os.getpid(), "threads": ls.threads()}

    found = lsd.sweep(system, {"r0": [0.1 + 0.01 * k for k in range(6)]}, process).compute()
    assert len(set(found.process)) == 2 and os.getpid() not in found.process
    assert np.all(found.threads == 1), "threads_per_worker = 1"


def test_workers_take_their_own_device(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def device(visible: str) -> tuple[str, str, str]:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
        try:
            return lsd._prepare_worker("cuda"), lsd._prepare_worker("cuda:1"), lsd._prepare_worker("cpu")
        finally:
            del os.environ["CUDA_VISIBLE_DEVICES"]

    assert client.submit(device, "2,3,0,1").result() == ("cuda:0", "cuda:1", "cpu")
    assert client.submit(device, "").result() == ("cuda", "cuda:1", "cpu")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert lsd._prepare_worker("cuda") == "cuda", "this process is no worker"


def test_errors_of_workers_come_back(client: Any) -> None:
    system = small_system()
    with pytest.raises(ls.InputError) as refused:
        lsd.sweep(system, {"frames": [1, -1]}, "simulate").compute()
    assert "frames" in str(refused.value) and refused.value.key and refused.value.expected
    with pytest.raises(ls.DeviceError) as missing:
        lsd.stem(small_sample(), shares=2, device="cuda:97").compute()
    assert "cuda" in str(missing.value)


def test_a_killed_worker_is_survived(client: Any, tmp_path: Path) -> None:
    def slowly(system: ls.System, folder: str) -> dict[str, Any]:
        started = Path(folder) / f"{os.getpid()}-{system.r0}-{time.monotonic_ns()}"
        started.write_text("")
        slopes = system.simulate(frames=2, seed=5).slopes
        time.sleep(0.5)
        return {"slopes": slopes}

    system, values = small_system(), [0.1, 0.12, 0.14, 0.16, 0.18, 0.2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        running = client.compute(lsd.sweep(system, {"r0": values}, slowly, folder=str(tmp_path)))
        deadline = time.monotonic() + 60
        while len(list(tmp_path.iterdir())) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        last = max(tmp_path.iterdir(), key=lambda path: int(path.name.rsplit("-", 1)[1]))
        os.kill(int(last.name.split("-")[0]), signal.SIGKILL)
        found = running.result(timeout=240)
    expected = np.stack([system.replace(r0=r0).simulate(frames=2, seed=5).slopes for r0 in values])
    assert np.array_equal(found.slopes, expected)
    processes = {path.name.split("-")[0] for path in tmp_path.iterdir()}
    assert len(list(tmp_path.iterdir())) > len(values), "the task of the killed worker is computed again"
    assert last.name.split("-")[0] in processes
