"""A metadata log beside the controllers' request logs: the requests say what was asked (R-BEHAVE-7).

The audit finds the request of each record (docs/requests.md). Where it finds none that writes the record, or a request
that should have written something and did not, the log is no behaviour of the specification with these requests.
"""

from __future__ import annotations

from collections.abc import Iterator

from jbod_model.audit import Audit, Judged, OwnWork, Verdict
from jbod_model.errors import ReplayViolation
from jbod_model.formats.request_log import RequestLine
from lab.behaviour.steps import NAMES, Refusal, Step, Undecidable, kind_of


def with_requests(audit: Audit) -> Iterator[Step | Refusal | Undecidable]:
    """Each step in order, or where it ends; a request that wrote nothing is no step."""
    try:
        for finding in audit:
            step = _own_work(finding) if isinstance(finding, OwnWork) else _request(finding, audit)
            if step is not None:
                yield step
                if not isinstance(step, Step):
                    return
    except ReplayViolation as violation:
        yield Refusal(offset=violation.offset, problem=violation.problem)


def _own_work(work: OwnWork) -> Step | Refusal | Undecidable:
    if work.newer:
        return Undecidable(offset=work.from_offset, problem=work.cause)
    if not work.unexplained:
        return Step(
            kind=work.cause, from_offset=work.from_offset, records=work.records, modelled=work.cause in NAMES.values()
        )
    line, expected = work.nearest or (None, ())
    return Refusal(
        offset=work.from_offset,
        problem="no logged request, and no work of the controller's own, writes this record",
        written=work.records,
        nearest=None if line is None else _named(line),
        expected=expected,
    )


def _named(line: RequestLine) -> str:
    return f"{line.api} of client {line.client_id}" if line.client_id else line.api


def _request(judgement: Judged, audit: Audit) -> Step | Refusal | Undecidable | None:
    offset = audit.known.next_offset if judgement.from_offset is None else judgement.from_offset
    if judgement.newer:
        return Undecidable(offset=offset, problem=judgement.reason or "newer than the specification")
    if not isinstance(judgement.line, RequestLine) or judgement.verdict is Verdict.UNDECIDED:
        return None
    if judgement.verdict in (Verdict.DIFFERS, Verdict.ORDER):
        return Refusal(
            offset=offset,
            problem=judgement.reason or "other records than expected",
            written=judgement.written,
            nearest=_named(judgement.line),
            expected=judgement.expected,
        )
    if not judgement.written:
        return None
    return Step(
        kind=kind_of(judgement.line.request, judgement.written),
        from_offset=offset,
        records=judgement.written,
        flaw=judgement.quirk,
    )
