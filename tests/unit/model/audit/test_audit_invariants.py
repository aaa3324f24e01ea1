"""What a metadata log must keep by itself: real logs do, and each invariant fires on one that was tampered with."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from jbod_model.audit.log_invariants import INVARIANTS, LogBreach, check_log
from jbod_model.errors import ReplayViolation
from jbod_model.formats.log import LogReader, LogWriter, MetadataLog, write_snapshot
from jbod_model.formats.metadata_version import LEVELS, METADATA_VERSION
from jbod_model.formats.records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    TopicRecord,
    VersionedRecord,
)
from jbod_model.ids import KAFKA_IDS, Uuid
from jbod_model.replay.transactions import committed
from tests.support.paths import KAFKAS, ROOT, TRACES, metadata_dir
from tests.unit.model.audit.audit_world import Recorded, entries_of

TOPIC = Uuid(7, 7)
DIRECTORIES = {1: (Uuid(1, 101), Uuid(1, 102)), 2: (Uuid(2, 101), Uuid(2, 102)), 3: (Uuid(3, 101), Uuid(3, 102))}
HOME = (DIRECTORIES[1][0], DIRECTORIES[2][0])
VERSIONS = {RegisterBrokerRecord: 3, PartitionRecord: 2, PartitionChangeRecord: 2, BrokerRegistrationChangeRecord: 2}
BEGUN = 9
"""Offset of the first record after `_cluster`."""


def _broker(broker_id: int, log_dirs: tuple[Uuid, ...] | None = None, fenced: bool = False) -> RegisterBrokerRecord:
    listed = DIRECTORIES[broker_id] if log_dirs is None else log_dirs
    return RegisterBrokerRecord(
        broker_id=broker_id, incarnation_id=Uuid(9, broker_id), broker_epoch=broker_id, fenced=fenced, log_dirs=listed
    )


def _change(**fields: object) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=0, topic_id=TOPIC, **fields)  # type: ignore[arg-type]


def _brokers(broker_id: int, **fields: object) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker_id, **fields)  # type: ignore[arg-type]


def _partition(**fields: object) -> PartitionRecord:
    born: dict[str, object] = {
        "partition_id": 0,
        "topic_id": TOPIC,
        "replicas": (1, 2),
        "isr": (1, 2),
        "leader": 1,
        "leader_epoch": 0,
        "partition_epoch": 0,
        "directories": HOME,
    }
    return PartitionRecord(**born | fields)  # type: ignore[arg-type]


def _cluster(born: PartitionRecord) -> list[Record]:
    """Three brokers with two directories each, and a partition on the first two."""
    return [
        FeatureLevelRecord(name=METADATA_VERSION, feature_level=LEVELS["4.1-IV1"]),
        _broker(1),
        _broker(2),
        _broker(3),
        _brokers(1, fenced=-1),
        _brokers(2, fenced=-1),
        _brokers(3, fenced=-1),
        TopicRecord(name="t", topic_id=TOPIC),
        born,
    ]


def _check(*records: Record, born: PartitionRecord | None = None) -> list[LogBreach]:
    """The breaches of a log in which ``records`` are one batch after a sound beginning."""
    log = LogWriter()
    for batch in ([record] for record in _cluster(born or _partition())):
        log.append([VersionedRecord(record, VERSIONS.get(type(record), 0)) for record in batch], epoch=1, timestamp=1)
    assert log.next_offset == BEGUN
    if records:
        log.append([VersionedRecord(record, VERSIONS.get(type(record), 0)) for record in records], epoch=1, timestamp=2)
    return list(check_log(entries_of(log)))


TAMPERED: dict[int, list[Record]] = {
    1: [_partition(directories=(HOME[0],))],
    2: [_change(isr=(1, 3))],
    5: [_change(replicas=(1, 2, 3), directories=(DIRECTORIES[1][1], HOME[1], KAFKA_IDS.unassigned))],
    6: [_broker(3, (DIRECTORIES[1][0],))],
    7: [_broker(3, (Uuid(3, 101), Uuid(3, 101)))],
    8: [_brokers(3, log_dirs=(*DIRECTORIES[3], Uuid(3, 103)))],
    9: [_brokers(1, fenced=1)],
    10: [_brokers(1, log_dirs=(DIRECTORIES[1][1],))],
    11: [_change(isr=(2,), leader=-1), _brokers(1, log_dirs=(DIRECTORIES[1][1],))],
    12: [_change(replicas=(1, 2, 3), directories=(*HOME, KAFKA_IDS.unassigned)), _change(isr=(3,), leader=3)],
    15: [_change(directories=(Uuid(1, 999), HOME[1]))],
    16: [_change(directories=HOME)],
    17: [_change(directories=(HOME[0], DIRECTORIES[2][1]), eligible_leader_replicas=())],
}

SOUND: dict[str, list[Record]] = {
    "an assignment": [_change(directories=(DIRECTORIES[1][1], HOME[1]))],
    "a reassignment": [_change(replicas=(2, 1, 3), directories=(HOME[1], HOME[0], KAFKA_IDS.unassigned))],
    "a failure": [_change(isr=(2,), leader=2), _brokers(1, log_dirs=(DIRECTORIES[1][1],))],
    "a fenced leader": [_change(isr=(2,), leader=2), _brokers(1, fenced=1)],
    "an assignment to a failed directory": [
        _change(directories=(Uuid(1, 999), HOME[1])),
        _change(isr=(2,), leader=2),
    ],
    "an unclean election": [
        _change(isr=(2,), leader=2),
        _change(isr=(1,), leader=1, leader_recovery_state=1),
    ],
    "a new process of a broker": [_change(isr=(2,), leader=2), _broker(1, fenced=True)],
}


def test_every_invariant_has_a_case() -> None:
    assert TAMPERED.keys() == INVARIANTS.keys()


@pytest.mark.parametrize("number", TAMPERED)
def test_an_invariant_fires_on_a_log_that_breaks_it_and_names_the_offset(number: int) -> None:
    born = _partition(eligible_leader_replicas=(2,), isr=(1,)) if number == 17 else None
    breaches = _check(*TAMPERED[number], born=born)
    assert number in {breach.number for breach in breaches}
    offsets = {breach.offset for breach in breaches}
    assert offsets <= {BEGUN, BEGUN + 1}
    assert all(breach.problem for breach in breaches)


@pytest.mark.parametrize("what", SOUND)
def test_what_a_controller_rightly_does_breaks_nothing(what: str) -> None:
    assert not _check(*SOUND[what])


@pytest.mark.parametrize("kafka", KAFKAS)
def test_a_real_log_keeps_them_but_for_the_known_loss_of_eligible_leaders(kafka: str) -> None:
    counts = Counter(breach.number for breach in check_log(committed(LogReader(MetadataLog.open(metadata_dir(kafka))))))
    assert counts == ({17: 3} if kafka == "kafka-4.1.2" else {})


def test_kafkas_own_controller_breaks_only_those_that_are_known_for_it() -> None:
    """Seeds 1 and 2 hold the flaws: failures in the heartbeat that unfences, and lost eligible leaders."""
    broken: Counter[int] = Counter()
    for seed in (1, 2):
        recorded = Recorded.of(TRACES / f"seed{seed}.jsonl.gz", limit=400)
        broken.update(breach.number for breach in check_log(recorded.entries()))
    assert set(broken) == {9, 10, 15, 17}
    assert all(INVARIANTS[number].known for number in broken)


def test_a_record_that_no_reader_takes_and_that_breaks_no_invariant_ends_the_check() -> None:
    stranger = PartitionChangeRecord(partition_id=5, topic_id=TOPIC, leader=1)
    with pytest.raises(ReplayViolation, match="there is no such partition"):
        _check(stranger)


def test_a_log_that_begins_with_a_snapshot_is_checked_from_there(tmp_path: Path) -> None:
    records = [
        VersionedRecord(record, VERSIONS.get(type(record), 0))
        for record in _cluster(_partition())
        if not isinstance(record, BrokerRegistrationChangeRecord)
    ]
    write_snapshot(tmp_path, records, end_offset=100, epoch=1, timestamp=1)
    log = LogWriter(base_offset=100)
    log.append([VersionedRecord(_brokers(1, fenced=1), 0)], epoch=1, timestamp=2)
    log.write(tmp_path)
    breaches = list(check_log(LogReader(MetadataLog.open(tmp_path))))
    assert [(breach.number, breach.offset) for breach in breaches] == [(9, 100)]


def test_the_statements_have_the_numbers_of_the_specification() -> None:
    page = (ROOT / "docs" / "spec" / "invariants.md").read_text(encoding="utf-8")
    assert all(f"| R-INV-{number} |" in page for number in INVARIANTS)
