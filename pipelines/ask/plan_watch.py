"""Follows the execution of reassignment files in the log: what is done, under way or stuck, why, and the time left.

The log shows when a reassignment begins and ends (R-REASSIGN-1, R-REASSIGN-2), and when the controller accepted that a
replica is in another directory. It does not show that a move between disks has begun. The time left is at the pace
so far: in bytes if a source says them, else in copies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from pipelines.ask.advice import brokers_in_words
from pipelines.ask.configs import oldest_rules
from pipelines.ask.json_values import DatedAnswer, NamedPartition, members
from pipelines.ask.log_dirs import BrokerLogDir
from pipelines.ask.lost_data import losses
from pipelines.ask.plan_check import (
    NEVER_ENDS,
    NO_WAY_BACK,
    ReassignedPartition,
    leaves_none_in_sync,
    read_plan,
    select_wanted,
)
from pipelines.ask.plan_history import Copiers, Now, PartitionPhases, PlacedReplica, places_of, select_moves, stories
from pipelines.ask.removal import Removal, safe_to_remove
from pipelines.ask.starting import until_restart
from pipelines.ask.whatif_places import directories_by_path
from pipelines.lake.ledger import time_of
from pipelines.lake.reader import Lake

DONE, UNDER_WAY, NOT_BEGUN = "done", "under way", "not begun"
PAUSE = timedelta(hours=1)
"""Moves between disks that are further apart than this are not counted as one execution."""


@dataclass(frozen=True)
class Work:
    """A reassignment of a partition, or the move of one of its replicas between the disks of a broker."""

    state: str
    offset: int | None = None
    time: datetime | None = None
    """Of the record that made it so."""
    waits_for: Sequence[int] = ()
    reason: str = ""
    begun: datetime | None = None
    """When a reassignment began that is done or under way."""
    copied: bool = True
    """Whether something was, or is, to be copied. A partition that was where it should be says nothing of the pace."""
    bytes: int | None = None
    """Of its copies when they are complete. None if no source says it."""
    left: int = 0
    """The part of ``bytes`` that is not copied yet."""


@dataclass(frozen=True)
class Copies:
    """The sizes of replicas by sources."""

    replicas: Mapping[tuple[str, int], int]
    """(``topic-0``, broker) -> its bytes."""
    future: Mapping[tuple[str, int], int]
    """The same of the copy that a move between disks makes."""
    largest: Mapping[str, int]
    """``topic-0`` -> the bytes of its largest replica."""
    paths: Mapping[tuple[str, int], str]
    """(``topic-0``, broker) -> the path of its log directory."""

    @classmethod
    def of(cls, log_dirs: Iterable[BrokerLogDir]) -> Copies:
        """What the sources say."""
        replicas, future, largest = dict[tuple[str, int], int](), dict[tuple[str, int], int](), dict[str, int]()
        paths: dict[tuple[str, int], str] = {}
        for log_dir in log_dirs:
            for each in log_dir.replicas if log_dir.broker_id is not None else ():
                (future if each.future else replicas)[each.partition, log_dir.broker_id or 0] = each.bytes
                if not each.future:
                    paths[each.partition, log_dir.broker_id or 0] = log_dir.path
                    largest[each.partition] = max(largest.get(each.partition, 0), each.bytes)
        return cls(replicas, future, largest, paths)

    def across(self, name: str, brokers: Iterable[int], late: Iterable[int]) -> tuple[int | None, int]:
        """The bytes of new replicas on ``brokers``, and what those on ``late`` lack."""
        if name not in self.largest:
            return None, 0
        whole = self.largest[name]
        lacks = sum(max(0, whole - self.replicas.get((name, broker), 0)) for broker in late)
        return whole * len([*brokers]), lacks

    def inside(self, name: str, broker: int, *, done: bool) -> tuple[int | None, int]:
        """The bytes of a move between disks, and what the copy lacks."""
        whole = self.replicas.get((name, broker))
        if whole is None or done:
            return whole, 0
        return whole, max(0, whole - self.future.get((name, broker), 0))


def time_left(works: Sequence[Work], now: datetime) -> timedelta | None:
    """Until the rest is done, at the pace so far. None if nothing of the rest is under way, or there is no pace.

    The pace counts from the beginning of the oldest reassignment that is under way. If only moves between disks are
    left, whose beginning no record has, it counts from the first of the last ones that are less than PAUSE apart. If
    the bytes of all of them are known, bytes count, also those of copies that are not complete.
    """
    rest = [work for work in works if work.state in (UNDER_WAY, NOT_BEGUN)]
    done = sorted((work for work in works if work.state == DONE and work.copied and work.time is not None), key=_end)
    if all(work.state == NOT_BEGUN for work in rest):
        return None
    weighed = all(work.bytes is not None for work in [*rest, *done])
    since = min((work.begun for work in rest if work.begun is not None), default=None)
    counted = [] if since is None else [work for work in done if _end(work) > since]
    part = sum((work.bytes or 0) - work.left for work in rest) if weighed and since is not None else 0
    if since is None or not (counted or part):
        since, counted = _last_run(done)
    amount = part + sum(work.bytes or 0 for work in counted) if weighed else len(counted)
    if not amount or since is None or now <= since:
        return None
    return (now - since) / amount * (sum(work.left for work in rest) if weighed else len(rest))


def _last_run(done: Sequence[Work]) -> tuple[datetime | None, list[Work]]:
    """When the last ones that are less than PAUSE apart began, and those of which it is known that they began then."""
    if not done:
        return None, []
    run = [done[-1]]
    for work in reversed(done[:-1]):
        if _end(run[-1]) - _end(work) > PAUSE:
            break
        run.append(work)
    first = _end(run[-1])
    begun = [work.begun for work in done if work.time == first and work.begun is not None]
    return min(begun, default=first), run if begun else run[:-1]


def _end(work: Work) -> datetime:
    assert work.time is not None
    return work.time


STUCK, REPLACED, CANCELLED, UNKNOWN, GONE = "stuck", "replaced", "cancelled", "unknown path", "gone"
STATES = (STUCK, REPLACED, CANCELLED, GONE, UNKNOWN, NOT_BEGUN, UNDER_WAY, DONE)
"""A partition has the first of these that applies to its reassignment or to one of its moves between disks."""
PENDING = (STUCK, NOT_BEGUN, UNDER_WAY)
"""States that can still become done by themselves."""
ENDS_WITH_A_CHANGE = (
    "all its replicas are in sync, and the controller ends it with the next change of the partition only: execute the "
    "file again, with --additional"
)
"""Why a reassignment is not done that can be (R-REASSIGN-4): as after an unclean election of what was copied."""
NOT_THERE = "not in /"
"""How the reason of a move between disks begins that is not done, and of which no record says that it has begun."""


@dataclass(frozen=True)
class Watched(NamedPartition):
    """A partition of the files."""

    replicas: Sequence[int]
    target: Sequence[int]
    state: str
    since_offset: int | None = None
    """Of the record that made it so. None where no record did."""
    since_time: datetime | None = None
    waits_for: Sequence[int] = ()
    """Brokers whose replicas are not yet where, or what, they should be."""
    reason: str = ""


@dataclass(frozen=True)
class Emptied:
    """A disk on which nothing is to stay but what the files take away."""

    broker_id: int
    directory_id: str
    replicas: int
    """Replicas that are still in it."""
    since_time: datetime | None = None
    """When the last one left. None while there are some."""
    removal: Removal | None = None
    """Whether it may be pulled. None while there are replicas in it."""

    def as_json(self) -> dict[str, Any]:
        """One JSON object."""
        return {
            **members(self, "broker_id", "directory_id", "replicas", "since_time"),
            "safe_to_remove": None if self.removal is None else self.removal.safe,
            "reasons": [
                {"finding": reason.finding, "advice": reason.advice}
                for reason in (() if self.removal is None else self.removal.reasons)
                if reason.blocks
            ],
        }


@dataclass(frozen=True)
class PlanWatch(DatedAnswer):
    """The answer."""

    partitions: Sequence[Watched]
    """In the order of STATES, then by topic and number."""
    left: timedelta | None
    """Until those that are under way or not begun are done, at the pace so far. None if none is under way, or no pace
    is known."""
    disks: Sequence[Emptied]
    offline: Mapping[tuple[int, str], Sequence[str]]
    """(broker, directory) -> the partitions of the files with a replica in it, which is offline while its broker
    runs."""
    lost: Sequence[str]
    """The partitions of which acknowledged writes are lost, or may be, since their reassignment began, and nobody
    accepted that."""

    @property
    def done(self) -> bool:
        """Whether every partition is as the files want it, with no replica in a directory that is offline, and without
        a loss on the way."""
        return not (self.offline or self.lost) and all(partition.state == DONE for partition in self.partitions)

    @property
    def pending(self) -> bool:
        """Whether one can still become done without another execution."""
        return any(partition.state in PENDING for partition in self.partitions)

    @property
    def groups(self) -> Mapping[str, Sequence[Watched]]:
        """State -> its partitions, in the order of STATES."""
        partitions_of: dict[str, list[Watched]] = {}
        for partition in self.partitions:
            partitions_of.setdefault(partition.state, []).append(partition)
        return partitions_of

    def as_json(self) -> dict[str, Any]:
        """One JSON object."""
        return {
            **members(self, "offset", "time", "done"),
            "states": {state.replace(" ", "_"): len(partitions) for state, partitions in self.groups.items()},
            "left_seconds": None if self.left is None else self.left.total_seconds(),
            "disks": [disk.as_json() for disk in self.disks],
            "offline": [
                {"broker_id": broker, "directory_id": directory, "partitions": list(names)}
                for (broker, directory), names in self.offline.items()
            ],
            **members(self, "lost", "partitions"),
        }


def watch_plan(
    lake: Lake,
    files: Sequence[str],
    default_min_isr: int = 1,
    sources: Sequence[str] = (),
    accepted_until: int = -1,
) -> PlanWatch:
    """How far the execution of files is at the lake's offset. Of a partition in several files the last one counts.

    ``sources``: of sizes and paths, as for jbod sizes. Lost data up to the offset ``accepted_until`` is accepted.
    Raises UsageError if a file is none that ``kafka-reassign-partitions`` takes.
    """
    entries: dict[tuple[str, int], ReassignedPartition] = {}
    for file in files:
        entries |= read_plan(file)
    select_wanted(lake, entries)
    source_paths, copies = dict[tuple[int, str], str](), Copies.of(())
    if sources:
        from pipelines.ask.sizes import sizes  # which asks brokers: without sources nothing waits for it

        answer = sizes(lake, sources)
        copies = Copies.of(answer.log_dirs)
        for directory in answer.directories:
            if directory.path is not None and directory.directory_id is not None:
                source_paths[directory.broker_id, directory.path] = directory.directory_id
    paths = directories_by_path(lake, source_paths)
    select_moves(lake, entries, paths)
    added_suffice = oldest_rules(lake).controller.reassignment_completion == "added in sync"
    watch = _Watch(Copiers.of(lake), stories(lake), places_of(lake), paths, copies, added_suffice)
    works = {key: [*watch.works(key, entry)] for key, entry in entries.items()}
    partitions = [watch.partition(key, entry, works[key]) for key, entry in entries.items()]
    partitions.sort(key=lambda partition: (STATES.index(partition.state), partition.topic, partition.partition))
    left = time_left([work for parts in works.values() for work in parts], lake.time)
    begun = {key: story.begun.offset for key, story in watch.stories.items() if story.begun is not None}
    disks = _disks(lake, begun, default_min_isr, accepted_until)
    # No record has the beginning of a move between disks: its end is also that of one that recreated a replica.
    came = {key: [work for work in parts if work.state == DONE and work.copied] for key, parts in works.items()}
    ends = {key: [work.offset for work in done if work.offset is not None] for key, done in came.items()}
    since = {key: min(offsets) for key, offsets in ends.items() if offsets} | begun
    lost = _lost(lake, since, default_min_isr, accepted_until)
    offline = watch.cluster.by_directory
    return PlanWatch(lake.offset, lake.time, partitions, left, disks, offline, lost)


def _lost(lake: Lake, since: Mapping[tuple[str, int], int], default_min_isr: int, accepted_until: int) -> Sequence[str]:
    """The partitions with a loss that is not accepted, and is not older than the offset in ``since``."""
    if not since:
        return ()
    every = (loss for loss in losses(lake, default_min_isr, accepted_until).losses if not loss.accepted)
    hit = (
        loss.name
        for loss in every
        if max(loss.offset, loss.went_on_offset or -1) >= since.get((loss.topic, loss.partition), lake.offset + 1)
    )
    return tuple(dict.fromkeys(hit))


# JUDGEMENT


@dataclass(frozen=True)
class _Watch:
    cluster: Copiers
    stories: Mapping[tuple[str, int], PartitionPhases]
    places: Mapping[tuple[str, int, int], PlacedReplica]
    paths: Mapping[tuple[int, str], str]
    copies: Copies
    added_suffice: bool
    """Whether a reassignment waits for the added replicas only, unless it removes more than it adds (R-RELEASE-4)."""

    def partition(self, key: tuple[str, int], entry: ReassignedPartition, works: Sequence[Work]) -> Watched:
        """A partition with its state, which is the first of STATES among ``works``."""
        story = self.stories.get(key)
        left = sorted((work for work in works if work.state != DONE), key=lambda work: STATES.index(work.state))
        first = left[0] if left else works[0]
        same = [work for work in works if work.state == first.state]
        newest = max(same, key=lambda work: -1 if work.offset is None else work.offset)
        reasons = [work.reason if work.state == first.state else _beside(work) for work in left]
        return Watched(
            *key,
            [] if story is None else story.now.replicas,
            entry.replicas,
            first.state,
            newest.offset,
            newest.time,
            sorted({broker for work in left for broker in work.waits_for}),
            "; ".join(dict.fromkeys(filter(None, reasons))),
        )

    def works(self, key: tuple[str, int], entry: ReassignedPartition) -> Iterator[Work]:
        """The reassignment of a partition, and its moves between disks."""
        story = self.stories.get(key)
        if story is None:
            yield Work(GONE, reason="there is no such partition")
            return
        yield self._weighed(key, entry, self._reassignment(key, entry, story))
        for broker, path in zip(entry.replicas, entry.log_dirs, strict=False):
            if path != "any" and broker in story.now.replicas:
                move = self._move(key, broker, path, story)
                size, left = self.copies.inside(f"{key[0]}-{key[1]}", broker, done=move.state == DONE)
                # what comes to another broker is weighed above
                yield replace(move, bytes=size, left=left) if move.copied else replace(move, bytes=0)

    def _reassignment(self, key: tuple[str, int], entry: ReassignedPartition, story: PartitionPhases) -> Work:
        now, phases = story.phases[-1], story.phases
        if now.aims:
            begun = story.begun
            if not now.moving:
                since = None if begun is None else begun.time
                copied = begun is not None and begun is not now
                return Work(DONE, None if begun is None else now.offset, now.time, begun=since, copied=copied)
            enough = self.added_suffice and len(story.now.adding) >= len(story.now.removing)
            waits = [broker for broker in now.toward if broker not in story.now.isr]
            if enough:
                waits = [broker for broker in waits if broker in story.now.adding]
            reason, stuck = self._why_not_done(key, story.now, waits)
            if self.added_suffice and {*story.now.adding} & {*story.now.removing}:
                also = [reason] if stuck and reason != ENDS_WITH_A_CHANGE else []
                reason, stuck = "; ".join([NEVER_ENDS, *also]), True
            if leaves_none_in_sync(story.now.isr, story.now.adding):
                reason = "; ".join(filter(None, (reason, NO_WAY_BACK)))
            return Work(STUCK if stuck else UNDER_WAY, now.offset, now.time, waits, reason, begun=now.time)
        # Replicas that are only removed, or have another order, are so with one record.
        at_once = [at for at in range(1, len(phases)) if phases[at].aims and not phases[at - 1].aims]
        moving = [at for at, phase in enumerate(phases) if phase.aims and phase.moving]
        last = max([*at_once, *moving], default=None)
        if last is None:
            # The controller refuses a broker that is not registered.
            troubles = [self.cluster.trouble(broker) for broker in entry.replicas if broker not in self.cluster.states]
            if now.moving:
                troubles.append(f"another reassignment is under way, to {brokers_in_words(now.toward)}")
            return Work(NOT_BEGUN, reason="; ".join(troubles))
        then = next(phase for phase in phases[last + 1 :] if not phase.aims)
        to = f"to {brokers_in_words(then.toward)}"
        if phases[last + 1].aims or not phases[last].moving:
            return Work(REPLACED, then.offset, then.time, reason=f"it was done, and is reassigned since, {to}")
        if then.moving or not last or {*then.toward} != {*phases[last - 1].toward}:
            return Work(REPLACED, then.offset, then.time, reason=f"another reassignment took its place, {to}")
        return Work(CANCELLED, then.offset, then.time, reason=f"it was cancelled, back {to}")  # R-REASSIGN-3

    def _weighed(self, key: tuple[str, int], entry: ReassignedPartition, work: Work) -> Work:
        """With the bytes of the replicas that come to other brokers, and of those among them that are not in sync."""
        story, name = self.stories[key], f"{key[0]}-{key[1]}"
        if work.state == NOT_BEGUN:
            added = late = [broker for broker in entry.replicas if broker not in story.now.replicas]
        else:
            added = [broker for broker in entry.replicas if broker not in story.before]
            late = [broker for broker in added if broker in work.waits_for]
        size, left = self.copies.across(name, added, late)
        return replace(work, bytes=size, left=left)

    def _why_not_done(self, key: tuple[str, int], now: Now, late: Sequence[int]) -> tuple[str, bool]:
        """What a reassignment waits for, and whether it cannot go on by itself (R-REASSIGN-2)."""
        troubles = [trouble for broker in late for trouble in self._troubles(key, broker)]
        if now.leader == -1:
            troubles.insert(0, "no replica leads: there is nothing to copy from")
        if not troubles and {*now.replicas}.difference(now.removing) <= {*now.isr}:  # R-REASSIGN-4
            troubles = [ENDS_WITH_A_CHANGE]
        if troubles:
            return "; ".join(troubles), True
        return (f"{brokers_in_words(late)} {'is' if len(late) == 1 else 'are'} not in sync yet" if late else ""), False

    def _troubles(self, key: tuple[str, int], broker: int) -> Iterator[str]:
        if trouble := self.cluster.trouble(broker):
            yield trouble
        if (directory := self.cluster.offline.get((*key, broker))) is not None:
            yield f"directory {directory} of broker {broker} is offline"
        if (failed := self.cluster.not_taken_back.get((*key, broker))) is not None:
            yield until_restart(broker, failed)

    def _move(self, key: tuple[str, int], broker: int, path: str, story: PartitionPhases) -> Work:
        wanted = self.paths.get((broker, path))
        if wanted is None:
            return Work(UNKNOWN, waits_for=[broker], reason=f"{path} of broker {broker}")
        place = self.places.get((*key, broker))
        if place is not None and place.directory == wanted:
            return Work(DONE, place.offset, place.time, copied=place.moved)
        unsaid = broker in story.now.replicas and (place is None or place.directory is None)
        joined = unsaid and broker in story.now.isr
        there = joined and wanted in self.cluster.only
        if there or (unsaid and self.copies.paths.get((f"{key[0]}-{key[1]}", broker)) == path):
            return Work(DONE)  # a broker need not report a replica that joined (R-LOCAL-4)
        what = f"{path} of broker {broker}"
        troubles = [*self._troubles(key, broker)]
        if broker in self.cluster.reporting and self.cluster.listed.get(wanted) != broker:
            troubles.append(f"{what} is not online")
        if wanted in self.cluster.cordoned:
            troubles.append(f"{what} is cordoned")
        if troubles:
            return Work(STUCK, waits_for=[broker], reason="; ".join(troubles))
        began = place is not None and place.directory is not None and broker in story.phases[0].toward
        where = f"the log does not say whether it is in {what}: --sizes does" if joined else f"not in {what} yet"
        return Work(UNDER_WAY, waits_for=[broker], reason=where, copied=began)


def _beside(work: Work) -> str:
    """Why a work is not done, beside a worse one of its partition. Empty if it needs nothing."""
    if work.state == UNKNOWN:
        return f"{work.reason} is a path that jbod does not know"
    if work.state == NOT_BEGUN:
        return "; ".join(filter(None, ["the reassignment is not begun", work.reason]))
    return "" if work.state == UNDER_WAY else work.reason


# THE DISKS


def _disks(
    lake: Lake, begun: Mapping[tuple[str, int], int], default_min_isr: int, accepted_until: int
) -> Sequence[Emptied]:
    """The disks that replicas of the files leave, or left, and that have no replica beside these.

    ``begun``: partition -> the offset at which its reassignment began, if that is done or under way.
    """
    rows = lake.query(
        f"""
        SELECT a.topic, a.partition, a.broker_id, a.directory_id, a.to_offset, epoch_us(a.to_time), m.target IS NULL
        FROM {lake.until("assignments")} a JOIN plan_wanted w USING (topic, partition)
        LEFT JOIN plan_moves m USING (topic, partition, broker_id)
        WHERE a.kind = 'assigned' AND (NOT list_contains(w.target, a.broker_id) OR m.target <> a.directory_id)
        QUALIFY row_number() OVER (PARTITION BY a.topic_id, a.partition, a.broker_id ORDER BY a.from_offset DESC) = 1
        """
    )
    staying: Counter[tuple[int, str]] = Counter()
    ends: dict[tuple[int, str], int] = {}
    for topic, number, broker, directory, to_offset, micros, leaves in rows:
        place = broker, directory
        if to_offset is None:
            staying[place] += 1
        elif leaves and to_offset < begun.get((topic, number), to_offset + 1):
            continue  # it was gone before
        ends[place] = max(ends.get(place, 0), micros or 0)
    held = {
        (broker, directory): count
        for broker, directory, count in lake.query(
            f"SELECT broker_id, directory_id, count(*) FROM {lake.at('assignments')} "
            "WHERE kind = 'assigned' GROUP BY ALL"
        )
    }
    disks = []
    for (broker, directory), micros in sorted(ends.items()):
        count = held.get((broker, directory), 0)
        if not count:
            removal = safe_to_remove(lake, f"{broker}:{directory}", default_min_isr, accepted_until)
            disks.append(Emptied(broker, directory, 0, time_of(micros), removal))
        elif count == staying[broker, directory]:
            disks.append(Emptied(broker, directory, count))
    return disks
