"""What brokers asked to be recorded (AssignReplicasToDirs): the table ``assignment_requests`` as of an offset."""

from __future__ import annotations

from pipelines.ask.delta import data_files, read_parquet
from pipelines.ask.lake import Lake

TABLE = "assignment_requests"


def request_rows(lake: Lake) -> str | None:
    """SQL for all rows of the table as published, None where the lake never saw requests."""
    table = lake.tables.get(TABLE)
    if table is None:
        return None
    return read_parquet(lake.path, TABLE, table, [file["path"] for file in data_files(table)])
