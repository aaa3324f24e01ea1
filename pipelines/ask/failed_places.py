"""Brokers and directories that have failed already: how, since when, and with how many replicas."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pipelines.ask.whatif_places import Place
from pipelines.lake.ledger import time_of
from pipelines.lake.reader import Lake


@dataclass(frozen=True)
class Already:
    """A broker or directory that is offline already."""

    place: Place
    state: str
    """fenced; or for a directory failed, deregistered, moved or unregistered; unknown if it never was registered."""
    from_offset: int | None
    from_time: datetime | None
    took: int
    """Replicas in it when it failed."""
    held: int
    """Replicas that are still in it."""


def already(lake: Lake, place: Place) -> Already | None:
    """Describes a place that is offline. Returns None for a place that is online."""
    if place.online:
        return None
    state, offset, time = ("fenced", *_fenced_since(lake, place.broker_id)) if place.listed else _gone(lake, place)
    took = held = 0
    ((held,),) = lake.query(f"SELECT count(*) FROM {lake.at('assignments')} WHERE {_inside(place)}")
    if offset is not None:
        ((took,),) = lake.query(
            f"SELECT count(*) FROM {lake.until('assignments')} WHERE {_inside(place)} "
            f"AND from_offset <= {offset} AND (to_offset IS NULL OR to_offset > {offset})"
        )
    return Already(place, state, offset, None if time is None else time_of(time), took, held)


def _inside(place: Place) -> str:
    within = "" if place.directory_id is None else f" AND directory_id = '{place.directory_id}'"
    return f"broker_id = {place.broker_id}{within}"


def _gone(lake: Lake, place: Place) -> tuple[str, int | None, int | None]:
    rows = lake.query(
        f"""
        SELECT ended_by, to_offset, epoch_us(to_time) FROM {lake.until("directories")}
        WHERE {_inside(place)} ORDER BY from_offset DESC LIMIT 1
        """
    )
    return rows[0] if rows else ("unknown", None, None)


def _fenced_since(lake: Lake, broker: int) -> tuple[int, int]:
    """Offset and time since when it is fenced: of the last change to fenced, or of its first registration."""
    rows = lake.query(
        f"""
        WITH h AS (SELECT * FROM {lake.until("brokers")} WHERE broker_id = $1)
        SELECT from_offset, epoch_us(from_time) FROM h
        WHERE fenced AND from_offset >= coalesce((SELECT max(to_offset) FROM h WHERE NOT fenced), 0)
        ORDER BY from_offset LIMIT 1
        """,
        [broker],
    )
    (found,) = rows
    return found
