"""The result of controller mode, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jbod_model.formats.request_log_file import RequestLog
from lab.control.control import Control
from pipelines.show.text import Screen, many, say, show_table


def show_control(controller: Control, logs: Sequence[RequestLog], out: Path) -> None:
    """The number of applied requests, the answers that differ from the stream's, and values taken from the stream."""
    screen, outcome = Screen(), controller.outcome
    taken, refused = outcome.applied.total(), outcome.refused.total()
    say(
        screen,
        f"{many(taken + refused, 'request')}: {taken:,} applied, {refused:,} refused; "
        f"{many(controller.next_offset, 'offset')} written to {out}.",
    )
    apis = sorted(outcome.same.keys() | outcome.other.keys())
    columns = (
        ("REQUEST", str),
        (">SAME ANSWER", outcome.same.__getitem__),
        (">OTHER ANSWER", lambda api: outcome.other[api] or ""),
    )
    show_table(screen, columns, apis)
    for reason, count in outcome.refused.most_common():
        say(screen, f"Refused, {reason}: {many(count, 'request')}.")
    for api, example in sorted(outcome.first_other.items()):
        say(screen, f"First other answer to {api}: {example}", hang=2)
    placed = outcome.placements
    say(
        screen,
        f"Replicas of created partitions: {placed['given']:,} given by the request, {placed['known']:,} known from "
        f"later requests, {placed['guessed']:,} guessed.",
        hang=2,
    )
    if outcome.strange_epochs:
        say(screen, f"{many(outcome.strange_epochs, 'broker epoch')} could not be the offset of its registration.")
    for reason, count in sum((log.rejected for log in logs), Counter[str]()).most_common():
        say(screen, f"Not readable, {reason}: {many(count, 'line')}.")


def outcome_as_json(controller: Control, logs: Sequence[RequestLog]) -> dict[str, Any]:
    """The same for programs."""
    outcome = controller.outcome
    return {
        "end_offset": controller.next_offset,
        "applied": dict(outcome.applied),
        "refused": dict(outcome.refused),
        "same_answer": dict(outcome.same),
        "other_answer": dict(outcome.other),
        "first_other": outcome.first_other,
        "placements": dict(outcome.placements),
        "strange_epochs": outcome.strange_epochs,
        "lines": {
            "read": sum(log.read for log in logs),
            "other_apis": sum(log.dropped for log in logs),
            "unreadable": dict(sum((log.rejected for log in logs), Counter[str]())),
        },
    }
