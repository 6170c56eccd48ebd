"""Writes ``lenslet/_keywords.py``: the keywords of systems and samples with their types, from the keys of their files.

``python python/keywords.py`` writes it; ``--check`` fails where it is not what the installed package would give.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from lenslet import _keys

TYPES = {
    "number": "float",
    "whole number": "int",
    "true or false": "bool",
    "word": "str",
    "text": "str",
    "file name": "str | os.PathLike[str]",
    "number, or a file name": "float | str | os.PathLike[str]",
    "number, or a list": "float | Sequence[float]",
    "number, or 2": "float | Sequence[float]",
    "whole number, or 2": "int | Sequence[int]",
    "2 numbers": "Sequence[float]",
    "3 numbers": "Sequence[float]",
    "2 whole numbers": "Sequence[int]",
    "3 whole numbers": "Sequence[int]",
    "3 or 4 whole numbers": "Sequence[int]",
    "list of numbers": "Sequence[float]",
    "list of words": "Sequence[str]",
    "list of pairs": "Sequence[Sequence[float]]",
}
#: Names of the types of tables.
TABLES = {
    "atmosphere.layers": "Layer",
    "telescope.spiders": "Spiders",
    "guide_star": "GuideStar",
    "guide_star.sensor": "LightSensor",
    "guide_star.sensor.spot": "LaserSpot",
    "target": "Target",
    "optimisation": "OptimisationDirection",
    "truth_sensor": "TruthSensor",
    "phase": "WavefrontGrid",
    "reconstructor": "ReconstructorOptions",
    "correction": "CorrectionOptions",
    "mirror": "Mirror",
    "loop": "ControlLoop",
    "image": "ImageOptions",
    "field": "FieldOptions",
    "phonons.rms": "dict[str, float]",
    "beam.aberrations": "Aberration",
    "detector.segmented": "SegmentedDetector",
    "detector.four_d": "DiffractionPatterns",
}


def type_of(row: dict[str, Any]) -> str:
    """The type of a value in the notation of Python."""
    path, kind = row["key"], row["type"]
    if row["words"]:
        words = ", ".join(f'"{word}"' for word in row["words"])
        return f"Sequence[Literal[{words}]]" if kind == "list of words" else f"Literal[{words}]"
    if kind == "list of tables":
        return f"Sequence[{TABLES[path]}]"
    if kind == "table":
        return TABLES[path]
    found = TYPES[kind]
    return f"{found} | None"


def line(name: str, row: dict[str, Any]) -> list[str]:
    """A field with its documentation."""
    unit = f" [{row['unit']}]" if row["unit"] else ""
    range_ = f"; {row['range']}" if row["range"] and not row["words"] else ""
    default = f", default {row['default']}" if row["default"] else ""
    kind = type_of(row)
    if not kind.endswith("None"):
        kind += " | None"
    if name == "energy":
        return ["    energy: float | None", '    """energy of the electrons [eV]."""']
    meaning = row["meaning"].replace("\\", "\\\\")
    return [f"    {name}: {kind}", f'    """{meaning}{unit}{range_}{default}."""']


def table(name: str, title: str, fields: dict[str, dict[str, Any]], bases: str = "TypedDict, total=False") -> list[str]:
    """A class of keywords."""
    lines = ["", "", f"class {name}({bases}):", f'    """{title}"""', ""]
    for field, row in fields.items():
        lines += line(field, row)
    return lines


def text() -> str:
    """The whole module."""
    lines = [
        '"""Keywords of systems and samples with their types. Written by ``python/keywords.py`` from the keys of their files."""',
        "",
        "# ruff: noqa: E501",
        "from __future__ import annotations",
        "",
        "import os",
        "from collections.abc import Sequence",
        "from typing import Literal, TypedDict",
    ]
    for file in ("system", "sample"):
        rows = _keys.rows(file)
        for path in reversed(TABLES):
            if path in rows and TABLES[path].isidentifier():
                inner = {key.removeprefix(f"{path}."): row for key, row in rows.items() if key.startswith(f"{path}.")}
                inner = {key: row for key, row in inner.items() if "." not in key}
                lines += table(TABLES[path], f"Keys of ``{rows[path]['table']}``: {rows[path]['meaning']}.", inner)
        fields = {keyword: rows[path] for keyword, path in _keys.keywords(file).items()}
        lines += table(f"{file.capitalize()}Keywords", f"Keywords of :class:`lenslet.{file.capitalize()}`.", fields)
        if file == "system":
            for name, own in (("ReconstructorKeywords", "reconstructor"), ("ImageKeywords", "image")):
                inner = {key.removeprefix(f"{own}."): row for key, row in rows.items() if key.startswith(f"{own}.")}
                inner = {key: row for key, row in inner.items() if key not in fields}
                title = f"Keys of ``[{own}]`` and keywords of :class:`lenslet.System`."
                lines += table(name, title, inner, "SystemKeywords, total=False")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write or check the module."""
    target = Path(__file__).parent / "lenslet" / "_keywords.py"
    wanted = text()
    if "--check" in sys.argv[1:]:
        if target.read_text(encoding="utf-8") != wanted:
            print(f"{target} is not what the keys of the files give: run python python/keywords.py", file=sys.stderr)
            return 1
        return 0
    target.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
