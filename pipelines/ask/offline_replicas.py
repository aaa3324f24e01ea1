"""Which replicas are offline, why, since when, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple

from pipelines.ask.impaired import Troubled, troubled
from pipelines.ask.json_values import camel_case, jsonable
from pipelines.ask.lost_data import Losses, losses
from pipelines.lake.ledger import time_of
from pipelines.lake.reader import Lake


class OfflineReplica(NamedTuple):
    """A replica that is offline, and the record that took it offline."""

    topic: str
    topic_id: str
    partition: int
    replica_index: int
    broker_id: int
    directory_id: str
    reason: str
    since_offset: int
    since_time: datetime
    since_snapshot: bool
    """Whether it began at or before the offset: the beginning is known only from a snapshot."""

    def as_json(self) -> dict[str, Any]:
        """Returns one JSON object. ``jsonable`` would be slow for hundreds of thousands: it inspects each field."""
        found: dict[str, Any] = dict(zip(_JSON_NAMES, self, strict=True))
        found["sinceTime"] = self.since_time.isoformat()
        return found


_JSON_NAMES = tuple(map(camel_case, OfflineReplica._fields))


@dataclass(frozen=True)
class Cause:
    """The common cause of several offline replicas."""

    reason: str
    broker_id: int
    directory_id: str | None
    """The directory, if it is the reason."""
    since_offset: int
    since_time: datetime
    since_snapshot: bool
    replicas: int
    finding: str
    advice: str
    last_offset: int | None = None
    """Offset where the last of them went offline, if that is not ``since_offset``."""
    last_time: datetime | None = None


@dataclass(frozen=True)
class Offline:
    """The answer."""

    offset: int
    time: datetime
    replicas_in_all: int
    partitions_in_all: int
    replicas: Sequence[OfflineReplica]
    causes: Sequence[Cause]
    """Most replicas first."""
    partitions: Sequence[Troubled]
    """The partitions with an offline replica."""
    data: Losses
    """Data that is lost, even if no replica is offline now, and data at risk."""

    def only(self, replicas: Sequence[OfflineReplica], data: Losses, causes: Sequence[Cause]) -> Offline:
        """The part of the answer that is about some of the replicas."""
        names = {(one.topic, one.partition) for one in replicas}
        hit = [one for one in self.partitions if (one.topic, one.partition) in names]
        return replace(self, replicas=replicas, causes=causes, partitions=hit, data=data)

    def as_json(self, shown: Sequence[OfflineReplica] | None = None) -> dict[str, Any]:
        """One JSON object. Lists the replicas ``shown``, by default all of them."""

        def names(chosen: str) -> list[str]:
            return [partition.name for partition in self.partitions if getattr(partition, chosen)]

        return {
            "offset": self.offset,
            "time": self.time.isoformat(),
            "replicasInAll": self.replicas_in_all,
            "partitionsInAll": self.partitions_in_all,
            "offlineReplicas": len(self.replicas),
            "partitionsWithoutLeader": names("without_leader"),
            "partitionsLedFromOffline": names("led_from_offline"),
            "partitionsAllOffline": names("all_offline"),
            "partitionsUnderMinIsr": names("under_min_isr"),
            "causes": jsonable(list(self.causes)),
            **self.data.as_json(),
            "replicas": [one.as_json() for one in (self.replicas if shown is None else shown)],
        }


def offline(lake: Lake, default_min_isr: int = 1, accepted_until: int = -1) -> Offline:
    """Offline replicas at the lake's offset. Lost data up to the offset ``accepted_until`` is accepted."""
    rows = lake.query(
        f"""
        SELECT topic, topic_id, partition, replica_index, broker_id, directory_id, reason, from_offset,
               epoch_us(from_time), from_snapshot
        FROM {lake.at("offline_replicas")} ORDER BY topic, partition, replica_index
        """
    )
    ((partitions, replicas),) = lake.query(
        f"SELECT count(*), coalesce(sum(len(replicas)), 0)::BIGINT FROM {lake.at('partitions')}"
    )
    found = [OfflineReplica._make((*row[:8], time_of(row[8]), row[9])) for row in rows]
    hit = troubled(lake, default_min_isr, offline_only=True) if found else []
    data = losses(lake, default_min_isr, accepted_until)
    return Offline(lake.offset, lake.time, replicas, partitions, found, causes(lake, found), hit, data)


def causes(lake: Lake, replicas: Sequence[OfflineReplica]) -> list[Cause]:
    """The causes of some offline replicas, most replicas first."""
    groups: dict[tuple[str, int, str | None], list[OfflineReplica]] = {}
    for replica in replicas:
        directory = replica.directory_id if replica.reason == "directory offline" else None
        groups.setdefault((replica.reason, replica.broker_id, directory), []).append(replica)
    ends = _directory_ends(lake) if any(directory for _, _, directory in groups) else {}
    stopping = _shutting_down(lake) if any(reason == "broker fenced" for reason, _, _ in groups) else set()
    found = []
    for (reason, broker, directory), members in groups.items():
        oldest = min(members, key=attrgetter("since_offset"))
        newest = max(members, key=attrgetter("since_offset"))
        newest = oldest if newest.since_offset == oldest.since_offset else newest
        if directory is not None:
            finding, advice = _about_directory(broker, directory, ends.get(directory))
        elif reason == "broker fenced":
            finding, advice = _about_fenced(broker, broker in stopping)
        elif reason == "broker missing":
            finding = f"broker {broker} is not registered: it was unregistered, or never joined"
            advice = "start that broker again, or reassign its replicas to other brokers"
        else:
            finding = f"broker {broker} said these replicas were in a directory that failed, not in which"
            advice = "run jbod disks on that broker to find the failed directory; repair or replace the disk"
        found.append(
            Cause(
                reason,
                broker,
                directory,
                oldest.since_offset,
                oldest.since_time,
                oldest.since_snapshot,
                len(members),
                finding,
                advice,
                newest.since_offset if newest is not oldest else None,
                newest.since_time if newest is not oldest else None,
            )
        )
    return sorted(found, key=lambda cause: (-cause.replicas, cause.broker_id, cause.directory_id or ""))


def _about_fenced(broker: int, stopping: bool) -> tuple[str, str]:
    if stopping:
        return (
            f"broker {broker} was shut down in order and is fenced since",
            "start that broker if nobody meant to stop it",
        )
    return (
        f"broker {broker} is fenced: down, still starting, or cut off from the controller",
        "look whether that broker runs; if it does, its log says why it cannot reach the controller",
    )


def _about_directory(broker: int, directory: str, end: tuple[int, str | None] | None) -> tuple[str, str]:
    """``end`` is the broker that had it last, and why it left."""
    if end is None:
        return (
            f"broker {broker} never registered directory {directory}",
            "compare the meta.properties of that broker's disks with this id (jbod disks)",
        )
    holder, ended_by = end
    if ended_by is None:
        return (
            f"directory {directory} is now on broker {holder}",
            f"the disk was moved from broker {broker} to {holder}: put it back, or reassign the replicas",
        )
    if ended_by == "failed":
        return (
            f"broker {broker} runs, but reported that directory {directory} failed",
            "find that disk (its meta.properties holds the id) and look at the kernel log and its mount; repair or "
            "replace it, then restart the broker",
        )
    return (
        f"broker {broker} came back without directory {directory}",
        "mount that disk again on its broker, or let replicas be rebuilt by reassigning them",
    )


def _directory_ends(lake: Lake) -> dict[str, tuple[int, str | None]]:
    rows = lake.query(
        f"""
        SELECT directory_id, broker_id, ended_by FROM {lake.until("directories")}
        QUALIFY row_number() OVER (PARTITION BY directory_id ORDER BY from_offset DESC) = 1
        """
    )
    return {directory: (broker, ended_by) for directory, broker, ended_by in rows}


def _shutting_down(lake: Lake) -> set[int]:
    rows = lake.query(f"SELECT broker_id FROM {lake.at('brokers')} WHERE in_controlled_shutdown")
    return {broker for (broker,) in rows}
