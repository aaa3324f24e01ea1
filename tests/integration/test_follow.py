"""``--follow`` while the log grows, rolls, is rewritten and loses its oldest segments: no restart, the same tables."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copy

import pytest
from pyspark.sql import SparkSession

from pipelines import ask
from pipelines.run.options import Replay
from pipelines.run.runner import Runner
from tests.integration.test_changed_history import FORK, LOG, SOURCE, rewrite
from tests.support.lakes import Reference
from tests.support.logs import read_log
from tests.support.tables import differences, expected_rows, rows_of

pytestmark = pytest.mark.spark


@contextmanager
def following(spark: SparkSession, log_dir: Path, lake: Path, notices: list[str]) -> Iterator[Runner]:
    runner = Runner(Replay(str(log_dir), str(lake), follow_seconds=0.2), notice=notices.append)
    problems: list[BaseException] = []

    def run() -> None:
        try:
            runner.run(spark)
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield runner
    finally:
        runner.stop()
        thread.join(300)
    assert problems == []
    assert not thread.is_alive()


def wait(lake: Path, seen: Callable[[ask.Lake], bool]) -> None:
    end = time.monotonic() + 300
    while True:
        try:
            if seen(ask.Lake.open(lake)):
                return
        except Exception:
            assert time.monotonic() < end
        assert time.monotonic() < end
        time.sleep(0.1)


def test_log_that_grows_rolls_is_rewritten_and_loses_segments_is_followed(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "log" / LOG
    folder.mkdir(parents=True)
    copy(SOURCE / "meta.properties", tmp_path / "log")
    every = sorted((SOURCE / LOG).glob("*.log"))
    copy(every[0], folder)
    lake = tmp_path / "lake"
    notices: list[str] = []
    with following(spark, tmp_path / "log", lake, notices) as runner:
        wait(lake, lambda newest: newest.offset == int(every[1].name[:20]) - 1)
        for path in every[1:]:  # rolled segments, the last one in two parts
            content = path.read_bytes()
            with (folder / path.name).open("wb", buffering=0) as growing:
                growing.write(content[:100])
                time.sleep(0.3)
                growing.write(content[100:])
        wait(lake, lambda newest: newest.offset == 618)
        assert differences(rows_of(lake), expected_rows(Reference().add(read_log(tmp_path / "log")))) == []
        rewrite(tmp_path / "log")
        wait(lake, lambda newest: newest.offset == FORK)
        assert differences(rows_of(lake), expected_rows(Reference().add(read_log(tmp_path / "log")))) == []
        assert len(notices) == 1
        assert f"offsets {FORK} to 618" in notices[0]
        (folder / every[0].name).unlink()  # retention: what was read is not asked for again
        time.sleep(1)
    assert [rollback.before for rollback in runner.outcome.rolled_back] == [619]
