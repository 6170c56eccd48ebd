"""Exceptions of Lenslet.

::

    LensletError
    ├── InputError (ValueError)         a value, key, option or file content that makes no sense
    ├── FileError (OSError)             a file that cannot be read or written
    ├── DeviceError (RuntimeError)      a GPU, or one of NVIDIA's libraries, that is missing or fails
    ├── OutOfMemoryError (MemoryError)  a result that does not fit into the memory
    ├── ComputationError (RuntimeError) a computation that broke down although its input was good
    │   └── ConvergenceError            an iterative solver that used up its iterations
    └── CancelledError                  a computation that its observer cancelled

``LensletWarning`` is the category of all warnings.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "CancelledError",
    "ComputationError",
    "ConvergenceError",
    "DeviceError",
    "FileError",
    "InputError",
    "LensletError",
    "LensletWarning",
    "OutOfMemoryError",
]


def _rebuild(kind: type[LensletError], message: str, facts: dict[str, Any]) -> LensletError:
    return kind(message, **facts)


class LensletError(Exception):
    """Base of all exceptions of this package.

    Parameters
    ----------
    message : str
        What is wrong, where, what was expected, and what to do.
    **facts
        Attributes of the exception.
    """

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        for name, fact in facts.items():
            setattr(self, name, fact)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), str(self), dict(self.__dict__))

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class InputError(LensletError, ValueError):
    """A value, a key, an option or the content of a file that makes no sense.

    Attributes
    ----------
    file : str or None
        Name of the file, if there is one.
    line : int or None
        Line number in the file, counted from 1.
    key : str or None
        Key with the tables around it, such as ``atmosphere.layers[2].fraction``.
    value : str or None
        The value as text; ``None`` where it is missing.
    expected : str or None
        What would have been accepted, with its unit.
    """

    file: str | None = None
    line: int | None = None
    key: str | None = None
    value: str | None = None
    expected: str | None = None


class FileError(LensletError, OSError):
    """A file that cannot be read or written.

    Attributes
    ----------
    file : str or None
        Name of the file.
    """

    file: str | None = None


class DeviceError(LensletError, RuntimeError):
    """A GPU, or a library that it needs, that is missing or fails.

    Attributes
    ----------
    device : str or None
        Name of the device, such as ``cuda:0``.
    """

    device: str | None = None


class OutOfMemoryError(LensletError, MemoryError):
    """A result that does not fit into the memory.

    Attributes
    ----------
    needed, available : int or None
        Memory [bytes] that it needs, and that there is.
    """

    needed: int | None = None
    available: int | None = None


class ComputationError(LensletError, RuntimeError):
    """A computation that broke down although its input was good."""


class ConvergenceError(ComputationError):
    """An iterative solver that used up its iterations.

    Attributes
    ----------
    iterations : int or None
        Iterations that were made.
    residual : float or None
        Relative residual after them.
    """

    iterations: int | None = None
    residual: float | None = None


class CancelledError(LensletError):
    """A computation that its observer cancelled."""


class LensletWarning(UserWarning):
    """Category of all warnings of this package."""
