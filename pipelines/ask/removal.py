"""Whether a directory can be removed from its broker: the verdict, its reasons, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pipelines.ask.configs import tiered_topics
from pipelines.ask.json_values import jsonable
from pipelines.ask.lost_data import complete_copies, losses
from pipelines.ask.removal_reasons import Held, Reason, drain_command, reasons_against
from pipelines.ask.whatif_places import Place, find_directory
from pipelines.lake.reader import Lake


@dataclass(frozen=True)
class Removal:
    """The answer."""

    offset: int
    time: datetime
    broker_id: int
    broker: str
    """online, fenced or missing."""
    directory_id: str
    listed: bool
    """Whether the broker lists the directory as online."""
    safe: bool
    reasons: Sequence[Reason]
    """The reasons, blocking ones first."""
    held: Sequence[Held]
    plan: str | None
    """The command that plans how to empty it. None if nothing is in it to be moved, or if the broker cannot move it."""

    def as_json(self) -> dict[str, Any]:
        """One JSON object."""
        found: dict[str, Any] = jsonable(self)
        return {**found, "reasons": [{**jsonable(reason), "advice": reason.advice} for reason in self.reasons]}


def safe_to_remove(lake: Lake, text: str, default_min_isr: int = 1) -> Removal:
    """Whether ``BROKER:DIRECTORY`` can be removed at the lake's offset. Raises UsageError if it does not exist."""
    place = find_directory(lake, text)
    held = _held(lake, place, default_min_isr)
    data = losses(lake, default_min_isr)
    lost = [
        one
        for one in data.losses
        if any((copy.broker_id, copy.directory_id) == (place.broker_id, place.directory_id) for copy in one.copies)
    ]
    reasons = sorted(reasons_against(lake, place, held, lost, data.last_copies), key=lambda reason: not reason.blocks)
    return Removal(
        lake.offset,
        lake.time,
        place.broker_id,
        place.broker,
        place.directory_id or "",
        place.listed,
        not any(reason.blocks for reason in reasons),
        reasons,
        held,
        drain_command(lake, place) if place.listed and any(one.stays for one in held) else None,
    )


def _held(lake: Lake, place: Place, default_min_isr: int) -> list[Held]:
    """Replicas in the directory, and those of its broker whose directory is unknown."""
    rows = lake.query(
        f"""
        WITH o AS (
            SELECT topic_id, partition, list(broker_id) AS down FROM {lake.at("offline_replicas")} GROUP BY ALL
        )
        SELECT p.topic, p.partition, p.replicas, a.kind, p.leader = a.broker_id,
               list_filter(p.replicas, lambda b: b <> a.broker_id AND NOT list_contains(coalesce(o.down, []), b)) = [],
               list_contains(p.adding, a.broker_id), list_contains(p.removing, a.broker_id), p.topic_id,
               list_filter(p.replicas, lambda b: b <> a.broker_id AND NOT list_contains(coalesce(o.down, []), b)),
               list_concat(p.isr, p.elr)
        FROM {lake.at("assignments")} a JOIN {lake.at("partitions")} p USING (topic_id, partition)
        LEFT JOIN o USING (topic_id, partition)
        WHERE a.broker_id = $1 AND (a.directory_id = $2 OR a.kind <> 'assigned')
        ORDER BY p.topic, p.partition
        """,
        [place.broker_id, place.directory_id],
    )
    # The partition's lists name the complete copies, unless a copy was damaged. The model knows these cases.
    doubtful = [(row[8], row[1]) for row in rows if not set(row[9]) & set(row[10])]
    complete = complete_copies(lake, doubtful, default_min_isr)
    found = []
    tiered = tiered_topics(lake)
    for topic, partition, replicas, kind, leads, only_online, arriving, leaving, topic_id, online, named in rows:
        copies = complete.get((topic_id, partition))
        mine = copies is None or place.broker_id in copies
        others = set(online) & set(named if copies is None else copies)
        last = mine and not others
        found.append(
            Held(topic, partition, replicas, kind, leads, only_online, last, arriving, leaving, topic in tiered)
        )
    return found
