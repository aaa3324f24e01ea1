"""Lakes for joins with requests, made without Spark: the rows of the reference, published as by the main job."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from jbod_model.formats.request_log import RequestLine, parse_line
from pipelines.formats.requests import REJECTS_SCHEMA, assignments_table
from pipelines.lake import files
from pipelines.lake.publish import LakeWriter, Publication
from pipelines.lake.tables import BY_NAME, HISTORY
from pipelines.lake.written_lake import Identity
from pipelines.run.options import Requests
from pipelines.run.request_stream import RequestBatches, count_outcomes
from pipelines.upkeep.verify_reference import Row
from tests.support.lakes import Reference
from tests.support.logs import Entry, read_log
from tests.support.paths import CLUSTERS, metadata_dir

SKEW = timedelta(milliseconds=500)


def request_log(kafka: str) -> Path:
    return CLUSTERS / kafka / "requests-100.log.gz"


def request_lines(kafka: str) -> list[bytes]:
    return gzip.decompress(request_log(kafka).read_bytes()).splitlines(keepends=True)


def requested_assignments(lines: Sequence[bytes]) -> pa.Table:
    """The assignments that some lines request."""
    return assignments_table([line for line in map(parse_line, lines) if isinstance(line, RequestLine)])


class JoinedLake:
    """A lake of a real cluster's log, published a part at a time, and the request stream into it."""

    def __init__(self, path: Path, kafka: str, *, start: str = "log") -> None:
        self.path = path
        self.entries = read_log(metadata_dir(kafka), start)
        self._reference = Reference()
        self._read = 0
        self.lake = LakeWriter.create_or_open(str(path), Identity("test", "kafka", "kafka", 1))
        self.stream = self.restarted()

    def restarted(self, skew: timedelta = SKEW) -> RequestBatches:
        """The stream of a new run."""
        return RequestBatches(self.lake, Requests((), clock_skew=skew), nullcontext)

    @property
    def outcomes(self) -> Counter[str]:
        """The requests of the lake by outcome."""
        return count_outcomes(str(self.path))[0]

    def replay(self, most: int | None = None) -> None:
        """Publish at most ``most`` further entries of the log; None publishes all."""
        part: list[Entry] = self.entries[self._read :][:most]
        self._read += len(part)
        self._reference.add(part)
        written, touched = [], set()
        for table in HISTORY:
            rows = self._reference.tables[table.name]
            for shard, chosen in (
                (-1, [r for r in rows if r["to_offset"]]),
                (0, [r for r in rows if not r["to_offset"]]),
            ):
                new = chosen if shard == 0 else [r for r in chosen if r["to_offset"] >= part[0].offset]
                if new:
                    written.append(files.write(str(self.path), table.name, _table(table.name, new), shard=shard))
            touched.add((table.name, 0))
        records = _table("records", self._reference.records[-len(part) :])
        written.append(files.write(str(self.path), "records", records))
        self.lake.publish(
            Publication(
                start_offset=max(self.lake.end_offset, 0),
                end_offset=part[-1].offset + 1,
                epoch=part[-1].epoch,
                fingerprint=0,
                end_time=part[-1].time,
                files=written,
                touched=frozenset(touched),
                metadata_version=-1,
                from_snapshot=None,
                dropped=0,
            )
        )

    def rewind(self, offset: int) -> None:
        """Continue from the entry at ``offset``, to which the lake was rolled back."""
        self._read = next(at for at, entry in enumerate(self.entries) if entry.offset == offset)
        self._reference = Reference().add(self.entries[: self._read])

    def add(self, lines: Sequence[bytes], rejects: pa.Table | None = None) -> None:
        """The requests that were read."""
        self.stream.add(requested_assignments(lines), REJECTS_SCHEMA.empty_table() if rejects is None else rejects)

    @property
    def rows(self) -> list[Row]:
        """The table of requests as the ledger names it, in the order of its key."""
        return rows_of(self.path)


def rows_of(lake: Path, name: str = "assignment_requests") -> list[Row]:
    """A table of the request stream at the version that the newest row of the ledger names."""
    ledger = DeltaTable(str(lake / "ledger")).to_pyarrow_table()
    ledger = ledger.sort_by([("end_offset", "ascending"), ("published_time", "ascending")])
    version = dict(ledger.to_pylist()[-1]["versions"])[name]
    rows: list[dict[str, Any]] = DeltaTable(str(lake / name), version=version).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: [str(row[column]) for column in BY_NAME[name].key])


def _table(name: str, rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=BY_NAME[name].schema)
