"""Lakes with something missing or damaged: every command that reads one reports it in one line and exits with 2."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from itertools import product
from pathlib import Path
from random import Random

import pytest

from jbod_model.errors import UsageError
from pipelines.ask.json_values import image
from pipelines.cli import main
from pipelines.lake import files, tables
from pipelines.lake.reader import Lake
from pipelines.lake.written_lake import Identity, create_table
from tests.support import local
from tests.support.logs import segments
from tests.support.paths import metadata_dir
from tests.support.volume import exhaustive, rare, sampled
from tests.unit.check.story import Story, disk

TABLES = tuple(sorted(table.name for table in tables.TABLES))
NEEDED = {"ledger", "brokers", "partitions", "assignments"}
"""Tables that every check needs."""


def _data(table: Path) -> list[Path]:
    return sorted(table.rglob("*.parquet"))


def no_data(table: Path) -> None:
    for file in _data(table):
        file.unlink()


def torn_data(table: Path) -> None:
    for file in _data(table):
        file.write_bytes(file.read_bytes()[:100])


def no_last_commit(table: Path) -> None:
    max(table.glob("_delta_log/*.json")).unlink()


def no_table(table: Path) -> None:
    shutil.rmtree(table)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "lake"
    story = Story().broker(1, "abe").broker(2, "cd").topic("t", {1: "a", 2: "c"}, {2: "c"})
    story.change("t", 0, leader=2, isr=(2,)).left(1, "be").lake(path)
    assert left(path, "check") == (0, "", "")
    return path


QUESTIONS = [
    ("offline",),
    ("status",),
    ("directories",),
    ("history", "t-0"),
    ("check",),
    ("report", "--json"),
    ("metrics",),
    ("incidents",),
    ("risk",),
    ("whatif", "--fail", "1"),
    ("safe-to-remove", f"1:{disk('b')}"),
    ("safe-to-restart", "1", "--max-age", "99999d"),
    ("restart-plan",),
    ("assignments",),
    ("moves",),
]


def tables_for(command: str) -> list[str]:
    """The tables to damage for a command: those that every check needs, and every third of the others, or all.

    The commands take turns, so each table is damaged for four of them or more.
    """
    others = [table for table in TABLES if table not in NEEDED]
    turn = [words[0] for words in QUESTIONS].index(command) % 3
    return [*TABLES] if exhaustive() else [*sorted(NEEDED), *others[turn::3]]


def left(lake: Path, *words: str) -> tuple[int, str, str]:
    """Exit code, what was printed, and errors; of a command that needs nothing that is damaged no more than 0."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as gone:
        main.main([*words, "--lake", str(lake)])
    code = int(gone.value.code or 0)
    return (0, "", "") if code in (0, 1) else (code, out.getvalue(), err.getvalue())


@pytest.mark.parametrize(
    ("words", "damage"),
    sampled(product(QUESTIONS, [no_data, no_last_commit, no_table]), 6),
    ids=lambda parameter: parameter.__name__ if callable(parameter) else parameter[0],
)
def test_command_on_a_damaged_lake_is_one_line_and_2_or_does_not_need_it(
    sound: Path, tmp_path: Path, words: tuple[str, ...], damage: Callable[[Path], None]
) -> None:
    refused = set()
    for table in tables_for(words[0]) if damage is no_data or exhaustive() else NEEDED:
        lake = tmp_path / table
        shutil.copytree(sound, lake)
        damage(lake / table)
        code, out, err = left(lake, *words)
        if code:
            refused.add(table)
            assert (code, out, err.count("\n"), err[:5]) == (2, "", 1, "jbod:"), (table, err)
    assert "ledger" in refused
    if words[0] == "check":
        assert refused >= NEEDED


@pytest.mark.parametrize("words", [("offline",), ("status",), ("image",)], ids=["offline", "status", "image"])
def test_table_with_an_empty_newest_commit_is_refused(sound: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    """delta-rs takes it for a version without changes: every replica was online."""
    for table in sorted(NEEDED - {"ledger"}):
        shutil.copytree(sound, tmp_path / table)
        max((tmp_path / table / table).glob("_delta_log/*.json")).write_text("")
        code, out, err = left(tmp_path / table, *words)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert f"{table}: cannot be opened" in err and "its commit is empty" in err


def test_table_with_an_empty_commit_among_others_is_refused_and_made_anew(tmp_path: Path) -> None:
    """It was taken for a version without changes: status counted 83 of 44 partitions."""
    log, lake = metadata_dir("kafka-4.1.2"), tmp_path / "lake"
    local.replay(log, lake, most=100)
    sound_image = image(Lake.open(lake))
    commits = sorted((lake / "partitions").glob("_delta_log/*.json"))
    commits[-3].write_text("")
    for words in (("status",), ("image",)):
        code, out, err = left(lake, *words)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "partitions: cannot be opened" in err and f"its commit {len(commits) - 3} is empty" in err
    with pytest.raises(UsageError, match="partitions: cannot be opened"):
        local.replay(log, lake)
    no_table(lake / "partitions")
    assert left(lake, "rebuild") == (0, "", "")
    assert image(Lake.open(lake)) == sound_image


def test_empty_commit_of_a_publication_that_did_not_end_is_passed_over(tmp_path: Path) -> None:
    source, lake = metadata_dir("kafka-4.1.2"), tmp_path / "lake"
    local.replay(segments(source, tmp_path / "log", most=1), lake)
    commits = sorted((lake / "partitions").glob("_delta_log/*.json"))
    commits[-1].with_name(f"{len(commits):020d}.json").write_text("")
    for most in (2, 3):
        local.replay(segments(source, tmp_path / "log", most=most), lake)
    assert len(list((lake / "partitions").glob("_delta_log/*.json"))) == len(commits) + 3
    assert left(lake, "verify") == (0, "", "")


@pytest.mark.parametrize(
    "words", [("offline",), rare(("history", "solo-1")), rare(("metrics",))], ids=lambda words: words[0]
)
def test_lake_that_lost_the_record_of_a_loss_is_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    """A commit of the records is an older one: each question about losses was a traceback."""
    local.replay(metadata_dir("kafka-4.1.2"), tmp_path, most=100)
    *_, older, commit, _ = sorted(tmp_path.glob("records/_delta_log/*.json"))
    shutil.copy(older, commit)
    code, out, err = left(tmp_path, *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "records: the record of offset 487 is gone" in err


@pytest.mark.parametrize("swapped", [rare(False), True])
def test_ledger_with_another_file_in_the_place_of_its_newest_is_refused(swapped: bool, tmp_path: Path) -> None:
    """Its lake was taken for a shorter one, or the question was a traceback."""
    local.replay(metadata_dir("kafka-4.1.2"), tmp_path, most=300)
    older, newest = sorted(_data(tmp_path / "ledger"), key=lambda file: file.stat().st_mtime_ns)[-2:]
    content = newest.read_bytes()
    shutil.copy(older, newest)
    if swapped:
        older.write_bytes(content)
    code, out, err = left(tmp_path, "status")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "ledger: a file has other rows than its commit says" in err


def test_damaged_pages_of_a_table_are_reported_in_one_line(sound: Path, tmp_path: Path) -> None:
    """DuckDB's errors of such files were tracebacks."""
    draw = Random(7)
    for number in range(10):
        lake = tmp_path / str(number)
        shutil.copytree(sound, lake)
        for file in _data(lake / "brokers"):
            content = bytearray(file.read_bytes())
            for _ in range(20):
                content[draw.randrange(4, len(content) - 8)] ^= 1 << draw.randrange(8)
            file.write_bytes(content)
        code, _, err = left(lake, "status")
        assert code == 0 or (code, err.count("\n"), err[:5]) == (2, 1, "jbod:"), err


@pytest.mark.parametrize(
    ("table", "words", "back"),
    [
        ("records", ("rebuild",), "restore it from a backup, or replay the log into another --lake"),
        ("ledger", ("rebuild",), "restore it from a backup, or replay the log into another --lake"),
        ("ledger", ("status",), "restore it from a backup, or replay the log into another --lake"),
        ("partitions", ("status",), "jbod rebuild recreates the table"),
    ],
)
def test_file_with_a_damaged_page_is_named_with_what_brings_it_back(
    tmp_path: Path, table: str, words: tuple[str, ...], back: str
) -> None:
    """Cause: optimize, rebuild and replay said "ZSTD decompression failed", without a file."""
    lake = tmp_path / "lake"
    local.replay(metadata_dir("kafka-4.1.2"), lake)
    file = max(_data(lake / table), key=lambda file: file.stat().st_size)
    content = bytearray(file.read_bytes())
    content[900:906] = b"\xff" * 6
    file.write_bytes(content)
    code, out, err = left(lake, *words)
    assert (code, out) == (2, "")
    assert f"{lake}/{table}" in err and back in err, err
    with pytest.raises(UsageError, match=f"^{file}: cannot be read .*: {back}"):
        files.read(str(lake), tables.BY_NAME[table], [str(file.relative_to(lake / table))])


def test_file_of_another_table_in_the_place_of_one_is_reported_in_one_line(sound: Path, tmp_path: Path) -> None:
    """It was a traceback."""
    lake = tmp_path / "lake"
    shutil.copytree(sound, lake)
    for file in _data(lake / "brokers"):
        shutil.copy(_data(lake / "partitions")[0], file)
    code, _, err = left(lake, "status")
    assert (code, err.count("\n")) == (2, 1)
    assert "a file of the lake is damaged or gone (Binder Error" in err


def test_image_of_a_damaged_lake_prints_no_part_of_an_object(sound: Path, tmp_path: Path) -> None:
    shutil.copytree(sound, tmp_path / "lake")
    no_data(tmp_path / "lake" / "partitions")
    code, out, err = left(tmp_path / "lake", "image")
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_replay_into_a_lake_whose_ledger_is_gone_is_refused(tmp_path: Path) -> None:
    """It took the lake for a new one, and threw its history away."""
    log, lake = metadata_dir("kafka-4.1.2"), tmp_path / "lake"
    local.replay(log, lake)
    no_table(lake / "ledger")
    with pytest.raises(UsageError, match=r"its ledger is gone, and .*partitions.* have rows: restore"):
        local.replay(log, lake)
    code, out, err = left(lake, "status")
    assert (code, out) == (2, "") and "ledger: is gone or cannot be read" in err


def test_lake_whose_first_run_was_killed_before_it_made_the_ledger_has_nothing_published(tmp_path: Path) -> None:
    """The answer was that the ledger is gone, and to restore it from a backup; the next replay goes on by itself."""
    log, lake = metadata_dir("kafka-4.1.2"), tmp_path / "lake"
    create_table(str(lake / "records"), tables.RECORDS, Identity("c", "kafka", "kafka", 1))
    code, out, err = left(lake, "status")
    assert (code, out) == (2, "") and "nothing was published into this lake yet" in err
    local.replay(log, lake)
    assert left(lake, "status")[0] == 0


def test_replay_into_a_table_with_an_empty_commit_is_refused(tmp_path: Path) -> None:
    """It published on top of it."""
    log, lake = metadata_dir("kafka-4.1.2"), tmp_path / "lake"
    local.replay(log, lake)
    max((lake / "offline_replicas").glob("_delta_log/*.json")).write_text("")
    with pytest.raises(UsageError, match=r"offline_replicas: cannot be opened .its commit is empty"):
        local.replay(log, lake)


def test_lake_within_a_table_of_another_one_is_refused(tmp_path: Path) -> None:
    """jbod vacuum deleted it: its files are none of the table's."""
    log = metadata_dir("kafka-4.1.2")
    local.replay(log, tmp_path / "lake")
    with pytest.raises(UsageError, match="lies in the Delta table"):
        local.replay(log, tmp_path / "lake" / "records" / "inner")


@pytest.mark.parametrize("damage", [no_data, torn_data])
def test_validation_of_a_damaged_lake_is_refused_before_spark_starts(
    sound: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    for table in ("brokers", "partitions", "records"):
        lake = tmp_path / table
        shutil.copytree(sound, lake)
        damage(lake / table)
        code, out, err = left(lake, "check", "--validate")
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "a file of the lake is damaged or gone" in err


def torn_log(table: Path) -> None:
    """jbod check said only that the table cannot be opened."""
    newest = max(table.glob("_delta_log/*.json"))
    newest.write_bytes(newest.read_bytes()[:50])


@pytest.mark.parametrize("damage", [no_data, torn_log, rare(torn_data)])
def test_check_that_cannot_read_its_findings_names_a_way_to_check_nevertheless(
    sound: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    lake = tmp_path / "lake"
    shutil.copytree(sound, lake)
    damage(lake / "findings")
    code, _, err = left(lake, "check")
    assert (code, err.count("\n")) == (2, 1)
    assert err.endswith("--no-keep checks without writing findings\n")
    assert left(lake, "check", "--no-keep") == (0, "", "")


@pytest.mark.parametrize("damage", [no_data, rare(torn_data)])
def test_rebuild_without_the_records_says_so_and_changes_nothing(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    """It was DuckDB's traceback."""
    lake, backup = tmp_path / "lake", tmp_path / "backup"
    local.replay(metadata_dir("kafka-4.1.2"), lake)
    shutil.copytree(lake, backup)
    damage(lake / "records")
    code, out, err = left(lake, "rebuild")
    assert (code, out, err.splitlines()[-1][:5]) == (2, "", "jbod:")
    assert "records: a file is damaged or gone" in err and "restore it from a backup" in err
    shutil.rmtree(lake / "records")
    shutil.copytree(backup / "records", lake / "records")
    assert left(lake, "verify") == (0, "", "")


def test_table_whose_log_is_damaged_is_made_anew_as_the_message_says(tmp_path: Path) -> None:
    """The message of jbod rebuild was to run jbod rebuild."""
    lake = tmp_path / "lake"
    local.replay(metadata_dir("kafka-4.1.2"), lake)
    newest = max((lake / "partitions").glob("_delta_log/*.json"))
    newest.write_bytes(newest.read_bytes()[:50])
    code, _, err = left(lake, "rebuild")
    assert code == 2 and f"once {lake}/partitions is moved away" in err
    no_table(lake / "partitions")
    assert left(lake, "rebuild") == (0, "", "")
    assert left(lake, "verify") == (0, "", "")


@pytest.mark.parametrize("commit", [-1, -2])
def test_rebuild_with_an_empty_commit_of_the_records_is_refused(tmp_path: Path, commit: int) -> None:
    """It rebuilt the tables without the records of that commit, and exited with 0."""
    lake = tmp_path / "lake"
    local.replay(metadata_dir("kafka-4.1.2"), lake, most=100)
    emptied = sorted((lake / "records").glob("_delta_log/*.json"))[commit]
    content = emptied.read_bytes()
    emptied.write_bytes(b"")
    code, out, err = left(lake, "rebuild")
    assert (code, out) == (2, "") and "records: cannot be opened" in err and "restore it from a backup" in err
    emptied.write_bytes(content)
    assert left(lake, "verify") == (0, "", "")


def zeroed_data(table: Path) -> None:
    for file in _data(table):
        file.write_bytes(bytes(file.stat().st_size))


def empty_last_commit(table: Path) -> None:
    max(table.glob("_delta_log/*.json")).write_text("")


def flipped_footers(table: Path) -> None:
    """DuckDB's error about them names no file."""
    for file in _data(table):
        content = bytearray(file.read_bytes())
        content[-20] ^= 0xFF
        content[-200:-100] = b"\xff" * 100
        file.write_bytes(content)


@pytest.mark.parametrize("damage", [zeroed_data, flipped_footers, empty_last_commit, no_last_commit])
@pytest.mark.parametrize("table", sampled(["changes", "brokers", "assignments", "voters"], 2))
def test_table_comes_back_as_a_question_says(tmp_path: Path, table: str, damage: Callable[[Path], None]) -> None:
    """jbod rebuild alone did not help where the log of the table was damaged, or data of changes. After an empty commit
    it said nothing, and the lake stayed as it was."""
    lake = tmp_path / "lake"
    local.replay(metadata_dir("kafka-4.1.2"), lake)
    damage(lake / table)
    code, out, err = left(lake, "verify")
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert f"jbod rebuild recreates the tables from the records, once {lake}/{table} is moved away" in err
    (lake / table).rename(tmp_path / "moved")
    assert left(lake, "rebuild") == (0, "", "")
    assert left(lake, "verify") == (0, "", "")


def test_damaged_table_of_findings_is_moved_away(sound: Path, tmp_path: Path) -> None:
    """The advice was jbod rebuild, which does not make it."""
    lake = tmp_path / "lake"
    shutil.copytree(sound, lake)
    no_data(lake / "findings")
    code, out, err = left(lake, "metrics")
    assert (code, out, err.count("\n")) == (2, "", 1) and f"or move {lake}/findings away" in err
    (lake / "findings").rename(tmp_path / "moved")
    assert left(lake, "metrics") == (0, "", "")
