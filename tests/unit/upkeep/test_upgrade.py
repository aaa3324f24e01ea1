"""The lake of the first format opens, is asked, goes on and is upgraded, for ever; and how an upgrade runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from shutil import copytree
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from jbod_model.errors import UsageError
from pipelines import ask
from pipelines.lake import FORMAT_VERSION
from pipelines.lake.create import described as read_described
from pipelines.lake.publish import LakeWriter
from pipelines.lake.tables import ASSIGNMENT_REQUESTS, BROKERS, LEDGER, OF_REPLICAS, TABLES
from pipelines.upkeep import partitioning
from pipelines.upkeep.compact import optimize
from pipelines.upkeep.upgrade import STEPS, Step, add_column, add_table, upgrade
from pipelines.upkeep.verify import verify
from tests.support import local
from tests.support.kafka_images import kafka_images
from tests.support.paths import FIXTURES, metadata_dir
from tests.support.tables import rows_of
from tests.support.volume import sampled

KAFKA = "kafka-4.1.2"
RACKED = replace(BROKERS, schema=BROKERS.schema.append(pa.field("zone", pa.string())))
MADE_UP = (
    Step(FORMAT_VERSION + 1, "a table more", add_table(ASSIGNMENT_REQUESTS)),
    Step(FORMAT_VERSION + 2, "a column more", add_column(RACKED, "zone")),
)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A copy of the lake that the first version made of the first 276 records, brought up to today's format."""
    lake = copytree(FIXTURES / "lakes" / "format-1", tmp_path / "lake")
    upgrade(str(lake))
    return lake


def described(lake: Path) -> dict[str, object]:
    return read_described(str(lake))


def test_lake_of_the_first_format_is_upgraded_and_asked(old: Path) -> None:
    assert described(old)["format"] == FORMAT_VERSION
    images = [image for image in kafka_images(KAFKA) if image["offset"] < 276]
    assert len(images) > 10
    for expected in (images[0], images[len(images) // 2], images[-1]):
        assert ask.image(ask.Lake.open(old, at_offset=expected["offset"])) == expected
    assert verify(str(old)).differences == []


def test_commits_of_an_upgrade_say_what_they_did(old: Path) -> None:
    said = set()
    for table in TABLES:
        before = FIXTURES / "lakes" / "format-1" / table.name
        first = DeltaTable(str(before)).version() + 1 if before.exists() else 1
        for commit in DeltaTable(str(old / table.name)).history():
            # Constraints are added by Delta's own operation.
            if commit["version"] >= first and commit["operation"] != "ADD CONSTRAINT":
                said.add(commit.get("userMetadata"))
    assert said >= {
        "jbod: partitioned the table anew",
        "jbod: upgraded the lake to format 2",
        "jbod: upgraded the lake to format 3",
        "jbod: changed the table's description",
    }
    assert None not in said


def test_lake_of_the_first_format_goes_on(old: Path, tmp_path: Path) -> None:
    optimize(str(old))
    local.replay(metadata_dir(KAFKA), old, most=100)
    local.replay(metadata_dir(KAFKA), tmp_path / "new")
    assert rows_of(old) == rows_of(tmp_path / "new")


@pytest.mark.parametrize("call", sampled(range(0, 11, 2), 3))
def test_upgrade_that_died_between_its_commits_is_done_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    lake, calls = copytree(FIXTURES / "lakes" / "format-1", tmp_path / "lake"), [0]

    def dying(good: Callable[..., Any]) -> Callable[..., Any]:
        def dies(*arguments: Any, **options: Any) -> Any:
            calls[0] += 1
            if calls[0] > call:
                raise OSError("the power is gone")
            return good(*arguments, **options)

        return dies

    with monkeypatch.context() as broken:
        for name in ("commit_files", "write_deltalake"):
            broken.setattr(partitioning, name, dying(getattr(partitioning, name)))
        broken.setattr(LakeWriter, "append_ledger", dying(LakeWriter.append_ledger))
        with pytest.raises(UsageError, match="the power is gone: run it again"):
            upgrade(str(lake))
    assert described(lake)["format"] == 1
    with pytest.raises(UsageError, match=rf"lake of format 1, this is {FORMAT_VERSION}: jbod upgrade"):
        local.replay(metadata_dir(KAFKA), lake)
    upgrade(str(lake))
    assert verify(str(lake)).differences == []


def test_upgrade_makes_rows_single_that_a_compaction_had_doubled(tmp_path: Path) -> None:
    """A foreign engine merged the open files, and the batch after it did not find what it should have removed."""
    lake = copytree(FIXTURES / "lakes" / "format-1", tmp_path / "lake")
    versions = {}
    for table in OF_REPLICAS:
        uri = str(lake / table.name)
        before = DeltaTable(uri, version=len(table.checks) + 1).to_pyarrow_table()
        stale = before.filter(pc.is_null(before["to_offset"]))
        write_deltalake(uri, stale, mode="append")
        DeltaTable(uri).optimize.compact()
        versions[table.name] = DeltaTable(uri).version()
    ledger = DeltaTable(str(lake / "ledger")).to_pyarrow_table().sort_by("end_offset").to_pylist()[-1]
    ledger["versions"] = [*({**dict(ledger["versions"]), **versions}).items()]
    ledger |= {"start_offset": ledger["end_offset"], "published_time": datetime.now(UTC)}
    columns = pa.schema([field.remove_metadata() for field in LEDGER.schema])  # comments have changed since
    newest = pa.Table.from_pylist([ledger], schema=columns)
    write_deltalake(str(lake / "ledger"), newest, mode="append", schema_mode="merge")
    upgrade(str(lake))
    assert verify(str(lake)).differences == []


def test_upgrade_of_a_lake_of_this_format_takes_no_step(old: Path) -> None:
    before = {table.name: DeltaTable(str(old / table.name)).version() for table in TABLES}
    assert upgrade(str(old)) == []
    assert {table.name: DeltaTable(str(old / table.name)).version() for table in TABLES} == before


def test_steps_lead_from_the_first_format_to_this_one() -> None:
    formats = [1, *(step.to for step in STEPS)]
    assert formats[-1] == FORMAT_VERSION
    assert all(after in (before, before + 1) for before, after in pairwise(formats))


def test_step_adds_a_table_and_another_a_column_and_rows_stay(old: Path) -> None:
    before = rows_of(old)
    identity = {name: value for name, value in described(old).items() if name != "format"}
    taken = upgrade(str(old), steps=MADE_UP, to=FORMAT_VERSION + 2)
    assert [step.what for step in taken] == ["a table more", "a column more"]
    assert described(old) == {**identity, "format": FORMAT_VERSION + 2}
    assert DeltaTable(str(old / ASSIGNMENT_REQUESTS.name)).to_pyarrow_table().num_rows == 0
    brokers = DeltaTable(str(old / "brokers")).to_pyarrow_table()
    assert brokers["zone"].null_count == brokers.num_rows
    assert rows_of(old) == before


def test_upgrade_that_died_goes_on_with_the_step_it_died_in(old: Path) -> None:
    def dies(location: str) -> None:
        MADE_UP[1].do(location)
        raise OSError("the power is gone")

    broken = (MADE_UP[0], replace(MADE_UP[1], do=dies))
    with pytest.raises(UsageError, match=r"the step to format \d+ \(a column more\) failed: the power is gone: run it"):
        upgrade(str(old), steps=broken, to=FORMAT_VERSION + 2)
    assert described(old)["format"] == FORMAT_VERSION + 1
    assert [step.what for step in upgrade(str(old), steps=MADE_UP, to=FORMAT_VERSION + 2)] == ["a column more"]


def test_lake_of_a_later_format_is_refused_by_upgrade_and_by_questions(old: Path) -> None:
    upgrade(str(old), steps=MADE_UP, to=FORMAT_VERSION + 2)
    with pytest.raises(UsageError, match="later than"):
        upgrade(str(old))
    with pytest.raises(UsageError, match=f"lake of format {FORMAT_VERSION + 2}"):
        ask.Lake.open(old)
