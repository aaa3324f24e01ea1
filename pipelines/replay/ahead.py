"""The slices of a log's first batch, decoded while Spark starts: seconds in which a core of this machine idles.

A process of its own does what the decode stage would, from the last slice on, and leaves the rows beside the tables.
The stage takes a slice's rows from there, told by all that its plan says, fingerprint included, and decodes what is not
there itself. Its first question ends the process's work. On one machine only, and for the first batch of a new lake.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from jbod_model.errors import JbodError
from pipelines.replay.staged import FOLDER
from pipelines.source.pieces import Slice

if TYPE_CHECKING:
    from pipelines.replay.job import Job
    from pipelines.source.plan import Planner

LEAST = 64 << 20
"""Bytes of a log from which it is worth a process."""
_PLACE = f"{FOLDER}/ahead"
_END = "end"
_GIVES_WAY = 5
"""Niceness: Spark's start has the cores first."""


@contextmanager
def decoding(planner: Planner, job: Job, start: str, most: int) -> Iterator[None]:
    """Decode ahead until told to end: the first batch of at most ``most`` records, beginning as ``start`` says."""
    place = Path(job.lake, _PLACE)
    place.mkdir(parents=True, exist_ok=True)
    process = get_context("spawn").Process(target=_decode, args=(planner, job, start, most), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def taken(lake: str, piece: Slice, sequence: int) -> pa.RecordBatch | None:
    """The rows of a slice, of STAGE_SCHEMA, if they were decoded ahead. Nothing more is from now on."""
    place = Path(lake, _PLACE)
    if "://" in lake or not place.is_dir():
        return None
    (place / _END).touch()
    try:
        with pa.memory_map(str(place / _name(piece))) as source:
            rows = pa.ipc.open_file(source).get_batch(0)
    except FileNotFoundError:
        return None
    at = rows.schema.get_field_index("sequence")
    return rows.set_column(at, rows.schema.field(at), pa.array(np.full(len(rows), sequence)))


def _name(piece: Slice) -> str:
    return hashlib.sha256(json.dumps(asdict(piece)).encode()).hexdigest()


def _decode(planner: Planner, job: Job, start: str, most: int) -> None:
    """What the process does. It ends with its parent, and where a record is refused: the stage will say so."""
    from pipelines.memory import keep_memory
    from pipelines.replay.stages import decode_slice, rows_batch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
    os.nice(_GIVES_WAY)
    keep_memory()
    parent, place = os.getppid(), Path(job.lake, _PLACE)
    try:
        begin = planner.begin(start)
        for piece in reversed(list(planner.slices(begin, planner.advance(begin, most or None)))):
            if (place / _END).exists() or os.getppid() != parent:
                return
            rows = rows_batch(job, list(decode_slice(job, 0, piece)))
            written = place / f"{_name(piece)}.new"
            with pa.ipc.new_file(str(written), rows.schema) as sink:
                sink.write_batch(rows)
            written.rename(place / _name(piece))
    except (JbodError, OSError):
        return
