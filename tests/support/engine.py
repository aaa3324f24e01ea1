"""The engine without Spark: slices decoded, sharded and folded in this process, for any size of micro-batch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.fold.machine import Row, fold_rows
from pipelines.fold.rows import TableRows
from pipelines.fold.rules import rules
from pipelines.lake.tables import BY_NAME, DERIVED
from pipelines.run.micro_batches import micro_batches
from pipelines.run.stage_options import Job
from pipelines.run.stages import shard_rows
from pipelines.source.log_dir import LogDir
from pipelines.source.plan import Planner
from pipelines.source.positions import Slice
from pipelines.source.slices import read_slice

FOREVER = np.iinfo(np.int64).max


class Run:
    """Folds micro-batches into the state of every shard; ``tables`` are all history rows so far, by table."""

    def __init__(self, *, shards: int = 3, profile: str = "kafka", ids: str = "kafka") -> None:
        self._job = Job("", shards, rules(profile, ids), generation=0)
        self.states: dict[int, bytes] = {}
        """The states of a checkpoint, by shard."""
        self._closed: dict[str, list[pa.Table]] = defaultdict(list)
        self._open: dict[tuple[str, int], pa.Table] = {}
        self.kept: set[str] = set()
        """The tables whose open rows the last micro-batch left as they were, in every shard that it reached."""

    def add(self, pieces: Iterable[Slice]) -> None:
        """Fold one micro-batch. The events of a shard come in any order."""
        self.kept = set(BY_NAME)
        for batch in micro_batches([(None, list(pieces))], self._decode, self._fold, self.states, threads=1):
            for shard, tables in batch.shards:
                for name, rows in tables.items():
                    self._closed[name].append(rows.closed)
                    if not rows.keeps_open:
                        self._open[(name, shard)] = rows.open
                        self.kept.discard(name)

    def _decode(self, sequence: int, piece: Slice) -> Iterator[Row]:
        return shard_rows(self._job, sequence, piece, *read_slice(piece))

    def _fold(self, shard: int, state: bytes | None, rows: list[Row]) -> tuple[bytes, dict[str, TableRows]]:
        after, tables, _ = fold_rows(self._job, shard, state, reversed(rows), keeps_open=True)
        return after, tables

    @property
    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """The closed rows, and the rows that are open now."""
        return {
            table.name: [
                row
                for part in [
                    *self._closed[table.name],
                    *(rows for (name, _), rows in self._open.items() if name == table.name),
                ]
                for row in part.to_pylist()
            ]
            for table in DERIVED
        }


def replay(
    log_dir: Path | str,
    *,
    most: int | None = None,
    shards: int = 3,
    start: str = "auto",
    profile: str = "kafka",
    ids: str = "kafka",
) -> dict[str, list[dict[str, Any]]]:
    """All history rows of a log, by table, replayed in micro-batches of at most ``most`` records."""
    run = Run(shards=shards, profile=profile, ids=ids)
    planner = Planner(LogDir(str(log_dir)))
    for _, pieces in planner.micro_batches(planner.begin(start), most):
        run.add(pieces)
    return run.tables


def slices(log_dir: Path | str, *, most: int | None = None, start: str = "auto", tail: str = "wait") -> Iterator[Slice]:
    """The slices that a run would read, by micro-batch."""
    planner = Planner(LogDir(str(log_dir)), tail=tail)
    for _, pieces in planner.micro_batches(planner.begin(start), most):
        yield from pieces


_bounds: dict[int, tuple[list[dict[str, Any]], np.ndarray, np.ndarray]] = {}
"""A cache of the last lists, by identity: the list itself, the beginnings of its rows, their ends."""


def true_at(rows: list[dict[str, Any]], offset: int) -> Iterator[dict[str, Any]]:
    """The rows that were true at an offset."""
    held = _bounds.get(id(rows))
    if held is None or held[0] is not rows or len(held[1]) != len(rows):
        if len(_bounds) > 12:
            _bounds.clear()
        begins = np.array([row["from_offset"] for row in rows], np.int64)
        ends = np.array([FOREVER if row["to_offset"] is None else row["to_offset"] for row in rows], np.int64)
        held = _bounds[id(rows)] = (rows, begins, ends)
    _, begins, ends = held
    return (rows[at] for at in np.flatnonzero((begins <= offset) & (offset < ends)).tolist())


def image(tables: dict[str, list[dict[str, Any]]], offset: int, *, cordons: bool = False) -> dict[str, Any]:
    """The image at an offset, in the form of a line of images.jsonl; with ``cordons`` as images of Kafka 4.3 have them,
    but in the order of the ids."""
    offline = defaultdict(list)
    for row in true_at(tables["offline_replicas"], offset):
        offline[(row["topic_id"], row["partition"])].append((row["replica_index"], row["broker_id"]))
    partitions = [
        {
            "topic": row["topic"],
            "topicId": row["topic_id"],
            "partition": row["partition"],
            "replicas": row["replicas"],
            "isr": row["isr"],
            "elr": row["elr"],
            "adding": row["adding"],
            "removing": row["removing"],
            "leader": row["leader"],
            "leaderEpoch": row["leader_epoch"],
            "partitionEpoch": row["partition_epoch"],
            "directories": row["directories"],
            "offlineReplicas": [broker for _, broker in sorted(offline[(row["topic_id"], row["partition"])])],
        }
        for row in sorted(true_at(tables["partitions"], offset), key=lambda r: (r["topic"], r["partition"]))
    ]
    brokers = [
        {
            "brokerId": row["broker_id"],
            "epoch": row["broker_epoch"],
            "incarnationId": row["incarnation_id"],
            "fenced": row["fenced"],
            "inControlledShutdown": row["in_controlled_shutdown"],
            "logDirs": row["log_dirs"],
            **({"cordonedLogDirs": row["cordoned_log_dirs"] or []} if cordons else {}),
        }
        for row in sorted(true_at(tables["brokers"], offset), key=lambda r: r["broker_id"])
    ]
    return {"op": "image", "offset": offset, "partitions": partitions, "brokers": brokers}
