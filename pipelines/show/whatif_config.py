"""What a change of a configuration does to the partitions, as text."""

from __future__ import annotations

from collections.abc import Sequence

from jbod_model.formats.metadata_version import ELR_FEATURE
from pipelines.ask.whatif_config import ConfigEffect
from pipelines.show.rows import Chosen
from pipelines.show.text import Screen, listed, many, say, show_fault, show_list, show_selection, show_steps, when

EFFECTS = (
    ("refuses_writes", "would refuse writes with acks=all", "red"),
    ("lacks_writes", "would elect a leader at once that lacks acknowledged writes: they are lost", "bold red"),
    ("elects", "would elect a leader at once", "yellow"),
    ("stranded", "would have no leader, and no replica left that can be elected but uncleanly", "bold red"),
    ("loses_eligible", "would lose eligible leaders", "yellow"),
    ("accepts_writes", "would accept writes with acks=all again", "green"),
)
ADVICE = (
    (
        "refuses_writes",
        "First bring the other replicas into sync: kafka-topics.sh --describe --under-min-isr-partitions lists what is "
        "missing afterwards.",
    ),
    (
        "lacks_writes",
        "First bring back a replica that was in sync (jbod offline says which disk or broker): once another replica "
        "leads, its writes are gone.",
    ),
    (
        "loses_eligible",
        "First start the brokers of the eligible leaders, and wait until these partitions have an in-sync set of "
        "min.insync.replicas: until then only the eligible leaders may be elected cleanly.",
    ),
)


def show_config(out: Screen, answer: ConfigEffect, chosen: Chosen, every: bool = False) -> None:
    """The effects of one change, the worst first."""
    setting = f"{answer.name}={answer.value} for {_scope(answer)}"
    at = f"at offset {answer.offset}, {when(answer.time)}"
    if answer.refused:
        say(out, f"The controller refuses {setting} {at}: {answer.refused}", "bold red")
        return
    bad = [one for one in answer.changes if one.refuses_writes or one.lacks_writes or one.loses_eligible]
    if bad:
        say(out, f"{setting}, set {at}: {many(len(bad), 'partition')} would lose something.", "bold red")
    else:
        say(out, f"{setting}, set {at}: no partition would lose anything.", "green")
    say(out, _before(answer))
    for what, meaning, style in EFFECTS:
        names = [one.name for one in answer.chosen(what)]
        if names:
            say(out, f"{many(len(names), 'partition')} {meaning}:", style)
            say(out, f"  {listed(names)}")
    if answer.at_limit:
        say(
            out,
            f"{many(answer.at_limit, 'partition')} would refuse writes with acks=all as soon as one more replica falls "
            "out of sync, also while a broker restarts.",
            "yellow",
        )
    if answer.removed_from:
        say(
            out,
            "The controller removes the min.insync.replicas of single brokers: "
            + ", ".join(f"broker {broker}" for broker in answer.removed_from),
        )
    if answer.name == ELR_FEATURE:
        say(out, f"Whether all nodes support the level: jbod upgrade-check --to {answer.name}={answer.value}", "dim")
    show_fault(out, answer.fault)
    show_steps(out, (text for what, text in ADVICE if answer.chosen(what)))
    if answer.changes:
        say(out)
        show_selection(out, chosen)
        _show_rows(out, chosen, every or chosen.wanted.orders)


def _scope(answer: ConfigEffect) -> str:
    if answer.topics:
        return f"{'topic' if len(answer.topics) == 1 else 'topics'} {listed(answer.topics)}"
    if answer.brokers:
        return listed([f"broker {broker}" for broker in answer.brokers])
    return "the cluster" if answer.name == ELR_FEATURE else "all brokers"


def _before(answer: ConfigEffect) -> str:
    """The value now, and what it means that it is the same."""
    if answer.unchanged:
        same = "It is set to this value already"
        if answer.topics:
            return f"{same}: the controller writes nothing."
        if answer.chosen("loses_eligible"):
            return f"{same}. The controller writes it again, and clears the eligible leaders all the same."
        return f"{same}."
    if not answer.before:
        return "It is not set there now."
    values = sorted({*answer.before.values()})
    return f"It is {' or '.join(values)} now."


def _show_rows(out: Screen, chosen: Chosen, every: bool) -> None:
    show_list(
        out,
        ("PARTITION", "REPLICAS", "LEADER", "THEN", "IN SYNC", "ELIGIBLE", "THEN", "MIN ISR", "THEN"),
        chosen.rows,
        lambda one: (
            one.name,
            _brokers(one.replicas),
            _brokers([one.leader]),
            _brokers([one.leader_after]),
            _brokers(one.isr),
            _brokers(one.eligible),
            _brokers(one.eligible_after),
            one.min_isr,
            one.min_isr_after,
        ),
        every,
        numbers=(7, 8),
    )


def _brokers(brokers: Sequence[int]) -> str:
    return ",".join(str(one) for one in brokers if one >= 0) or "none"
