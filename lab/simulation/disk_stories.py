"""Scenarios about disks that fail, are replaced, added, removed and moved, and replicas that move between them."""

from __future__ import annotations

from jbod_model.broker.disks import MoveState
from jbod_model.ids import random as random_id
from lab.simulation.host import Disk
from lab.simulation.scenario import cluster, replicas_in, run_for, scenario, topic, wait_for_moves
from lab.simulation.world import World


def _disk(node_id: int, letter: str) -> str:
    return f"/disks/{node_id}-{letter}"


@scenario(
    "disk-fails", "One disk of a broker dies: its leaders move, the broker stays.", "Handling log directory failures"
)
def disk_fails(world: World) -> None:
    cluster(world)
    topic(world, "orders")
    world.break_disk(1, _disk(1, "b"))
    run_for(world)
    topic(world, "later", 3)


@scenario("disk-fails-elr", "As disk-fails, with eligible leader replicas on.", "Handling log directory failures")
def disk_fails_elr(world: World) -> None:
    cluster(world, elr=True)
    topic(world, "orders")
    topic(world, "single", 3, 1)
    world.break_disk(1, _disk(1, "b"))
    run_for(world)


@scenario(
    "disks-fail-one-by-one",
    "A broker loses one disk after the other, then it halts.",
    "Handling log directory failures",
)
def disks_fail_one_by_one(world: World) -> None:
    cluster(world)
    topic(world, "orders")
    # The metadata log lies in the first directory, where a failure would end the broker at once.
    world.hosts[2].metadata_dir = _disk(2, "c")
    world.restart_broker(2)
    run_for(world)
    for letter in "abc":
        world.break_disk(2, _disk(2, letter))
        run_for(world, 15)


@scenario("metadata-disk-fails", "The disk with the metadata log dies: the broker halts.", "Footnote 1")
def metadata_disk_fails(world: World) -> None:
    cluster(world)
    topic(world, "orders")
    world.break_disk(3, _disk(3, "a"))
    run_for(world)


@scenario(
    "failure-not-reported",
    "A disk dies while the controller is out of reach: the broker gives up in time.",
    "Configuration",
)
def failure_not_reported(world: World) -> None:
    cluster(world)
    topic(world, "orders")
    world.set_connected(1, False)
    world.run(1)
    world.break_disk(1, _disk(1, "b"))
    run_for(world, 45)
    world.set_connected(1, True)
    run_for(world)


@scenario(
    "disk-dies-while-hanging",
    "A disk hangs its broker until it is fenced, then dies: Kafka's two-in-one heartbeat.",
    "Handling log directory failures",
)
def disk_dies_while_hanging(world: World) -> None:
    cluster(world, (2, 2))
    topic(world, "orders", 4, 1)
    world.set_paused(1, True)
    world.run(15)
    world.break_disk(1, _disk(1, "b"))
    world.set_paused(1, False)
    run_for(world)


@scenario(
    "disk-replaced", "A dead disk is replaced by an empty one: the replicas come back elsewhere.", "Replica management"
)
def disk_replaced(world: World) -> None:
    cluster(world)
    topic(world, "orders")
    world.break_disk(1, _disk(1, "b"))
    run_for(world)
    host = world.hosts[1]
    host.disks[_disk(1, "b")] = Disk()
    world.tell("a new disk is put in, and formatted")
    host.format()
    world.restart_broker(1)
    run_for(world, 30)


@scenario(
    "disk-comes-back",
    "A dead disk is repaired with what was on it: its replicas are online again.",
    "Replica management",
)
def disk_comes_back(world: World) -> None:
    cluster(world)
    topic(world, "orders")
    world.break_disk(1, _disk(1, "b"))
    run_for(world)
    world.restart_broker(1)
    run_for(world)
    world.hosts[1].disks[_disk(1, "b")].works = True
    world.tell("the disk is repaired")
    world.restart_broker(1)
    run_for(world, 30)


@scenario(
    "disk-added", "A broker gets one more disk: nothing moves, new replicas use it.", "Broker lifecycle management"
)
def disk_added(world: World) -> None:
    cluster(world, (2, 2, 2))
    topic(world, "orders")
    host = world.hosts[2]
    host.log_dirs.append(_disk(2, "c"))
    host.format()
    world.restart_broker(2)
    run_for(world)
    topic(world, "later")
    run_for(world)


@scenario(
    "disk-removed",
    "A disk is emptied with moves, then taken out of the configuration.",
    "Intra-broker replica movement",
)
def disk_removed(world: World) -> None:
    cluster(world)
    topic(world, "orders")
    for i, replica in enumerate(replicas_in(world, 1, _disk(1, "c"))):
        world.move_replica(1, replica, _disk(1, "ab"[i % 2]))
    run_for(world, 30)
    world.hosts[1].log_dirs.remove(_disk(1, "c"))
    world.restart_broker(1)
    run_for(world)


@scenario(
    "disk-removed-at-once",
    "A full disk is taken out of the configuration: its replicas start anew elsewhere.",
    "Replica management",
)
def disk_removed_at_once(world: World) -> None:
    cluster(world)
    topic(world, "orders")
    world.hosts[1].log_dirs.remove(_disk(1, "c"))
    world.restart_broker(1)
    run_for(world, 30)


@scenario(
    "disk-remounted", "A disk appears under another path: its id says that it is the same.", "Storage format command"
)
def disk_remounted(world: World) -> None:
    cluster(world)
    topic(world, "orders")
    host = world.hosts[1]
    host.disks["/mnt/new"] = host.disks.pop(_disk(1, "c"))
    host.log_dirs[host.log_dirs.index(_disk(1, "c"))] = "/mnt/new"
    world.restart_broker(1)
    run_for(world)


@scenario(
    "disk-of-another-broker",
    "A disk is put into the wrong machine: that broker refuses to start.",
    "Broker lifecycle management",
)
def disk_of_another_broker(world: World) -> None:
    cluster(world)
    topic(world, "orders")
    world.hosts[2].disks["/mnt/foreign"] = world.hosts[1].disks[_disk(1, "c")]
    world.hosts[2].log_dirs.append("/mnt/foreign")
    world.restart_broker(2)
    run_for(world)
    world.hosts[2].log_dirs.remove("/mnt/foreign")
    world.start_broker(2)
    run_for(world)


@scenario("replica-moved", "Replicas move between the disks of a broker.", "Intra-broker replica movement")
def replica_moved(world: World) -> None:
    cluster(world)
    topic(world, "orders")
    for replica in replicas_in(world, 1, _disk(1, "a")):
        world.move_replica(1, replica, _disk(1, "b"))
    run_for(world, 30)


@scenario(
    "move-cancelled", "A move is called off after the controller may have heard of it.", "Intra-broker replica movement"
)
def move_cancelled(world: World) -> None:
    cluster(world)
    topic(world, "orders")
    moved = replicas_in(world, 1, _disk(1, "a"))
    for replica in moved:
        world.move_replica(1, replica, _disk(1, "b"))
    wait_for_moves(world, 1, MoveState.ACCEPTED)
    for replica in moved:
        world.move_replica(1, replica, _disk(1, "a"))
    run_for(world, 30)


@scenario(
    "move-source-fails",
    "The source disk dies before the swap: the assignment is reverted to it.",
    "Intra-broker replica movement",
)
def move_source_fails(world: World) -> None:
    _break_during_move(world, "b")


@scenario(
    "move-destination-fails",
    "The destination disk dies before the swap: the assignment is reverted.",
    "Intra-broker replica movement",
)
def move_destination_fails(world: World) -> None:
    _break_during_move(world, "c")


def _break_during_move(world: World, disk: str) -> None:
    """Move all of broker 1's disk b to its disk c, and break one of the two before the swap."""
    cluster(world)
    topic(world, "orders")
    for replica in replicas_in(world, 1, _disk(1, "b")):
        world.move_replica(1, replica, _disk(1, "c"))
    wait_for_moves(world, 1, MoveState.QUEUED)
    world.run(0.1)
    world.break_disk(1, _disk(1, disk))
    run_for(world, 30)


@scenario(
    "logs-moved-offline",
    "Logs are moved between disks while the broker is down: it corrects the metadata.",
    "Footnote 4",
)
def logs_moved_offline(world: World) -> None:
    cluster(world)
    topic(world, "orders")
    world.stop_broker(1)
    run_for(world)
    host = world.hosts[1]
    host.disks[_disk(1, "a")].logs |= host.disks[_disk(1, "b")].logs
    host.disks[_disk(1, "b")].logs = {}
    world.tell("all logs of disk b are moved to disk a by hand")
    world.start_broker(1)
    run_for(world, 30)


@scenario(
    "duplicate-directory-id",
    "A disk was cloned, id and all: the broker refuses to start.",
    "Broker lifecycle management",
)
def duplicate_directory_id(world: World) -> None:
    cluster(world)
    host = world.hosts[1]
    host.log_dirs.append("/mnt/clone")
    host.disks["/mnt/clone"] = Disk(meta=host.disks[_disk(1, "b")].meta)
    world.restart_broker(1)
    run_for(world)


@scenario("everything", "A day of a cluster: whatever the seed brings.", "Proposed changes")
def everything(world: World) -> None:
    cluster(world, (3, 3, 2, 1), elr=world.scheduler.random.random() < 0.5)
    topic(world, "orders")
    random = world.scheduler.random
    for step in range(25):
        node_id = random.choice(sorted(world.hosts))
        host = world.hosts[node_id]
        path = random.choice(host.log_dirs)
        action = random.choice(["break", "repair", "restart", "kill", "move", "topic", "cut", "pause", "fail over"])
        if action == "break" and sum(host.disks[p].works for p in host.log_dirs) > 1 and path != host.metadata_dir:
            world.break_disk(node_id, path)
        elif action == "repair" and not host.disks[path].works:
            host.disks[path] = Disk()
            world.tell(f"disk {path} of broker {node_id} is replaced by an empty one")
            host.format()
            world.restart_broker(node_id)
        elif action == "restart" and host.broker is not None:
            world.restart_broker(node_id)
        elif action == "kill" and host.broker is not None:
            world.kill_broker(node_id)
            world.run(random.choice([1, 12]))
            world.start_broker(node_id)
        elif action == "move" and host.broker is not None and host.disks[path].works:
            for replica in replicas_in(world, node_id, random.choice(host.log_dirs))[:3]:
                world.move_replica(node_id, replica, path)
        elif action == "topic":
            topic(world, f"topic-{step}-{str(random_id(random))[:4]}", random.randint(1, 4), random.randint(1, 2))
        elif action == "cut":
            world.set_connected(node_id, False)
            world.run(random.choice([2, 12]))
            world.set_connected(node_id, True)
        elif action == "pause":
            world.set_paused(node_id, True)
            world.run(random.choice([2, 12]))
            world.set_paused(node_id, False)
        elif action == "fail over":
            world.fail_over()
        world.run(random.choice([0.05, 0.3, 1, 5]))
    for node_id, host in world.hosts.items():
        if host.broker is None:
            world.start_broker(node_id)
    run_for(world, 60)
