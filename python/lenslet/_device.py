"""Arrays in the memory of a GPU, and matrices that multiply there."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _lenslet
from .errors import InputError

__all__ = ["DeviceReconstructor"]


class DeviceReconstructor:
    """A reconstructor in the memory of a GPU.

    ``D @ slopes`` multiplies there: slopes of CuPy, PyTorch or JAX on the same GPU are not copied to the host, and the product is an array of
    the same library; slopes of NumPy are sent to the GPU, and the product comes back as an array of NumPy.

    Made by :meth:`Reconstructor.to_device`.

    Attributes
    ----------
    shape : tuple of int
        (T, m, n), as that of the reconstructor.
    dtype : str
        ``"float64"`` or ``"float32"``.
    device : str
        Name of the GPU, such as ``"cuda:0"``.
    """

    def __init__(self, matrix: NDArray[np.float64], device: str, precision: str) -> None:
        rows = matrix.reshape(-1, matrix.shape[-1])
        self._matrix = _lenslet.DeviceArray.from_numpy(rows, device, precision)
        self.shape: tuple[int, ...] = matrix.shape

    @property
    def dtype(self) -> str:
        """Type of the numbers."""
        return self._matrix.dtype

    @property
    def device(self) -> str:
        """Name of the GPU."""
        return self._matrix.device

    def __repr__(self) -> str:
        return f"<lenslet.DeviceReconstructor: {' × '.join(map(str, self.shape))}, {self.dtype} on {self.device}>"

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._matrix.__dlpack_device__()

    def __dlpack__(self, **keywords: Any) -> Any:
        """The matrix, (T m, n), for another library, without a copy."""
        return self._matrix.__dlpack__(**keywords)

    def __matmul__(self, slopes: Any) -> Any:
        """Slopes of shape (n,) give (T, m), and (frames, n) give (frames, T, m)."""
        shape = tuple(np.shape(slopes))
        count = self.shape[-1]
        if len(shape) not in (1, 2) or shape[-1] != count:
            expected = f"({count},) or (frames, {count})"
            raise InputError(
                f"shape of slopes = {shape}: expected {expected}", key="slopes", value=str(shape), expected=expected
            )
        library = _library(slopes)
        wanted = (*shape[:-1], *self.shape[:-1])
        if library is None:
            return self._multiply_on_host(slopes).reshape(wanted)
        return library(self._matrix.multiply(slopes)).reshape(wanted)

    def _multiply_on_host(self, slopes: ArrayLike) -> NDArray[np.float64]:
        frames = np.atleast_2d(np.asarray(slopes, dtype=np.float64))
        precision = "f64" if self.dtype == "float64" else "f32"
        sent = _lenslet.DeviceArray.from_numpy(frames, self.device, precision)
        return self._matrix.multiply(sent).to_numpy()


def _library(array: Any) -> Any:
    """What makes an array of the same library of one in DLPack; ``None`` for NumPy and lists."""
    if not hasattr(array, "__dlpack_device__") or isinstance(array, np.ndarray):
        return None
    name = type(array).__module__.partition(".")[0]
    if name in ("jax", "jaxlib"):
        return sys.modules["jax"].dlpack.from_dlpack
    module = sys.modules.get(name)
    return getattr(module, "from_dlpack", None) or getattr(getattr(module, "utils", None), "from_dlpack", None)
