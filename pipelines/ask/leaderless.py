"""Partitions without a leader whose replicas are all online."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pipelines.ask.advice import Advice, elect_any, few, restart_to_elect, told
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
        return {**answer, "advice": told(self.steps)}


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
