"""The ledger: the publications of a lake, and the offsets that questions may name.

On S3 its newest row is also in one small object, the head: a run with nothing to do opens no table. The ledger decides.
The head is written after it, so it may be old: it counts only if the ledger has no version after the one that the head
names, which one request shows.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import duckdb

from jbod_model.errors import UsageError
from pipelines.lake import FORMAT_VERSION
from pipelines.lake.delta import data_files, open_table, read_parquet, run_query
from pipelines.lake.foreign import description_of, last_own, since
from pipelines.lake.uris import LakeUri, commit_path
from pipelines.storage import objects

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from deltalake import DeltaTable

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_of(micros: int) -> datetime:
    """A time in UTC from microseconds since 1970."""
    return EPOCH + timedelta(microseconds=micros)


def micros_of(time: datetime) -> int:
    """Microseconds since 1970."""
    return (time - EPOCH) // timedelta(microseconds=1)


def time_if_any(micros: int | None) -> datetime | None:
    """``time_of``, of a time that may be unknown."""
    return None if micros is None else time_of(micros)


@dataclass(frozen=True)
class Published:
    """A row of the ledger."""

    start_offset: int
    end_offset: int
    end_time: datetime
    published_time: datetime
    profile: str
    ids: str
    cluster_id: str
    from_snapshot: int | None
    versions: Mapping[str, int]
    unknown: Mapping[str, int]
    """The kinds of records that were not known, each with the offset of the first."""


_PUBLISHED = (
    "start_offset, end_offset, epoch_us(end_time), epoch_us(published_time), profile, ids, cluster_id, "
    "from_snapshot, versions, coalesce(unknown_types, MAP {}::MAP(VARCHAR, BIGINT))"
)


def open_ledger(lake: LakeUri) -> DeltaTable:
    """Opens the ledger at jbod's last commit. Another engine may have merged its files, but must not change its rows.

    Raises UsageError if there is no ledger, or if it has another format.
    """
    ledger = open_table(lake, "ledger", None)
    format_version = (description_of(ledger) or {}).get("format", FORMAT_VERSION)
    if format_version != FORMAT_VERSION:
        raise UsageError(
            f"{lake}: lake of format {format_version}, this jbod reads {FORMAT_VERSION}: replay the log into a new lake"
        )
    own = last_own(lake, ledger)
    if own is None or own == ledger.version():
        return ledger
    from pipelines.lake.tables import LEDGER

    return open_table(lake, "ledger", own) if since(lake, LEDGER, ledger, own).refused else ledger


def read_ledger(
    lake: LakeUri, ledger: DeltaTable, connection: duckdb.DuckDBPyConnection
) -> tuple[Published | None, list[tuple[int, int]]]:
    """The newest publication and the ranges [first, end) of offsets that the lake knows.

    A snapshot begins a range: the log no longer had the records between the previous range and the snapshot. Most
    files of a lake that follows its log have sufficient statistics and are not opened.
    """
    files = data_files(ledger)
    newest = max((file["max.end_offset"] or 0 for file in files), default=0)
    spans: list[tuple[int, int, int | None]] = []
    unread = []
    for file in files:
        first, end = file["min.start_offset"], file["max.end_offset"]
        if None in (first, end) or end == newest or file["null_count.from_snapshot"] != file["num_records"]:
            unread.append(file["path"])
        else:
            spans.append((end, first, None))
    source = read_parquet(lake, "ledger", ledger, unread, by_name=True)
    rows = run_query(lake, connection, f"SELECT {_PUBLISHED} FROM {source} ORDER BY end_offset, published_time")
    publications = [
        Published(start, end, time_of(ended), time_of(written), *rest) for start, end, ended, written, *rest in rows
    ]
    if not publications:
        return None, []
    if publications[-1].end_offset < newest:
        raise _other_rows(lake)
    spans += [(row.end_offset, row.start_offset, row.from_snapshot) for row in publications]
    ranges: list[tuple[int, int]] = []
    # A publication of requests has a separate row with the same end offset and no records. It sorts after theirs.
    for end, start, snapshot in sorted(spans, key=lambda span: span[:2]):
        if snapshot is not None:
            ranges.append((snapshot - 1, end))
        else:
            ranges.append((ranges.pop()[0] if ranges else start, end))
    return publications[-1], ranges


def _other_rows(lake: LakeUri) -> UsageError:
    return UsageError(
        f"{lake}/ledger: a file has other rows than its commit says: restore it from a backup, or replay the log into "
        "another --lake"
    )


def log_end(lake: LakeUri, ledger: DeltaTable, connection: duckdb.DuckDBPyConnection, end_offset: int) -> int | None:
    """The log's end offset at the last run, if it was before the lake's end (``end_offset``), otherwise None."""
    newest = [file["path"] for file in data_files(ledger) if file["max.end_offset"] in (None, end_offset)]
    rows = read_parquet(lake, "ledger", ledger, newest, by_name=True)
    log_ends = run_query(
        lake, connection, f"SELECT log_end FROM {rows} WHERE end_offset = {end_offset} ORDER BY published_time"
    )
    if not log_ends:
        raise _other_rows(lake)
    end: int | None = log_ends[-1][0]
    return end


def check_known(lake: LakeUri, ranges: Sequence[tuple[int, int]], offset: int) -> None:
    first, newest = ranges[0][0], ranges[-1][1] - 1
    if offset < first:
        raise UsageError(f"{lake}: offset {offset} is before the first this lake knows, {first}")
    if offset > newest:
        raise UsageError(f"{lake}: offset {offset} is after the newest published one, {newest}")
    for (_, end), (begin, _) in itertools.pairwise(ranges):
        if end <= offset < begin:
            raise UsageError(
                f"{lake}: offset {offset} was never read: the log went from {end - 1} to the snapshot at {begin}; "
                "ask for either of them"
            )


HEAD = "_head"
_DAMAGED = (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError)
"""What a head that is not there or not readable raises. Then the tables are read without it."""
_KEPT = ("end_offset", "epoch", "fingerprint", "log_end")


def write_head(lake: LakeUri, identity: DataclassInstance, row: Mapping[str, Any], ledger: int) -> None:
    """Writes the head of a lake on S3. ``row``: the newest one of the ledger, which has the version ``ledger``."""
    head = {
        "format": FORMAT_VERSION,
        "ledger": ledger,
        "identity": asdict(identity),
        "row": {name: row.get(name) for name in _KEPT},
    }
    objects.put(f"{lake}/{HEAD}", json.dumps(head).encode())


def read_head(lake: LakeUri) -> dict[str, Any] | None:
    """The head of a lake on S3: ``identity`` and ``row``. None if there is none, or if the ledger has a newer row."""
    try:
        head: dict[str, Any] = json.loads(objects.get(f"{lake}/{HEAD}"))
        newer = objects.head(commit_path(f"{lake}/ledger", head["ledger"] + 1))
        return head if newer is None and head["format"] == FORMAT_VERSION else None
    except _DAMAGED:
        return None
