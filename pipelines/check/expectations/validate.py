"""Validates the published tables of a lake with Great Expectations, and keeps results and Data Docs.

The project of Great Expectations is a folder. Each run updates it from jbod's definitions. The folder keeps the results
of the runs and the Data Docs. The project's configuration names the classes of their pages (``site_section_builders``,
``site_index_builder``), which load nothing: style and script are in each page. Their templates are in ``templates`` and
win over those of Great Expectations with the same name.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import great_expectations as gx
import great_expectations.expectations
import pyarrow as pa
from filelock import FileLock, Timeout
from great_expectations import ExpectationSuite
from great_expectations.checkpoint.checkpoint import Checkpoint
from great_expectations.core.run_identifier import RunIdentifier
from great_expectations.data_context.types.base import ProgressBarsConfig
from great_expectations.data_context.types.resource_identifiers import ExpectationSuiteIdentifier
from great_expectations.exceptions.exceptions import DataContextError, GreatExpectationsError
from great_expectations.expectations.expectation import Expectation
from great_expectations.expectations.metadata_types import FailureSeverity
from great_expectations.render.view.view import DefaultJinjaIndexPageView, DefaultJinjaPageView, DefaultJinjaView
from jinja2 import ChoiceLoader, PackageLoader
from yaml import YAMLError

from jbod_model.errors import JbodError, UsageError
from pipelines.ask.json_values import jsonable
from pipelines.check.catalogue import CHECKS
from pipelines.check.contract import Contract
from pipelines.check.contracts import CONTRACTS, Broken
from pipelines.check.definition import SEVERITIES, Check, Finding, Severity
from pipelines.check.expectations import docs_page
from pipelines.check.expectations.batches import Engine, ValidatedBatches
from pipelines.lake.reader import Lake
from pipelines.lake.tables import HISTORY, LEDGER, RECORDS, Table

if TYPE_CHECKING:
    from great_expectations.data_context.data_context.file_data_context import FileDataContext

# The package does not mark its exports, which strict mypy refuses.
gxe: Any = great_expectations.expectations

VALIDATED = (RECORDS, *HISTORY, LEDGER)
CONTRACTS_SUITE = "contracts"
CHECKS_SUITE = "checks"

_ID = "^[A-Za-z0-9_-]{21}[AQgw]$"
_VALUES: Mapping[tuple[str, str], Sequence[str]] = {
    ("brokers", "ended_by"): ("registered", "changed", "unregistered", "resync"),
    ("directories", "ended_by"): ("failed", "deregistered", "moved", "unregistered", "resync"),
    ("assignments", "ended_by"): (
        "assigned", "moved", "unassigned", "lost", "reassigned", "reordered", "removed", "resync",
    ),
    ("assignments", "kind"): ("assigned", "unassigned", "lost", "migrating"),
    ("offline_replicas", "reason"): ("broker missing", "broker fenced", "directory offline", "directory lost"),
    ("controllers", "ended_by"): ("registered", "unregistered", "resync"),
    ("voters", "role"): ("leader", "voter", "observer"),
    ("voters", "ended_by"): ("election", "voters", "kraft version", "resync"),
    ("partitions", "leader_recovery"): ("RECOVERED", "RECOVERING"),
    ("ledger", "profile"): ("kafka", "kip858"),
    ("ledger", "ids"): ("kafka", "kip858"),
}  # fmt: skip
_LEAST = {"partition": 0, "replica_index": 0, "broker_id": 0, "controller_id": 0, "node_id": 0, "leader": -1,
          "from_offset": 0, "log_offset": 0}  # fmt: skip


def suites() -> dict[str, ExpectationSuite]:
    """Every suite by name. The suite of a table has the table's name."""
    made = {table.name: ExpectationSuite(table.name, expectations=[*_of_table(table)]) for table in VALIDATED}
    contracts = [_of_contract(contract) for contract in CONTRACTS]
    checks = [expectation for check in CHECKS for expectation in _of_check(check)]
    return {
        **made,
        CONTRACTS_SUITE: ExpectationSuite(CONTRACTS_SUITE, expectations=contracts),
        CHECKS_SUITE: ExpectationSuite(CHECKS_SUITE, expectations=checks),
    }


def _of_table(table: Table) -> Iterator[Expectation]:
    """The declaration of the table, and the permitted values of columns."""
    yield gxe.ExpectTableColumnsToMatchOrderedList(column_list=table.schema.names)
    for field in table.schema:
        if not field.nullable:
            yield gxe.ExpectColumnValuesToNotBeNull(column=field.name)
        if pa.types.is_string(field.type) and field.name.endswith("_id") and field.name != "cluster_id":
            yield gxe.ExpectColumnValuesToMatchRegex(column=field.name, regex=_ID)
        if (table.name, field.name) in _VALUES:
            yield gxe.ExpectColumnValuesToBeInSet(column=field.name, value_set=[*_VALUES[(table.name, field.name)]])
        if field.name in _LEAST:
            yield gxe.ExpectColumnValuesToBeBetween(column=field.name, min_value=_LEAST[field.name])
    if len(table.key) > 1:
        yield gxe.ExpectCompoundColumnsToBeUnique(column_list=[*table.key])
    else:
        yield gxe.ExpectColumnValuesToBeUnique(column=table.key[0])
    if table.history:
        yield gxe.ExpectColumnPairValuesAToBeGreaterThanB(
            column_A="to_offset", column_B="from_offset", ignore_row_if="either_value_is_missing"
        )


def _of_contract(contract: Contract) -> Expectation:
    return _nothing(contract.name, "critical", f"{contract.name} (critical): {contract.title}", contract.sql)


def severities(check: Check) -> Sequence[Severity]:
    """The possible severities of the check's findings. There is an expectation for each."""
    return SEVERITIES if " AS severity" in check.sql else (check.severity,)


def _of_check(check: Check) -> Iterator[Expectation]:
    for severity in severities(check):
        title = f"{check.id} {check.name} ({severity}): {check.title}"
        yield _nothing(column_of(check, severity), severity, title, f"{check.why}\n{check.sql}")


def column_of(check: Check, severity: Severity) -> str:
    """The column of a check's findings of one severity, in the batch of the suite."""
    return f"{check.id} {severity}"


def _nothing(column: str, severity: Severity, title: str, notes: str) -> Expectation:
    """Expects that a rule found nothing: its column of the batch holds only nulls.

    A condition on rows would do, too, but Great Expectations needs a third of its time for such conditions. The Data
    Docs show ``notes`` below the title.
    """
    expectation: Expectation = gxe.ExpectColumnValuesToBeNull(
        column=column,
        severity=FailureSeverity(severity),
        description=title,
        meta={"rule": title.partition(" (")[0]},
        notes=notes,
    )
    return expectation


def results(columns: Sequence[str], rows: Iterable[tuple[str, str]]) -> pa.Table:
    """The batch of a suite of rules: a column for each rule, and a row for each result (column, text)."""
    listed = list(rows)
    return pa.table(
        {name: pa.array([text if column == name else None for column, text in listed], pa.string()) for name in columns}
    )


def check_results(findings: Iterable[Finding]) -> pa.Table:
    """The batch of the suite of checks."""
    columns = [column_of(check, severity) for check in CHECKS for severity in severities(check)]
    rows = (
        (column_of(finding.check, finding.severity), f"{finding.subject}: {finding.finding}") for finding in findings
    )
    return results(columns, rows)


_OURS = PackageLoader("pipelines.check.expectations", "templates")


def readable(sections: Sequence[Any]) -> list[Any]:
    """The sections of a page, those with failures first; the first section, an overview, stays where it is.

    Rows of a table of results are ordered in the same way. A column without rows has no percentage, and the data of a
    suite has its name.
    """
    page = [_readable(section) for section in sections]
    return page[:1] + sorted(page[1:], key=_is_sound)


def _readable(part: Any) -> Any:
    if isinstance(part, dict):
        fields = {name: _readable(value) for name, value in part.items()}
        if fields.get("data_asset_name") in ("None", None) and "expectation_suite_name" in fields:
            fields["data_asset_name"] = fields["expectation_suite_name"]
        return fields
    if isinstance(part, list):
        listed = [_readable(child) for child in part]
        is_results = listed and all(isinstance(row, dict) and "validation_success" in row for row in listed)
        return sorted(listed, key=_is_sound) if is_results else listed
    return "no rows" if part == "NaN% null" else part


def _is_sound(part: Any) -> bool:
    """Whether nothing failed: Great Expectations shows each failure in this style."""
    return "text-danger" not in json.dumps(part, default=str)


class _View(DefaultJinjaView):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.env.loader = ChoiceLoader([_OURS, *filter(None, [self.env.loader])])
        self.env.filters["readable"] = readable


class PageView(_View, DefaultJinjaPageView):
    """The view of a suite and of a result."""


class IndexPageView(_View, DefaultJinjaIndexPageView):
    """The view of the first page."""


def _view(name: str) -> dict[str, str]:
    return {"module_name": __name__, "class_name": name}


def _section(source: str, renderer: str) -> dict[str, Any]:
    return {
        "class_name": "DefaultSiteSectionBuilder",
        "source_store_name": source,
        "renderer": {"class_name": renderer},
        "view": _view(PageView.__name__),
    }


SITE: dict[str, Any] = {
    "show_how_to_buttons": False,
    "site_index_builder": {"class_name": "DefaultSiteIndexBuilder", "view": _view(IndexPageView.__name__)},
    "site_section_builders": {
        "expectations": _section("expectations_store", "ExpectationSuitePageRenderer"),
        "validations": _section("validation_results_store", "ValidationResultsPageRenderer"),
    },
}
"""The part of a site's configuration that chooses these views."""


KEPT_RUNS = 50
"""The runs of which results and pages are kept."""


SOURCES: Mapping[Engine, str] = {"duckdb": "pandas", "spark": "lake"}


@dataclass(frozen=True)
class Failure:
    """An expectation that was not met."""

    suite: str
    severity: Severity
    rule: str
    unexpected: int | None
    """The number of unexpected rows, None if the expectation is not about rows."""


@dataclass(frozen=True)
class Validation:
    """The result of all suites at the newest offset of a lake."""

    offset: int
    time: datetime
    engine: Engine
    expectations: int
    failures: Sequence[Failure]
    broken: Sequence[Broken]
    findings: Sequence[Finding]
    docs: Path
    """The first page of the Data Docs."""

    def as_json(self) -> dict[str, Any]:
        """One JSON object."""
        return {
            "engine": self.engine,
            "expectations": self.expectations,
            "not_met": jsonable(list(self.failures)),
            "broken": [
                {"contract": row.contract.id, "table": row.contract.table, "what": row.what} for row in self.broken
            ],
            "docs": str(self.docs),
        }


def validate_batches(made: ValidatedBatches, lake: Lake, folder: Path) -> Validation:
    """Runs every suite on the published tables. Results and Data Docs stay in the project at ``folder``.

    ``lake`` is at its newest offset. Raises UsageError if the folder cannot be written to or holds no usable project,
    and JbodError while another run uses it.
    """
    with project(folder) as context:
        forget_old_runs(folder, KEPT_RUNS - 1)
        run = RunIdentifier(run_name=f"offset-{lake.offset}", run_time=datetime.now(UTC))
        expectations, failures = 0, []
        pages: list[Any] = []
        for name, checkpoint in checkpoints(context, made.engine).items():
            # A table at a time: its rows are freed before the next ones are read.
            outcome = checkpoint.run(batch_parameters={"dataframe": _batch(made, name)}, run_id=run)
            pages += [*outcome.run_results, ExpectationSuiteIdentifier(name)]
            for suite_result in outcome.run_results.values():
                expectations += len(suite_result.results)
                failures += [
                    _failure(name, expectation_result)
                    for expectation_result in suite_result.results
                    if not expectation_result.success
                ]
        # The pages of this run, and the index once. As an action of each checkpoint it would be written nine times.
        context.build_data_docs(resource_identifiers=pages)
    docs = docs_page(folder)
    return Validation(lake.offset, lake.time, made.engine, expectations, failures, made.broken(), made.findings(), docs)


def _batch(made: ValidatedBatches, suite: str) -> Any:
    if suite == CONTRACTS_SUITE:
        broken = ((row.contract.name, row.what) for row in made.broken())
        return made.frame(results([contract.name for contract in CONTRACTS], broken))
    return made.frame(check_results(made.findings())) if suite == CHECKS_SUITE else made.table(suite)


@contextlib.contextmanager
def project(folder: Path) -> Iterator[FileDataContext]:
    """Opens the project, created or updated, for this run only. Its output goes to standard error."""
    with contextlib.redirect_stdout(sys.stderr):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with FileLock(folder / ".lock", timeout=0):
                context = gx.get_context(mode="file", project_root_dir=folder)
                context.variables.analytics_enabled = False
                context.variables.progress_bars = ProgressBarsConfig(globally=False)
                # What is read of the variables is a copy.
                sites = context.variables.data_docs_sites or {}
                context.variables.data_docs_sites = {name: {**site, **SITE} for name, site in sites.items()}
                context.variables.save()
                yield context
        except Timeout:
            raise JbodError(f"{folder}: another validation is running there: wait for it") from None
        except (GreatExpectationsError, YAMLError) as problem:
            what = " ".join(str(problem).split())[:200]
            raise UsageError(
                f"{folder}: no project of Great Expectations that can be used ({what}): remove it"
            ) from None
        except OSError as problem:
            raise UsageError(f"{folder}: the expectations cannot be kept there: {problem.strerror}") from None


def checkpoints(context: FileDataContext, engine: Engine) -> dict[str, Checkpoint]:
    """A checkpoint for each suite. A checkpoint whose definition and engine have not changed keeps its ids."""
    sources, name = context.data_sources, SOURCES[engine]
    try:
        source = sources.get(name)
    except KeyError:
        source = sources.add_spark(name) if engine == "spark" else sources.add_pandas(name)
    return {name: _checkpoint(context, source, suite) for name, suite in suites().items()}


def _checkpoint(context: FileDataContext, source: Any, suite: gx.ExpectationSuite) -> Checkpoint:
    definition = json.dumps([source.name, suite.to_json_dict()["expectations"]], sort_keys=True)
    suite.meta = {"definition": hashlib.sha256(definition.encode()).hexdigest()}
    with contextlib.suppress(DataContextError):
        known: Checkpoint = context.checkpoints.get(suite.name)
        if known.validation_definitions[0].suite.meta.get("definition") == suite.meta["definition"]:
            return known
    try:
        batch = source.get_asset(suite.name).get_batch_definition("all")
    except LookupError:
        batch = source.add_dataframe_asset(suite.name).add_batch_definition_whole_dataframe("all")
    return context.checkpoints.add_or_update(
        Checkpoint(
            name=suite.name,
            validation_definitions=[gx.ValidationDefinition(name=suite.name, data=batch, suite=suite)],
            actions=[],
            result_format={"result_format": "COMPLETE"},
        )
    )


def forget_old_runs(folder: Path, keep: int) -> None:
    """Deletes all but the newest results and pages of each suite: an index of all runs becomes slow."""
    kept = folder / "gx" / "uncommitted"
    for results in (kept / "validations", kept / "data_docs" / "local_site" / "validations"):
        for suite in results.glob("*"):
            runs = sorted(suite.glob("*/*"), key=lambda path: path.name, reverse=True)
            for run in runs[keep:]:
                shutil.rmtree(run)


def _failure(suite: str, outcome: Any) -> Failure:
    config = outcome.expectation_config
    result = outcome.result or {}
    given = config.kwargs
    columns = given.get("column_list") or [given[name] for name in ("column", "column_A", "column_B") if name in given]
    rule = (config.meta or {}).get("rule") or f"{config.type} {', '.join(columns)}"
    unexpected = result.get("unexpected_count", result.get("observed_value"))
    for problem in _problems(outcome.exception_info or {}):
        raise JbodError(f"{suite}: {rule} could not be evaluated: {problem}")
    return Failure(suite, config.severity.value, rule, unexpected if isinstance(unexpected, int) else None)


def _problems(info: Mapping[str, Any]) -> list[str]:
    """Messages of the exceptions raised by the expectation itself, or by its metrics."""
    raised = [
        exception
        for exception in (info, *info.values())
        if isinstance(exception, Mapping) and exception.get("raised_exception")
    ]
    return [str(exception.get("exception_message")) for exception in raised]
