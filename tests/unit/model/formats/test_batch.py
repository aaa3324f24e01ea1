from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jbod_model.errors import MalformedLog
from jbod_model.formats.batch import CODECS, MAX_BATCH_BYTES, crc32c, read_batch, read_header, write_batch
from jbod_model.formats.codec import decode
from jbod_model.formats.control_records import CONTROL_TYPES, LeaderChangeMessage, Voter
from jbod_model.formats.records import PartitionRecord
from jbod_model.ids import Uuid
from jbod_model.wire import write_varlong
from tests.support.paths import GOLDEN
from tests.support.volume import amount

NOOP = bytes.fromhex("01140000")


def batch(values: list[bytes] | None = None, **changes: int) -> bytes:
    """A batch, with fields of its head changed and the CRC made to fit."""
    raw = bytearray(write_batch(values or [NOOP, NOOP], base_offset=5, epoch=2, timestamp=1000))
    layout = {"length": (8, "i"), "epoch": (12, "i"), "magic": (16, "b"), "attributes": (21, "h")}
    layout |= {"last_offset_delta": (23, "i"), "count": (57, "i"), "base_offset": (0, "q")}
    for name, value in changes.items():
        at, kind = layout[name]
        struct.pack_into(">" + kind, raw, at, value)
    raw[17:21] = crc32c(bytes(raw[21:])).to_bytes(4, "big")
    return bytes(raw)


def with_body(body: bytes, *, count: int = 1, attributes: int = 0) -> bytes:
    """A batch whose records are these bytes."""
    raw = bytearray(batch(count=count, last_offset_delta=count - 1, attributes=attributes)[:61] + body)
    struct.pack_into(">i", raw, 8, len(raw) - 12)
    raw[17:21] = crc32c(bytes(raw[21:])).to_bytes(4, "big")
    return bytes(raw)


def record(tail: bytes) -> bytes:
    return write_varlong(len(tail)) + tail


@given(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=8), st.integers(0, 2**62))
def test_batch_comes_back(values: list[bytes], base_offset: int) -> None:
    """R-FMT-11, R-FMT-13."""
    raw = write_batch(values, base_offset=base_offset, epoch=7, timestamp=123)
    batch = read_batch(raw + b"more", 0, file="f")
    assert batch is not None
    assert (batch.values, batch.control) == (tuple(values), ())
    header = batch.header
    assert (header.base_offset, header.last_offset) == (base_offset, base_offset + len(values) - 1)
    assert (header.epoch, header.max_timestamp, header.size) == (7, 123, len(raw))
    assert not header.is_control


@pytest.mark.parametrize("number", CONTROL_TYPES)
def test_control_batch_comes_back(number: int) -> None:
    """R-FMT-17, R-FMT-18."""
    record = CONTROL_TYPES[number]()
    batch = read_batch(write_batch([record], base_offset=0, epoch=0, timestamp=0), 0, file="f")
    assert batch is not None
    assert (batch.values, batch.control, batch.header.is_control) == ((), (record,), True)


def test_leader_change_of_a_later_version_is_read_by_its_own_number() -> None:
    """R-FMT-20."""
    message = LeaderChangeMessage(version=1, leader_id=3, voters=(Voter(voter_id=3, voter_directory_id=Uuid(4, 4)),))
    batch = read_batch(write_batch([message], base_offset=0, epoch=0, timestamp=0), 0, file="f")
    assert batch is not None
    assert batch.control == (message,)


def test_compressed_batch_is_refused_with_its_offset_and_codec() -> None:
    """R-FMT-15: the first of Kafka's own batches, one in each codec, is not compressed."""
    raw = (GOLDEN / "codecs_kafka_4.1.2.log").read_bytes()
    at, offset = 0, 0
    for codec, name in enumerate(CODECS):
        if codec == 0:
            batch = read_batch(raw, at, file="f")
            assert batch is not None
            partitions = [decode(value).record for value in batch.values[1:]]
            assert [p.partition_id for p in partitions if isinstance(p, PartitionRecord)] == list(range(60))
            offset = batch.header.last_offset + 1
        else:
            with pytest.raises(MalformedLog, match=rf"compressed \(codec {codec}, {name}\)") as caught:
                read_batch(raw, at, file="f")
            assert caught.value.offset == offset
            offset += 61
        at += 12 + int.from_bytes(raw[at + 8 : at + 12], "big")
    assert at == len(raw)


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (batch(magic=1), "magic is 1"),
        (batch(magic=1)[:17], "magic is 1"),
        (batch(length=48), "length is 48"),
        (batch(length=-1), "length is -1"),
        (batch(epoch=-1), "epoch is -1"),
        (batch(base_offset=-1), "base offset is -1"),
        (batch(attributes=5), "codec 5, unknown"),
        (batch(count=0, last_offset_delta=-1), "0 records"),
        (batch(count=3), "3 records end at offset delta 1"),
        (batch(count=1, last_offset_delta=0), "bytes follow the last record"),
        (batch(count=2**31 - 1, last_offset_delta=2**31 - 2), "announced in"),
        (batch(count=3, last_offset_delta=2), "record 2 of 3"),
        (batch()[:-1] + b"\1", "CRC-32C"),
        (batch(attributes=4), "codec 4, zstd"),
        (batch(attributes=32), "a control record has no key"),
        (with_body(record(b"\0\2\0\1\2x\0")), "timestamp delta is 1"),
        (with_body(record(b"\0\0\2\1\2x\0")), "offset delta is 1"),
        (with_body(record(b"\0\0\0\2k\2x\0")), "has a key"),
        (with_body(record(b"\0\0\0\1\1\0")), "has no value"),
        (with_body(record(b"\0\0\0\1\0\0")), "has no value"),
        (with_body(record(b"\0\0\0\1\2x\2")), "1 headers"),
        (with_body(record(b"\0\0\0\1\2x\0\0")), "1 bytes follow its end"),
        (with_body(record(b"\0\0\0\1\x64x\0")), "announced"),
        (with_body(b"\0" * 8), "size is 0"),
        (with_body(b"\1" * 8), "size is -1"),
        (with_body(record(b"\0\0\0\x08\0\0\0\0\4\0\0\0"), attributes=32), "type 0"),
        (with_body(record(b"\0\0\0\x08\0\0\0\1\4\0\0\0"), attributes=32), "type 1"),
        (with_body(record(b"\0\0\0\x08\0\0\0\7\4\0\0\0"), attributes=32), "type 7"),
        (with_body(record(b"\0\0\0\x08\xff\xff\0\4\4\0\0\0"), attributes=32), "key version -1"),
        (with_body(record(b"\0\0\0\x08\0\0\0\4\4\0\1\0"), attributes=32), "SnapshotFooterRecord version 1"),
        (with_body(record(b"\0\0\0\x08\0\0\0\4\x08\0\0\0\0\0"), attributes=32), "bytes follow its end"),
    ],
)
def test_damaged_batch_is_refused_with_the_reason(raw: bytes, problem: str) -> None:
    """R-FMT-11, R-FMT-12, R-FMT-13, R-FMT-14, R-FMT-15, R-FMT-17, R-FMT-18, R-FMT-19, R-FMT-20."""
    with pytest.raises(MalformedLog, match=problem) as caught:
        read_batch(raw, 0, file="a.log")
    assert caught.value.file == "a.log"


def test_batch_that_is_not_all_there_is_awaited() -> None:
    """R-FMT-14."""
    raw = batch()
    for size in range(len(raw)):
        assert read_batch(raw[:size], 0, file="f") is None
    assert read_header(raw, 0, file="f") is not None


def test_batch_of_more_than_64_mib_is_refused() -> None:
    """R-FMT-16."""
    raw = bytearray(write_batch([NOOP], base_offset=0, epoch=0, timestamp=0)[:61]) + bytes(MAX_BATCH_BYTES + 1)
    struct.pack_into(">i", raw, 8, len(raw) - 12)
    with pytest.raises(MalformedLog, match=f"more than {MAX_BATCH_BYTES} bytes"):
        read_batch(bytes(raw), 0, file="f")


@settings(max_examples=amount(50, 400))
@given(st.binary(max_size=120), st.integers(1, 4), st.booleans())
def test_any_body_is_read_or_malformed(body: bytes, count: int, control: bool) -> None:
    """R-FMT-10: behind a CRC that fits, no other error."""
    try:
        read_batch(with_body(body, count=count, attributes=32 if control else 0), 0, file="f")
    except MalformedLog as problem:
        assert problem.offset == 5
