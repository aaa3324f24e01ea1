"""Questions to all lakes of a fleet, and their metrics."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from errno import ENOSPC
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from jbod_model.formats import records as r
from pipelines.cli.main import application
from pipelines.fleet.answers import (
    CLEAN,
    QUESTIONS,
    STALE,
    STALE_AFTER,
    UNREACHABLE,
    WRONG,
    FleetAnswer,
    Patience,
    ask_all,
    fleet_page,
)
from pipelines.fleet.clusters import FleetCluster, read_fleet
from pipelines.fleet.metrics import FleetMeasured
from pipelines.lake.directory_sizes import keep_sizes
from pipelines.lake.reader import Lake
from pipelines.metrics.serve import Measured
from pipelines.storage import objects
from tests.support import local
from tests.support.lakes import write_lake
from tests.support.logs import read_log
from tests.support.paths import metadata_dir
from tests.support.volume import rare
from tests.unit.check.story import Story
from tests.unit.fold.histories import log_of
from tests.unit.fold.test_fold_histories import BROKER, CREATED

ENDS = {"broken": 630, "fine": 40, "gone": 40, "worse": 600}
"""How many records of the log each lake has."""


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("fleet")
    records = read_log(metadata_dir("kafka-4.1.2"), "log")
    for name, end in ENDS.items():
        write_lake(root / name, records[:end])
    (root / "fleet.yaml").write_text(
        "clusters:\n" + "".join(f"- {{name: {name}, log: logs/{name}, lake: {name}}}\n" for name in ENDS)
    )
    rmtree(root / "gone")
    return root


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def clusters(lakes: Path, *names: str) -> list[FleetCluster]:
    return [cluster for cluster in read_fleet(lakes / "fleet.yaml") if cluster.name in names]


def jbod(*words: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(application(["fleet"]), ["fleet", *map(str, words)])
    return done.exit_code, done.stdout


@pytest.mark.parametrize("question", QUESTIONS)
def test_question_answers_for_every_lake_at_its_newest_record(lakes: Path, question: str) -> None:
    (named,) = clusters(lakes, "broken")
    lake = Lake.open(named.lake)
    (answer,) = ask_all(question, [named], now=lake.time)
    counts, line = QUESTIONS[question](lake, named.settings)
    assert (answer.offset, answer.time, answer.counts, answer.line) == (lake.offset, lake.time, counts, line)
    assert answer.state == (WRONG if any(counts.values()) else CLEAN)
    assert (answer.todo == "") == (answer.state == CLEAN)


def test_states_are_ordered_from_unreachable_to_clean(lakes: Path) -> None:
    now = Lake.open(lakes / "broken").time
    answers = [*ask_all("offline", clusters(lakes, *ENDS), now=now)]
    states = {answer.name: answer.state for answer in answers}
    assert states["gone"] == UNREACHABLE
    assert states["broken"] == WRONG
    ordered = sorted(answers, key=lambda answer: answer.badness)
    assert [answer.state for answer in ordered] == sorted(states.values(), key=(UNREACHABLE, STALE, WRONG, CLEAN).index)
    (late,) = ask_all("offline", clusters(lakes, "broken"), now=now + STALE_AFTER + timedelta(seconds=1))
    assert (late.state, late.counts) == (
        STALE,
        next(cluster_answer.counts for cluster_answer in answers if cluster_answer.name == "broken"),
    )
    assert late.todo.startswith("jbod replay ")


def test_cluster_whose_newest_record_is_far_in_the_future_is_stale(lakes: Path) -> None:
    """Cause: it looked fresh until the clock had passed that record, though nothing was replayed any more."""
    now = Lake.open(lakes / "broken").time - STALE_AFTER
    ages = (timedelta(), timedelta(seconds=1))
    answers = [answer for age in ages for answer in ask_all("offline", clusters(lakes, "broken"), now=now - age)]
    assert [answer.state for answer in answers] == [WRONG, STALE]


def test_answer_is_kept_until_the_ledger_has_another_version(
    lakes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = read_log(metadata_dir("kafka-4.1.2"), "log")
    write_lake(tmp_path / "lake", records[:300])
    (named,) = clusters(lakes, "fine")
    mine = replace(named, name="mine", settings=type(named.settings)(lake=str(tmp_path / "lake")))
    (first,) = ask_all("status", [mine])
    questions: list[Any] = []
    monkeypatch.setitem(QUESTIONS, "status", lambda *given: questions.append(given) or ({}, ""))  # type: ignore[func-returns-value]
    assert [*ask_all("status", [mine])] == [first]
    assert questions == []
    rmtree(tmp_path / "lake")
    write_lake(tmp_path / "lake", records[:300], records[300:400])
    list(ask_all("status", [mine]))
    assert len(questions) == 1


@pytest.mark.parametrize("question", [rare("status"), "offline", rare("risk"), rare("check")])
@pytest.mark.parametrize("name", ["NoOpRecord", "ConfigRecord"])
def test_answer_is_kept_while_only_records_come_that_change_nothing(
    lakes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, question: str, name: str
) -> None:
    """Of a live cluster a NoOpRecord comes every half second. Checks look at ages, too."""
    log, lake = tmp_path / "log", tmp_path / "lake"
    log.mkdir()
    config = r.ConfigRecord(resource_type=2, resource_name="t", name="min.insync.replicas", value="3")
    record = r.NoOpRecord() if name == "NoOpRecord" else config
    local.replay(log_of(log, BROKER, *CREATED), lake)
    (named,) = clusters(lakes, "fine")
    mine = replace(named, name="mine", settings=type(named.settings)(lake=str(lake)))
    (first,) = ask_all(question, [mine])
    local.replay(log_of(log, BROKER, *CREATED, record, r.NoOpRecord()), lake)
    questions, ask = [], QUESTIONS[question]

    def counted(*given: Any) -> Any:
        questions.append(given)
        return ask(*given)

    monkeypatch.setitem(QUESTIONS, question, counted)
    (second,) = ask_all(question, [mine])
    assert (first.offset, second.offset) == (2, 4)
    assert second.time == Lake.open(lake).time != first.time
    assert bool(questions) == (record is config or question == "check")
    rmtree(tmp_path / "jbod")
    assert [*ask_all(question, [mine])] == [second]


def test_answer_that_finds_no_room_in_the_cache_leaves_no_file_there(
    lakes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cause: with a full disk, each question left an empty file for each lake, for ever."""

    def write_text(path: Path, *_: object, **__: object) -> int:
        path.touch()
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", write_text)
    assert [answer.state for answer in ask_all("offline", clusters(lakes, "broken"))] == [STALE]
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_check_is_answered_anew_once_the_lake_keeps_other_sizes(lakes: Path, tmp_path: Path) -> None:
    """A disk was full, and the answer of before was given: clean."""
    story = Story().broker(1, "abc")
    lake = story.lake(tmp_path / "lake")
    (named,) = clusters(lakes, "fine")
    mine = replace(named, name="mine", settings=type(named.settings)(lake=str(lake.path)))
    (before,) = ask_all("check", [mine], now=lake.time)
    keep_sizes(lake, story.sized(1, a=(50, 100, 50)).sizes)
    (roomy,) = ask_all("check", [mine], now=lake.time)
    story.time += 1
    keep_sizes(lake, story.sized(1, a=(50, 100, 1)).sizes)
    (full,) = ask_all("check", [mine], now=lake.time)
    assert "B-38" not in before.line + roomy.line
    assert (full.state, full.line[:4]) == (WRONG, "B-38")


@pytest.mark.parametrize("more", [0, rare(2)])
def test_lake_that_was_restored_and_goes_on_with_another_log_is_answered_anew(
    lakes: Path, tmp_path: Path, more: int
) -> None:
    """It has the same id and the same version: the answer of before the restore was given."""
    lake, backup, logs = tmp_path / "lake", tmp_path / "backup", [tmp_path / "log", tmp_path / "other"]
    (named,) = clusters(lakes, "fine")
    mine = replace(named, name="mine", settings=type(named.settings)(lake=str(lake)))
    for log in logs:
        log.mkdir()
        log_of(log, BROKER, *CREATED)
    local.replay(logs[0], lake)
    copytree(lake, backup)
    local.replay(log_of(logs[0], BROKER, *CREATED, r.NoOpRecord(), r.NoOpRecord()), lake)
    (before,) = ask_all("offline", [mine])
    rmtree(lake)
    copytree(backup, lake)
    local.replay(log_of(logs[1], BROKER, *CREATED, r.NoOpRecord(), *[r.NoOpRecord()] * more), lake)
    (after,) = ask_all("offline", [mine])
    assert (before.offset, after.offset) == (4, 3 + more)


def test_lake_that_hangs_is_unreachable_after_some_time(lakes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a dead mount: no call returns."""
    answers = threading.Event()
    monkeypatch.setattr("pipelines.fleet.answers.PATIENCE", 0.2)
    monkeypatch.setitem(QUESTIONS, "status", lambda *_: ({}, str(answers.wait(30))))
    (answer,) = ask_all("status", clusters(lakes, "broken"))
    answers.set()
    assert (answer.state, answer.line) == (UNREACHABLE, f"{lakes / 'broken'}: no answer in 0 s: does its storage hang?")


def test_command_lists_the_worst_first_and_what_to_do(lakes: Path) -> None:
    code, out = jbod("status", lakes / "fleet.yaml")
    first, _, heading, worst, *_ = out.splitlines()
    assert code == 2
    assert first == "4 clusters: 1 unreachable, 3 stale."
    assert heading.split() == ["CLUSTER", "STATE", "NEWEST", "RECORD", "WHAT"]
    assert worst.startswith("gone ")
    code, out = jbod("check", lakes / "fleet.yaml", "--json")
    answer = json.loads(out)
    assert (code, answer["states"]) == (2, {"unreachable": 1, "stale": 3})
    assert [cluster["state"] for cluster in answer["clusters"]] == ["unreachable", "stale", "stale", "stale"]
    assert answer["clusters"][0]["name"] == "gone"


def test_lakes_that_were_never_made_are_said_with_the_command_that_makes_all_of_them(tmp_path: Path) -> None:
    """Cause: it advised ``jbod status`` of each lake, which could only say again that there is none."""
    file = tmp_path / "fleet.yaml"
    file.write_text("clusters:\n- {name: one, log: logs/one, lake: one}\n- {name: two, log: logs/two, lake: two}\n")
    code, out = jbod("status", file)
    lines = out.splitlines()
    assert (code, lines[0]) == (2, "2 clusters: 2 unreachable.")
    assert [line.split(maxsplit=2)[2] for line in lines[3:5]] == [
        f"{tmp_path / name}: there is no lake yet" for name in ("one", "two")
    ]
    assert lines[6:] == ["Then:", f"  jbod fleet {file}"]


def test_lake_whose_path_no_replay_takes_is_not_one_that_was_never_made(tmp_path: Path) -> None:
    """Cause: it said that there is no lake yet, and advised ``jbod fleet``, which refuses that path each time."""
    (tmp_path / "fleet.yaml").write_text("clusters: [{name: one, log: logs/one, lake: a%41}]\n")
    _, out = jbod("status", tmp_path / "fleet.yaml")
    assert "delta-rs takes the %41 in this path for another character" in out
    assert "there is no lake yet" not in out


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server of S3 that refuses every request. In its own process: delta-rs holds Python's lock while it waits."""
    program = (
        "import http.server as s\n"
        "class Refusing(s.BaseHTTPRequestHandler):\n"
        "    def do_GET(self): self.send_error(403)\n"
        "    do_HEAD = do_PUT = do_GET\n"
        "server = s.ThreadingHTTPServer(('127.0.0.1', 0), Refusing)\n"
        "print(server.server_port, flush=True)\n"
        "server.serve_forever()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        named = {"ENDPOINT_URL": f"http://127.0.0.1:{server.stdout.readline().strip()}", "ALLOW_HTTP": "true"}
        for name, value in {**named, "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b", "REGION": "us-east-1"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        objects.forget_stores()
        yield
        server.kill()
    objects.forget_stores()


@pytest.mark.usefixtures("s3")
def test_lake_in_a_bucket_that_may_not_be_read_is_an_answer_as_any_other(tmp_path: Path) -> None:
    """Cause: whether there is a lake was asked again, and that this was refused ended the command without an answer."""
    (tmp_path / "fleet.yaml").write_text("clusters: [{name: one, log: logs/one, lake: 's3://b/lake'}]\n")
    (answer,) = ask_all("status", read_fleet(tmp_path / "fleet.yaml"))
    assert (answer.state, answer.todo) == (UNREACHABLE, "jbod status --lake s3://b/lake")
    assert answer.line.startswith("s3://b/lake: access denied")


def test_lake_that_cannot_be_read_is_not_one_that_was_never_made(tmp_path: Path) -> None:
    """Cause: to delta-rs, a folder that this user may not read is not there. A name that is too long is as one."""
    name = "too-long" * 50
    (tmp_path / "fleet.yaml").write_text(f"clusters: [{{name: one, log: logs/one, lake: {name}}}]\n")
    (answer,) = ask_all("status", read_fleet(tmp_path / "fleet.yaml"))
    assert answer.line == f"{tmp_path / name}: cannot be read: File name too long"
    assert answer.todo == f"jbod status --lake {tmp_path / name}"


def test_lake_without_its_ledger_is_damaged_and_not_one_that_was_never_made(lakes: Path, tmp_path: Path) -> None:
    copytree(lakes / "fine", tmp_path / "lake")
    rmtree(tmp_path / "lake" / "ledger")
    (tmp_path / "fleet.yaml").write_text("clusters: [{name: one, log: logs/one, lake: lake}]\n")
    _, out = jbod("status", tmp_path / "fleet.yaml")
    assert "is gone or cannot be read" in out
    assert out.splitlines()[-1] == f"  jbod status --lake {tmp_path / 'lake'}"


def test_failure_that_only_makes_writes_wait_is_not_clean(tmp_path: Path) -> None:
    """Cause: the counts had no such partition, so all were 0, which is clean."""
    story = Story(27).voters({1: "a", 2: "b", 3: "c"}).broker(1, "a").broker(2, "b").broker(3, "c", fenced=True)
    story.broker(4, "d").topic("t", {4: "d", 1: "a"}).lake(tmp_path / "lake")
    (tmp_path / "fleet.yaml").write_text("clusters: [{name: one, log: logs/one, lake: lake}]\n")
    (answer,) = ask_all("risk", read_fleet(tmp_path / "fleet.yaml"))
    assert answer.what.startswith("1 partition whose writes wait")


def test_broker_whose_failure_costs_more_than_that_of_any_disk_is_the_worst(tmp_path: Path) -> None:
    """Cause: the worst directory was taken for the worst of all, with its counts."""
    story = Story().broker(1, "ab").topic("t", {1: "a"}).topic("u", {1: "b"})
    story.lake(tmp_path / "lake")
    (tmp_path / "fleet.yaml").write_text("clusters: [{name: one, log: logs/one, lake: lake}]\n")
    (answer,) = ask_all("risk", read_fleet(tmp_path / "fleet.yaml"))
    assert answer.counts is not None
    assert (answer.counts["without_leader"], answer.line) == (2, "worst: the failure of broker 1")


def test_replica_that_may_be_in_a_failed_directory_is_not_clean(tmp_path: Path) -> None:
    """Cause: Kafka counts it as online, so that nothing was counted."""
    story = Story().broker(1, "a").broker(2, "bc").topic("t", {2: "unassigned", 1: "a"})
    story.left(2, "c").lake(tmp_path / "lake")
    (tmp_path / "fleet.yaml").write_text("clusters: [{name: one, log: logs/one, lake: lake}]\n")
    (answer,) = ask_all("offline", read_fleet(tmp_path / "fleet.yaml"))
    assert answer.what.startswith("1 replica perhaps offline")


@pytest.mark.parametrize(
    ("question", "singular"),
    [
        ("status", "1 partition with lost data, 1 partition with unreachable data, 1 partition without a leader"),
        ("offline", "1 offline replica"),
        ("check", "1 critical finding, 1 warning"),
        ("risk", "1 partition without a leader, 1 partition without a replica online, 1 unclean election"),
    ],
)
def test_one_is_not_counted_as_several(lakes: Path, question: str, singular: str) -> None:
    """Cause: ``1 partitions data unreachable``, ``35 broker missing in 1 places``."""
    (answer,) = ask_all(question, clusters(lakes, "broken"))
    alone = FleetAnswer("broken", "/lake", WRONG, counts=dict.fromkeys(answer.counts or (), 1))
    assert alone.what.startswith(singular)
    if question == "offline":
        assert answer.line == "broker fenced: 75 in 6 directories, broker missing: 24 in 2 directories"


def test_page_has_every_cluster_worst_first_and_links_to_the_pages_that_are_beside_it(
    lakes: Path, tmp_path: Path
) -> None:
    (tmp_path / "broken.html").write_text("")
    code, out = jbod("report", lakes / "fleet.yaml", "--out", tmp_path / "all.html")
    size = (tmp_path / "all.html").stat().st_size / 1000
    assert (code, out) == (2, f"{tmp_path / 'all.html'}: {size:.0f} kB. 4 clusters: 1 unreachable, 3 stale\n")
    assert size > 1  # it was 0.0 MB
    page = (tmp_path / "all.html").read_text()
    assert '<h1 id="answer">4 clusters: 1 unreachable, 3 stale</h1>' in page
    assert re.findall(r'<p class="finding">(?:<a href="(.*?)">)?<bdi>(.*?)</bdi>', page) == [
        ("", "gone"),
        ("broken.html", "broken"),
        ("", "worse"),
        ("", "fine"),
    ]
    _, output = jbod("status", lakes / "fleet.yaml", "--json")
    for cluster in json.loads(output)["clusters"]:
        assert f"<code>{cluster['todo']}</code>" in page
        assert cluster["line"] in page
    assert "<script" not in page and re.search(r"src=|@import|url\(", page) is None


def test_page_shows_a_hostile_name_as_text(tmp_path: Path) -> None:
    name = '<b>"x" & y</b>'
    answer = FleetAnswer(name, "/lake", WRONG, 9, datetime.now(UTC), {"offline_replicas": 1}, "<i>", "jbod offline")
    page = fleet_page([answer], tmp_path / "all.html", datetime.now(UTC))
    assert "<b>" not in page and "<i>" not in page


def test_metrics_of_all_lakes_have_the_label_cluster(lakes: Path, tmp_path: Path) -> None:
    code, out = jbod("metrics", lakes / "fleet.yaml")
    assert code == 0
    families = {family.name: family.samples for family in text_string_to_metric_families(out)}
    readable = {sample.labels["cluster"]: sample.value for sample in families["jbod_lake_readable"]}
    assert readable == {"broken": 1, "fine": 1, "gone": 0, "worse": 1}
    assert {sample.labels["cluster"] for sample in families["jbod_partitions"]} == {"broken", "fine", "worse"}
    assert all("cluster" in sample.labels for samples in families.values() for sample in samples)
    jbod("metrics", lakes / "fleet.yaml", "--out", tmp_path / "jbod.prom")
    assert 'jbod_lake_readable{cluster="gone"} 0.0' in (tmp_path / "jbod.prom").read_text()


def test_metrics_have_a_cluster_that_was_added_and_not_one_that_was_removed(lakes: Path) -> None:
    """Cause: a server had the clusters of its start, so that no alert fired for a new one."""
    listed = clusters(lakes, "fine")
    fleet = FleetMeasured(listed, lambda _: None)
    for name in ("broken", "gone"):
        list(fleet.collect())
        listed[:] = clusters(lakes, name)
    readable = next(family for family in fleet.collect() if family.name == "jbod_lake_readable")
    assert [(sample.labels, sample.value) for sample in readable.samples] == [({"cluster": "gone"}, 0)]


def test_metrics_of_a_lake_that_hangs_are_that_it_cannot_be_read(lakes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It delays one scrape, and no later one. They can be read again once it answers."""

    def of_each(fleet: FleetMeasured) -> dict[str, float]:
        readable = next(family for family in fleet.collect() if family.name == "jbod_lake_readable")
        return {sample.labels["cluster"]: sample.value for sample in readable.samples}

    answers, good = threading.Event(), Measured.collect

    def collect(measured: Measured) -> Any:
        if measured.lake.endswith("broken"):
            answers.wait(30)
        return good(measured)

    monkeypatch.setattr(Measured, "collect", collect)
    fleet = FleetMeasured(clusters(lakes, "broken", "fine"), lambda _: None, patience=8.0)
    for _ in range(3):
        began = time.monotonic()
        assert of_each(fleet) == {"broken": 0, "fine": 1}
    assert time.monotonic() - began < 8
    answers.set()
    while not all(of_each(fleet).values()):
        assert time.monotonic() - began < 60
        time.sleep(0.05)


def test_storage_that_has_answered_is_asked_again_while_the_thread_of_its_answer_ends() -> None:
    """Cause: on Python 3.13 a lake was said to hang if a scrape followed at once on another."""

    class Left:
        def __del__(self) -> None:
            time.sleep(0.5)

    left, patience = threading.local(), Patience(10.0)

    def question() -> int:
        left.until_the_thread_ends = Left()
        return 1

    assert [patience.ask("lake", question) for _ in range(2)] == [1, 1]


def test_misspelt_question_is_named_and_not_taken_for_a_file_of_clusters() -> None:
    """It answered in the name of fleet replay: unexpected extra argument(s) (fleet.yaml)."""
    done = CliRunner().invoke(application(["fleet"]), ["fleet", "statu", "fleet.yaml"])
    assert (done.exit_code, "No such command 'statu'. Did you mean 'status'?" in done.output) == (2, True)
    done = CliRunner().invoke(application(["fleet"]), ["fleet", "nowhere.yaml"])
    assert (done.exit_code, str(done.exception)) == (
        1,
        "nowhere.yaml: cannot read the clusters: No such file or directory",
    )
