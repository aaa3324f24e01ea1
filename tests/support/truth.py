"""Two real clusters whose partitions were read from the beginning at every checkpoint: what was truly gone."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.paths import FIXTURES

TRUTH = FIXTURES / "truth"
TRUE_KAFKAS = tuple(sorted(path.name for path in TRUTH.iterdir()))
"""The clusters: ``kafka-4.0.1`` and so on."""

NOTHING, MAY_LACK, LOST, UNREACHABLE = "nothing", "may lack writes", "lost", "unreachable"

RIGHT, WRONG = "right", "wrong"
WIPED = "a log wiped in place, under its own id"
EMPTY = "an empty topic"
KILLED = "a kill of the process alone, with eligible leader replicas"


@dataclass(frozen=True)
class Cell:
    """A partition at a checkpoint."""

    checkpoint: int
    offset: int
    """The end of the metadata log then."""
    partition: str
    acked: int
    """Messages that were acknowledged so far."""
    gone: int | None
    """How many of them a consumer did not read from the beginning; None if the partition had no leader."""
    gone_before: int
    """``gone`` of the last checkpoint before, at which it had a leader."""
    gone_after: int
    """The same of the next one; the last known, if there is none."""
    wiped: bool
    """Whether its log was wiped in place before."""
    killed: bool
    """Whether the process of one of its brokers was killed before, while eligible leader replicas were on."""

    def judge(self, answer: str) -> str:
        """RIGHT, WRONG, or the case that no metadata can tell, of which ``answer`` is a documented consequence."""
        if answer in (NOTHING, UNREACHABLE):
            gone = self.gone if self.gone is not None else self.gone_before
            if answer == UNREACHABLE and (self.gone is not None or (self.gone_after and not self.wiped)):
                return WRONG
            return RIGHT if not gone else WIPED if self.wiped else WRONG
        if self.gone if self.gone is not None else self.gone_after:
            return RIGHT
        if not self.acked:
            return EMPTY
        return KILLED if answer == MAY_LACK and self.killed else WRONG


def metadata_dir(kafka: str) -> Path:
    """The controller's ``metadata.log.dir``."""
    return TRUTH / kafka / "metadata" / "controller-100"


@cache
def kafka_images(kafka: str) -> tuple[dict[str, Any], ...]:
    """Kafka's own images, at about every tenth offset."""
    with gzip.open(TRUTH / kafka / "images.jsonl.gz", "rt", encoding="utf-8") as lines:
        return tuple(map(json.loads, lines))


@cache
def checkpoints(kafka: str) -> Mapping[int, tuple[Cell, ...]]:
    """Offset -> the cells of the checkpoint there."""
    truth = json.loads(gzip.decompress((TRUTH / kafka / "truth.json.gz").read_bytes()))
    cells_at: dict[int, tuple[Cell, ...]] = {}
    for checkpoint in truth["checkpoints"]:
        wiped, killed = _causes(truth["events"], checkpoint["t"])
        cells = []
        for partition, seen in checkpoint["partitions"].items():
            reads = [
                (each["cp"], each["partitions"][partition])
                for each in truth["checkpoints"]
                if each["partitions"].get(partition, {}).get("readable")
            ]
            before = [read["gone"] for number, read in reads if number < checkpoint["cp"]]
            after = [read["gone"] for number, read in reads if number > checkpoint["cp"]]
            cells.append(
                Cell(
                    checkpoint=checkpoint["cp"],
                    offset=checkpoint["offset"],
                    partition=partition,
                    acked=seen["acked"],
                    gone=seen["gone"] if seen["readable"] else None,
                    gone_before=before[-1] if before else 0,
                    gone_after=(after or before[-1:] or [0])[0],
                    wiped=partition in wiped,
                    killed=not killed.isdisjoint(seen["replicas"]),
                )
            )
        cells_at[checkpoint["offset"]] = tuple(cells)
    return cells_at


def _causes(events: list[dict[str, Any]], until: float) -> tuple[set[str], set[int]]:
    """Partitions whose logs were wiped in place, and brokers that were killed with all their disks left alone."""
    wiped: set[str] = set()
    killed: set[int] = set()
    eligible, prefix = False, ""
    for what in _steps(events, until):
        if what.startswith("features "):
            eligible = "eligible.leader.replicas.version -> FinalizedVersionRange[min_version_level:1" in what
        elif story := re.fullmatch(r"== \w+ (\w)", what):
            prefix = story[1]
        elif wipe := re.fullmatch(r"start \d+, logs of (.+) wiped in place", what):
            wiped |= {f"{prefix}{name}-0" for name in wipe[1].split(" and ")}
        elif eligible and (kill := re.fullmatch(r"kill -9 (\d+)", what)):
            killed.add(int(kill[1]))
    return wiped, killed


def _steps(events: list[dict[str, Any]], until: float) -> Iterator[str]:
    return (event["what"] for event in events if event["t"] <= until)
