"""Follows the leader of a quorum into a folder: everything that is committed, and never a byte beyond.

What comes beyond the high watermark is held in memory until the watermark passes it. An election may replace it there,
but never on disk. History begins where the quorum still gives it:

- A fetch from offset 0 is answered with a snapshot as soon as there is one, although the log may go back to 0. So the
  first fetch is from offset 1, with the leader's own epoch as the last fetched one, which the leader accepts for every
  offset of its log. It is answered with the batch that holds offset 1: the first of the log if that has two records,
  as in a quorum with kraft.version 1 (LeaderChange, KRaftVersion, Voters).
- In an older quorum the first batch is a LeaderChange alone. Once there is a snapshot, no request returns it. The
  mirror then begins with an empty snapshot of offset 1 of its own: this record changes no state.
- Where the log begins later, it begins with the state of a snapshot at its first offset, which is fetched under its
  epoch. Nobody tells this epoch: it is that of the first batch, or one of those before.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from jbod_model.errors import JbodError, MalformedLog
from jbod_model.formats.batch import write_batch
from jbod_model.formats.control_records import SnapshotFooterRecord, SnapshotHeaderRecord
from jbod_model.formats.log import MetadataLog
from pipelines.mirror.folder import WAITING, MirrorFolder, cluster_id_of
from pipelines.quorum.client import (
    BatchPlace,
    EndOfLog,
    Fetched,
    QuorumClient,
    SnapshotGone,
    SnapshotId,
    addresses_of,
    check_follows,
    sound_batches,
)
from pipelines.quorum.connection import Fault, Halted
from pipelines.quorum.security import security_of
from pipelines.quorum.state import WatchedQuorum, read_state

WAIT_MS = 500
_WAIT_FOR_COMMIT_MS = 20
"""Leaders before Kafka 4.1 do not answer when only the high watermark moves: then the question is repeated."""
_EPOCHS = 64
"""How many epochs are tried for the snapshot at the beginning of the log."""
_HELD_BYTES = 64 << 20
"""The most bytes beyond the high watermark that are held."""
_ATTEMPTS = 3
_SILENT_SECONDS = 5.0
"""No leader for longer than an election takes."""


class Diverged(JbodError):
    """The quorum has another history than the mirror."""


class Mirror:
    """A folder that follows a quorum. ``begin`` comes first, then ``step`` again and again."""

    def __init__(self, quorum: QuorumClient, folder: MirrorFolder, notice: Callable[[str], None]) -> None:
        self.quorum = quorum
        self.folder = folder
        self.high_watermark = -1
        self.begins = ""
        """From which offset on there is history, and why."""
        self._notice = notice
        self._held: deque[tuple[BatchPlace, memoryview]] = deque()
        self._held_bytes = 0
        self._doubts = 0
        self._state: WatchedQuorum | None = read_state(folder.folder)
        quorum.when_silent(self._note_silence)

    # -- the beginning --------------------------------------------------------------------------------------------

    def begin(self, seed: str | None = None) -> None:
        """Compares the folder with the quorum, or fills it with the beginning of the log. Raises JbodError."""
        self._know_cluster()
        if self.folder.end is None and seed is not None:
            self._take_seed(seed)
        if self.folder.end is None:
            self._begin_new()
        elif self.folder.first is not None:
            first = self.folder.first
            self.begins = f"history from offset {first} on: as this mirror began" if first else "all history"

    def _know_cluster(self) -> None:
        known = cluster_id_of(self.folder.folder)
        if known is not None:
            self.quorum.cluster_id = known
            return
        cluster_id = self.quorum.learn_cluster_id()
        if cluster_id is not None:
            self.folder.write_cluster_id(cluster_id)
        else:
            self._notice(
                "the quorum does not tell its cluster id (DescribeCluster wants ALTER, or the controller is still "
                "starting): meta.properties is left out until a later start of the mirror learns it"
            )

    def _begin_new(self) -> None:
        """The first look at a quorum."""
        answer, first = self._first_batch(1)
        if answer.snapshot is not None:
            self._begin_late(answer)
            return
        if first is None or first.base_offset == 0:
            self.folder.end = EndOfLog(0, -1)
            self.begins = "all history, from offset 0 on"
            with suppress(SnapshotGone):
                self._fetch_snapshot(SnapshotId(0, 0))
            return
        whole = self.quorum.fetch(0, 0)
        if whole.records:
            self.folder.end = EndOfLog(0, -1)
            self.begins = "all history, from offset 0 on"
            return
        self._write_empty(SnapshotId(first.base_offset, first.epoch), first.max_timestamp)
        self.begins = (
            f"history from offset {first.base_offset} on: the quorum has a snapshot, so no request returns its first "
            "record, a LeaderChange"
        )

    def _first_batch(self, offset: int) -> tuple[Fetched, BatchPlace | None]:
        """The answer to a fetch, and the first of its batches. A garbled one is asked for again, MalformedLog in the
        end."""
        for attempt in range(_ATTEMPTS):
            answer = self.quorum.fetch(offset, None)
            try:
                return answer, next(sound_batches(answer.records, str(self.quorum.address)), None)
            except MalformedLog:
                self.quorum.close()
                if attempt + 1 == _ATTEMPTS:
                    raise
        raise ValueError(_ATTEMPTS)

    def _begin_late(self, answer: Fetched) -> None:
        """The log of the quorum begins later than 0."""
        start = answer.log_start
        _, first = self._first_batch(start + 1)
        for epoch in range(first.epoch, max(first.epoch - _EPOCHS, -1), -1) if first is not None else ():
            with suppress(SnapshotGone):
                self._fetch_snapshot(SnapshotId(start, epoch))
                self.folder.end = EndOfLog(start, epoch)
                self.begins = f"history from offset {start} on: the quorum deleted what was before"
                return
        if answer.snapshot is None:
            raise Fault(str(self.quorum.address), "has no snapshot at the beginning of its log")
        self._fetch_snapshot(answer.snapshot)
        self.folder.end = EndOfLog(*answer.snapshot)
        self.begins = (
            f"history from offset {answer.snapshot.end_offset} on, the quorum's newest snapshot: the one at the "
            f"beginning of its log ({start}) is not to be had"
        )

    def _write_empty(self, snapshot: SnapshotId, timestamp: int) -> None:
        parts = (SnapshotHeaderRecord(last_contained_log_timestamp=timestamp), SnapshotFooterRecord())
        with self.folder.snapshot_file(snapshot) as file:
            for at, part in enumerate(parts):
                file.write(write_batch([part], base_offset=at, epoch=snapshot.epoch, timestamp=timestamp))
        self.folder.end = EndOfLog(snapshot.end_offset, snapshot.epoch)

    def _take_seed(self, seed: str) -> None:
        """Begins with a copy of files, up to the last offset that the quorum has too and has committed."""
        log = MetadataLog.open(Path(seed))
        theirs, ours = cluster_id_of(log.directory.parent), self.quorum.cluster_id
        if theirs and ours and theirs != ours:
            raise Diverged(f"{seed}: is of cluster {theirs}, the quorum is {ours}")
        ends = [EndOfLog(0, -1)]
        for segment in log.segments:
            data = segment.path.read_bytes()
            ends += [EndOfLog(batch.last_offset + 1, batch.epoch) for batch in sound_batches(data, str(segment.path))]
        while len(ends) > 1:
            answer = self.quorum.fetch(ends[-1].offset, min(ends[-1].epoch, self.quorum.leader_epoch))
            if answer.snapshot is not None:
                break
            most = answer.high_watermark if answer.diverging is None else answer.diverging.offset
            if ends[-1].offset <= most and answer.diverging is None:
                self.folder.take(log, ends[-1])
                self._notice(f"began with {seed}, up to offset {ends[-1].offset}")
                return
            del ends[-1]
            while len(ends) > 1 and ends[-1].offset > max(most, 0):
                del ends[-1]
        raise Diverged(f"{seed}: has nothing that goes on in the quorum's log: it is older than what the quorum keeps")

    def _fetch_snapshot(self, snapshot: SnapshotId, folder: str | None = None) -> None:
        """Fetches a snapshot piece by piece. Raises SnapshotGone, MalformedLog."""
        for attempt in range(_ATTEMPTS):
            try:
                piece = self.quorum.fetch_snapshot(snapshot, 0)
                with self.folder.snapshot_file(snapshot, *([folder] if folder else [])) as file:
                    position = file.write(piece.records)
                    while position < piece.size:
                        piece = self.quorum.fetch_snapshot(snapshot, position)
                        position += file.write(piece.records)
                return
            except MalformedLog:
                if attempt + 1 == _ATTEMPTS:
                    raise

    # -- what comes then ------------------------------------------------------------------------------------------

    def step(self, wait_ms: int = WAIT_MS) -> bool:
        """Fetches once. Returns whether the mirror has everything that is committed."""
        end = self._end()
        waits_for_commit = self._held and not self.quorum.learns_commits()
        wait = min(wait_ms, _WAIT_FOR_COMMIT_MS) if waits_for_commit else wait_ms
        answer = self._fetch(end, wait)
        try:
            took = self._take(answer, end)
        except MalformedLog as problem:
            self._doubt(problem)
            return False
        self._note_answer(answer)
        return took and (bool(self._held) or self._end().offset >= self.high_watermark)

    def _fetch(self, end: EndOfLog, wait_ms: int) -> Fetched:
        answer = self.quorum.fetch(end.offset, max(end.epoch, 0), wait_ms, self.high_watermark)
        return answer if end.offset or answer.snapshot is None else self.quorum.fetch(1, None)

    def _end(self) -> EndOfLog:
        if self._held:
            return EndOfLog(self._held[-1][0].last_offset + 1, self._held[-1][0].epoch)
        if self.folder.end is None:
            raise ValueError("step before begin")
        return self.folder.end

    def _take(self, answer: Fetched, end: EndOfLog) -> bool:
        """Returns whether the leader said what comes next, or that nothing does."""
        if (answer.diverging is not None or answer.snapshot is not None) and self._held:
            self._drop()
            return False
        if answer.diverging is not None:
            raise MalformedLog(str(self.folder.folder), end.offset, _other_history(end, answer.diverging))
        if answer.snapshot is not None:
            self._resync(answer, end)
            return False
        source, begins = str(self.quorum.address), end.offset
        batches = []
        for batch in sound_batches(answer.records, source):
            end = check_follows(batch, end, answer.leader_epoch, source)
            batches.append(batch)
        self._doubts = 0
        self.high_watermark = mark = max(self.high_watermark, answer.high_watermark)
        while self._held and self._held[0][0].last_offset < mark:
            held, data = self._held.popleft()
            self._held_bytes -= len(data)
            self.folder.append(data, held.base_offset, EndOfLog(held.last_offset + 1, held.epoch))
        early = len(batches) if not self._held else 0
        while early and batches[early - 1].last_offset >= mark:
            early -= 1
        if early:
            last = batches[early - 1]
            self.folder.append(answer.records[: last.end], begins, EndOfLog(last.last_offset + 1, last.epoch))
        for batch in batches[early:]:
            self._held.append((batch, memoryview(bytes(answer.records[batch.start : batch.end]))))
            self._held_bytes += batch.end - batch.start
        if self._held_bytes > _HELD_BYTES:
            self._drop()
        return True

    def _drop(self) -> None:
        self._held.clear()
        self._held_bytes = 0

    def _resync(self, answer: Fetched, end: EndOfLog) -> None:
        """The quorum deleted what comes next. What is here is set aside, and the mirror begins anew."""
        if answer.log_start <= end.offset and end.offset:
            raise MalformedLog(str(self.folder.folder), end.offset, "the quorum answers with a snapshot for no reason")
        aside = self.folder.set_aside()
        self._begin_late(answer)
        self._notice(
            f"offsets {end.offset} to {answer.log_start - 1} are lost: the quorum deleted them; {aside} is before"
        )

    def _doubt(self, problem: MalformedLog) -> None:
        """Asks again on a new connection. Raises what is wrong, as Diverged, if it is told again and again."""
        self.quorum.close()
        self._drop()
        self._doubts += 1
        if self._doubts >= _ATTEMPTS:
            raise Diverged(f"{problem}") from None

    # -- what others see ------------------------------------------------------------------------------------------

    def _note_answer(self, answer: Fetched) -> None:
        controller = "" if self.quorum.address is None else str(self.quorum.address)
        self._state = WatchedQuorum(self.high_watermark, answer.leader, controller, datetime.now(UTC))
        self._state.write(self.folder.folder)

    def _note_silence(self, seconds: float) -> None:
        """Writes since when no leader answers, once that is longer than an election."""
        if seconds > _SILENT_SECONDS and self._state is not None and self._state.silent_since is None:
            self._state = self._state.silent(datetime.now(UTC) - timedelta(seconds=seconds))
            self._state.write(self.folder.folder)

    # -- what is kept ---------------------------------------------------------------------------------------------

    def delete_before(self, seconds: float, needed: Callable[[], int | None] = lambda: None) -> None:
        """Deletes history that is older than ``seconds``, once a snapshot takes its place.

        ``needed``: the offset from which on a lake still reads, None for none.
        """
        waiting = self.folder.snapshots(WAITING)
        for snapshot, path in reversed(waiting):
            reader = needed()
            if time.time() - path.stat().st_mtime >= seconds and (reader is None or reader >= snapshot.end_offset):
                self.folder.begin_with(snapshot)
                for older, old in waiting:
                    if older < snapshot:
                        old.unlink()
                return
        newest = waiting[-1][1].stat().st_mtime if waiting else 0.0
        if time.time() - newest < max(seconds / 10, 1.0):
            return
        answer = self.quorum.fetch(0, 0)
        if answer.snapshot is None or self.folder.end is None or answer.snapshot.end_offset > self.folder.end.offset:
            return
        known = {snapshot_id for snapshot_id, _ in (*waiting, *self.folder.snapshots())}
        if answer.snapshot not in known:
            with suppress(SnapshotGone):
                self._fetch_snapshot(answer.snapshot, WAITING)


def _other_history(end: EndOfLog, diverging: EndOfLog) -> str:
    return (
        f"the quorum has another history: it shares epoch {diverging.epoch} up to offset {diverging.offset}, this "
        f"mirror has epoch {end.epoch} up to {end.offset}: another cluster, or one that lost committed records"
    )


PREFIX = "jbod-quorum-"
"""What the name of a private folder with the log of a quorum begins with."""
_PATIENCE = 60.0
_TICK = 0.2


@contextmanager
def mirrored(
    url: str,
    folder: str,
    command_config: str,
    notice: Callable[[str], None],
    *,
    failed: Callable[[], bool] | None = None,
) -> Iterator[Mirror]:
    """The mirror of a quorum in a folder, with all that is committed now.

    ``failed``: the mirror follows during the block. If it cannot go on, it calls this until it returns True, and the
    end of the block raises the error. Raises JbodError if the quorum cannot be read.
    """
    ended = threading.Event()
    patience = _PATIENCE if failed is None else float("inf")
    files = MirrorFolder(folder)
    quorum = QuorumClient(
        addresses_of(url), security_of(command_config), stop=ended.is_set, patience=patience, notice=notice
    )
    mirror = Mirror(quorum, files, notice)
    problems: list[JbodError] = []

    def follow() -> None:
        try:
            while not ended.is_set():
                mirror.step()
        except Halted:
            pass
        except JbodError as problem:
            problems.append(problem)
            while failed is not None and not failed() and not ended.wait(_TICK):
                pass

    following = threading.Thread(target=follow, daemon=True, name="mirror")
    try:
        mirror.begin()
        while not mirror.step(0):
            pass
        if failed is not None:
            following.start()
        yield mirror
    finally:
        ended.set()
        if following.ident is not None:
            following.join()
        quorum.close()
        files.close()
    if problems:
        raise problems[0]


def committed(url: str, command_config: str, notice: Callable[[str], None]) -> tuple[TemporaryDirectory[str], str]:
    """A private folder with all that a quorum has committed now, and from where on it has history.

    The caller removes it. Raises JbodError if the quorum cannot be read.
    """
    folder = TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True)
    try:
        with mirrored(url, folder.name, command_config, notice) as mirror:
            return folder, mirror.begins
    except BaseException:
        folder.cleanup()
        raise
