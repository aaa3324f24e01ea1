"""Writes the files of a simulation: a metadata log that Kafka reads, a request log, disks, the story (R-SIM-8)."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from jbod_model.errors import UsageError
from jbod_model.formats.control_records import LeaderChangeMessage, Voter
from jbod_model.formats.log import LogWriter
from jbod_model.storage.properties import MetaProperties, write_meta_properties
from lab.simulation.controller_node import NODE_ID, LeaderChange
from lab.simulation.request_log import request_log_lines
from lab.simulation.world import World

START = datetime(2024, 1, 1, tzinfo=UTC)
"""The start time of every simulation, so that the same seed writes the same bytes."""

METADATA_LOG = "__cluster_metadata-0"
REQUEST_LOG = f"requests-{NODE_ID}.log"
STORY = "story.jsonl"
METRICS = "metrics.jsonl"


def metadata_log(world: World) -> LogWriter:
    """The world's log, batch by batch as it was committed."""
    writer = LogWriter()
    start = int(START.timestamp() * 1000)
    for batch in world.controller.log:
        if isinstance(batch, LeaderChange):
            voter = (Voter(voter_id=NODE_ID),)
            message = LeaderChangeMessage(leader_id=NODE_ID, voters=voter, granting_voters=voter)
            writer.append([message], epoch=batch.epoch, timestamp=start + batch.time_ms)
        else:
            writer.append(batch.records, epoch=batch.epoch, timestamp=start + batch.time_ms)
    return writer


def write_world(world: World, directory: Path) -> tuple[Path, ...]:
    """Write everything into ``directory``, which must not hold a simulation yet. The result is the list of files.

    ``controller-100`` is a metadata.log.dir; ``disks`` has the meta.properties of the brokers' disks.
    """
    log_dir = directory / f"controller-{NODE_ID}" / METADATA_LOG
    if log_dir.exists():
        raise UsageError(f"{directory} holds a simulation already: give an empty directory")
    try:
        log_dir.mkdir(parents=True)
        log = metadata_log(world).write(log_dir)
        requests = directory / REQUEST_LOG
        requests.write_text("".join(f"{line}\n" for line in request_log_lines(world.exchanges, START)))
        story = directory / STORY
        story.write_text("".join(f"{json.dumps(line)}\n" for line in story_lines(world)))
        metrics = directory / METRICS
        metrics.write_text("".join(f"{json.dumps(line)}\n" for line in metric_lines(world)))
        controller = MetaProperties(version=1, cluster_id=world.controller.cluster_id, node_id=NODE_ID)
        write_meta_properties(str(log_dir.parent), controller, START)
        disks = _write_disks(world, directory / "disks")
    except OSError as error:
        raise UsageError(f"{directory}: cannot be written ({error.strerror or error})") from None
    return (log, requests, story, metrics, *disks)


def story_lines(world: World) -> list[dict[str, object]]:
    """The events of the story, with their times in the logs."""
    return [
        {"time": (START + timedelta(milliseconds=time)).isoformat(timespec="milliseconds"), "what": what}
        for time, what in world.story
    ]


def metric_lines(world: World) -> list[dict[str, object]]:
    """Every value of a broker's queue gauge (R-SIM-9); null after its process has ended."""
    return [
        {
            "time": (START + timedelta(milliseconds=reading.time_ms)).isoformat(timespec="milliseconds"),
            "broker": reading.node_id,
            "name": reading.name,
            "value": reading.value,
        }
        for reading in world.gauges
    ]


def _write_disks(world: World, directory: Path) -> list[Path]:
    """The meta.properties of every working disk; a failed disk cannot be read."""
    written = []
    for host in world.hosts.values():
        for path, disk in host.disks.items():
            if disk.works and disk.meta is not None:
                target = directory / f"{host.node_id}-{path.rsplit('-', 1)[-1].strip('/').replace('/', '-')}"
                target.mkdir(parents=True, exist_ok=True)
                write_meta_properties(str(target), replace(disk.meta), START)
                written.append(target / "meta.properties")
    return written
