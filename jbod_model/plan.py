"""A reassignment before it runs: what the controller does when it begins, and when it is done.

The plan is played on the reference controller: the request, the unclean elections that it then holds by itself, then
every new replica joins the in-sync set that can (R-REASSIGN-1, R-REASSIGN-2, R-REASSIGN-7, R-ELECT-11, R-ISR-2).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jbod_model.controller import Context, Controller
from jbod_model.formats.requests import (
    AlterPartitionPartition,
    AlterPartitionReassignmentsRequest,
    AlterPartitionRequest,
    AlterPartitionTopic,
    BrokerState,
    ElectUncleanLeaders,
    ReassignablePartition,
    ReassignableTopic,
    Request,
)
from jbod_model.formats.responses import AlterPartitionReassignmentsResponse
from jbod_model.ids import Uuid
from jbod_model.profiles import KAFKA, Profile
from jbod_model.replay.image import Image, Partition
from jbod_model.whatif import applied

Target = tuple[str, int]
"""Topic and number of a partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPlay:
    """The cluster at the stages of a plan."""

    begun: Image
    done: Image
    """After every new replica joined that is on an active broker. A reassignment with others is still in progress."""
    refused: Mapping[Target, str] = field(default_factory=dict)
    """Why the controller refuses to begin."""


def play(
    image: Image,
    plan: Mapping[Target, tuple[int, ...]],
    *,
    profile: Profile = KAFKA,
    static_configs: Mapping[str, str] | None = None,
) -> PlanPlay:
    """Play a plan: partition -> its replicas in the end. ControllerFault if Kafka's controller itself would fail."""
    controller, context = Controller(profile), Context(static_configs=static_configs or {})

    def asked(before: Image, request: Request) -> tuple[Image, Mapping[Target, str]]:
        answer = controller.handle(before, request, context)
        after = applied(before, [each.record for each in answer.records], profile)
        if not isinstance(answer.response, AlterPartitionReassignmentsResponse):
            return after, {}
        refusals = {
            (topic.name, one.partition_index): one.error_message or ""
            for topic in answer.response.responses
            for one in topic.partitions
            if one.error_code
        }
        return after, refusals

    begun, refused = asked(image, _request(plan))
    accepted = [target for target in plan if target not in refused]
    begun, _ = asked(begun, ElectUncleanLeaders(max_elections=sys.maxsize))
    done = begun
    for request in _joins(begun, plan, accepted):
        done, _ = asked(done, request)
    return PlanPlay(begun=begun, done=done, refused=refused)


def _request(plan: Mapping[Target, tuple[int, ...]]) -> AlterPartitionReassignmentsRequest:
    topics: dict[str, list[ReassignablePartition]] = {}
    for (topic, number), replicas in plan.items():
        topics.setdefault(topic, []).append(ReassignablePartition(partition_index=number, replicas=replicas))
    return AlterPartitionReassignmentsRequest(
        topics=tuple(ReassignableTopic(name=name, partitions=tuple(ones)) for name, ones in topics.items())
    )


def _joins(
    image: Image, plan: Mapping[Target, tuple[int, ...]], accepted: Sequence[Target]
) -> Sequence[AlterPartitionRequest]:
    """What the leaders ask for when the new replicas have caught up."""
    active = {
        number for number, broker in image.brokers.items() if not broker.fenced and not broker.in_controlled_shutdown
    }
    asked: dict[int, dict[Uuid, list[AlterPartitionPartition]]] = {}
    for target in accepted:
        state = _state(image, target)
        joining = [one for one in plan[target] if one not in state.isr and one in active]
        if state.leader in image.brokers and joining:
            change = AlterPartitionPartition(
                partition_index=target[1],
                leader_epoch=state.leader_epoch,
                partition_epoch=state.partition_epoch,
                new_isr_with_epochs=tuple(BrokerState(broker_id=one) for one in (*state.isr, *joining)),
            )
            asked.setdefault(state.leader, {}).setdefault(image.topic_ids[target[0]], []).append(change)
    return [
        AlterPartitionRequest(
            broker_id=leader,
            broker_epoch=image.brokers[leader].epoch,
            topics=tuple(
                AlterPartitionTopic(topic_id=topic_id, partitions=tuple(changes))
                for topic_id, changes in topics.items()
            ),
        )
        for leader, topics in asked.items()
    ]


def _state(image: Image, target: Target) -> Partition:
    return image.topics[image.topic_ids[target[0]]].partitions[target[1]]
