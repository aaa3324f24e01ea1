"""What no record of the metadata can tell, counted (docs/spec/loss.md, "What the metadata cannot say")."""

from __future__ import annotations

import pytest

from jbod_model.controller import Context, Controller
from jbod_model.formats.records import ConfigRecord
from jbod_model.formats.requests import (
    AlterPartitionPartition,
    AlterPartitionReassignmentsRequest,
    AlterPartitionRequest,
    AlterPartitionTopic,
    BrokerState,
    ReassignablePartition,
    ReassignableTopic,
    Request,
)
from jbod_model.profiles import KAFKA
from tests.support.images import brokers, one_topic, partition
from tests.support.volume import sampled
from tests.unit.model.loss.loss_operations import BEYOND, run
from tests.unit.model.loss.loss_story import A, C

HISTORIES = 150
UNCLEAN = ConfigRecord(resource_type=2, resource_name="t", name="unclean.leader.election.enable", value="true")


@pytest.mark.parametrize("beyond", sampled(BEYOND, 2))
def test_model_is_wrong_only_after_what_no_record_can_tell(beyond: str) -> None:
    """R-LOSS-1, R-LOSS-2, R-LOSS-3, R-LOSS-4, R-LOSS-5, R-LOSS-6, R-LOSS-7, R-LOSS-8, R-LOSS-9, R-LOSS-10 hold up to
    there: ``run`` raises for any other difference. Each case is real: some go wrong."""
    worlds = [run(seed, beyond=beyond) for seed in range(HISTORIES)]
    wrong = sum(world.counts.get("not told", 0) + world.counts.get("told wrong", 0) for world in worlds)
    print(f"{beyond}: wrong in {wrong} of {HISTORIES} histories")
    assert wrong > 0


def test_record_of_a_cancelled_reassignment_can_be_that_of_a_completed_one() -> None:
    """R-LOSS-3: broker 1 was reassigned to broker 2 and back. Broker 2 leads alone, and is both added and removed.
    A cancellation elects broker 1, which misses writes. The record is that of broker 1 catching up."""
    state = partition((1, A), (2, C), isr=(2,), leader=2, adding_replicas=(2,), removing_replicas=(2,))
    image = one_topic(state, registered=brokers((A,), (C,))).apply(UNCLEAN, 0, profile=KAFKA)
    (topic_id,) = image.topics
    cancelled = ReassignableTopic(name="t", partitions=(ReassignablePartition(partition_index=0, replicas=None),))
    joined = AlterPartitionPartition(
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        new_isr_with_epochs=tuple(
            BrokerState(broker_id=broker, broker_epoch=image.brokers[broker].epoch) for broker in (1, 2)
        ),
    )
    requests: tuple[Request, ...] = (
        AlterPartitionReassignmentsRequest(topics=(cancelled,)),
        AlterPartitionRequest(
            broker_id=2,
            broker_epoch=image.brokers[2].epoch,
            topics=(AlterPartitionTopic(topic_id=topic_id, partitions=(joined,)),),
        ),
    )
    answers = [Controller(KAFKA).handle(image, request, Context(next_offset=9)) for request in requests]
    assert len(answers[0].records) == 1
    assert answers[0].records == answers[1].records
