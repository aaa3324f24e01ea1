"""Great Expectations: Spark finds what DuckDB finds; verdicts, results and Data Docs are kept.

Tests import Great Expectations where they use it: that takes seconds, and each worker imports all tests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jbod_model.errors import JbodError
from pipelines.ask import Lake
from pipelines.check.catalogue import CHECKS, chosen, run_checks
from pipelines.check.contracts import CONTRACTS, run_contracts
from pipelines.check.expectations import batches, docs_page
from pipelines.check.expectations.batches import spark_checks, spark_sql, spark_views
from pipelines.check.findings import findings
from pipelines.cli import main
from pipelines.settings import load
from tests.support.lakes import write_lake
from tests.support.logs import read_log
from tests.support.paths import metadata_dir
from tests.support.tampering import TAMPERINGS, tamper
from tests.support.volume import rare
from tests.unit.check.story import Story, asking

pytestmark = pytest.mark.spark

OFFSETS = [
    rare("kafka-3.7.2", 396),
    rare("kafka-3.9.2-upgrade", 190),
    rare("kafka-3.9.2-zk-migration", 221),
    ("kafka-4.1.2", 264),
]
"""Of each cluster an offset at which much is wrong."""

SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.fixture(scope="module")
def small(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, set up as for a small lake."""
    before = {name: spark.conf.get(name) for name in SMALL}
    for name, value in SMALL.items():
        spark.conf.set(name, value)
    yield spark
    for name, old in before.items():
        assert old is not None
        spark.conf.set(name, old)


@pytest.mark.parametrize(("kafka", "offset"), OFFSETS)
def test_checks_on_spark_find_what_they_find_in_duckdb(
    small: SparkSession, tmp_path: Path, kafka: str, offset: int
) -> None:
    write_lake(tmp_path / "lake", [entry for entry in read_log(metadata_dir(kafka)) if entry.offset <= offset])
    lake = Lake.open(tmp_path / "lake")
    with spark_views(small, lake, load()):
        spark_findings = spark_checks(small, lake.snapshots)
    assert spark_findings == run_checks(lake)
    assert len({finding.check.id for finding in spark_findings}) >= 4


def test_checks_of_requests_on_spark_find_what_they_find_in_duckdb(small: SparkSession, tmp_path: Path) -> None:
    lake = asking().request("t", 1, 1, "a", error=6).lake(tmp_path)
    checks = chosen(["B-01", "B-02"])
    with spark_views(small, lake, load()):
        spark_findings = spark_checks(small, lake.snapshots, checks)
    assert spark_findings == run_checks(lake, ["B-01", "B-02"])
    assert len({finding.finding for finding in spark_findings}) == 5


def test_checks_of_sizes_on_spark_find_what_they_find_in_duckdb(small: SparkSession, tmp_path: Path) -> None:
    story = Story().broker(1, "abc").sized(1, a=(10, 100, 80), b=(10, 100, 80), c=(1, 100, 90)).pause(43_200)
    lake = story.sized(1, a=(46, 100, 9), b=(10, 100, 80), c=(1, 100, 90)).lake(tmp_path)
    checks = chosen(["B-38", "B-39", "B-40"])
    with spark_views(small, lake, load()):
        spark_findings = spark_checks(small, lake.snapshots, checks)
    assert spark_findings == run_checks(lake, ["B-38", "B-39", "B-40"])
    assert {finding.check.id for finding in spark_findings} == {"B-38", "B-39", "B-40"}


@pytest.fixture(scope="module")
def tampered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake in which every contract is broken."""
    lake = tmp_path_factory.mktemp("expectations") / "lake"
    log = read_log(metadata_dir("kafka-4.4.0"))
    write_lake(lake, log[:300], log[300:])
    opened = Lake.open(lake)  # a file that is changed in place is read again
    for name, table, change in TAMPERINGS:
        if name not in {breach.contract.name for breach in run_contracts(opened, [name[:4]])}:
            tamper(lake, table, change)
    # What breaks one contract may mend another.
    broken = {breach.contract.name for breach in run_contracts(opened)}
    for name, table, change in TAMPERINGS:
        if name not in broken:
            tamper(lake, table, change)
    return lake


def test_contracts_on_spark_break_where_they_break_in_duckdb(small: SparkSession, tampered: Path) -> None:
    lake = Lake.open(tampered)
    rules = (f"SELECT '{contract.id}' AS id, what FROM ({spark_sql(contract.sql)})" for contract in CONTRACTS)
    with spark_views(small, lake, load()):
        broken = small.sql(" UNION ALL ".join(rules)).collect()
    assert sorted((row.id, row.what) for row in broken) == sorted(
        (breach.contract.id, breach.what) for breach in run_contracts(lake)
    )


@pytest.mark.exhaustive
def test_rules_on_spark_multiply_no_tables(spark: SparkSession, tampered: Path) -> None:
    threshold = "spark.sql.autoBroadcastJoinThreshold"
    before = spark.conf.get(threshold)
    assert before is not None
    # Only views of one row, or of a few, are smaller.
    spark.conf.set(threshold, "1k")
    try:
        with spark_views(spark, Lake.open(tampered), load()):
            rules = [*(rule.sql for rule in CONTRACTS), *(rule.sql for rule in CHECKS)]
            rows = [spark.sql(spark_sql(sql)) for sql in rules]
            plans = [frame._jdf.queryExecution().sparkPlan().toString() for frame in rows]
    finally:
        spark.conf.set(threshold, before)
    assert any("SortMergeJoin" in plan for plan in plans)
    assert [plan for plan in plans if "CartesianProduct" in plan] == []


LOADS = r"<link[^>]*>|<script[^>]+src[^>]*>|<img[^>]*>|url\([^)]*\)|@import[^;]*"


def run(capfd: pytest.CaptureFixture[str], *arguments: Any) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as left:
        main.main(["check", *map(str, arguments)])
    printed = capfd.readouterr()
    return left.value.code, printed.out, printed.err


OF_FINDINGS = ("key", "severity", "subject", "broker_id", "topic", "partition", "from_offset", "finding", "advice")


def told_findings(answer: dict[str, Any]) -> list[list[object]]:
    return [[row[name] for name in OF_FINDINGS] for row in answer["findings"]]


@pytest.fixture
def use(small: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Sets the engine of the setting; Spark is the session of the tests."""
    monkeypatch.setattr(batches, "session", lambda *_: small)
    return lambda engine: monkeypatch.setenv("JBOD_CHECK__ENGINE", engine)


@pytest.mark.parametrize("engine_of_rules", ["duckdb", rare("spark")])
@pytest.mark.exhaustive
def test_validation_of_a_right_lake_meets_all_that_is_about_its_tables(
    use: Callable[[str], None], engine_of_rules: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from pipelines.check.expectations.validate import suites

    use(engine_of_rules)
    lake = tmp_path / "lake"
    write_lake(lake, read_log(metadata_dir("kafka-4.1.2")))
    code, _, err = run(capfd, "--lake", lake, "--docs")
    assert (code, err.count("\n")) == (2, 1)
    assert "no Data Docs yet: run jbod check --validate" in err

    code, out, _ = run(capfd, "--lake", lake, "--validate", "--json", "--fail-on", "critical")
    answer = json.loads(out)
    expected = run_checks(Lake.open(lake))
    assert code == 1
    assert told_findings(answer) == [[getattr(finding, name) for name in OF_FINDINGS] for finding in expected]
    assert [row["check_id"] for row in answer["findings"]] == [finding.check.id for finding in expected]
    assert {row["key"] for row in findings(str(lake))} == {finding.key for finding in expected}
    verdicts = answer["expectations"]
    assert verdicts["engine"] == engine_of_rules
    assert verdicts["broken"] == []
    assert {(failure["suite"], failure["severity"], failure["rule"]) for failure in verdicts["not_met"]} == {
        ("checks", finding.severity, f"{finding.check.id} {finding.check.name}") for finding in expected
    }
    assert verdicts["expectations"] == sum(len(suite.expectations) for suite in suites().values())

    code, out, _ = run(capfd, "--lake", lake, "--docs")
    assert (code, out.strip()) == (0, verdicts["docs"])
    page = Path(verdicts["docs"])
    for name in suites():
        (result,) = page.parent.glob(f"validations/{name}/offset-629/*/*.html")
        assert "Evaluated Expectations" in result.read_text()
    # No page loads anything, from the network or from another file.
    pages = [*page.parent.rglob("*.html")]
    assert len(pages) > 2 * len(suites())
    assert {reference for file in pages for reference in re.findall(LOADS, file.read_text())} == set()
    assert "analytics_enabled: false" in (lake / "expectations" / "gx" / "great_expectations.yml").read_text()


@pytest.mark.parametrize("engine_of_rules", ["duckdb", rare("spark")])
def test_validation_of_a_wrong_lake_names_the_wrong_rows_and_no_others(
    use: Callable[[str], None],
    engine_of_rules: str,
    tampered: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The contracts break on Spark where they break in DuckDB, and the checks find the same."""
    monkeypatch.setenv("JBOD_CHECK__EXPECTATIONS", str(tmp_path / "kept"))
    lake = Lake.open(tampered)
    use(engine_of_rules)
    code, out, _ = run(capfd, "--lake", tampered, "--validate", "--no-keep", "--json")
    answer = json.loads(out)
    assert code == 1
    assert told_findings(answer) == [[getattr(finding, name) for name in OF_FINDINGS] for finding in run_checks(lake)]
    broken = run_contracts(lake)
    assert answer["expectations"]["broken"] == [
        {"contract": breach.contract.id, "table": breach.contract.table, "what": breach.what} for breach in broken
    ]
    assert {breach.contract.name for breach in broken} == {contract.name for contract in CONTRACTS}

    use("duckdb")
    code, out, _ = run(capfd, "--lake", tampered, "--validate", "--no-keep")
    assert code == 1
    unmet = [failure for failure in answer["expectations"]["not_met"] if failure["suite"] != "checks"]
    lines = re.findall(r"^  [A-Z]+ \w+: .*$", out.partition("Great Expectations:")[2], re.MULTILINE)
    rows = {None: "", 1: ": 1 row"}
    assert sorted(lines) == sorted(
        f"  {failure['severity'].upper()} {failure['suite']}: {failure['rule']}"
        + rows.get(failure["unexpected"], f": {failure['unexpected']} rows")
        for failure in unmet
    )
    assert f"Data Docs: {docs_page(tmp_path / 'kept')}" in out
    for contract in CONTRACTS:
        assert f"CRITICAL contracts: {contract.name}: " in out
    assert "CRITICAL partitions: expect_column_values_to_not_be_null topic_id: 1 row\n" in out
    assert "CRITICAL brokers: expect_compound_columns_to_be_unique" in out
    assert "CRITICAL directories: expect_column_values_to_match_regex directory_id" in out


def test_checkpoints_made_again_are_the_same_and_follow_a_changed_definition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipelines.check.expectations import validate
    from pipelines.check.expectations.validate import suites

    def ids(engine: batches.Engine = "duckdb") -> dict[str, list[str | None]]:
        with validate.project(tmp_path) as context:
            made = validate.checkpoints(context, engine)
        return {
            name: [
                checkpoint.id,
                *(expectation.id for expectation in checkpoint.validation_definitions[0].suite.expectations),
            ]
            for name, checkpoint in made.items()
        }

    few = {name: suite for name, suite in suites().items() if name in ("ledger", "checks")}
    monkeypatch.setattr(validate, "suites", lambda: few)
    before = ids()
    assert all(identifier for group in before.values() for identifier in group)
    assert ids() == before
    few["ledger"].expectations = few["ledger"].expectations[:-1]
    after = ids()
    assert after["checks"] == before["checks"]
    assert after["ledger"] == before["ledger"][:-1]


def test_validation_is_refused_while_another_one_runs_or_where_it_cannot_write(tmp_path: Path) -> None:
    from pipelines.check.expectations import validate

    def use(folder: Path) -> None:
        with validate.project(folder):
            pass

    with validate.project(tmp_path), pytest.raises(JbodError, match="another validation is running there"):
        use(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(JbodError, match="the expectations cannot be kept there"):
        use(tmp_path / "file")
    (tmp_path / "gx" / "great_expectations.yml").write_text("config_version: [")
    with pytest.raises(JbodError, match="no project of Great Expectations that can be used"):
        use(tmp_path)


def test_old_runs_are_forgotten(tmp_path: Path) -> None:
    from pipelines.check.expectations import validate

    for time in ("20260101T000000.0Z", "20260102T000000.0Z", "20260103T000000.0Z"):
        for kept in ("validations", "data_docs/local_site/validations"):
            (tmp_path / "gx" / "uncommitted" / kept / "checks" / "offset-9" / time).mkdir(parents=True)
    validate.forget_old_runs(tmp_path, 2)
    left = sorted(path.name for path in tmp_path.glob("gx/uncommitted/validations/checks/*/*"))
    assert left == ["20260102T000000.0Z", "20260103T000000.0Z"]
    assert len([*tmp_path.glob("gx/uncommitted/data_docs/local_site/validations/checks/*/*")]) == 2
