"""The state of a lake and of its cluster on one screen; and every directory of every broker.

Of a directory: whether it is online or cordoned, since when, and the replicas in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from pipelines.ask.configs import features
from pipelines.ask.lost_data import LOST, MAY_LACK, UNREACHABLE, count_lost
from pipelines.ask.troubled_partitions import count_troubled
from pipelines.lake.ledger import time_of
from pipelines.lake.reader import Lake
from pipelines.quorum.state import WatchedQuorum, mirror_of, read_state


@dataclass(frozen=True)
class Directory:
    """A directory, or the replicas of a broker whose directory is unknown."""

    broker_id: int
    broker: str
    """online, fenced or missing."""
    directory_id: str
    state: str
    """online; failed, deregistered, moved or unregistered; unknown; or the kind: unassigned, lost, migrating."""
    from_offset: int | None
    from_time: datetime | None
    replicas: int
    leaders: int
    cordoned_from_offset: int | None = None
    """Offset of the record that cordoned it, None if it is not cordoned."""
    cordoned_from_time: datetime | None = None


def directories(lake: Lake) -> list[Directory]:
    """Registered directories, others with assigned replicas, and replicas without a directory; by broker."""
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
    cordons = _cordons(lake)
    found = []
    for broker, directory in sorted({*held, *(key for key, (ended_by, *_) in known.items() if ended_by is None)}):
        kind, replicas, leaders = held.get((broker, directory), ("assigned", 0, 0))
        ended_by, since, time = known.get((broker, directory), ("unknown", None, None))
        state = kind if kind != "assigned" else ended_by or "online"
        fenced = brokers.get(broker)
        status = "missing" if fenced is None else "fenced" if fenced else "online"
        cordoned, cordon_time = cordons.get((broker, directory), (None, None))
        found.append(Directory(broker, status, directory, state, since, time, replicas, leaders, cordoned, cordon_time))
    return found


def _cordons(lake: Lake) -> dict[tuple[int, str], tuple[int, datetime]]:
    """(broker, directory) -> offset and time since when it is cordoned. A restart keeps a cordon.

    A new registration lists no cordons until the first heartbeats. That does not end a cordon.
    """
    rows = lake.query(
        f"""
        WITH told AS (
            SELECT broker_id, from_offset, epoch_us(from_time) AS micros, cordoned_log_dirs
            FROM {lake.until("brokers")} WHERE cordoned_log_dirs IS NOT NULL
        ),
        now AS (
            SELECT broker_id, unnest(list_distinct(cordoned_log_dirs)) AS directory_id
            FROM {lake.at("brokers")} WHERE cordoned_log_dirs IS NOT NULL
        ),
        free AS (
            SELECT n.broker_id, n.directory_id, max(t.from_offset) AS last
            FROM now n JOIN told t USING (broker_id)
            WHERE NOT list_contains(t.cordoned_log_dirs, n.directory_id) GROUP BY ALL
        )
        SELECT n.broker_id, n.directory_id, min(t.from_offset), min(t.micros)
        FROM now n LEFT JOIN free f USING (broker_id, directory_id)
        JOIN told t ON t.broker_id = n.broker_id AND t.from_offset > coalesce(f.last, -1)
        GROUP BY ALL
        """
    )
    return {(broker, directory): (offset, time_of(micros)) for broker, directory, offset, micros in rows}


@dataclass(frozen=True)
class Status:
    """Counts at the lake's offset."""

    cluster_id: str
    profile: str
    offset: int
    time: datetime
    first_offset: int
    newest_offset: int
    newest_time: datetime
    published_time: datetime
    """When the newest offset was published."""
    log_end_offset: int | None
    """The log's end offset at the last run, if that was before the newest offset."""
    features: Mapping[str, int]
    brokers: int
    brokers_fenced: int
    directories: int
    topics: int
    partitions: int
    replicas: Mapping[str, int]
    """By kind: assigned, unassigned, lost, migrating."""
    offline_replicas: int
    partitions_without_leader: int
    partitions_led_from_offline: int
    partitions_under_min_isr: int
    partitions_under_replicated: int
    partitions_data_lost: int
    """Partitions whose last complete copy was given up, without accepted losses."""
    partitions_data_unreachable: int
    partitions_may_lack_writes: int
    """Partitions whose leader's copy was not complete, without accepted losses."""
    quorum: WatchedQuorum | None
    """What the mirror of the log knows of its quorum. None: the log does not come from a quorum."""


def status(lake: Lake, default_min_isr: int = 1, accepted_until: int = -1) -> Status:
    """The status at the lake's offset. Lost data up to the offset ``accepted_until`` is accepted."""
    ((brokers, fenced),) = lake.query(f"SELECT count(*), count(*) FILTER (fenced) FROM {lake.at('brokers')}")
    ((directories,),) = lake.query(f"SELECT count(*) FROM {lake.at('directories')}")
    ((topics, partitions),) = lake.query(f"SELECT count(DISTINCT topic_id), count(*) FROM {lake.at('partitions')}")
    kinds = lake.query(f"SELECT kind, count(*) FROM {lake.at('assignments')} GROUP BY kind ORDER BY kind")
    ((offline,),) = lake.query(f"SELECT count(*) FROM {lake.at('offline_replicas')}")
    hit = count_troubled(lake, default_min_isr)
    lost = count_lost(lake, default_min_isr, accepted_until)
    return Status(
        cluster_id=lake.published.cluster_id,
        profile=lake.published.profile,
        offset=lake.offset,
        time=lake.time,
        first_offset=lake.first,
        newest_offset=lake.published.end_offset - 1,
        newest_time=lake.published.end_time,
        published_time=lake.published.published_time,
        log_end_offset=lake.log_end(),
        features=features(lake),
        brokers=brokers,
        brokers_fenced=fenced,
        directories=directories,
        topics=topics,
        partitions=partitions,
        replicas=dict(kinds),
        offline_replicas=offline,
        partitions_without_leader=hit.without_leader,
        partitions_led_from_offline=hit.led_from_offline,
        partitions_under_min_isr=hit.under_min_isr,
        partitions_under_replicated=hit.under_replicated,
        partitions_data_lost=lost[LOST],
        partitions_data_unreachable=lost[UNREACHABLE],
        partitions_may_lack_writes=lost[MAY_LACK],
        quorum=read_state(mirror_of(lake.path)),
    )
