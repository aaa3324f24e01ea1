"""``python -m lab conform``: its output and exit codes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from jbod_model.errors import JbodError, MalformedLog, UsageError
from lab.__main__ import application
from tests.support.paths import TRACES


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The beginning of a trace on which Kafka threw."""
    path = tmp_path_factory.mktemp("traces") / "trace.jsonl"
    with gzip.open(TRACES / "seed22.jsonl.gz", "rt") as lines:
        path.write_text("".join(line for line, _ in zip(lines, range(1000), strict=False)))
    return path


def run(*arguments: str) -> tuple[int, str]:
    """Exit code and output; a project error is the main program's to print."""
    result = CliRunner().invoke(application(), ["conform", *arguments])
    if result.exception is not None and isinstance(result.exception, JbodError):
        raise result.exception
    return result.exit_code, result.output


def tampered(trace: Path, to: Path) -> Path:
    lines = trace.read_text().splitlines()
    operation: dict[str, Any] = json.loads(lines[1])
    operation["baseOffset"] += 1
    to.write_text("\n".join([lines[0], json.dumps(operation), *lines[2:]]) + "\n")
    return to


def test_conform_command_of_a_matching_trace_reports_it_and_exits_0(trace: Path) -> None:
    code, output = run(str(trace))
    assert code == 0
    assert "images match" in output.splitlines()[0]
    assert any(line.startswith("threw") for line in output.splitlines())
    assert "mismatch" not in output


@pytest.mark.exhaustive
def test_conform_command_limits_its_output_by_default(trace: Path) -> None:
    _, short = run(str(trace))
    _, whole = run(str(trace), "--all")
    assert "more" in short
    assert len(whole.splitlines()) > len(short.splitlines())


def test_conform_command_of_a_tampered_trace_names_operation_field_and_offset(trace: Path, tmp_path: Path) -> None:
    code, output = run(str(tampered(trace, tmp_path / "tampered.jsonl")))
    assert code == 1
    assert "mismatch  operation 2 (registerBroker) at offset 3: baseOffset: recorded 4, ours 3" in output


def test_conform_command_prints_json(trace: Path, tmp_path: Path) -> None:
    code, output = run(str(trace), "--json")
    report = json.loads(output)
    assert code == 0
    assert report["ok"] is True
    assert report["operations"] == report["matched"] + len(report["thrown"])
    code, output = run(str(trace), str(tampered(trace, tmp_path / "tampered.jsonl")), "--json")
    assert code == 1
    assert [report["ok"] for report in json.loads(output)] == [True, False]


@pytest.mark.exhaustive
def test_conform_command_answers_by_another_profile(trace: Path) -> None:
    code, output = run(str(trace), "--profile", "kip858")
    assert code == 1
    assert "mismatch" in output


def test_conform_command_of_an_unknown_profile_exits_2(trace: Path) -> None:
    code, output = run(str(trace), "--profile", "zookeeper")
    assert code == 2
    assert "kafka" in output


def test_conform_command_of_no_trace_leaves_the_error_to_the_program(tmp_path: Path) -> None:
    """Exit 2 there."""
    with pytest.raises(UsageError):
        run(str(tmp_path / "absent.jsonl"))
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(MalformedLog):
        run(str(tmp_path / "empty.jsonl"))
