"""The suites: one for each table, one for the contracts, one for the checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import great_expectations.expectations
import pyarrow as pa
from great_expectations import ExpectationSuite
from great_expectations.expectations.expectation import Expectation
from great_expectations.expectations.metadata_types import FailureSeverity

from pipelines.check.catalogue import CHECKS
from pipelines.check.contracts import CONTRACTS, Contract
from pipelines.check.definition import SEVERITIES, Check, Severity
from pipelines.lake.tables import LEDGER, OF_REPLICAS, RECORDS, Table

# The package does not mark its exports, which strict mypy refuses.
gxe: Any = great_expectations.expectations

VALIDATED = (RECORDS, *OF_REPLICAS, LEDGER)
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
    ("partitions", "leader_recovery"): ("RECOVERED", "RECOVERING"),
    ("ledger", "profile"): ("kafka", "kip858", "draft"),
    ("ledger", "ids"): ("kafka", "kip858"),
}  # fmt: skip
_LEAST = {"partition": 0, "replica_index": 0, "broker_id": 0, "leader": -1, "from_offset": 0, "log_offset": 0}


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
    query = f"SELECT what FROM {{batch}} WHERE contract = '{contract.id}' AND about = '{contract.table}'"
    return _nothing(query, contract.severity, f"{contract.name} ({contract.severity}): {contract.title}", contract.sql)


def _of_check(check: Check) -> Iterator[Expectation]:
    """One expectation for each possible severity of the check's findings."""
    for severity in SEVERITIES if " AS severity" in check.sql else (check.severity,):
        query = f"SELECT * FROM {{batch}} WHERE check = '{check.id}' AND severity = '{severity}'"
        yield _nothing(
            query, severity, f"{check.id} {check.name} ({severity}): {check.title}", f"{check.why}\n{check.sql}"
        )


def _nothing(query: str, severity: Severity, title: str, notes: str) -> Expectation:
    """Expects a query to return no row. The Data Docs show ``notes`` below the title."""
    expectation: Expectation = gxe.UnexpectedRowsExpectation(
        unexpected_rows_query=query,
        severity=FailureSeverity(severity),
        description=title,
        meta={"rule": title.partition(" (")[0]},
        notes=notes,
    )
    return expectation
