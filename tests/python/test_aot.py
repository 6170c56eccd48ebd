"""Telemetry (AOT 2.0), both ways against the package aotpy."""

import json
import tomllib
import unittest
import warnings

import aotpy
import numpy as np
from astropy.io import fits

from systems import ACTUATORS, STARS, SYSTEM, TARGETS, Folder

ARCSEC = np.pi / 648000


def read(path):
    """The system of a file that gives the package nothing to complain about."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return aotpy.AOSystem.read_from_file(path)


class Ours(Folder):
    """Files that we write, opened by the package."""

    def test_what_a_reconstruction_says(self):
        self.lenslet("reconstruct system.toml -o r.npz --save aot --quiet")
        telemetry = read(self.path("r.aot.fits"))
        said = tomllib.loads(SYSTEM)
        self.assertEqual(telemetry.ao_mode, "MOAO")
        text = telemetry.config.encode().decode("unicode_escape")
        self.assertEqual(text.strip(), SYSTEM.strip())
        self.assertIsNone(telemetry.strehl_ratio)
        self.air(telemetry.atmosphere_params, said["atmosphere"])
        tel = telemetry.main_telescope
        self.assertEqual((tel.enclosing_diameter, tel.inscribed_diameter, tel.obstruction_diameter), (4.0, 4.0, 1.0))
        share = tel.pupil_mask.data.mean()
        self.assertAlmostEqual(share, np.pi / 4 * (1 - 0.25**2), delta=2e-3)
        self.stars(telemetry, said)
        valid = np.load(self.path("r.npz"))
        self.sensors(telemetry, said, valid)
        self.loops(telemetry, valid)

    def air(self, air, said):
        self.assertEqual(len(air), 1)
        self.assertEqual((air[0].wavelength, air[0].r0), (said["wavelength"], [said["r0"]]))
        layers = said["layers"]
        for image, key in [
            (air[0].layers_relative_weight, "fraction"),
            (air[0].layers_height, "altitude"),
            (air[0].layers_l0, "outer_scale"),
            (air[0].layers_wind_speed, "wind_speed"),
        ]:
            np.testing.assert_array_equal(image.data, [[layer[key] for layer in layers]])
        # From x to y here, from north over east there.
        np.testing.assert_allclose(air[0].layers_wind_direction.data, [[60.0, 200.0]])

    def stars(self, telemetry, said):
        kinds = [aotpy.SodiumLaserGuideStar, aotpy.NaturalGuideStar, aotpy.RayleighLaserGuideStar]
        kinds += TARGETS * [aotpy.ScienceStar]
        self.assertEqual([type(star) for star in telemetry.sources], kinds)
        for star, wanted in zip(telemetry.sources, said["guide_star"] + said["target"]):
            away, azimuth = wanted["zenith"] / 3600, np.radians(wanted.get("azimuth", 0.0))
            self.assertAlmostEqual(star.azimuth_offset, away * np.cos(azimuth), delta=1e-15)
            self.assertAlmostEqual(star.elevation_offset, away * np.sin(azimuth), delta=1e-15)
        self.assertEqual((telemetry.sources[0].height, telemetry.sources[2].distance), (90e3, 20e3))

    def sensors(self, telemetry, said, ours):
        self.assertEqual(len(telemetry.wavefront_sensors), STARS)
        table = ours["slope_table"]
        for q, sensor in enumerate(telemetry.wavefront_sensors):
            self.assertIsInstance(sensor, aotpy.ShackHartmann)
            self.assertIs(sensor.source, telemetry.sources[q])
            rows = table[(table["star"] == q) & (table["axis"] == 0)]
            mask = sensor.subaperture_mask.data
            self.assertEqual(sensor.n_valid_subapertures, len(rows))
            self.assertEqual(mask.shape, (5, 5) if q == 2 else (8, 8))
            self.assertEqual(np.count_nonzero(mask >= 0), len(rows))
            np.testing.assert_array_equal(mask[rows["row"], rows["column"]], np.arange(len(rows)))
            cards = sensor.subaperture_mask.metadata_to_dict()
            self.assertEqual(cards["NOISE"], said["guide_star"][q]["noise"])
            self.assertEqual((cards["PITCH"], cards["TIPTILT"]), (0.8 if q == 2 else 0.5, "measured"))
        turned = telemetry.wavefront_sensors[1].transformation_matrix.data
        self.assertEqual(turned.shape, (3, 3, 1))
        sin, cos = np.sin(np.radians(10)), np.cos(np.radians(10))
        np.testing.assert_allclose(turned[..., 0], [[cos, -sin, 0.05], [sin, cos, -0.02], [0, 0, 1]], atol=1e-15)
        self.assertIsNone(telemetry.wavefront_sensors[0].transformation_matrix)

    def loops(self, telemetry, ours):
        self.assertEqual((len(telemetry.wavefront_correctors), len(telemetry.loops)), (TARGETS, TARGETS * STARS))
        mirror = telemetry.wavefront_correctors[0]
        places = np.array([[place.x, place.y] for place in mirror.actuator_coordinates])
        self.assertEqual((mirror.n_valid_actuators, len(places)), (ACTUATORS, ACTUATORS))
        gaps = np.linalg.norm(places[:, None] - places[None], axis=-1) + 9 * np.eye(ACTUATORS)
        np.testing.assert_allclose(gaps.min(axis=1), 0.5)
        loop = telemetry.loops[0]
        self.assertEqual((loop.closed, loop.framerate, loop.delay), (True, 500.0, 2.0))
        np.testing.assert_array_equal(loop.time_filter_num.data, [[0.4]])
        table, matrix = ours["slope_table"], ours["reconstructor"]
        for t in range(TARGETS):
            whole = np.zeros((ACTUATORS, len(table)))
            for q in range(STARS):
                loop = telemetry.loops[STARS * t + q]
                self.assertIs(loop.input_sensor, telemetry.wavefront_sensors[q])
                self.assertIs(loop.commanded_corrector, telemetry.wavefront_correctors[t])
                part, sensor = loop.control_matrix.data, loop.input_sensor
                self.assertEqual(part.shape, (ACTUATORS, 2, sensor.n_valid_subapertures))
                self.assertEqual(loop.control_matrix.unit, "m rad^-1")
                whole[:, table["star"] == q] = part.reshape(ACTUATORS, -1)
            # K = J⁺ R: strokes are a matrix times the reconstructor's slopes, the same for both targets.
            inverse = whole @ np.linalg.pinv(matrix[t])
            np.testing.assert_allclose(inverse @ matrix[t], whole, atol=1e-9 * np.abs(whole).max())
            if t == 0:
                first = inverse
            np.testing.assert_allclose(inverse, first, atol=1e-6 * np.abs(first).max())
        # Equal slopes of the truth sensor along x are a tilt: strokes rise with x and not with y.
        m = matrix.shape[1] // 2
        strokes = first @ np.r_[np.ones(m), np.zeros(m)]
        (along, across), *_ = np.linalg.lstsq(places, strokes, rcond=None)
        self.assertGreater(along, 0.3)
        self.assertLess(abs(across), 0.02 * along)

    def test_reconstructor_without_mirrors(self):
        text = SYSTEM.split("[correction]")[0]
        self.write("system.toml", text)
        self.lenslet("reconstruct system.toml -o r.npz --save aot --quiet --precision f32")
        telemetry = read(self.path("r.aot.fits"))
        ours = np.load(self.path("r.npz"))
        table = ours["slope_table"]
        for t in range(TARGETS):
            for q in range(STARS):
                part = telemetry.loops[STARS * t + q].measurements_to_modes.data
                self.assertEqual(part.dtype.itemsize, 4)
                wanted = ours["reconstructor"][t][:, table["star"] == q]
                np.testing.assert_array_equal(part.reshape(wanted.shape), wanted)
        self.assertIsNone(telemetry.loops[0].control_matrix)

    def test_slopes_of_a_simulation(self):
        self.lenslet("simulate system.toml -o s.aot.fits --frames 4 --seed 3 --quiet")
        self.lenslet("simulate system.toml -o s.npz --frames 4 --seed 3 --quiet")
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            telemetry = aotpy.AOSystem.read_from_file(self.path("s.aot.fits"))
        # There are neither mirrors nor loops in a simulation of slopes, and that is all there is to complain about.
        self.assertEqual(len(said), 2)
        self.assertTrue(all("contains no data" in str(warning.message) for warning in said))
        ours = np.load(self.path("s.npz"))
        parts = [sensor.measurements.data for sensor in telemetry.wavefront_sensors]
        self.assertEqual([part.shape[:2] for part in parts], 3 * [(4, 2)])
        slopes = np.concatenate([part.reshape(4, -1) for part in parts], axis=1)
        np.testing.assert_array_equal(slopes, ours["slopes"])
        self.assertEqual(telemetry.wavefront_sensors[0].measurements.unit, "rad")
        names = {datum.key: datum.value for datum in telemetry.metadata}
        self.assertEqual((names["PROGRAM"], names["SEED"]), ("lenslet", 3))

    def test_the_package_writes_again_what_it_read(self):
        self.lenslet("reconstruct system.toml -o r.npz --save aot --quiet")
        telemetry = read(self.path("r.aot.fits"))
        telemetry.metadata = []
        telemetry.write_to_file(self.path("again.fits"))
        first, second = self.imported("r.aot.fits"), self.imported("again.fits")
        self.assertEqual(first, second)
        for key in "atmosphere", "telescope", "correction", "loop":
            self.assertEqual(set(first[key]), set(second[key]))
        self.assertEqual((first["mirror"][0]["actuators"], first["loop"]["gain"]), (9, 0.4))

    def imported(self, name):
        self.lenslet(f"import {name} -o again.toml --quiet")
        self.lenslet("info again.toml")
        return tomllib.loads((self.folder / "again.toml").read_text(encoding="utf-8"))


# Valid lenslets of their instrument.
VALID = 48


class Theirs(Folder):
    """Files that the package writes, read by us."""

    def system(self):
        """An instrument like the one of the tests, as somebody else would describe it."""
        system = aotpy.AOSystem(ao_mode="LTAO", strehl_ratio=0.3)
        system.main_telescope = aotpy.MainTelescope(
            "T", enclosing_diameter=4.0, obstruction_diameter=1.0, elevation=60.0
        )
        system.atmosphere_params = [
            aotpy.AtmosphericParameters(
                "A",
                wavelength=500e-9,
                r0=[0.1, 0.2],
                layers_relative_weight=aotpy.Image("W", np.array([[0.75, 0.25]])),
                layers_height=aotpy.Image("H", np.array([[0.0, 8000.0]]), unit="m"),
                layers_wind_speed=aotpy.Image("V", np.array([[5.0, 30.0]])),
                layers_wind_direction=aotpy.Image("D", np.array([[0.0, 90.0]])),
            )
        ]
        mask = self.mask()
        for k in range(2):
            star = aotpy.SodiumLaserGuideStar(
                f"L{k}", height=90e3, azimuth_offset=(20 - 50 * k) / 3600, elevation_offset=(10 + 7 * k) / 3600
            )
            system.sources.append(star)
            slopes = 1e-7 * (np.arange(3 * 2 * VALID).reshape(3, 2, VALID) + 1000 * k)
            sensor = aotpy.ShackHartmann(
                uid=f"S{k}",
                source=star,
                n_valid_subapertures=VALID,
                subaperture_mask=aotpy.Image(f"M{k}", mask),
                measurements=aotpy.Image(f"G{k}", slopes.astype(np.float32) * 1e3, unit="mrad"),
            )
            system.wavefront_sensors.append(sensor)
        system.sources.append(aotpy.ScienceStar("S", azimuth_offset=0.0, elevation_offset=0.0))
        dm = aotpy.DeformableMirror("DM", telescope=system.main_telescope, n_valid_actuators=97)
        x, y = np.meshgrid(np.linspace(-2, 2, 12), np.linspace(-2, 2, 12))
        kept = np.hypot(x, y) < 2.1
        dm.actuator_coordinates = [aotpy.Coordinates(float(u), float(v)) for u, v in zip(x[kept], y[kept])]
        dm.n_valid_actuators = int(kept.sum())
        system.wavefront_correctors.append(dm)
        system.loops.append(
            aotpy.ControlLoop(
                uid="C", input_sensor=sensor, commanded_corrector=dm, framerate=800.0, delay=1.5,
                time_filter_num=aotpy.Image("N", np.array([[0.3, 0.1]])), closed=True,
            )
        )
        return system

    def mask(self):
        """Lenslets of which half is lit, numbered down the columns, and not along the rows."""
        at = (np.arange(8 * 50) + 0.5) / 100 - 2
        lit = (np.hypot(*np.meshgrid(at, at)) < 2) & (np.hypot(*np.meshgrid(at, at)) > 0.5)
        valid = lit.reshape(8, 50, 8, 50).mean(axis=(1, 3)) >= 0.5
        mask = np.full((8, 8), -1)
        mask.T[valid.T] = np.arange(valid.sum())
        self.assertEqual(valid.sum(), VALID)
        return mask

    def read(self, system, code=0):
        system.write_to_file(self.path("t.fits"), overwrite=True)
        said = self.lenslet("import t.fits -o again.toml --json", code)
        return (json.loads(said), tomllib.loads((self.folder / "again.toml").read_text())) if code == 0 else said

    def test_a_system(self):
        told, read = self.read(self.system())
        self.assertEqual((told["mode"], told["guide_stars"], told["targets"]), ("LTAO", 2, 1))
        airmass = 1 / np.sin(np.radians(60))
        air = read["atmosphere"]
        strength = np.mean(np.array([0.1, 0.2]) ** (-5 / 3)) ** -0.6
        self.assertAlmostEqual(air["r0"], strength * airmass**-0.6, delta=1e-12)
        self.assertAlmostEqual(air["layers"][1]["altitude"], 8000 * airmass, delta=1e-6)
        self.assertEqual([layer["wind_direction"] for layer in air["layers"]], [90.0, 0.0])
        self.assertEqual(air["layers"][0]["outer_scale"], 25.0)
        self.assertTrue(any("outer scale" in note for note in told["notes"]))
        self.assertEqual(read["telescope"], {"diameter": 4.0, "obstruction": 0.25})
        star = read["guide_star"][1]
        x, y = -30 * np.cos(np.radians(60)), 17
        self.assertAlmostEqual(star["zenith"], np.hypot(x, y), delta=1e-9)
        self.assertAlmostEqual(star["azimuth"], np.degrees(np.arctan2(y, x)), delta=1e-9)
        self.assertAlmostEqual(star["height"], 90e3 * airmass, delta=1e-6)
        self.assertEqual((read["correction"]["mode"], read["mirror"][0]["actuators"]), ("ltao", 12))
        self.assertEqual(read["loop"], {"kind": "closed", "rate": 800.0, "gain": 0.3, "delay": 1.5})

    def test_slopes(self):
        system = self.system()
        _, read = self.read(system)
        text = (self.folder / "again.toml").read_text().replace("\n[[guide_star]]", "\n[[guide_star]]\nnoise = 1e-13")
        self.write("again.toml", text + "\n[phase]\npoints = 5\n")
        self.lenslet("estimate again.toml --slopes t.fits -o a.npz --quiet")
        # The same slopes as an array, by rows.
        mask, parts = self.mask(), []
        for sensor in system.wavefront_sensors:
            slopes = sensor.measurements.data.astype(float) * 1e-3
            parts.append(slopes[:, :, mask[mask >= 0]].reshape(3, -1))
        np.save(self.path("s.npy"), np.concatenate(parts, axis=1))
        self.lenslet("estimate again.toml --slopes s.npy -o b.npz --quiet")
        first, second = (np.load(self.path(name))["wavefront"] for name in ("a.npz", "b.npz"))
        self.assertEqual(first.shape, (3, 1, 5, 5))
        np.testing.assert_allclose(first, second, rtol=1e-6, atol=1e-6 * np.abs(second).max())

    def test_what_is_wrong_is_named(self):
        def spoilt(change, *words):
            system = self.system()
            change(system)
            said = self.read(system, code=2)
            for word in ("t.fits", *words):
                self.assertIn(word, said)

        def lone(system):
            system.sources[0].azimuth_offset = system.sources[0].elevation_offset = None

        def dead(system):
            mask = system.wavefront_sensors[0].subaperture_mask.data
            mask[mask == 30] = -1

        def count(system):
            system.wavefront_sensors[1].n_valid_subapertures = 3

        def heights(system):
            system.atmosphere_params[0].layers_height.data = np.array([[0.0, np.nan]])

        spoilt(lone, "AOT_SOURCES[0].ELEVATION_OFFSET")
        spoilt(dead, "AOT_WAVEFRONT_SENSORS[0].SUBAPERTURE_MASK")
        spoilt(count, "AOT_WAVEFRONT_SENSORS[1].N_VALID_SUBAPERTURES = 3")
        spoilt(heights, "[H]: row 0, index 1 = NaN")
        spoilt(lambda system: system.atmosphere_params.clear(), "AOT_ATMOSPHERIC_PARAMETERS")

    def test_damaged_files(self):
        self.system().write_to_file(self.path("t.fits"))
        whole = (self.folder / "t.fits").read_bytes()
        (self.folder / "short.fits").write_bytes(whole[: len(whole) // 2 + 1000])
        self.assertIn("cut short", self.lenslet("import short.fits", code=2))
        with fits.open(self.path("t.fits")) as file:
            file[0].header["AOT-VERS"] = "3.0.0"
            file.writeto(self.path("later.fits"))
            file[0].header["AOT-VERS"] = "2.0.0"
            del file["AOT_SOURCES"]
            file.writeto(self.path("less.fits"))
        self.assertIn("later.fits: AOT-VERS = 3.0.0", self.lenslet("import later.fits", code=2))
        self.assertIn("expected AOT_SOURCES among them", self.lenslet("import less.fits", code=2))


if __name__ == "__main__":
    unittest.main()
