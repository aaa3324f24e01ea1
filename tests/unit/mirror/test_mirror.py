"""A mirror beside controllers of our own: the committed log byte for byte, whatever is killed, cut off or deleted."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from jbod_model.errors import UsageError
from jbod_model.formats.batch import write_batch
from jbod_model.formats.codec import encode
from jbod_model.formats.records import NoOpRecord, VersionedRecord
from pipelines.mirror.folder import MirrorFolder
from pipelines.mirror.follow import Diverged, Mirror, mirrored
from pipelines.quorum.client import QuorumClient, SnapshotId, addresses_of
from pipelines.quorum.security import Security
from pipelines.run.log_lake import LogLake
from pipelines.source.log_options import LogOptions
from tests.support.controller import OFFERED, Controller, Log, quorum_of, url_of
from tests.support.full_disk import files_of_at_most
from tests.support.paths import metadata_dir
from tests.support.volume import amount

DYNAMIC, STATIC = metadata_dir("kafka-4.4.0"), metadata_dir("kafka-4.1.2")
LOG = "__cluster_metadata-0"


def data_of(metadata: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((metadata / LOG).glob("*.log")))


def noops(log: Log, number: int, epoch: int) -> bytes:
    value = encode(VersionedRecord(NoOpRecord(), 0))
    return b"".join(
        write_batch([value], base_offset=log.end + at, epoch=epoch, timestamp=1_800_000_000_000) for at in range(number)
    )


@pytest.fixture
def log() -> Log:
    return Log(data_of(DYNAMIC))


@pytest.fixture
def peers(log: Log) -> Iterator[dict[int, Controller]]:
    controllers = quorum_of(log)
    yield controllers
    for peer in controllers.values():
        peer.close()


class Opened:
    """A mirror that runs in this process."""

    def __init__(self, url: str, folder: Path, seed: Path | None = None) -> None:
        self.notices: list[str] = []
        self.quorum = QuorumClient(addresses_of(url), Security(), patience=5.0)
        self.folder = MirrorFolder(str(folder))
        self.mirror = Mirror(self.quorum, self.folder, self.notices.append)
        try:
            self.mirror.begin(None if seed is None else str(seed))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.quorum.close()
        self.folder.close()

    def catch_up(self) -> None:
        while not self.mirror.step(0):
            pass


def caught_up(url: str, folder: Path, seed: Path | None = None) -> Opened:
    opened = Opened(url, folder, seed)
    try:
        opened.catch_up()
    finally:
        opened.close()
    return opened


def answer(folder: Path) -> object:
    """What a question to the log reads of it."""
    lake = LogLake.of(LogOptions(path=str(folder)))
    return sorted(lake.query(f"SELECT topic, partition, replicas, isr FROM {lake.at('partitions')}"), key=str)


@pytest.mark.parametrize("most", [3_000, 1 << 30])
def test_mirror_is_the_log_byte_for_byte(peers: dict[int, Controller], log: Log, tmp_path: Path, most: int) -> None:
    for peer in peers.values():
        peer.max_bytes = most
    log.snapshots[(0, 0)] = (DYNAMIC / LOG / "00000000000000000000-0000000000.checkpoint").read_bytes()
    opened = caught_up(url_of(peers), tmp_path / "m")
    assert data_of(tmp_path / "m") == log.data()
    assert opened.mirror.begins == "all history, from offset 0 on"
    assert (tmp_path / "m" / "meta.properties").read_text().splitlines()[1:] == [
        "version=1",
        f"cluster.id={peers[1].cluster_id}",
    ]
    assert answer(tmp_path / "m") == answer(DYNAMIC)


def test_mirror_holds_no_byte_beyond_the_high_watermark(peers: dict[int, Controller], log: Log, tmp_path: Path) -> None:
    for mark in (100, 101, 250, log.end):
        log.high_watermark = mark
        caught_up(url_of(peers), tmp_path / "m")
        assert data_of(tmp_path / "m") == log.data(mark)


def test_mirror_that_finds_no_room_ends_the_run_beside_it_with_the_reason(
    peers: dict[int, Controller], log: Log, tmp_path: Path
) -> None:
    """Cause: a traceback of the thread that follows, and a run that waited for records ever after."""
    folder, ended = tmp_path / "m", threading.Event()

    def end() -> bool:
        ended.set()
        return True

    reason = f"{folder}: cannot be written .File too large.: raise the limit on the size of files"
    with pytest.raises(UsageError, match=reason):  # noqa: SIM117
        with mirrored(url_of(peers), str(folder), "", print, failed=end):
            with files_of_at_most(len(log.data())):
                log.append(noops(log, 1, log.epoch))
                assert ended.wait(10)
    committed = log.data()
    caught_up(url_of(peers), folder)
    assert data_of(folder) == committed


def test_records_that_an_election_takes_back_never_come_to_disk(
    peers: dict[int, Controller], log: Log, tmp_path: Path
) -> None:
    opened = Opened(url_of(peers), tmp_path / "m")
    committed = log.data()
    for leader in (2, 3, 1, 2):
        log.append(noops(log, 3, log.epoch), commit=False)
        opened.catch_up()
        assert data_of(tmp_path / "m") == committed
        log.cut(log.high_watermark)
        log.epoch, log.leader = log.epoch + 1, leader
        peers[leader % 3 + 1].hang_up()
        log.append(noops(log, 2, log.epoch))
        committed = log.data()
        while opened.folder.end is None or opened.folder.end.offset < log.end:
            opened.mirror.step(0)
        assert data_of(tmp_path / "m") == committed
    opened.close()


@pytest.mark.parametrize("version", [17, 18])
def test_commit_is_on_disk_soon(log: Log, tmp_path: Path, version: int) -> None:
    controller = Controller(log, offered={**OFFERED, 1: (4, version)})
    opened = Opened(controller.url, tmp_path / "m")
    opened.catch_up()
    ended: list[int] = []
    following = threading.Thread(target=lambda: [opened.mirror.step() for _ in iter(lambda: bool(ended), True)])
    following.start()
    waits = []
    for _ in range(3):
        log.append(noops(log, 1, log.epoch), commit=False)
        time.sleep(0.1)
        began, log.high_watermark = time.monotonic(), log.end
        while data_of(tmp_path / "m") != log.data():
            time.sleep(0.001)
        waits.append(time.monotonic() - began)
    ended.append(1)
    following.join()
    controller.close()
    opened.close()
    assert min(waits) < 0.2


def sampled_sizes(size: int) -> Iterator[int]:
    yield from range(0, 400, amount(40, 3))
    yield from range(400, size, size // amount(8, 200))


def test_mirror_that_was_killed_anywhere_goes_on(peers: dict[int, Controller], log: Log, tmp_path: Path) -> None:
    caught_up(url_of(peers), tmp_path / "m")
    whole = log.data()
    for size in sampled_sizes(len(whole)):
        shutil.rmtree(tmp_path / "k", ignore_errors=True)
        shutil.copytree(tmp_path / "m", tmp_path / "k")
        (segment,) = (tmp_path / "k" / LOG).glob("*.log")
        segment.write_bytes(whole[:size])
        (tmp_path / "k" / LOG / "00000000000000000007-0000000001.checkpoint.part").write_bytes(b"x")
        caught_up(url_of(peers), tmp_path / "k")
        assert data_of(tmp_path / "k") == whole
        assert not [*(tmp_path / "k" / LOG).glob("*.part")]


def test_damaged_end_of_a_mirror_is_fetched_again(peers: dict[int, Controller], log: Log, tmp_path: Path) -> None:
    caught_up(url_of(peers), tmp_path / "m")
    (segment,) = (tmp_path / "m" / LOG).glob("*.log")
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    caught_up(url_of(peers), tmp_path / "m")
    assert data_of(tmp_path / "m") == log.data()


def test_old_quorum_with_a_snapshot_gives_all_but_its_first_record(tmp_path: Path) -> None:
    log = Log(data_of(STATIC))
    log.snapshots[(406, 1)] = (STATIC / LOG / "00000000000000000406-0000000001.checkpoint").read_bytes()
    controller = Controller(log)
    opened = caught_up(controller.url, tmp_path / "m")
    assert data_of(tmp_path / "m") == log.data()[len(log.batches[0][3]) :]
    assert "history from offset 1 on: the quorum has a snapshot" in opened.mirror.begins
    assert answer(tmp_path / "m") == answer(STATIC)
    lake = LogLake.of(LogOptions(path=str(tmp_path / "m")), at_offset=20)
    whole = LogLake.of(LogOptions(path=str(STATIC)), at_offset=20)
    brokers = "SELECT broker_id, broker_epoch, fenced FROM {} ORDER BY ALL"
    assert lake.query(brokers.format(lake.at("brokers"))) == whole.query(brokers.format(whole.at("brokers")))
    controller.close()


def test_old_quorum_without_a_snapshot_gives_everything(tmp_path: Path) -> None:
    log = Log(data_of(STATIC))
    controller = Controller(log)
    opened = caught_up(controller.url, tmp_path / "m")
    assert data_of(tmp_path / "m") == log.data()
    assert opened.mirror.begins == "all history, from offset 0 on"
    controller.close()


def behind_retention(log: Log) -> bytes:
    """A log that begins at 406, with the snapshot there."""
    snapshot = (STATIC / LOG / "00000000000000000406-0000000001.checkpoint").read_bytes()
    log.delete_before(406, snapshot)
    return snapshot


def test_log_that_begins_later_is_mirrored_from_its_beginning(tmp_path: Path) -> None:
    log = Log(data_of(STATIC))
    snapshot = behind_retention(log)
    log.snapshots[(500, 1)] = b"newer"
    controller = Controller(log)
    controller.max_bytes = 3_000
    opened = caught_up(controller.url, tmp_path / "m")
    assert data_of(tmp_path / "m") == log.data()
    assert [path.read_bytes() for _, path in opened.folder.snapshots()] == [snapshot]
    assert opened.mirror.begins == "history from offset 406 on: the quorum deleted what was before"
    assert answer(tmp_path / "m") == answer(STATIC)
    controller.close()


def test_mirror_that_was_away_for_too_long_sets_its_history_aside(tmp_path: Path) -> None:
    log = Log(data_of(STATIC))
    whole = log.data()
    controller = Controller(log)
    log.high_watermark = 300
    caught_up(controller.url, tmp_path / "m")
    before = data_of(tmp_path / "m")
    log.commit()
    behind_retention(log)
    opened = caught_up(controller.url, tmp_path / "m")
    assert data_of(tmp_path / "m") == log.data()
    (aside,) = (tmp_path / "m").glob("until-*")
    assert data_of(aside) == before
    assert whole.startswith(before)
    assert "offsets 295 to 405 are lost: the quorum deleted them" in opened.notices[-1]
    assert answer(tmp_path / "m") == answer(STATIC)
    controller.close()


@pytest.mark.parametrize("beyond", [0, 4])
def test_copy_of_files_is_the_beginning(tmp_path: Path, beyond: int) -> None:
    """``beyond``: records of the copy that an election took back."""
    log = Log(data_of(STATIC))
    whole = log.data()
    shutil.copytree(STATIC, tmp_path / "seed")
    newest = sorted((tmp_path / "seed" / LOG).glob("*.log"))[-1]
    newest.write_bytes(newest.read_bytes() + noops(log, beyond, log.epoch))
    behind_retention(log)
    log.epoch += 1
    log.append(noops(log, 5, log.epoch))
    controller = Controller(log)
    controller.cluster_id = "JBODtestCluster0123456"
    opened = caught_up(controller.url, tmp_path / "m", tmp_path / "seed")
    assert data_of(tmp_path / "m") == whole + noops_after(log, whole)
    assert f"began with {tmp_path / 'seed'}" in opened.notices[0]
    controller.close()


def noops_after(log: Log, whole: bytes) -> bytes:
    return b"".join(piece for _, _, epoch, piece in log.batches if piece not in whole)


def test_copy_of_another_cluster_is_refused(peers: dict[int, Controller], tmp_path: Path) -> None:
    with pytest.raises(Diverged, match="is of cluster JBODtestCluster0123456, the quorum is abc"):
        Opened(url_of(peers), tmp_path / "m", STATIC)


def test_other_history_is_refused(peers: dict[int, Controller], log: Log, tmp_path: Path) -> None:
    caught_up(url_of(peers), tmp_path / "m")
    log.cut(300)
    log.epoch += 5
    log.append(noops(log, 500, log.epoch))
    with pytest.raises(Diverged, match="the quorum has another history"):
        caught_up(url_of(peers), tmp_path / "m")


def test_second_writer_of_a_mirror_is_refused(peers: dict[int, Controller], tmp_path: Path) -> None:
    opened = Opened(url_of(peers), tmp_path / "m")
    with pytest.raises(UsageError, match="another jbod writes this mirror"):
        MirrorFolder(str(tmp_path / "m"))
    opened.close()


def test_what_is_older_than_keep_is_deleted_once_a_snapshot_stands_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(data_of(STATIC))
    controller = Controller(log)
    monkeypatch.setattr("pipelines.mirror.folder.ROLL_BYTES", 2_000)
    controller.max_bytes = 2_000
    opened = Opened(controller.url, tmp_path / "m")
    opened.catch_up()
    log.snapshots[(406, 1)] = (STATIC / LOG / "00000000000000000406-0000000001.checkpoint").read_bytes()
    needed: Iterator[int | None] = iter([300, None])
    opened.mirror.delete_before(0.5)
    assert data_of(tmp_path / "m") == log.data()
    opened.mirror.delete_before(0.0, lambda: next(needed))
    assert data_of(tmp_path / "m") == log.data()
    opened.mirror.delete_before(0.0, lambda: next(needed))
    opened.close()
    first = opened.folder.first
    assert first is not None
    assert 0 < first <= 406
    assert log.data().endswith(data_of(tmp_path / "m"))
    assert [snapshot for snapshot, _ in opened.folder.snapshots()] == [SnapshotId(406, 1)]
    assert answer(tmp_path / "m") == answer(STATIC)
    controller.close()


def faulty(peers: dict[int, Controller], every: int) -> Callable[[], int]:
    """Every so many answers are cut, changed in their frame, or not sent."""
    number = count()
    faults = count()

    def fault(answer: bytes) -> bytes:
        at = next(number)
        if at % every:
            return answer
        next(faults)
        kind = at // every % 4
        if kind == 0:
            return answer[: len(answer) // 2]
        if kind == 1:
            return b""
        place = 4 + at % 4 if kind == 2 else len(answer) // 2
        return answer[:place] + bytes([answer[place] ^ 0x40]) + answer[place + 1 :]

    for peer in peers.values():
        peer.fault = fault
        peer.max_bytes = 700
    return lambda: next(faults)


def test_faults_of_the_network_change_nothing(peers: dict[int, Controller], log: Log, tmp_path: Path) -> None:
    tried = faulty(peers, every=5)
    opened = Opened(url_of(peers), tmp_path / "m")
    monotonic = 0.0
    while data_of(tmp_path / "m") != log.data():
        opened.mirror.step(0)
        monotonic += 1
        assert monotonic < 5_000
    opened.close()
    assert tried() > 5
