"""The folder of a mirror: segments and snapshots under the names that Kafka gives them, and what a kill may leave.

Bytes are only added at the end of the newest segment. A kill leaves at most a batch that is cut off there, which the
next start removes, and files that end with .part, which it deletes. A snapshot gets its name when it is complete.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout

from jbod_model.errors import MalformedLog, UsageError
from jbod_model.formats.log import PARTITION_DIRECTORY, MetadataLog
from jbod_model.storage.properties import parse_properties, render_properties
from pipelines.quorum.client import EndOfLog, SnapshotId, sound_batches
from pipelines.storage.objects import to_write

ROLL_BYTES = 64 << 20
ROLL_SECONDS = 24 * 3600
"""A segment has one or the other at most, so that a part of the history can be deleted."""
WAITING = "waiting"
"""The folder of snapshots that will be the beginning once everything before them may be deleted."""
_LOCK = ".jbod-mirror"
_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_PIECE = 4 << 20


class MirrorFolder:
    """The files of a mirror, held by one process. Raises UsageError if another one holds them or they are others'."""

    def __init__(self, folder: str) -> None:
        if "://" in folder:
            raise UsageError(f"{folder}: a mirror is on a disk of this machine: its end is written many times a second")
        self.folder = Path(folder)
        self.log = self.folder / PARTITION_DIRECTORY
        self._file: BinaryIO | None = None
        self._size = 0
        self._began = 0.0
        try:
            with self._disk_faults():
                self.log.mkdir(parents=True, exist_ok=True)
                self._lock = FileLock(self.folder / _LOCK)
                self._lock.acquire(timeout=0)
        except Timeout:
            raise UsageError(f"{folder}: another jbod writes this mirror: end it, or use another folder") from None
        for part in (*self.log.glob("*.part"), *(self.folder / WAITING).glob("*.part")):
            part.unlink()
        self.end = self._cut()

    def close(self) -> None:
        """Closes the newest segment, and lets others write."""
        self._finish_segment()
        self._lock.release()

    @contextmanager
    def _disk_faults(self) -> Iterator[None]:
        """Raises UsageError for a disk that takes no more: the thread that follows a quorum reports only JbodError."""
        try:
            yield
        except Timeout:
            raise
        except OSError as problem:
            raise UsageError(f"{self.folder}: cannot be written ({problem.strerror}){to_write(problem)}") from None

    # -- what is there --------------------------------------------------------------------------------------------

    def segments(self) -> list[Path]:
        """The segments in the order of their offsets."""
        return sorted(self.log.glob("?" * 20 + ".log"))

    @property
    def first(self) -> int | None:
        """The first offset of the log, None without a segment."""
        segments = self.segments()
        return int(segments[0].stem) if segments else None

    def snapshots(self, folder: str = PARTITION_DIRECTORY) -> list[tuple[SnapshotId, Path]]:
        """The snapshots in a folder of the mirror in the order of their offsets."""
        matches = ((_SNAPSHOT.fullmatch(path.name), path) for path in (self.folder / folder).glob("*.checkpoint"))
        return sorted((SnapshotId(int(name[1]), int(name[2])), path) for name, path in matches if name)

    def write_cluster_id(self, cluster_id: str) -> None:
        """Writes meta.properties, once."""
        part = self.folder / "meta.properties.part"
        with self._disk_faults():
            part.write_bytes(render_properties({"version": "1", "cluster.id": cluster_id}))
            part.replace(self.folder / "meta.properties")

    # -- the end of the log ---------------------------------------------------------------------------------------

    def append(self, data: memoryview, first: int, end: EndOfLog) -> None:
        """Adds whole batches, from offset ``first`` on, which is the end so far, up to ``end``."""
        with self._disk_faults():
            if self._file is None or self._size >= ROLL_BYTES or time.time() - self._began >= ROLL_SECONDS:
                self._finish_segment()
                self._begin_segment(first)
            self._write(data)
        self.end = end

    def _begin_segment(self, offset: int) -> None:
        path = self.log / f"{offset:020d}.log"
        self._file = path.open("ab", buffering=0)
        self._size, self._began = path.stat().st_size, time.time()

    def _write(self, data: memoryview) -> None:
        if self._file is None:
            raise ValueError("no segment was begun")
        rest = data
        while rest:
            rest = rest[self._file.write(rest) :]
        self._size += len(data)

    def _finish_segment(self) -> None:
        if self._file is not None:
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None

    def _cut(self) -> EndOfLog | None:
        """Removes what follows the last whole batch. Returns the end of the log, None if there is no log yet."""
        while segments := self.segments():
            newest = segments[-1]
            data = newest.read_bytes()
            end, size = EndOfLog(int(newest.stem), -1), 0
            try:
                for batch in sound_batches(data, str(newest)):
                    if batch.base_offset != end.offset:
                        break
                    end, size = EndOfLog(batch.last_offset + 1, batch.epoch), batch.end
            except MalformedLog:
                pass  # what a kill left, or a disk: fetched again
            if size < len(data):
                os.truncate(newest, size)
            if size:
                self._file = newest.open("ab", buffering=0)
                self._size, self._began = size, time.time()
                return end
            newest.unlink()
        begins = [snapshot for snapshot, _ in self.snapshots() if snapshot.end_offset > 0]
        return EndOfLog(*begins[-1]) if begins else None

    # -- snapshots ------------------------------------------------------------------------------------------------

    @contextmanager
    def snapshot_file(self, snapshot: SnapshotId, folder: str = PARTITION_DIRECTORY) -> Iterator[BinaryIO]:
        """A file for a snapshot, which gets its name if the block ends well and its batches are sound."""
        path = self.folder / folder / f"{snapshot.end_offset:020d}-{snapshot.epoch:010d}.checkpoint"
        part = path.with_name(f"{path.name}.part")
        with self._disk_faults():
            path.parent.mkdir(exist_ok=True)
            with part.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
        data = part.read_bytes()
        size = max((batch.end for batch in sound_batches(data, str(path))), default=0)
        if size != len(data) or not size:
            raise MalformedLog(str(path), snapshot.end_offset, "the snapshot that was fetched is not whole")
        part.replace(path)

    # -- history that goes ----------------------------------------------------------------------------------------

    def set_aside(self) -> Path | None:
        """Moves the log to a folder of its own, which can be read like this one; None if there is none."""
        if self.end is None:
            return None
        self._finish_segment()
        aside = self.folder / f"until-{self.end.offset:020d}"
        aside.mkdir(exist_ok=True)
        if (self.folder / "meta.properties").exists():
            shutil.copy(self.folder / "meta.properties", aside)
        self.log.rename(aside / PARTITION_DIRECTORY)
        self.log.mkdir()
        self.end = None
        return aside

    def begin_with(self, waiting: SnapshotId) -> None:
        """Makes a snapshot that waits the beginning, and deletes what it replaces: the segments below it, last."""
        path = next(path for snapshot, path in self.snapshots(WAITING) if snapshot == waiting)
        before = [old for _, old in self.snapshots()]
        path.replace(self.log / path.name)
        segments = self.segments()
        below = [segment for segment, after in pairwise(segments) if int(after.stem) <= waiting.end_offset]
        for old in (*below, *before):
            old.unlink()

    # -- a copy as the beginning ----------------------------------------------------------------------------------

    def take(self, seed: MetadataLog, end: EndOfLog) -> None:
        """Copies the files of another log up to ``end``, which lies between two batches."""
        first = seed.segments[0].base_offset
        for snapshot in (
            [candidate for candidate in seed.snapshots if candidate.end_offset >= first][:1] if first else ()
        ):
            name = SnapshotId(snapshot.end_offset, snapshot.epoch)
            with self.snapshot_file(name) as file, snapshot.path.open("rb") as source:
                shutil.copyfileobj(source, file, _PIECE)
        for segment in seed.segments:
            data = segment.path.read_bytes()
            there = (batch.end for batch in sound_batches(data, str(segment.path)) if batch.last_offset < end.offset)
            size = max(there, default=0)
            if not size:
                break
            with self._disk_faults():
                (self.log / f"{segment.base_offset:020d}.log").write_bytes(data[:size])
        self.end = self._cut()


def cluster_id_of(folder: Path) -> str | None:
    """The cluster id in the meta.properties of a metadata.log.dir, None if it is not known."""
    try:
        return parse_properties((folder / "meta.properties").read_bytes()).get("cluster.id")
    except FileNotFoundError:
        return None
