"""A folder on S3 as its newest listing shows it: bytes of an object that has not changed since are read once."""

from __future__ import annotations

import pyarrow.fs as pafs

from pipelines.storage import objects

KEPT_BYTES = 16 << 20
"""The most bytes that are kept."""


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
        folders, found = objects.children(f"{objects.SCHEME}{self.path}")
        bucket = self.path.partition("/")[0]
        self._tags = {f"{bucket}/{one['path']}": one.get("e_tag") or "" for one in found}
        self._kept = {path: kept for path, kept in self._kept.items() if kept[0] == self._tags.get(path)}
        infos = [pafs.FileInfo(f"{bucket}/{name.rstrip('/')}", pafs.FileType.Directory) for name in folders]
        return infos + [
            pafs.FileInfo(f"{bucket}/{one['path']}", pafs.FileType.File, size=one["size"], mtime=one["last_modified"])
            for one in found
        ]

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
