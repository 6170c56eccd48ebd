"""Input that makes no sense ends in an exception of the package or a TypeError: never in a panic, an abort or a hang."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import lenslet as ls
import numpy as np
import pytest
from conftest import SILICON, SYSTEMS, TINY

NOWHERE = "no/such/\x00file"


def recursive() -> list[Any]:
    """A list that holds itself."""
    endless: list[Any] = []
    endless.append(endless)
    return endless


def recursive_table() -> dict[str, Any]:
    """A dictionary that holds itself."""
    endless: dict[str, Any] = {}
    endless["zenith"] = endless
    return endless


def deep() -> list[Any]:
    """A list in lists, a hundred thousand deep."""
    outer: list[Any] = []
    for _ in range(100_000):
        outer = [outer]
    return outer


def forever() -> Iterator[float]:
    """A generator that breaks down."""
    yield 1.0
    raise RuntimeError("broken generator")


class Broken:
    """An object of which everything fails."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")


class Endless:
    """An object whose list is itself."""

    def tolist(self) -> Any:
        """Itself."""
        return self


HOSTILE: dict[str, Callable[[], Any]] = {
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "minus inf": lambda: float("-inf"),
    "minus zero": lambda: -0.0,
    "denormal": lambda: 5e-324,
    "largest": lambda: 1.7976931348623157e308,
    "huge integer": lambda: 10**400,
    "2^63": lambda: 2**63,
    "-2^63": lambda: -(2**63),
    "complex": lambda: 1 + 2j,
    "numpy nan": lambda: np.float32("nan"),
    "numpy complex": lambda: np.complex64(1j),
    "uint64": lambda: np.uint64(2**64 - 1),
    "datetime": lambda: np.datetime64("2026-01-01"),
    "fraction": lambda: Fraction(1, 3),
    "text": lambda: "text",
    "empty text": lambda: "",
    "surrogates": lambda: "\ud800",
    "nul": lambda: "a\x00b",
    "long text": lambda: "x" * 1_000_000,
    "bytes": lambda: b"bytes",
    "bytearray": lambda: bytearray(b"bytes"),
    "memoryview": lambda: memoryview(b"bytes"),
    "none in a list": lambda: [None],
    "empty list": list,
    "empty dictionary": dict,
    "empty array": lambda: np.zeros(0),
    "array without a shape": lambda: np.array(0.5),
    "object array": lambda: np.array([object()], dtype=object),
    "array of texts": lambda: np.array(["a"]),
    "structured array": lambda: np.zeros(2, dtype=[("a", "f8")]),
    "masked array": lambda: np.ma.masked_all(3),
    "recursion": recursive,
    "recursive table": recursive_table,
    "depth": deep,
    "generator": lambda: (k for k in range(3)),
    "broken generator": forever,
    "set": lambda: {1.0},
    "object": object,
    "class": lambda: int,
    "function": lambda: recursive,
    "broken": Broken,
    "endless": Endless,
    "keys that are no texts": lambda: {1: 2},
    "key with nul": lambda: {"\x00": 2},
    "key of surrogates": lambda: {"\ud800": 2},
    "key with dots": lambda: {"a.b[0]": 2},
    "path": lambda: Path(NOWHERE),
    "boolean": lambda: True,
}


def attempt(call: Callable[[], Any]) -> Exception | None:
    """The exception of a call, or none. Panics are no exceptions but BaseExceptions: they get through."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ls.LensletWarning)
        try:
            call()
        except (ls.LensletError, TypeError, UnicodeEncodeError) as failure:
            str(failure).encode("utf-8", "surrogatepass")
            return failure
        except RuntimeError as failure:
            # Errors of objects that were handed in come back as they are.
            assert str(failure).startswith(("no ", "broken generator")), failure
            return failure
    return None


@pytest.mark.parametrize("name", HOSTILE)
class TestKeywords:
    @pytest.mark.parametrize(
        "keyword",
        [
            "r0",
            "layers",
            "lenslets",
            "guide_stars",
            "targets",
            "image",
            "pupil",
            "slope_model",
            "spiders",
            "wavelength",
        ],
    )
    def test_systems(self, name: str, keyword: str) -> None:
        value = HOSTILE[name]()
        attempt(lambda: ls.System(**{**TINY, keyword: value}))
        attempt(lambda: ls.System(**TINY).replace(**{keyword: value}))

    @pytest.mark.parametrize("path", ["atmosphere.r0", "guide_star[0].noise", "target[1]", "atmosphere", "guide_star"])
    def test_replace_by_path(self, name: str, path: str) -> None:
        value = HOSTILE[name]()
        attempt(lambda: ls.System(**TINY).replace({path: value}))

    def test_paths(self, name: str) -> None:
        value = HOSTILE[name]()
        system = ls.System(**TINY)
        refused = [
            lambda: ls.System.from_file(value),
            lambda: ls.System.from_tiptop(value),
            lambda: ls.System.from_aot(value),
            lambda: ls.Sample.from_file(value),
            lambda: ls.load(value),
            lambda: system.read_slopes(value),
            lambda: ls.System.from_toml(value),
            lambda: ls.Sample.from_toml(value),
        ]
        for call in refused:
            if isinstance(value, (str, bytes, Path)) or not isinstance(value, int):
                assert attempt(call) is not None, f"{name} was accepted"

    def test_dictionaries(self, name: str) -> None:
        value = HOSTILE[name]()
        assert attempt(lambda: ls.System.from_dict(value)) is not None
        assert attempt(lambda: ls.System.from_dict({"atmosphere": value})) is not None
        assert attempt(lambda: ls.Sample.from_dict(value)) is not None
        assert attempt(lambda: ls.Sample.from_dict({"sample": value})) is not None

    def test_options(self, name: str) -> None:
        value = HOSTILE[name]()
        system = ls.System(**TINY)
        attempt(lambda: system.covariance_plan(method=value))
        attempt(lambda: system.covariance_plan(form=value))
        attempt(lambda: system.covariance_plan(device=value))
        attempt(lambda: system.covariance_plan(precision=value))
        attempt(lambda: system.reconstructor_plan(method=value))
        attempt(lambda: system.reconstructor_plan(filter=value))
        attempt(lambda: system.psf_plan(wavelengths=value))
        attempt(lambda: system.psf_plan(whole_field=value))
        attempt(lambda: system.simulation_plan(frames=value))
        attempt(lambda: system.simulation_plan(seed=value))
        attempt(lambda: system.estimator(tolerance=value))
        attempt(lambda: system.estimator(frames=value))
        attempt(lambda: system.estimate(np.zeros(system.slopes), iterations=value))
        if name not in ("empty dictionary", "empty list", "function", "class", "boolean"):
            assert attempt(lambda: system.simulate(progress=value)) is not None or value is None

    @pytest.mark.parametrize(
        "keyword", ["energy", "grid", "annuli", "crystal", "tile", "rms", "aberrations", "four_d", "step"]
    )
    def test_samples(self, name: str, keyword: str) -> None:
        value = HOSTILE[name]()
        attempt(lambda: ls.Sample(**{**SILICON, keyword: value}))
        attempt(lambda: ls.Sample(**SILICON).replace(**{keyword: value}))

    def test_options_of_samples(self, name: str) -> None:
        value = HOSTILE[name]()
        sample = ls.Sample(**SILICON)
        attempt(lambda: sample.stem_plan(keep=value))
        attempt(lambda: sample.stem_plan(compare=value))
        attempt(lambda: sample.stem_plan(precision=value))
        attempt(lambda: sample.hrtem_plan(waves=value))
        attempt(lambda: sample.hrtem_plan(defocus=value))

    def test_saved_arrays(self, name: str, tmp_path: Path) -> None:
        value = HOSTILE[name]()
        attempt(lambda: ls.DataSet.from_arrays({"a": value}).save(tmp_path / "a.npz"))
        attempt(lambda: ls.DataSet.from_arrays({"a": np.zeros(2)}, fact=value).save(tmp_path / "a.npz"))
        attempt(lambda: ls.DataSet.from_arrays({"a": np.zeros(2)}).save(value))
        attempt(lambda: ls.DataSet.from_arrays({"a": np.zeros(2)}).save(tmp_path / "a.npz", signal=value))
        table = ls.Variable("t", {"column": (value, "m")})
        attempt(lambda: ls.DataSet.from_arrays({"t": table}).save(tmp_path / "t.npz"))
        strange = ls.Variable("a", np.zeros(2), (ls.Coordinate("x", "m", "values", value),), unit=value)
        attempt(lambda: ls.DataSet.from_arrays({"a": strange}).save(tmp_path / "a.npz"))


class TestLength:
    """Lists of a million numbers."""

    @pytest.mark.parametrize("keyword", ["r0", "image", "pupil"])
    def test_systems(self, keyword: str) -> None:
        million: Any = [1.0] * 1_000_000
        assert attempt(lambda: ls.System(**{**TINY, keyword: million}).psf_plan()) is not None

    def test_slopes(self, tiny: ls.System) -> None:
        assert attempt(lambda: tiny.estimate([1.0] * 1_000_000)) is not None


class TestSlopes:
    """Slopes of wrong shapes and types, for the estimate, the reconstructor and the fit."""

    @pytest.fixture
    def estimator(self, tiny: ls.System) -> ls.Estimator:
        return tiny.estimator()

    @pytest.mark.parametrize(
        "slopes",
        [
            lambda n: np.zeros(0),
            lambda n: np.zeros((3, 0)),
            lambda n: np.zeros(n - 1),
            lambda n: np.zeros((2, n + 1)),
            lambda n: np.zeros((2, 2, n)),
            lambda n: np.zeros((1, 1, 1, n)),
            lambda n: 1.0,
            lambda n: None,
            lambda n: "slopes",
            lambda n: b"slopes",
            lambda n: [[0.0] * n, [0.0] * (n - 1)],
            lambda n: np.full(n, np.nan),
            lambda n: np.full(n, np.inf),
            lambda n: np.array([object()] * n),
            lambda n: np.array(["x"] * n),
            lambda n: np.zeros(n, dtype=complex),
            lambda n: np.zeros(n, dtype="M8[s]"),
            lambda n: np.zeros(n, dtype=[("a", "f8")]),
            lambda n: (0.0 for _ in range(n)),
            lambda n: recursive(),
            lambda n: {"slopes": np.zeros(n)},
            lambda n: Broken(),
        ],
    )
    def test_bad_slopes_are_rejected(
        self, tiny: ls.System, estimator: ls.Estimator, slopes: Callable[[int], Any]
    ) -> None:
        value = slopes(tiny.slopes)
        calls: list[Callable[[], Any]] = [
            lambda: tiny.estimate(value),
            lambda: estimator(value),
            lambda: tiny.fit_profile(value),
        ]
        for call in calls:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert attempt(call) is not None

    @pytest.mark.parametrize("scale", [1.0, 1e-30])
    def test_layouts_and_types_give_one_result(self, tiny: ls.System, estimator: ls.Estimator, scale: float) -> None:
        slopes = scale * np.asarray(tiny.simulate(frames=4).slopes)
        expected = estimator(slopes).wavefront
        read_only = slopes.copy()
        read_only.flags.writeable = False
        wide = np.zeros((8, 2 * tiny.slopes))
        wide[::2, ::2] = slopes
        layouts: dict[str, Any] = {
            "Fortran": np.asfortranarray(slopes),
            "big-endian": slopes.astype(">f8"),
            "read-only": read_only,
            "strided": wide[::2, ::2],
            "reversed": slopes[::-1, ::-1][::-1, ::-1],
            "long double": slopes.astype(np.longdouble),
            "lists": slopes.tolist(),
            "misaligned": np.frombuffer(b"\x00" + slopes.tobytes(), dtype=np.uint8)[1:]
            .view(np.float64)
            .reshape(slopes.shape),
            "matrix of objects": slopes.astype(object),
        }
        for name, layout in layouts.items():
            np.testing.assert_array_equal(estimator(layout).wavefront, expected, err_msg=name)
        single = slopes.astype(np.float32)
        np.testing.assert_array_equal(estimator(single).wavefront, estimator(single.astype(float)).wavefront)
        assert not read_only.flags.writeable

    def test_no_frames_give_no_wavefronts(self, tiny: ls.System, estimator: ls.Estimator) -> None:
        assert estimator(np.zeros((0, tiny.slopes))).wavefront.shape == (0, 2, 9, 9)

    def test_the_error_names_what_was_expected(self, tiny: ls.System) -> None:
        with pytest.raises(ls.InputError) as caught:
            tiny.estimate(np.zeros(5))
        assert "slopes" in f"{caught.value.key}"
        assert str(tiny.slopes) in str(caught.value)
        with pytest.raises(ls.InputError) as caught:
            tiny.estimate(np.zeros((2, 2, tiny.slopes)))
        assert "slopes" in f"{caught.value.key}"

    def test_products_with_the_reconstructor(self, tiny: ls.System) -> None:
        reconstructor = tiny.reconstructor()
        for value in (
            np.zeros(5),
            np.zeros((2, 2, tiny.slopes)),
            1.0,
            np.zeros((tiny.slopes, 2)),
            "text",
            [[1.0], [1.0, 2.0]],
        ):
            assert attempt(lambda value=value: reconstructor @ value) is not None  # type: ignore[misc]

    def test_products_with_the_operator(self, tiny: ls.System) -> None:
        pytest.importorskip("scipy")
        operator = tiny.covariance_operator()
        n = tiny.slopes
        for value in (np.zeros(n - 1), np.zeros((n + 1, 2)), "text"):
            with pytest.raises((ValueError, TypeError)):
                operator @ value
        assert (operator @ np.zeros((n, 0))).shape == (n, 0)


class TestFiles:
    @pytest.mark.parametrize(
        "ending", [".npz", ".npy", ".fits", ".h5", ".hspy", ".zspy", ".zarr.zip", ".mrc", ".zarr", "", ".txt"]
    )
    @pytest.mark.parametrize(
        "content", [b"", b"\x00" * 64, b"PK\x03\x04", b"\x93NUMPY\x01\x00", b"SIMPLE  =", b"\x89HDF\r\n\x1a\n"]
    )
    def test_files_that_hold_something_else(self, tmp_path: Path, ending: str, content: bytes) -> None:
        path = tmp_path / f"file{ending}"
        path.write_bytes(content)
        assert attempt(lambda: ls.load(path)) is not None

    def test_files_that_are_cut_short(self, tmp_path: Path) -> None:
        data = ls.DataSet.from_arrays({"a": np.random.default_rng(1).normal(size=(50, 60)), "b": np.arange(700)})
        for ending in (".npz", ".fits", ".h5", ".zarr.zip"):
            path = tmp_path / f"whole{ending}"
            data.save(path)
            content = path.read_bytes()
            for length in (len(content) // 2, len(content) - 2881, 100):
                short = tmp_path / f"short{ending}"
                short.write_bytes(content[:length])
                failure = attempt(lambda short=short: ls.load(short))  # type: ignore[misc]
                # A FITS file that ends where one of its arrays does is whole.
                assert isinstance(failure, ls.LensletError) or (ending == ".fits" and length % 2880 == 0), (
                    ending,
                    length,
                )

    def test_folders_and_missing_files(self, tmp_path: Path) -> None:
        for path in (tmp_path, tmp_path / "none.npz", SYSTEMS / "small.toml"):
            assert isinstance(attempt(lambda path=path: ls.load(path)), ls.LensletError)  # type: ignore[misc]

    @pytest.mark.skipif(os.name != "posix", reason="names of files are bytes on POSIX only")
    def test_names_that_are_no_unicode(self, tiny: ls.System, tmp_path: Path) -> None:
        name = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.npz")
        data = ls.DataSet.from_arrays({"a": np.arange(3.0)})
        data.save(name)
        assert ls.load(name) == data


class TestTexts:
    @pytest.mark.parametrize(
        "text",
        [
            "",
            "\x00",
            "[",
            "a = ",
            "[[guide_star]]\n" * 10_000,
            "a = " + "[" * 100_000,
            "r0 = 1\n" * 2,
            "\ufeff",
            "é = 1",
            "[atmosphere]\nr0 = 1e400",
        ],
    )
    def test_texts_that_are_no_system(self, text: str) -> None:
        assert isinstance(attempt(lambda: ls.System.from_toml(text)), ls.InputError)
        assert isinstance(attempt(lambda: ls.Sample.from_toml(text)), ls.InputError)
