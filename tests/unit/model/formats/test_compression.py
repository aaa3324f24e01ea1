from __future__ import annotations

import contextlib
import random
import zlib

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jbod_model.formats.compression import CODECS, snappy
from jbod_model.formats.compression.xxhash import xxh32, xxh64
from jbod_model.formats.crc32c import crc32c
from jbod_model.wire import Undecodable
from tests.support.volume import amount

ARROW = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}


def samples() -> list[bytes]:
    rng = random.Random(858)
    words = [bytes(rng.choices(b"abcdefgh", k=rng.randint(2, 9))) for _ in range(300)]
    return [
        b"a",
        b"a" * 70_000,
        rng.randbytes(300),
        rng.randbytes(140_000),
        bytes(rng.choices(b"abcdefghijkl", weights=range(1, 13), k=20_000)),
        b" ".join(rng.choices(words, k=9_000)),
        b"".join(rng.randint(0, 300).to_bytes(8, "big") for _ in range(5_000)),
    ]


@pytest.mark.parametrize("codec", ARROW)
@pytest.mark.parametrize("data", samples(), ids=len)
def test_codec_agrees_with_the_real_library(codec: int, data: bytes) -> None:
    """R-FMT-15: both ways."""
    ours, theirs = CODECS[codec], pa.Codec(ARROW[codec])
    assert ours.decompress(theirs.compress(data, asbytes=True), len(data)) == data
    written = ours.compress(data)
    assert ours.decompress(written, len(data)) == data
    if codec != 2:  # Arrow's snappy knows no frames; Kafka's reader takes these (docs/spec/formats.md)
        assert theirs.decompress(written, decompressed_size=len(data), asbytes=True) == data


@pytest.mark.parametrize("level", [1, 6, 12, 19])
@pytest.mark.parametrize("data", samples(), ids=len)
def test_zstd_of_every_strategy_is_read(level: int, data: bytes) -> None:
    packed = pa.Codec("zstd", compression_level=level).compress(data, asbytes=True)
    assert CODECS[4].decompress(packed, len(data)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_codec_of_nothing(codec: int) -> None:
    assert CODECS[codec].decompress(CODECS[codec].compress(b""), 0) == b""


@pytest.mark.parametrize("codec", CODECS)
def test_decompression_stops_at_the_limit(codec: int) -> None:
    """R-FMT-16."""
    bomb = b"\0" * 1_000_000
    packed = pa.Codec(ARROW[codec]).compress(bomb, asbytes=True) if codec else bomb
    with pytest.raises(Undecodable, match="limit"):
        CODECS[codec].decompress(packed, len(bomb) - 1)


@settings(max_examples=amount(75, 600))
@given(st.sampled_from(sorted(CODECS)), st.binary(max_size=200), st.booleans())
@example(2, snappy.JAVA_MAGIC, False)
def test_damaged_data_is_refused_and_never_crashes(codec: int, junk: bytes, whole: bool) -> None:
    """R-FMT-16."""
    good = CODECS[codec].compress(b"some text, some text")
    with contextlib.suppress(Undecodable):
        CODECS[codec].decompress(junk if whole else good[: len(junk)] + junk, 10_000)


@pytest.mark.parametrize("codec", ARROW)
def test_every_flipped_bit_and_every_cut_is_refused_or_bounded(codec: int) -> None:
    """R-FMT-16."""
    packed = pa.Codec(ARROW[codec]).compress(samples()[4][:400], asbytes=True)
    for at in range(len(packed)):
        for damaged in (packed[:at], packed[:at] + bytes([packed[at] ^ 1 << at % 8]) + packed[at + 1 :]):
            with contextlib.suppress(Undecodable):
                assert len(CODECS[codec].decompress(damaged, 10_000)) <= 10_000


def test_checksums_of_published_vectors() -> None:
    """R-FMT-12."""
    assert crc32c(b"") == 0
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"6789", crc32c(b"12345")) == 0xE3069283
    assert xxh32(b"") == 0x02CC5D05
    assert xxh32(b"abc") == 0x32D153FF
    assert xxh64(b"") == 0xEF46DB3751D8E999
    assert xxh64(b"abc") == 0x44BC2CF5AD770999


def test_gzip_of_two_members_is_one_text() -> None:
    def member(data: bytes) -> bytes:
        packer = zlib.compressobj(wbits=31)
        return packer.compress(data) + packer.flush()

    assert CODECS[1].decompress(member(b"one ") + member(b"two"), 7) == b"one two"
