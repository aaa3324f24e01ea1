"""The loops over replicas: where each of them goes. Arrays are those of ``pipelines.plan.problem``.

Three rules hold for every target: no two replicas of a partition are on one broker, a partition is in no fewer racks
than before, and the target has room for the whole copy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pipelines.formats.kernels import njit

NO_BROKER, NO_RACK, NO_ROOM = -1, -2, -3
"""Why a replica has no target: no disk of a broker without it takes it; every such disk means fewer racks; no room."""

MOST_PASSES = 100
"""Times that all partitions are gone through to hand the first place on from broker to broker."""


class ClusterArrays(NamedTuple):
    """What the kernels read and change."""

    place: Any
    """int32, partition and slot -> disk; -1 for no replica. Changes."""
    began: Any
    """The same before anything moved."""
    load: Any
    """float64, of each disk, in units of ``weight``. Changes."""
    fit: Any
    """float64, by what a load is divided to compare disks."""
    held: Any
    """float64, bytes of each disk. Changes."""
    limit: Any
    """float64, bytes that each disk may hold."""
    takes: Any
    """bool, which disks may be a target."""
    chosen: Any
    """bool, the disks that Kafka may choose for a new replica, until it is told which one to take."""
    count: Any
    """int64, replicas on each disk: Kafka chooses the disk with the fewest. Changes."""
    room: Any
    """float64, of each broker: what it surely has room for, wherever Kafka makes the copy first. Changes."""
    late: Any
    """int32, partition -> brokers that take it back after a restart only (R-HOST-3); -1 for none."""
    reads: Any
    """bool, from which disks their broker can copy to its others: it has lost none of them (R-HOST-5)."""
    broker: Any
    """int32, of each disk."""
    rack: Any
    """int32, of each broker; -1 for none."""
    weight: Any
    """int64, partition and slot: what a replica adds to a load."""
    bytes: Any
    """int64, partition and slot."""
    largest: Any
    """int64, of each partition: what a copy takes on another broker."""


@njit(nogil=True)
def _copy(it: Any, row: int, slot: int, disk: int) -> int:
    """The bytes that a replica takes on a disk: its own, or those of the largest replica on another broker."""
    now = it.place[row, slot]
    if now >= 0 and it.broker[now] == it.broker[disk]:
        return int(it.bytes[row, slot])
    return int(it.largest[row])


@njit(nogil=True)
def _racks(it: Any, row: int, slot: int, disk: int) -> int:
    """Racks of the partition if the replica in ``slot`` were on ``disk``; -1: without it."""
    count = 0
    width = it.place.shape[1]
    for position in range(width):
        at = disk if position == slot else it.place[row, position]
        if at < 0:
            continue
        rack = it.rack[it.broker[at]]
        if rack < 0:
            continue
        new = True
        for other in range(position):
            before = disk if other == slot else it.place[row, other]
            if before >= 0 and it.rack[it.broker[before]] == rack:
                new = False
        if new:
            count += 1
    return count


@njit(nogil=True)
def _is_free(it: Any, row: int, slot: int, disk: int) -> bool:
    """Whether no other replica of the partition is on the broker of the disk, or was; and it may come back there."""
    for at in range(it.late.shape[1]):
        if it.late[row, at] == it.broker[disk]:
            return False
    for other in range(it.place.shape[1]):
        at, was = it.place[row, other], it.began[row, other]
        if other != slot and at >= 0 and it.broker[at] == it.broker[disk]:
            return False
        if other != slot and was >= 0 and it.broker[was] == it.broker[disk]:
            return False
    return True


@njit(nogil=True)
def _target(it: Any, row: int, slot: int, own_first: bool, high: float) -> tuple[int, float, int]:
    """The best disk for a replica, or why there is none, what the nearest disk lacks, and that disk.

    Best is one of the same broker if ``own_first``, then one of a broker with room wherever Kafka makes the copy first,
    then one that adds a rack, then the emptiest. For a replica that is added, a rack comes before room. A disk is not
    filled above ``high``.
    """
    now = it.place[row, slot]
    racks = _racks(it, row, slot, now)
    best, best_rank, best_level = NO_BROKER, 0, 0.0
    lacks, near = np.inf, -1
    for disk in range(it.takes.shape[0]):
        if not it.takes[disk] or disk == now or not _is_free(it, row, slot, disk):
            continue
        if now >= 0 and not it.reads[now] and it.broker[disk] == it.broker[now]:
            continue
        spread = _racks(it, row, slot, disk)
        if spread < racks:
            if best == NO_BROKER:
                best = NO_RACK
            continue
        need = it.held[disk] + _copy(it, row, slot, disk) - it.limit[disk]
        level = (it.load[disk] + it.weight[row, slot]) / it.fit[disk]
        if need > 0 or level > high:
            if best < 0:
                best = NO_ROOM
            if need > 0 and need < lacks:
                lacks, near = need, disk
            continue
        same = now >= 0 and it.broker[disk] == it.broker[now]
        sure = same or it.largest[row] <= it.room[it.broker[disk]]
        rank = spread + (2 * (same and own_first) + sure) * (it.place.shape[1] + 1) if now >= 0 else 2 * spread + sure
        if best < 0 or rank > best_rank or (rank == best_rank and level < best_level):
            best, best_rank, best_level = disk, rank, level
    return best, lacks, near


@njit(nogil=True)
def _move(it: Any, row: int, slot: int, disk: int, leaves: bool) -> None:
    """Puts a replica on a disk. ``leaves``: the bytes on the disk where it was count no longer."""
    now = it.place[row, slot]
    it.held[disk] += _copy(it, row, slot, disk)
    it.load[disk] += it.weight[row, slot]
    it.count[disk] += 1
    if leaves and now >= 0:
        it.held[now] -= it.bytes[row, slot]
        it.load[now] -= it.weight[row, slot]
        it.count[now] -= 1
        _measure(it, it.broker[now])
    _measure(it, it.broker[disk])
    it.place[row, slot] = disk


@njit(nogil=True)
def _measure(it: Any, broker: int) -> None:
    """Sets the room of a broker: the least of the disks with the fewest replicas, of which Kafka chooses one."""
    fewest, least = -1, np.inf
    for disk in range(it.chosen.shape[0]):
        if it.broker[disk] != broker or not it.chosen[disk]:
            continue
        room = it.limit[disk] - it.held[disk]
        if fewest < 0 or it.count[disk] < fewest:
            fewest, least = it.count[disk], room
        elif it.count[disk] == fewest:
            least = min(least, room)
    it.room[broker] = least


@njit(cache=True, nogil=True)
def settle(it: Any, rows: Any, slots: Any, own_first: bool, why: Any, lacks: Any, near: Any) -> None:
    """Finds a target for each of some replicas, in order. ``why`` becomes the disk, or one of the reasons."""
    for broker in range(it.room.shape[0]):
        _measure(it, broker)
    for index in range(rows.shape[0]):
        row, slot = rows[index], slots[index]
        best, lack, disk = _target(it, row, slot, own_first, np.inf)
        why[index], lacks[index], near[index] = best, lack, disk
        if best >= 0:
            _move(it, row, slot, best, False)


@njit(nogil=True)
def _take(it: Any, row: int, slot: int, own: bool, high: float, free: Any) -> bool:
    """Moves a replica if it may move and has a target that stays below ``high``."""
    if not free[row, slot] or it.weight[row, slot] == 0:
        return False
    best, _, _ = _target(it, row, slot, own, high)
    if best < 0:
        return False
    _move(it, row, slot, best, True)
    free[row, slot] = False
    return True


@njit(nogil=True)
def _give(
    it: Any, disk: int, lacks: float, spare: float, high: float, first: int, last: int, order: Any, free: Any
) -> bool:
    """Moves the largest replica of a disk that is no larger than what the others lack, else the smallest that is
    larger; none that is larger than what it can spare.

    ``order[first:last]``: the replicas that were on the disk, by weight.
    """
    width = it.place.shape[1]
    low, up = first, last
    while low < up:
        middle = (low + up) // 2
        replica = order[middle]
        if it.weight[replica // width, replica % width] <= lacks:
            low = middle + 1
        else:
            up = middle
    for index in range(last - first):
        at = low - 1 - index if index < low - first else first + index
        row, slot = order[at] // width, order[at] % width
        fits = 0 < it.weight[row, slot] <= spare and it.place[row, slot] == disk
        if fits and _take(it, row, slot, False, high, free):
            return True
    return False


@njit(cache=True, nogil=True)
def even(it: Any, gives: Any, low: float, high: float, starts: Any, order: Any, free: Any) -> None:
    """Moves replicas from disks above ``high`` to the emptiest, then fills those below ``low`` from the fullest. Where
    replicas are too large for that, the fullest gives as long as it then is no longer the fullest, nor the emptiest.

    ``order[starts[d]:starts[d + 1]]``: the replicas of disk d, by weight. ``free``: partition and slot, those that may
    move, once. Levels are loads divided by ``fit``.
    """
    left = gives.copy()
    while True:
        fullest = _outside(it, left, high, 1)
        if fullest < 0:
            break
        excess = it.load[fullest] - high * it.fit[fullest]
        left[fullest] = _give(it, fullest, excess, np.inf, high, starts[fullest], starts[fullest + 1], order, free)
    takes = it.takes.copy()
    _fill(it, gives, low, high, starts, order, free)
    it.takes[:] = takes
    left[:] = gives
    while True:
        fullest = _outside(it, left, high, 1)
        if fullest < 0:
            break
        left[fullest] = _lessen(it, fullest, gives, starts[fullest], starts[fullest + 1], order, free)


@njit(nogil=True)
def _lessen(it: Any, disk: int, gives: Any, first: int, last: int, order: Any, free: Any) -> bool:
    """Moves the largest replica of a disk that leaves neither it below all others nor another one as full."""
    width = it.place.shape[1]
    levels, others = it.load / it.fit, gives | it.takes
    others[disk] = False
    level, lowest = levels[disk], levels[others].min()
    for at in range(last - 1, first - 1, -1):
        row, slot = order[at] // width, order[at] % width
        left = (it.load[disk] - it.weight[row, slot]) / it.fit[disk]
        if it.place[row, slot] == disk and left >= lowest and _take(it, row, slot, False, level - 1e-9, free):
            return True
    return False


@njit(nogil=True)
def _outside(it: Any, among: Any, level: float, sign: int) -> int:
    """The fullest disk above a level if ``sign`` is 1, the emptiest below it if it is -1; else -1."""
    extreme, most = -1, 0.0
    for disk in range(among.shape[0]):
        if among[disk]:
            gap = sign * (it.load[disk] / it.fit[disk] - level)
            if gap > most:
                extreme, most = disk, gap
    return extreme


@njit(nogil=True)
def _fill(it: Any, gives: Any, low: float, high: float, starts: Any, order: Any, free: Any) -> None:
    """Fills the disks below ``low``, the emptiest first, from those that stay above it, the fullest first."""
    takes = it.takes.copy()
    while True:
        emptiest = _outside(it, takes, low, -1)
        if emptiest < 0:
            break
        it.takes[:] = False
        it.takes[emptiest] = True
        left = gives.copy()
        left[emptiest] = False
        filled = False
        while not filled:
            fullest = _outside(it, left, low, 1)
            if fullest < 0:
                break
            left[fullest] = False
            lacks = low * it.fit[emptiest] - it.load[emptiest]
            spare = it.load[fullest] - low * it.fit[fullest]
            filled = _give(it, fullest, lacks, spare, high, starts[fullest], starts[fullest + 1], order, free)
        takes[emptiest] = filled
    it.takes[:] = takes


class Order(NamedTuple):
    """What ``sequence`` reads and changes."""

    place: Any
    """int32, partition and slot -> disk before the plan; -1 for none."""
    target: Any
    """The same after it."""
    size: Any
    """int64, the bytes of each copy that is made."""
    was: Any
    """int64, the bytes of each replica of now."""
    held: Any
    """float64, bytes of each disk. Changes."""
    limit: Any
    """float64, bytes that each disk may hold."""
    broker: Any
    """int32, of each disk."""
    chosen: Any
    """bool, the disks that Kafka may choose for a new replica, until it is told which one to take."""
    count: Any
    """int64, replicas on each disk: Kafka chooses the disk with the fewest. Changes."""
    disks: Any
    """int64, all disks by broker."""
    starts: Any
    """int64, where the disks of each broker begin in ``disks``."""


@njit(cache=True, nogil=True)
def sequence(it: Any, rows: Any, most: int, most_bytes: int, step: Any) -> int:
    """Puts the partitions ``rows`` into steps from 1 on, the first that fit first. Returns the number of steps.

    In a step each disk has room for what comes, while nothing that leaves has left; also for replicas that come to its
    broker, if Kafka may choose it for them. ``step`` stays 0 for a partition that never fits. A step has at most
    ``most`` copies and ``most_bytes``, but one partition at least.
    """
    coming = np.zeros(it.held.shape[0], np.float64)
    new = np.zeros(it.held.shape[0], np.float64)
    arrives = np.zeros(it.starts.shape[0], np.float64)
    number = np.zeros(it.starts.shape[0], np.int64)
    left, steps = rows.shape[0], 0
    while left > 0:
        coming[:], new[:], arrives[:], number[:] = 0, 0, 0, 0
        copies, amount, taken = 0, 0, 0
        for index in range(rows.shape[0]):
            row = rows[index]
            if step[row] != 0:
                continue
            count, more, fits = 0, 0, True
            for slot in range(it.target.shape[1]):
                disk = it.target[row, slot]
                if disk >= 0 and disk != it.place[row, slot]:
                    count += 1
                    more += it.size[row, slot]
                    fits = fits and _fits(it, row, slot, coming, new, arrives, number)
            if not fits or (taken > 0 and (copies + max(1, count) > most or amount + more > most_bytes)):
                continue
            for slot in range(it.target.shape[1]):
                disk = it.target[row, slot]
                if disk >= 0 and disk != it.place[row, slot]:
                    coming[disk] += it.size[row, slot]
                    if _is_new(it, row, slot):
                        new[disk] += it.size[row, slot]
                        arrives[it.broker[disk]] += it.size[row, slot]
                        number[it.broker[disk]] += 1
            step[row] = steps + 1
            copies, amount, taken = copies + max(1, count), amount + more, taken + 1
        if taken == 0:
            break
        steps, left = steps + 1, left - taken
        it.held[:] += coming
        for index in range(rows.shape[0]):
            row = rows[index]
            if step[row] == steps:
                _leave(it, row)
    return steps


@njit(nogil=True)
def _is_new(it: Any, row: int, slot: int) -> bool:
    """Whether the replica comes from another broker, or from nowhere."""
    now = it.place[row, slot]
    return bool(now < 0 or it.broker[now] != it.broker[it.target[row, slot]])


@njit(nogil=True)
def _leave(it: Any, row: int) -> None:
    """The replicas of a partition have left where they were."""
    for slot in range(it.place.shape[1]):
        disk, target = it.place[row, slot], it.target[row, slot]
        if disk != target and target >= 0:
            it.count[target] += 1
        if disk != target and disk >= 0:
            it.held[disk] -= it.was[row, slot]
            it.count[disk] -= 1


@njit(nogil=True)
def _fits(it: Any, row: int, slot: int, coming: Any, new: Any, arrives: Any, number: Any) -> bool:
    """Whether a copy has room on its disk, and on every disk that Kafka may choose first for what comes to the broker.

    ``coming``, ``new``: what comes to each disk in this step, and the part of it that is new on its broker.
    ``arrives``, ``number``: the bytes and copies that are new on each broker.
    """
    target, size = it.target[row, slot], it.size[row, slot]
    broker, comes = it.broker[target], _is_new(it, row, slot)
    if it.held[target] + coming[target] + size > it.limit[target]:
        return False
    copies = number[broker] + (1 if comes else 0)
    first, last = it.starts[broker], it.starts[broker + 1]
    fewest = -1
    for at in range(first, last):
        disk = it.disks[at]
        if it.chosen[disk] and (fewest < 0 or it.count[disk] < fewest):
            fewest = it.count[disk]
    for at in range(first, last):
        disk = it.disks[at]
        first_choice = it.chosen[disk] and it.count[disk] < fewest + copies
        full = it.held[disk] + coming[disk] + arrives[broker] - new[disk] + size > it.limit[disk]
        if first_choice and full and (comes or disk == target):
            return False
    return True


@njit(cache=True, nogil=True)
def lead(replicas: Any, able: Any, number: Any, pool: Any, low: float, high: float, first: Any) -> None:
    """Chooses the slot that comes first. Brokers above ``high`` give to the lowest, those below ``low`` get more.

    If some stay outside, because no neighbour of theirs can help them directly, every partition goes to its lowest
    broker, again and again while the sum of the squares falls. ``number``: partitions of which each broker is the
    first. Changes.
    """
    for least in (high, low):
        for row in range(replicas.shape[0]):
            best = _lowest(replicas, able, number, pool, row, first[row])
            if best < 0 or first[row] != 0 or number[replicas[row, 0]] <= least:
                continue
            if number[replicas[row, best]] < least:
                _hand_over(replicas, number, row, best, first)
    for _ in range(MOST_PASSES):
        changed = False
        for broker in range(pool.shape[0]):
            changed = changed or (pool[broker] and (number[broker] > high or number[broker] < low))
        if not changed:
            break
        changed = False
        for row in range(replicas.shape[0]):
            best = _lowest(replicas, able, number, pool, row, first[row])
            if best >= 0 and number[replicas[row, first[row]]] >= number[replicas[row, best]] + 2:
                _hand_over(replicas, number, row, best, first)
                changed = True
        if not changed:
            break


@njit(nogil=True)
def _lowest(replicas: Any, able: Any, number: Any, pool: Any, row: int, now: int) -> int:
    """Another slot of a partition that can come first, on the broker that is first of the fewest; -1 for none."""
    if replicas[row, now] < 0 or not pool[replicas[row, now]]:
        return -1
    best = -1
    for slot in range(replicas.shape[1]):
        other = replicas[row, slot]
        if slot == now or other < 0 or not able[row, slot]:
            continue
        if best < 0 or number[other] < number[replicas[row, best]]:
            best = slot
    return best


@njit(nogil=True)
def _hand_over(replicas: Any, number: Any, row: int, slot: int, first: Any) -> None:
    number[replicas[row, first[row]]] -= 1
    number[replicas[row, slot]] += 1
    first[row] = slot
