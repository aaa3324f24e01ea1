"""How full the directories are, as text."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.ask.sizes import CERTAIN, DirectorySize, Sizes
from pipelines.show.rows import Chosen
from pipelines.show.text import Screen, in_units, listed, many, say, show_columns, show_selection, when

MOST_TOPICS = 3
"""Topics that a line names."""


def show_sizes(out: Screen, answer: Sizes, chosen: Chosen, every: bool = False) -> None:
    """The directories by broker, then what does not fit."""
    known = [one for one in answer.directories if one.bytes is not None]
    held, copied = sum(one.bytes or 0 for one in known), sum(one.future_bytes or 0 for one in known)
    more = f", and {in_units(copied)} that moves are copying" if copied else ""
    paths = sum(one.path is not None for one in answer.directories)
    oldest = min((one.time for one in answer.directories if one.time is not None), default=answer.time)
    say(
        out,
        f"{many(paths, 'directory', 'directories')} hold {in_units(held)}{more}, as of {when(oldest)}; "
        f"the log at offset {answer.offset}, {when(answer.time)}.",
        "bold",
    )
    show_selection(out, chosen)
    columns = ("BROKER", "PATH", "ID", "FULL", "FREE", "REPLICAS", "BYTES", "COPYING", "A DAY", "FULL IN", "MOST OF IT")
    rows = [_row(one, every) for one in chosen.rows]
    kept = [column for column in range(len(columns)) if column < 3 or any(row[column] != "-" for row in rows)]
    show_columns(out, columns, rows, kept, range(3, 10))
    _show_doubts(out, [one for one in chosen.rows if one.path is not None])


def _row(one: DirectorySize, every: bool) -> tuple[object, ...]:
    return (
        one.broker_id,
        one.path or "no path",
        _id(one),
        "-" if one.used_percent is None else f"{one.used_percent} %",
        in_units(one.free_bytes),
        f"{one.recorded} by the log" if one.replicas is None else one.replicas,
        in_units(one.bytes),
        in_units(one.future_bytes) if one.future_replicas else "-",
        "-" if one.growth is None else f"{'-' if one.growth < 0 else '+'}{in_units(abs(one.growth))}",
        "-" if one.days_until_full is None else many(one.days_until_full, "day"),
        ", ".join(_topics(one, every)) or one.error or "-",
    )


def _show_doubts(out: Screen, directories: list[DirectorySize]) -> None:
    for one in directories:
        if one.pairing != CERTAIN:
            what = f"is likely {one.directory_id}" if one.directory_id else "has an unknown id"
            say(out, f"{one.path} of broker {one.broker_id} {what}: {one.evidence}.", "yellow")
    for one in directories:
        said = [
            many(count or 0, *what)
            for count, what in (
                (
                    one.missing,
                    ("replica that the log has there is not in it", "replicas that the log has there are not"),
                ),
                (one.astray, ("replica in it is elsewhere by the log", "replicas in it are elsewhere by the log")),
            )
            if count
        ]
        if said and not one.error:
            say(out, f"{one.path} of broker {one.broker_id}: {'; '.join(said)}.", "yellow")
    failed = [f"{one.path} of broker {one.broker_id}" for one in directories if one.error]
    if failed:
        say(out, f"Cannot be read: {listed(failed)}. jbod offline says what is to be done.", "bold red")


def _id(one: DirectorySize) -> str:
    if one.directory_id is None:
        return "unknown"
    return one.directory_id if one.pairing == CERTAIN or one.path is None else f"likely {one.directory_id}"


def _topics(one: DirectorySize, every: bool) -> Iterator[str]:
    shown = [topic for topic in one.topics if topic.bytes] if every else one.topics[:MOST_TOPICS]
    for topic in shown:
        if topic.bytes:
            yield f"{topic.topic} {in_units(topic.bytes)}"
