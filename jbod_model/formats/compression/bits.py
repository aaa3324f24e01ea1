"""Bit readers for the two directions in which zstd reads."""

from __future__ import annotations

from jbod_model.wire import Undecodable


class ForwardBits:
    """Reads from the lowest bit of the first byte upwards."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._bit = at * 8

    def read(self, count: int) -> int:
        """The next ``count`` bits."""
        end = self._bit + count
        if end > len(self._data) * 8:
            raise Undecodable("zstd: a table ends early")
        chunk = int.from_bytes(self._data[self._bit >> 3 : (end + 7) >> 3], "little") >> (self._bit & 7)
        self._bit = end
        return chunk & ((1 << count) - 1)

    def back(self, count: int) -> None:
        """Give bits back."""
        self._bit -= count

    @property
    def next_byte(self) -> int:
        """The position of the first byte of which no bit was read."""
        return (self._bit + 7) >> 3


class BackwardBits:
    """Reads from the highest bit of the last byte downwards. The highest bit that is set marks the start."""

    def __init__(self, data: bytes) -> None:
        if not data or data[-1] == 0:
            raise Undecodable("zstd: a bit stream has no start")
        self._data = data
        self.left = (len(data) - 1) * 8 + data[-1].bit_length() - 1
        """The number of unread bits; negative if more bits were read than exist."""

    def peek(self, count: int) -> int:
        """The next ``count`` bits, zeros where there are none."""
        begin = self.left - count
        if begin < 0:
            have = max(self.left, 0)
            return (self._bits(0, have)) << (count - have) if have else 0
        return self._bits(begin, self.left)

    def read(self, count: int) -> int:
        """The next ``count`` bits, zeros where there are none."""
        value = self.peek(count)
        self.left -= count
        return value

    def _bits(self, begin: int, end: int) -> int:
        chunk = int.from_bytes(self._data[begin >> 3 : (end + 7) >> 3], "little") >> (begin & 7)
        return chunk & ((1 << (end - begin)) - 1)
