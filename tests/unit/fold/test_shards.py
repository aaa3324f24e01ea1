"""The number of shards of a new lake: by all bytes that its first replay reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.run.options import Replay
from pipelines.run.runner import Runner
from tests.support.paths import metadata_dir

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
