"""Scenarios about upgrades to directory assignment, and about JBOD that is switched on and off."""

from __future__ import annotations

from dataclasses import replace

from jbod_model.broker.assignments import Replica
from jbod_model.formats.metadata_version import LEVELS, METADATA_VERSION
from jbod_model.formats.records import (
    BeginTransactionRecord,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    EndTransactionRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    TopicRecord,
    VersionedRecord,
    ZkMigrationStateRecord,
)
from jbod_model.formats.requests import (
    AlterPartitionReassignmentsRequest,
    FeatureUpdate,
    ReassignablePartition,
    ReassignableTopic,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from jbod_model.ids import Uuid
from jbod_model.ids import random as random_id
from lab.simulation.scenario import bootstrap, cluster, run_for, scenario, topic
from lab.simulation.world import World

# The states of a migration from ZooKeeper, as ZkMigrationStateRecord numbers them.
MIGRATION, POST_MIGRATION, PRE_MIGRATION = 1, 3, 2


@scenario(
    "jbod-on",
    "A broker with one disk gets two more: its assignments stay right.",
    "Migrating a cluster in KRaft without JBOD",
)
def jbod_on(world: World) -> None:
    cluster(world, (1, 1, 1))
    topic(world, "orders")
    for node_id, host in world.hosts.items():
        host.log_dirs += [f"/disks/{node_id}-b", f"/disks/{node_id}-c"]
        host.format()
        world.restart_broker(node_id)
        run_for(world)
    topic(world, "later")


@scenario(
    "jbod-off", "Brokers go back to one disk each; what was on the others is replicated anew.", "Replica management"
)
def jbod_off(world: World) -> None:
    cluster(world)
    topic(world, "orders")
    for node_id, host in world.hosts.items():
        del host.log_dirs[1:]
        world.restart_broker(node_id)
        run_for(world, 30)
    topic(world, "later")


@scenario(
    "upgrade",
    "From metadata.version 3.6-IV2, which has no directories, to 3.9, then to JBOD.",
    "Migrating a cluster in KRaft without JBOD",
)
def upgrade(world: World) -> None:
    cluster(world, (1, 1, 1), version="3.6-IV2")
    topic(world, "orders")
    update = FeatureUpdate(feature=METADATA_VERSION, max_version_level=LEVELS["3.9-IV0"])
    world.ask(UpdateFeaturesRequest(feature_updates=(update,)))
    world.tell("metadata.version is raised to 3.9-IV0: brokers register again, with directories")
    run_for(world)
    host = world.hosts[1]
    host.log_dirs += ["/disks/1-b", "/disks/1-c"]
    host.format()
    for node_id in world.hosts:
        world.restart_broker(node_id)
        run_for(world, 30)
    topic(world, "later")
    world.break_disk(1, "/disks/1-b")
    run_for(world)


@scenario(
    "zk-migration",
    "A ZooKeeper cluster with JBOD moves to KRaft: MIGRATING until each broker has restarted.",
    "Migrating a cluster in ZK mode running with JBOD",
)
def zk_migration(world: World) -> None:
    bootstrap(world, "3.9-IV0", extra=(ZkMigrationStateRecord(zk_migration_state=PRE_MIGRATION),))
    if world.controller.profile.controller.admits_zookeeper_brokers:
        _migrate_by_the_page(world)
        return
    for node_id, disks in ((1, 2), (2, 2), (3, 1)):
        _register_under_zookeeper(world, node_id, disks)
        world.run(3)
    waiting = set(world.hosts)

    def heartbeats_under_zookeeper() -> None:
        for broker_id in waiting:
            world.controller.hear_of(broker_id, world.now)

    world.scheduler.every(2_000, heartbeats_under_zookeeper)
    _migrate_metadata(world, _zookeeper_topics(world))
    run_for(world, 5)
    for node_id in (1, 2, 3):
        world.tell(f"broker {node_id} goes down to restart under KRaft")
        waiting.discard(node_id)
        world.run(12)
        world.start_broker(node_id)
        run_for(world, 30)
    world.write(VersionedRecord(ZkMigrationStateRecord(zk_migration_state=POST_MIGRATION), 0))
    world.tell("the migration is finalised")
    topic(world, "new", 3, 2)
    world.break_disk(1, "/disks/1-b")
    run_for(world)


@scenario("rolling-restart", "Every broker restarts in order: leaders move away and back.", "Broker registration")
def rolling_restart(world: World) -> None:
    cluster(world)
    topic(world, "orders")
    for node_id in list(world.hosts):
        world.restart_broker(node_id)
        run_for(world)


@scenario(
    "reassignment",
    "Partitions move to a new broker: new replicas get their directories, then the old one leaves.",
    "Replica placement",
)
def reassignment(world: World) -> None:
    cluster(world, (2, 2, 2, 3))
    topic(world, "orders", 4, 3)
    name = ReassignableTopic(
        name="orders",
        partitions=tuple(ReassignablePartition(partition_index=i, replicas=(4, 2, 3)) for i in range(4)),
    )
    world.ask(AlterPartitionReassignmentsRequest(topics=(name,)))
    world.tell("every partition of orders is reassigned to brokers 4, 2, 3")
    run_for(world, 40)
    world.stop_broker(1)
    run_for(world)
    world.ask(UnregisterBrokerRequest(broker_id=1))
    world.tell("broker 1 is unregistered")
    run_for(world)


@scenario(
    "replica-added",
    "Partitions get one more replica: Kafka's broker does not say where it is, so the death of its disk goes unseen.",
    "Replica management",
)
def replica_added(world: World) -> None:
    cluster(world)
    topic(world, "orders", 4, 2)
    everywhere = ReassignableTopic(
        name="orders",
        partitions=tuple(
            ReassignablePartition(partition_index=n, replicas=(*p.replicas, *({1, 2, 3} - set(p.replicas))))
            for n, p in next(iter(world.image.topics.values())).partitions.items()
        ),
    )
    world.ask(AlterPartitionReassignmentsRequest(topics=(everywhere,)))
    world.tell("every partition of orders gets a replica on the third broker")
    run_for(world)
    for node_id in world.hosts:
        world.break_disk(node_id, f"/disks/{node_id}-b")
    run_for(world)


@scenario("controller-fails-over", "The controller changes while a disk dies.", "Handling log directory failures")
def controller_fails_over(world: World) -> None:
    cluster(world)
    topic(world, "orders")
    world.break_disk(1, "/disks/1-c")
    world.fail_over()
    run_for(world)


def _register_under_zookeeper(world: World, node_id: int, disks: int) -> None:
    """A broker under ZooKeeper, prepared for the migration: it registers with the ids of its directories."""
    host = world.add_host(node_id, disks)
    for disk in host.disks.values():
        if disk.meta is not None:
            disk.meta = replace(disk.meta, version=0)
    ids = tuple(sorted(id_ for path in host.log_dirs if (id_ := host.directory_id(path)) is not None))
    epoch = world.controller.next_offset
    registration = RegisterBrokerRecord(
        broker_id=node_id,
        is_migrating_zk_broker=True,
        incarnation_id=random_id(world.scheduler.random),
        broker_epoch=epoch,
        end_points=(BrokerEndpoint(name="PLAINTEXT", host=f"host-{node_id}", port=9092),),
        features=(BrokerFeature(name=METADATA_VERSION, min_supported_version=1, max_supported_version=21),),
        log_dirs=ids,
    )
    world.write(VersionedRecord(registration, 3))
    unfence = BrokerRegistrationChangeRecord(broker_id=node_id, broker_epoch=epoch, fenced=-1)
    world.write(VersionedRecord(unfence, 0))
    world.controller.hear_of(node_id, world.now)
    world.tell(f"broker {node_id} registers for the migration, still under ZooKeeper")


def _migrate_by_the_page(world: World) -> None:
    """Brokers in ZooKeeper mode register and report (R-ZK-1, R-ZK-3). Then each restarts under KRaft."""
    disks = {1: 2, 2: 2, 3: 1}
    for node_id, count in disks.items():
        host = world.add_host(node_id, count)
        for disk in host.disks.values():
            if disk.meta is not None:
                disk.meta = replace(disk.meta, version=0, directory_id=None)
    topics = _zookeeper_topics(world)
    for node_id in disks:
        world.start_broker(node_id, zookeeper=True)
    run_for(world, 5)
    _migrate_metadata(world, topics)
    run_for(world, 5)
    for node_id in disks:
        world.kill_broker(node_id)
        world.run(12)
        world.start_broker(node_id)
        run_for(world, 30)
    world.write(VersionedRecord(ZkMigrationStateRecord(zk_migration_state=POST_MIGRATION), 0))
    world.tell("the migration is finalised")
    topic(world, "new", 3, 2)
    world.break_disk(1, "/disks/1-b")
    run_for(world)


def _zookeeper_topics(world: World) -> dict[str, tuple[Uuid, list[tuple[int, ...]]]]:
    """The topics in ZooKeeper, with their logs on some disk of each broker: id, and brokers by partition."""
    topics = {}
    placed: dict[str, list[tuple[int, ...]]] = {"old": [(1, 2), (2, 3), (3, 1), (1, 3)], "solo": [(1,), (2,), (3,)]}
    for name, partitions in placed.items():
        topic_id = random_id(world.scheduler.random)
        for number, brokers in enumerate(partitions):
            _put_logs(world, topic_id, number, brokers)
        topics[name] = (topic_id, partitions)
    return topics


def _migrate_metadata(world: World, topics: dict[str, tuple[Uuid, list[tuple[int, ...]]]]) -> None:
    """The transaction that copies ZooKeeper's topics: every existing replica is MIGRATING (R-ZK-4).

    Kafka leaves the directories out and reads this as MIGRATING (R-PART-3). By the KIP it would mean UNASSIGNED, so the
    records name the directories.
    """
    named = world.controller.profile.absent_directories != "migrating"
    migrating = world.image.ids.migrating
    records: list[Record] = [BeginTransactionRecord(name="ZK Migration")]
    for name, (topic_id, partitions) in topics.items():
        records.append(TopicRecord(name=name, topic_id=topic_id))
        for number, brokers in enumerate(partitions):
            records.append(
                PartitionRecord(
                    partition_id=number,
                    topic_id=topic_id,
                    replicas=brokers,
                    isr=brokers,
                    leader=brokers[0],
                    leader_epoch=2,
                    partition_epoch=2,
                    directories=(migrating,) * len(brokers) if named else (),
                )
            )
    records += [ZkMigrationStateRecord(zk_migration_state=MIGRATION), EndTransactionRecord()]
    version = 1 if named else 0
    world.write(*(VersionedRecord(r, version if isinstance(r, PartitionRecord) else 0) for r in records))
    world.tell("the metadata is copied from ZooKeeper")


def _put_logs(world: World, topic_id: Uuid, number: int, brokers: tuple[int, ...]) -> None:
    """The replicas of a partition exist already, on some disk of each broker."""
    for broker_id in brokers:
        host = world.hosts[broker_id]
        path = world.scheduler.random.choice(host.log_dirs)
        host.disks[path].logs[Replica(topic_id, number)] = False
