"""Bring a lake of an earlier format up to this one, step by step.

A lake says its format in the ledger's description. Each step takes it to the next one; the description is changed when
the step is done, and a step finds out for itself what of it is done already, so an upgrade that died is run again. What
only adds, a table or a column that may be null, is a line in ``STEPS``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import DeltaError

from jbod_model.errors import UsageError
from pipelines.lake import FORMAT_VERSION
from pipelines.lake.create import Identity, create_table, described
from pipelines.lake.foreign import REWRITTEN
from pipelines.lake.lock import alone
from pipelines.lake.tables import LEDGER, Table
from pipelines.upkeep.partitioning import partition


@dataclass(frozen=True)
class Step:
    """What makes a lake of the format before ``to`` one of format ``to``; ``what`` tells people."""

    to: int
    what: str
    do: Callable[[str], None]


def add_table(table: Table) -> Callable[[str], None]:
    """A step that makes an empty table."""

    def do(location: str) -> None:
        uri = f"{location}/{table.name}"
        if not DeltaTable.is_deltatable(uri):
            create_table(uri, table, Identity("", "", "", 0))

    return do


def add_column(table: Table, name: str) -> Callable[[str], None]:
    """A step that adds a column of the table's schema, null in the rows that are there."""

    def do(location: str) -> None:
        delta = DeltaTable(f"{location}/{table.name}")
        if name not in {column.name for column in delta.schema().fields}:
            delta.alter.add_columns(Schema.from_arrow(pa.schema([table.schema.field(name)])).fields)

    return do


STEPS: Sequence[Step] = (Step(2, "open rows in a partition for each shard", partition),)
"""In order, one or more for each format after the first. FORMAT_VERSION is the last one's ``to``."""


def upgrade(location: str, *, steps: Sequence[Step] = STEPS, to: int = FORMAT_VERSION) -> list[Step]:
    """Take the steps that a lake lacks; returns them. UsageError for a lake of a later format, or none."""
    described(location)
    with alone(location):
        said = described(location)
        found = int(said["format"])
        if found > to:
            raise UsageError(f"{location}: lake of format {found}, later than {to}: use the jbod that made it")
        taken = [step for step in steps if step.to > found]
        for step in taken:
            try:
                step.do(location)
                said["format"] = step.to
                DeltaTable(f"{location}/{LEDGER.name}").alter.set_table_description(
                    json.dumps(said), commit_properties=CommitProperties({REWRITTEN: "true"}, max_commit_retries=0)
                )
            except (DeltaError, OSError) as problem:
                raise UsageError(
                    f"{location}: the step to format {step.to} ({step.what}) failed: {problem}: run it again"
                ) from None
    return taken
