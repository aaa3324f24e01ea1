"""The files of a metadata log directory, on a local disk or anywhere pyarrow.fs reaches. Read-only.

If a path holds something else, the error message guesses what.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np
import pyarrow.fs as pafs

from jbod_model.errors import LogChanged, MalformedLog, UsageError
from jbod_model.formats.batch import read_batch, read_header
from pipelines.storage.filesystem import ListedFolder, filesystem_of, read_at
from pipelines.storage.objects import is_object, to_read

LOG_NAME = "__cluster_metadata-0"
_SEGMENT = re.compile(r"([0-9]{20})\.log")
# Kafka's partial and deleted snapshots have a suffix after ".checkpoint" and do not match.
_SNAPSHOT = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")
_GONE = "the file is gone: Kafka deletes segments and snapshots, or an executor elsewhere does not reach it"
_METADATA_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


@dataclass(frozen=True)
class Segment:
    """A segment: its first offset, path and size in bytes."""

    base_offset: int
    path: str
    size: int


@dataclass(frozen=True)
class Snapshot:
    """A complete snapshot: the offset after its last record, its epoch, path and size in bytes."""

    end_offset: int
    epoch: int
    path: str
    size: int


class LogDir:
    """A ``__cluster_metadata-0`` folder, or the metadata.log.dir that holds it.

    ``log_dir`` is a path or a URI of pyarrow.fs. Raises UsageError if there is no metadata log.
    """

    def __init__(self, log_dir: str) -> None:
        if log_dir.startswith("kafka://"):
            raise UsageError(
                f"{log_dir}: is a quorum: jbod mirror {log_dir} --into DIR keeps its log in DIR: name that"
            )
        self.log_dir = log_dir
        self._properties: dict[str, str] = {}
        self._fs, root = filesystem_of(log_dir)
        self._parent: ListedFolder | None = None
        self._folder: ListedFolder | None = None
        """On S3, the folder of the log and the one that holds it, if that was listed."""
        self._first_look: list[pafs.FileInfo] | None = None
        """What the first call of ``files`` takes instead of a listing of its own, which is a request on S3."""
        try:
            self.root = self._root_of_objects(root) if is_object(log_dir) else self._root(root)
            if not any(_sorted(self._look())):
                raise UsageError(
                    f"{log_dir}: holds no segment or snapshot of a metadata log ({LOG_NAME}/*.log): "
                    + _what_folder(self._fs, self.root)
                )
        except OSError as problem:
            raise UsageError(f"{log_dir}: cannot be read ({problem}){to_read(problem)}") from None
        self._refuse_other_topics()

    def _root_of_objects(self, root: str) -> str:
        """The same on S3. One listing, where asking for both folders would make four requests."""
        folder = ListedFolder(root)
        there = folder.look()
        inner = str(PurePosixPath(root) / LOG_NAME)
        if any(info.path == inner for info in there):
            self._parent, folder = folder, ListedFolder(inner)
            there = folder.look()
        self._folder, self._first_look = folder, there
        return folder.path if there else self._root(root)

    def _root(self, root: str) -> str:
        """Returns the folder of the log. Either path may name it (R-LOG-1)."""
        info = self._fs.get_file_info(root)
        if info.type == pafs.FileType.NotFound:
            raise UsageError(f"{self.log_dir}: no such directory; give a metadata.log.dir or its {LOG_NAME}")
        if info.type != pafs.FileType.Directory:
            is_index = root.endswith("index")  # .index, .timeindex, .txnindex: zeros, or empty
            what = "an index of a segment: name its directory" if is_index else what_file(read_head(self._fs, root))
            raise UsageError(
                f"{self.log_dir}: is a file ({what}); give a metadata.log.dir or its {LOG_NAME}; jbod dump reads files"
            )
        inner = str(PurePosixPath(root) / LOG_NAME)
        return inner if self._fs.get_file_info(inner).type == pafs.FileType.Directory else root

    def check_beginning(self) -> None:
        """Raises MalformedLog if a log that begins at 0 does not begin with a batch. Reads its first bytes only."""
        segments, _ = self.files()
        if segments and segments[0].base_offset == 0:
            _check_first_batch(self._fs, segments[0].path)

    def files(self) -> tuple[list[Segment], list[Snapshot]]:
        """Segments by first offset and complete snapshots by end offset, as they are now (R-LOG-2)."""
        there, self._first_look = self._look(), None
        return _sorted(there)

    def _look(self) -> list[pafs.FileInfo]:
        if self._first_look is not None:
            return self._first_look
        if self._folder is not None:
            return self._folder.look()
        infos: list[pafs.FileInfo] = self._fs.get_file_info(pafs.FileSelector(self.root))
        return infos

    def read(self, path: str, start: int, end: int) -> np.ndarray:
        """Bytes ``[start, end)`` of a file, fewer if it ends before: uint8. Raises LogChanged if it is gone."""
        return _read(self._folder or self._fs, path, start, end)

    def cluster_id(self) -> str:
        """cluster.id of the meta.properties beside the log, empty if there is none."""
        return self._property(str(PurePosixPath(self.root).parent / "meta.properties"), "cluster.id", "=")

    def node_id(self) -> int:
        """node.id of the meta.properties beside the log, -1 if there is none."""
        text = self._property(str(PurePosixPath(self.root).parent / "meta.properties"), "node.id", "=")
        return int(text) if text.isdecimal() else -1

    def _refuse_other_topics(self) -> None:
        topic = self._property(str(PurePosixPath(self.root) / "partition.metadata"), "topic_id", ":")
        if topic and topic != _METADATA_TOPIC_ID:
            raise UsageError(f"{self.log_dir}: is the log of another topic (topic_id {topic}), not {LOG_NAME}")
        name = PurePosixPath(self.root).name
        # Kafka names the folder of a partition TOPIC-N. In any other folder, such records are damage.
        of_topic = not topic and name != LOG_NAME and name.rpartition("-")[2].isdecimal()
        segments = self.files()[0] if of_topic else []
        if segments and holds_other_records(self._fs, segments[0].path):
            raise UsageError(f"{self.log_dir}: is the log of another topic: its first batch has no metadata records")

    def _property(self, path: str, key: str, separator: str) -> str:
        if any(folder is not None and folder.lacks(path) for folder in (self._folder, self._parent)):
            return ""
        if path not in self._properties:
            try:
                self._properties[path] = self.read(path, 0, 1 << 16).tobytes().decode("utf-8", "replace")
            except LogChanged:
                self._properties[path] = ""
        text = self._properties[path]
        for line in text.splitlines():
            name, _, value = line.partition(separator)
            if name.strip() == key:
                return value.strip()
        return ""


def _sorted(there: Sequence[pafs.FileInfo]) -> tuple[list[Segment], list[Snapshot]]:
    segments, snapshots = [], []
    for info in there:
        match = _SEGMENT.fullmatch(info.base_name) or _SNAPSHOT.fullmatch(info.base_name)
        if match is None or info.type == pafs.FileType.NotFound:  # Kafka may have deleted it since it was listed
            continue
        if info.type != pafs.FileType.File:
            raise UsageError(f"{info.path}: is no file: restore the file, or remove what has its name")
        offset, *epoch = map(int, match.groups())
        if offset >= 1 << 63 or any(number >= 1 << 31 for number in epoch):
            raise UsageError(
                f"{info.path}: no file of Kafka has an offset above int64 or an epoch above int32: remove it"
            )
        if epoch:
            snapshots.append(Snapshot(offset, epoch[0], info.path, info.size))
        else:
            segments.append(Segment(offset, info.path, info.size))
    return sorted(segments, key=lambda s: s.base_offset), sorted(snapshots, key=lambda s: (s.end_offset, s.epoch))


def snapshot_end(path: str) -> int | None:
    """The end offset of the snapshot at ``path``, None for another file."""
    match = _SNAPSHOT.fullmatch(PurePosixPath(path).name)
    return None if match is None else int(match[1])


def read_bytes(log_dir: str, path: str, start: int, end: int) -> np.ndarray:
    """Bytes ``[start, end)`` of a file of the log at ``log_dir``: uint8. For workers, which do not list the log."""
    return _read(filesystem_of(log_dir)[0], path, start, end)


def _read(there: ListedFolder | pafs.FileSystem, path: str, start: int, end: int) -> np.ndarray:
    try:
        content = there.read(path, start, end) if isinstance(there, ListedFolder) else read_at(there, path, start, end)
        return np.frombuffer(content, np.uint8)
    except FileNotFoundError:
        raise LogChanged(path, -1, _GONE) from None
    except OSError as problem:
        raise UsageError(f"{path}: cannot be read ({problem}){to_read(problem)}") from None


_HEAD = 4096
_HEADER = 61
_FIRST = 1 << 16
"""Bytes in which the first batch of a log is looked for."""
_FRAME, _LAST_KEY = 1, 127
"""The first byte of a metadata record (R-FMT-1 frames it), and the largest second one: its api key in one byte."""
_PARTITION = re.compile(r".+-\d+")
_PACKED = re.compile(r"\d{20}\.log\.\w+|\d{20}-\d{10}\.checkpoint\.(gz|zst|lz4|bz2|xz)")
_NAMED = 3
"""How many names an error message lists."""


def what_file(head: bytes) -> str:
    """Says what a file is, by its first bytes."""
    if not head:
        return "empty"
    if head[:2] == b"\x1f\x8b":
        return "packed with gzip"
    if b"Completed request:" in head:
        return "a request log: that goes to --requests"
    if is_batch(head):
        return "a segment or snapshot: name its directory"
    if b"\0" not in head and head.isascii():
        return "text"
    return "neither a log nor text"


def is_batch(head: bytes) -> bool:
    """Whether bytes begin with the header of a record batch."""
    try:
        read_header(head, 0, file="")
        return len(head) >= _HEADER
    except MalformedLog:
        return False


def holds_other_records(fs: pafs.FileSystem, path: str) -> bool:
    """Whether the first batch of a segment is sound, but its records are not those of a metadata log."""
    head = read_head(fs, path, _FIRST)
    try:
        header = read_header(head, 0, file=path)
        if header is None or header.size > len(head):
            return False
    except MalformedLog:
        return False
    try:
        batch = read_batch(head, 0, file=path)
    except MalformedLog:  # a key, or no value: Kafka writes neither in a metadata log
        return True
    values = () if batch is None else batch.values
    return any(len(value) < 2 or value[0] != _FRAME or value[1] > _LAST_KEY for value in values)


def read_head(fs: pafs.FileSystem, path: str, size: int = _HEAD) -> bytes:
    """The first bytes of a file, empty if it cannot be read."""
    try:
        return read_at(fs, path, 0, size)
    except OSError:
        return b""


def _what_folder(fs: pafs.FileSystem, folder: str) -> str:
    """Says what a folder holds that is not a log, and where below it a log is."""
    there = sorted(fs.get_file_info(pafs.FileSelector(folder)), key=lambda info: info.base_name)
    names = [info.base_name for info in there]
    folders = [info.base_name for info in there if info.type == pafs.FileType.Directory]
    below = [
        name
        for name in folders[:100]
        if fs.get_file_info(str(PurePosixPath(folder) / name / LOG_NAME)).type == pafs.FileType.Directory
    ]
    if not names:
        return "it is empty"
    if "ledger" in folders and fs.get_file_info(f"{folder}/ledger/_delta_log").type == pafs.FileType.Directory:
        return "it is a lake of jbod: give it with --lake"
    if below:
        return f"there is one in {named(below)}: name that"
    if packed := [name for name in names if _PACKED.fullmatch(name)]:
        return f"it holds packed files ({named(packed)}): unpack them first"
    if partitions := [name for name in folders if _PARTITION.fullmatch(name)]:
        return f"it holds partitions of topics ({named(partitions)}): name the metadata.log.dir of a controller"
    return f"it holds {named(names)}"


def named(names: list[str]) -> str:
    """The first names of a list, as text."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _check_first_batch(fs: pafs.FileSystem, path: str) -> None:
    """Raises MalformedLog if a segment does not begin with the header of a batch at offset 0."""
    head = read_head(fs, path, _HEADER)
    try:
        read_header(head, 0, file=path)
    except MalformedLog as problem:
        what = what_file(read_head(fs, path))
        raise MalformedLog(path, 0, f"{problem.problem} (the file is {what})") from None
    first_offset = int.from_bytes(head[:8], "big")
    if len(head) >= 8 and first_offset:
        raise MalformedLog(path, 0, f"the file begins with offset {first_offset}, not with the one it is named by")
