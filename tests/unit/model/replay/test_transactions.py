from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from jbod_model.errors import ReplayViolation, UsageError
from jbod_model.formats.control_records import ControlRecord, LeaderChangeMessage
from jbod_model.formats.log import LogReader, LogWriter, MetadataLog, write_snapshot
from jbod_model.formats.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    Record,
    VersionedRecord,
)
from jbod_model.replay.image import Image
from jbod_model.replay.transactions import Transactions, committed, image_at, images

BEGIN, END, ABORT = BeginTransactionRecord(name="x"), EndTransactionRecord(), AbortTransactionRecord()
A, B = (FeatureLevelRecord(name=name, feature_level=1) for name in "ab")
LEADER = LeaderChangeMessage(leader_id=1)
NOOP = NoOpRecord()

Part = Sequence[Record] | Sequence[ControlRecord]


def history(directory: Path, *batches: Part) -> dict[int, set[str]]:
    """Features after every visible offset of a log with these batches, each in a segment of its own."""
    base_offset = 0
    for batch in batches:
        writer = LogWriter(base_offset=base_offset)
        versioned = [VersionedRecord(record, 0) for record in batch if isinstance(record, Record)]
        control = [record for record in batch if isinstance(record, ControlRecord)]
        writer.append(control or versioned, epoch=1, timestamp=1)
        writer.write(directory)
        base_offset = writer.next_offset
    return {offset: set(image.features) for offset, image in images(LogReader(MetadataLog.open(directory)))}


@pytest.mark.parametrize(
    ("batches", "seen"),
    [
        # committed: nothing before the end, everything from it on, in one batch or over several
        ([[BEGIN, A, B, END]], {3: {"a", "b"}}),
        ([[BEGIN, A], [B], [END]], {3: {"a", "b"}}),
        ([[A, BEGIN, B], [LEADER], [END, NOOP]], {0: {"a"}, 4: {"a", "b"}, 5: {"a", "b"}}),
        ([[BEGIN, END], [BEGIN], [END]], {1: set(), 3: set()}),
        # aborted: gone, whatever follows
        ([[BEGIN, A, ABORT]], {2: set()}),
        ([[BEGIN, A, ABORT, B]], {2: set(), 3: {"b"}}),
        ([[BEGIN, A], [ABORT, NOOP]], {2: set(), 3: set()}),
        ([[BEGIN, A], [ABORT, BEGIN, B, END]], {2: set(), 5: {"b"}}),
        # open at the end: not to be seen
        ([[A, BEGIN, B]], {0: {"a"}}),
        ([[BEGIN, A, END], [BEGIN], [B]], {2: {"a"}}),
    ],
)
def test_transaction_is_seen_as_a_whole_or_not_at_all(
    tmp_path: Path, batches: list[Part], seen: dict[int, set[str]]
) -> None:
    """R-TXN-1, R-TXN-2, R-TXN-3, R-TXN-4, R-TXN-5."""
    assert history(tmp_path, *batches) == seen


@pytest.mark.parametrize(
    ("batches", "repaired", "leaking"),
    [
        # As Kafka's own loader showed it for each of these.
        ([[BEGIN, A, ABORT, B]], {"b"}, {"a", "b"}),
        ([[BEGIN, A], [ABORT, NOOP]], set(), {"a"}),
        ([[BEGIN, A], [ABORT, BEGIN, B, END]], {"b"}, {"a", "b"}),
        ([[BEGIN, A], [ABORT]], set(), set()),
        ([[BEGIN, A, END, B]], {"a", "b"}, {"a", "b"}),
    ],
)
def test_abort_leak_shows_aborted_records_only_when_switched_on(
    tmp_path: Path, batches: list[Part], repaired: set[str], leaking: set[str]
) -> None:
    """R-TXN-3, R-TXN-7."""
    history(tmp_path, *batches)

    def features(*, abort_leak: bool) -> set[str]:
        entries = committed(LogReader(MetadataLog.open(tmp_path)), abort_leak=abort_leak)
        image = Image()
        for entry in entries:
            if isinstance(entry.record, VersionedRecord):
                image = image.apply(entry.record.record, entry.offset)
        return set(image.features)

    assert features(abort_leak=False) == repaired
    assert features(abort_leak=True) == leaking


def test_leak_has_only_records_and_comes_with_the_next_record(tmp_path: Path) -> None:
    """R-TXN-7: markers have had their effect, and a control record flushes nothing."""
    history(tmp_path, [BEGIN, A, ABORT], [LEADER], [NOOP])
    entries = committed(LogReader(MetadataLog.open(tmp_path)), abort_leak=True)
    assert [entry.offset for entry in entries] == [0, 2, 3, 1, 4]


@pytest.mark.parametrize(
    ("batches", "offset", "problem"),
    [
        ([[BEGIN, A], [BEGIN]], 2, "BeginTransactionRecord while the transaction of offset 0 is open"),
        ([[A, END]], 1, "EndTransactionRecord while no transaction is open"),
        ([[BEGIN, END, ABORT]], 2, "AbortTransactionRecord while no transaction is open"),
    ],
)
def test_marker_out_of_place_is_refused(tmp_path: Path, batches: list[Part], offset: int, problem: str) -> None:
    """R-TXN-1, R-TXN-2, R-TXN-3."""
    with pytest.raises(ReplayViolation) as caught:
        history(tmp_path, *batches)
    assert (caught.value.offset, caught.value.problem) == (offset, problem)


def test_marker_in_a_snapshot_is_refused(tmp_path: Path) -> None:
    """R-TXN-6."""
    write_snapshot(tmp_path, [VersionedRecord(BEGIN, 0)], end_offset=5, epoch=1, timestamp=1)
    with pytest.raises(ReplayViolation, match="offset 4: BeginTransactionRecord in a snapshot"):
        image_at(tmp_path)


def test_open_transaction_is_named(tmp_path: Path) -> None:
    """R-TXN-4: a reader that waits can say for what."""
    history(tmp_path, [A, BEGIN], [B])
    transactions = Transactions()
    visible = [e for entry in LogReader(MetadataLog.open(tmp_path)) for e in transactions.add(entry)]
    assert [entry.offset for entry in visible] == [0]
    assert transactions.open_at == 1
    assert list(committed(LogReader(MetadataLog.open(tmp_path)))) == visible


def test_images_go_on_from_a_given_image(tmp_path: Path) -> None:
    history(tmp_path, [A])
    given = Image().apply(B, 0)
    ((_, image),) = images(LogReader(MetadataLog.open(tmp_path)), image=given)
    assert set(image.features) == {"a", "b"}


def test_control_record_inside_an_aborted_transaction_stays(tmp_path: Path) -> None:
    """R-TXN-3: its offset counts."""
    history(tmp_path, [BEGIN, A], [LEADER], [ABORT, NOOP])
    entries = committed(LogReader(MetadataLog.open(tmp_path)))
    assert [entry.offset for entry in entries] == [0, 2, 3, 4]


@pytest.mark.parametrize(
    ("offset", "at", "features"),
    [(0, 0, {"a"}), (1, 1, {"a"}), (2, 2, {"a", "b"}), (9, 2, {"a", "b"}), (None, 2, {"a", "b"})],
)
def test_image_at_an_offset_is_that_of_the_newest_visible_one(
    tmp_path: Path, offset: int | None, at: int, features: set[str]
) -> None:
    history(tmp_path, [A], [NOOP, B])
    image_offset, image = image_at(tmp_path, offset)
    assert (image_offset, set(image.features)) == (at, features)


def test_image_at_an_offset_before_the_log_is_refused(tmp_path: Path) -> None:
    history(tmp_path, [A])
    with pytest.raises(UsageError, match="no state at offset -1"):
        image_at(tmp_path, -1)
