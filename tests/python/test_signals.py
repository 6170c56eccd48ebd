"""Signals of a simulation in all formats, opened by h5py, RosettaSciIO, HyperSpy, py4DSTEM, Zarr and mrcfile.

The files are those that the test `files_for_other_readers` writes: see book/src/variables-on-disk.md for the numbers.
"""

import contextlib
import io
import os
import pathlib
import unittest
import warnings

import h5py
import mrcfile
import numpy as np
import zarr

FOLDER = os.environ.get("LENSLET_SIGNAL_FILES")

# Places along the axes, all lopsided.
X, Y = 1.25 + 0.5 * np.arange(4), -0.5 + 0.2 * np.arange(3)
BIN = 0.5 + 1.5 * np.arange(6)
QX, QY = -0.75 + 0.25 * np.arange(7), -0.25 + 0.125 * np.arange(5)


def annular():
    t, i, j, b = np.indices((2, 4, 3, 6))
    return ((100 * i + 10 * j + b + 1000 * t) / np.float32(7)).astype(np.float32)


def series():
    d, t, i, j = np.indices((3, 2, 4, 3))
    return 8.0 * (8 * (8 * (4 + d) + t) + i) + j


def four_d():
    i, j, k, l = np.indices((4, 3, 7, 5))
    return (1000 * i + 100 * j + 10 * k + l + 0.25).astype(np.float32)


I, J = np.indices((4, 3))
ANNULUS = (10 * I + J) / 3
CENTRE = np.stack([I + 10 * J - 31.5, I + 10 * J + 68.5], axis=-1)
PROBE = I + 0.5 - 1j * J
SCAN = {"x": (1.25, 0.5, "Å"), "y": (-0.5, 0.2, "Å")}
PATTERN = {"qx": (-0.75, 0.25, "1/Å"), "qy": (-0.25, 0.125, "1/Å")}
BINS = {"bin": (0.5, 1.5, "mrad")}
FOCI, THICKNESSES = [30.0, 10.0, -25.0], [20.0, 40.0]
THICKNESS = {"thickness": (20.0, 20.0, "Å")}


@unittest.skipUnless(FOLDER, "LENSLET_SIGNAL_FILES names no folder")
class Signals(unittest.TestCase):
    def path(self, name):
        return str(pathlib.Path(FOLDER) / name)

    def same(self, found, wanted):
        self.assertEqual(found.dtype, wanted.dtype)
        np.testing.assert_array_equal(found, wanted)

    def hyperspy(self, name, **options):
        import hyperspy.api as hs

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loaded = hs.load(self.path(name), **options)
        return loaded if isinstance(loaded, list) else [loaded]

    def axes(self, signal, wanted):
        """The axes by their names, each with offset, scale and unit."""
        found = {axis.name: axis for axis in signal.axes_manager._axes}
        for name, (offset, scale, unit) in wanted.items():
            axis = found[name]
            self.assertAlmostEqual(axis.offset, offset, places=12)
            self.assertAlmostEqual(axis.scale, scale, places=12)
            self.assertEqual(axis.units.replace(" ", ""), unit)

    def test_numpy(self):
        with np.load(self.path("signals.npz")) as file:
            self.same(file["four_d"], four_d())
            self.same(file["annular"], annular())
            self.same(file["annulus_1"], series())
            self.same(file["probe"], PROBE)
            for name, places in ("x", X), ("y", Y), ("bin", BIN), ("qx", QX), ("qy", QY):
                np.testing.assert_allclose(file[name], places, rtol=1e-15)
            self.assertEqual((list(file["defocus"]), list(file["thickness"])), (FOCI, THICKNESSES))
            self.assertEqual((float(file["beam_energy"]), float(file["convergence_angle"])), (100.0, 21.5))
            self.assertEqual((int(file["ns"]), str(file["acquisition_mode"])), (10, "STEM"))

    def test_h5py(self):
        with h5py.File(self.path("signals.h5")) as file:
            data = file["4DSTEM_simulation/data"]
            cube = data["datacubes/CBED_array_depth0000"]
            self.same(cube["datacube"][:], four_d())
            self.same(cube["data"][1, 2], four_d()[1, 2])
            for number, places in enumerate([X, Y, QX, QY], start=1):
                np.testing.assert_allclose(cube[f"dim{number}"], places, rtol=1e-15)
            self.assertEqual(cube["dim3"].attrs["units"], "[Å^-1]")
            self.same(data["realslices/virtual_detector_depth0000/data"][:], annular())
            images = data["realslices/annulus_1_depth0000"]
            self.same(images["data"][:], series())
            self.assertEqual([images[f"dim{k}"].attrs["name"] for k in (1, 2, 3, 4)], ["defocus", "thickness", "x", "y"])
            self.assertEqual((list(images["dim1"][:]), list(images["dim2"][:])), (FOCI, THICKNESSES))
            self.same(data["realslices/annular_detector_depth0000/data"][:], ANNULUS)
            self.same(data["realslices/probe_fp0000/data"][:], PROBE)
            centre = data["realslices/DPC_CoM_depth0000"]
            self.same(centre["realslice"][:], CENTRE)
            self.assertEqual(list(centre["dim3"].asstr()), ["x", "y"])
            facts = file["4DSTEM_simulation/metadata/metadata_0/original/simulation_parameters"].attrs
            self.assertEqual((facts["E"], facts["sa"], facts["ns"], list(facts["c"])), (100.0, 21.5, 10, [4.0, 5.43, 5.43]))
            self.assertEqual((facts["periodic"], facts["periodic"].dtype), (True, np.bool_))
            self.assertEqual(facts["sample"], 'file = "Si, naïvely.xyz"\n')
            metadata = file["4DSTEM_simulation/metadata/metadata_0"]
            wanted = {"R_pixel_size": 0.5, "R_pixel_units": "A", "Q_pixel_size": 0.25, "Q_pixel_units": "A^-1"}
            self.assertEqual(dict(metadata["calibration"].attrs), wanted)
            self.assertEqual(metadata["microscope"].attrs["beam_energy"], 100.0)
            self.assertEqual(file.attrs["emd_group_type"], "file")

    def test_endings_that_hyperspy_opens_by_itself(self):
        # Readers are chosen by the ending alone; four claim .h5, and none of them reads EMD.
        with self.assertRaisesRegex(ValueError, "multiple file readers"):
            self.hyperspy("signals.h5")
        for name in "signals.emd", "signals.hspy", "signals.zspy":
            self.assertEqual(len(self.hyperspy(name)), 6, name)

    def test_rosettasciio_and_hyperspy_read_the_tree(self):
        for name, options in ("signals.emd", {}), ("signals.h5", {"file_format": "EMD"}):
            with self.subTest(name):
                self.tree(name, options)

    def tree(self, name, options):
        found = {signal.metadata.General.title: signal for signal in self.hyperspy(name, **options)}
        self.assertEqual(
            set(found), {"CBED_array", "DPC_CoM", "annular_detector", "annulus_1", "probe_fp", "virtual_detector"}
        )
        cube = found["CBED_array"]
        self.same(cube.data, four_d())
        self.axes(cube, SCAN | PATTERN)
        self.assertEqual((cube.axes_manager.navigation_dimension, cube.axes_manager.signal_dimension), (2, 2))
        self.assertEqual(cube.metadata.Signal.signal_type, "electron_diffraction")
        # All foci and thicknesses in one signal, along which one moves from picture to picture.
        bins, images = found["virtual_detector"], found["annulus_1"]
        self.same(bins.data, annular())
        self.axes(bins, SCAN | BINS | THICKNESS)
        self.same(images.data, series())
        self.axes(images, SCAN | THICKNESS)
        for signal, moved in (bins, {"bin", "thickness"}), (images, {"defocus", "thickness"}):
            self.assertEqual({axis.name for axis in signal.axes_manager.navigation_axes}, moved)
            self.assertEqual({axis.name for axis in signal.axes_manager.signal_axes}, {"x", "y"})
        # Without a series, images are upright.
        self.same(found["annular_detector"].data, ANNULUS.T)
        self.same(found["probe_fp"].data, PROBE.T)
        self.axes(found["probe_fp"], {"x": (0.0, 0.1, "Å"), "y": (0.0, 0.3, "Å")})
        self.same(found["DPC_CoM"].data, CENTRE.T)
        self.assertEqual(cube.original_metadata.simulation_parameters.E0, 100.0)
        self.assertEqual(cube.original_metadata.calibration.R_pixel_size, 0.5)

    def test_hyperspy_reads_its_own_formats(self):
        for name in "signals.zspy", "signals.hspy":
            with self.subTest(name):
                self.own(name)

    def own(self, name):
        found = {signal.metadata.General.title: signal for signal in self.hyperspy(name)}
        self.assertEqual(set(found), {"annular", "annulus_1", "four_d", "annulus_0", "centre_of_mass", "probe"})
        for title, signal in found.items():
            beam = signal.metadata.Acquisition_instrument.TEM
            self.assertEqual((beam.beam_energy, beam.convergence_angle, beam.acquisition_mode), (100.0, 21.5, "STEM"))
            kind = "electron_diffraction" if title == "four_d" else ""
            self.assertEqual(signal.metadata.Signal.signal_type, kind)
        cube = found["four_d"]
        self.same(cube.data, four_d().transpose(1, 0, 3, 2))
        self.axes(cube, SCAN | PATTERN)
        self.assertEqual((cube.axes_manager.navigation_dimension, cube.axes_manager.signal_dimension), (2, 2))
        rings, images = found["annular"], found["annulus_1"]
        self.same(rings.data, annular().transpose(0, 2, 1, 3))
        self.axes(rings, SCAN | BINS | THICKNESS)
        self.assertEqual([axis.name for axis in rings.axes_manager.navigation_axes], ["x", "y", "thickness"])
        self.same(images.data, series().transpose(0, 1, 3, 2))
        self.axes(images, SCAN | THICKNESS)
        self.assertEqual([axis.name for axis in images.axes_manager.navigation_axes], ["thickness", "defocus"])
        foci = images.axes_manager["defocus"]
        self.assertEqual((list(foci.axis), foci.units, foci.is_uniform), (FOCI, "Å", False))
        if name.endswith(".hspy"):
            # Nothing is read before it is asked for; of an archive in .zspy that is not possible.
            lazy = {signal.metadata.General.title: signal for signal in self.hyperspy(name, lazy=True)}
            self.assertTrue(lazy["four_d"]._lazy)
            self.same(lazy["four_d"].data[1, 2].compute(), four_d()[2, 1].T)
        # HyperSpy goes to a thickness and a focus by their values.
        self.same(images.inav[40.0, 2].data, series()[2, 1].T)
        image = found["annulus_0"]
        self.same(image.data, ANNULUS.T)
        self.assertEqual((image.axes_manager.navigation_dimension, image.axes_manager.signal_dimension), (0, 2))
        self.same(found["probe"].data, PROBE.T)
        self.assertEqual(cube.original_metadata.sample, 'file = "Si, naïvely.xyz"\n')

    def test_zarr(self):
        self.assertTrue(pathlib.Path(self.path("signals.zarr")).is_dir())
        self.assertTrue(pathlib.Path(self.path("signals.zarr.zip")).is_file())
        self.assertEqual(list(pathlib.Path(FOLDER).glob(".lenslet-*")), [])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.store(zarr.open(self.path("signals.zarr"), mode="r"))
            self.store(zarr.open_group(self.path("signals.zarr"), mode="r", use_consolidated=True))
        with zarr.storage.ZipStore(self.path("signals.zarr.zip"), mode="r") as store:
            self.store(zarr.open_group(store, mode="r"))

    def store(self, root):
        self.assertEqual((root.attrs["beam_energy"], root.attrs["c"]), (100.0, [4.0, 5.43, 5.43]))
        self.same(root["four_d/four_d"][:], four_d())
        self.assertEqual(root["four_d/four_d"].attrs["_ARRAY_DIMENSIONS"], ["x", "y", "qx", "qy"])
        np.testing.assert_allclose(root["four_d/qy"][:], QY, rtol=1e-15)
        self.assertEqual(root["four_d/qy"].attrs["units"], "1/Å")
        self.same(root["annular/annular"][:], annular())
        self.assertEqual(root["annular/annular"].attrs["_ARRAY_DIMENSIONS"], ["thickness", "x", "y", "bin"])
        self.same(root["annulus_1/annulus_1"][:], series())
        self.assertEqual(list(root["annulus_1/defocus"][:]), FOCI)
        self.assertEqual(list(root["annulus_1/thickness"][:]), THICKNESSES)
        self.same(root["probe/probe"][:], PROBE)
        self.assertEqual(list(root["centre_of_mass/component"][:]), ["x", "y"])

    def test_mrcfile(self):
        wanted = {
            "signals": (four_d().transpose(1, 0, 3, 2), (0.25, 0.125, 0.5)),
            "annular": (annular().transpose(0, 3, 2, 1), (0.5, 0.2, 1.5)),
            "annulus_1": (series().astype(np.float32).transpose(0, 1, 3, 2), (0.5, 0.2, 20.0)),
            "annulus_0": (ANNULUS.T.astype(np.float32), (0.5, 0.2, 1.0)),
        }
        for name, (data, steps) in wanted.items():
            with contextlib.redirect_stdout(io.StringIO()) as said:
                self.assertTrue(mrcfile.validate(self.path(f"{name}.mrc")), said.getvalue())
            with mrcfile.open(self.path(f"{name}.mrc")) as file:
                self.same(file.data, data)
                np.testing.assert_allclose(file.voxel_size.tolist(), steps, rtol=1e-6)
                self.assertEqual(file.is_volume_stack(), name != "annulus_0")

    def test_hyperspy_reads_stacks(self):
        (stack,) = self.hyperspy("signals.mrc", navigation_shape=(4, 3))
        self.same(stack.data, four_d().transpose(1, 0, 3, 2))
        (image,) = self.hyperspy("annulus_0.mrc")
        self.same(image.data, ANNULUS.T.astype(np.float32))
        # This reader has all lengths in nm.
        for axis, scale in zip(image.axes_manager.signal_axes, (0.05, 0.02)):
            self.assertAlmostEqual(axis.scale, scale, places=7)

    def test_py4dstem(self):
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import emdfile
            import py4DSTEM

            for name in "signals.emd", "signals.h5":
                for read in py4DSTEM.read, emdfile.read:
                    with self.subTest(name, read=read.__module__):
                        self.cube(read(self.path(name)), py4DSTEM)
            # What py4DSTEM writes again has the same calibration.
            copy = pathlib.Path(FOLDER) / "copy.h5"
            py4DSTEM.save(str(copy), py4DSTEM.read(self.path("signals.emd")), mode="o")
            self.cube(py4DSTEM.read(str(copy)), py4DSTEM)
            image = py4DSTEM.read(self.path("signals.emd"), datapath="lenslet/four_d/annulus_1", tree=False)
        self.same(image.data, series())

    def cube(self, cube, py4DSTEM):
        self.assertIsInstance(cube, py4DSTEM.DataCube)
        self.same(cube.data, four_d())
        calibration = cube.calibration
        self.assertIsInstance(calibration, py4DSTEM.Calibration)
        self.assertEqual((calibration.get_R_pixel_size(), calibration.get_R_pixel_units()), (0.5, "A"))
        self.assertEqual((calibration.get_Q_pixel_size(), calibration.get_Q_pixel_units()), (0.25, "A^-1"))
        self.assertEqual(calibration.get_convergence_semiangle_mrad(), 21.5)
        facts = cube.root.metadata["simulation"]
        self.assertEqual((facts["beam_energy"], facts["periodic"], list(facts["c"])), (100.0, True, [4.0, 5.43, 5.43]))
        axes = {
            "annulus_0": (ANNULUS, [("x", "A", X), ("y", "A", Y)]),
            "annular": (annular(), [("thickness", "A", THICKNESSES), ("x", "A", X), ("y", "A", Y), ("bin", "mrad", BIN)]),
            "annulus_1": (series(), [("defocus", "A", FOCI), ("thickness", "A", THICKNESSES), ("x", "A", X), ("y", "A", Y)]),
            "centre_of_mass": (CENTRE, [("x", "A", X), ("y", "A", Y)]),
        }
        for name, (data, wanted) in axes.items():
            array = cube.tree(name)
            self.same(array.data, data)
            for k, (axis, unit, places) in enumerate(wanted):
                self.assertEqual((array.get_dim_name(k), array.get_dim_units(k)), (axis, unit))
                np.testing.assert_allclose(array.get_dim(k), places, rtol=1e-12)

    def test_py4dstem_calibrates_the_axes_of_cubes(self):
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import py4DSTEM

            cube = py4DSTEM.read(self.path("signals.emd"))
        np.testing.assert_allclose(cube.get_dim(0), 0.5 * np.arange(4))
        np.testing.assert_allclose(cube.get_dim(2), 0.25 * np.arange(7))
        self.assertEqual([cube.get_dim_units(k) for k in (0, 2)], ["A", "A^-1"])


if __name__ == "__main__":
    unittest.main()
