"""Codec 3: lz4 frames. Source: ``lz4_Frame_format.md`` and ``lz4_Block_format.md`` of lz4/lz4."""

from __future__ import annotations

from jbod_model.formats.compression.base import Output, cut, little, read_frames
from jbod_model.formats.compression.xxhash import xxh32
from jbod_model.wire import Undecodable

MAGIC = 0x184D2204
_STORED = 0x80000000
_BLOCK_SIZES = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
_WRITTEN_FLAGS = bytes([0b0110_0000, 4 << 4])  # version 1, independent blocks of at most 64 KiB, no checksums


def decompress(data: bytes, limit: int) -> bytes:
    """The content of all frames, concatenated."""
    return read_frames(data, limit, "lz4", MAGIC, _frame)


def _frame(data: bytes, at: int, out: Output) -> int:
    flags, block_code = cut(data, at, 2)[0], cut(data, at, 2)[1] >> 4 & 7
    if flags >> 6 != 1 or flags & 1 or block_code not in _BLOCK_SIZES:
        raise Undecodable(f"lz4: flags {flags:#x} are not understood")
    independent, block_checksums = flags & 0x20, flags & 0x10
    has_size, has_checksum = flags & 0x08, flags & 0x04
    header = cut(data, at, 10 if has_size else 2)
    at += len(header)
    if xxh32(header) >> 8 & 0xFF != cut(data, at, 1)[0]:
        raise Undecodable("lz4: the header has another checksum")
    at += 1
    start = len(out.bytes)
    while size := little(data, at, 4):
        block = cut(data, at + 4, size & ~_STORED)
        at += 4 + len(block)
        if block_checksums:
            if little(data, at, 4) != xxh32(block):
                raise Undecodable("lz4: a block has another checksum")
            at += 4
        before = len(out.bytes)
        if size & _STORED:
            out.append(block)
        else:
            _block(block, out, before if independent else start)
        if len(out.bytes) - before > _BLOCK_SIZES[block_code]:
            raise Undecodable("lz4: a block is longer than its frame allows")
    at += 4
    if has_size and little(header, 2, 8) != len(out.bytes) - start:
        raise Undecodable("lz4: the frame has another size than announced")
    if has_checksum:
        if little(data, at, 4) != xxh32(bytes(out.bytes[start:])):
            raise Undecodable("lz4: the frame has another checksum")
        at += 4
    return at


def _block(data: bytes, out: Output, start: int) -> None:
    at = 0
    while True:
        token = cut(data, at, 1)[0]
        size, at = _length(data, at + 1, token >> 4)
        out.append(cut(data, at, size))
        at += size
        if at == len(data):
            return  # the last sequence has no match
        distance = little(data, at, 2)
        size, at = _length(data, at + 2, token & 15)
        out.copy(distance, size + 4, start=start)


def _length(data: bytes, at: int, nibble: int) -> tuple[int, int]:
    size = nibble
    more = nibble == 15
    while more:
        byte = cut(data, at, 1)[0]
        at += 1
        size += byte
        more = byte == 255
    return size, at


def compress(data: bytes) -> bytes:
    """One frame of stored blocks: every reader accepts it, and nothing is compressed."""
    head = MAGIC.to_bytes(4, "little") + _WRITTEN_FLAGS + bytes([xxh32(_WRITTEN_FLAGS) >> 8 & 0xFF])
    blocks = [data[at : at + _BLOCK_SIZES[4]] for at in range(0, len(data), _BLOCK_SIZES[4])]
    return head + b"".join((len(b) | _STORED).to_bytes(4, "little") + b for b in blocks) + bytes(4)
