"""A real controller whose log is large, or has a history of its own: one that it is given before it starts."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from benchmarks.first_replay import made
from benchmarks.scale import SHAPE
from pipelines.quorum.client import QuorumClient, addresses_of, sound_batches
from pipelines.quorum.security import Security
from tests.live.kafka import CONTROLLER, Cluster, wait_for
from tests.support.paths import ROOT

T = TypeVar("T")
MADE = Path(os.environ.get("LIVE_COPY_LOGS", ROOT / "build" / "bench"))
"""Where logs are made, once: one of 2,000,000 partitions has 760 MB."""
LOG = "__cluster_metadata-0"
KEEPS_ALL: dict[str, str | int] = {"metadata.max.retention.bytes": -1, "metadata.max.retention.ms": -1}
"""History stays: every byte of a mirror is compared."""
_SETTINGS = KEEPS_ALL | {
    "metadata.log.max.record.bytes.between.snapshots": 1 << 60,
    "metadata.log.max.snapshot.interval.ms": 0,
    "internal.metadata.log.segment.bytes": 256 << 20,
    "socket.request.max.bytes": 1 << 20,  # Kafka allocates a garbled length, by default up to 100 MB
    "broker.session.timeout.ms": 2**31 - 1,  # the brokers of the log never ran
}


@contextmanager
def controller_with(partitions: int, root: Path) -> Iterator[Cluster]:
    """A controller that has a log of so many partitions, and leads once it has replayed it."""
    heap = 256 + partitions * 4096 // (1 << 20)
    cluster = Cluster(root, brokers=(), settings=_SETTINGS, heap=f"{heap}m")
    try:
        cluster.start()
        wait_for("the first records", lambda: committed(cluster) > 10, 60)
        cluster.stop_node(CONTROLLER)
        end = _append(made(MADE / f"log-{partitions}", partitions, *SHAPE), cluster.metadata / LOG)
        cluster.start_node(CONTROLLER)
        wait_for("the log", lambda: committed(cluster) >= end, 900)
        wait_for("the controller that has replayed it", lambda: cluster_id(cluster), 900)
        yield cluster
    finally:
        cluster.stop()


def url(cluster: Cluster) -> str:
    """Where the quorum is."""
    return "kafka://" + ",".join(f"127.0.0.1:{cluster.ports[node]}" for node in cluster.controllers)


def committed(cluster: Cluster) -> int:
    """The high watermark, as the leader says it."""
    return int(_ask(cluster, QuorumClient.describe)["high_watermark"])


def cluster_id(cluster: Cluster) -> str | None:
    """The cluster id, which the controller tells once it has replayed its log."""
    return _ask(cluster, QuorumClient.learn_cluster_id)


def _ask(cluster: Cluster, question: Callable[[QuorumClient], T]) -> T:
    reader = QuorumClient(addresses_of(url(cluster)), Security(), patience=600)
    try:
        return question(reader)
    finally:
        reader.close()


def _append(made: Path, log: Path) -> int:
    """Adds a log to one that a controller wrote, after its last record and in its epoch. Returns the end offset.

    The first batch is left out: the controller has a metadata version. No checksum covers what a batch gets here.
    """
    newest = max(log.glob("*.log"))
    end = epoch = 0
    for batch in sound_batches(newest.read_bytes(), str(newest)):
        end, epoch = batch.last_offset + 1, batch.epoch
    shift = end - 1
    for path in sorted(made.glob("*.log")):
        data = bytearray(path.read_bytes())
        batches = list(sound_batches(bytes(data), str(path)))[0 if int(path.stem) else 1 :]
        for batch in batches:
            struct.pack_into(">q", data, batch.start, batch.base_offset + shift)
            struct.pack_into(">i", data, batch.start + 12, epoch)
        (log / f"{batches[0].base_offset + shift:020d}.log").write_bytes(data[batches[0].start :])
        end = batches[-1].last_offset + 1 + shift
    return end
