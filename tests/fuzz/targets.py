"""The targets of fuzzing: every reader of foreign bytes, with good inputs and the one error that it may raise.

A target takes bytes. It returns ``True`` if it read them and ``False`` if it refused them with its one error. Any other
outcome is a finding: another exception, a disagreement of two readers, unbounded memory (the runner sets a ceiling).
"""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from jbod_model.errors import JbodError, MalformedLog
from jbod_model.formats import codec
from jbod_model.formats.batch import crc32c, read_batch, write_batch
from jbod_model.formats.request_log import parse_line
from jbod_model.storage.properties import from_properties, parse_properties, parse_server_config
from pipelines.fold.events import join
from pipelines.fold.pack import CorruptState, compress, decompress, unpack
from pipelines.formats import batches, records
from pipelines.formats.requests import Parser
from pipelines.source.piped_log import BadStream, unpacked
from tests.support.paths import CLUSTERS, FIXTURES, metadata_dir

LIMIT = 1 << 22
"""Bytes that a mutated input may unfold to before it is refused: small, so that a bomb shows."""
TIME = 1_700_000_000_000


@dataclass(frozen=True)
class Target:
    """``seeds`` are inputs that are read; ``run`` reads; ``repair`` makes a mutated input pass the outer checks."""

    run: Callable[[bytes], bool]
    seeds: Sequence[bytes]
    repair: Callable[[bytes], bytes] | None = None


def _golden() -> list[bytes]:
    lines = (FIXTURES / "golden" / "golden_records_4.1.2.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return [bytes.fromhex(line.split("\t")[2]) for line in lines]


def _batches() -> list[bytes]:
    values = _golden()
    return [
        write_batch(values[at : at + 3], base_offset=at, epoch=1, timestamp=TIME) for at in range(0, len(values), 3)
    ]


def _request_lines() -> list[bytes]:
    request_lines: list[bytes] = []
    for path in sorted(CLUSTERS.glob("*/requests-*.log.gz")):
        with gzip.open(path) as lines:
            request_lines += [line.rstrip(b"\n") for _, line in zip(range(2000), lines, strict=False)]

    return [line for line in request_lines if type(parse_line(line)).__name__ == "RequestLine"][::20]


def refit(data: bytes) -> bytes:
    """A batch with the length and the checksum that its bytes have."""
    if len(data) < 61:
        return data
    sized = data[:8] + (len(data) - 12).to_bytes(4, "big") + data[12:]
    return sized[:17] + crc32c(sized[21:]).to_bytes(4, "big") + sized[21:]


# -- readers ----------------------------------------------------------------------------------------------------------


def _plain_record(data: bytes) -> bool:
    try:
        codec.decode(data)
    except MalformedLog:
        return False
    return True


def _plain_values(data: bytes) -> list[bytes] | None:
    """Record values of the batches, None where the plain reader refuses one."""
    values: list[bytes] = []
    at = 0
    try:
        while (batch := read_batch(data, at, file="fuzz")) is not None:
            for value in batch.values:
                codec.decode(value)
                values.append(value)
            at += batch.header.size
    except MalformedLog:
        return None
    return values


def _column_values(data: bytes) -> list[bytes] | None:
    """The same from the columnar reader."""
    raw = np.frombuffer(data, np.uint8)
    try:
        scanned = batches.scan(raw, "fuzz")
        headers = scanned.headers
        batches.verify(raw, headers, "fuzz")
        records.check_control(raw, headers, "fuzz")
        columns = records.decode(raw, headers, "fuzz")
    except MalformedLog:
        return None
    return [columns.value(row) for row in np.flatnonzero(columns.types < records.CONTROL_BASE).tolist()]


def _batch(data: bytes) -> bool:
    expected, columnar_values = _plain_values(data), _column_values(data)
    if expected != columnar_values:
        raise AssertionError(f"the plain reader has {expected!r}, the columnar one {columnar_values!r}")
    return expected is not None


def _request_line(data: bytes) -> bool:
    plain = parse_line(data)
    fast = Parser()(data)
    if repr(plain) != repr(fast):
        raise AssertionError(f"plain: {plain!r}, fast: {fast!r}")
    return type(plain).__name__ == "RequestLine"


def _state(data: bytes) -> bool:
    try:
        unpack(decompress(data, LIMIT))
    except CorruptState:
        return False
    return True


def _properties(data: bytes) -> bool:
    try:
        parse_server_config(data, "fuzz")
        from_properties(parse_properties(data))
    except JbodError:
        return False
    return True


def _tar() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
        tar.add(metadata_dir("kafka-4.1.2"), "")
    return packed.getvalue()


def _piped(data: bytes) -> bool:
    try:
        with unpacked(io.BytesIO(data), LIMIT):
            return True
    except BadStream:
        return False


NAMES = ("batch", "piped-log", "properties", "record", "request-line", "state")
"""Those of the targets. To make what they start from takes a second."""


@cache
def targets() -> Mapping[str, Target]:
    """Every target by name."""
    values = _golden()
    config = b"#\nversion=1\nnode.id=1\ncluster.id=abc\ndirectory.id=AAAAAAAAAAAAAAAAAAAABQ\nlog.dirs=/a,/b\n"
    return {
        "record": Target(_plain_record, values),
        "batch": Target(_batch, _batches(), refit),
        "request-line": Target(_request_line, _request_lines()),
        "state": Target(_state, [compress(join([]).to_bytes())]),
        "piped-log": Target(_piped, [_tar(), gzip.compress(_tar())]),
        "properties": Target(_properties, [config, b"a\\\n  b=\\u0041\nnode.id : 3\n"]),
    }
