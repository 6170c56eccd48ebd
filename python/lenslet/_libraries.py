"""Folders of NVIDIA's libraries that are packages of this Python."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from . import _lenslet


def add_library_folders() -> None:
    """Hand over the ``site-packages`` of this package and those of the packages ``nvidia``; nothing is opened before a GPU is used."""
    folders = [Path(__file__).parent.parent]
    found = importlib.util.find_spec("nvidia")
    if found is not None:
        folders += [Path(folder).parent for folder in found.submodule_search_locations or ()]
    for folder in folders:
        _lenslet.add_library_folder(folder.absolute())
