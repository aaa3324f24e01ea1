"""Writes the table ``directory_sizes``: sizes of directories as sources said them, and reads its newest rows.

``jbod sizes --keep`` appends rows in one commit. Like ``labels``, the table is not in the ledger: a replay, rollback or
rebuild does not change it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from pipelines.lake.kept_sizes import DIRECTORY_SIZES, kept_sizes
from pipelines.lake.ledger import micros_of, time_of
from pipelines.lake.reader import Lake
from pipelines.lake.side_tables import write_side_table
from pipelines.lake.tables import TIME, Table, column

TABLE = Table(
    DIRECTORY_SIZES,
    "How full the directories of brokers were, as a source said it at a time.",
    pa.schema(
        [
            column("time", TIME, "when the source said it; the same for all rows of a run"),
            column("log_offset", pa.int64(), "offset of the log at which the path was joined with an id"),
            column("broker_id", pa.int32(), "id of the broker"),
            column("path", pa.string(), "path of the directory on its broker"),
            column("directory_id", pa.string(), "id of the directory; null if it was unknown", null=True),
            column("pairing", pa.string(), "certain, likely or unknown: how well the id was known"),
            column("error", pa.string(), "why the broker could not read it, else empty"),
            column("replicas", pa.int64(), "replicas in it, without future ones; null if unreadable", null=True),
            column("bytes", pa.int64(), "their log segments; null if unreadable", null=True),
            column("future_replicas", pa.int64(), "replicas that moves were copying into it", null=True),
            column("future_bytes", pa.int64(), "the log segments of these", null=True),
            column("total_bytes", pa.int64(), "size of its file system; null if the source did not say", null=True),
            column("free_bytes", pa.int64(), "free bytes of its file system", null=True),
        ]
    ),
    key=("time", "broker_id", "path"),
)


def keep_sizes(lake: Lake, rows: Sequence[Mapping[str, Any]]) -> int:
    """Appends rows in one commit, except those whose key is there already. Returns how many were new.

    Raises UsageError if the lake cannot be written, and Retriable if another process wrote at the same time.
    """
    known = {*kept_sizes(lake, "SELECT epoch_us(time), broker_id, path FROM kept")}
    new = [row for row in rows if (micros_of(row["time"]), row["broker_id"], row["path"]) not in known]
    if not new:
        return 0
    write_side_table(lake.path, TABLE, new, mode="append", other="another run")
    return len(new)


def newest_sizes(lake: Lake) -> Sequence[dict[str, Any]]:
    """The rows of directory_sizes of each broker's newest run, up to the lake's offset. Empty if none was kept."""
    names = [name for name in TABLE.schema.names if name != "time"]
    runs = kept_sizes(lake, "SELECT epoch_us(max(time)) FROM kept GROUP BY broker_id")
    if not runs:
        return []
    rows = kept_sizes(
        lake,
        f"SELECT epoch_us(time), {', '.join(names)} FROM kept WHERE time >= make_timestamptz({min(runs)[0]}) "
        "QUALIFY time = max(time) OVER (PARTITION BY broker_id) ORDER BY broker_id, path",
    )
    return [dict(zip(("time", *names), (time_of(row[0]), *row[1:]), strict=True)) for row in rows]
