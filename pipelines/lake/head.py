"""The head of a lake on S3: the ledger's newest row in one object, so that a run with nothing to do reads no table.

The ledger decides. The head is written after it, so it may be old: it counts only if the ledger has no version after
the one that the head names. One request shows this.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pipelines.lake import FORMAT_VERSION
from pipelines.lake.create import Identity
from pipelines.storage import objects

HEAD = "_head"
_KEPT = ("end_offset", "epoch", "fingerprint", "log_end")


def write_head(location: str, identity: Identity, row: Mapping[str, Any], version: int) -> None:
    """Writes the head of a lake on S3. ``row``: the newest one, of ``version`` of the ledger, which is committed."""
    said = {
        "format": FORMAT_VERSION,
        "ledger": version,
        "identity": asdict(identity),
        "row": {name: row.get(name) for name in _KEPT},
    }
    objects.put(f"{location}/{HEAD}", json.dumps(said).encode())


def read_head(location: str) -> dict[str, Any] | None:
    """The head of a lake on S3: ``identity`` and ``row``. None if there is none, or if the ledger has a newer row."""
    try:
        said = json.loads(objects.get(f"{location}/{HEAD}"))
        newer = objects.head(f"{location}/ledger/_delta_log/{said['ledger'] + 1:020d}.json")
        return None if newer is not None or said["format"] != FORMAT_VERSION else dict(said)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
