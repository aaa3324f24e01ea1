"""S3 for DuckDB, through the same library as everything else: DuckDB's own extension is fetched from the network.

A data file has a unique name and never changes, so its blocks are cached while the process lives, up to a
bound.
"""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import fsspec

from pipelines.storage import objects

if TYPE_CHECKING:
    import duckdb

WHOLE = 16 << 20
"""Bytes of an object that is read as a whole, by one request. Of a larger one, DuckDB reads what it needs."""
BLOCK = 1 << 20
"""Least bytes of a request for a part of an object."""
KEPT = 256 << 20
"""Bytes kept of objects that were read as a whole."""

_NEVER = datetime(2000, 1, 1, tzinfo=UTC)
_lock = threading.Lock()
_kept: OrderedDict[str, bytes] = OrderedDict()


def register(connection: duckdb.DuckDBPyConnection) -> None:
    """Lets a connection read ``s3://`` paths."""
    if not connection.filesystem_is_registered("s3"):
        connection.register_filesystem(ObjectsOfDuckdb())


class ObjectsOfDuckdb(fsspec.AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """What DuckDB asks of a file system: names as they are, sizes and bytes."""

    protocol = "s3"
    cachable = False

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path

    def glob(self, path: str, **_: Any) -> list[str]:
        """The path itself: lists of files come from Delta's log, so nothing is listed."""
        return [path.replace("[*]", "*").replace("[?]", "?").replace("[[]", "[")]

    def exists(self, path: str, **_: Any) -> bool:  # noqa: ARG002
        """True: opening it tells."""
        return True

    def isfile(self, path: str) -> bool:  # noqa: ARG002
        """True: opening it tells."""
        return True

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Name and size, without a request if the object is cached."""
        with _lock:
            content = _kept.get(path)
        if content is not None:
            return {"name": path, "size": len(content), "type": "file"}
        metadata = objects.head(path)
        if metadata is None:
            raise FileNotFoundError(path)
        return {"name": path, "size": metadata["size"], "type": "file"}

    def modified(self, path: str) -> datetime:  # noqa: ARG002
        """Always the same, as a data file never changes."""
        return _NEVER

    def open(self, path: str, *_: Any, **__: Any) -> io.BufferedIOBase | io.RawIOBase:
        return open_object(path)


def open_object(path: str) -> io.BufferedIOBase | io.RawIOBase:
    """A file to read: in memory if it is small."""
    with _lock:
        content = _kept.get(path)
        if content is not None:
            _kept.move_to_end(path)
            return io.BytesIO(content)
    body, size = objects.get_small(path, WHOLE)
    if body is None:
        return io.BufferedReader(_Parts(path, size), BLOCK)
    with _lock:
        _kept[path] = body
        while sum(map(len, _kept.values())) > KEPT:
            _kept.popitem(last=False)
    return io.BytesIO(body)


class _Parts(io.RawIOBase):
    """A large object, of which ranges are read."""

    def __init__(self, path: str, size: int) -> None:
        self._path = path
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = (offset, self._at + offset, self._size + offset)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        content = objects.get_range(self._path, self._at, min(self._at + len(buffer), self._size))
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)
