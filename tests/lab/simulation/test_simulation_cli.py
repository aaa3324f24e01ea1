"""``python -m lab simulate`` and ``python -m lab explore`` as a person or a script meets them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from jbod_model.errors import UsageError
from lab.__main__ import application


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(application(), [str(argument) for argument in arguments])


def test_simulate_without_a_scenario_lists_them() -> None:
    result = run("simulate")
    assert result.exit_code == 0
    assert "disk-replaced" in result.output
    listed = json.loads(run("simulate", "--json").output)
    assert {"name", "summary", "section"} == set(listed[0])


def test_simulate_writes_logs_and_tells_the_story(tmp_path: Path) -> None:
    result = run("simulate", "disk-fails", "--seed", "3", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "disk /disks/1-b of broker 1 fails" in result.output
    assert "broker 1 offline (directory offline)" in result.output
    assert (tmp_path / "controller-100" / "__cluster_metadata-0" / "00000000000000000000.log").stat().st_size > 1000
    again = run("simulate", "disk-fails", "--seed", "3", "--out", tmp_path)
    assert isinstance(again.exception, UsageError)


def test_simulate_of_kafkas_hole_exits_1_and_of_the_kip_0() -> None:
    kafka = run("simulate", "disk-dies-while-hanging")
    assert kafka.exit_code == 1
    assert "broken: invariant 9" in kafka.output
    assert run("simulate", "disk-dies-while-hanging", "--profile", "kip858").exit_code == 0


def test_simulate_as_json_has_partitions_and_story() -> None:
    report = json.loads(run("simulate", "jbod-on", "--json").output)
    assert report["breaches"] == []
    assert {"topic", "partition", "leader", "isr", "replicas", "offline"} == set(report["partitions"][0])
    assert report["story"][0]["what"].startswith("broker 1 starts")


@pytest.mark.parametrize(
    "arguments",
    [["simulate", "nothing"], ["simulate", "disk-fails", "--profile", "none"], ["explore", "--profile", "none"]],
)
def test_simulate_and_explore_with_unknown_names_are_bad_usage(arguments: list[str]) -> None:
    assert isinstance(run(*arguments).exception, UsageError)


def test_simulate_into_a_place_that_cannot_be_written_is_bad_usage(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert isinstance(run("simulate", "disk-fails", "--out", tmp_path / "file" / "x").exception, UsageError)


def test_explore_prints_the_shortest_way_into_the_hole() -> None:
    result = run("explore", "--brokers", "1", "--dirs", "2", "--partitions", "1", "--depth", "6")
    assert result.exit_code == 1
    assert "invariant 9 breaks" in result.output
    assert "  5. heartbeat of broker 1: broker 1 unfenced with 1b; partition 0 leader 1" in result.output


def test_explore_of_the_kip_finds_nothing_and_exits_0() -> None:
    result = run("explore", "--brokers", "1", "--depth", "50", "--profile", "kip858")
    assert result.exit_code == 0
    assert "no invariant breaks" in result.output
    assert result.output.startswith("every state:")


@pytest.mark.parametrize("command", [("simulate", "disk-fails"), ("explore",)])
def test_table_of_ids_that_does_not_exist_is_bad_usage(command: tuple[str, ...]) -> None:
    """R-SIM-10."""
    problem = run(*command, "--ids", "none").exception
    assert isinstance(problem, UsageError)
    assert "known are kafka, kip858" in str(problem)


def test_explore_as_json_counts_states() -> None:
    report = json.loads(run("explore", "--brokers", "1", "--depth", "5", "--json").output)
    assert report["depth"] == 5
    assert report["states"] > 100
    assert [counterexample["invariant"] for counterexample in report["counterexamples"]] == [9, 10]


@pytest.mark.parametrize("arguments", [["--depth", "0"], ["--brokers", "9"], ["--dirs", "x"]])
def test_explore_out_of_bounds_is_refused(arguments: list[str]) -> None:
    assert run("explore", *arguments).exit_code == 2
