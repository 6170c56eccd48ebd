"""Covariance of the measurements as an operator of SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _lenslet
from ._data import _import


def covariance_operator(compiled: _lenslet.CovarianceOperator) -> Any:
    """The operator of SciPy that multiplies by a compiled one."""
    linalg = _import("scipy.sparse.linalg", "scipy")
    size = compiled.size()

    def product(vectors: NDArray[Any]) -> NDArray[np.float64]:
        columns = np.require(vectors, np.float64, "A")
        products = compiled.product(np.ascontiguousarray(np.atleast_2d(columns.T)))
        found: NDArray[np.float64] = products[0] if columns.ndim == 1 else products.T
        return found

    return linalg.LinearOperator(
        (size, size), matvec=product, rmatvec=product, matmat=product, rmatmat=product, dtype=np.float64
    )
