"""The findings of checks, read from the table ``findings`` without a JVM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.lake.delta import data_files, is_table, open_table, read_parquet
from pipelines.lake.reader import Lake

TABLE = "findings"


@dataclass(frozen=True)
class Recorded:
    """The findings of a lake."""

    lake: Lake
    _source: str

    @property
    def offset(self) -> int:
        """The newest offset at which a finding was seen or cleared, -1 if there is none."""
        ((newest,),) = self.lake.query(f"SELECT max(greatest(last_seen_offset, cleared_offset)) FROM {self._source}")
        return -1 if newest is None else int(newest)

    def counts(self) -> Mapping[tuple[str, str], int]:
        """Number of open findings by check id and severity."""
        rows = self.lake.query(
            f"SELECT check_id, severity, count(*) FROM {self._source} WHERE cleared_offset IS NULL GROUP BY ALL"
        )
        return {(check, severity): count for check, severity, count in rows}


def version(root: str) -> int | None:
    """The version of the findings of the lake at ``root``, None if no run of checks was kept yet."""
    return open_table(root, TABLE, None).version() if is_table(f"{root}/{TABLE}") else None


def recorded(lake: Lake) -> Recorded | None:
    """The findings of a lake, None if no run of checks was kept yet."""
    if not is_table(f"{lake.path}/{TABLE}"):
        return None
    table = open_table(lake.path, TABLE, None)
    files = [file["path"] for file in data_files(table)]
    return Recorded(lake, read_parquet(lake.path, TABLE, table, files))
