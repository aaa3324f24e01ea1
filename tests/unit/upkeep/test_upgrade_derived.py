"""A lake of format 2 gets the tables changes, controllers and voters, as if it had had them from the beginning."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from jbod_model.errors import UsageError
from jbod_model.formats.records import UnknownRecord, VersionedRecord
from pipelines import ask
from pipelines.lake import FORMAT_VERSION
from pipelines.lake.commit import commit_files
from pipelines.lake.create import described
from pipelines.lake.foreign import PUBLISHED, REWRITTEN
from pipelines.lake.publish import LakeWriter
from pipelines.lake.tables import LEDGER
from pipelines.upkeep import derived
from pipelines.upkeep.derived import ADDED
from pipelines.upkeep.upgrade import upgrade
from pipelines.upkeep.verify import verify
from tests.support import local
from tests.support.paths import metadata_dir
from tests.support.tables import rows_of
from tests.support.volume import sampled
from tests.unit.replay.histories import write_log

KAFKA = "kafka-4.4.0"
NEW = [table.name for table in ADDED]


def made_older(lake: Path) -> None:
    """Makes a lake what a jbod of format 2 leaves: without the new tables, and without a mark of unknown records."""
    ledger = DeltaTable(str(lake / LEDGER.name))
    rows = ledger.to_pyarrow_table().to_pylist()
    for row in rows:
        for name in ("versions", "rows"):
            row[name] = [(table, value) for table, value in dict(row[name]).items() if table not in NEW]
        row |= {"unknown_from": None, "unknown_types": None}
    content = pa.Table.from_pylist(rows, schema=LEDGER.schema)
    marks = CommitProperties({PUBLISHED: str(max(row["end_offset"] for row in rows))})
    write_deltalake(ledger, content, mode="overwrite", commit_properties=marks)
    said = json.dumps({**described(str(lake)), "format": 2})
    ledger.alter.set_table_description(said, commit_properties=CommitProperties({REWRITTEN: "true"}))
    for name in NEW:
        rmtree(lake / name)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = tmp_path_factory.mktemp("made") / "lake"
    local.replay(metadata_dir(KAFKA), lake, most=400)
    return lake


def test_lake_of_format_2_gets_the_tables_of_a_new_replay(made: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    local.replay(metadata_dir(KAFKA), lake, most=400)
    made_older(lake)
    with pytest.raises(UsageError, match=f"lake of format 2, this jbod reads {FORMAT_VERSION}: see jbod upgrade"):
        ask.Lake.open(lake)
    assert [step.to for step in upgrade(str(lake))] == [3]
    assert rows_of(lake) == rows_of(made)
    assert {row["role"] for row in rows_of(lake)["voters"]} == {"leader", "voter", "observer"}
    assert verify(str(lake)).differences == []
    assert upgrade(str(lake)) == []


@pytest.mark.parametrize("call", sampled(range(4), 2))
def test_upgrade_that_died_is_done_by_the_next(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    lake, calls = tmp_path / "lake", [0]
    local.replay(metadata_dir(KAFKA), lake, most=400)
    made_older(lake)

    def dying(good: Callable[..., Any]) -> Callable[..., Any]:
        def dies(*arguments: Any, **options: Any) -> Any:
            calls[0] += 1
            if calls[0] > call:
                raise OSError("the power is gone")
            return good(*arguments, **options)

        return dies

    with monkeypatch.context() as broken:
        broken.setattr(derived, "commit_files", dying(commit_files))
        broken.setattr(LakeWriter, "append_ledger", dying(LakeWriter.append_ledger))
        with pytest.raises(UsageError, match="the power is gone: run it again"):
            upgrade(str(lake))
    assert described(str(lake))["format"] == 2
    upgrade(str(lake))
    assert rows_of(lake) == rows_of(made)
    assert verify(str(lake)).differences == []


def test_upgrade_marks_a_lake_that_kept_unknown_records(tmp_path: Path) -> None:
    """R-REC-4: an earlier jbod kept them on request and did not say so in the ledger."""
    log = tmp_path / "log"
    log.mkdir()
    write_log(log, [[VersionedRecord(UnknownRecord(api_key=99, body=b"x"), 0)]])
    lake = tmp_path / "lake"
    local.replay(log, lake)
    made_older(lake)
    upgrade(str(lake))
    incomplete = ask.Lake.open(lake).incomplete_since
    assert incomplete is not None
    assert str(incomplete) == "incomplete since offset 0: record type 99"
