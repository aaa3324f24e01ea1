"""The table ``audit``: each request that could change directories, in-sync sets or leaders, with its verdict.

Every run replaces the table in one commit. Heartbeats that neither report a directory nor change anything are counted
but not written, unless they differ.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from shlex import quote
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError

from jbod_model.audit import Judged, Verdict
from jbod_model.errors import UsageError, first_line_of
from jbod_model.formats import json_values
from jbod_model.formats.records import TYPE_NAMES, VersionedRecord
from jbod_model.formats.request_log import RequestLine
from jbod_model.formats.requests import BrokerHeartbeatRequest
from pipelines.lake.delta import delta_at, uri_of
from pipelines.lake.tables import TIME, Table, column
from pipelines.lake.uris import LakeUri
from pipelines.storage.objects import storage_options

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

    Raises UsageError if there is no lake, or if it cannot be written.
    """
    written = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal written
        rows = (_row(one) for one in judged if worth_a_row(one))
        while some := list(islice(rows, ROWS_AT_A_TIME)):
            written += len(some)
            yield pa.RecordBatch.from_pylist(some, schema=AUDIT.schema)

    root = uri_of(lake)
    location = f"{root}/{AUDIT.name}"
    try:
        delta_at(f"{root}/ledger")
    except (TableNotFoundError, DeltaError, OSError):
        raise UsageError(f"{lake}: no lake there: make one with jbod replay LOG_DIR --lake {quote(lake)}") from None
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
        raise UsageError(f"{lake}/{AUDIT.name}: cannot be written ({first_line_of(problem)})") from None
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
            "type": TYPE_NAMES.get(type(one.record), "UNKNOWN_RECORD"),
            "version": one.version,
            "data": json_values.write(one.record),
        }
        for one in records
    ]


def _row(one: Judged) -> dict[str, Any]:
    line = one.line
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
        "verdict": one.verdict.value,
        "quirk": one.quirk,
        "reason": one.reason,
        "from_offset": one.from_offset,
        "expected": json.dumps(records_as_json(one.expected)),
        "found": json.dumps(records_as_json(one.written)),
    }


def _time(milliseconds: float) -> datetime:
    """The time of a clock, which may be wrong. A time before the year 1 becomes the beginning of the year 1."""
    return _EPOCH + timedelta(milliseconds=max(milliseconds, _YEAR_ONE))
