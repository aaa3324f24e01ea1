"""The audit finds the cause of each record, a request or the controller itself, and judges each request.

A controller handles one request at a time, in the state after all earlier records, and appends the records of a
request together. So the audit walks the log in order. Before each record it tries the requests that were in flight at
the record's time. A request whose expected records are the next ones, and whose answer is the expected one, caused
them. A request that ended without records is correct if it expects no records in some state of its time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from jbod_model.audit import compare
from jbod_model.audit.compare import (
    CAUSED,
    Judged,
    OwnWork,
    Verdict,
    may_begin_with,
    may_have_caused,
    newer_level,
    newer_line,
    newer_record,
    operation_of,
    own_work,
    undecided,
)
from jbod_model.audit.expect import (
    AS_RELEASED,
    FLAWED,
    OLDER,
    RIGHT,
    WITHOUT_LEAK,
    AuditRules,
    Expected,
    answers,
    expect,
    name_of,
    other_answer,
)
from jbod_model.audit.knowledge import PLACED, Arrivals, Knowledge, Upcoming, as_placed
from jbod_model.controller import Context
from jbod_model.formats.log import LogEntry
from jbod_model.formats.metadata_version import METADATA_VERSION
from jbod_model.formats.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    UnknownRecord,
    VersionedRecord,
)
from jbod_model.formats.request_log import NewerLine, RequestLine
from jbod_model.formats.requests import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    Request,
)
from jbod_model.formats.responses import KafkaError

SLACK_MS = 500
"""By how much a record's time may precede its request: a batch has the time at which it was begun."""

ROUNDING_MS = 2
"""Times in log lines are rounded to milliseconds."""

OLDER_THAN_LOG = "it is older than the log"

OTHER_RECORDS = "other records than expected"

HASH_ORDER = "in the order of a hash table"


@dataclass(slots=True)
class _Pending:
    """A request that may be handled now."""

    line: RequestLine
    idle: AuditRules | None = None
    """The rules by which it should write nothing and answer as it did, in some state of its time."""
    tried: int = -1
    """The number of the state in which this was last computed."""
    expected: Expected | None = None
    """What it should have done in that state."""
    suspects: list[tuple[int, VersionedRecord]] = field(default_factory=list)
    """Unexplained records of its time that it could have caused, with their offsets."""
    instead: tuple[VersionedRecord, ...] = ()
    """What it should have written at the first of these records."""

    def wrote_otherwise(self, following: tuple[VersionedRecord, ...] = ()) -> bool:
        """Whether the suspects and the ``following`` records have the subjects of what it should have written.

        Then one of them is wrong, even if after it the request expects just those that follow, or nothing.
        """
        written = (*(record for _, record in self.suspects), *following)
        return Counter(map(compare.subject, written)) == Counter(map(compare.subject, self.instead))


class Audit:
    """Judge ``logs``, the requests of each log file, by the ``entries`` of a metadata log.

    ``static_configs`` are the values of the controller's own configuration file on which elections depend.
    """

    def __init__(
        self,
        entries: Iterable[LogEntry],
        logs: Iterable[Iterator[RequestLine | NewerLine]],
        *,
        cluster_id: str | None = None,
        static_configs: Mapping[str, str] | None = None,
    ) -> None:
        self.known = Knowledge(cluster_id=cluster_id, static_configs=static_configs or {})
        self._upcoming = Upcoming(entries)
        self._arrivals = Arrivals(logs)
        self._pending: list[_Pending] = []
        self._unread: list[NewerLine] = []
        """Requests of newer versions that may be handled now."""
        self._unknown: str | None = None
        """The first record of an unknown type. What is expected after it may be wrong."""
        self._time: float | None = None
        self._together: list[RequestLine] = []
        """The latest requests, which arrived at one time."""
        self._begin: float | None = None
        self._in_snapshot: float | None = None
        """The time up to which records of a request can be in the snapshot that the log begins with."""
        self._strangers = 0
        self._confirmed = 0
        self._transaction: str | None = None
        """The name of the open metadata transaction. All records in it are the controller's own."""

    def __iter__(self) -> Iterator[Judged | OwnWork]:
        while (entry := self._upcoming.first()) is not None:
            if entry.in_snapshot:
                self._skip()
                self._begin = entry.timestamp
                self._in_snapshot = entry.timestamp + SLACK_MS
                continue
            if self._begin is None:
                self._begin = entry.timestamp - SLACK_MS
            yield from self._arrive(entry.timestamp)
            yield from self._explain(entry)
        yield from self._end()

    @property
    def _doubtful(self) -> bool:
        """Whether the requests seem to be another cluster's: more of them name what the log never had than caused a
        record."""
        return self._strangers > self._confirmed

    @property
    def _newer(self) -> str | None:
        """Why a difference means nothing now: the cluster is newer than the reference controller. None if it is not."""
        return newer_level(self.known.image.features.get(METADATA_VERSION, 0)) or self._unknown

    # REQUESTS

    def _arrive(self, now: float) -> Iterator[Judged]:
        """Take the requests that arrived, and judge those that ended before ``now``."""
        assert self._begin is not None
        late_before = self._time
        for line in self._arrivals.until(now + SLACK_MS):
            if isinstance(line, NewerLine):
                self._unread.append(line)
                yield undecided(line, newer_line(line) or "", newer=True)
                continue
            if line.error_code == KafkaError.NOT_CONTROLLER:
                continue
            if self._together and self._together[0].received_ms != line.received_ms:
                self._together = []
            if late_before is not None and line.received_ms <= late_before:
                yield undecided(line, "its line is out of order")
            elif line in self._together:
                yield undecided(line, "its line is there twice")
            elif line.received_ms < self._begin:
                yield undecided(line, OLDER_THAN_LOG)
            else:
                self._together.append(line)
                self._pending.append(_Pending(line))
        self._time = now + SLACK_MS
        waiting: list[_Pending] = []
        for pending in self._pending:
            self._ask_idle(pending)
            if pending.line.completed_ms + ROUNDING_MS < now:
                yield self._judge_over(pending)
            else:
                waiting.append(pending)
        self._pending = waiting
        self._unread = [line for line in self._unread if line.completed_ms + ROUNDING_MS >= now]

    def _ask_idle(self, pending: _Pending) -> None:
        """Note the rules by which the request should do nothing in the present state, if there are any."""
        if pending.idle is RIGHT or pending.tried == self.known.changes:
            return
        pending.tried = self.known.changes
        line = pending.line
        context = self.known.context(line)
        for rules in (RIGHT, AS_RELEASED):
            outcome = expect(self.known.image, line.request, context, rules)
            if rules is RIGHT:
                pending.expected = outcome
            if not outcome.records and answers(line, outcome):
                pending.idle = rules
                return

    def _judge_over(self, pending: _Pending) -> Judged:
        """The verdict on a request that caused no record."""
        line, expected = pending.line, pending.expected or Expected((), None)
        stranger = self.known.stranger(line)
        if stranger is not None:
            self._strangers += 1
            return undecided(line, f"another cluster's: the log has no {stranger}")
        if self._doubtful:
            return undecided(line, "another cluster's: like most requests")
        if pending.suspects:
            offset, records = pending.suspects[0][0], tuple(record for _, record in pending.suspects)
            return self._differs(line, OTHER_RECORDS, pending.instead, records, offset)
        if pending.idle is RIGHT:
            return Judged(line=line, verdict=Verdict.SAME)
        if pending.idle is not None:
            quirk = self._quirk(line)
            self._hear(line, expect(self.known.image, line.request, self.known.context(line), WITHOUT_LEAK))
            return Judged(line=line, verdict=Verdict.QUIRK, quirk=quirk, expected=expected.records)
        if self._in_snapshot is not None and line.received_ms <= self._in_snapshot:
            return undecided(line, OLDER_THAN_LOG)
        if expected.records:
            return self._differs(line, "nothing was written", expected.records)
        return replace(self._differs(line, "another answer than expected"), answer=other_answer(line, expected))

    def _differs(
        self,
        line: RequestLine,
        reason: str,
        expected: tuple[VersionedRecord, ...] = (),
        records: tuple[VersionedRecord, ...] = (),
        offset: int | None = None,
    ) -> Judged:
        """A difference; undecided if anything involved is newer than the reference controller."""
        newer = self._newer or newer_line(line) or next(filter(None, map(newer_record, records)), None)
        return Judged(
            line=line,
            verdict=Verdict.DIFFERS if newer is None else Verdict.UNDECIDED,
            reason=reason if newer is None else newer,
            from_offset=offset,
            expected=expected,
            written=records,
            newer=newer is not None,
        )

    def _hear(self, line: RequestLine, outcome: Expected) -> None:
        if isinstance(line.request, BrokerHeartbeatRequest):
            self.known.heard(line.request.broker_id, outcome.response)

    def _quirk(self, line: RequestLine) -> str:
        """The name of the first rules by which the request does nothing and is answered as it was."""
        context = self.known.context(line)
        for rules in FLAWED:
            outcome = expect(self.known.image, line.request, context, rules)
            if not outcome.records and answers(line, outcome):
                return name_of(rules, self.known.image, line.request, context)
        return str(AS_RELEASED.name)

    # RECORDS

    def _explain(self, entry: LogEntry) -> Iterator[Judged | OwnWork]:
        """Find the cause of the next record, and skip all records of that cause."""
        record = entry.record
        if not isinstance(record, VersionedRecord):
            self._skip()
            return
        if isinstance(record.record, BeginTransactionRecord):
            self._transaction = record.record.name or "a transaction"
        if self._transaction is not None or not isinstance(record.record, CAUSED):
            unknown = newer_record(record) if isinstance(record.record, UnknownRecord) else None
            if unknown is not None and self._unknown is None:
                self._unknown = f"{unknown} and stands at offset {entry.offset}"
            yield self._own(unknown or self._transaction or type(record.record).__name__, 1, newer=unknown is not None)
            if isinstance(record.record, (EndTransactionRecord, AbortTransactionRecord)):
                self._transaction = None
            return
        possible = [
            pending
            for pending in self._pending
            if entry.timestamp <= pending.line.completed_ms + ROUNDING_MS
            and may_begin_with(pending.line.request, record.record, self.known.image)
            and not (self._doubtful and not hasattr(pending.line.request, "broker_epoch"))
        ]
        for pending in possible:
            judged = self._caused_by(pending, entry)
            if judged is not None:
                self._pending.remove(pending)
                self._confirmed += 1
                yield judged
                # So many of its records are counted as unexplained.
                before = entry.offset - (judged.from_offset or 0)
                count = len(judged.written) - before
                if before:
                    yield self._unexplained(record, count, newer=judged.newer)
                else:
                    self._skip(count)
                return
        for cause, request in own_work(self.known.image, record.record):
            count = self._written_by(request)
            if count:
                yield self._own(cause, count)
                return
        for pending in possible:
            if not pending.instead:
                line, context = pending.line, self.known.context(pending.line)
                placed_request, _ = as_placed(line.request, line.response, self._upcoming.records(), self.known.image)
                pending.instead = expect(self.known.image, placed_request, context, RIGHT).records
            if pending.instead:
                pending.suspects.append((entry.offset, record))
        newer = bool(self._newer or newer_record(record)) or any(
            may_have_caused(line, record.record) for line in self._unread
        )
        nearest = next(((candidate.line, candidate.instead) for candidate in possible if candidate.instead), None)
        yield self._unexplained(record, 1, newer=newer, nearest=nearest)

    def _caused_by(self, pending: _Pending, entry: LogEntry) -> Judged | None:
        """The verdict if the rules, or known other rules, explain the next records and the answer; else None."""
        line = pending.line
        request, placed = line.request, False
        if isinstance(request, (CreateTopicsRequest, CreatePartitionsRequest)):
            request, placed = as_placed(request, line.response, self._upcoming.records(), self.known.image)
        context = self.known.context(line)
        right = expect(self.known.image, request, context, RIGHT)
        best: tuple[AuditRules, Expected, tuple[VersionedRecord, ...]] | None = None
        for rules in (RIGHT, *self._explanations(request, context, right)):
            outcome = right if rules is RIGHT else expect(self.known.image, request, context, rules)
            next_records = self._match_next(outcome.records)
            if next_records and answers(line, outcome) and (best is None or len(next_records) > len(best[2])):
                best = rules, outcome, next_records
        if best is None:
            return None
        rules, outcome, next_records = best
        self._hear(line, outcome)
        begin = entry.offset - len(pending.suspects)
        if pending.suspects and pending.suspects[0][0] == begin and pending.wrote_otherwise(next_records):
            written = (*(record for _, record in pending.suspects), *next_records)
            return self._differs(line, OTHER_RECORDS, pending.instead, written, begin)
        reasons = [PLACED] if placed else []
        verdict = Verdict.SAME if rules is RIGHT else Verdict.QUIRK
        if next_records != outcome.records:
            defined = next(compare.records(operation_of(request), next_records, outcome.records), None)
            if defined is not None:
                if self._newer is not None:
                    return self._differs(line, "", right.records, next_records, entry.offset)
                verdict = Verdict.ORDER
            reasons.append(HASH_ORDER if defined is None else f"the order is defined: {defined[0]}")
        return Judged(
            line=line,
            verdict=verdict,
            quirk=None if rules is RIGHT else name_of(rules, self.known.image, request, context),
            reason="; ".join(reasons) or None,
            from_offset=entry.offset,
            expected=right.records,
            written=next_records,
        )

    def _explanations(self, request: Request, context: Context, right: Expected) -> tuple[AuditRules, ...]:
        """The rules that may explain an outcome other than the correct one."""
        flawed = FLAWED if expect(self.known.image, request, context, AS_RELEASED) != right else ()
        older = OLDER if self.known.migrating or isinstance(request, BrokerRegistrationRequest) else ()
        return (*flawed, *older)

    def _match_next(self, expected: tuple[VersionedRecord, ...]) -> tuple[VersionedRecord, ...] | None:
        """The next records of the log if they are the expected ones, in any order."""
        if not expected:
            return None
        next_records = tuple(self._upcoming.records(len(expected)))
        return next_records if next_records == expected or Counter(next_records) == Counter(expected) else None

    def _written_by(self, request: Request) -> int:
        """The number of next records that the controller's own work explains."""
        context = self.known.own_context()
        for rules in (RIGHT, AS_RELEASED):
            expected = expect(self.known.image, request, context, rules).records
            next_records = self._match_next(expected)
            if (
                next_records is not None
                and next(compare.records(operation_of(request), next_records, expected), None) is None
            ):
                return len(expected)
        return 0

    def _own(self, cause: str, count: int, **more: Any) -> OwnWork:
        first = self._upcoming.first()
        assert first is not None
        return OwnWork(cause=cause, from_offset=first.offset, records=self._skip(count), **more)

    def _unexplained(self, record: VersionedRecord, count: int, *, newer: bool, **more: Any) -> OwnWork:
        """The next ``count`` records, of which ``record`` is the first, without a request that caused them."""
        cause = f"{'not decidable' if newer else 'unexplained'} {type(record.record).__name__}"
        return self._own(cause, count, newer=newer, unexplained=not newer, **more)

    def _skip(self, count: int = 1) -> tuple[VersionedRecord, ...]:
        """Apply the next entries to `Knowledge`."""
        taken = []
        for _ in range(count):
            entry = self._upcoming.take()
            if isinstance(entry.record, VersionedRecord):
                self.known.apply(entry.record, entry.offset)
                taken.append(entry.record)
            else:
                self.known.control(entry.record)
            self.known.next_offset = entry.offset + 1
        return tuple(taken)

    # THE END

    def _end(self) -> Iterator[Judged]:
        """Judge the requests that were in flight when the log ended, or came after it."""
        for pending in self._pending:
            self._ask_idle(pending)
            over = pending.wrote_otherwise() if pending.suspects else pending.idle is not None
            yield self._judge_over(pending) if over else undecided(pending.line, "the log ends before it was answered")
        self._pending = []
        for line in self._arrivals.rest():
            newer = newer_line(line)
            yield undecided(line, newer or "it is newer than the log", newer=newer is not None)
