"""Named arrays with dimensions, coordinates, units and attributes."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _lenslet
from ._keys import refused, shown
from .errors import InputError

if TYPE_CHECKING:
    import matplotlib.axes
    import xarray

    from ._view import Page

__all__ = ["Coordinate", "DataSet", "Table", "Variable", "load"]

#: Columns of a table: values and unit by name.
Table = dict[str, tuple[NDArray[Any], str]]


@dataclass(frozen=True)
class Coordinate:
    """One dimension of a variable: its name, its unit and the positions of its samples.

    Attributes
    ----------
    name : str
        Name of the dimension, such as ``"frame"`` or ``"x"``.
    unit : str
        Unit of the positions; empty for counted samples and labels.
    kind : str
        ``"index"`` (counted from 0), ``"uniform"``, ``"values"`` or ``"labels"``.
    positions : tuple or list or None
        ``(offset, step)``, the values, or the labels; ``None`` for counted samples.
    navigation : bool
        Whether the beam was moved or a setting was varied along it.
    second : tuple or None
        Name, unit and factor of another measure of the same positions.
    """

    name: str
    unit: str = ""
    kind: str = "index"
    positions: tuple[float, float] | list[float] | list[str] | None = None
    navigation: bool = False
    second: tuple[str, str, float] | None = None

    def values(self, count: int) -> NDArray[Any]:
        """Positions of ``count`` samples, in ``unit``; labels as text.

        Returns
        -------
        numpy.ndarray, shape (count,)
        """
        if self.kind == "uniform" and self.positions is not None:
            offset, step = self.positions
            return float(offset) + float(step) * np.arange(count)
        if self.kind in ("values", "labels"):
            return np.asarray(self.positions)
        return np.arange(count)


@dataclass(frozen=True, eq=False)
class Variable:
    """An array, a text or a table with its name, dimensions, unit and attributes.

    Attributes
    ----------
    name : str
        Name, as in a file.
    values : numpy.ndarray or str or dict
        The array; or a text; or a table as a dictionary of ``(values, unit)`` by column.
    coordinates : tuple of Coordinate
        One for each dimension; empty where not even their names are known.
    unit : str
        Unit, as FITS spells it: ``"rad2"``, ``"m rad"``.
    long_name : str
        What it is, in a sentence.
    attributes : dict
        Further facts by key.
    """

    name: str
    values: NDArray[Any] | str | Table
    coordinates: tuple[Coordinate, ...] = ()
    unit: str = ""
    long_name: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)
    rounded: bool = False

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the dimensions, the slowest first."""
        if not isinstance(self.values, np.ndarray):
            return ()
        if self.coordinates:
            # A matrix has one dimension twice, such as (slope, slope): each gets a name of its own.
            names = [one.name for one in self.coordinates]
            return tuple(f"{name}_{k + 1}" if name in names[:k] else name for k, name in enumerate(names))
        return tuple(f"{self.name}_dim_{k}" for k in range(self.values.ndim))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if not isinstance(self.values, np.ndarray):
            raise TypeError(f"{self.name} is no array")
        return np.array(self.values, dtype=dtype, copy=True) if copy else np.asarray(self.values, dtype=dtype)

    def __repr__(self) -> str:
        return f"<lenslet.Variable {_line(self)}>"

    def to_xarray(self) -> xarray.DataArray:
        """The array as an :class:`xarray.DataArray`, without a copy, with coordinates and units.

        Raises
        ------
        TypeError
            For a text or a table.
        ImportError
            Where xarray is not installed: ``pip install "lenslet[xarray]"``.
        """
        if not isinstance(self.values, np.ndarray):
            raise TypeError(f"{self.name} is no array")
        xr = _import("xarray", "xarray")
        coordinates: dict[str, Any] = {}
        for one, name, count in zip(self.coordinates, self.dims, self.values.shape, strict=False):
            if one.kind != "index":
                coordinates[name] = (name, one.values(count), {"units": one.unit})
        about = {"units": self.unit, "long_name": self.long_name, **self.attributes}
        attributes = {key: value for key, value in about.items() if value != ""}
        array: xarray.DataArray = xr.DataArray(
            self.values, dims=self.dims, coords=coordinates, name=self.name, attrs=attributes
        )
        return array

    def plot(self, ax: matplotlib.axes.Axes | None = None, **keywords: Any) -> matplotlib.axes.Axes:
        """Draw the array with matplotlib: a line for one dimension, an image for the last two.

        Leading dimensions are shown at their first sample; choose others by indexing the array itself.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to draw into; new ones unless given.
        **keywords
            Passed to ``plot`` or ``imshow`` of matplotlib.

        Returns
        -------
        matplotlib.axes.Axes
        """
        if not isinstance(self.values, np.ndarray) or self.values.ndim == 0:
            raise TypeError(f"{self.name} is no array with a dimension to draw")
        pyplot = _import("matplotlib.pyplot", "plot")
        axes: matplotlib.axes.Axes = pyplot.subplots()[1] if ax is None else ax
        values = np.abs(self.values) if np.iscomplexobj(self.values) else self.values
        label = " ".join(part for part in (self.long_name or self.name, f"[{self.unit}]" if self.unit else "") if part)
        if values.ndim == 1:
            axes.plot(self._axis(0)[0], values, **keywords)
            axes.set_xlabel(self._axis(0)[1])
            axes.set_ylabel(label)
            return axes
        (rows, y_label), (columns, x_label) = self._axis(values.ndim - 2), self._axis(values.ndim - 1)
        image = values.reshape(-1, *values.shape[-2:])[0]
        extent = None
        if rows.size > 1 and columns.size > 1 and rows.dtype.kind in "if" and columns.dtype.kind in "if":
            half = [0.5 * float(columns[1] - columns[0]), 0.5 * float(rows[1] - rows[0])]
            extent = (columns[0] - half[0], columns[-1] + half[0], rows[0] - half[1], rows[-1] + half[1])
        drawn = axes.imshow(image, origin="lower", extent=extent, **keywords)
        axes.figure.colorbar(drawn, ax=axes, label=label)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        return axes

    def _axis(self, axis: int) -> tuple[NDArray[Any], str]:
        assert isinstance(self.values, np.ndarray)
        one = self.coordinates[axis] if self.coordinates else Coordinate(self.dims[axis])
        return one.values(self.values.shape[axis]), f"{one.name} [{one.unit}]" if one.unit else one.name


class DataSet(Mapping[str, Any]):
    """Named arrays, texts and tables with dimensions, units and attributes, in the order in which they were added.

    A variable is reached by its name, ``data["slopes"]`` or ``data.slopes``, as a NumPy array, a text, or a dictionary of
    columns; ``data.variables["slopes"]`` has its unit and its dimensions too.

    Attributes
    ----------
    variables : dict of str to Variable
        All variables, in their order.
    attributes : dict
        Facts about the whole: program, version, method, date.
    """

    variables: dict[str, Variable]
    attributes: dict[str, Any]

    def __init__(self, variables: Mapping[str, Variable], attributes: Mapping[str, Any] | None = None) -> None:
        self.variables = dict(variables)
        self.attributes = dict(attributes or {})

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, ArrayLike | Variable], **attributes: Any) -> DataSet:
        """A data set of arrays by name; :class:`Variable` for those with units and coordinates.

        Examples
        --------
        >>> import lenslet as ls, numpy as np
        >>> ls.DataSet.from_arrays({"slopes": np.zeros((2, 3))}).slopes.shape
        (2, 3)
        """
        variables = {
            name: one if isinstance(one, Variable) else Variable(name, _given(name, one))
            for name, one in arrays.items()
        }
        return DataSet(variables, attributes)

    def __getitem__(self, name: str) -> Any:
        return self.variables[name].values

    def __iter__(self) -> Iterator[str]:
        return iter(self.variables)

    def __len__(self) -> int:
        return len(self.variables)

    def __getattr__(self, name: str) -> Any:
        variables = self.__dict__.get("variables", {})
        if name in variables:
            return variables[name].values
        raise AttributeError(
            f"{type(self).__name__!r} object has no attribute {name!r}; its variables are {', '.join(variables)}"
        )

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.variables]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DataSet) or set(self) != set(other):
            return NotImplemented if not isinstance(other, DataSet) else False
        return all(_same(self[name], other[name]) for name in self)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        lines = [f"<lenslet.{type(self).__name__}>", *(f"  {_line(one)}" for one in self.variables.values())]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td><code>{html.escape(one.name)}</code></td><td>{html.escape(_shape(one))}</td>"
            f"<td>{html.escape(one.unit)}</td><td>{html.escape(one.long_name)}</td></tr>"
            for one in self.variables.values()
        )
        head = "<tr><th>variable</th><th>shape</th><th>unit</th><th>meaning</th></tr>"
        return f"<b>{type(self).__name__}</b><table>{head}{rows}</table>"

    def to_xarray(self) -> xarray.Dataset:
        """All arrays as an :class:`xarray.Dataset`, without copies, with coordinates and units.

        Texts and tables become attributes and variables ``table_column``. Dimensions of one name and different lengths get
        the name of the variable behind their own.

        Raises
        ------
        ImportError
            Where xarray is not installed: ``pip install "lenslet[xarray]"``.
        """
        xr = _import("xarray", "xarray")
        arrays: dict[str, Any] = {}
        attributes = dict(self.attributes)
        lengths: dict[Hashable, tuple[int, Any]] = {}
        for one in self.variables.values():
            if isinstance(one.values, str):
                attributes[one.name] = one.values
            elif isinstance(one.values, dict):
                for column, (values, unit) in one.values.items():
                    arrays[f"{one.name}_{column}"] = (f"{one.name}_row", values, {"units": unit})
            else:
                array = one.to_xarray()
                for dimension, count in zip(array.dims, array.shape, strict=True):
                    known = lengths.setdefault(dimension, (count, array.coords.get(dimension)))
                    if known[0] != count or not _agree(known[1], array.coords.get(dimension)):
                        array = array.rename({dimension: f"{dimension}_{one.name}"})
                arrays[one.name] = array
        dataset: xarray.Dataset = xr.Dataset(arrays, attrs=attributes)
        return dataset

    def plot(
        self, variable: str | None = None, ax: matplotlib.axes.Axes | None = None, **keywords: Any
    ) -> matplotlib.axes.Axes:
        """Draw one variable with matplotlib; the first array of two or more dimensions unless one is named.

        Parameters
        ----------
        variable : str, optional
            Name of the variable.
        ax : matplotlib.axes.Axes, optional
            Axes to draw into; new ones unless given.
        **keywords
            Passed to matplotlib.

        Returns
        -------
        matplotlib.axes.Axes
        """
        arrays = [one for one in self.variables.values() if isinstance(one.values, np.ndarray) and one.values.ndim > 0]
        if variable is None and not arrays:
            expected = "a data set with an array to draw"
            raise InputError(f"variable = None: expected {expected}", key="variable", expected=expected)
        if variable is not None and variable not in self.variables:
            expected = f"one of {', '.join(self.variables)}"
            message = f"variable = {variable!r}: expected {expected}"
            raise InputError(message, key="variable", value=variable, expected=expected)
        maps = [one for one in arrays if isinstance(one.values, np.ndarray) and one.values.ndim > 1]
        chosen = self.variables[variable] if variable is not None else (maps or arrays)[0]
        return chosen.plot(ax, **keywords)

    def view(
        self,
        *others: DataSet | str | os.PathLike[str] | ArrayLike,
        title: str | None = None,
        limit: float = 32.0,
        height: int = 720,
    ) -> Page:
        """Page that shows the data set in a notebook or a browser, and others with it for comparison.

        Parameters
        ----------
        *others : DataSet or path-like or array_like
            Further data sets, files or arrays of the same page.
        title : str, optional
            Title of the page.
        limit : float
            Megabytes of arrays before compression, beyond which numbers are rounded or averaged.
        height : int
            Height of the frame in a notebook [px].

        Returns
        -------
        Page

        See Also
        --------
        view : the same for files and arrays.
        """
        from ._view import view

        return view(self, *others, title=title, limit=limit, height=height)

    def save(self, path: str | os.PathLike[str], *, signal: str | None = None) -> int:
        """Write into a file, in the format that its name ends in, in place of an older file.

        Parameters
        ----------
        path : path-like
            ``.npz``, ``.npy``, ``.fits``, ``.h5``, ``.hspy``, ``.zspy``, ``.zarr``, ``.zarr.zip`` or ``.mrc``. HDF5 and Zarr hold the columns of a
            table as arrays, ``table_column``. Units, long names and dimensions come back from all formats but ``.npy``
            and ``.mrc``; FITS keeps the names of dimensions, without their positions.
        signal : str, optional
            The variable that a format of one array holds (``.npy``, ``.mrc``).

        Returns
        -------
        int
            Length of the file [bytes].

        Raises
        ------
        InputError
            For another ending, or a format that cannot hold the variables.
        FileError
            Where the file cannot be written; an older one is then still there.
        """
        name = os.fspath(path)
        held = self.variables
        if name.endswith(".npy") and signal is not None and signal in held:
            held = {signal: held[signal]}
        if name.endswith((".h5", ".hdf5", ".emd", ".zarr", ".zarr.zip")):
            # These formats have no tables: each column is an array.
            held = {part.name: part for one in held.values() for part in _columns(one)}
        raw = {key: _raw(one) for key, one in held.items()}
        if name.endswith((".h5", ".zarr", ".zarr.zip")):
            # These formats name each dimension.
            for key, one in held.items():
                raw[key]["dimensions"] = raw[key]["dimensions"] or [vars(Coordinate(dim)) for dim in one.dims]
        # An .npy has the numbers alone.
        facts = {} if name.endswith(".npy") else {key: _fact(key, fact) for key, fact in self.attributes.items()}
        return _lenslet.save(raw, facts, os.fspath(path), signal)


def _columns(one: Variable) -> list[Variable]:
    """The columns of a table as arrays, ``table_column``; anything else as it is."""
    if not isinstance(one.values, Mapping):
        return [one]
    rows = (Coordinate(f"{one.name}_row"),)
    parts: list[Variable] = []
    for column, (cells, unit) in one.values.items():
        name, values = f"{one.name}_{column}", np.asarray(cells)
        # Arrays have no texts: the cells of such a column are one text.
        is_text = values.dtype.kind == "U"
        parts.append(Variable(name, ", ".join(values)) if is_text else Variable(name, values, rows, unit))
    return parts


def load(path: str | os.PathLike[str]) -> DataSet:
    """Read a file that Lenslet wrote, in any of its formats.

    Parameters
    ----------
    path : path-like
        The file, or the folder of a ``.zarr`` store.

    Raises
    ------
    InputError
        For another ending.
    FileError
        Where the file cannot be read, is cut short, or is not what its ending says.
    """
    return DataSet(*made(_lenslet.load(os.fspath(path))))


def numbers(name: str, values: ArrayLike, expected: str) -> NDArray[np.float64]:
    """An array of double precision of what was given; not copied where it is one, of any library, in the memory of the host."""
    try:
        given = np.asarray(_on_host(name, values))
        if given.dtype.kind not in "biufO":
            raise TypeError(f"an array of {given.dtype}")
        return np.require(given, np.float64, "A")
    except (TypeError, ValueError, OverflowError, RecursionError) as failure:
        message = f"{name} = {shown(values)}: {failure}: expected {expected}"
        raise InputError(message, key=name, value=shown(values), expected=expected) from failure


def _on_host(name: str, values: Any) -> Any:
    """An array of another library as one of NumPy, which shares its memory; that of a GPU is refused."""
    if isinstance(values, (np.ndarray, np.generic)) or not hasattr(values, "__dlpack_device__"):
        return values
    kind, number = values.__dlpack_device__()
    if int(kind) != 1:
        expected = "an array of the host: .get() or .cpu() copies it there, and R.to_device() multiplies on the GPU"
        message = f"{name} = an array on device {number}: expected {expected}"
        raise InputError(message, key=name, value=f"device {number}", expected=expected)
    return np.from_dlpack(values)


def made(found: tuple[dict[str, Any], dict[str, Any]]) -> tuple[dict[str, Variable], dict[str, Any]]:
    """Variables and attributes of what the compiled module returns."""
    variables = {}
    for name, about in found[0].items():
        # xarray, HDF5 and Zarr want names of dimensions that are identifiers: "star p" becomes star_p.
        dimensions = [{**one, "name": re.sub(r"\W+", "_", one["name"])} for one in about.pop("dimensions")]
        coordinates = tuple(Coordinate(**one) for one in dimensions)
        variables[name] = Variable(name, coordinates=coordinates, **about)
    return variables, found[1]


def _given(name: str, values: ArrayLike) -> NDArray[Any] | str:
    """An array, or a text, of what was given as one."""
    if isinstance(values, str):
        return values
    try:
        if np.ma.isMaskedArray(values):
            raise TypeError("a masked array")
        return np.asarray(values)
    except (TypeError, ValueError, OverflowError, RecursionError) as failure:
        expected = "an array, without a mask"
        message = f"{name} = {shown(values)}: expected {expected}"
        raise InputError(message, key=name, value=shown(values), expected=expected) from failure


def _raw(one: Variable) -> dict[str, Any]:
    """A variable as the compiled module takes it."""
    values: Any = one.values
    if isinstance(values, Mapping):
        values = {column: (_cells(f"{one.name}.{column}", cells), unit) for column, (cells, unit) in values.items()}
    elif not isinstance(values, str):
        values = _array(one.name, values)
    return {
        "values": values,
        "dimensions": [
            _raw_coordinate(name, coordinate) for name, coordinate in zip(one.dims, one.coordinates, strict=False)
        ],
        "unit": one.unit,
        "long_name": one.long_name,
        "rounded": one.rounded,
        "attributes": {key: _fact(key, fact) for key, fact in one.attributes.items()},
    }


def _raw_coordinate(name: str, one: Coordinate) -> dict[str, Any]:
    """A coordinate as the compiled module takes it; formats with coordinates want identifiers, another for each dimension."""
    positions: Any = one.positions
    if one.kind == "values":
        positions = numbers(f"positions of {one.name}", positions, "numbers").tolist()
    return {**vars(one), "name": re.sub(r"\W+", "_", name), "positions": positions}


def _array(name: str, values: Any) -> NDArray[Any]:
    """An array as files hold it: aligned, of the machine's byte order, integers of 64 bits."""
    try:
        given = np.asarray(values)
        if given.dtype.kind == "u" and given.dtype.itemsize == 8 and given.size and given.max() >= 1 << 63:
            raise OverflowError("64 bits with a sign do not hold it")
        wanted = np.int64 if given.dtype.kind in "iu" else given.dtype.newbyteorder("=")
        return np.require(given, wanted, "A")
    except (TypeError, ValueError, OverflowError, RecursionError) as failure:
        expected = "an array of numbers"
        message = f"{name} = {shown(values)}: expected {expected}"
        raise InputError(message, key=name, value=shown(values), expected=expected) from failure


def _cells(name: str, cells: Any) -> NDArray[Any]:
    """A column of a table as files hold it: whole numbers of 32 bits, numbers, or short texts."""
    column = _array(name, cells)
    if column.ndim != 1 or column.dtype.kind not in "ifU":
        expected = "one number or text for each row"
        raise refused(name, shown(cells), expected)
    return column


def _fact(key: str, fact: Any) -> bool | int | float | str | list[float]:
    """An attribute as files hold it."""
    if isinstance(fact, np.generic | np.ndarray) and not np.ma.isMaskedArray(fact):
        fact = fact.tolist()
    if isinstance(fact, bool | float | str) or (isinstance(fact, int) and -(1 << 63) <= fact < 1 << 63):
        return fact
    if isinstance(fact, list | tuple) and all(isinstance(one, Real) for one in fact):
        return [float(one) for one in fact]
    expected = "a truth value, a number, a text or a list of numbers"
    raise refused(key, shown(fact), expected)


def _shape(one: Variable) -> str:
    if isinstance(one.values, np.ndarray):
        return " × ".join(str(length) for length in one.values.shape) or "1"
    return "text" if isinstance(one.values, str) else "table"


def _line(one: Variable) -> str:
    dims = f" ({', '.join(one.dims)})" if isinstance(one.values, np.ndarray) and one.coordinates else ""
    unit = f" [{one.unit}]" if one.unit else ""
    return f"{one.name}: {_shape(one)}{dims}{unit}" + (f", {one.long_name}" if one.long_name else "")


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key][0], other[key][0]) for key in one)
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")
    return type(one) is type(other) and bool(one == other)


def _agree(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    return bool(one.equals(other))


def _import(module: str, extra: str) -> Any:
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as missing:
        package = module.split(".")[0]
        raise ImportError(f'{package} is not installed: pip install "lenslet[{extra}]"') from missing
