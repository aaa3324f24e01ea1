"""The columnar reader equals the plain one, record for record."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jbod_model.errors import MalformedLog, ReplayViolation
from jbod_model.formats.batch import write_batch
from jbod_model.formats.codec import OF_THE_TABLES
from jbod_model.formats.control_records import ControlRecord, LeaderChangeMessage, Voter
from jbod_model.formats.log import LogWriter, read_file, write_snapshot
from jbod_model.formats.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    Record,
    TopicRecord,
    UnknownRecord,
    VersionedRecord,
)
from jbod_model.formats.schema import API_KEY_OF
from jbod_model.ids import Uuid
from tests.support.paths import CLUSTERS, GOLDEN
from tests.support.volume import amount, sampled
from tests.support.written import TIME, write_files
from tests.unit.fold.strategies import CONTROL, VERSIONED
from tests.unit.formats.decoded import Row, fast, plain

COPIES = sorted(path for path in CLUSTERS.glob("*/metadata/*") if path.is_dir())
BEGIN, END, ABORT = BeginTransactionRecord(name="x"), EndTransactionRecord(), AbortTransactionRecord()
LEADER = LeaderChangeMessage(leader_id=1)
A, B = (FeatureLevelRecord(name=name, feature_level=1) for name in "ab")
Part = Sequence[Record] | Sequence[ControlRecord]


def segment(directory: Path, *batches: Part | Sequence[VersionedRecord], base_offset: int = 0) -> int:
    """Write a segment of these batches; the offset after it."""
    writer = LogWriter(base_offset=base_offset)
    for batch in batches:
        versioned = [VersionedRecord(item, 0) if isinstance(item, Record) else item for item in batch]
        writer.append(versioned, epoch=1, timestamp=TIME)  # type: ignore[arg-type]
    writer.write(directory)
    return writer.next_offset


def equal(directory: Path, **options: object) -> list[Row]:
    """What both readers say of a log."""
    expected = list(plain(directory, **options))  # type: ignore[arg-type]
    for most in (None, 1, 3):
        assert list(fast(directory, most=most, **options)) == expected  # type: ignore[arg-type]
    return expected


# REAL


@pytest.mark.parametrize("copy", sampled(COPIES, 5), ids=lambda path: f"{path.parts[-3]}/{path.name}")
def test_real_log_is_decoded_as_the_plain_reader_does(copy: Path) -> None:
    """docs/spec/formats.md: every copy, from the log and from the newest snapshot."""
    for start in ("auto", "snapshot"):
        expected = list(plain(copy, start=start))
        assert len(expected) > 50
        assert list(fast(copy, start=start)) == expected


def test_records_that_kafka_wrote_are_decoded_as_the_plain_reader_does(tmp_path: Path) -> None:
    """R-REC-1: every type and version of the golden records, in two batches."""
    lines = (GOLDEN / "golden_records_4.1.2.tsv").read_text(encoding="utf-8").splitlines()[1:]
    values = [bytes.fromhex(line.split("\t")[2]) for line in lines if line and "Transaction" not in line]
    raw, offset = b"", 0
    for _ in range(2):
        raw += write_batch(values, base_offset=offset, epoch=1, timestamp=TIME)
        offset += len(values)
    (tmp_path / f"{0:020d}.log").write_bytes(raw)
    assert len(equal(tmp_path)) == offset


@pytest.mark.parametrize("read", [plain, fast])
def test_batch_that_kafka_compressed_is_refused_with_its_offset_and_codec(
    tmp_path: Path, read: Callable[[Path], Iterator[Row]]
) -> None:
    """R-FMT-15, R-READ-1: the second batch is gzip. Everything before it is read."""
    (tmp_path / f"{0:020d}.log").write_bytes((GOLDEN / "codecs_kafka_4.1.2.log").read_bytes())
    rows = []
    with pytest.raises(MalformedLog, match=r"compressed \(codec 1, gzip\)") as caught:
        for row in read(tmp_path):
            rows.append(row)  # noqa: PERF402
    assert caught.value.offset == len(rows) == 61


def test_written_files_are_decoded_as_the_plain_reader_does(tmp_path: Path) -> None:
    """R-FMT-18: every type, control records, a snapshot with voters."""
    _, snapshot, _ = write_files(tmp_path)
    alone = tmp_path / "alone"
    alone.mkdir()
    snapshot.rename(alone / snapshot.name)
    assert equal(tmp_path)
    assert equal(alone)


# ANY


@settings(max_examples=amount(37, 300))
@given(st.lists(st.lists(VERSIONED, min_size=1, max_size=6) | st.lists(CONTROL, min_size=1, max_size=3), max_size=5))
def test_any_records_are_decoded_as_the_plain_reader_does(batches: list[list[VersionedRecord]]) -> None:
    """R-FMT-1, R-FMT-2, R-FMT-3, R-FMT-4, R-FMT-5, R-FMT-6, R-FMT-7, R-FMT-8, R-FMT-9, R-FMT-10, R-FMT-11,
    R-FMT-12, R-FMT-13, R-FMT-14, R-FMT-17, R-FMT-18, R-FMT-19, R-FMT-20: all types and versions, unknown tags,
    control batches."""
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        writer = LogWriter()
        for number, batch in enumerate(batches):
            writer.append(batch, epoch=number // 2, timestamp=TIME + number)
        writer.write(directory)
        assert list(fast(directory)) == list(plain(directory))


@settings(max_examples=amount(10, 60))
@given(st.lists(VERSIONED, max_size=12), st.integers(1, 20))
def test_any_snapshot_is_decoded_as_the_plain_reader_does(records: list[VersionedRecord], end_offset: int) -> None:
    """R-LOG-6, R-LOG-7."""
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        write_snapshot(directory, records, end_offset=end_offset, epoch=3, timestamp=TIME)
        writer = LogWriter(base_offset=end_offset)
        writer.append([VersionedRecord(A, 0)], epoch=3, timestamp=TIME + 5)
        writer.write(directory)
        assert list(fast(directory)) == list(plain(directory))


def test_control_version_is_the_one_the_value_starts_with(tmp_path: Path) -> None:
    """R-FMT-20."""
    leader = LeaderChangeMessage(version=1, leader_id=1, voters=(Voter(voter_id=1, voter_directory_id=Uuid(1, 2)),))
    segment(tmp_path, [leader], [A])
    assert [row["record_version"] for row in equal(tmp_path)] == [1, 0]


# UNKNOWN


@pytest.mark.parametrize(
    "unknown",
    [
        UnknownRecord(api_key=99, body=b"x"),
        UnknownRecord(api_key=999, body=b""),
        UnknownRecord(api_key=5000, body=b"\x80"),
        UnknownRecord(api_key=32767, body=b"y"),
        UnknownRecord(api_key=4, body=b"later"),
        UnknownRecord(api_key=20, body=b"later"),
    ],
)
def test_unknown_record_outside_the_tables_is_kept_by_both(tmp_path: Path, unknown: UnknownRecord) -> None:
    """R-REC-4."""
    segment(tmp_path, [A], [VersionedRecord(unknown, 9), VersionedRecord(B, 0)])
    assert [row["log_offset"] for row in equal(tmp_path)] == [0, 1, 2]


@pytest.mark.parametrize("api_key", sorted(API_KEY_OF[kind] for kind in OF_THE_TABLES))
def test_later_version_of_a_record_of_the_tables_stops_both_unless_it_is_kept(tmp_path: Path, api_key: int) -> None:
    """R-REC-4."""
    unknown = UnknownRecord(api_key=api_key, body=b"later")
    segment(tmp_path, [A], [VersionedRecord(unknown, 9), VersionedRecord(B, 0)])
    for read in (fast, plain):
        with pytest.raises(MalformedLog, match=r"offset 1: .* version 9: this jbod knows up to .*: upgrade jbod"):
            list(read(tmp_path))
    assert [row["log_offset"] for row in equal(tmp_path, keep_unknown=True)] == [0, 1, 2]


# TRANSACTIONS


@pytest.mark.parametrize(
    "segments",
    [
        [[[BEGIN, A, B, END]]],
        [[[BEGIN, A], [B], [END]]],
        [[[A, BEGIN, B], [LEADER], [END, NoOpRecord()]]],
        [[[A, BEGIN]], [[LEADER]], [[B], [END, A]], [[B]]],
        [[[BEGIN, A, ABORT]]],
        [[[BEGIN, A, ABORT, B]]],
        [[[BEGIN, A], [LEADER], [ABORT, NoOpRecord()]]],
        [[[BEGIN, A], [ABORT, BEGIN, B, END]]],
        [[[BEGIN, A]], [[ABORT, BEGIN], [B]], [[END, A, BEGIN], [B]], [[ABORT]]],
        [[[A, BEGIN, B]]],
        [[[BEGIN, A, END], [BEGIN], [B]]],
        [[[BEGIN, END], [BEGIN, ABORT], [BEGIN], [END]]],
    ],
)
def test_transaction_is_read_as_a_whole_or_not_at_all(tmp_path: Path, segments: list[list[list[Record]]]) -> None:
    """R-TXN-1, R-TXN-2, R-TXN-3, R-TXN-4, R-TXN-5: committed, aborted, open; over batches, segments, micro-batches."""
    base_offset = 0
    for batches in segments:
        base_offset = segment(tmp_path, *batches, base_offset=base_offset)
    equal(tmp_path)


def test_marker_with_a_long_varint_is_one(tmp_path: Path) -> None:
    """R-FMT-4: Kafka reads numbers in more bytes than they need, so does the planner."""
    values = [bytes.fromhex("01970000 00".replace(" ", "")), bytes.fromhex("01140000"), bytes.fromhex("8100180000")]
    (tmp_path / f"{0:020d}.log").write_bytes(write_batch(values, base_offset=0, epoch=1, timestamp=TIME))
    segment(tmp_path, [A, BEGIN, B], base_offset=3)
    assert [row["log_offset"] for row in equal(tmp_path)] == [0, 1, 2, 3]


@pytest.mark.parametrize("batches", [[[BEGIN, A], [BEGIN]], [[A, END]], [[BEGIN, END, ABORT]]])
def test_marker_out_of_place_stops_both(tmp_path: Path, batches: list[list[Record]]) -> None:
    """R-TXN-1, R-TXN-2, R-TXN-3."""
    segment(tmp_path, *batches)
    offsets = []
    for read in (fast, plain):
        with pytest.raises(ReplayViolation) as caught:
            list(read(tmp_path))
        offsets.append(caught.value.offset)
    assert offsets[0] == offsets[1]


def test_marker_in_a_snapshot_stops_both(tmp_path: Path) -> None:
    """R-TXN-6."""
    write_snapshot(tmp_path, [VersionedRecord(BEGIN, 0)], end_offset=5, epoch=1, timestamp=TIME)
    for read in (fast, plain):
        with pytest.raises(ReplayViolation, match=r"offset 4: .* in a snapshot"):
            list(read(tmp_path))


def test_transaction_that_ends_in_the_segment_read_from_does_not_stop_a_later_start(tmp_path: Path) -> None:
    """R-TXN-5: a run that starts in the middle of a segment does not see where the first transaction began."""
    end = segment(tmp_path, [A], [BEGIN])
    end = segment(tmp_path, [B, END], [A], base_offset=end)
    segment(tmp_path, [B], base_offset=end)
    write_snapshot(tmp_path, [VersionedRecord(A, 0)], end_offset=4, epoch=1, timestamp=TIME)
    assert [row["log_offset"] for row in equal(tmp_path, start="snapshot")] == [3, 3, 3, 4, 5]


# SNAPSHOTS


def snapshot(directory: Path, end_offset: int, *names: str, epoch: int = 1) -> Path:
    records = [VersionedRecord(TopicRecord(name=name, topic_id=Uuid(7, ord(name))), 0) for name in names]
    return write_snapshot(directory, records, end_offset=end_offset, epoch=epoch, timestamp=TIME)


def test_snapshot_that_is_not_complete_is_passed_over(tmp_path: Path) -> None:
    """R-LOG-3: one cut off, one without its footer, one that is not renamed yet."""
    segment(tmp_path, [A], [B], [A], base_offset=2)
    whole = [snapshot(tmp_path, end, "a", "b") for end in (2, 3, 4, 5)]
    for path, keep in ((whole[1], -1), (whole[2], -(61 + 15))):
        content = path.read_bytes()[:keep]
        path.unlink()
        path.write_bytes(content)
    whole[3].rename(whole[3].with_name(whole[3].name + ".part"))
    rows = equal(tmp_path)
    assert {row["log_offset"] for row in rows if row["snapshot_index"] is not None} == {1}
    assert rows == equal(tmp_path, start="snapshot")


@pytest.mark.parametrize("kept", ["nothing", "its first batch", "all but its footer"])
def test_snapshot_that_is_not_complete_yields_to_one_of_the_same_end(tmp_path: Path, kept: str) -> None:
    """R-LOG-3: it was chosen by its end alone, so the newer epoch was read: an empty cluster, or an IndexError."""
    segment(tmp_path, [A], base_offset=5)
    snapshot(tmp_path, 5, "a", "b", epoch=1)
    expected = equal(tmp_path)
    path = snapshot(tmp_path, 5, "a", epoch=2)
    sizes = [batch.header.size for batch in read_file(path)]
    content = path.read_bytes()[: {"nothing": 0, "its first batch": sizes[0]}.get(kept, -sizes[-1])]
    path.unlink()
    path.write_bytes(content)
    assert equal(tmp_path) == expected


def test_start_from_a_snapshot_where_there_is_none_reads_the_log(tmp_path: Path) -> None:
    """R-LOG-4: also beside the empty one of a formatted quorum."""
    name = "00000000000000000000-0000000000.checkpoint"
    segment(tmp_path, [A], [B])
    assert len(equal(tmp_path, start="snapshot")) == 2
    (tmp_path / name).write_bytes((GOLDEN / name).read_bytes())
    assert len(equal(tmp_path, start="snapshot")) == 2


def test_snapshot_alone_and_one_past_the_log_are_enough(tmp_path: Path) -> None:
    """R-LOG-4."""
    snapshot(tmp_path, 9, "a")
    assert len(equal(tmp_path)) == 3
    segment(tmp_path, [A], base_offset=4)
    assert len(equal(tmp_path)) == 3


def test_partial_snapshot_alone_is_an_empty_log(tmp_path: Path) -> None:
    """R-LOG-3."""
    path = snapshot(tmp_path, 9, "a")
    content = path.read_bytes()[:-1]
    path.unlink()
    path.write_bytes(content)
    assert equal(tmp_path) == []


@pytest.mark.parametrize("case", ["gap", "gap in the log", "inside a batch", "epoch of the name", "epoch falls"])
def test_snapshot_or_log_that_does_not_fit_stops_both(tmp_path: Path, case: str) -> None:
    """R-LOG-4, R-LOG-5, R-LOG-7."""
    if case == "gap":
        snapshot(tmp_path, 3, "a")
        segment(tmp_path, [A], base_offset=5)
    elif case == "gap in the log":
        segment(tmp_path, [A])
        segment(tmp_path, [B], base_offset=2)
    elif case == "inside a batch":
        snapshot(tmp_path, 3, "a")
        segment(tmp_path, [A], [A, B], base_offset=1)
    elif case == "epoch of the name":
        snapshot(tmp_path, 3, "a").rename(tmp_path / "00000000000000000003-0000000002.checkpoint")
    else:
        snapshot(tmp_path, 3, "a", epoch=2)
        segment(tmp_path, [A], base_offset=3)
    for read in (fast, plain):
        with pytest.raises(MalformedLog):
            list(read(tmp_path))
