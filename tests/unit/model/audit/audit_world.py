"""Traces of Kafka's own controller as what an audit reads: a request log, line by line, and a metadata log."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jbod_model.controller import Controller, ControllerMemory
from jbod_model.formats import json_values
from jbod_model.formats.batch import read_batch
from jbod_model.formats.codec import decode
from jbod_model.formats.log import LogEntry, LogWriter
from jbod_model.formats.records import NoOpRecord, VersionedRecord
from jbod_model.formats.request_log import APIS, RequestLine, parse_line
from jbod_model.formats.requests import BrokerRegistrationRequest, DeleteTopicsRequest, Request
from jbod_model.formats.responses import BrokerHeartbeatResponse, RequestRefused, Response
from jbod_model.replay.image import Image
from lab.conformance.operations import Circumstances, read_context, read_request
from lab.conformance.trace import read_trace, recorded_records

START_MS = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp() * 1000)
OWN_WORK = frozenset({"sessionExpired", "balanceLeaders", "electUncleanLeaders", "config", "incrementalAlterConfigs"})
"""Operations of a trace that are no request of the log."""


def log_line(request: Request, response: Response | RequestRefused, time_ms: int, total_ms: float = 1.0) -> str:
    """The line of a request, in Kafka's form."""
    api = next(api for api in APIS.values() if api.request is type(request))
    body = {
        "isForwarded": False,
        "requestHeader": {
            "requestApiKey": api.key,
            "requestApiVersion": api.versions[-1],
            "correlationId": time_ms % 1_000_000,
            "clientId": str(getattr(request, "broker_id", "admin")),
            "requestApiKeyName": api.name,
        },
        "request": _request(request),
        "response": _response(response),
        "connection": "127.0.0.1:9093-127.0.0.1:40000-0-0",
        "totalTimeMs": total_ms,
    }
    stamp = datetime.fromtimestamp(time_ms / 1000, UTC)
    text = f"{stamp:%Y-%m-%d %H:%M:%S},{time_ms % 1000:03d}"
    return f"[{text}] DEBUG Completed request:{json.dumps(body, separators=(',', ':'))} (kafka.request.logger)"


def _request(request: Request) -> Any:
    if isinstance(request, DeleteTopicsRequest):
        return {"topics": [{"name": None, "topicId": str(topic_id)} for topic_id in request.topic_ids]}
    return json_values.write(request)


def _response(response: Response | RequestRefused) -> Any:
    if isinstance(response, RequestRefused):
        return {"throttleTimeMs": 0, "errorCode": response.code.value, "errorMessage": response.problem}
    form = {"throttleTimeMs": 0, **json_values.write(response)}
    if isinstance(response, BrokerHeartbeatResponse):
        del form["inControlledShutdown"]
    return form


def entries_of(writer: LogWriter) -> Iterator[LogEntry]:
    """The records of a log that was not written to disk."""
    position, data = 0, writer.bytes
    while position < len(data):
        batch = read_batch(data, position, file="log")
        assert batch is not None
        for index, value in enumerate(batch.values):
            offset = batch.header.base_offset + index
            record = decode(value, file="log", offset=offset)
            yield LogEntry(offset, batch.header.epoch, batch.header.max_timestamp, record, batch.header)
        position += batch.header.size


@dataclasses.dataclass(slots=True)
class Recorded:
    """A trace as two logs; ``step_ms`` lie between two operations."""

    step_ms: int = 1_000
    requests: list[RequestLine] = dataclasses.field(default_factory=list)
    log: LogWriter = dataclasses.field(default_factory=LogWriter)

    @classmethod
    def of(cls, path: Path, *, step_ms: int = 1_000, limit: int | None = None) -> Recorded:
        """The two logs of the first ``limit`` operations."""
        recorded, number = cls(step_ms), 0
        for number, line in zip(range(limit or 1 << 30), _operations(path), strict=False):
            recorded._add(number, line)
        end = START_MS + (number + 1) * step_ms + 10_000
        recorded.log.append([VersionedRecord(NoOpRecord(), 0)], epoch=1, timestamp=end)
        return recorded

    def entries(self) -> Iterator[LogEntry]:
        """The log, without writing it."""
        return entries_of(self.log)

    _image: Image = dataclasses.field(default_factory=Image)
    _trace: Circumstances = dataclasses.field(default_factory=lambda: Circumstances(False, ControllerMemory()))

    def _add(self, number: int, line: dict[str, Any]) -> None:
        now = START_MS + number * self.step_ms
        records = recorded_records(line)
        if line["op"] == "bootstrap":
            self._trace = Circumstances(line.get("cleanShutdownDetection") is True, ControllerMemory())
        elif line["op"] not in OWN_WORK:
            self._request(line, now)
        if records:
            base = self.log.append(records, epoch=1, timestamp=now)
            for offset, versioned in enumerate(records, base):
                self._trace.memory.before(versioned.record, self._image)
                self._image = self._image.apply(versioned.record, offset)

    def _request(self, line: dict[str, Any], now: int) -> None:
        request = read_request(line)
        try:
            response: Response | RequestRefused = (
                Controller().handle(self._image, request, read_context(line, self._trace)).response
            )
        except RequestRefused as refused:
            response = refused
        parsed = parse_line(log_line(request, response, now).encode())
        assert isinstance(parsed, RequestLine), parsed
        self.requests.append(parsed)
        if isinstance(request, BrokerRegistrationRequest) and "errorCode" not in line:
            self._trace = dataclasses.replace(self._trace, cluster_id=request.cluster_id)


def _operations(path: Path) -> Iterator[dict[str, Any]]:
    return (line for _, line in read_trace(path) if line["op"] != "image")
