"""Data sets: arrays by name, files, xarray, drawings, comparison."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lenslet as ls
import numpy as np
import pytest


def example() -> ls.DataSet:
    """Arrays of all types with coordinates of all kinds."""
    random = np.random.default_rng(7)
    time = ls.Coordinate("frame")
    x = ls.Coordinate("x", "m", "uniform", (-1.5, 0.5))
    y = ls.Coordinate("y", "m", "values", [0.0, 1.0, 4.0])
    name = ls.Coordinate("star", kind="labels", positions=["α", "b <i>"])
    return ls.DataSet.from_arrays(
        {
            "map": ls.Variable(
                "map", random.normal(size=(3, 4)), (y, x), "rad2", "a map", {"seed": 7, "note": "as is"}
            ),
            "single": ls.Variable("single", random.normal(size=(2, 4)).astype(np.float32), (name, x), "m"),
            "wave": ls.Variable("wave", random.normal(size=(3, 5)) + 1j * random.normal(size=(3, 5)), (y, time)),
            "wave32": (random.normal(size=4) + 1j).astype(np.complex64),
            "counts": ls.Variable("counts", np.arange(5), (time,)),
            "valid": np.array([[True, False], [False, True]]),
            "text": "some words, é",
            "table": ls.Variable(
                "table",
                {
                    "star": (np.arange(3, dtype=np.int32), ""),
                    "term": (np.array(["tip", "défocus", "total"]), ""),
                    "r": (np.array([0.5, 1.5, -1.0]), "m"),
                },
            ),
        },
        program="test",
        seed=7,
        share=0.25,
        whole=True,
    )


class TestMapping:
    def test_arrays_by_name(self) -> None:
        data = example()
        assert isinstance(data, Mapping)
        assert (
            list(data) == [*data.variables] == ["map", "single", "wave", "wave32", "counts", "valid", "text", "table"]
        )
        assert len(data) == 8
        assert data.map is data["map"] is data.variables["map"].values
        assert data.text == "some words, é"
        np.testing.assert_array_equal(data.table["r"][0], [0.5, 1.5, -1.0])
        assert data.table["r"][1] == "m"
        assert "map" in data
        assert "none" not in data
        assert data.get("none") is None
        assert {*data.keys()} <= {*dir(data)}

    def test_names_that_there_are_not(self) -> None:
        data = example()
        with pytest.raises(KeyError):
            data["none"]
        with pytest.raises(AttributeError, match="its variables are map, single, wave"):
            data.none  # noqa: B018
        with pytest.raises(TypeError):
            data["map"] = np.zeros(3)  # type: ignore[index]

    def test_facts(self) -> None:
        data = example()
        one = data.variables["map"]
        assert (one.unit, one.long_name, one.dims, one.attributes["seed"]) == ("rad2", "a map", ("y", "x"), 7)
        np.testing.assert_array_equal(one.coordinates[1].values(4), [-1.5, -1.0, -0.5, 0.0])
        np.testing.assert_array_equal(one.coordinates[0].values(3), [0.0, 1.0, 4.0])
        np.testing.assert_array_equal(data.variables["counts"].coordinates[0].values(5), np.arange(5))
        assert list(data.variables["single"].coordinates[0].values(2)) == ["α", "b <i>"]
        assert data.variables["valid"].dims == ("valid_dim_0", "valid_dim_1")
        assert data.attributes == {"program": "test", "seed": 7, "share": 0.25, "whole": True}

    def test_variables_are_arrays_of_numpy(self) -> None:
        one = example().variables["map"]
        assert np.asarray(one) is one.values
        assert np.array(one, copy=True) is not one.values
        assert np.asarray(one, dtype=np.float32).dtype == np.float32
        with pytest.raises(TypeError):
            np.asarray(example().variables["text"])

    def test_repr_and_html(self) -> None:
        data = example()
        assert "map: 3 × 4 (y, x) [rad2], a map" in repr(data)
        hostile = ls.Variable("<b>", np.zeros(2), unit="<u>", long_name="<script>")
        html = ls.DataSet.from_arrays({"<b>": hostile})._repr_html_()
        assert "<script>" not in html
        assert "&lt;script&gt;" in html
        assert "<u>" not in html


class TestEquality:
    def test_equal_data_sets(self) -> None:
        assert example() == example()
        assert ls.DataSet.from_arrays({"a": [np.nan, 1.0]}) == ls.DataSet.from_arrays({"a": [np.nan, 1.0]})
        assert ls.DataSet.from_arrays({"a": 1.0}) != 1.0

    @pytest.mark.parametrize(
        "other",
        [
            {"a": np.array([0.0, 2.0])},
            {"a": np.array([0.0, 1.0], dtype=np.float32)},
            {"a": np.array([[0.0, 1.0]])},
            {"a": "text"},
            {"b": np.array([0.0, 1.0])},
            {},
            {"a": np.array([0.0, 1.0]), "b": np.array([0.0])},
        ],
    )
    def test_different_data_sets(self, other: dict[str, Any]) -> None:
        assert ls.DataSet.from_arrays({"a": np.array([0.0, 1.0])}) != ls.DataSet.from_arrays(other)

    def test_data_sets_are_not_hashed(self) -> None:
        with pytest.raises(TypeError):
            hash(example())

    def test_pickles_and_copies(self) -> None:
        data = example()
        for again in (pickle.loads(pickle.dumps(data)), copy.deepcopy(data)):
            assert again == data
            assert again.variables["map"].coordinates == data.variables["map"].coordinates
            assert again.variables["map"].unit == "rad2"
            assert again.attributes == data.attributes
            assert not np.shares_memory(again.map, data.map)
        assert copy.copy(data).map is data.map

    def test_results_keep_their_facts_and_their_system(self, tiny: ls.System) -> None:
        found = tiny.reconstructor()
        for again in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found)):
            assert type(again) is ls.Reconstructor
            assert again == found
            assert again.system == tiny
            np.testing.assert_array_equal(again.rms, found.rms)
            np.testing.assert_array_equal(again @ np.ones(tiny.slopes), found @ np.ones(tiny.slopes))


class TestFiles:
    @pytest.mark.parametrize("ending", [".npz", ".fits", ".h5", ".hspy", ".zspy", ".zarr", ".zarr.zip"])
    def test_round_trip(self, ending: str, tmp_path: Path) -> None:
        data = example()
        if ending == ".fits":
            data = ls.DataSet({k: v for k, v in data.variables.items() if not k.startswith("wave")}, data.attributes)
        if ending in (".hspy", ".zspy"):
            # These formats hold one signal, whose images have x before y in the arrays of Lenslet.
            x, y = ls.Coordinate("x", "Å", "uniform", (0.0, 0.5)), ls.Coordinate("y", "Å", "uniform", (1.0, 0.25))
            data = ls.DataSet.from_arrays({"image": ls.Variable("image", data.map, (x, y))})
        if ending in (".h5", ".zarr", ".zarr.zip"):
            data = ls.DataSet({k: v for k, v in data.variables.items() if k != "table"}, data.attributes)
        path = tmp_path / f"data{ending}"
        length = data.save(path)
        assert not path.is_file() or path.stat().st_size == length
        again = ls.load(path)
        for name, one in data.variables.items():
            if isinstance(one.values, str) and ending in (".h5", ".zarr", ".zarr.zip"):
                # These formats hold texts as attributes.
                assert again.attributes[name] == one.values
                continue
            found = again.variables[name]
            assert found.dims == one.dims or not one.coordinates
            assert (found.unit, found.long_name) == (one.unit, one.long_name)
            if isinstance(one.values, np.ndarray):
                assert isinstance(found.values, np.ndarray)
                np.testing.assert_array_equal(found.values, one.values, err_msg=name)
                assert found.values.dtype == one.values.dtype
            elif isinstance(one.values, str):
                assert found.values == one.values
            else:
                assert isinstance(found.values, dict)
                for column, (cells, unit) in one.values.items():
                    np.testing.assert_array_equal(found.values[column][0], cells)
                    assert found.values[column][1] == unit

    @pytest.mark.parametrize("ending", [".fits", ".npy", ".mrc"])
    def test_what_a_format_cannot_hold_is_rejected(self, ending: str, tmp_path: Path) -> None:
        with pytest.raises(ls.LensletError):
            example().save(tmp_path / f"data{ending}")
        assert list(tmp_path.iterdir()) == []

    def test_npy_holds_one_array(self, tmp_path: Path) -> None:
        data = example()
        ls.DataSet.from_arrays({"map": data.map}).save(tmp_path / "a.npy")
        np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), data.map)
        (found,) = ls.load(tmp_path / "a.npy").values()
        np.testing.assert_array_equal(found, data.map)
        with pytest.raises(ls.LensletError):
            data.save(tmp_path / "b.npy", signal="none")
        assert not (tmp_path / "b.npy").exists()

    def test_numpy_reads_our_archives(self, tmp_path: Path) -> None:
        data = example()
        data.save(tmp_path / "a.npz")
        with np.load(tmp_path / "a.npz") as archive:
            for name in ("map", "single", "wave", "wave32", "counts", "valid"):
                np.testing.assert_array_equal(archive[name], data[name])

    @pytest.mark.parametrize("name", ["a.txt", "a", ".npz.bak", "a.pdf"])
    def test_other_endings_are_rejected(self, name: str, tmp_path: Path) -> None:
        with pytest.raises(ls.InputError, match=r"npz"):
            example().save(tmp_path / name)
        assert list(tmp_path.iterdir()) == []

    def test_an_older_file_stays_where_writing_fails(self, tmp_path: Path) -> None:
        path = tmp_path / "a.npz"
        ls.DataSet.from_arrays({"a": np.arange(3.0)}).save(path)
        with pytest.raises(ls.InputError):
            ls.DataSet.from_arrays({"a": np.array([object()])}).save(path)
        assert list(ls.load(path).a) == [0.0, 1.0, 2.0]
        with pytest.raises(ls.FileError) as caught:
            ls.DataSet.from_arrays({"a": np.arange(3.0)}).save(tmp_path / "none" / "a.npz")
        assert "none" in str(caught.value.file)

    def test_layouts_are_written_as_they_are(self, tmp_path: Path) -> None:
        values = np.arange(24.0).reshape(4, 6)
        layouts: dict[str, Any] = {
            "fortran": np.asfortranarray(values),
            "strided": np.arange(96.0).reshape(8, 12)[::2, ::2],
            "reversed": values[::-1],
            "big": values.astype(">f8"),
            "misaligned": np.frombuffer(b"\x00" + values.tobytes(), np.uint8)[1:].view(float).reshape(4, 6),
            "int8": np.arange(5, dtype=np.int8),
            "uint16": np.arange(5, dtype=np.uint16),
            "empty": np.zeros((0, 3)),
            "scalar": np.float64(3.0),
        }
        ls.DataSet.from_arrays(layouts).save(tmp_path / "a.npz")
        again = ls.load(tmp_path / "a.npz")
        for name, layout in layouts.items():
            np.testing.assert_array_equal(again[name].reshape(np.shape(layout)), layout, err_msg=name)


class TestXarray:
    def test_arrays_are_shared(self) -> None:
        pytest.importorskip("xarray")
        data = example()
        dataset = data.to_xarray()
        for name in ("map", "single", "wave", "wave32", "counts", "valid"):
            assert np.shares_memory(dataset[name].values, data[name]), name
            one = data.variables[name].to_xarray()
            assert one.values.__array_interface__["data"] == data[name].__array_interface__["data"]

    def test_coordinates_units_and_attributes(self) -> None:
        pytest.importorskip("xarray")
        dataset = example().to_xarray()
        assert dataset["map"].dims == ("y", "x")
        assert dataset["map"].attrs == {"units": "rad2", "long_name": "a map", "seed": 7, "note": "as is"}
        assert dataset["x"].attrs["units"] == "m"
        np.testing.assert_array_equal(dataset["x"].values, [-1.5, -1.0, -0.5, 0.0])
        assert float(dataset["map"].sel(x=-1.0, y=4.0)) == example().map[2, 1]
        assert list(dataset["star"].values) == ["α", "b <i>"]
        assert "frame" not in dataset.coords
        assert dataset.attrs["text"] == "some words, é"
        assert dataset.attrs["seed"] == 7
        np.testing.assert_array_equal(dataset["table_r"].values, [0.5, 1.5, -1.0])
        assert dataset["table_r"].attrs["units"] == "m"

    def test_dimensions_of_one_name_and_different_lengths(self) -> None:
        pytest.importorskip("xarray")
        x, other = ls.Coordinate("x", "m", "uniform", (0.0, 1.0)), ls.Coordinate("x", "m", "uniform", (0.0, 2.0))
        data = ls.DataSet.from_arrays(
            {
                "a": ls.Variable("a", np.zeros(3), (x,)),
                "b": ls.Variable("b", np.zeros(4), (x,)),
                "c": ls.Variable("c", np.zeros(3), (other,)),
            }
        )
        dataset = data.to_xarray()
        assert (dataset["a"].dims, dataset["b"].dims, dataset["c"].dims) == (("x",), ("x_b",), ("x_c",))
        np.testing.assert_array_equal(dataset["x_c"].values, [0.0, 2.0, 4.0])

    def test_results_become_data_sets(self, tiny: ls.System) -> None:
        pytest.importorskip("xarray")
        covariance = tiny.covariance()
        dataset = covariance.to_xarray()
        for name, values in covariance.items():
            if isinstance(values, np.ndarray):
                assert np.shares_memory(dataset[name].values, values), name
                assert len(set(dataset[name].dims)) == values.ndim, name

    def test_texts_are_no_arrays(self) -> None:
        pytest.importorskip("xarray")
        with pytest.raises(TypeError, match="text is no array"):
            example().variables["text"].to_xarray()

    def test_without_xarray_the_extra_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import sys

        monkeypatch.setitem(sys.modules, "xarray", None)
        with pytest.raises(ImportError, match=r'pip install "lenslet\[xarray\]"'):
            example().to_xarray()


class TestPlot:
    @pytest.fixture(autouse=True)
    def _agg(self) -> Any:
        matplotlib = pytest.importorskip("matplotlib")
        matplotlib.use("Agg")
        yield
        import matplotlib.pyplot as plt

        plt.close("all")

    def test_images(self) -> None:
        data = example()
        axes = data.plot()
        (image,) = axes.get_images()
        np.testing.assert_array_equal(image.get_array(), data.map)
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("x [m]", "y [m]")
        assert tuple(image.get_extent()[:2]) == (-1.75, 0.25)
        assert image.origin == "lower"
        axes.figure.canvas.draw()

    def test_lines_and_axes_that_are_given(self) -> None:
        import matplotlib.pyplot as plt

        data = example()
        given = plt.subplots()[1]
        axes = data.plot("counts", given, color="red")
        assert axes is given
        (line,) = axes.get_lines()
        assert line.get_color() == "red"
        np.testing.assert_array_equal(line.get_ydata(), np.arange(5))
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("frame", "counts")

    def test_complex_waves_are_drawn_by_their_moduli(self) -> None:
        data = example()
        (image,) = data.plot("wave").get_images()
        np.testing.assert_array_equal(image.get_array(), np.abs(data.wave))

    def test_stars_by_name(self) -> None:
        example().plot("single").figure.canvas.draw()

    def test_the_first_of_leading_dimensions(self) -> None:
        cube = np.arange(24.0).reshape(2, 3, 4)
        (image,) = ls.DataSet.from_arrays({"cube": cube}).plot().get_images()
        np.testing.assert_array_equal(image.get_array(), cube[0])

    def test_what_cannot_be_drawn(self) -> None:
        with pytest.raises(ls.InputError, match="one of map, single"):
            example().plot("none")
        with pytest.raises(TypeError, match="no array"):
            example().plot("text")
        with pytest.raises(ls.InputError):
            ls.DataSet.from_arrays({}).plot()

    def test_results(self, tiny: ls.System) -> None:
        tiny.covariance().plot().figure.canvas.draw()
        tiny.simulate().plot("slopes").figure.canvas.draw()
