"""The state of a lake and of its cluster on one screen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from pipelines.ask.configs import features
from pipelines.ask.impaired import troubled
from pipelines.ask.lost_data import LOST, MAY_LACK, UNREACHABLE, losses
from pipelines.lake.reader import Lake


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


def status(lake: Lake, default_min_isr: int = 1, accepted_until: int = -1) -> Status:
    """The status at the lake's offset. Lost data up to the offset ``accepted_until`` is accepted."""
    ((brokers, fenced),) = lake.query(f"SELECT count(*), count(*) FILTER (fenced) FROM {lake.at('brokers')}")
    ((directories,),) = lake.query(f"SELECT count(*) FROM {lake.at('directories')}")
    ((topics, partitions),) = lake.query(f"SELECT count(DISTINCT topic_id), count(*) FROM {lake.at('partitions')}")
    kinds = lake.query(f"SELECT kind, count(*) FROM {lake.at('assignments')} GROUP BY kind ORDER BY kind")
    ((offline,),) = lake.query(f"SELECT count(*) FROM {lake.at('offline_replicas')}")
    hit = troubled(lake, default_min_isr)
    data = losses(lake, default_min_isr, accepted_until)
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
        partitions_without_leader=sum(partition.without_leader for partition in hit),
        partitions_led_from_offline=sum(partition.led_from_offline for partition in hit),
        partitions_under_min_isr=sum(partition.under_min_isr for partition in hit),
        partitions_under_replicated=sum(len(partition.isr) < len(partition.replicas) for partition in hit),
        partitions_data_lost=data.count(LOST),
        partitions_data_unreachable=data.count(UNREACHABLE),
        partitions_may_lack_writes=data.count(MAY_LACK),
    )
