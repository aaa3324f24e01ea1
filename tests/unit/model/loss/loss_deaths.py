"""More that happens to the cluster of ``loss_world``: brokers that die and disks that fail before the controller knows.

A leader that is dead acknowledges nothing and truncates nobody, the controller elects brokers that are dead, and keeps
them in sync.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.unit.model.loss.loss_disks import Broker
from tests.unit.model.loss.loss_operations import Operation, report
from tests.unit.model.loss.loss_restarts import MORE
from tests.unit.model.loss.loss_world import World


def die(world: World) -> None:
    """A broker dies, and its session goes on."""
    if broker := _victim(world):
        world.tell(f"{broker.id} dies")
        world.end(broker, clean=False)


def fail(world: World) -> None:
    """A disk fails before the next heartbeat."""
    broker = _victim(world)
    if broker is None:
        return
    held = world.at.get(broker.id)
    disk = held if held in broker.online and world.random.random() < 0.7 else world.random.choice(broker.online)
    assert disk is not None
    disk.works = False
    broker.online.remove(disk)
    world.tell(f"disk {disk.id.lsb} of {broker.id} fails")
    if not broker.online:
        world.end(broker, clean=False)


def notice(world: World) -> None:
    """The sessions of the dead expire, and the living report what failed and where their replicas are."""
    for broker in world.brokers.values():
        if broker.up:
            world.heartbeat(broker)
            report(world, broker)
        else:
            world.expire(broker)


def _victim(world: World) -> Broker | None:
    """A running broker, most often the one that leads."""
    running = [broker for broker in world.brokers.values() if broker.up]
    leads = [broker for broker in running if world.partition and broker.id == world.partition.leader]
    if not running:
        return None
    return world.random.choice(leads if leads and world.random.random() < 0.6 else running)


UNNOTICED: Sequence[tuple[Operation, int]] = (*MORE, (die, 8), (fail, 8), (notice, 12))
