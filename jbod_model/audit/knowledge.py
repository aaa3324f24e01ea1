"""What a controller knows besides the metadata, as far as its log and its answers show it (R-CTL-5).

Only the controller knew whether a session is alive, whether every broker has read the records of a shutdown, which ids
were drawn, and where replicas were placed at random. These facts are taken from its answers and its records. Everything
else is computed. The requests by arrival, and the records that are not yet explained, are read ahead as far as needed
and no farther, so the memory is bounded.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from jbod_model.controller import Context, ControllerMemory
from jbod_model.controller.context import NEVER, BrokerControlState
from jbod_model.controller.leader_updates import FENCE
from jbod_model.formats.control_records import ControlRecord, KRaftVersionRecord, LeaderChangeMessage
from jbod_model.formats.log import LogEntry
from jbod_model.formats.records import (
    BrokerRegistrationChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    VersionedRecord,
    ZkMigrationStateRecord,
)
from jbod_model.formats.request_log import NewerLine, RequestLine
from jbod_model.formats.request_log_file import counted_once
from jbod_model.formats.requests import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionRequest,
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    CreatableTopic,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ReplicaAssignment,
    Request,
)
from jbod_model.formats.responses import (
    BrokerHeartbeatResponse,
    BrokerRegistrationResponse,
    CreateTopicsResponse,
    DeleteTopicsResponse,
    KafkaError,
    Response,
)
from jbod_model.ids import Uuid
from jbod_model.profiles import KAFKA, Profile
from jbod_model.replay.image import Image

CLEAN_SHUTDOWN_VERSION = 3
"""The first request version in which a registration names the previous broker epoch."""

_NO_MIGRATION, _MIGRATION, _PRE_MIGRATION = range(3)


@dataclass(slots=True)
class Knowledge:
    """The state before the next record, and its circumstances. Give it every entry in order."""

    cluster_id: str | None = None
    profile: Profile = KAFKA
    """By whose rules records are read."""
    static_configs: Mapping[str, str] = field(default_factory=dict)
    """The values of ``min.insync.replicas`` and ``unclean.leader.election.enable`` in the controller's own file."""
    image: Image = field(default_factory=Image)
    memory: ControllerMemory = field(default_factory=ControllerMemory)
    next_offset: int = 0
    changes: int = 0
    """Counts the records that changed the image."""
    migration: int = _NO_MIGRATION
    """The state of the migration from ZooKeeper."""
    _epochs: set[tuple[int, int]] = field(default_factory=set)
    """(broker, epoch) of every registration so far."""
    _topics: dict[Uuid, str] = field(default_factory=dict)
    """Id and name of every topic so far."""
    _register_offsets: dict[int, int] = field(default_factory=dict)
    _states: dict[int, BrokerControlState] = field(default_factory=dict)
    """The state of each broker. A registration alone does not tell it: if a broker began to shut down and was unfenced
    again, its registration still says that it is shutting down."""
    _kraft_version: int = 0
    controller_id: int = -1
    """The controller that leads; -1 until the log names one."""

    @property
    def migrating(self) -> bool:
        """Whether the cluster comes from ZooKeeper."""
        return self.migration != _NO_MIGRATION

    def copy(self) -> Knowledge:
        """The same, to go on in another way."""
        return replace(
            self,
            memory=self.memory.copy(),
            _epochs=set(self._epochs),
            _topics=dict(self._topics),
            _register_offsets=dict(self._register_offsets),
            _states=dict(self._states),
        )

    def apply(self, versioned: VersionedRecord, offset: int) -> None:
        """Take a record; ReplayViolation if it cannot follow."""
        record = versioned.record
        before = self.image
        self.memory.before(record, before)
        self.image = before.apply(record, offset, profile=self.profile)
        self.changes += self.image is not before
        if isinstance(record, TopicRecord):
            self._topics[record.topic_id] = record.name
        elif isinstance(record, ZkMigrationStateRecord):
            self.migration = record.zk_migration_state
        elif isinstance(record, RegisterBrokerRecord):
            self._epochs.add((record.broker_id, record.broker_epoch))
            self._register_offsets[record.broker_id] = offset
            if record.fenced:
                self._states[record.broker_id] = BrokerControlState.FENCED
        elif isinstance(record, BrokerRegistrationChangeRecord):
            if record.in_controlled_shutdown:
                self._states[record.broker_id] = BrokerControlState.CONTROLLED_SHUTDOWN
            if record.fenced:
                fenced = record.fenced == FENCE
                self._states[record.broker_id] = BrokerControlState.FENCED if fenced else BrokerControlState.UNFENCED

    def heard(self, broker_id: int, response: Response | None) -> None:
        """Note the answer to a heartbeat: the one that was given, or would have been if the controller had not
        failed."""
        if isinstance(response, BrokerHeartbeatResponse):
            if response.in_controlled_shutdown:
                self._states[broker_id] = BrokerControlState.CONTROLLED_SHUTDOWN
            else:
                fenced = response.is_fenced
                self._states[broker_id] = BrokerControlState.FENCED if fenced else BrokerControlState.UNFENCED

    def control(self, record: ControlRecord) -> None:
        """Take a control record."""
        if isinstance(record, KRaftVersionRecord):
            self._kraft_version = record.k_raft_version
        elif isinstance(record, LeaderChangeMessage):
            self.controller_id = record.leader_id

    def stranger(self, line: RequestLine) -> str | None:
        """What ``line`` names that the log has not had up to here; None if the log had everything."""
        request, response = line.request, line.response
        if isinstance(request, BrokerRegistrationRequest):
            if self.cluster_id not in (None, request.cluster_id):
                return f"cluster {request.cluster_id:.40}"
            epoch = response.broker_epoch if isinstance(response, BrokerRegistrationResponse) else None
            known = epoch is None or (request.broker_id, epoch) in self._epochs
            return None if known else f"broker {request.broker_id} of epoch {epoch}"
        if isinstance(request, (BrokerHeartbeatRequest, AlterPartitionRequest, AssignReplicasToDirsRequest)):
            if line.error_code == 0:
                broker = (request.broker_id, request.broker_epoch)
                return None if broker in self._epochs else f"broker {broker[0]} of epoch {broker[1]}"
        elif isinstance(request, CreateTopicsRequest):
            missing = next((drawn for drawn in drawn_ids(response).values() if drawn not in self._topics), None)
            return None if missing is None else f"topic {missing}"
        elif isinstance(request, DeleteTopicsRequest) and isinstance(response, DeleteTopicsResponse):
            gone = (result.topic_id for result in response.responses if result.error_code == 0)
            missing = next((topic_id for topic_id in gone if topic_id not in self._topics), None)
            return None if missing is None else f"topic {missing}"
        elif isinstance(request, (CreatePartitionsRequest, AlterPartitionReassignmentsRequest)):
            names = set(self._topics.values())
            strange = next((topic.name for topic in request.topics if topic.name not in names), None)
            return None if strange is None else f"topic {strange:.60}"
        return None

    def context(self, line: RequestLine) -> Context:
        """The context in which ``line`` is answered, if it is handled now."""
        request, response = line.request, line.response
        known: dict[str, object] = {}
        if isinstance(request, BrokerRegistrationRequest):
            known["has_valid_session"] = line.error_code == KafkaError.DUPLICATE_BROKER_REGISTRATION
            known["clean_shutdown_detection"] = line.version >= CLEAN_SHUTDOWN_VERSION
        elif isinstance(request, BrokerHeartbeatRequest):
            registration = self.image.brokers.get(request.broker_id)
            fallback = -1 if registration is None else registration.epoch
            known["register_broker_record_offset"] = self._register_offsets.get(request.broker_id, fallback)
            stop = isinstance(response, BrokerHeartbeatResponse) and response.should_shut_down
            known["controlled_shutdown_offset"] = 0 if stop else NEVER
            known["lowest_active_offset"] = 0
            known["state"] = self._states.get(request.broker_id)
        elif isinstance(request, CreateTopicsRequest):
            drawn = drawn_ids(response)
            known["new_topic_ids"] = tuple(drawn[topic.name] for topic in request.topics if topic.name in drawn)
        return Context(
            next_offset=self.next_offset,
            authorized=line.error_code != KafkaError.CLUSTER_AUTHORIZATION_FAILED,
            cluster_id=self.cluster_id,
            controller_id=self.controller_id,
            kraft_version=self._kraft_version,
            migrates=self.migration in (_MIGRATION, _PRE_MIGRATION),
            memory=self.memory,
            static_configs=self.static_configs,
            **known,  # type: ignore[arg-type]
        )

    def own_context(self) -> Context:
        """The context of the controller's own work."""
        return Context(
            next_offset=self.next_offset,
            controller_id=self.controller_id,
            memory=self.memory,
            static_configs=self.static_configs,
        )


def drawn_ids(response: object) -> Mapping[str, Uuid]:
    """Topic name -> the id that the controller drew for it."""
    if not isinstance(response, CreateTopicsResponse):
        return {}
    return {topic.name: topic.topic_id for topic in response.topics if topic.error_code == 0}


PLACED = "placement taken from the log"


def as_placed(
    request: Request, response: Response, upcoming: Sequence[VersionedRecord], image: Image
) -> tuple[Request, bool]:
    """``request`` with the replicas in ``upcoming`` for what it leaves to the placer, and whether any were taken.

    Only placements with the requested number of partitions and replicas are taken.
    """
    if isinstance(request, CreateTopicsRequest) and isinstance(response, CreateTopicsResponse):
        ids = drawn_ids(response)
        sizes = {
            created_topic.name: (created_topic.num_partitions, created_topic.replication_factor)
            for created_topic in response.topics
        }
        topics = tuple(_topic(topic, ids.get(topic.name), sizes.get(topic.name), upcoming) for topic in request.topics)
        return replace(request, topics=topics), topics != request.topics
    if isinstance(request, CreatePartitionsRequest):
        grown = tuple(_growth(topic, image, upcoming) for topic in request.topics)
        return replace(request, topics=grown), grown != request.topics
    return request, False


def _topic(
    topic: CreatableTopic, topic_id: Uuid | None, size: tuple[int, int] | None, upcoming: Sequence[VersionedRecord]
) -> CreatableTopic:
    if topic_id is None or topic.assignments:
        return topic
    default_partitions, default_replicas = size or (-1, -1)
    partitions = default_partitions if topic.num_partitions == -1 else topic.num_partitions
    replicas = default_replicas if topic.replication_factor == -1 else topic.replication_factor
    placed = _replicas(topic_id, upcoming, 0, partitions)
    if len(placed) != partitions or any(len(each) != replicas for _, each in placed):
        return topic
    assignments = tuple(ReplicaAssignment(partition_index=index, broker_ids=each) for index, each in placed)
    return replace(topic, num_partitions=-1, replication_factor=-1, assignments=assignments)


def _growth(topic: CreatePartitionsTopic, image: Image, upcoming: Sequence[VersionedRecord]) -> CreatePartitionsTopic:
    present = image.topic(topic.name)
    if present is None or topic.assignments is not None:
        return topic
    first = len(present.partitions)
    placed = _replicas(present.topic_id, upcoming, first, topic.count)
    if first + len(placed) != topic.count:
        return topic
    return replace(topic, assignments=tuple(CreatePartitionsAssignment(broker_ids=each) for _, each in placed))


def _replicas(
    topic_id: Uuid, upcoming: Sequence[VersionedRecord], first: int, end: int
) -> list[tuple[int, tuple[int, ...]]]:
    """(partition, replicas) of the topic's partitions ``first`` to ``end`` - 1, as their records have them."""
    return [
        (each.record.partition_id, each.record.replicas)
        for each in upcoming
        if isinstance(each.record, PartitionRecord)
        and each.record.topic_id == topic_id
        and first <= each.record.partition_id < end
    ]


L = TypeVar("L", bound=RequestLine | NewerLine)

LONGEST_MS = 60_000
"""The longest time that a request may take: twice the longest default timeout of Kafka's clients."""


@dataclass(slots=True)
class Arrivals(Generic[L]):
    """Sorts requests by arrival that are sorted by completion. It holds the requests of about `LONGEST_MS`.

    ``logs`` are the requests of each file, roughly in the order of completion. Each request is returned once.
    """

    logs: Iterable[Iterator[L]]
    _heap: list[tuple[float, int, L]] = field(default_factory=list)
    _lines: Iterator[L] = field(init=False)
    _next: L | None = field(init=False)
    _count: int = 0

    def __post_init__(self) -> None:
        self._lines = counted_once(heapq.merge(*self.logs, key=lambda line: line.completed_ms))
        self._next = next(self._lines, None)

    def until(self, time_ms: float) -> Iterator[L]:
        """The requests that arrived up to ``time_ms``, milliseconds since 1970, and were not returned before."""
        while self._next is not None and self._next.completed_ms <= time_ms + LONGEST_MS:
            self._count += 1
            heapq.heappush(self._heap, (self._next.received_ms, self._count, self._next))
            self._next = next(self._lines, None)
        while self._heap and self._heap[0][0] <= time_ms:
            yield heapq.heappop(self._heap)[2]

    def rest(self) -> Iterator[L]:
        """The remaining requests, in the order of completion."""
        while self._heap:
            yield heapq.heappop(self._heap)[2]
        while self._next is not None:
            yield self._next
            self._next = next(self._lines, None)

    def in_order(self) -> Iterator[L]:
        """Every request by arrival."""
        while self._next is not None:
            yield from self.until(self._next.completed_ms - LONGEST_MS)
        yield from self.rest()


FARTHEST = 25_000
"""The most records that may follow a request's first: 10,000 partitions in as many topics, each with a
configuration."""


class Upcoming:
    """A queue in front of the log."""

    def __init__(self, entries: Iterable[LogEntry]) -> None:
        self._entries: Iterator[LogEntry] = iter(entries)
        self._waiting: deque[LogEntry] = deque()

    def first(self) -> LogEntry | None:
        """The next entry, which stays in the queue; None at the end."""
        self._fill(1)
        return self._waiting[0] if self._waiting else None

    def take(self) -> LogEntry:
        """Remove and return the next entry; there must be one."""
        self._fill(1)
        return self._waiting.popleft()

    def records(self, count: int = FARTHEST) -> list[VersionedRecord]:
        """Up to ``count`` of the next records, up to the first entry that is not a metadata record."""
        self._fill(count)
        next_records: list[VersionedRecord] = []
        for entry in self._waiting:
            if len(next_records) == count or not isinstance(entry.record, VersionedRecord):
                break
            next_records.append(entry.record)
        return next_records

    def _fill(self, count: int) -> None:
        while len(self._waiting) < count:
            entry = next(self._entries, None)
            if entry is None:
                return
            self._waiting.append(entry)
