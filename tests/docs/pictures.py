"""Tables and diagrams that are made from the tables in the code."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass

from jbod_model.broker.disks import TRANSITIONS, Effect
from jbod_model.broker.replicas import DECISIONS, Holding, ReplicaStep, Target
from jbod_model.controller import context
from jbod_model.formats.records import (
    BrokerRegistrationChangeRecord,
    Record,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from jbod_model.ids import Uuid
from jbod_model.replay.image import Image
from jbod_model.replay.offline import offline_reason
from pipelines.check.catalogue import CHECKS, ELSEWHERE

# REPLICAS


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


def replica_diagram() -> str:
    """The log of a replica on its broker: what each assignment does to it, by ``DECISIONS``."""
    names = {holding: f"s{number}" for number, holding in enumerate(Holding)}
    after = {ReplicaStep.CREATE_THERE: Holding.IN_TARGET, ReplicaStep.CREATE_CHOSEN: Holding.ELSEWHERE}
    edges: dict[tuple[str, str, str], list[str]] = {}
    for (target, holding, offline), decision in DECISIONS.items():
        does = "report" if decision.report else "no report"
        goal = names[after.get(decision.step, holding)]
        condition = _TARGETS[target] + (
            " while a directory is offline" if offline and decision.step is ReplicaStep.SKIP else ""
        )
        labels = edges.setdefault((names[holding], goal, does), [])
        if condition not in labels:
            labels.append(condition)
    lines = [f'    state "{holding.value}" as {names[holding]}' for holding in Holding]
    lines += [f"    [*] --> {names[Holding.NOTHING]}"]
    lines += [
        f"    {start} --> {goal}: {', or '.join(labels)} / {does}" for (start, goal, does), labels in edges.items()
    ]
    return _diagram(lines)


_TARGETS = {
    Target.ONLINE: "assigned to an online directory",
    Target.UNASSIGNED: "not assigned",
    Target.MIGRATING: "migrating",
    Target.UNKNOWN: "lost or unknown",
    Target.SAME: "other change",
}


def moves_diagram() -> str:
    """The states of a move; a label is the event / the broker's action."""
    lines = ["    [*] --> none: a future replica is created"]
    for (state, event), (following, effects) in TRANSITIONS.items():
        does = "; ".join(_words(effect.name) for effect in effects)
        goal = "[*]" if Effect.FORGET in effects else following.value
        lines.append(f"    {state.value} --> {goal}: {_words(event.name)}" + (f" / {does}" if does else ""))
    return _diagram(lines)


# DIRECTORIES AND BROKERS

_DIRECTORY, _OTHER = Uuid(1, 1), Uuid(2, 2)


@dataclass(frozen=True, slots=True)
class _Place:
    """A directory of broker 1 as the metadata knows it, and whether a replica in it is offline."""

    registered: bool
    fenced: bool
    listed: bool
    reason: str | None

    @property
    def text(self) -> str:
        where = "listed" if self.listed else "not listed"
        broker = "fenced" if self.fenced else "unfenced"
        state = f"{where}, broker {broker}" if self.registered else "broker not registered"
        return f"{state}: replicas " + (f"offline, {self.reason}" if self.reason else "online")


def directory_diagram() -> str:
    """The life of a directory: what each record does, by applying it to the model's image in every state."""
    first = Image()
    places = {_place(first): first}
    edges: dict[tuple[_Place, _Place], list[str]] = {}
    waiting = [first]
    while waiting:
        image = waiting.pop(0)
        for name, record in _records(image):
            following = image.apply(record, 1)
            ends = _place(image), _place(following)
            if ends[0] != ends[1]:
                edges.setdefault(ends, []).append(name)
            if ends[1] not in places:
                places[ends[1]] = following
                waiting.append(following)
    names = {place: f"s{number}" for number, place in enumerate(places)}
    lines = [f'    state "{place.text}" as {name}' for place, name in names.items()]
    lines += [f"    [*] --> {names[_place(first)]}"]
    lines += [f"    {names[start]} --> {names[goal]}: {' or '.join(labels)}" for (start, goal), labels in edges.items()]
    return _diagram(lines)


def _records(image: Image) -> Iterator[tuple[str, Record]]:
    yield "registers with it", RegisterBrokerRecord(broker_id=1, broker_epoch=1, log_dirs=(_DIRECTORY, _OTHER))
    yield "registers without it", RegisterBrokerRecord(broker_id=1, broker_epoch=1, log_dirs=(_OTHER,))
    if 1 not in image.brokers:
        return
    yield "unfenced", BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=-1)
    yield "fenced", BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=1)
    if _DIRECTORY in image.brokers[1].directories:
        yield "failed", BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, log_dirs=(_OTHER,))
    yield "unregistered", UnregisterBrokerRecord(broker_id=1, broker_epoch=1)


def _place(image: Image) -> _Place:
    broker = image.brokers.get(1)
    reason = offline_reason(image, 1, _DIRECTORY)
    if broker is None:
        return _Place(False, False, False, reason)
    return _Place(True, broker.fenced, _DIRECTORY in broker.directories, reason)


def heartbeats_diagram() -> str:
    """The states of a broker at the controller; a label is the condition of the row, of which the first decides."""
    tree = ast.parse(inspect.getsource(context))
    table = next(
        node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "TRANSITIONS"
    )
    assert table is not None
    conditions = [node.body for node in ast.walk(table) if isinstance(node, ast.Lambda)]
    lines = ["    [*] --> FENCED: registered"]
    for (state, _, following), condition in zip(context.TRANSITIONS, conditions, strict=True):
        words = ast.unparse(condition).replace("now.", "").replace("()", "").replace("_", " ")
        lines.append(f"    {state.value} --> {following.value}: {words}")
    return _diagram(lines)


# CHECKS


def checks_table() -> str:
    """The checks of ``jbod check``."""
    rows = [
        f"| {check.id} | {check.name} | {check.severity} | {check.title} | {check.why} | {check.source} |"
        for check in CHECKS
    ]
    return "\n".join(
        ["| id | name | severity | finds | why it matters | source |", "| --- | --- | --- | --- | --- | --- |", *rows]
    )


def other_checks_table() -> str:
    """Findings that something else decides."""
    rows = [f"| {check.id} | {check.name} | {check.title} | {check.decided_by} |" for check in ELSEWHERE]
    return "\n".join(["| id | name | what | decided by |", "| --- | --- | --- | --- |", *rows])


def _diagram(lines: list[str]) -> str:
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


def _words(name: str) -> str:
    return name.lower().replace("_", " ")


def _number(rule: str) -> int:
    return int(rule.rpartition("-")[2])
