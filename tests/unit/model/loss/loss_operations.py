"""What happens to the cluster of ``loss_world``: everything that operators, machines and brokers do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from jbod_model.formats.requests import (
    TOPIC_RESOURCE,
    AlterableConfig,
    AlterConfigsResource,
    AlterPartitionPartition,
    AlterPartitionReassignmentsRequest,
    AlterPartitionRequest,
    AlterPartitionTopic,
    BalanceLeaders,
    BrokerState,
    ElectUncleanLeaders,
    IncrementalAlterConfigsRequest,
    ReassignablePartition,
    ReassignableTopic,
    UnregisterBrokerRequest,
)
from tests.unit.model.loss.loss_disks import Broker, Disk, Log, Unsound
from tests.unit.model.loss.loss_truth import looks_completed
from tests.unit.model.loss.loss_world import TOPIC, World

Operation = Callable[[World], None]


def _any(world: World, *, up: bool | None = None) -> Broker | None:
    brokers = [broker for broker in world.brokers.values() if up is None or broker.up == up]
    return world.random.choice(brokers) if brokers else None


# BROKERS


def start(world: World) -> None:
    if broker := _any(world, up=False):
        world.start(broker)
        if world.random.random() < 0.8:
            report(world, broker)
            world.heartbeat(broker)


def kill(world: World) -> None:
    if broker := _any(world, up=True):
        world.tell(f"kill {broker.id}")
        world.end(broker, clean=False)
        if world.random.random() < 0.7:
            world.expire(broker)


def shut_down(world: World) -> None:
    if broker := _any(world, up=True):
        world.shut_down(broker)


def heartbeat(world: World) -> None:
    if broker := _any(world, up=True):
        world.heartbeat(broker)


def expire(world: World) -> None:
    broker = _any(world, up=None if world.random.random() < 0.2 else False)
    if broker:
        world.expire(broker)


def unregister(world: World) -> None:
    broker = _any(world, up=False)
    if broker and broker.id in world.image.brokers:
        world.tell(f"unregister {broker.id}")
        world.ask(UnregisterBrokerRequest(broker_id=broker.id))


def report(world: World, broker: Broker | None = None) -> None:
    broker = broker or _any(world, up=True)
    if broker and broker.up and _registered(world, broker):
        world.report(broker)


def _registered(world: World, broker: Broker) -> bool:
    """Whether the metadata knows the broker's process."""
    known = world.image.brokers.get(broker.id)
    return known is not None and known.epoch == broker.epoch


# DISKS


def fail_disk(world: World, broker: Broker | None = None) -> None:
    broker = broker or _any(world)
    works = [disk for disk in broker.disks if disk.works] if broker else []
    if not broker or not works:
        return
    disk = world.random.choice(works)
    disk.works = False
    world.tell(f"disk {disk.id.lsb} of {broker.id} fails")
    if broker.up and disk in broker.online:
        broker.online.remove(disk)
        if not broker.online:
            world.end(broker, clean=False)
        elif world.random.random() < 0.8:
            world.heartbeat(broker)


def replace_disk(world: World) -> None:
    """A failed disk, or any, is replaced while the broker is down; the old one is thrown away or kept."""
    broker = _any(world, up=False)
    if not broker or not broker.disks:
        return
    failed = [disk for disk in broker.disks if not disk.works]
    old = world.random.choice(failed or broker.disks)
    world.tell(f"disk {old.id.lsb} of {broker.id} is replaced")
    broker.disks[broker.disks.index(old)] = world.new_disk()


def wipe_broker(world: World) -> None:
    if broker := _any(world, up=False):
        world.tell(f"{broker.id} is wiped")
        broker.disks = [world.new_disk() for _ in broker.disks]
        broker.shelf = []


def take_out(world: World) -> None:
    broker = _any(world, up=False)
    if broker and len(broker.disks) > 1:
        disk = world.random.choice(broker.disks)
        world.tell(f"disk {disk.id.lsb} of {broker.id} is taken out")
        broker.disks.remove(disk)
        broker.shelf.append(disk)


def put_back(world: World) -> None:
    broker = _any(world, up=False)
    if broker and broker.shelf and _one_log(world, broker, broker.shelf[-1]):
        disk = broker.shelf.pop()
        world.tell(f"disk {disk.id.lsb} of {broker.id} is put back")
        broker.disks.append(disk)


def _one_log(world: World, broker: Broker, disk: Disk) -> bool:
    """A broker does not start with two logs of one partition. The operator deletes the older one, or, where no record
    says yet that another was created, that one; but no log that was ever in sync, then the disk stays where it is."""
    at, partition = world.at.get(broker.id), world.partition
    if at is None or at is disk or disk.log is None or partition is None or at.log is None:
        return True
    if partition.directory(broker.id) != disk.id:
        world.excused |= world.presumed <= disk.log.sure
        disk.log, disk.unknowable = None, True
        return True
    if not at.log.synced:
        at.log, world.at[broker.id] = None, disk
        if disk.log.parted:
            world.parted.add(broker.id)
        return True
    return False


def repair_disk(world: World) -> None:
    broker = _any(world, up=False)
    failed = [disk for disk in broker.disks if not disk.works] if broker else []
    if broker and failed:
        disk = world.random.choice(failed)
        if _one_log(world, broker, disk):
            world.tell(f"disk {disk.id.lsb} of {broker.id} works again")
            disk.works = True


def move(world: World) -> None:
    """A replica moves to another disk of its broker: copied, reported, swapped."""
    broker = _any(world, up=True)
    log = broker and world.serving(broker.id)
    if not broker or not log or log.mounted:  # its broker reports it first
        return
    source = world.at[broker.id]
    others = [disk for disk in broker.online if disk is not source]
    registration = world.image.brokers.get(broker.id)
    if not others or registration is None or registration.fenced or not _registered(world, broker):
        return
    target = world.random.choice(others)
    if not {source.id, target.id} <= set(registration.directories):
        return
    world.tell(f"move on {broker.id} from {source.id.lsb} to {target.id.lsb}")
    world.at[broker.id] = target
    target.log, source.log = source.log, None
    if not world.assign(broker, target):
        world.at[broker.id] = source
        target.log, source.log = None, target.log


# REPLICATION


def write(world: World) -> None:
    world.write()


def unacknowledged(world: World) -> None:
    """A write that reaches the leader and perhaps some followers, before anybody acknowledges it."""
    partition = world.partition
    log = partition and world.serving(partition.leader)
    if partition and log:
        log.entries.append(world.new_write())
        for member in partition.isr:
            if world.random.random() < 0.5:
                world.sync(member)


def fetch(world: World) -> None:
    partition = world.partition
    if partition:
        world.sync(world.random.choice(partition.replicas), world.random.randint(0, 2))


def shrink(world: World) -> None:
    """The leader drops a follower from the in-sync set."""
    partition = world.partition
    if partition and world.serving(partition.leader) is not None and len(partition.isr) > 1:
        gone = world.random.choice([member for member in partition.isr if member != partition.leader])
        alter_isr(world, [member for member in partition.isr if member != gone])


def expand(world: World) -> None:
    """A follower that has caught up joins the in-sync set."""
    partition = world.partition
    if not partition or world.serving(partition.leader) is None:
        return
    outside = [b for b in partition.replicas if b not in partition.isr and world.serving(b) is not None]
    if outside:
        joins = world.random.choice(outside)
        world.sync(joins)
        alter_isr(world, [*partition.isr, joins])


def alter_isr(world: World, members: list[int]) -> None:
    """The leader asks for another in-sync set."""
    partition, topic = world.partition, world.image.topic(TOPIC)
    assert partition is not None and topic is not None
    change = AlterPartitionPartition(
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        new_isr_with_epochs=tuple(BrokerState(broker_id=member) for member in members),
    )
    world.tell(f"{partition.leader} wants {members} in sync")
    leader, before = world.at[partition.leader].log, {}
    assert leader is not None
    for member in set(members) - set(partition.isr):
        if log := world.copy(member):
            before[member] = log.sure
            log.sure = set(leader.sure)
    written = world.ask(
        AlterPartitionRequest(
            broker_id=partition.leader,
            broker_epoch=world.brokers[partition.leader].epoch,
            topics=(AlterPartitionTopic(topic_id=topic.topic_id, partitions=(change,)),),
        )
    )
    for member, sure in before.items():
        if log := world.copy(member):
            if written:
                log.doubt = log.unplaced = log.either = False
            else:
                log.sure = sure


# OPERATORS


def reassign(world: World) -> None:
    replicas: tuple[int, ...] | None = tuple(world.random.sample(sorted(world.brokers), world.random.choice((1, 2, 3))))
    if world.random.random() < 0.2:
        replicas = None
    reassign_to(world, replicas)


def reassign_to(world: World, replicas: tuple[int, ...] | None) -> None:
    """None: the reassignment that is under way is cancelled."""
    world.tell(f"reassign to {replicas}")
    reassignment = ReassignablePartition(partition_index=0, replicas=replicas)
    world.excused |= replicas is None and looks_completed(world)
    world.ask(AlterPartitionReassignmentsRequest(topics=(ReassignableTopic(name=TOPIC, partitions=(reassignment,)),)))


def change_min_isr(world: World) -> None:
    value = str(world.random.choice((1, 2, 3)))
    world.tell(f"min.insync.replicas {value}")
    configs = (AlterableConfig(name="min.insync.replicas", value=value),)
    resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=TOPIC, configs=configs)
    world.ask(IncrementalAlterConfigsRequest(resources=(resource,)))


def allow_unclean(world: World) -> None:
    value = world.random.choice(("true", "false"))
    world.tell(f"unclean elections {value}")
    configs = (AlterableConfig(name="unclean.leader.election.enable", value=value),)
    resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=TOPIC, configs=configs)
    world.ask(IncrementalAlterConfigsRequest(resources=(resource,)))


def elect(world: World) -> None:
    world.tell("elect")
    world.ask(world.random.choice((BalanceLeaders(), ElectUncleanLeaders())))


def recreate_topic(world: World) -> None:
    world.delete_topic()


# BEYOND THE METADATA


def wipe_log(world: World) -> None:
    """The log is deleted, in a directory that keeps its id."""
    broker = _any(world, up=False)
    if broker and world.copy(broker.id) is not None:
        world.tell(f"the log on {broker.id} is deleted")
        world.at[broker.id].log = Log()
        world.excused = True


def late_report(world: World) -> None:
    """A future copy has everything; its source fails, and the report of the move comes after that of the failure."""
    _cut(world, before_report=True)


def cut_move(world: World) -> None:
    """The move is reported, more is written, and the source fails before the swap: the future copy is promoted."""
    _cut(world, before_report=False)


def _cut(world: World, *, before_report: bool) -> None:
    broker = _any(world, up=True)
    log = world.serving(broker.id) if broker else None
    if not broker or log is None or len(broker.online) < 2:
        return
    source = world.at[broker.id]
    target = next(disk for disk in broker.online if disk is not source)
    registration = world.image.brokers.get(broker.id)
    if registration is None or not {source.id, target.id} <= set(registration.directories):
        return
    world.tell(f"a move on {broker.id} from {source.id.lsb} to {target.id.lsb} is cut")
    world.excused = True
    future = replace(log, entries=list(log.entries), sure=set(log.sure))
    if not before_report:
        world.assign(broker, target)
        world.write()
    source.works, source.log = False, None
    broker.online.remove(source)
    world.at[broker.id], target.log = target, future
    world.heartbeat(broker)
    if before_report:
        world.assign(broker, target)


BEYOND: Mapping[str, Operation | None] = {
    "a log deleted in a directory that keeps its id": wipe_log,
    "a move reported after its source failed": late_report,
    "a move cut off after its report": cut_move,
    "a crash without eligible leaders": None,
}
"""What no record can tell, by name; None: a crash that loses what was not flushed."""

WEIGHTS: Sequence[tuple[Operation, int]] = (
    (start, 16),
    (kill, 5),
    (shut_down, 4),
    (heartbeat, 8),
    (expire, 4),
    (unregister, 1),
    (report, 8),
    (fail_disk, 4),
    (replace_disk, 5),
    (wipe_broker, 1),
    (take_out, 3),
    (put_back, 3),
    (repair_disk, 3),
    (move, 4),
    (write, 3),
    (unacknowledged, 4),
    (fetch, 4),
    (shrink, 4),
    (expand, 10),
    (reassign, 3),
    (change_min_isr, 2),
    (allow_unclean, 1),
    (elect, 4),
    (recreate_topic, 1),
)


def run(
    seed: int, *, beyond: str | None = None, steps: int = 60, weights: Sequence[tuple[Operation, int]] = WEIGHTS
) -> World:
    """A random history. ``beyond`` adds what no record can tell. Unsound where the model is wrong, with the story."""
    world = World(seed, lossy_crashes=beyond is not None and BEYOND[beyond] is None)
    extra = BEYOND[beyond] if beyond else None
    operations, numbers = zip(*weights, *([(extra, 6)] if extra else []), strict=True)
    try:
        for operation in world.random.choices(operations, numbers, k=steps):
            operation(world)
    except Unsound as wrong:
        if not world.excused:
            raise Unsound("\n".join([*world.story[-400:], f"seed {seed}: {wrong}"])) from None
        world.count("not told" if "silent" in str(wrong) or "not " in str(wrong) else "told wrong")
    return world
