"""The text of one request log file, plain or gzip, read forwards; damage ends the text instead of raising."""

from __future__ import annotations

import zlib
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

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
        found = bytes(self._ready[:size])
        del self._ready[:size]
        self._at += len(found)
        return found

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
