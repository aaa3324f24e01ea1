"""The invariants of a metadata log that can be checked without its requests (docs/spec/invariants.md).

They need only the state that the records make. An invariant that holds between requests is checked at the end of a
batch, since batches that are committed separately never split the records of a request. An invariant of a single record
is checked at that record. Only what a batch touched is checked, so the cost does not grow with the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from jbod_model.controller.cluster import Cluster
from jbod_model.controller.context import Context
from jbod_model.controller.partition_change import NO_LEADER, RECOVERING
from jbod_model.errors import ReplayViolation
from jbod_model.formats.log import LogEntry
from jbod_model.formats.metadata_version import METADATA_VERSION, directories_supported
from jbod_model.formats.records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    VersionedRecord,
)
from jbod_model.ids import Uuid, reserved
from jbod_model.profiles import KAFKA
from jbod_model.replay.image import Image, Partition
from jbod_model.replay.registrations import NO_LEADER_CHANGE


@dataclass(frozen=True, slots=True)
class LogBreach:
    """An invariant that a record broke."""

    number: int
    offset: int
    """Offset of the record, or of the first record of its batch that touched the subject of the breach."""
    problem: str


@dataclass(frozen=True, slots=True)
class Invariant:
    """What must hold, and the known cases in which Kafka breaks it."""

    statement: str
    known: str | None = None


INVARIANTS: Mapping[int, Invariant] = {
    1: Invariant("a partition has as many directories as replicas", "broken, a broker refuses to load the log"),
    2: Invariant(
        "replicas are distinct; in-sync and eligible ones are replicas, and apart; the leader is in sync",
        "stale_elr: a completed reassignment leaves removed replicas eligible (4.1 to 4.4)",
    ),
    5: Invariant("a reassignment keeps the directories of the replicas that stay", "KAFKA-16583 is about lost ones"),
    6: Invariant("no directory is registered by two brokers", "broken, a controller refuses to load the log"),
    7: Invariant("a registration lists directories, none twice, none reserved", "KAFKA-16162, KAFKA-16757"),
    8: Invariant("without a registration, the directories of a broker only become fewer"),
    9: Invariant(
        "a leader is not fenced, and its directory is online",
        "two_in_one_heartbeat: unfenced and failed in one heartbeat; an assignment to an offline directory elects by "
        "the directory before it (3.7 to 4.4); fenced_last_leader: a fenced last known leader is elected (4.0 with "
        "eligible leaders, KAFKA-19522)",
    ),
    10: Invariant(
        "a broker neither leads nor is in sync, but as the last one, in a directory that just failed",
        "two_in_one_heartbeat (3.7 to 4.4)",
    ),
    11: Invariant("after a failure there is a leader if another replica in sync can be"),
    12: Invariant("a new leader that was not in sync, nor eligible, is recovering"),
    15: Invariant(
        "assigned to a directory that is offline, a broker neither leads nor is in sync but as the last one",
        "a leaderless partition elects by the directory before the assignment (3.7 to 4.4)",
    ),
    16: Invariant("assigning the directory that is assigned writes no directories"),
    17: Invariant(
        "assigning an online directory leaves the eligible leaders", "elr_wipe: pull request 20716 (4.0 to 4.2)"
    ),
}
"""The invariants by their numbers in docs/spec/invariants.md. The others need requests, brokers or several logs."""

Place = tuple[Uuid, int]


@dataclass(slots=True)
class _Batch:
    """What the records of one batch touched, and the state before it."""

    before: Image
    partitions: dict[Place, int] = field(default_factory=dict)
    """Partition -> the first offset of the batch that touched it."""
    brokers: dict[int, int] = field(default_factory=dict)
    failed: dict[int, set[Uuid]] = field(default_factory=dict)
    """Broker -> directories that a change record removed from its registration."""


def check_log(entries: Iterable[LogEntry]) -> Iterator[LogBreach]:
    """Every breach, in the order of the log.

    A record that readers refuse ends the check: with a breach of invariant 1 or 6 if it is one, else with the
    ReplayViolation.
    """
    image = Image()
    batch: _Batch | None = None
    base: tuple[bool, int] | None = None
    for entry in entries:
        if not isinstance(entry.record, VersionedRecord):
            continue
        place = (entry.in_snapshot, entry.header.base_offset)
        if batch is None or (place != base and not (entry.in_snapshot and base is not None and base[0])):
            if batch is not None:
                yield from _after_batch(batch, image)
            batch, base = _Batch(image), place
        record = entry.record.record
        if not entry.in_snapshot:
            for number, problem in _record_breaches(image, record, batch.before):
                yield LogBreach(number, entry.offset, problem)
        _touch(batch, image, record, entry.offset)
        try:
            image = image.apply(record, entry.offset, profile=KAFKA)
        except ReplayViolation as violation:
            broken = _refused(record, violation)
            if broken is None:
                raise
            yield LogBreach(broken, entry.offset, violation.problem)
            return
    if batch is not None:
        yield from _after_batch(batch, image)


def is_online(image: Image, broker_id: int, directory: Uuid) -> bool:
    """Whether a directory is online on a registered broker: the directory is not known yet, or is online in the
    registration.

    This holds for every profile: the invariants are about the metadata, not about how a profile answers.
    """
    return Cluster(image, KAFKA, Context()).has_online_dir(broker_id, directory)


def _refused(record: Record, violation: ReplayViolation) -> int | None:
    """The invariant that is broken by a record that cannot be replayed."""
    if isinstance(record, RegisterBrokerRecord | BrokerRegistrationChangeRecord):
        return 6 if "registers directory" in violation.problem else None
    return 1 if "directories for" in violation.problem else None


def _touch(batch: _Batch, image: Image, record: Record, offset: int) -> None:
    if isinstance(record, (PartitionRecord, PartitionChangeRecord)):
        batch.partitions.setdefault((record.topic_id, record.partition_id), offset)
    elif isinstance(record, (RegisterBrokerRecord, BrokerRegistrationChangeRecord)):
        batch.brokers.setdefault(record.broker_id, offset)
        registration = image.brokers.get(record.broker_id)
        if isinstance(record, BrokerRegistrationChangeRecord) and record.log_dirs and registration is not None:
            gone = set(registration.directories) - set(record.log_dirs)
            batch.failed.setdefault(record.broker_id, set()).update(gone)


# RECORDS


def _record_breaches(image: Image, record: Record, begun: Image) -> Iterator[tuple[int, str]]:
    """The invariants that a record breaks by itself, in the state before it.

    ``begun`` is the state before its batch.
    """
    if isinstance(record, RegisterBrokerRecord):
        yield from _registration(image, record)
    elif isinstance(record, BrokerRegistrationChangeRecord):
        broker = image.brokers.get(record.broker_id)
        if broker is not None and not set(record.log_dirs) <= set(broker.directories):
            yield 8, f"broker {record.broker_id} got directories without registering"
    elif isinstance(record, PartitionChangeRecord):
        before = image.partition(record.topic_id, record.partition_id)
        if before is not None:
            name = f"{image.topics[record.topic_id].name}-{record.partition_id}"
            for number, problem in _change(image, record, before):
                yield number, f"{name}: {problem}"
            begun_as = begun.partition(record.topic_id, record.partition_id) or before
            if _silently_unclean(record, before) and _silently_unclean(record, begun_as):
                yield 12, f"{name}: leader {record.leader} was not in sync and is not recovering"


def _registration(image: Image, record: RegisterBrokerRecord) -> Iterator[tuple[int, str]]:
    listed = record.log_dirs
    required = directories_supported(image.features.get(METADATA_VERSION, 0)) and not record.is_migrating_zk_broker
    if (required and not listed) or len(set(listed)) != len(listed) or any(map(reserved, listed)):
        yield 7, f"broker {record.broker_id} registered directories [{', '.join(map(str, listed))}]"


def _change(image: Image, record: PartitionChangeRecord, before: Partition) -> Iterator[tuple[int, str]]:
    directories = record.directories
    elected = record.leader not in (NO_LEADER_CHANGE, before.leader)
    if record.replicas is not None:
        if directories is None or len(directories) != len(record.replicas):
            return
        for broker_id, directory in zip(record.replicas, directories, strict=True):
            if broker_id in before.replicas and before.directory(broker_id) != directory:
                yield 5, f"the replica of broker {broker_id} stays, and its directory became {directory}"
            elif broker_id not in before.replicas and directory != _default_dir(image, broker_id):
                yield 5, f"the new replica of broker {broker_id} is in {directory}, not the default of its broker"
        return
    if directories is None or len(directories) != len(before.replicas):
        return
    if directories == before.directories:
        yield 16, "its directories are written again as they are"
    moved = [
        broker_id
        for broker_id, old, new in zip(before.replicas, before.directories, directories, strict=True)
        if old != new and is_online(image, broker_id, new)
    ]
    eligible = record.eligible_leader_replicas
    if moved and not elected and record.isr is None and eligible not in (None, before.eligible_leader_replicas):
        yield 17, f"an assignment took the eligible leaders {list(before.eligible_leader_replicas)}"


def _silently_unclean(record: PartitionChangeRecord, before: Partition) -> bool:
    """Whether the record elects a replica that was not in sync as if it had every message.

    The records of a request are all computed from the state before the request, so both that state and the state before
    the record count. A replica that completes a reassignment is in sync because the leader said so.
    """
    if record.leader in (NO_LEADER_CHANGE, NO_LEADER, before.leader) or record.replicas is not None:
        return False
    known = record.leader in before.named
    return not known and RECOVERING not in (record.leader_recovery_state, before.leader_recovery_state)


def _default_dir(image: Image, broker_id: int) -> Uuid:
    return Cluster(image, KAFKA, Context()).default_dir(broker_id)


# BATCHES


def _after_batch(batch: _Batch, image: Image) -> Iterator[LogBreach]:
    """The breaches in the state after a batch."""
    touched = dict(batch.partitions)
    for broker_id, offset in batch.brokers.items():
        for place in _led_by(image, broker_id):
            touched.setdefault(place, offset)
        for place in _in_directories(image, broker_id, batch.failed.get(broker_id, set())):
            touched.setdefault(place, offset)
    for (topic_id, number), offset in touched.items():
        after = image.partition(topic_id, number)
        if after is None:
            continue
        before, name = batch.before.partition(topic_id, number), image.topics[topic_id].name
        for check in PARTITION_CHECKS:
            for invariant, problem in check(batch, image, before, after):
                yield LogBreach(invariant, offset, f"{name}-{number}: {problem}")


Breaches = Iterator[tuple[int, str]]


def _sets_fit(_: _Batch, _image: Image, _before: Partition | None, after: Partition) -> Breaches:
    replicas, isr, eligible = set(after.replicas), set(after.isr), set(after.eligible_leader_replicas)
    if len(replicas) != len(after.replicas):
        yield 2, f"a replica is listed twice in {list(after.replicas)}"
    if not isr <= replicas or not eligible <= replicas or isr & eligible:
        yield 2, f"isr {sorted(isr)} and eligible {sorted(eligible)} of replicas {list(after.replicas)}"
    if after.leader not in (NO_LEADER, *isr):
        yield 2, f"leader {after.leader} is not in sync"


def _leader_leads(_: _Batch, image: Image, _before: Partition | None, after: Partition) -> Breaches:
    broker = image.brokers.get(after.leader)
    if after.leader == NO_LEADER or after.leader not in after.replicas:
        return
    if broker is None or broker.fenced:
        yield 9, f"leader {after.leader} is fenced or not registered"
    elif not is_online(image, after.leader, after.directory(after.leader)):
        yield 9, f"leader {after.leader} has its replica in a directory that is offline"


def _failures_are_answered(batch: _Batch, image: Image, _: Partition | None, after: Partition) -> Breaches:
    for broker_id, failed in batch.failed.items():
        if broker_id not in after.replicas or after.directory(broker_id) not in failed:
            continue
        if after.leader == broker_id or (broker_id in after.isr and after.isr != (broker_id,)):
            yield 10, f"broker {broker_id} leads or is in sync in a directory that just failed"
        others = [other for other in after.isr if other != broker_id and _can_lead(image, after, other)]
        if others and after.leader == NO_LEADER:
            yield 11, f"no leader after a failure, though {others} could lead"


def _offline_assignments_move_leaders(_: _Batch, image: Image, before: Partition | None, after: Partition) -> Breaches:
    if before is None:
        return
    for broker_id in before.replicas:
        if broker_id not in after.replicas or before.directory(broker_id) == after.directory(broker_id):
            continue
        if broker_id not in image.brokers or is_online(image, broker_id, after.directory(broker_id)):
            continue
        if after.leader == broker_id or (broker_id in after.isr and after.isr != (broker_id,)):
            yield 15, f"broker {broker_id} leads or is in sync in a directory that is offline"


PARTITION_CHECKS: tuple[Callable[[_Batch, Image, Partition | None, Partition], Breaches], ...] = (
    _sets_fit,
    _leader_leads,
    _failures_are_answered,
    _offline_assignments_move_leaders,
)


def _can_lead(image: Image, partition: Partition, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    if broker is None or not broker.is_active or broker_id not in partition.replicas:
        return False
    return is_online(image, broker_id, partition.directory(broker_id))


def _led_by(image: Image, broker_id: int) -> Iterator[Place]:
    for topic_id, topic in image.topics.items():
        for number, partition in topic.partitions.items():
            if partition.leader == broker_id:
                yield topic_id, number


def _in_directories(image: Image, broker_id: int, directories: set[Uuid]) -> Iterator[Place]:
    if not directories:
        return
    for topic_id, topic in image.topics.items():
        for number, partition in topic.partitions.items():
            if broker_id in partition.replicas and partition.directory(broker_id) in directories:
                yield topic_id, number
