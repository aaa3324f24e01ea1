"""What a controller knows besides the metadata, who may send it which request, and what it returns (R-CTL-5, R-AUTH-2).

What a running controller remembers is here if answers depend on it (docs/spec/controller.md). The states of brokers
change by a table of transitions.

Source: Kafka's ``BrokerHeartbeatManager`` (``calculateNextBrokerState``), ``directoriesToPartitions`` of
``ReplicationControlManager``, ``BrokersToElrs``, ``timeline.BaseHashTable``; ``StandardAuthorizer``, ``AclOperation``,
``AclPermissionType``, for the cluster resource only.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from jbod_model.controller.placement import UsableBroker
from jbod_model.formats.records import (
    AccessControlEntryRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RemoveTopicRecord,
    VersionedRecord,
)
from jbod_model.formats.requests import BrokerHeartbeatRequest
from jbod_model.formats.responses import Response
from jbod_model.ids import Uuid
from jbod_model.profiles import Release
from jbod_model.replay.image import Image, Partition


class BrokerControlState(enum.Enum):
    """The state of a broker."""

    FENCED = "FENCED"
    UNFENCED = "UNFENCED"
    CONTROLLED_SHUTDOWN = "CONTROLLED_SHUTDOWN"
    SHUTDOWN_NOW = "SHUTDOWN_NOW"

    @property
    def fenced(self) -> bool:
        """Whether the broker is fenced: clients do not see it."""
        return self in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW)

    @property
    def in_controlled_shutdown(self) -> bool:
        """Whether its leaderships are being moved away."""
        return self is BrokerControlState.CONTROLLED_SHUTDOWN

    @property
    def should_shut_down(self) -> bool:
        """Whether it may stop."""
        return self is BrokerControlState.SHUTDOWN_NOW


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The facts that decide the next state; each is computed only if it matters."""

    wants_fence: bool
    wants_shut_down: bool
    caught_up: bool
    """The broker has read the log up to its own registration."""
    leads: Callable[[], bool]
    """Whether it leads a partition."""
    shutdown_offset_passed: Callable[[], bool]
    """Whether every active broker has read the records that moved its leaderships away."""


_FENCED, _UNFENCED = BrokerControlState.FENCED, BrokerControlState.UNFENCED
_LEAVING, _STOP = BrokerControlState.CONTROLLED_SHUTDOWN, BrokerControlState.SHUTDOWN_NOW

Condition = Callable[[Situation], bool]

TRANSITIONS: tuple[tuple[BrokerControlState, Condition, BrokerControlState], ...] = (
    (_FENCED, lambda now: now.wants_shut_down, _STOP),
    (_FENCED, lambda now: not now.wants_fence and now.caught_up, _UNFENCED),
    (_UNFENCED, lambda now: now.wants_fence and now.wants_shut_down, _STOP),
    (_UNFENCED, lambda now: now.wants_fence, _FENCED),
    (_UNFENCED, lambda now: now.wants_shut_down and now.leads(), _LEAVING),
    (_UNFENCED, lambda now: now.wants_shut_down, _STOP),
    (_LEAVING, lambda now: not now.leads() and now.shutdown_offset_passed(), _STOP),
)
"""(state, condition, next state): the first row whose condition holds decides; otherwise the state stays (R-HB-2)."""


def next_state(current: BrokerControlState, situation: Situation) -> BrokerControlState:
    """The state after a heartbeat (R-HB-2)."""
    for state, condition, following in TRANSITIONS:
        if state is current and condition(situation):
            return following
    return current


def situation(
    request: BrokerHeartbeatRequest,
    register_offset: int,
    leads: Callable[[], bool],
    shutdown_offset: int,
    lowest_active_offset: int,
) -> Situation:
    """The situation of a broker that sent ``request``."""
    return Situation(
        wants_fence=request.want_fence,
        wants_shut_down=request.want_shut_down,
        caught_up=request.current_metadata_offset >= register_offset,
        leads=leads,
        shutdown_offset_passed=lambda: shutdown_offset <= lowest_active_offset,
    )


SMALLEST_TIMELINE_TABLE = 2
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


@dataclass(slots=True)
class ControllerMemory:
    """Give it every record with the image before it. A context only reads it."""

    _leaked: dict[Uuid, set[tuple[Uuid, int]]] = field(default_factory=dict)
    """Directory -> deleted partitions that are still in the index."""
    _eligible: dict[int, dict[Uuid, list[int]]] = field(default_factory=dict)
    """Broker -> topic -> partitions that it is eligible to lead, as in Kafka's index."""
    _tables: dict[Uuid, int] = field(default_factory=dict)
    """Topic -> size of the hash table of its partitions."""

    def copy(self) -> ControllerMemory:
        """The same, to go on in another way."""
        return ControllerMemory(
            {directory: set(places) for directory, places in self._leaked.items()},
            {
                broker: {topic_id: list(listed) for topic_id, listed in topics.items()}
                for broker, topics in self._eligible.items()
            },
            dict(self._tables),
        )

    def before(self, record: Record, image: Image) -> None:
        """Note ``record``, which is about to be applied to ``image``."""
        if isinstance(record, (PartitionRecord, PartitionChangeRecord)) and record.topic_id in image.topics:
            partitions = image.topics[record.topic_id].partitions
            table = self._tables.get(record.topic_id, SMALLEST_TIMELINE_TABLE)
            self._tables[record.topic_id] = grown(table, len(partitions) + 1)
            self._reindex(record, partitions.get(record.partition_id))
        elif isinstance(record, RemoveTopicRecord) and record.topic_id in image.topics:
            self._tables.pop(record.topic_id, None)
            self._forget(record.topic_id, image.topics[record.topic_id].partitions)

    def _reindex(self, record: PartitionRecord | PartitionChangeRecord, present: Partition | None) -> None:
        """Only partition records update the index of eligible brokers; a ClearElrRecord does not (R-QUIRK-6)."""
        before = () if present is None else present.eligible_leader_replicas
        if record.eligible_leader_replicas is not None:
            after = record.eligible_leader_replicas
        else:
            after = () if isinstance(record, PartitionRecord) else before
        for broker_id in sorted(set(after) - set(before)):
            topics = self._eligible.setdefault(broker_id, {})
            topics[record.topic_id] = [*topics.get(record.topic_id, []), record.partition_id]
        for broker_id in sorted(set(before) - set(after)):
            self._remove(broker_id, record.topic_id, record.partition_id)

    def _remove(self, broker_id: int, topic_id: Uuid, partition_id: int) -> None:
        """Remove one entry. If a partition is listed twice, Kafka's array keeps a zero for the second."""
        topics = self._eligible.get(broker_id, {})
        listed = topics.get(topic_id, [])
        if len(listed) < 2:
            topics.pop(topic_id, None)
            return
        kept = [other for other in listed if other != partition_id]
        topics[topic_id] = kept + [0] * (len(listed) - 1 - len(kept))

    def _forget(self, topic_id: Uuid, partitions: Mapping[int, Partition]) -> None:
        """A deleted topic leaves the index of each in-sync member; without members its entries stay (R-QUIRK-2)."""
        for partition_id, partition in partitions.items():
            if not partition.isr:
                for directory in partition.directories:
                    self._leaked.setdefault(directory, set()).add((topic_id, partition_id))
            for broker_id in partition.eligible_leader_replicas:
                self._eligible.get(broker_id, {}).pop(topic_id, None)

    def leaked(self, directory: Uuid, image: Image) -> Iterator[tuple[Uuid, int]]:
        """The index entries of ``directory`` whose topic was deleted."""
        for topic_id, partition_id in sorted(self._leaked.get(directory, ())):
            if topic_id not in image.topics:
                yield topic_id, partition_id

    def eligible(self, broker_id: int) -> Iterator[tuple[Uuid, int]]:
        """The index entries of a broker: (topic id, partition), some of them stale or repeated (R-QUIRK-6)."""
        for topic_id, listed in self._eligible.get(broker_id, {}).items():
            for partition_id in listed:
                yield topic_id, partition_id

    def table(self, topic_id: Uuid) -> int | None:
        """The size of the hash table of a topic's partitions; None if the topic's records were not seen."""
        return self._tables.get(topic_id)


def grown(table: int, entries: int) -> int:
    """The size of a timeline hash table after a write that makes room for ``entries`` (R-MEM-2)."""
    while entries * 3 > table * 4:
        table *= 2
    return table


def first_partition(partitions: Mapping[int, Partition], table: int | None) -> Partition:
    """The partition that Kafka's hash table yields first. It stands for its topic (R-MEM-2).

    If the history of a table is unknown, it counts as written to since its last growth if a partition ever changed.
    """
    if table is None:
        changed = any(partition.partition_epoch > 0 for partition in partitions.values())
        table = grown(SMALLEST_TIMELINE_TABLE, len(partitions) + changed)

    def slot(partition_id: int) -> int:
        return (partition_id * _GOLDEN & _MASK) >> (65 - table.bit_length())

    return partitions[min(sorted(partitions, reverse=True), key=slot)]


CLUSTER_RESOURCE, CLUSTER_NAME = 4, "kafka-cluster"
ANY_NAME = "*"
LITERAL, PREFIXED = 3, 4
ALL, CLUSTER_ACTION = 2, 9
DENY, ALLOW = 2, 3
ANYBODY = "User:*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorizer:
    """Access control entries, and the superusers. Hosts are ignored."""

    entries: tuple[AccessControlEntryRecord, ...] = ()
    super_users: frozenset[str] = frozenset()
    allow_if_no_entry: bool = False
    """``allow.everyone.if.no.acl.found``."""

    def may_act_as_broker(self, principal: str) -> bool:
        """Whether the principal has CLUSTER_ACTION on the cluster. A denial overrides every permission."""
        if principal in self.super_users:
            return True
        on_cluster = [entry for entry in self.entries if _is_of_cluster(entry)]
        if not on_cluster:
            return self.allow_if_no_entry
        permissions = {
            entry.permission_type
            for entry in on_cluster
            if entry.principal in (principal, ANYBODY) and entry.operation in (ALL, CLUSTER_ACTION)
        }
        return ALLOW in permissions and DENY not in permissions


def _is_of_cluster(entry: AccessControlEntryRecord) -> bool:
    if entry.resource_type != CLUSTER_RESOURCE:
        return False
    if entry.pattern_type == PREFIXED:
        return CLUSTER_NAME.startswith(entry.resource_name)
    return entry.resource_name in (CLUSTER_NAME, ANY_NAME)


NEVER = sys.maxsize
"""The lowest offset of no active broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The context of one request. Offsets are log offsets. A value that is None is derived from the metadata."""

    next_offset: int = 0
    """The offset of the next record: the epoch of a broker that registers again."""
    authorized: bool = True
    """Whether the sender has CLUSTER_ACTION on the cluster, if there is no ``authorizer``."""
    principal: str = ""
    """The sender's principal, such as ``User:broker-1``."""
    authorizer: Authorizer | None = None
    """Who may act as a broker (R-AUTH-2)."""
    cluster_id: str | None = None
    """The cluster's id; None accepts any."""
    has_valid_session: bool = False
    """Whether the registered process of the broker sent a heartbeat within the session timeout."""
    clean_shutdown_detection: bool = True
    """Whether the registration's previous epoch shows a clean shutdown (request version 3 and above)."""
    register_broker_record_offset: int = -1
    """The offset of the broker's RegisterBrokerRecord."""
    registered_log_dirs: frozenset[Uuid] | None = None
    """The directories that the broker's process registered with; None refuses no report (R-FAIL-2, R-FAIL-4)."""
    state: BrokerControlState | None = None
    """The broker's state after the last heartbeat."""
    controlled_shutdown_offset: int = -1
    """The last offset of the records that moved the broker's leaderships away."""
    lowest_active_offset: int = NEVER
    """The lowest offset that an active broker reported."""
    usable_brokers: tuple[UsableBroker, ...] | None = None
    """The brokers that can receive replicas, after the last heartbeats; None reads the registrations (R-PLACE-3)."""
    new_topic_ids: tuple[Uuid, ...] = ()
    """The ids of created topics, in order."""
    random_state: int = 0
    """The state of the placer's `java.JavaRandom`."""
    static_configs: Mapping[str, str] = field(default_factory=dict)
    """The controller's own configuration file: ``min.insync.replicas``, ``unclean.leader.election.enable``."""
    controller_id: int = -1
    """The node id, for configuration set on this controller alone."""
    kraft_version: int = 0
    """The finalized kraft.version, which is not in a metadata record."""
    migrates: bool = False
    """Whether a migration from ZooKeeper is in progress, which only controllers before 4.0 have (R-FEAT-2)."""
    default_num_partitions: int = 1
    default_replication_factor: int = 3
    supported_features: Mapping[str, tuple[int, int]] | None = None
    """(lowest, highest) level of each feature that this controller supports; None takes those of its release."""
    release: Release | None = None
    """The release of the active controller; None derives it from the metadata (R-RELEASE-3)."""
    memory: ControllerMemory | None = None
    """What a running Kafka remembers besides the metadata; None reads the metadata alone (R-MEM-1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a request; the caller applies the records in order."""

    records: tuple[VersionedRecord, ...] = ()
    response: Response = field(default_factory=Response)
    random_state: int | None = None
    """The placer's state afterwards, if it was used."""
