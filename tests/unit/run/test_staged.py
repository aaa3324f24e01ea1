"""Events that travel in files beside the tables instead of through Spark."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from jbod_model.errors import JbodError
from jbod_model.formats.records import Record
from pipelines.fold.events import Events, Part, SliceIds, by_shard, events_of, join, rows_of_events
from pipelines.run import stages
from pipelines.run.options import Replay
from pipelines.run.runner import Runner
from pipelines.run.stages import FOLDER, clear_staged, read_staged, stage
from pipelines.source.positions import Slice
from pipelines.source.slices import read_slice
from tests.support import engine, local
from tests.support.paths import metadata_dir
from tests.support.tables import rows_of
from tests.support.volume import amount
from tests.unit.fold.histories import histories, log_of
from tests.unit.formats.decoded import event_rows


def events_by_shard(piece: Slice, shards: int) -> tuple[Events, np.ndarray]:
    records, kept = read_slice(piece)
    rows, bounds = by_shard(rows_of_events(records, kept), SliceIds.of(records), shards)
    return events_of(records, rows), bounds


@settings(max_examples=amount(13, 80), phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(histories(), st.integers(1, 5))
def test_part_of_a_shard_is_read_from_a_file_as_it_was_written(history: list[Record], shards: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for piece in engine.slices(log_of(Path(folder), *history)):
            events, bounds = events_by_shard(piece, shards)
            packed = events.to_bytes(bounds)
            for shard in range(shards):
                part = events.take(np.arange(bounds[shard], bounds[shard + 1]))
                assert list(event_rows(join([Part.of(packed, shard)]))) == list(event_rows(part))


@pytest.mark.exhaustive
def test_tables_of_events_that_went_through_files_are_those_of_events_that_went_through_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = metadata_dir("kafka-4.1.2")
    local.replay(log, tmp_path / "through-spark", most=200)
    monkeypatch.setattr(stages, "MANY", 1)
    files: list[int] = []

    def look(line: str) -> None:
        if line.endswith("shards"):
            files.append(len(list((tmp_path / "staged" / FOLDER).iterdir())))

    Runner(Replay(str(log), str(tmp_path / "staged"), shards=2, max_records=200), progress=look).load()
    assert min(files) > 0
    assert max(files) > 1
    assert not (tmp_path / "staged" / FOLDER).exists()
    assert not (tmp_path / "through-spark" / FOLDER).exists()
    assert rows_of(tmp_path / "staged") == rows_of(tmp_path / "through-spark")


def test_staged_file_that_is_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "MANY", 0)
    (piece, *_) = engine.slices(metadata_dir("kafka-4.1.2"))
    events, bounds = events_by_shard(piece, 2)
    name = stage(str(tmp_path), events, bounds)
    assert name is not None
    assert len(join([read_staged(str(tmp_path), name, 0)])) == bounds[1]
    clear_staged(str(tmp_path))
    with pytest.raises(JbodError, match=f"{name}: was deleted"):
        read_staged(str(tmp_path), name, 0)


def test_events_of_a_lake_on_object_storage_go_through_spark() -> None:
    (piece, *_) = engine.slices(metadata_dir("kafka-4.1.2"))
    events, bounds = events_by_shard(piece, 2)
    assert stage("s3://bucket/lake", events, bounds) is None
