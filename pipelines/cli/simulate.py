"""``jbod simulate`` and ``jbod explore``: simulate a cluster, or explore all its possible states."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from jbod_model.errors import UsageError
from jbod_model.explore.bounds import Bounds
from jbod_model.explore.invariants import check_state
from jbod_model.explore.search import Findings, explore
from jbod_model.ids import ID_TABLES, Uuid
from jbod_model.profiles import PROFILES
from jbod_model.replay.offline import offline_replicas
from jbod_model.simulation.output import story_lines, write_world
from jbod_model.simulation.stories import SCENARIOS, play
from jbod_model.simulation.world import World
from pipelines.cli import progress
from pipelines.cli.audit import Requests, StaticConfigs, TimeZone, static_configs
from pipelines.cli.options import AsJson
from pipelines.cli.trace import explain

ProfileName = Annotated[str, typer.Option("--profile", help=f"The rules of the cluster: {', '.join(PROFILES)}.")]
IdsName = Annotated[str, typer.Option("--ids", help=f"Whose reserved directory ids: {', '.join(ID_TABLES)}.")]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command("simulate")(simulate)
    app.command("explore")(explore_command)


def simulate(
    scenario: Annotated[
        str | None, typer.Argument(help="The story to play. Without it jbod lists all stories.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same logs, byte for byte.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the logs to this folder. Without it nothing is written.")
    ] = None,
    profile: ProfileName = "kafka",
    ids: IdsName = "kafka",
    as_json: AsJson = False,
) -> None:
    """Run a scenario, and write the metadata log and the request log that a real cluster would have written.

    Exit 0, or 1 if a partition ends with a leader that cannot lead, as can happen in Kafka.
    """
    if scenario is None:
        _list_scenarios(as_json)
        return
    world = play(scenario, seed, profile, ids)
    files = () if out is None else write_world(world, out)
    breaches = [f"invariant {breach.number}: {breach.problem}" for breach in check_state(world.image)]
    if as_json:
        report = {
            "scenario": scenario,
            "seed": seed,
            "profile": profile,
            "story": story_lines(world),
            "partitions": _partitions(world),
            "breaches": breaches,
            "files": [str(path) for path in files],
        }
        typer.echo(json.dumps(report, indent=2))
    else:
        _print_world(world, breaches, files)
    if breaches:
        raise typer.Exit(1)


def explore_command(
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
    findings = explore(PROFILES[profile], bounds, None if as_json and sys.stderr.isatty() else _print_progress)
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


def _list_scenarios(as_json: bool) -> None:
    ordered = sorted(SCENARIOS.values(), key=lambda each: each.name)
    if as_json:
        listed = [{"name": each.name, "summary": each.summary, "section": each.section} for each in ordered]
        typer.echo(json.dumps(listed, indent=2))
        return
    width = max(len(each.name) for each in ordered)
    for each in ordered:
        typer.echo(f"{each.name:<{width}}  {each.summary}")


def _partitions(world: World) -> list[dict[str, Any]]:
    names = _directory_names(world)
    return [
        {
            "topic": topic.name,
            "partition": number,
            "leader": partition.leader,
            "isr": list(partition.isr),
            "replicas": [
                {"broker": broker_id, "directory": str(directory), "disk": names.get(directory)}
                for broker_id, directory in zip(partition.replicas, partition.directories, strict=True)
            ],
            "offline": offline_replicas(world.image, partition),
        }
        for topic in world.image.topics.values()
        for number, partition in sorted(topic.partitions.items())
    ]


def _directory_names(world: World) -> dict[Uuid, str]:
    """Directory id -> mount point of the disk, or the meaning of a reserved id."""
    ids = world.image.ids
    names = {ids.unassigned: "unassigned", ids.lost: "lost", ids.migrating: "migrating"}
    for host in world.hosts.values():
        for path in host.disks:
            directory = host.directory_id(path)
            if directory is not None:
                names.setdefault(directory, path)
    return names


def _print_world(world: World, breaches: list[str], files: tuple[Path, ...]) -> None:
    for time, what in world.story:
        typer.echo(f"{time / 1000:9.3f} s  {what}")
    typer.echo("")
    for row in _partitions(world):
        places = ", ".join(f"{each['disk'] or each['directory']}" for each in row["replicas"])
        offline = "".join(f", broker {broker} offline ({reason})" for broker, reason in row["offline"].items())
        typer.echo(f"{row['topic']}-{row['partition']}: leader {row['leader']}, isr {row['isr']}, in {places}{offline}")
    for breach in breaches:
        typer.echo(f"broken: {breach}")
    for path in files[:3]:
        typer.echo(f"wrote {path}")


def _findings(findings: Findings) -> dict[str, Any]:
    return {
        "states": findings.states,
        "steps": findings.steps,
        "depth": findings.depth,
        "complete": findings.complete,
        "seconds": round(findings.seconds, 3),
        "statesPerSecond": round(findings.states / max(findings.seconds, 1e-9)),
        "kinds": dict(sorted(findings.kinds.items())),
        "counterexamples": [
            {"invariant": number, "problem": found.breach.problem, "steps": list(found.steps)}
            for number, found in sorted(findings.counterexamples.items())
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
    for number, found in sorted(findings.counterexamples.items()):
        typer.echo(f"invariant {number} breaks: {found.breach.problem}")
        for i, step in enumerate(found.steps, 1):
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
