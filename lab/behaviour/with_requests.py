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
        for one in audit:
            found = _own_work(one) if isinstance(one, OwnWork) else _request(one, audit)
            if found is not None:
                yield found
                if not isinstance(found, Step):
                    return
    except ReplayViolation as violation:
        yield Refusal(offset=violation.offset, problem=violation.problem)


def _own_work(one: OwnWork) -> Step | Refusal | Undecidable:
    if one.newer:
        return Undecidable(offset=one.from_offset, problem=one.cause)
    if not one.unexplained:
        return Step(
            kind=one.cause, from_offset=one.from_offset, records=one.records, modelled=one.cause in NAMES.values()
        )
    line, expected = one.nearest or (None, ())
    return Refusal(
        offset=one.from_offset,
        problem="no logged request, and no work of the controller's own, writes this record",
        written=one.records,
        nearest=None if line is None else _named(line),
        expected=expected,
    )


def _named(line: RequestLine) -> str:
    return f"{line.api} of client {line.client_id}" if line.client_id else line.api


def _request(one: Judged, audit: Audit) -> Step | Refusal | Undecidable | None:
    offset = audit.known.next_offset if one.from_offset is None else one.from_offset
    if one.newer:
        return Undecidable(offset=offset, problem=one.reason or "newer than the specification")
    if not isinstance(one.line, RequestLine) or one.verdict is Verdict.UNDECIDED:
        return None
    if one.verdict in (Verdict.DIFFERS, Verdict.ORDER):
        return Refusal(
            offset=offset,
            problem=one.reason or "other records than expected",
            written=one.written,
            nearest=_named(one.line),
            expected=one.expected,
        )
    if not one.written:
        return None
    return Step(kind=kind_of(one.line.request, one.written), from_offset=offset, records=one.written, flaw=one.quirk)
