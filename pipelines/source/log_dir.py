"""The files of a metadata log directory, on a local disk or anywhere pyarrow.fs reaches. Read-only."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np
import pyarrow.fs as pafs

from jbod_model.errors import LogChanged, UsageError
from pipelines.source.sniff import check_first_batch, holds_other_records, read_head, what_file, what_folder
from pipelines.storage.filesystem import ListedFolder, filesystem_of, read_at
from pipelines.storage.objects import is_object

LOG_NAME = "__cluster_metadata-0"
_SEGMENT = re.compile(r"^(\d{20})\.log$")
# Kafka's partial and deleted snapshots have a suffix after ".checkpoint" and do not match.
_SNAPSHOT = re.compile(r"^(\d{20})-(\d{10})\.checkpoint$")
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

    ``location`` is a path or a URI of pyarrow.fs. Raises UsageError if there is no metadata log.
    """

    def __init__(self, location: str) -> None:
        self.location = location
        self._properties: dict[str, str] = {}
        self._fs, root = filesystem_of(location)
        self._parent: ListedFolder | None = None
        self._folder: ListedFolder | None = None
        """On S3, the folder of the log and the one that holds it, if that was listed."""
        self._first_look: list[pafs.FileInfo] | None = None
        """What the first call of ``files`` takes instead of a listing of its own, which is a request on S3."""
        try:
            self.root = self._root_of_objects(root) if is_object(location) else self._root(root)
            if not any(_sorted(self._look())):
                raise UsageError(
                    f"{location}: holds no segment or snapshot of a metadata log ({LOG_NAME}/*.log): "
                    + what_folder(self._fs, self.root, LOG_NAME)
                )
        except OSError as problem:
            raise UsageError(f"{location}: cannot be read ({problem})") from None
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
            raise UsageError(f"{self.location}: no such directory; give a metadata.log.dir or its {LOG_NAME}")
        if info.type != pafs.FileType.Directory:
            what = what_file(read_head(self._fs, root))
            raise UsageError(
                f"{self.location}: is a file ({what}); give a metadata.log.dir or its {LOG_NAME}; jbod dump reads files"
            )
        inner = str(PurePosixPath(root) / LOG_NAME)
        return inner if self._fs.get_file_info(inner).type == pafs.FileType.Directory else root

    def check_beginning(self) -> None:
        """Raises MalformedLog if a log that begins at 0 does not begin with a batch. Reads its first bytes only."""
        segments, _ = self.files()
        if segments and segments[0].base_offset == 0:
            check_first_batch(self._fs, segments[0].path, 0)

    def files(self) -> tuple[list[Segment], list[Snapshot]]:
        """Segments by first offset and complete snapshots by end offset, as they are now (R-LOG-2)."""
        there, self._first_look = self._look(), None
        return _sorted(there)

    def _look(self) -> list[pafs.FileInfo]:
        if self._first_look is not None:
            return self._first_look
        if self._folder is not None:
            return self._folder.look()
        found: list[pafs.FileInfo] = self._fs.get_file_info(pafs.FileSelector(self.root))
        return found

    def read(self, path: str, start: int, end: int) -> np.ndarray:
        """Bytes ``[start, end)`` of a file, fewer if it ends before: uint8. Raises LogChanged if it is gone."""
        return _read(self._folder or self._fs, path, start, end)

    def cluster_id(self) -> str:
        """cluster.id of the meta.properties beside the log, empty if there is none."""
        return self._property(str(PurePosixPath(self.root).parent / "meta.properties"), "cluster.id", "=")

    def node_id(self) -> int:
        """node.id of the meta.properties beside the log, -1 if there is none."""
        text = self._property(str(PurePosixPath(self.root).parent / "meta.properties"), "node.id", "=")
        return int(text) if text.isdigit() else -1

    def _refuse_other_topics(self) -> None:
        topic = self._property(str(PurePosixPath(self.root) / "partition.metadata"), "topic_id", ":")
        if topic and topic != _METADATA_TOPIC_ID:
            raise UsageError(f"{self.location}: is the log of another topic (topic_id {topic}), not {LOG_NAME}")
        name = PurePosixPath(self.root).name
        # Kafka names the folder of a partition TOPIC-N. In any other folder, such records are damage.
        of_topic = not topic and name != LOG_NAME and name.rpartition("-")[2].isdigit()
        segments = self.files()[0] if of_topic else []
        if segments and holds_other_records(self._fs, segments[0].path):
            raise UsageError(f"{self.location}: is the log of another topic: its first batch has no metadata records")

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
        if info.type != pafs.FileType.File:
            continue
        if found := _SEGMENT.match(info.base_name):
            segments.append(Segment(int(found[1]), info.path, info.size))
        elif found := _SNAPSHOT.match(info.base_name):
            snapshots.append(Snapshot(int(found[1]), int(found[2]), info.path, info.size))
    return sorted(segments, key=lambda s: s.base_offset), sorted(snapshots, key=lambda s: (s.end_offset, s.epoch))


def read_bytes(location: str, path: str, start: int, end: int) -> np.ndarray:
    """Bytes ``[start, end)`` of a file of the log at ``location``: uint8. For workers, which do not list the log."""
    return _read(filesystem_of(location)[0], path, start, end)


def _read(there: ListedFolder | pafs.FileSystem, path: str, start: int, end: int) -> np.ndarray:
    try:
        found = there.read(path, start, end) if isinstance(there, ListedFolder) else read_at(there, path, start, end)
        return np.frombuffer(found, np.uint8)
    except FileNotFoundError:
        raise LogChanged(path, -1, _GONE) from None
    except OSError as problem:
        raise UsageError(f"{path}: cannot be read ({problem})") from None
