"""Writes the table ``labels``: paths and labels of directories, and the source of each."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pipelines.lake.names import KINDS, LABELS, Statement
from pipelines.lake.side_tables import write_side_table
from pipelines.lake.tables import TIME, Table, column
from pipelines.lake.uris import LakeUri

TABLE = Table(
    LABELS,
    "Paths and labels of directories, as their sources say.",
    pa.schema(
        [
            column("kind", pa.string(), f"kind of source: {', '.join(KINDS)}"),
            column("source", pa.string(), "file that says it, with the line of a labels file"),
            column("broker_id", pa.int32(), "broker; null for any", null=True),
            column("directory_id", pa.string(), "id of the directory; null if only a path is known", null=True),
            column("path", pa.string(), "path of the directory on its broker", null=True),
            column("label", pa.string(), "label of the directory", null=True),
            column("read_time", TIME, "when jbod label read the source"),
        ]
    ),
    key=("kind", "source", "broker_id", "directory_id", "path"),
)


def write_statements(lake: LakeUri, statements: Sequence[Statement]) -> None:
    """Replaces the statements of a lake in one commit.

    Raises UsageError if that is not possible, and Retriable if another process wrote at the same time.
    """
    rows = [statement._asdict() for statement in statements]
    write_side_table(lake, TABLE, rows, mode="overwrite", other="another jbod label")
