"""What a replay found (R-TRACE-1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

SHORTEN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """One difference between the trace and the controller."""

    operation: int
    """The line of the trace, from 1."""
    op: str
    offset: int
    """The log offset of the operation's first record."""
    field: str
    """What differs, for example ``response.errorCode`` or ``records[2].leader``."""
    recorded: Any
    ours: Any

    def __str__(self) -> str:
        return (
            f"operation {self.operation} ({self.op}) at offset {self.offset}: {self.field}: "
            f"recorded {_short(self.recorded)}, ours {_short(self.ours)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Thrown:
    """An operation on which Kafka itself failed, with what this controller makes of it."""

    operation: int
    op: str
    offset: int
    exception: str
    fault: str | None
    """The fault of Kafka's rules that explains it; None when they answer instead."""
    answer: str
    """What the repaired rules answer."""

    def __str__(self) -> str:
        why = self.fault or "not explained"
        return (
            f"operation {self.operation} ({self.op}) at offset {self.offset}: Kafka threw {self.exception}; "
            f"{why}; repaired: {self.answer}"
        )


@dataclass(slots=True)
class Report:
    """The outcome of replaying one trace."""

    file: str
    operations: int = 0
    """Operations of the trace, those on which Kafka threw included, images not."""
    matched: int = 0
    images: int = 0
    images_matched: int = 0
    records: int = 0
    """Recorded records that were applied."""
    mismatches: list[Mismatch] = field(default_factory=list)
    thrown: list[Thrown] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether every operation and image matched."""
        return not self.mismatches

    def lines(self, limit: int | None = None) -> Iterator[str]:
        """The report for people, with at most ``limit`` entries of each kind."""
        yield (
            f"{self.file}: {self.operations} operations, {self.matched} match, {len(self.thrown)} on which Kafka "
            f"threw; {self.images_matched} of {self.images} images match; {self.records} records"
        )
        for kind, entries in (("threw", self.thrown), ("mismatch", self.mismatches)):
            for entry in entries[:limit]:
                yield f"{kind:<8}  {entry}"
            if limit is not None and len(entries) > limit:
                yield f"{kind:<8}  and {len(entries) - limit} more"

    def as_json(self) -> dict[str, Any]:
        """The report for programs."""
        return {
            "file": self.file,
            "operations": self.operations,
            "matched": self.matched,
            "images": self.images,
            "images_matched": self.images_matched,
            "records": self.records,
            "ok": self.ok,
            "mismatches": [asdict(mismatch) for mismatch in self.mismatches],
            "thrown": [asdict(failure) for failure in self.thrown],
        }


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHORTEN else text[:SHORTEN] + "..."
