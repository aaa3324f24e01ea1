"""The head of a lake on S3: the ledger's newest row, and the logs of all tables since their checkpoints, in one object.

With it a run that has nothing to do reads no table, and every other one opens the tables by few requests. The ledger
decides. The head is written after it, so it may be old: its row counts only if the ledger has no version after the one
that the head names, which one request shows. The commits that it holds never change.
"""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from pipelines.lake import FORMAT_VERSION
from pipelines.lake.object_log import PARTS, ObjectTable, take_tails
from pipelines.lake.uris import commit_path
from pipelines.storage import objects

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

HEAD = "_head"
MOST_BYTES = 4 << 20
"""The most bytes of commits in a head. A log that does not fit is read from its own objects."""
_DAMAGED = (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError)
"""What a head that is not there or not readable raises. Then the tables are read without it."""
FRESH = 10.0
"""Seconds for which a head that was read need not be read again."""
_taken: dict[str, float] = {}
"""When ``read_head`` read the head of a lake, by ``time.monotonic``."""
_KEPT = ("end_offset", "epoch", "fingerprint", "log_end")


def write_head(
    location: str, identity: DataclassInstance, row: Mapping[str, Any], tables: Mapping[str, DeltaTable]
) -> None:
    """Writes the head of a lake on S3. ``row``: the newest one of the ledger, which is committed."""
    logs, left = {}, MOST_BYTES
    for name, table in tables.items():
        tail = table.log.tail() if isinstance(table, ObjectTable) else None
        if tail is not None and (size := sum(map(len, tail["commits"]))) <= left:
            logs[name] = tail
            left -= size
    said = {
        "format": FORMAT_VERSION,
        "ledger": tables["ledger"].version(),
        "made": str(tables["ledger"].metadata().id),
        "identity": asdict(identity),
        "row": {name: row.get(name) for name in _KEPT},
        "logs": logs,
    }
    objects.put(f"{location}/{HEAD}", gzip.compress(json.dumps(said).encode(), 1, mtime=0))


def read_head(location: str) -> dict[str, Any] | None:
    """The head of a lake on S3: ``identity`` and ``row``. None if there is none, or if the ledger has a newer row.

    Takes the logs of the tables, too: ``take_head`` makes no request if it is called within FRESH seconds.
    """
    try:
        said = _read(location)
        newer = objects.head(commit_path(f"{location}/ledger", said["ledger"] + 1))
        if newer is not None or said["format"] != FORMAT_VERSION:
            return None
        _take(location, said)
        _taken[location] = time.monotonic()
        return dict(said)
    except _DAMAGED:
        return None


def is_fresh(location: str) -> bool:
    """Whether ``read_head`` read the head of a lake just now, and nothing took it since."""
    return time.monotonic() - _taken.get(location, -FRESH) < FRESH


def take_head(location: str) -> None:
    """Takes the logs of the tables from the head of a lake on S3. Of another lake, or without a head, does nothing."""
    if not objects.is_object(location) or is_fresh(location):
        _taken.pop(location, None)
        return
    try:
        _take(location, _read(location))
    except _DAMAGED:
        take_tails(location, None, {})


def _take(location: str, said: Mapping[str, Any]) -> None:
    logs = {name: {part: tail[part] for part in PARTS} for name, tail in said.get("logs", {}).items()}
    take_tails(location, said.get("made"), logs)


def _read(location: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(objects.get(f"{location}/{HEAD}")))
    return found
