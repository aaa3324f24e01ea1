"""``python -m lab simulate``: a simulated cluster goes through a story."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from jbod_model.ids import Uuid
from jbod_model.replay.offline import offline_replicas
from lab.explore.invariants import check_state
from lab.options import IdsName, ProfileName
from lab.simulation.output import story_lines, write_world
from lab.simulation.stories import SCENARIOS, play
from lab.simulation.world import World
from pipelines.cli.options import AsJson


def simulate(
    scenario: Annotated[
        str | None, typer.Argument(metavar="SCENARIO", help="The story to play. Without it jbod lists all stories.")
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
