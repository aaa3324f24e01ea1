"""What the reference controller writes and answers for a request, with and without Kafka's flaws."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from jbod_model.audit import compare
from jbod_model.controller import Context, Controller
from jbod_model.formats.json_values import write
from jbod_model.formats.records import PartitionChangeRecord, RegisterBrokerRecord, VersionedRecord
from jbod_model.formats.request_log import RequestLine
from jbod_model.formats.requests import BrokerRegistrationRequest, Request
from jbod_model.formats.responses import (
    AlterPartitionReassignmentsResponse,
    CreatePartitionsResponse,
    CreateTopicsResponse,
    DeleteTopicsResponse,
    ElectLeadersResponse,
    KafkaError,
    RequestRefused,
    Response,
)
from jbod_model.profiles import KAFKA, Profile, Quirk
from jbod_model.replay.image import Image
from jbod_model.replay.registrations import NO_LEADER_CHANGE

TIMED_OUT = 7
"""Kafka's REQUEST_TIMED_OUT: the answer says nothing about what was written."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Records in order, and the answer in a form that can be compared."""

    records: tuple[VersionedRecord, ...]
    answer: Any
    response: Response | None = None
    """The answer itself; None where the request is refused."""


@dataclass(frozen=True, slots=True)
class AuditRules:
    """The rules for an answer: a profile, and the name of what distinguishes it."""

    name: str | None
    profile: Profile
    cleanup: bool = True
    """Whether a new process of a broker first takes the leaderships of the old process away (from Kafka 4.0 on)."""
    migrating: bool = False
    """Whether brokers in ZooKeeper mode register, and every shrunk in-sync set makes a new leader epoch (Kafka 3)."""


def _flawed(*quirks: Quirk) -> Profile:
    rules = KAFKA.controller.without()
    return replace(KAFKA, controller=replace(rules, quirks=frozenset(quirks)))


RIGHT = AuditRules(None, _flawed())
"""The rules without flaws: what should be written."""

AS_RELEASED = AuditRules("kafka", KAFKA)
"""The rules with every flaw of the release whose controller leads."""

WITHOUT_LEAK = AuditRules(None, replace(KAFKA, controller=KAFKA.controller.without(Quirk.INDEX_LEAK)))
"""The rules without the flaw on which Kafka throws after it noted the broker's new state (R-QUIRK-2)."""

FLAWED: tuple[AuditRules, ...] = (*(AuditRules(quirk.value, _flawed(quirk)) for quirk in Quirk), AS_RELEASED)
"""The rules with a single flaw each, then with all flaws."""

OLDER: tuple[AuditRules, ...] = (
    AuditRules("no_cleanup_at_registration", KAFKA, cleanup=False),
    AuditRules("zk_migration", KAFKA, cleanup=False, migrating=True),
)
"""The rules of releases before 4.0."""


def expect(image: Image, request: Request, context: Context, rules: AuditRules) -> Expected:
    """What a controller that follows ``rules`` does for ``request`` in the state ``image``."""
    handled_request = request
    if rules.migrating and isinstance(request, BrokerRegistrationRequest):
        handled_request = replace(request, is_migrating_zk_broker=False)
    try:
        result = Controller(rules.profile).handle(image, handled_request, context)
    except RequestRefused as refused:
        return Expected((), refused.code.value)
    records = result.records
    if not rules.cleanup and isinstance(request, BrokerRegistrationRequest):
        records = records[-1:]
    if rules.migrating:
        records = tuple(_as_in_migration(image, request, record) for record in records)
    return Expected(records, comparable(result.response), result.response)


def _as_in_migration(image: Image, request: Request, versioned: VersionedRecord) -> VersionedRecord:
    """The record as Kafka 3 writes it while a cluster migrates from ZooKeeper (KAFKA-15021)."""
    record = versioned.record
    if isinstance(record, RegisterBrokerRecord) and isinstance(request, BrokerRegistrationRequest):
        return replace(versioned, record=replace(record, is_migrating_zk_broker=request.is_migrating_zk_broker))
    if isinstance(record, PartitionChangeRecord) and record.isr is not None and record.leader == NO_LEADER_CHANGE:
        before = image.topics[record.topic_id].partitions[record.partition_id]
        if not set(before.isr) <= set(record.isr):
            return replace(versioned, record=replace(record, leader=before.leader))
    return versioned


def name_of(rules: AuditRules, image: Image, request: Request, context: Context) -> str:
    """What distinguishes ``rules`` here. For all flaws together: those flaws without which the outcome would differ."""
    if rules is not AS_RELEASED:
        return str(rules.name)
    released = expect(image, request, context, AS_RELEASED)
    needed = []
    for quirk in Quirk:
        without = AuditRules(None, replace(KAFKA, controller=KAFKA.controller.without(quirk)))
        if expect(image, request, context, without) != released:
            needed.append(quirk.value)
    return ", ".join(needed) or str(AS_RELEASED.name)


def answered(line: RequestLine) -> Any:
    """The answer that the log has, in the form of `Expected.answer`."""
    return line.error_code if line.error_code else comparable(line.response)


def answers(line: RequestLine, outcome: Expected) -> bool:
    """Whether the request was answered as expected. Any answer to a request that timed out counts as expected."""
    return line.error_code == TIMED_OUT or answered(line) == outcome.answer


def other_answer(line: RequestLine, outcome: Expected) -> tuple[tuple[str, Any, Any], ...]:
    """(field, expected, recorded) where the answer is not the expected one. An error answers the whole request."""
    logged_answer, expected = answered(line), outcome.answer
    if not (isinstance(logged_answer, dict) and isinstance(expected, dict)):
        logged_answer, expected = (
            {"errorCode": answer if isinstance(answer, int) else 0} for answer in (logged_answer, expected)
        )
    differences = compare.values("answer", logged_answer, expected)
    return tuple((where, ours, theirs) for where, theirs, ours in differences)


def comparable(response: Response) -> Any:
    """The part of an answer that a controller decides: without texts, and without order where order means nothing."""
    form = write(response)
    if isinstance(response, CreateTopicsResponse):
        return {topic["name"]: topic["errorCode"] or topic["topicId"] for topic in form["topics"]}
    if isinstance(response, CreatePartitionsResponse):
        return {topic["name"]: topic["errorCode"] for topic in form["results"]}
    if isinstance(response, DeleteTopicsResponse):
        return {topic["topicId"]: topic["errorCode"] for topic in form["responses"] if not _unnamed(topic)}
    if isinstance(response, ElectLeadersResponse):
        return dict(_flat(form["replicaElectionResults"], "topic", "partitionResult", "partitionId"))
    if isinstance(response, AlterPartitionReassignmentsResponse):
        return dict(_flat(form["responses"], "name", "partitions", "partitionIndex"))
    if isinstance(form, dict):
        return {name: value for name, value in form.items() if name not in _NOT_DECIDED}
    return form


_NOT_DECIDED = frozenset({"throttleTimeMs", "errorCode", "errorMessage", "inControlledShutdown"})


def _unnamed(result: Mapping[str, Any]) -> bool:
    """Whether the result is about a topic that was requested by a name that does not exist, and so has no id."""
    return bool(result["topicId"] == "A" * 22 and result["errorCode"] == KafkaError.UNKNOWN_TOPIC_OR_PARTITION)


def _flat(topics: list[dict[str, Any]], name: str, partitions: str, number: str) -> Iterator[tuple[Any, int]]:
    for topic in topics:
        for partition in topic[partitions]:
            if partition["errorCode"] != KafkaError.ELECTION_NOT_NEEDED or name == "name":
                yield (topic[name], partition[number]), partition["errorCode"]
