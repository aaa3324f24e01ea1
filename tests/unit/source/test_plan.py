"""How far a log may be read: a lag behind the end holds back what may be cut off, and the log may change meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from jbod_model.errors import LogChanged, UsageError
from jbod_model.formats import records as r
from jbod_model.formats.log import LogWriter, write_snapshot
from jbod_model.formats.records import VersionedRecord
from jbod_model.ids import Uuid
from pipelines.formats.batches import scan
from pipelines.source.log_dir import LogDir
from pipelines.source.log_options import Settle
from pipelines.source.plan import Planner
from pipelines.source.positions import Position
from pipelines.source.scan import is_idle
from pipelines.source.slices import read_slice
from tests.support.logs import read_file
from tests.support.paths import KAFKAS, metadata_dir
from tests.support.written import TIME
from tests.unit.run.test_rollback import Batch, write

LONE: list[Batch] = [(epoch, [r.NoOpRecord()]) for epoch in (1, 1, 2, 2, 2, 3)]


# A LAG BEHIND THE END


@pytest.mark.parametrize(
    ("text", "end"), [("0", 6), ("1", 5), ("4", 2), ("6", 0), ("99", 0), ("0.005s", 5), ("0.02s", 4), ("9s", 0)]
)
def test_batch_is_read_once_enough_follows_it(tmp_path: Path, text: str, end: int) -> None:
    """Batches are ten milliseconds apart, and one more where an epoch begins."""
    log = LogDir(str(write(tmp_path, LONE)))
    assert Planner(log, settle=Settle.parse(text)).advance(Position(0)).offset == end


def test_lag_never_ends_inside_a_transaction(tmp_path: Path) -> None:
    batches: list[Batch] = [
        (1, [r.NoOpRecord()]),
        (1, [r.BeginTransactionRecord(), r.NoOpRecord()]),
        (1, [r.NoOpRecord()]),
        (1, [r.EndTransactionRecord()]),
        (1, [r.NoOpRecord()]),
    ]
    log = LogDir(str(write(tmp_path, batches)))
    ends = [Planner(log, settle=Settle(records=lag)).advance(Position(0)).offset for lag in range(7)]
    assert ends == [6, 5, 1, 1, 1, 1, 0]


@pytest.mark.parametrize("text", ["", "-1", "soon", "1m", "1.5", "s"])
def test_lag_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--settle"):
        Settle.parse(text)


# A LOG THAT CHANGES UNDER A PLANNER


def test_planner_that_follows_notices_what_was_cut_off_and_written_anew(tmp_path: Path) -> None:
    follower = Planner(LogDir(str(write(tmp_path, LONE))), settle=Settle(records=3))
    read = follower.advance(Position(0))
    assert read.offset == 3
    elected: list[Batch] = [*LONE[:4], *((5, [r.NoOpRecord()]) for _ in range(6))]
    write(tmp_path, elected)
    there = follower.advance(read)
    assert (there.offset, there.epoch) == (7, 5)
    write(tmp_path, LONE[:4])
    assert follower.advance(read) == read


def test_planner_that_slept_until_all_it_knew_was_deleted_goes_on_after_the_snapshot(tmp_path: Path) -> None:
    """It took the new beginning for a gap after what it had read: it published the snapshot, then refused the log."""
    follower = Planner(LogDir(str(write(tmp_path, LONE))))
    read = follower.advance(Position(0))
    folder = tmp_path / "__cluster_metadata-0"
    (folder / f"{0:020d}.log").unlink()
    write_snapshot(folder, (), end_offset=9, epoch=3, timestamp=TIME)
    later = LogWriter(base_offset=9)
    later.append([VersionedRecord(r.NoOpRecord(), 0)], epoch=3, timestamp=TIME + 99)
    later.write(folder)
    there = follower.advance(read)
    assert (there.offset, there.snapshot) == (10, 9)
    assert follower.advance(there) == there


@pytest.mark.parametrize("which", ["segment", "snapshot"])
def test_file_that_is_deleted_between_listing_and_reading_is_looked_for_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """Kafka deletes segments below a snapshot, and snapshots below a newer one, while they are being read."""
    log = LogDir(str(write(tmp_path, LONE)))
    folder = tmp_path / "__cluster_metadata-0"
    first = write_snapshot(folder, (), end_offset=3, epoch=2, timestamp=TIME)
    position = Position(0) if which == "segment" else Position()
    calls: list[str] = []
    good = LogDir.read

    def read(self: LogDir, path: str, start: int, end: int) -> object:
        if not calls:
            calls.append(path)
            later = LogWriter(base_offset=6)
            later.append([VersionedRecord(r.NoOpRecord(), 0)], epoch=3, timestamp=TIME + 99)
            later.write(folder)
            write_snapshot(folder, (), end_offset=6, epoch=3, timestamp=TIME)
            (folder / f"{0:020d}.log").unlink()
            first.unlink()
        return good(self, path, start, end)

    monkeypatch.setattr(LogDir, "read", read)
    planner = Planner(log)
    try:
        there = planner.advance(position)
    except LogChanged:  # told to whoever reads, who begins anew
        there = planner.advance(position)
    assert (there.offset, there.snapshot) == (7, 6)
    assert calls
    slices = list(planner.slices(position, there))
    assert [piece.snapshot for piece in slices] == [6, -1]
    for piece in slices:
        read_slice(piece)


def test_slice_that_was_rewritten_after_it_was_planned_is_not_read(tmp_path: Path) -> None:
    planner = Planner(LogDir(str(write(tmp_path, LONE))))
    (piece,) = planner.slices(Position(0), planner.advance(Position(0)))
    assert len(read_slice(piece)[0]) == 6
    write(tmp_path, [*LONE[:5], (4, [r.NoOpRecord()])])
    with pytest.raises(LogChanged, match="rewritten after the read was planned"):
        read_slice(piece)
    write(tmp_path, LONE[:5])
    with pytest.raises(LogChanged, match="cut off after the read was planned"):
        read_slice(piece)
    (tmp_path / "__cluster_metadata-0" / f"{0:020d}.log").unlink()
    with pytest.raises(LogChanged, match="the file is gone"):
        read_slice(piece)


def test_only_batches_of_one_noop_are_quiet(tmp_path: Path) -> None:
    """The bytes are Kafka's: every other batch of its logs is none."""
    noop, change = r.NoOpRecord(), r.TopicRecord(name="t", topic_id=Uuid(7, 1))
    batches: list[Batch] = [(1, [noop]), (1, [noop]), (1, [change]), (1, [noop]), (1, [noop, noop])]
    planner = Planner(LogDir(str(write(tmp_path, batches))))
    end = planner.advance(Position(0))
    assert [planner.scan.is_quiet(Position(at), end) for at in range(7)] == [False] * 6 + [True]
    write(tmp_path, batches[:4])
    end = planner.advance(Position(0))
    assert [planner.scan.is_quiet(Position(at), end) for at in range(4)] == [False] * 3 + [True]
    assert planner.scan.time(3) - planner.scan.time(1) == 20


@pytest.mark.parametrize("kafka", KAFKAS)
def test_noops_of_real_logs_are_recognised_by_their_bytes(kafka: str) -> None:
    (path, *_) = sorted((metadata_dir(kafka) / "__cluster_metadata-0").glob("*.log"))
    data = np.frombuffer(path.read_bytes(), np.uint8)
    headers = scan(data, str(path)).headers
    entries = list(read_file(path))
    idle_offsets = set(headers["base_offset"][is_idle(data, headers)].tolist())
    alone = [len([e for e in entries if e.batch_offset == entry.batch_offset]) == 1 for entry in entries]
    noops = {e.offset for e, lone in zip(entries, alone, strict=True) if lone and isinstance(e.record, r.NoOpRecord)}
    assert idle_offsets == noops


# WHAT IS NO FILE


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_segment_that_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    """The log ended before it without a word."""
    folder = write(tmp_path, LONE)
    (segment,) = folder.rglob("*.log")
    path = segment.with_name(f"{6:020d}.log")
    if kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    with pytest.raises(UsageError, match=rf"{path.name}: is no file"):
        LogDir(str(folder)).files()


@pytest.mark.parametrize(
    "name", [f"{1 << 63:020d}.log", f"{1 << 63:020d}-{1:010d}.checkpoint", f"{9:020d}-{1 << 31:010d}.checkpoint"]
)
def test_file_with_a_number_too_large_for_kafka_is_refused(tmp_path: Path, name: str) -> None:
    """R-LOG-2: it ended with an OverflowError."""
    folder = write(tmp_path, LONE)
    (folder / "__cluster_metadata-0" / name).touch()
    with pytest.raises(UsageError, match=f"{name}: no file of Kafka has an offset above int64 or an epoch above int32"):
        LogDir(str(folder))


def test_file_with_other_digits_or_a_line_break_in_its_name_does_not_count(tmp_path: Path) -> None:
    """R-LOG-2: it was read as a segment or a snapshot."""
    folder = write(tmp_path, LONE)
    whole = LogDir(str(folder)).files()
    for name in ("\u0660" * 19 + "\u0666.log", f"{6:020d}.log\n", f"{6:020d}-{3:010d}.checkpoint\n"):
        (folder / "__cluster_metadata-0" / name).touch()
    assert LogDir(str(folder)).files() == whole
