"""Events on their way from the decode stage to the state machine: Spark carries them, or where they lie.

Bytes that cross Spark are copied eight times. Those of a large slice are written to one file beside the tables, which
the shards map into memory, each reading its part. What is small, or of a lake on object storage, goes through Spark.
"""

from __future__ import annotations

import contextlib
import mmap
import shutil
import uuid
from pathlib import Path

import numpy as np

from jbod_model.errors import JbodError
from pipelines.replay.events import Events, Part

FOLDER = "_staged"
MANY = 4096
"""Events of a slice from which a file is worth its opening."""


def stage(lake: str, events: Events, bounds: np.ndarray) -> str | None:
    """Write a slice's events, shard k's between ``bounds`` k and k + 1, and give the file's name.

    None where they are to go through Spark.
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
        raise JbodError(f"{lake}/{FOLDER}/{name}: is gone in mid-run: run again") from None


def clear_staged(lake: str) -> None:
    """Remove what no batch needs any more: after each publication, and what a run that died left."""
    if "://" not in lake:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(Path(lake, FOLDER))
