"""Systems, samples and the command for all tests, which run in the folder of the repository."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lenslet as ls
import pytest

ROOT = Path(__file__).resolve().parents[2]
SYSTEMS = ROOT / "book" / "systems"

#: Two guide stars, one of which is a laser, on a telescope of 3 m: everything of it is computed in less than a second.
TINY: dict[str, Any] = {
    "r0": 0.15,
    "outer_scale": 25.0,
    "layers": [
        {"altitude": 0.0, "fraction": 0.7, "wind_speed": 8.0, "wind_direction": 30.0},
        {"altitude": 9000.0, "fraction": 0.3, "wind_speed": 20.0, "wind_direction": 70.0},
    ],
    "diameter": 3.0,
    "obstruction": 0.2,
    "lenslets": 6,
    "truth_sensor": {"lenslets": 6},
    "guide_stars": [
        {"zenith": 10.0, "height": 90e3, "noise": 2e-14},
        {"zenith": 25.0, "azimuth": 120.0, "noise": 3e-14, "rotation": 5.0},
    ],
    "targets": [{"zenith": 0.0}, {"zenith": 20.0, "azimuth": 200.0}],
    "phase": {"points": 9},
    "mirrors": [{"actuators": 7}],
    "loop": {"kind": "open", "rate": 500.0, "delay": 2.0},
    "image": {"wavelengths": [1.65e-6, 2.2e-6], "pixel": 20.0, "pixels": 32, "ensquared": [100.0, 200.0]},
}

#: A column of silicon that is scanned at four places.
SILICON: dict[str, Any] = {
    "file": str(SYSTEMS / "SI100.XYZ"),
    "tile": [2, 2, 3],
    "grid": [96, 96],
    "slice_thickness": 1.3575,
    "energy": 100e3,
    "semi_angle": 20.0,
    "window": [[0.0, 1.0], [0.0, 1.2]],
    "step": [0.5, 0.6],
    "annuli": [[30.0, 50.0], [50.0, 80.0]],
    "centre_of_mass": True,
    "four_d": {},
}


@pytest.fixture(autouse=True)
def _repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.fixture(scope="session")
def tiny() -> ls.System:
    """A system of which everything is computed quickly."""
    return ls.System(**TINY)


@pytest.fixture(scope="session")
def silicon() -> ls.Sample:
    """A sample of which everything is computed quickly."""
    return ls.Sample(**SILICON)


@pytest.fixture(scope="session")
def toeplitz() -> ls.System:
    """A system whose covariances have a Toeplitz form."""
    return ls.System(
        r0=0.15,
        outer_scale=25.0,
        layers=[{"altitude": 0.0, "fraction": 0.6}, {"altitude": 5000.0, "fraction": 0.4}],
        lenslets=6,
        pitch=0.5,
        guide_stars=[
            {"zenith": 0.0, "noise": 1e-14},
            {"zenith": 30.0, "azimuth": 90.0, "noise": 2e-14},
        ],
        targets=[{"zenith": 10.0}],
        phase={"points": 7},
    )


@pytest.fixture(scope="session")
def command() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the command ``lenslet`` with some arguments in the folder of the repository."""

    def run(*arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "-m", "lenslet.cli", *map(str, arguments)]
        ran = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=300, env=os.environ)
        assert ran.returncode == code, ran.stderr
        return ran

    return run
