"""The tables and the diagram of docs/spec/broker.md, made from the code."""

from __future__ import annotations

from jbod_model.broker.decisions import DECISIONS
from jbod_model.broker.moves import TRANSITIONS, Effect


def moves_diagram() -> str:
    """The states of a move as a Mermaid diagram; a label is the event / the broker's action."""
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> none: a future replica is created"]
    for (state, event), (following, effects) in TRANSITIONS.items():
        does = "; ".join(_words(effect.name) for effect in effects)
        goal = "[*]" if Effect.FORGET in effects else following.value
        lines.append(f"    {state.value} --> {goal}: {_words(event.name)}" + (f" / {does}" if does else ""))
    return "\n".join([*lines, "```"])


def decision_table() -> str:
    """The decisions of a broker about a replica, one row for each situation."""
    rows: dict[tuple[str, ...], list[bool]] = {}
    for (target, holding, offline), decision in DECISIONS.items():
        reported = "yes" if decision.report else "no"
        row = (decision.rule, target.value, holding.value, decision.step.value, reported)
        rows.setdefault(row, []).append(offline)
    lines = ["| assigned to | the broker has | another directory is offline | what it does | reports | rule |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    for (rule, assigned, has, step, reported), seen in sorted(rows.items(), key=lambda row: _number(row[0][0])):
        when = "either" if len(seen) == 2 else "yes" if seen[0] else "no"
        lines.append(f"| {assigned} | {has} | {when} | {step} | {reported} | {rule} |")
    return "\n".join(lines)


def _words(name: str) -> str:
    return name.lower().replace("_", " ")


def _number(rule: str) -> int:
    return int(rule.rpartition("-")[2])
