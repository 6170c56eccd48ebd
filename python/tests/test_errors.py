"""The exceptions: their classes, their facts, and what becomes of them when they are pickled."""

from __future__ import annotations

import copy
import pickle

import lenslet as ls
import pytest
from lenslet import errors

CLASSES: list[tuple[type[ls.LensletError], type[Exception]]] = [
    (ls.InputError, ValueError),
    (ls.FileError, OSError),
    (ls.DeviceError, RuntimeError),
    (ls.OutOfMemoryError, MemoryError),
    (ls.ComputationError, RuntimeError),
    (ls.ConvergenceError, ls.ComputationError),
    (ls.CancelledError, ls.LensletError),
]


@pytest.mark.parametrize(("kind", "base"), CLASSES)
def test_classes(kind: type[ls.LensletError], base: type[Exception]) -> None:
    assert issubclass(kind, ls.LensletError)
    assert issubclass(kind, base)
    assert kind.__module__ == "lenslet.errors"
    assert getattr(ls, kind.__name__) is kind is getattr(errors, kind.__name__)


def test_all_are_listed() -> None:
    public = {name for name, one in vars(errors).items() if isinstance(one, type) and one.__module__ == errors.__name__}
    assert public == set(errors.__all__)
    assert issubclass(ls.LensletWarning, UserWarning)
    assert not issubclass(ls.LensletWarning, ls.LensletError)


@pytest.mark.parametrize(
    "error",
    [
        ls.InputError("a.toml:3: x = 1: expected 2", file="a.toml", line=3, key="x", value="1", expected="2"),
        ls.FileError("cannot read x", file="x", errno=2),
        ls.DeviceError("no GPU", device="cuda:0"),
        ls.OutOfMemoryError("too large", needed=8 << 40, available=1 << 30),
        ls.ConvergenceError("no", iterations=7, residual=0.5),
        ls.ComputationError("broke down"),
        ls.CancelledError("cancelled"),
        ls.LensletError("any"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_pickles_keep_everything(error: ls.LensletError) -> None:
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)


def test_facts_that_are_not_given_are_none() -> None:
    error = ls.InputError("x")
    assert (error.file, error.line, error.key, error.value, error.expected) == (None, None, None, None, None)
    assert ls.FileError("x").file is None
    assert ls.FileError("x").errno is None
    assert ls.DeviceError("x").device is None
    assert (ls.OutOfMemoryError("x").needed, ls.OutOfMemoryError("x").available) == (None, None)
    assert (ls.ConvergenceError("x").iterations, ls.ConvergenceError("x").residual) == (None, None)


def test_the_error_of_a_line(tiny: ls.System) -> None:
    text = tiny.to_toml()
    number = 1 + next(k for k, line in enumerate(text.splitlines()) if line.startswith("r0 ="))
    with pytest.raises(ls.InputError) as caught:
        ls.System.from_toml(text.replace("r0 = 0.15", "r0 = 15"), name="wide.toml")
    error = caught.value
    assert (error.file, error.line, error.key, error.value) == ("wide.toml", number, "atmosphere.r0", "15")
    assert str(error).startswith(f"wide.toml:{number}: atmosphere.r0 = 15: expected {error.expected}")
    again = pickle.loads(pickle.dumps(error))
    assert vars(again) == vars(error)
    assert str(again) == str(error)


def test_without_a_file_there_is_no_line(tiny: ls.System) -> None:
    with pytest.raises(ls.InputError) as caught:
        tiny.replace(outer_scale=0.0)
    assert (caught.value.file, caught.value.line, caught.value.key) == (None, None, "atmosphere.outer_scale")


def test_a_missing_value_is_none(tiny: ls.System) -> None:
    with pytest.raises(ls.InputError) as caught:
        tiny.replace(outer_scale=None)
    assert caught.value.key == "atmosphere.layers[0].outer_scale"
    assert caught.value.value is None
    assert "atmosphere.outer_scale" in str(caught.value.expected)


def test_devices(tiny: ls.System) -> None:
    with pytest.raises(ls.InputError) as caught:
        tiny.covariance(device="tpu")
    assert caught.value.value == "tpu"
    with pytest.raises(ls.InputError) as caught:
        tiny.covariance(precision="f16")
    assert (caught.value.key, caught.value.value) == ("precision", "f16")
    with pytest.raises(ls.DeviceError) as missing:
        tiny.covariance(device="cuda:4095")
    assert missing.value.device == "cuda:4095"


def test_what_does_not_fit_into_the_memory() -> None:
    huge = ls.System(
        r0=0.15,
        outer_scale=25.0,
        layers=[{"altitude": 0.0, "fraction": 1.0}],
        lenslets=2000,
        pitch=0.01,
        guide_stars=[{"noise": 1e-14}],
    )
    with pytest.raises(ls.OutOfMemoryError) as caught:
        huge.covariance(form="dense")
    error = caught.value
    assert error.needed is not None
    assert error.available is not None
    assert error.needed > error.available > 0
    assert error.needed >= 8 * (2 * 2000**2) ** 2


def test_what_does_not_converge_is_warned_of_with_the_line_of_the_caller(tiny: ls.System) -> None:
    slopes = tiny.simulate(frames=2).slopes
    with pytest.warns(ls.LensletWarning, match="2 of 2 frames fell short") as caught:
        estimate = tiny.estimate(slopes, method="iterative", iterations=1, tolerance=1e-12)
    assert [one.filename for one in caught] == [__file__]
    assert not estimate.converged.any()
    assert all(isinstance(reason, str) for reason in estimate.shortfall)
    estimator = tiny.estimator(method="iterative", iterations=1, tolerance=1e-12)
    with pytest.warns(ls.LensletWarning, match="1 of 1 frames fell short") as caught:
        estimator(slopes[0])
    assert [one.filename for one in caught] == [__file__]
