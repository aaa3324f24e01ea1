"""The number of shards of a new lake: by all bytes that its first replay reads."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from jbod_model.formats import records as r
from jbod_model.ids import Uuid
from pipelines.fold.machine import fold_rows
from pipelines.fold.rules import rules
from pipelines.run.options import Replay
from pipelines.run.runner import Runner
from pipelines.run.stage_options import Job
from pipelines.run.stages import shard_rows
from pipelines.source.slices import read_slice
from tests.support.engine import slices
from tests.support.paths import metadata_dir
from tests.support.volume import lines_run
from tests.unit.fold.histories import log_of

LOG = metadata_dir("kafka-3.7.2")


@pytest.mark.parametrize(("start", "shards"), [("log", 2), ("snapshot", 4)])
def test_shards_of_a_new_lake_follow_the_segments_and_the_snapshot_that_it_begins_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str, shards: int
) -> None:
    """A snapshot did not count: one of two million partitions was folded in two shards."""
    segments = sum(path.stat().st_size for path in LOG.glob("*/*.log"))
    monkeypatch.setattr("pipelines.run.options.BYTES_PER_SHARD", segments // 2 + 1)
    runner = Runner(Replay(str(LOG), str(tmp_path / "lake"), start=start))
    assert runner.lake.identity.shards == shards


def test_batch_that_clears_the_eligible_leaders_of_twice_the_topics_takes_twice_the_work(tmp_path: Path) -> None:
    """Cause: each ClearElrRecord was compared with the names of all topics. 20,000 of 20,000 topics took 6 s."""
    job, work = Job("", 1, rules("kafka", "kafka"), generation=0), []
    for topics in (100, 200):
        created = (r.TopicRecord(name=f"t{number}", topic_id=Uuid(9, 1000 + number)) for number in range(topics))
        cleared = (r.ClearElrRecord(topic_name=f"t{number}") for number in range(topics))
        log = tmp_path / str(topics)
        log.mkdir()
        (piece,) = slices(log_of(log, *created, *cleared))
        rows = [row for row in shard_rows(job, 0, piece, *read_slice(piece)) if row[0] == 0]
        work.append(lines_run(partial(fold_rows, job, 0, None, rows), "pipelines.fold"))
    assert work[1] < 2.2 * work[0]
