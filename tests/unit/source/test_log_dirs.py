"""Directories of several controllers settle a log by majority; a lag behind the end holds back what may be cut off."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shutil import rmtree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jbod_model.errors import LogChanged, UsageError
from jbod_model.formats import records as r
from jbod_model.formats.log_writer import LogWriter, write_snapshot
from jbod_model.formats.records import VersionedRecord
from jbod_model.ids import Uuid
from pipelines.formats.batches import scan
from pipelines.source.log_dir import LogDir
from pipelines.source.log_dirs import LogDirs
from pipelines.source.markers import is_idle
from pipelines.source.plan import Planner
from pipelines.source.positions import Position
from pipelines.source.slices import read_slice
from pipelines.source.tail import Settle
from tests.support.logs import read_file
from tests.support.paths import KAFKAS, metadata_dir
from tests.support.volume import amount
from tests.support.written import TIME
from tests.unit.replay.test_rollback import Batch, write

LONE: list[Batch] = [(epoch, [r.NoOpRecord()]) for epoch in (1, 1, 2, 2, 2, 3)]


def log_dirs(root: Path, *logs: Sequence[Batch]) -> list[str]:
    return [str(write(root / f"controller-{number}", log)) for number, log in enumerate(logs, 100)]


@pytest.mark.parametrize(
    ("lengths", "end"),
    [((6, 6, 6), 6), ((6, 6, 2), 6), ((6, 5, 6), 6), ((6, 6), 6), ((5, 5, 2), 5), ((6,), 6)],
)
def test_what_a_majority_holds_may_be_read(tmp_path: Path, lengths: Sequence[int], end: int) -> None:
    asked = LogDirs(log_dirs(tmp_path, *(LONE[:length] for length in lengths)))
    begun = asked.begin()
    there = asked.advance(begun)
    assert there.offset == end
    assert sum(piece.last - piece.first for piece in asked.slices(begun, there)) == end
    assert asked.forks() == []


@pytest.mark.parametrize(("lengths", "end"), [((6, 5, 5), 5), ((6, 2, 2), 2), ((5, 2), 2), ((6, 5, 2), 5)])
def test_newest_epoch_on_one_copy_does_not_hold_back_what_cannot_be_replaced(
    tmp_path: Path, lengths: Sequence[int], end: int
) -> None:
    """R-QUORUM-2 and R-QUORUM-4."""
    asked = LogDirs(log_dirs(tmp_path, *(LONE[:length] for length in lengths)))
    assert asked.advance(Position(0)).offset == end


def test_fork_is_reported_and_the_majority_is_read(tmp_path: Path) -> None:
    elected: list[Batch] = [*LONE[:4], (4, [r.NoOpRecord()]), (4, [r.NoOpRecord()])]
    paths = log_dirs(tmp_path, LONE, elected, elected)
    asked = LogDirs(paths)
    there = asked.advance(Position(0))
    assert (there.offset, there.epoch) == (6, 4)
    assert {piece.location for piece in asked.slices(Position(0), there)} == {paths[1]}
    assert [(fork.offset, fork.location, fork.epoch, fork.other_epoch) for fork in asked.forks()] == [
        (4, paths[1], 4, 2),
        (4, paths[2], 4, 2),
    ]


def test_copy_that_cannot_be_read_has_no_vote_until_it_can(tmp_path: Path) -> None:
    paths = log_dirs(tmp_path, LONE, LONE, LONE)
    asked = LogDirs(paths)
    rmtree(paths[0])
    assert asked.advance(Position(0)).offset == 6
    assert list(asked.silent) == paths[:1]
    write(Path(paths[0]), LONE)
    asked.advance(Position(0))
    assert asked.silent == {}
    for path in paths[:2]:
        rmtree(path)
    with pytest.raises(UsageError, match="only 1 of 3 directories can be read"):
        LogDirs(paths)


def test_directories_of_two_clusters_are_refused(tmp_path: Path) -> None:
    paths = log_dirs(tmp_path, LONE, LONE)
    (Path(paths[0]) / "meta.properties").write_text("cluster.id=zyxwvutsrqponmlkjihgfe\n")
    with pytest.raises(UsageError, match="directories of several clusters"):
        LogDirs(paths)


@settings(max_examples=amount(8, 50))
@given(st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_any_lengths_of_logs_settle_what_a_majority_holds(tmp_path_factory: object, lengths: list[int]) -> None:
    root = tmp_path_factory.mktemp("logs")  # type: ignore[attr-defined]
    paths = log_dirs(root, *(LONE[:length] for length in lengths))
    end = LogDirs(paths).advance(Position(0)).offset
    held = sorted(lengths, reverse=True)[len(lengths) // 2]
    assert end == held


def test_what_a_snapshot_holds_is_committed_however_few_directories_have_it(tmp_path: Path) -> None:
    """R-QUORUM-5: Kafka makes a snapshot of nothing that is not."""
    paths = log_dirs(tmp_path, LONE, LONE[:2], LONE[:2])
    write_snapshot(Path(paths[0]) / "__cluster_metadata-0", (), end_offset=4, epoch=2, timestamp=TIME)
    agreed = LogDirs(paths).agreed(Position(0))
    assert (agreed.end, agreed.is_committed) == (4, True)
    assert LogDirs(paths).advance(Position(0)).offset == 4


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
    assert [planner.is_quiet(Position(at), end) for at in range(7)] == [False] * 6 + [True]
    write(tmp_path, batches[:4])
    assert [planner.is_quiet(Position(at), planner.advance(Position(0))) for at in range(4)] == [False] * 3 + [True]
    assert planner.time(3) - planner.time(1) == 20


@pytest.mark.parametrize("kafka", KAFKAS)
def test_noops_of_real_logs_are_recognised_by_their_bytes(kafka: str) -> None:
    (path, *_) = sorted((metadata_dir(kafka) / "__cluster_metadata-0").glob("*.log"))
    data = np.frombuffer(path.read_bytes(), np.uint8)
    headers = scan(data, str(path)).headers
    entries = list(read_file(path))
    found = set(headers["base_offset"][is_idle(data, headers)].tolist())
    alone = [len([e for e in entries if e.batch_offset == entry.batch_offset]) == 1 for entry in entries]
    noops = {e.offset for e, lone in zip(entries, alone, strict=True) if lone and isinstance(e.record, r.NoOpRecord)}
    assert found == noops
