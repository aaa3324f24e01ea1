"""``jbod disks``: shows the log directories of a broker, and what is wrong with them."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from jbod_model.errors import UsageError
from jbod_model.storage.ensemble import Ensemble, find_start_problems, find_version_notes, load_ensemble
from jbod_model.storage.problems import DirectoryIdMissing, StorageProblem
from jbod_model.storage.properties import MetaProperties, read_server_config
from pipelines.cli.options import AsJson

_REPLICA = re.compile(r"[^/]+-[0-9]+\Z")
_FUTURE = re.compile(r"[^/]+-[0-9]+\.[0-9a-f]{32}-future\Z")

Directories = Annotated[list[str] | None, typer.Argument(help="The broker's log directories.", metavar="DIR")]
Config = Annotated[
    str | None, typer.Option("--config", "-c", help="A server.properties: its log.dirs, metadata.log.dir, node.id.")
]
MetadataDir = Annotated[str | None, typer.Option("--metadata-dir", help="The directory of the metadata log.")]


def disks(
    directories: Directories = None,
    config: Config = None,
    metadata_dir: MetadataDir = None,
    node_id: Annotated[int | None, typer.Option("--node-id", help="The broker they should belong to.")] = None,
    cluster_id: Annotated[str | None, typer.Option("--cluster-id", help="The cluster they should belong to.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show brokers' directories: ids, problems, and what to do next. Exit code 0: clean, 1: problems, 2: bad usage."""
    paths, metadata_dir, configured_node = _directories(directories, config, metadata_dir)
    ensemble = load_ensemble(paths, metadata_dir)
    for state in ensemble.failed.values():
        if os.strerror(errno.EACCES) in state.problem:  # the disk may be well
            raise UsageError(f"{state}: run jbod disks as the user of the broker")
    expected_node = configured_node if node_id is None else node_id
    groups = [ensemble] if expected_node is not None or metadata_dir is not None else _by_node(ensemble)
    reports, any_problem = [], False
    for group in groups:
        problems = list(find_start_problems(group, cluster_id=cluster_id, node_id=expected_node))
        notes = list(find_version_notes(group))
        any_problem = any_problem or bool(problems)
        if as_json:
            reports.append(_report(group, problems, notes))
        elif sys.stdout.isatty():
            _print_tables(group, problems, notes)
        else:
            _print_lines(group, problems, notes)
    if as_json:
        typer.echo(json.dumps(reports[0] if len(reports) == 1 else {"nodes": reports}, indent=2))
    if any_problem:
        raise typer.Exit(1)


def _by_node(ensemble: Ensemble) -> list[Ensemble]:
    """The directories of each node. Those that name no node are with the only node, or else a group of their own."""
    nodes = {path: meta.node_id for path, meta in ensemble.properties.items() if meta.node_id is not None}
    known = sorted(set(nodes.values()))
    if len(known) < 2:
        return [ensemble]
    groups = [
        {path: state for path, state in ensemble.directories.items() if nodes.get(path) == node} for node in known
    ]
    rest = {path: state for path, state in ensemble.directories.items() if path not in nodes}
    return [replace(ensemble, directories=group) for group in (*groups, rest) if group]


def _directories(
    directories: list[str] | None, config: str | None, metadata_dir: str | None
) -> tuple[tuple[str, ...], str | None, int | None]:
    """Directories, metadata directory and node id from the arguments, completed by ``--config``."""
    paths = tuple(str(Path(path)) for path in directories or ())
    metadata_dir = None if metadata_dir is None else str(Path(metadata_dir))
    if config is None:
        if not paths:
            raise UsageError("give the broker's directories, or --config with its server.properties")
        for path in paths:
            _refuse_folder(Path(path))
        return paths, metadata_dir, None
    if paths:
        raise UsageError("give directories or --config, not both")
    settings = read_server_config(config)
    return settings.log_dirs, metadata_dir or settings.metadata_dir, settings.node_id


def _refuse_folder(path: Path) -> None:
    """Raises UsageError for a folder that is no log directory and has some."""
    from pipelines.ask.log_dirs import mounted_disks

    try:
        inside = mounted_disks(path)
    except (OSError, ValueError, UsageError):
        return  # the answer says what is wrong with it
    if inside != [path]:
        raise UsageError(f"{path}: is a folder of log directories: name each of them: {path}/*")


def _count_replicas(path: str, pattern: re.Pattern[str]) -> int:
    """The number of partitions (or future replicas) in a directory, without the metadata log."""
    try:
        return sum(
            1 for entry in Path(path).iterdir() if pattern.match(entry.name) and entry.name != "__cluster_metadata-0"
        )
    except (OSError, ValueError):
        return 0


def _rows(ensemble: Ensemble, problems: Iterable[StorageProblem]) -> list[dict[str, Any]]:
    fatal = {problem.directory for problem in problems if problem.fatal}
    noted = {problem.directory for problem in problems}
    rows = []
    for path, state in ensemble.directories.items():
        meta = state if isinstance(state, MetaProperties) else None
        rows.append(
            {
                "directory_path": path,
                "state": "broken" if path in fatal else "look" if path in noted else "ok",
                "directory_id": str(meta.directory_id) if meta and meta.directory_id else None,
                "node_id": meta.node_id if meta else None,
                "cluster_id": meta.cluster_id if meta else None,
                "version": meta.version if meta else None,
                "metadata": path == ensemble.metadata_dir or path in ensemble.metadata_logs,
                "replicas": _count_replicas(path, _REPLICA),
                "future_replicas": _count_replicas(path, _FUTURE),
            }
        )
    return rows


def _report(ensemble: Ensemble, problems: list[StorageProblem], notes: list[StorageProblem]) -> dict[str, Any]:
    return {
        "node_id": ensemble.node_id,
        "cluster_id": ensemble.cluster_id,
        "metadata_directory_path": ensemble.metadata_dir,
        "starts": not any(problem.fatal for problem in problems),
        "directories": _rows(ensemble, problems),
        "problems": [_as_json(problem) for problem in problems],
        "notes": [_as_json(note) for note in notes],
    }


def _as_json(problem: StorageProblem) -> dict[str, Any]:
    return {
        "directory_path": problem.directory or None,
        "rule": problem.rule,
        "fatal": problem.fatal,
        "problem": problem.problem,
        "advice": problem.advice,
    }


def _summary(ensemble: Ensemble, problems: list[StorageProblem]) -> str:
    node = "" if ensemble.node_id is None else f"Node {ensemble.node_id}: "
    return f"{node}{_verdict(problems)}"


def _verdict(problems: list[StorageProblem]) -> str:
    if any(problem.fatal for problem in problems):
        return "A broker does not start with these directories."
    if any(not isinstance(problem, DirectoryIdMissing) for problem in problems):
        return "A broker starts, without some of these directories."
    return "A broker starts with these directories."


def _print_lines(ensemble: Ensemble, problems: list[StorageProblem], notes: list[StorageProblem]) -> None:
    for row in _rows(ensemble, problems):
        shown = ["-" if row[key] is None else str(row[key]) for key in ("directory_id", "node_id", "cluster_id")]
        kind = "metadata" if row["metadata"] else "data"
        typer.echo("\t".join([row["directory_path"], row["state"], *shown, kind, str(row["replicas"])]))
    for problem in [*problems, *notes]:
        typer.echo(f"{problem.rule}\t{problem}\t{problem.advice}")
    typer.echo(_summary(ensemble, problems))


def _print_tables(ensemble: Ensemble, problems: list[StorageProblem], notes: list[StorageProblem]) -> None:
    console = Console(soft_wrap=False)
    table = Table(title=f"Directories of node {_shown(ensemble.node_id)}, cluster {_shown(ensemble.cluster_id)}")
    for heading in ("directory", "id", "node", "holds", "replicas", "state"):
        table.add_column(heading, overflow="fold", no_wrap=heading == "id", justify="left")
    colours = {"ok": "green", "look": "yellow", "broken": "red"}
    for row in _rows(ensemble, problems):
        replicas = str(row["replicas"]) + (f" (+{row['future_replicas']} future)" if row["future_replicas"] else "")
        table.add_row(
            row["directory_path"],
            _shown(row["directory_id"]),
            _shown(row["node_id"]),
            "metadata" if row["metadata"] else "data",
            replicas,
            f"[{colours[row['state']]}]{row['state']}[/]",
        )
    console.print(table)
    for problem in [*problems, *notes]:
        console.print(f"{problem}", style="red" if problem.fatal else "yellow", markup=False, highlight=False)
        console.print(f"  {problem.advice} ({problem.rule})", markup=False, highlight=False)
    console.print(_summary(ensemble, problems), markup=False)


def _shown(value: object) -> str:
    return "-" if value is None else str(value)
