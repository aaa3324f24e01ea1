"""Codec 4: zstd frames without dictionaries. Source: RFC 8878."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from jbod_model.formats.compression.base import Output, cut, little, read_frames
from jbod_model.formats.compression.bits import BackwardBits
from jbod_model.formats.compression.entropy import (
    FseTable,
    HuffmanTable,
    one_symbol,
    read_fse_table,
    read_huffman_table,
    spread,
)
from jbod_model.formats.compression.xxhash import xxh64
from jbod_model.wire import Undecodable

MAGIC = 0xFD2FB528
_LARGEST_BLOCK = 128 * 1024
_WRITTEN_FLAGS = 0b1010_0000  # one segment, its size in four bytes


@dataclass(frozen=True, slots=True)
class _Codes:
    """The meaning of a code of one of the three parts of a sequence: a base, and extra bits to add."""

    bases: Sequence[int]
    extra: Sequence[int]
    most_accuracy: int
    predefined: FseTable


def _bases(first: int, extra: Sequence[int]) -> list[int]:
    bases = [first]
    for bits in extra[:-1]:
        bases.append(bases[-1] + (1 << bits))
    return bases


_LITERAL_EXTRA = [0] * 16 + [1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
_MATCH_EXTRA = [0] * 32 + [1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
_LITERAL_COUNTS = [4, 3, *[2] * 11, 1, 1, 1, *[2] * 9, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1]
_MATCH_COUNTS = [1, 4, 3, 2, 2, 2, 2, 2, 2, *[1] * 37, *[-1] * 7]
_OFFSET_COUNTS = [1, 1, 1, 1, 1, 1, 2, 2, 2, *[1] * 15, *[-1] * 5]

LITERAL_LENGTHS = _Codes(_bases(0, _LITERAL_EXTRA), _LITERAL_EXTRA, 9, spread(_LITERAL_COUNTS, 6))
OFFSETS = _Codes([1 << code for code in range(32)], list(range(32)), 8, spread(_OFFSET_COUNTS, 5))
MATCH_LENGTHS = _Codes(_bases(3, _MATCH_EXTRA), _MATCH_EXTRA, 9, spread(_MATCH_COUNTS, 6))


@dataclass(slots=True)
class _Frame:
    """The state that one block of a frame passes to the next."""

    out: Output
    start: int
    huffman: HuffmanTable | None = None
    tables: list[FseTable | None] = field(default_factory=lambda: [None, None, None])
    """For literal lengths, offsets, match lengths."""
    repeats: list[int] = field(default_factory=lambda: [1, 4, 8])


def decompress(data: bytes, limit: int) -> bytes:
    """The content of all frames, concatenated."""
    return read_frames(data, limit, "zstd", MAGIC, _frame)


def _frame(data: bytes, at: int, out: Output) -> int:
    flags = little(data, at, 1)
    if flags & 0b1000:
        raise Undecodable(f"zstd: flags {flags:#x} are not understood")
    single_segment, has_checksum = flags & 0x20, flags & 0x04
    at += 1 if single_segment else 2  # the window's size does not matter: all output is kept
    dictionary_size = (0, 1, 2, 4)[flags & 3]
    if little(data, at, dictionary_size):
        raise Undecodable("zstd: a dictionary is needed")
    at += dictionary_size
    size_width = (1 if single_segment else 0, 2, 4, 8)[flags >> 6]
    announced = little(data, at, size_width) + (256 if size_width == 2 else 0)
    at += size_width
    frame = _Frame(out, len(out.bytes))
    last = False
    while not last:
        head = little(data, at, 3)
        last, kind, size = bool(head & 1), head >> 1 & 3, head >> 3
        if size > _LARGEST_BLOCK:
            raise Undecodable(f"zstd: a block of {size} bytes is over {_LARGEST_BLOCK}")
        block = cut(data, at + 3, 1 if kind == 1 else size)
        at += 3 + len(block)
        if kind == 0:
            out.append(block)
        elif kind == 1:
            out.repeat(block[0], size)
        elif kind == 2:
            _compressed_block(block, frame)
        else:
            raise Undecodable("zstd: a block is of an unknown kind")
    if size_width and announced != len(out.bytes) - frame.start:
        raise Undecodable("zstd: the frame has another size than announced")
    if has_checksum:
        if little(data, at, 4) != xxh64(bytes(out.bytes[frame.start :])) & 0xFFFFFFFF:
            raise Undecodable("zstd: the frame has another checksum")
        at += 4
    return at


def _compressed_block(block: bytes, frame: _Frame) -> None:
    before = len(frame.out.bytes)
    literals, at = _literals(block, frame)
    used = _sequences(block, at, literals, frame)
    frame.out.append(literals[used:])
    if len(frame.out.bytes) - before > _LARGEST_BLOCK:
        raise Undecodable("zstd: a block is longer than allowed")


# LITERALS


def _literals(block: bytes, frame: _Frame) -> tuple[bytes, int]:
    head = little(block, 0, 1)
    kind, size_format = head & 3, head >> 2 & 3
    if kind < 2:
        width, shift = ((1, 3), (2, 4), (1, 3), (3, 4))[size_format]
        size = little(block, 0, width) >> shift
        if size > _LARGEST_BLOCK:
            raise Undecodable("zstd: a block has too many literals")
        raw = cut(block, width, size if kind == 0 else 1)
        return (raw if kind == 0 else raw * size), width + len(raw)
    width, bits = ((3, 10), (3, 10), (4, 14), (5, 18))[size_format]
    sizes = little(block, 0, width) >> 4
    size, packed_size = sizes & ((1 << bits) - 1), sizes >> bits
    if size > _LARGEST_BLOCK:
        raise Undecodable("zstd: a block has too many literals")
    packed = cut(block, width, packed_size)
    at = 0
    if kind == 2:
        frame.huffman, at = read_huffman_table(packed, 0)
    if frame.huffman is None:
        raise Undecodable("zstd: literals use the tree of a block before the first")
    streams = packed[at:]
    end = width + packed_size
    if size_format == 0:
        return frame.huffman.decode(streams, size), end
    return _four_streams(frame.huffman, streams, size), end


def _four_streams(huffman: HuffmanTable, data: bytes, size: int) -> bytes:
    each = (size + 3) // 4
    counts = [each, each, each, size - 3 * each]
    if counts[3] < 0:
        raise Undecodable("zstd: too few literals for four streams")
    at, out = 6, b""
    for index, count in enumerate(counts):
        stream = data[at:] if index == 3 else cut(data, at, little(data, 2 * index, 2))
        out += huffman.decode(stream, count)
        at += len(stream)
    return out


# SEQUENCES


def _sequences(block: bytes, at: int, literals: bytes, frame: _Frame) -> int:
    """Run the sequences of a block. The result is the number of literals that they used."""
    count, at = _sequence_count(block, at)
    if count == 0:
        if at != len(block):
            raise Undecodable("zstd: bytes follow the end of a block")
        return 0
    modes = little(block, at, 1)
    if modes & 3:
        raise Undecodable("zstd: a block has reserved bits set")
    at += 1
    tables = []
    for index, codes in enumerate((LITERAL_LENGTHS, OFFSETS, MATCH_LENGTHS)):
        table, at = _table(block, at, modes >> (6 - 2 * index) & 3, codes, frame.tables[index])
        frame.tables[index] = table
        tables.append(table)
    literal_table, offset_table, match_table = tables
    stream = BackwardBits(cut(block, at, len(block) - at))
    states = [table.first(stream) for table in tables]
    used = 0
    for index in range(count):
        offset_code = _code(offset_table, states[1], OFFSETS)
        match_code = _code(match_table, states[2], MATCH_LENGTHS)
        literal_code = _code(literal_table, states[0], LITERAL_LENGTHS)
        offset = OFFSETS.bases[offset_code] + stream.read(OFFSETS.extra[offset_code])
        match = MATCH_LENGTHS.bases[match_code] + stream.read(MATCH_LENGTHS.extra[match_code])
        length = LITERAL_LENGTHS.bases[literal_code] + stream.read(LITERAL_LENGTHS.extra[literal_code])
        frame.out.append(cut(literals, used, length))
        used += length
        frame.out.copy(_distance(offset, length, frame.repeats), match, start=frame.start)
        if index < count - 1:
            states[0] = literal_table.following(states[0], stream)
            states[2] = match_table.following(states[2], stream)
            states[1] = offset_table.following(states[1], stream)
        if stream.left < 0:
            raise Undecodable("zstd: sequences end early")
    if stream.left != 0:
        raise Undecodable("zstd: bits follow the last sequence")
    return used


def _sequence_count(block: bytes, at: int) -> tuple[int, int]:
    head = little(block, at, 1)
    if head < 128:
        return head, at + 1
    if head < 255:
        return (head - 128 << 8) + little(block, at + 1, 1), at + 2
    return little(block, at + 1, 2) + 0x7F00, at + 3


def _table(block: bytes, at: int, mode: int, codes: _Codes, before: FseTable | None) -> tuple[FseTable, int]:
    if mode == 0:
        return codes.predefined, at
    if mode == 1:
        return one_symbol(little(block, at, 1)), at + 1
    if mode == 2:
        return read_fse_table(block, at, codes.most_accuracy, len(codes.bases))
    if before is None:
        raise Undecodable("zstd: sequences use the table of a block before the first")
    return before, at


def _code(table: FseTable, state: int, codes: _Codes) -> int:
    code = table.symbols[state]
    if code >= len(codes.bases):
        raise Undecodable(f"zstd: a sequence has code {code}")
    return code


def _distance(offset: int, length: int, repeats: list[int]) -> int:
    """The distance of a match: values up to 3 name one of the last three distances."""
    if offset > 3:
        distance = offset - 3
        repeats[:] = [distance, repeats[0], repeats[1]]
        return distance
    which = offset - 1 if length else offset
    distance = repeats[which] if which < 3 else repeats[0] - 1
    if which:
        repeats[:] = [distance, repeats[0], repeats[1] if which > 1 else repeats[2]]
    return distance


def compress(data: bytes) -> bytes:
    """One frame of raw blocks: every reader accepts it, and nothing is compressed."""
    head = MAGIC.to_bytes(4, "little") + bytes([_WRITTEN_FLAGS]) + len(data).to_bytes(4, "little")
    blocks = [data[at : at + _LARGEST_BLOCK] for at in range(0, len(data), _LARGEST_BLOCK)] or [b""]
    last = len(blocks) - 1
    return head + b"".join((len(b) << 3 | (i == last)).to_bytes(3, "little") + b for i, b in enumerate(blocks))
