"""What happened to brokers and their directories, as rows of ``changes`` (docs/spec/changes.md). They are few."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.lake.tables import CHANGES
from pipelines.replay.brokers import Change, Registration

Row = dict[str, Any]


def broker_changes(change: Change, gone: Mapping[str, str], generation: int) -> Iterator[Row]:
    """Rows for the change of a broker (R-EVENT-5, R-EVENT-6). ``gone``: directories that left, and why."""
    old, new = change.before, change.after
    place = dict.fromkeys(CHANGES.schema.names) | {
        "log_offset": change.offset,
        "batch_offset": change.batch,
        "append_time": change.time,
        "broker_id": change.broker_id,
        "from_snapshot": change.snapshot,
        "retraction": False,
        "generation": generation,
        "why": change.cause,
    }
    for what, before, after in (
        ("registration", old and str(old.epoch), new and str(new.epoch)),
        ("fencing", old and _fencing(old), new and _fencing(new)),
        ("controlled shutdown", old and _shutdown(old), new and _shutdown(new)),
    ):
        if before != after:
            yield {**place, "what": what, "before": before, "after": after}
    for what, state, listed in (
        ("directory", "online", (old and old.directories, new and new.directories)),
        ("cordon", "cordoned", (old and old.cordoned, new and new.cordoned)),
    ):
        before_set, after_set = (set(one or ()) for one in listed)
        for directory in sorted(before_set ^ after_set):
            came = directory in after_set
            yield {
                **place,
                "what": what,
                "directory_id": directory,
                "before": None if came else state,
                "after": state if came else None,
                "why": gone.get(directory, change.cause) if what == "directory" else change.cause,
            }


def _fencing(broker: Registration) -> str:
    return "fenced" if broker.fenced else "unfenced"


def _shutdown(broker: Registration) -> str | None:
    return "shutting down" if broker.in_controlled_shutdown else None
