"""Samples and scans: crystals of ASE, every key of a sample file, and signals of HyperSpy and py4DSTEM."""

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

import lenslet as ls
import numpy as np
import pytest
from lenslet import _keys

# Readers of other programs warn of much; what this package warns of is an error, unless a test expects it.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.filterwarnings("error::lenslet.LensletWarning")]

CRYSTAL = """one cell of silicon, with one side longer than the others
 5.43 7.50 5.43
 14 0.0000 0.0000 0.0000 1.0 0.076
 14 2.7150 3.7500 0.0000 1.0 0.076
 14 1.3575 1.8750 1.3575 0.5 0.076
 14 4.0725 5.6250 1.3575 1.0 0.090
 -1
"""

# Lopsided: 8 × 6 positions, 64 × 32 samples, pixels that are no squares, and foci that are not evenly spaced.
LOPSIDED: dict[str, Any] = {
    "crystal": CRYSTAL,
    "grid": [64, 32],
    "slice_thickness": 1.3575,
    "energy": 100e3,
    "semi_angle": 15.0,
    "window": [[0.0, 5.43], [1.0, 4.0]],
    "step": [0.7, 0.5],
    "bin": 4.0,
    "annuli": [[20.0, 36.0]],
    "segmented": [{"inner": 10.0, "outer": 20.0}],
    "centre_of_mass": True,
    "four_d": {"bin": 1},
    "configurations": 2,
    "seed": 5,
}
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
    """Call a reader that prints and warns much."""
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
        # The command leaves the seed to the text of the sample.
        assert facts.pop("seed") == 5 and expected.pop("seed", 5) == 5
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
    assert {target.name for target in cube.calibration.targets} == {
        target.name for target in wanted.calibration.targets
    }
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
    with pytest.raises(ls.InputError, match=re.escape("four_d={} of Sample.stem")):
        ls.Sample(**{**LOPSIDED, "four_d": None}).stem().to_py4dstem()
    with pytest.raises(ls.InputError, match="with diffraction patterns"):
        scan.to_py4dstem("annular")
    with pytest.raises(ls.InputError, match="as the scan has one defocus"):
        scan.to_py4dstem(defocus=0.0)


@pytest.mark.parametrize(
    ("module", "method", "extra"), [("hyperspy", "to_hyperspy", "hyperspy"), ("py4DSTEM", "to_py4dstem", "py4dstem")]
)
def test_missing_packages_are_named(
    scan: ls.Scan, module: str, method: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == module] + [module]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=re.escape(f'pip install "lenslet[{extra}]"')), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        getattr(scan, method)()


# ASE


def silicon_cell(**keywords: Any) -> Any:
    build = pytest.importorskip("ase.build")
    return build.bulk("Si", cubic=True, **keywords)


def scanned(sample: ls.Sample) -> np.ndarray:
    """Scan a sample at a few lopsided positions."""
    keywords: dict[str, Any] = {
        "window": [[0.0, 2.0], [0.0, 1.0]],
        "step": [0.7, 0.6],
        "annuli": [[30.0, 60.0]],
        "slice_thickness": 1.3575,
    }
    return np.asarray(sample.stem(**keywords, semi_angle=20.0).annulus_0)


def test_ase_atoms_are_simulated_as_those_of_a_file() -> None:
    ase = pytest.importorskip("ase.io")
    path = Path(__file__).resolve().parents[2] / "book" / "systems" / "SI100.XYZ"
    keywords: dict[str, Any] = {"energy": 100e3, "configurations": 2, "seed": 3, "tile": [1, 1, 2]}
    atoms = ase.read(path, format="prismatic")
    # The reader of ASE gives occupancies and Debye-Waller factors; a velocity changes nothing.
    atoms.set_velocities(np.ones((len(atoms), 3)))
    found, wanted = (
        scanned(sample) for sample in (ls.Sample.from_ase(atoms, **keywords), ls.Sample(file=path, **keywords))
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    at_rest = scanned(ls.Sample(file=path, **{**keywords, "configurations": 0}))
    assert np.abs(wanted / at_rest - 1.0).max() > 0.01


@pytest.mark.parametrize("given", [0.08, {"Si": 0.08}, np.full(8, 0.08)])
def test_displacements_are_of_all_of_elements_or_of_atoms(given: Any) -> None:
    sample = ls.Sample.from_ase(silicon_cell(), displacements=given, energy=100e3, configurations=2)
    atoms = silicon_cell()
    atoms.set_array("debye_waller_factors", np.full(8, 8.0 * np.pi**2 * 0.08**2))
    np.testing.assert_allclose(
        scanned(sample), scanned(ls.Sample.from_ase(atoms, energy=100e3, configurations=2)), rtol=1e-5
    )
    with pytest.raises(ls.InputError, match="displacements, which the crystal file does not give"):
        ls.Sample.from_ase(silicon_cell(), energy=100e3, configurations=2).stem()


def test_displacements_of_atoms_keep_their_order() -> None:
    atoms = silicon_cell()
    atoms.set_array("displacement", 0.01 * np.arange(8))
    found = ls.Sample.from_ase(atoms, energy=100e3).to_ase()
    np.testing.assert_array_equal(found.positions, atoms.positions)
    np.testing.assert_allclose(
        np.sqrt(found.arrays["debye_waller_factors"] / (8.0 * np.pi**2)), 0.01 * np.arange(8), atol=1e-15
    )


MIXED = """data_mixed
_cell_length_a 3.95
_cell_length_b 3.95
_cell_length_c 4.10
_cell_angle_alpha 90
_cell_angle_beta 90
_cell_angle_gamma 90
_symmetry_space_group_name_H-M 'P 4 m m'
_symmetry_Int_Tables_number 99
loop_
_atom_site_label
_atom_site_type_symbol
_atom_site_fract_x
_atom_site_fract_y
_atom_site_fract_z
_atom_site_occupancy
Sr1 Sr 0.0 0.0 0.0 0.625
Ba1 Ba 0.0 0.0 0.0 0.375
Ti1 Ti 0.5 0.5 0.52 1.0
O1 O 0.5 0.5 0.02 0.9
O2 O 0.5 0.0 0.5 1.0
"""


def test_sites_of_a_cif_keep_all_their_elements(tmp_path: Path) -> None:
    ase = pytest.importorskip("ase.io")
    path = tmp_path / "mixed.cif"
    path.write_text(MIXED, encoding="utf-8")
    atoms = quietly(ase.read, path).repeat((1, 1, 2))
    found = ls.Sample.from_ase(atoms, energy=100e3)
    wanted = ls.Sample(file=path, energy=100e3, tile=[1, 1, 2])
    composition = {"Sr": 1.25, "Ba": 0.75, "Ti": 2.0, "O": 5.8}
    assert dict(found.summary["atoms"]) == pytest.approx(composition)
    assert dict(wanted.summary["atoms"]) == pytest.approx(composition)
    np.testing.assert_allclose(scanned(found), scanned(wanted), rtol=1e-5)
    # Without occupancies the site of strontium holds one atom.
    del atoms.info["occupancy"]
    assert dict(ls.Sample.from_ase(atoms, energy=100e3).summary["atoms"]) == {"Sr": 2.0, "Ti": 2.0, "O": 6.0}


def test_ase_cells_may_be_turned_open_or_oblique() -> None:
    build = pytest.importorskip("ase.build")
    wanted = scanned(ls.Sample.from_ase(silicon_cell(), energy=100e3))
    turned = silicon_cell()
    turned.rotate(40.0, (1, 2, 3), rotate_cell=True)
    np.testing.assert_allclose(scanned(ls.Sample.from_ase(turned, energy=100e3)), wanted, rtol=1e-4)
    outside = silicon_cell()
    outside.positions += 3.0 * outside.cell[0] - 2.0 * outside.cell[1]
    np.testing.assert_allclose(scanned(ls.Sample.from_ase(outside, energy=100e3)), wanted, rtol=1e-4)
    # A layer has no third side before vacuum is put around it, and is then not periodic along it.
    layer = build.mx2("MoS2", size=(1, 1, 1))
    layer.cell[2] = 0.0
    with pytest.raises(ls.InputError, match="vacuum") as refused:
        ls.Sample.from_ase(layer, energy=100e3)
    assert refused.value.key == "atoms.cell"
    layer.center(vacuum=3.0, axis=2)
    with pytest.raises(ls.InputError, match="zone_axis"):
        ls.Sample.from_ase(layer, energy=100e3)
    cut = ls.Sample.from_ase(layer, energy=100e3, zone_axis=[0, 0, 1])
    assert 'pbc="T T F"' in cut.to_dict()["sample"]["crystal"]
    shares = dict(cut.summary["atoms"])
    assert shares["S"] == 2.0 * shares["Mo"] > 0.0
    assert cut.summary["cell"][2] == pytest.approx(layer.cell[2, 2])


def test_a_beam_along_plus_z_is_that_of_mirrored_atoms() -> None:
    atoms = silicon_cell()[:5]
    atoms.rattle(0.3, seed=1)
    atoms.wrap()
    mirrored = atoms.copy()
    mirrored.positions[:, 1:] = atoms.cell.lengths()[1:] - atoms.positions[:, 1:]
    mirrored.wrap()
    plus = scanned(ls.Sample.from_ase(atoms, energy=100e3, beam_direction="+z"))
    np.testing.assert_allclose(scanned(ls.Sample.from_ase(mirrored, energy=100e3)), plus, rtol=1e-4)
    assert np.abs(scanned(ls.Sample.from_ase(atoms, energy=100e3)) / plus - 1.0).max() > 0.01


def test_ase_atoms_survive_the_round_trip() -> None:
    atoms = silicon_cell()
    atoms.rattle(0.1, seed=2)
    atoms.symbols[3] = "Ge"
    atoms.pbc = [True, True, False]
    atoms.set_array("occupancies", np.linspace(0.3, 1.0, 8))
    atoms.set_array("debye_waller_factors", np.linspace(0.0, 0.7, 8))
    again = ls.Sample.from_ase(atoms, energy=100e3).to_ase()
    assert again.get_chemical_symbols() == atoms.get_chemical_symbols()
    for name in "positions", "occupancies":
        np.testing.assert_array_equal(again.arrays[name], atoms.arrays[name])
    np.testing.assert_allclose(again.arrays["debye_waller_factors"], atoms.arrays["debye_waller_factors"], rtol=1e-15)
    np.testing.assert_array_equal(again.cell, atoms.cell)
    np.testing.assert_array_equal(again.pbc, atoms.pbc)


def test_crystals_of_files_become_atoms(tmp_path: Path) -> None:
    pytest.importorskip("ase")
    kirkland = ls.Sample(crystal=CRYSTAL, energy=100e3, cell=[5.43, 15.0, 5.43], rms={"Si": 0.1}).to_ase()
    assert kirkland.cell.lengths() == pytest.approx([5.43, 15.0, 5.43]) and kirkland.positions[1, 1] == pytest.approx(
        7.5
    )
    assert list(kirkland.arrays["occupancies"]) == [1.0, 1.0, 0.5, 1.0] and kirkland.pbc.all()
    np.testing.assert_allclose(kirkland.arrays["debye_waller_factors"], 8.0 * np.pi**2 * 0.01)
    (tmp_path / "mixed.cif").write_text(MIXED, encoding="utf-8")
    sample = ls.Sample.from_toml("sample.file = 'mixed.cif'\nbeam.energy_kev = 100.0\n", name=str(tmp_path / "a.toml"))
    cif = quietly(sample.to_ase)
    assert dict(ls.Sample.from_ase(cif, energy=100e3).summary["atoms"]) == pytest.approx(
        {"Sr": 0.625, "Ba": 0.375, "Ti": 1.0, "O": 2.9}
    )


def test_atoms_that_make_no_sense_are_named() -> None:
    atoms = silicon_cell()
    from ase import Atoms

    def with_array(name: str, values: Any) -> Any:
        changed = atoms.copy()
        changed.set_array(name, np.asarray(values))
        return changed

    cases: list[tuple[Any, dict[str, Any], str]] = [
        (Atoms(cell=[3.0, 4.0, 5.0]), {}, "atoms"),
        (Atoms("X", cell=[3.0, 4.0, 5.0]), {}, "atoms[0].symbol"),
        (atoms, {"crystal": "Si"}, "crystal"),
        (atoms, {"cell": [1.0, 2.0, 3.0]}, "cell"),
        (atoms, {"displacements": -0.1}, "displacements[0]"),
        (atoms, {"displacements": [0.1, 0.2]}, "displacements"),
        (atoms, {"displacements": "wide"}, "displacements"),
        (with_array("occupancies", np.r_[np.ones(7), 1.5]), {}, "atoms.arrays['occupancies'][7]"),
        (with_array("occupancy", np.full(8, np.nan)), {}, "atoms.arrays['occupancy'][0]"),
        (with_array("displacement", np.zeros((8, 3))), {}, "atoms.arrays['displacement']"),
        (with_array("debye_waller_factors", -np.ones(8)), {}, "atoms.arrays['debye_waller_factors'][0]"),
    ]
    for given, keywords, key in cases:
        with pytest.raises(ls.InputError) as refused:
            ls.Sample.from_ase(given, energy=100e3, **keywords)
        assert refused.value.key == key and refused.value.expected
    with pytest.raises(ls.InputError) as refused:
        ls.Sample.from_ase(atoms, displacements={"C": 0.1}, energy=100e3).stem()
    assert refused.value.key == "phonons.rms.C"


# Keys of a sample

#: A value of each keyword, none of which is the default.
VALUES: dict[str, Any] = {
    "file": "SI100.XYZ",
    "crystal": CRYSTAL,
    "tile": [1, 2, 3],
    "cell": [5.0, 6.0, 7.0],
    "zone_axis": [1, 1, 0],
    "strain": 1e-3,
    "beam_direction": "+x",
    "occupancy": False,
    "specimen_tilt": [1.0, -2.0],
    "model": "sliced",
    "factors": "lobato",
    "grid": [64, 32],
    "pixel": [0.1, 0.2],
    "slice_thickness": 1.5,
    "bound": 2.5,
    "planes": 8,
    "configurations": 3,
    "seed": 7,
    "rms": {"Si": 0.08},
    "energy": 200e3,
    "semi_angle": 25.0,
    "defocus": [10.0, -5.0],
    "c3": 1e7,
    "c5": 1e8,
    "beam_tilt": [0.5, -0.5],
    "aberrations": [{"m": 3, "n": 1, "magnitude": 2.0, "angle_deg": 30.0}],
    "window": [[0.0, 1.0], [0.5, 2.0]],
    "step": [0.3, 0.2],
    "source_size": 0.4,
    "algorithm": "prism",
    "interpolation": [2, 3],
    "interpolation_check": "warn",
    "margin": 3.0,
    "refocus": 10.0,
    "thicknesses": [4.0],
    "bin": 2.0,
    "bins": 20,
    "annuli": [[60.0, 90.0]],
    "segmented": [{"inner": 10.0, "outer": 30.0, "sectors": 8, "rotation_deg": 15.0}],
    "centre_of_mass": True,
    "integrated_centre": True,
    "four_d": {"crop": 40.0, "bin": 2},
    "dose": 1e4,
    "dose_seed": 3,
    "aperture": 30.0,
    "imaging_tilt": [1.0, 2.0],
    "focal_spread": 20.0,
    "convergence": 0.5,
    "samples": "mask",
    "precision": "f64",
}
#: Keywords that exclude each other.
EXCLUDE = {"file": "crystal", "crystal": "file", "grid": "pixel", "pixel": "grid"}


def at(values: Any, path: str) -> Any:
    for name in path.split("."):
        values = values[name]
    return values


def test_every_key_is_a_keyword() -> None:
    known = _keys.keywords("sample")
    assert set(VALUES) == set(known)
    inner = {path for path in _keys.rows("sample") if path.count(".") == 2}
    tables = {path.rpartition(".")[0] for path in inner}
    assert tables == {"beam.aberrations", "detector.four_d", "detector.segmented", "phonons.rms"}
    assert set(_keys.rows("sample")) == set(known.values()) | inner | {
        path.partition(".")[0] for path in known.values()
    }
    # The dictionaries above have every key of such tables.
    for keyword, path in known.items():
        if path in tables - {"phonons.rms"}:
            table = VALUES[keyword][0] if isinstance(VALUES[keyword], list) else VALUES[keyword]
            assert {f"{path}.{key}" for key in table} == {key for key in inner if key.startswith(f"{path}.")}


@pytest.mark.parametrize("keyword", VALUES)
def test_keywords_are_keys_of_a_file(keyword: str) -> None:
    path, value = _keys.keywords("sample")[keyword], VALUES[keyword]
    base: dict[str, Any] = {"crystal": CRYSTAL, "energy": 100e3}
    keywords = {key: entry for key, entry in {**base, keyword: value}.items() if EXCLUDE.get(keyword) != key}
    sample, start = ls.Sample(**keywords), None if keyword == "file" else ls.Sample(**base)
    wanted = 200.0 if keyword == "energy" else value
    assert at(sample.to_dict(), path) == wanted
    assert ls.Sample.from_toml(sample.to_toml()) == sample
    assert ls.Sample.from_dict(sample.to_dict()) == sample
    assert f"# {_keys.rows('sample')[path]['meaning']}" in sample.to_toml()
    if start is not None:
        assert start.replace(**{keyword: value}) == sample and start.replace({path: wanted}) == sample
        # Without a value a key has its default, or is missed where it is required.
        if keyword not in base:
            assert (
                sample != start
                and sample.replace(**{keyword: None}).to_dict().get(path.partition(".")[0], {}).get(keyword) is None
            )
    with pytest.raises(ls.InputError) as refused:
        ls.Sample(**{**base, keyword: object()})
    assert str(refused.value.key).startswith(path)


def test_values_may_be_arrays_and_paths(tmp_path: Path) -> None:
    given = ls.Sample(
        file=tmp_path / "a.xyz",
        energy=np.float32(100e3),
        tile=np.array([1, 2, 3]),
        window=((0, 1), (np.float64(0.5), 2)),
    )
    same = ls.Sample(
        file=str(tmp_path / "a.xyz"), energy=100_000, tile=(1, 2, 3), window=np.array([[0.0, 1.0], [0.5, 2.0]])
    )
    assert given == same and hash(given) == hash(same)


def test_empty_tables_record_patterns() -> None:
    sample = ls.Sample(crystal=CRYSTAL, energy=100e3, four_d={})
    assert sample.to_dict()["detector"] == {"four_d": {}}
    start = ls.Sample(crystal=CRYSTAL, energy=100e3)
    assert start.replace(four_d={}) == sample
    # A dictionary changes the keys that it has.
    assert start.replace(four_d={"bin": 2}).replace(four_d={}).to_dict()["detector"] == {"four_d": {"bin": 2}}
    assert start.replace(four_d={"bin": 2}).replace(four_d={"crop": 30.0}).to_dict()["detector"] == {
        "four_d": {"bin": 2, "crop": 30.0}
    }
    assert start.replace(four_d={"bin": 2}).replace({"detector.four_d": {"crop": 30.0}}).to_dict()["detector"] == {
        "four_d": {"crop": 30.0}
    }
    assert "four_d" in start.stem(four_d={}, window=[[0.0, 1.0], [0.0, 1.0]], step=1.0, grid=[32, 32])


def test_errors_name_the_key() -> None:
    sample = ls.Sample(crystal=CRYSTAL, energy=100e3)
    cases: list[tuple[Any, str, str]] = [
        (
            lambda: ls.Sample(crystal=CRYSTAL, energy=100),
            "energy",
            "energy = 100: expected an energy from 1e3 to 1e7 eV; did you mean 100000?",
        ),
        (lambda: ls.Sample(crystal=CRYSTAL, energy="high"), "beam.energy_kev", "beam.energy_kev"),
        (lambda: ls.Sample(crystal=CRYSTAL, energy=float("nan")), "energy", "energy = nan"),
        (
            lambda: ls.Sample(crystal=CRYSTAL, semi_angle=-1.0, energy=1e5),
            "beam.semi_angle",
            "beam.semi_angle = -1.0: expected an angle",
        ),
        (lambda: ls.Sample(crystal=CRYSTAL, semiangle=1.0, energy=1e5), "semiangle", "did you mean semi_angle?"),
        (lambda: sample.replace(four_d={"cropp": 3.0}), "detector.four_d.cropp", "did you mean crop?"),
        (lambda: sample.stem(keep="exit"), "keep", "expected potential, probe or smatrix"),
        (lambda: sample.stem(keep=[3]), "keep", "names among potential"),
        (lambda: sample.stem(keep=3), "keep", "names among potential"),
        (lambda: sample.stem(keep=["smatrix"]), "keep", "prism"),
        (lambda: sample.stem(compare=4), "compare", "prism"),
        (lambda: sample.stem(algorithm="prism", compare=-4), "compare", "a whole number not below 1"),
        (lambda: sample.stem(algorithm="prism", compare=True), "compare", "a whole number not below 1"),
        (lambda: sample.stem(algorithm="hrtem"), "algorithm", "hrtem()"),
        (lambda: sample.hrtem(algorithm="prism"), "algorithm", "stem()"),
        (lambda: sample.stem(precision="f16"), "run.precision", "f32"),
        (lambda: sample.hrtem(defocus=[5.0, 5.0]), "beam.defocus", "differ from each other"),
    ]
    for call, key, message in cases:
        with pytest.raises(ls.InputError, match=re.escape(message)) as refused:
            call()
        assert refused.value.key == key


def test_samples_are_values(tmp_path: Path) -> None:
    sample = ls.Sample(**LOPSIDED)
    again = pickle.loads(pickle.dumps(sample))
    assert again == sample and hash(again) == hash(sample) and again is not sample
    assert ls.Sample(**{**LOPSIDED, "seed": 6}) != sample and sample != "sample"
    whole, real = (ls.Sample(crystal=CRYSTAL, energy=1e5, defocus=number) for number in (3, 3.0))
    assert whole == real and hash(whole) == hash(real)
    # Equal files of crystals by different paths, and different ones by the same name.
    for folder in "one", "other":
        (tmp_path / folder).mkdir()
    text = "sample.file = 'a.xyz'\nbeam.energy_kev = 100.0\n"
    one, other = (ls.Sample.from_toml(text, name=str(tmp_path / folder / "a.toml")) for folder in ("one", "other"))
    assert one != other and one == ls.Sample(file=tmp_path / "one" / "a.xyz", energy=100e3)
    assert hash(one) == hash(ls.Sample(file=tmp_path / "one" / "a.xyz", energy=100e3))
    assert repr(one) == "<lenslet.Sample: a.xyz, 100.0 keV, multislice>"
    assert repr(sample) == "<lenslet.Sample: crystal in the text, 100.0 keV, multislice>"
    html = ls.Sample(crystal="3\n<b>&\nSi 0 0 0\n", energy=1e5)._repr_html_()
    assert html.startswith("<details><summary>&lt;lenslet.Sample") and "&lt;b&gt;&amp;" in html and "<b>" not in html


def test_files_keep_their_comments(tmp_path: Path) -> None:
    text = "# a crystal\n[sample]\nfile = 'SI100.XYZ'   # by Kirkland\n\n[beam]\nenergy_kev = 100.0\n"
    sample = ls.Sample.from_toml(text, name=str(tmp_path / "a.toml"))
    assert sample.to_toml() == text
    changed = sample.replace(semi_angle=25.0, four_d={})
    assert "# by Kirkland" in changed.to_toml() and "semi_angle = 25.0" in changed.to_toml()
    changed.save(tmp_path / "b.toml")
    assert ls.Sample.from_file(tmp_path / "b.toml") == changed
    assert ls.Sample(**VALUES_TOGETHER).to_toml().count("#") >= len(VALUES_TOGETHER)


VALUES_TOGETHER = {key: value for key, value in VALUES.items() if key not in ("file", "pixel", "zone_axis")}


def test_all_values_together_survive_their_text() -> None:
    sample = ls.Sample(**VALUES_TOGETHER)
    assert ls.Sample.from_toml(sample.to_toml()) == sample
    assert ls.Sample.from_dict(sample.to_dict()) == sample


# Potentials, probes, S-matrices and images of plane waves


def test_kept_results_have_their_closed_forms(scan: ls.Scan) -> None:
    x, y, slices = scan.variables["potential"].coordinates
    assert scan.potential.shape == (64, 32, 4) and scan.variables["potential"].dims == ("x", "y", "slice")
    assert x.positions == (0.0, 5.43 / 64) and y.positions == (0.0, 7.5 / 32) and slices.positions == (0.0, 1.3575)
    # The probe holds all electrons.
    assert np.sum(np.abs(scan.probe) ** 2) == pytest.approx(1.0, abs=1e-5)
    # Without an interpolation the S-matrix passes on every beam: PRISM and multislice agree.
    keywords: dict[str, Any] = {**LOPSIDED, "four_d": None, "configurations": 0}
    exact = ls.Sample(**keywords).stem()
    prism = ls.Sample(**keywords).stem(algorithm="prism", interpolation=1, keep="smatrix", compare=5)
    np.testing.assert_allclose(prism.annulus_0, exact.annulus_0, rtol=1e-3)
    assert prism.smatrix.ndim == 3 and np.iscomplexobj(prism.smatrix)
    assert prism.comparison is not None and len(prism.comparison["places"]) == 5
    assert {error["name"] for error in prism.comparison["detectors"]} >= {"annulus_0", "centre_of_mass"}
    assert max(error["largest"] for error in prism.comparison["detectors"]) < 1e-3
    # The exit waves of the compared probes are those of both methods, and their squares the electrons that are kept.
    waves = prism.variables["compared_prism"]
    assert waves.dims == ("probe", "x", "y") and prism.compared_prism.shape == (5, 32, 16)
    assert waves.coordinates[1].positions == (0.0, 5.43 / 32) and "compared_prism" not in exact
    np.testing.assert_allclose(prism.compared_prism, prism.compared_multislice, atol=1e-5)
    kept = np.sum(np.abs(prism.compared_multislice) ** 2, axis=(1, 2))
    assert ((kept > 0.9) & (kept < 1.0 + 1e-5)).all()
    steps = np.unique(np.diff(np.unique(prism.compared_places[:, 0])))
    assert prism.compared_places.shape == (5, 2) and (steps > 0.0).all()
    assert exact.comparison is None
    # Both precisions are those of waves and of results.
    fine = ls.Sample(**keywords).stem(precision="f64")
    assert (exact.annulus_0.dtype, fine.annulus_0.dtype) == (np.float32, np.float64)
    np.testing.assert_allclose(exact.annulus_0, fine.annulus_0, rtol=1e-4)
    assert fine.sample.to_dict()["run"] == {"precision": "f64"}


def test_images_of_a_plane_wave(micrographs: ls.Micrographs) -> None:
    image, wave = micrographs.variables["image"], micrographs.variables["wave"]
    assert image.dims == ("defocus", "x", "y") and micrographs.image.shape == (3, 64, 32)
    assert list(image.coordinates[0].values(3)) == FOCI and wave.dims == ("x", "y")
    assert micrographs.potential.shape == (64, 32, 4)
    # A lens conserves electrons: the mean of an image is that of the exit wave, at each focus.
    means = micrographs.image.mean((1, 2))
    np.testing.assert_allclose(means, means[0], rtol=1e-5)
    assert micrographs.image.std((1, 2)).min() > 1e-3
    assert micrographs.sample.algorithm == "hrtem" and micrographs.attributes["acquisition_mode"] == "TEM"


def test_plans_describe_what_a_run_returns() -> None:
    sample = ls.Sample(**{**LOPSIDED, "four_d": {"bin": 2}})
    plan = sample.stem_plan(keep=["probe"])
    found = plan.run()
    # Readings are all numbers of a position: rings, the annulus, four sectors, two moments, the total, 16 × 8 pixels.
    ((name, (positions, numbers)),) = plan.arrays.items()
    assert (name, positions) == ("readings", 8 * 6) and numbers >= found.annular.shape[2] + 1 + 4 + 2 + 1 + 16 * 8
    assert found.four_d.shape == (8, 6, 16, 8)
    assert plan.memory > 0 and "multislice" in plan.method
    assert sample.hrtem_plan().run().image.shape == (64, 32)
