"""The replays of a fleet: each cluster is as after a lone replay, and its fault is only its own."""

from __future__ import annotations

import gc
import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from shutil import copy, copytree, rmtree
from typing import Any

import pytest
from typer.testing import CliRunner

from jbod_model.errors import JbodError
from jbod_model.formats import records as r
from pipelines.cli.main import application
from pipelines.cli.replay import relabel as relabel_as_replay
from pipelines.fleet import replay
from pipelines.fleet.clusters import FollowedFile, read_fleet
from pipelines.fleet.replay import FAILED, NOTHING_NEW, REPLAYED, STOPPED, Done, Fleet
from pipelines.lake.lock import only_run
from pipelines.run import decision
from pipelines.run.runner import Runner
from pipelines.settings import Settings
from tests.support import local
from tests.support.controller import Log, quorum_of, url_of
from tests.support.logs import first_batches, segments
from tests.support.paths import metadata_dir
from tests.support.tables import differences, rows_of
from tests.support.volume import rare, sampled
from tests.unit.run.test_rollback import Batch, write

LOG = "__cluster_metadata-0"
NAMES = ("a", "b", "c")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fleet of three clusters whose logs end at offset 300. They are loaded, without Spark."""
    monkeypatch.setenv("JBOD_REPLAY__LOAD_BYTES", "1")
    for name in NAMES:
        cut(segments(metadata_dir("kafka-3.7.2"), tmp_path / "logs" / name), 300)
    path = tmp_path / "fleet.yaml"
    path.write_text("clusters: [{log: logs/*, lake: lakes/*}]\n")
    return path


def cut(log: Path, offset: int) -> None:
    for path in sorted((log / LOG).glob("*.log")):
        if int(path.stem) >= offset:
            path.unlink()
        else:
            path.write_bytes(first_batches(path.read_bytes(), offset))


def grow(log: Path) -> None:
    """The log gets all that its source has."""
    for path in (metadata_dir("kafka-3.7.2") / LOG).glob("*.log"):
        copy(path, log / LOG)


def fleet(file: Path, relabel: Callable[[Settings], list[str]] = lambda _: [], **patience: float) -> Fleet:
    settings = Settings()
    return Fleet(read_fleet(file), settings.spark, 2, relabel, **patience)  # type: ignore[arg-type]


def round_of(run: Fleet) -> list[Done]:
    """A round, by name: clusters are done in any order."""
    return sorted(run.round(), key=lambda done: done.name)


def states(outcomes: list[Done]) -> list[str]:
    return [done.state for done in outcomes]


def jbod(*words: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(application(["fleet"]), ["fleet", *map(str, words)])
    return done.exit_code, done.stdout


def test_lakes_equal_those_of_lone_replays_and_grow_with_their_logs(file: Path, tmp_path: Path) -> None:
    assert states(round_of(fleet(file))) == [REPLAYED] * 3
    assert states(round_of(fleet(file))) == [NOTHING_NEW] * 3
    grow(tmp_path / "logs" / "b")
    outcomes = round_of(fleet(file))
    assert states(outcomes) == [NOTHING_NEW, REPLAYED, NOTHING_NEW]
    for name, done in zip(NAMES, outcomes, strict=True):
        alone = tmp_path / "alone" / name
        local.replay(tmp_path / "logs" / name, alone)
        assert differences(rows_of(tmp_path / "lakes" / name), rows_of(alone)) == []
        assert (done.name, done.code) == (name, 0)


def test_cluster_of_a_pattern_whose_log_is_gone_stays_in_the_fleet_and_fails(file: Path, tmp_path: Path) -> None:
    list(fleet(file).round())
    rmtree(tmp_path / "logs" / "b")
    (tmp_path / "lakes" / "notes").mkdir()
    outcomes = round_of(fleet(file))
    assert [(done.name, done.state) for done in outcomes] == [("a", NOTHING_NEW), ("b", FAILED), ("c", NOTHING_NEW)]
    assert str(tmp_path / "logs" / "b") in str(outcomes[1].problem)


def test_cluster_whose_log_was_rewritten_is_replayed_whatever_is_at_the_end_of_its_lake(
    tmp_path: Path, file: Path
) -> None:
    """An Abort exactly at the end of the lake was refused as one without a Begin, before lake and log were compared."""
    begin, end, abort = r.BeginTransactionRecord(name="t"), r.EndTransactionRecord(), r.AbortTransactionRecord()
    common: list[Batch] = [(1, [r.NoOpRecord()])] * 3
    rmtree(tmp_path / "logs" / "b")
    write(tmp_path / "logs" / "b", [*common, (1, [begin]), (1, [end])])
    assert states(round_of(fleet(file))) == [REPLAYED] * 3
    write(tmp_path / "logs" / "b", [*common, (1, [begin]), (2, [r.NoOpRecord()]), (2, [abort])])
    assert states(round_of(fleet(file))) == [NOTHING_NEW, REPLAYED, NOTHING_NEW]


def test_clusters_with_nothing_new_open_no_table_but_the_ledger(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    list(fleet(file).round())
    monkeypatch.setattr("pipelines.run.runner.Runner.__init__", _never)
    assert states(round_of(fleet(file))) == [NOTHING_NEW] * 3


def _never(*_: Any, **__: Any) -> None:
    raise AssertionError("a lake was opened for writing")


@pytest.mark.parametrize("fault", sampled(["damaged", "away", "locked", "unexpected"], 2))
def test_one_bad_cluster_costs_the_others_nothing(
    file: Path, tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, lake = tmp_path / "logs" / "b", tmp_path / "lakes" / "b"
    code = 2
    if fault == "damaged":
        (first, *_) = sorted((log / LOG).glob("*.log"))
        first.write_bytes(b"\xff" * 200)
        outcomes = round_of(fleet(file))
    elif fault == "away":
        next((log / LOG).glob("*.log")).parent.rename(log / "elsewhere")
        outcomes = round_of(fleet(file))
    elif fault == "locked":
        lake.mkdir(parents=True)
        with only_run(str(lake)):
            outcomes = round_of(fleet(file))
    else:
        code = 3
        good = decision.nothing_new

        def breaks(wanted: Any, *rest: Any, **named: Any) -> Any:
            if wanted.lake == str(lake):
                raise ZeroDivisionError("by zero")
            return good(wanted, *rest, **named)

        monkeypatch.setattr("pipelines.run.decision.nothing_new", breaks)
        outcomes = round_of(fleet(file))
    assert states(outcomes) == [REPLAYED, FAILED, REPLAYED]
    assert outcomes[1].code == code
    assert outcomes[1].problem
    assert "\n" not in str(outcomes[1])


@pytest.mark.parametrize("phase", [rare("look"), "replay"])
def test_cluster_that_hangs_is_given_up_costs_the_others_nothing_and_is_replayed_once_it_answers(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    """As a log on a dead mount: no call returns."""
    answers = threading.Event()
    place, name = (decision, "nothing_new") if phase == "look" else (Runner, "load")
    good = getattr(place, name)

    def hangs(first: Any, *rest: Any, **named: Any) -> Any:
        lake = first.lake if phase == "look" else first.wanted.lake
        if lake == str(tmp_path / "lakes" / "b"):
            assert answers.wait(60)
        return good(first, *rest, **named)

    monkeypatch.setattr(place, name, hangs)
    run = fleet(file, look_seconds=3.0 if phase == "look" else 60.0, replay_seconds=3.0 if phase == "replay" else 60.0)
    try:
        outcomes = round_of(run)
        assert states(outcomes) == [REPLAYED, FAILED, REPLAYED]
        assert (outcomes[1].code, "no answer in 3 s" in outcomes[1].problem) == (3, True)
        grow(tmp_path / "logs" / "c")
        began = time.monotonic()
        assert states(round_of(run)) == [NOTHING_NEW, FAILED, REPLAYED]
        for _ in range(5):
            assert states(round_of(run)) == [NOTHING_NEW, FAILED, NOTHING_NEW]
        assert run._hangs.keys() == {"b"}
        assert time.monotonic() - began < 60
    finally:
        answers.set()
    end = time.monotonic() + 60
    while (outcomes := round_of(run))[1].state == FAILED:
        assert time.monotonic() < end
    assert states(outcomes) in ([NOTHING_NEW] * 3, [NOTHING_NEW, REPLAYED, NOTHING_NEW])
    local.replay(tmp_path / "logs" / "b", tmp_path / "alone")
    assert differences(rows_of(tmp_path / "lakes" / "b"), rows_of(tmp_path / "alone")) == []


def test_look_that_is_slow_when_the_run_is_stopped_is_no_failure(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, looks = threading.Event(), threading.Event()
    good = decision.nothing_new

    def slow(first: Any, *rest: Any, **named: Any) -> Any:
        if first.lake == str(tmp_path / "lakes" / "b"):
            looks.set()
            assert answers.wait(60)
        return good(first, *rest, **named)

    monkeypatch.setattr(decision, "nothing_new", slow)
    run, outcomes = fleet(file), {}
    try:
        for done in run.round():
            outcomes[done.name] = done
            assert looks.wait(60)
            run.stop()
    finally:
        answers.set()
    assert (outcomes["b"].state, outcomes["b"].code) == (STOPPED, 0)
    assert str(outcomes["b"]) == "b: stopped before its log was looked at; run again"


def test_run_that_is_stopped_before_its_first_publication_says_that_nothing_was_published(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, load = fleet(file), Runner.load

    def stopped(runner: Runner, tasks: int) -> None:
        run.stop()
        runner.stop()
        load(runner, tasks)

    monkeypatch.setattr(Runner, "load", stopped)
    lines = [str(done) for done in run.round() if done.end_offset is not None]
    assert lines
    assert {line.partition(": ")[2] for line in lines} == {"stopped, nothing was published yet; run again to begin"}


def test_quorum_that_answers_nothing_costs_the_others_nothing(file: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        mute = "".join(
            f"- {{name: mute{number}, log: 'kafka://127.0.0.1:{port}', lake: lakes/mute{number}}}\n"
            for number in range(12)
        )
        file.write_text(f"clusters:\n{mute}- {{log: logs/*, lake: lakes/*}}\n")
        began = time.monotonic()
        run = fleet(file, look_seconds=15.0)
        done: dict[str, float] = {}
        for outcome in run.round():
            done[outcome.name] = time.monotonic() - began
            known = [(FAILED, 3), (STOPPED, 0)] if {*NAMES} <= {*done} else [(FAILED, 3)]
            assert (outcome.state, outcome.code) in (known if outcome.name.startswith("mute") else [(REPLAYED, 0)]), (
                outcome
            )
            if {*NAMES} <= {*done}:
                run.stop()
    assert len(done) == 15
    assert max(done[name] for name in NAMES) < min(at for name, at in done.items() if name not in NAMES)


def test_log_of_a_quorum_is_mirrored_beside_the_lake_at_each_round(file: Path, tmp_path: Path) -> None:
    source = metadata_dir("kafka-4.4.0")
    log = Log(b"".join(path.read_bytes() for path in sorted((source / LOG).glob("*.log"))))
    log.high_watermark = log.batches[-9][1]
    peers = quorum_of(log)
    try:
        url = url_of(peers)
        file.write_text(f"clusters: [{{name: live, log: '{url}', lake: lakes/live}}]\n")
        (first,) = fleet(file).round()
        assert (first.state, first.end_offset, first.problem) == (REPLAYED, log.high_watermark, "")
        assert (tmp_path / "lakes" / "live.mirror" / LOG).is_dir()
        (again,) = fleet(file).round()
        assert (again.state, again.end_offset) == (NOTHING_NEW, log.high_watermark)
    finally:
        for peer in peers.values():
            peer.close()


def test_rounds_tell_replays_and_each_problem_once_and_its_end(file: Path, tmp_path: Path) -> None:
    log = tmp_path / "logs" / "b"
    (log / LOG).rename(log / "elsewhere")
    run, cluster_states = fleet(file), []
    for done in run.rounds(0.01):
        cluster_states.append((done.name, done.state))
        if len(cluster_states) == 3:
            (log / "elsewhere").rename(log / LOG)
        if len(cluster_states) == 4:
            run.stop()
    assert sorted(cluster_states[:3]) == [("a", REPLAYED), ("b", FAILED), ("c", REPLAYED)]
    assert cluster_states[3] == ("b", REPLAYED)


def test_rounds_replay_a_cluster_whose_folder_appears(file: Path, tmp_path: Path) -> None:
    """Cause: the file was read once, so that a new folder of a pattern was never looked at, and nothing said so."""
    run = Fleet(FollowedFile(file, print, 0.0), Settings().spark, 2, lambda _: [])
    patience = threading.Timer(60, run.stop)
    patience.start()
    copytree(tmp_path / "logs" / "a", tmp_path / "new")
    names = []
    for done in run.rounds(0.01):
        names.append(done.name)
        if len(names) == 3:
            (tmp_path / "new").rename(tmp_path / "logs" / "new")
        if len(names) == 4:
            run.stop()
    patience.cancel()
    assert (sorted(names[:3]), names[3:]) == (["a", "b", "c"], ["new"])
    local.replay(tmp_path / "logs" / "new", tmp_path / "alone")
    assert differences(rows_of(tmp_path / "lakes" / "new"), rows_of(tmp_path / "alone")) == []


@pytest.mark.parametrize(("seconds", "collects"), [(0.0, True), rare(1e9, False)])
def test_rounds_with_nothing_new_return_memory_from_time_to_time(
    file: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, collects: bool
) -> None:
    """A fleet that followed five clusters with nothing new grew by 4 MB a minute."""
    run = fleet(file)
    round_of(run)
    monkeypatch.setattr(replay, "RETURN_SECONDS", seconds)
    gc.disable()
    try:
        before = gc.get_stats()[2]["collections"]
        assert states(round_of(run)) == [NOTHING_NEW] * 3
        assert (gc.get_stats()[2]["collections"] > before) == collects
    finally:
        gc.enable()


def test_session_that_has_ended_ends_the_rounds(file: Path) -> None:
    run = fleet(file)

    class Dead:
        def range(self, _: int) -> None:
            raise ConnectionError("refused")

    run._session = Dead()  # type: ignore[assignment]
    with pytest.raises(JbodError, match="the Spark session has ended"):
        list(run.rounds(0.01))


def test_names_of_directories_are_read_again_after_a_replay(file: Path, tmp_path: Path) -> None:
    file.write_text("clusters: [{log: logs/*, lake: lakes/*, labels: [names.txt]}]\n")
    lakes: list[str] = []

    def relabel(settings: Settings) -> list[str]:
        lakes.append(Path(settings.lake).name)
        return ["names.txt: cannot be read"]

    for done in fleet(file, relabel).round():
        assert done.notices == ["labels: names.txt: cannot be read"]
    assert sorted(lakes) == ["a", "b", "c"]
    list(fleet(file, relabel).round())
    assert len(lakes) == 3


@pytest.mark.exhaustive
def test_label_source_that_is_not_there_is_a_notice_and_costs_no_replay(file: Path, tmp_path: Path) -> None:
    """The cluster failed."""
    file.write_text("clusters: [{log: logs/*, lake: lakes/*, labels: [names.txt]}]\n")
    for done in fleet(file, relabel_as_replay).round():
        assert (done.state, done.code) == (REPLAYED, 0)
        assert done.notices == [f"labels: {tmp_path}/names.txt: No such file or directory"]


def test_problem_is_reported_after_what_its_exception_held_is_closed(file: Path) -> None:
    """A connection to DuckDB that its thread closed while the process ended aborted it."""
    file.write_text("clusters: [{log: logs/*, lake: lakes/*, labels: [names.txt]}]\n")
    closed = []

    class Connection:
        def __init__(self, lake: str) -> None:
            self.cluster = Path(lake).name

        def __del__(self) -> None:
            time.sleep(0.3)
            closed.append(self.cluster)

    def relabel(settings: Settings) -> list[str]:
        connection = Connection(settings.lake)
        raise ValueError(f"{connection.cluster} cannot be read")

    for done in fleet(file, relabel).round():
        assert done.state == FAILED
        assert done.name in closed


def test_command_tells_counts_first_then_what_failed_and_exits_with_the_highest_code(
    file: Path, tmp_path: Path
) -> None:
    (tmp_path / "logs" / "b" / LOG).rename(tmp_path / "elsewhere")
    code, out = jbod(file)
    assert code == 2
    first, second, *others = out.splitlines()
    assert first == "3 clusters: 2 replayed, 1 failed"
    assert second.startswith("  b: ")
    assert [line.split()[0] for line in others] == ["a:", "c:"]
    (tmp_path / "elsewhere").rename(tmp_path / "logs" / "b" / LOG)
    code, out = jbod("replay", file, "--json", "--parallel", "1")
    answer = json.loads(out)
    assert (code, answer["states"]) == (0, {"nothing new": 2, "replayed": 1})
    assert [(cluster["name"], cluster["exit_code"]) for cluster in answer["clusters"]] == [(name, 0) for name in NAMES]
