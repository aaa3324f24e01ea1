"""Checks: what each one is, and that SQL written once runs on both engines."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlglot

from pipelines.ask.lake import Lake
from pipelines.check.catalogue import CHECKS, ELSEWHERE
from pipelines.check.definition import Check
from pipelines.check.run import run_checks
from tests.lakes import write_lake
from tests.logs import read_log
from tests.paths import metadata_dir


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
    found = run_checks(Lake.open(tmp_path))
    assert len({one.key for one in found}) == len(found) > 0
