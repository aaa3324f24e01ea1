"""The batches of a restart as text: how many, the batches in order, what no batch can have, and what to do now."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.ask.restart_plan import DONE, GO, WAIT, PlannedNode, RestartPlan
from pipelines.show.rows import Chosen
from pipelines.show.text import Screen, listed, many, say, show_selection, show_table, when

SCREENFUL = 20
"""Ids of a batch that are shown, unless all are asked for."""


def show_plan(out: Screen, answer: RestartPlan, chosen: Chosen, every: bool = False) -> None:
    """The plan."""
    at = f"offset {answer.offset}, {when(answer.time)}"
    planned = [one for one in answer.nodes if one.batch is not None]
    say(out, _verdict(answer, at), "bold red" if answer.impossible else "green")
    if answer.down:
        say(out, f"Down already, start first: {listed([*map(str, answer.down)])}.", "bold red")
    if answer.restarted:
        say(out, f"Restarted already: {listed([*map(str, answer.restarted)])}.")
    if answer.batches or answer.next.state != DONE:
        say(out, f"Now: {_now(answer)}", "" if answer.next.state in (GO, DONE) else "yellow")
    if answer.batches:
        say(out)
        show_table(
            out,
            ("BATCH", "NODES", "LEADERS", "IDS"),
            (
                (
                    number,
                    len(batch),
                    _leaders(planned, number),
                    _ids(answer, batch, every),
                )
                for number, batch in enumerate(answer.batches, 1)
            ),
            numbers=(0, 1, 2),
        )
        say(out, "After each batch wait until every replica is in sync again: --next does.", "dim")
    if answer.impossible:
        say(out)
        say(out, "In no batch", "bold")
        for group in _by_finding(answer):
            say(out, f"  {listed([*map(str, group)])}: {_reason(answer, group[0])}", hang=4)
    if chosen.line:
        say(out)
        show_selection(out, chosen)
        for one in chosen.rows:
            where = "in no batch" if one.batch is None else f"batch {one.batch}"
            say(out, f"  {one.role} {one.node_id}: {where}")


def _verdict(answer: RestartPlan, at: str) -> str:
    left_out = len(answer.impossible)
    if not answer.batches and not answer.next.why:
        return f"No node can be restarted without harm ({at})." if left_out else f"Nothing is left to restart ({at})."
    planned = len(answer.nodes) - left_out
    return f"{many(len(answer.batches), 'batch', 'batches')} for {many(planned, 'node')} ({at}): {_best(answer)}." + (
        f" {many(left_out, 'node')} cannot be restarted without harm." if left_out else ""
    )


def _best(answer: RestartPlan) -> str:
    if answer.is_best:
        return "no plan has fewer"
    return f"no plan has fewer than {answer.bound}, and whether one has fewer than {len(answer.batches)} is not known"


def _now(answer: RestartPlan) -> str:
    following = answer.next
    if following.state == GO:
        return f"restart {listed([*map(str, following.batch)])}."
    if following.state == WAIT:
        return f"wait: {'; '.join(following.why)}."
    if following.state == DONE:
        return "nothing is left to restart."
    return f"not decidable: {'; '.join(following.why)}."


def _leaders(planned: Sequence[PlannedNode], number: int) -> int:
    return sum(one.leaders for one in planned if one.batch == number)


def _ids(answer: RestartPlan, batch: Sequence[int], every: bool) -> str:
    names = [_name(one) for one in answer.nodes if one.node_id in batch]
    return listed(names, len(names) if every else SCREENFUL)


def _name(one: PlannedNode) -> str:
    what = " (active controller)" if one.active else " (controller)" if one.role != "broker" else ""
    return f"{one.node_id}{what}"


def _by_finding(answer: RestartPlan) -> list[list[int]]:
    groups: dict[str, list[int]] = {}
    for one in answer.impossible:
        groups.setdefault(one.finding, []).append(one.node_id)
    return [*groups.values()]


def _reason(answer: RestartPlan, node: int) -> str:
    (one,) = [one for one in answer.impossible if one.node_id == node]
    names = one.reasons[0].names if one.reasons else ()
    return one.finding + (f" ({listed(names, 4)})" if names else "")
