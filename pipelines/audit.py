"""Runs an audit on files, and counts its results. The size of the counts does not depend on the size of the logs.

If there is a lake, the audit also writes its table ``audit``: each request that could change directories, in-sync sets
or leaders, with its verdict. Every run replaces the table in one commit. Heartbeats that neither report a directory nor
change anything are counted but not written, unless they differ.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError

from jbod_model.audit import Audit, Judged, OwnWork, Verdict, compare
from jbod_model.audit.compare import operation_of
from jbod_model.audit.log_invariants import INVARIANTS, LogBreach, check_log
from jbod_model.errors import UsageError, first_line_of
from jbod_model.formats import json_values
from jbod_model.formats.log import PARTITION_DIRECTORY, LogEntry, LogReader, MetadataLog
from jbod_model.formats.records import PartitionChangeRecord, PartitionRecord, UnknownRecord, VersionedRecord
from jbod_model.formats.request_log import RequestLine
from jbod_model.formats.request_log_file import RequestLog
from jbod_model.formats.requests import BrokerHeartbeatRequest
from jbod_model.formats.schema import TYPE_NAMES
from jbod_model.profiles import NEWEST
from jbod_model.replay.transactions import committed
from jbod_model.storage.properties import FILE_NAME, read_meta_properties
from pipelines.lake.delta import uri_of
from pipelines.lake.ledger import open_ledger
from pipelines.lake.tables import TIME, Table, column
from pipelines.lake.uris import LakeUri
from pipelines.storage.objects import fault_of_disk, storage_options

AUDIT = Table(
    "audit",
    "Each logged request, what it should have written and what the metadata log has.",
    pa.schema(
        [
            column("api", pa.string(), "Kafka's name of the request"),
            column("api_version", pa.int16(), "its version"),
            column("broker_id", pa.int32(), "broker that asked, or that it is about", null=True),
            column("client_id", pa.string(), "client that asked"),
            column("correlation_id", pa.int32(), "the client's number of the request"),
            column("connection", pa.string(), "connection it came over"),
            column("forwarded", pa.bool_(), "whether a broker passed it on"),
            column("received_time", TIME, "when it arrived, by the controller's clock"),
            column("completed_time", TIME, "when its answer was sent"),
            column("error_code", pa.int16(), "of the request as a whole; null where it is not read", null=True),
            column("request", pa.string(), "what was asked, as JSON; null where its version is not known", null=True),
            column("response", pa.string(), "what was answered, as JSON; null where it is not read", null=True),
            column(
                "verdict", pa.string(), "same, explained by a known quirk, differs, differs in order or not decidable"
            ),
            column("quirk", pa.string(), "names of the flaws or older rules that explain it", null=True),
            column("reason", pa.string(), "why it differs or is not decidable, or what was taken as given", null=True),
            column("from_offset", pa.int64(), "offset of the first record it caused", null=True),
            column("expected", pa.string(), "records that should be written, as JSON"),
            column("found", pa.string(), "records that it caused, as JSON"),
        ]
    ),
    key=("completed_time", "connection", "correlation_id"),
)

ROWS_AT_A_TIME = 5_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_YEAR_ONE = -62_135_596_800_000
"""Milliseconds from 1970 back to the year 1."""


def write_audit(lake: LakeUri, judged: Iterable[Judged]) -> int:
    """Replaces the table in the lake at ``lake`` by ``judged``, as a stream. Returns the number of rows.

    Raises UsageError if there is no lake, or if it cannot be read or written.
    """
    written = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal written
        rows = (_row(judgment) for judgment in judged if worth_a_row(judgment))
        while some := list(islice(rows, ROWS_AT_A_TIME)):
            written += len(some)
            yield pa.RecordBatch.from_pylist(some, schema=AUDIT.schema)

    open_ledger(lake)
    location = f"{uri_of(lake)}/{AUDIT.name}"
    try:
        write_deltalake(
            location,
            pa.RecordBatchReader.from_batches(AUDIT.schema, batches()),
            mode="overwrite",
            schema_mode="overwrite",
            name=AUDIT.name,
            description=AUDIT.comment,
            storage_options=storage_options(location),
        )
    except (DeltaError, OSError) as problem:
        where = f"{lake}/{AUDIT.name}"
        cannot = UsageError(f"{where}: cannot be written ({first_line_of(problem)})")
        raise fault_of_disk(where, problem) or cannot from None
    return written


def worth_a_row(judged: Judged) -> bool:
    """Whether the request is more than a plain heartbeat."""
    request = judged.line.request if isinstance(judged.line, RequestLine) else None
    quiet = isinstance(request, BrokerHeartbeatRequest) and not request.offline_log_dirs
    return not quiet or bool(judged.written) or judged.verdict is not Verdict.SAME


def records_as_json(records: Sequence[VersionedRecord]) -> list[dict[str, Any]]:
    """Type, version and fields of each record, in Kafka's JSON form."""
    return [
        {
            "type": TYPE_NAMES.get(type(versioned_record.record), "UNKNOWN_RECORD"),
            "version": versioned_record.version,
            "data": json_values.write(versioned_record.record),
        }
        for versioned_record in records
    ]


def _row(judgment: Judged) -> dict[str, Any]:
    line = judgment.line
    read = line if isinstance(line, RequestLine) else None
    return {
        "api": line.api,
        "api_version": line.version,
        "broker_id": getattr(read.request if read else line, "broker_id", None),
        "client_id": line.client_id,
        "correlation_id": line.correlation_id,
        "connection": line.connection,
        "forwarded": line.forwarded,
        "received_time": _time(line.received_ms),
        "completed_time": _time(line.completed_ms),
        "error_code": read and read.error_code,
        "request": read and json.dumps(json_values.write(read.request)),
        "response": read and json.dumps(json_values.write(read.response)),
        "verdict": judgment.verdict.value,
        "quirk": judgment.quirk,
        "reason": judgment.reason,
        "from_offset": judgment.from_offset,
        "expected": json.dumps(records_as_json(judgment.expected)),
        "found": json.dumps(records_as_json(judgment.written)),
    }


def _time(milliseconds: float) -> datetime:
    """The time of a clock, which may be wrong. A time before the year 1 becomes the beginning of the year 1."""
    return _EPOCH + timedelta(milliseconds=max(milliseconds, _YEAR_ONE))


SHOWN = 100
"""The number of differences, and of breaches per invariant, kept in full. The table has all differences."""

KINDS = 100
"""The most kinds of the controller's own work that are counted separately, as a transaction may have any name."""

MANY = 10
"""With this many times more requests that wrote nothing than requests that caused a record, a log's clock is off."""


@dataclass(slots=True)
class Kind:
    """Records of one cause."""

    first_offset: int
    records: int = 0


@dataclass(slots=True)
class Summary:
    """Counts, and the first differences in full. Call `add` for each item."""

    end_offset: int = 0
    verdicts: dict[str, Counter[str]] = field(default_factory=dict)
    """API -> verdict -> requests."""
    quirks: Counter[str] = field(default_factory=Counter)
    undecided: Counter[str] = field(default_factory=Counter)
    """Reason -> requests."""
    own: dict[str, Kind] = field(default_factory=dict)
    """Cause -> records that the controller wrote on its own, or whose request is not in the request log."""
    differences: list[Judged] = field(default_factory=list)
    breaches: dict[int, list[LogBreach]] = field(default_factory=dict)
    breach_counts: Counter[int] = field(default_factory=Counter)
    checked: bool = False
    """Whether the invariants were checked."""
    logs: Sequence[RequestLog] = ()
    """The request logs that were given."""
    newer: int = 0
    """Requests that are not decidable because they, or the cluster, are newer than the reference controller."""
    newer_records: int = 0
    """Records without a decided cause for the same reason."""
    caused: int = 0
    """Requests that caused a record."""
    idle: int = 0
    """Requests that differ and caused no record."""
    unexplained: int = 0
    """Records whose request is not in the request log."""
    unknown: dict[int, Kind] = field(default_factory=dict)
    """Unknown record type -> its records, if the invariants were checked."""

    def add(self, result: Judged | OwnWork) -> None:
        """Count a verdict or the controller's own work."""
        if isinstance(result, OwnWork):
            cause = result.cause if result.cause in self.own or len(self.own) < KINDS else "other"
            self.own.setdefault(cause, Kind(result.from_offset)).records += len(result.records)
            self.newer_records += len(result.records) if result.newer else 0
            self.unexplained += len(result.records) if result.unexplained else 0
            return
        self.newer += result.newer
        if result.verdict is Verdict.DIFFERS:
            self.idle += result.from_offset is None
        elif result.verdict is not Verdict.UNDECIDED:
            self.caused += result.from_offset is not None
        self.verdicts.setdefault(result.line.api, Counter())[result.verdict.value] += 1
        if result.verdict is Verdict.QUIRK:
            self.quirks[result.quirk or ""] += 1
        elif result.verdict is Verdict.UNDECIDED:
            self.undecided[(result.reason or "").partition(":")[0]] += 1
        elif result.verdict is not Verdict.SAME and len(self.differences) < SHOWN:
            self.differences.append(result)

    def add_breach(self, breach: LogBreach) -> None:
        """Count a breach of an invariant."""
        self.breach_counts[breach.number] += 1
        kept = self.breaches.setdefault(breach.number, [])
        if len(kept) < SHOWN:
            kept.append(breach)

    @property
    def judged(self) -> int:
        """Number of requests with a verdict."""
        return sum(counts.total() for counts in self.verdicts.values())

    def count(self, verdict: Verdict) -> int:
        """Number of requests with this verdict."""
        return sum(counts[verdict.value] for counts in self.verdicts.values())

    @property
    def mistimed(self) -> bool:
        """Whether the clock of the request log seems to be another's.

        Many requests wrote nothing where they should have, many records have no request, and hardly any request caused
        a record.
        """
        return min(self.idle, self.unexplained) >= MANY * max(self.caused, 1)

    @property
    def has_findings(self) -> bool:
        """Whether a request differs, unless by a wrong clock, or an invariant is broken."""
        differ = self.count(Verdict.DIFFERS) + self.count(Verdict.ORDER)
        return bool(self.breach_counts or (differ and not self.mistimed))

    @property
    def undecided_because(self) -> str | None:
        """Why the whole audit is not decidable, None if it is decidable."""
        unknowns = [f"{self.newer:,} requests"] if self.newer else []
        unknowns += [f"{self.newer_records:,} records"] if self.newer_records and self.judged else []
        unknowns += [f"record type {number}" for number in self.unknown]
        if unknowns:
            return f"not decidable: {' and '.join(unknowns)}: newer than this audit, which knows Kafka up to {NEWEST}"
        if self.logs and not self.judged:
            rejected = sum((log.rejected for log in self.logs), Counter[str]())
            why = f" (not readable: {'; '.join(rejected)})" if rejected else ""
            return (
                "not decidable: no request in the given logs: give what a controller's kafka.request.logger writes"
                + why
            )
        if self.mistimed:
            return (
                f"not decidable: {self.idle:,} requests wrote nothing at their time where they should have, "
                f"{self.caused:,} caused a record: if the controller's clock is not UTC, set --time-zone"
            )
        if self.judged and self.count(Verdict.UNDECIDED) == self.judged:
            (reason, _), *_ = self.undecided.most_common(1)
            return f"not decidable: none of the {self.judged:,} requests: mostly, {reason}"
        return None

    @property
    def clean(self) -> bool:
        """Whether the audit was decidable and found nothing."""
        return not self.has_findings and self.undecided_because is None

    def as_json(self, logs: list[RequestLog]) -> dict[str, Any]:
        """For programs."""
        answer: dict[str, Any] = {
            "end_offset": self.end_offset,
            "requests": self.judged,
            "verdicts": {verdict.value: self.count(verdict) for verdict in Verdict},
            "apis": {api: dict(counts) for api, counts in sorted(self.verdicts.items())},
            "quirks": dict(self.quirks),
            "not_decidable": dict(self.undecided),
            "newer_than_known": {"requests": self.newer, "records": self.newer_records},
            "differences": [_difference(judgment) for judgment in self.differences],
            "other_records": {
                cause: {"records": kind.records, "first_offset": kind.first_offset} for cause, kind in self.own.items()
            },
            "lines": {
                "read": sum(log.read for log in logs),
                "other_apis": sum(log.dropped for log in logs),
                "unreadable": dict(sum((log.rejected for log in logs), Counter())),
            },
            "decidable": self.undecided_because is None,
            "clean": self.clean,
        }
        if self.checked:
            answer["invariants"] = [
                {
                    "invariant": f"R-INV-{number}",
                    "statement": INVARIANTS[number].statement,
                    "known": INVARIANTS[number].known,
                    "breaches": self.breach_counts[number],
                    "first": [
                        {"offset": breach.offset, "problem": breach.problem} for breach in self.breaches.get(number, [])
                    ],
                }
                for number in INVARIANTS
            ]
        return answer


def _difference(judgment: Judged) -> dict[str, Any]:
    return {
        "api": judgment.line.api,
        "completed_ms": judgment.line.completed_ms,
        "client_id": judgment.line.client_id,
        "verdict": judgment.verdict.value,
        "reason": judgment.reason,
        "from_offset": judgment.from_offset,
        "expected": records_as_json(judgment.expected),
        "found": records_as_json(judgment.written),
        "fields": [
            {"field": name, "expected": expected, "found": actual}
            for name, expected, actual in differing_fields(judgment)
        ],
    }


def differing_fields(judged: Judged) -> list[tuple[str, Any, Any]]:
    """The differences in content: record and field, expected and found. A record that one side lacks is one difference.

    Where the answer is another, its fields. If the content is the same, the order differs: see `out_of_place`.
    """
    operation = operation_of(judged.line.request) if isinstance(judged.line, RequestLine) else ""
    return [*judged.answer, *differences(operation, judged.written, judged.expected)]


def differences(
    operation: str, written: Sequence[VersionedRecord], expected: Sequence[VersionedRecord]
) -> list[tuple[str, Any, Any]]:
    """The differences of the records of an operation, by the name that `jbod_model.audit.compare` has for it."""
    fields = []
    for where, recorded, ours in compare.records(operation, written, expected):
        at = re.match(r"records\[(\d+)\]\.?", where)
        name = where if at is None else where[at.end() :]
        if at is not None and name:
            name = f"{subject(written[int(at[1])])}.{name}"
        fields.append((name or "record", ours, recorded))
    return fields


def short(versioned: VersionedRecord) -> str:
    """A record in one line, without fields at their default."""
    return record_text(records_as_json((versioned,))[0])


def record_text(record: Mapping[str, Any]) -> str:
    """The same for a record of `records_as_json`."""
    data = {name: value for name, value in record["data"].items() if value not in (None, [], -1, -2)}
    return f"{record['type']} version {record['version']} {data}"


def subject(versioned: VersionedRecord) -> str:
    """The type of a record, with the partition for a partition record."""
    record = versioned.record
    name = TYPE_NAMES.get(type(record), "UNKNOWN_RECORD")
    if isinstance(record, (PartitionRecord, PartitionChangeRecord)):
        return f"{name} {record.topic_id}-{record.partition_id}"
    return name


def out_of_place(judged: Judged) -> list[tuple[str, int, int]]:
    """Records in another order: (name, expected place, found place), from 1. Empty if the content differs."""
    if Counter(judged.expected) != Counter(judged.written):
        return []
    expected: dict[VersionedRecord, list[int]] = defaultdict(list)
    for place, record in enumerate(judged.expected, 1):
        expected[record].append(place)
    places = [(subject(record), expected[record].pop(0), place) for place, record in enumerate(judged.written, 1)]
    return [place for place in places if place[1] != place[2]]


def audit(
    log_dir: Path, logs: Sequence[RequestLog], lake: LakeUri | None, configs: Mapping[str, str], *, invariants: bool
) -> Summary:
    """Judges the requests of ``logs`` by the metadata log in ``log_dir``, and checks the log's own ``invariants``.

    Reads the log once for each of the two. ``configs`` come from the controller's server.properties. Raises UsageError
    for wrong paths, MalformedLog and ReplayViolation for an invalid log.
    """
    check_request_logs(logs)
    summary = Summary(checked=invariants, logs=logs)
    if invariants:
        reader = LogReader(MetadataLog.open(log_dir), keep_unknown=True)
        for breach in check_log(_counted(committed(reader), summary)):
            summary.add_breach(breach)
        summary.end_offset = _end_of(reader, log_dir)
    if logs:
        judged = _judged(log_dir, logs, configs, summary)
        first = next(judged, None)
        if lake is not None and first is not None:  # logs without a request replace nothing
            write_audit(lake, chain([first], judged))
        for _ in judged:
            pass
    return summary


def check_request_logs(logs: Sequence[RequestLog]) -> None:
    """Raises UsageError for a request log that is no file."""
    for log in logs:
        if not log.path.is_file():
            raise UsageError(f"{log.path}: there is no such file; give a controller's request log")


def _counted(entries: Iterable[LogEntry], summary: Summary) -> Iterator[LogEntry]:
    """Passes the entries on and counts unknown records."""
    for entry in entries:
        if isinstance(entry.record, VersionedRecord) and isinstance(entry.record.record, UnknownRecord):
            summary.unknown.setdefault(entry.record.record.api_key, Kind(entry.offset)).records += 1
        yield entry


def _judged(
    log_dir: Path, logs: Sequence[RequestLog], configs: Mapping[str, str], summary: Summary
) -> Iterator[Judged]:
    reader = LogReader(MetadataLog.open(log_dir), keep_unknown=True)
    audit = Audit(
        committed(reader),
        [log.requests_and_newer() for log in logs],
        cluster_id=cluster_id(log_dir),
        static_configs=configs,
    )
    for finding in audit:
        summary.add(finding)
        if isinstance(finding, Judged):
            yield finding
    summary.end_offset = _end_of(reader, log_dir)


def _end_of(reader: LogReader, log_dir: Path) -> int:
    """The end offset of a log that was read. Raises UsageError if it has no record."""
    if reader.next_offset == 0:
        raise UsageError(f"{log_dir}: no record of this log may be read yet")
    return reader.next_offset


def cluster_id(log_dir: Path) -> str | None:
    """The cluster id in the directory's meta.properties, if there is one."""
    around = log_dir.parent if log_dir.name == PARTITION_DIRECTORY else log_dir
    if not (around / FILE_NAME).is_file():
        return None
    return read_meta_properties(str(around)).cluster_id
