"""Keeps docstrings and the documentation of the Rust library the same where both describe the same thing.

``python python/docstrings.py --check`` fails where a docstring does not begin with the sentence of its counterpart;
``--write`` puts that sentence in place of the first one. Counterparts are fields and types of the Rust library, by
their documentation comments, and keys of system and sample files, by the texts of ``lenslet/_keywords.py``. What
follows the sentence is the docstring's own.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python" / "lenslet"
WIDTH = 120

#: First sentences of classes: the class, and the file and item of Rust.
CLASSES = {
    "_data:Coordinate": "src/data/coordinate.rs:Coordinate",
    "_data:DataSet": "src/data/data_set.rs:DataSet",
    "_data:Variable": "src/data/variable.rs:Variable",
    "_plan:Plan": "src/plan.rs:Plan",
    "_results:Covariance": "src/turbulence/plan.rs:Covariances",
    "_results:Estimate": "src/estimation/estimate.rs:Estimates",
    "_results:Micrographs": "src/electrons/hrtem/plan.rs:HrtemImages",
    "_results:ProfileFit": "src/profiling/fit.rs:Learned",
    "_results:Parameter": "src/profiling/fit.rs:LearnedValue",
    "_results:Psf": "src/psf/plan.rs:PsfResult",
    "_results:Reconstructor": "src/tomography/reconstructor.rs:Reconstruction",
    "_results:Simulation": "src/estimation/simulation.rs:Simulated",
}
#: Entries of sections: the class or method and the name of the entry, and the file and field of Rust.
FIELDS = {
    "_results:Estimate": {
        name: f"src/estimation/estimate.rs:Estimates.{name}" for name in ("iterations", "residual", "chi_squared")
    },
    "_system:System.covariance": {
        name: f"src/turbulence/plan.rs:CovarianceOptions.{name}" for name in ("form", "method", "slopes_only")
    },
    "_system:System.estimate": {
        name: f"src/estimation/estimate.rs:EstimateOptions.{name}"
        for name in (
            "method",
            "form",
            "exact",
            "interpolation",
            "filter",
            "solver",
            "preconditioned",
            "tolerance",
            "iterations",
        )
    },
    "_system:System.estimator": {"frames": "src/estimation/estimate.rs:EstimateOptions.frames"},
    "_system:System.fit_profile": {name: f"src/profiling/fit.rs:LearnOptions.{name}" for name in ("fit", "steps")},
    "_system:System.reconstructor": {"covariances": "src/tomography/reconstructor.rs:ReconstructorOptions.keep"},
    "_system:System.simulate": {
        name: f"src/estimation/simulation.rs:SimulationOptions.{name}" for name in ("frames", "seed")
    },
}
#: Entries of sections that are keys of a file: the method and the name of the entry, and the dictionary of keywords.
KEYS = {
    "_system:System.psf": dict.fromkeys(
        ("wavelengths", "pixel", "pixels", "terms", "structure", "extra", "jitter", "ensquared"), "ImageKeywords"
    ),
    "_system:System.reconstructor": dict.fromkeys(
        ("to", "method", "filter", "delay", "predict", "errors_only", "tolerance"), "ReconstructorKeywords"
    ),
}


class Missing(Exception):
    """Something that a table of this script names and that there is not."""


def sentence(text: str) -> str:
    """The first sentence of a text, with its full stop."""
    found = re.match(r".*?[.!?](?=\s|$)", text, re.S)
    return " ".join((found[0] if found else f"{text}.").split())


def rust(place: str) -> str:
    """The first sentence of the documentation of ``file:Type`` or ``file:Type.field``, in the markup of docstrings."""
    file, _, path = place.partition(":")
    name, _, member = path.partition(".")
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    kinds = rf"pub (?:struct|enum|trait) {name}\b"
    start = next((k for k, line in enumerate(lines) if re.match(kinds, line)), None)
    if start is not None and member:
        end = next(k for k in range(start, len(lines)) if lines[k].startswith("}"))
        start = next((k for k in range(start, end) if re.match(rf"    pub {member}:", lines[k])), None)
    if start is None:
        raise Missing(f"{file} has no {path}")
    comment: list[str] = []
    for line in reversed(lines[:start]):
        stripped = line.strip()
        if stripped.startswith("///"):
            comment.insert(0, stripped[3:].strip())
        elif not stripped.startswith("#["):
            break
    return sentence(from_markdown("\n".join(comment)))


def from_markdown(text: str) -> str:
    """Markdown of rustdoc in the markup of docstrings, without links and numbers of equations."""
    text = re.sub(r",? (?:of |by )?Eq\. \[[^\]]*\](?:\([^)]*\))?", "", text)
    text = re.sub(r"\[(`?)([^\]]*)\1\]\([^)]*\)", r"\1\2\1", text)
    text = re.sub(r"(?<!\\)\[(`[^`]*`)\]", r"\1", text)
    text = text.replace("\\[", "[").replace("\\]", "]")
    return re.sub(r"`([^`]+)`", r"``\1``", text)


def key(table: str, name: str) -> str:
    """The text of a keyword, from its table and the tables that this one is made of."""
    tree = ast.parse((PACKAGE / "_keywords.py").read_text(encoding="utf-8"))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    for one in classes[table].body if table in classes else []:
        if isinstance(one, ast.AnnAssign) and ast.unparse(one.target) == name:
            after = classes[table].body[classes[table].body.index(one) + 1]
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                text = from_markdown(" ".join(str(after.value.value).split()))
                return f"{text[:1].upper()}{text[1:].removesuffix('.')}."
    raise Missing(f"python/lenslet/_keywords.py has no {table}.{name}")


@dataclass
class Place:
    """The lines of a module that hold one text: the first, and the one after the last, from 0."""

    start: int
    end: int
    indent: str
    text: str


class Module:
    """A module of the package whose docstrings are read and changed."""

    def __init__(self, name: str) -> None:
        self.path = PACKAGE / f"{name}.py"
        self.lines = self.path.read_text(encoding="utf-8").splitlines()

    def docstring(self, path: str) -> ast.Constant:
        """The docstring of a class or a method."""
        nodes: list[ast.stmt] = ast.parse("\n".join(self.lines)).body
        node: ast.stmt | None = None
        for name in path.split("."):
            node = next(
                (one for one in nodes if isinstance(one, (ast.ClassDef, ast.FunctionDef)) and one.name == name), None
            )
            nodes = node.body if isinstance(node, (ast.ClassDef, ast.FunctionDef)) else []
        first = nodes[0] if nodes else None
        if not isinstance(first, ast.Expr) or not isinstance(first.value, ast.Constant):
            raise Missing(f"python/lenslet/{self.path.name} has no docstring of {path}")
        return first.value

    def summary(self, path: str) -> Place:
        """The first paragraph of a docstring."""
        node = self.docstring(path)
        start = node.lineno - 1
        end = start
        while end < (node.end_lineno or 0) and self.lines[end].strip() not in ("", '"""'):
            end += 1
        text = " ".join(line.strip() for line in self.lines[start:end])
        return Place(start, end, " " * node.col_offset, text.removeprefix('"""').removesuffix('"""'))

    def entry(self, path: str, name: str) -> Place:
        """The text of an entry of a section."""
        node = self.docstring(path)
        indent = " " * node.col_offset
        last = (node.end_lineno or 0) - 1
        heads = [k for k in range(node.lineno, last) if re.match(rf"{indent}{re.escape(name)}( :|$)", self.lines[k])]
        if not heads:
            raise Missing(f"the docstring of {path} in python/lenslet/{self.path.name} has no entry {name}")
        end = start = heads[0] + 1
        while end < last and self.lines[end].startswith(f"{indent}    "):
            end += 1
        return Place(start, end, f"{indent}    ", " ".join(line.strip() for line in self.lines[start:end]))

    def replace(self, place: Place, text: str, opening: bool) -> None:
        """Put a text in place of another."""
        quotes = '"""' if opening else ""
        closed = opening and self.lines[place.end - 1].rstrip().endswith('"""')
        wrapper = textwrap.TextWrapper(
            width=WIDTH,
            initial_indent=place.indent,
            subsequent_indent=place.indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        self.lines[place.start : place.end] = wrapper.wrap(f"{quotes}{text}{quotes if closed else ''}")

    def save(self) -> None:
        """Write the module."""
        self.path.write_text("\n".join(self.lines) + "\n", encoding="utf-8")


def wanted() -> list[tuple[str, str | None, str]]:
    """All pairs: the class or method, the entry or nothing for the summary, and the sentence."""
    pairs: list[tuple[str, str | None, str]] = [(path, None, rust(place)) for path, place in CLASSES.items()]
    pairs += [(path, name, rust(place)) for path, fields in FIELDS.items() for name, place in fields.items()]
    pairs += [(path, name, key(table, name)) for path, keys in KEYS.items() for name, table in keys.items()]
    return pairs


def differences(write: bool) -> list[str]:
    """What differs; with ``write`` it is corrected."""
    found = []
    for path, name, text in wanted():
        file, _, item = path.partition(":")
        module = Module(file)
        place = module.summary(item) if name is None else module.entry(item, name)
        if f"{place.text} ".startswith(f"{text} "):
            continue
        where = f"python/lenslet/{file}.py:{place.start + 1}: {item}{'' if name is None else f', {name}'}"
        found.append(f"{where}: expected to begin with: {text}")
        if write:
            first = sentence(place.text)
            rest = place.text.removeprefix(first).strip() if place.text.startswith(first) else ""
            module.replace(place, f"{text} {rest}".strip(), name is None)
            module.save()
    return found


def main() -> int:
    """Check or write the docstrings."""
    arguments = sys.argv[1:]
    if arguments not in (["--check"], ["--write"]):
        print("usage: python python/docstrings.py --check | --write", file=sys.stderr)
        return 2
    try:
        found = differences(arguments == ["--write"])
    except Missing as missing:
        print(f"{missing}: correct the tables in python/docstrings.py", file=sys.stderr)
        return 1
    if arguments == ["--write"]:
        return 0
    for line in found:
        print(line, file=sys.stderr)
    if found:
        print("run python python/docstrings.py --write, or improve the documentation in Rust", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
