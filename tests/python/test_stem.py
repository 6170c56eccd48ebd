"""A scan of `lenslet stem` in all formats, opened by h5py, HyperSpy, py4DSTEM, Zarr and mrcfile."""

import contextlib
import io
import pathlib
import re
import subprocess
import sys
import unittest
import warnings

import h5py
import mrcfile
import numpy as np
import zarr

from systems import Folder

CRYSTAL = pathlib.Path(__file__).parents[2] / "book/systems/SI100.XYZ"

# Lopsided: 8 × 6 places, and patterns that are longer along one axis.
SAMPLE = """
sample = { file = "crystal.xyz" }
potential = { grid = [64, 32], slice_thickness = 1.3575 }
phonons = { configurations = 2, seed = 5 }
beam = { energy_kev = 100.0, semi_angle = 15.0 }
scan = { window = [[0.0, 5.43], [1.0, 4.0]], step = [0.7, 0.5] }
detector = { bin = 4.0, annuli = [[20.0, 40.0]], centre_of_mass = true, four_d = { bin = 1 } }
"""

X, Y = 0.7 * np.arange(8), 1.0 + 0.5 * np.arange(6)
PLACES = {"x": (0.0, 0.7, "Å"), "y": (1.0, 0.5, "Å")}
FILES = ["stem.emd", "stem.hspy", "stem.zspy", "stem.zarr", "stem.zarr.zip", "stem.npz", "stem.mrc"]

# A series of foci and planes.
DEEP = SAMPLE.replace("semi_angle", "defocus = [-30.0, 0.0, 30.0], semi_angle") + "method.thicknesses = [1.4, 2.7]\n"
FOCI, THICKNESSES = [-30.0, 0.0, 30.0], [1.3575, 2.715, 5.43]


def quietly(call, *arguments, **options):
    """What a reader returns that has much to say."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call(*arguments, **options)


def hyperspy(path, **options):
    import hyperspy.api as hs

    loaded = quietly(hs.load, path, **options)
    loaded = loaded if isinstance(loaded, list) else [loaded]
    return {signal.metadata.General.title: signal for signal in loaded}


class Scan(Folder):
    """One run, its shares joined once for each format."""

    @classmethod
    def setUpClass(cls):
        cls.first = cls()
        cls.first.setUp()
        cls.first.write("stem.toml", SAMPLE)
        cls.first.write("crystal.xyz", CRYSTAL.read_text(encoding="utf-8"))
        cls.first.lenslet("stem stem.toml -o readings --share 1/1 --quiet")
        for name in FILES:
            signal = "--signal annulus_0" if name.endswith(".mrc") else ""
            cls.first.lenslet(f"stem stem.toml -o {name} --collect readings {signal} --quiet")
        cls.first.write("deep.toml", DEEP)
        cls.first.lenslet("stem deep.toml -o deep --share 1/1 --quiet")
        for ending in "emd", "hspy", "npz", "zarr":
            cls.first.lenslet(f"stem deep.toml -o deep.{ending} --collect deep --quiet")
        with np.load(cls.first.path("stem.npz")) as file:
            cls.arrays = dict(file)

    @classmethod
    def tearDownClass(cls):
        cls.first.doCleanups()

    def path(self, name):
        return str(self.first.folder / name)

    def same(self, found, wanted):
        self.assertEqual(found.dtype, wanted.dtype)
        np.testing.assert_array_equal(found, wanted)

    def calibrated(self, signal, wanted):
        axes = {axis.name: axis for axis in signal.axes_manager._axes}
        for name, (offset, scale, unit) in wanted.items():
            self.assertAlmostEqual(axes[name].offset, offset, places=6)
            self.assertAlmostEqual(axes[name].scale, scale, places=6)
            self.assertEqual(axes[name].units.replace(" ", ""), unit)

    def test_numpy_finds_what_detectors_read(self):
        arrays = self.arrays
        annular, patterns = arrays["annular"], arrays["four_d"].astype(float)
        self.assertEqual(arrays["annulus_0"].shape, (8, 6))
        np.testing.assert_allclose(arrays["x"], X, rtol=1e-12)
        np.testing.assert_allclose(arrays["y"], Y, rtol=1e-12)
        np.testing.assert_allclose(arrays["angle"], 2.0 + 4.0 * np.arange(annular.shape[2]), rtol=1e-12)
        # An annulus is the sum of its rings, and most of a pattern is in rings.
        np.testing.assert_allclose(arrays["annulus_0"], annular[..., 5:10].sum(-1), rtol=1e-5)
        total = patterns.sum((2, 3))
        self.assertTrue((total <= 1 + 1e-6).all() and (total > 0.99).all())
        self.assertTrue((annular.sum(-1) <= total + 1e-6).all())
        # The first moments of the patterns are the centres of mass.
        for axis, (name, others) in enumerate([("qx", 3), ("qy", 2)]):
            moment = (patterns.sum(others) * arrays[name]).sum(-1) / total
            np.testing.assert_allclose(moment, arrays["centre_of_mass"][..., axis], atol=2e-6)
        self.assertGreater(np.abs(arrays["centre_of_mass"]).max(), 1e-3)
        self.assertEqual(str(arrays["system"]), SAMPLE)

    def test_h5py_and_py4dstem(self):
        import py4DSTEM

        path, arrays = self.path("stem.emd"), self.arrays
        with h5py.File(path) as file:
            data = file["4DSTEM_simulation/data"]
            self.same(data["datacubes/CBED_array_depth0000/datacube"][:], arrays["four_d"])
            self.same(data["realslices/virtual_detector_depth0000/realslice"][:], arrays["annular"])
        cube = quietly(py4DSTEM.read, path)
        self.assertIsInstance(cube, py4DSTEM.DataCube)
        self.same(cube.data, arrays["four_d"])
        calibration = cube.calibration
        self.assertAlmostEqual(calibration.get_R_pixel_size(), 0.7)
        self.assertAlmostEqual(calibration.get_Q_pixel_size(), arrays["qx"][1] - arrays["qx"][0])
        self.assertEqual((calibration.get_R_pixel_units(), calibration.get_Q_pixel_units()), ("A", "A^-1"))
        self.assertEqual(calibration.get_convergence_semiangle_mrad(), 15.0)
        image = cube.tree("annulus_0")
        self.same(image.data, arrays["annulus_0"])
        np.testing.assert_allclose(image.get_dim(1), Y)

    def test_foci_and_thicknesses_are_axes(self):
        import emdfile
        import py4DSTEM

        with np.load(self.path("deep.npz")) as file:
            deep = dict(file)
        shape = {"annular": deep["annular"].shape[2:], "annulus_0": (8, 6), "centre_of_mass": (8, 6, 2)}
        shape["four_d"] = deep["four_d"].shape[2:]
        for name, last in shape.items():
            self.assertEqual(deep[name].shape, (3, 3, *last))
            self.assertEqual(deep[name].shape[2:], self.arrays[name].shape)
        np.testing.assert_allclose(deep["defocus"], FOCI)
        np.testing.assert_allclose(deep["thickness"], THICKNESSES)
        # The middle focus and the exit face are the scan without a series.
        np.testing.assert_allclose(deep["annular"][1, 2], self.arrays["annular"], rtol=1e-5, atol=1e-9)
        own = hyperspy(self.path("deep.hspy"))
        self.assertEqual(set(own), set(shape) | {name for name in deep if name.startswith("standard_error")})
        series = {"defocus": (-30.0, 30.0, "Å")}
        self.calibrated(own["four_d"], PLACES | series)
        self.same(own["four_d"].data, deep["four_d"].transpose(0, 1, 3, 2, 5, 4))
        axes = own["four_d"].axes_manager
        self.assertEqual([axis.name for axis in axes.navigation_axes], ["x", "y", "thickness", "defocus"])
        np.testing.assert_allclose(axes["thickness"].axis, THICKNESSES)
        tree = hyperspy(self.path("deep.emd"))
        self.assertEqual(len(tree), len(own))
        image = tree["annular_detector"]
        self.same(image.data, deep["annulus_0"])
        self.assertEqual({axis.name for axis in image.axes_manager.signal_axes}, {"x", "y"})
        root = quietly(py4DSTEM.read, self.path("deep.emd"))
        self.assertIsInstance(root, emdfile.Root)
        patterns = root.tree("four_d")
        self.same(patterns.data, deep["four_d"])
        self.assertEqual(list(patterns.dim_names), ["defocus", "thickness", "x", "y", "qx", "qy"])
        np.testing.assert_allclose(patterns.get_dim(1), THICKNESSES)
        self.assertAlmostEqual(root.metadata["calibration"].get_R_pixel_size(), 0.7)
        store = zarr.open(self.path("deep.zarr"), mode="r")
        self.same(store["four_d/four_d"][:], deep["four_d"])

    def test_the_chapter_opens_what_the_command_writes(self):
        text = (pathlib.Path(__file__).parents[2] / "book/src/writing-data-sets.md").read_text(encoding="utf-8")
        self.first.write("plain.toml", SAMPLE.replace(", four_d = { bin = 1 }", ""))
        self.first.lenslet("stem plain.toml -o silicon.emd --quiet")
        (shown,) = re.findall(r"```python\n(import hyperspy.*?)```", text, re.DOTALL)
        self.first.write("chapter.py", shown)
        run = [sys.executable, "chapter.py"]
        done = subprocess.run(run, cwd=self.first.folder, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        for word in "Å", "R_pixel_size", "8, 6":
            self.assertIn(word, done.stdout)

    def test_hyperspy_reads_all_of_its_formats(self):
        names = {"four_d": "CBED_array", "annulus_0": "annular_detector", "annular": "virtual_detector"}
        tree = hyperspy(self.path("stem.emd"))
        store = hyperspy(self.path("stem.zspy"))
        for title, signal in hyperspy(self.path("stem.hspy")).items():
            self.same(signal.data, store[title].data)
            self.assertEqual(signal.axes_manager.as_dictionary(), store[title].axes_manager.as_dictionary())
            beam = signal.metadata.Acquisition_instrument.TEM
            self.assertEqual((beam.beam_energy, beam.convergence_angle, beam.acquisition_mode), (100.0, 15.0, "STEM"))
        steps = [self.arrays[name][1] - self.arrays[name][0] for name in ("qx", "qy")]
        starts = [self.arrays[name][0] for name in ("qx", "qy")]
        pattern = {name: (start, step, "1/Å") for name, start, step in zip(("qx", "qy"), starts, steps)}
        self.same(tree[names["four_d"]].data, self.arrays["four_d"])
        self.same(store["four_d"].data, self.arrays["four_d"].transpose(1, 0, 3, 2))
        for cube in tree[names["four_d"]], store["four_d"]:
            self.calibrated(cube, PLACES | pattern)
            self.assertEqual((cube.axes_manager.navigation_dimension, cube.axes_manager.signal_dimension), (2, 2))
        for image in tree[names["annulus_0"]], store["annulus_0"]:
            self.same(image.data, self.arrays["annulus_0"].T)
            self.calibrated(image, PLACES)
        self.same(store["annular"].data, self.arrays["annular"].transpose(1, 0, 2))
        self.calibrated(tree[names["annular"]], PLACES | {"angle": (2.0, 4.0, "mrad")})

    def test_zarr_and_mrcfile(self):
        self.store(zarr.open(self.path("stem.zarr"), mode="r"))
        with zarr.storage.ZipStore(self.path("stem.zarr.zip"), mode="r") as store:
            self.store(zarr.open_group(store, mode="r"))
        with contextlib.redirect_stdout(io.StringIO()) as said:
            self.assertTrue(mrcfile.validate(self.path("stem.mrc")), said.getvalue())
        with mrcfile.open(self.path("stem.mrc")) as file:
            self.same(file.data, self.arrays["annulus_0"].T)
            np.testing.assert_allclose(file.voxel_size.tolist()[:2], (0.7, 0.5), rtol=1e-6)

    def store(self, root):
        for name in "annular", "annulus_0", "centre_of_mass", "four_d", "standard_error":
            self.same(root[f"{name}/{name}"][:], self.arrays[name])
        self.assertEqual(root.attrs["system"], SAMPLE)

    def test_pictures_and_what_is_refused(self):
        self.first.lenslet("stem stem.toml -o joined.npz --collect readings --plot scan.png --quiet")
        from PIL import Image

        with Image.open(self.path("scan.png")) as picture:
            self.assertEqual(picture.format, "PNG")
            self.assertGreater(min(picture.size), 400)
        said = self.first.lenslet("stem stem.toml -o other.mrc --collect readings", code=2)
        self.assertIn("a file in MRC holds one signal", said)
        self.assertFalse(pathlib.Path(self.path("other.mrc")).exists())


if __name__ == "__main__":
    unittest.main()
