"""Measures what the Python layer costs: the import, and calls whose computation is small.

``python python/benchmarks.py`` prints medians and the limits that are aimed at; run it on an idle machine. It ends with 1 where a limit is exceeded.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import lenslet as ls
import numpy as np

#: Seconds.
IMPORT_LIMIT = 0.15
CALL_LIMIT = 20e-6


def import_time(module: str) -> float:
    """Median time of a process that imports a module, over that of one that imports nothing [s]."""

    def run(program: str) -> float:
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", program], check=True)
        return time.perf_counter() - started

    with_module = [run(f"import {module}") for _ in range(10)]
    without = [run("pass") for _ in range(10)]
    return statistics.median(with_module) - statistics.median(without)


def call_time(call: Callable[[], object], number: int = 2000) -> float:
    """Median time of a call [s]."""
    call()
    times = []
    for _ in range(number):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def main() -> int:
    """Measure, print and compare with the limits."""
    system = ls.System(
        r0=0.15,
        outer_scale=25.0,
        layers=[{"altitude": 0.0, "fraction": 1.0}],
        lenslets=2,
        pitch=0.5,
        guide_stars=[{"noise": 1e-14}],
        targets=[{}],
        phase={"points": 2},
    )
    slopes = np.zeros(system.slopes)
    frames = np.zeros((1, system.slopes))
    estimator = system.estimator(method="cholesky")
    compiled = system._parsed.covariance_operator()
    reconstructor = system.replace(truth_sensor={"lenslets": 2}).reconstructor()
    plan = system.simulation_plan()
    numpy_alone, whole = import_time("numpy"), import_time("lenslet")
    calls: dict[str, tuple[Callable[[], object], float | None]] = {
        "system.slopes": (lambda: system.slopes, CALL_LIMIT),
        "system.replace(r0=0.2)": (lambda: system.replace(r0=0.2), None),
        "reconstructor @ slopes": (lambda: reconstructor @ slopes, CALL_LIMIT),
        "product of the compiled covariance operator": (lambda: compiled.product(frames), CALL_LIMIT),
        "estimator(slopes)": (lambda: estimator(slopes), None),
        "system.simulation_plan()": (lambda: system.simulation_plan(), None),
        "plan.run() of a simulation": (lambda: plan.run(), None),
    }
    print(
        f"{'import lenslet':46} {1e3 * whole:8.1f} ms, of which numpy {1e3 * numpy_alone:.1f} ms (limit {1e3 * IMPORT_LIMIT:.0f} ms)"
    )
    exceeded = whole > IMPORT_LIMIT
    for name, (call, limit) in calls.items():
        seconds = call_time(call, 2000 if limit else 300)
        aim = f" (limit {1e6 * limit:.0f} µs)" if limit else ""
        print(f"{name:46} {1e6 * seconds:8.1f} µs{aim}")
        exceeded = exceeded or (limit is not None and seconds > limit)
    return int(exceeded)


if __name__ == "__main__":
    sys.exit(main())
