"""Pages of the viewer, decoded by NumPy and zlib."""

from __future__ import annotations

import base64
import json
import re
import webbrowser
import zlib
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import lenslet as ls
import numpy as np
import pytest

BAD = "</script><script>alert(\"1\")</script><!-- '&quot;' ]]>"
TYPES = {"f64": "<f8", "f32": "<f4", "i32": "<i4", "u8": "<u1", "u16": "<u2"}


def manifest(page: ls.Page) -> dict[str, Any]:
    """What the page says of its files."""
    text = re.search(r'<script type="application/json" id="lenslet-manifest">(.*?)</script>', page.html, re.DOTALL)
    assert text is not None
    found: dict[str, Any] = json.loads(text.group(1))
    return found


def decoded(page: ls.Page, name: str, file: int = 0) -> tuple[dict[str, Any], Any]:
    """Entry and numbers of an array of the page."""
    texts = dict(re.findall(r'<script type="application/octet-stream;base64" id="(p\d+)">(.*?)</script>', page.html))
    variables = manifest(page)["files"][file]["variables"]
    values = next(one["values"] for one in variables if one["name"] == name)
    kind = np.dtype(TYPES[values["encoding"]])
    components = 2 if values["type"] in ("c32", "c64") else 1
    numbers = []
    for part in values["parts"]:
        shuffled = np.frombuffer(zlib.decompress(base64.b64decode(texts[part["id"]], validate=True)), np.uint8)
        count = part["count"] * components
        found = np.ascontiguousarray(shuffled.reshape(kind.itemsize, count).T).view(kind)[:, 0].astype(float)
        if "law" in part:
            codes = found
            found = part["offset"] + part["step"] * codes
            if part["law"] == "log":
                found = np.where(codes == 65534, 0.0, np.exp(found))
            found = np.where(codes == 65535, np.nan, found)
        numbers.append(found)
    flat = np.concatenate([np.zeros(0), *numbers])
    if components == 2:
        flat = flat[::2] + 1j * flat[1::2]
    return values, flat.reshape(values["shape"])


class Elements(HTMLParser):
    """Names of the elements of a page, and attributes of the frames."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.frames: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        if tag == "iframe":
            self.frames.append(dict(attrs))


def elements(html: str) -> Elements:
    parser = Elements()
    parser.feed(html)
    return parser


def example() -> ls.DataSet:
    random = np.random.default_rng(3)
    x = ls.Coordinate("x", "Å", "uniform", (-1.5, 0.5), navigation=True)
    return ls.DataSet.from_arrays(
        {
            "map": ls.Variable("map", random.normal(size=(3, 4)), (ls.Coordinate("y"), x), "rad2", "a map", {"k": 7}),
            "single": random.normal(size=(2, 3, 4)).astype(np.float32),
            "wave": random.normal(size=(3, 5)) + 1j * random.normal(size=(3, 5)),
            "counts": np.arange(5),
            "valid": np.array([[True, False], [False, True]]),
            "turned": random.normal(size=(4, 3)).T,
            "gaps": np.array([1.0, np.nan, np.inf]),
            "text": "r0 = 0.15",
            "table": ls.Variable(
                "table", {"star": (np.arange(2, dtype=np.int32), ""), "r": (np.array([0.5, np.nan]), "m")}
            ),
        },
        seed=7,
    )


class TestPage:
    def test_exact_arrays(self) -> None:
        data = example()
        page = data.view()
        assert page.reduced == {}
        assert page.title == "DataSet"
        for name in ["map", "single", "wave", "counts", "valid", "turned", "gaps"]:
            values, numbers = decoded(page, name)
            np.testing.assert_array_equal(numbers, data[name])
            assert values["error"] == {"absolute": 0, "relative": 0}
        file = manifest(page)["files"][0]
        assert file["attributes"] == {"seed": 7}
        variables = {one["name"]: one for one in file["variables"]}
        assert (variables["map"]["unit"], variables["map"]["longName"]) == ("rad2", "a map")
        y, x = variables["map"]["values"]["dimensions"]
        assert (y["name"], y["positions"], x["unit"], x["navigation"]) == ("y", {"kind": "index"}, "Å", True)
        assert x["positions"] == {"kind": "uniform", "offset": -1.5, "step": 0.5}
        assert variables["text"]["values"] == {"kind": "text", "text": "r0 = 0.15"}
        assert [one["values"] for one in variables["table"]["values"]["columns"]] == [[0, 1], [0.5, None]]
        assert variables["counts"]["values"]["samples"] == [0, 1, 2, 3, 4]

    def test_reduced_arrays_keep_to_their_errors(self) -> None:
        random = np.random.default_rng(5)
        image = np.exp(random.normal(size=(8, 200, 200), scale=3.0))
        page = ls.view(image, limit=1)
        values, numbers = decoded(page, "array")
        assert (values["encoding"], values["parts"][0]["law"]) == ("u16", "log")
        assert np.abs(numbers - image).max() <= 1.001 * values["error"]["absolute"] < 1e-3 * image.max()
        steps = [part["step"] for part in values["parts"]]
        assert np.abs(numbers / image - 1).max() <= 0.501 * max(steps) < 3e-4
        assert page.reduced["array"].startswith("stored in 16 bits (error at most ")
        wave = image[:2] * np.exp(1j * image[:2])
        values, numbers = decoded(ls.view(wave, limit=1), "array")
        assert np.abs(numbers - wave).max() <= 1.001 * values["error"]["absolute"] < 1e-4 * np.abs(wave).max()

    def test_averaged_patterns_have_sums_over_rings(self) -> None:
        q = [ls.Coordinate(name, "1/Å", "uniform", (-3.2, 0.05)) for name in ("qx", "qy")]
        scan = [ls.Coordinate(name, "Å", "uniform", (0.0, 0.5), navigation=True) for name in ("x", "y")]
        patterns = np.random.default_rng(9).random((12, 7, 128, 128), dtype=np.float32)
        page = ls.DataSet.from_arrays({"four_d": ls.Variable("four_d", patterns, (*scan, *q))}).view(limit=1)
        values, numbers = decoded(page, "four_d")
        blocks = patterns.reshape(12, 7, 64, 2, 64, 2).mean(axis=(3, 5), dtype=float)
        assert values["binning"] == [1, 1, 2, 2]
        assert np.abs(numbers - blocks).max() <= 1.001 * values["error"]["absolute"] < 1e-4
        values, sums = decoded(page, "four_d_rings")
        axis = -3.2 + 0.05 * np.arange(128)
        ring = np.floor(np.hypot(axis[:, None], axis) / 0.05 + 1e-9).astype(int)
        expected = np.array([np.bincount(ring.ravel(), one.ravel()) for one in patterns.reshape(-1, 128, 128)])
        np.testing.assert_allclose(sums.reshape(expected.shape), expected, rtol=1e-6)
        assert values["derivedFrom"] == "four_d"
        assert values["dimensions"][2]["positions"] == {"kind": "uniform", "offset": 0.025, "step": 0.05}

    def test_texts_never_become_markup(self) -> None:
        plain = elements(example().view().html).names
        data = ls.DataSet.from_arrays(
            {
                **{name: one for name, one in example().variables.items() if name not in ("map", "text")},
                "map": ls.Variable("map", np.ones((2, 2)), (), BAD, BAD, {"note": BAD}),
                "text": BAD,
            },
            seed=BAD,
        )
        page = data.view(title=BAD)
        assert elements(page.html).names == plain
        file = manifest(page)["files"][0]
        assert file["attributes"]["seed"] == BAD
        assert next(one for one in file["variables"] if one["name"] == "text")["values"]["text"] == BAD

    def test_a_page_asks_for_nothing_outside(self) -> None:
        html = example().view().html
        assert re.findall(r"""(?:src|href|action)\s*=\s*["']?(?:https?:)?//""", html) == []
        assert re.findall(r"url\(\s*[\"']?(?:https?:)?//|@import", html) == []
        assert "default-src 'none'" in html


class TestNotebook:
    def test_frame_holds_the_whole_page(self) -> None:
        page = example().view(title=BAD, height=400)
        found = elements(page._repr_html_())
        assert found.names == ["iframe"]
        frame = found.frames[0]
        assert frame["srcdoc"] == page.html
        assert frame["sandbox"] == "allow-scripts allow-downloads"
        assert frame["title"] == BAD
        assert frame["style"] is not None
        assert "height:400px" in frame["style"]

    def test_results_show_themselves(self, tiny: ls.System, silicon: ls.Sample) -> None:
        psf = tiny.psf()
        page = psf.view()
        np.testing.assert_array_equal(decoded(page, "psf")[1], psf["psf"])
        scan = silicon.stem()
        np.testing.assert_array_equal(decoded(scan.view(), "annular")[1], scan["annular"])
        both = psf.view(psf, np.ones((2, 2)))
        assert [one["name"] for one in manifest(both)["files"]] == ["Psf 1", "Psf 2", "array"]
        assert both.title == "Psf 1, Psf 2, array"


class TestFiles:
    def test_files_of_all_formats(self, tmp_path: Path) -> None:
        data = ls.DataSet.from_arrays({"map": np.arange(12.0).reshape(3, 4)})
        names = [f"map.{ending}" for ending in ("npz", "npy", "fits", "h5", "zarr", "zarr.zip")]
        for name in names:
            data.save(tmp_path / name)
        page = ls.view(*(tmp_path / name for name in names))
        assert page.title == ", ".join(names)
        for k in range(len(names)):
            np.testing.assert_array_equal(decoded(page, "map", k)[1], data.map)

    def test_pages_are_saved_whole(self, tmp_path: Path) -> None:
        page = example().view()
        path = tmp_path / "page.html"
        path.write_text("old")
        assert page.save(path) == path.stat().st_size
        assert path.read_text(encoding="utf-8") == page.html
        assert [one.name for one in tmp_path.iterdir()] == ["page.html"]
        with pytest.raises(ls.FileError, match="cannot write"):
            page.save(tmp_path / "absent" / "page.html")
        with pytest.raises(ls.InputError, match=r"ends in \.html"):
            page.save(tmp_path / "page.npz")

    def test_browser_gets_a_file(self, monkeypatch: pytest.MonkeyPatch) -> None:
        page = example().view()
        asked: list[str] = []

        def accept(url: str) -> bool:
            asked.append(url)
            return True

        monkeypatch.setattr(webbrowser, "open", accept)
        path = page.open()
        assert asked == [path.as_uri()]
        assert path.read_text(encoding="utf-8") == page.html
        monkeypatch.setattr(webbrowser, "open", lambda url: False)
        with pytest.warns(ls.LensletWarning, match="no browser"):
            page.open()


class TestRefusals:
    def test_what_has_no_page(self, tmp_path: Path) -> None:
        refused: list[tuple[Callable[[], object], str]] = [
            (lambda: ls.view(), "what = nothing"),
            (lambda: ls.view(np.ones(3), limit=0.5), "limit = 0.5"),
            (lambda: ls.view(np.ones(3), limit=float("nan")), "limit"),
            (lambda: ls.view(np.ones(3), height=10), "height = 10"),
            (lambda: ls.view(np.ones(3), title=7), "title = 7"),  # type: ignore[arg-type]
            (lambda: ls.view(np.array(["a"])), "array"),
            (lambda: ls.view("notes.txt"), "ends in"),
        ]
        for call, words in refused:
            with pytest.raises(ls.InputError, match=words):
                call()
        with pytest.raises(ls.FileError, match=r"absent\.npz"):
            ls.view(tmp_path / "absent.npz")
        (tmp_path / "bad.fits").write_bytes(b"SIMPLE  =   and no more")
        with pytest.raises(ls.FileError, match=r"bad\.fits"):
            ls.view(tmp_path / "bad.fits")
