"""A reassignment before it runs: what the controller does when it begins, and when it is done.

The plan is played on the reference controller: the request, the unclean elections that it then holds by itself, then
every new replica joins the in-sync set that can (R-REASSIGN-1, R-REASSIGN-2, R-REASSIGN-7, R-ELECT-11, R-ISR-2).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from jbod_model.controller import Context, Controller
from jbod_model.formats.requests import (
    TOPIC_RESOURCE,
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
from jbod_model.replay.offline import has_online_dir
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


class Outcome(NamedTuple):
    """What becomes of a partition."""

    begun_leader: int
    begun_recovery: int
    """leader_recovery_state when the plan has begun."""
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    """Those five are of the end."""
    refused: str = ""
    """Why the controller refuses to begin; empty if it does not."""

    @classmethod
    def of(cls, played: PlanPlay, target: Target) -> Outcome:
        """That of a partition of a play."""
        begun, done = _state(played.begun, target), _state(played.done, target)
        return cls(
            begun.leader,
            begun.leader_recovery_state,
            done.leader,
            done.replicas,
            done.isr,
            done.adding_replicas,
            done.removing_replicas,
            played.refused.get(target, ""),
        )


def outcomes(
    image: Image,
    plan: Mapping[Target, tuple[int, ...]],
    *,
    profile: Profile = KAFKA,
    static_configs: Mapping[str, str] | None = None,
) -> Mapping[Target, Outcome]:
    """What becomes of the partitions of a plan, of which one of each kind is played.

    Partitions are of a kind if they differ only in names: of brokers in equal states, of their directories, of topics
    with equal settings. The controller does not read the names, except that it sorts removed replicas (R-REASSIGN-1),
    and writes them into a refusal: of a kind that is refused every partition is played.
    """
    kinds: dict[object, list[Target]] = {}
    brokers: dict[Target, list[int]] = {}
    for target in plan:
        kind, brokers[target] = _kind(image, plan, target)
        kinds.setdefault(kind, []).append(target)

    def played(wanted: set[Target]) -> PlanPlay:
        # A topic's partition 0 says how many in-sync replicas its partitions need at most (R-CFG-3).
        with_first = wanted | {(topic, 0) for topic, _ in wanted}
        some = {target: replicas for target, replicas in plan.items() if target in with_first}
        return play(image, some, profile=profile, static_configs=static_configs)

    first = played({members[0] for members in kinds.values()})
    refused = {target for members in kinds.values() if members[0] in first.refused for target in members[1:]}
    again = played(refused) if refused else first
    outcome_of: dict[Target, Outcome] = {}
    for members in kinds.values():
        outcome = Outcome.of(first, members[0])
        for target in members:
            if target in refused:
                outcome_of[target] = Outcome.of(again, target)
            else:
                outcome_of[target] = _renamed(outcome, dict(zip(brokers[members[0]], brokers[target], strict=True)))
    return outcome_of


def _kind(image: Image, plan: Mapping[Target, tuple[int, ...]], target: Target) -> tuple[object, list[int]]:
    """All that the controller reads of a partition, with numbers for brokers; and the brokers by these numbers."""
    topic = image.topics[image.topic_ids[target[0]]]
    state, wanted = topic.partitions[target[1]], plan[target]
    numbers: dict[int, int] = {-1: -1}

    def named(brokers: Iterable[int]) -> tuple[int, ...]:
        return tuple([numbers.setdefault(broker_id, len(numbers) - 1) for broker_id in brokers])

    lists = (
        named(state.replicas),
        named(wanted),
        named(state.isr),
        named(state.eligible_leader_replicas),
        named(state.last_known_elr),
        named(state.adding_replicas),
        named(state.removing_replicas),
        named((state.leader,)),
        named(sorted(broker_id for broker_id in state.replicas if broker_id not in wanted)),
    )
    brokers = [*numbers][1:]
    registered = [image.brokers.get(broker_id) for broker_id in brokers]
    zero = topic.partitions.get(0)
    return (
        lists,
        tuple(
            None
            if registration is None
            else (registration.fenced, registration.in_controlled_shutdown, min(len(registration.directories), 2))
            for registration in registered
        ),
        tuple(
            (image.ids.kind(directory), owner is not None and directory in owner.directories)
            for directory, owner in zip(state.directories, map(image.brokers.get, state.replicas), strict=False)
        ),
        state.leader_recovery_state,
        tuple(sorted(image.configs.get((TOPIC_RESOURCE, target[0]), {}).items())),
        None if zero is None else len(zero.replicas),
        len(plan.get((target[0], 0), ())),
    ), brokers


def _renamed(outcome: Outcome, names: Mapping[int, int]) -> Outcome:
    return outcome._replace(
        begun_leader=names.get(outcome.begun_leader, -1),
        leader=names.get(outcome.leader, -1),
        replicas=tuple(names[broker] for broker in outcome.replicas),
        isr=tuple(names[broker] for broker in outcome.isr),
        adding=tuple(sorted(names[broker] for broker in outcome.adding)),
        removing=tuple(sorted(names[broker] for broker in outcome.removing)),
    )


def play(
    image: Image,
    plan: Mapping[Target, tuple[int, ...]],
    *,
    profile: Profile = KAFKA,
    static_configs: Mapping[str, str] | None = None,
) -> PlanPlay:
    """Play a plan: partition -> its replicas in the end. ControllerFault if Kafka's controller itself would fail."""
    controller, context = Controller(profile), Context(static_configs=static_configs or {})

    def ask_controller(before: Image, request: Request) -> tuple[Image, Mapping[Target, str]]:
        answer = controller.handle(before, request, context)
        after = applied(before, answer.records, profile)
        if not isinstance(answer.response, AlterPartitionReassignmentsResponse):
            return after, {}
        refusals = {
            (topic.name, partition.partition_index): partition.error_message or ""
            for topic in answer.response.responses
            for partition in topic.partitions
            if partition.error_code
        }
        return after, refusals

    begun, refused = ask_controller(image, _request(plan))
    accepted = [target for target in plan if target not in refused]
    begun, _ = ask_controller(begun, ElectUncleanLeaders(max_elections=sys.maxsize))
    done = begun
    for request in _joins(begun, plan, accepted):
        done, _ = ask_controller(done, request)
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
    changes_of_leader: dict[int, dict[Uuid, list[AlterPartitionPartition]]] = {}
    for target in accepted:
        state = _state(image, target)
        joining = [
            broker_id for broker_id in plan[target] if broker_id not in state.isr and can_join(image, state, broker_id)
        ]
        if state.leader in image.brokers and joining:
            change = AlterPartitionPartition(
                partition_index=target[1],
                leader_epoch=state.leader_epoch,
                partition_epoch=state.partition_epoch,
                new_isr_with_epochs=tuple(BrokerState(broker_id=broker_id) for broker_id in (*state.isr, *joining)),
            )
            changes_of_leader.setdefault(state.leader, {}).setdefault(image.topic_ids[target[0]], []).append(change)
    return [
        AlterPartitionRequest(
            broker_id=leader,
            broker_epoch=image.brokers[leader].epoch,
            topics=tuple(
                AlterPartitionTopic(topic_id=topic_id, partitions=tuple(changes))
                for topic_id, changes in topics.items()
            ),
        )
        for leader, topics in changes_of_leader.items()
    ]


def can_join(image: Image, state: Partition, broker_id: int) -> bool:
    """Whether a replica can catch up: its broker is active, and its directory, if the log says one, is online."""
    broker = image.brokers.get(broker_id)
    if broker is None or not broker.is_active:
        return False
    where = state.directory(broker_id) if broker_id in state.replicas else image.ids.unassigned
    return has_online_dir(broker, where, image.ids)


def _state(image: Image, target: Target) -> Partition:
    return image.topics[image.topic_ids[target[0]]].partitions[target[1]]
