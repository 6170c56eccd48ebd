"""Results of methods are those of the command, bit by bit; plans describe them; estimates are those of the definition."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lenslet as ls
import numpy as np
import pytest
from conftest import SYSTEMS

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def tiny_file(tiny: ls.System, tmp_path: Path) -> Path:
    """The system file of the quick system."""
    tiny.save(tmp_path / "tiny.toml")
    return tmp_path / "tiny.toml"


@pytest.fixture
def silicon_file(silicon: ls.Sample, tmp_path: Path) -> Path:
    """The sample file of the quick sample."""
    silicon.save(tmp_path / "silicon.toml")
    return tmp_path / "silicon.toml"


def assert_same(found: ls.DataSet, path: Path) -> None:
    """All arrays, texts and tables of a file of the command are those of a result, and the other way round."""
    written = ls.load(path)
    expected = {name: one for name, one in written.items() if name not in ("system", "provenance")}
    assert set(found) - {"system"} == set(expected)
    for name, values in expected.items():
        if isinstance(values, np.ndarray):
            assert found[name].dtype == values.dtype, name
            assert found[name].shape == values.shape, name
            assert found[name].tobytes() == values.tobytes(), name
        elif isinstance(values, dict):
            assert all(np.array_equal(found[name][column][0], cells) for column, (cells, _) in values.items()), name
        else:
            assert found[name] == values, name
        one, other = found.variables[name], written.variables[name]
        assert (one.unit, one.long_name) == (other.unit, other.long_name), name


class TestSystemsAsTheCommand:
    @pytest.mark.parametrize("form", ["auto", "dense"])
    def test_covariance(self, tiny: ls.System, tiny_file: Path, tmp_path: Path, command: Command, form: str) -> None:
        command("covariance", tiny_file, "-o", tmp_path / "x.fits", "--form", form, "--quiet")
        assert_same(tiny.covariance(form=form), tmp_path / "x.fits")

    def test_toeplitz_covariance(self, toeplitz: ls.System, tmp_path: Path, command: Command) -> None:
        toeplitz.save(tmp_path / "t.toml")
        for method in ("direct", "spectral"):
            command("covariance", tmp_path / "t.toml", "-o", tmp_path / "x.fits", "--method", method, "--quiet")
            found = toeplitz.covariance(method=method)
            assert found.slope_slope.shape == (2, 2, 2, 2, 11, 11)
            assert_same(found, tmp_path / "x.fits")

    def test_reconstructor(self, tiny: ls.System, tiny_file: Path, tmp_path: Path, command: Command) -> None:
        arrays = ("--save", "c_mm", "--save", "c_tm", "--save", "c_tt")
        command("reconstruct", tiny_file, "-o", tmp_path / "x.fits", *arrays, "--quiet")
        assert_same(tiny.reconstructor(covariances=True), tmp_path / "x.fits")

    def test_simulate_and_estimate(self, tiny: ls.System, tiny_file: Path, tmp_path: Path, command: Command) -> None:
        slopes, wavefront = tmp_path / "s.npy", tmp_path / "w.npy"
        command(
            "simulate", tiny_file, "-o", slopes, "--wavefront", wavefront, "--frames", "3", "--seed", "9", "--quiet"
        )
        simulated = tiny.simulate(frames=3, seed=9)
        assert simulated.slopes.tobytes() == np.load(slopes).tobytes()
        assert simulated.wavefront.tobytes() == np.load(wavefront).tobytes()
        np.testing.assert_array_equal(tiny.read_slopes(slopes), simulated.slopes)
        command("estimate", tiny_file, "--slopes", slopes, "-o", tmp_path / "x.fits", "--quiet")
        assert_same(tiny.estimate(simulated.slopes), tmp_path / "x.fits")

    def test_psf(self, tiny: ls.System, tiny_file: Path, tmp_path: Path, command: Command) -> None:
        command("psf", tiny_file, "-o", tmp_path / "x.npz", "--quiet")
        found = tiny.psf()
        written = np.load(tmp_path / "x.npz")
        for name in ("psf", "open_loop", "diffraction", "profiles"):
            # Threads add the terms of an image in the order in which they end: its last bits differ from run to run.
            np.testing.assert_allclose(found[name], written[name], rtol=0.0, atol=1e-14 * np.abs(written[name]).max())
        command("psf", tiny_file, "-o", tmp_path / "x.fits", "--quiet")
        found.to_fits(tmp_path / "y.fits")
        of_command, of_python = ls.load(tmp_path / "x.fits"), ls.load(tmp_path / "y.fits")
        assert set(of_command) - {"system"} == set(of_python) - {"system"}
        for name, values in of_command.items():
            if isinstance(values, np.ndarray):
                np.testing.assert_allclose(of_python[name], values, rtol=1e-6, atol=1e-14)

    def test_learn(self, tiny: ls.System, tiny_file: Path, tmp_path: Path, command: Command) -> None:
        slopes = tiny.simulate(frames=150, seed=4).slopes
        np.save(tmp_path / "s.npy", slopes)
        command("learn", tiny_file, "--slopes", tmp_path / "s.npy", "-o", tmp_path / "learned.toml", "--quiet")
        fitted = tiny.fit_profile(slopes)
        assert fitted.system.to_dict() == ls.System.from_file(tmp_path / "learned.toml").to_dict()
        assert fitted.start == tiny
        assert fitted.converged
        assert fitted.parameters["r0"].value == pytest.approx(0.15, rel=0.15)
        assert fitted.system.r0 == pytest.approx(fitted.parameters["r0"].value, rel=1e-8)
        assert {"fraction of layer 0", "noise of star 1", "altitude of layer 1", "noise of star 0, xx"} <= {
            *fitted.parameters
        }
        altitude = fitted.parameters["altitude of layer 1"]
        assert altitude.error is not None
        assert abs(altitude.value - 9000.0) < 5.0 * altitude.error


class TestSamplesAsTheCommand:
    def test_stem(self, silicon: ls.Sample, silicon_file: Path, tmp_path: Path, command: Command) -> None:
        command(
            "stem",
            silicon_file,
            "-o",
            tmp_path / "x.h5",
            "--save",
            "potential",
            "--save",
            "probe",
            "--quiet",
            "--cores",
        )
        assert_same(silicon.stem(keep=["potential", "probe"]), tmp_path / "x.h5")

    def test_hrtem(self, silicon: ls.Sample, tmp_path: Path, command: Command) -> None:
        sample = ls.Sample.from_dict({k: v for k, v in silicon.to_dict().items() if k not in ("scan", "detector")})
        sample = sample.replace({"beam.semi_angle": None, "method.algorithm": "hrtem"}, defocus=[100.0, 200.0])
        sample.save(tmp_path / "h.toml")
        command("stem", tmp_path / "h.toml", "-o", tmp_path / "x.h5", "--quiet", "--cores")
        found = sample.hrtem()
        assert found.image.shape == (2, 96, 96)
        written = ls.load(tmp_path / "x.h5")
        assert found.image.tobytes() == written.image.tobytes()


class TestDefinition:
    """The estimate and the reconstructor, by hand from the covariances."""

    def test_operator_is_the_covariance_of_the_measurements(self, tiny: ls.System) -> None:
        linalg = pytest.importorskip("scipy.sparse.linalg")
        dense = tiny.reconstructor(covariances=True).c_mm
        operator = tiny.covariance_operator()
        n = tiny.slopes
        assert operator.shape == (n, n)
        np.testing.assert_allclose(operator @ np.eye(n), dense, rtol=1e-9, atol=1e-12 * np.abs(dense).max())
        assert isinstance(operator, linalg.LinearOperator)
        random = np.random.default_rng(5)
        x, y = random.normal(size=(2, n))
        assert y @ (operator @ x) == pytest.approx(x @ (operator @ y), rel=1e-10)
        assert x @ (operator @ x) > 0.0
        np.testing.assert_allclose(operator.T @ x, operator @ x, rtol=1e-12)
        columns = random.normal(size=(n, 3))
        np.testing.assert_allclose(operator @ columns, dense @ columns, rtol=1e-8, atol=1e-12 * np.abs(dense).max())

    def test_noise_is_on_the_diagonal(self, tiny: ls.System) -> None:
        without = tiny.covariance(form="dense", slopes_only=True).slope_slope_dense
        with_noise = tiny.reconstructor(covariances=True).c_mm
        first = 2 * int(tiny.valid_lenslets[0].sum())
        noise = np.repeat([2e-14, 3e-14], [first, tiny.slopes - first])
        np.testing.assert_allclose(with_noise - without, np.diag(noise), atol=1e-11 * np.abs(without).max())

    def test_conjugate_gradients_of_scipy_solve(self, tiny: ls.System) -> None:
        linalg = pytest.importorskip("scipy.sparse.linalg")
        dense = tiny.reconstructor(covariances=True).c_mm
        slopes = tiny.simulate().slopes[0]
        solution, failed = linalg.cg(tiny.covariance_operator(), slopes, rtol=1e-10, maxiter=2000)
        assert failed == 0
        expected = np.linalg.solve(dense, slopes)
        np.testing.assert_allclose(solution, expected, atol=1e-6 * np.abs(expected).max())

    def test_estimate_is_that_of_minimum_mean_square_error(self, tiny: ls.System) -> None:
        slopes = tiny.simulate(frames=3, seed=2).slopes
        c_mm = tiny.reconstructor(covariances=True).c_mm
        c_wm = tiny.covariance(form="dense").wavefront_slope_dense
        by_hand = np.einsum("tyxn,nf->ftyx", c_wm, np.linalg.solve(c_mm, slopes.T))
        for method in ("cholesky", "iterative"):
            found = tiny.estimate(slopes, method=method, tolerance=1e-10).wavefront
            np.testing.assert_allclose(found, by_hand, atol=1e-6 * np.abs(by_hand).max())

    def test_estimates_come_near_to_the_truth(self, tiny: ls.System) -> None:
        simulated = tiny.simulate(frames=200, seed=3)
        error = tiny.estimate(simulated.slopes).wavefront - simulated.wavefront
        error -= error.mean(axis=(2, 3), keepdims=True)
        truth = simulated.wavefront - simulated.wavefront.mean(axis=(2, 3), keepdims=True)
        assert error.std() < 0.5 * truth.std()
        # Where a matrix is formed for many frames, a sample of them is measured.
        chi_squared = tiny.estimate(simulated.slopes).chi_squared
        known = chi_squared[np.isfinite(chi_squared)]
        assert known.size >= 60
        assert abs(known.mean() - 1.0) < 5.0 * np.sqrt(2.0 / (known.size * tiny.slopes))
        each = tiny.estimate(simulated.slopes, method="cholesky").chi_squared
        np.testing.assert_allclose(each[np.isfinite(chi_squared)], known, rtol=1e-6)

    def test_reconstructor_by_hand(self, tiny: ls.System) -> None:
        found = tiny.reconstructor(covariances=True)
        targets, truth, n = found.reconstructor.shape
        by_hand = np.linalg.solve(found.c_mm, found.c_tm.T).T.reshape(targets, truth, n)
        np.testing.assert_allclose(found.reconstructor, by_hand, atol=1e-7 * np.abs(by_hand).max())
        residual = found.c_tt - by_hand[0] @ found.c_tm[:truth].T
        np.testing.assert_allclose(found.error_covariance[0], residual, atol=1e-7 * np.abs(found.c_tt).max())
        slopes = tiny.simulate(frames=5).slopes
        np.testing.assert_allclose(
            found @ slopes, np.einsum("tmn,fn->ftm", found.reconstructor, slopes), rtol=1e-10, atol=1e-18
        )
        np.testing.assert_allclose((found @ slopes)[3], found @ slopes[3], rtol=1e-12)
        assert (found @ slopes[0]).shape == (targets, truth)
        assert found.rms.shape == (targets,)
        assert (found.rms >= found.rms_without_tilt).all()

    def test_errors_only_has_no_reconstructor(self, tiny: ls.System) -> None:
        found = tiny.reconstructor(errors_only=True)
        np.testing.assert_allclose(found.rms, tiny.reconstructor().rms, rtol=1e-9)
        with pytest.raises(ls.InputError, match="errors_only"):
            found @ np.zeros(tiny.slopes)

    def test_warm_starts_and_prepared_estimates(self, tiny: ls.System) -> None:
        slopes = tiny.simulate(frames=3).slopes
        estimator = tiny.estimator(method="iterative", tolerance=1e-9)
        assert estimator.slopes == tiny.slopes
        cold, warm = estimator(slopes), estimator(slopes, warm_start=True)
        np.testing.assert_allclose(warm.wavefront, cold.wavefront, atol=1e-6 * np.abs(cold.wavefront).max())
        np.testing.assert_allclose(estimator(slopes[1]).wavefront[0], cold.wavefront[1], rtol=1e-12)


class TestPsf:
    def test_facts(self, tiny: ls.System) -> None:
        found = tiny.psf()
        assert found.strehl.shape == found.fwhm.shape == (2, 2)
        assert found.ensquared.shape == (2, 2, 2)
        assert ((found.strehl > 0.0) & (found.strehl < 1.0)).all()
        assert (found.strehl[:, 1] > found.strehl[:, 0]).all()
        np.testing.assert_array_equal(found.wavelengths, [1.65e-6, 2.2e-6])
        for budget in found.budget:
            parts = sum(np.sign(value) * value**2 for cause, value in budget.items() if cause != "total")
            assert np.sqrt(parts) == pytest.approx(budget["total"], rel=1e-6)
        changed = tiny.psf(wavelengths=[2.2e-6], r0=0.3)
        assert changed.system == tiny.replace(r0=0.3, image={"wavelengths": [2.2e-6]})
        assert (changed.strehl[:, 0] > found.strehl[:, 1]).all()

    def test_to_fits_wants_a_name_of_fits(self, tiny: ls.System, tmp_path: Path) -> None:
        with pytest.raises(ls.InputError, match=r"\.fits"):
            tiny.psf(wavelengths=[2.2e-6], pixels=16).to_fits(tmp_path / "a.npz")


class TestProvenance:
    def test_attributes(self, tiny: ls.System) -> None:
        found = tiny.simulate(frames=2, seed=5)
        about = found.attributes
        assert about["program"] == "lenslet"
        assert about["version"] == ls.__version__
        assert about["command"] == "lenslet.System.simulate(frames=2, seed=5)"
        assert about["seed"] == 5
        assert ls.System.from_toml(found["system"]) == tiny
        assert found.system == tiny

    def test_a_saved_result_names_its_call(self, tiny: ls.System, tmp_path: Path) -> None:
        found = tiny.covariance(form="dense")
        found.save(tmp_path / "a.npz")
        again = ls.load(tmp_path / "a.npz")
        assert set(found) <= set(again)
        assert "form='dense'" in str({**again.attributes, **dict(again)})


class TestPlans:
    @pytest.mark.parametrize(
        ("name", "options"),
        [
            ("covariance", {}),
            ("covariance", {"form": "dense", "slopes_only": True}),
            ("reconstructor", {"covariances": True}),
            ("simulation", {"frames": 3}),
            ("psf", {}),
        ],
    )
    def test_plans_describe_what_runs_give(self, tiny: ls.System, name: str, options: dict[str, Any]) -> None:
        plan = getattr(tiny, f"{name}_plan")(**options)
        assert plan.memory > 0
        assert plan.device_memory == []
        assert plan.seconds > 0.0
        assert plan.seconds == pytest.approx(sum(plan.stages.values()))
        assert repr(plan) == f"<lenslet.Plan: {plan.what}>"
        text = str(plan)
        assert text.startswith("what ")
        assert plan.method in text
        found = plan.run()
        for array, shape in plan.arrays.items():
            assert found[array].shape == shape, array
        for array, values in plan.run().items():
            if isinstance(values, np.ndarray):
                np.testing.assert_allclose(values, found[array], rtol=1e-12, atol=1e-14)

    def test_plans_of_samples(self, silicon: ls.Sample) -> None:
        plan = silicon.stem_plan()
        assert "96 × 96 samples" in plan.method
        assert plan.memory > 0
        assert plan.run() == silicon.stem()


class TestSamples:
    def test_scan(self, silicon: ls.Sample) -> None:
        scan = silicon.stem()
        assert scan.annulus_0.shape == (2, 2)
        assert scan.four_d.shape[:2] == (2, 2)
        assert scan.variables["annulus_0"].dims == ("x", "y")
        patterns = np.asarray(scan.four_d, dtype=float).sum(axis=(2, 3))
        assert ((patterns > 0.5) & (patterns <= 1.0 + 1e-5)).all()
        assert scan.sample == silicon
        assert scan.summary["samples"] == [96, 96]

    def test_prism_agrees_with_multislice(self, silicon: ls.Sample) -> None:
        scan = silicon.stem(algorithm="prism", compare=2, annuli=[[30.0, 60.0]], four_d=None)
        assert scan.comparison is not None
        reference = silicon.stem(annuli=[[30.0, 60.0]], four_d=None)
        np.testing.assert_allclose(scan.annulus_0, reference.annulus_0, rtol=1e-3)

    def test_precision(self, silicon: ls.Sample) -> None:
        single, double = silicon.stem(precision="f32"), silicon.stem(precision="f64")
        assert single.four_d.dtype == np.float32
        assert double.four_d.dtype == np.float64
        np.testing.assert_allclose(single.four_d, double.four_d, atol=1e-5)

    def test_a_plane_wave_is_no_scan(self) -> None:
        sample = ls.Sample(
            file=SYSTEMS / "SI100.XYZ", grid=[64, 64], slice_thickness=1.3575, energy=100e3, algorithm="hrtem"
        )
        with pytest.raises(ls.InputError, match=r"hrtem\(\)"):
            sample.stem()
