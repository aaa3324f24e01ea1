"""Guesses what a path holds that is not a metadata log, for the error message; and checks the first batch of a log."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

import pyarrow.fs as pafs

from jbod_model.errors import MalformedLog
from jbod_model.formats.batch import read_batch, read_header
from pipelines.storage.filesystem import read_at

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


def what_folder(fs: pafs.FileSystem, folder: str, wanted: str) -> str:
    """Says what a folder holds that is not a log, and where below it a directory ``wanted`` is."""
    there = sorted(fs.get_file_info(pafs.FileSelector(folder)), key=lambda info: info.base_name)
    names = [info.base_name for info in there]
    folders = [info.base_name for info in there if info.type == pafs.FileType.Directory]
    below = [
        name
        for name in folders[:100]
        if fs.get_file_info(str(PurePosixPath(folder) / name / wanted)).type == pafs.FileType.Directory
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


def check_first_batch(fs: pafs.FileSystem, path: str, base_offset: int) -> None:
    """Raises MalformedLog if a segment does not begin with the header of a batch at its offset."""
    head = read_head(fs, path, _HEADER)
    try:
        read_header(head, 0, file=path)
    except MalformedLog as problem:
        what = what_file(read_head(fs, path))
        raise MalformedLog(path, base_offset, f"{problem.problem} (the file is {what})") from None
    found = int.from_bytes(head[:8], "big")
    if len(head) >= 8 and found != base_offset:
        raise MalformedLog(path, base_offset, f"the file begins with offset {found}, not with the one it is named by")
