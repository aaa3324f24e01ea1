"""Every directory of every broker: whether it is online, since when, and what it holds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pipelines.lake.ledger import time_of
from pipelines.lake.reader import Lake


@dataclass(frozen=True)
class Directory:
    """A directory, or the replicas of a broker that are in none that is known."""

    broker_id: int
    broker: str
    """online, fenced or missing."""
    directory_id: str
    state: str
    """online; failed, deregistered, moved or unregistered; unknown; or the kind: unassigned, lost, migrating."""
    since_offset: int | None
    since_time: datetime | None
    replicas: int
    leaders: int


def directories(lake: Lake) -> list[Directory]:
    """Those registered, those that replicas are still assigned to, and what is assigned nowhere; by broker."""
    brokers = dict(lake.query(f"SELECT broker_id, fenced FROM {lake.at('brokers')}"))
    held = {
        (broker, directory): (kind, replicas, leaders)
        for broker, directory, kind, replicas, leaders in lake.query(
            f"""
            SELECT a.broker_id, a.directory_id, a.kind, count(*), count(*) FILTER (p.leader = a.broker_id)
            FROM {lake.at("assignments")} a JOIN {lake.at("partitions")} p USING (topic_id, partition)
            GROUP BY ALL
            """
        )
    }
    known = {
        (broker, directory): (ended_by, since, time_of(micros))
        for broker, directory, ended_by, since, micros in lake.query(
            f"""
            SELECT broker_id, directory_id, ended_by, coalesce(to_offset, from_offset),
                   epoch_us(coalesce(to_time, from_time))
            FROM {lake.until("directories")}
            QUALIFY row_number() OVER (PARTITION BY broker_id, directory_id ORDER BY from_offset DESC) = 1
            """
        )
    }
    found = []
    for broker, directory in sorted({*held, *(key for key, (ended_by, *_) in known.items() if ended_by is None)}):
        kind, replicas, leaders = held.get((broker, directory), ("assigned", 0, 0))
        ended_by, since, time = known.get((broker, directory), ("unknown", None, None))
        state = kind if kind != "assigned" else ended_by or "online"
        fenced = brokers.get(broker)
        status = "missing" if fenced is None else "fenced" if fenced else "online"
        found.append(Directory(broker, status, directory, state, since, time, replicas, leaders))
    return found
