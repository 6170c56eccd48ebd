"""Text of system and sample files, with the meaning and unit of each key."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from . import _keys


def text(file: str, values: Mapping[str, Any]) -> str:
    """The text of a ``"system"`` or ``"sample"`` file with these values: tables and keys in the order of the reference, each with a comment."""
    known = _keys.rows(file)
    lines: list[str] = []
    for name in sorted(values, key=lambda name: _order(known, name)):
        _add(lines, known, name, values[name])
    return "\n".join(lines).strip() + "\n"


def _add(lines: list[str], known: Mapping[str, dict[str, Any]], path: str, table: Any) -> None:
    """Adds a table, or each of a list of tables, with the tables inside."""
    if isinstance(table, list):
        for entry in table:
            _add_one(lines, known, path, entry, f"[[{path}]]")
    else:
        _add_one(lines, known, path, table, f"[{path}]")


def _add_one(
    lines: list[str], known: Mapping[str, dict[str, Any]], path: str, table: Mapping[str, Any], heading: str
) -> None:
    keys = sorted(table, key=lambda key: _order(known, f"{path}.{key}"))
    inner = [key for key in keys if _is_table(table[key])]
    lines += ["", f"{heading}{_comment(known.get(path))}"]
    for key in keys:
        if key not in inner:
            value = written(table[key])
            comment = _comment(known.get(f"{path}.{key}"))
            lines.append(f"{key} = {value}{comment}")
    for key in inner:
        _add(lines, known, f"{path}.{key}", table[key])


def _is_table(value: Any) -> bool:
    if isinstance(value, Mapping):
        return True
    return isinstance(value, list) and bool(value) and all(isinstance(entry, Mapping) for entry in value)


def _order(known: Mapping[str, Any], path: str) -> int:
    return list(known).index(path) if path in known else len(known)


def _comment(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return ""
    unit = f" [{row['unit']}]" if row["unit"] else ""
    return f"  # {row['meaning']}{unit}"


def written(value: Any) -> str:
    """A value in TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if math.isnan(value):
            return "nan"
        return repr(value) if math.isfinite(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, str):
        if "\n" in value and "'''" not in value and _is_plain(value):
            return f"'''\n{value}'''"
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {written(entry)}" for key, entry in value.items()) + " }"
    return "[" + ", ".join(written(entry) for entry in value) + "]"


def _is_plain(value: str) -> bool:
    """Whether a text has no control characters besides line breaks, so that it can be written as it is."""
    return all(character == "\n" or character.isprintable() for character in value)
