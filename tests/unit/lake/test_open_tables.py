"""Tables that a writer knows are opened when they are needed, and at the version that it knows."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest
from deltalake import CommitProperties, DeltaTable
from obstore.store import MemoryStore

from pipelines.lake.delta import is_newest
from pipelines.lake.ledger import HEAD, read_head, write_head
from pipelines.lake.publish import LakeWriter
from pipelines.lake.reader import Lake
from pipelines.lake.tables import CHANGES, LEDGER, RECORDS
from pipelines.lake.uris import commit_path
from pipelines.lake.written_lake import Identity, OpenTables, Overtaken
from pipelines.storage import objects
from tests.support import local
from tests.unit.lake.test_changes import BEGIN
from tests.unit.run.test_rollback import write

AT = "s3://bucket/lake"


@pytest.fixture
def lake(tmp_path: Path) -> str:
    """A lake with a publication."""
    local.replay(write(tmp_path / "log", BEGIN), tmp_path / "lake")
    return str(tmp_path / "lake")


def changed(table: str) -> None:
    """Another engine sets a property of a table."""
    delta = DeltaTable(table)
    delta.alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"})


def test_table_with_a_version_after_the_known_one_is_overtaken_until_the_writer_looks(lake: str) -> None:
    tables = OpenTables(lake)
    version = DeltaTable(f"{lake}/{RECORDS.name}").version()
    assert tables.note(RECORDS.name, version)
    changed(f"{lake}/{RECORDS.name}")
    assert not tables.note(RECORDS.name, version)
    with pytest.raises(Overtaken, match=f"{RECORDS.name}: something else wrote at the same time"):
        tables[RECORDS.name]
    assert tables.refresh(RECORDS.name)
    assert tables[RECORDS.name].version() == version + 1
    assert not tables.refresh(RECORDS.name)


def test_ledger_of_an_open_lake_is_not_opened_again(lake: str) -> None:
    """On S3 each time costs a listing."""
    opened = Lake.open(lake)
    (Path(lake) / "ledger" / "_delta_log").rename(Path(lake) / "elsewhere")
    assert (opened.rollbacks(), opened.log_end()) == ([], None)


def test_table_that_was_committed_to_is_opened_at_the_new_version(lake: str) -> None:
    tables = OpenTables(lake)
    tables[LEDGER.name] = DeltaTable(f"{lake}/{LEDGER.name}")
    known = tables.versions[LEDGER.name]
    LakeWriter.create_or_open(lake, Identity("", "kafka", "kafka", 2)).publish_rewritten()
    tables.committed(LEDGER.name)
    assert tables[LEDGER.name].version() == known + 1


def test_foreign_commit_between_two_publications_of_a_run_is_compared(lake: str, tmp_path: Path) -> None:
    """A writer that opened no table would otherwise publish on top of a version that it never compared."""
    with LakeWriter.held(lake) as writer:
        delta = DeltaTable(f"{lake}/{CHANGES.name}")
        before = writer.versions[CHANGES.name]
        delta.optimize.compact(commit_properties=CommitProperties(max_commit_retries=0))
        changed(f"{lake}/{CHANGES.name}")
        with writer.writing():
            writer.publish_rewritten()
        assert writer.versions[CHANGES.name] == DeltaTable(f"{lake}/{CHANGES.name}").version() > before


@pytest.mark.parametrize("place", ["", "file://"])
def test_newest_version_is_one_whose_commit_is_there_and_the_next_is_not(lake: str, place: str) -> None:
    uri = f"{place}{lake}/{LEDGER.name}"
    version = DeltaTable(f"{lake}/{LEDGER.name}").version()
    assert [is_newest(uri, at) for at in (version - 1, version, version + 1)] == [False, True, False]


# -- the head of a lake on S3 -----------------------------------------------------------------------------------------


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """The head of a lake in a store in memory, whose ledger has version 4."""
    memory = MemoryStore()
    monkeypatch.setattr(objects, "_store", lambda *_: memory)
    row: dict[str, object] = {"end_offset": 9, "epoch": 1, "fingerprint": 5, "log_end": None, "rows": {}}
    for version in range(5):
        objects.put(commit_path(f"{AT}/ledger", version), b"")
    write_head(AT, Identity("cluster", "kafka", "kafka", 2), row, 4)
    return row


def test_head_has_the_newest_row_and_whose_lake_it_is(head: dict[str, object]) -> None:
    stored_head = read_head(AT)
    assert stored_head is not None
    assert stored_head["identity"] == {"cluster_id": "cluster", "profile": "kafka", "ids": "kafka", "shards": 2}
    assert stored_head["row"] == {name: head[name] for name in ("end_offset", "epoch", "fingerprint", "log_end")}


def test_head_that_the_ledger_has_passed_does_not_count(head: dict[str, object]) -> None:
    objects.put(commit_path(f"{AT}/ledger", 5), b"")
    assert read_head(AT) is None


@pytest.mark.parametrize("content", [b"", b"\x1f\x8bcut", b"{}", b"[]", b'{"ledger": 4, "format": 0}'])
def test_damaged_head_does_not_count(head: dict[str, object], content: bytes) -> None:
    objects.put(f"{AT}/{HEAD}", content)
    assert read_head(AT) is None


def test_newest_version_on_s3_takes_one_listing(head: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    listed = Mock(side_effect=objects.listed)
    monkeypatch.setattr(objects, "listed", listed)
    monkeypatch.setattr(objects, "head", Mock(side_effect=AssertionError("a request")))
    assert [is_newest(f"{AT}/ledger", at) for at in (3, 4, 5)] == [False, True, False]
    assert listed.call_count == 3
