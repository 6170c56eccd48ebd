"""What the tests of files share: the program, a lopsided system, and a folder to work in."""

import os
import pathlib
import subprocess
import tempfile
import unittest

PROGRAM = os.environ.get("LENSLET", "lenslet")

# Nothing here is symmetric: directions, winds, rotations and numbers of lenslets all differ.
SYSTEM = """
[atmosphere]
r0 = 0.14
wavelength = 550e-9
layers = [
    { altitude = 0.0, fraction = 0.6, outer_scale = 25.0, wind_speed = 8.0, wind_direction = 30.0 },
    { altitude = 6000.0, fraction = 0.4, outer_scale = 40.0, wind_speed = 20.0, wind_direction = 250.0 } ]
[telescope]
diameter = 4.0
obstruction = 0.25
[lenslet_array]
lenslets = 8
[[guide_star]]
zenith = 10.0
azimuth = 20.0
height = 90e3
noise = 2e-14
[[guide_star]]
zenith = 40.0
azimuth = 130.0
noise = 1e-14
rotation = 10.0
shift = [0.05, -0.02]
[[guide_star]]
zenith = 35.0
azimuth = 240.0
height = 20e3
noise = 1e-14
lenslets = 5
[[target]]
zenith = 6.0
azimuth = 75.0
[[target]]
zenith = 0.0
[phase]
points = 9
[correction]
mode = "moao"
[[mirror]]
actuators = 9
filter = 0.05
[loop]
kind = "closed"
rate = 500.0
gain = 0.4
delay = 2.0
[image]
wavelengths = [1.65e-6]
pixel = 20.0
pixels = 64
ensquared = [160.0]
"""

STARS, TARGETS, ACTUATORS = 3, 2, 68


class Folder(unittest.TestCase):
    """A test in a folder of its own, in which the system is `system.toml`."""

    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.folder = pathlib.Path(held.name)
        self.write("system.toml", SYSTEM)

    def path(self, name):
        return str(self.folder / name)

    def write(self, name, text):
        (self.folder / name).write_text(text, encoding="utf-8")

    def lenslet(self, command, code=0):
        """Runs the program; what it printed, or complained about if it should fail."""
        done = subprocess.run([PROGRAM, *command.split()], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout if code == 0 else done.stderr
