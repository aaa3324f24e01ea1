"""Asks of a log on disk whether it is a behaviour of the specification (docs/spec/behaviour.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from jbod_model.audit import Audit
from jbod_model.errors import UsageError
from jbod_model.formats.log import LogEntry, LogReader, MetadataLog
from jbod_model.formats.request_log_file import RequestLog
from jbod_model.ids import IdTable
from jbod_model.profiles import KAFKA, Profile
from jbod_model.replay.transactions import committed
from lab.behaviour import Behaviour, Verdict, judge, with_requests
from pipelines.audit import check_request_logs, cluster_id


def behaviour(
    log_dir: Path, logs: Sequence[RequestLog], configs: Mapping[str, str], profile: Profile, ids: IdTable
) -> Verdict:
    """Explains the metadata log in ``log_dir``, by the requests of ``logs`` if there are any. Reads it several times.

    ``configs`` come from the controller's server.properties. Raises UsageError for wrong paths and for requests beside
    another profile than Kafka's, MalformedLog for an invalid log.
    """
    check_request_logs(logs)
    if logs and profile != KAFKA:
        raise UsageError(f"--requests are of a Kafka: leave out --profile {profile.name}, or the requests")
    log = MetadataLog.open(log_dir)

    def read() -> Iterator[LogEntry]:
        return committed(LogReader(log, keep_unknown=True))

    if not logs:
        return judge(read, Behaviour(read, profile=profile, ids=ids, static_configs=configs))
    requests = [request_log.requests_and_newer() for request_log in logs]
    return judge(read, with_requests(Audit(read(), requests, cluster_id=cluster_id(log_dir), static_configs=configs)))
