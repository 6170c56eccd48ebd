"""Writes the book's reference of the Python package, ``book/src/python-api*.md``, from signatures and docstrings.

``python python/reference.py`` writes the pages; ``--check`` fails where they are not what the sources give. Nothing of
the package is imported: its modules are parsed, so that no compiled module and no other package is needed.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python" / "lenslet"
BOOK = ROOT / "book" / "src"
#: Sections of a docstring, in the order in which the pages show them.
SECTIONS = (
    "Parameters",
    "Other Parameters",
    "Attributes",
    "Returns",
    "Yields",
    "Raises",
    "Warns",
    "Notes",
    "See Also",
    "References",
    "Examples",
)
#: Methods with two underscores that users call by an operator.
OPERATORS = ("__call__", "__matmul__", "__getitem__")


@dataclass(frozen=True)
class Group:
    """A page: file, title, what it says first, and its items as ``module:name``."""

    file: str
    title: str
    opening: str
    items: tuple[str, ...]


GROUPS = (
    Group(
        "python-api-system",
        "Adaptive-optics systems in Python",
        "A `System` is made of keywords, of a system file, or of a file of another program. Its methods compute; "
        "each has a twin that ends in `_plan` and returns a [plan](python-api-plans.md) with memory and time "
        "instead. [Python](python.md) has a first program.",
        ("_system:System", "_system:Estimator"),
    ),
    Group(
        "python-api-sample",
        "Electron-microscope samples in Python",
        "A `Sample` is a specimen and the microscope that images it. The [sample file](sample-file.md) has the same"
        " keys.",
        ("_sample:Sample",),
    ),
    Group(
        "python-api-results",
        "Results in Python",
        "Each result is a [data set](python-api-data.md#DataSet) with the arrays that its class lists, and keeps "
        "the `System` or `Sample` that it was computed of. All methods of data sets work for it: `save`, `plot`, "
        "`to_xarray`.",
        (
            "_results:Covariance",
            "_results:Reconstructor",
            "_device:DeviceReconstructor",
            "_results:Estimate",
            "_results:Simulation",
            "_results:Psf",
            "_results:ProfileFit",
            "_results:Parameter",
            "_results:SampleResult",
            "_results:Scan",
            "_results:Micrographs",
        ),
    ),
    Group(
        "python-api-data",
        "Data sets in Python",
        "A data set has named arrays with dimensions, coordinates and units. `load` reads one from any file that "
        "Lenslet writes, and `view` shows several in a notebook or a browser.",
        (
            "_data:DataSet",
            "_data:Variable",
            "_data:Coordinate",
            "_data:Table",
            "_data:load",
            "_view:view",
            "_view:Page",
        ),
    ),
    Group(
        "python-api-plans",
        "Plans, errors and the command in Python",
        "A plan describes a computation before it runs. All exceptions have `LensletError` as their base, and an "
        "exception of Python's own.",
        (
            "_plan:Plan",
            "_plan:Progress",
            "errors:LensletError",
            "errors:InputError",
            "errors:FileError",
            "errors:DeviceError",
            "errors:OutOfMemoryError",
            "errors:ComputationError",
            "errors:ConvergenceError",
            "errors:CancelledError",
            "errors:LensletWarning",
            "cli:main",
        ),
    ),
    Group(
        "python-api-dask",
        "Dask arrays in Python",
        "The module `lenslet.dask` computes with [Dask](dask.md), on one machine or several. Install it by `pip "
        'install "lenslet[dask]"`.',
        ("dask:*",),
    ),
    Group(
        "python-api-keywords",
        "Keywords of systems and samples in Python",
        "The keywords of `System` and `Sample` are the keys of the [system file](system-file.md) and of the [sample"
        " file](sample-file.md). A table of a file is a dictionary, and a list of tables a list of dictionaries. "
        "The energy of electrons is in eV.",
        ("_keywords:*",),
    ),
)


@dataclass
class Entry:
    """A parameter, an attribute, a result or an exception in a docstring."""

    name: str
    kind: str
    text: str


@dataclass
class Docstring:
    """A docstring by its sections."""

    summary: str = ""
    body: str = ""
    entries: dict[str, list[Entry]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)


def parse(text: str | None) -> Docstring:
    """The sections of a NumPy-style docstring."""
    lines = (text or "").expandtabs().splitlines()
    heads = [k for k, line in enumerate(lines[:-1]) if line in SECTIONS and set(lines[k + 1]) == {"-"}]
    first = lines[: heads[0]] if heads else lines
    paragraphs = "\n".join(first).strip().split("\n\n", 1)
    found = Docstring(" ".join(paragraphs[0].split()), paragraphs[1].strip() if len(paragraphs) > 1 else "")
    for k, head in enumerate(heads):
        end = heads[k + 1] if k + 1 < len(heads) else len(lines)
        inside = lines[head + 2 : end]
        if lines[head] in ("Notes", "Examples", "See Also", "References"):
            found.texts[lines[head]] = "\n".join(inside).strip()
        else:
            found.entries[lines[head]] = list(entries(inside, lines[head]))
    return found


def entries(lines: list[str], section: str) -> Iterator[Entry]:
    """The entries of a section: a line at the margin, and the lines below that are further in."""
    heads = [k for k, line in enumerate(lines) if line and not line.startswith(" ")]
    for head, end in zip(heads, [*heads[1:], len(lines)], strict=True):
        name, _, kind = lines[head].partition(" : ")
        if section in ("Returns", "Yields") and not kind:
            name, kind = "", name
        yield Entry(name.strip(), kind.strip(), " ".join(" ".join(lines[head + 1 : end]).split()))


@dataclass
class Item:
    """A class, function or constant of the package."""

    module: str
    name: str
    node: ast.stmt
    docstring: Docstring

    @property
    def members(self) -> list[ast.FunctionDef]:
        """Public methods and properties with a docstring, without properties that are listed as attributes."""
        listed = {entry.name for entry in self.docstring.entries.get("Attributes", [])}
        body = self.node.body if isinstance(self.node, ast.ClassDef) else []
        functions = [one for one in body if isinstance(one, ast.FunctionDef)]
        return [
            one
            for one in functions
            if (not one.name.startswith("_") or one.name in OPERATORS)
            and ast.get_docstring(one)
            and not (is_property(one) and one.name in listed)
            and "overload" not in decorators(one)
        ]


def module(name: str) -> ast.Module:
    """The parsed source of a module of the package."""
    return ast.parse((PACKAGE / f"{name}.py").read_text(encoding="utf-8"), f"{name}.py")


def load(path: str) -> list[Item]:
    """The items of ``module:name``, or all public ones of ``module:*``."""
    name, wanted = path.split(":")
    if wanted == "*" and not (PACKAGE / f"{name}.py").is_file():
        return []
    tree = module(name)
    found = []
    for node in tree.body:
        if (
            isinstance(node, (ast.ClassDef, ast.FunctionDef))
            and wanted in (node.name, "*")
            and not node.name.startswith("_")
            and "overload" not in {ast.unparse(one) for one in node.decorator_list}
        ):
            found.append(Item(name, node.name, node, parse(ast.get_docstring(node))))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == wanted:
            found.append(Item(name, wanted, node, parse(comment_above(name, node.lineno))))
    if not found:
        raise SystemExit(f"python/lenslet/{name}.py has no {wanted}: correct GROUPS in python/reference.py")
    return found


def package(name: str) -> str:
    """What a module is imported as: private ones are parts of the package."""
    return "lenslet" if name.startswith("_") else f"lenslet.{name}"


def comment_above(name: str, line: int) -> str:
    """The comment ``#: …`` above a line."""
    lines = (PACKAGE / f"{name}.py").read_text(encoding="utf-8").splitlines()[: line - 1]
    found: list[str] = []
    while lines and lines[-1].startswith("#:"):
        found.insert(0, lines.pop()[2:].strip())
    return " ".join(found)


class Pages:
    """Writes the pages, with links between them."""

    def __init__(self) -> None:
        self.items = {group.file: [item for path in group.items for item in load(path)] for group in GROUPS}
        self.items = {file: items for file, items in self.items.items() if items}
        #: Page and anchor of everything that has a heading.
        self.places: dict[str, tuple[str, str]] = {}
        for file, items in self.items.items():
            for item in items:
                self.places[item.name] = (file, item.name)
                for member in item.members:
                    self.places[f"{item.name}.{member.name}"] = (file, f"{item.name}.{member.name}")

    def all(self) -> dict[str, str]:
        """Texts of all pages by their files."""
        pages = {"python-api": self.contents()}
        for group in GROUPS:
            if group.file == "python-api-keywords":
                pages[group.file] = self.keywords(group)
            elif group.file in self.items:
                pages[group.file] = self.page(group)
        return {f"{file}.md": text for file, text in pages.items()}

    def contents(self) -> str:
        """The first page: all names with their summaries."""
        lines = [
            "# Python reference",
            "",
            "> Which classes and functions does the package `lenslet` have, and where are their parameters, units "
            "and errors described?",
            "",
            "These pages are written by `python/reference.py` from the signatures and docstrings of the package, "
            "which `help(lenslet.System)` shows, too. They show types in the notation of Python: `float | None` is "
            "a number that may be missing. Shapes are those of NumPy arrays; T counts targets, S guide stars, n "
            "slopes, N lenslets across, M points across a wavefront, W wavelengths. A unit in brackets belongs to "
            "the numbers before it.",
            "",
        ]
        for group in GROUPS:
            if group.file not in self.items:
                continue
            lines += [f"## [{group.title}]({group.file}.md)", ""]
            if group.file == "python-api-keywords":
                lines += [group.opening, ""]
                continue
            lines += ["| name | what it is or does |", "|---|---|"]
            for item in self.items[group.file]:
                lines.append(
                    f"| [`{item.name}`]({group.file}.md#{item.name}) | {self.cell(item.docstring.summary, item.name)} |"
                )
                for member in item.members:
                    name = f"{item.name}.{member.name}"
                    summary = parse(ast.get_docstring(member)).summary
                    lines.append(
                        f"| [`{shown(item.name, member)}`]({group.file}.md#{name}) | {self.cell(summary, item.name)} |"
                    )
            lines.append("")
        return "\n".join(lines).rstrip() + "\n"

    def page(self, group: Group) -> str:
        """The page of a group."""
        lines = [f"# {group.title}", "", group.opening, ""]
        for item in self.items[group.file]:
            lines += [f"## `{item.name}` {{#{item.name}}}", ""]
            if isinstance(item.node, ast.ClassDef):
                bases = [ast.unparse(base) for base in item.node.bases]
                lines += block("python", class_signature(item))
                inherited = [base for base in bases if base in self.places]
                if inherited:
                    lines += [f"A {', '.join(self.link(base) for base in inherited)}, with all of its methods.", ""]
            elif isinstance(item.node, ast.FunctionDef):
                lines += block("python", signature(f"{package(item.module)}.{item.name}", item.node))
            elif isinstance(item.node, ast.Assign):
                lines += block("python", f"{item.name} = {ast.unparse(item.node.value)}")
            function = item.node if isinstance(item.node, ast.FunctionDef) else None
            lines += self.body(item.docstring, item, function)
            lines += self.properties(item)
            for member in item.members:
                if not is_property(member):
                    lines += self.member(item, member)
        return "\n".join(lines).rstrip() + "\n"

    def member(self, item: Item, member: ast.FunctionDef) -> list[str]:
        """A method or a property."""
        name = f"{item.name}.{member.name}"
        lines = [f"### `{shown(item.name, member)}` {{#{name}}}", ""]
        kinds = decorators(member)
        owner = item.name if {"classmethod", "staticmethod"} & kinds else instance(item.name)
        lines += block("python", signature(f"{owner}.{member.name}", member))
        return lines + self.body(parse(ast.get_docstring(member)), item, member)

    def properties(self, item: Item) -> list[str]:
        """The table of the properties of a class."""
        rows = []
        for member in filter(is_property, item.members):
            text = parse(ast.get_docstring(member))
            place = f'<span id="{item.name}.{member.name}"></span>'
            kind = unparsed(member.returns) if member.returns else ""
            meaning = self.cell(" ".join(filter(None, (text.summary, text.body))), item.name)
            rows.append(f"| {place}`{member.name}` | {code(kind)} | {meaning} |")
        return ["| property | type | meaning |", "|---|---|---|", *rows, ""] if rows else []

    def body(self, text: Docstring, item: Item, function: ast.FunctionDef | None) -> list[str]:
        """What a docstring says, below the signature."""
        lines = [markdown(text.summary, self, item.name), ""]
        if text.body:
            lines += [markdown(text.body, self, item.name), ""]
        annotations = types(function)
        for section in SECTIONS:
            if section in text.entries:
                lines += self.table(section, text.entries[section], annotations, item.name)
            elif section == "Examples" and section in text.texts:
                lines += ["**Example**", "", *block("python", text.texts[section])]
            elif section in text.texts:
                label = (
                    "Source"
                    if section in ("Notes", "References") and re.search(r"\(\d{4}\)", text.texts[section])
                    else section
                )
                lines += [f"**{label}**: {markdown(text.texts[section], self, item.name)}", ""]
        return lines

    def table(self, section: str, entries: list[Entry], annotations: Mapping[str, str], owner: str) -> list[str]:
        """A table of parameters, attributes, results or exceptions."""
        if section in ("Raises", "Warns"):
            rows = [f"| {self.named(entry.name)} | {self.cell(entry.text, owner)} |" for entry in entries]
            return [f"| {section.lower()} | when |", "|---|---|", *rows, ""]
        if section in ("Returns", "Yields"):
            rows = [f"| {self.named(entry.kind)} | {self.cell(entry.text, owner)} |" for entry in entries]
            return [f"| {section.lower()} | meaning |", "|---|---|", *rows, ""]
        rows = []
        for entry in entries:
            names = ", ".join(f"`{name.strip()}`" for name in entry.name.split(","))
            alone = "" if "," in entry.name else annotations.get(entry.name.strip("* "), "")
            kind = entry.kind or alone
            kind = kind.removesuffix(", optional")
            typed = re.fullmatch(r"Unpack\[(\w+)\]", kind)
            shown_kind = self.link(typed[1]) if typed and typed[1] in self.places else code(kind)
            rows.append(f"| {names} | {shown_kind} | {self.cell(entry.text, owner)} |")
        head = {"Parameters": "parameter", "Other Parameters": "further parameter", "Attributes": "attribute"}[section]
        return [f"| {head} | type | meaning |", "|---|---|---|", *rows, ""]

    def keywords(self, group: Group) -> str:
        """The page of all keywords, a table for each dictionary."""
        lines = [f"# {group.title}", "", group.opening, ""]
        for item in self.items[group.file]:
            lines += [f"## `{item.name}` {{#{item.name}}}", "", markdown(item.docstring.summary, self, ""), ""]
            rows = list(fields(item))
            if rows:
                lines += ["| keyword | type | meaning |", "|---|---|---|"]
                for name, kind, text in rows:
                    lines.append(
                        f"| `{name}` | {self.linked_type(kind)} | {self.cell(text[:1].upper() + text[1:], '')} |"
                    )
                lines.append("")
            own = [ast.unparse(base) for base in item.node.bases] if isinstance(item.node, ast.ClassDef) else []
            bases = [base for base in own if base in self.places]
            if bases:
                lines += [f"And the keywords of {', '.join(self.link(base) for base in bases)}.", ""]
        return "\n".join(lines).rstrip() + "\n"

    def linked_type(self, kind: str) -> str:
        """A type, and behind it a link to the table of a dictionary."""
        kind = kind.removesuffix(" | None")
        names = [name for name in re.findall(r"\b[A-Z]\w+\b", kind) if name in self.places]
        return " ".join([code(kind), *(f"([keys](#{name}))" for name in names)])

    def cell(self, text: str, owner: str) -> str:
        """Text in a cell of a table."""
        return markdown(text, self, owner).replace("\n", " ").replace("|", "\\|")

    def named(self, text: str) -> str:
        """A type, with a link if the whole of it has a heading."""
        return self.link(text) if text in self.places else code(text)

    def link(self, name: str) -> str:
        """The link to something that has a heading."""
        file, anchor = self.places[name]
        return f"[`{name}`]({file}.md#{anchor})"


def shown(owner: str, member: ast.FunctionDef) -> str:
    """The name of a member as it is used."""
    one = instance(owner)
    forms = {"__call__": f"{one}(…)", "__matmul__": f"{one} @ …", "__getitem__": f"{one}[…]"}
    return forms.get(member.name, f"{owner}.{member.name}")


def instance(name: str) -> str:
    """The name of an object of a class: ``device_reconstructor`` of ``DeviceReconstructor``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def is_property(function: ast.FunctionDef) -> bool:
    """Whether a function is read as an attribute."""
    return "property" in decorators(function)


def unparsed(node: ast.AST) -> str:
    """Source of an expression, with double quotes."""
    text = ast.unparse(node)
    return text if '"' in text else text.replace("'", '"')


def decorators(function: ast.FunctionDef) -> set[str]:
    """The names of the decorators of a function."""
    return {ast.unparse(one) for one in function.decorator_list}


def signature(name: str, function: ast.FunctionDef, drop_first: bool | None = None) -> str:
    """A function with its parameters, each on a line of its own where they do not fit on one."""
    arguments = function.args
    dropped = "." in name and not name.startswith("lenslet.") if drop_first is None else drop_first
    if "staticmethod" in decorators(function):
        dropped = False
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + list(arguments.defaults)
    parts = [one(argument, default) for argument, default in zip(plain, defaults, strict=True)]
    if arguments.posonlyargs:
        parts.insert(len(arguments.posonlyargs), "/")
    parts = parts[1:] if dropped and plain else parts
    if arguments.vararg:
        parts.append(f"*{one(arguments.vararg, None)}")
    elif arguments.kwonlyargs:
        parts.append("*")
    parts += [
        one(argument, default) for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    if arguments.kwarg:
        parts.append(f"**{one(arguments.kwarg, None)}")
    parts = parts[1:] if parts[:1] == ["/"] else parts
    result = f" -> {unparsed(function.returns)}" if function.returns else ""
    for operator, form in (("__call__", "("), ("__matmul__", " @ "), ("__getitem__", "[")):
        if name.endswith(f".{operator}"):
            name = name.removesuffix(f".{operator}")
            if form != "(":
                closing = "]" if form == "[" else ""
                return f"{name}{form}{parts[0].partition(':')[0]}{closing}{result}"
    short = f"{name}({', '.join(parts)}){result}"
    if len(short) <= 90:
        return short
    return "\n".join([f"{name}(", *(f"    {part}," if part != "*" else "    *," for part in parts), f"){result}"])


def one(argument: ast.arg, default: ast.expr | None) -> str:
    """A parameter with its type and its default."""
    text = argument.arg
    if argument.annotation is not None:
        text += f": {unparsed(argument.annotation)}"
    if default is not None:
        text += f"{' = ' if argument.annotation is not None else '='}{unparsed(default)}"
    return text


def class_signature(item: Item) -> str:
    """How an object is made: by the parameters of ``__init__``, or of the fields of a data class."""
    assert isinstance(item.node, ast.ClassDef)
    inits = [node for node in item.node.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    name = f"{package(item.module)}.{item.name}"
    if inits and not inits[0].args.args[1:] and not inits[0].args.kwarg and not inits[0].args.kwonlyargs:
        return f"class {name}"
    if inits and item.name != "Plan" and "Made by" not in item.docstring.body:
        inits[0].returns = None
        return "class " + signature(name, inits[0], drop_first=True)
    if any("dataclass" in ast.unparse(one) for one in item.node.decorator_list):
        members = [node for node in item.node.body if isinstance(node, ast.AnnAssign)]
        parts = [one(ast.arg(ast.unparse(node.target), node.annotation), node.value) for node in members]
        parts = [re.sub(r"field\(default_factory=(\w+)\)", r"\1()", part) for part in parts]
        short = f"class {name}({', '.join(parts)})"
        return short if len(short) <= 90 else "\n".join([f"class {name}(", *(f"    {part}," for part in parts), ")"])
    return f"class {name}"


def types(function: ast.FunctionDef | None) -> dict[str, str]:
    """The types of the parameters of a function."""
    if function is None:
        return {}
    arguments = function.args
    every = [
        *arguments.posonlyargs,
        *arguments.args,
        *arguments.kwonlyargs,
        *filter(None, (arguments.vararg, arguments.kwarg)),
    ]
    return {one.arg: unparsed(one.annotation) for one in every if one.annotation is not None}


def fields(item: Item) -> Iterator[tuple[str, str, str]]:
    """Name, type and documentation of the fields of a dictionary of keywords."""
    assert isinstance(item.node, ast.ClassDef)
    body = item.node.body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign):
            continue
        text = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            text = str(after.value.value)
        yield ast.unparse(node.target), unparsed(node.annotation), text


def code(text: str) -> str:
    """Text in code font; nothing for no text."""
    return f"`{text}`".replace("|", "\\|") if text else ""


def block(language: str, text: str) -> list[str]:
    """A fenced block, and an empty line."""
    return [f"```{language}", *text.splitlines(), "```", ""]


def markdown(text: str, pages: Pages, owner: str) -> str:
    """Markdown of the markup of a docstring."""

    def linked(match: re.Match[str]) -> str:
        target = match[2].removeprefix("~").removeprefix("lenslet.").removeprefix("errors.")
        for name in (f"{owner}.{target}", target):
            if name in pages.places:
                file, anchor = pages.places[name]
                return f"[`{target}`]({file}.md#{anchor})"
        return f"`{target}`"

    paragraphs = re.split(r"\n\n+", text.strip())
    parts = []
    for paragraph in paragraphs:
        pieces = re.split(r"(``[^`]+``|:\w+:`[^`]+`|`[^`]+`)", " ".join(paragraph.split()))
        for k, piece in enumerate(pieces):
            if piece.startswith("`"):
                pieces[k] = f"`{piece.strip('`')}`"
            elif re.fullmatch(r":(\w+):`([^`]+)`", piece):
                pieces[k] = re.sub(r":(\w+):`([^`]+)`", linked, piece)
            else:
                pieces[k] = piece.replace("<", "&lt;").replace("_", "\\_").replace("$", "\\$")
        parts.append("".join(pieces))
    return "\n\n".join(parts)


def main() -> int:
    """Write or check the pages."""
    pages = Pages().all()
    stale = {path.name for path in BOOK.glob("python-api*.md")} - set(pages)
    if "--check" in sys.argv[1:]:
        wrong = [
            name
            for name, text in pages.items()
            if not (BOOK / name).is_file() or (BOOK / name).read_text(encoding="utf-8") != text
        ]
        for name in sorted({*wrong, *stale}):
            print(f"book/src/{name} is not what the docstrings give: run python python/reference.py", file=sys.stderr)
        return 1 if wrong or stale else 0
    for name, text in pages.items():
        (BOOK / name).write_text(text, encoding="utf-8")
    for name in stale:
        (BOOK / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
