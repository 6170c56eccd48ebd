"""Keywords of systems and samples as paths of their files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

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
    """Values by path, as the compiled module takes them, of values by keyword."""
    found: dict[str, Any] = {}
    known = keywords(file)
    for keyword, value in given.items():
        if keyword not in known:
            raise unknown(keyword, known)
        path = known[keyword]
        if path == "beam.energy_kev" and value is not None:
            value = 1e-3 * value
        if isinstance(value, Mapping):
            found.update({f"{path}.{key}": entry for key, entry in value.items()})
        else:
            found[path] = value
    return found


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
