"""The commands of upkeep: what they print, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable

from pipelines.cli import main
from tests.support import local
from tests.support.logs import segments
from tests.support.paths import metadata_dir


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    local.replay(segments(metadata_dir("kafka-4.1.2"), tmp_path / "log", most=2), tmp_path / "lake", most=70)
    return tmp_path / "lake"


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as left:
        main.main(list(words))
    output = capsys.readouterr()
    return left.value.code, output.out, output.err


def test_optimize_prints_files_before_and_after(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "optimize", "--lake", str(lake))
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == ["TABLE", "FILES", "BEFORE", "AFTER"]
    assert out.splitlines()[1].split() == ["records", "4", "1"]


def test_vacuum_says_what_it_would_delete(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "vacuum", "--lake", str(lake), "--keep", "1", "--dry-run", "--json")
    answer = json.loads(out)
    assert (code, answer["dry_run"]) == (0, True)
    assert {table["table"] for table in answer["tables"]} >= {"records", "ledger", "partitions"}


def test_rebuild_prints_the_rows_it_made(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "rebuild", "--lake", str(lake), "--json")
    assert (code, json.loads(out)["rows"]["partitions"]) == (0, 123)


def test_verify_of_a_good_lake_leaves_with_0_and_says_who_recomputed(
    lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "verify", "--lake", str(lake))
    assert code == 0
    assert out.splitlines()[0] == f"{lake} is what its records say, up to offset 174, by the model: 26 files"


def test_verify_of_a_damaged_lake_leaves_with_1_and_names_the_file(
    lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = DeltaTable(str(lake / "brokers")).get_add_actions().column("path")[0].as_py()
    (lake / "brokers" / name).unlink()
    code, out, _ = run(capsys, "verify", "--lake", str(lake))
    assert code == 1
    assert out.splitlines()[0] == f"brokers: {name}: the file is gone"
    code, out, _ = run(capsys, "verify", "--lake", str(lake), "--json")
    assert (code, json.loads(out)["differences"][0]["key"]) == (1, name)


@pytest.mark.parametrize("command", ["optimize", "vacuum", "rebuild", "verify"])
def test_command_without_a_lake_leaves_with_2_and_one_line(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, command, "--lake", str(tmp_path / "nothing"))
    assert (code, out) == (2, "")
    assert err.startswith(f"jbod: {tmp_path}/nothing: no lake there")
    assert err.count("\n") == 1
    assert not (tmp_path / "nothing").exists()


def test_vacuum_that_keeps_nothing_is_refused(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "vacuum", "--lake", str(lake), "--keep", "0")
    assert code == 2
    assert "--keep" in err
