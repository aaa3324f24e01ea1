"""docs/spec/columns.md: the rows of every question."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.show import columns, columns_plans
from pipelines.show.rows import RowTable

_NAMED = {**vars(columns), **vars(columns_plans)}
TABLES = sorted((table for table in _NAMED.values() if isinstance(table, RowTable)), key=lambda table: table.name)
"""The rows of every question, by its name."""

HEAD = """# The rows of every question

`jbod QUESTION --format csv|ndjson|parquet` prints rows with these columns. Names are those of the lake's tables. A name
never changes its meaning, and new columns come at the end. Times are UTC. In CSV, null is empty and a list has commas.
`--sort` takes these names. `python -m tests.docs --write` writes this page from `pipelines/show/columns.py`.
"""


def columns_page() -> str:
    """The page."""
    return "\n".join(_lines(TABLES)).rstrip() + "\n"


def _lines(tables: list[RowTable]) -> Iterator[str]:
    yield HEAD
    for table in tables:
        filters = ", ".join(f"`--{name}`" for name in table.filters)
        yield f"## jbod {table.name}\n"
        reasons = f" `--reason` compares {', '.join(table.reasons)}." if table.reasons else ""
        yield f"A row is {table.row}." + (f" Filters: {filters}." if filters else "") + reasons + "\n"
        yield "| column | type | is |\n| --- | --- | --- |"
        yield from (f"| `{column.name}` | {column.kind} | {column.about} |" for column in table.all_columns)
        yield ""
