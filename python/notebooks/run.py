"""Execute the notebooks of this folder from top to bottom, and compare or store their outputs.

::

    python python/notebooks/run.py                     execute all notebooks; fail where a cell raises
    python python/notebooks/run.py covariance --check  compare one with its stored outputs too
    python python/notebooks/run.py covariance --write  store its outputs

Each notebook runs in an empty folder of its own, so that it depends on no working directory. Texts are compared word by
word and numbers within a relative tolerance or one unit of the last digit, whichever is more. A cell with the comment
``# varies`` prints times, or numbers of a program that need not be installed: its output is not compared. Figures are
not compared, and what goes to stderr is neither compared nor stored.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

FOLDER = Path(__file__).resolve().parent
#: A cell with this comment has outputs that differ from run to run, or from machine to machine.
VARIES = "# varies"
#: Kinds of outputs that are stored.
STORED = ("text/plain", "text/latex", "image/svg+xml", "image/png")
IMAGES = {"image/svg+xml", "image/png"}
#: Largest size of a notebook with its outputs [bytes].
LARGEST = 400_000

NUMBER = re.compile("[-+\N{MINUS SIGN}]?" r"(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
ADDRESS = re.compile(r"0x[0-9a-f]+")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def execute(path: Path, timeout: int) -> nbformat.NotebookNode:
    """Execute a notebook in an empty folder, with figures that are the same in each run.

    Returns
    -------
    nbformat.NotebookNode
        The notebook with its new outputs.

    Raises
    ------
    nbclient.exceptions.CellExecutionError
        Where a cell raises.
    """
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory(prefix="notebook-") as folder:
        settings = Path(folder, "matplotlibrc")
        settings.write_text("svg.hashsalt: lenslet\n", encoding="utf-8")
        inline = "module://matplotlib_inline.backend_inline"
        os.environ.update(MATPLOTLIBRC=str(settings), SOURCE_DATE_EPOCH="0", MPLBACKEND=inline)
        work = Path(folder, "work")
        work.mkdir()
        client = NotebookClient(
            notebook,
            timeout=timeout,
            kernel_name="python3",
            record_timing=False,
            resources={"metadata": {"path": str(work)}},
        )
        client.execute()
    return tidied(notebook)


def tidied(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The notebook without what differs between runs that print the same: counts, times, versions, pieces of streams."""
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"file_extension": ".py", "mimetype": "text/x-python", "name": "python"},
        }
    )
    count = 0
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({key: cell.metadata[key] for key in ("tags",) if key in cell.metadata})
        if cell.cell_type != "code":
            continue
        count += 1
        cell.execution_count = count
        cell.outputs = list(tidied_outputs(cell.outputs, count))
    return notebook


def tidied_outputs(outputs: list[Any], count: int) -> Iterator[Any]:
    """Yield what a cell printed, in one piece, and its results in the kinds that are stored."""
    printed = "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")
    if printed:
        yield nbformat.v4.new_output("stream", name="stdout", text=printed)
    for output in outputs:
        if output.output_type not in ("execute_result", "display_data"):
            continue
        output.data = nbformat.from_dict({kind: output.data[kind] for kind in STORED if kind in output.data})
        if "image/svg+xml" in output.data:
            output.data.pop("image/png", None)
            output.data["image/svg+xml"] = re.sub(r"\s*<dc:date>.*?</dc:date>", "", output.data["image/svg+xml"])
        output.metadata = nbformat.from_dict({})
        if output.output_type == "execute_result":
            output.execution_count = count
        if output.data:
            yield output


def text_of(cell: Any) -> str:
    """Return what a cell shows as text."""
    texts = []
    for output in cell.outputs:
        if output.output_type == "stream":
            texts.append(output.text if output.name == "stdout" else "")
        elif output.output_type in ("execute_result", "display_data") and not output.data.keys() & IMAGES:
            texts.append(output.data.get("text/plain", ""))
    return "\n".join(text.rstrip("\n") for text in texts if text)


def agree(stored: str, new: str, tolerance: float) -> bool:
    """Test whether two texts have the same words, and numbers within the tolerance or a unit of the last digit."""
    stored, new = (ADDRESS.sub("0x", text) for text in (stored, new))
    if NUMBER.sub("#", stored).split() != NUMBER.sub("#", new).split():
        return False
    return all(
        close(one, other, tolerance) for one, other in zip(NUMBER.findall(stored), NUMBER.findall(new), strict=True)
    )


def close(stored: str, new: str, tolerance: float) -> bool:
    """Test whether two written numbers agree."""
    one, other = (float(text.replace("\N{MINUS SIGN}", "-")) for text in (stored, new))
    return abs(one - other) <= max(tolerance * abs(one), 1.001 * last_digit(stored))


def last_digit(text: str) -> float:
    """Return the value of a unit in the last digit of a written number; 0 for a whole number, which is a count."""
    mantissa, _, exponent = text.lower().partition("e")
    _, point, decimals = mantissa.partition(".")
    if not point and not exponent:
        return 0.0
    return float(10.0 ** (int(exponent or 0) - len(decimals)))


def differences(stored: nbformat.NotebookNode, new: nbformat.NotebookNode, tolerance: float) -> Iterator[str]:
    """Yield both lines for each line of text that differs from the stored one."""
    for number, (before, after) in enumerate(zip(stored.cells, new.cells, strict=True)):
        if before.cell_type != "code" or VARIES in before.source:
            continue
        old, fresh = text_of(before).splitlines(), text_of(after).splitlines()
        if len(old) != len(fresh):
            yield f"cell {number}: {len(old)} lines are stored, {len(fresh)} were printed: {'; '.join(fresh[:3])}"
            continue
        for one, other in zip(old, fresh, strict=True):
            if not agree(one, other, tolerance):
                yield f"cell {number}: stored {one!r}, printed {other!r}"


def run(path: Path, arguments: argparse.Namespace) -> list[str]:
    """Execute one notebook, compare or store it; return what is wrong with it."""
    begin = time.monotonic()
    try:
        new = execute(path, arguments.timeout)
    except CellExecutionError as failure:
        return [f"{path.name}: a cell raised\n{COLOURS.sub('', str(failure))}"]
    stored = nbformat.read(path, as_version=4)
    wrong = []
    if arguments.check:
        wrong += [f"{path.name}: {difference}" for difference in differences(stored, new, arguments.tolerance)]
    if arguments.write:
        text = nbformat.writes(new)
        path.write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8")
    size = path.stat().st_size
    if (arguments.check or arguments.write) and size > LARGEST:
        wrong.append(f"{path.name}: {size} bytes with outputs, expected {LARGEST} at most: draw smaller figures")
    print(f"{path.name}: {time.monotonic() - begin:.1f} s, {size // 1000} kB", flush=True)
    return wrong


def main(given: list[str] | None = None) -> int:
    """Run the notebooks that are named.

    Returns
    -------
    int
        0, or 1 where a cell raised or an output differs, or 2 for a name that there is not.
    """
    parser = argparse.ArgumentParser(
        description="Execute notebooks, compare their outputs with the stored ones, or store them."
    )
    parser.add_argument(
        "names", nargs="*", help="names of notebooks, with or without .ipynb; all of this folder unless given"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="fail where texts or numbers differ from the stored outputs")
    what.add_argument("--write", action="store_true", help="store the outputs")
    parser.add_argument(
        "--tolerance", type=float, default=1e-3, help="relative tolerance of numbers (default %(default)s)"
    )
    parser.add_argument("--timeout", type=int, default=600, help="longest time of a cell [s] (default %(default)s)")
    arguments = parser.parse_args(given)
    known = {path.stem: path for path in sorted(FOLDER.glob("*.ipynb"))}
    names = [Path(name).stem for name in arguments.names] or list(known)
    for name in names:
        if name not in known:
            print(f"{name}: no such notebook: expected {', '.join(known)}", file=sys.stderr)
            return 2
    wrong = [line for name in names for line in run(known[name], arguments)]
    print("\n".join(wrong), end="\n" if wrong else "", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
