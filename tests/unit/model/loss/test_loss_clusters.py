"""The losses of the real clusters, as docs/spec/loss-clusters.md lists them (R-LOSS-4, R-LOSS-6, R-COPY-12)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from jbod_model.formats.batch import BatchHeader
from jbod_model.formats.log import LogEntry, LogReader, MetadataLog
from jbod_model.loss.fate import Fate
from jbod_model.loss.log import Fates, Key, fates
from lab.conformance.trace import read_trace, recorded_records
from tests.support.paths import ROOT

FIXTURES = ROOT / "tests" / "fixtures"

LossLine = tuple[str, str, int, int | None, str]
"""Partition, kind, offset, where the partition went on, and of the last copy: broker, directory, why given up."""

EXPECTED: dict[str, list[LossLine]] = {
    "kafka-4.1.2": [
        ("solo-0", "lost", 278, 290, "2 tVpK recreated"),
        ("solo-1", "may lack writes", 424, 424, "4 jYd7"),
        ("solo-1", "lost", 487, 491, "4 jYd7 recreated"),
        ("solo-2", "unreachable", 544, None, "3 DKzw unregistered"),
        ("solo-3", "may lack writes", 422, 422, "4 jYd7"),
        ("solo-3", "lost", 487, 489, "4 jYd7 recreated"),
        ("solo-5", "may lack writes", 423, 423, "4 UiSl"),
        ("solo-6", "lost", 224, 231, "1 r60J recreated"),
        ("solo-7", "unreachable", 544, None, "3 DKzw unregistered"),
    ],
    "kafka-3.7.2": [
        ("solo-2", "unreachable", 533, None, "3 Cgxp unregistered"),
        ("solo-3", "lost", 477, None, "4 BRB_ recreated"),
        ("solo-4", "unreachable", 533, None, "3 Cgxp unregistered"),
        ("solo-7", "lost", 282, 364, "2 lUhq recreated"),
    ],
    "kafka-3.9.2-upgrade": [],
    "kafka-3.9.2-zk-migration": [],
}


def _current_losses(entries: Iterator[LogEntry]) -> list[LossLine]:
    names: dict[object, str] = {}

    def named() -> Iterator[LogEntry]:
        for entry in entries:
            record = getattr(entry.record, "record", None)
            if type(record).__name__ == "TopicRecord":
                names[record.topic_id] = record.name  # type: ignore[union-attr]
            yield entry

    losses: list[LossLine] = []
    last = dict[Key, Fate]()
    for _, of in fates(named()):
        last = dict(of)
    for (topic_id, number), fate in last.items():
        for loss in fate.losses:
            if loss.until is None:
                (copy,) = loss.copies
                where = f"{copy.broker_id} {str(copy.directory)[:4]} {copy.given_up or ''}".strip()
                losses.append((f"{names[topic_id]}-{number}", loss.kind, loss.offset, loss.went_on, where))
    return sorted(losses, key=lambda each: each[0])


@pytest.mark.parametrize("cluster", EXPECTED)
def test_losses_of_a_real_cluster_are_those_judged_by_hand(cluster: str) -> None:
    metadata = FIXTURES / "clusters" / cluster / "metadata" / "controller-100"
    assert _current_losses(iter(LogReader(MetadataLog.open(metadata)))) == EXPECTED[cluster]


@pytest.mark.parametrize("cluster", ["kafka-4.1.2", "kafka-3.7.2"])
def test_log_of_a_broker_tells_the_same_from_its_start_and_nothing_else_from_its_snapshot(cluster: str) -> None:
    """R-LOSS-8: from a snapshot on, older losses are not known; what is told must be among what the whole log tells."""
    metadata = FIXTURES / "clusters" / cluster / "metadata" / "broker-1"
    assert _current_losses(iter(LogReader(MetadataLog.open(metadata)))) == EXPECTED[cluster]
    for loss in _current_losses(iter(LogReader(MetadataLog.open(metadata), start="snapshot"))):
        assert loss[:3] in {each[:3] for each in EXPECTED[cluster]}


def _trace(path: Path) -> Iterator[list[LogEntry]]:
    offset = 0
    for _, line in read_trace(path):
        records = recorded_records(line)
        if not records:
            continue
        header = BatchHeader(
            position=0,
            base_offset=offset,
            length=0,
            epoch=1,
            crc=0,
            attributes=0,
            last_offset_delta=len(records) - 1,
            base_timestamp=0,
            max_timestamp=0,
            count=len(records),
        )
        yield [LogEntry(offset + number, 1, 0, record, header) for number, record in enumerate(records)]
        offset += len(records)


@pytest.mark.parametrize("trace", ["seed1", "seed3"])
def test_random_operations_on_kafkas_own_controller_are_followed(trace: str) -> None:
    """R-LOSS-1, R-LOSS-2, R-LOSS-3, R-LOSS-4, R-LOSS-5, R-LOSS-6, R-LOSS-7, R-LOSS-8, R-LOSS-9: every leader but a
    first one is complete from its election on, and has lost something or not."""
    fates = Fates()
    for batch in islice(_trace(FIXTURES / "traces" / f"{trace}.jsonl.gz"), 200):
        fates.apply(batch)
    losses = [loss for fate in fates.of.values() for loss in fate.losses]
    for fate in fates.of.values():
        for before, after in zip(fate.losses, fate.losses[1:], strict=False):
            assert before.went_on is not None or before.until is not None
            assert before.offset <= after.offset
        leader = fate.copies.get(fate.state.leader) if fate.state else None
        assert leader is None or leader.given_up or leader.level == "complete"
    assert losses
