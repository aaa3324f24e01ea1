"""The first micro-batch planned by the driver: the source answers from it as it would have planned itself."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from pipelines.source import first_batch
from pipelines.source.first_batch import plan_ahead
from pipelines.source.log_dir import LogDir
from pipelines.source.log_options import Options
from pipelines.source.plan import Planner
from pipelines.source.positions import Position
from pipelines.source.stream_reader import StreamReader
from tests.support.paths import metadata_dir
from tests.unit.replay.histories import write_log

CLUSTERS = ("kafka-3.7.2", "kafka-4.1.2", "kafka-3.9.2-upgrade")


def reader(log_dir: Path, text: str = "", **options: Any) -> StreamReader:
    return StreamReader(Options(path=str(log_dir), layout="slices", partitions=3, ahead=text, **options))


def planned(log_dir: Path, most: int | None) -> str:
    return plan_ahead(Planner(LogDir(str(log_dir))), "auto", most)


def read(source: StreamReader, limit: ReadLimit, *, ends: bool) -> list[object]:
    """What Spark asks of a stream until nothing is new: offsets, and the slices between them."""
    if ends:
        source.prepareForTriggerAvailableNow()
    said: list[object] = [at := source.initialOffset()]
    while (after := source.latestOffset(at, limit)) != at:
        said += [after, [part.slices for part in source.partitions(at, after)]]  # type: ignore[attr-defined]
        at = after
    return said


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("most", [None, 100])
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_stream_with_a_planned_batch_reads_the_same_as_without(cluster: str, most: int | None, ends: bool) -> None:
    log_dir = metadata_dir(cluster)
    limit = ReadMaxRows(most) if most else ReadAllAvailable()
    with_plan = reader(log_dir, planned(log_dir, most))
    assert read(with_plan, limit, ends=ends) == read(reader(log_dir), limit, ends=ends)
    assert (with_plan._planner is None) == (ends and most is None)


def test_batch_planned_with_another_limit_is_planned_anew() -> None:
    log_dir = metadata_dir("kafka-4.1.2")
    other = reader(log_dir, planned(log_dir, 50))
    assert read(other, ReadMaxRows(80), ends=True) == read(reader(log_dir), ReadMaxRows(80), ends=True)


def test_stream_that_resumes_from_a_checkpoint_does_not_begin_with_the_planned_batch() -> None:
    log_dir = metadata_dir("kafka-4.1.2")
    plain, limit = reader(log_dir), ReadMaxRows(70)
    first = plain.latestOffset(plain.initialOffset(), limit)
    resumed = reader(log_dir, planned(log_dir, 70))
    resumed.prepareForTriggerAvailableNow()
    assert resumed.latestOffset(first, limit) == plain.latestOffset(first, limit)


def test_log_that_ends_where_it_begins_has_no_planned_batch(tmp_path: Path) -> None:
    write_log(tmp_path, [])
    (tmp_path / f"{0:020d}.log").touch()
    assert planned(tmp_path, None) == ""


def test_plan_too_long_for_an_option_is_not_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    log_dir = metadata_dir("kafka-4.1.2")
    text = planned(log_dir, None)
    monkeypatch.setattr(first_batch, "_MOST_BYTES", len(text) - 1)
    assert (text != "", planned(log_dir, None)) == (True, "")


def test_planned_batch_names_positions_as_the_stream_does() -> None:
    log_dir = metadata_dir("kafka-3.7.2")
    found = first_batch.FirstBatch.read(planned(log_dir, None))
    assert found is not None
    source = reader(log_dir)
    assert asdict(found.start) == source.initialOffset()
    assert asdict(found.end) == source.latestOffset(source.initialOffset(), ReadAllAvailable())


def test_planner_asked_for_slices_before_it_looked_at_the_disk_raises() -> None:
    with pytest.raises(RuntimeError, match="before begin"):
        next(Planner(LogDir(str(metadata_dir("kafka-4.1.2")))).slices(Position(0), Position(1)))
