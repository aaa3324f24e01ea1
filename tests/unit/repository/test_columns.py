"""docs/columns.md: the rows of every question. The test writes the page anew and fails if it was out of date."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.show.columns import TABLES
from pipelines.show.rows import Table
from tests.support.paths import ROOT

HEAD = """# The rows of every question

`jbod QUESTION --format csv|ndjson|parquet` prints rows with these columns. Names are those of the lake's tables. A name
never changes its meaning, and new columns come at the end. Times are UTC. In CSV, null is empty and a list has commas.
`--sort` takes these names. `tests/unit/repository/test_columns.py` writes this page from `pipelines/show/columns.py`.
"""


def page(tables: tuple[Table, ...]) -> Iterator[str]:
    yield HEAD
    for table in tables:
        filters = ", ".join(f"`--{name}`" for name in table.filters)
        yield f"## jbod {table.name}\n"
        reasons = f" `--reason` compares {', '.join(table.reasons)}." if table.reasons else ""
        yield f"A row is {table.row}." + (f" Filters: {filters}." if filters else "") + reasons + "\n"
        yield "| column | type | is |\n| --- | --- | --- |"
        yield from (f"| `{column.name}` | {column.kind} | {column.about} |" for column in table.all_columns)
        yield ""


def test_page_of_columns_is_up_to_date() -> None:
    file = ROOT / "docs" / "columns.md"
    expected = "\n".join(page(TABLES)).rstrip() + "\n"
    found = file.read_text(encoding="utf-8") if file.is_file() else ""
    if found != expected:
        file.write_text(expected, encoding="utf-8")
    assert found == expected, "docs/columns.md was out of date and is written anew: look at it, and commit it"


def test_a_name_is_used_once_in_a_table() -> None:
    for table in TABLES:
        names = [column.name for column in table.all_columns]
        assert len(names) == len(set(names)), table.name
