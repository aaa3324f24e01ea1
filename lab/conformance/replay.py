"""Replays a trace: computes each operation on the state before it, then applies the recorded records (R-TRACE-6).

The state follows the recorded records, never the computed ones, so one mismatch does not cause others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jbod_model.audit import compare
from jbod_model.audit.compare import Difference
from jbod_model.controller import Context, Controller, ControllerMemory, Result
from jbod_model.errors import MalformedLog, ReplayViolation
from jbod_model.formats.json_values import JsonMismatch
from jbod_model.formats.metadata_version import LEVELS, METADATA_VERSION
from jbod_model.formats.records import ConfigRecord, FeatureLevelRecord, Record, VersionedRecord
from jbod_model.formats.requests import BrokerRegistrationRequest, IncrementalAlterConfigsRequest, Request
from jbod_model.formats.responses import ControllerFault, KafkaError, RequestRefused
from jbod_model.profiles import KAFKA, REFERENCE, Profile, Release, release_of
from jbod_model.replay.image import Image
from lab.conformance.operations import (
    Circumstances,
    read_context,
    read_request,
    response_form,
)
from lab.conformance.phases import phases
from lab.conformance.report import Mismatch, Report, Thrown
from lab.conformance.trace import image_as_json, read_trace, recorded_records


def conform(path: str | Path, profile: Profile = KAFKA) -> Report:
    """Replay the trace at ``path`` and compare Kafka's records and answers with those of a controller with ``profile``.

    UsageError if the file does not exist, MalformedLog if it is not a trace. Everything else is in the report.
    """
    replay = _Replay(Path(path), profile)
    for number, line in read_trace(Path(path)):
        try:
            replay.line(number, line)
        except JsonMismatch as problem:
            raise MalformedLog(str(path), replay.offset, f"line {number}: {problem}") from None
        if replay.stopped:
            break
    return replay.report


@dataclass(slots=True)
class _Answer:
    """Records, response and top-level error of one request."""

    records: tuple[VersionedRecord, ...] = ()
    response: Any = None
    error: KafkaError = KafkaError.NONE
    problem: str | None = None


@dataclass(slots=True)
class _Replay:
    path: Path
    profile: Profile
    report: Report = field(init=False)
    image: Image = field(default_factory=Image)
    offset: int = 0
    time_ms: int = -1
    circumstances: Circumstances | None = None
    stopped: bool = False
    """A recorded record cannot follow the ones before it, so nothing after it can be judged."""

    def __post_init__(self) -> None:
        self.report = Report(str(self.path))

    def line(self, number: int, line: dict[str, Any]) -> None:
        """Take one line of the trace."""
        if line["op"] == "image":
            self._image(number, line)
            return
        if self.circumstances is None:
            if line["op"] != "bootstrap":
                raise JsonMismatch("the trace does not begin with bootstrap")
            self._bootstrap(number, line)
            return
        self._operation(number, line, self.circumstances)

    def _bootstrap(self, number: int, line: dict[str, Any]) -> None:
        """The first records are given, not computed. The header must agree with them."""
        records = recorded_records(line)
        self.circumstances = Circumstances(line.get("cleanShutdownDetection") is True, ControllerMemory())
        named = LEVELS.get(str(line.get("metadataVersion")))
        levels = [
            record.record.feature_level
            for record in records
            if isinstance(record.record, FeatureLevelRecord) and record.record.name == METADATA_VERSION
        ]
        differences = [("metadataVersion", named, levels[-1] if levels else None)] if levels[-1:] != [named] else []
        self._note(number, line, [*self._position(line), *differences])
        self._apply(number, line, records)

    def _operation(self, number: int, line: dict[str, Any], circumstances: Circumstances) -> None:
        request, context = read_request(line), read_context(line, circumstances)
        recorded = recorded_records(line)
        differences = list(self._position(line))
        ours = self._answer(line, request, context, self.profile)
        self.report.operations += 1
        if "exception" in line:
            self._thrown(number, line, request, context, ours, recorded)
        else:
            differences += _differences(line, ours, recorded)
            if not differences:
                differences += self._phases(request, circumstances, recorded, ours.records)
            self.report.matched += not differences
        self._note(number, line, differences)
        self._apply(number, line, recorded)
        if isinstance(request, BrokerRegistrationRequest) and "errorCode" not in line:
            self.circumstances = replace(
                circumstances,
                cluster_id=circumstances.cluster_id or request.cluster_id,
                release=_newest(circumstances.release, request),
            )

    def _answer(self, line: dict[str, Any], request: Request, context: Context, profile: Profile) -> _Answer:
        try:
            result = Controller(profile).handle(self.image, request, context)
        except RequestRefused as refused:
            return _Answer(error=refused.code, problem=refused.problem)
        records = result.records or _unchanged_config(line["op"], request, result)
        return _Answer(records, response_form(line, result))

    def _phases(
        self,
        request: Request,
        circumstances: Circumstances,
        recorded: tuple[VersionedRecord, ...],
        ours: tuple[VersionedRecord, ...],
    ) -> Iterator[Difference]:
        """Equal records must also come group by group (R-TRACE-8)."""
        theirs = phases(request, self.image, circumstances.memory, recorded)
        own = phases(request, self.image, circumstances.memory, ours)
        if theirs != own:
            yield "records.order of groups", theirs, own

    def _position(self, line: dict[str, Any]) -> Iterator[Difference]:
        """Offsets follow each other and time does not go back."""
        yield from compare.values("baseOffset", line.get("baseOffset"), self.offset)
        time_ms = line.get("timeMs")
        if type(time_ms) is not int or time_ms < self.time_ms:
            yield "timeMs", time_ms, self.time_ms
        else:
            self.time_ms = time_ms

    def _thrown(
        self,
        number: int,
        line: dict[str, Any],
        request: Request,
        context: Context,
        ours: _Answer,
        recorded: tuple[VersionedRecord, ...],
    ) -> None:
        """An operation on which Kafka failed: what explains it, and the correct answer."""
        without_flaws = replace(self.profile, controller=self.profile.controller.without())
        repaired = self._answer(line, request, context, without_flaws)
        if repaired.error is KafkaError.NONE:
            answer = f"{repaired.response}, {len(repaired.records)} records"
        else:
            answer = f"{repaired.error.name}: {repaired.problem}"
        self.report.thrown.append(
            Thrown(
                operation=number,
                op=line["op"],
                offset=self.offset,
                exception=str(line["exception"]),
                fault=ours.problem if ours.error is ControllerFault.code else None,
                answer=answer,
            )
        )
        if recorded or line.get("errorCode") != ControllerFault.code or ours.error is not ControllerFault.code:
            failure = {"exception": line["exception"], "errorCode": line.get("errorCode"), "records": len(recorded)}
            self._note(number, line, [("exception", failure, ours.problem or f"{len(ours.records)} records")])

    def _apply(self, number: int, line: dict[str, Any], records: tuple[VersionedRecord, ...]) -> None:
        """Apply the recorded records to the state; one that cannot be applied ends the replay."""
        for index, versioned in enumerate(records):
            record: Record = versioned.record
            try:
                if self.circumstances is not None:
                    self.circumstances.memory.before(record, self.image)
                self.image = self.image.apply(record, self.offset, profile=self.profile)
            except ReplayViolation as violation:
                self._note(number, line, [(f"records[{index}]", violation.problem, "the replay ends here")])
                self.stopped = True
                return
            self.offset += 1
            self.report.records += 1

    def _image(self, number: int, line: dict[str, Any]) -> None:
        """The whole state, offline replicas included (R-TRACE-7)."""
        self.report.images += 1
        cordons = "cordonedLogDirs" in json.dumps(line.get("brokers"))
        ours = image_as_json(self.image, self.offset - 1, profile=self.profile, cordons=cordons)
        same = json.dumps(line) == json.dumps(ours)  # the usual case, and cheap to detect
        differences = [] if same else list(compare.values("image", line, ours))
        self.report.images_matched += not differences
        self._note(number, line, differences)

    def _note(self, number: int, line: dict[str, Any], differences: list[Difference]) -> None:
        for where, theirs, own in differences:
            self.report.mismatches.append(
                Mismatch(operation=number, op=line["op"], offset=self.offset, field=where, recorded=theirs, ours=own)
            )


def _newest(known: Release | None, request: BrokerRegistrationRequest) -> Release:
    """The release of the newest broker: the brokers of a trace have the release of its controller (R-RELEASE-3)."""
    levels = [feature.max_supported_version for feature in request.features if feature.name == METADATA_VERSION]
    newest = release_of(max(levels)) if levels else REFERENCE
    return newest if known is None else max(known, newest)


def _differences(line: dict[str, Any], ours: _Answer, recorded: tuple[VersionedRecord, ...]) -> Iterator[Difference]:
    """Error, response and records of an operation that Kafka answered."""
    yield from compare.values("errorCode", line.get("errorCode", 0), int(ours.error))
    if "errorCode" in line:
        yield from compare.values("error", line.get("error"), ours.error.name)
    yield from compare.responses(line["op"], line.get("response"), ours.response)
    yield from compare.records(line["op"], recorded, ours.records)


def _unchanged_config(op: str, request: Request, result: Result) -> tuple[VersionedRecord, ...]:
    """A trace writes its configuration records itself, even if nothing changes and Kafka would write none."""
    if op != "config" or not isinstance(request, IncrementalAlterConfigsRequest):
        return result.records
    (resource,) = request.resources
    (config,) = resource.configs
    record = ConfigRecord(
        resource_type=resource.resource_type, resource_name=resource.resource_name, name=config.name, value=config.value
    )
    return (VersionedRecord(record, 0),)
