"""The suites: one for records, for the ledger and each table of history; one for the contracts, one for the checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import great_expectations.expectations
import pyarrow as pa
from great_expectations import ExpectationSuite
from great_expectations.expectations.expectation import Expectation
from great_expectations.expectations.metadata_types import FailureSeverity

from pipelines.check.catalogue import CHECKS
from pipelines.check.contract import Contract
from pipelines.check.contracts import CONTRACTS, Broken
from pipelines.check.definition import SEVERITIES, Check, Finding, Severity
from pipelines.lake.tables import HISTORY, LEDGER, RECORDS, Table

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
    title = f"{contract.name} ({contract.severity}): {contract.title}"
    return _nothing(contract.name, contract.severity, title, contract.sql)


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


def contract_results(broken: Iterable[Broken]) -> pa.Table:
    """The batch of the suite of contracts."""
    return results([contract.name for contract in CONTRACTS], ((one.contract.name, one.what) for one in broken))


def check_results(findings: Iterable[Finding]) -> pa.Table:
    """The batch of the suite of checks."""
    columns = [column_of(check, severity) for check in CHECKS for severity in severities(check)]
    said = ((column_of(one.check, one.severity), f"{one.subject}: {one.finding}") for one in findings)
    return results(columns, said)
