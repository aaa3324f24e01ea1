"""Whether a log is a behaviour of the specification, as text and for programs."""

from __future__ import annotations

from collections import Counter
from operator import itemgetter
from typing import Any

from jbod_model.audit.log_invariants import INVARIANTS, LogBreach
from lab.behaviour import Refusal, Verdict
from pipelines.audit import differences, records_as_json, short
from pipelines.show.audit import FIELDS, RECORDS, SHOWN, in_words
from pipelines.show.text import Screen, many, say, show_table


def show_behaviour(verdict: Verdict) -> None:
    """The answer, why it is no, the actions by kind, then the invariants."""
    out = Screen()
    _show_answer(out, verdict)
    if verdict.kinds:
        show_table(out, (("ACTION", itemgetter(0)), (">TIMES", itemgetter(1))), _ranked(verdict.kinds))
    if verdict.others:
        listed = ", ".join(f"{kind} {times:,}" for kind, times in _ranked(verdict.others))
        say(out, f"Not modelled, taken as they are: {listed}.", hang=2)
    for flaw, times in verdict.flaws.most_common():
        say(out, f"By the known flaw or older rule {flaw}: {many(times, 'action')}.")
    for number, breaches in _by_number(verdict.breaches).items():
        say(out, f"R-INV-{number} is broken {many(len(breaches), 'time')}: {INVARIANTS[number].statement}.")
        for breach in breaches[:SHOWN]:
            say(out, f"  offset {breach.offset}: {breach.problem}", hang=4)
    for breach, flaw in verdict.known_breaches[:SHOWN]:
        say(out, f"R-INV-{breach.number} is broken by {flaw} at offset {breach.offset}: {breach.problem}.", hang=2)
    if verdict.records and not verdict.breaches and not verdict.known_breaches:
        say(out, f"All {len(INVARIANTS)} invariants hold up to offset {verdict.next_offset - 1}.")


def behaviour_as_json(verdict: Verdict) -> dict[str, Any]:
    """For programs."""
    answer: dict[str, Any] = {
        "behaviour": verdict.accepted,
        "decidable": verdict.accepted or verdict.refused,
        "next_offset": verdict.next_offset,
        "snapshot_offset": verdict.snapshot_at,
        "batches": verdict.batches,
        "records": verdict.records,
        "actions": dict(_ranked(verdict.kinds)),
        "not_modelled": dict(_ranked(verdict.others)),
        "flaws": dict(verdict.flaws),
        "breaches": [
            {"invariant": f"R-INV-{breach.number}", "offset": breach.offset, "problem": breach.problem, "flaw": flaw}
            for breach, flaw in [*((new_breach, None) for new_breach in verdict.breaches), *verdict.known_breaches]
        ],
        "end": None,
    }
    if verdict.end is not None:
        answer["end"] = {"offset": verdict.end.offset, "problem": verdict.end.problem}
    if isinstance(verdict.end, Refusal):
        answer["end"] |= {
            "batch": verdict.end.batch,
            "found": records_as_json(verdict.end.written),
            "nearest": verdict.end.nearest,
            "expected": records_as_json(verdict.end.expected),
        }
    return answer


def _show_answer(out: Screen, verdict: Verdict) -> None:
    end = verdict.end
    explained = f"{many(verdict.batches, 'batch', 'batches')}, {many(verdict.kinds.total(), 'action')}"
    if verdict.snapshot_at is not None:
        explained += f", from the snapshot of offset {verdict.snapshot_at} on"
    if end is None:
        say(out, f"A behaviour of the specification: {explained}, up to offset {verdict.next_offset - 1}.")
        return
    if not isinstance(end, Refusal):
        say(out, f"Not decidable from offset {end.offset} on: {end.problem}. Before: {explained}.")
        return
    batch = "" if end.batch is None else f", in the batch of offsets {end.batch[0]} to {end.batch[1]}"
    say(out, f"Not a behaviour of the specification: at offset {end.offset}{batch}: {end.problem}.")
    if end.nearest is not None and end.written and end.expected:
        say(out, f"  The nearest action is: {end.nearest}.", hang=2)
        fields = differences("", end.written, end.expected)
        for field, expected, actual in fields[:FIELDS]:
            say(out, f"  {field}: it would have written {in_words(expected)}, found {in_words(actual)}", hang=4)
        if len(fields) > FIELDS:
            say(out, f"  and {len(fields) - FIELDS:,} more fields")
    else:
        lists = (("found", end.written), (f"{end.nearest} would have written", end.expected))
        for name, record in ((name, record) for name, records in lists for record in records[:RECORDS]):
            say(out, f"  {name} {short(record)}", hang=4)
    say(out, f"Explained before: {explained}.")


def _ranked(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda kind_count: (-kind_count[1], kind_count[0]))


def _by_number(breaches: list[LogBreach]) -> dict[int, list[LogBreach]]:
    numbers: dict[int, list[LogBreach]] = {}
    for breach in breaches:
        numbers.setdefault(breach.number, []).append(breach)
    return dict(sorted(numbers.items()))
