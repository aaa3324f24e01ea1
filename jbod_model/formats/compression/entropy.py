"""The two entropy codes of zstd: FSE tables and Huffman trees. Source: RFC 8878, section 4."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jbod_model.formats.compression.base import cut
from jbod_model.formats.compression.bits import BackwardBits, ForwardBits
from jbod_model.wire import Undecodable

_LONGEST_CODE = 11
_WEIGHT_ACCURACY = 6
_MOST_WEIGHTS = 255


@dataclass(frozen=True, slots=True)
class FseTable:
    """What each state emits, and how to read the next state."""

    accuracy: int
    symbols: Sequence[int]
    bits: Sequence[int]
    baselines: Sequence[int]

    def first(self, stream: BackwardBits) -> int:
        """The state that a stream starts in."""
        return stream.read(self.accuracy)

    def following(self, state: int, stream: BackwardBits) -> int:
        """The state after ``state``."""
        return self.baselines[state] + stream.read(self.bits[state])


def one_symbol(symbol: int) -> FseTable:
    """A table that always emits the same symbol."""
    return FseTable(0, (symbol,), (0,), (0,))


def spread(counts: Sequence[int], accuracy: int) -> FseTable:
    """The table for normalised counts, where -1 is "less than one" (RFC 8878, 4.1.1)."""
    size = 1 << accuracy
    symbols = [0] * size
    high = size
    for symbol, count in enumerate(counts):
        if count == -1:
            high -= 1
            symbols[high] = symbol
    at, step = 0, (size >> 1) + (size >> 3) + 3
    for symbol, count in enumerate(counts):
        for _ in range(max(count, 0)):
            symbols[at] = symbol
            at = (at + step) % size
            while at >= high:
                at = (at + step) % size
    following = [abs(count) for count in counts]
    bits, baselines = [], []
    for symbol in symbols:
        state = following[symbol]
        following[symbol] += 1
        width = accuracy - state.bit_length() + 1
        bits.append(width)
        baselines.append((state << width) - size)
    return FseTable(accuracy, symbols, bits, baselines)


def read_fse_table(data: bytes, at: int, most_accuracy: int, most_symbols: int) -> tuple[FseTable, int]:
    """The table that the data describes, and the end of the description."""
    stream = ForwardBits(data, at)
    accuracy = stream.read(4) + 5
    if accuracy > most_accuracy:
        raise Undecodable(f"zstd: a table has accuracy {accuracy}, at most {most_accuracy} is allowed")
    remaining = 1 << accuracy
    counts: list[int] = []
    while remaining > 0:
        if len(counts) >= most_symbols:
            raise Undecodable("zstd: a table has too many symbols")
        count = _read_count(stream, remaining)
        remaining -= abs(count)
        counts.append(count)
        more = count == 0
        while more:
            zeros = stream.read(2)
            counts += [0] * zeros
            more = zeros == 3
    if remaining < 0 or len(counts) > most_symbols:
        raise Undecodable("zstd: a table does not add up")
    return spread(counts, accuracy), stream.next_byte


def _read_count(stream: ForwardBits, remaining: int) -> int:
    width = (remaining + 1).bit_length()
    value = stream.read(width)
    lower = (1 << width - 1) - 1
    threshold = (1 << width) - 1 - (remaining + 1)
    if value & lower < threshold:
        stream.back(1)
        value &= lower
    elif value > lower:
        value -= threshold
    return value - 1


@dataclass(frozen=True, slots=True)
class HuffmanTable:
    """For each possible peek of ``width`` bits: the symbol and length of the code at its start."""

    width: int
    symbols: Sequence[int]
    lengths: Sequence[int]

    def decode(self, data: bytes, count: int) -> bytes:
        """``count`` symbols; the stream must hold exactly these."""
        stream = BackwardBits(data)
        out = bytearray()
        for _ in range(count):
            code = stream.peek(self.width)
            stream.left -= self.lengths[code]
            out.append(self.symbols[code])
        if stream.left != 0:
            raise Undecodable("zstd: a stream of literals has another length than announced")
        return bytes(out)


def read_huffman_table(data: bytes, at: int) -> tuple[HuffmanTable, int]:
    """The tree that the data describes, and the end of the description."""
    head = cut(data, at, 1)[0]
    at += 1
    if head < 128:
        weights = _fse_weights(cut(data, at, head))
        at += head
    else:
        count = head - 127
        packed = cut(data, at, (count + 1) // 2)
        weights = [packed[i // 2] >> (0 if i % 2 else 4) & 15 for i in range(count)]
        at += len(packed)
    return _huffman(weights), at


def _fse_weights(data: bytes) -> list[int]:
    """Decode with two alternating states until no bits remain."""
    table, at = read_fse_table(data, 0, _WEIGHT_ACCURACY, 16)
    stream = BackwardBits(data[at:])
    one, other = table.first(stream), table.first(stream)
    weights: list[int] = []
    while len(weights) < _MOST_WEIGHTS:
        weights.append(table.symbols[one])
        one = table.following(one, stream)
        if stream.left < 0:
            weights.append(table.symbols[other])
            return weights
        one, other = other, one
    raise Undecodable("zstd: a tree has too many weights")


def _huffman(weights: list[int]) -> HuffmanTable:
    total = sum(1 << weight >> 1 for weight in weights)
    width = total.bit_length()
    rest = (1 << width) - total
    if total == 0 or width > _LONGEST_CODE or rest & (rest - 1) or len(weights) > _MOST_WEIGHTS:
        raise Undecodable("zstd: the weights of a tree do not add up")
    weights = [*weights, rest.bit_length()]
    symbols: list[int] = []
    lengths: list[int] = []
    for weight in range(1, width + 1):
        for symbol, own in enumerate(weights):
            if own == weight:
                symbols += [symbol] * (1 << weight - 1)
                lengths += [width + 1 - weight] * (1 << weight - 1)
    return HuffmanTable(width, symbols, lengths)
