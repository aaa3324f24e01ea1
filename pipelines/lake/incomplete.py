"""Marks a lake as incomplete: it keeps unknown records unchanged, and every answer reports them (R-REC-4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

ADVICE = "the record is kept as it is, and answers from there on say that they are incomplete; jbod rebuild by a later \
jbod that knows it makes them complete"
TODO = "upgrade jbod to one that knows it, then jbod rebuild"


@dataclass(frozen=True)
class Incomplete:
    """The first record that is not known, and the kinds of all: ``record type 35``, ``ConfigRecord version 1``."""

    offset: int
    kinds: tuple[str, ...]

    @classmethod
    def at(cls, unknown: Mapping[str, int], offset: int) -> Self | None:
        """What is incomplete at an offset, given the first offset of each kind; None where nothing is."""
        known = {kind: first for kind, first in unknown.items() if first <= offset}
        return cls(min(known.values()), tuple(sorted(known, key=lambda kind: (known[kind], kind)))) if known else None

    def __str__(self) -> str:
        return f"incomplete since offset {self.offset}: {', '.join(self.kinds)}"

    def as_json(self) -> dict[str, Any]:
        """One JSON object."""
        return {"offset": self.offset, "records": list(self.kinds)}
