"""An audit as text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from jbod_model.audit import Judged, Verdict
from jbod_model.audit.log_invariants import INVARIANTS
from jbod_model.formats.request_log_file import RequestLog
from jbod_model.profiles import NEWEST
from pipelines.audit import Summary, differing_fields, out_of_place, record_text, short
from pipelines.show.text import Screen, many, say, show_table, when

SHOWN = 10
"""The number of differences, and of breaches per invariant, printed. --json has more, the table has all."""

FIELDS = 20
"""Fields of a difference that are printed."""

RECORDS = 5
"""Records of a difference that are printed."""


def show_audit(out: Screen, summary: Summary, logs: Sequence[RequestLog]) -> None:
    """Verdicts, differences, the controller's own work, then the invariants."""
    if logs:
        _show_requests(out, summary, logs)
    if summary.checked:
        broken = {number: count for number, count in summary.breach_counts.items() if count}
        for number, kind in sorted(summary.unknown.items()):
            records = f"{many(kind.records, 'record')}, the first at offset {kind.first_offset}"
            say(out, f"Record type {number} is not known to this audit: {records}. Its effect is not checked.")
        if not broken:
            say(out, f"All {len(INVARIANTS)} invariants hold at each of the offsets up to {summary.end_offset - 1}.")
        for number in sorted(broken):
            invariant = INVARIANTS[number]
            say(out, f"R-INV-{number} is broken {many(broken[number], 'time')}: {invariant.statement}.")
            if invariant.known:
                say(out, f"  known: {invariant.known}", hang=2)
            for breach in summary.breaches[number][:SHOWN]:
                say(out, f"  offset {breach.offset}: {breach.problem}", hang=4)


def _show_requests(out: Screen, summary: Summary, logs: Sequence[RequestLog]) -> None:
    rejected: Counter[str] = sum((log.rejected for log in logs), Counter())
    undecided = summary.count(Verdict.UNDECIDED)
    requests = many(summary.judged, "request")
    if undecided:
        requests = f"{summary.judged - undecided:,} of {requests}"
    say(
        out,
        f"{requests} judged by the log up to offset {summary.end_offset - 1}"
        f"{_wrong(summary)}{_not_decidable(summary)}; "
        f"{many(sum(log.dropped for log in logs), 'line')} of other APIs skipped.",
    )
    show_table(
        out,
        (
            ("REQUEST", str),
            (">SAME", lambda api: summary.verdicts[api][Verdict.SAME.value] or ""),
            (">ORDER", lambda api: summary.verdicts[api][Verdict.ORDER.value] or ""),
            (">QUIRK", lambda api: summary.verdicts[api][Verdict.QUIRK.value] or ""),
            (">DIFFERS", lambda api: summary.verdicts[api][Verdict.DIFFERS.value] or ""),
            (">NOT DECIDED", lambda api: summary.verdicts[api][Verdict.UNDECIDED.value] or ""),
        ),
        sorted(summary.verdicts),
    )
    for quirk, count in summary.quirks.most_common():
        say(out, f"Explained by {quirk}: {many(count, 'request')}.")
    for difference in summary.differences[:SHOWN]:
        _show_difference(out, difference)
    more = summary.count(Verdict.DIFFERS) + summary.count(Verdict.ORDER) - SHOWN
    if more > 0:
        say(out, f"and {more:,} more")
    for reason, count in summary.undecided.most_common():
        say(out, f"Not decidable, {reason}: {many(count, 'request')}.")
    if outside(summary):
        say(out, "Most requests lie outside of the log's time: if the controller's clock is not UTC, set --time-zone.")
    for reason, count in rejected.most_common():
        say(out, f"Not readable, {reason}: {many(count, 'line')}.")
    if summary.own:
        say(out, "Records that none of these requests caused:")
        for cause, kind in sorted(summary.own.items(), key=lambda item: -item[1].records):
            say(out, f"  {cause}: {many(kind.records, 'record')}, the first at offset {kind.first_offset}")


def _wrong(summary: Summary) -> str:
    """How many requests differ, if any can be decided."""
    wrong = summary.count(Verdict.DIFFERS) + summary.count(Verdict.ORDER)
    differ = f": {wrong:,} {'differs' if wrong == 1 else 'differ'}" if wrong else ": none differs"
    return differ if summary.count(Verdict.UNDECIDED) < summary.judged else ""


def _not_decidable(summary: Summary) -> str:
    """The number of undecidable requests, and how many of them are newer than the reference controller."""
    undecided = summary.count(Verdict.UNDECIDED)
    if not undecided:
        return ""
    which = "all" if summary.newer == undecided else f"{summary.newer:,}"
    newer = f", {which} of them newer than this audit, which knows Kafka up to {NEWEST}" if summary.newer else ""
    return f"; {undecided:,} not decidable{newer}"


def outside(summary: Summary) -> bool:
    """Whether the clock of the request log seems to differ from that of the metadata log."""
    counts = summary.undecided
    return 2 * (counts["it is older than the log"] + counts["it is newer than the log"]) > summary.judged


def _show_difference(out: Screen, difference: Judged) -> None:
    time = when(datetime.fromtimestamp(difference.line.completed_ms / 1000, UTC))
    place = "" if difference.from_offset is None else f" at offset {difference.from_offset}"
    say(
        out,
        f"{difference.verdict.value}: {difference.line.api} of {difference.line.client_id}, {time}{place}: "
        f"{difference.reason}",
        hang=2,
    )
    if difference.answer or (difference.expected and difference.written and difference.verdict is not Verdict.ORDER):
        fields = differing_fields(difference)
        for field, expected, written_value in fields[:FIELDS]:
            say(out, f"  {field}: expected {in_words(expected)}, found {in_words(written_value)}", hang=4)
        if len(fields) > FIELDS:
            say(out, f"  and {len(fields) - FIELDS:,} more fields")
        return
    if difference.expected and difference.written:
        places = out_of_place(difference)
        for name, expected, written_place in places[:FIELDS]:
            say(out, f"  {name}: expected as record {expected}, found as record {written_place}", hang=4)
        if len(places) > FIELDS:
            say(out, f"  and {len(places) - FIELDS:,} more records")
        return
    for name, records in (("expected", difference.expected), ("found", difference.written)):
        for record in records[:RECORDS]:
            say(out, f"  {name:<8} {short(record)}", hang=11)
        if len(records) > RECORDS:
            say(out, f"  {name:<8} and {len(records) - RECORDS:,} more")


def in_words(value: Any) -> str:
    """A value of a record, or a record of which one side has nothing."""
    if isinstance(value, dict) and "type" in value:
        return record_text(value)
    return "nothing" if value is None else json.dumps(value)
