"""``jbod mirror`` beside a real quorum whose leaders are killed: the mirror is the committed log, byte for byte."""

from __future__ import annotations

import os
import random
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.quorum.client import Quorum, addresses_of
from pipelines.quorum.security import Security
from tests.live.kafka import Cluster, wait_for
from tests.support.paths import ROOT

SECONDS = float(os.environ.get("LIVE_MIRROR_SECONDS", "120"))
"""How long leaders are killed by turns."""
LOG = "__cluster_metadata-0"
CONTROLLERS = (100, 101, 102)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # History stays: every byte of the mirror is compared.
    settings: dict[str, str | int] = {"metadata.max.retention.bytes": -1, "metadata.max.retention.ms": -1}
    found = Cluster(tmp_path_factory.mktemp("kafka"), CONTROLLERS, (1, 2), 1, settings=settings)
    try:
        found.start()
        yield found
    finally:
        found.stop()


def url(cluster: Cluster) -> str:
    return "kafka://" + ",".join(f"127.0.0.1:{cluster.ports[node]}" for node in CONTROLLERS)


def bytes_of(metadata: Path) -> tuple[int, bytes]:
    """The first offset of a log, and its bytes."""
    segments = sorted((metadata / LOG).glob("*.log"))
    return (int(segments[0].stem) if segments else 0), b"".join(path.read_bytes() for path in segments)


def end_of(data: bytes, start: int) -> int:
    at, end = 0, start
    while at + 61 <= len(data):
        base, length = struct.unpack_from(">qi", data, at)
        end = base + struct.unpack_from(">i", data, at + 23)[0] + 1
        at += 12 + length
    return end


def mirror(cluster: Cluster, folder: Path, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "pipelines.cli.main", "mirror", url(cluster), "--into", str(folder), *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=(folder.parent / "errors").open("ab"),
    )


def leader(cluster: Cluster) -> tuple[int, int]:
    """The leader and the high watermark, as it says itself."""
    reader = Quorum(addresses_of(url(cluster)), Security(), patience=60)
    said = reader.describe()
    reader.close()
    assert all(one["replica_id"] in cluster.ports for one in said["observers"])
    return said["leader_id"], said["high_watermark"]


def test_mirror_is_the_committed_log_while_leaders_are_killed(cluster: Cluster, tmp_path: Path) -> None:
    folder = tmp_path / "mirror"
    following = mirror(cluster, folder, "--follow")
    chance, kills, own_kills, topics = random.Random(34), 0, 0, 0
    end = time.monotonic() + SECONDS
    try:
        while time.monotonic() < end:
            cluster.create_topic(f"t{topics}", 5, 1)
            topics += 1
            if chance.random() < 0.5:
                following.send_signal(signal.SIGKILL)
                following.wait()
                own_kills += 1
                following = mirror(cluster, folder, "--follow")
            node, _ = leader(cluster)
            cluster.stop_node(node, signal.SIGKILL if kills % 2 else signal.SIGTERM)
            kills += 1
            wait_for("another leader", lambda gone=node: leader(cluster)[0] != gone, 60)
            cluster.start_node(node)
            held, committed = bytes_of(folder), leader(cluster)[1]
            assert committed < 0 or end_of(held[1], held[0]) <= committed  # a new leader does not know it at once
        cluster.create_topic("last", 5, 1)
        _, committed = leader(cluster)
        wait_for("the mirror", lambda: end_of(bytes_of(folder)[1], 0) >= committed, 60)
        following.send_signal(signal.SIGINT)
        told, _ = following.communicate(timeout=30)
        assert following.returncode == 0, (tmp_path / "errors").read_text()
        assert b"all history" in told
    finally:
        following.kill()
        following.wait()
    first, data = bytes_of(folder)
    assert first == 0
    for node in CONTROLLERS:
        wait_for(
            f"controller {node}",
            lambda node=node: bytes_of(cluster.root / str(node) / "metadata")[1][: len(data)] == data,
            60,
        )
    assert kills >= 3
    said = [line for line in (tmp_path / "errors").read_text().splitlines() if "leader" not in line]
    assert [line for line in said if not line.startswith("jbod mirror:")] == []
    print(f"{len(data):,} bytes, offsets to {end_of(data, 0)}, {kills} leaders and {own_kills} mirrors killed")
