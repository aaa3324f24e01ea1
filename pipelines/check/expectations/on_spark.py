"""Runs contracts and checks on Spark, one after the other.

Each rule is a separate job, because Spark frees sorted, shuffled and broadcast data at the end of a job. The data of
all rules in one job would fill the memory.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

from pipelines.check.catalogue import CHECKS
from pipelines.check.contract import Contract
from pipelines.check.contract_run import Broken
from pipelines.check.contracts import CONTRACTS
from pipelines.check.definition import Check, Finding, finding
from pipelines.check.evaluate import in_order
from pipelines.check.expectations.spark_views import spark_sql
from pipelines.lake.ledger import time_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def spark_contracts(spark: SparkSession, contracts: Sequence[Contract] = CONTRACTS) -> list[Broken]:
    """The rows that break the contracts, as from ``run_contracts``. The views must exist."""
    return [
        Broken(contract, what)
        for contract in contracts
        for what in sorted(what for (what,) in spark.sql(spark_sql(contract.sql)).select("what").collect())
    ]


def spark_checks(spark: SparkSession, checks: Sequence[Check] = CHECKS) -> list[Finding]:
    """The findings of the checks, as from ``run_checks``. The views must exist."""
    found = []
    for check in checks:
        for (text,) in _as_json(spark.sql(spark_sql(check.sql))).collect():
            row = json.loads(text)
            found.append(finding(check, row | {"since_time": time_of(row["since_time"])}))
    return in_order(found)


def _as_json(rows: DataFrame) -> DataFrame:
    """Each row as JSON text with times in microseconds, because checks have different columns."""
    columns = [
        F.unix_micros(field.name).alias(field.name) if isinstance(field.dataType, TimestampType) else F.col(field.name)
        for field in rows.schema
    ]
    return rows.select(F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}).alias("row"))
