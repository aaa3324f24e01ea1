"""The names at the surface: JSON has the names that CSV has, and an option has one name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from pipelines.cli.main import application
from tests.docs.columns import TABLES
from tests.support.paths import ROOT, metadata_dir
from tests.support.volume import sampled

LISTS = {
    "offline": (["offline"], ["replicas"]),
    "status": (["status"], []),
    "directories": (["directories"], ["directories"]),
    "history": (["history", "solo-6"], ["events"]),
    "risk": (["risk"], ["brokers", "directories"]),
    "whatif": (["whatif", "--fail", "2"], ["changes"]),
    "whatif --config": (["whatif", "--config", "min.insync.replicas=3"], ["changes"]),
    "sizes": (["sizes", str(metadata_dir("kafka-4.1.2").parents[1] / "logdirs.json")], ["directories"]),
    "plan check": (["plan", "check", str(Path(__file__).parent / "plan.json")], ["partitions"]),
    "plan watch": (["plan", "watch", str(Path(__file__).parent / "plan.json")], ["partitions"]),
    "plan drain": (["plan", "drain", "2:hPGP"], ["steps"]),
    "plan undo": (["plan", "undo", str(Path(__file__).parent / "plan.json")], ["partitions"]),
    "safe-to-remove": (["safe-to-remove", "4:jYd7"], ["held"]),
    "safe-to-restart": (["safe-to-restart", "2"], ["stakes"]),
    "restart-plan": (["restart-plan"], ["nodes"]),
    "incidents": (["incidents"], ["incidents"]),
    "incidents NO": (["incidents", "1"], ["outages"]),
    "check": (["check", "--no-keep"], ["findings"]),
    "moves": (["moves"], ["moves"]),
    "assignments": (["assignments"], ["unassigned"]),
    "quorum": (["quorum"], ["nodes"]),
    "upgrade-check": (["upgrade-check"], ["features"]),
}
"""Table -> the command that prints its rows, and the lists of rows in its JSON."""
OF_REQUESTS = {"assignments TOPIC-PARTITION", "assignments --queue"}
"""Tables that are empty without a request log."""
NAMED = {"features", "supported", "kraft_versions", "replicas", "selection", "before"}
"""Keys whose objects have names from the cluster as keys: features, states, resources."""
SNAKE_CASE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


@cache
def run(*arguments: str) -> str:
    return CliRunner().invoke(application(arguments[:1]), list(arguments)).stdout


def keys(document: Any, inside: str = "") -> Iterator[str]:
    """Every key of a document that jbod names."""
    if isinstance(document, list):
        for part in document:
            yield from keys(part, inside)
    elif isinstance(document, dict):
        for key, value in document.items():
            if inside not in NAMED and not key.isdigit():
                yield key
            yield from keys(value, key)


@pytest.mark.parametrize("table", LISTS)
def test_json_of_a_question_has_the_names_of_its_csv(table: str, cluster_lakes: Mapping[str, Path]) -> None:
    """JSON had camelCase, and in places other names than CSV: replicas and replicas_taken, check and check_id."""
    command, lists = LISTS[table]
    question = [*command, "--lake", str(cluster_lakes["kafka-4.1.2"])]
    answer = json.loads(run(*question, "--format", "json"))
    (declared,) = (row_table for row_table in TABLES if row_table.name == table)
    header = [column.name for column in declared.all_columns]  # of its CSV: test_question.py
    for name in lists:
        for row in answer[name]:
            assert [key for key in row if key in header] == header
            assert {*row} - {*header} == {*declared.more} - {*header}
    assert [key for key in keys(answer) if not SNAKE_CASE.fullmatch(key)] == []


DOCUMENTED = {
    word
    for page in (ROOT / "docs").glob("**/*.md")
    for word in re.findall(r"`([a-z][a-z0-9_. ]*)`", page.read_text(encoding="utf-8"))
}
"""What the pages set in code, as they do with every key."""


@pytest.mark.parametrize(
    ("table", "at"), [(table, ()) for table in LISTS] + sampled([(table, ("--at-offset", "250")) for table in LISTS], 3)
)
def test_every_key_of_json_is_in_the_docs(table: str, at: Sequence[str], cluster_lakes: Mapping[str, Path]) -> None:
    """Cause: leaderless, steps, tiered_topics and sixty others were in no page."""
    answer = json.loads(run(*LISTS[table][0], "--lake", str(cluster_lakes["kafka-4.1.2"]), *at, "--format", "json"))
    answer.pop("files", None)  # files of Kafka's tools
    # Findings and states are keys with _ for blanks.
    assert [key for key in {*keys(answer)} if key not in DOCUMENTED and key.replace("_", " ") not in DOCUMENTED] == []


def test_every_table_of_rows_is_compared_with_its_json() -> None:
    assert {table.name for table in TABLES} - {*LISTS} == OF_REQUESTS


OTHERS = {
    "audit": ["audit", "LOG", "--requests", "REQUESTS", "--json"],
    "disks": ["disks", "DISK", "--json"],
    "settings": ["settings", "--json"],
}


@pytest.mark.parametrize("command", OTHERS)
def test_json_of_other_commands_is_in_snake_case(command: str) -> None:
    root = Path(__file__).parents[2] / "fixtures" / "clusters" / "kafka-4.1.2"
    places = {
        "LOG": root / "metadata" / "controller-100",
        "REQUESTS": root / "requests-100.log.gz",
        "DISK": next((root / "disks").iterdir()),
    }
    answer = json.loads(run(*(str(places.get(word, word)) for word in OTHERS[command])))
    # Causes, settings and packages are named by others.
    strange = [key for key in answer if not SNAKE_CASE.fullmatch(key.replace("-", "_").replace(".", "_"))]
    assert strange == []


def test_every_option_of_a_command_is_in_the_docs() -> None:
    """Cause: --keep-unknown, --quiet and --verbose were in no page."""

    def options(command: Any) -> Iterator[str]:
        for inner in getattr(command, "commands", {}).values():
            yield from (option for parameter in inner.params for option in parameter.opts if option.startswith("--"))
            yield from options(inner)

    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("**/*.md"))
    named = {*re.findall(r"--[a-z][a-z-]*", pages)}
    assert {*options(get_command(application()))} - named == set()


def test_a_log_is_named_by_one_option() -> None:
    """``metrics --log-dir`` was another name for ``--log``."""
    options = {
        (name, option)
        for name, command in get_command(application()).commands.items()  # type: ignore[attr-defined]
        for parameter in command.params
        for option in parameter.opts
    }
    assert not [
        command_option for command_option in options if command_option[1] in ("--log-dir", "--logs", "--severity")
    ]
    assert ("metrics", "--log") in options


def test_metrics_of_a_lake_and_its_log_say_how_far_the_lake_is_behind(cluster_lakes: Mapping[str, Path]) -> None:
    log = Path(__file__).parents[2] / "fixtures" / "clusters" / "kafka-4.1.2" / "metadata" / "controller-100"
    lake = str(cluster_lakes["kafka-4.1.2"])
    assert "jbod_log_unread_records 0.0" in run("metrics", "--lake", lake, "--log", str(log))
    assert "jbod_log_unread_records" not in run("metrics", "--log", str(log))
