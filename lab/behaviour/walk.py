"""A metadata log, batch by batch: which actions of the specification wrote it (docs/spec/behaviour.md).

A controller appends the records of an action together, so a batch is the records of one action or of several, one after
the other. Each is explained from the state that the ones before it made; where a way of taking a batch apart leads
nowhere another is tried, so that a batch is refused only if no sequence of guesses explains all of it (R-BEHAVE-1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from jbod_model.audit import compare
from jbod_model.audit.compare import newer_record, operation_of
from jbod_model.audit.expect import AS_RELEASED, FLAWED, OLDER, RIGHT, AuditRules, expect, name_of
from jbod_model.audit.knowledge import Knowledge
from jbod_model.errors import ReplayViolation
from jbod_model.formats.log import LogEntry
from jbod_model.formats.metadata_version import LEVELS, METADATA_VERSION
from jbod_model.formats.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    Record,
    RegisterControllerRecord,
    VersionedRecord,
)
from jbod_model.formats.requests import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    BrokerRegistrationRequest,
    Request,
)
from jbod_model.ids import KAFKA_IDS, IdTable
from jbod_model.profiles import KAFKA, Profile
from jbod_model.replay.image import WITHOUT_EFFECT, Image
from lab.behaviour.guess import Ahead, Registrations
from lab.behaviour.guesses import guesses
from lab.behaviour.steps import Refusal, Step, Undecidable, kind_of
from lab.simulation.controller_node import deciding

Records = tuple[VersionedRecord, ...]


@dataclass(frozen=True, slots=True)
class Match:
    """Records that an action explains."""

    kind: str
    count: int
    flaw: str | None = None


@dataclass(slots=True)
class _Farthest:
    """The last place that was reached, and what the actions that were tried there would have written."""

    at: int = 0
    outcomes: list[tuple[str, Records]] = field(default_factory=list)

    def reached(self, at: int) -> None:
        if at > self.at:
            self.at, self.outcomes = at, []

    def tried(self, at: int, request: Request, expected: Records) -> None:
        if at == self.at and expected:
            self.outcomes.append((kind_of(request, expected), expected))


class Behaviour:
    """Explain the ``entries`` of a committed log by the rules of ``profile``; each step in order, or where it ends.

    The log is read twice: first for the registrations, which say what the processes before them have.
    ``static_configs`` are the values of the controller's own configuration file on which elections depend.
    """

    def __init__(
        self,
        entries: Callable[[], Iterable[LogEntry]],
        *,
        profile: Profile = KAFKA,
        ids: IdTable = KAFKA_IDS,
        static_configs: Mapping[str, str] | None = None,
    ) -> None:
        self._entries = entries
        self._registrations = Registrations.of(entries())
        self._rules = _rules(profile)
        self._known = Knowledge(image=Image(ids=ids), profile=profile, static_configs=static_configs or {})
        says_lost = profile.broker.source_failure_assigns_lost or not profile.broker.names_failed_directories
        self._lost = ids.lost if says_lost else None
        self._transaction: tuple[str, int, list[VersionedRecord]] | None = None

    @property
    def image(self) -> Image:
        """The state after all that is explained."""
        return self._known.image

    def __iter__(self) -> Iterator[Step | Refusal | Undecidable]:
        for batch in _batches(self._entries()):
            for step in self._take(batch):
                yield step
                if not isinstance(step, Step):
                    return

    def _take(self, batch: Sequence[LogEntry]) -> Iterator[Step | Refusal | Undecidable]:
        """Raft's own records, a snapshot, a transaction; the rest is explained (R-BEHAVE-4, R-BEHAVE-8)."""
        rest: list[LogEntry] = []
        for entry in batch:
            record = entry.record
            if not isinstance(record, VersionedRecord):
                self._known.control(record)
                self._known.next_offset = entry.offset + 1
                continue
            unknown = newer_record(record)
            if unknown is not None:
                yield from self._explain(rest)
                yield Undecidable(offset=entry.offset, problem=unknown)
                return
            marker = record.record
            if isinstance(marker, BeginTransactionRecord):
                yield from self._explain(rest)
                rest = []
                self._transaction = (marker.name or "a transaction", entry.offset, [])
            if entry.in_snapshot or self._transaction is not None:
                refused = self._apply(entry)
                if refused is not None:
                    yield refused
                    return
            else:
                rest.append(entry)
            if self._transaction is not None:
                name, offset, held = self._transaction
                held.append(record)
                if isinstance(marker, (EndTransactionRecord, AbortTransactionRecord)):
                    self._transaction = None
                    yield Step(kind=f"transaction: {name}", from_offset=offset, records=tuple(held), modelled=False)
        yield from self._explain(rest)

    def _apply(self, entry: LogEntry) -> Refusal | None:
        assert isinstance(entry.record, VersionedRecord)
        try:
            _apply(self._known, entry)
        except ReplayViolation as violation:
            return Refusal(offset=entry.offset, problem=violation.problem, written=(entry.record,))
        return None

    # A BATCH

    def _explain(self, entries: Sequence[LogEntry]) -> Iterator[Step | Refusal]:
        """Take the entries apart into actions: depth first, the longest first, from no place twice."""
        records = tuple(entry.record for entry in entries if isinstance(entry.record, VersionedRecord))
        states = [self._known]
        farthest = _Farthest()
        path: list[tuple[int, Match]] = []
        ways = [(0, self._matches(records, 0, self._known, farthest))]
        tried = {0}
        while ways and len(records) not in tried:
            place, matches = ways[-1]
            match = next(matches, None)
            if match is None:
                ways.pop()
                del path[-1:]
            elif place + match.count not in tried:
                reached = place + match.count
                try:
                    _reach(entries, reached, states)
                except ReplayViolation as violation:
                    farthest = _Farthest(len(states) - 1)
                    yield from _steps(entries, records, path)
                    yield _refusal(entries, records, farthest, violation.problem)
                    return
                tried.add(reached)
                path.append((place, match))
                ways.append((reached, self._matches(records, reached, states[reached], farthest)))
        if len(records) not in tried:
            yield _refusal(entries, records, farthest)
            return
        yield from _steps(entries, records, path)
        self._known = states[-1]

    def _matches(self, records: Records, at: int, known: Knowledge, farthest: _Farthest) -> Iterator[Match]:
        """What explains the records from ``at`` on: by the right rules, then by flawed ones; the longest first."""
        if at == len(records):
            return
        farthest.reached(at)
        if _is_free(records[at].record):
            yield Match(type(records[at].record).__name__, 1)
            return
        ahead = Ahead(
            known.image, [record.record for record in records[at:]], known.next_offset, self._registrations, self._lost
        )
        attempts = [(guess, replace(known.own_context(), **guess.circumstances)) for guess in guesses(ahead)]
        for rules in self._rules:
            matches: dict[tuple[str, int], Match] = {}
            for guess, context in attempts:
                if not _may_apply(rules, guess.request, known):
                    continue
                expected = expect(known.image, guess.request, context, rules).records
                farthest.tried(at, guess.request, expected)
                count = len(expected)
                if count and _same(guess.request, records[at : at + count], expected):
                    kind = kind_of(guess.request, expected)
                    if (kind, count) not in matches:
                        flawed = rules.name is not None
                        flaw = name_of(rules, known.image, guess.request, context) if flawed else None
                        matches[kind, count] = Match(kind, count, flaw)
            yield from sorted(matches.values(), key=lambda match: -match.count)


def _reach(entries: Sequence[LogEntry], place: int, states: list[Knowledge]) -> None:
    """Make the states up to a place. Each stays as it is, for another way may lead on from it."""
    while len(states) <= place:
        state = states[-1].copy()
        _apply(state, entries[len(states) - 1])
        states.append(state)


def _apply(known: Knowledge, entry: LogEntry) -> None:
    """Take a record; ReplayViolation if it cannot follow."""
    assert isinstance(entry.record, VersionedRecord)
    known.apply(entry.record, entry.offset)
    known.next_offset = entry.offset + 1


def _steps(entries: Sequence[LogEntry], records: Records, path: Sequence[tuple[int, Match]]) -> Iterator[Step]:
    for place, match in path:
        yield Step(
            kind=match.kind,
            from_offset=entries[place].offset,
            records=records[place : place + match.count],
            flaw=match.flaw,
            modelled=not _is_free(records[place].record),
        )


def _batches(entries: Iterable[LogEntry]) -> Iterator[list[LogEntry]]:
    """The entries of each batch."""
    for _, batch in groupby(entries, key=lambda entry: (entry.in_snapshot, entry.header.base_offset)):
        yield list(batch)


# WHAT IS COMPARED


def _is_free(record: Record) -> bool:
    """R-BEHAVE-4."""
    if isinstance(record, ConfigRecord):
        return record.resource_type not in (TOPIC_RESOURCE, BROKER_RESOURCE)
    return isinstance(record, RegisterControllerRecord) or type(record) in WITHOUT_EFFECT


def _rules(profile: Profile) -> tuple[AuditRules, ...]:
    """R-BEHAVE-5."""
    if profile != KAFKA:
        return (AuditRules(None, deciding(profile)),)
    return (RIGHT, AS_RELEASED, *FLAWED[:-1], *OLDER)


def _may_apply(rules: AuditRules, request: Request, known: Knowledge) -> bool:
    """Older rules are those of releases before 4.0, for registrations and while ZooKeeper is left."""
    if rules not in OLDER:
        return True
    before = known.image.features.get(METADATA_VERSION, 0) < LEVELS["4.0-IV0"]
    return before and (known.migrating or isinstance(request, BrokerRegistrationRequest))


def _same(request: Request, records: Records, expected: Records) -> bool:
    """Whether the log has these records, in an order that Kafka leaves to a hash table where it is another."""
    if records == expected:
        return True
    if Counter(records) != Counter(expected):
        return False
    return next(compare.records(operation_of(request), records, expected), None) is None


def _refusal(entries: Sequence[LogEntry], records: Records, farthest: _Farthest, problem: str | None = None) -> Refusal:
    """What was found at the farthest place, and what the nearest action would have written there (R-BEHAVE-10)."""
    at = farthest.at
    kind, expected = max(
        farthest.outcomes,
        key=lambda outcome: _likeness(records[at : at + len(outcome[1])], outcome[1]),
        default=(None, ()),
    )
    written_records = records[at : at + max(len(expected), 1)]
    wrong = _first_other(written_records, expected)
    return Refusal(
        offset=entries[min(at + wrong, len(entries) - 1)].offset,
        problem=problem or "no action of the specification writes these records",
        batch=(entries[0].offset, entries[-1].offset),
        written=written_records,
        nearest=kind,
        expected=expected,
    )


def _likeness(records: Records, expected: Records) -> tuple[int, int]:
    """How many records are the same, and how many fields are not."""
    same = sum((Counter(records) & Counter(expected)).values())
    return same, -sum(1 for _ in compare.records("", records, expected))


def _first_other(records: Records, expected: Records) -> int:
    """The place of the first record that is not expected; where all are, of the first in another order, or the end."""
    left = Counter(expected)
    for place, versioned in enumerate(records):
        if not left[versioned]:
            return place
        left[versioned] -= 1
    if len(records) < len(expected):
        return len(records)
    return next(
        (place for place, (record, other) in enumerate(zip(records, expected, strict=True)) if record != other), 0
    )
