"""Slices that are decoded while Spark starts."""

from __future__ import annotations

import time
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path

import pyarrow as pa
import pytest

from pipelines.lake.tables import RECORDS
from pipelines.replay.ahead import decoding, taken
from pipelines.replay.job import Job
from pipelines.replay.rules import rules
from pipelines.replay.stages import FILE, decode_slice, rows_batch
from pipelines.source.log_dir import LogDir
from pipelines.source.pieces import Slice
from pipelines.source.plan import Planner
from tests import engine
from tests.paths import metadata_dir

LOG = metadata_dir("kafka-4.1.2")
PLACE = "_staged/ahead"


@pytest.fixture
def job(tmp_path: Path) -> Job:
    (tmp_path / RECORDS.name).mkdir()
    return Job(str(tmp_path), 2, rules("kafka", "kafka"))


def decoded(job: Job, pieces: list[Slice]) -> None:
    """Wait until all of them lie there."""
    place = Path(job.lake, PLACE)
    until = time.monotonic() + 300
    while len([path for path in place.iterdir() if not path.suffix]) < len(pieces):
        assert time.monotonic() < until
        time.sleep(0.02)


def said(rows: pa.RecordBatch) -> list[object]:
    """Rows but for the name of the file they speak of, which nobody chooses."""
    return [row for row in rows.to_pylist() if row["kind"] != FILE]


def test_rows_of_a_slice_decoded_ahead_are_those_of_the_stage(job: Job) -> None:
    pieces = list(engine.slices(LOG))
    with decoding(Planner(LogDir(str(LOG))), job, "auto", 0):
        decoded(job, pieces)
    for sequence, piece in enumerate(pieces, start=7):
        rows = taken(job.lake, piece, sequence)
        assert rows is not None
        expected = rows_batch(job, list(decode_slice(job, sequence, piece)))
        assert rows.schema == expected.schema
        assert said(rows) == said(expected)
        (file,) = (row["payload"] for row in rows.to_pylist() if row["kind"] == FILE)
        assert Path(job.lake, RECORDS.name, file.decode().split('"path": "')[1].split('"')[0]).is_file()


def test_slice_that_was_planned_otherwise_is_not_taken(job: Job) -> None:
    pieces = list(engine.slices(LOG))
    with decoding(Planner(LogDir(str(LOG))), job, "auto", 0):
        decoded(job, pieces)
    assert taken(job.lake, replace(pieces[0], fingerprint=pieces[0].fingerprint ^ 1), 0) is None


def test_first_question_ends_the_decoding(job: Job) -> None:
    (piece, *_) = engine.slices(LOG)
    assert taken(job.lake, piece, 0) is None
    assert not Path(job.lake, PLACE).exists()
    with decoding(Planner(LogDir(str(LOG))), job, "auto", 0):
        assert taken(job.lake, piece, 0) is None
        (process,) = active_children()
        process.join(300)
        assert process.exitcode == 0
    assert [path.name for path in Path(job.lake, PLACE).iterdir()] == ["end"]
