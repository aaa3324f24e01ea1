"""Runs an audit on files. Returns a summary and, if there is a lake, writes its table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from jbod_model.audit import Audit, Judged
from jbod_model.audit.log_invariants import check_log
from jbod_model.errors import UsageError
from jbod_model.formats.log import PARTITION_DIRECTORY, LogEntry, LogReader, MetadataLog
from jbod_model.formats.records import UnknownRecord, VersionedRecord
from jbod_model.formats.request_log_file import RequestLog
from jbod_model.replay.transactions import committed
from jbod_model.storage.meta_properties import FILE_NAME, read_meta_properties
from pipelines.audit.summary import Kind, Summary
from pipelines.audit.table import write_audit


def audit(
    log_dir: Path, logs: Sequence[RequestLog], lake: str | None, configs: Mapping[str, str], *, invariants: bool
) -> Summary:
    """Judges the requests of ``logs`` by the metadata log in ``log_dir``, and checks the log's own ``invariants``.

    Reads the log once for each of the two. ``configs`` come from the controller's server.properties. Raises UsageError
    for wrong paths, MalformedLog and ReplayViolation for an invalid log.
    """
    check_request_logs(logs)
    summary = Summary(checked=invariants)
    if invariants:
        reader = LogReader(MetadataLog.open(log_dir), keep_unknown=True)
        for breach in check_log(_counted(committed(reader), summary)):
            summary.add_breach(breach)
        summary.end_offset = reader.next_offset
    if logs:
        judged = _judged(log_dir, logs, configs, summary)
        if lake is None:
            for _ in judged:
                pass
        else:
            write_audit(lake, judged)
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
    found = Audit(
        committed(reader),
        [log.requests_and_newer() for log in logs],
        cluster_id=cluster_id(log_dir),
        static_configs=configs,
    )
    for one in found:
        summary.add(one)
        if isinstance(one, Judged):
            yield one
    summary.end_offset = reader.next_offset


def cluster_id(log_dir: Path) -> str | None:
    """The cluster id in the directory's meta.properties, if there is one."""
    around = log_dir.parent if log_dir.name == PARTITION_DIRECTORY else log_dir
    if not (around / FILE_NAME).is_file():
        return None
    return read_meta_properties(str(around)).cluster_id
