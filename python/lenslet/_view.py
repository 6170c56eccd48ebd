"""Pages that show data sets in a notebook or a browser."""

from __future__ import annotations

import html
import os
import tempfile
import warnings
import webbrowser
from collections import Counter
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from . import _lenslet
from ._data import DataSet, Variable, _fact, _raw, load
from ._keys import refused, shown
from .errors import FileError, LensletWarning

__all__ = ["Page", "view"]


class Page:
    """Page of HTML that shows data sets, by itself and without a network.

    A notebook shows it in a frame, which has no access to the notebook. Pages are made by :func:`view` and
    :meth:`DataSet.view`.

    Attributes
    ----------
    html : str
        The page.
    title : str
        Its title.
    height : int
        Height of the frame in a notebook [px].
    reduced : dict of str to str
        How arrays differ from those of the data sets, with the largest error, by name; empty where all are exact.
    """

    html: str
    title: str
    height: int
    reduced: dict[str, str]

    def __init__(self, html: str, title: str, height: int, reduced: dict[str, str]) -> None:
        self.html = html
        self.title = title
        self.height = height
        self.reduced = reduced

    def __repr__(self) -> str:
        size = len(self.html) / 1e6
        return f"<lenslet.Page {self.title}: {size:.1f} MB, {len(self.reduced)} arrays reduced>"

    def _repr_html_(self) -> str:
        style = f"width:100%;height:{self.height}px;border:0"
        title, page = html.escape(self.title), html.escape(self.html)
        return (
            f'<iframe title="{title}" sandbox="allow-scripts allow-downloads" style="{style}" srcdoc="{page}"></iframe>'
        )

    def save(self, path: str | os.PathLike[str]) -> int:
        """Write the page into a file, in place of an older one.

        Parameters
        ----------
        path : path-like
            File that ends in ``.html``.

        Returns
        -------
        int
            Length of the file [bytes].

        Raises
        ------
        InputError
            For another ending.
        FileError
            Where the file cannot be written; an older one is then still there.
        """
        target = Path(os.fspath(path))
        if target.suffix.lower() not in (".html", ".htm"):
            raise refused("path", shown(os.fspath(path)), "a file name that ends in .html")
        content = self.html.encode()
        try:
            # A page appears whole or not at all.
            handle, draft = tempfile.mkstemp(prefix=".lenslet-", suffix=".part", dir=target.parent)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(content)
                mask = os.umask(0)
                os.umask(mask)
                os.chmod(draft, 0o666 & ~mask)
                os.replace(draft, target)
            except BaseException:
                os.unlink(draft)
                raise
        except (OSError, ValueError) as failure:
            reason = getattr(failure, "strerror", None) or failure
            raise FileError(f"cannot write {shown(str(target))}: {reason}", file=str(target)) from failure
        return len(content)

    def open(self) -> Path:
        """Show the page in the browser, from a file in the folder of temporary files.

        Returns
        -------
        pathlib.Path
            The file, which stays until the system removes it.

        Warns
        -----
        LensletWarning
            Where no browser can be started.
        """
        path = Path(tempfile.mkdtemp(prefix="lenslet-")) / "view.html"
        self.save(path)
        if not webbrowser.open(path.as_uri()):
            warnings.warn(f"there is no browser here: open {path} by hand", LensletWarning, stacklevel=2)
        return path


def view(
    *what: DataSet | str | os.PathLike[str] | ArrayLike,
    title: str | None = None,
    limit: float = 32.0,
    height: int = 720,
) -> Page:
    """Page that shows results, data sets, files and arrays in a notebook or a browser.

    It needs no network and no other package. Two files of the same variables can be compared in it.

    Parameters
    ----------
    *what : DataSet or path-like or array_like
        Results and other data sets; names of files in any of Lenslet's formats; arrays.
    title : str, optional
        Title of the page; the names of what it shows unless given.
    limit : float
        Megabytes of arrays before compression, from 1 to 4000. Beyond, the largest arrays are rounded to single precision, then to 16 bits, then
        averaged; ``reduced`` of the page tells the errors.
    height : int
        Height of the frame in a notebook [px].

    Returns
    -------
    Page
        Shown by a notebook; ``open()`` shows it in a browser, and ``save("result.html")`` writes it.

    Raises
    ------
    InputError
        For nothing to show, a limit out of range, or an array of no numbers.
    FileError
        Where a file cannot be read.

    Examples
    --------
    >>> import lenslet as ls
    >>> page = ls.view("book/systems/keck-lgs-slopes.npy")
    >>> page.title
    'keck-lgs-slopes.npy'
    """
    if not what:
        raise refused("what", "nothing", "results, data sets, files or arrays")
    _check("limit", limit, Real, (1, 4000), "megabytes from 1 to 4000")
    _check("height", height, Integral, (100, 10000), "whole pixels from 100 to 10000")
    if title is not None and not isinstance(title, str):
        raise refused("title", shown(title), "a text")
    found = [_named(one) for one in what]
    counts = Counter(name for name, _ in found)
    seen: Counter[str] = Counter()
    names: list[str] = []
    for name, _ in found:
        # Two results of one class are numbered.
        seen[name] += 1
        names.append(f"{name} {seen[name]}" if counts[name] > 1 else name)
    files = [
        (
            name,
            {key: _raw(one) for key, one in data.variables.items()},
            {key: _fact(key, fact) for key, fact in data.attributes.items()},
        )
        for name, (_, data) in zip(names, found, strict=True)
    ]
    page, arrays = _lenslet.page(files, int(1e6 * limit), title)
    several = len(names) > 1
    reduced = {f"{names[file]}[{name}]" if several else name: words for file, name, words in arrays}
    return Page(page, ", ".join(names) if title is None else title, height, reduced)


def _check(name: str, value: Any, kind: Any, limits: tuple[int, int], expected: str) -> None:
    """Rejects anything but a number of this kind within limits."""
    if isinstance(value, bool) or not isinstance(value, kind) or not limits[0] <= value <= limits[1]:
        raise refused(name, shown(value), expected)


def _named(one: DataSet | str | os.PathLike[str] | ArrayLike) -> tuple[str, DataSet]:
    """A data set of what was given, and a name of it."""
    if isinstance(one, DataSet):
        return type(one).__name__, one
    if isinstance(one, str | os.PathLike):
        return Path(os.fspath(one)).name, load(one)
    if isinstance(one, Variable):
        return one.name, DataSet({one.name: one})
    return "array", DataSet.from_arrays({"array": one})
