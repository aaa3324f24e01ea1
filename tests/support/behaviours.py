"""Real logs, explained by the specification."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from functools import cache

from jbod_model.audit import Audit
from jbod_model.formats.log import LogEntry, LogReader, MetadataLog
from jbod_model.formats.request_log import NewerLine, RequestLine
from jbod_model.formats.request_log_file import RequestLog
from jbod_model.replay.transactions import committed
from lab.behaviour import Behaviour, Verdict, judge, with_requests
from tests.support.paths import CLUSTERS, metadata_dir


@cache
def log_of(kafka: str, node: str | None = None) -> tuple[LogEntry, ...]:
    """The committed entries of a node's log."""
    return tuple(committed(LogReader(MetadataLog.open(metadata_dir(kafka, node)), keep_unknown=True)))


@cache
def requests_of(kafka: str) -> tuple[tuple[RequestLine | NewerLine, ...], ...]:
    """The lines of each controller's request log."""
    paths = sorted((CLUSTERS / kafka).glob("requests-*.log.gz"))
    return tuple(tuple(RequestLog(path, UTC).requests_and_newer()) for path in paths)


def guessed(entries: Sequence[LogEntry]) -> Verdict:
    """The answer from the records alone."""
    return judge(lambda: entries, Behaviour(lambda: entries))


def with_request_logs(kafka: str, entries: Sequence[LogEntry]) -> Verdict:
    """The answer by the requests of a cluster."""
    audit = Audit(entries, [iter(lines) for lines in requests_of(kafka)])
    return judge(lambda: entries, with_requests(audit))
