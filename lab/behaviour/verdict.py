"""The answer about a whole log: whether it is a behaviour of the specification, and what its invariants say of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from jbod_model.audit.log_invariants import LogBreach, check_log
from jbod_model.formats.log import LogEntry
from lab.behaviour.steps import Refusal, Step, Undecidable


@dataclass(slots=True)
class Verdict:
    """What `judge` found, counted."""

    batches: int = 0
    """Batches of the log that were explained; those of a snapshot are not, it is taken as it is."""
    records: int = 0
    next_offset: int = 0
    """Where the explained part ends."""
    snapshot_at: int | None = None
    """The last offset that a snapshot covers, where the log begins with one."""
    kinds: Counter[str] = field(default_factory=Counter)
    """Kind of action -> how often; only what the specification models."""
    others: Counter[str] = field(default_factory=Counter)
    """Records whose content is free, by type, and transactions."""
    flaws: Counter[str] = field(default_factory=Counter)
    """Flaw of Kafka -> actions that show it."""
    end: Refusal | Undecidable | None = None
    """Why the explanation ends before the log does."""
    breaches: list[LogBreach] = field(default_factory=list)
    """Invariants that break in what was explained, but for those of actions that show a flaw."""
    known_breaches: list[tuple[LogBreach, str]] = field(default_factory=list)
    """The others, with the flaw."""

    @property
    def accepted(self) -> bool:
        """Whether the whole log is a behaviour of the specification."""
        return self.end is None

    @property
    def refused(self) -> bool:
        """Whether it is none."""
        return isinstance(self.end, Refusal)


def judge(read: Callable[[], Iterable[LogEntry]], steps: Iterable[Step | Refusal | Undecidable]) -> Verdict:
    """Take all of ``steps``, the explanation of what ``read`` reads, and check the invariants along it (R-BEHAVE-9)."""
    verdict = Verdict()
    flawed: dict[int, str] = {}
    for step in steps:
        if not isinstance(step, Step):
            verdict.end = step
            break
        (verdict.kinds if step.modelled else verdict.others)[step.kind] += 1
        if step.flaw is not None:
            verdict.flaws[step.flaw] += 1
            flawed.update((step.from_offset + place, step.flaw) for place in range(len(step.records)))
    end = None if verdict.end is None else verdict.end.offset
    for breach in check_log(_counted(read(), end, verdict)):
        flaw = flawed.get(breach.offset)
        if flaw is None:
            verdict.breaches.append(breach)
        else:
            verdict.known_breaches.append((breach, flaw))
    return verdict


def _counted(entries: Iterable[LogEntry], end: int | None, verdict: Verdict) -> Iterator[LogEntry]:
    """The entries before ``end``."""
    last: int | None = None
    for entry in entries:
        if end is not None and not entry.in_snapshot and entry.offset >= end:
            return
        if entry.in_snapshot:
            verdict.snapshot_at = entry.offset
        else:
            verdict.records += 1
            verdict.batches += entry.header.base_offset != last
            last = entry.header.base_offset
        verdict.next_offset = entry.offset + 1
        yield entry
