"""The scripts that write the reference and compare docstrings with the documentation in Rust."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent.parent

# Only while the scripts are imported: the folder also has the package's sources, without its compiled module.
sys.path.insert(0, str(FOLDER))
import docstrings  # noqa: E402
import reference  # noqa: E402

sys.path.remove(str(FOLDER))

DOCSTRING = """Slopes of stars
[rad].

More of ``them``.

Parameters
----------
slopes : array_like, shape (n,)
    Slopes,
    all of them.
device, precision
    As for :meth:`covariance`.
**keywords
    Others.

Returns
-------
Estimate
    ``wavefront``.

Examples
--------
>>> 1 + 1
2
"""


def test_sections_of_docstrings_are_parsed() -> None:
    """Entries have their name, type and text."""
    found = reference.parse(DOCSTRING)
    assert (found.summary, found.body) == ("Slopes of stars [rad].", "More of ``them``.")
    assert found.entries["Parameters"] == [
        reference.Entry("slopes", "array_like, shape (n,)", "Slopes, all of them."),
        reference.Entry("device, precision", "", "As for :meth:`covariance`."),
        reference.Entry("**keywords", "", "Others."),
    ]
    assert found.entries["Returns"] == [reference.Entry("", "Estimate", "``wavefront``.")]
    assert found.texts == {"Examples": ">>> 1 + 1\n2"}
    assert reference.parse(None) == reference.Docstring()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "def f(self, a, /, b: int = 1, *, c: str = 'x', **k: int) -> None: ...",
            's.f(a, /, b: int = 1, *, c: str = "x", **k: int) -> None',
        ),
        ("def f(self, *values): ...", "s.f(*values)"),
        ("def f(self, changes=None, /): ...", "s.f(changes=None, /)"),
        ("def f(self): ...", "s.f()"),
    ],
)
def test_signatures_are_those_of_the_source(source: str, expected: str) -> None:
    """Without ``self``, with markers of kinds of parameters."""
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    assert reference.signature("s.f", function) == expected


def test_operators_and_long_signatures() -> None:
    """A call and a product look as they are used; what is too long has a line for each parameter."""
    call = ast.parse("def __call__(self, slopes: int) -> str: ...").body[0]
    product = ast.parse("def __matmul__(self, slopes: int) -> str: ...").body[0]
    long = ast.parse(f"def f(self, {'a' * 60}: int, *, {'b' * 60}: int): ...").body[0]
    assert isinstance(call, ast.FunctionDef)
    assert isinstance(product, ast.FunctionDef)
    assert isinstance(long, ast.FunctionDef)
    assert reference.signature("r.__call__", call) == "r(slopes: int) -> str"
    assert reference.signature("r.__matmul__", product) == "r @ slopes -> str"
    assert reference.instance("DeviceReconstructor") == "device_reconstructor"
    assert reference.signature("s.f", long) == f"s.f(\n    {'a' * 60}: int,\n    *,\n    {'b' * 60}: int,\n)"


def test_markup_becomes_markdown() -> None:
    """Code, links and letters that Markdown would take for markup."""
    pages = reference.Pages()
    text = reference.markdown("``a_b`` of :meth:`covariance`, C_mm < $1\n\n:class:`numpy.ndarray`", pages, "System")
    link = "[`covariance`](python-api-system.md#System.covariance)"
    assert text == f"`a_b` of {link}, C\\_mm &lt; \\$1\n\n`numpy.ndarray`"


def test_all_public_names_are_on_a_page() -> None:
    """What ``lenslet`` exports has a heading."""
    exported = next(
        ast.literal_eval(node.value)
        for node in reference.module("__init__").body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    known = set(reference.Pages().places)
    assert set(exported) - known <= {"__version__", "errors", "threads", "dask"}


def test_sentences_of_rust_are_in_the_markup_of_docstrings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links and numbers of equations are left out, brackets of units kept."""
    source = (
        "/// A lens of Eq. [focus](https://a.b/c.html#d), with [`Lens::new`] and `f` \\[m\\]. More.\n"
        "#[derive(Debug)]\npub struct Lens {\n"
        "    /// Focal length,\n    /// in metres\n    pub focus: f64,\n}\n"
    )
    (tmp_path / "lens.rs").write_text(source, encoding="utf-8")
    monkeypatch.setattr(docstrings, "ROOT", tmp_path)
    assert docstrings.rust("lens.rs:Lens") == "A lens, with ``Lens::new`` and ``f`` [m]."
    assert docstrings.rust("lens.rs:Lens.focus") == "Focal length, in metres."
    for lost in ("lens.rs:Glass", "lens.rs:Lens.radius"):
        with pytest.raises(docstrings.Missing, match=r"lens\.rs has no"):
            docstrings.rust(lost)


def test_differences_are_found_and_corrected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first sentence is replaced, what follows it stays."""
    module = (
        'class Lens:\n    """A glass. It bends light."""\n\n    def bend(self, focus):\n        """Bend.\n\n'
        '        Parameters\n        ----------\n        focus : float\n            The focus. Not zero.\n        """\n'
    )
    (tmp_path / "_lens.py").write_text(module, encoding="utf-8")
    monkeypatch.setattr(docstrings, "PACKAGE", tmp_path)
    sentences = [("_lens:Lens", None, "A lens."), ("_lens:Lens.bend", "focus", "Focal length [m].")]
    monkeypatch.setattr(docstrings, "wanted", lambda: sentences)
    assert docstrings.differences(write=False) == [
        "python/lenslet/_lens.py:2: Lens: expected to begin with: A lens.",
        "python/lenslet/_lens.py:10: Lens.bend, focus: expected to begin with: Focal length [m].",
    ]
    assert (tmp_path / "_lens.py").read_text(encoding="utf-8") == module
    assert len(docstrings.differences(write=True)) == 2
    corrected = module.replace("A glass.", "A lens.").replace("The focus.", "Focal length [m].")
    assert (tmp_path / "_lens.py").read_text(encoding="utf-8") == corrected
    assert docstrings.differences(write=False) == []


def test_pages_and_docstrings_are_those_of_the_sources() -> None:
    """The committed pages and docstrings agree with what they are written from."""
    for name, text in reference.Pages().all().items():
        assert (reference.BOOK / name).read_text(encoding="utf-8") == text, f"{name}: run python python/reference.py"
    assert docstrings.differences(write=False) == []
