"""Signals of a simulation in all formats, opened by h5py, RosettaSciIO, HyperSpy, py4DSTEM, Zarr and mrcfile.

The files are those that the test `files_for_other_readers` writes: see book/src/signals.md for the numbers.
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


def annular(depth):
    i, j, b = np.indices((4, 3, 6))
    return ((100 * i + 10 * j + b + 1000 * depth) / np.float32(7)).astype(np.float32)


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
            self.same(file["annular_depth0001"], annular(1))
            self.same(file["probe"], PROBE)
            for name, places in ("x", X), ("y", Y), ("bin", BIN), ("qx", QX), ("qy", QY):
                np.testing.assert_allclose(file[name], places, rtol=1e-15)
            self.assertEqual((float(file["E"]), int(file["ns"]), list(file["thickness"])), (100.0, 10, [20.0, 40.0]))

    def test_h5py(self):
        with h5py.File(self.path("signals.h5")) as file:
            data = file["4DSTEM_simulation/data"]
            cube = data["datacubes/CBED_array_depth0000"]
            self.same(cube["datacube"][:], four_d())
            self.same(cube["data"][1, 2], four_d()[1, 2])
            for number, places in enumerate([X, Y, QX, QY], start=1):
                np.testing.assert_allclose(cube[f"dim{number}"], places, rtol=1e-15)
            self.assertEqual(cube["dim3"].attrs["units"], "[Å^-1]")
            for depth in range(2):
                group = data[f"realslices/virtual_detector_depth000{depth}"]
                self.same(group["realslice"][:], annular(depth))
                self.assertEqual(group.attrs["output_depth"], 20.0 * (depth + 1))
            self.same(data["realslices/annular_detector_depth0000/data"][:], ANNULUS)
            self.same(data["realslices/probe_fp0000/data"][:], PROBE)
            centre = data["realslices/DPC_CoM_depth0000"]
            self.same(centre["realslice"][:], CENTRE)
            self.assertEqual(list(centre["dim3"].asstr()), ["x", "y"])
            facts = file["4DSTEM_simulation/metadata/metadata_0/original/simulation_parameters"].attrs
            self.assertEqual((facts["E"], facts["ns"], list(facts["t"])), (100.0, 10, [4.0, 4.0, 10.0]))
            self.assertEqual(facts["sample"], 'file = "Si, naïvely.xyz"\n')

    def test_rosettasciio_and_hyperspy_read_the_tree(self):
        found = {signal.metadata.General.title: signal for signal in self.hyperspy("signals.h5", file_format="EMD")}
        self.assertEqual(set(found), {"CBED_array", "DPC_CoM", "annular_detector", "probe_fp", "virtual_detector"})
        cube = found["CBED_array"]
        self.same(cube.data, four_d())
        self.axes(cube, SCAN | PATTERN)
        self.assertEqual((cube.axes_manager.navigation_dimension, cube.axes_manager.signal_dimension), (2, 2))
        # All depths in one signal, with the depth as an axis; images are upright.
        bins = found["virtual_detector"]
        self.same(bins.data, np.stack([annular(0).T, annular(1).T]))
        self.axes(bins, SCAN | BINS | {"virtual_detector_depth": (20.0, 20.0, "Å")})
        self.same(found["annular_detector"].data, ANNULUS.T)
        self.same(found["probe_fp"].data, PROBE.T)
        self.axes(found["probe_fp"], {"x": (0.0, 0.1, "Å"), "y": (0.0, 0.3, "Å")})
        self.same(found["DPC_CoM"].data, CENTRE.T)
        self.assertEqual(cube.original_metadata.simulation_parameters.E0, 100.0)

    def test_hyperspy_reads_its_own_format(self):
        found = {signal.metadata.General.title: signal for signal in self.hyperspy("signals.zspy")}
        self.assertEqual(len(found), 6)
        cube = found["four_d"]
        self.same(cube.data, four_d().transpose(1, 0, 3, 2))
        self.axes(cube, SCAN | PATTERN)
        self.assertEqual((cube.axes_manager.navigation_dimension, cube.axes_manager.signal_dimension), (2, 2))
        self.same(found["annular_depth0001"].data, annular(1).transpose(1, 0, 2))
        self.axes(found["annular_depth0001"], SCAN | BINS)
        self.assertEqual(found["annular_depth0001"].original_metadata.thickness, 40.0)
        image = found["annulus_0"]
        self.same(image.data, ANNULUS.T)
        self.assertEqual((image.axes_manager.navigation_dimension, image.axes_manager.signal_dimension), (0, 2))
        self.same(found["probe"].data, PROBE.T)
        self.assertEqual(cube.original_metadata.sample, 'file = "Si, naïvely.xyz"\n')

    def test_zarr(self):
        with zarr.storage.ZipStore(self.path("signals.zarr"), mode="r") as store:
            root = zarr.open_group(store, mode="r")
            self.assertEqual((root.attrs["E"], root.attrs["c"]), (100.0, [4.0, 5.43, 5.43]))
            self.same(root["four_d/four_d"][:], four_d())
            self.assertEqual(root["four_d/four_d"].attrs["_ARRAY_DIMENSIONS"], ["x", "y", "qx", "qy"])
            np.testing.assert_allclose(root["four_d/qy"][:], QY, rtol=1e-15)
            self.assertEqual(root["four_d/qy"].attrs["units"], "1/Å")
            self.same(root["annular_depth0001/annular"][:], annular(1))
            self.assertEqual(root["annular_depth0001"].attrs["thickness"], 40.0)
            self.same(root["probe/probe"][:], PROBE)
            self.assertEqual(list(root["centre_of_mass/component"][:]), ["x", "y"])

    def test_mrcfile(self):
        wanted = {
            "signals": (four_d().transpose(1, 0, 3, 2), (0.25, 0.125, 0.5)),
            "annular_depth0001": (annular(1).transpose(2, 1, 0), (0.5, 0.2, 1.5)),
            "annulus_0": (ANNULUS.T.astype(np.float32), (0.5, 0.2, 1.0)),
        }
        for name, (data, steps) in wanted.items():
            with contextlib.redirect_stdout(io.StringIO()) as said:
                self.assertTrue(mrcfile.validate(self.path(f"{name}.mrc")), said.getvalue())
            with mrcfile.open(self.path(f"{name}.mrc")) as file:
                self.same(file.data, data)
                np.testing.assert_allclose(file.voxel_size.tolist(), steps, rtol=1e-6)
                self.assertEqual(file.is_volume_stack(), name == "signals")

    def test_hyperspy_reads_stacks(self):
        (stack,) = self.hyperspy("signals.mrc", navigation_shape=(4, 3))
        self.same(stack.data, four_d().transpose(1, 0, 3, 2))
        (image,) = self.hyperspy("annulus_0.mrc")
        self.same(image.data, ANNULUS.T.astype(np.float32))
        # This reader has all lengths in nm.
        for axis, scale in zip(image.axes_manager.signal_axes, (0.05, 0.02)):
            self.assertAlmostEqual(axis.scale, scale, places=7)

    def test_py4dstem(self):
        with contextlib.redirect_stdout(io.StringIO()) as said, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import py4DSTEM

            path = self.path("signals.h5")
            py4DSTEM.read(path)
            names = ["CBED_array_depth0000", "annular_detector_depth0000", "virtual_detector_depth0001", "DPC_CoM_depth0000"]
            cube, image, bins, centre = (py4DSTEM.read(path, data_id=name) for name in names)
        self.assertIn("virtual_detector_depth0000", said.getvalue())
        self.assertIsInstance(cube, py4DSTEM.DataCube)
        self.same(cube.data, four_d())
        self.same(image.data, ANNULUS)
        self.same(bins.data, annular(1))
        self.same(centre.data, CENTRE)


if __name__ == "__main__":
    unittest.main()
