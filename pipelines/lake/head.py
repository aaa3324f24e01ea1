"""The head of a lake on S3: the ledger's newest row in one small object. A run with nothing to do opens no table.

The ledger decides. The head is written after it, so it may be old: it counts only if the ledger has no version after
the one that the head names, which one request shows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pipelines.lake import FORMAT_VERSION
from pipelines.lake.uris import LakeUri, commit_path
from pipelines.storage import objects

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

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
