"""The reference controller answers a logged stream of requests and writes the metadata log.

Some facts come from the answers in the stream, because only the controller that gave them knew: the ids of created
topics, broker epochs (they are offsets: NoOpRecords fill the log up to them), whether a registration met a live
session, and the values of defaults. Replicas that were placed at random come from later requests (`Hints`). Everything
else, including the answers, is computed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from jbod_model import ids
from jbod_model.audit.expect import answered, comparable
from jbod_model.audit.knowledge import CLEAN_SHUTDOWN_VERSION, drawn_ids
from jbod_model.controller import Context
from jbod_model.controller.cluster import MIN_ISR
from jbod_model.formats.control_records import LeaderChangeMessage, Voter
from jbod_model.formats.log import RECORDS_PER_BATCH, LogWriter
from jbod_model.formats.metadata_version import ELR_FEATURE, LEVELS, METADATA_VERSION
from jbod_model.formats.records import ConfigRecord, FeatureLevelRecord, NoOpRecord, VersionedRecord
from jbod_model.formats.request_log import RequestLine
from jbod_model.formats.requests import (
    BROKER_RESOURCE,
    BrokerRegistrationRequest,
    CreatableTopic,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    ReplicaAssignment,
    Request,
)
from jbod_model.formats.responses import (
    BrokerRegistrationResponse,
    CreateTopicsResponse,
    KafkaError,
    RequestRefused,
    Response,
)
from jbod_model.ids import Uuid
from jbod_model.java import JavaRandom
from jbod_model.profiles import KAFKA
from jbod_model.replay.image import Image
from lab.control.hints import Hints
from lab.simulation.controller_node import NODE_ID, SESSION_TIMEOUT_MS, ControllerNode, LeaderChange

DEFAULT_FEATURES: Mapping[str, tuple[int, int]] = {
    "group.version": (LEVELS["4.0-IV0"], 1),
    "transaction.version": (LEVELS["4.0-IV2"], 2),
    ELR_FEATURE: (LEVELS["4.1-IV0"], 1),
}
"""Feature -> the metadata.version from which new clusters have it, and its level. Source: Kafka's ``Feature``."""

FARTHEST_EPOCH = 1_000_000
"""The maximum number of NoOpRecords that are written to reach a broker epoch."""


@dataclass(slots=True)
class ModeOutcome:
    """Counts the requests by their outcome."""

    applied: Counter[str] = field(default_factory=Counter)
    """API -> requests that were accepted, in whole or in part."""
    refused: Counter[str] = field(default_factory=Counter)
    """API and error -> requests that were refused as a whole."""
    same: Counter[str] = field(default_factory=Counter)
    """API -> answers that equal those in the stream."""
    other: Counter[str] = field(default_factory=Counter)
    first_other: dict[str, str] = field(default_factory=dict)
    """API -> the first answer that differs, with the answer in the stream."""
    placements: Counter[str] = field(default_factory=Counter)
    """How many replicas of created partitions are ``known``, ``guessed``, or ``given`` by the request."""
    strange_epochs: int = 0
    """Registrations whose epoch lies before the end of the log, so their record cannot have it as its offset."""


class _Node(ControllerNode):
    """The reference controller, which takes from the stream what it cannot know."""

    taken: dict[str, Any]

    def _context(self, request: Request, now: int, new_topic_ids: tuple[Uuid, ...]) -> Context:
        return replace(ControllerNode._context(self, request, now, new_topic_ids), **self.taken)


@dataclass(slots=True)
class Control:
    """The controller, its log since the last `drain`, and the count of what it did."""

    hints: Hints
    features: Mapping[str, int]
    outcome: ModeOutcome = field(default_factory=ModeOutcome)
    _node: _Node = field(init=False)
    _last_ms: int | None = None
    _random: random.Random = field(default_factory=lambda: random.Random(0))
    _placed: Counter[int] = field(default_factory=Counter)
    """Broker -> the number of replicas that were placed on it by a guess."""

    @property
    def image(self) -> Image:
        """The state after all records so far."""
        return self._node.image

    @property
    def next_offset(self) -> int:
        """The log's end offset."""
        return self._node.next_offset

    def __post_init__(self) -> None:
        self._node = _Node(KAFKA, self.hints.cluster_id, JavaRandom(0).state)
        self._node.taken = {}

    def handle(self, line: RequestLine) -> None:
        """Answer one request. Requests must come in the order of their arrival."""
        if line.error_code == KafkaError.NOT_CONTROLLER:
            return
        now = max(int(line.received_ms), self._last_ms or 0)
        self._pass_time(now)
        request = self._placed_request(line)
        self._take(line)
        response = self._answer(request, line, now)
        self._count(line, response)

    def drain(self, writer: LogWriter) -> None:
        """Move the log's new batches to ``writer``."""
        for batch in self._node.log:
            if isinstance(batch, LeaderChange):
                voter = (Voter(voter_id=NODE_ID),)
                message = LeaderChangeMessage(leader_id=NODE_ID, voters=voter, granting_voters=voter)
                writer.append([message], epoch=batch.epoch, timestamp=batch.time_ms)
            else:
                writer.append(batch.records, epoch=batch.epoch, timestamp=batch.time_ms)
        self._node.log.clear()

    # TIME

    def _pass_time(self, now: int) -> None:
        """Begin the log, or fence brokers that fell silent.

        If no request arrived for a whole session timeout, the stream lacks lines: no broker is fenced.
        """
        if self._last_ms is None:
            self._begin(now)
        elif now - self._last_ms >= SESSION_TIMEOUT_MS:
            for heard in self._node.heard.values():
                heard.last_contact = now
        else:
            self._node.taken = {}
            for _ in self._node.heard:
                self._node.expire_sessions(now)
        self._last_ms = now

    def _begin(self, now: int) -> None:
        self._node.fail_over(now)
        levels = [FeatureLevelRecord(name=name, feature_level=level) for name, level in self.features.items()]
        records = [VersionedRecord(record, 0) for record in levels]
        if self.features.get(ELR_FEATURE):  # Kafka writes the effective size, so no broker's file overrides it
            minimum = ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name=MIN_ISR, value="1")
            records.append(VersionedRecord(minimum, 0))
        self._node.append(tuple(records), now)

    # WHAT ONLY THE STREAM KNOWS

    def _take(self, line: RequestLine) -> None:
        request, response = line.request, line.response
        taken: dict[str, Any] = {}
        if isinstance(request, BrokerRegistrationRequest):
            taken["has_valid_session"] = line.error_code == KafkaError.DUPLICATE_BROKER_REGISTRATION
            taken["clean_shutdown_detection"] = line.version >= CLEAN_SHUTDOWN_VERSION
            if isinstance(response, BrokerRegistrationResponse):
                taken["next_offset"] = response.broker_epoch
                self._fill_up(request, response.broker_epoch)
        self._node.taken = taken

    def _fill_up(self, request: BrokerRegistrationRequest, epoch: int) -> None:
        """Make ``epoch`` the next offset, as it was when the broker registered."""
        present = self.image.brokers.get(request.broker_id)
        if present is not None and present.incarnation_id == request.incarnation_id:
            return
        missing = epoch - self._node.next_offset
        if not 0 <= missing <= FARTHEST_EPOCH:
            self.outcome.strange_epochs += 1
            return
        for filled in range(0, missing, RECORDS_PER_BATCH):
            count = min(RECORDS_PER_BATCH, missing - filled)
            self._node.append((VersionedRecord(NoOpRecord(), 0),) * count, self._last_ms or 0)

    def _placed_request(self, line: RequestLine) -> Request:
        """The request with the replicas that the original controller is known or guessed to have placed."""
        request, response = line.request, line.response
        if isinstance(request, CreateTopicsRequest) and isinstance(response, CreateTopicsResponse):
            sizes = {
                created_topic.name: (created_topic.num_partitions, created_topic.replication_factor)
                for created_topic in response.topics
            }
            drawn = drawn_ids(response)
            topics = tuple(self._placed_topic(topic, drawn.get(topic.name), sizes) for topic in request.topics)
            return replace(request, topics=topics)
        if isinstance(request, CreatePartitionsRequest):
            return replace(request, topics=tuple(self._placed_growth(topic) for topic in request.topics))
        return request

    def _placed_topic(
        self, topic: CreatableTopic, topic_id: Uuid | None, sizes: Mapping[str, tuple[int, int]]
    ) -> CreatableTopic:
        if topic.assignments:
            self.outcome.placements["given"] += sum(len(assignment.broker_ids) for assignment in topic.assignments)
            return topic
        partitions, replicas = sizes.get(topic.name, (-1, -1))
        if topic_id is None or not 0 < partitions <= 10_000 or replicas < 1:
            return topic
        assignments = tuple(
            ReplicaAssignment(partition_index=index, broker_ids=self._place(topic_id, index, replicas))
            for index in range(partitions)
        )
        return replace(topic, num_partitions=-1, replication_factor=-1, assignments=assignments)

    def _placed_growth(self, topic: CreatePartitionsTopic) -> CreatePartitionsTopic:
        present = self.image.topic(topic.name)
        if present is None or topic.assignments is not None or not 0 < topic.count <= 10_000:
            return topic
        replicas = len(next(iter(present.partitions.values())).replicas)
        added = range(len(present.partitions), topic.count)
        placed = tuple(
            CreatePartitionsAssignment(broker_ids=self._place(present.topic_id, index, replicas)) for index in added
        )
        return replace(topic, assignments=placed)

    def _place(self, topic_id: Uuid, partition: int, count: int) -> tuple[int, ...]:
        """Known replicas first, then guesses.

        A broker with one directory reports no assignments, so it is the likelier guess.
        """
        brokers = sorted(
            (broker for broker in self.image.brokers.values() if not broker.fenced),
            key=lambda broker: (len(broker.directories) != 1, self._placed[broker.broker_id], broker.broker_id),
        )
        placed, known = self.hints.replicas(topic_id, partition, count, [broker.broker_id for broker in brokers])
        self._placed.update(placed[known:])
        self.outcome.placements["known"] += known
        self.outcome.placements["guessed"] += len(placed) - known
        return placed

    # ANSWERS

    def _answer(self, request: Request, line: RequestLine, now: int) -> Response | RequestRefused:
        if not isinstance(request, CreateTopicsRequest):
            return self._node.handle(request, now)
        drawn = drawn_ids(line.response)
        rehearsal = self._rehearse(request, now)
        taken = {rehearsed_topic.name for rehearsed_topic in rehearsal.topics if rehearsed_topic.error_code == 0}
        own = [drawn.get(topic.name) or ids.random(self._random) for topic in request.topics if topic.name in taken]
        return self._node.handle(request, now, tuple(own))

    def _rehearse(self, request: CreateTopicsRequest, now: int) -> CreateTopicsResponse:
        """Find the topics that can be created, so that each gets its own id."""
        some = tuple(Uuid(1, index) for index in range(len(request.topics)))
        answer = self._node.handle(replace(request, validate_only=True), now, some)
        return answer if isinstance(answer, CreateTopicsResponse) else CreateTopicsResponse()

    def _count(self, line: RequestLine, response: Response | RequestRefused) -> None:
        if isinstance(response, RequestRefused):
            self.outcome.refused[f"{line.api} {response.code.name}"] += 1
            ours: Any = response.code.value
        else:
            self.outcome.applied[line.api] += 1
            ours = comparable(response)
        theirs = answered(line)
        if ours == theirs:
            self.outcome.same[line.api] += 1
        else:
            self.outcome.other[line.api] += 1
            self.outcome.first_other.setdefault(line.api, f"{ours!r:.150}, the stream has {theirs!r:.150}")


def default_features(level: int, supported: set[str]) -> dict[str, int]:
    """The features that a new cluster of this metadata.version has, as far as every broker supports them."""
    defaults = {
        name: default for name, (since, default) in DEFAULT_FEATURES.items() if level >= since and name in supported
    }
    return {METADATA_VERSION: level, **defaults}
