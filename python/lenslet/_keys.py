"""Keywords of systems and samples as paths of their files."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from functools import lru_cache
from numbers import Real
from typing import Any

import numpy as np

from . import _lenslet
from .errors import InputError

#: Keywords of a system whose names are not those of their keys.
_SYSTEM_LISTS = {"layers": "atmosphere.layers", "guide_stars": "guide_star", "targets": "target", "mirrors": "mirror"}
#: Tables of a system whose keys are keywords by themselves.
_SYSTEM_FLAT = ("atmosphere", "telescope", "lenslet_array", "covariance")
#: Keywords of a sample whose keys have names that several tables share, or a unit in their name.
_SAMPLE_NAMES = {
    "sample.tilt": "specimen_tilt",
    "sample.beam": "beam_direction",
    "beam.tilt": "beam_tilt",
    "imaging.tilt": "imaging_tilt",
    "beam.energy_kev": "energy",
}


@lru_cache
def rows(file: str) -> dict[str, dict[str, Any]]:
    """All keys of a kind of file by their paths."""
    return {row["key"]: row for row in _lenslet.keys(file)}


@lru_cache
def keywords(file: str) -> dict[str, str]:
    """Path of each keyword of ``"system"`` or ``"sample"``."""
    known: dict[str, str] = {}
    if file == "system":
        for path in rows(file):
            table, _, key = path.partition(".")
            if table in _SYSTEM_FLAT and key and "." not in key:
                known[key] = path
            elif not key and table not in _SYSTEM_FLAT and table not in _SYSTEM_LISTS.values():
                known[table] = path
        return {**known, **_SYSTEM_LISTS}
    for path in rows(file):
        _, _, key = path.partition(".")
        if key and "." not in key:
            known[_SAMPLE_NAMES.get(path, key)] = path
    return known


def changes(file: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Values by path, as the compiled module takes them, of values by keyword.

    A dictionary gives the keys of its table; an empty one the table itself.
    """
    found: dict[str, Any] = {}
    known = keywords(file)
    for keyword, value in given.items():
        if keyword not in known:
            raise unknown(keyword, known)
        path = known[keyword]
        if path == "beam.energy_kev":
            value = _in_kev(value)
        if isinstance(value, Mapping) and value:
            found.update({f"{path}.{key}": entry for key, entry in value.items()})
        else:
            found[path] = value
    return found


def count(name: str, value: Any, least: int = 1) -> int:
    """A whole number of 63 bits that is not below the least."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if not least <= number < 1 << 63:
        expected = f"a whole number not below {least}"
        raise refused(name, shown(value), expected)
    return number


def shown(value: Any) -> str:
    """A value as messages show it, cut where it is long."""
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 80 else f"{text[:80]}…"


def refused(key: str, value: Any, expected: str) -> InputError:
    """What is raised for a value that makes no sense; text is shown as it stands."""
    text = value if isinstance(value, str) else shown(value)
    return InputError(f"{key} = {text}: expected {expected}", key=key, value=text, expected=expected)


def mapping(values: Any) -> dict[str, Any]:
    """A dictionary of what was given as one."""
    if not isinstance(values, Mapping):
        raise TypeError(f"{shown(values)}: expected a dictionary with the tables of a file")
    return dict(values)


def _in_kev(energy: Any) -> Any:
    """Convert an energy from eV to keV; what is no number stays as it is, to be rejected by its key."""
    if isinstance(energy, np.ndarray) and energy.ndim == 0:
        energy = energy.item()
    if isinstance(energy, bool) or not isinstance(energy, Real):
        return energy
    try:
        number = float(energy)
    except OverflowError:
        number = float("inf")
    if not 1e3 <= number <= 1e7:
        expected = "an energy from 1e3 to 1e7 eV"
        near = f"; did you mean {1e3 * number:g}? That is {number:g} keV" if 1.0 <= number <= 1e4 else ""
        message = f"energy = {shown(energy)}: expected {expected}{near}"
        raise InputError(message, key="energy", value=shown(energy), expected=expected)
    return 1e-3 * number


def edits(
    file: str, values: Mapping[str, Any], given: Mapping[str, Any], by_path: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Changes by path of values by keyword and by path; an empty dictionary adds a table where there is none."""
    found = changes(file, given)
    for path in [path for path, value in found.items() if isinstance(value, Mapping)]:
        inner: Any = values
        for name in path.split("."):
            inner = inner.get(name) if isinstance(inner, Mapping) else None
        if inner is not None:
            del found[path]
    return {**found, **(by_path or {})}


def nested(file: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The dictionary of a file of values by keyword."""
    tree: dict[str, Any] = {}
    for path, value in changes(file, given).items():
        if value is None:
            continue
        *tables, key = path.split(".")
        table = tree
        for name in tables:
            table = table.setdefault(name, {})
        table[key] = value
    return tree


def unknown(keyword: str, known: Iterable[str]) -> InputError:
    """The error of a keyword that there is not, with those nearest to it."""
    import difflib

    names = list(known)
    near = difflib.get_close_matches(keyword, names, 3)
    expected = f"did you mean {' or '.join(near)}?" if near else f"one of {', '.join(names)}"
    return InputError(f"{keyword}: no such keyword: {expected}", key=keyword, expected=expected)


def hashed(values: Any) -> int:
    """A hash of dictionaries and lists that is equal where they are equal: 3 and 3.0 are."""
    if isinstance(values, Mapping):
        return hash(frozenset((key, hashed(value)) for key, value in values.items()))
    return hash(tuple(map(hashed, values))) if isinstance(values, list) else hash(values)
