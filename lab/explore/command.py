"""``python -m lab explore``: all possible states of a small cluster."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from jbod_model.errors import UsageError
from jbod_model.ids import ID_TABLES
from jbod_model.profiles import PROFILES
from lab.behaviour.command import explain
from lab.explore import search
from lab.explore.bounds import Bounds
from lab.explore.search import Findings
from lab.options import IdsName, ProfileName
from pipelines.cli import progress
from pipelines.cli.options import AsJson
from pipelines.cli.requests import Requests, StaticConfigs, TimeZone, static_configs


def explore(
    context: typer.Context,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace", metavar="LOG_DIR", help="Check whether this metadata log is a behaviour of the specification."
        ),
    ] = None,
    requests: Requests = None,
    config: StaticConfigs = None,
    time_zone: TimeZone = None,
    brokers: Annotated[int, typer.Option("--brokers", min=1, max=4)] = 1,
    dirs: Annotated[int, typer.Option("--dirs", min=1, max=4, help="Directories per broker.")] = 2,
    partitions: Annotated[int, typer.Option("--partitions", min=1, max=4)] = 1,
    replication: Annotated[int, typer.Option("--replication", min=0, help="Replicas; 0: on every broker.")] = 0,
    depth: Annotated[int, typer.Option("--depth", min=1, help="Number of steps from the initial state.")] = 6,
    states: Annotated[int, typer.Option("--states", min=1, help="Stop after this number of states.")] = 2_000_000,
    failures: Annotated[bool, typer.Option(help="Disks fail.")] = True,
    crashes: Annotated[bool, typer.Option(help="Brokers are killed and start again.")] = True,
    expiry: Annotated[bool, typer.Option(help="Sessions of live brokers expire.")] = True,
    moves: Annotated[bool, typer.Option("--moves", help="Replicas also move between disks.")] = False,
    wishes: Annotated[bool, typer.Option("--wishes", help="Also moves that are refused.")] = False,
    elr: Annotated[bool, typer.Option("--elr", help="With eligible leader replicas.")] = False,
    timeouts: Annotated[bool, typer.Option("--timeouts", help="Failures that are not reported in time.")] = False,
    lost: Annotated[bool, typer.Option("--lost", help="Requests and answers get lost.")] = False,
    cut: Annotated[bool, typer.Option("--cut", help="A broker is cut off from the controller for good.")] = False,
    late: Annotated[int, typer.Option("--late", min=0, max=2, help="Late requests of a broker at a time.")] = 0,
    doubled: Annotated[bool, typer.Option("--doubled", help="Requests arrive twice; needs --late.")] = False,
    failover: Annotated[bool, typer.Option("--failover", help="Another controller, with its log alone.")] = False,
    repair: Annotated[bool, typer.Option("--repair", help="Dead disks come back.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Dead disks are replaced.")] = False,
    add: Annotated[int, typer.Option("--add", min=0, max=2, help="Directories that may be added.")] = 0,
    remove: Annotated[bool, typer.Option("--remove", help="Directories of dead disks are removed.")] = False,
    shutdown: Annotated[bool, typer.Option("--shutdown", help="Brokers are stopped in order.")] = False,
    reassign: Annotated[bool, typer.Option("--reassign", help="Partitions are reassigned.")] = False,
    delete: Annotated[bool, typer.Option("--delete", help="The topic is deleted.")] = False,
    shrink: Annotated[bool, typer.Option("--shrink", help="Leaders remove unserved replicas.")] = False,
    migrating: Annotated[bool, typer.Option("--migrating", help="Begin just after an upgrade.")] = False,
    records: Annotated[int, typer.Option("--records", min=0, max=3, help="Records written to a partition.")] = 0,
    literal: Annotated[
        bool, typer.Option("--literal", help="Elect by the rule for Metadata answers to clients.")
    ] = False,
    free_choice: Annotated[bool, typer.Option(help="Any of the emptiest directories, else the first.")] = True,
    symmetry: Annotated[bool, typer.Option(help="States that differ only in names are one.")] = True,
    liveness: Annotated[bool, typer.Option(help="Check leads-to properties if the search is complete.")] = True,
    first: Annotated[bool, typer.Option("--first", help="Stop at the first broken invariant.")] = False,
    profile: ProfileName = "kafka",
    ids: IdsName = "kafka",
    as_json: AsJson = False,
) -> None:
    """Try all possible events in a small cluster, and print the shortest way to break each property.

    Invariants hold in every state. Leads-to properties must eventually hold if the protocol continues and faults end;
    they are checked if the search is complete. Exit 0 if nothing can be broken within the bounds, 1 if
    something can.

    With --trace nothing is searched: each batch of a real metadata log must be explained by actions of the
    specification, from the request log if there is one (--requests). Exit 0 if it is a behaviour, 1 if not, 2 if it is
    newer than the specification.
    """
    if profile not in PROFILES:
        raise UsageError(f"profile {profile!r} is not known; known are {', '.join(PROFILES)}")
    if ids not in ID_TABLES:
        raise UsageError(f"table of ids {ids!r} is not known; known are {', '.join(ID_TABLES)}")
    if trace is not None:
        _refuse_options_of_a_search(context)
        configs = static_configs(config or ())
        explain(trace, requests or (), configs, time_zone, PROFILES[profile], ID_TABLES[ids], as_json=as_json)
        return
    if requests or config or time_zone is not None:
        raise UsageError("--requests, --config and --time-zone are about a real log: give --trace LOG_DIR too")
    if doubled and not late:
        raise UsageError("--doubled needs --late: a request that arrives twice is late once")
    if replication > brokers:
        raise UsageError(f"--replication {replication} needs as many --brokers")
    bounds = Bounds(
        brokers=brokers,
        directories=dirs,
        partitions=partitions,
        replication=replication,
        depth=depth,
        states=states,
        failures=failures,
        crashes=crashes,
        expiry=expiry,
        moves=moves,
        wishes=wishes,
        elr=elr,
        timeouts=timeouts,
        lost=lost,
        cut=cut,
        late=late,
        doubled=doubled,
        failover=failover,
        repair=repair,
        replace=replace,
        add=add,
        remove=remove,
        shutdown=shutdown,
        reassign=reassign,
        delete=delete,
        shrink=shrink,
        migrating=migrating,
        records=records,
        literal=literal,
        free_choice=free_choice,
        symmetry=symmetry,
        liveness=liveness,
        first=first,
        ids=ids,
    )
    findings = search.explore(PROFILES[profile], bounds, None if as_json and sys.stderr.isatty() else _print_progress)
    if as_json:
        typer.echo(json.dumps(_findings(findings), indent=2))
    else:
        _print_findings(findings)
    if findings.counterexamples or findings.runs:
        raise typer.Exit(1)


def _refuse_options_of_a_search(context: typer.Context) -> None:
    """UsageError for an option that bounds a search, since with --trace nothing is searched."""
    about_logs = {"trace", "requests", "config", "time_zone", "profile", "ids", "as_json"}
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if name not in about_logs and source is not None and source.name == "COMMANDLINE":
            raise UsageError(
                f"{parameter.opts[0]} bounds a search, and --trace searches nothing: leave one of them out"
            )


def _findings(findings: Findings) -> dict[str, Any]:
    return {
        "states": findings.states,
        "steps": findings.steps,
        "depth": findings.depth,
        "complete": findings.complete,
        "seconds": round(findings.seconds, 3),
        "states_per_second": round(findings.states / max(findings.seconds, 1e-9)),
        "kinds": dict(sorted(findings.kinds.items())),
        "counterexamples": [
            {"invariant": number, "problem": counterexample.breach.problem, "steps": list(counterexample.steps)}
            for number, counterexample in sorted(findings.counterexamples.items())
        ],
        "runs": [
            {"property": run.property, "problem": run.problem, "steps": list(run.steps), "cycle": list(run.cycle)}
            for _, run in sorted(findings.runs.items())
        ],
    }


def _print_progress(findings: Findings) -> None:
    line = f"depth {findings.depth}: {findings.states} states, {findings.steps} steps"
    if sys.stderr.isatty():
        typer.echo(line, err=True)
    else:
        progress.say(line)


def _print_findings(findings: Findings) -> None:
    for number, counterexample in sorted(findings.counterexamples.items()):
        typer.echo(f"invariant {number} breaks: {counterexample.breach.problem}")
        for i, step in enumerate(counterexample.steps, 1):
            typer.echo(f"  {i}. {step}")
    for name, run in sorted(findings.runs.items()):
        typer.echo(f"leads-to {name!r} breaks: {run.problem} for ever")
        for i, step in enumerate(run.steps, 1):
            typer.echo(f"  {i}. {step}")
        typer.echo("  then nothing more happens" if not run.cycle else "  then again and again")
        for step in run.cycle:
            typer.echo(f"  - {step}")
    speed = findings.states / max(findings.seconds, 1e-9)
    reach = "every state" if findings.complete else f"every state within {findings.depth} steps"
    typer.echo(f"{reach}: {findings.states} states, {findings.steps} steps, {speed:.0f} states a second")
    if not findings.counterexamples:
        typer.echo("no invariant breaks")
    if findings.complete and not findings.runs:
        typer.echo("what must happen in the end does")
