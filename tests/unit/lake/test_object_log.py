"""A lake on S3 opens from its head, on obstore's store in memory: no server, no network, no request of delta-rs."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from obstore.store import MemoryStore

from pipelines.ask import Lake
from pipelines.lake import head, object_commit, object_log
from pipelines.lake.create import Identity
from pipelines.lake.delta import delta_at
from pipelines.lake.folder import check_folder
from pipelines.lake.head import HEAD, read_head
from pipelines.lake.object_log import ObjectTable
from pipelines.lake.publish import LakeWriter
from pipelines.lake.tables import HISTORY, TABLES
from pipelines.storage import lease, objects
from tests.support import local
from tests.unit.lake.test_changes import BEGIN, FAILED, MOVED
from tests.unit.replay.test_rollback import write

AT = "s3://bucket/lake"


class Requests:
    """What was asked of the store, by object, without the names of data files."""

    def __init__(self) -> None:
        self.log: list[tuple[str, str]] = []

    def took(self) -> Counter[tuple[str, str]]:
        """The requests since the last call, each with its number."""
        found, self.log = Counter(self.log), []
        return found


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Iterator[Requests]:
    """A store in memory that counts."""
    memory, seen = MemoryStore(), Requests()
    monkeypatch.setattr(objects, "_store", lambda *_: memory)
    monkeypatch.setattr(lease, "POLL", 0.01)
    for name in ("get", "put", "head", "listed", "children"):
        asked = getattr(objects, name)

        def count(location: str, *rest: Any, _name: str = name, _asked: Any = asked, **more: Any) -> Any:
            seen.log.append((_name, location.removeprefix(f"{AT}/")))
            return _asked(location, *rest, **more)

        monkeypatch.setattr(objects, name, count)
    object_log.forget(AT)
    yield seen
    object_log.forget(AT)


@pytest.fixture
def log(tmp_path: Path, requests: Requests) -> Path:
    """A log, whose first part is in a lake on S3. The lake was made on a disk: delta-rs does not know the store."""
    log = write(tmp_path / "log", BEGIN)
    local.replay(log, tmp_path / "made")
    for path in (tmp_path / "made").rglob("*"):
        if path.is_file() and path.name not in ("_lock", "_run"):
            objects.put(f"{AT}/{path.relative_to(tmp_path / 'made').as_posix()}", path.read_bytes())
    requests.took()
    return log


def rows(lake: Lake) -> dict[str, list[Any]]:
    return {table.name: sorted(map(repr, lake.query(f"FROM {lake.until(table.name)}"))) for table in HISTORY}


def more(log: Path, *batches: Any) -> Path:
    return write(log, [*BEGIN, *batches])


def test_tables_without_a_head_are_read_commit_by_commit(log: Path, tmp_path: Path, requests: Requests) -> None:
    for table in TABLES:
        mine, there = delta_at(f"{AT}/{table.name}"), DeltaTable(str(tmp_path / "made" / table.name))
        assert isinstance(mine, ObjectTable)
        assert (mine.version(), mine.table_uri) == (there.version(), f"{AT}/{table.name}")
        assert mine.get_add_actions().column("path").to_pylist() == there.get_add_actions().column("path").to_pylist()
    assert {name for name, _ in requests.took()} == {"get"}
    assert rows(Lake.open(AT)) == rows(Lake.open(tmp_path / "made"))


def test_another_process_opens_from_the_head_alone(log: Path, tmp_path: Path, requests: Requests) -> None:
    local.replay(more(log, MOVED), AT)
    local.replay(log, tmp_path / "made")
    object_log.forget(AT)
    requests.took()
    lake = Lake.open(AT)
    opened = requests.took()
    ledger = {**lake.published.versions, "ledger": delta_at(f"{AT}/ledger").version()}
    assert opened.pop(("get", HEAD)) == 1
    assert opened.pop(("get", f"ledger/_delta_log/{ledger['ledger'] + 1:020d}.json")) == 1
    assert not [path for _, path in opened if "_delta_log" in path], "no log was read"
    assert rows(lake) == rows(Lake.open(tmp_path / "made"))


def test_writer_asks_each_table_once_for_a_newer_commit(log: Path, requests: Requests) -> None:
    local.replay(more(log, MOVED), AT)
    object_log.forget(AT)
    requests.took()
    with LakeWriter.held(AT):
        seen = [path for _, path in requests.took().elements() if "_delta_log" in path]
        asked = Counter(path.partition("/")[0] for path in seen)
    assert asked == {table.name: 1 for table in TABLES} | {"ledger": 2}


def test_commit_that_the_head_does_not_have_yet_is_found(log: Path, tmp_path: Path) -> None:
    """A run that died before it wrote the head."""
    local.replay(more(log, MOVED), AT)
    old = objects.get(f"{AT}/{HEAD}")
    local.replay(more(log, MOVED, FAILED), AT)
    objects.put(f"{AT}/{HEAD}", old)
    object_log.forget(AT)
    assert read_head(AT) is None
    local.replay(log, tmp_path / "made")
    assert rows(Lake.open(AT)) == rows(Lake.open(tmp_path / "made"))
    with LakeWriter.held(AT) as lake:
        assert lake.end_offset == 5


@pytest.mark.parametrize("content", [b"", b"\x1f\x8bcut", b"{}", b"[]", b'{"logs": {"ledger": 1}}'])
def test_damaged_head_is_passed_over(log: Path, tmp_path: Path, content: bytes) -> None:
    local.replay(more(log, MOVED), AT)
    objects.put(f"{AT}/{HEAD}", content)
    object_log.forget(AT)
    local.replay(log, tmp_path / "made")
    assert read_head(AT) is None
    assert rows(Lake.open(AT)) == rows(Lake.open(tmp_path / "made"))


def test_lake_that_was_made_again_is_not_mixed_with_the_one_before(log: Path, tmp_path: Path) -> None:
    """A process that serves a lake keeps its logs, and commits of another lake have the same names."""
    local.replay(more(log, MOVED), AT)
    assert Lake.open(AT).offset == 3
    said = json.loads(gzip.decompress(objects.get(f"{AT}/{HEAD}")))
    objects.delete([f"s3://bucket/{one['path']}" for one in objects.listed(AT)])
    other = write(tmp_path / "other", [BEGIN[0], BEGIN[1]])
    local.replay(other, tmp_path / "again", template=False)
    with LakeWriter.held(str(tmp_path / "again")) as lake:
        ledger = str(lake.tables["ledger"].metadata().id)
    for path in (tmp_path / "again").rglob("*"):
        if path.is_file():
            objects.put(f"{AT}/{path.relative_to(tmp_path / 'again').as_posix()}", path.read_bytes())
    objects.put(f"{AT}/{HEAD}", json.dumps(said | {"made": ledger, "logs": {}}).encode())
    assert Lake.open(AT).offset == 1
    assert rows(Lake.open(AT)) == rows(Lake.open(tmp_path / "again"))


@pytest.mark.parametrize("small", [0, object_log.SMALL_CHECKPOINT])
def test_checkpoints_are_in_the_head_if_they_are_small(
    log: Path, tmp_path: Path, requests: Requests, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    monkeypatch.setattr(object_log, "SMALL_CHECKPOINT", small)
    monkeypatch.setattr(object_commit, "CHECKPOINT_AFTER", 1)
    batches = [MOVED, FAILED]
    for end in (1, 2):
        local.replay(more(log, *batches[:end]), AT)
    object_log.forget(AT)
    requests.took()
    local.replay(log, tmp_path / "made")
    lake = Lake.open(AT)
    read = [path for _, path in requests.took() if path.endswith(".checkpoint.parquet")]
    assert len(read) == (0 if small else 2), read
    assert rows(lake) == rows(Lake.open(tmp_path / "made"))


def test_log_that_is_too_large_for_the_head_is_read_from_its_objects(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head, "MOST_BYTES", 40000)
    local.replay(more(log, MOVED), AT)
    said = json.loads(gzip.decompress(objects.get(f"{AT}/{HEAD}")))
    assert 0 < len(said["logs"]) < len(TABLES)
    object_log.forget(AT)
    local.replay(log, tmp_path / "made")
    assert rows(Lake.open(AT)) == rows(Lake.open(tmp_path / "made"))


def test_run_that_read_the_head_just_now_does_not_read_it_again(log: Path, requests: Requests) -> None:
    local.replay(more(log, MOVED), AT)
    object_log.forget(AT)
    requests.took()
    assert read_head(AT) is not None
    check_folder(AT)
    for _ in (1, 2):
        LakeWriter.create_or_open(AT, Identity("", "kafka", "kafka", 2))
        assert requests.took()["get", HEAD] == 1, "the second one reads it again"
