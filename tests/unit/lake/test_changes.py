"""The table ``changes`` on disk: rows stay, what is taken back is retracted, and a lake may be made without it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from jbod_model.formats import records as r
from jbod_model.formats.control_records import LeaderChangeMessage, QuorumVoter, Voter, VotersRecord
from jbod_model.ids import Uuid
from jbod_model.replay.registrations import QuorumState, RecordMoment
from pipelines.lake.publish import LakeWriter
from pipelines.lake.written_lake import Identity
from pipelines.upkeep.compact import optimize
from pipelines.upkeep.rebuild import rebuild
from pipelines.upkeep.verify import verify
from tests.support import local
from tests.support.tables import in_force, rows_of
from tests.support.volume import rare
from tests.unit.run.test_rollback import Batch, write

D0, D1, D2 = Uuid(8, 1), Uuid(8, 2), Uuid(8, 3)
TOPIC = Uuid(9, 9)
CHANGE = r.PartitionChangeRecord(topic_id=TOPIC, partition_id=0)
BEGIN: list[Batch] = [
    (1, [r.RegisterBrokerRecord(broker_id=1, broker_epoch=7, fenced=False, log_dirs=(D0, D1))]),
    (1, [r.TopicRecord(name="t", topic_id=TOPIC)]),
    (
        1,
        [
            r.PartitionRecord(
                topic_id=TOPIC, partition_id=0, replicas=(1, 2), isr=(1, 2), leader=1, directories=(D0, D2)
            )
        ],
    ),
]
MOVED: Batch = (1, [r.PartitionChangeRecord(topic_id=TOPIC, partition_id=0, directories=(D1, D2))])
FAILED: Batch = (2, [r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, log_dirs=(D1,))])


def change_rows(lake: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(str(lake / "changes")).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: row["generation"])


def plain(rows: list[dict[str, Any]], offset: int) -> list[tuple[Any, ...]]:
    wanted = ("what", "broker_id", "directory_id", "before", "after", "why", "retraction", "generation")
    return sorted(
        (tuple(row[name] for name in wanted) for row in rows if row["log_offset"] == offset), key=lambda row: str(row)
    )


def test_records_become_changes_with_their_values(tmp_path: Path) -> None:
    """R-EVENT-1, R-EVENT-2, R-EVENT-3, R-EVENT-4, R-EVENT-5, R-EVENT-6."""
    local.replay(write(tmp_path / "log", [*BEGIN, MOVED, FAILED]), tmp_path / "lake")
    rows = change_rows(tmp_path / "lake")
    zero, target, two = str(D0), str(D1), str(D2)
    assert plain(rows, 0) == [
        ("directory", 1, zero, None, "online", "registered", False, 0),
        ("directory", 1, target, None, "online", "registered", False, 0),
        ("fencing", 1, None, None, "unfenced", "registered", False, 0),
        ("registration", 1, None, None, "7", "registered", False, 0),
    ]
    assert plain(rows, 2) == [
        ("assignment", 1, None, None, zero, "created", False, 0),
        ("assignment", 2, None, None, two, "created", False, 0),
        ("isr", None, None, None, "[1,2]", "created", False, 0),
        ("leader", None, None, None, "1", "created", False, 0),
        ("offline", 2, two, None, "broker missing", None, False, 0),
    ]
    assert plain(rows, 3) == [("assignment", 1, None, zero, target, "moved", False, 0)]
    assert plain(rows, 4) == [("directory", 1, zero, "online", None, "failed", False, 0)]


def test_rollback_retracts_and_no_row_goes(tmp_path: Path) -> None:
    """R-EVENT-7, R-EVENT-8."""
    log, lake = tmp_path / "log", tmp_path / "lake"
    local.replay(write(log, [*BEGIN, MOVED]), lake)
    before = change_rows(lake)
    local.replay(write(log, [*BEGIN, FAILED]), lake)
    after = change_rows(lake)
    assert [row for row in after if row in before] == before
    assert plain(after, 3) == [
        ("assignment", 1, None, str(D0), str(D1), "moved", False, 0),
        ("assignment", 1, None, str(D1), str(D0), "moved", True, 1),
        ("directory", 1, str(D0), "online", None, "failed", False, 1),
        ("history", None, None, "4", "3", "rolled back", False, 1),
        ("offline", 1, str(D0), None, "directory offline", None, False, 1),
    ]
    assert verify(str(lake)).differences == []
    rebuild(str(lake), say=lambda _line: None)
    assert [row["why"] for row in change_rows(lake) if row["what"] == "history"] == ["rolled back", "rebuilt"]
    assert len(change_rows(lake)) == len(after) + 1


def test_no_commit_deletes_data_of_changes(tmp_path: Path) -> None:
    """``delta.appendOnly``: a remove with ``dataChange`` is against Delta's protocol, whoever commits it."""
    log, lake = tmp_path / "log", tmp_path / "lake"
    for batches in ([*BEGIN], [*BEGIN, MOVED], [*BEGIN, FAILED], [*BEGIN, FAILED, (2, MOVED[1])]):
        local.replay(write(log, batches), lake)
    rebuild(str(lake), say=lambda _line: None)
    optimize(str(lake))
    removes = [
        json.loads(line)["remove"]
        for path in (lake / "changes" / "_delta_log").glob("*.json")
        for line in path.read_text().splitlines()
        if "remove" in json.loads(line)
    ]
    assert removes
    assert not [remove for remove in removes if remove["dataChange"]]


@pytest.mark.parametrize("after", [rare([MOVED, FAILED]), [FAILED]])
def test_rows_of_a_batch_that_died_before_the_ledger_are_retracted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: list[Batch]
) -> None:
    """R-EVENT-7: the next run publishes them again, or what the log has by then."""
    log, lake = tmp_path / "log", tmp_path / "lake"
    local.replay(write(log, BEGIN), lake)

    def dies(*_: Any) -> None:
        raise OSError("the power is gone")

    with monkeypatch.context() as broken:
        broken.setattr(LakeWriter, "append_ledger", dies)
        with pytest.raises(OSError, match="the power is gone"):
            local.replay(write(log, [*BEGIN, MOVED]), lake)
    seen = change_rows(lake)
    assert plain(seen, 3) == [("assignment", 1, None, str(D0), str(D1), "moved", False, 0)]
    local.replay(write(log, [*BEGIN, *after]), lake)
    assert [row for row in change_rows(lake) if row in seen] == seen
    assert [row["why"] for row in change_rows(lake) if row["what"] == "history"] == ["not published"]
    local.replay(log, tmp_path / "fresh")
    assert in_force(change_rows(lake)) and rows_of(lake) == rows_of(tmp_path / "fresh")


def test_lake_made_without_changes_stays_without(tmp_path: Path) -> None:
    log, lake = tmp_path / "log", tmp_path / "lake"
    identity = Identity("abcdefghijklmnopqrstuv", "kafka", "kafka", 2)
    LakeWriter.create_or_open(str(lake), identity, keeps_changes=False)
    local.replay(write(log, [*BEGIN, MOVED]), lake)
    local.replay(write(log, [*BEGIN, FAILED]), lake)
    rebuild(str(lake), say=lambda _line: None)
    assert change_rows(lake) == []
    assert verify(str(lake)).differences == []
    assert "replay.changes was off" in str(DeltaTable(str(lake / "changes")).metadata().description)


def test_quorum_follows_registrations_elections_and_voters() -> None:
    """R-VOTER-1, R-VOTER-2, R-VOTER-3, R-VOTER-4."""
    first, second, third = (RecordMoment(offset, offset) for offset in (1, 2, 3))
    both = (Voter(voter_id=1), Voter(voter_id=2))
    elected = LeaderChangeMessage(leader_id=1, voters=both, granting_voters=both[1:])
    state = QuorumState().follow(r.RegisterControllerRecord(controller_id=1), first).follow(elected, second)
    assert [(state.role(member_id), member.since, member.heard) for member_id, member in state.members.items()] == [
        ("leader", second, second),
        ("voter", second, second),
    ]
    left = VotersRecord(voters=(QuorumVoter(voter_id=2, voter_directory_id=D0),))
    after = state.follow(left, third)
    assert [(after.role(member_id), member.voter, member.since) for member_id, member in after.members.items()] == [
        ("leader", False, third),
        ("voter", True, second),
    ]
    moved = VotersRecord(voters=(QuorumVoter(voter_id=2, voter_directory_id=D1),))
    assert after.follow(moved, RecordMoment(4, 4)).members[2].since == RecordMoment(4, 4)
    assert (
        after.load([r.RegisterControllerRecord(controller_id=1)], RecordMoment(5, 5)).controllers == after.controllers
    )
    assert after.follow(r.UnregisterControllerRecord(controller_id=1), third).controllers == {}
