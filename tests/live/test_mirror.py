"""``jbod mirror`` and ``replay kafka://`` beside a real quorum whose leaders are lost, and behind a bad network."""

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

from jbod_model.errors import UsageError
from pipelines import open_lake, read_log
from pipelines.frames import Frames
from pipelines.mirror.folder import MirrorFolder
from pipelines.mirror.follow import Diverged, Mirror
from pipelines.quorum.client import QuorumClient, addresses_of
from pipelines.quorum.connection import Fault
from pipelines.quorum.security import Security
from tests.live.kafka import CONTROLLER, Cluster, wait_for
from tests.live.proxy import FaultyProxy
from tests.support.paths import ROOT

SECONDS = float(os.environ.get("LIVE_MIRROR_SECONDS", "120"))
"""How long leaders are killed by turns."""
LOG = "__cluster_metadata-0"
CONTROLLERS = (100, 101, 102)
FAULTS = int(os.environ.get("LIVE_MIRROR_FAULTS", "300"))
KEEPS_ALL: dict[str, str | int] = {"metadata.max.retention.bytes": -1, "metadata.max.retention.ms": -1}
"""History stays: every byte of the mirror is compared."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    found = Cluster(tmp_path_factory.mktemp("kafka"), CONTROLLERS, (1, 2, 3, 4), 1, settings=KEEPS_ALL)
    try:
        found.start()
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="module")
def cluster_of_one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    found = Cluster(tmp_path_factory.mktemp("one"), brokers=(1,), disks=1, settings=KEEPS_ALL)
    try:
        found.start()
        yield found
    finally:
        found.stop()


def url(cluster: Cluster) -> str:
    return "kafka://" + ",".join(f"127.0.0.1:{cluster.ports[node]}" for node in cluster.controllers)


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


def leader(cluster: Cluster, without: int = -1) -> tuple[int, int]:
    """The leader and the high watermark, as it says itself. ``without``: a controller that is not asked."""
    asked = ",".join(f"127.0.0.1:{cluster.ports[node]}" for node in cluster.controllers if node != without)
    reader = QuorumClient(addresses_of(f"kafka://{asked}"), Security(), patience=60)
    said = reader.describe()
    reader.close()
    assert all(one["replica_id"] in cluster.ports for one in said["observers"])
    return said["leader_id"], said["high_watermark"]


def replaying(cluster: Cluster, lake: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "pipelines.cli.main", "replay", url(cluster), "--lake", str(lake), "--follow"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=(lake.parent / "errors of the lake").open("ab"),
    )


def lose(cluster: Cluster, node: int, number: int) -> None:
    """The leader ends, is killed, or is cut off until another one leads."""
    if number % 3 == 2:
        process = cluster.nodes[node]
        process.send_signal(signal.SIGSTOP)
    else:
        cluster.stop_node(node, signal.SIGKILL if number % 3 else signal.SIGTERM)
    wait_for("another leader", lambda: leader(cluster, without=node)[0] != node, 60)
    if number % 3 == 2:
        process.send_signal(signal.SIGCONT)
    else:
        cluster.start_node(node)


def offset_of(lake: Path) -> int:
    """The newest offset of a lake, -1 before its first publication."""
    try:
        return open_lake(lake).offset
    except UsageError:
        return -1


def rows(frames: Frames, table: str) -> list[tuple[object, ...]]:
    found = frames.history(table).to_arrow().to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


def test_mirror_is_the_committed_log_and_the_lake_its_replay_while_leaders_are_lost(
    cluster: Cluster, tmp_path: Path
) -> None:
    folder, lake = tmp_path / "mirror", tmp_path / "lake"
    following, loading = mirror(cluster, folder, "--follow"), replaying(cluster, lake)
    chance, lost, own_kills, lake_kills, topics = random.Random(34), 0, 0, 0, 0
    end = time.monotonic() + SECONDS
    try:
        while time.monotonic() < end:
            cluster.create_topic(f"t{topics}", 5, 1)
            topics += 1
            if topics % 3 == 0:
                cluster.delete_topic(f"t{topics - 2}")
            if chance.random() < 0.5:
                following.kill()
                following.wait()
                own_kills += 1
                following = mirror(cluster, folder, "--follow")
            if chance.random() < 0.3:
                loading.kill()
                loading.wait()
                lake_kills += 1
                loading = replaying(cluster, lake)
            node, _ = leader(cluster)
            lose(cluster, node, lost)
            lost += 1
            held, committed = bytes_of(folder), leader(cluster)[1]
            assert committed < 0 or end_of(held[1], held[0]) <= committed  # a new leader does not know it at once
        cluster.create_topic("last", 5, 1)
        _, committed = leader(cluster)
        wait_for("the mirror", lambda: end_of(bytes_of(folder)[1], 0) >= committed, 60)
        wait_for("the lake", lambda: offset_of(lake) >= committed - 1, 180)
        following.send_signal(signal.SIGINT)
        told, _ = following.communicate(timeout=30)
        assert following.returncode == 0, (tmp_path / "errors").read_text()
        assert b"all history" in told
        loading.send_signal(signal.SIGINT)
        assert loading.wait(60) == 0, (tmp_path / "errors of the lake").read_text()
    finally:
        for process in (following, loading):
            process.kill()
            process.wait()
    first, data = bytes_of(folder)
    assert first == 0
    for node in CONTROLLERS:
        wait_for(
            f"controller {node}",
            lambda node=node: bytes_of(cluster.root / str(node) / "metadata")[1][: len(data)] == data,
            60,
        )
    of_quorum = open_lake(lake)
    of_files = read_log(cluster.metadata, at_offset=of_quorum.offset)
    for table in set(of_files.names) & set(of_quorum.names):
        assert rows(of_quorum, table) == rows(of_files, table), table
    assert lost >= 3
    said = [line for line in (tmp_path / "errors").read_text().splitlines() if "leader" not in line]
    assert [line for line in said if not line.startswith("jbod mirror:")] == []
    assert "rolled back" not in (tmp_path / "errors of the lake").read_text()
    print(
        f"{len(data):,} bytes, offsets to {end_of(data, 0)}, {lost} leaders lost, {own_kills} mirrors and {lake_kills} "
        "replays killed"
    )


def test_mirror_behind_a_proxy_that_delays_cuts_doubles_and_garbles_is_the_committed_log(
    cluster_of_one: Cluster, tmp_path: Path
) -> None:
    """The faults are in both directions. A byte that is changed may be in a record, which its checksum shows."""
    proxy, folder = FaultyProxy(cluster_of_one.ports[CONTROLLER], seed=34), tmp_path / "mirror"
    end = time.monotonic() + 10 * SECONDS
    while proxy.faults < FAULTS and time.monotonic() < end:
        quorum = QuorumClient(addresses_of(f"kafka://127.0.0.1:{proxy.port}"), Security(), patience=60.0)
        files = MirrorFolder(str(folder))
        copy = Mirror(quorum, files, print)
        try:
            copy.begin()
            while proxy.faults < FAULTS and time.monotonic() < end:
                copy.step(0)
        except (Diverged, Fault):
            pass  # the same garbled answer twice needs a person, who begins again
        finally:
            quorum.close()
            files.close()
    proxy.close()
    whole, data = bytes_of(cluster_of_one.metadata)[1], bytes_of(folder)[1]
    assert len(data) > 2_000
    assert whole[: len(data)] == data
    assert proxy.faults >= FAULTS
    print(f"{proxy.faults:,} faults: {dict(proxy.kinds)}; {len(data):,} bytes")
