"""Systems: keywords, files, dictionaries, copies, comparison."""

from __future__ import annotations

import copy
import pickle
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lenslet as ls
import numpy as np
import pytest
from conftest import ROOT, SYSTEMS, TINY
from lenslet import _keys

ROWS = _keys.rows("system")
FILES = sorted(path for path in SYSTEMS.glob("*.toml") if not path.name.startswith("silicon"))


#: Tables with all keys that others of them need.
COMPLETE: dict[str, dict[str, Any]] = {
    "atmosphere.layers": {"altitude": 0.0, "fraction": 1.0},
    "telescope.spiders": {"width": 0.05, "angles": [0.0]},
    "guide_star.sensor": {"photons": 100.0, "pixel": 0.5, "fwhm": 1.0, "window": 6, "wavelength": 600e-9},
    "guide_star.sensor.spot": {"launch": [0.0, 1.0], "altitude": 90e3, "thickness": 10e3},
    "target": {},
    "truth_sensor": {"lenslets": 6},
    "phase": {"points": 9},
    "mirror": {"actuators": 7},
    "loop": {"kind": "open", "rate": 500.0, "delay": 2.0},
    "field": {"size": 20.0, "step": 10.0},
}
#: Keys in whose place others have to be left out.
INSTEAD = {
    "atmosphere.seeing": "atmosphere.r0",
    "guide_star.sensor.magnitude": "guide_star.sensor.photons",
}
#: Keys that others need.
WITH: dict[str, dict[str, Any]] = {
    f"guide_star.sensor.{key}": {"photons": None, "magnitude": 10.0, "zero_point": 1e10, "frame_rate": 500.0}
    for key in ("zero_point", "throughput", "frame_rate")
}
#: A value of each type that no key accepts.
WRONG: dict[str, Any] = {
    "list of tables": "text",
    "table": 7,
    "word": "no such word",
    "text": 7,
    "file name": 7,
    "number, or a file name": [[]],
    "true or false": "perhaps",
    "list of words": ["no such word"],
}


def given_at(path: str, value: Any) -> dict[str, Any]:
    """The keywords that give a value at a path, with the other keys of its table."""
    keywords = {known: keyword for keyword, known in _keys.keywords("system").items()}
    given = value
    while path not in keywords:
        table, _, key = path.rpartition(".")
        assert table, f"no keyword leads to {path}"
        given = {**COMPLETE.get(table, {}), **WITH.get(path, {}), key: given}
        given.pop(INSTEAD.get(path, "").rpartition(".")[2], None)
        if ROWS[table]["type"] == "list of tables":
            given = [given]
        path = table
    return {keywords[path]: given}


def check(keywords: dict[str, Any]) -> None:
    """Reads all tables of a system."""
    system = ls.System(**keywords)
    system.psf_plan()
    system.reconstructor_plan()


class TestKeywords:
    @pytest.mark.parametrize("path", ROWS)
    def test_every_key_of_a_system_file_is_reached_by_a_keyword(self, path: str) -> None:
        row = ROWS[path]
        if path in ("atmosphere", "telescope", "lenslet_array", "covariance"):
            assert any(known.startswith(f"{path}.") for known in _keys.keywords("system").values())
            return
        keywords = given_at(path, WRONG.get(row["type"], "no number"))
        with pytest.raises(ls.InputError) as caught:
            check({**TINY, "loop": None, **keywords} if path == "loop" else {**TINY, **keywords})
        assert path.rpartition(".")[2] in str(caught.value.key), f"{keywords} gave {caught.value}"

    @pytest.mark.parametrize(
        ("keyword", "path", "value"),
        [
            ("r0", "atmosphere.r0", 0.2),
            ("cone_gradient", "atmosphere.cone_gradient", "layer"),
            ("obstruction", "telescope.obstruction", 0.1),
            ("valid_threshold", "lenslet_array.valid_threshold", 0.9),
            ("slope_model", "covariance.slope_model", "edge-midpoint"),
            ("spiders", "telescope.spiders", {"width": 0.05, "angles": [0.0, 90.0]}),
        ],
    )
    def test_values_arrive_under_their_keys(self, keyword: str, path: str, value: Any) -> None:
        found: Any = ls.System(**{**TINY, keyword: value}).to_dict()
        for key in path.split("."):
            found = found[key]
        assert found == value

    def test_an_unknown_keyword_is_rejected_with_those_nearest_to_it(self) -> None:
        with pytest.raises(ls.InputError, match=r"diametre: no such keyword: did you mean diameter\?") as caught:
            ls.System(**{**TINY, "diametre": 8.0})
        assert caught.value.key == "diametre"
        assert "diameter" in str(caught.value.expected)
        with pytest.raises(ls.InputError, match="one of r0, seeing"):
            ls.System(**{**TINY, "qqqqqqqq": 8.0})

    def test_an_unknown_key_of_a_table_is_rejected_too(self) -> None:
        with pytest.raises(ls.InputError, match="zenit"):
            ls.System(**{**TINY, "guide_stars": [{"zenit": 1.0}]})

    def test_positional_arguments_are_no_keywords(self) -> None:
        with pytest.raises(TypeError):
            ls.System(0.15)  # type: ignore[call-arg, misc]

    def test_nothing_gives_the_first_key_that_is_missing(self) -> None:
        with pytest.raises(ls.InputError, match="atmosphere"):
            ls.System()

    def test_none_leaves_a_keyword_out(self) -> None:
        assert ls.System(**TINY, pupil=None, spiders=None) == ls.System(**TINY)

    def test_numbers_of_numpy_arrays_and_tuples_are_numbers_and_lists(self) -> None:
        given: Any = {
            **TINY,
            "r0": np.float64(0.15),
            "lenslets": np.int32(6),
            "guide_stars": tuple(TINY["guide_stars"]),
            "image": {**TINY["image"], "wavelengths": np.array([1.65e-6, 2.2e-6])},
        }
        assert ls.System(**given) == ls.System(**TINY)


class TestFacts:
    def test_facts_of_a_system(self, tiny: ls.System) -> None:
        valid = tiny.valid_lenslets
        assert [mask.shape for mask in valid] == [(6, 6), (6, 6)]
        assert all(mask.dtype == np.bool_ for mask in valid)
        assert tiny.slopes == 2 * sum(int(mask.sum()) for mask in valid)
        assert (tiny.r0, tiny.wavelength, tiny.diameter) == (0.15, 500e-9, 3.0)
        assert (tiny.lenslets, tiny.pitch, tiny.points) == (6, 0.5, 9)

    def test_without_telescope_and_grid(self) -> None:
        small = ls.System.from_file(SYSTEMS / "small.toml")
        assert (small.diameter, small.points, small.pitch) == (None, None, 0.1)
        assert all(mask.all() for mask in small.valid_lenslets)

    def test_repr_counts(self, tiny: ls.System) -> None:
        slopes = tiny.slopes
        expected = f"<lenslet.System: 3.0 m, r0 0.15 m, 2 guide stars, {slopes} slopes, 2 layers, 2 targets>"
        assert repr(tiny) == expected
        assert "1 guide star," in repr(ls.System.from_file(SYSTEMS / "small.toml"))

    def test_html_is_escaped(self, tiny: ls.System) -> None:
        text = "# <script>alert(1)</script> & more\n" + tiny.to_toml()
        html = ls.System.from_toml(text)._repr_html_()
        assert "<script>" not in html
        assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in html

    def test_attributes_cannot_be_set(self, tiny: ls.System) -> None:
        with pytest.raises(AttributeError):
            tiny.r0 = 0.2  # type: ignore[misc]
        with pytest.raises(AttributeError):
            tiny.elevation = 30.0  # type: ignore[attr-defined]


class TestFiles:
    @pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
    def test_files_texts_and_dictionaries_agree(self, path: Path) -> None:
        of_file = ls.System.from_file(path)
        assert ls.System.from_file(str(path)) == of_file
        assert ls.System.from_toml(path.read_text(encoding="utf-8"), name=str(path)) == of_file
        assert of_file.to_toml() == path.read_text(encoding="utf-8")
        if not any(word in repr(of_file.to_dict()) for word in (".npy", ".fits")):
            assert ls.System.from_dict(of_file.to_dict()) == of_file

    def test_the_text_of_keywords_has_comments_and_gives_an_equal_system(self, tiny: ls.System) -> None:
        text = tiny.to_toml()
        assert "# m" in text or "[m]" in text
        parsed = ls.System.from_toml(text)
        assert parsed == tiny
        assert parsed.to_dict() == tiny.to_dict()
        for key in ("r0", "diameter", "points"):
            line = next(line for line in text.splitlines() if line.startswith(f"{key} ="))
            assert "  # " in line, line

    def test_save_and_read(self, tiny: ls.System, tmp_path: Path) -> None:
        path = tmp_path / "tiny.toml"
        tiny.save(path)
        assert ls.System.from_file(path) == tiny
        assert list(tmp_path.iterdir()) == [path]

    def test_save_into_a_folder_that_is_not_there(self, tiny: ls.System, tmp_path: Path) -> None:
        with pytest.raises(ls.FileError) as caught:
            tiny.save(tmp_path / "none" / "tiny.toml")
        assert caught.value.file == str(tmp_path / "none" / "tiny.toml")

    def test_a_file_that_is_not_there(self) -> None:
        with pytest.raises(ls.FileError, match=r"no/such\.toml") as caught:
            ls.System.from_file("no/such.toml")
        assert caught.value.file == "no/such.toml"
        assert caught.value.errno == 2
        assert isinstance(caught.value, OSError)

    def test_the_first_bad_line_is_named(self, tmp_path: Path) -> None:
        path = tmp_path / "bad.toml"
        text = (SYSTEMS / "small.toml").read_text(encoding="utf-8")
        path.write_text(text.replace("lenslets = 20  ", "lenslets = 0  "), encoding="utf-8")
        with pytest.raises(ls.InputError) as caught:
            ls.System.from_file(path)
        error = caught.value
        assert (error.file, error.key, error.value) == (str(path), "lenslet_array.lenslets", "0")
        lines = path.read_text(encoding="utf-8").splitlines()
        assert error.line is not None
        assert lines[error.line - 1].startswith("lenslets = 0")
        assert "10000" in str(error.expected)

    def test_files_beside_a_system_file_are_relative_to_it(self, tmp_path: Path) -> None:
        lines = (SYSTEMS / "small.toml").read_text(encoding="utf-8")
        np.save(tmp_path / "noise.npy", np.full(400, 2e-14))
        (tmp_path / "a.toml").write_text(lines + 'noise = "noise.npy"\n', encoding="utf-8")
        other = tmp_path / "other"
        other.mkdir()
        (other / "a.toml").write_text(lines + 'noise = "noise.npy"\n', encoding="utf-8")
        system = ls.System.from_file(tmp_path / "a.toml")
        assert system.slopes == 800
        with pytest.raises((ls.InputError, ls.FileError)):
            ls.System.from_file(other / "a.toml")
        assert pickle.loads(pickle.dumps(system)) == system


class TestImports:
    @pytest.mark.parametrize("path", sorted((SYSTEMS / "tiptop").glob("*.ini")), ids=lambda path: path.stem)
    def test_parameter_files_of_tiptop(
        self, path: Path, tmp_path: Path, command: Callable[..., subprocess.CompletedProcess[str]]
    ) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            system = ls.System.from_tiptop(path)
        assert all(one.filename == __file__ and one.category is ls.LensletWarning for one in caught)
        assert bool(caught) is (path.stem not in ("MAVIS",))
        assert system.slopes > 0
        command("import", path, "-o", tmp_path / "imported.toml")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ls.LensletWarning)
            assert ls.System.from_file(tmp_path / "imported.toml").to_dict() == system.to_dict()

    def test_a_parameter_file_that_is_none(self, tmp_path: Path) -> None:
        path = tmp_path / "not.ini"
        path.write_bytes(b"\xff\xfe\x00")
        with pytest.raises(ls.FileError):
            ls.System.from_tiptop(path)
        path.write_text("[telescope]\nTelescopeDiameter = wide\n", encoding="utf-8")
        with pytest.raises(ls.InputError):
            ls.System.from_tiptop(path)

    def test_telemetry(self, tmp_path: Path, command: Callable[..., subprocess.CompletedProcess[str]]) -> None:
        path = tmp_path / "x.aot.fits"
        command("reconstruct", SYSTEMS / "small-moao.toml", "-o", tmp_path / "r.npz", "--telemetry", path, "--quiet")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            system = ls.System.from_aot(path)
        assert all(one.filename == __file__ and one.category is ls.LensletWarning for one in caught)
        original = ls.System.from_file(SYSTEMS / "small-moao.toml")
        assert system.slopes == original.slopes
        assert system.r0 == pytest.approx(original.r0)
        for found, expected in zip(system.valid_lenslets, original.valid_lenslets, strict=True):
            np.testing.assert_array_equal(found, expected)

    def test_telemetry_that_is_none(self, tmp_path: Path) -> None:
        with pytest.raises(ls.FileError):
            ls.System.from_aot(tmp_path / "none.fits")
        (tmp_path / "empty.fits").write_bytes(b"")
        with pytest.raises((ls.FileError, ls.InputError)):
            ls.System.from_aot(tmp_path / "empty.fits")


class TestComparison:
    def test_equal_systems_have_equal_hashes(self, tiny: ls.System) -> None:
        again = ls.System(**TINY)
        assert again == tiny
        assert hash(again) == hash(tiny)
        assert again is not tiny
        assert len({again, tiny, tiny.replace(r0=0.2)}) == 2

    def test_an_integer_and_the_same_number_are_equal(self, tiny: ls.System) -> None:
        whole = tiny.replace(diameter=3)
        assert whole == tiny
        assert hash(whole) == hash(tiny)

    def test_order_of_keys_does_not_matter(self, tiny: ls.System) -> None:
        turned = ls.System(**dict(reversed(TINY.items())))
        assert turned == tiny
        assert hash(turned) == hash(tiny)

    def test_different_systems(self, tiny: ls.System) -> None:
        assert tiny != tiny.replace(r0=0.1500001)
        assert tiny != "tiny"
        assert (tiny == 7) is False

    def test_pickles_and_copies(self, tiny: ls.System) -> None:
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            again = pickle.loads(pickle.dumps(tiny, protocol))
            assert again == tiny
            assert again.to_toml() == tiny.to_toml()
        assert copy.copy(tiny) == tiny
        assert copy.deepcopy(tiny) == tiny
        of_file = ls.System.from_file(SYSTEMS / "small-moao.toml")
        assert pickle.loads(pickle.dumps(of_file)).to_toml() == of_file.to_toml()

    def test_copy_replace(self, tiny: ls.System) -> None:
        if hasattr(copy, "replace"):
            assert copy.replace(tiny, r0=0.2) == tiny.replace(r0=0.2)


class TestReplace:
    def test_values_by_keyword_and_by_path(self, tiny: ls.System) -> None:
        changed = tiny.replace({"guide_star[1].noise": 5e-14}, r0=0.2, targets=[{"zenith": 5.0}])
        values = changed.to_dict()
        assert values["guide_star"][1]["noise"] == 5e-14
        assert values["guide_star"][0]["noise"] == 2e-14
        assert changed.r0 == 0.2
        assert values["target"] == [{"zenith": 5.0}]
        assert tiny.r0 == 0.15
        assert tiny == ls.System(**TINY)

    def test_a_dictionary_changes_the_keys_that_it_has(self, tiny: ls.System) -> None:
        image = tiny.replace(image={"pixel": 10.0}).to_dict()["image"]
        assert image == {**TINY["image"], "pixel": 10.0}

    def test_an_empty_dictionary_adds_a_table_and_empties_none(self, tiny: ls.System) -> None:
        assert tiny.replace(image={}) == tiny
        assert tiny.replace(r0=0.2, correction={}).to_dict()["correction"] == {}

    def test_none_removes(self, tiny: ls.System) -> None:
        assert tiny.replace(phase=None).points is None
        assert "obstruction" not in tiny.replace(obstruction=None).to_dict()["telescope"]
        with pytest.raises(ls.InputError):
            tiny.replace(r0=None)

    def test_nothing_changes_nothing(self, tiny: ls.System) -> None:
        assert tiny.replace() is tiny
        assert tiny.replace(r0=tiny.r0) == tiny

    def test_comments_of_a_file_stay(self) -> None:
        of_file = ls.System.from_file(SYSTEMS / "small-moao.toml")
        text = of_file.replace(r0=0.2).to_toml()
        assert "r0 = 0.2                 # m, the Fried parameter" in text
        assert len(text.splitlines()) == len(of_file.to_toml().splitlines())

    @pytest.mark.parametrize(
        "path", ["guide_star[7].noise", "guide_star[-1].noise", "guide_star[x]", "", ".", "a.b.c", "r0"]
    )
    def test_paths_that_lead_nowhere(self, tiny: ls.System, path: str) -> None:
        with pytest.raises(ls.InputError):
            tiny.replace({path: 1.0})

    def test_unknown_keywords(self, tiny: ls.System) -> None:
        with pytest.raises(ls.InputError, match="did you mean r0"):
            tiny.replace(r_0=0.2)  # type: ignore[call-arg]

    def test_the_value_that_makes_no_sense_is_named(self, tiny: ls.System) -> None:
        with pytest.raises(ls.InputError) as caught:
            tiny.replace(r0=-1.0)
        assert caught.value.key == "atmosphere.r0"
        assert caught.value.value == "-1.0"
        assert caught.value.line is None


class TestWarnings:
    def test_sensors_at_another_rate_are_warned_of_at_the_line_of_the_caller(self, tmp_path: Path) -> None:
        sensor = {"photons": 100.0, "pixel": 0.5, "fwhm": 1.0, "window": 6, "wavelength": 600e-9, "rate": 200.0}
        changes: Any = {"guide_stars": [{"zenith": 10.0, "sensor": sensor}]}
        keywords: Any = {**TINY, **changes}
        with pytest.warns(ls.LensletWarning, match=r"sensor\.rate = 200") as caught:
            system = ls.System(**keywords)
        path = tmp_path / "rates.toml"
        system.save(path)
        makers: list[Callable[[], ls.System]] = [
            lambda: ls.System.from_file(path),
            lambda: ls.System.from_toml(system.to_toml()),
            lambda: ls.System.from_dict(system.to_dict()),
            lambda: ls.System(**TINY).replace(**changes),
        ]
        found = [caught]
        for make in makers:
            with pytest.warns(ls.LensletWarning, match="all sensors are taken to be in one loop") as caught:
                assert make() == system
            found.append(caught)
        for warned in found:
            assert [one.filename for one in warned] == [__file__]


def test_all_files_of_systems_are_tested() -> None:
    assert len(FILES) >= 10
    assert ROOT.joinpath("pyproject.toml").exists()
