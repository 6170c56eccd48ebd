"""Images with the layout of TIPTOP's, read as its users do, against what the program says as JSON."""

import json
import unittest

import numpy as np
from astropy.io import fits

from systems import SYSTEM, TARGETS, Folder


class Images(Folder):
    """The file of `lenslet psf`, part by part."""

    def told_and_file(self, waves):
        text = SYSTEM.replace("wavelengths = [1.65e-6]", f"wavelengths = {waves}")
        self.write("system.toml", text)
        told = json.loads(self.lenslet("psf system.toml -o p.fits --json"))
        file = fits.open(self.path("p.fits"))
        self.addCleanup(file.close)
        return told, file

    def places(self, header):
        return np.array([[header[f"CC{axis}{t:04d}"] for axis in "XY"] for t in range(TARGETS)])

    def check_common(self, told, file):
        self.assertTrue(file[0].header["CREATOR"].startswith("lenslet "))
        self.assertIn("psf system.toml", file[0].header["COMMAND"])
        contents = ["PSF CUBE", "OPEN-LOOP PSF", "DIFFRACTION LIMITED PSF", "Final PSFs profiles"]
        self.assertEqual([part.header["CONTENT"] for part in file[1:5]], contents)
        header = file[1].header
        self.assertAlmostEqual(float(header["PIX_MAS"]), told["pixel_mas"], delta=1e-6)
        for t, target in enumerate(told["targets"]):
            angle = np.radians(target["azimuth_degrees"])
            place = target["zenith_arcsec"] * np.array([np.cos(angle), np.sin(angle)])
            np.testing.assert_allclose(self.places(header)[t], place, atol=1e-3)
            self.assertAlmostEqual(header[f"RESH{t:04d}"], target["budget_nm"]["total"], delta=1e-3)
        # Shares of the light: the telescope's own image holds nearly all, and its peak is the brightest.
        images = file[1].data.reshape(-1, *file[1].data.shape[-2:])
        self.assertTrue((images > -1e-9).all() and (images.sum(axis=(1, 2)) < 1).all())
        for image in *images, file[2].data, file[3].data:
            self.assertEqual(np.unravel_index(image.argmax(), image.shape), (32, 32))

    def test_one_wavelength(self):
        told, file = self.told_and_file("[1.65e-6]")
        self.check_common(told, file)
        header, cube, perfect = file[1].header, file[1].data, file[3].data
        self.assertEqual((float(header["WL_NM"]), cube.shape), (1650.0, (TARGETS, 64, 64)))
        radii, rings = file[4].data[:TARGETS], file[4].data[TARGETS:]
        for t, target in enumerate(told["targets"]):
            self.assertAlmostEqual(header[f"SR{t:04d}"], target["strehl"][0], delta=1e-5)
            self.assertAlmostEqual(header[f"FWHM{t:04d}"], target["fwhm_mas"][0], delta=1e-3)
            self.assertAlmostEqual(header[f"EE80{t:04d}"], target["ensquared"][0][0], delta=1e-5)
            # The cards are what the images say.
            self.assertAlmostEqual(cube[t].max() / perfect.max(), header[f"SR{t:04d}"], delta=1e-5)
            inner = cube[t][28:37, 28:37].sum()
            self.assertAlmostEqual(inner, header[f"EE80{t:04d}"], delta=0.06)
            self.assertEqual(radii[t][0], 0.0)
            self.assertAlmostEqual(radii[t][1], 20.0, delta=8.0)
            self.assertAlmostEqual(rings[t][0] / cube[t].max(), 1.0, delta=1e-12)
            self.assertTrue((np.diff(radii[t]) > 0).all())

    def test_two_wavelengths(self):
        told, file = self.told_and_file("[1.2e-6, 2.2e-6]")
        self.check_common(told, file)
        header, cube = file[1].header, file[1].data
        self.assertEqual([float(header[f"WL_NM{w:03d}"]) for w in range(2)], [1200.0, 2200.0])
        self.assertEqual(cube.shape, (2, TARGETS, 64, 64))
        for t, target in enumerate(told["targets"]):
            for w in range(2):
                self.assertAlmostEqual(header[f"SR{t:02d}W{w:02d}"], target["strehl"][w], delta=1e-5)
                self.assertAlmostEqual(header[f"FW{t:02d}W{w:02d}"], target["fwhm_mas"][w], delta=1e-3)
                self.assertAlmostEqual(header[f"EE{t:02d}W{w:02d}"], target["ensquared"][w][0], delta=1e-5)
        peak = cube[0].max(axis=(1, 2)) / file[3].data.max()
        self.assertAlmostEqual(peak[0], header["SR00W00"], delta=1e-5)


if __name__ == "__main__":
    unittest.main()
