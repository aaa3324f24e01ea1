"""Bytes beside counts in risk, offline and the report: of a source, or of what the lake kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from jbod_model.errors import UsageError
from pipelines.ask.offline_replicas import offline
from pipelines.ask.risk import Exposure, risk
from pipelines.ask.sizes import keep, sizes
from pipelines.ask.weights import COPY_RATE, weights
from pipelines.cli.main import application
from pipelines.lake.reader import Lake
from tests.unit.ask.test_sizes import printed
from tests.unit.check.story import Story, disk

GB = 10**9


def story() -> Story:
    """t-0 on both brokers, u-0 on broker 1 alone; a and b are disks of broker 1."""
    return Story().broker(1, "ab").broker(2, "c").topic("t", {1: "a", 2: "c"}).topic("u", {1: "b"})


def source(path: Path) -> str:
    return printed(path, 1, x={"t-0": 5 * GB}, y={"u-0": 2 * GB, "+t-0": 9 * GB})


def exposed(lake: Lake, path: Path | None) -> dict[str | None, Exposure]:
    answer = risk(lake, 1, weights(lake, [] if path is None else [source(path)]))
    return {
        exposure.directory_id: exposure
        for exposure in (*answer.brokers, *answer.directories)
        if exposure.broker_id == 1
    }


def test_risk_has_the_bytes_of_each_place_and_of_last_replicas(tmp_path: Path) -> None:
    exposures = exposed(story().lake(tmp_path / "lake"), tmp_path)
    a, b, broker = exposures[str(disk("a"))], exposures[str(disk("b"))], exposures[None]
    assert [(exposure.bytes, exposure.last_replicas, exposure.last_bytes) for exposure in (a, b, broker)] == [
        (5 * GB, 0, 0),
        (2 * GB, 1, 2 * GB),
        (7 * GB, 1, 2 * GB),
    ]
    assert a.copy_seconds == 5 * GB // COPY_RATE == 100


def test_risk_without_sizes_has_no_bytes(tmp_path: Path) -> None:
    assert {(exposure.bytes, exposure.copy_seconds) for exposure in exposed(story().lake(tmp_path), None).values()} == {
        (None, None)
    }


def test_sizes_that_are_kept_say_directories_and_not_partitions(tmp_path: Path) -> None:
    lake = story().lake(tmp_path / "lake")
    keep(lake, sizes(lake, [source(tmp_path)]))
    exposures = exposed(lake, None)
    assert (exposures[None].bytes, exposures[None].last_bytes, exposures[str(disk("b"))].bytes) == (
        7 * GB,
        None,
        2 * GB,
    )


def test_offline_says_what_has_one_copy_and_what_is_copied_again(tmp_path: Path) -> None:
    lake = story().left(1, "b").lake(tmp_path / "lake")
    answer = offline(lake, weights=weights(lake, [source(tmp_path)]))
    (cause,) = answer.causes
    assert (cause.bytes, cause.copy_seconds, answer.one_copy) == (5 * GB, 100, (2, 7 * GB))
    assert offline(lake).one_copy is None


def test_disk_that_failed_has_the_size_that_was_kept_last(tmp_path: Path) -> None:
    before = story()
    lake = before.lake(tmp_path / "lake")
    keep(lake, sizes(lake, [source(tmp_path)]))
    after = before.left(1, "b").lake(tmp_path / "lake")
    answer = offline(after, weights=weights(after))
    assert [(cause.bytes, answer.one_copy) for cause in answer.causes] == [(5 * GB, None)]


def test_bytes_of_replicas_are_unknown_if_those_of_one_are(tmp_path: Path) -> None:
    lake = story().broker(1, "b", process=2).lake(tmp_path / "lake")
    source_weights = weights(lake, [printed(tmp_path, 1, y={"u-0": 2 * GB})])
    assert source_weights is not None
    assert source_weights.of([("u", 0, 1, "b")]) == 2 * GB
    assert source_weights.of([("u", 0, 1, "b"), ("t", 0, 1, "a")]) is None


def run(*words: str) -> Any:
    return CliRunner().invoke(application(words), [*words])


def test_commands_show_bytes(tmp_path: Path) -> None:
    story().left(1, "b").lake(tmp_path / "lake")
    line = ["--lake", str(tmp_path / "lake"), "--sizes", source(tmp_path)]
    output = run("offline", *line).output
    assert "2 partitions have one replica online: 6.5 GiB with one copy." in output
    assert "4.7 GiB, 2 min to copy again at 50 MB/s" in output
    output = run("risk", *line).output
    assert "to copy them again is reckoned at 50 MB/s" in output
    assert "40 s" in output
    page = tmp_path / "page.html"
    answer = json.loads(run("report", *line, "--json", "--out", str(page)).stdout)
    assert answer["causes"][0]["bytes"] == 5 * GB
    assert "To copy again" in page.read_text()
    with pytest.raises(UsageError):
        raise run("risk", *line[:2], "--sizes", str(page)).exception
