"""Real and simulated logs are behaviours of the specification: by the requests, and guessed from the records alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from jbod_model.audit import Audit
from jbod_model.formats.log import LogReader, LogWriter, MetadataLog
from jbod_model.formats.records import (
    ClearElrRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnknownRecord,
    VersionedRecord,
)
from jbod_model.ids import ID_TABLES, Uuid
from jbod_model.profiles import KAFKA, KIP858, PROFILES
from jbod_model.replay.image import BrokerRegistration
from jbod_model.replay.transactions import committed
from lab.behaviour import Behaviour, Refusal, Step, Undecidable, with_requests
from lab.behaviour.guess import Registrations
from lab.behaviour.walk import Match
from lab.simulation.output import metadata_log
from lab.simulation.stories import SCENARIOS, play
from tests.support.behaviours import guessed, log_of, with_request_logs
from tests.support.forged import with_record
from tests.support.paths import EVERY_KAFKA, metadata_dir, nodes
from tests.support.volume import sampled
from tests.unit.model.audit.audit_world import entries_of

FLAWS = {"kafka-4.1.2": {"elr_wipe": 3}, "kafka-3.9.2-zk-migration": {"zk_migration": 5}}


@pytest.mark.parametrize("kafka", sampled(EVERY_KAFKA, 1))
def test_every_real_cluster_is_a_behaviour_with_its_requests_and_without(kafka: str) -> None:
    """R-BEHAVE-1, R-BEHAVE-2, R-BEHAVE-5, R-BEHAVE-7: both take the same batches for the same actions."""
    entries = log_of(kafka)
    alone, beside = guessed(entries), with_request_logs(kafka, entries)
    for verdict in (alone, beside):
        assert verdict.accepted, verdict.end
        assert (verdict.records, verdict.next_offset) == (len(entries), entries[-1].offset + 1)
        assert verdict.flaws == FLAWS.get(kafka, {})
        assert verdict.breaches == []
    assert alone.kinds["replicas assigned to directories"] >= beside.kinds["replicas assigned to directories"]
    assert {kind: alone.kinds[kind] for kind in SETTLED} == {kind: beside.kinds[kind] for kind in SETTLED}


SETTLED = (
    "registration",
    "registration after a session",
    "heartbeat: unfenced",
    "heartbeat: shutdown",
    "heartbeat: directories failed",
    "heartbeat: directories cordoned",
    "in-sync sets changed, reassignment complete",
    "reassignment",
    "topics created",
    "topics deleted",
    "partitions added",
    "broker unregistered",
    "controller unregistered",
    "features updated",
)
"""Actions that the records show. A session that expires and a heartbeat that asks to be fenced write the same."""


def test_the_actions_of_a_real_cluster_by_kind() -> None:
    """R-BEHAVE-4, R-BEHAVE-6."""
    verdict = guessed(log_of("kafka-3.7.2"))
    assert verdict.batches == 153
    assert verdict.kinds == {
        "replicas assigned to directories": 30,
        "in-sync sets changed": 40,
        "in-sync sets changed, reassignment complete": 4,
        "registration": 9,
        "heartbeat: unfenced": 9,
        "heartbeat: fenced": 8,
        "heartbeat: shutdown": 8,
        "heartbeat: directories failed": 2,
        "session expired": 1,
        "reassignment": 1,
        "topics created": 7,
        "topics deleted": 1,
        "partitions added": 1,
        "broker unregistered": 1,
    }
    assert verdict.others == {
        "transaction: Bootstrap records": 1,
        "RegisterControllerRecord": 1,
        "NoOpRecord": 67,
        "ClientQuotaRecord": 1,
        "UserScramCredentialRecord": 1,
    }


@pytest.mark.parametrize("kafka", sampled(["kafka-4.1.2", "kafka-4.4.0"], 1))
def test_every_node_has_a_behaviour(kafka: str) -> None:
    for node in nodes(kafka):
        assert guessed(log_of(kafka, node)).accepted, node


def test_a_log_that_begins_with_a_snapshot_is_a_behaviour_from_there_on() -> None:
    """R-BEHAVE-8."""
    log = MetadataLog.open(metadata_dir("kafka-4.1.2"))
    entries = list(committed(LogReader(log, start="snapshot")))
    assert entries[0].in_snapshot
    verdict = guessed(entries)
    assert verdict.accepted
    assert verdict.snapshot_at == entries[0].offset
    assert 0 < verdict.records == sum(not entry.in_snapshot for entry in entries)


def test_breaches_of_invariants_are_told_apart_by_the_flaw_of_their_action() -> None:
    """R-BEHAVE-9: R-INV-17 breaks three times in 4.1.2, each time in an assignment that shows the flaw."""
    verdict = guessed(log_of("kafka-4.1.2"))
    assert [(breach.number, breach.offset, flaw) for breach, flaw in verdict.known_breaches] == [
        (17, offset, "elr_wipe") for offset in (224, 477, 478)
    ]


STORIES = [(profile, name) for profile in PROFILES for name in sorted(SCENARIOS)]


@pytest.mark.parametrize(("profile", "name"), sampled(STORIES, 6))
def test_a_simulated_cluster_is_a_behaviour_by_the_rules_that_it_followed(profile: str, name: str) -> None:
    """R-BEHAVE-5, and R-BEHAVE-3: brokers assign nothing to directories that they do not have."""
    for ids in ("kafka", "kip858") if name == "everything" else ("kafka",):
        entries = list(entries_of(metadata_log(play(name, 3, profile, ids))))
        steps = list(Behaviour(entries.copy, profile=PROFILES[profile], ids=ID_TABLES[ids]))
        assert [step for step in steps if not isinstance(step, Step)] == []
        assert sum(len(step.records) for step in steps if isinstance(step, Step)) == sum(
            isinstance(entry.record, VersionedRecord) for entry in entries
        )


def test_by_the_page_the_log_of_a_kafka_ends_where_kafka_departs_from_it() -> None:
    """R-BEHAVE-5: the page writes the change of the registration first, Kafka the partitions (R-FAIL-1)."""
    entries = log_of("kafka-4.1.2")
    assert any(isinstance(step, Step) and step.flaw for step in Behaviour(lambda: entries, profile=KAFKA))
    *_, end = Behaviour(lambda: entries, profile=KIP858)
    assert isinstance(end, Refusal)
    assert (end.offset, end.batch, end.nearest) == (158, (155, 162), "heartbeat: directories failed")
    assert Counter(end.written) == Counter(end.expected)
    assert end.written != end.expected


def test_what_is_newer_than_the_specification_is_neither() -> None:
    """R-BEHAVE-8."""
    entries = log_of("kafka-4.1.2")
    at = next(place for place, entry in enumerate(entries) if entry.offset == 300)
    for newer in (
        UnknownRecord(api_key=999, body=b""),
        FeatureLevelRecord(name="metadata.version", feature_level=99),
    ):
        *_, end = Behaviour(with_record(entries, at, newer).copy)
        assert isinstance(end, Undecidable)
        assert end.offset == 300
    *_, end = with_requests(Audit(with_record(entries, at, UnknownRecord(api_key=999, body=b"")), [iter(())]))
    assert not isinstance(end, Step)


def test_a_record_that_no_action_begins_with_is_refused() -> None:
    """R-BEHAVE-4: a clearing record comes with the value that it is about."""
    entries = log_of("kafka-4.1.2")
    at = next(
        place
        for place, entry in enumerate(entries)
        if isinstance(getattr(entry.record, "record", None), RegisterBrokerRecord)
    )
    *_, end = Behaviour(lambda: with_record(entries, at, ClearElrRecord(topic_name="solo")))
    assert isinstance(end, Refusal)
    assert (end.offset, end.nearest) == (entries[at].offset, None)
    assert [type(record.record) for record in end.written] == [ClearElrRecord]


class Scripted(Behaviour):
    """At each place of a batch, actions that write so many records."""

    script: Mapping[int, tuple[int, ...]]

    def _matches(self, records: Any, at: int, known: Any, farthest: Any) -> Iterator[Any]:
        farthest.reached(at)
        yield from (Match(f"{count} at {at}", count) for count in self.script.get(at, ()))


@pytest.mark.parametrize(
    ("script", "steps"),
    [
        ({0: (3, 1), 1: (2,), 3: ()}, ["1 at 0", "2 at 1", "end at 3"]),
        ({0: (3, 1), 1: (3,)}, ["1 at 0", "3 at 1"]),
        ({0: (2, 1), 1: (2, 1), 2: (), 3: (1,)}, ["1 at 0", "2 at 1", "1 at 3"]),
        ({0: (4,)}, ["4 at 0"]),
        ({0: (2,), 2: ()}, ["end at 2"]),
    ],
)
def test_a_batch_is_taken_apart_in_another_way_where_the_first_leads_nowhere(
    script: Mapping[int, tuple[int, ...]], steps: list[str]
) -> None:
    """R-BEHAVE-1."""
    log = LogWriter()
    log.append([VersionedRecord(NoOpRecord(), 0)] * 4, epoch=1, timestamp=0)
    behaviour = Scripted(lambda: entries_of(log))
    behaviour.script = script
    outcomes = [outcome.kind if isinstance(outcome, Step) else f"end at {outcome.offset}" for outcome in behaviour]
    assert outcomes == ([steps[-1]] if steps[-1].startswith("end") else steps)


def test_a_broker_assigns_only_to_directories_of_its_processes() -> None:
    """R-BEHAVE-3: of the last registration, the next, or of one that is not in the log."""
    first, second, strange = Uuid(1, 1), Uuid(1, 2), Uuid(1, 3)
    log = LogWriter()
    for directory in (first, second):
        log.append([VersionedRecord(RegisterBrokerRecord(broker_id=1, log_dirs=(directory,)), 3)], epoch=1, timestamp=0)
    registrations = Registrations.of(entries_of(log))
    alive = BrokerRegistration.from_record(RegisterBrokerRecord(broker_id=1, fenced=False))
    fenced = BrokerRegistration.from_record(RegisterBrokerRecord(broker_id=1, fenced=True))
    leaving = BrokerRegistration.from_record(
        RegisterBrokerRecord(broker_id=1, fenced=False, in_controlled_shutdown=True)
    )
    other = BrokerRegistration.from_record(RegisterBrokerRecord(broker_id=2, fenced=False))
    for broker in (alive, fenced, leaving):
        assert [registrations.may_have(broker, uuid, 0) for uuid in (first, second, strange)] == [True, True, False]
        assert registrations.may_have(broker, second, 1)
    assert [registrations.may_have(registration, strange, 1) for registration in (alive, fenced, leaving, other)] == [
        False,
        True,
        True,
        True,
    ]


def test_a_directory_that_no_process_had_is_refused_though_its_replica_is_not_in_sync() -> None:
    """R-BEHAVE-3: the controller alone would take it, as there is no leadership to lose."""
    entries = log_of("kafka-4.1.2")
    at = next(place for place, entry in enumerate(entries) if entry.offset == 279)
    versioned = entries[at].record
    assert isinstance(versioned, VersionedRecord)
    record = versioned.record
    assert isinstance(record, PartitionChangeRecord)
    assert record.directories is not None
    strange = replace(record, directories=(record.directories[0], Uuid(7, 7), record.directories[2]))
    *_, end = Behaviour(with_record(entries, at, strange).copy)
    assert isinstance(end, Refusal)
    assert (end.offset, end.batch) == (279, (277, 283))
