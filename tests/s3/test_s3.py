"""A log and a lake on S3 do what they do on a disk, and say in one line what the storage does not allow."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from jbod_model.errors import JbodError, UsageError
from pipelines.ask import Lake
from pipelines.cli.main import main
from pipelines.lake import lock, written_lake
from pipelines.lake.ledger import HEAD
from pipelines.lake.publish import LakeWriter
from pipelines.lake.tables import Table
from pipelines.lake.uris import home_of
from pipelines.lake.written_lake import Identity
from pipelines.run.options import Replay
from pipelines.run.publisher import ForeachBatch
from pipelines.run.runner import Runner
from pipelines.storage import objects
from pipelines.upkeep.compact import optimize, vacuum
from pipelines.upkeep.rebuild import rebuild
from pipelines.upkeep.verify import verify
from tests.crash.loop import Killer, rewrite
from tests.s3.conftest import upload
from tests.s3.server import BUCKET, HAS_CONDITIONS, Proxy
from tests.support.connect_server import connect_server
from tests.support.logs import first_batches, segments
from tests.support.paths import ROOT, metadata_dir
from tests.support.tables import differences, rows_of

LOG = metadata_dir("kafka-4.1.2")
QUESTIONS = (
    "offline",
    "check --no-keep",
    "check",
    "risk",
    "incidents",
    "status",
    "directories",
    "history solo-6",
    "assignments",
    "moves",
    "quorum",
    "image",
    "offline --at-offset 200",
    "status --at-time 2026-11-21T02:22:00Z",
)


def replay(
    log: Path | str, lake: Path | str, progress: Callable[[str], None] | None = None, **options: object
) -> Runner:
    """A run in this process, as ``jbod replay`` makes it but without Spark."""
    runner = Runner(Replay(str(log), str(lake), **options), progress=progress)  # type: ignore[arg-type]
    runner.load()
    return runner


def output_of(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str, str]:
    """Exit code, standard output and standard error of a command in this process."""
    with pytest.raises(SystemExit) as left:
        main(words)
    out = capsys.readouterr()
    return left.value.code, out.out, out.err


def keys(lake: str) -> list[str]:
    return [str(s3_object["path"]) for s3_object in objects.listed(lake)]


@pytest.mark.parametrize("kafka", ["kafka-3.7.2", "kafka-3.9.2-upgrade", "kafka-4.1.2", "kafka-4.4.0"])
def test_tables_are_those_of_a_local_lake_row_for_row(kafka: str, lake: str, tmp_path: Path) -> None:
    log = upload(metadata_dir(kafka), f"s3://{BUCKET}/log-{kafka}")
    replay(log, lake, max_records=100)
    replay(metadata_dir(kafka), tmp_path / "lake", max_records=100)
    assert differences(rows_of(lake), rows_of(tmp_path / "lake")) == []
    assert not [key for key in keys(lake) if key.endswith("/")], "folders are no objects"


def test_every_question_answers_as_on_a_disk(
    lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], s3: Proxy
) -> None:
    disk = str(tmp_path / "lake")
    for place in (lake, disk):
        replay(LOG, place, max_records=200)
    for question in QUESTIONS:
        s3.forget()
        mine = output_of(capsys, *question.split(), "--json", "--lake", lake)
        listings = s3.kinds().get("LIST", 0)
        theirs = output_of(capsys, *question.split(), "--json", "--lake", disk)
        ages = ("published_time", "lake")
        assert _without(mine[1].replace(lake, disk), ages) == _without(theirs[1], ages), question
        assert mine[0] == theirs[0], question
        assert listings <= 25, (question, s3.kinds())
    log = upload(LOG, f"s3://{BUCKET}/log-asked")
    assert (
        output_of(capsys, "offline", "--json", "--log", log)[1]
        == output_of(capsys, "offline", "--json", "--log", str(LOG))[1]
    )


def _without(text: str, names: tuple[str, ...]) -> object:
    def clean(value: object) -> object:
        if isinstance(value, dict):
            return {name: clean(part) for name, part in value.items() if name not in names}
        return [clean(part) for part in value] if isinstance(value, list) else value

    text = re.sub(r"[0-9,]+ seconds", "some seconds", text)
    if text[:1] not in ("{", "["):
        return text
    try:
        return clean(json.loads(text))
    except ValueError:
        return [clean(json.loads(line)) for line in text.splitlines()]


def test_upkeep(lake: str, tmp_path: Path, s3: Proxy) -> None:
    replay(LOG, lake, max_records=60)
    before = rows_of(lake)
    optimize(lake)
    assert differences(rows_of(lake), before) == []
    assert not vacuum(lake, timedelta(0))[0].files, "files of the last day stay"
    rebuild(lake, say=lambda _: None)
    assert differences(rows_of(lake), before) == []
    assert verify(lake).differences == []
    replay(LOG, lake)
    assert differences(rows_of(lake), before) == []


def test_history_that_changed_is_taken_back(lake: str, tmp_path: Path) -> None:
    import random

    log = segments(metadata_dir("kafka-3.7.2"), tmp_path / "log")
    rewritten = segments(metadata_dir("kafka-3.7.2"), tmp_path / "rewritten")
    rewrite(rewritten, random.Random(3))
    for place in (lake, str(tmp_path / "lake")):
        replay(log, place, max_records=100)
        assert replay(rewritten, place).outcome.rolled_back
    assert differences(rows_of(lake), rows_of(tmp_path / "lake")) == []


def test_a_checkpoint_of_another_machine_is_not_resumed(lake: str, tmp_path: Path, s3: Proxy) -> None:
    """Two machines, each with its own cache, publish in turn."""
    log = tmp_path / "log"
    segments(metadata_dir("kafka-3.7.2"), log)
    mine = replay(log, lake, max_records=100)
    from pipelines.run.seed import is_stamped

    assert is_stamped(mine.lake)
    optimize(lake)
    other = LakeWriter.create_or_open(lake, mine.lake.identity)
    assert not is_stamped(other)


# -- requests are the bill --------------------------------------------------------------------------------------------


def test_a_replay_with_nothing_new_makes_at_most_20_requests(
    lake: str, s3: Proxy, capsys: pytest.CaptureFixture[str]
) -> None:
    log = upload(LOG, f"s3://{BUCKET}/log-nothing")
    replay(log, lake, max_records=60)
    for _ in range(2):
        s3.forget()
        main_code, out, err = output_of(capsys, "replay", log, "--lake", lake)
        assert (main_code or 0) == 0, err
        assert "nothing new after offset 629\n" in out
        assert len(s3.log) <= 20, s3.log
        print(f"requests of a replay with nothing new: {len(s3.log)}")
        optimize(lake)


def test_a_run_that_follows_publishes_with_at_most_160_requests(
    lake: str, s3: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    publish = ForeachBatch.publish_reports

    def count(self: ForeachBatch, *arguments: object) -> None:
        s3.forget()
        publish(self, *arguments)  # type: ignore[arg-type]
        counted.append(len(s3.log))

    monkeypatch.setattr(ForeachBatch, "publish_reports", count)
    replay(LOG, lake, max_records=10)
    assert len(counted) > 40
    print(f"requests of a publication of 10 records: {sum(counted) / len(counted):.0f}, at most {max(counted)}")
    assert max(counted) <= 160, counted


def in_a_fresh_process(s3: Proxy, code: str) -> int:
    """Runs Python in a process of its own. Returns the number of its requests."""
    s3.forget()
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return len(s3.log)


def small_log(folder: Path) -> tuple[Path, bytes]:
    """A log of 103 records. Returns its segment and a longer one, whose 25 more records change four tables."""
    log = segments(LOG, folder, most=1)
    (segment,) = (log / "__cluster_metadata-0").glob("*.log")
    content = segment.read_bytes()
    segment.write_bytes(first_batches(content, 103))
    return segment, content


def test_a_fresh_process_opens_a_lake_with_few_requests(lake: str, s3: Proxy, tmp_path: Path) -> None:
    replay(LOG, lake, max_records=20)
    requests = in_a_fresh_process(s3, f"from pipelines.ask import Lake; Lake.open({lake!r})")
    assert requests <= 40, s3.log
    held = f"from pipelines.lake.publish import LakeWriter\nwith LakeWriter.held({lake!r}): pass"
    opened = in_a_fresh_process(s3, held)
    # Each table is asked for a newer commit; the lock is taken and given back.
    assert opened <= 60, s3.log
    print(f"requests of a fresh process: {requests} to ask, {opened} to open to write")


def test_a_small_publication_by_a_fresh_process_makes_at_most_160_requests(
    lake: str, s3: Proxy, tmp_path: Path
) -> None:
    segment, longer = small_log(tmp_path / "log")
    replay(tmp_path / "log", lake, max_records=10)
    segment.write_bytes(longer)
    code = f"import tests.s3.test_s3 as t; t.replay({str(tmp_path / 'log')!r}, {lake!r})"
    published = in_a_fresh_process(s3, code)
    assert published <= 160, s3.log
    print(f"requests of a small publication by a fresh process: {published}")
    replay(tmp_path / "log", tmp_path / "lake")
    assert differences(rows_of(lake), rows_of(tmp_path / "lake")) == []


@pytest.mark.spark
def test_a_small_publication_makes_at_most_160_requests_with_the_log_on_s3_too(
    lake: str, s3: Proxy, tmp_path: Path
) -> None:
    segment, longer = small_log(tmp_path / "log")
    log = upload(tmp_path / "log", f"s3://{BUCKET}/log-small")
    jbod(lake, "replay", log, "--max-records", "60")
    objects.put(f"{log}/__cluster_metadata-0/{segment.name}", longer)
    s3.forget()
    assert ", 1 batch\n" in jbod(lake, "replay", log)
    # A slow run renews its leases: they are taken and given back otherwise, the lock twice.
    puts = Counter(path.rpartition("/")[2] for method, path in s3.log if method == "PUT")
    renewals = max(puts[lock.RUN] - 2, 0) + max(puts[lock.LOCK] - 4, 0)
    of_log = [path for _, path in s3.log if "log-small" in path]
    assert len(s3.log) - renewals <= 160, s3.log
    assert len(of_log) <= 12, of_log
    print(
        f"requests of a small publication: {len(s3.log)}, of which {len(of_log)} read the log, {renewals} renew leases"
    )


def jbod(lake: str, *words: str) -> str:
    """Standard output of a command in a process of its own."""
    command = [str(Path(sys.executable).with_name("jbod")), *words, "--lake", lake]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("harm", ["gone", "cut", "old"])
def test_a_head_that_is_gone_damaged_or_old_changes_no_answer(lake: str, tmp_path: Path, harm: str) -> None:
    replay(LOG, lake, max_records=300)
    old = objects.get(f"{lake}/{HEAD}")
    replay(LOG, lake, max_records=60)
    optimize(lake)
    if harm == "gone":
        objects.delete([f"{lake}/{HEAD}"])
    elif harm == "cut":
        objects.put(f"{lake}/{HEAD}", old[: len(old) // 2])
    else:
        objects.put(f"{lake}/{HEAD}", old)
    replay(LOG, tmp_path / "lake")
    assert differences(rows_of(lake), rows_of(tmp_path / "lake")) == []
    assert replay(LOG, lake).outcome.batches == 0


def test_a_lake_that_was_made_again_is_not_answered_from_the_one_before(lake: str, tmp_path: Path) -> None:
    """A process that serves a lake goes on; commits of another lake have the same names."""
    replay(metadata_dir("kafka-3.7.2"), lake, max_records=100)
    assert Lake.open(lake).offset != 629
    objects.delete([f"s3://{BUCKET}/{key}" for key in keys(lake)])
    replay(LOG, lake, max_records=100)
    assert Lake.open(lake).offset == 629
    replay(LOG, tmp_path / "lake")
    assert differences(rows_of(lake), rows_of(tmp_path / "lake")) == []


# -- the lock ---------------------------------------------------------------------------------------------------------


def test_a_second_run_is_refused_in_one_line_that_names_the_first(
    lake: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    replay(LOG, lake, max_records=400)
    monkeypatch.setattr(lock, "BEAT", 0.2)
    monkeypatch.setattr(lock, "LEASE", 30.0)
    first = lock.Lease(f"{lake}/{lock.RUN}")
    first.acquire(0)
    began = time.monotonic()
    second = rf"process {os.getpid()} of \w+ on .* a jbod replay runs on this lake"
    with pytest.raises(UsageError, match=second), lock.only_run(lake):
        pass
    assert time.monotonic() - began < 10, "the first renewal shows that the owner lives"
    first.release()
    with lock.only_run(lake):
        pass


def test_a_run_that_died_elsewhere_loses_its_lease(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "LEASE", 1.5)
    monkeypatch.setattr(lock, "BEAT", 0.3)
    dead = lock.Lease(f"{lake}/{lock.RUN}")
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(lock, "_machine", lambda: "another")
        dead.acquire(0)
        assert dead._end is not None
        dead._end.set()
    began = time.monotonic()
    with lock.only_run(lake):
        assert time.monotonic() - began >= 1.5
        with pytest.raises(lock.Lost, match="could not renew its lease"):
            dead.check()
        dead.release()
        content, _ = objects.get_tagged(f"{lake}/{lock.RUN}")
        assert json.loads(content)["held"], "who lost a lease does not free it"


def test_a_run_that_died_here_loses_its_lease_at_once(lake: str, s3: Proxy) -> None:
    code = (
        "import sys, time; from pipelines.lake.lock import Lease; "
        f"Lease('{lake}/_run').acquire(0); print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "held\n"
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    began = time.monotonic()
    with lock.only_run(lake):
        assert time.monotonic() - began < 5


def test_an_owner_that_slept_too_long_writes_nothing(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = replay(LOG, lake, max_records=400)
    writer = LakeWriter.create_or_open(lake, runner.lake.identity)
    with lock.alone(lake):
        held, _ = lock._leases[f"{lake}/{lock.LOCK}"]
        monkeypatch.setattr(held, "_renewed", time.monotonic() - lock.LEASE - 1)
        before = keys(f"{lake}/ledger/_delta_log")
        with pytest.raises(lock.Lost):
            writer.publish_rewritten()
        assert keys(f"{lake}/ledger/_delta_log") == before


def test_two_runs_at_once_end_in_the_tables_of_one(lake: str, tmp_path: Path, s3: Proxy) -> None:
    command = [sys.executable, "-c", f"import tests.s3.test_s3 as t; t.replay({str(LOG)!r}, {lake!r}, max_records=60)"]
    both = [subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    errors = [run.communicate(timeout=200)[1] for run in both]
    codes = sorted(run.returncode for run in both)
    assert codes[0] == 0, errors
    if codes[1]:
        assert any("jbod replay runs on this lake" in error or "Overtaken" in error for error in errors), errors
    replay(LOG, tmp_path / "lake")
    assert differences(rows_of(lake), rows_of(tmp_path / "lake")) == []


def test_another_writer_without_the_lock_is_not_overwritten(lake: str) -> None:
    """Delta's conditional put refuses the second of two commits, whoever holds the lock."""
    runner = replay(LOG, lake, max_records=400)
    mine, theirs = (LakeWriter.create_or_open(lake, runner.lake.identity) for _ in range(2))
    theirs.publish_rewritten()
    with pytest.raises(JbodError, match="something else wrote at the same time"):
        mine.publish_rewritten()


# -- what the storage does not allow ----------------------------------------------------------------------------------


def test_a_storage_that_is_overloaded_for_a_while_is_waited_for(lake: str, s3: Proxy, tmp_path: Path) -> None:
    import threading

    def fail() -> None:
        for _ in range(3):
            time.sleep(1.0)
            s3.failing = True
            time.sleep(1.5)
            s3.failing = False

    failing = threading.Thread(target=fail)
    failing.start()
    try:
        replay(LOG, lake, max_records=30)
    finally:
        failing.join()
    replay(LOG, tmp_path / "lake")
    assert differences(rows_of(lake), rows_of(tmp_path / "lake")) == []


Failing = Callable[[pytest.MonkeyPatch, Proxy], None]


def _keys(patch: pytest.MonkeyPatch, _: Proxy) -> None:
    patch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")


def _overloaded(patch: pytest.MonkeyPatch, s3: Proxy) -> None:
    patch.setattr(s3, "failing", True)


def _gone(patch: pytest.MonkeyPatch, _: Proxy) -> None:
    patch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("fail", "code", "line"),
    [
        (_keys, 2, "the storage does not accept the credentials: check AWS_ACCESS_KEY_ID"),
        (_overloaded, 3, "the storage is overloaded or fails"),
        (_gone, 3, "the storage does not answer"),
    ],
)
def test_each_command_says_in_one_line_what_the_storage_refuses(
    fail: Failing,
    code: int,
    line: str,
    lake: str,
    s3: Proxy,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = upload(LOG, f"s3://{BUCKET}/log-refused")
    replay(LOG, lake, max_records=400)
    with monkeypatch.context() as patch:
        patch.setattr(objects, "PATIENCE", 1)
        patch.setattr(objects, "RETRIES", 2)
        objects.forget_stores()
        fail(patch, s3)
        for words in (
            ("offline", "--lake", lake),
            ("check", "--lake", lake),
            ("optimize", "--lake", lake),
            ("vacuum", "--lake", lake),
            ("verify", "--lake", lake),
            ("rebuild", "--lake", lake),
            ("replay", str(LOG), "--lake", lake),
            ("replay", log, "--lake", lake),
            ("offline", "--log", log),
        ):
            exit_code, _, err = output_of(capsys, *words)
            assert (exit_code, line in err, len(err.splitlines())) == (code, True, 1), (words, exit_code, err)
    objects.forget_stores()


def test_a_bucket_that_is_not_there(s3: Proxy, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        ("offline", "--lake", "s3://nobody/lake"),
        ("replay", str(LOG), "--lake", "s3://nobody/lake"),
        ("offline", "--log", "s3://nobody/log"),
        ("optimize", "--lake", "s3://nobody/lake"),
    ):
        code, _, err = output_of(capsys, *words)
        assert code == 2
        assert "s3://nobody/l" in err and "there is no such bucket" in err
        assert len(err.splitlines()) == 1, err


def test_a_lake_or_log_that_is_not_there(s3: Proxy, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no lake there" in output_of(capsys, "offline", "--lake", f"s3://{BUCKET}/nothing")[2]
    assert "no such directory" in output_of(capsys, "offline", "--log", f"s3://{BUCKET}/nothing")[2]
    assert "BUCKET/PREFIX" in output_of(capsys, "offline", "--lake", f"s3://{BUCKET}/l?endpoint_override=x")[2]
    objects.put(f"s3://{BUCKET}/other/letter.txt", b"x")
    code, _, err = output_of(capsys, "replay", str(LOG), "--lake", f"s3://{BUCKET}/other")
    assert code == 2
    assert "is not a lake and is not empty: it holds letter.txt" in err


@pytest.mark.parametrize("kafka", ["kafka-3.7.2", "kafka-4.1.2"])
def test_a_log_on_s3_is_read_into_a_lake_on_a_disk(kafka: str, s3: Proxy, tmp_path: Path) -> None:
    log = upload(metadata_dir(kafka), f"s3://{BUCKET}/log-{kafka}-alone")
    replay(log, tmp_path / "lake", max_records=200)
    replay(metadata_dir(kafka), tmp_path / "other")
    assert differences(rows_of(tmp_path / "lake"), rows_of(tmp_path / "other")) == []


def test_a_question_to_a_log_on_s3(s3: Proxy, capsys: pytest.CaptureFixture[str]) -> None:
    log = upload(LOG, f"s3://{BUCKET}/log-alone")
    for words in (("offline", "--at-offset", "200"), ("directories",), ("status",)):
        assert output_of(capsys, *words, "--json", "--log", log)[0] in (0, 1), words
    assert (
        output_of(capsys, "offline", "--json", "--log", log)[1]
        == output_of(capsys, "offline", "--json", "--log", str(LOG))[1]
    )


def test_a_server_that_ignores_conditions_is_refused(s3: Proxy) -> None:
    lake = f"s3://{BUCKET}/tried"
    if HAS_CONDITIONS:
        replay(LOG, lake)
        return
    with pytest.raises(UsageError, match="neither a lock nor Delta's commits are safe on it"):
        replay(LOG, lake)


def test_a_storage_without_conditional_puts_is_refused(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put = objects.put
    monkeypatch.setattr(objects, "put", lambda location, content, *, only=None: put(location, content))
    with pytest.raises(UsageError, match="neither a lock nor Delta's commits are safe on it"):
        LakeWriter.create_or_open(lake, Identity("", "kafka", "kafka", 2))


def test_the_first_error_is_told_not_that_of_the_clean_up(
    lake: str, s3: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first run removes the lake that it made; here the storage fails then, too."""

    def fail(line: str) -> None:
        if line.startswith("loading"):
            monkeypatch.setattr(s3, "failing", True)
            raise JbodError("the cause")

    monkeypatch.setattr(objects, "PATIENCE", 1)
    monkeypatch.setattr(objects, "RETRIES", 1)
    objects.forget_stores()
    with pytest.raises(JbodError, match="the cause"):
        replay(LOG, lake, fail)
    monkeypatch.undo()
    objects.forget_stores()
    replay(LOG, lake)


def test_a_first_run_that_fails_leaves_no_lake(lake: str) -> None:
    def fail(line: str) -> None:
        if line.startswith("loading"):
            raise JbodError("the cause")

    with pytest.raises(JbodError, match="the cause"):
        replay(LOG, lake, fail)
    assert {key.rpartition("/")[2] for key in keys(lake)} == {"_lock", "_run"}


def test_constraints_that_a_dead_run_left_out_are_added(
    lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(_delta: object, table: Table) -> None:
        if table.checks:
            raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(written_lake, "add_checks", dies)
        with pytest.raises(RuntimeError, match="killed"):
            replay(LOG, lake)
    replay(LOG, lake)
    replay(LOG, tmp_path / "lake")
    assert differences(rows_of(lake), rows_of(tmp_path / "lake")) == []


# -- crashes, and Spark -----------------------------------------------------------------------------------------------


def test_killed_runs(lake: str, s3: Proxy, tmp_path: Path) -> None:
    """``python -m tests.s3.crash`` kills 60."""
    kills = int(os.environ.get("S3_KILLS", "8"))
    killer = Killer(metadata_dir("kafka-3.7.2"), tmp_path, 5, spark=False, lakes=f"{lake}-killed")
    counts = killer.run(kills)
    assert counts.kills == kills
    assert counts.compared


@pytest.mark.spark
def test_a_replay_on_spark_follows_a_log_on_s3(lake: str, s3: Proxy, tmp_path: Path) -> None:
    whole = segments(metadata_dir("kafka-3.7.2"), tmp_path / "whole")
    files = sorted((whole / "__cluster_metadata-0").glob("*.log"))
    log = f"s3://{BUCKET}/log-followed"
    for name in ("meta.properties", f"__cluster_metadata-0/{files[0].name}"):
        objects.put(f"{log}/{name}", (whole / name).read_bytes())
    command = [str(Path(sys.executable).with_name("jbod")), "replay", log, "--lake", lake, "--follow"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as run:
        try:
            _until(lambda: bool(objects.exists_below(f"{lake}/ledger/_delta_log")), 200)
            for path in files[1:]:
                objects.put(f"{log}/__cluster_metadata-0/{path.name}", path.read_bytes())
            replay(whole, tmp_path / "lake")
            _until(lambda: _ends(lake) == _ends(str(tmp_path / "lake")), 200)
        finally:
            run.send_signal(signal.SIGINT)
            _, err = run.communicate(timeout=60)
    assert run.returncode == 0, err
    assert differences(rows_of(lake), rows_of(tmp_path / "lake")) == []
    assert Path(home_of(lake), "_checkpoint", "offsets").is_dir()
    assert not objects.exists_below(f"{lake}/_checkpoint")


@pytest.mark.spark
def test_a_replay_through_spark_connect_publishes_on_s3(
    lake: str, s3: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server commits, and the client learns of it from the ledger. Both reach the folder of the checkpoints."""
    kafka = metadata_dir("kafka-3.7.2")
    log = upload(kafka, f"s3://{BUCKET}/log-connect")
    with connect_server(tmp_path) as remote:
        monkeypatch.setenv("JBOD_SPARK__REMOTE", remote)
        monkeypatch.setenv("JBOD_REPLAY__CHECKPOINTS", str(tmp_path / "checkpoints"))
        reports = [json.loads(jbod(lake, "replay", log, "--max-records", "400", "--json")) for _ in (1, 2)]
    assert reports[0]["batches"] == 2
    assert (reports[1]["batches"], reports[1]["end_offset"]) == (0, reports[0]["end_offset"])
    replay(kafka, tmp_path / "lake")
    assert differences(rows_of(lake), rows_of(tmp_path / "lake")) == []


def _ends(lake: str) -> int:
    try:
        return Lake.open(lake).offset
    except UsageError:
        return -2


def _until(holds: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.5)
