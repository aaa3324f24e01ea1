"""The common parts of scenarios: a name, a section of the KIP, and the usual first steps (R-SIM-6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jbod_model.broker.assignments import Replica
from jbod_model.broker.disks import MoveState
from jbod_model.formats.metadata_version import ELR_FEATURE, LEVELS, METADATA_VERSION
from jbod_model.formats.records import (
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    Record,
    VersionedRecord,
)
from jbod_model.formats.requests import CreatableTopic, CreateTopicsRequest
from jbod_model.replay.image import Partition
from lab.simulation.world import World

NEWEST = "4.1-IV1"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A story to play in a world. ``section`` is its section of the KIP."""

    name: str
    summary: str
    section: str
    play: Callable[[World], None]


SCENARIOS: dict[str, Scenario] = {}


def scenario(name: str, summary: str, section: str) -> Callable[[Callable[[World], None]], Callable[[World], None]]:
    """Register a story under its name."""

    def enter(play: Callable[[World], None]) -> Callable[[World], None]:
        SCENARIOS[name] = Scenario(name, summary, section, play)
        return play

    return enter


def bootstrap(world: World, version: str = NEWEST, *, elr: bool = False, extra: tuple[Record, ...] = ()) -> None:
    """The first records of a log, in a transaction as Kafka writes them since 3.6-IV1."""
    levels = [FeatureLevelRecord(name=METADATA_VERSION, feature_level=LEVELS[version])]
    if elr:
        levels.append(FeatureLevelRecord(name=ELR_FEATURE, feature_level=1))
    begin = BeginTransactionRecord(name="Bootstrap records")
    world.write(*(VersionedRecord(record, 0) for record in (begin, *levels, *extra, EndTransactionRecord())))


def cluster(world: World, disks: tuple[int, ...] = (3, 3, 3), version: str = NEWEST, *, elr: bool = False) -> None:
    """Start brokers 1, 2 and so on with ``disks`` disks each, and wait until all are unfenced."""
    bootstrap(world, version, elr=elr)
    for node_id, count in enumerate(disks, 1):
        world.add_host(node_id, count)
        world.start_broker(node_id)
    run_for(world)


def topic(world: World, name: str, partitions: int = 6, replication: int = 3) -> None:
    """Create a topic that the controller places, and let its brokers report the directories."""
    new = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replication)
    world.ask(CreateTopicsRequest(topics=(new,)), topic_ids=1)
    world.tell(f"topic {name} is created, {partitions} partitions on {replication} brokers each")
    world.run(5)


def run_for(world: World, seconds: float = 20) -> None:
    """Let time pass until the cluster is quiet."""
    world.run(seconds)


def wait_for_moves(world: World, node_id: int, state: MoveState) -> None:
    """Let time pass until every move of a broker has reached ``state``, for at most a minute."""
    for _ in range(12_000):
        broker = world.hosts[node_id].broker
        if broker is None or all(move.state is state for move in broker.replicas.moves.values()):
            return
        world.run(0.005)


def replicas_in(world: World, node_id: int, path: str) -> list[Replica]:
    """The replicas that the metadata has on the disk at ``path``."""
    directory = world.hosts[node_id].directory_id(path)
    return [
        Replica(topic_id, number)
        for topic_id, each in world.image.topics.items()
        for number, partition in each.partitions.items()
        if node_id in partition.replicas and partition.directory(node_id) == directory
    ]


def partition_of(world: World, replica: Replica) -> Partition:
    """The partition of a replica, as the controller has it."""
    return world.image.topics[replica.topic_id].partitions[replica.partition]
