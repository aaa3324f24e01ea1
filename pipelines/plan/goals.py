"""What each command wants: which replicas have to go, which disks may take them, and what is to be even."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jbod_model.errors import UsageError
from pipelines.ask.restart_columns import Flags, Numbers
from pipelines.ask.whatif_places import Place, find_place
from pipelines.lake.reader import Lake
from pipelines.plan.problem import ANY, DOWN, NO_PATH, NO_SIZE, OFFLINE, OPEN, PlanDisks, Problem

BYTES, REPLICAS, LEADERS = "bytes", "replicas", "leaders"


@dataclass(frozen=True)
class Goal:
    """What a plan is for."""

    title: str
    """What it does, after the number of replicas: ``leave /data/a of broker 1``."""
    aim: str
    """The same as an order: ``empty /data/a of broker 1``."""
    leaves: Flags
    """Partition, slot: replicas that have to be elsewhere."""
    takes: Flags
    """Disks that may get replicas, as far as their state allows it."""
    gives: Flags
    """Disks that are to be emptied as far as needed to be even."""
    adds: Numbers
    """Replicas that each partition is to get."""
    drops: Flags
    """Replicas that are to go without another in their place."""
    own_first: bool = False
    """Whether a disk of the same broker is better than any other."""
    even: str = ""
    """What is to be even over ``gives`` and ``takes``: BYTES, REPLICAS or LEADERS."""
    notes: Sequence[str] = ()
    """What is to be said of it."""
    partial: bool = False
    """Whether what can be done is worth a plan if the rest cannot."""
    emptied: Sequence[int] = ()
    """Disks that are to be empty, and stay so: a cordon keeps new replicas out."""

    @classmethod
    def of(cls, it: Problem, title: str, aim: str) -> Goal:
        """A goal without wishes: every open disk may take replicas."""
        nothing = np.zeros(it.place.shape, bool)
        disks = np.zeros(len(it.disks), bool)
        return cls(title, aim, nothing, it.disks.state == OPEN, disks, np.zeros(len(it.place), np.int32), nothing)


def find(it: Problem, lake: Lake, text: str) -> Place:
    """The place that ``text`` names, as for other commands, or by a path that a source of sizes says. Raises UsageError
    if none of several disks with the path is online."""
    of_path: list[Place] = []
    for broker, path, directory in zip(
        it.state.brokers[it.disks.broker].tolist(), it.disks.paths, it.disks.ids, strict=True
    ):
        if path not in ("", ANY) and text == f"{broker}:{path}":
            of_path.append(find_place(lake, f"{broker}:{directory}"))
    places = [place for place in of_path if place.listed] or of_path
    if len(places) > 1:
        ids = ", ".join(sorted(str(place.directory_id) for place in places))
        raise UsageError(f"{text}: several directories match: {ids}")
    return places[0] if places else find_place(lake, text, listed=True)


def drain(it: Problem, place: Place) -> Goal:
    """Empties a disk onto the others of its broker, and onto other brokers if these lack room; or a whole broker."""
    emptied = _disks(it, place)
    away = np.zeros(len(it.disks), bool)
    away[emptied] = True
    leaves = away[it.reported] & (it.reported >= 0)
    whole = place.directory_id is None
    takes = (it.disks.state == OPEN) & ~away
    if not whole:
        _never_onto_itself(it, emptied, takes)
    return replace(
        Goal.of(it, f"leave {_named(it, place)}", f"empty {_named(it, place)}"),
        leaves=leaves,
        takes=takes,
        own_first=not whole,
        notes=[] if whole else [*_unplaced(it, place.broker_id), *_moved(it, place)],
        emptied=emptied if place.listed else (),
    )


def _unplaced(it: Problem, broker: int) -> list[str]:
    """Replicas of which neither log nor sources say the directory: one of them may be in what is to be empty."""
    mine = it.disks.nowhere & (it.state.brokers[it.disks.broker] == broker)
    number = int((mine[it.reported] & (it.reported >= 0)).sum())
    source = "" if it.sized else ": --sizes says where they are"
    note = f"replicas of broker {broker} without a known directory: {number:,}; they may be on this disk, too{source}"
    return [note] if number else []


def _moved(it: Problem, place: Place) -> list[str]:
    """Replicas of other brokers in it, whose disk it was: no reassignment moves their data."""
    there = [number for number, (_, name) in enumerate(it.state.directories) if name == place.directory_id]
    brokers = it.state.brokers[it.state.replicas[np.isin(it.state.directory, there)]]
    return [
        f"replicas of broker {broker} in it, whose disk it was: {(brokers == broker).sum():,}; see jbod safe-to-remove"
        for broker in np.unique(brokers).tolist()
        if broker != place.broker_id
    ]


def _never_onto_itself(it: Problem, emptied: Sequence[int], takes: Flags) -> None:
    """Where Kafka chooses the directory, it may choose the one that is to be empty."""
    brokers = {int(it.disks.broker[disk]) for disk in emptied}
    for disk, parts in enumerate(it.disks.ids):
        if not parts and int(it.disks.broker[disk]) in brokers:
            takes[disk] = False


def fill(it: Problem, place: Place) -> Goal:
    """Fills a disk from the fullest: those of its broker, or of all brokers if that has none with replicas.

    Raises UsageError if nothing can be put on it.
    """
    (disk,) = _disks(it, place)
    if it.disks.state[disk] != OPEN:
        raise UsageError(it.why_closed(disk))
    takes = np.zeros(len(it.disks), bool)
    takes[disk] = True
    able = _measured(it)
    mine = able & (it.disks.broker == it.disks.broker[disk]) & ~takes
    holds = np.bincount(it.place[it.place >= 0], minlength=len(it.disks)) > 0
    gives = mine if (mine & holds).any() else able & ~takes
    return replace(
        Goal.of(it, f"move to {it.disk_name(disk)}", f"fill {it.disk_name(disk)}"),
        takes=takes,
        gives=gives,
        even=BYTES if it.sized else REPLICAS,
    )


def balance(it: Problem, broker: int | None, by: str) -> Goal:
    """Evens all disks of the cluster, or those of one broker."""
    refuse_measure(by, broker, sized=it.sized)
    pool, where, mine = _measured(it), "the cluster", np.ones(len(it.disks), bool)
    title = "come first in their partitions and lead them, so that brokers lead as many" if by == LEADERS else "move"
    if broker is not None:
        mine, where = it.state.brokers[it.disks.broker] == broker, f"broker {broker}"
    pool &= mine
    if pool.sum() < 2:
        raise UsageError(f"{where}: fewer than two of its disks can be compared: {_closed(it, mine)}")
    return replace(Goal.of(it, title, f"even {where}"), takes=pool & (it.disks.state == OPEN), gives=pool, even=by)


def refuse_measure(by: str, broker: int | None, *, sized: bool) -> None:
    """Raises UsageError for bytes of which nothing says how many there are, and for the leaders of one broker."""
    if by == LEADERS and broker is not None:
        raise UsageError("--by leaders evens brokers: leave out BROKER")
    if by == BYTES and not sized:
        raise UsageError(
            "balance needs sizes: give --sizes FILE (what kafka-log-dirs --describe printed), or --by replicas"
        )


def repair(it: Problem) -> Goal:
    """Recreates every replica elsewhere that is on a broker or a disk which is not there."""
    gone = it.state.there & ~it.state.online
    if it.sized:  # sources say more of disks than the log
        closed = np.isin(it.disks.state, (DOWN, OFFLINE))
        closed &= ~it.disks.nowhere  # a replica without a directory is online (R-INV-22)
        gone |= closed[np.where(it.state.directory >= 0, it.state.directory, 0)] & it.state.there
    stopping = ~it.runs[it.state.replicas] & it.state.online
    return replace(
        Goal.of(it, "are recreated in place of those that are gone", "recreate the replicas that are gone"),
        leaves=gone & ~stopping,
        partial=True,
    )


def replicas(it: Problem, wanted: Mapping[str, int]) -> Goal:
    """Raises or lowers the number of replicas of topics."""
    topics = it.state.table["topic"].to_pylist()
    want = np.array([wanted.get(topic, -1) for topic in topics], np.int32)
    more = np.where(want >= 0, want - it.state.count, 0).astype(np.int32)
    counts = ", ".join(f"{topic}={number}" for topic, number in wanted.items())
    done = " or ".join(word for word, some in (("made", (more > 0).any()), ("removed", (more < 0).any())) if some)
    return replace(
        Goal.of(it, f"are {done} for {counts}", f"have {counts}"),
        adds=np.maximum(more, 0),
        drops=_dropped(it, np.maximum(-more, 0)),
    )


def refuse_replicas(lake: Lake, wanted: Mapping[str, int]) -> None:
    """Raises UsageError for a topic that the cluster lacks, and for more replicas than brokers that run."""
    ((brokers,),) = lake.query(
        f"SELECT count(*) FROM {lake.at('brokers')} WHERE NOT (fenced OR in_controlled_shutdown)"
    )
    known = {topic for (topic,) in lake.query(f"SELECT DISTINCT topic FROM {lake.at('partitions')}")}
    for topic, number in wanted.items():
        if topic not in known:
            raise UsageError(f"{topic}: there is no such topic")
        if number > brokers:
            raise UsageError(f"{topic}={number}: more replicas than brokers that run, {brokers}")


def _dropped(it: Problem, fewer: Numbers) -> Flags:
    """The replicas to remove: first those that are not online, then those that are not in sync, then one of two in a
    rack or one in none, then a leader in none, then the last; no other leader."""
    state = it.state
    drops = np.zeros(it.place.shape, bool)
    rack = np.where(state.there, it.racks[state.replicas], -1)
    slots = np.arange(it.place.shape[1])
    leads = np.where(rack < 0, 1.5, -1.0)
    for _ in range(int(fewer.max(initial=0))):
        left = state.there & ~drops
        twice = rack < 0
        for slot in slots:
            for other in slots:
                same = rack[:, slot] == rack[:, other] if slot != other else False
                twice[:, slot] |= same & left[:, other] & left[:, slot]
        score = 8 * ~state.online + 4 * ~state.isr + 2 * twice + (slots + 1) / (len(slots) + 1)
        score = np.where(slots == state.leader[:, None], leads, score)
        score = np.where(left, score, -1.0)
        rows = np.flatnonzero(fewer > drops.sum(axis=1))
        drops[rows, score[rows].argmax(axis=1)] = True
    return drops


def _disks(it: Problem, place: Place) -> list[int]:
    """The disks of a place."""
    broker = int(np.searchsorted(it.state.brokers, place.broker_id))
    mine = [disk for disk in range(len(it.disks)) if it.disks.broker[disk] == broker]
    if place.directory_id is None:
        return mine
    disks = [disk for disk in mine if it.disks.ids[disk] == place.directory_id]
    if not disks:
        raise UsageError(f"broker {place.broker_id} neither lists {place.directory_id} nor has a replica in it")
    return disks


def _measured(it: Problem) -> Flags:
    """The disks whose loads can be compared: they are online, and a source says their sizes, if any does."""
    closed = np.isin(it.disks.state, (DOWN, OFFLINE, NO_PATH, NO_SIZE))
    comparable: Flags = ~closed & ((it.disks.total > 0) | (not it.by_size)) & visible(it.disks)
    return comparable


def visible(disks: PlanDisks) -> Flags:
    """The disks that the solver sees: not those for which another stands."""
    stands = np.array([not name for name in disks.ids], bool)
    seen: Flags = stands | ~np.isin(disks.broker, disks.broker[stands])
    return seen


def _closed(it: Problem, mine: Flags) -> str:
    return it.why_all_closed(np.flatnonzero(mine & (it.disks.state != OPEN)).tolist()) or "the log names no other"


def _named(it: Problem, place: Place) -> str:
    if place.directory_id is None:
        return f"broker {place.broker_id}"
    (disk,) = _disks(it, place)
    return it.disk_name(disk)
