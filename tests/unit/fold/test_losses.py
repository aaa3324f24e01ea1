"""Which states of a partition can follow a loss of data (``may_follow_loss``): the engine, and the plain reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jbod_model.formats import records as r
from jbod_model.formats.log import write_snapshot
from jbod_model.formats.records import Record, VersionedRecord
from jbod_model.ids import Uuid
from tests.support import engine
from tests.support.volume import sampled
from tests.support.written import TIME
from tests.unit.fold.histories import LAST, log_of
from tests.unit.fold.test_fold_histories import reference_of

TOPIC = Uuid(9, 3000)
Step = tuple[dict[str, Any] | None, dict[str, Any]]
"""The state before, None for a first one, and what changes."""
ALL: dict[str, Any] = {"replicas": (1, 2, 3), "isr": (1, 2, 3), "leader": 1}
ALONE: dict[str, Any] = ALL | {"isr": (1,)}
NOBODY: dict[str, Any] = ALONE | {"leader": -1}

SAFE: dict[str, Step] = {
    "a replica leaves the in-sync set": (ALL, {"isr": (1, 2)}),
    "another member leads": (ALL, {"isr": (2, 3), "leader": 2}),
    "the last member is left without a leader": (ALONE, {"leader": -1}),
    "the last member becomes eligible": (ALONE, {"isr": (), "leader": -1, "eligible_leader_replicas": (1,)}),
    "the last member leads again": (NOBODY, {"leader": 1}),
    "a replica joins": (ALONE, {"isr": (1, 2)}),
    "replicas in sync leave": (ALL, {"replicas": (1, 2), "isr": (1, 2), "directories": ()}),
    "nothing changes while nobody is in sync": (NOBODY | {"isr": ()}, {"last_known_elr": (1,)}),
}
UNSAFE: dict[str, Step] = {
    "an unclean election": (ALL, {"leader_recovery_state": 1}),
    "a leader in no list": (ALL, {"isr": (1, 3), "leader": 2}),
    "a leader that is no replica": (ALL, {"replicas": (1, 2), "leader": 3, "directories": ()}),
    "an eligible leader that is no replica": (
        ALONE | {"eligible_leader_replicas": (3,)},
        {"replicas": (1, 2), "directories": ()},
    ),
    "no replica that was in sync is left": (
        ALL | {"replicas": (1, 2), "isr": (1, 2)},
        {"replicas": (3,), "isr": (), "leader": -1, "directories": ()},
    ),
    "a leader that was not in sync": (ALONE, {"isr": (1, 2), "leader": 2}),
    "an eligible leader that was not in sync": (ALONE, {"eligible_leader_replicas": (2,)}),
    "a member in sync with no leader": (ALONE, {"isr": (2,), "leader": -1}),
    "a member that was no replica": (
        ALL | {"replicas": (1, 2), "isr": (1, 2)},
        {"replicas": (1, 2, 3), "isr": (1, 2, 3), "directories": ()},
    ),
    "a first state without a leader": (None, NOBODY),
    "a first state with an eligible leader": (None, ALONE | {"eligible_leader_replicas": (2,)}),
}


def creation(state: dict[str, Any]) -> list[Record]:
    brokers: list[Record] = [
        r.RegisterBrokerRecord(broker_id=broker, broker_epoch=broker, log_dirs=(Uuid(broker, 3000),))
        for broker in (1, 2, 3)
    ]
    partition = r.PartitionRecord(
        partition_id=0,
        topic_id=TOPIC,
        leader_epoch=0,
        partition_epoch=0,
        directories=tuple(Uuid(broker, 3000) for broker in state["replicas"]),
        **state,
    )
    return [*brokers, r.TopicRecord(name="t", topic_id=TOPIC), partition]


def flags_of(rows: list[dict[str, Any]]) -> list[bool]:
    return [row["may_follow_loss"] for row in sorted(rows, key=lambda row: int(row["from_offset"]))]


@pytest.mark.parametrize("name", sampled([*SAFE, *UNSAFE], 8))
def test_state_can_follow_a_loss_if_it_names_what_the_state_before_did_not(tmp_path: Path, name: str) -> None:
    """R-LOSS-2, R-LOSS-4."""
    before, now = (SAFE | UNSAFE)[name]
    if before is None:
        log_of(tmp_path, *creation(now))
    else:
        change = r.PartitionChangeRecord(topic_id=TOPIC, partition_id=0, **now)
        log_of(tmp_path, *creation(before), change)
    for most in (None, 1):
        assert flags_of(engine.replay(tmp_path, most=most)["partitions"])[-1] == (name in UNSAFE)
    assert flags_of(reference_of(tmp_path).tables["partitions"])[-1] == (name in UNSAFE)


def test_first_state_of_a_snapshot_follows_no_loss(tmp_path: Path) -> None:
    """What was before it is not known."""
    records = [VersionedRecord(record, LAST[type(record)]) for record in creation(NOBODY)]
    write_snapshot(tmp_path, records, end_offset=9, epoch=1, timestamp=TIME)
    assert flags_of(engine.replay(tmp_path)["partitions"]) == [False]
    assert flags_of(reference_of(tmp_path, "snapshot").tables["partitions"]) == [False]
