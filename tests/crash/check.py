"""The properties of a lake that hold at whatever moment its writer was killed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyarrow.fs import FileType

from jbod_model.errors import UsageError
from pipelines import ask
from pipelines.lake.delta import delta_at
from pipelines.storage.filesystem import filesystem_of
from pipelines.upkeep.verify_reference import Row
from tests.support import engine, local
from tests.support.tables import differences, rows_of

ENDS = ("to_offset", "to_time", "ended_by")


@dataclass(frozen=True)
class History:
    """All rows of an uninterrupted run, up to the offset ``end``."""

    tables: dict[str, list[Row]]
    end: int

    def until(self, offset: int) -> dict[str, list[Row]]:
        """The rows that a run which ended there had published: no row that began later, no end that came later."""
        tables = {}
        for name, rows in self.tables.items():
            if name in ("records", "changes"):
                tables[name] = [row for row in rows if row["log_offset"] < offset]
            else:
                tables[name] = [_known(row, offset) for row in rows if row["from_offset"] < offset]
        return tables


def uninterrupted(log_dir: Path, lake: Path | str) -> History:
    """Replay a log in one go, in this process."""
    local.replay(log_dir, lake)
    return History(rows_of(lake), ask.Lake.open(lake).offset + 1)


def readable(lake: Path | str, histories: Sequence[History]) -> int:
    """The offset up to which a lake can be read, 0 if nothing was published; AssertionError if its content is wrong.

    Every version that the ledger names exists, and the readable tables are the beginning of one of the histories.
    """
    try:
        opened = ask.Lake.open(lake)
    except UsageError as nothing:
        message = str(nothing)
        assert "no lake" in message or "nothing" in message, message
        return 0
    end = opened.offset + 1
    fs, root = filesystem_of(str(lake))
    for row in delta_at(f"{lake}/ledger").to_pyarrow_table().to_pylist():
        for name, version in row["versions"]:
            commit = fs.get_file_info(f"{root}/{name}/_delta_log/{version:020d}.json")
            assert commit.type == FileType.File, (name, version)
    tables = rows_of(lake)
    wrong = [differences(tables, history.until(end)) for history in histories if end <= history.end]
    assert [] in wrong, wrong
    pictures = [engine.image(history.until(end), end - 1) for history in histories if end <= history.end]
    seen = ask.image(opened)
    for broker in seen["brokers"]:
        broker.pop("cordonedLogDirs", None)  # the test's own images have none
    assert seen in pictures
    return end


def complete(lake: Path | str, history: History) -> None:
    """Check that the lake equals that of the uninterrupted run, row for row."""
    assert readable(lake, [history]) == history.end
    assert differences(rows_of(lake), history.tables) == []


def _known(row: Row, offset: int) -> Row:
    if row["to_offset"] is None or row["to_offset"] < offset:
        return row
    return row | {name: None for name in ENDS if name in row}
