"""Checks: what each one is, and that SQL written once runs on both engines."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

import pytest
import sqlglot

from pipelines.check.catalogue import CHECKS, ELSEWHERE, run_checks
from pipelines.check.definition import Check
from pipelines.cli import main
from pipelines.lake.reader import Lake
from pipelines.settings import load
from tests.support.lakes import write_lake
from tests.support.logs import read_log
from tests.support.paths import ROOT, metadata_dir

PAGE = ROOT / "docs" / "checks.md"


def test_checks_have_an_id_and_a_name_of_their_own_and_are_in_order() -> None:
    ids = [check.id for check in CHECKS] + [check.id for check in ELSEWHERE]
    assert len(set(ids)) == len(ids)
    assert [check.id for check in CHECKS] == sorted(check.id for check in CHECKS)
    assert len({check.name for check in CHECKS} | {check.name for check in ELSEWHERE}) == len(ids)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_check_is_one_statement_that_translates_to_spark(check: Check) -> None:
    (spark,) = sqlglot.transpile(check.sql, read="duckdb", write="spark", unsupported_level=sqlglot.ErrorLevel.RAISE)
    assert spark.lstrip().startswith(("SELECT", "WITH"))


def test_checks_name_every_finding_once(tmp_path: Path) -> None:
    write_lake(tmp_path, read_log(metadata_dir("kafka-3.9.2-upgrade")))
    findings = run_checks(Lake.open(tmp_path))
    assert len({finding.key for finding in findings}) == len(findings) > 0


def test_page_shows_what_the_command_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lake(tmp_path / "lake", read_log(metadata_dir("kafka-4.1.2")))
    monkeypatch.chdir(tmp_path)
    page, _, _ = PAGE.read_text(encoding="utf-8").partition("## Contracts and Great Expectations")
    shown = re.findall(r"```console\n\$ jbod (.*?)\n(.*?)```", page, re.DOTALL)
    assert shown
    for command, output in shown:
        with pytest.raises(SystemExit) as left:
            main.main(command.split())
        assert left.value.code == 1
        assert capsys.readouterr().out == output


def test_page_names_every_setting_of_checks() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in asdict(load().check) if f"`{name}`" not in page] == []
