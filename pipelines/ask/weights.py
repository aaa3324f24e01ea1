"""Bytes beside counts: how much data is in a directory, has one copy, or has to be copied again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pipelines.lake.kept_sizes import kept_sizes
from pipelines.lake.ledger import time_of
from pipelines.lake.reader import Lake

COPY_RATE = 50_000_000
"""Bytes a second at which copies are reckoned: what jbod plan throttles to, unless it is told otherwise."""


@dataclass(frozen=True)
class Weights:
    """Bytes by what a source says now, or by what the lake kept."""

    time: datetime
    """Of the oldest of them."""
    directories: Mapping[tuple[int, str], int]
    """(broker, directory) -> the log segments in it. Those whose id is unknown are not in it."""
    partitions: Mapping[tuple[str, int], int] | None = None
    """Partition -> the log segments of its largest replica. None if only directories were kept."""

    def of(self, replicas: Iterable[tuple[str, int, int, str]]) -> int | None:
        """The bytes of replicas (topic, partition, broker, directory). None if those of one are not known.

        If only directories are known, those of the replicas count as a whole.
        """
        if self.partitions is not None:
            sizes = [self.partitions.get((topic, number)) for topic, number, _, _ in replicas]
        else:
            sizes = [self.directories.get(place) for place in {(broker, where) for _, _, broker, where in replicas}]
        return None if None in sizes else sum(size for size in sizes if size is not None)


def weights(lake: Lake, sources: Sequence[str] = ()) -> Weights | None:
    """The bytes by the sources, as for jbod sizes; without any, by what the lake kept. None if it kept nothing.

    Of a directory that cannot be read the last size that was kept counts. Raises UsageError for a bad source.
    """
    return _kept(lake) if not sources else _weigh(lake, sources)


def alone(lake: Lake, partitions: Mapping[tuple[str, int], int]) -> Mapping[tuple[int, str], tuple[int, int]]:
    """(broker, directory) -> the partitions whose only online replica is there, and their bytes."""
    rows = lake.query(
        f"""
        WITH online AS (
            SELECT topic, partition, replicas, directories,
                   list_filter(replicas, lambda b: NOT list_contains(coalesce(down, []), b)) AS up
            FROM {lake.at("partitions")} LEFT JOIN {lake.offline_brokers()} o USING (topic_id, partition)
        ), sized AS (
            SELECT unnest($1::VARCHAR[]) AS topic, unnest($2::INTEGER[]) AS partition, unnest($3::BIGINT[]) AS bytes
        )
        SELECT up[1], directories[list_position(replicas, up[1])], count(*), sum(coalesce(bytes, 0))::BIGINT
        FROM online LEFT JOIN sized USING (topic, partition) WHERE len(up) = 1 GROUP BY ALL
        """,
        [[topic for topic, _ in partitions], [number for _, number in partitions], [*partitions.values()]],
    )
    return {(broker, directory): (count, held) for broker, directory, count, held in rows}


def _weigh(lake: Lake, sources: Sequence[str]) -> Weights:
    from pipelines.ask.sizes import sizes  # which asks brokers: a question without a source does not wait for it

    answer = sizes(lake, sources)
    partitions: dict[tuple[str, int], int] = {}
    for log_dir in answer.log_dirs:
        for replica in log_dir.replicas:
            topic, _, number = replica.partition.rpartition("-")
            if not replica.future and number.isdigit():
                key = topic, int(number)
                partitions[key] = max(partitions.get(key, 0), replica.bytes)
    directories = {
        (directory.broker_id, directory.directory_id): directory.bytes
        for directory in answer.directories
        if directory.directory_id is not None and directory.bytes is not None
    }
    return Weights(min((directory.time for directory in answer.log_dirs), default=answer.time), directories, partitions)


def _kept(lake: Lake) -> Weights | None:
    rows = kept_sizes(
        lake,
        "SELECT broker_id, directory_id, arg_max(bytes, time), epoch_us(max(time)) "
        "FROM kept WHERE bytes IS NOT NULL AND directory_id IS NOT NULL GROUP BY ALL",
    )
    if not rows:
        return None
    return Weights(time_of(min(row[3] for row in rows)), {(broker, where): held for broker, where, held, _ in rows})
