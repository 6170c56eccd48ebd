"""Long computations for the tests of interruption: ``python interrupted.py NAME`` starts one and reports how it ends.

The process prints each stage that it reaches, and, after an interrupt, the time on the monotonic clock at which it saw the exception, and what a small
computation gives afterwards.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lenslet as ls
import numpy as np

SYSTEMS = Path(__file__).resolve().parents[2] / "book" / "systems"


def large(lenslets: int, stars: int, **keywords: Any) -> ls.System:
    """A system with many slopes."""
    given: dict[str, Any] = {
        "r0": 0.15,
        "outer_scale": 25.0,
        "layers": [{"altitude": 0.0, "fraction": 0.5}, {"altitude": 4000.0, "fraction": 0.5}],
        "diameter": 0.5 * lenslets,
        "lenslets": lenslets,
        "truth_sensor": {"lenslets": lenslets},
        "guide_stars": [{"zenith": 30.0, "azimuth": 100.0 * k, "noise": 2e-14} for k in range(stars)],
        "targets": [{"zenith": 0.0}],
        "phase": {"points": 2 * lenslets + 1},
        **keywords,
    }
    return ls.System(**given)


def rotated(lenslets: int, stars: int) -> list[dict[str, Any]]:
    """Guide stars whose lenslets are on lattices of their own."""
    return [{"zenith": 30.0, "azimuth": 100.0 * k, "noise": 2e-14, "rotation": 3.0 * k + 1.0} for k in range(stars)]


def covariance(report: Callable[..., object]) -> object:
    """Covariances between lenslets that are rotated, pair by pair."""
    return large(40, 3, guide_stars=rotated(40, 3)).covariance(form="dense", progress=report)


def spectral(report: Callable[..., object]) -> object:
    """Covariances by Fourier transforms."""
    return large(300, 8).covariance(method="spectral", progress=report)


def reconstructor(report: Callable[..., object]) -> object:
    """Cholesky's factor of a large matrix."""
    return large(30, 4).reconstructor(method="cholesky", progress=report)


def eigen(report: Callable[..., object]) -> object:
    """Eigenvectors of a large matrix."""
    return large(20, 4).reconstructor(method="eigen", progress=report)


def estimate(report: Callable[..., object]) -> object:
    """Iterations of many frames."""
    system = large(40, 4)
    slopes = 1e-7 * np.random.default_rng(1).normal(size=(2000, system.slopes))
    return system.estimate(slopes, method="iterative", tolerance=1e-10, progress=report)


def simulate(report: Callable[..., object]) -> object:
    """Many frames."""
    return large(20, 3).simulate(frames=20_000, progress=report)


def psf(report: Callable[..., object]) -> object:
    """Images of a large telescope with two stars."""
    system = large(32, 3, mirrors=[{"actuators": 33}])
    return system.psf(pixels=512, pixel=5.0, progress=report)


def stem(report: Callable[..., object]) -> object:
    """A large scan."""
    return ls.Sample.from_file(SYSTEMS / "silicon-stem.toml").stem(configurations=64, progress=report)


def hrtem(report: Callable[..., object]) -> object:
    """Waves of many configurations."""
    sample = ls.Sample(
        file=SYSTEMS / "SI100.XYZ",
        tile=[8, 8, 40],
        grid=[1024, 1024],
        slice_thickness=1.3575,
        energy=100e3,
        configurations=32,
    )
    return sample.hrtem(progress=report)


def fit(report: Callable[..., object]) -> object:
    """A profile of many layers."""
    layers = [{"altitude": 1500.0 * k, "fraction": 0.1} for k in range(10)]
    system = large(24, 4, layers=layers)
    slopes = 1e-7 * np.random.default_rng(1).normal(size=(4000, system.slopes))
    return system.fit_profile(slopes, progress=report)


def operator(report: Callable[..., object]) -> object:
    """Blocks of the covariance of stars that are rotated."""
    return large(40, 3, guide_stars=rotated(40, 3)).covariance_operator(progress=report)


def main(name: str) -> None:
    """Run one, and report."""
    reached: set[str] = set()

    def report(stage: str, done: int, total: int) -> None:
        if stage not in reached:
            reached.add(stage)
            print(f"stage {stage}", flush=True)

    started = time.monotonic()
    try:
        globals()[name](report)
    except KeyboardInterrupt:
        print(f"interrupted {time.monotonic()!r}", flush=True)
    else:
        print(f"ended {time.monotonic() - started:.2f} s", flush=True)
    small = ls.System.from_file(SYSTEMS / "small.toml")
    print(f"afterwards {small.covariance().slope_slope[0, 0, 0, 0, 19, 19]!r}", flush=True)


if __name__ == "__main__":
    # A process that a shell started in the background ignores interrupts, and so do its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main(sys.argv[1])
