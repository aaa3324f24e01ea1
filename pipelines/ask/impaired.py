"""Partitions that lack a leader, a replica or in-sync replicas."""

from __future__ import annotations

from typing import NamedTuple

from pipelines.ask.configs import min_isr
from pipelines.lake.reader import Lake


class Troubled(NamedTuple):
    """A partition with a replica offline or out of sync, or without a leader."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    offline: tuple[int, ...]
    min_isr: int

    @property
    def name(self) -> str:
        """``topic-0``"""
        return f"{self.topic}-{self.partition}"

    @property
    def without_leader(self) -> bool:
        """It has no leader: clients can neither read nor write."""
        return self.leader == -1

    @property
    def led_from_offline(self) -> bool:
        """Its leader is offline: clients are sent to a replica that cannot answer."""
        return self.leader in self.offline

    @property
    def all_offline(self) -> bool:
        """No replica is online."""
        return len(self.offline) == len(self.replicas)

    @property
    def under_min_isr(self) -> bool:
        """Fewer replicas are in sync and online than ``min.insync.replicas`` requires: acks=all writes fail."""
        return len(set(self.isr) - set(self.offline)) < self.min_isr


def troubled(lake: Lake, default_min_isr: int = 1, *, offline_only: bool = False) -> list[Troubled]:
    """The impaired partitions, or only those with a replica offline, by topic and number."""
    wrong = "o.brokers IS NOT NULL" + ("" if offline_only else " OR p.leader = -1 OR len(p.isr) < len(p.replicas)")
    rows = lake.query(
        f"""
        WITH o AS (
            SELECT topic_id, partition, list(broker_id ORDER BY replica_index) AS brokers
            FROM {lake.at("offline_replicas")} GROUP BY ALL
        )
        SELECT p.topic, p.partition, p.replicas, p.isr, p.leader, o.brokers
        FROM {lake.at("partitions")} p LEFT JOIN o USING (topic_id, partition)
        WHERE {wrong}
        ORDER BY p.topic, p.partition
        """
    )
    wanted = min_isr(lake, default_min_isr) if rows else None
    return [
        Troubled(
            topic,
            partition,
            tuple(replicas),
            tuple(isr),
            leader,
            tuple(offline or ()),
            wanted.of(topic, len(replicas)) if wanted else default_min_isr,
        )
        for topic, partition, replicas, isr, leader, offline in rows
    ]
