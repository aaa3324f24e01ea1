"""A metadata log that comes as a tar stream: ``tar cf - -C METADATA_LOG_DIR __cluster_metadata-0 meta.properties``.

``unpacked`` reads the stream as it comes, and writes only files that Kafka writes and jbod reads. The standard library
reads each header, but not the stream: its TarFile takes a damaged header for the end, and believes the length of a long
name. Here every length is compared with a bound before it is used, and the stream must have tar's end mark.
"""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from jbod_model.errors import JbodError, UsageError
from pipelines.source.log_dir import LOG_NAME

MOST_BYTES = 64 << 30
"""The most bytes that are unpacked. Kafka keeps 100 MB of the log unless told otherwise, and a snapshot or two."""
MOST_FILES = 1 << 16
_BLOCK = 512
_PIECE = 1 << 20
_MOST_AFTER = 1 << 20
"""Fewer bytes than these follow the end mark."""
_MOST_OF_PAX = 1 << 16
"""Bytes of an extended header, which holds times and owners."""
_CALL = f"tar cf - -C METADATA_LOG_DIR {LOG_NAME} meta.properties"
_AT = r"\d{20}"
_SNAPSHOT = _AT + r"-\d{10}(-\d+)?\.checkpoint"
# Those that jbod reads, then those that Kafka also keeps there: indexes, and files that it deletes or is writing.
_KEPT = re.compile(rf"meta\.properties|{LOG_NAME}/({_AT}\.log|{_AT}-\d{{10}}\.checkpoint|partition\.metadata)")
_KNOWN = re.compile(
    rf"\.lock|\.kafka_cleanshutdown|bootstrap\.checkpoint|[a-z-]+-checkpoint(\.tmp)?|(meta\.properties|{LOG_NAME}/"
    r"(quorum-state|leader-epoch-checkpoint|partition\.metadata))(\.tmp)?"
    rf"|{LOG_NAME}/({_AT}\.(log|index|timeindex|txnindex|snapshot)|{_SNAPSHOT})(\.(deleted|cleaned|swap|part))?"
)
_FOLDERS = ("", LOG_NAME)
_PAX, _PAX_OF_ALL = b"x", b"g"
_MEANS_OTHERS = re.compile(r"path|linkpath|size|GNU\.sparse\..*")
"""Fields of an extended header that replace the name or the length of the next file."""
_KINDS = {
    tarfile.LNKTYPE: "a link",
    tarfile.SYMTYPE: "a link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe",
    tarfile.GNUTYPE_SPARSE: "a file with holes: leave out tar's option -S",
    tarfile.GNUTYPE_LONGNAME: "a name of more than 100 bytes",
    tarfile.GNUTYPE_LONGLINK: "a name of more than 100 bytes",
}


class BadStream(JbodError):
    """A stream that is not a tar of a metadata log, or only a part of one."""


@contextmanager
def unpacked(stream: BinaryIO, most: int = MOST_BYTES) -> Iterator[str]:
    """The metadata.log.dir that ``stream`` holds, in a private folder that is removed at the end.

    Raises BadStream for any other stream, and if it holds more than ``most`` bytes.
    """
    with tempfile.TemporaryDirectory(prefix="jbod-pipe-", ignore_cleanup_errors=True) as private:
        folder = Path(private) / "stdin"
        (folder / LOG_NAME).mkdir(parents=True)
        _Unpacking(_plain(stream), folder, most).run()
        yield str(folder)


def _plain(stream: BinaryIO) -> Callable[[int], bytes]:
    """Reads the stream, which may be packed: up to a number of bytes, none at its end."""
    head = _whole(stream.read, 4)
    joined = _Joined(head, stream)
    if not head:
        raise BadStream(f"standard input: is empty: pipe a log into it: {_CALL} | jbod offline -")
    if head[:2] == b"\x1f\x8b":
        return _unpacking(gzip.GzipFile(fileobj=joined).read, "gzip")
    if head == b"\x28\xb5\x2f\xfd":
        import pyarrow as pa

        return _unpacking(pa.CompressedInputStream(pa.PythonFile(joined, mode="r"), "zstd").read, "zstd")
    return joined.read


def _unpacking(read: Callable[[int], bytes], what: str) -> Callable[[int], bytes]:
    def checked(size: int) -> bytes:
        try:
            return read(size)
        except (EOFError, OSError, zlib.error) as problem:
            raise BadStream(f"standard input: {what} cannot unpack it ({problem}): it was cut or changed") from None

    return checked


class _Joined(io.RawIOBase):
    """A stream whose first bytes were read."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head = head
        self._rest = rest

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        if self._head:
            content, self._head = self._head[:size], self._head[size:]
            return content
        return self._rest.read(size)


def _whole(read: Callable[[int], bytes], size: int) -> bytes:
    """``size`` bytes, fewer only at the end of the stream."""
    content = bytearray()
    while len(content) < size and (more := read(size - len(content))):
        content += more
    return bytes(content)


class _Unpacking:
    """Writes the files of a tar stream into a folder."""

    def __init__(self, read: Callable[[int], bytes], folder: Path, most: int) -> None:
        self._read = read
        self._folder = folder
        self._most = most
        self._seen: set[str] = set()
        self._unpacked = 0

    def run(self) -> None:
        """Reads to the end mark. Raises BadStream if there is none, or nothing of a log before it."""
        while (member := self._next()) is not None:
            if member.type in (_PAX, _PAX_OF_ALL):
                self._check_pax(member)
            else:
                self._take(member)
        if not any(name.startswith(f"{LOG_NAME}/") for name in self._seen):
            raise BadStream(f"standard input: the tar stream has no {LOG_NAME}: {_CALL}")
        # tar fills its last record with zeros, and must not find the pipe closed. The checksum of gzip comes last.
        rest = _whole(self._read, _MOST_AFTER)
        if any(rest) or len(rest) == _MOST_AFTER:
            raise BadStream("standard input: goes on after tar's end mark: pipe one tar stream")

    def _next(self) -> tarfile.TarInfo | None:
        """The next header, None for the end mark."""
        block = _whole(self._read, _BLOCK)
        if len(block) < _BLOCK:
            if self._seen or not block:
                raise self._cut()
            raise BadStream(f"standard input: is not a tar stream: {_CALL}")
        if not any(block):
            return None
        try:
            member = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except (tarfile.HeaderError, ValueError):
            what = "a damaged tar header" if self._seen else "no tar stream"
            raise BadStream(f"standard input: holds {what}: {_CALL}") from None
        if member.size < 0:
            raise BadStream(f"standard input: {_shown(member.name)}: a length below 0")
        return member

    def _check_pax(self, member: tarfile.TarInfo) -> None:
        """Reads an extended header, which may hold times and owners, but neither names nor lengths."""
        if member.size > _MOST_OF_PAX:
            raise BadStream(f"standard input: an extended tar header of {member.size:,} bytes")
        for field in self._content(member.size).split(b"\n"):
            name = field.partition(b" ")[2].partition(b"=")[0].decode("utf-8", "replace")
            if _MEANS_OTHERS.fullmatch(name):
                raise BadStream(f"standard input: an extended tar header sets {name}, which no file of Kafka needs")

    def _take(self, member: tarfile.TarInfo) -> None:
        """Writes a file that jbod reads, passes over others of Kafka, and refuses everything else."""
        name = member.name.removeprefix("./").rstrip("/")
        name = "" if name == "." else name
        if member.type in _KINDS:
            raise BadStream(f"standard input: {_shown(member.name)}: {_KINDS[member.type]}; Kafka writes plain files")
        is_folder = member.isdir()
        known = name in _FOLDERS if is_folder else member.isreg() and (_KEPT.fullmatch(name) or _KNOWN.fullmatch(name))
        if not known:
            raise BadStream(f"standard input: {_shown(member.name)}: no file of a metadata.log.dir: {_CALL}")
        if name in self._seen or len(self._seen) >= MOST_FILES:
            raise BadStream(f"standard input: {_shown(member.name)}: comes twice, or there are too many files")
        self._seen.add(name)
        if is_folder:
            if member.size:
                raise BadStream(f"standard input: {_shown(member.name)}: a folder with {member.size:,} bytes")
            return
        self._copy(self._folder / name if _KEPT.fullmatch(name) else None, member)

    def _copy(self, path: Path | None, member: tarfile.TarInfo) -> None:
        """Copies the content of a file, or passes over it. The length is believed as far as bytes come."""
        if path is None:
            self._pass(member.size)
            return
        self._unpacked += member.size
        if self._unpacked > self._most:
            raise BadStream(f"standard input: {_shown(member.name)}: more than {self._most:,} bytes of log with it")
        try:
            with path.open("xb") as file:
                self._pass(member.size, file.write)
        except OSError as problem:
            raise UsageError(
                f"{self._folder}: cannot be written ({problem.strerror}): TMPDIR names a folder with more room"
            ) from None

    def _content(self, size: int) -> bytes:
        content = bytearray()
        self._pass(size, content.extend)
        return bytes(content)

    def _pass(self, size: int, write: Callable[[bytes], object] = len) -> None:
        """Hands ``size`` bytes to ``write`` in pieces, then reads up to the next block."""
        left = size
        while left:
            piece = self._read(min(left, _PIECE))
            if not piece:
                raise self._cut()
            write(piece)
            left -= len(piece)
        rest = -size % _BLOCK
        if len(_whole(self._read, rest)) < rest:
            raise self._cut()

    def _cut(self) -> BadStream:
        return BadStream(
            "standard input: the stream ends before tar's end mark: the connection or tar itself broke off; repeat it"
        )


def _shown(name: str) -> str:
    """A name as a message may print it."""
    return ascii(name[:80])[1:-1] or "(no name)"
