"""Arrays that are handed over as they are: none is copied on its way into the library or out of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import lenslet as ls
import numpy as np
import pytest

#: Prints by how many bytes the largest memory of the process grew.
MEMORY = """
import resource, sys
import numpy as np
import lenslet as ls

def peak():
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

sys.path.insert(0, {tests!r})
from conftest import TINY
system = ls.System(**TINY).replace(targets=[{{}}], phase={{"points": 2}})
"""


def growth(body: str) -> list[int]:
    """What a program with a quick system prints."""
    program = MEMORY.format(tests=str(Path(__file__).parent)) + body
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    return [int(word) for word in ran.stdout.split()]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the unit of the largest memory is that of Linux")
class TestMemory:
    def test_slopes_of_an_estimate_are_not_copied(self) -> None:
        # 200 MB of slopes for 4 wavefront points: everything else of the estimate is small, frames in flight apart.
        body = (
            "estimator = system.estimator(method='cholesky')\n"
            "slopes = np.zeros(({frames}, system.slopes))\n"
            "slopes[:] = 1e-7\n"
            "estimator(slopes[:2000])\n"
            "before = peak()\n"
            "estimator(slopes{how})\n"
            "print(slopes.nbytes, peak() - before)\n"
        )
        size, grown = growth(body.format(frames=200_000, how=""))
        assert size > 200_000_000
        assert grown < size // 2
        # The same in another byte order has to be copied: the measure sees it.
        size, grown = growth(body.format(frames=200_000, how=".astype('>f8')"))
        assert grown > size

    def test_results_are_not_copied(self) -> None:
        body = (
            "system.simulate(frames=100)\n"
            "before = peak()\n"
            "found = system.simulate(frames=25_000)\n"
            "print(found.slopes.nbytes, peak() - before)\n"
        )
        size, grown = growth(body)
        assert size > 25_000_000
        assert grown < 1.9 * size


class TestPointers:
    def test_slopes_that_fit_are_taken_as_they_are(self, tiny: ls.System) -> None:
        from lenslet._system import _frames

        slopes = np.zeros((3, tiny.slopes))
        assert _frames(slopes).__array_interface__["data"] == slopes.__array_interface__["data"]
        assert np.shares_memory(_frames(slopes[0]), slopes)
        read_only = slopes.copy()
        read_only.flags.writeable = False
        assert np.shares_memory(_frames(read_only), read_only)
        assert not np.shares_memory(_frames(slopes.astype(np.float32)), slopes)

    def test_inputs_are_not_changed(self, tiny: ls.System) -> None:
        slopes = np.asarray(tiny.simulate(frames=3).slopes)
        before = slopes.copy()
        tiny.estimate(slopes)
        tiny.estimate(slopes, method="iterative", warm_start=True)
        assert slopes.tobytes() == before.tobytes()

    def test_results_belong_to_numpy_and_to_nobody_else(self, tiny: ls.System) -> None:
        one, other = tiny.covariance(), tiny.covariance()
        for name, values in one.items():
            if isinstance(values, np.ndarray):
                assert values.flags.writeable, name
                assert values.flags.aligned, name
                assert not np.shares_memory(values, other[name]), name
        before = other.slope_slope_dense.copy()
        one.slope_slope_dense[:] = 0.0
        np.testing.assert_array_equal(other.slope_slope_dense, before)

    def test_results_outlive_what_they_are_of(self) -> None:
        import gc

        from conftest import TINY

        values = ls.System(**TINY).simulate(frames=2).slopes
        expected = ls.System(**TINY).simulate(frames=2).slopes.copy()
        gc.collect()
        np.testing.assert_array_equal(values, expected)
