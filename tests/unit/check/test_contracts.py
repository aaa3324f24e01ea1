"""Contracts: kept by every lake that is right, broken by every one that is not."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from jbod_model.errors import UsageError
from jbod_model.profiles import KIP858
from pipelines.ask import Lake
from pipelines.check.contracts import CONTRACTS, chosen_contracts, run_contracts
from pipelines.cli import main
from tests.support.lakes import write_lake
from tests.support.logs import read_log
from tests.support.paths import EVERY_KAFKA, metadata_dir
from tests.support.tampering import TAMPERINGS, Change, tamper
from tests.support.volume import sampled


def broken(lake: Path) -> list[str]:
    return [f"{broken_row.contract.name}: {broken_row.what}" for broken_row in run_contracts(Lake.open(lake))]


@pytest.mark.parametrize("kafka", sampled(EVERY_KAFKA, 1))
def test_contracts_hold_for_every_cluster(tmp_path: Path, kafka: str) -> None:
    log = read_log(metadata_dir(kafka))
    write_lake(tmp_path / "lake", log[: len(log) // 2], log[len(log) // 2 :])
    assert broken(tmp_path / "lake") == []


@pytest.mark.exhaustive
def test_contracts_hold_where_a_snapshot_stands_for_what_was_missed(tmp_path: Path) -> None:
    source = metadata_dir("kafka-4.1.2")
    write_lake(tmp_path / "lake", read_log(source)[:300], read_log(source, "snapshot"))
    assert broken(tmp_path / "lake") == []


def test_contracts_hold_under_the_rules_of_the_page(tmp_path: Path) -> None:
    write_lake(tmp_path / "lake", read_log(metadata_dir("kafka-3.7.2")), profile=KIP858)
    assert broken(tmp_path / "lake") == []


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = tmp_path_factory.mktemp("contracts") / "lake"
    log = read_log(metadata_dir("kafka-4.4.0"))
    write_lake(lake, log[:300], log[300:])
    return lake


@pytest.mark.parametrize(
    # tests/integration/test_expectations.py breaks all of them at once.
    ("name", "table", "change"),
    sampled(TAMPERINGS, 4),
    ids=[f"{contract} by {by}" for contract, by, _ in TAMPERINGS],
)
def test_contract_is_broken_by_a_row_that_is_wrong(
    right: Path, tmp_path: Path, name: str, table: str, change: Change
) -> None:
    lake = tmp_path / "lake"
    shutil.copytree(right, lake)
    tamper(lake, table, change)
    assert name in {broken_row.contract.name for broken_row in run_contracts(Lake.open(lake), [name[:4]])}


def test_contracts_have_each_a_tampering_and_a_name_of_their_own() -> None:
    assert {name for name, _, _ in TAMPERINGS} == {contract.name for contract in CONTRACTS}
    assert len({contract.name for contract in CONTRACTS}) == len(CONTRACTS)


def test_contracts_can_be_chosen_by_id() -> None:
    assert {contract.id for contract in chosen_contracts(["C-07", "C-04"])} == {"C-04", "C-07"}
    with pytest.raises(UsageError, match="C-99: no such contract: there are C-01 to C-27"):
        chosen_contracts(["C-99"])


def test_contract_names_the_row_that_breaks_it(right: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    shutil.copytree(right, lake)

    def shorten(rows: list[dict[str, Any]]) -> None:
        row = next(row for row in rows if row["topic"] == "solo" and row["to_offset"] is None)
        row["directories"] = []
        expected.append(f"topic_id {row['topic_id']} partition {row['partition']} from_offset {row['from_offset']}")

    expected: list[str] = []
    tamper(lake, "partitions", shorten)
    assert [broken_row.what for broken_row in run_contracts(Lake.open(lake), ["C-08"])] == expected


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--validate", "--only", "B-03"], "--validate runs everything at the newest offset: leave out --only"),
        (["--validate", "--at-offset", "3"], "--validate runs everything at the newest offset"),
        (["--docs"], "no Data Docs yet: run jbod check --validate"),
    ],
)
def test_expectations_bad_usage_is_one_line_and_starts_no_jvm(
    right: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    with pytest.raises(SystemExit) as left:
        main.main(["check", "--lake", str(right), *arguments])
    printed = capsys.readouterr()
    assert (left.value.code, printed.out, printed.err.count("\n")) == (2, "", 1)
    assert line in printed.err
