"""Streams on a Spark that tells a source neither where the stream stands nor how far a micro-batch may go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jbod_model.errors import UsageError
from pipelines.source.limits import Positioned, fit_reader, position_options
from pipelines.source.log_options import LogOptions, RequestOptions
from pipelines.source.readers import StreamReader
from pipelines.source.request_readers import RequestStreamReader
from tests.support.logs import first_batches, segments
from tests.support.paths import metadata_dir
from tests.support.request_lakes import request_log

LOG = "__cluster_metadata-0"


def positioned(log: Path, stands: dict[str, Any] | None = None, *, ends: bool = True) -> Positioned:
    return Positioned(StreamReader(LogOptions(path=str(log), max_records=100)), stands, ends=ends)


def ends_of(stream: Positioned) -> list[int]:
    """The ends of the micro-batches until there is nothing new."""
    ends: list[int] = []
    while (end := stream.latestOffset()["offset"]) not in ends[-1:]:
        ends.append(end)
    return ends


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return segments(metadata_dir("kafka-4.1.2"), tmp_path / "log")


def test_micro_batches_are_bounded_and_end_at_the_end_of_the_log(log: Path) -> None:
    ends = ends_of(positioned(log))
    assert ends[-1] == 630
    assert all(0 < end - before <= 100 for before, end in zip([0, *ends], ends, strict=False))


def test_stream_that_resumes_has_the_same_micro_batches_from_where_it_stands(log: Path) -> None:
    whole = positioned(log)
    for _ in range(3):
        stands = whole.latestOffset()
    assert ends_of(positioned(log, stands)) == ends_of(whole)


def test_parts_of_planned_micro_batches_are_the_log_without_gap(log: Path) -> None:
    stream = positioned(log)
    start, read = stream.initialOffset(), 0
    while (end := stream.latestOffset()) != start:
        for part in stream.partitions(start, end):
            read += sum(batch.num_rows for batch in stream.read(part))
        start = end
    assert read == 630


def test_stream_that_ends_reads_nothing_that_was_appended_after_its_first_batch(log: Path) -> None:
    last = max((log / LOG).glob("*.log"))
    content = last.read_bytes()
    last.write_bytes(first_batches(content, 600))
    end = ends_of(positioned(log))[-1]
    ending, following = positioned(log), positioned(log, ends=False)
    ending.latestOffset()
    following.latestOffset()
    last.write_bytes(content)
    assert (ends_of(ending)[-1], ends_of(following)[-1]) == (end, 630)
    assert end < 630


def test_request_logs_are_read_from_where_their_stream_stands() -> None:
    path = request_log("kafka-4.1.2")
    options = RequestOptions((str(path),), max_bytes=1 << 12)
    stands: dict[str, Any] | None = None
    ends = []
    for _ in range(3):  # a query each, as after a restart
        stands = Positioned(RequestStreamReader(options), stands, ends=True).latestOffset()
        ends.append(stands["files"][0][1])
    assert ends == sorted(set(ends))
    assert all(end - before <= 1 << 12 for before, end in zip([0, *ends], ends, strict=False))


def test_reader_is_taken_as_it_is_where_spark_says_where_the_stream_stands(log: Path) -> None:
    reader = StreamReader(LogOptions(path=str(log)))
    assert fit_reader(reader, {}) is reader


def test_stream_whose_place_nobody_tells_is_refused_by_an_older_spark(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.source.limits._LIMITS", False)
    monkeypatch.setattr("pyspark.__version__", "4.1.4")
    reader = StreamReader(LogOptions(path=str(log), max_records=100))
    with pytest.raises(UsageError, match=r"^Spark 4\.1\.4: a stream of a log needs Spark 4\.2"):
        fit_reader(reader, {})
    stands = positioned(log).latestOffset()
    for place in (stands, None):
        told_reader = fit_reader(reader, position_options(place, ends=True))
        assert isinstance(told_reader, Positioned)
        assert (told_reader.latestOffset()["offset"] > stands["offset"]) == (place is stands)
