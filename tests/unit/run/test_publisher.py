"""The two sides of a replay, without Spark: a function publishes, also pickled for Spark Connect; the run follows."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
from pyspark import cloudpickle

from jbod_model.errors import JbodError, Retriable
from pipelines.lake.lock import only_run
from pipelines.lake.written_lake import Overtaken
from pipelines.run.options import Replay, RunOutcome
from pipelines.run.publisher import ForeachBatch, Publications
from pipelines.run.runner import Runner
from pipelines.upkeep.compact import optimize
from pipelines.upkeep.rebuild import rebuild
from tests.support.lakes import Reference
from tests.support.logs import read_log, segments
from tests.support.paths import metadata_dir
from tests.support.tables import differences, expected_rows, rows_of

KAFKA = "kafka-4.1.2"


class Frame:
    """A micro-batch in which the stages reported nothing, as the driver collects it from Spark."""

    def select(self, *_: str) -> Frame:
        """A row of kind and payload."""
        return self

    def collect(self) -> list[tuple[str, bytes]]:
        """The rows."""
        return []


@pytest.fixture(autouse=True)
def pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes the function for foreachBatch to another process and back, as Spark does."""
    made = Publications.function

    def function(self: Publications, **options: bool) -> ForeachBatch:
        copy: ForeachBatch = pickle.loads(cloudpickle.dumps(made(self, **options)))
        return copy

    monkeypatch.setattr(Publications, "function", function)


def replayed(lake: Path, **options: Any) -> tuple[Runner, list[str]]:
    messages: list[str] = []
    runner = Runner(Replay(str(metadata_dir(KAFKA)), str(lake), start="log", **options), progress=messages.append)
    runner.load()
    return runner, messages


def test_client_knows_what_the_server_published(tmp_path: Path) -> None:
    runner, messages = replayed(tmp_path / "lake", max_records=200)
    here = Runner(Replay(str(metadata_dir(KAFKA)), str(tmp_path / "here"), start="log", max_records=200))
    assert runner.outcome == here.load()
    assert runner.lake.end_offset == 630
    assert "published up to offset 629, batch 4" in messages
    expected = expected_rows(Reference().add(read_log(metadata_dir(KAFKA), "log")))
    assert differences(rows_of(tmp_path / "lake"), expected) == []


def test_upkeep_during_a_run_counts_no_batch(tmp_path: Path) -> None:
    runner, _ = replayed(tmp_path / "lake", max_records=200)
    publisher = Publications(runner.lake, None, print, print)
    optimize(str(tmp_path / "lake"))
    publisher.look(last=True)
    assert publisher.outcome == RunOutcome(630, 630)


@pytest.mark.parametrize("upkeep", [optimize, lambda lake: rebuild(lake, say=lambda _: None)])
def test_upkeep_while_spark_starts_does_not_end_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, upkeep: Callable[[str], object]
) -> None:
    """Cause: after a load, the run opens the tables again once Spark has started, and took no version of an upkeep:
    ``--follow`` ended with "something else wrote at the same time: run again"."""
    runner, _ = replayed(tmp_path / "lake", max_records=200)
    upkeep(str(tmp_path / "lake"))
    monkeypatch.setattr(runner, "_run", lambda _: None)
    outcome = runner.run(SimpleNamespace(version=pyspark.__version__))  # type: ignore[arg-type]
    assert (outcome.batches, runner.lake.end_offset) == (4, 630)


def test_rebuild_while_spark_uses_the_checkpoint_ends_the_run_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended with the stack of Spark's error: ``chmod: cannot access '.../_checkpoint/offsets'``."""
    runner, _ = replayed(tmp_path / "lake")
    checkpoint = tmp_path / "lake" / "_checkpoint"

    def run(_: object) -> None:
        raise OSError(
            f"ExitCodeException: chmod: cannot access '{checkpoint}/offsets': No such file or directory\n\tat"
        )

    monkeypatch.setattr(runner, "_run", run)
    with pytest.raises(Retriable) as ended:
        runner.run(SimpleNamespace(version=pyspark.__version__))  # type: ignore[arg-type]
    assert str(ended.value) == f"{checkpoint}: was removed during the run, as jbod rebuild does: start the run again"


def function_of(lake: Path) -> tuple[Runner, Callable[[Any, int], None]]:
    runner, _ = replayed(lake)
    return runner, Publications(runner.lake, None, print, print).function()


def test_server_publishes_nothing_without_the_lock_of_its_client(tmp_path: Path) -> None:
    _, publish = function_of(tmp_path / "lake")
    with pytest.raises(JbodError, match="the run that started this query has ended") as refusal:
        publish(Frame(), 0)
    assert "jbod-error" in refusal.value.__notes__[0]
    with only_run(str(tmp_path / "lake")):
        publish(Frame(), 0)


def test_server_does_not_publish_on_a_lake_that_another_run_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = segments(metadata_dir(KAFKA), tmp_path / "log", most=1)
    runner = Runner(Replay(str(log), str(tmp_path / "lake"), start="log"))
    runner.load()
    publish = Publications(runner.lake, None, print, print).function()
    following = replace(runner.lake.here(), end_offset=200)
    replayed(tmp_path / "lake")
    monkeypatch.setattr("pipelines.run.publisher.batch_of", lambda *_: following)
    with only_run(str(tmp_path / "lake")), pytest.raises(Overtaken, match="another run published up to offset 629"):
        publish(Frame(), 0)  # type: ignore[arg-type]


def test_function_for_another_process_opens_the_tables_itself(tmp_path: Path) -> None:
    """Open tables cannot be pickled, and two writers that share one would move it under each other."""
    runner, _ = replayed(tmp_path / "lake")
    batches = Publications(runner.lake, None, print, print).function()
    assert batches.lake is not runner.lake
    assert batches.lake.tables.versions == runner.lake.tables.versions
    name = "records"
    assert batches.lake.tables[name] is not runner.lake.tables[name]
