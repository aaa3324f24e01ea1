"""The file system of a location: pyarrow's own, or S3 as a file system without folders.

pyarrow has one for S3, which keeps folders as empty objects, looks for them before and after it writes, and cannot
write on a condition. This one makes one request for each call. A path is BUCKET/KEY.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from jbod_model.errors import UsageError
from pipelines.storage import objects

KEPT_BYTES = 16 << 20
"""The most bytes of unchanged objects that a ListedFolder keeps."""


def filesystem_of(location: str) -> tuple[pafs.FileSystem, str]:
    """The file system of a path or URI, and the path in it. Raises UsageError for a URI that cannot be opened."""
    if objects.is_object(location):
        bucket, key = objects.parts(location)
        return pafs.PyFileSystem(ObjectFiles()), f"{bucket}/{key}".rstrip("/")
    if "://" in location:
        try:
            fs, path = pafs.FileSystem.from_uri(re.sub("^file://localhost/", "file:///", location))
        except (ValueError, OSError) as problem:
            raise UsageError(f"{location}: cannot be opened ({problem})") from None
        return fs, path
    return pafs.LocalFileSystem(), str(Path(location).absolute())


def read_at(fs: pafs.FileSystem, path: str, start: int, end: int) -> bytes:
    """Bytes ``[start, end)`` of a file, fewer if it ends before. Raises FileNotFoundError if it is not there."""
    if isinstance(fs, pafs.PyFileSystem):
        return objects.get_range(_uri(path), start, end)
    with fs.open_input_file(path) as file:
        content: bytes = file.read_at(max(end - start, 0), start)
        return content


class ObjectFiles(pafs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """S3 for pyarrow. A folder exists as long as there are objects below it."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectFiles)

    __hash__ = None  # type: ignore[assignment]

    def get_type_name(self) -> str:
        return "s3"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[pafs.FileInfo]:
        """One request for an existing object, two for a folder or a missing object."""
        return [self._info(path.rstrip("/")) for path in paths]

    def _info(self, path: str) -> pafs.FileInfo:
        if "/" in path:
            metadata = objects.head(_uri(path))
            if metadata is not None:
                return _file(path, metadata)
        there = objects.exists_below(_uri(path))
        return pafs.FileInfo(path, pafs.FileType.Directory if there else pafs.FileType.NotFound)

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        """What is below a folder: a request for each thousand objects. With ``recursive``, objects only."""
        base = selector.base_dir.rstrip("/")
        bucket = base.partition("/")[0]
        if selector.recursive:
            return [_file(f"{bucket}/{metadata['path']}", metadata) for metadata in objects.listed(_uri(base))]
        folders, files = objects.children(_uri(base))
        if not folders and not files and not selector.allow_not_found:
            raise FileNotFoundError(base)
        return _infos(bucket, folders, files)

    def create_dir(self, path: str, recursive: bool) -> None:
        """Nothing: the first object below makes the folder."""

    def delete_dir(self, path: str) -> None:
        bucket = path.partition("/")[0]
        objects.delete([f"{objects.SCHEME}{bucket}/{metadata['path']}" for metadata in objects.listed(_uri(path))])

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:  # noqa: ARG002
        self.delete_dir(path)

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError("jbod does not delete a whole bucket")

    def delete_file(self, path: str) -> None:
        objects.delete([_uri(path)])

    def move(self, src: str, dest: str) -> None:
        raise NotImplementedError("object storage cannot rename")

    def copy_file(self, src: str, dest: str) -> None:
        raise NotImplementedError("jbod does not copy objects within object storage")

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> pa.NativeFile:
        """The whole object in memory: one request."""
        return pa.BufferReader(objects.get(_uri(path)))

    def open_output_stream(self, path: str, metadata: Any) -> pa.NativeFile:  # noqa: ARG002
        """An object that is written when it is closed."""
        return pa.PythonFile(_Upload(_uri(path)), mode="w")

    def open_append_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        raise NotImplementedError("object storage cannot append")


class _Upload(io.BytesIO):
    def __init__(self, location: str) -> None:
        super().__init__()
        self._location = location

    def close(self) -> None:
        if not self.closed:
            content = self.getvalue()
            super().close()
            objects.put(self._location, content)


def _uri(path: str) -> str:
    return f"{objects.SCHEME}{path}"


def _file(path: str, metadata: Any) -> pafs.FileInfo:
    time: datetime = metadata["last_modified"]
    return pafs.FileInfo(path, pafs.FileType.File, size=metadata["size"], mtime=time)


def _infos(bucket: str, folders: Sequence[str], files: Sequence[Any]) -> list[pafs.FileInfo]:
    infos = [pafs.FileInfo(f"{bucket}/{name.rstrip('/')}", pafs.FileType.Directory) for name in folders]
    return infos + [_file(f"{bucket}/{metadata['path']}", metadata) for metadata in files]


class ListedFolder:
    """The objects directly below a prefix. Paths are BUCKET/KEY, as those of ``filesystem_of``."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._tags: dict[str, str] = {}
        """The ETag of each object, by path, at the newest listing."""
        self._kept: dict[str, tuple[str, int, bytes]] = {}
        """ETag, first byte and bytes that were read of an object, by path."""

    def look(self) -> list[pafs.FileInfo]:
        """Its folders and objects: a listing, which is one request for each thousand."""
        folders, files = objects.children(f"{objects.SCHEME}{self.path}")
        bucket = self.path.partition("/")[0]
        self._tags = {f"{bucket}/{metadata['path']}": metadata.get("e_tag") or "" for metadata in files}
        self._kept = {path: kept for path, kept in self._kept.items() if kept[0] == self._tags.get(path)}
        return _infos(bucket, folders, files)

    def lacks(self, path: str) -> bool:
        """Whether a path is directly below this folder and the newest listing does not name it."""
        return path.rpartition("/")[0] == self.path and path not in self._tags

    def read(self, path: str, start: int, end: int) -> bytes | memoryview:
        """Bytes ``[start, end)`` of an object, fewer if it ends before. Raises FileNotFoundError if it is not there."""
        tag, first, known = self._kept.get(path, ("", 0, b""))
        if first <= start and end <= first + len(known):
            return memoryview(known)[start - first : end - first]
        content, read_tag = objects.get_range_tagged(f"{objects.SCHEME}{path}", start, end)
        if read_tag and read_tag == self._tags.get(path):
            goes_on = tag == read_tag and first + len(known) == start
            self._kept[path] = (read_tag, first, known + content) if goes_on else (read_tag, start, content)
            if sum(len(kept[2]) for kept in self._kept.values()) > KEPT_BYTES:
                self._kept.clear()
        return content
