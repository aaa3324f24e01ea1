"""Lost data, and data that is only on offline disks, as text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.console import Console

from pipelines.ask.lost_data import LOST, MAY_LACK, UNREACHABLE, Losses
from pipelines.show.text import age, listed, many, say, when

MOST_GROUPS = 8
"""Groups, unless all are asked for."""


def told_losses(answer: Losses) -> str:
    """``the data of 2 partitions is lost, and 1 partition may lack writes``, empty if there is no loss."""
    lost, away, lacking = map(answer.count, (LOST, UNREACHABLE, MAY_LACK))
    said = [f"the data of {many(lost, 'partition')} is lost"] if lost else []
    said += (
        [
            f"that of {many(away, 'partition')} is unreachable"
            if lost
            else f"the data of {many(away, 'partition')} is unreachable"
        ]
        if away
        else []
    )
    said += [f"{many(lacking, 'partition')} may lack writes"] if lacking else []
    return ", and ".join(said)


def only_local(tiered: Sequence[str]) -> str:
    """What is at stake of the partitions of tiered topics."""
    return (
        f"of {many(len(tiered), 'partition')} only the local part, which was not copied to remote storage yet: "
        f"{listed(tiered)}"
    )


def show_losses(out: Console, answer: Losses, time: datetime, every: bool = False) -> None:
    """Lost data, the disks that may still have a copy, and what to do; then the disks that must not be wiped."""
    groups = answer.groups if every else answer.groups[:MOST_GROUPS]
    if groups:
        say(out)
        say(out, "Data", "bold")
    for group in groups:
        first = group[0]
        say(out, f"  {first.finding}", "red", hang=4)
        say(out, f"    {many(len(group), 'partition')}: {listed([one.name for one in group])}", hang=6)
        since = f"since offset {first.offset}, {when(first.time)} ({age(first.time, time)} before)"
        say(out, f"    {since}", "dim", hang=6)
        for text in dict.fromkeys(step.text for step in first.steps):
            say(out, f"    do: {text}", hang=8)
    if len(groups) < len(answer.groups):
        say(out, f"  and {many(len(answer.groups) - len(groups), 'group')} more: --all, or --json", "dim")
    if answer.accepted:
        say(out, f"Lost data that was accepted (check.losses_accepted_until): {answer.accepted:,}", "dim")
    held = answer.held if every else answer.held[:MOST_GROUPS]
    if held:
        say(out)
        say(out, "Do not wipe", "bold")
    for copies, members in held:
        one = len(copies) == 1 or not members[0].certain
        where = (" and " if members[0].certain else " or ").join(copy.where for copy in copies)
        holds = "holds the only complete copy" if one else "hold the only complete copies"
        names = listed([one.name for one in members])
        say(out, f"  {where} {holds} of {many(len(members), 'partition')}: {names}", hang=4)
        tiered = [one.name for one in members if one.tiered]
        if tiered:
            say(out, f"    {only_local(tiered)}", hang=6)
    if len(held) < len(answer.held):
        say(out, f"  and {many(len(answer.held) - len(held), 'place')} more: --all, or --json", "dim")
