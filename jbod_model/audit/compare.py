"""The differences between recorded and computed results, and the verdicts on them (R-TRACE-4, R-TRACE-5).

Also what may have caused a record: a request, by its type and subject, or work that no request asks for. An audit
cannot decide about what is newer than the reference controller (Kafka 4.4).
"""

from __future__ import annotations

import enum
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jbod_model.controller.leader_updates import CORDONED_VERSION, FENCE
from jbod_model.controller.partition_change import NO_LEADER
from jbod_model.formats import requests
from jbod_model.formats.json_values import write
from jbod_model.formats.metadata_version import (
    LEVEL_NAMES,
    LEVELS,
    METADATA_VERSION,
    partition_record_version,
    register_broker_record_version,
)
from jbod_model.formats.records import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnknownRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
    VersionedRecord,
)
from jbod_model.formats.request_log import NewerLine, RequestLine
from jbod_model.formats.requests import Request
from jbod_model.formats.schema import TYPE_NAMES
from jbod_model.replay.image import Image

Difference = tuple[str, Any, Any]
"""(field, recorded, ours)."""

ORDERED = frozenset(
    {"createTopics", "createPartitions", "deleteTopics", "alterPartition", "alterPartitionReassignments", "config"}
)
"""Operations whose records Kafka always writes in the same order. In others, some orders are those of hash tables."""

TEXT_FIELDS = frozenset({"errorMessage"})
"""Fields that are not compared if there is an error code: their texts are Kafka's."""

REQUESTS: Mapping[str, type[Any]] = {
    "registerBroker": requests.BrokerRegistrationRequest,
    "brokerHeartbeat": requests.BrokerHeartbeatRequest,
    "sessionExpired": requests.SessionExpired,
    "unregisterBroker": requests.UnregisterBrokerRequest,
    "unregisterController": requests.UnregisterControllerRequest,
    "createTopics": requests.CreateTopicsRequest,
    "createPartitions": requests.CreatePartitionsRequest,
    "alterPartition": requests.AlterPartitionRequest,
    "alterPartitionReassignments": requests.AlterPartitionReassignmentsRequest,
    "electLeaders": requests.ElectLeadersRequest,
    "assignReplicasToDirs": requests.AssignReplicasToDirsRequest,
    "incrementalAlterConfigs": requests.IncrementalAlterConfigsRequest,
    "updateFeatures": requests.UpdateFeaturesRequest,
    "balanceLeaders": requests.BalanceLeaders,
    "electUncleanLeaders": requests.ElectUncleanLeaders,
}
"""The operation of a request, by the name that traces of Kafka's controller have for it (R-TRACE-3)."""

_NAMES = {request: name for name, request in REQUESTS.items()} | {requests.DeleteTopicsRequest: "deleteTopics"}


def operation_of(request: Request) -> str:
    """The name that a trace has for the operation; empty for a request that no trace has."""
    return _NAMES.get(type(request), "")


def values(where: str, recorded: Any, ours: Any) -> Iterator[Difference]:
    """Every difference between two JSON values, at the deepest field that both have."""
    if isinstance(recorded, dict) and isinstance(ours, dict):
        for name in dict.fromkeys([*recorded, *ours]):
            if name in TEXT_FIELDS and name not in recorded:
                continue
            if name not in ours or name not in recorded:
                yield f"{where}.{name}", recorded.get(name), ours.get(name)
            elif name in TEXT_FIELDS:
                if not recorded.get("errorCode") and recorded[name] != ours[name]:
                    yield f"{where}.{name}", recorded[name], ours[name]
            else:
                yield from values(f"{where}.{name}", recorded[name], ours[name])
    elif isinstance(recorded, list) and isinstance(ours, list) and len(recorded) == len(ours):
        for index, (left, right) in enumerate(zip(recorded, ours, strict=True)):
            yield from values(f"{where}[{index}]", left, right)
    elif type(recorded) is not type(ours) or recorded != ours:
        yield where, recorded, ours


def responses(op: str, recorded: Any, ours: Any) -> Iterator[Difference]:
    """The differences between two responses.

    The order of an answer to an election of all topics is that of a hash table.
    """
    if op == "electLeaders":
        recorded, ours = _by_topic(recorded), _by_topic(ours)
    yield from values("response", recorded, ours)


def _by_topic(response: Any) -> Any:
    results = response.get("replicaElectionResults") if isinstance(response, dict) else None
    if not isinstance(results, list) or not all(isinstance(result, dict) for result in results):
        return response
    return {**response, "replicaElectionResults": sorted(results, key=lambda result: str(result.get("topic")))}


def records(op: str, recorded: Sequence[VersionedRecord], ours: Sequence[VersionedRecord]) -> Iterator[Difference]:
    """The differences between two lists of records: as multisets, then in the order that Kafka defines."""
    if list(recorded) == list(ours):
        return
    missing = Counter(recorded)
    missing.subtract(Counter(ours))
    if any(missing.values()):
        yield from _unequal(recorded, +missing, -missing)
    else:
        yield from _order(op, recorded, ours)


def _unequal(
    recorded: Sequence[VersionedRecord],
    only_recorded: Counter[VersionedRecord],
    only_ours: Counter[VersionedRecord],
) -> Iterator[Difference]:
    """Compare pairs of records about the same subject field by field; show the others whole."""
    left = list(only_ours.elements())
    for versioned in only_recorded.elements():
        where = f"records[{recorded.index(versioned)}]"
        twin = next((other for other in left if subject(other) == subject(versioned)), None)
        if twin is None:
            yield where, _shown(versioned), None
            continue
        left.remove(twin)
        if versioned.version != twin.version:
            yield f"{where}.version", versioned.version, twin.version
        yield from values(where, write(versioned.record), write(twin.record))
    for versioned in left:
        yield "records", None, _shown(versioned)


def _order(op: str, recorded: Sequence[VersionedRecord], ours: Sequence[VersionedRecord]) -> Iterator[Difference]:
    """Compare the whole order, the order of types, and the order of the records about one subject (R-TRACE-5)."""
    if op in ORDERED:
        yield "records.order", [_shown(versioned) for versioned in recorded], [_shown(versioned) for versioned in ours]
        return
    recorded_types = [TYPE_NAMES[type(versioned.record)] for versioned in recorded]
    our_types = [TYPE_NAMES[type(versioned.record)] for versioned in ours]
    if recorded_types != our_types:
        yield "records.order", recorded_types, our_types
    by_subject: dict[Any, tuple[list[VersionedRecord], list[VersionedRecord]]] = defaultdict(lambda: ([], []))
    for versioned in recorded:
        by_subject[subject(versioned)][0].append(versioned)
    for versioned in ours:
        by_subject[subject(versioned)][1].append(versioned)
    for about, (theirs, own) in by_subject.items():
        if theirs != own:
            yield (
                f"records.order of {about[1:]}",
                [_shown(versioned) for versioned in theirs],
                [_shown(versioned) for versioned in own],
            )
    if op == "assignReplicasToDirs":
        recorded_moves = [versioned for versioned in recorded if _moves(versioned)]
        granted = [versioned for versioned in ours if _moves(versioned)]
        if not _same_assignments(recorded_moves, granted):
            yield (
                "records.order of directories",
                [_shown(versioned) for versioned in recorded_moves],
                [_shown(versioned) for versioned in granted],
            )


def _same_assignments(recorded_moves: Sequence[VersionedRecord], granted: Sequence[VersionedRecord]) -> bool:
    """Whether the assignments have one order. After them a second record of a partition is in the order of a hash
    table.

    Such a record names directories if it completes a reassignment.
    """
    same = next(
        (at for at, (left, right) in enumerate(zip(recorded_moves, granted, strict=False)) if left != right), None
    )
    if same is None:
        return len(recorded_moves) == len(granted)
    before = {subject(versioned) for versioned in recorded_moves[:same]}
    return all(subject(versioned) in before for versioned in (*recorded_moves[same:], *granted[same:]))


def _moves(versioned: VersionedRecord) -> bool:
    return isinstance(versioned.record, PartitionChangeRecord) and versioned.record.directories is not None


def subject(versioned: VersionedRecord) -> tuple[Any, ...]:
    """The subject of a record: its type and, for a partition's record, the partition."""
    record = versioned.record
    if isinstance(record, (PartitionRecord, PartitionChangeRecord)):
        return TYPE_NAMES[type(record)], str(record.topic_id), record.partition_id
    if isinstance(record, ConfigRecord):
        return TYPE_NAMES[ConfigRecord], record.resource_type, record.resource_name, record.name
    return (TYPE_NAMES[type(record)],)


def _shown(versioned: VersionedRecord) -> dict[str, Any]:
    return {
        "type": TYPE_NAMES[type(versioned.record)],
        "version": versioned.version,
        "data": write(versioned.record),
    }


class Verdict(enum.Enum):
    """How the written records compare with the expected ones."""

    SAME = "same"
    ORDER = "differs in order"
    QUIRK = "explained by a known quirk"
    DIFFERS = "differs"
    UNDECIDED = "not decidable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A request with its verdict."""

    line: RequestLine | NewerLine
    verdict: Verdict
    quirk: str | None = None
    """The names of the flaws or older rules that explain the difference, joined by commas."""
    reason: str | None = None
    """Why the verdict is not SAME, or what the audit took from the log or the answer to decide."""
    from_offset: int | None = None
    """Offset of the first record that the request caused."""
    expected: tuple[VersionedRecord, ...] = ()
    """What a controller without flaws writes."""
    written: tuple[VersionedRecord, ...] = ()
    """What the log has."""
    answer: tuple[tuple[str, Any, Any], ...] = ()
    """Field, expected and recorded, where the answer is another."""
    newer: bool = False
    """Whether the audit cannot decide because the request, or the cluster then, is newer than the reference
    controller."""


def undecided(line: RequestLine | NewerLine, reason: str, *, newer: bool = False) -> Judged:
    """A request that the audit cannot judge."""
    return Judged(line=line, verdict=Verdict.UNDECIDED, reason=reason, newer=newer)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnWork:
    """Records that the controller wrote by itself, or whose request is not in the request log."""

    cause: str
    """``session expired``, ``leaders balanced``, ``unclean leaders elected``, or ``unexplained`` and the record's type.

    A record that no audited request can cause has its type alone, for example ``NoOpRecord``.
    """
    from_offset: int
    records: tuple[VersionedRecord, ...]
    unexplained: bool = False
    """Whether a request should have caused the records and none in the log did."""
    nearest: tuple[RequestLine, tuple[VersionedRecord, ...]] | None = None
    """Of an unexplained record: a request that could have begun with it, and what that should have written."""
    newer: bool = False
    """Whether the audit cannot decide its cause because the record is newer than the reference controller."""


CAUSED = (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
    FenceBrokerRecord,
    UnfenceBrokerRecord,
    TopicRecord,
    RemoveTopicRecord,
    PartitionRecord,
    PartitionChangeRecord,
    FeatureLevelRecord,
)
"""Types of the first record that an audited request can write."""

_OF_BROKERS = (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)


def may_begin_with(request: Request, record: Record, image: Image) -> bool:
    """Whether ``record`` can be the first that ``request`` caused in the state ``image``."""
    if isinstance(
        request, (requests.BrokerHeartbeatRequest, requests.BrokerRegistrationRequest, requests.UnregisterBrokerRequest)
    ):
        if isinstance(record, _OF_BROKERS):
            return record.broker_id == request.broker_id
        return isinstance(record, PartitionChangeRecord)
    if isinstance(request, requests.UnregisterControllerRequest):
        return isinstance(record, UnregisterControllerRecord) and record.controller_id == request.controller_id
    if isinstance(request, (requests.AssignReplicasToDirsRequest, requests.AlterPartitionRequest)):
        parts = request.directories if isinstance(request, requests.AssignReplicasToDirsRequest) else (request,)
        return isinstance(record, PartitionChangeRecord) and any(
            partition.partition_index == record.partition_id
            for part in parts
            for topic in part.topics
            if topic.topic_id == record.topic_id
            for partition in topic.partitions
        )
    if isinstance(request, requests.AlterPartitionReassignmentsRequest):
        return isinstance(record, PartitionChangeRecord) and _named(
            image, record, {reassigned_topic.name for reassigned_topic in request.topics}
        )
    if isinstance(request, requests.ElectLeadersRequest):
        return isinstance(record, PartitionChangeRecord)
    if isinstance(request, requests.CreateTopicsRequest):
        return isinstance(record, TopicRecord) and any(record.name == topic.name for topic in request.topics)
    if isinstance(request, requests.CreatePartitionsRequest):
        return isinstance(record, PartitionRecord) and _named(
            image, record, {grown_topic.name for grown_topic in request.topics}
        )
    if isinstance(request, requests.DeleteTopicsRequest):
        return isinstance(record, RemoveTopicRecord) and record.topic_id in request.topic_ids
    return isinstance(request, requests.UpdateFeaturesRequest) and isinstance(
        record, (FeatureLevelRecord, ConfigRecord, ClearElrRecord)
    )


def _named(image: Image, record: PartitionRecord | PartitionChangeRecord, names: set[str]) -> bool:
    topic = image.topics.get(record.topic_id)
    return topic is not None and topic.name in names


SESSION_EXPIRED = "session expired"


def own_work(image: Image, record: Record) -> Iterator[tuple[str, Request]]:
    """What may write ``record``: its name, and the operation of the controller."""
    if isinstance(record, BrokerRegistrationChangeRecord) and record.fenced == FENCE:
        yield SESSION_EXPIRED, requests.SessionExpired(broker_id=record.broker_id)
    if not isinstance(record, PartitionChangeRecord) or record.topic_id not in image.topics:
        return
    partition = image.topics[record.topic_id].partitions.get(record.partition_id)
    if partition is None:
        return
    for broker_id in partition.isr:
        yield SESSION_EXPIRED, requests.SessionExpired(broker_id=broker_id)
    if record.leader == partition.replicas[0]:
        yield "leaders balanced", requests.BalanceLeaders()
    if partition.leader == NO_LEADER:
        yield "unclean leaders elected", requests.ElectUncleanLeaders()


NEWEST_LEVEL = LEVELS["4.4-IV2"]
"""The highest metadata.version whose records the reference controller knows."""

_WRITTEN: Mapping[type[Record], int] = {
    RegisterBrokerRecord: register_broker_record_version(NEWEST_LEVEL),
    BrokerRegistrationChangeRecord: CORDONED_VERSION,
    PartitionRecord: partition_record_version(NEWEST_LEVEL),
    PartitionChangeRecord: partition_record_version(NEWEST_LEVEL),
}
"""The highest version that the reference controller writes."""

_APIS_OF_BROKERS = frozenset({"BROKER_HEARTBEAT", "BROKER_REGISTRATION", "UNREGISTER_BROKER"})


def newer_level(level: int) -> str | None:
    """Why an audit cannot decide anything at this metadata.version; None if it can."""
    if level <= NEWEST_LEVEL:
        return None
    name = LEVEL_NAMES.get(level)
    if name is None:
        return f"metadata.version level {level} is not known to this audit"
    return f"Kafka {name.partition('-')[0]} is not known to this audit (metadata.version {name})"


def newer_record(versioned: VersionedRecord) -> str | None:
    """Why an audit cannot decide who wrote this record; None if it can."""
    record = versioned.record
    if isinstance(record, UnknownRecord):
        return f"record type {record.api_key} version {versioned.version} is not known to this audit"
    if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION:
        return newer_level(record.feature_level)
    highest = _WRITTEN.get(type(record))
    if highest is None or versioned.version <= highest:
        return None
    return f"{type(record).__name__} version {versioned.version} is not known to this audit"


def newer_line(line: RequestLine | NewerLine) -> str | None:
    """Why an audit cannot judge this request; None if it can."""
    if isinstance(line, NewerLine):
        return f"{line.api} version {line.version} is not known to this audit"
    if isinstance(line.request, requests.UpdateFeaturesRequest):
        for update in line.request.feature_updates:
            if update.feature == METADATA_VERSION:
                return newer_level(update.max_version_level)
    return None


def may_have_caused(line: NewerLine, record: Record) -> bool:
    """Whether a request of which only the API and the broker are known may have caused ``record``."""
    broker_id = getattr(record, "broker_id", None)
    if line.api not in _APIS_OF_BROKERS:
        return broker_id is None
    return isinstance(record, PartitionChangeRecord) or (broker_id is not None and line.broker_id == broker_id)
