"""Images over a field, opened by ScopeSim itself."""

import json
import unittest

import numpy as np
from astropy import units as u
from astropy.io import fits
from scopesim.effects.psfs import FieldVaryingPSF
from scopesim.optics.fov import FieldOfView

from systems import SYSTEM, TARGETS, Folder

PIXEL = 20e-3  # arcsec
STEP = 15.0  # arcsec, from one direction of the field to the next
PLACES = [(-1, 1), (1, 0)]  # of targets, in steps of the field


def view(x, y, waves, pixels=51):
    """A field of view around a place [arcsec], on pixels of the images, in a band of wavelengths [µm]."""
    header = fits.Header()
    for axis, place in (1, x), (2, y):
        header[f"CTYPE{axis}"], header[f"CUNIT{axis}"] = "LINEAR", "deg"
        header[f"CRVAL{axis}"], header[f"CDELT{axis}"] = place / 3600, PIXEL / 3600
        header[f"CRPIX{axis}"] = (pixels + 1) / 2
        # Where it is on the detector does not matter here.
        header[f"CTYPE{axis}D"], header[f"CUNIT{axis}D"] = "LINEAR", "mm"
        header[f"CRVAL{axis}D"], header[f"CDELT{axis}D"] = 0.0, 0.015
        header[f"CRPIX{axis}D"] = (pixels + 1) / 2
    header["NAXIS"], header["NAXIS1"], header["NAXIS2"] = 2, pixels, pixels
    return FieldOfView(header, waves * u.um)


class Field(Folder):
    """A field of 3 × 3 directions at two wavelengths, and two of them as targets."""

    @classmethod
    def setUpClass(cls):
        cls.first = cls()
        cls.first.setUp()
        cls.addClassCleanup(cls.first.doCleanups)
        images = SYSTEM.replace("wavelengths = [1.65e-6]", "wavelengths = [1.2e-6, 2.2e-6]")
        images = images.replace("pixels = 64", "pixels = 32").replace("ensquared = [160.0]", "structure = 'stationary'")
        head, tail = images.split("[[target]]\n", 1)
        tail = "[phase]" + tail.split("[phase]")[1]
        stars = "".join(
            f"[[target]]\nzenith = {STEP * np.hypot(x, y)}\nazimuth = {np.degrees(np.arctan2(y, x))}\n" for x, y in PLACES
        )
        cls.first.write("targets.toml", head + stars + tail)
        cls.first.write("system.toml", head + stars + tail + f"[field]\nsize = {2 * STEP}\nstep = {STEP}\n")
        cls.told = json.loads(cls.first.lenslet("psf system.toml -o p.fits --scopesim s.fits --json"))
        cls.first.lenslet("psf targets.toml -o t.fits --scopesim u.fits --quiet")

    def setUp(self):
        super().setUp()
        if self is not self.first:
            self.folder = self.first.folder
            self.psf = self.opened("s.fits")

    def opened(self, name):
        psf = FieldVaryingPSF(filename=self.path(name))
        self.addCleanup(psf._file.close)
        return psf

    def runTest(self):
        """The one that has the folder of all."""

    def kernel(self, x, y, waves):
        kernels = self.psf.get_kernel(view(x, y, waves))
        self.assertEqual(len(kernels), 1, "one image is for all of a cell")
        return kernels[0][0]

    def test_the_right_image_is_at_the_right_place(self):
        offsets = STEP * (np.arange(3) - 1)
        with fits.open(self.path("s.fits")) as file:
            self.assertEqual((file[0].header["ECAT"], file[0].header["EDATA"]), (1, 2))
            cubes = [file[k].data.astype(float) for k in (2, 3)]
        self.assertEqual(cubes[0].shape, (9, 31, 31))
        strehls = np.array([point["strehl"] for point in self.told["field"]["points"]])
        for w, waves in enumerate([[1.1, 1.4], [2.0, 2.3]]):
            found = set()
            for j, y in enumerate(offsets):
                for i, x in enumerate(offsets):
                    kernel = self.kernel(x, y, waves)
                    wanted = cubes[w][3 * j + i]
                    np.testing.assert_allclose(kernel, wanted / wanted.sum(), rtol=1e-6, atol=1e-12)
                    self.assertAlmostEqual(kernel.sum(), 1.0, delta=1e-9)
                    self.assertEqual(np.unravel_index(kernel.argmax(), kernel.shape), (15, 15))
                    found.add(kernel.max())
            self.assertEqual(len(found), 9, "all images of a lopsided system differ")
            # The peak of each goes with the Strehl ratio that is told of that place.
            ratio = cubes[w][:, 15, 15] / strehls[:, w]
            np.testing.assert_allclose(ratio, ratio[0], rtol=1e-9)
        # Nothing of it is lost in a corner: with the axes exchanged, or mirrored, the field is another one.
        map_ = strehls[:, 0].reshape(3, 3)
        for other in map_.T, map_[::-1], map_[:, ::-1]:
            self.assertGreater(np.abs(map_ - other).max(), 1e-3)

    def test_a_direction_off_the_middle_of_its_cell(self):
        # The last one is outside of the field, where the first image is for everything.
        for x, y, number in [(0.7, -1.3, 2), (0.45, 0.6, 7), (0.55, 0.6, 8), (-0.55, -0.45, 3), (9.0, 0.0, 0)]:
            kernel = self.kernel(STEP * x, STEP * y, [2.0, 2.3])
            with fits.open(self.path("s.fits")) as file:
                wanted = file[3].data[number].astype(float)
            np.testing.assert_allclose(kernel, wanted / wanted.sum(), rtol=1e-6, atol=1e-12)

    def test_the_images_are_those_of_targets(self):
        targets = self.opened("u.fits")
        with fits.open(self.path("t.fits")) as file:
            cube = file[1].data.astype(float)
        self.assertEqual(cube.shape, (2, TARGETS, 32, 32))
        for t, (x, y) in enumerate(PLACES):
            wanted = cube[1, t, 1:, 1:]
            for psf in self.psf, targets:
                kernel = psf.get_kernel(view(STEP * x, STEP * y, [2.0, 2.3]))[0][0]
                np.testing.assert_allclose(kernel, wanted / wanted.sum(), rtol=1e-6, atol=1e-9)

    def test_a_star_is_spread_where_it_stands(self):
        around = view(STEP, -STEP, [2.0, 2.3], pixels=81)
        star = np.zeros((81, 81))
        star[50, 32] = 1000.0
        around.hdu = fits.ImageHDU(data=star, header=around.header)
        around.fields = [around.hdu]
        self.psf.meta["rounded_edges"] = False
        seen = self.psf.apply_to(around).hdu.data
        self.assertEqual(np.unravel_index(seen.argmax(), seen.shape), (50, 32))
        with fits.open(self.path("s.fits")) as file:
            wanted = file[3].data[2].astype(float)
        wanted *= 1000.0 / wanted.sum()
        np.testing.assert_allclose(seen[50 - 15 : 50 + 16, 32 - 15 : 32 + 16], wanted, rtol=1e-6, atol=1e-6)


if __name__ == "__main__":
    unittest.main()
