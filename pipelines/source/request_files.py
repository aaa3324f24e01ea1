"""The files of request logs: the current name of each log, its end, and how far it was read.

The first lines of a log identify it, not its name. So a rename, a copy or gzip neither hides lines nor repeats them.
Positions count bytes of the uncompressed text. This module writes nothing.

The text of a file, plain or gzip, is read forwards; damage ends the text instead of raising.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from glob import escape, glob, has_magic
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from jbod_model.errors import UsageError
from pipelines.formats.requests import CHUNK
from pipelines.source.log_dir import is_batch
from pipelines.storage.objects import to_read

_PACKED = b"\x1f\x8b"
_PIECE = 1 << 12
"""Packed bytes to unpack at once. If a file is damaged, at most about this much before the damage is lost."""
_MOST = 1 << 18
"""The most bytes that one step unpacks, whatever the compression ratio."""


def is_packed(path: str) -> bool:
    """Whether a file is gzip, by its first bytes. Raises OSError if it cannot be read."""
    with Path(path).open("rb") as source:
        return source.read(2) == _PACKED


class Text:
    """A log's text as a file that is read forwards. ``problem`` says why the text ended early, "" if it did not."""

    def __init__(self, path: str) -> None:
        self._file: BinaryIO = Path(path).open("rb")  # noqa: SIM115 - closed by close
        self._packed = self._file.read(2) == _PACKED
        self._file.seek(0)
        self._unpack = zlib.decompressobj(wbits=31)
        self._raw = b""
        self._ready = bytearray()
        self._at = 0
        self._ended = False
        self.problem = ""

    def read(self, size: int) -> bytes:
        """The next ``size`` bytes, fewer at the end."""
        if not self._packed:
            return self._file.read(size)
        while len(self._ready) < size and not self._ended:
            self._more()
        content = bytes(self._ready[:size])
        del self._ready[:size]
        self._at += len(content)
        return content

    def seek(self, position: int) -> None:
        """Skips forward to a position."""
        if not self._packed:
            self._file.seek(position)
            return
        while self._at < position and self.read(min(position - self._at, _MOST)):
            pass

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Text:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _more(self) -> None:
        """Unpacks a piece. The bounds of pieces do not depend on the caller, so all readers see damage alike."""
        if not self._raw:
            self._raw = self._file.read(_PIECE)
        if self._unpack.eof:
            if not self._raw.strip(b"\0"):
                self._ended = not self._raw
                self._raw = b""
                return
            self._unpack = zlib.decompressobj(wbits=31)
        if not self._raw:
            self._end("the packed file is cut off")
            return
        try:
            self._ready += self._unpack.decompress(self._raw, _MOST)
        except zlib.error:
            self._end("the packed file is damaged")
            return
        self._raw = self._unpack.unused_data if self._unpack.eof else self._unpack.unconsumed_tail

    def _end(self, problem: str) -> None:
        self._ended = True
        self.problem = problem


HEAD = 1 << 16
"""The identity of a log is taken from these first bytes."""
_REMEMBERED = 10_000
_REQUEST = b"Completed request:"
_TIME = re.compile(rb"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d")


@dataclass(frozen=True)
class LogFile:
    """The present state of a log. ``end`` is the position after its last whole line."""

    file_id: str
    path: str
    end: int
    begins: bytes
    """The first time in the log, so that older logs are read first."""
    packed: bool = False
    problem: str = ""
    """Why a packed file cannot be read beyond ``end``."""


def file_id(path: str) -> tuple[str, bytes] | None:
    """Returns the id of a log and the first time in it, None while it has no whole line. Raises OSError if it is gone.

    The id is a hash of all bytes up to the end of its first request, whose times and connection are unique. If the
    first 64 KiB have no request, it is a hash of the first line.
    """
    with Text(path) as source:
        head = source.read(HEAD)
    request = head.find(_REQUEST)
    end = head.find(b"\n", max(request, 0)) + 1
    if end == 0 and (request < 0 or len(head) == HEAD):
        end = head.find(b"\n") + 1 or (HEAD if len(head) == HEAD else 0)
    if end == 0:
        return None
    time = _TIME.search(head, 0, end)
    return hashlib.sha256(head[:end]).hexdigest()[:24], time[0] if time else b""


def files_of(patterns: Iterable[str]) -> Iterator[str]:
    """Files by name or glob. A file includes its rotations, such as ``FILE.1`` or ``FILE.2026-11-21.gz``."""
    for pattern in patterns:
        rotated = sorted(glob(f"{escape(pattern)}.*"))  # noqa: PTH207 - it may begin at the root
        if Path(pattern).exists() or rotated:
            yield from [pattern, *rotated] if Path(pattern).exists() else rotated
        elif has_magic(pattern):
            yield from sorted(glob(pattern, recursive=True))  # noqa: PTH207 - it may begin at the root


class RequestFiles:
    """The logs that match paths and globs; every ``scan`` looks at them again."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = tuple(patterns)
        self._packed: dict[tuple[str, int, int], tuple[int, str]] = {}
        """(path, size, mtime) -> end and problem, so that a packed file is read only once."""
        self._whole: dict[str, tuple[int, int]] = {}
        """file_id -> (end, position up to which no newline follows), so that a long open line is searched only once."""
        self._ids: dict[tuple[str, int, int], tuple[str, bytes] | None] = {}
        """(path, size, mtime) -> identity, so that unchanged files are not opened again."""

    def check(self) -> None:
        """Raises UsageError for a directory, and for a path or glob that matches no file."""
        for pattern in self._patterns:
            paths = list(files_of([pattern]))
            if not paths:
                what = "matches no file" if has_magic(pattern) else "no such file"
                raise UsageError(f"{pattern}: {what}; give a controller's request log, rotated ones as a glob")
            for path in paths:
                if Path(path).is_dir():
                    raise UsageError(f"{path}: is a directory; give the request logs in it, for instance {path}/*.log*")
                try:
                    with Text(path) as source:
                        head = source.read(HEAD)
                except OSError as problem:
                    raise UsageError(f"{path}: cannot be read ({problem.strerror}){to_read(problem)}") from None
                if is_batch(head):
                    raise UsageError(
                        f"{path}: is a segment of a metadata log, not a request log: name a request log with --requests"
                    )

    def scan(self, known: Mapping[str, int]) -> list[LogFile]:
        """The logs, oldest first. A log in ``known`` (id -> position) is searched for under other names, too."""
        files = self._identify(files_of(self._patterns), {})
        missing = known.keys() - files.keys()
        if missing:
            files = self._identify(self._siblings(), files, only=missing)
        logs = [self._measured(*each, known) for each in files.items()]
        return sorted(logs, key=lambda log: (log.begins, log.path))

    def find(self, wanted: str) -> str | None:
        """Returns the current path of a log, None if it is gone."""
        for paths in (files_of(self._patterns), self._siblings()):
            for path in paths:
                if _id_of(path) == wanted:
                    return path
        return None

    def _identify(
        self, paths: Iterable[str], files: dict[str, tuple[str, bytes]], only: Iterable[str] | None = None
    ) -> dict[str, tuple[str, bytes]]:
        """file_id -> path and first time. Of two copies the one that is not packed wins, then the longer one."""
        wanted = None if only is None else set(only)
        for path in paths:
            try:
                seen = self._identity(path)
            except OSError:
                continue
            if seen is None or (wanted is not None and seen[0] not in wanted):
                continue
            other = files.get(seen[0])
            if other is None or _preferred(path) > _preferred(other[0]):
                files[seen[0]] = path, seen[1]
        return files

    def _identity(self, path: str) -> tuple[str, bytes] | None:
        status = Path(path).stat()
        key = (path, status.st_size, status.st_mtime_ns)
        if key not in self._ids:
            if len(self._ids) > _REMEMBERED:
                self._ids.clear()
            self._ids[key] = file_id(path)
        return self._ids[key]

    def _siblings(self) -> Iterator[str]:
        """Files next to the given ones, to which a rotation may have moved them."""
        for folder in sorted({str(Path(pattern).parent) for pattern in self._patterns}):
            if not has_magic(folder) and Path(folder).is_dir():
                yield from sorted(str(path) for path in Path(folder).iterdir() if path.is_file())

    def _measured(self, identity: str, file: tuple[str, bytes], known: Mapping[str, int]) -> LogFile:
        path, begins = file
        try:
            if is_packed(path):
                end, problem = self._packed_end(path)
                return LogFile(identity, path, end, begins, packed=True, problem=problem)
            return LogFile(identity, path, self._plain_end(identity, path, known.get(identity, 0)), begins)
        except OSError:
            return LogFile(identity, path, known.get(identity, 0), begins)

    def _plain_end(self, identity: str, path: str, position: int) -> int:
        """Position after the last newline, searched backwards from the end."""
        end, searched = self._whole.get(identity, (position, position))
        with Path(path).open("rb") as source:
            size = source.seek(0, 2)
            at = size
            while at > searched:
                begin = max(at - CHUNK, searched)
                source.seek(begin)
                newline = source.read(at - begin).rfind(b"\n")
                if newline >= 0:
                    end = begin + newline + 1
                    break
                at = begin
        self._whole[identity] = end, max(size, end)
        return end

    def _packed_end(self, path: str) -> tuple[int, str]:
        status = Path(path).stat()
        key = (path, status.st_size, status.st_mtime_ns)
        if key not in self._packed:
            self._packed[key] = _unpacked_end(path)
        return self._packed[key]


def _unpacked_end(path: str) -> tuple[int, str]:
    """Position after the last newline of a packed file, and why the rest cannot be read ("" if all can)."""
    end = at = 0
    with Text(path) as source:
        while chunk := source.read(CHUNK):
            newline = chunk.rfind(b"\n")
            if newline >= 0:
                end = at + newline + 1
            at += len(chunk)
    return end, source.problem


def _preferred(path: str) -> tuple[bool, int]:
    try:
        return not is_packed(path), Path(path).stat().st_size
    except OSError:
        return False, -1


def _id_of(path: str) -> str | None:
    try:
        seen = file_id(path)
    except OSError:
        return None
    return seen[0] if seen else None
