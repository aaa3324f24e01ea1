"""What a broker's next start does to the replicas in directories that do not come back as they were, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipelines.ask.advice import directories_of
from pipelines.ask.next_start import NextStarts, StartOutcome
from pipelines.show.text import Screen, listed, many, say


def show_next_starts(out: Screen, answer: NextStarts, every: bool = False) -> None:
    """The cases, the worst consequence of each first, then what to do before the start. Nothing if no case is asked."""
    if not answer.starts:
        return
    if answer.away:
        are = "is" if len(answer.away) == 1 else "are"
        say(out, f"Not online {are} {directories_of(answer.broker_id, answer.away)}.", "bold")
    say(out, f"At the next start of broker {answer.broker_id}:", "bold")
    for one in answer.starts:
        given_up = [lost.name for lost in one.gives_up]
        say(out, f"  {_case(one)}: {_consequence(one)}", "bold red" if given_up else "", hang=4)
        if given_up:
            say(out, f"    {listed(given_up, len(given_up) if every else 8)}", hang=4)
    if answer.fault:
        say(out, f"Kafka's own controller (4.1) would fail on this: {answer.fault}", "bold red")
    if answer.steps:
        say(out)
        say(out, "Before the start", "bold")
        for number, text in enumerate(dict.fromkeys(step.text for step in answer.steps), 1):
            say(out, f"  {number}. {text}", hang=5)


def _case(one: StartOutcome) -> str:
    """``if a blank disk takes the place of D``"""
    said = [
        text.format(" and ".join(directories))
        for text, directories in (
            ("if {} comes back with its id", one.back),
            ("if a blank disk takes the place of {}", one.blank),
            ("if {} is taken out of log.dirs", one.gone),
            ("if {} stays in log.dirs and cannot be read", one.broken),
        )
        if directories
    ]
    return ", ".join(said)


def _consequence(one: StartOutcome) -> str:
    """What happens, in one sentence."""
    if one.refused:
        return f"the broker does not start ({one.refused})"
    said = list(_losses(one))
    if not said:
        return "no replica is recreated" + (f", and {said[0]}" if (said := list(_gains(one))) else "")
    return "; ".join([*said, *_gains(one)])


def _losses(one: StartOutcome) -> Iterator[str]:
    if one.gives_up:
        copies = "the last complete copy" if len(one.gives_up) == 1 else "the last complete copies"
        yield f"{copies} of {many(len(one.gives_up), 'partition')} {'may be' if _vague(one) else 'is'} given up"
    if one.recreated:
        perhaps = f", {len(one.perhaps_recreated):,} of them perhaps" if one.perhaps_recreated else ""
        yield f"{many(len(one.recreated), 'replica')} {_are(one.recreated)} recreated empty{perhaps}"
    if one.leads_empty:
        yield f"the broker {_leads(one, one.leads_empty)} {many(len(one.leads_empty), 'partition')} with an empty log"
    if one.two_folders:
        yield (
            f"{many(len(one.two_folders), 'partition')} would have two folders, and Kafka does not start with two: "
            "one leaves first"
        )


def _gains(one: StartOutcome) -> Iterator[str]:
    led = sorted({*one.leads} - {*one.leads_empty})
    if led:
        yield f"the broker {_leads(one, led)} {many(len(led), 'partition')} that it does not lead now"


def _leads(one: StartOutcome, names: Sequence[str]) -> str:
    return "may lead" if {*names} <= {*one.perhaps_leads} else "leads"


def _vague(one: StartOutcome) -> bool:
    return {lost.name for lost in one.gives_up} <= {*one.perhaps_recreated, *one.perhaps_gives_up}


def _are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
