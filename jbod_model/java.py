"""Java's random numbers and the order of its hash tables, which affect the metadata that Kafka writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableSequence
from typing import TypeVar

T = TypeVar("T")

_MULTIPLIER = 0x5DEECE66D
_INCREMENT = 0xB
_MASK = (1 << 48) - 1

SMALLEST_TABLE = 16
"""The default number of buckets of a hash table."""


class JavaRandom:
    """``java.util.Random``: a 48-bit linear congruential generator (R-JAVA-1).

    ``state`` determines all later numbers; `JavaRandom.resume` continues from it.
    """

    def __init__(self, seed: int) -> None:
        self.state = (seed ^ _MULTIPLIER) & _MASK

    @classmethod
    def resume(cls, state: int) -> JavaRandom:
        """A generator that continues from the ``state`` of another one."""
        generator = cls(0)
        generator.state = state & _MASK
        return generator

    def _next(self, bits: int) -> int:
        self.state = (self.state * _MULTIPLIER + _INCREMENT) & _MASK
        return self.state >> (48 - bits)

    def next_int(self, bound: int) -> int:
        """A number in ``range(bound)``; ValueError unless ``bound`` is from 1 to 2**31 - 1."""
        if not 0 < bound < 1 << 31:
            raise ValueError(f"a bound must be from 1 to 2147483647, not {bound}")
        if bound & (bound - 1) == 0:
            return (bound * self._next(31)) >> 31
        while True:
            bits = self._next(31)
            value = bits % bound
            if bits - value + bound - 1 < 1 << 31:
                return value

    def shuffle(self, items: MutableSequence[T]) -> None:
        """Permute ``items`` in place as ``Collections.shuffle`` does."""
        for size in range(len(items), 1, -1):
            other = self.next_int(size)
            items[size - 1], items[other] = items[other], items[size - 1]


def int32(number: int) -> int:
    """A sum as Java's int, which overflows (R-QUIRK-10)."""
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)


def string_hash(text: str) -> int:
    """``String.hashCode`` as an unsigned 32-bit number (R-JAVA-2)."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value


def int_hash(number: int) -> int:
    """``Integer.hashCode`` as an unsigned 32-bit number (R-JAVA-2)."""
    return number & 0xFFFFFFFF


def hash_order(items: Iterable[T], hash_code: Callable[[T], int], table: int = SMALLEST_TABLE) -> list[T]:
    """The distinct ``items`` in the order in which a ``HashMap`` that received them one by one iterates (R-JAVA-2).

    ``table`` is the initial number of buckets, a power of two. As in Java, it doubles when three quarters are full.
    Buckets that Java turns into trees (nine keys or more in one) are not modelled.
    """
    distinct = list(dict.fromkeys(items))
    while len(distinct) * 4 > table * 3:
        table *= 2

    def bucket(item: T) -> int:
        code = hash_code(item)
        return (code ^ code >> 16) & (table - 1)

    return sorted(distinct, key=bucket)


def table_for_copy(size: int) -> int:
    """Buckets of a ``HashSet`` made from a collection of ``size`` elements (R-JAVA-2)."""
    wanted = max(size * 4 // 3 + 1, SMALLEST_TABLE)
    return 1 << (wanted - 1).bit_length()
