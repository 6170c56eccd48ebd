"""Samples and scans: crystals of ASE, every key of a sample file, and signals of HyperSpy and py4DSTEM that equal those of files."""

from __future__ import annotations

import contextlib
import io
import pickle
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lenslet as ls
from lenslet import _keys

CRYSTAL = """one cell of silicon, with one side longer than the others
 5.43 7.50 5.43
 14 0.0000 0.0000 0.0000 1.0 0.076
 14 2.7150 3.7500 0.0000 1.0 0.076
 14 1.3575 1.8750 1.3575 0.5 0.076
 14 4.0725 5.6250 1.3575 1.0 0.090
 -1
"""

# Lopsided: 8 × 6 positions, 64 × 32 samples, pixels that are no squares, and foci that are not evenly spaced.
LOPSIDED: dict[str, Any] = dict(
    crystal=CRYSTAL, grid=[64, 32], slice_thickness=1.3575, energy=100e3, semi_angle=15.0, window=[[0.0, 5.43], [1.0, 4.0]],
    step=[0.7, 0.5], bin=4.0, annuli=[[20.0, 36.0]], segmented=[{"inner": 10.0, "outer": 20.0}], centre_of_mass=True,
    four_d={"bin": 1}, configurations=2, seed=5,
)
FOCI, THICKNESSES = [-30.0, 5.0, 30.0], [2.715, 5.43]


@pytest.fixture(scope="module")
def scan() -> ls.Scan:
    return ls.Sample(**LOPSIDED).stem(keep=["potential", "probe"])


@pytest.fixture(scope="module")
def deep() -> ls.Scan:
    return ls.Sample(**LOPSIDED, defocus=FOCI, thicknesses=[2.7]).stem(keep=["probe"])


@pytest.fixture(scope="module")
def micrographs() -> ls.Micrographs:
    return ls.Sample(**{**LOPSIDED, "four_d": None}, defocus=FOCI).hrtem(waves=True, potential=True)


def address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def quietly(call: Any, *arguments: Any, **keywords: Any) -> Any:
    """What a reader returns that prints and warns much."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call(*arguments, **keywords)


# HyperSpy


def same_axes(found: Any, wanted: Any) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        about, expected = one.get_axis_dictionary(), other.get_axis_dictionary()
        assert about.keys() == expected.keys()
        for key, value in expected.items():
            np.testing.assert_array_equal(about[key], value, err_msg=f"{expected['name']}.{key}")


def same_facts(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        np.testing.assert_array_equal(found[key], value, err_msg=key)


@pytest.mark.parametrize("result", ["scan", "deep", "micrographs"])
def test_hyperspy_signals_are_those_of_a_file(result: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    hs = pytest.importorskip("hyperspy.api")
    data = request.getfixturevalue(result)
    data.save(tmp_path / "scan.hspy")
    files = {signal.metadata.General.title: signal for signal in quietly(hs.load, str(tmp_path / "scan.hspy"))}
    arrays = {name for name, one in data.variables.items() if isinstance(one.values, np.ndarray)}
    assert set(files) == arrays
    for name in arrays:
        signal, wanted = data.to_hyperspy(name), files[name]
        assert type(signal) is type(wanted), name
        assert signal.data.dtype == wanted.data.dtype
        np.testing.assert_array_equal(signal.data, wanted.data)
        same_axes(signal.axes_manager._axes, wanted.axes_manager._axes)
        about, expected = signal.metadata.as_dictionary(), wanted.metadata.as_dictionary()
        expected["General"].pop("FileIO")
        about["General"].pop("FileIO", None)
        assert about == expected
        same_facts(signal.original_metadata.as_dictionary(), wanted.original_metadata.as_dictionary())


def test_hyperspy_signals_are_those_of_the_command(tmp_path: Path) -> None:
    hs = pytest.importorskip("hyperspy.api")
    ls.Sample(**LOPSIDED).save(tmp_path / "sample.toml")
    command = [sys.executable, "-m", "lenslet.cli", "stem", "sample.toml", "-o", "scan.hspy", "--quiet"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    files = {signal.metadata.General.title: signal for signal in quietly(hs.load, str(tmp_path / "scan.hspy"))}
    data = ls.Sample.from_file(tmp_path / "sample.toml").stem()
    assert set(files) == set(data.variables)
    for name, wanted in files.items():
        signal = data.to_hyperspy(name)
        np.testing.assert_array_equal(signal.data, wanted.data)
        same_axes(signal.axes_manager._axes, wanted.axes_manager._axes)
        facts, expected = (one.original_metadata.as_dictionary() for one in (signal, wanted))
        for key in "command", "date":
            assert facts.pop(key) and expected.pop(key)
        same_facts(facts, expected)


def test_hyperspy_signals_are_views(scan: ls.Scan, deep: ls.Scan) -> None:
    pytest.importorskip("hyperspy.api")
    for data in scan, deep:
        for name, one in data.variables.items():
            signal = data.to_hyperspy(name)
            assert address(signal.data) == address(one.values), name
            assert np.shares_memory(signal.data, one.values)


def test_hyperspy_moves_along_the_scan_in_x_then_y(deep: ls.Scan) -> None:
    pytest.importorskip("hyperspy.api")
    signal = deep.to_hyperspy("four_d")
    assert [axis.name for axis in signal.axes_manager.navigation_axes] == ["x", "y", "thickness", "defocus"]
    assert [axis.name for axis in signal.axes_manager.signal_axes] == ["qx", "qy"]
    np.testing.assert_array_equal(signal.inav[3, 1, 0, 2].data, deep.four_d[2, 0, 3, 1].T)
    assert signal.metadata.Acquisition_instrument.TEM.beam_energy == 100.0
    assert signal.metadata.Signal.signal_type == "electron_diffraction"


def test_hyperspy_takes_the_patterns_or_the_first_annulus(scan: ls.Scan, micrographs: ls.Micrographs) -> None:
    pytest.importorskip("hyperspy.api")
    assert scan.to_hyperspy().metadata.General.title == "four_d"
    assert ls.Sample(**{**LOPSIDED, "four_d": None}).stem().to_hyperspy().metadata.General.title == "annulus_0"
    assert micrographs.to_hyperspy().metadata.General.title == "image"
    with pytest.raises(ls.InputError, match="expected one of annular, annulus_0") as refused:
        scan.to_hyperspy("annulus_7")
    assert (refused.value.key, refused.value.value) == ("variable", "annulus_7")


# py4DSTEM


def same_cube(found: Any, wanted: Any) -> None:
    assert type(found) is type(wanted) and found.name == wanted.name
    assert found.data.dtype == wanted.data.dtype
    np.testing.assert_array_equal(found.data, wanted.data)
    assert (found.dim_names, found.dim_units, found.units) == (wanted.dim_names, wanted.dim_units, wanted.units)
    for one, other in zip(found.dims, wanted.dims, strict=True):
        np.testing.assert_array_equal(one, [text.decode() if isinstance(text, bytes) else text for text in other])


@pytest.mark.parametrize("ending", ["h5", "emd"])
def test_py4dstem_cube_is_that_of_a_file(scan: ls.Scan, ending: str, tmp_path: Path) -> None:
    py4dstem = pytest.importorskip("py4DSTEM")
    path = tmp_path / f"scan.{ending}"
    scan.save(path)
    wanted = quietly(py4dstem.read, str(path))
    with pytest.warns(ls.LensletWarning) as warned:
        cube = scan.to_py4dstem()
    sizes = [re.findall(r"[\d.]+(?= × )|(?<= × )[\d.]+", str(one.message)) for one in warned]
    assert sizes == [["0.7", "0.5"], ["0.184162", "0.133333"]]
    same_cube(cube, wanted)
    assert (cube.R_pixel_size, cube.R_pixel_units, cube.Q_pixel_units) == (0.7, "A", "A^-1")
    assert cube.Q_pixel_size == pytest.approx(1 / 5.43)
    # Names that begin with an underscore are those of a file's tree.
    calibration = {key: value for key, value in wanted.calibration._params.items() if not key.startswith("_")}
    assert cube.calibration._params == calibration
    same_facts(cube.root.metadata["simulation"]._params, wanted.root.metadata["simulation"]._params)
    assert cube.root.name == wanted.root.name
    assert set(cube.treekeys) == set(wanted.treekeys) == set(scan.variables) - {"four_d"}
    for name in wanted.treekeys:
        same_cube(cube.tree(name), wanted.tree(name))
        assert address(cube.tree(name).data) == address(scan[name])
    # A new calibration reaches the patterns and their errors.
    assert {target.name for target in cube.calibration.targets} == {target.name for target in wanted.calibration.targets}
    cube.calibration.set_Q_pixel_size(0.5)
    cube.calibration.calibrate()
    assert cube.dims[2][1] == cube.tree("standard_error_four_d").dims[2][1] == 0.5


def test_py4dstem_cube_is_a_view(scan: ls.Scan) -> None:
    pytest.importorskip("py4DSTEM")
    cube = quietly(scan.to_py4dstem)
    assert address(cube.data) == address(scan.four_d) and cube.data.shape == (8, 6, 32, 16)
    # The first moment of a pattern along x, by py4DSTEM's axes, is the centre of mass that was recorded.
    q = cube.dims[2] + scan.variables["four_d"].coordinates[2].values(32)[0]
    moment = (cube.data.sum(3) * q).sum(2) / cube.data.sum((2, 3))
    np.testing.assert_allclose(moment, scan.centre_of_mass[..., 0], atol=2e-6)


def test_py4dstem_has_one_focus_and_thickness(deep: ls.Scan) -> None:
    pytest.importorskip("py4DSTEM")
    cube = quietly(deep.to_py4dstem, defocus=5.0, thickness=2.715)
    np.testing.assert_array_equal(cube.data, deep.four_d[1, 0])
    assert address(cube.data) == address(deep.four_d[1, 0])
    np.testing.assert_array_equal(cube.tree("annulus_0").data, deep.annulus_0[1, 0])
    np.testing.assert_array_equal(cube.tree("probe").data, deep.probe[1])
    for given, key, message in (
        ({"defocus": 5.0}, "thickness", "thickness: missing: expected one of [2.715, 5.43]"),
        ({"defocus": 6.0, "thickness": 2.715}, "defocus", "defocus = 6.0: expected one of [-30.0, 5.0, 30.0]"),
    ):
        with pytest.raises(ls.InputError, match=re.escape(message)) as refused:
            deep.to_py4dstem(**given)
        assert refused.value.key == key


def test_py4dstem_wants_patterns(scan: ls.Scan) -> None:
    with pytest.raises(ls.InputError, match="four_d={} of Sample.stem"):
        ls.Sample(**{**LOPSIDED, "four_d": None}).stem().to_py4dstem()
    with pytest.raises(ls.InputError, match="with diffraction patterns"):
        scan.to_py4dstem("annular")
    with pytest.raises(ls.InputError, match="as the scan has one defocus"):
        scan.to_py4dstem(defocus=0.0)


@pytest.mark.parametrize(("module", "method", "extra"), [("hyperspy", "to_hyperspy", "hyperspy"), ("py4DSTEM", "to_py4dstem", "py4dstem")])
def test_missing_packages_are_named(scan: ls.Scan, module: str, method: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == module] + [module]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=re.escape(f'pip install "lenslet[{extra}]"')), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        getattr(scan, method)()
