"""``jbod mirror`` and ``replay kafka://`` beside a real quorum whose leaders are lost, and behind a bad network."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jbod_model.errors import JbodError
from pipelines import open_lake, read_log
from pipelines.frames import Frames
from pipelines.mirror.folder import MirrorFolder
from pipelines.mirror.follow import Diverged, Mirror
from pipelines.quorum.client import QuorumClient, addresses_of
from pipelines.quorum.connection import Fault, Halted
from pipelines.quorum.security import Security
from tests.live.kafka import CONTROLLER, Cluster, wait_for
from tests.live.large import KEEPS_ALL, LOG, controller_with, url
from tests.live.proxy import FaultyProxy
from tests.support.paths import ROOT

SECONDS = float(os.environ.get("LIVE_MIRROR_SECONDS", "120"))
"""How long leaders are killed by turns."""
KILLS = int(os.environ.get("LIVE_MIRROR_KILLS", "20"))
"""How often ``jbod mirror --follow`` and ``jbod replay kafka:// --follow`` are killed meanwhile, in all."""
CONTROLLERS = (100, 101, 102)
FAULTS = int(os.environ.get("LIVE_MIRROR_FAULTS", "300"))
MIRRORS = 48
"""Behind the proxy at once: most of their time they wait."""
ATTEMPTS = 20
"""Of a copy, before it begins anew: a cluster id that was garbled stays wrong."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    kafka = Cluster(tmp_path_factory.mktemp("kafka"), CONTROLLERS, (1, 2, 3, 4), 1, settings=KEEPS_ALL)
    try:
        kafka.start()
        yield kafka
    finally:
        kafka.stop()


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Its log has more than 100 kB: some pieces of the proxy."""
    with controller_with(200, tmp_path_factory.mktemp("one")) as kafka:
        yield kafka


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
    servers = ",".join(f"127.0.0.1:{cluster.ports[node]}" for node in cluster.controllers if node != without)
    reader = QuorumClient(addresses_of(f"kafka://{servers}"), Security(), patience=60)
    quorum = reader.describe()
    reader.close()
    assert all(observer["replica_id"] in cluster.ports for observer in quorum["observers"])
    return quorum["leader_id"], quorum["high_watermark"]


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


class Killed:
    """A command that is killed ``times``, at random times, and begun again at once.

    Each second kill waits until the command did something since it began: ``place`` tells another number.
    """

    def __init__(
        self, begin: Callable[[], subprocess.Popen[bytes]], place: Callable[[], int], times: int, seed: int
    ) -> None:
        self.process = begin()
        self.left = times
        self._begin = begin
        self._place = place
        self._mean = SECONDS / max(times, 1)
        self._chance = random.Random(seed)
        self._stops = threading.Event()
        self._killing = threading.Thread(target=self._kill, daemon=True)
        self._killing.start()

    def _kill(self) -> None:
        while self.left:
            before = self._place()
            while self.left % 2 and self._place() == before:
                if self._stops.wait(0.5):
                    return
            if self._stops.wait(self._chance.uniform(0, 1 if self.left % 2 else self._mean)):
                return
            assert self.process.poll() is None, "ended by itself"
            self.process.kill()
            self.process.communicate()
            self.left -= 1
            self.process = self._begin()

    def interrupt(self) -> bytes:
        """Ends the command by Ctrl-C, and returns what it printed."""
        self._killing.join()
        self.process.send_signal(signal.SIGINT)
        output, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == 0
        return output or b""

    def close(self) -> None:
        """Ends the command, whatever it does."""
        self._stops.set()
        self._killing.join()
        self.process.kill()
        self.process.wait()


def offset_of(lake: Path) -> int:
    """The newest offset of a lake, -1 before its first publication."""
    try:
        return open_lake(lake).offset
    except JbodError:
        return -1


def rows(frames: Frames, table: str) -> list[tuple[object, ...]]:
    history = frames.history(table).to_arrow().to_pylist()
    return sorted((tuple(row.values()) for row in history), key=repr)


def test_mirror_is_the_committed_log_and_the_lake_its_replay_while_leaders_are_lost(
    cluster: Cluster, tmp_path: Path
) -> None:
    folder, lake = tmp_path / "mirror", tmp_path / "lake"
    of_lake = KILLS * 2 // 5  # each has to start Spark
    following = Killed(
        lambda: mirror(cluster, folder, "--follow"), lambda: len(bytes_of(folder)[1]), KILLS - of_lake, seed=34
    )
    loading = Killed(lambda: replaying(cluster, lake), lambda: offset_of(lake), of_lake, seed=35)
    lost, topics = 0, 0
    end = time.monotonic() + SECONDS
    try:
        while time.monotonic() < end + SECONDS * bool(following.left or loading.left):
            cluster.create_topic(f"t{topics}", 5, 1)
            topics += 1
            if topics % 3 == 0:
                cluster.delete_topic(f"t{topics - 2}")
            node, _ = leader(cluster)
            lose(cluster, node, lost)
            lost += 1
            held, committed = bytes_of(folder), leader(cluster)[1]
            assert committed < 0 or end_of(held[1], held[0]) <= committed  # a new leader does not know it at once
        assert following.left == loading.left == 0
        cluster.create_topic("last", 5, 1)
        _, committed = leader(cluster)
        wait_for("the mirror", lambda: end_of(bytes_of(folder)[1], 0) >= committed, 60)
        wait_for("the lake", lambda: offset_of(lake) >= committed - 1, 180)
        assert b"all history" in following.interrupt()
        loading.interrupt()
    finally:
        following.close()
        loading.close()
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
    messages = [line for line in (tmp_path / "errors").read_text().splitlines() if "leader" not in line]
    assert [line for line in messages if not line.startswith("jbod mirror:")] == []
    assert "rolled back" not in (tmp_path / "errors of the lake").read_text()
    print(
        f"{len(data):,} bytes, offsets to {end_of(data, 0)}, {lost} leaders lost, {topics} topics, "
        f"{KILLS - of_lake} mirrors and {of_lake} replays killed, "
        f"{len(of_quorum.table('ledger').to_arrow())} publications"
    )


def copy_behind(proxy: FaultyProxy, folder: Path, committed: int, end: float) -> bool:
    """Copies the log through the proxy, up to an offset, before ``end``. Returns whether it came that far."""

    def stops() -> bool:
        return proxy.faults >= FAULTS or time.monotonic() > end

    for _ in range(ATTEMPTS):
        quorum = QuorumClient(addresses_of(f"kafka://127.0.0.1:{proxy.port}"), Security(), stop=stops, patience=60.0)
        files = MirrorFolder(str(folder))
        copy = Mirror(quorum, files, lambda _line: None)
        try:
            copy.begin()
            while files.end is None or files.end.offset < committed:
                copy.step(0)
            return True
        except Halted:
            return False
        except (Diverged, Fault):
            pass  # the same garbled answer twice needs a person, who begins again
        finally:
            quorum.close()
            files.close()
    return False


def test_mirrors_behind_a_proxy_that_delays_cuts_doubles_and_garbles_are_the_committed_log(
    controller: Cluster, tmp_path: Path
) -> None:
    """The faults are in both directions. A byte that is changed may be in a record, which its checksum shows."""
    proxy = FaultyProxy(controller.ports[CONTROLLER], seed=34)
    end = time.monotonic() + 10 * SECONDS

    def copies(number: int) -> list[int]:
        """Copies the log again and again. Returns the bytes of each whole copy."""
        sizes: list[int] = []
        for attempt in itertools.count():
            if proxy.faults >= FAULTS or time.monotonic() > end:
                return sizes
            before = bytes_of(controller.metadata)[1]
            folder = tmp_path / f"mirror-{number}-{attempt}"
            whole = copy_behind(proxy, folder, end_of(before, 0), end)
            now, data = bytes_of(controller.metadata)[1], bytes_of(folder)[1]
            assert now[: len(data)] == data
            if whole:
                assert len(data) >= len(before)
                sizes.append(len(data))
            shutil.rmtree(folder)
        raise AssertionError

    with ThreadPoolExecutor(MIRRORS) as pool:
        sizes = [size for mirror_sizes in pool.map(copies, range(MIRRORS)) for size in mirror_sizes]
    proxy.close()
    print(f"{proxy.faults:,} faults: {dict(proxy.kinds)}; {len(sizes):,} copies of {min(sizes):,} bytes and more")
    assert proxy.faults >= FAULTS
    assert len(sizes) >= FAULTS // 100
