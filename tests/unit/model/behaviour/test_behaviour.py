"""Real and simulated logs are behaviours of the specification: by the requests, and guessed from the records alone."""

from __future__ import annotations

from collections import Counter

import pytest

from jbod_model.audit import Audit
from jbod_model.behaviour import Behaviour, Refusal, Step, Undecidable, with_requests
from jbod_model.formats.log import LogReader, MetadataLog
from jbod_model.formats.records import (
    ClearElrRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnknownRecord,
    VersionedRecord,
)
from jbod_model.ids import ID_TABLES
from jbod_model.profiles import KAFKA, KIP858, PROFILES
from jbod_model.replay.transactions import committed
from jbod_model.simulation.output import metadata_log
from jbod_model.simulation.stories import SCENARIOS, play
from tests.support.behaviours import asked, guessed, log_of
from tests.support.forged import with_record
from tests.support.paths import EVERY_KAFKA, metadata_dir, nodes
from tests.support.volume import sampled
from tests.unit.model.audit.audit_world import entries_of

FLAWS = {"kafka-4.1.2": {"elr_wipe": 3}, "kafka-3.9.2-zk-migration": {"zk_migration": 5}}


@pytest.mark.parametrize("kafka", EVERY_KAFKA)
def test_every_real_cluster_is_a_behaviour_with_its_requests_and_without(kafka: str) -> None:
    """R-BEHAVE-1, R-BEHAVE-2, R-BEHAVE-5, R-BEHAVE-7: both take the same batches for the same actions."""
    entries = log_of(kafka)
    alone, beside = guessed(entries), asked(kafka, entries)
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


@pytest.mark.parametrize("kafka", ["kafka-4.1.2", "kafka-4.4.0"])
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


@pytest.mark.parametrize(("profile", "name"), sampled(STORIES, 9))
def test_a_simulated_cluster_is_a_behaviour_by_the_rules_that_it_followed(profile: str, name: str) -> None:
    """R-BEHAVE-5, and R-BEHAVE-3: brokers assign nothing to directories that they do not have."""
    for ids in ("kafka", "kip858") if name == "everything" else ("kafka",):
        entries = list(entries_of(metadata_log(play(name, 3, profile, ids))))
        found = list(Behaviour(entries.copy, profile=PROFILES[profile], ids=ID_TABLES[ids]))
        assert [one for one in found if not isinstance(one, Step)] == []
        assert sum(len(one.records) for one in found if isinstance(one, Step)) == sum(
            isinstance(entry.record, VersionedRecord) for entry in entries
        )


def test_by_the_page_the_log_of_a_kafka_ends_where_kafka_departs_from_it() -> None:
    """R-BEHAVE-5: the page writes the change of the registration first, Kafka the partitions (R-FAIL-1)."""
    entries = log_of("kafka-4.1.2")
    assert any(isinstance(one, Step) and one.flaw for one in Behaviour(lambda: entries, profile=KAFKA))
    *_, end = Behaviour(lambda: entries, profile=KIP858)
    assert isinstance(end, Refusal)
    assert (end.offset, end.batch, end.nearest) == (158, (155, 162), "heartbeat: directories failed")
    assert Counter(end.found) == Counter(end.expected)
    assert end.found != end.expected


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
    assert [type(one.record) for one in end.found] == [ClearElrRecord]


def test_a_batch_is_taken_apart_in_another_way_where_the_first_leads_nowhere() -> None:
    """R-BEHAVE-1: in-sync sets before an expiry are no part of it; the longest guess is tried first, not alone."""
    entries = log_of("kafka-3.7.2")
    found = [one for one in Behaviour(lambda: entries) if isinstance(one, Step)]
    batches = {entry.offset: entry.header.base_offset for entry in entries}
    together = Counter(batches[one.from_offset] for one in found)
    several = [one for one in found if together[batches[one.from_offset]] > 1]
    assert len({one.kind for one in several}) > 3
    assert any(isinstance(one.records[0].record, PartitionChangeRecord) for one in several)
