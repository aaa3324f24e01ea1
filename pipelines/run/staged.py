"""Sends events from the decode stage to the state machine: through Spark, or as a file whose name goes through Spark.

Bytes that cross Spark are copied eight times. So the events of a large slice go to one file beside the tables. Each
shard maps its part into memory. Small slices, and those of a lake on object storage, go through Spark.
"""

from __future__ import annotations

import contextlib
import mmap
import shutil
import uuid
from pathlib import Path

import numpy as np

from jbod_model.errors import JbodError
from pipelines.fold.events import Events, Part

FOLDER = "_staged"
MANY = 4096
"""The number of events in a slice from which on a file is faster."""


def stage(lake: str, events: Events, bounds: np.ndarray) -> str | None:
    """Writes a slice's events (those of shard k between ``bounds`` k and k + 1) and returns the file's name.

    Returns None if they must go through Spark.
    """
    if not lake or "://" in lake or len(events) < MANY:
        return None
    path = Path(lake, FOLDER, uuid.uuid4().hex)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(events.to_bytes(bounds))
    return path.name


def read_staged(lake: str, name: str, shard: int) -> Part:
    """The events of one shard in a file that ``stage`` wrote."""
    try:
        with Path(lake, FOLDER, name).open("rb") as file:
            return Part.of(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), shard)
    except FileNotFoundError:
        raise JbodError(f"{lake}/{FOLDER}/{name}: was deleted during the run: run again") from None


def clear_staged(lake: str) -> None:
    """Removes staged files: after each publication, and those that a dead run left."""
    if "://" not in lake:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(Path(lake, FOLDER))
