"""Wave optics, exact and fast: adaptive-optics tomography and electron-microscope images.

``System`` describes an adaptive-optics system, ``Sample`` a specimen in an electron microscope. Their methods compute results, which hold NumPy
arrays with names, dimensions and units.

Examples
--------
>>> import lenslet as ls
>>> system = ls.System.from_file("book/systems/small-moao.toml")
>>> psf = system.psf()
>>> [round(float(ratio), 3) for ratio in psf.strehl[:, 0]]
[0.664, 0.534]
"""

from . import errors
from ._data import Coordinate, DataSet, Table, Variable, load
from ._device import DeviceReconstructor
from ._lenslet import __version__, threads
from ._libraries import add_library_folders as _add_library_folders
from ._plan import Plan
from ._results import Covariance, Estimate, Micrographs, Parameter, ProfileFit, Psf, Reconstructor, Scan, Simulation
from ._sample import Sample
from ._system import Estimator, System
from ._view import Page, view
from .errors import (
    CancelledError,
    ComputationError,
    ConvergenceError,
    DeviceError,
    FileError,
    InputError,
    LensletError,
    LensletWarning,
    OutOfMemoryError,
)

_add_library_folders()

__all__ = [
    "CancelledError",
    "ComputationError",
    "ConvergenceError",
    "Coordinate",
    "Covariance",
    "DataSet",
    "DeviceError",
    "DeviceReconstructor",
    "Estimate",
    "Estimator",
    "FileError",
    "InputError",
    "LensletError",
    "LensletWarning",
    "Micrographs",
    "OutOfMemoryError",
    "Page",
    "Parameter",
    "Plan",
    "ProfileFit",
    "Psf",
    "Reconstructor",
    "Sample",
    "Scan",
    "Simulation",
    "System",
    "Table",
    "Variable",
    "__version__",
    "errors",
    "load",
    "threads",
    "view",
]
