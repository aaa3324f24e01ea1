"""Moves between disks as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from pipelines.ask.directory_changes import RECREATED, RETURNED, UNDECIDED
from pipelines.ask.moves import Move
from pipelines.show.selection import Chosen
from pipelines.show.text import console, many, say, show_selection, show_table, when

OTHERS = {
    RECREATED: "recreated empty in another directory",
    RETURNED: "on the old disk again",
    UNDECIDED: "moved or recreated, as the next registration of the broker tells",
}
"""Outcomes of changes that are not moves."""


def told_others(outcomes: Mapping[str, int]) -> str:
    """The number of changes that are not moves, as the end of a sentence."""
    return "".join(f"; {many(outcomes[one], 'replica')} {what}" for one, what in OTHERS.items() if outcomes.get(one))


def show_moves(offset: int, time: datetime, moves: Sequence[Move], chosen: Chosen) -> None:
    """The number of moves by outcome, then each move."""
    out = console()
    counts = Counter(move.outcome for move in moves)
    others = told_others(counts)
    counts = Counter({outcome: number for outcome, number in counts.items() if outcome not in OTHERS})
    told = ", ".join(f"{count:,} {outcome}" for outcome, count in counts.most_common())
    told = f"{many(counts.total(), 'move')} between disks" + (f": {told}" if told else "")
    say(out, f"At offset {offset}, {when(time)}: {told}{others}.")
    show_selection(out, chosen)
    if chosen.rows:
        show_table(
            out,
            ("PARTITION", "BROKER", "FROM", "TO", "ASKED", "ACCEPTED", "OFFSET", "OUTCOME", "TOOK"),
            [
                (
                    f"{move.topic}-{move.partition}",
                    move.broker_id,
                    move.source,
                    move.target,
                    "" if move.asked_time is None else when(move.asked_time),
                    when(move.accepted_time),
                    move.accepted_offset,
                    outcome(move),
                    "" if move.duration is None else _seconds(move.duration),
                )
                for move in chosen.rows
            ],
            (1, 6, 8),
        )


def outcome(move: Move) -> str:
    """The outcome of a move, with its obstacles."""
    parts = [move.outcome]
    if move.reverted_offset is not None:
        parts.append(f"at {move.reverted_offset}")
    if move.refused:
        parts.append(f"refused {many(move.refused, 'time')}")
    if move.flips:
        parts.append(f"after {many(move.flips, 'flip')}")
    return ", ".join(parts)


def _seconds(duration: timedelta) -> str:
    return f"{duration.total_seconds():.3f} s"
