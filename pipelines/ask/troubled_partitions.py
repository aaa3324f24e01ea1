"""Partitions that lack a leader, a replica or in-sync replicas, and those without a leader though all are online."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from pipelines.ask.advice import Advice, elect_any, few, restart_to_elect, steps_in_words
from pipelines.ask.configs import min_isr
from pipelines.ask.json_values import jsonable
from pipelines.ask.last_copies import LastCopies
from pipelines.lake.ledger import time_of
from pipelines.lake.reader import Lake


@dataclass(frozen=True)
class Leaderless:
    """A partition that no replica leads, although every replica is online."""

    topic: str
    partition: int
    replicas: Sequence[int]
    named: Sequence[int]
    """The replicas that are in sync or eligible."""
    from_offset: int
    from_time: datetime
    finding: str
    steps: Sequence[Advice]

    @property
    def name(self) -> str:
        """``topic-0``"""
        return f"{self.topic}-{self.partition}"

    def as_json(self) -> dict[str, Any]:
        """One JSON object."""
        answer: dict[str, Any] = jsonable(self)
        return {**answer, "advice": steps_in_words(self.steps)}


def leaderless(lake: Lake, last: LastCopies) -> list[Leaderless]:
    """These partitions at the lake's offset, by topic and number."""
    rows = lake.query(
        f"""
        WITH p AS (
            SELECT p.* FROM {lake.at("partitions")} p
            ANTI JOIN {lake.at("offline_replicas")} o ON o.topic_id = p.topic_id AND o.partition = p.partition
            WHERE p.leader = -1
        )
        SELECT p.topic, p.partition, p.replicas, list_distinct(list_concat(p.isr, p.elr)),
               coalesce(max(h.to_offset), min(p.from_offset)), epoch_us(coalesce(max(h.to_time), min(p.from_time)))
        FROM p LEFT JOIN {lake.until("partitions")} h
             ON h.topic_id = p.topic_id AND h.partition = p.partition AND h.leader >= 0
        GROUP BY ALL ORDER BY p.topic, p.partition
        """
    )
    return [
        Leaderless(
            topic, number, replicas, named, since, time_of(micros), *_about(topic, number, replicas, named, last)
        )
        for topic, number, replicas, named, since, micros in rows
    ]


def _about(
    topic: str, number: int, replicas: Sequence[int], named: Sequence[int], last: LastCopies
) -> tuple[str, Sequence[Advice]]:
    name = f"{topic}-{number}"
    for broker, held in last.away.items():
        directories = [directory for directory, names in held.items() if directory and name in names]
        if directories:
            finding = f"no replica leads: the last complete copy is in directory {few(directories)} of broker {broker}"
            return finding, last.steps(broker, running=broker in replicas) or last.about_missing(broker)
    electable = [broker for broker in replicas if broker in named]
    if electable:
        broker = electable[0]
        finding = f"no replica leads, although broker {broker} could: the controller has not elected it"
        return finding, [*last.before_start(broker, running=True), restart_to_elect(broker, name)]
    finding = "no replica leads: none that is online is in sync or eligible"
    return finding, [elect_any(topic, number)]


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
    """The troubled partitions, or only those with a replica offline, by topic and number."""
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


class TroubledCounts(NamedTuple):
    """How many partitions are troubled, as the properties of Troubled say."""

    without_leader: int
    led_from_offline: int
    all_offline: int
    under_min_isr: int
    under_replicated: int
    """Fewer replicas are in sync than there are."""


def count_troubled(lake: Lake, default_min_isr: int = 1) -> TroubledCounts:
    """The counts at the lake's offset, without a row of Python for each partition."""
    values = min_isr(lake, default_min_isr)
    (counts,) = lake.query(
        f"""
        WITH o AS (
            SELECT topic_id, partition, list(broker_id) AS brokers
            FROM {lake.at("offline_replicas")} GROUP BY topic_id, partition
        ),
        m AS (SELECT unnest($1::VARCHAR[]) AS topic, unnest($2::INT[]) AS min_isr)
        SELECT count(*) FILTER (p.leader = -1), count(*) FILTER (list_contains(o.brokers, p.leader)),
               count(*) FILTER (len(o.brokers) = len(p.replicas)),
               count(*) FILTER (len(p.isr) - coalesce(len(list_intersect(p.isr, o.brokers)), 0)
                                < least(coalesce(m.min_isr, $3), len(p.replicas))),
               count(*) FILTER (len(p.isr) < len(p.replicas))
        FROM {lake.at("partitions")} p LEFT JOIN o USING (topic_id, partition) LEFT JOIN m USING (topic)
        """,
        [list(values.topics), list(values.topics.values()), values.default],
    )
    return TroubledCounts(*counts)
