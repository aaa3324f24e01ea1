"""More that happens to the cluster of ``loss_world``: restarts within a session, disks that come back, partial copies
that live on."""

from __future__ import annotations

from collections.abc import Sequence

from tests.unit.model.loss.loss_disks import Broker, Disk
from tests.unit.model.loss.loss_operations import WEIGHTS, Operation, alter_isr, fail_disk, kill
from tests.unit.model.loss.loss_world import World


def blank_in_session(world: World) -> None:
    """A process is killed, a blank disk takes the place of one of its disks, and the next process starts before the
    session of the first expires: it reports with the epoch of the first one, and registers afterwards."""
    running = [broker for broker in world.brokers.values() if broker.up]
    if not running:
        return
    broker = world.random.choice(running)
    world.tell(f"kill {broker.id}")
    world.end(broker, clean=False)
    held = world.at.get(broker.id)
    old = held if held in broker.disks and world.random.random() < 0.7 else world.random.choice(broker.disks)
    assert old is not None
    _swap(world, broker, old, world.new_disk())
    broker.shelf.append(old)
    _start(world, broker)
    if world.random.random() < 0.4:
        mount_again(world)


def mount_again(world: World) -> None:
    """The disk that a blank one replaced takes its place again, and the blank one goes, or its log. If that log holds
    anything, the old disk stays on the shelf."""
    ready = [
        (broker, disk, disk.log) for broker in world.brokers.values() for disk in broker.shelf if disk.log is not None
    ]
    if not ready:
        return
    broker, disk, log = world.random.choice(ready)
    now = world.at.get(broker.id)
    if now is None or (now is not disk and (now.log is None or now.log.entries or now.log.sure)):
        return
    if broker.up:
        world.shut_down(broker) if world.random.random() < 0.5 else world.end(broker, clean=False)
    broker.shelf.remove(disk)
    if now in broker.disks and now is not disk:
        _swap(world, broker, now, disk)
    else:
        broker.disks.append(disk)
    world.at[broker.id] = disk
    if now is not disk:
        log.mounted, now.log = True, None
    _start(world, broker)


def lag(world: World) -> None:
    """A follower falls out of the in-sync set and fetches a part of what is written then; the leader's disk fails or
    its broker dies, or neither."""
    partition = world.partition
    if not partition or world.serving(partition.leader) is None or len(partition.isr) < 2:
        return
    leader = partition.leader
    slow = world.random.choice([member for member in partition.isr if member != leader])
    alter_isr(world, [member for member in partition.isr if member != slow])
    for _ in range(world.random.randint(1, 3)):
        world.write()
    world.sync(slow, world.random.randint(0, 2))
    if world.random.random() < 0.5:
        world.random.choice((fail_disk, kill))(world)


def _swap(world: World, broker: Broker, old: Disk, new: Disk) -> None:
    world.tell(f"disk {old.id.lsb} of {broker.id} gives its place to {new.id.lsb}")
    broker.disks[broker.disks.index(old)] = new


def _start(world: World, broker: Broker) -> None:
    world.start(broker, early=world.random.random() < 0.7)
    if world.random.random() < 0.8:
        world.report(broker)
        world.heartbeat(broker)


MORE: Sequence[tuple[Operation, int]] = (*WEIGHTS, (blank_in_session, 5), (mount_again, 5), (lag, 4))
