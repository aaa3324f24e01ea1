"""What happened to the data of ``loss_world``, and whether the model told it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jbod_model.ids import KAFKA_IDS
from jbod_model.replay.registrations import Partition
from tests.unit.model.loss.loss_disks import Log, Unsound

if TYPE_CHECKING:
    from tests.unit.model.loss.loss_world import World


def in_reach(world: World, broker_id: int) -> bool:
    """Whether the copy can still come back by itself."""
    return broker_id in world.at and broker_id not in world.parted


def judge(world: World, first: int, left: set[int], returned: set[int]) -> None:
    """Compare what the model told in the append from ``first`` on with what happened.

    ``left``: brokers that this append unregisters, after it elected leaders. ``returned``: brokers that were
    unregistered, and that this append registers with their copy, after it elected leaders.
    """
    partition = world.partition
    assert partition is not None
    for broker_id, disk in world.at.items():
        if disk.log and partition.directory(broker_id) == disk.id and not starting(world, broker_id):
            disk.log.either |= disk.log.mounted and not disk.log.named
            disk.log.named, disk.log.mounted = True, False
    losses = world.fate.losses
    alarm = losses[-1] if losses and (losses[-1].went_on or -1) >= first else None
    pending = bool(losses) and losses[-1].went_on is None and losses[-1].until is None
    placed = [disk for disk in world.at.values() if disk.log and not (disk.log.unplaced or disk.log.mounted)]
    still = [b for b in partition.replicas if in_reach(world, b) and world.presumed <= world.at[b].log.sure]  # type: ignore[union-attr]
    leader = world.copy(partition.leader)
    if losses and not world.led:
        raise Unsound("told before anybody led")
    if alarm:
        for broker_id in {partition.leader, *partition.isr}:
            registration = world.image.brokers.get(broker_id)
            if registration is not None and partition.directory(broker_id) == KAFKA_IDS.unassigned:
                world.places.setdefault(broker_id, set()).update(registration.directories)  # R-LOSS-6
    if leader is None:
        if world.led and pending and any(world.at[broker] in placed for broker in still):
            raise Unsound(f"pending while {still} hold everything")
        if world.led and not pending and not still and all(known(world, each) for each in world.at):
            raise Unsound("not pending while nobody holds everything")
        world.count("pending" if pending else "unavailable")
        return
    unreported = leader.recreated and partition.directory(partition.leader) != world.at[partition.leader].id
    if unreported or starting(world, partition.leader):
        world.count("not reported yet")
        world.told_before |= alarm is not None
        if alarm and leader.was is None:
            fall_back(world, [leader], surely=False)
        if alarm and not starting(world, partition.leader):
            leader.was = leader.lack(world.presumed)
            leader.sure |= world.presumed  # what is left of them
        presume(world, partition, leader)  # it leads, and acknowledges, before it reports
        return
    was = leader.lack(world.presumed)
    missing = was.writes
    really = world.acked - set(leader.entries) if world.serving(partition.leader) else set()
    world.tell(
        f"  led by {partition.leader} isr {partition.isr} elr {partition.eligible_leader_replicas}"
        f" misses {sorted(missing)} really {sorted(really)} told {alarm and alarm.kind}"
    )
    if really and not (alarm or world.told_before):
        raise Unsound(f"silent: {partition.leader} leads without {sorted(really)}")
    if missing and not alarm and not world.told_before:
        raise Unsound(f"not told: {partition.leader} leads without {sorted(missing)}")
    if alarm and not missing and not (leader.doubt or leader.unplaced):
        raise Unsound(f"false alarm: {alarm}")
    if alarm and not missing and not leader.doubt and alarm.kind != "may lack writes":
        raise Unsound(
            f"told {alarm.kind}, though the copy that leads may lie where nobody knows, with everything in it"
        )
    if alarm:
        held = set(still) - returned or any(world.presumed <= world.at[broker].log.sure for broker in left)  # type: ignore[union-attr]
        expected = "lost" if missing and (not held or not leader.synced) else "may lack writes"
        kinds = {loss.kind for loss in losses if (loss.went_on or -1) >= first}
        vague = (
            leader.vague
            or world.at[partition.leader].unknowable
            or any(disk.log and disk.log.unplaced for disk in world.at.values())
            or world.absences.get(partition.leader, 0) > 1
            or not all(known(world, each) for each in world.at)
        )
        if expected not in kinds and not vague:
            raise Unsound(f"told {alarm.kind}, is {expected}")
        world.count(f"told {alarm.kind}")
        if world.serving(partition.leader):
            leader.doubt = leader.unplaced = leader.either = False
    if pending:
        raise Unsound("a loss is pending while a leader misses nothing")
    members = [log for log in (leader, *map(world.copy, partition.isr)) if log]
    if leader.was is None and (not missing or was.unplaced):
        fall_back(world, members, surely=not missing and alarm is None)
    if alarm:
        for log in map(world.copy, world.at):
            if log:
                log.was = None
        leader.was = was
    for log in members:
        log.sure |= world.presumed  # what is left of them
        log.was = leader.was
    world.told_before = not world.serving(partition.leader) and (world.told_before or alarm is not None)
    world.acked -= really
    presume(world, partition, leader)


def fall_back(world: World, members: Sequence[Log], *, surely: bool) -> None:
    """A log leads that was not the measure of the last loss: those that were lack what they lacked (R-LOSS-12).

    ``members``: the leader's log, and those in sync. ``surely``: the metadata tells that the leader's lacks nothing.
    """
    for log in map(world.copy, world.at):
        if log is None or log in members or log.was is None:
            continue
        log.sure -= log.was.writes if surely else set()
        log.doubt |= log.was.doubt
        log.unplaced |= log.was.unplaced or not surely
        log.either |= log.was.either


def starting(world: World, broker_id: int) -> bool:
    """Whether a process of the broker runs that has not registered: it may report before (R-COPY-12)."""
    broker, registration = world.brokers[broker_id], world.image.brokers.get(broker_id)
    return broker.up and (registration is None or registration.incarnation_id != broker.incarnation)


def known(world: World, broker_id: int) -> bool:
    """Whether the metadata says where the replica was recreated, if it was."""
    partition, disk = world.partition, world.at.get(broker_id)
    if partition is None or disk is None or not disk.log:
        return True
    if broker_id in world.parted and partition.directory(broker_id) == KAFKA_IDS.unassigned:
        return False
    if disk.log.mounted or disk.log.either:
        return False
    if not disk.log.recreated:
        return True
    if starting(world, broker_id):
        return False
    return partition.directory(broker_id) == disk.id and not disk.log.unplaced


def looks_completed(world: World) -> bool:
    """Whether the record that cancels the partition's reassignment would be that of a completed one: no reader of the
    metadata can tell them apart."""
    partition = world.partition
    if partition is None or not partition.adding_replicas:
        return False
    added = set(partition.adding_replicas)
    (first, *more) = [world.image.brokers.get(broker) for broker in partition.replicas if broker not in added] or [None]
    active = first is not None and not first.fenced and not first.in_controlled_shutdown
    return active and not more and added == set(partition.removing_replicas) and set(partition.isr) <= added


def presume(world: World, partition: Partition, leader: Log) -> None:
    """A write in this stretch, if the metadata allows one; the first leader is taken to have had one."""
    for replica in partition.replicas:
        if log := world.copy(replica):
            log.synced = True  # a replica may fetch as long as somebody leads
    if world.led and len(partition.isr) < world.min_isr:
        return
    world.led = True
    write = world.new_write()
    world.presumed.add(write)
    members = [world.copy(member) for member in partition.isr]
    for log in [leader, *members]:
        if log is not None:
            log.sure.add(write)
    world.write()
