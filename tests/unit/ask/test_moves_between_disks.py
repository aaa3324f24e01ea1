"""Moves of replicas between the disks of a broker, from the log alone and with the request stream."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import accumulate
from pathlib import Path
from random import Random

import pytest

from jbod_model.formats.codec import encode
from jbod_model.formats.records import (
    BrokerRegistrationChangeRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    TopicRecord,
    VersionedRecord,
)
from jbod_model.ids import Uuid
from lab.simulation.output import write_world
from lab.simulation.stories import play
from pipelines.ask.moves import Move, count_moves, moves
from pipelines.cli import main
from pipelines.lake.reader import Lake
from tests.support.lakes import write_lake
from tests.support.logs import Entry, read_log
from tests.support.paths import metadata_dir
from tests.support.request_lakes import JoinedLake, request_lines
from tests.support.volume import amount, sampled

A, B, C, OTHER = (Uuid(9, lsb) for lsb in (101, 102, 103, 201))
TOPIC = Uuid(1, 1)
VERSIONS = {RegisterBrokerRecord: 3, PartitionRecord: 1, PartitionChangeRecord: 1, BrokerRegistrationChangeRecord: 2}
BORN: list[tuple[int, Record]] = [
    (0, RegisterBrokerRecord(broker_id=1, broker_epoch=1, log_dirs=(A, B, C), fenced=False)),
    (0, RegisterBrokerRecord(broker_id=2, broker_epoch=2, log_dirs=(OTHER,), fenced=False)),
    (0, TopicRecord(name="t", topic_id=TOPIC)),
    (0, PartitionRecord(topic_id=TOPIC, partition_id=0, replicas=(1, 2), isr=(1, 2), leader=1, directories=(A, OTHER))),
]
FIRST = len(BORN)


def _to(directory: Uuid) -> PartitionChangeRecord:
    return PartitionChangeRecord(topic_id=TOPIC, partition_id=0, directories=(directory, OTHER))


def _moves(path: Path, *later: tuple[int, Record]) -> list[Move]:
    """The moves in a log of one partition and then ``later``, each at a second; it ends after two hours."""
    entries = []
    for offset, (second, record) in enumerate([*BORN, *later, (7_200, NoOpRecord())]):
        versioned = VersionedRecord(record, VERSIONS.get(type(record), 0))
        entries.append(Entry(offset, 1, second * 1_000_000, offset, encode(versioned), None, versioned, None))
    write_lake(path / "lake", entries)
    lake = Lake.open(path / "lake")
    disk_moves = moves(lake)
    assert count_moves(lake).outcomes == Counter(move.outcome for move in disk_moves)
    for number in range(1, len(disk_moves) + 1):
        assert moves(lake, number) == disk_moves[-number:]
    return disk_moves


def _outcomes(disk_moves: list[Move]) -> list[tuple[int, str, int | None, int]]:
    return [(move.accepted_offset, move.outcome, move.reverted_offset, move.flips) for move in disk_moves]


def test_a_move_that_stays_was_promoted_and_one_that_is_new_was_accepted(tmp_path: Path) -> None:
    disk_moves = _moves(tmp_path, (60, _to(B)), (7_199, _to(C)))
    assert _outcomes(disk_moves) == [(FIRST, "promoted", None, 0), (FIRST + 1, "accepted", None, 0)]
    assert (disk_moves[0].source, disk_moves[0].target, disk_moves[0].broker_id) == (str(A), str(B), 1)
    assert disk_moves[0].duration is None


def test_a_move_that_is_undone_soon_was_reverted_and_later_it_is_a_separate_move(tmp_path: Path) -> None:
    assert _outcomes(_moves(tmp_path / "a", (60, _to(B)), (90, _to(A)))) == [(FIRST, "reverted", FIRST + 1, 0)]
    assert _outcomes(_moves(tmp_path / "b", (60, _to(B)), (3_600, _to(A)))) == [
        (FIRST, "promoted", None, 0),
        (FIRST + 1, "promoted", None, 0),
    ]


def test_a_broker_that_corrects_itself_there_and_back_made_one_move(tmp_path: Path) -> None:
    disk_moves = _moves(tmp_path, (60, _to(B)), (61, _to(A)), (62, _to(B)))
    assert _outcomes(disk_moves) == [(FIRST + 2, "promoted", None, 1)]


@pytest.mark.parametrize("seed", sampled(range(20), 5))
def test_moves_of_a_replica_that_moves_often_are_those_of_one_pass_over_its_directories(
    tmp_path: Path, seed: int
) -> None:
    """R-MOVE-7. The query takes moves apart that are more than ten minutes from others."""
    draw = Random(seed)
    seconds = list(accumulate(draw.choice((1, 599, 600, 601, 1_200)) for _ in range(10)))
    targets = [draw.choice((A, B, C)) for _ in seconds]
    expected: list[list[str]] = []
    source, before = A, 0
    for second, target in zip(seconds, targets, strict=True):
        if target == source:
            continue
        step, back = f"{source}>{target}", f"{target}>{source}"
        undone = expected and len(expected[-1]) % 2 == 0
        if expected and second - before <= 600 and expected[-1][0] == (step if undone else back):
            expected[-1].append(step)
        else:
            expected.append([step])
        source, before = target, second
    disk_moves = _moves(tmp_path, *((second, _to(target)) for second, target in zip(seconds, targets, strict=True)))
    assert [(f"{move.source}>{move.target}", move.outcome == "reverted", move.flips) for move in disk_moves] == [
        (steps[0], len(steps) % 2 == 0, (len(steps) - 1) // 2) for steps in expected
    ]


def test_a_replica_whose_disk_had_failed_was_recreated(tmp_path: Path) -> None:
    failed = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, log_dirs=(B, C))
    assert _outcomes(_moves(tmp_path / "a", (60, failed), (90, _to(B)))) == [(FIRST + 1, "recreated", None, 0)]
    again = RegisterBrokerRecord(broker_id=1, broker_epoch=9, incarnation_id=Uuid(5, 2), log_dirs=(B, C), fenced=False)
    fenced = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=1)
    starting = _moves(tmp_path / "b", (80, fenced), (90, _to(B)), (95, again))
    assert _outcomes(starting) == [(FIRST + 1, "recreated", None, 0)]


def test_a_replica_that_a_running_broker_reports_before_it_starts_without_the_old_disk_was_moved(
    tmp_path: Path,
) -> None:
    """R-COPY-3: as in its history. Moves took whatever came within a minute before such a start for recreated."""
    again = RegisterBrokerRecord(broker_id=1, broker_epoch=9, incarnation_id=Uuid(5, 2), log_dirs=(B, C), fenced=False)
    assert _outcomes(_moves(tmp_path, (90, _to(B)), (95, again))) == [(FIRST, "promoted", None, 0)]


@pytest.mark.parametrize("scenario", ["move-cancelled", "move-source-fails", "move-destination-fails"])
def test_a_simulated_move_that_is_cancelled_or_loses_a_disk_was_reverted(tmp_path: Path, scenario: str) -> None:
    write_world(play(scenario, 0), tmp_path)
    write_lake(tmp_path / "lake", read_log(tmp_path / "controller-100"))
    disk_moves = moves(Lake.open(tmp_path / "lake"))
    assert [move.outcome for move in disk_moves] == ["reverted", "reverted"]


def test_moves_up_to_an_offset_know_nothing_of_what_came_later(tmp_path: Path) -> None:
    _moves(tmp_path, (60, _to(B)), (90, _to(A)))
    assert _outcomes(moves(Lake.open(tmp_path / "lake", FIRST))) == [(FIRST, "accepted", None, 0)]
    assert not moves(Lake.open(tmp_path / "lake", FIRST - 1))


def test_the_request_stream_has_the_request_time_of_a_real_move(tmp_path: Path) -> None:
    lake = JoinedLake(tmp_path / "lake", "kafka-4.1.2")
    lake.replay()
    lake.add(request_lines("kafka-4.1.2"))
    disk_moves = moves(Lake.open(tmp_path / "lake"))
    assert Counter(move.outcome for move in disk_moves) == {"recreated": 24, "accepted": 1}
    (moved,) = [move for move in disk_moves if move.outcome == "accepted"]
    assert (moved.topic, moved.partition, moved.broker_id, moved.accepted_offset) == ("pinned", 2, 1, 135)
    assert all(move.first_requested_time is not None and move.requests >= 1 for move in disk_moves)
    durations = [move.duration for move in disk_moves if move.duration is not None]
    assert len(durations) == 25 and max(durations) < timedelta(seconds=1)


def test_the_longest_of_real_moves_is_that_of_all_until_each_offset(tmp_path: Path) -> None:
    written = JoinedLake(tmp_path / "lake", "kafka-4.1.2")
    written.replay()
    later = [line for line in request_lines("kafka-4.1.2") if line >= b"[2026-11-21 02:22"]
    written.add(later)
    for offset in sorted({move.accepted_offset for move in moves(Lake.open(tmp_path / "lake"))})[:: amount(4, 1)]:
        lake = Lake.open(tmp_path / "lake", offset)
        counts, disk_moves = count_moves(lake), moves(lake)
        longest = max((move.duration for move in disk_moves if move.duration is not None), default=None)
        assert (counts.count, counts.longest_duration) == (len(disk_moves), longest)
        if longest is not None:
            assert counts.longest == next(move for move in disk_moves if move.duration == longest)


def test_the_command_shows_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_lake(tmp_path / "lake", read_log(metadata_dir("kafka-3.9.2-upgrade")))
    with pytest.raises(SystemExit) as left:
        main.main(["moves", "--lake", str(tmp_path / "lake")])
    assert left.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("3 moves between disks: 3 accepted.")
    assert [line.split()[0] for line in lines[2:]] == ["old-2", "old-1", "old-0"]
