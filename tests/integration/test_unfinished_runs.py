"""Runs that were cut short, refused by their disk, or not alone: what is left of them, and what the next one does."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jbod_model.errors import UsageError
from pipelines.ask.lake_status import status
from pipelines.fold.rules import rules
from pipelines.lake.lock import only_run
from pipelines.lake.publish import LakeWriter
from pipelines.lake.reader import Lake
from pipelines.lake.tables import TABLES
from pipelines.lake.written_lake import Identity
from pipelines.run.options import Replay
from pipelines.run.rollback import reconcile
from pipelines.run.runner import Runner
from pipelines.run.seed import (
    CHECKPOINT,
    OF_REQUESTS,
    checkpoint_fits,
    is_readable,
    mark_version,
    take_seed,
    write_seed,
)
from pipelines.run.stage_options import Job
from pipelines.source.log_dir import LogDir
from pipelines.source.plan import Planner
from pipelines.source.positions import Position
from pipelines.storage.objects import fault_of_disk
from tests.crash.check import History, complete, readable, uninterrupted
from tests.crash.loop import LOG
from tests.crash.runs import forked
from tests.support.logs import segments
from tests.support.paths import ROOT, metadata_dir
from tests.support.volume import rare, sampled

NOBODY = 65534
IDENTITY = Identity("", "kafka", "kafka", 2)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return segments(metadata_dir("kafka-3.7.2"), tmp_path_factory.mktemp("log") / "log")


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory, log: Path) -> History:
    return uninterrupted(log, tmp_path_factory.mktemp("whole") / "lake")


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A folder that every user may enter and write to, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp(prefix="crash-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


def limited(size: int, output: Path) -> None:
    """No file may become longer than ``size`` bytes: what a quota does."""
    listen(output)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def ordinary(output: Path) -> None:
    """Go on as a user for whom permissions count."""
    listen(output)
    if os.geteuid() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def listen(output: Path) -> None:
    """Standard error goes to a file."""
    os.dup2(os.open(output, os.O_CREAT | os.O_WRONLY | os.O_TRUNC), 2)


def run(log: Path, lake: Path, first: Callable[[], object] | None = None) -> int | None:
    process = forked(log, lake, 60, first=first)
    process.join(120)
    return process.exitcode


@pytest.mark.parametrize("size", sampled([3000, 600, 4500, 6000], 1))
def test_run_whose_disk_takes_no_more_stops_with_one_line_and_goes_on_later(
    tmp_path: Path, log: Path, history: History, size: int
) -> None:
    """While tables are made, while data is written, while a commit is."""
    output = tmp_path / "said"
    assert run(log, tmp_path / "lake", partial(limited, size, output)) == 2
    assert "File too large" in output.read_text()
    readable(tmp_path / "lake", [history])
    assert run(log, tmp_path / "lake") == 0
    complete(tmp_path / "lake", history)


def test_lake_that_may_not_be_written_to_is_refused_and_stays(open_to_all: Path, log: Path, history: History) -> None:
    lake, copied = open_to_all / "lake", shutil.copytree(log, open_to_all / "log")
    early = shutil.copytree(log, open_to_all / "early")
    for path in sorted((early / LOG).glob("*.log"))[2:]:
        path.unlink()
    assert run(early, lake) == 0
    end = readable(lake, [history])
    for folder in (lake, *(path for path in lake.rglob("*") if path.is_dir())):
        folder.chmod(0o555)
    for file in (path for path in lake.rglob("*") if path.is_file()):
        file.chmod(0o444)
    output = open_to_all / "said"
    assert run(copied, lake, partial(ordinary, output)) == 2
    assert f"{lake}: Permission denied: give this user the right to write there" in output.read_text()
    assert 0 < readable(lake, [history]) == end
    for path in (lake, *lake.rglob("*")):
        path.chmod(0o755)
    assert run(copied, lake) == 0
    complete(lake, history)


@contextmanager
def without_rights() -> Iterator[None]:
    """As a user for whom permissions count, in this process."""
    user = os.geteuid()
    os.seteuid(NOBODY if user == 0 else user)
    try:
        yield
    finally:
        os.seteuid(user)


def test_lake_with_a_file_of_another_user_is_not_called_damaged(open_to_all: Path, log: Path) -> None:
    """It said to search for the file with jbod optimize, and to recreate the tables with jbod rebuild."""
    lake = open_to_all / "lake"
    assert run(log, lake) == 0
    assert status(Lake.open(str(lake))).partitions  # the modules are loaded
    for pattern in ("partitions/**/*.parquet", "partitions/_delta_log/*0.json", "ledger/_delta_log/*0.json"):
        file = next(lake.glob(pattern))
        file.chmod(0)
        with without_rights(), pytest.raises(UsageError, match=r"lake: cannot be read.* Permission denied"):
            status(Lake.open(str(lake)))
        file.chmod(0o644)


def test_segment_that_cannot_be_read_stops_the_run_by_name(open_to_all: Path, log: Path, history: History) -> None:
    copied = shutil.copytree(log, open_to_all / "log")
    lake, output = open_to_all / "lake", open_to_all / "said"
    third = sorted((copied / LOG).glob("*.log"))[2]
    third.chmod(0)
    assert run(copied, lake, partial(ordinary, output)) == 2
    assert f"{third}: cannot be read" in output.read_text()
    readable(lake, [history])
    third.chmod(0o644)
    assert run(copied, lake) == 0
    complete(lake, history)


def test_two_runs_at_once_are_refused_or_right(tmp_path: Path, log: Path, history: History) -> None:
    """Whoever comes second, to the lock of a replay or to a commit, is refused, and nothing is published twice."""
    runs = [forked(log, tmp_path / "lake", 60, first=partial(listen, tmp_path / f"said-{i}")) for i in range(2)]
    for each in runs:
        each.join(120)
    for number, each in enumerate(runs):
        output = (tmp_path / f"said-{number}").read_text()
        refused = "run again, alone" in output or "another jbod replay runs on this lake" in output
        assert each.exitcode == 0 or (each.exitcode == 2 and refused), output
    assert run(log, tmp_path / "lake") == 0
    complete(tmp_path / "lake", history)


def test_second_replay_of_a_lake_is_refused_until_the_first_is_dead(tmp_path: Path, log: Path) -> None:
    lake = str(tmp_path / "lake")
    second = Runner(Replay(str(log), lake))
    holder = os.fork()
    if holder == 0:
        with only_run(lake):
            (tmp_path / "held").touch()
            signal.pause()
    while not (tmp_path / "held").exists():
        assert os.waitpid(holder, os.WNOHANG) == (0, 0)
    with pytest.raises(UsageError, match="another jbod replay runs on this lake"):
        second.run(SimpleNamespace(version="4.2.0"))  # type: ignore[arg-type]
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    with only_run(lake):
        pass


@pytest.mark.parametrize("made", [rare(1), 2])
def test_table_that_was_half_created_is_finished(
    tmp_path: Path, log: Path, history: History, monkeypatch: pytest.MonkeyPatch, made: int
) -> None:
    """A death between a table and its constraints once left a lake that was refused for a version it never had."""
    with monkeypatch.context() as dying:
        calls: list[object] = []

        def dies(*arguments: Any) -> None:
            calls.append(arguments)
            if len(calls) == made:
                raise KeyboardInterrupt

        dying.setattr("pipelines.lake.written_lake.add_checks", dies)
        with pytest.raises(KeyboardInterrupt):
            LakeWriter.create_or_open(str(tmp_path / "lake"), IDENTITY)
    assert run(log, tmp_path / "lake") == 0
    complete(tmp_path / "lake", history)


SIGTERM_AFTER_A_TABLE = """
import os, signal, sys
from pipelines.lake import publish, written_lake
written_lake.add_checks = lambda *_: os.kill(os.getpid(), signal.SIGTERM)
publish.LakeWriter.create_or_open(sys.argv[1], publish.Identity("", "kafka", "kafka", 2))
"""


@pytest.mark.exhaustive
def test_run_that_sigterm_ends_while_it_makes_tables_is_gone_on_from(
    tmp_path: Path, log: Path, history: History
) -> None:
    lake = tmp_path / "lake"
    died = subprocess.run([sys.executable, "-c", SIGTERM_AFTER_A_TABLE, str(lake)], cwd=ROOT, check=False)
    assert died.returncode == -signal.SIGTERM
    assert len(list(lake.rglob("*.json"))) == 1
    assert run(log, lake) == 0
    complete(lake, history)


def commits_of_a_new_lake(lake: Path) -> list[Path]:
    """The files of the tables' logs in the order in which they are made, each with its path in the lake."""
    LakeWriter.create_or_open(str(lake), IDENTITY)
    commits = sorted(lake.rglob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    assert len(commits) > len(TABLES)
    return [path.relative_to(lake) for path in commits]


def test_lake_whose_making_stopped_after_any_commit_is_gone_on_from(tmp_path: Path) -> None:
    """What SIGTERM leaves: whole commits, perhaps an empty folder or the temporary file of the next one."""
    whole = tmp_path / "whole"
    commits = commits_of_a_new_lake(whole)
    for stopped, next_one in enumerate(commits):
        lake = tmp_path / str(stopped)
        for path in commits[:stopped]:
            (lake / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(whole / path, lake / path)
        (lake / next_one).parent.mkdir(parents=True, exist_ok=True)
        (lake / f"{next_one}#1").write_text("{")
        tables = LakeWriter.create_or_open(str(lake), IDENTITY).tables
        assert {name: table.version() for name, table in tables.items()} == {
            table.name: len(table.checks) for table in TABLES
        }


def test_new_lake_with_a_commit_that_is_cut_off_is_told_in_a_line_with_what_to_do(tmp_path: Path) -> None:
    """What a machine that loses power may leave."""
    whole = tmp_path / "whole"
    for number, path in enumerate(commits_of_a_new_lake(whole)):
        lake = shutil.copytree(whole, tmp_path / f"lake {number}")
        os.truncate(lake / path, (lake / path).stat().st_size // 2)
        with pytest.raises(UsageError, match=f"cannot be opened .*: delete '{lake}' and run again$") as refused:
            LakeWriter.create_or_open(str(lake), IDENTITY)
        assert str(refused.value).count("\n") == 0


def test_table_of_a_lake_with_records_that_cannot_be_opened_is_never_told_to_be_deleted(
    tmp_path: Path, log: Path
) -> None:
    assert run(log, tmp_path / "lake") == 0
    for name, advice in (
        ("brokers", "jbod rebuild recreates the tables"),
        ("ledger", "restore it from a backup, or replay"),
    ):
        lake = shutil.copytree(tmp_path / "lake", tmp_path / name)
        os.truncate(min((lake / name / "_delta_log").glob("*.json")), 20)
        with pytest.raises(UsageError, match=f"/{name}: cannot be opened .*: {advice}") as refused:
            LakeWriter.create_or_open(str(lake), IDENTITY)
        assert "delete" not in str(refused.value)


def test_checkpoint_of_half_a_first_plan_does_not_fit(tmp_path: Path) -> None:
    """Spark begins no batch 0 where anything lies: it once stopped for good, on a seed that a run had died upon."""
    lake = str(tmp_path)
    write_seed(lake, {0: b""}, Position(7))
    (tmp_path / "_checkpoint.new").rename(tmp_path / "_checkpoint")
    assert checkpoint_fits(lake, 7)
    (tmp_path / "_checkpoint" / "offsets").mkdir()
    assert checkpoint_fits(lake, 7)
    (tmp_path / "_checkpoint" / "offsets" / ".0.f0747070.tmp").touch()
    assert not checkpoint_fits(lake, 7)


def test_checkpoint_whose_states_have_another_version_does_not_fit(tmp_path: Path) -> None:
    """With other keys, shards would find no state, and begin again in mid-log."""
    written(tmp_path)
    assert checkpoint_fits(str(tmp_path), 300)
    next((tmp_path / CHECKPOINT).glob("version-*")).unlink()
    mark_version(str(tmp_path))
    assert not checkpoint_fits(str(tmp_path), 300)


def test_checkpoint_that_began_with_a_seed_which_is_gone_does_not_fit(tmp_path: Path) -> None:
    """Cause: shards to which nothing had happened since began empty, and the next replay blamed the log."""
    lake = str(tmp_path)
    write_seed(lake, {0: b"a", 1: b"b"}, Position(200))
    take_seed(lake)
    written(tmp_path)
    assert checkpoint_fits(lake, 300)
    shutil.rmtree(tmp_path / CHECKPOINT / "seed")
    assert not checkpoint_fits(lake, 300)


def test_checkpoint_of_a_lake_without_a_publication_is_not_resumed(tmp_path: Path, log: Path) -> None:
    """It may say that offsets were read which no table has: those of a lake whose tables were deleted."""
    runner = Runner(Replay(str(log), str(tmp_path / "lake")))
    written(tmp_path / "lake")
    (tmp_path / "lake" / OF_REQUESTS / "offsets").mkdir(parents=True)
    job = Job(runner.lake.path, 2, rules())
    reconcile(runner.lake, job, Planner(LogDir(str(log))), has_checkpoint=True)
    assert not (tmp_path / "lake" / CHECKPOINT).exists()
    assert not (tmp_path / "lake" / OF_REQUESTS).exists()


def written(lake: Path) -> dict[str, Path]:
    """A checkpoint as Spark leaves it after a batch, of a lake that ends at 300; what it needs, by name."""
    texts = {
        "metadata": '{"id":"0b1b"}',
        "offsets/0": 'v1\n{"batchTimestampMs":0}\n{"offset": 300}',
        "commits/0": "v1\n{}",
    }
    mark_version(str(lake))
    for name, text in texts.items():
        path = lake / CHECKPOINT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return {name: lake / CHECKPOINT / name for name in texts}


def test_checkpoint_with_a_file_that_is_cut_off_at_any_byte_fits_no_lake(tmp_path: Path) -> None:
    for name, path in written(tmp_path).items():
        assert checkpoint_fits(str(tmp_path), 300), name
        whole = path.read_bytes()
        for end in range(len(whole)):
            path.write_bytes(whole[:end])
            assert not checkpoint_fits(str(tmp_path), 300), (name, end)
            assert not is_readable(str(tmp_path), CHECKPOINT), (name, end)
        path.write_bytes(whole)


@pytest.mark.parametrize(("name", "fits"), [("metadata", False), ("offsets/0", False), ("commits/0", True)])
def test_checkpoint_without_one_of_its_logs_is_gone_on_from_where_spark_can(
    tmp_path: Path, name: str, fits: bool
) -> None:
    written(tmp_path)[name].unlink()
    assert checkpoint_fits(str(tmp_path), 300) == fits


def test_fault_of_a_disk_is_told_from_others() -> None:
    """As Spark, delta-rs and Arrow hand it on."""
    full = RuntimeError("[STREAM_FAILED] terminated with exception: java.io.IOException: No space left on device\n at")
    assert str(fault_of_disk("lake", full)).startswith("lake: No space left on device: make room and run again; ")
    assert fault_of_disk("lake", RuntimeError("Generic LocalFileSystem error: Read-only file system (os error 30)"))
    assert fault_of_disk("lake", OSError("connection refused")) is None
