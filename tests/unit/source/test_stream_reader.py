"""The streaming reader between two micro-batches: it waits for new records as long as Spark allows."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from benchmarks.follow import Controller
from jbod_model.errors import UsageError
from jbod_model.formats.batch import write_batch
from jbod_model.formats.codec import encode
from jbod_model.formats.records import NoOpRecord, TopicRecord, VersionedRecord
from jbod_model.ids import Uuid
from pipelines.ask.restart import MAX_AGE
from pipelines.run.options import Replay
from pipelines.source.log_options import LogOptions
from pipelines.source.readers import StreamReader
from tests.support.controller import Controller as QuorumController
from tests.support.controller import Log
from tests.support.paths import ROOT, metadata_dir
from tests.support.volume import rare
from tests.unit.fold.histories import log_of

PATIENCE = 20
"""Seconds: far more than any wait that ends early takes."""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return log_of(tmp_path, TopicRecord(name="first", topic_id=Uuid(9, 1000)))


@pytest.fixture
def controller(log: Path) -> Iterator[Controller]:
    server = Controller(log)
    yield server
    server._file.close()


def reader(log: Path, wait_seconds: float) -> tuple[StreamReader, dict[str, int]]:
    """A stream that has read the whole log, and its offset."""
    stream = StreamReader(LogOptions(path=str(log), wait_seconds=wait_seconds))
    return stream, stream.latestOffset(stream.initialOffset(), ReadAllAvailable())


def test_stream_that_waits_returns_as_soon_as_a_record_is_appended(log: Path, controller: Controller) -> None:
    stream, offset = reader(log, PATIENCE)
    append = threading.Timer(0.2, controller.append, [TopicRecord(name="second", topic_id=Uuid(9, 1001))])
    append.start()
    began = time.monotonic()
    after = stream.latestOffset(offset, ReadAllAvailable())
    append.join()
    assert after["offset"] == offset["offset"] + 1
    assert time.monotonic() - began < PATIENCE / 2


def test_stream_that_waits_does_not_return_for_a_record_of_an_idle_controller(
    log: Path, controller: Controller
) -> None:
    stream, offset = reader(log, 0.3)
    controller.append(TopicRecord(name="second", topic_id=Uuid(9, 1001)))
    offset = stream.latestOffset(offset, ReadAllAvailable())
    controller.append(NoOpRecord())
    began = time.monotonic()
    assert stream.latestOffset(offset, ReadAllAvailable()) == offset
    assert time.monotonic() - began >= 0.3


def test_lake_of_an_idle_cluster_stays_young_enough_for_a_restart(log: Path, controller: Controller) -> None:
    """Idle records came once a minute, and were older than --max-age before the next ones were published: a rolling
    restart by ``restart-plan --next`` ended with "not decidable"."""
    stream, offset = reader(log, 0)
    began = int(time.time() * 1000)
    controller.append_all([(began, [VersionedRecord(TopicRecord(name="second", topic_id=Uuid(9, 1001)), 0)])])
    offset = stream.latestOffset(offset, ReadAllAvailable())
    publishing_ms = 4_000  # more than a batch takes
    idle = range(500, int(MAX_AGE * 1000) - publishing_ms, 500)
    controller.append_all([(began + ms, [VersionedRecord(NoOpRecord(), 0)]) for ms in idle])
    assert stream.latestOffset(offset, ReadAllAvailable())["offset"] == offset["offset"] + len(idle)


def test_look_at_an_idle_controllers_log_costs_as_little_after_hours(log: Path, controller: Controller) -> None:
    """Two NoOpRecords a second: a look that reads all of them again would take more each time."""
    stream, offset = reader(log, 0)

    def look(times: int) -> float:
        began = time.thread_time()
        for _ in range(times):
            stream.latestOffset(offset, ReadAllAvailable())
        return time.thread_time() - began

    fresh = min(look(20) for _ in range(5))
    for _ in range(500):
        controller.append(NoOpRecord())
        stream.latestOffset(offset, ReadAllAvailable())
    assert min(look(20) for _ in range(5)) < 5 * fresh


def test_stream_that_ends_does_not_wait(log: Path) -> None:
    stream, offset = reader(log, PATIENCE)
    stream.prepareForTriggerAvailableNow()
    began = time.monotonic()
    assert stream.latestOffset(offset, ReadAllAvailable()) == offset
    assert time.monotonic() - began < PATIENCE / 2


def test_stream_of_a_quorum_waits_for_what_is_committed_and_reads_nothing_else(tmp_path: Path) -> None:
    written = log_of(tmp_path, TopicRecord(name="first", topic_id=Uuid(9, 1000)))
    shared = Log(b"".join(path.read_bytes() for path in written.rglob("*.log")))
    quorum = QuorumController(shared)
    stream = StreamReader(LogOptions.read({"path": quorum.url, "mirror": str(tmp_path / "m"), "waitSeconds": "20"}))
    offset = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    end = shared.end
    value = encode(VersionedRecord(TopicRecord(name="second", topic_id=Uuid(9, 1001)), 0))
    shared.append(write_batch([value], base_offset=end, epoch=1, timestamp=0), commit=False)
    commit = threading.Timer(0.3, shared.commit)
    began = time.monotonic()
    commit.start()
    after = stream.latestOffset(offset, ReadAllAvailable())
    assert 0.3 <= time.monotonic() - began < PATIENCE / 2
    assert (offset["offset"], after["offset"]) == (end, end + 1)
    quorum.close()


@pytest.mark.parametrize(
    ("path", "seconds", "expected"),
    [("/log", 2.0, 2.0), ("/log", None, 0.0), ("s3://bucket/log", 2.0, 0.0)],
    ids=["follows", "ends", "object storage"],
)
def test_source_waits_only_where_a_run_follows_a_log_on_a_disk(
    path: str, seconds: float | None, expected: float
) -> None:
    assert Replay(path, "lake", follow_seconds=seconds).wait_seconds == expected


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf"])
def test_wait_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="waitSeconds"):
        LogOptions.read({"path": "/log", "waitSeconds": text})


_PLAN = """
import sys
from pipelines.source.log_options import LogOptions
from pipelines.source.readers import StreamReader
stream = StreamReader(LogOptions(path=sys.argv[1]))
if sys.argv[2] == "once":
    stream.prepareForTriggerAvailableNow()
begin = stream.initialOffset()
end = stream.latestOffset(begin, stream.getDefaultReadLimit())
print(end["offset"], len(stream.partitions(begin, end)), "numba" in sys.modules)
"""


@pytest.mark.parametrize(("run", "compiled"), [("once", False), rare("follow", True)])
def test_process_that_plans_one_run_of_a_small_log_loads_no_compiled_kernels(run: str, compiled: bool) -> None:
    """Cause: each replay of a fleet started such a process, and two thirds of its CPU time loaded numba."""
    words = [sys.executable, "-c", _PLAN, str(metadata_dir("kafka-4.1.2")), run]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["630", "2", str(compiled)]
