"""How full the directories are, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipelines.ask.sizes import CERTAIN, DirectorySize, Sizes
from pipelines.show.rows import Chosen
from pipelines.show.text import Column, Screen, in_units, listed, many, say, show_selection, show_table, when

MOST_TOPICS = 3
"""Topics that a line names."""


def show_sizes(out: Screen, answer: Sizes, chosen: Chosen, every: bool = False) -> None:
    """The directories by broker, then what does not fit."""
    known = [directory for directory in answer.directories if directory.bytes is not None]
    held, copied = (
        sum(directory.bytes or 0 for directory in known),
        sum(directory.future_bytes or 0 for directory in known),
    )
    more = f", and {in_units(copied)} that moves are copying" if copied else ""
    paths = sum(directory.path is not None for directory in answer.directories)
    oldest = min(
        (directory.time for directory in answer.directories if directory.time is not None), default=answer.time
    )
    say(
        out,
        f"{many(paths, 'directory', 'directories')} hold {in_units(held)}{more}, as of {when(oldest)}; "
        f"the log at offset {answer.offset}, {when(answer.time)}.",
        "bold",
    )
    show_selection(out, chosen)
    columns: Sequence[Column[DirectorySize]] = (
        ("BROKER", "broker_id"),
        ("PATH", lambda it: it.path or "no path"),
        ("ID", _id),
        (">FULL", lambda it: "-" if it.used_percent is None else f"{it.used_percent} %"),
        (">FREE", lambda it: in_units(it.free_bytes)),
        (">REPLICAS", lambda it: f"{it.recorded} by the log" if it.replicas is None else str(it.replicas)),
        (">BYTES", lambda it: in_units(it.bytes)),
        (">COPYING", lambda it: in_units(it.future_bytes) if it.future_replicas else "-"),
        (">A DAY", _growth),
        (">FULL IN", lambda it: "-" if it.days_until_full is None else many(it.days_until_full, "day")),
        ("MOST OF IT", lambda it: ", ".join(_topics(it, every)) or it.error or "-"),
    )
    show_table(out, columns, chosen.rows, [heading.removeprefix(">") for heading, _ in columns[3:]])
    _show_doubts(out, [directory for directory in chosen.rows if directory.path is not None])


def _show_doubts(out: Screen, directories: list[DirectorySize]) -> None:
    for directory in directories:
        if directory.pairing != CERTAIN:
            what = f"is likely {directory.directory_id}" if directory.directory_id else "has an unknown id"
            say(out, f"{directory.path} of broker {directory.broker_id} {what}: {directory.evidence}.", "yellow")
    for directory in directories:
        differences = [
            many(count or 0, *what)
            for count, what in (
                (
                    directory.missing,
                    ("replica that the log has there is not in it", "replicas that the log has there are not"),
                ),
                (
                    directory.astray,
                    ("replica in it is elsewhere by the log", "replicas in it are elsewhere by the log"),
                ),
            )
            if count
        ]
        if differences and not directory.error:
            say(out, f"{directory.path} of broker {directory.broker_id}: {'; '.join(differences)}.", "yellow")
    failed = [f"{directory.path} of broker {directory.broker_id}" for directory in directories if directory.error]
    if failed:
        say(out, f"Cannot be read: {listed(failed)}. jbod offline says what is to be done.", "bold red")


def _growth(directory: DirectorySize) -> str:
    growth = directory.growth
    return "-" if growth is None else f"{'-' if growth < 0 else '+'}{in_units(abs(growth))}"


def _id(directory: DirectorySize) -> str:
    if directory.directory_id is None:
        return "unknown"
    return (
        directory.directory_id
        if directory.pairing == CERTAIN or directory.path is None
        else f"likely {directory.directory_id}"
    )


def _topics(directory: DirectorySize, every: bool) -> Iterator[str]:
    shown = [topic for topic in directory.topics if topic.bytes] if every else directory.topics[:MOST_TOPICS]
    for topic in shown:
        if topic.bytes:
            yield f"{topic.topic} {in_units(topic.bytes)}"
