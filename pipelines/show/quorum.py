"""The quorum, and what blocks an upgrade, as text."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import NamedTuple

from jbod_model.formats.metadata_version import METADATA_VERSION
from pipelines.ask.quorum import ALIVE, GHOST, Moment, Node, QuorumAnswer
from pipelines.ask.upgrade import Blocker, UpgradeCheck, named
from pipelines.quorum.live import LiveQuorum
from pipelines.show.answers import since_offset
from pipelines.show.rows import Chosen
from pipelines.show.text import (
    Screen,
    age,
    listed,
    many,
    say,
    say_command,
    show_selection,
    show_table,
    show_title,
    when,
)


def show_quorum(out: Screen, answer: QuorumAnswer, chosen: Chosen) -> None:
    """Leader and voters, then every node."""
    at = f"At offset {answer.offset}, {when(answer.time)}:"
    if answer.leader_id is None or answer.leader_since is None:
        say(out, f"{at} the log that was read names no leader; epoch {answer.epoch}.")
    else:
        since = f"since offset {answer.leader_since.offset}, {age(answer.leader_since.time, answer.time)}"
        say(out, f"{at} controller {answer.leader_id} leads, epoch {answer.epoch}, {since}.", "bold")
    kind = "the voters may change" if answer.kraft_version else "the voters are those of controller.quorum.voters"
    voters = many(len(answer.voters), "voter") if answer.voters else "The log that was read names no voters"
    say(out, f"{voters}, kraft.version {answer.kraft_version}: {kind}.")
    ghosts = [f"controller {controller.node_id}" for controller in answer.controllers if controller.state == GHOST]
    ghosts += [f"broker {broker.node_id}" for broker in answer.brokers if broker.state == GHOST]
    if ghosts:
        say(out, f"Only the registration is left, as far as the log shows: {listed(ghosts)}.", "bold red")
        say(out, "jbod upgrade-check shows whether they block a feature level, and how to remove them.")
    show_selection(out, chosen)
    say(out)
    show_table(
        out,
        (
            ("NODE", "kind"),
            (">ID", "node_id"),
            ("STATE", "state"),
            (">SINCE", since_offset),
            (">HEARD OF", lambda row: f"≤ {row.heard_offset}" if row.heard_from_snapshot else row.heard_offset),
            ("METADATA DIRECTORY", "directory_id"),
            ("ENDPOINTS", lambda row: ", ".join(row.endpoints)),
        ),
        chosen.rows,
    )
    for gone in answer.gone:
        since = f"{age(gone.gone.time, answer.time)} before"
        say(out, f"controller {gone.node_id} was unregistered at offset {gone.gone.offset}, {since}")


def show_live_quorum(out: Screen, answer: LiveQuorum) -> None:
    """The leader, then how far every voter and observer is behind it."""
    leads = f"controller {answer.leader_id} leads, epoch {answer.leader_epoch}"
    say(out, f"At {when(answer.time)}: {leads}; committed up to offset {answer.high_watermark - 1}.", "bold")
    say(out)

    def ago(time: datetime | None) -> str | None:
        return None if time is None else f"{age(time, answer.time)} ago"

    show_table(
        out,
        (
            ("KIND", "kind"),
            (">ID", "node_id"),
            (">LOG END", "log_end_offset"),
            (">LAG", "lag"),
            ("FETCHED", lambda follower: ago(follower.last_fetch_time)),
            ("CAUGHT UP", lambda follower: ago(follower.last_caught_up_time)),
            ("METADATA DIRECTORY", "directory_id"),
        ),
        answer.followers,
    )


class NodeRow(NamedTuple):
    """A controller or broker as a row."""

    kind: str
    node_id: int
    state: str
    from_offset: int | None
    heard_offset: int | None
    directory_id: str | None
    endpoints: tuple[str, ...]
    from_snapshot: bool
    heard_from_snapshot: bool


def node_rows(answer: QuorumAnswer) -> list[NodeRow]:
    """Controllers, voters that are not registered, then brokers."""
    directories = {voter.node_id: voter.directory_id for voter in answer.voters}
    rows = [_row("controller", controller, directories.get(controller.node_id)) for controller in answer.controllers]
    registered = {controller.node_id for controller in answer.controllers}
    rows += [
        NodeRow(
            "controller",
            voter_node.node_id,
            f"{'leader' if leads else 'voter'}, not registered",
            since.offset,
            None,
            voter_node.directory_id,
            tuple(voter_node.endpoints),
            since.from_snapshot,
            heard_from_snapshot=False,
        )
        for voter_node in answer.voters
        if voter_node.node_id not in registered
        for leads in [voter_node.node_id == answer.leader_id]
        for since in [(answer.leader_since if leads else None) or voter_node.since]
    ]
    return [*rows, *(_row("broker", broker, None) for broker in answer.brokers)]


def _row(kind: str, node: Node, directory: str | None) -> NodeRow:
    state = node.state
    if kind == "broker" and state == ALIVE:
        state = "observer"
    elif kind == "broker":
        state = f"observer, {state}"
    (since, _, since_snapshot), (heard, _, heard_snapshot) = (
        moment or (None, None, False) for moment in (node.since, node.heard)
    )
    return NodeRow(
        kind, node.node_id, state, since, heard, directory, tuple(node.endpoints), since_snapshot, heard_snapshot
    )


def show_upgrade_check(out: Screen, answer: UpgradeCheck, chosen: Chosen, _every: bool = False) -> None:
    """The answer, the blockers, what to do, and every feature."""
    say(
        out,
        f"At offset {answer.offset}, {when(answer.time)}: {_verdict(answer)}",
        "green" if answer.ready else "bold red",
    )
    if not answer.controllers_known:
        say(out, "Controllers do not register below metadata.version 3.7-IV0: see for yourself what they support.")
    if answer.blockers:
        _show_blockers(out, answer)
    elif answer.command:
        show_title(out, "What to do")
        say_command(out, f"  {answer.command}")
    say(out)
    wanted = ">WANTED" if answer.to else ">NEXT"
    show_table(
        out,
        (
            ("FEATURE", "feature"),
            (">FINALIZED", lambda it: named(it.feature, it.finalized)),
            (">ALL SUPPORT", lambda it: named(it.feature, it.supported_by_all)),
            (wanted, lambda it: None if it.wanted is None else named(it.feature, it.wanted)),
            ("BLOCKED BY", lambda it: listed(it.blocked_by)),
        ),
        chosen.rows,
    )


def _verdict(answer: UpgradeCheck) -> str:
    kinds = Counter(name.partition(" ")[0] for name in answer.ready_nodes)
    nodes = " and ".join(many(count, kind) for kind, count in kinds.items()) or "no node"
    blockers = len(answer.blockers)
    if answer.to is None:
        at = next((feature for feature in answer.features if feature.feature == METADATA_VERSION), None)
        # At 0, a node did not register any.
        by_all = at.supported_by_all if at else 0
        level = f"all nodes support metadata.version {named(METADATA_VERSION, by_all)}; " if by_all else ""
        if answer.ready:
            return f"{level}no node supports a level that others do not."
        return f"{level}{many(blockers, 'blocker')} of a higher level of some feature."
    if answer.ready and all(feature.wanted is None for feature in answer.features):
        return f"the cluster is at {answer.to} already."
    if answer.ready:
        return f"ready for {answer.to}: {nodes} support it."
    return f"not ready for {answer.to}: {many(blockers, 'blocker')}; {nodes} ready."


def _show_blockers(out: Screen, answer: UpgradeCheck) -> None:
    show_title(out, "Why")
    for blocker in answer.blockers:
        say(out, f"  {blocker.finding}", hang=4)
        say(out, f"    {_seen(blocker, answer)}", "dim", 4) if blocker.node_id is not None else None
    show_title(out, "What to do")
    for number, blocker in enumerate(answer.blockers, 1):
        say(out, f"  {number}. {blocker.advice}", hang=5)
        if blocker.command:
            say_command(out, f"     {blocker.command}")
    if answer.command and answer.to:
        say(out, f"  {len(answer.blockers) + 1}. then raise the level", hang=5)
        say_command(out, f"     {answer.command}")


def _seen(blocker: Blocker, answer: UpgradeCheck) -> str:
    facts = []
    if blocker.registered is not None:
        facts.append(f"registered so at offset {_at(blocker.registered)}, {when(blocker.registered.time)}")
    if blocker.state_since is not None:
        facts.append(
            f"{blocker.state} since offset {_at(blocker.state_since)} "
            f"({age(blocker.state_since.time, answer.time)} before)"
        )
    if blocker.heard is None:
        facts.append("never heard of in this log")
    elif (
        blocker.state != ALIVE and blocker.registered is not None and blocker.heard.offset != blocker.registered.offset
    ):
        facts.append(f"last heard of at offset {_at(blocker.heard)}")
    return ", ".join(facts)


def _at(moment: Moment) -> str:
    """``405``, or ``405 or earlier`` if only a snapshot says it."""
    return f"{moment.offset} or earlier" if moment.from_snapshot else str(moment.offset)
