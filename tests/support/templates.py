"""Folders to copy from. A process makes them once. They are removed at its end, and at the end of a run of pytest."""

from __future__ import annotations

import atexit
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

_made: list[Path] = []


def new_folder() -> Path:
    """An empty folder."""
    _made.append(Path(mkdtemp(prefix="jbod-template-")))
    return _made[-1]


@atexit.register
def remove_folders() -> None:
    """Remove all of them. Workers of pytest-xdist end without the functions that ``atexit`` knows."""
    while _made:
        rmtree(_made.pop(), ignore_errors=True)
