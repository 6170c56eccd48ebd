"""Plans of computations, and their progress."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from . import _lenslet
from ._keys import shown
from .errors import InputError

__all__ = ["Plan", "Progress"]

R = TypeVar("R")

#: ``True`` for a bar on the terminal, or a callable that receives the stage, the pieces that are done, and their number.
Progress = bool | Callable[[str, int, int], object] | None


class Plan(Generic[R]):
    """A planned computation, whose method, memory and run time are known before it runs.

    ``print(plan)`` tells what will be computed and how; :meth:`run` does it.
    """

    def __init__(self, planned: _lenslet.PlannedComputation, make: Callable[[Any, Any, Any], R], call: str) -> None:
        self._planned = planned
        self._make = make
        self._call = call
        self._described: dict[str, Any] | None = None

    def _about(self) -> dict[str, Any]:
        if self._described is None:
            self._described = self._planned.describe()
        return self._described

    @property
    def what(self) -> str:
        """What is computed, of what."""
        return str(self._about()["what"])

    @property
    def method(self) -> str:
        """How it is computed."""
        return str(self._about()["method"])

    @property
    def memory(self) -> int:
        """The most memory of the host that is in use at a time [bytes]."""
        return int(self._about()["memory"]["host"])

    @property
    def device_memory(self) -> list[int]:
        """The most memory that is in use at a time on each GPU [bytes]."""
        return [int(bytes_) for bytes_ in self._about()["memory"]["devices"]]

    @property
    def seconds(self) -> float:
        """About how long a run takes [s]. Where the speed of this machine is not known, it is measured, once, in about a second."""
        return float(self._about()["seconds"])

    @property
    def stages(self) -> dict[str, float]:
        """About how long each stage takes [s], by name."""
        return {stage["name"]: float(stage["seconds"]) for stage in self._about()["stages"]}

    @property
    def arrays(self) -> dict[str, tuple[int, ...]]:
        """Shape of each result, by name."""
        return {name: tuple(shape) for name, shape in self._about()["arrays"]}

    def __repr__(self) -> str:
        return f"<lenslet.Plan: {self.what}>"

    def __str__(self) -> str:
        about = self._about()
        lines = [("what", about["what"]), ("method", about["method"])]
        lines += [(name, " × ".join(map(str, shape))) for name, shape in self.arrays.items()]
        lines.append(("memory", in_bytes(self.memory)))
        lines += [(f"memory of GPU {k}", in_bytes(size)) for k, size in enumerate(self.device_memory)]
        lines += [(f"time, {name}", in_seconds(time)) for name, time in self.stages.items()]
        lines += [("time", in_seconds(self.seconds)), ("on", about["engine"])]
        width = max(len(name) for name, _ in lines) + 2
        return "\n".join(f"{name:{width}}{text}" for name, text in lines)

    def run(self, *, progress: Progress = None) -> R:
        """Compute.

        Parameters
        ----------
        progress : bool or callable, optional
            ``True`` for a bar; or a callable that receives the stage, the pieces that are done, and their number.
        """
        with reporting(progress) as report:
            return self._make(*self._planned.run(self._call, report))


class reporting:
    """A callable for the progress of one computation; none where nobody listens."""

    def __init__(self, progress: Progress) -> None:
        if progress is not None and not isinstance(progress, bool) and not callable(progress):
            expected = "True, False, or a callable of stage, done and total"
            value = shown(progress)
            raise InputError(f"progress = {value}: expected {expected}", key="progress", value=value, expected=expected)
        self._progress = progress
        self._bar: Any = None
        self._stage = ""

    def __enter__(self) -> Callable[[str, int, int], object] | None:
        if callable(self._progress):
            return self._progress
        return self._show if self._progress else None

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
        elif self._stage:
            print(file=sys.stderr)
        self._stage = ""

    def _show(self, stage: str, done: int, total: int) -> None:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            self._stage = stage
            share = f" {done}/{total}" if total else ""
            print(f"\r{stage}{share}\x1b[K", end="", file=sys.stderr, flush=True)
            return
        if stage != self._stage:
            self._close()
            self._stage, self._bar = stage, tqdm(desc=stage, total=total or None)
        self._bar.total = total or None
        self._bar.update(done - self._bar.n)


def in_bytes(count: int) -> str:
    """A number of bytes in decimal units."""
    size = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} bytes" if unit == "bytes" else f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def in_seconds(time: float) -> str:
    """A time in a fitting unit."""
    if time < 1:
        return f"{1e3 * time:.3g} ms"
    return f"{time:.3g} s" if time < 120 else f"{time / 60:.3g} min"
