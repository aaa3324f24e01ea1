"""``jbod replay`` on the command line, its queries in this process: what it says, and how it ends."""

from __future__ import annotations

import gzip
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jbod_model.errors import UsageError
from jbod_model.formats import records as r
from pipelines.cli import main, progress
from pipelines.java import find_java
from pipelines.run.options import Replay
from pipelines.run.runner import Runner
from pipelines.start.session import class_archive
from tests.support.paths import metadata_dir
from tests.support.tables import rows_of
from tests.support.volume import rare
from tests.unit.run.test_rollback import Batch, retained, write

LOG = "__cluster_metadata-0"
FIRST = f"{0:020d}.log"
NOOP = r.NoOpRecord()
SOON = "pipelines.spark.session.spark_session_soon"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command without Spark, for logs of any size are loaded: exit code, standard output, standard error."""
    session = SimpleNamespace(version="4.2.0")
    monkeypatch.setattr(SOON, lambda *_: lambda: session)
    monkeypatch.setattr("pipelines.spark.session.spark_session", lambda *_, **__: session)
    monkeypatch.setenv("JBOD_REPLAY__LOAD_BYTES", "1")

    def command(*words: Any) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main.main([str(word) for word in words])
        output = capsys.readouterr()
        return int(left.value.code or 0), output.out, output.err

    return command


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return write(tmp_path / "log", [(1, [NOOP])] * 6)


# WHERE IT BEGAN


def test_replay_that_began_with_a_snapshot_says_so(run: Run, tmp_path: Path, log_dir: Path) -> None:
    retained(log_dir, 50, 2, [(2, [NOOP]), (2, [NOOP])], [])
    code, out, _ = run("replay", log_dir, "--lake", tmp_path / "lake")
    assert code == 0
    assert f"{tmp_path / 'lake'}: began with the snapshot at offset 50\n" in out
    assert "replayed offsets 50 to 51" in out
    retained(log_dir, 80, 2, [(2, [NOOP])], [])
    code, out, _ = run("replay", log_dir, "--lake", tmp_path / "lake")
    assert "went on with the snapshot at offset 80: offsets 52 to 79 were never read" in out
    assert "replayed offsets 80 to 80" in out
    code, out, _ = run("replay", log_dir, "--lake", tmp_path / "another", "--json")
    answer = json.loads(out)
    assert (answer["start_offset"], answer["from_snapshot"], answer["end_offset"]) == (80, 80, 81)


# WHAT WAITS


def test_batch_that_is_cut_off_at_the_end_is_told(run: Run, tmp_path: Path, log_dir: Path) -> None:
    (path,) = (log_dir / LOG).glob("*.log")
    path.write_bytes(path.read_bytes()[:-5])
    line = f"jbod: {log_dir}: the log ends within a batch at offset 5: {path} has 67 bytes of it; it is read when"
    for _ in range(2):
        code, _, err = run("replay", log_dir, "--lake", tmp_path / "lake")
        assert (code, err.count(line)) == (0, 1)
    answer = json.loads(run("replay", log_dir, "--lake", tmp_path / "lake", "--json")[1])
    assert answer["tail"] == {"path": str(path), "size": 67, "offset": 5}
    assert len(answer["notices"]) == 1


def test_empty_segment_is_told(run: Run, tmp_path: Path, log_dir: Path) -> None:
    path = log_dir / LOG / f"{6:020d}.log"
    path.touch()
    code, out, err = run("replay", log_dir, "--lake", tmp_path / "lake")
    assert (code, err) == (0, f"jbod: {path}: is empty; it is read when it has records\n")
    assert "replayed offsets 0 to 5" in out


def test_transaction_that_has_not_ended_is_told(run: Run, tmp_path: Path, log_dir: Path) -> None:
    """What follows its begin was left out without a word."""
    write(log_dir, [(1, [NOOP]), (1, [r.BeginTransactionRecord()]), (1, [NOOP])])
    line = f"jbod: {log_dir}: the transaction at offset 1 has not ended: it is read, with all after it, when it ends\n"
    for _ in range(2):
        assert run("replay", log_dir, "--lake", tmp_path / "lake")[::2] == (0, line)
    assert run("status", log_dir)[::2] == (0, line)


# WHEN SPARK STARTS EARLY


@pytest.mark.parametrize(
    ("appended", "options", "starts"), [(False, (), 0), (True, (), 1), (False, ("--follow",), 1)], ids=str
)
def test_session_of_a_known_lake_starts_early_if_the_log_was_written_since_or_the_run_follows(
    run: Run,
    tmp_path: Path,
    log_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    appended: bool,
    options: tuple[str, ...],
    starts: int,
) -> None:
    assert run("replay", log_dir, "--lake", tmp_path / "lake")[0] == 0
    if appended:
        write(log_dir, [(1, [NOOP])] * 9)
    published = max(path.stat().st_mtime for path in (tmp_path / "lake" / "ledger" / "_delta_log").iterdir())
    for path in (log_dir / LOG).glob("*.log"):
        os.utime(path, (published, published + (5 if appended else -5)))
    monkeypatch.setenv("JBOD_REPLAY__LOAD_BYTES", "0")
    begun: list[str] = []

    def early(*_: object) -> Any:
        begun.append("session")
        return lambda: SimpleNamespace(version="4.2.0")

    def planned(runner: Runner) -> bool:
        # What starts from here on is not early.
        assert len(begun) == starts
        return True

    monkeypatch.setattr(SOON, early)
    monkeypatch.setattr(Runner, "up_to_date", planned)
    run("replay", log_dir, "--lake", tmp_path / "lake", *options)
    assert len(begun) == starts


def test_log_with_nothing_new_needs_no_java_even_if_it_was_copied_since(
    run: Run, tmp_path: Path, log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("replay", log_dir, "--lake", tmp_path / "lake")[0] == 0

    def no_java(*_: object) -> None:
        raise UsageError("no Java here")

    monkeypatch.setattr(SOON, no_java)
    monkeypatch.setenv("JBOD_REPLAY__LOAD_BYTES", "0")
    for path in (log_dir / LOG).glob("*.log"):
        os.utime(path, (path.stat().st_mtime, path.stat().st_mtime + 60))
    code, out, _ = run("replay", log_dir, "--lake", tmp_path / "lake")
    assert (code, "nothing new after offset 5\n" in out) == (0, True)


# WHAT IS LOADED WITHOUT SPARK


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that starts is an error."""
    monkeypatch.setattr(SOON, lambda *_: pytest.fail("Spark was started"))


@pytest.mark.usefixtures("no_spark")
def test_large_log_is_loaded_into_a_new_lake_without_spark(run: Run, tmp_path: Path, log_dir: Path) -> None:
    code, out, err = run("replay", log_dir, "--lake", tmp_path / "lake")
    assert (code, err) == (0, "")
    assert "replayed offsets 0 to 5" in out
    assert ", 1 batch\n" in out
    assert "nothing new" in run("replay", log_dir, "--lake", tmp_path / "lake")[1]


@pytest.mark.usefixtures("no_spark")
def test_decision_is_printed_with_its_reason(run: Run, tmp_path: Path, log_dir: Path) -> None:
    words = ("replay", log_dir, "--lake", tmp_path / "lake", "-v")
    assert "jbod: load: the log is large, and the lake is new\n" in run(*words)[2]
    assert "jbod: nothing new: the lake ends with the last batch of the log\n" in run(*words)[2]
    write(log_dir, [(1, [NOOP])] * 9)
    code, out, err = run(*words)
    assert "jbod: load: the log is large, and the lake was only loaded so far\n" in err
    assert (code, "replayed offsets 6 to 8" in out) == (0, True)


def test_decision_for_spark_is_printed_with_its_reason(
    run: Run, tmp_path: Path, log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("replay", log_dir, "--lake", tmp_path / "lake", "-v")
    run(*words)
    monkeypatch.setattr(Runner, "run", lambda *_: None)
    assert "jbod: Spark: the run follows the log\n" in run(*words, "--follow")[2]
    monkeypatch.setenv("JBOD_REPLAY__LOAD_BYTES", "0")
    assert "jbod: Spark: the lake is new\n" in run(*words[:3], tmp_path / "another", "-v")[2]
    write(log_dir, [(1, [NOOP])] * 9)
    (path,) = (log_dir / LOG).glob("*.log")
    os.utime(path, (0, 0))
    assert "jbod: Spark: the lake lacks records of the log, or its checkpoint\n" in run(*words)[2]
    os.utime(path, (path.stat().st_mtime, time.time() + 60))
    assert "jbod: Spark: the log was written after the last publication\n" in run(*words)[2]


@pytest.mark.usefixtures("no_spark")
def test_run_after_one_that_died_before_its_first_publication_loads_the_log(
    run: Run, tmp_path: Path, log_dir: Path
) -> None:
    """It found the folder of the ledger, and took the lake for one that Spark continues."""
    Runner(Replay(str(log_dir), str(tmp_path / "lake")))
    assert (tmp_path / "lake" / "ledger").is_dir()
    code, out, _ = run("replay", log_dir, "--lake", tmp_path / "lake")
    assert (code, "replayed offsets 0 to 5" in out) == (0, True)


@pytest.mark.usefixtures("no_spark")
def test_log_is_loaded_in_as_many_threads_as_sparks_master_runs_tasks(
    run: Run, tmp_path: Path, log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools: list[int] = []

    class Pool(ThreadPoolExecutor):
        def __init__(self, threads: int) -> None:
            pools.append(threads)
            super().__init__(threads)

    monkeypatch.setattr("pipelines.run.micro_batches.ThreadPoolExecutor", Pool)
    monkeypatch.setenv("JBOD_SPARK__MASTER", "local[3]")
    assert run("replay", log_dir, "--lake", tmp_path / "lake")[0] == 0
    assert pools == [3]


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("step", ["slices", rare("shards")])
def test_signal_in_a_load_ends_it_at_once_and_leaves_no_lake(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The folder of staged events stayed, and so did that of the lake."""
    monkeypatch.setattr("pipelines.run.stages.MANY", 1)

    def say(line: str) -> None:
        if line.startswith("loading batch 1: 1 of") and line.endswith(step):
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(progress, "say", say)
    code, _, err = run("replay", metadata_dir("kafka-4.1.2"), "--lake", tmp_path / "lake")
    assert code == 143
    assert "jbod: interrupted: nothing was published yet; run again to begin" in err
    assert not (tmp_path / "lake").exists()


@pytest.mark.usefixtures("no_spark")
def test_damage_of_a_log_that_is_loaded_is_told_and_what_precedes_it_is_stored(
    run: Run, tmp_path: Path, log_dir: Path
) -> None:
    path = log_dir / LOG / FIRST
    path.write_bytes(path.read_bytes()[:-3] + b"xyz")
    code, out, err = run("replay", log_dir, "--lake", tmp_path / "lake")
    assert (code, out) == (2, "")
    assert f"{path}: offset 5: CRC-32C" in err
    assert [row["log_offset"] for row in rows_of(tmp_path / "lake")["records"]] == [0, 1, 2, 3, 4]


@pytest.mark.usefixtures("no_spark")
def test_damaged_log_ends_a_replay_that_says_up_to_which_offset_its_lake_is_published(
    run: Run, tmp_path: Path, log_dir: Path
) -> None:
    """Cause: the only line named the damage, and nothing said what the lake holds now."""
    path, lake = log_dir / LOG / FIRST, tmp_path / "lake"
    path.write_bytes(path.read_bytes()[:-3] + b"xyz")
    for _ in range(2):  # the first run publishes, the second one nothing
        code, _, err = run("replay", log_dir, "--lake", lake)
        assert (code, len(err.splitlines())) == (2, 1)
        assert err.startswith(f"jbod: {path}: offset 5: CRC-32C")
        assert err.endswith(f": take the file from another controller; {lake} is published up to offset 4\n")
    write(log_dir, [(1, [NOOP])])
    path.write_bytes(path.read_bytes()[:-3] + b"xyz")
    code, _, err = run("replay", log_dir, "--lake", tmp_path / "other")
    assert (code, err.endswith(": take the file from another controller\n")) == (2, True)


@pytest.mark.usefixtures("no_spark")
def test_json_of_a_replay_of_a_damaged_log_has_what_was_published(run: Run, tmp_path: Path, log_dir: Path) -> None:
    """Cause: the error left before the report, so standard output was empty although part of the log was published."""
    path = log_dir / LOG / FIRST
    path.write_bytes(path.read_bytes()[:-3] + b"xyz")
    for start, batches in ((0, 1), (5, 0)):  # the first run publishes, the second one nothing
        code, out, err = run("replay", log_dir, "--lake", tmp_path / "lake", "--json")
        answer = json.loads(out)
        assert (code, answer["start_offset"], answer["end_offset"], answer["batches"]) == (2, start, 5, batches)
        assert bool(answer["rows"]) is bool(batches)
        assert [f"jbod: {line}\n" for line in answer["notices"]] == [err]
        assert not answer["interrupted"]


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"JBOD_REPLAY__LOAD_BYTES": "1000000"}, ()),
        ({"JBOD_REPLAY__LOAD_BYTES": "0"}, ()),
        ({"JBOD_REPLAY__LOAD_BYTES": "1", "JBOD_SPARK__MASTER": "spark://there:7077"}, ()),
        ({"JBOD_REPLAY__LOAD_BYTES": "1", "JBOD_SPARK__REMOTE": "sc://there:15002"}, ()),
        ({"JBOD_REPLAY__LOAD_BYTES": "1"}, ("--requests", "REQUESTS")),
    ],
    ids=["small", "never", "cluster", "connect", "requests"],
)
def test_spark_replays_a_log_that_is_small_or_is_for_a_cluster_or_has_requests(
    run: Run,
    tmp_path: Path,
    log_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    words: tuple[str, ...],
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(Runner, "load", lambda *_: pytest.fail("was loaded"))
    request_log = tmp_path / "requests.log"
    request_log.write_text(REQUEST)
    begun: list[Runner] = []
    monkeypatch.setattr(Runner, "run", lambda runner, _: begun.append(runner))
    run(
        "replay",
        log_dir,
        "--lake",
        tmp_path / "lake",
        *(str(request_log) if word == "REQUESTS" else word for word in words),
    )
    assert len(begun) == 1


def test_run_that_follows_starts_spark_after_the_load(
    run: Run, tmp_path: Path, log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JBOD_REPLAY__LOAD_BYTES", "1")
    ends: list[int] = []

    def soon(*_: object) -> Callable[[], object]:
        ends.append(rows_of(tmp_path / "lake")["records"][-1]["log_offset"])
        return lambda: SimpleNamespace(version="4.2.0")

    monkeypatch.setattr(SOON, soon)
    run("replay", log_dir, "--lake", tmp_path / "lake", "--follow")
    assert ends == [5]


# WHAT IS REFUSED BEFORE SPARK


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("name", ["it's 50% é?*#", *map(rare, ["a b", "q?x", "s*x", "50% full", "h#x", "it's", "é"])])
def test_lake_with_a_strange_name_is_written_continued_and_asked(
    run: Run, tmp_path: Path, log_dir: Path, name: str
) -> None:
    lake = tmp_path / name
    run("replay", log_dir, "--lake", lake)
    write(log_dir, [(1, [NOOP])] * 8)
    assert "replayed offsets 6 to 7" in run("replay", log_dir, "--lake", lake)[1]
    assert json.loads(run("status", "--lake", lake, "--json")[1])["offset"] == 7
    assert run("check", "--lake", lake)[0] in (0, 1)
    assert run("optimize", "--lake", lake)[0] == 0


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize(("name", "other"), [("a%20b", "a b"), rare("a\\b", "a/b")])
def test_lake_whose_path_delta_rs_reads_as_another_one_is_refused(
    run: Run, tmp_path: Path, log_dir: Path, name: str, other: str
) -> None:
    """Cause: delta-rs decodes a path twice. Where the other folder was a lake, its log was read and written."""
    run("replay", log_dir, "--lake", tmp_path / other)
    (tmp_path / "link").symlink_to(name)
    for lake in (tmp_path / name, tmp_path / "link"):
        code, out, err = run("replay", log_dir, "--lake", lake)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert f"{lake}: delta-rs takes the {name[1:-1]} in this path for another character" in err
        assert not (tmp_path / name).exists()
    (tmp_path / other).rename(tmp_path / name)
    code, _, err = run("offline", "--lake", tmp_path / name)
    assert (code, "delta-rs takes the" in err) == (2, True)


def test_folder_of_something_else_is_no_place_for_a_lake(
    run: Run, tmp_path: Path, log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "photos"
    lake.mkdir()
    for name in ("a.jpg", "b.jpg", "c.jpg", "d.jpg", ".hidden"):
        (lake / name).touch()
    monkeypatch.setattr(SOON, lambda *_: pytest.fail("Spark was started"))
    code, _, err = run("replay", log_dir, "--lake", lake)
    assert code == 2
    assert "is not a lake and is not empty: it holds a.jpg, b.jpg, c.jpg and 1 more: use another --lake" in err
    assert len(list(lake.iterdir())) == 5


REQUEST = "[2026-11-21 02:21:33,000] DEBUG Completed request:{} (kafka.request.logger)\n"


def text(log_dir: Path) -> None:
    (log_dir / LOG / FIRST).write_text("Once upon a time, there was a file of readable characters.\n" * 9)


def renamed(log_dir: Path) -> None:
    (log_dir / LOG / FIRST).rename(log_dir / LOG / f"{7:020d}.log")


def packed(log_dir: Path) -> None:
    content = (log_dir / LOG / FIRST).read_bytes()
    (log_dir / LOG / f"{FIRST}.gz").write_bytes(gzip.compress(content))
    (log_dir / LOG / FIRST).unlink()


def too_high(log_dir: Path) -> None:
    below = log_dir.rename(log_dir.parent / "moved")
    log_dir.mkdir()
    below.rename(log_dir / "node")


def topics(log_dir: Path) -> None:
    (log_dir / LOG).rename(log_dir / "orders-0")
    (log_dir / "orders-1").mkdir()


def empty(log_dir: Path) -> None:
    (log_dir / LOG / FIRST).unlink()


def others(log_dir: Path) -> None:
    (log_dir / LOG / FIRST).rename(log_dir / LOG / "x.log")


LOOKS: list[tuple[Callable[[Path], None], str]] = [
    (text, "starts no record batch: magic is 44, not 2 (the file is text)"),
    (renamed, "gap: the log begins at 7"),
    (packed, f"it holds packed files ({FIRST}.gz): unpack them first"),
    (too_high, "there is one in node: name that"),
    (topics, "it holds partitions of topics (orders-0, orders-1): name the metadata.log.dir of a controller"),
    (empty, "(__cluster_metadata-0/*.log): it is empty"),
    (others, "it holds x.log"),
]


@pytest.mark.parametrize(("change", "problem"), LOOKS)
def test_what_is_no_log_is_refused_by_its_first_bytes_and_said(
    run: Run,
    tmp_path: Path,
    log_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path], None],
    problem: str,
) -> None:
    change(log_dir)
    if change is not renamed:  # told when the first batch is planned
        monkeypatch.setattr(SOON, lambda *_: pytest.fail("Spark was started"))
    code, _, err = run("replay", log_dir, "--lake", tmp_path / "lake")
    assert code == 2
    assert problem in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"hello, world\n", "text"),
        (REQUEST.encode(), "a request log: that goes to --requests"),
        (gzip.compress(b"hello", mtime=0), "packed with gzip"),
        (b"", "empty"),
        (b"\xff\0" * 99, "neither a log nor text"),
        (None, "a segment or snapshot: name its directory"),
    ],
)
def test_file_given_as_a_log_is_told_for_what_it_is(
    run: Run, tmp_path: Path, log_dir: Path, content: bytes | None, what: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes((log_dir / LOG / FIRST).read_bytes() if content is None else content)
    code, _, err = run("replay", path, "--lake", tmp_path / "lake")
    assert (code, f"is a file ({what})" in err) == (2, True)


def test_index_given_as_a_log_is_told_for_what_it_is(run: Run, tmp_path: Path, log_dir: Path) -> None:
    """It was "neither a log nor text", or "empty"."""
    index = (log_dir / LOG / FIRST).with_suffix(".timeindex")
    for size in (0, 120):
        index.write_bytes(bytes(size))
        code, _, err = run("replay", index, "--lake", tmp_path / "lake")
        assert (code, "is a file (an index of a segment: name its directory)" in err) == (2, True)


def test_segment_given_as_a_request_log_is_refused(run: Run, tmp_path: Path, log_dir: Path) -> None:
    code, _, err = run("replay", log_dir, "--lake", tmp_path / "lake", "--requests", log_dir / LOG / FIRST)
    assert (code, "is a segment of a metadata log, not a request log" in err) == (2, True)
    assert not (tmp_path / "lake").exists()


def test_another_log_of_the_same_cluster_replaces_a_lake_only_on_request(
    run: Run, tmp_path: Path, log_dir: Path
) -> None:
    """R-READ-2."""
    lake = tmp_path / "lake"
    assert run("replay", log_dir, "--lake", lake)[0] == 0
    before = rows_of(lake)
    write(log_dir, [(1, [r.TopicRecord(name="t")])] * 2)
    code, _, err = run("replay", log_dir, "--lake", lake)
    assert code == 2
    assert "(log: offsets 0 to 1; lake: 0 to 5): use another --lake, or --replace-history" in err
    assert rows_of(lake) == before


def test_log_rewritten_below_the_end_of_a_lake_is_replayed_whatever_is_at_that_end(
    run: Run, tmp_path: Path, log_dir: Path
) -> None:
    """Every run refused an Abort, or damage, exactly at the end of the lake, before it compared lake and log."""
    lake, path = tmp_path / "lake", log_dir / LOG / FIRST
    begin, end, abort = r.BeginTransactionRecord(name="t"), r.EndTransactionRecord(), r.AbortTransactionRecord()
    common: list[Batch] = [(1, [NOOP])] * 3
    write(log_dir, [*common, (1, [begin]), (1, [end])])
    assert run("replay", log_dir, "--lake", lake)[0] == 0
    write(log_dir, [*common, (1, [begin]), (2, [NOOP]), (2, [abort])])
    code, out, err = run("replay", log_dir, "--lake", lake)
    assert (code, "replayed offsets 3 to 5" in out, "rolled back to offset 3" in err) == (0, True, True)
    write(log_dir, [*common, *[(3, [NOOP])] * 4])
    path.write_bytes(path.read_bytes()[:-3] + b"xyz")
    for _ in range(2):
        code, _, err = run("replay", log_dir, "--lake", lake)
        assert (code, f"{path}: offset 6: CRC-32C" in err) == (2, True)
        assert [row["epoch"] for row in rows_of(lake)["records"]] == [1] * 3 + [3] * 3


# SIGNALS


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signal_while_spark_starts_ends_the_run_and_leaves_no_lake(
    run: Run, tmp_path: Path, log_dir: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    def starting() -> None:
        os.kill(os.getpid(), number)
        time.sleep(9)

    monkeypatch.setenv("JBOD_REPLAY__LOAD_BYTES", "0")
    monkeypatch.setattr(SOON, lambda *_: starting)
    assert run("replay", log_dir, "--lake", tmp_path / "lake") == (
        code,
        "",
        "jbod: interrupted: nothing was published yet; run again to begin\n",
    )
    assert not (tmp_path / "lake").exists()


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize(
    ("batches", "outcome"), [(0, "nothing was published yet"), (2, "published up to offset 3; run")]
)
def test_signal_in_a_batch_ends_the_run_and_says_what_stands(
    run: Run,
    tmp_path: Path,
    log_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    code: int,
    batches: int,
    outcome: str,
) -> None:
    def say(line: str) -> None:
        if line.startswith(f"loading batch {batches + 1}: 1 of 1 slices"):
            os.kill(os.getpid(), number)

    monkeypatch.setattr(progress, "say", say)
    left, out, err = run("replay", log_dir, "--lake", tmp_path / "lake", "--max-records", 2, "--json")
    assert (left, f"jbod: interrupted: {outcome}" in err) == (code, True)
    assert json.loads(out)["interrupted"]
    assert (tmp_path / "lake").exists() == (batches > 0)


def test_signal_that_nohup_ignores_stays_ignored() -> None:
    """Cause: a question to a pipe or a quorum ended with the terminal, in spite of nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert set(progress.listened()) == {signal.SIGINT, signal.SIGTERM}
    finally:
        signal.signal(signal.SIGHUP, before)


def test_ctrl_c_in_another_command_is_said(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def rebuild(*_: Any, **__: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(9)

    monkeypatch.setattr("pipelines.upkeep.rebuild.rebuild", rebuild)
    assert run("rebuild", "--lake", tmp_path) == (130, "", "jbod: interrupted\n")


# PROGRESS


def test_long_work_says_something_again_and_again_where_nobody_watches(
    run: Run, tmp_path: Path, log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.05)
    monkeypatch.setenv("JBOD_REPLAY__LOAD_BYTES", "0")
    monkeypatch.setattr(SOON, lambda *_: lambda: time.sleep(0.5))
    _, _, err = run("replay", log_dir, "--lake", tmp_path / "lake")
    assert err.count("jbod replay: starting Spark, ") >= 3


def test_line_of_nothing_is_not_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.02)
    with progress.heartbeat("verify"):
        time.sleep(0.1)
        progress.say("")
        time.sleep(0.05)
        assert "jbod verify: at work, 0 s\n" in capsys.readouterr().err
        time.sleep(0.1)
        assert capsys.readouterr().err == ""
    with progress.heartbeat(""):
        progress.say("planning")
        time.sleep(0.1)
    assert capsys.readouterr().err == ""


def test_no_line_of_progress_follows_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that prints outlived its command, and printed what the next one said."""
    monkeypatch.setattr(progress, "EVERY", 0.001)
    before = threading.enumerate()
    for _ in range(20):
        with progress.heartbeat("verify"):
            time.sleep(0.003)
        assert threading.enumerate() == before


# JBOD WARM


LINE = "jbod: jbod warm, run once, makes every start of Spark on this machine faster"


def test_replay_on_a_machine_that_is_not_prepared_tells_of_jbod_warm_once(
    run: Run, tmp_path: Path, log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("JBOD_SPARK__MASTER", "spark://there:7077")
    assert LINE not in run("replay", log_dir, "--lake", tmp_path / "on-a-cluster")[2]
    monkeypatch.delenv("JBOD_SPARK__MASTER")
    assert run("replay", tmp_path / "nothing", "--lake", tmp_path / "other")[0] == 2
    code, _, err = run("replay", log_dir, "--lake", tmp_path / "lake")
    assert (code, err.splitlines()[-1]) == (0, LINE)
    assert LINE not in run("replay", log_dir, "--lake", tmp_path / "another")[2]


def test_replay_on_a_machine_that_is_prepared_does_not_tell_of_jbod_warm(
    run: Run, tmp_path: Path, log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    java = find_java()
    assert java is not None
    class_archive(java).parent.mkdir(parents=True)
    class_archive(java).touch()
    assert LINE not in run("replay", log_dir, "--lake", tmp_path / "lake")[2]
