"""Maintenance changes no row: compact, vacuum, rebuild, verify, and upgrade of an earlier format."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import copy, copytree, rmtree
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from filelock import FileLock

from jbod_model.errors import UsageError
from jbod_model.formats.log import LogWriter, write_snapshot
from jbod_model.formats.records import NoOpRecord, VersionedRecord
from pipelines import ask
from pipelines.ask.sizes import keep, kept, sizes
from pipelines.lake import files
from pipelines.lake.lock import LOCK, alone
from pipelines.lake.publish import LakeWriter
from pipelines.lake.tables import BY_NAME, CHANGES, DERIVED, HISTORY, LEDGER, RECORDS, TABLES
from pipelines.lake.written_lake import LakeConflict, live_files
from pipelines.run import stages
from pipelines.upkeep import compact
from pipelines.upkeep import rebuild as rebuilding
from pipelines.upkeep.compact import optimize, vacuum
from pipelines.upkeep.rebuild import rebuild
from pipelines.upkeep.verify import verify
from pipelines.upkeep.verify_reference import Row
from tests.crash.loop import rewrite
from tests.support import local
from tests.support.paths import KAFKAS, metadata_dir
from tests.support.request_lakes import JoinedLake, request_lines
from tests.support.tables import in_force, in_order, plain
from tests.support.volume import amount, rare, sampled
from tests.support.written import TIME

KAFKA = "kafka-4.1.2"
LOG = "__cluster_metadata-0"
MOST = amount(300, 100)
"""Records of a batch of what follows the first part."""
Tables = dict[str, list[Row]]


def segments(target: Path, most: int | None = None, *, snapshot: bool = False) -> Path:
    """The metadata.log.dir of the cluster with its first ``most`` segments; or its snapshot and what follows it."""
    source = metadata_dir(KAFKA)
    (target / LOG).mkdir(parents=True, exist_ok=True)
    copy(source / "meta.properties", target)
    logs = sorted((source / LOG).glob("*.log"))[:most]
    for path in logs[-2:] if snapshot else logs:
        copy(path, target / LOG)
    if snapshot:
        for path in (source / LOG).glob("*.checkpoint"):
            copy(path, target / LOG)
    return target


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The first part of a log, and the whole."""
    root = tmp_path_factory.mktemp("logs")
    return segments(root / "part", 3), segments(root / "whole")


@pytest.fixture(scope="module")
def part(logs: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of the first part, in many small batches."""
    lake = tmp_path_factory.mktemp("part") / "lake"
    local.replay(logs[0], lake, most=amount(50, 30))
    return lake


@pytest.fixture(scope="module")
def expected(logs: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """What any lake of the whole log holds."""
    lake = tmp_path_factory.mktemp("expected") / "lake"
    local.replay(logs[1], lake)
    return rows(lake)


@pytest.fixture
def lake(part: Path, tmp_path: Path) -> Path:
    """A copy of that lake, to work on."""
    return copytree(part, tmp_path / "lake")


def rows(lake: Path) -> Tables:
    """What a reader sees, of ``changes`` the rows that were not taken back."""
    opened = ask.Lake.open(lake)
    tables = {name: plain(delta) for name, delta in opened.tables.items() if name in BY_NAME}
    if CHANGES.name in tables:
        tables[CHANGES.name] = in_force(tables[CHANGES.name])
    return {name: in_order(name, kept) for name, kept in tables.items()}


def names(lake: Path, table: str) -> set[str]:
    return {str(path) for path in DeltaTable(str(lake / table)).get_add_actions().column("path").to_pylist()}


def open_files(lake: Path, table: str) -> set[str]:
    return {file.path for file in live_files(DeltaTable(str(lake / table))) if file.shard >= 0}


def versions(lake: Path) -> dict[str, int]:
    return {table.name: DeltaTable(str(lake / table.name)).version() for table in TABLES}


def die_at(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, call: int) -> None:
    """Make a function raise at one of its calls, before it does anything."""
    good, calls = getattr(owner, name), [0]

    def dies(*arguments: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] > call:
            raise OSError("the power is gone")
        return good(*arguments, **options)

    monkeypatch.setattr(owner, name, dies)


# -- optimize ---------------------------------------------------------------------------------------------------------


def test_optimize_leaves_every_row_and_every_open_file_and_a_replay_goes_on(
    lake: Path, logs: tuple[Path, Path], expected: Tables
) -> None:
    before, opened = rows(lake), {t.name: open_files(lake, t.name) for t in HISTORY}
    done = {merge.table: merge for merge in optimize(str(lake))}
    assert rows(lake) == before
    for table in HISTORY:
        now = names(lake, table.name)
        assert open_files(lake, table.name) == opened[table.name]
        assert len(now) - len(opened[table.name]) <= 1
        assert done[table.name].after == len(now)
    assert (done["records"].after, done["ledger"].after) == (1, 1)
    assert done["records"].before > 5
    newest = ask.Lake.open(lake).published
    assert newest.start_offset == newest.end_offset
    local.replay(logs[1], lake, most=MOST)
    assert rows(lake) == expected


def test_rows_of_a_merged_file_are_in_the_order_of_the_key(lake: Path) -> None:
    """Otherwise a reader of a topic cannot skip row groups."""
    optimize(str(lake))
    checked = set()
    for table in (RECORDS, *HISTORY):
        for file in live_files(DeltaTable(f"{lake}/{table.name}")):
            if file.shard < 0:
                content = files.read(str(lake), table, [file.path], table.key)
                assert content == content.sort_by([(column, "ascending") for column in table.key]), table.name
                checked |= {table.name} if content.num_rows > 10 else set()
    assert checked >= {"records", "partitions", "assignments"}


def test_optimize_of_what_is_optimized_makes_no_version(lake: Path) -> None:
    optimize(str(lake))
    before = versions(lake)
    optimize(str(lake))
    assert versions(lake) == before


def test_optimize_and_vacuum_serve_the_sizes_that_were_kept(lake: Path, tmp_path: Path) -> None:
    source = copy(metadata_dir(KAFKA).parents[1] / "logdirs.json", tmp_path)
    opened = ask.Lake.open(lake)
    for time in (1000, 2000, 3000):
        os.utime(source, (time, time))
        assert keep(opened, sizes(opened, [str(source)]))
    before = kept(opened)
    assert ("directory_sizes", 3, 1) in [(merge.table, merge.before, merge.after) for merge in optimize(str(lake))]
    old = datetime.now(UTC) + timedelta(days=9)
    assert ("directory_sizes", 3) in [
        (removal.table, removal.files) for removal in vacuum(str(lake), timedelta(days=7), now=old)
    ]
    assert kept(ask.Lake.open(lake)) == before


def test_optimize_merges_neighbours_in_time_up_to_a_size(lake: Path) -> None:
    before = rows(lake)
    sizes = {n: (lake / "records" / n).stat().st_size for n in names(lake, "records")}
    optimize(str(lake), target=3 * max(sizes.values()))
    assert rows(lake) == before
    assert 1 < len(names(lake, "records")) < len(sizes)
    actions = pa.table(DeltaTable(str(lake / "records")).get_add_actions(flatten=True)).to_pylist()
    bounds = sorted((action["min.log_offset"], action["max.log_offset"]) for action in actions)
    assert all(high < low for (_, high), (low, _) in itertools.pairwise(bounds))


@pytest.mark.exhaustive
def test_every_offset_has_the_same_image_after_optimize(lake: Path) -> None:
    offsets = range(0, ask.Lake.open(lake).offset, 25)
    before = [ask.image(ask.Lake.open(lake, at_offset=offset)) for offset in offsets]
    optimize(str(lake))
    assert [ask.image(ask.Lake.open(lake, at_offset=offset)) for offset in offsets] == before


@pytest.mark.parametrize("call", [rare(0), rare(1), rare(2), rare(3), rare(4), 5])
def test_optimize_that_died_between_commits_is_made_good_by_whatever_comes_next(
    lake: Path, logs: tuple[Path, Path], expected: Tables, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    before = rows(lake)
    if call < 5:
        die_at(monkeypatch, compact, "replace_files", call)
    else:
        die_at(monkeypatch, LakeWriter, "publish_rewritten", 0)
    with pytest.raises(OSError, match="the power is gone"):
        optimize(str(lake))
    assert rows(lake) == before
    monkeypatch.undo()
    if call % 2:
        optimize(str(lake))
        assert rows(lake) == before
    local.replay(logs[1], lake, most=MOST)
    assert rows(lake) == expected


@pytest.mark.exhaustive
def test_publication_that_died_after_an_optimize_that_died_is_taken_back(
    lake: Path, logs: tuple[Path, Path], expected: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rows(lake)
    for owner, name in ((LakeWriter, "publish_rewritten"), (LakeWriter, "append_ledger")):
        die_at(monkeypatch, owner, name, 0)
        with pytest.raises(OSError, match="the power is gone"):
            optimize(str(lake)) if name == "publish_rewritten" else local.replay(logs[1], lake)
        monkeypatch.undo()
        assert rows(lake) == before
    local.replay(logs[1], lake)
    assert rows(lake) == expected


def test_run_goes_on_while_its_lake_is_optimized_between_its_batches(
    lake: Path, logs: tuple[Path, Path], expected: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = LakeWriter.publish

    def publish(writer: LakeWriter, *arguments: Any) -> Any:
        optimize(str(lake))
        return good(writer, *arguments)

    monkeypatch.setattr(LakeWriter, "publish", publish)
    local.replay(logs[1], lake, most=amount(200, 60))
    assert rows(lake) == expected


def test_optimized_lake_is_taken_back_where_the_log_was_rewritten(
    tmp_path: Path, lake: Path, logs: tuple[Path, Path]
) -> None:
    local.replay(logs[1], lake, most=amount(200, 60))
    optimize(str(lake))
    log = segments(tmp_path / "log")
    rewrite(log, random.Random(3))
    assert local.replay(log, lake) is not None
    assert verify(str(lake)).differences == []
    local.replay(log, tmp_path / "fresh")
    assert rows(lake) == rows(tmp_path / "fresh")


def test_run_whose_lake_another_run_published_into_is_refused(lake: Path, logs: tuple[Path, Path]) -> None:
    with LakeWriter.held(str(lake)) as held:
        stale = held
    local.replay(logs[1], lake)
    at = stale.here()
    newer = type(at)(**{**vars(at), "end_offset": at.end_offset + 1})
    with pytest.raises(LakeConflict, match="another run published up to offset"):
        stale.publish(newer)


def test_writer_waits_for_another_and_gives_up(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.lake.lock.PATIENCE", 0.1)
    with FileLock(lake / LOCK), pytest.raises(UsageError, match="another process has been writing"):
        optimize(str(lake))
    with alone(str(lake)):
        optimize(str(lake))


# -- vacuum -----------------------------------------------------------------------------------------------------------


def parquet(lake: Path) -> set[Path]:
    return {path for path in lake.glob("*/**/*.parquet") if "_delta_log" not in path.parts}


def age(lake: Path, by: timedelta) -> None:
    """Make every file look older."""
    then = (datetime.now(UTC) - by).timestamp()
    for path in parquet(lake):
        os.utime(path, (then, then))


def test_vacuum_keeps_what_the_ledger_named_in_the_last_hours(lake: Path) -> None:
    age(lake, timedelta(days=30))
    there = parquet(lake)
    assert sum(removal.files for removal in vacuum(str(lake), timedelta(hours=1))) == 0
    assert parquet(lake) == there
    ledger = DeltaTable(str(lake / "ledger")).to_pyarrow_table().to_pylist()
    for row in ledger:
        for name, version in row["versions"]:
            DeltaTable(str(lake / name), version=version).to_pyarrow_table()


def test_vacuum_keeps_what_a_reader_of_the_ledger_has_open(lake: Path) -> None:
    """Cause: of the ledger only the newest version was kept, which optimize had made a moment before: a report that was
    under way ended with "a file of the lake is damaged or gone"."""
    reader = ask.Lake.open(lake)
    optimize(str(lake))
    age(lake, timedelta(days=30))
    vacuum(str(lake), timedelta(hours=1))
    assert reader.rollbacks() == []
    assert ask.Lake.open(lake).rollbacks() == []


def test_vacuum_deletes_what_only_older_versions_need_and_a_replay_goes_on(
    lake: Path, logs: tuple[Path, Path], expected: Tables
) -> None:
    optimize(str(lake))
    age(lake, timedelta(days=30))
    before = rows(lake)
    later = datetime.now(UTC) + timedelta(hours=2)
    removals = vacuum(str(lake), timedelta(hours=1), dry_run=True, now=later)
    there = parquet(lake)
    assert vacuum(str(lake), timedelta(hours=1), now=later) == removals
    assert len(there) - len(parquet(lake)) == sum(removal.files for removal in removals) > 20
    assert parquet(lake) == {lake / table.name / name for table in TABLES for name in names(lake, table.name)}
    assert rows(lake) == before
    local.replay(logs[1], lake, most=MOST)
    assert rows(lake) == expected


def test_vacuum_leaves_young_files_that_may_be_part_of_a_batch(lake: Path) -> None:
    age(lake, timedelta(days=30))
    for name, hours in (("young", 20), ("old", 30)):
        path = lake / "records" / f"closed-{name}.parquet"
        path.write_bytes(b"being written")
        then = (datetime.now(UTC) - timedelta(hours=hours)).timestamp()
        os.utime(path, (then, then))
    file_counts = {removal.table: removal.files for removal in vacuum(str(lake), timedelta(hours=1))}
    assert file_counts["records"] == 1
    assert (lake / "records" / "closed-young.parquet").exists()


def test_vacuum_keeps_tables_that_are_ahead_of_the_ledger(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An optimize died; its files are not named yet, but the next publication stands on them."""
    die_at(monkeypatch, LakeWriter, "publish_rewritten", 0)
    with pytest.raises(OSError, match="the power is gone"):
        optimize(str(lake))
    monkeypatch.undo()
    age(lake, timedelta(days=30))
    before = rows(lake)
    vacuum(str(lake), timedelta(hours=1), now=datetime.now(UTC) + timedelta(hours=2))
    assert rows(lake) == before
    optimize(str(lake))
    assert rows(lake) == before


# -- rebuild ----------------------------------------------------------------------------------------------------------


def no_say(_line: str) -> None:
    """Nobody listens."""


@pytest.mark.parametrize("kafka", sampled(KAFKAS[::-1], 1))
def test_rebuild_gives_the_tables_that_were_there(tmp_path: Path, kafka: str) -> None:
    lake = tmp_path / "lake"
    local.replay(metadata_dir(kafka), lake, most=MOST)
    before = rows(lake)
    counted = rebuild(str(lake), say=no_say, max_records=50)
    assert rows(lake) == before
    assert counted == {table.name: len(before[table.name]) for table in DERIVED}


@pytest.mark.exhaustive
def test_rebuild_of_a_lake_that_met_a_snapshot_after_a_gap_gives_the_same(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    local.replay(segments(tmp_path / "first", 2), lake)
    local.replay(segments(tmp_path / "later", snapshot=True), lake)
    before = rows(lake)
    assert {row["ended_by"] for row in before["assignments"]} >= {"resync"}
    rebuild(str(lake), say=no_say, max_records=20)
    assert rows(lake) == before


def test_rebuild_mends_lost_files_wrong_rows_and_a_lost_table_and_a_replay_goes_on(
    lake: Path, logs: tuple[Path, Path], expected: Tables
) -> None:
    before = rows(lake)
    change(lake, "offline_replicas", lambda row: {**row, "reason": "broker missing"})
    (lake / "partitions" / min(names(lake, "partitions"))).unlink()
    rmtree(lake / "assignments")
    rebuild(str(lake), say=no_say)
    assert rows(lake) == before
    local.replay(logs[1], lake, most=MOST)
    assert rows(lake) == expected


@pytest.mark.parametrize("call", [rare(0), rare(1), rare(2), 3, rare(4), rare(5)])
def test_rebuild_that_died_leaves_the_lake_whole_and_is_made_good(
    lake: Path, logs: tuple[Path, Path], expected: Tables, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    before = rows(lake)
    if call < 5:
        die_at(monkeypatch, rebuilding, "replace_files", call)
    else:
        die_at(monkeypatch, LakeWriter, "publish_rewritten", 0)
    with pytest.raises(OSError, match="the power is gone"):
        rebuild(str(lake), say=no_say)
    monkeypatch.undo()
    assert rows(lake) == before
    if call % 2:
        rebuild(str(lake), say=no_say)
        assert rows(lake) == before
    local.replay(logs[1], lake, most=MOST)
    assert rows(lake) == expected


def test_rebuild_without_records_changes_nothing(lake: Path) -> None:
    (lake / "records" / min(names(lake, "records"))).unlink()
    before = versions(lake)
    with pytest.raises(Exception, match="parquet"):
        rebuild(str(lake), say=no_say)
    assert versions(lake) == before


# -- verify -----------------------------------------------------------------------------------------------------------


def change(lake: Path, table: str, to: Callable[[Row], Row | None], *, again: bool = False) -> Row:
    """Rewrite the first row of a table as ``to`` says (None: gone), in the version the ledger names."""
    with LakeWriter.held(str(lake)) as writer:
        delta = writer.tables[table]
        data_file = min((file for file in live_files(delta) if file.shard < 0), key=lambda file: file.path)
        first, *rest = files.read(str(lake), BY_NAME[table], [data_file.path]).to_pylist()
        changed = to(dict(first))
        kept = rest if changed is None else [changed, *([first] if again else []), *rest]
        content = pa.Table.from_pylist(kept, schema=BY_NAME[table].schema)
        compact.replace_files(
            writer, BY_NAME[table], [files.write(str(lake), table, content)], [data_file], rebuilt=True
        )
        assert delta.version() >= 0
        writer.publish_rewritten()
    row: Row = first
    return row


@pytest.mark.parametrize("by", [rare("model"), "engine"])
@pytest.mark.parametrize("kafka", sampled(KAFKAS[::-1], 1))
def test_verify_finds_nothing_in_the_lakes_of_real_clusters(tmp_path: Path, kafka: str, by: Any) -> None:
    local.replay(metadata_dir(kafka), tmp_path / "lake", most=MOST)
    verification = verify(str(tmp_path / "lake"), by=by)
    assert verification.differences == []
    assert verification.by == by
    assert verification.rows["records"] > 200


def test_verify_by_the_engine_writes_no_file(lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "MANY", 1)
    monkeypatch.setattr(files, "write", None)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert verify(str(lake), by="engine").differences == []
    assert sorted(tmp_path.rglob("*")) == before


def test_verify_takes_a_snapshot_without_metadata_records(tmp_path: Path) -> None:
    """The model looked for the last one, and ended in an AssertionError."""
    (tmp_path / LOG).mkdir()
    write_snapshot(tmp_path / LOG, [], end_offset=1, epoch=1, timestamp=TIME)
    writer = LogWriter(base_offset=1)
    writer.append([VersionedRecord(NoOpRecord(), 0)], epoch=1, timestamp=TIME)
    writer.write(tmp_path / LOG)
    local.replay(tmp_path, tmp_path / "lake")
    assert verify(str(tmp_path / "lake"), by="model").differences == []


@pytest.mark.parametrize("by", ["model", rare("engine")])
def test_verify_proves_a_lake_with_a_gap(tmp_path: Path, by: Any) -> None:
    local.replay(segments(tmp_path / "first", 2), tmp_path / "lake")
    local.replay(segments(tmp_path / "later", snapshot=True), tmp_path / "lake")
    assert verify(str(tmp_path / "lake"), by=by).differences == []


@pytest.mark.parametrize(
    ("table", "to", "what"),
    sampled(
        [
            ("assignments", lambda row: {**row, "ended_by": "lost"}, "ended_by is lost, the records say "),
            ("partitions", lambda row: {**row, "leader": 99}, "leader is 99, the records say "),
            ("partitions", lambda row: {**row, "directories": row["directories"][:-1]}, "a_directory_per_replica"),
            ("brokers", lambda row: None, "follows from the records, but is not in the table"),
            ("brokers", lambda row: {**row, "broker_id": 77}, "is in the table, but does not follow from the records"),
            ("directories", lambda row: {**row, "to_offset": row["from_offset"]}, "breaks the constraint interval_is"),
            ("offline_replicas", lambda row: {**row, "reason": "mice"}, "breaks the constraint reason_is_known"),
        ],
        3,
    ),
)
def test_verify_names_the_row_that_differs(lake: Path, table: str, to: Callable[[Row], Row | None], what: str) -> None:
    row = change(lake, table, to)
    verification = verify(str(lake), by="engine" if table == "partitions" else None)
    places = [
        (difference.table, difference.offset) for difference in verification.differences if what in difference.what
    ]
    assert places == [(table, row["from_offset"])]
    assert {difference.table for difference in verification.differences} == {table}


@pytest.mark.parametrize("by", ["model", rare("engine")])
def test_verify_names_a_change_that_did_not_happen(lake: Path, by: Any) -> None:
    with LakeWriter.held(str(lake)) as writer:
        first, *_ = (file.path for file in live_files(writer.tables["changes"]))
        row = files.read(str(lake), CHANGES, [first]).to_pylist()[0] | {"what": "mice"}
        added = files.write(str(lake), "changes", pa.Table.from_pylist([row], schema=CHANGES.schema))
        writer.commit(CHANGES, [added], [], writer.end_offset, writer.end_offset)
        writer.publish_rewritten()
    offsets_and_texts = {
        (difference.offset, difference.what)
        for difference in verify(str(lake), by=by).differences
        if difference.table == "changes"
    }
    assert offsets_and_texts == {(row["log_offset"], "is in the table, but does not follow from the records")}


@pytest.mark.parametrize("by", [rare("model"), "engine"])
def test_verify_names_a_row_about_a_rollback_that_is_there_twice(lake: Path, by: Any) -> None:
    rebuild(str(lake), say=no_say)
    assert verify(str(lake), by=by).differences == []
    with LakeWriter.held(str(lake)) as writer:
        every = files.read(str(lake), CHANGES, [file.path for file in live_files(writer.tables["changes"])])
        added = files.write(str(lake), "changes", every.filter(pc.equal(every["what"], "history")))
        writer.commit(CHANGES, [added], [], writer.end_offset, writer.end_offset)
        writer.publish_rewritten()
    assert [(difference.table, difference.what) for difference in verify(str(lake), by=by).differences] == [
        ("changes", "exists more than once")
    ]


@pytest.mark.parametrize("by", [rare("model"), "engine"])
def test_verify_names_a_row_that_is_there_twice(lake: Path, by: Any) -> None:
    row = change(lake, "assignments", lambda row: row, again=True)
    verification = verify(str(lake), by=by)
    assert [(difference.offset, difference.what) for difference in verification.differences] == [
        (row["from_offset"], "exists more than once")
    ]
    assert f"topic_id {row['topic_id']}, partition {row['partition']}" in verification.differences[0].key


def test_verify_names_a_file_that_is_gone_or_cut_off(lake: Path) -> None:
    gone, cut, *_ = sorted(names(lake, "partitions"))
    (lake / "partitions" / gone).unlink()
    (lake / "partitions" / cut).write_bytes(b"PAR1")
    texts = {(difference.table, difference.key): difference.what for difference in verify(str(lake)).differences}
    assert texts["partitions", gone] == "the file is gone"
    assert texts["partitions", cut].startswith("the file has 4 bytes, not ")


@pytest.mark.parametrize("name", [LEDGER.name, "records"])
def test_upkeep_where_there_is_no_lake_is_refused_and_makes_nothing(tmp_path: Path, name: str) -> None:
    for command in (optimize, verify, lambda path: vacuum(path, timedelta(hours=1)), lambda p: rebuild(p, say=no_say)):
        with pytest.raises(UsageError, match="no lake there"):
            command(str(tmp_path / name))
    assert list(tmp_path.iterdir()) == []


# -- beside requests --------------------------------------------------------------------------------------------------


def test_requests_are_optimized_too_and_those_that_wait_stay_open(tmp_path: Path) -> None:
    made = JoinedLake(tmp_path / "lake", KAFKA)
    made.replay(400)
    lines = request_lines(KAFKA)
    for at in range(0, len(lines), 400):
        made.add(lines[at : at + 400])
    before = rows(tmp_path / "lake")["assignment_requests"]
    waiting = [row for row in before if row["outcome"] == "pending"]
    assert waiting
    done = {merge.table: merge for merge in optimize(str(tmp_path / "lake"))}
    assert done["assignment_requests"].before > done["assignment_requests"].after == 2
    assert rows(tmp_path / "lake")["assignment_requests"] == before
    made.replay()
    made.stream.join_waiting()
    made.add(lines)
    assert len(made.rows) == len(before)
    assert {row["outcome"] for row in made.rows} == {"recorded", "already true"}


@pytest.mark.exhaustive
def test_requests_joined_to_a_lake_stay_through_all_upkeep(tmp_path: Path) -> None:
    made = JoinedLake(tmp_path / "lake", KAFKA)
    made.replay(400)
    made.add(request_lines(KAFKA))
    before = rows(tmp_path / "lake")
    assert before["assignment_requests"]
    lake = str(tmp_path / "lake")
    optimize(lake)
    rebuild(lake, say=no_say)
    age(tmp_path / "lake", timedelta(days=30))
    vacuum(lake, timedelta(hours=1), now=datetime.now(UTC) + timedelta(hours=2))
    assert rows(tmp_path / "lake") | {CHANGES.name: before[CHANGES.name]} == before
    assert verify(lake).differences == []
    made.replay()
    made.stream.join_waiting()
    assert {row["outcome"] for row in made.rows} == {"recorded", "already true"}
