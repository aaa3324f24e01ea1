"""The engine without Spark: slices decoded, sharded and folded in this process, for any size of micro-batch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.lake.tables import HISTORY
from pipelines.replay.rules import rules
from pipelines.replay.stages import Job, fold_rows, shard_rows
from pipelines.source.log_dir import LogDir
from pipelines.source.plan import Planner, Slice
from pipelines.source.slices import read_slice


def replay(
    log_dir: Path | str, *, most: int | None = None, shards: int = 3, start: str = "auto", profile: str = "kafka"
) -> dict[str, list[dict[str, Any]]]:
    """All history rows of a log, by table, replayed in micro-batches of at most ``most`` records."""
    job = Job("", shards, rules(profile))
    planner = Planner(LogDir(str(log_dir)))
    position = planner.begin(start)
    states: dict[int, bytes] = {}
    closed: dict[str, list[pa.Table]] = defaultdict(list)
    still_open: dict[tuple[str, int], pa.Table] = {}
    while (end := planner.advance(position, most)) != position:
        rows = [
            row
            for sequence, piece in enumerate(planner.slices(position, end))
            for row in shard_rows(job, sequence, piece, *read_slice(piece))
        ]
        for shard in sorted({row[0] for row in rows if row[0] >= 0}):
            mine = [row for row in rows if row[0] == shard]
            states[shard], tables, _ = fold_rows(job, shard, states.get(shard), reversed(mine))
            for name, found in tables.items():
                closed[name].append(found.closed)
                still_open[(name, shard)] = found.open
        position = end
    return {
        table.name: [
            row
            for part in [*closed[table.name], *(open_ for (name, _), open_ in still_open.items() if name == table.name)]
            for row in part.to_pylist()
        ]
        for table in HISTORY
    }


def slices(
    log_dir: Path | str, *, most: int | None = None, start: str = "auto", cut_tail: str = "wait"
) -> Iterator[Slice]:
    """What a run would read, micro-batch after micro-batch."""
    planner = Planner(LogDir(str(log_dir)), cut_tail=cut_tail)
    position = planner.begin(start)
    while (end := planner.advance(position, most)) != position:
        yield from planner.slices(position, end)
        position = end


def true_at(rows: list[dict[str, Any]], offset: int) -> Iterator[dict[str, Any]]:
    """The rows that were true at an offset."""
    return (r for r in rows if r["from_offset"] <= offset and (r["to_offset"] is None or offset < r["to_offset"]))


def image(tables: dict[str, list[dict[str, Any]]], offset: int) -> dict[str, Any]:
    """The image at an offset, in the form of a line of images.jsonl."""
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
        }
        for row in sorted(true_at(tables["brokers"], offset), key=lambda r: r["broker_id"])
    ]
    return {"op": "image", "offset": offset, "partitions": partitions, "brokers": brokers}
