"""What is on the disks, and what a leader must have of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jbod_model.broker.assignments import Replica
from jbod_model.formats.records import PartitionRecord, TopicRecord
from jbod_model.ids import KAFKA_IDS, Uuid
from jbod_model.profiles import KAFKA_BROKER
from jbod_model.replay.image import Image
from lab.explore.controller_part import Metadata
from lab.explore.machine import Machine, running
from lab.explore.physical import check_records

TOPIC = Uuid(1, 1)
REPLICA = Replica(TOPIC, 0)
DISKS = {1: Uuid(11, 1), 2: Uuid(12, 1)}


def metadata(acknowledged: int) -> Metadata:
    image = Image()
    partition = PartitionRecord(
        topic_id=TOPIC, partition_id=0, replicas=(1, 2), isr=(1, 2), leader=1, directories=tuple(DISKS.values())
    )
    for offset, record in enumerate((TopicRecord(name="t", topic_id=TOPIC), partition)):
        image = image.apply(record, offset)
    return Metadata(image, acknowledged={REPLICA: acknowledged})


def machine(broker_id: int, end: int) -> Machine:
    """A running broker whose log of the replica has this end offset."""
    directory = DISKS[broker_id]
    host = running(
        Machine(broker_id=broker_id, log_dirs=(directory,), working=frozenset({directory})), KAFKA_BROKER, KAFKA_IDS
    )
    assert host.broker is not None
    disks = replace(host.broker.replicas.disks, current={REPLICA: directory})
    broker = replace(host.broker, replicas=replace(host.broker.replicas, disks=disks))
    return replace(host, broker=broker, ends=frozenset({((REPLICA, directory, False), end)} if end else ()))


@pytest.mark.parametrize(
    ("acknowledged", "leader", "follower", "thrown_away", "lacks"),
    [
        (2, 2, 2, False, False),
        (2, 1, 2, False, True),
        (2, 1, 1, False, True),  # no disk has the second record
        (2, 1, 1, True, False),  # it was thrown away with a disk
        (2, 1, 2, True, True),
        (1, 1, 2, True, False),  # the second record was never acknowledged
        (0, 0, 0, False, False),
    ],
)
def test_leader_lacks_records_if_an_acknowledged_one_is_elsewhere(
    acknowledged: int, leader: int, follower: int, thrown_away: bool, lacks: bool
) -> None:
    """R-INV-38."""
    machines = [machine(1, leader), machine(2, follower)]
    breaches = check_records(metadata(acknowledged), machines, thrown_away=thrown_away)
    assert [breach.number for breach in breaches] == ([38] if lacks else [])


def test_leader_that_is_dead_or_has_no_log_serves_nobody() -> None:
    """R-INV-38: that is another invariant's."""
    dead = replace(machine(1, 0), broker=None)
    empty = running(replace(machine(1, 0), broker=None), KAFKA_BROKER, KAFKA_IDS)
    for leader in (dead, empty):
        assert check_records(metadata(2), [leader, machine(2, 2)], thrown_away=False) == ()
