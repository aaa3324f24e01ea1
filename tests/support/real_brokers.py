"""The requests of the real clusters' brokers, from the controllers' request logs, by process."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jbod_model.ids import Uuid
from tests.support.paths import CLUSTERS, KAFKAS

LINE = re.compile(r"\[(.{23})\] DEBUG Completed request:(\{.*\}) \(kafka\.request\.logger\)")
REGISTRATION, HEARTBEAT, ASSIGNMENT = 62, 63, 73


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request with the times at which it arrived and was answered, in milliseconds."""

    arrived: int
    answered: int
    key: int
    request: dict[str, Any]
    response: dict[str, Any]


def exchanges(cluster: Path) -> dict[int, list[Exchange]]:
    """The requests of each broker, in order."""
    sent: dict[int, list[Exchange]] = {}
    with gzip.open(cluster / "requests-100.log.gz", "rt") as lines:
        for line in lines:
            match = LINE.fullmatch(line.rstrip("\n"))
            if match is None:
                continue
            body = json.loads(match[2])
            key = body["requestHeader"]["requestApiKey"]
            if key in (REGISTRATION, HEARTBEAT, ASSIGNMENT):
                time = datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC)
                answered = int(time.timestamp() * 1000)
                arrived = int(answered - body["totalTimeMs"])
                exchange = Exchange(arrived, answered, key, body["request"], body["response"])
                sent.setdefault(body["request"]["brokerId"], []).append(exchange)
    return {broker_id: sorted(each, key=lambda e: e.arrived) for broker_id, each in sorted(sent.items())}


ALL = {(kafka, broker_id): sent for kafka in KAFKAS for broker_id, sent in exchanges(CLUSTERS / kafka).items()}


def ids(texts: list[str]) -> tuple[Uuid, ...]:
    return tuple(Uuid.parse(text) for text in texts)


def processes(sent: list[Exchange]) -> Iterator[list[Exchange]]:
    """The requests of each process of a broker: a new incarnation begins with its registration."""
    current: list[Exchange] = []
    incarnation = None
    for each in sent:
        if each.key == REGISTRATION and each.request["incarnationId"] != incarnation:
            if current:
                yield current
            current, incarnation = [], each.request["incarnationId"]
        current.append(each)
    yield current
