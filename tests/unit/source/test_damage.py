"""Damaged logs: the columnar reader ends as the plain one does, never with another error (reliability test 4)."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jbod_model.errors import MalformedLog
from jbod_model.formats.batch import crc32c, write_batch
from jbod_model.formats.codec import encode
from jbod_model.formats.control_records import LeaderChangeMessage
from jbod_model.formats.log import LogWriter, write_snapshot
from jbod_model.formats.records import (
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    TopicRecord,
    VersionedRecord,
)
from jbod_model.formats.schema import API_KEYS
from jbod_model.ids import Uuid
from jbod_model.wire import write_varlong
from tests.support.paths import metadata_dir
from tests.support.volume import amount, exhaustive
from tests.support.written import EVERY_TYPE, TIME
from tests.unit.formats.decoded import Row, fast, outcome, plain

SEGMENT = f"{0:020d}.log"
TOPIC = Uuid(7, 8)
SMALL: tuple[tuple[Record, int], ...] = (
    (TopicRecord(name="t", topic_id=TOPIC), 0),
    (PartitionRecord(topic_id=TOPIC, partition_id=0, replicas=(1, 2), isr=(1,), directories=(TOPIC, TOPIC)), 1),
    (PartitionChangeRecord(topic_id=TOPIC, partition_id=0, leader=2, directories=(TOPIC, Uuid(0, 2))), 1),
    (FeatureLevelRecord(name="a", feature_level=1), 0),
)


def small() -> LogWriter:
    writer = LogWriter()
    records = [VersionedRecord(record, version) for record, version in SMALL]
    writer.append([LeaderChangeMessage(leader_id=1)], epoch=1, timestamp=TIME)
    writer.append(records[:2], epoch=1, timestamp=TIME)
    writer.append(records[2:], epoch=2, timestamp=TIME)
    writer.append(records[3:], epoch=2, timestamp=TIME)
    return writer


def agreed(directory: Path, start: str = "auto") -> list[Row] | str:
    """What both readers make of the directory."""
    expected = outcome(lambda: plain(directory, start=start))
    assert outcome(lambda: fast(directory, start=start)) == expected
    return expected


def flips(raw: bytes, step: int = amount(5, 1), bits: tuple[int, ...] = (0, 7)) -> Iterator[bytes]:
    for at in range(0, len(raw), step):
        for bit in bits:
            damaged = bytearray(raw)
            damaged[at] ^= 1 << bit
            yield bytes(damaged)


def refit(raw: bytes) -> bytes:
    """The batch with the CRC that its bytes have."""
    return raw[:17] + crc32c(raw[21:]).to_bytes(4, "big") + raw[21:]


# DAMAGE THAT THE CHECKSUM SEES


def test_log_cut_at_every_byte_ends_alike(tmp_path: Path) -> None:
    """R-FMT-14, R-LOG-5: what is complete is read, the rest is awaited."""
    raw = small().bytes
    seen = set()
    for size in range(0, len(raw) + 1, amount(5, 1)):
        (tmp_path / SEGMENT).write_bytes(raw[:size])
        outcome = agreed(tmp_path)
        assert isinstance(outcome, list)
        seen.add(len(outcome))
    assert seen == {0, 1, 3, 5, 6} if exhaustive() else seen <= {0, 1, 3, 5, 6} and len(seen) > 3


def test_segment_cut_off_before_another_ends_alike(tmp_path: Path) -> None:
    """R-LOG-5."""
    raw = small().bytes
    following = LogWriter(base_offset=6)
    following.append([VersionedRecord(*SMALL[3])], epoch=2, timestamp=TIME)
    following.write(tmp_path)
    for size in range(0, len(raw), amount(9, 3)):
        (tmp_path / SEGMENT).write_bytes(raw[:size])
        assert agreed(tmp_path) == "MalformedLog"


def test_log_with_any_byte_flipped_ends_alike(tmp_path: Path) -> None:
    """R-FMT-12: the same records, fewer, or a refusal; never others."""
    raw = small().bytes
    (tmp_path / SEGMENT).write_bytes(raw)
    whole = agreed(tmp_path)
    assert isinstance(whole, list)
    for damaged in flips(raw):
        (tmp_path / SEGMENT).write_bytes(damaged)
        outcome = agreed(tmp_path)
        assert outcome == "MalformedLog" or (
            isinstance(outcome, list)
            and [row["read"] for row in outcome] == [row["read"] for row in whole[: len(outcome)]]
        )


def test_snapshot_with_any_byte_flipped_or_cut_ends_alike(tmp_path: Path) -> None:
    """R-LOG-3, R-LOG-7: an older snapshot is taken where the newest is not complete."""
    records = [VersionedRecord(record, version) for record, version in SMALL if version == 0]
    write_snapshot(tmp_path, records[:1], end_offset=3, epoch=1, timestamp=TIME)
    path = write_snapshot(tmp_path, records, end_offset=5, epoch=1, timestamp=TIME)
    for base_offset in (3, 5):
        writer = LogWriter(base_offset=base_offset)
        writer.append(records[:2], epoch=1, timestamp=TIME)
        writer.write(tmp_path)
    raw = path.read_bytes()
    path.chmod(0o600)
    kinds = set()
    for damaged in [*flips(raw, bits=(1, 6)), *(raw[:size] for size in range(0, len(raw), amount(25, 5)))]:
        path.write_bytes(damaged)
        outcome = agreed(tmp_path)
        kinds.add(outcome if isinstance(outcome, str) else len(outcome))
    assert {"MalformedLog", 7, 6} >= kinds >= {"MalformedLog", 7}


def test_damaged_snapshot_that_is_not_needed_is_not_read(tmp_path: Path) -> None:
    """R-LOG-4: the plain reader refused the log, which reaches back to offset 0 and beyond the snapshot."""
    small().write(tmp_path)
    expected = agreed(tmp_path)
    path = write_snapshot(tmp_path, [VersionedRecord(*SMALL[0])], end_offset=6, epoch=2, timestamp=TIME)
    path.chmod(0o600)
    for damaged in (bytes(100), path.read_bytes()[:-90] + bytes(90), b""):
        path.write_bytes(damaged)
        assert agreed(tmp_path) == expected


def test_log_without_the_snapshots_before_it_says_to_copy_them(tmp_path: Path) -> None:
    """It said only that none reaches it."""
    writer = LogWriter(base_offset=6)
    writer.append([VersionedRecord(*SMALL[3])], epoch=2, timestamp=TIME)
    writer.write(tmp_path)
    with pytest.raises(MalformedLog, match=r"offset 0: gap: .*: copy its snapshots \(\*\.checkpoint\), too"):
        list(fast(tmp_path))
    assert agreed(tmp_path) == "MalformedLog"


def test_real_log_with_sampled_bytes_flipped_ends_alike(tmp_path: Path) -> None:
    """Every 97th byte of a segment in the middle and of the last one of a real log."""
    copy = copytree(metadata_dir("kafka-3.9.2-zk-migration") / "__cluster_metadata-0", tmp_path / "log")
    for name in (f"{50:020d}.log", f"{203:020d}.log"):
        raw = (copy / name).read_bytes()
        for damaged in flips(raw, step=97, bits=(5,)):
            (copy / name).write_bytes(damaged)
            agreed(copy)
        (copy / name).write_bytes(raw)


# DAMAGE THAT IT DOES NOT SEE


def test_batch_with_any_byte_changed_under_its_checksum_ends_alike(tmp_path: Path) -> None:
    """R-FMT-13: a reader that takes what another refuses would show here."""
    values = [encode(VersionedRecord(record, version)) for record, version in SMALL]
    raw = write_batch(values, base_offset=0, epoch=1, timestamp=TIME)
    outcomes = set()
    for damaged in flips(raw[61:], bits=(0, 5)):
        (tmp_path / SEGMENT).write_bytes(refit(raw[:61] + damaged))
        outcomes.add(isinstance(agreed(tmp_path), str))
    assert True in outcomes
    for extra in (b"\0", b"\0\0\0\0", raw[61:]):
        longer = bytearray(raw + extra)
        struct.pack_into(">i", longer, 8, len(longer) - 12)
        (tmp_path / SEGMENT).write_bytes(refit(bytes(longer)))
        agreed(tmp_path)


def test_every_record_type_with_any_byte_changed_under_its_checksum_ends_alike(tmp_path: Path) -> None:
    """R-FMT-1, R-FMT-2, R-FMT-3, R-FMT-4, R-FMT-5, R-FMT-6, R-FMT-7, R-FMT-8, R-FMT-9, R-FMT-10, R-FMT-13: lengths,
    nulls, tags, text, frames."""
    comparable = [item for item in EVERY_TYPE if "nan" not in repr(item)]  # NaN does not equal itself
    for number, (record, version) in enumerate(comparable):
        raw = write_batch([encode(VersionedRecord(record, version))], base_offset=0, epoch=1, timestamp=TIME)
        for damaged in flips(raw[61:], bits=(number % 8,)):
            (tmp_path / SEGMENT).write_bytes(refit(raw[:61] + damaged))
            agreed(tmp_path)


def test_head_with_any_bit_changed_under_its_checksum_ends_alike(tmp_path: Path) -> None:
    """R-FMT-11."""
    raw = write_batch([encode(VersionedRecord(*SMALL[3]))] * 2, base_offset=0, epoch=1, timestamp=TIME)
    for damaged in flips(raw[:61], bits=tuple(range(8))):
        if damaged[17:21] == raw[17:21] and damaged[27:43] == raw[27:43]:  # not the checksum, not the times
            (tmp_path / SEGMENT).write_bytes(refit(damaged + raw[61:]))
            agreed(tmp_path)


@settings(max_examples=amount(75, 600))
@given(st.sampled_from([*sorted(API_KEYS), 6, 35]), st.integers(0, 4), st.binary(max_size=60), st.booleans())
def test_any_bytes_as_a_record_end_alike(api_key: int, version: int, body: bytes, keep: bool) -> None:
    """R-FMT-10."""
    value = bytes([1, api_key, version]) + body
    with tempfile.TemporaryDirectory() as made:
        Path(made, SEGMENT).write_bytes(write_batch([value], base_offset=0, epoch=1, timestamp=TIME))
        expected = outcome(lambda: plain(Path(made), keep_unknown=keep))
        assert outcome(lambda: fast(Path(made), keep_unknown=keep)) == expected


@settings(max_examples=amount(75, 600))
@given(st.binary(max_size=80), st.integers(1, 3), st.sampled_from([0, 0, 0, 1, 2, 3, 4, 32]))
def test_any_bytes_in_a_batch_end_alike(body: bytes, count: int, attributes: int) -> None:
    """R-FMT-13, R-FMT-16, R-FMT-17."""
    head = bytearray(write_batch([b"x"] * count, base_offset=0, epoch=1, timestamp=TIME)[:61])
    struct.pack_into(">i", head, 8, 49 + len(body))
    struct.pack_into(">h", head, 21, attributes)
    with tempfile.TemporaryDirectory() as made:
        Path(made, SEGMENT).write_bytes(refit(bytes(head) + body))
        agreed(Path(made))


@settings(max_examples=amount(25, 200))
@given(st.binary(max_size=300))
def test_any_bytes_as_a_segment_end_alike(raw: bytes) -> None:
    with tempfile.TemporaryDirectory() as made:
        Path(made, SEGMENT).write_bytes(raw)
        agreed(Path(made))


@pytest.mark.parametrize(
    ("record", "taken"),
    [
        ("00 00 00 01 08 01140000 00", True),
        ("07 00 00 01 08 01140000 00", True),  # attributes are not looked at
        ("00 8000 00 01 08 01140000 00", True),  # timestamp delta in more bytes than it needs
        ("00 00 8000 01 08 01140000 00", True),
        ("00 00 00 03 08 01140000 00", True),  # any size below zero is no key
        ("00 00 00 01 8800 01140000 00", True),
        ("00 00 00 01 08 01140000 808000", True),  # number of headers
        ("00 00 00 00 08 01140000 00", False),
        ("00 01 00 01 08 01140000 00", False),
        ("00 8001 00 01 08 01140000 00", False),
        ("00 00 02 01 08 01140000 00", False),
        ("00 00 00 01 08 01140000 02", False),
        ("00 00 00 01 08 01140000 00 00", False),
        ("00 00 00 01 08 01140000", False),
        ("00 00 00 01 08 01140000 80", False),
        ("00 00 00 01 0a 01140000 00", False),
        ("00 00 00 01 00 00", False),
        ("00 00 00 01 01 00", False),
        ("00 00 00 01 01", False),
        ("00 00 00 01", False),
        ("00", False),
        ("", False),
    ],
)
def test_record_with_unusual_numbers_ends_alike(tmp_path: Path, record: str, taken: bool) -> None:
    """R-FMT-4, R-FMT-13."""
    tail = bytes.fromhex(record)
    body = write_varlong(len(tail)) + tail
    head = bytearray(write_batch([b"x"], base_offset=0, epoch=1, timestamp=TIME)[:61])
    struct.pack_into(">i", head, 8, 49 + len(body))
    (tmp_path / SEGMENT).write_bytes(refit(bytes(head) + body))
    assert isinstance(agreed(tmp_path), list) == taken


def test_varint_over_32_bits_ends_alike(tmp_path: Path) -> None:
    """R-FMT-4: Kafka drops the bits above; here they are refused."""
    value = bytes.fromhex("01140001 ffffffff1f 00")
    (tmp_path / SEGMENT).write_bytes(write_batch([value], base_offset=0, epoch=1, timestamp=TIME))
    assert agreed(tmp_path) == "MalformedLog"
    value = bytes.fromhex("01140001 ffffffff0f 00")
    (tmp_path / SEGMENT).write_bytes(write_batch([value], base_offset=0, epoch=1, timestamp=TIME))
    assert isinstance(agreed(tmp_path), list)
