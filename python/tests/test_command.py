"""The command as an entry point of the package."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import lenslet as ls
import pytest
from conftest import ROOT

Command = Callable[..., subprocess.CompletedProcess[str]]


def test_version(command: Command) -> None:
    assert command("--version").stdout == f"lenslet {ls.__version__}\n"


def test_info_counts_the_threads(command: Command) -> None:
    assert f"{ls.threads()} thread" in command("info").stdout


def test_exit_codes(command: Command) -> None:
    assert "no/such.toml" in command("psf", "no/such.toml", "-o", "no.fits", code=2).stderr
    assert "Usage" in command("nonsense", code=2).stderr


def test_an_interrupt_ends_the_command(tmp_path: Path) -> None:
    import signal
    import time

    # A process that a shell started in the background ignores interrupts, and so do its children.
    start = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); from lenslet.cli import main; sys.exit(main())"
    program = [sys.executable, "-c", start, "stem", "book/systems/silicon-stem.toml", "-o", str(tmp_path / "scan.h5")]
    with subprocess.Popen(program, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as child:
        time.sleep(2.0)
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=30) == 130


@pytest.mark.parametrize(
    "name", [one.name for one in pkgutil.iter_modules(ls.__path__, "lenslet.") if "_lenslet" not in one.name]
)
def test_examples_of_docstrings(name: str) -> None:
    needed = {"lenslet.dask": "distributed", "lenslet._sample": "ase"}.get(name)
    if needed is not None:
        pytest.importorskip(needed)
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert failed == 0
    if name in ("lenslet._system", "lenslet._sample", "lenslet._data"):
        assert tried > 0


def test_example_of_the_package() -> None:
    assert doctest.testmod(ls) == (0, 4)


def test_everything_public_is_documented() -> None:
    for name in ls.__all__:
        one = getattr(ls, name)
        if callable(one) and name not in ("Table",):
            assert one.__doc__, name
    for kind in (ls.System, ls.Sample, ls.Estimator, ls.Plan, ls.DataSet, ls.Variable):
        for name, member in vars(kind).items():
            if not name.startswith("_") and (callable(member) or isinstance(member, property | classmethod)):
                assert member.__doc__, f"{kind.__name__}.{name}"
