"""The invariants of the metadata in every state, and of every answered request (docs/spec/invariants.md).

The numbers are those of docs/spec/invariants.md. That page says for each invariant whether Kafka and the KIP keep it,
and where it is checked. Each check yields a text for every breach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from jbod_model.audit.log_invariants import is_online
from jbod_model.controller.partition_change import NO_LEADER, RECOVERING
from jbod_model.formats.records import PartitionChangeRecord, RegisterBrokerRecord, VersionedRecord
from jbod_model.formats.requests import (
    AlterPartitionRequest,
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    Request,
)
from jbod_model.formats.responses import AssignReplicasToDirsResponse, RequestRefused, Response
from jbod_model.ids import Uuid, reserved
from jbod_model.profiles import KAFKA, Profile
from jbod_model.replay.image import Image, Partition
from jbod_model.replay.offline import offline_replicas
from jbod_model.replay.registrations import NO_LEADER_CHANGE


@dataclass(frozen=True, slots=True)
class Breach:
    """The number of an invariant that does not hold, and how it is broken."""

    number: int
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A request that was answered: the states before and after it, its records, the answer or the error."""

    before: Image
    request: Request
    records: tuple[VersionedRecord, ...]
    response: Response | RequestRefused
    after: Image
    profile: Profile = KAFKA


def partitions(image: Image) -> Iterator[tuple[tuple[Uuid, int], Partition]]:
    """Every partition with its topic and number."""
    for topic_id, topic in image.topics.items():
        for number, partition in topic.partitions.items():
            yield (topic_id, number), partition


# STATES


def one_directory_per_replica(image: Image) -> Iterator[str]:
    """R-INV-1: as many directories as replicas."""
    for place, partition in partitions(image):
        if len(partition.directories) != len(partition.replicas):
            yield f"partition {place[1]}: {len(partition.directories)} directories, {len(partition.replicas)} replicas"


def replica_sets_fit(image: Image) -> Iterator[str]:
    """R-INV-2: no replica is listed twice; in-sync and eligible ones are replicas, none is both; the leader is in
    sync."""
    for place, p in partitions(image):
        replicas, isr, eligible = set(p.replicas), set(p.isr), set(p.eligible_leader_replicas)
        if len(replicas) != len(p.replicas):
            yield f"partition {place[1]}: a replica is listed twice"
        if not isr <= replicas or not eligible <= replicas or isr & eligible:
            yield f"partition {place[1]}: isr {p.isr}, eligible {p.eligible_leader_replicas} of {p.replicas}"
        if p.leader != NO_LEADER and p.leader not in isr:
            yield f"partition {place[1]}: leader {p.leader} is not in sync"


def directories_have_one_broker(image: Image) -> Iterator[str]:
    """R-INV-6: no directory is registered by two brokers."""
    owner: dict[Uuid, int] = {}
    for broker_id, broker in image.brokers.items():
        for directory in broker.directories:
            if owner.setdefault(directory, broker_id) != broker_id:
                yield f"directory {directory} is on brokers {owner[directory]} and {broker_id}"


def leaders_can_lead(image: Image) -> Iterator[str]:
    """R-INV-9, safety: a leader is not fenced, and the directory of its replica is online."""
    for place, partition in partitions(image):
        broker = image.brokers.get(partition.leader)
        if partition.leader == NO_LEADER:
            continue
        if broker is None or broker.fenced:
            yield f"partition {place[1]}: leader {partition.leader} is fenced or unknown"
        elif not is_online(image, partition.leader, partition.directory(partition.leader)):
            yield f"partition {place[1]}: leader {partition.leader} has its replica in a directory that is offline"


def unreachable_replicas_are_shown(image: Image) -> Iterator[str]:
    """R-INV-28: clients see at least the replicas of unknown and fenced brokers, and lost ones, as offline."""
    for place, partition in partitions(image):
        if len(partition.directories) != len(partition.replicas):
            continue
        shown = offline_replicas(image, partition)
        for broker_id, directory in zip(partition.replicas, partition.directories, strict=True):
            broker = image.brokers.get(broker_id)
            if (broker is None or broker.fenced or directory == image.ids.lost) and broker_id not in shown:
                yield f"partition {place[1]}: the replica of broker {broker_id} is shown as online"


STATE_INVARIANTS: dict[int, Callable[[Image], Iterator[str]]] = {
    1: one_directory_per_replica,
    2: replica_sets_fit,
    6: directories_have_one_broker,
    9: leaders_can_lead,
    28: unreachable_replicas_are_shown,
}


def check_state(image: Image) -> tuple[Breach, ...]:
    """Every breach of an invariant of states."""
    return tuple(Breach(number, problem) for number, check in STATE_INVARIANTS.items() for problem in check(image))


# STEPS


def epochs_count_changes(step: Step) -> Iterator[str]:
    """R-INV-3: each change record raises the partition epoch, and the leader epoch where it names a leader."""
    for place, before in partitions(step.before):
        changes = [
            each.record
            for each in step.records
            if isinstance(each.record, PartitionChangeRecord)
            and (each.record.topic_id, each.record.partition_id) == place
        ]
        after = dict(partitions(step.after)).get(place)
        led = sum(change.leader != NO_LEADER_CHANGE for change in changes)
        if after is not None and (after.partition_epoch, after.leader_epoch) != (
            before.partition_epoch + len(changes),
            before.leader_epoch + led,
        ):
            yield f"partition {place[1]}: {len(changes)} changes took its epoch to {after.partition_epoch}"


def directories_stay_unless_changed(step: Step) -> Iterator[str]:
    """R-INV-4: directories change only by a record that has replicas or directories."""
    touched = {
        (each.record.topic_id, each.record.partition_id)
        for each in step.records
        if isinstance(each.record, PartitionChangeRecord)
        and (each.record.directories is not None or each.record.replicas is not None)
    }
    after = dict(partitions(step.after))
    for place, before in partitions(step.before):
        if place in after and place not in touched and after[place].directories != before.directories:
            yield f"partition {place[1]}: directories changed without a record"


def registrations_have_directories(step: Step) -> Iterator[str]:
    """R-INV-7: an accepted registration lists directories; none is listed twice or reserved."""
    for each in step.records:
        if isinstance(each.record, RegisterBrokerRecord):
            listed = each.record.log_dirs
            if not listed or len(set(listed)) != len(listed) or any(reserved(directory) for directory in listed):
                yield f"broker {each.record.broker_id} registered {listed}"


def directories_only_fail(step: Step) -> Iterator[str]:
    """R-INV-8: only a registration adds directories to a broker."""
    if isinstance(step.request, BrokerRegistrationRequest):
        return
    for broker_id, before in step.before.brokers.items():
        after = step.after.brokers.get(broker_id)
        if after is not None and not set(after.directories) <= set(before.directories):
            yield f"broker {broker_id} got directories without registering"


def failures_move_leaders(step: Step) -> Iterator[str]:
    """R-INV-10: a broker neither leads nor is in sync (except as the last one) in a directory that it reported as
    failed."""
    for place, before, after, broker_id in _failed_replicas(step):
        if after.leader == broker_id:
            yield f"partition {place[1]}: broker {broker_id} leads in a directory that it reported as failed"
        elif broker_id in after.isr and before.isr != (broker_id,):
            yield f"partition {place[1]}: broker {broker_id} is in sync in a directory that it reported as failed"


def failures_leave_a_leader(step: Step) -> Iterator[str]:
    """R-INV-11, availability: if another in-sync replica can lead after a failure, there is an in-sync leader."""
    for place, before, after, broker_id in _failed_replicas(step):
        others = [
            r for r in before.isr if r != broker_id and _active(step.before, r) and _online_on(step.before, before, r)
        ]
        if others and (after.leader == NO_LEADER or after.leader not in after.isr):
            yield f"partition {place[1]}: no leader after the failure, though {others} could lead"


def unclean_leaders_recover(step: Step) -> Iterator[str]:
    """R-INV-12: a new leader that was neither in sync nor, without in-sync replicas, eligible is marked as recovering.

    So is one that an AlterPartition request does not name: those that it names have caught up (R-ISR-4).
    """
    named = _named_in_sync(step.request)
    after = dict(partitions(step.after))
    for place, before in partitions(step.before):
        now = after.get(place)
        if now is None or now.leader in (before.leader, NO_LEADER, *before.isr, *named.get(place, ())):
            continue
        if now.leader not in before.eligible_leader_replicas and now.leader_recovery_state != RECOVERING:
            yield f"partition {place[1]}: leader {now.leader} was not in sync and is not recovering"


def _named_in_sync(request: Request) -> dict[tuple[Uuid, int], tuple[int, ...]]:
    """Partition -> the in-sync set that its leader asks for."""
    if not isinstance(request, AlterPartitionRequest):
        return {}
    every = ((topic.topic_id, change) for topic in request.topics for change in topic.partitions)
    return {
        (topic_id, change.partition_index): tuple(m.broker_id for m in change.new_isr_with_epochs)
        for topic_id, change in every
    }


def assignments_are_taken(step: Step) -> Iterator[str]:
    """R-INV-13: an assignment that is answered without error is in the metadata, and changes no other replica."""
    for place, directory, error, before, after in _assignments(step):
        if error == 0 and before is not None and after is not None:
            broker_id = _asking(step)
            expected = tuple(
                directory if r == broker_id else d for r, d in zip(before.replicas, before.directories, strict=True)
            )
            if after.directories != expected:
                yield f"partition {place[1]}: assigned {directory}, the metadata says {after.directories}"


def refusals_change_nothing(step: Step) -> Iterator[str]:
    """R-INV-14: a refused request or entry does not change the partition."""
    if isinstance(step.response, RequestRefused) and (step.records or step.before != step.after):
        yield "a refused request wrote records"
    for place, _, error, before, after in _assignments(step):
        if error and before != after:
            yield f"partition {place[1]}: an assignment answered with {error} changed it"


def offline_assignments_move_leaders(step: Step) -> Iterator[str]:
    """R-INV-15: as R-INV-10, for an assignment to an offline directory."""
    broker_id = _asking(step)
    for place, directory, error, before, after in _assignments(step):
        if error or before is None or after is None or is_online(step.before, broker_id, directory):
            continue
        if after.leader == broker_id or (broker_id in after.isr and before.isr != (broker_id,)):
            yield f"partition {place[1]}: broker {broker_id} leads or is in sync in a directory that is offline"


def repeated_assignments_are_idle(step: Step) -> Iterator[str]:
    """R-INV-16: an assignment to the present directory writes no directories."""
    if not isinstance(step.request, AssignReplicasToDirsRequest):
        return
    written = {
        (each.record.topic_id, each.record.partition_id)
        for each in step.records
        if isinstance(each.record, PartitionChangeRecord) and each.record.directories is not None
    }
    for place, directory, _, before, _ in _assignments(step):
        if before is not None and place in written and before.directory(_asking(step)) == directory:
            yield f"partition {place[1]}: directory {directory} was assigned already, and is written again"


def online_assignments_keep_eligible(step: Step) -> Iterator[str]:
    """R-INV-17: an assignment to an online directory does not change the eligible leader replicas."""
    for place, directory, error, before, after in _assignments(step):
        if error or before is None or after is None or not is_online(step.before, _asking(step), directory):
            continue
        if before.eligible_leader_replicas != after.eligible_leader_replicas and before.leader == after.leader:
            yield f"partition {place[1]}: an assignment emptied the eligible leaders {before.eligible_leader_replicas}"


def assignments_end_leaderlessness(step: Step) -> Iterator[str]:
    """R-INV-18: if assignments elect, an assignment to an online directory gives a leaderless partition a leader.

    In Kafka the election sees the old directory, so the leader needs a later event.
    """
    if step.profile.controller.election_after_assignment == "new directory":
        broker_id = _asking(step)
        for place, directory, error, before, after in _assignments(step):
            if error or before is None or after is None or before.leader != NO_LEADER:
                continue
            can_lead = broker_id in before.isr and _active(step.before, broker_id)
            if can_lead and is_online(step.before, broker_id, directory) and after.leader == NO_LEADER:
                yield f"partition {place[1]}: still without a leader, though broker {broker_id} can lead"


def foreign_directories_change_nothing(step: Step) -> Iterator[str]:
    """R-INV-20: a report that names only directories that the broker never registered changes nothing."""
    if not isinstance(step.request, BrokerHeartbeatRequest) or not step.request.offline_log_dirs:
        return
    registered = step.before.brokers[step.request.broker_id].directories
    if set(step.request.offline_log_dirs) & set(registered):
        return
    if any(p.directories != q.directories for (_, p), (_, q) in _both(step)):
        yield "a report of directories that are not registered changed an assignment"
    if (
        step.before.brokers[step.request.broker_id].directories
        != step.after.brokers[step.request.broker_id].directories
    ):
        yield "a report of directories that are not registered changed the registration"


def unfenced_brokers_are_assigned(step: Step) -> Iterator[str]:
    """R-INV-29, R-INV-30 (KIP): a broker with several directories is unfenced only with all its replicas assigned."""
    if step.profile.controller.fences_until_assigned:
        for broker_id, after in step.after.brokers.items():
            before = step.before.brokers.get(broker_id)
            if before is None or not before.fenced or after.fenced or len(before.directories) < 2:
                continue
            for place, partition in partitions(step.before):
                if broker_id in partition.replicas and partition.directory(broker_id) == step.before.ids.unassigned:
                    yield f"partition {place[1]}: broker {broker_id} is unfenced with a replica in no directory yet"


STEP_INVARIANTS: dict[int, Callable[[Step], Iterator[str]]] = {
    3: epochs_count_changes,
    4: directories_stay_unless_changed,
    7: registrations_have_directories,
    8: directories_only_fail,
    10: failures_move_leaders,
    11: failures_leave_a_leader,
    12: unclean_leaders_recover,
    13: assignments_are_taken,
    14: refusals_change_nothing,
    15: offline_assignments_move_leaders,
    16: repeated_assignments_are_idle,
    17: online_assignments_keep_eligible,
    18: assignments_end_leaderlessness,
    20: foreign_directories_change_nothing,
    29: unfenced_brokers_are_assigned,
}


def check_step(step: Step) -> tuple[Breach, ...]:
    """Every breach of an invariant of steps."""
    return tuple(Breach(number, problem) for number, check in STEP_INVARIANTS.items() for problem in check(step))


def _active(image: Image, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.fenced and not broker.in_controlled_shutdown


def _online_on(image: Image, partition: Partition, broker_id: int) -> bool:
    return is_online(image, broker_id, partition.directory(broker_id))


def _both(step: Step) -> Iterator[tuple[tuple[tuple[Uuid, int], Partition], tuple[tuple[Uuid, int], Partition]]]:
    after = dict(partitions(step.after))
    for place, before in partitions(step.before):
        if place in after:
            yield (place, before), (place, after[place])


def _failed_replicas(step: Step) -> Iterator[tuple[tuple[Uuid, int], Partition, Partition, int]]:
    """Partitions with a replica in a directory that the heartbeat reports, and that was registered."""
    if not isinstance(step.request, BrokerHeartbeatRequest) or isinstance(step.response, RequestRefused):
        return
    broker_id = step.request.broker_id
    failed = set(step.request.offline_log_dirs) & set(step.before.brokers[broker_id].directories)
    for (place, before), (_, after) in _both(step):
        if broker_id in before.replicas and before.directory(broker_id) in failed:
            yield place, before, after, broker_id


def _asking(step: Step) -> int:
    return step.request.broker_id if isinstance(step.request, AssignReplicasToDirsRequest) else NO_LEADER


def _assignments(
    step: Step,
) -> Iterator[tuple[tuple[Uuid, int], Uuid, int, Partition | None, Partition | None]]:
    """Each assignment with its error code and its partition before and after, without those repeated in the request."""
    if not isinstance(step.response, AssignReplicasToDirsResponse):
        return
    before, after = dict(partitions(step.before)), dict(partitions(step.after))
    for directory in step.response.directories:
        for topic in directory.topics:
            for result in topic.partitions:
                place = (topic.topic_id, result.partition_index)
                yield place, directory.id, result.error_code, before.get(place), after.get(place)
