"""docs/spec/matrix.md: every rule with its sources, the code that implements it and the tests that prove it."""

from __future__ import annotations

from functools import cache

from tests.support import rules

HEAD = """# Rules, code and tests

Every numbered rule of this folder: the KIP section, Kafka class and words it comes from, and the first line of each
file that cites it. The column *model* has `jbod_model`, the specification that can be run, and its laboratory `lab`;
*engine* has `pipelines`, which implements some rules a second time. Search this page for a word of the KIP (`LogDirs`,
`QueuedReplicaToDirAssignments`, `INVALID_REQUEST`) to find its rules. [kip.md](kip.md) goes the other way: from each
statement of the KIP to its rules. Invariants are not here: [invariants.md](invariants.md) says of each what checks it.
`python -m tests.docs --write` writes this page anew, and a test fails when it is out of date.

The engine replays records and never decides, so most rules of controllers and brokers have no code there. The rules of
offline replicas (R-OFF) have four implementations on purpose, which check one another: the model, the engine's kernel,
the SQL of the contracts C-15 and C-16 (`pipelines/check/contracts.py`), and TLA+ (`lab/tla`).

| rule | stated in | KIP section, Kafka class, words | model | engine | tests |
| --- | --- | --- | --- | --- | --- |
"""


def _cell(lines: dict[str, int]) -> str:
    return " ".join(f"[{path.rpartition('/')[2]}:{line}](../../{path}#L{line})" for path, line in lines.items())


@cache
def matrix() -> str:
    """The page."""
    columns = [
        rules.first_lines(files) for files in (rules.model_files(), rules.engine_files(), rules.files_of_tests())
    ]
    rows = []
    for rule in sorted(
        rules.stated_rules().values(),
        key=lambda rule: (rule.page, rule.id.rpartition("-")[0], int(rule.id.rpartition("-")[2])),
    ):
        cells = (_cell(column.get(rule.id, {})) for column in columns)
        rows.append(f"| {rule.id} | [{rule.page}]({rule.page}#L{rule.line}) | {rule.source} | {' | '.join(cells)} |")
    return HEAD + "\n".join(rows) + "\n"
