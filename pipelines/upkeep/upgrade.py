"""Upgrades a lake of an earlier format, step by step.

The ledger's description names the format of a lake. Each step converts the lake to the next format and then changes the
description. A step finds out which part of it is done already, so an upgrade that died can be run again. A step that
only adds a table or a nullable column is one line in ``STEPS``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from deltalake import CommitProperties, Schema
from deltalake.exceptions import DeltaError

from jbod_model.errors import UsageError
from pipelines.lake import FORMAT_VERSION
from pipelines.lake.create import Identity, create_table, described
from pipelines.lake.delta import delta_at, is_table
from pipelines.lake.foreign import REWRITTEN, commit_info
from pipelines.lake.lock import alone
from pipelines.lake.tables import LEDGER, Table
from pipelines.upkeep.derived import add_derived
from pipelines.upkeep.partitioning import partition


@dataclass(frozen=True)
class Step:
    """Converts a lake to format ``to`` from the format before. ``what`` describes the step."""

    to: int
    what: str
    do: Callable[[str], None]


def add_table(table: Table) -> Callable[[str], None]:
    """A step that creates an empty table."""

    def do(location: str) -> None:
        uri = f"{location}/{table.name}"
        if not is_table(uri):
            create_table(uri, table, Identity("", "", "", 0))

    return do


def add_column(table: Table, name: str) -> Callable[[str], None]:
    """A step that adds a column of the table's schema. It is null in existing rows."""

    def do(location: str) -> None:
        delta = delta_at(f"{location}/{table.name}")
        if name not in {column.name for column in delta.schema().fields}:
            delta.alter.add_columns(Schema.from_arrow(pa.schema([table.schema.field(name)])).fields)

    return do


STEPS: Sequence[Step] = (
    Step(2, "open rows in a partition for each shard", partition),
    Step(3, "tables changes, controllers and voters", add_derived),
)
"""The steps in order, one or more for each format after the first. FORMAT_VERSION is ``to`` of the last step."""


def upgrade(location: str, *, steps: Sequence[Step] = STEPS, to: int = FORMAT_VERSION) -> list[Step]:
    """Runs the steps that a lake needs and returns them. Raises UsageError for a later format, or without a lake."""
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
                info = commit_info({REWRITTEN: "true"}, f"upgraded the lake to format {step.to}")
                delta_at(f"{location}/{LEDGER.name}").alter.set_table_description(
                    json.dumps(said), commit_properties=CommitProperties(info, max_commit_retries=0)
                )
            except (DeltaError, OSError) as problem:
                raise UsageError(
                    f"{location}: the step to format {step.to} ({step.what}) failed: {problem}: run it again"
                ) from None
    return taken
