"""Advice where a last complete copy is at stake: how to save it, and what gives it up."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jbod_model.loss.copies import Copy
from pipelines.ask.advice import (
    Action,
    Advice,
    directories_of,
    few,
    folders,
    leave_one_folder,
    start_again,
    wait_for_registration,
)


def only_copies(
    broker: int, directories: Sequence[str], names: Sequence[str], shared: Collection[str] = (), *, certain: bool = True
) -> str:
    """``directory D of broker 1 holds the only complete copy of a-0``

    ``shared``: partitions of which another copy is complete, but offline, too. Not ``certain``: ``may hold``.
    """
    hold = "may hold" if not certain else "hold" if len(directories) > 1 else "holds"
    return f"{directories_of(broker, directories)} {hold} {complete_copies_of(names, shared)}"


def complete_copies_of(names: Sequence[str], shared: Collection[str]) -> str:
    """``the only complete copy of a-0``, ``complete copies of a-0, a-1, of which none is in use``"""
    copies = "copy" if len(names) == 1 else "copies"
    if any(name in shared for name in names):
        return f"{'a ' if len(names) == 1 else ''}complete {copies} of {few(names)}, of which none is in use"
    return f"the only complete {copies} of {few(names)}"


# THE COPY IS OFFLINE


def read_first(
    broker: int, directories: Sequence[str], names: Sequence[str], shared: Collection[str], unplaced: Sequence[str] = ()
) -> Advice:
    """The disk has a last copy: what it needs is to be read. ``unplaced``: no record says which directory has it."""
    it, of = "it" if len(directories) < 2 else "them", "this partition" if len(names) == 1 else "these partitions"
    holds = only_copies(broker, directories, names, shared, certain=not unplaced)
    if unplaced:
        holds += (
            f" (no record says which directory of broker {broker} has {few(unplaced)}: if kafka-log-dirs --describe "
            "--broker-list lists it in a directory that works, the copy is there)"
        )
    text = (
        f"{holds}: read {it} before anything else (kernel log, cable, mount, "
        f"file system), and copy {folders(names)} of {of} to a safe place"
    )
    return Advice(Action.READ, text, broker, tuple(directories), tuple(names))


def take_out(holder: int, directory: str, broker: int) -> Advice:
    """The disk of ``broker`` is in another one, which renames the folders that it does not expect."""
    text = (
        f"the disk is in broker {holder} now, and the folders may end in -stray: take it out of log.dirs there, if "
        f"jbod safe-to-restart {holder} --gone {directory} allows it, and restart broker {holder}; only then start "
        f"broker {broker} with it: Kafka registers no broker with the directory.id of another one"
    )
    return Advice(Action.LOOK, text, holder, (directory,))


def bring_back(
    broker: int, directories: Sequence[str], names: Sequence[str], *, running: bool, twice: Sequence[str], placed: bool
) -> Advice:
    """The same directories come back. ``twice``: partitions that were recreated in another directory meanwhile.

    ``placed``: records say which directory has the copies. Otherwise the broker needs every one of them (R-ACT-2).
    """
    disks = "" if placed else " and all its disks readable"
    it = "it" if len(directories) < 2 else "them"
    then, costs = start_again(broker, running=running)
    text = (
        f"bring {it} back with the same directory id (the disk itself, or all its files with meta.properties on a new "
        f"one), and {then} broker {broker} with the same log.dirs{disks}: "
        f"{'the copy is' if len(names) == 1 else 'the copies are'} then in use again{leave_one_folder(twice, names)}"
        f"{costs}"
    )
    newer = tuple(name for name in twice if name in names)
    return Advice(
        Action.BRING_BACK,
        text,
        broker,
        tuple(directories),
        tuple(names),
        every_disk=not placed,
        newer_leaves=newer,
        question=costs,
    )


def start_with_disks(broker: int, directories: Sequence[str], names: Sequence[str], shared: Collection[str]) -> Advice:
    """The broker is unregistered, and its disks have last copies."""
    text = (
        f"start broker {broker} again with the same disks: {only_copies(broker, directories, names, shared)}; the data "
        "is not reachable, and not lost"
    )
    return Advice(Action.BRING_BACK, text, broker, tuple(directories), tuple(names), every_disk=True)


def start(broker: int, *, in_order: bool, last: Sequence[str], shared: Collection[str]) -> Advice:
    """The broker is fenced. ``last``: partitions with a last complete copy on a disk that it lists."""
    text = (
        "start that broker if nobody meant to stop it"
        if in_order
        else "look whether that broker runs; if it does, its log says why it cannot reach the controller"
    )
    if last:
        text += (
            f"; broker {broker} has {complete_copies_of(last, shared)}: start it with every disk that it registered "
            "last and the same log.dirs, and replace or format none of these"
        )
    return Advice(Action.START, text, broker, partitions=tuple(last), every_disk=bool(last))


def wait_and_keep(broker: int, new: Sequence[str], old: Sequence[str], names: Sequence[str]) -> list[Advice]:
    """The same, of replicas with a last copy that were in ``old``: its registration decides what they are."""
    text = (
        f"a new process of broker {broker} reported {few(names)} in {directories_of(broker, new)}, and has not "
        f"registered yet: {'it was' if len(names) == 1 else 'they were'} moved there from {' or '.join(old)}, or "
        "recreated empty while that disk was away"
    )
    wait, every = wait_for_registration(broker, new[0]), tuple(dict.fromkeys((*old, *new)))
    keep = f"until then wipe, replace or format none of {' and '.join(every)}: the data of {few(names)} could be lost"
    forbidden = Advice(Action.REPLACE, keep, broker, every, tuple(names), tuple(names), forbidden=True)
    return [Advice(Action.LOOK, text, broker, tuple(new), tuple(names)), wait, forbidden]


def do_not_replace(
    broker: int,
    directories: Sequence[str],
    names: Sequence[str],
    *,
    registered: bool = True,
    may_run: bool = True,
    recreated: bool = False,
) -> Advice:
    """What a blank disk costs, and what does not cost it.

    ``may_run``: the broker can be started without the disk. It cannot where no record has placed a copy (R-ACT-2).
    ``recreated``: the replicas have been recreated empty already; none of them leads yet.
    """
    it = "it" if len(directories) < 2 else "them"
    if recreated:
        text = (
            f"until then do not wipe or format {it}, and elect no other replica of {few(names)}: broker {broker} has "
            "recreated the replicas empty, and the data would be lost for good"
        )
        return Advice(Action.REPLACE, text, broker, tuple(directories), tuple(names), tuple(names), forbidden=True)
    out = f", and do not take {it} out of log.dirs" if registered else ""
    would = "would" if may_run or not registered else "could"
    text = (
        f"until then do not replace or format {it}{out}: broker {broker} {would} recreate the replicas empty, and the "
        f"data of {few(names)} {would} be lost"
    )
    if registered and not may_run:
        text += f"; do not start or restart broker {broker} without {it} either"
    elif registered:
        text += (
            "; with the broken disk still in log.dirs the broker can run and be restarted, unless nothing is mounted "
            "there: Kafka refuses to start then, and asks for a format"
        )
    return Advice(Action.REPLACE, text, broker, tuple(directories), tuple(names), tuple(names), forbidden=True)


# ELECTIONS


def save_before_start(broker: int, names: Sequence[str]) -> Advice:
    """The partitions go on without writes that a copy of the broker may hold."""
    held = "it may hold" if len(names) == 1 else "they may hold"
    text = (
        f"copy {folders(names)} of {few(names)} from the disks of broker {broker} before it starts with them: {held} "
        f"writes that the leader's log lacks, and {'is' if len(names) == 1 else 'are'} truncated to it then"
    )
    return Advice(Action.READ, text, broker, partitions=tuple(names))


class ElectedInstead(NamedTuple):
    """A clean election, when a broker is back, of a replica that holds less than the last copy."""

    holder: int
    """The broker with the last copy."""
    elected: int
    online: bool
    """Whether the last copy is online. No list of the partition has its broker then."""
    killed: bool
    """Whether it is held only if the broker that comes back was killed."""


def save_from(names: Sequence[str], broker: int, instead: ElectedInstead) -> Advice:
    """The controller elects another replica than that of the last copy when ``broker`` is back."""
    holder, elected = instead.holder, instead.elected
    it = "copy" if len(names) == 1 else "copies"
    why = f"no list of the partition has broker {holder}, " if instead.online else ""
    then = (
        f"the {it} on broker {holder} {'is' if len(names) == 1 else 'are'} truncated then"
        if instead.online
        else "after that the writes do not return by themselves"
    )
    back = "it" if elected == broker else f"broker {broker}"
    condition = f"if broker {broker} was killed, " if instead.killed else ""
    text = (
        f"first copy {folders(names)} of {few(names)} from the disks of broker {holder} to a safe place: they have the "
        f"last complete {it}, {why}and {condition}the controller elects broker {elected}, which lacks writes, when "
        f"{back} is back; {then}"
    )
    return Advice(Action.READ, text, holder, partitions=tuple(names), cost=tuple(names))


def forbid_unclean(names: Sequence[str], why: str) -> Advice:
    """Unclean elections are on, and the next step would cause one."""
    topics = sorted({name.rpartition("-")[0] for name in names})
    more = f", and the same for {few(topics[1:])}" if len(topics) > 1 else ""
    text = (
        f"first forbid unclean elections (kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type topics "
        f"--entity-name {topics[0]} --add-config unclean.leader.election.enable=false{more}): {why}"
    )
    return Advice(Action.FORBID_UNCLEAN, text, partitions=tuple(names))


class UncleanElection(NamedTuple):
    """An unclean election, and what it needs."""

    broker_id: int
    """The broker with the best copy that is online."""
    whole: bool
    """Whether that copy is complete."""
    first: int
    """The broker that Kafka elects: the first of the replicas that is online (R-ELECT-5)."""
    earlier: tuple[str, ...] = ()
    """The directories of its broker in which earlier copies of the replica lie (R-COPY-14)."""


def elect(partitions: Sequence[tuple[str, int]], election: UncleanElection) -> Advice:
    """An unclean election of what is online of the log: ``partitions`` by topic and number."""
    names = tuple(f"{topic}-{number}" for topic, number in partitions)
    topic, number = partitions[0]
    more = f", and the same for {few(names[1:])}" if len(names) > 1 else ""
    broker, command = election.broker_id, f"({_unclean_election(topic, number)}{more})"
    if election.first != broker:
        command = (
            f"{command} after it is the first of the replicas (kafka-reassign-partitions): Kafka would elect broker "
            f"{election.first}, which has less"
        )
    if election.whole:
        text = f"broker {broker} has a complete copy of {few(names)} too, and is in no list: elect it {command}"
    else:
        save = ""
        if election.earlier:
            older = directories_of(broker, election.earlier)
            save = (
                f"first save {folders(names)} of {few(names)} from {older}, which may have more than its present copy; "
            )
        text = (
            f"only if it can never be read again: {save}broker {broker} has a copy of {few(names)} that may lack "
            f"writes; elect it before the other broker gets a blank disk {command}: this gives up the writes that it "
            "lacks"
        )
    costs = not election.whole or election.first != broker
    return Advice(Action.ELECT, text, broker, partitions=names, cost=names if costs else ())


def elect_any(topic: str, number: int) -> Advice:
    """No replica can be elected cleanly, and none holds everything for certain."""
    text = (
        "bring back a disk or broker that held a replica in sync (jbod history shows which); if there is none, elect "
        f"a replica that lacks writes ({_unclean_election(topic, number)}): this gives up the writes that it lacks"
    )
    name = f"{topic}-{number}"
    return Advice(Action.ELECT, text, partitions=(name,), cost=(name,))


def _unclean_election(topic: str, number: int) -> str:
    return (
        "kafka-leader-election.sh --bootstrap-server HOST:PORT --election-type unclean "
        f"--topic {topic} --partition {number}"
    )


# THE COPY IS IN USE


def wait_until_in_sync(broker: int, names: Sequence[str], why: str = "") -> Advice:
    """Another replica is online, and not in sync."""
    of, them = ("replica", "it") if len(names) == 1 else ("replicas", "them")
    text = (
        f"first bring the {of} of {few(names)} on broker {broker} into sync: wait until kafka-topics.sh "
        f"--bootstrap-server HOST:PORT --describe --under-replicated-partitions does not list {them}{why}"
    )
    return Advice(Action.LOOK, text, broker, partitions=tuple(names))


def start_holder(broker: int, names: Sequence[str]) -> Advice:
    """Another complete copy is on a broker or disk that is offline."""
    text = (
        f"first bring broker {broker} back with all its disks: it has a complete copy of {few(names)}, which is then "
        "in use again"
    )
    return Advice(Action.START, text, broker, partitions=tuple(names), every_disk=True)


def add_replica(names: Sequence[str]) -> Advice:
    """The partitions have one replica."""
    text = (
        f"first give {few(names)} another replica (kafka-reassign-partitions.sh --bootstrap-server HOST:PORT "
        "--execute, with a plan that adds a broker), or move the replica to another disk, and wait until it is done"
    )
    return Advice(Action.LOOK, text, partitions=tuple(names))


def keep_in_use(broker: int, directories: Sequence[str], names: Sequence[str], *, registered: bool = True) -> Advice:
    """The only complete copies in use are in the directories."""
    it = "it" if len(directories) < 2 else "them"
    out = f", and do not take {it} out of log.dirs" if registered else ""
    text = (
        f"until then do not replace or format {directories_of(broker, directories)}{out}: no other complete copy of "
        f"{few(names)} is in use, and broker {broker} would recreate the replicas empty"
    )
    return Advice(
        Action.REPLACE, text, broker, tuple(directories), partitions=tuple(names), cost=tuple(names), forbidden=True
    )


# LOSSES


def about_crash(led: bool) -> Advice:
    """The leader's own copy is the last one, and it may lack what its broker had not flushed."""
    then = "no other disk holds more; then accept it" if led else "no other disk holds more"
    return Advice(Action.LOOK, f"compare with what producers and consumers know: {then}")


_NAMED = 3
"""The most directories that a sentence names."""


class LastCopy(NamedTuple):
    """A copy that held every acknowledged write."""

    broker_id: int
    directory_id: str | None
    """None if no record names it."""
    directories: tuple[str, ...]
    """The directory; if no record names it, those that can have it, and are not online unless its replica left the
    partition. Empty: it can lie anywhere."""
    given_up: str | None
    """recreated, removed, lost or unregistered. None: it is still in use."""
    away_offset: int | None
    """Offset of the record that gave it up."""
    place: str
    """The present state of its directory: online, offline, or unregistered with its broker."""
    overwritten_offset: int | None
    """Offset since which its replica is in sync with a leader without the data: it was truncated to that log."""

    @property
    def where(self) -> str:
        """``directory D of broker 1``"""
        directory = f"directory {' or '.join(self.directories)}" if self.directories else "a directory"
        if self._many:
            directory = f"one of {len(self.directories)} directories"
        return f"{directory} of {self.broker}"

    @property
    def _many(self) -> bool:
        return len(self.directories) > _NAMED

    @property
    def _keep(self) -> str:
        """``do not wipe directory D of broker 1``"""
        return f"do not wipe {self.where.replace('one', 'any', 1) if self._many else self.where}"

    @property
    def broker(self) -> str:
        """``broker 1``"""
        return f"broker {self.broker_id}"

    @property
    def follows(self) -> bool:
        """Whether its replica is truncated to the leader's log as soon as a leader without the data answers, or was."""
        return self.overwritten_offset is not None or (self.given_up is None and self.place == "online")

    @property
    def may_be_away(self) -> bool:
        """Whether no record names its directory, and it can lie in one that is not online: where its replica leads, the
        log may be one that was recreated empty (R-COPY-5)."""
        return self.directory_id is None and bool(self.directories)

    def step(self, name: str, went_on: bool, alone: bool, now: int | None, *, leads: bool = False) -> Advice:
        """What to do about it. ``went_on``: a replica leads without the data, and truncates the copy when its broker is
        back. ``alone``: no other copy is complete. ``now``: the leader. ``leads``: it is its own replica, perhaps with
        another log."""
        action, before_it = Action.READ, self.given_up in (None, "unregistered")
        if leads:
            text = (
                f"{self._keep}: no record says where the log of {name} was, and if it was there, that disk "
                "has what is missing; read it, and copy the folder of this partition to a safe place"
            )
        elif now == self.broker_id and self.given_up is None:
            action, where = Action.LOOK, self.where
            text = f"{self.broker} leads now, with the copy in {where}: compare with what producers and consumers know"
        elif self.overwritten_offset is not None:
            action = Action.LOOK
            text = f"the copy in {self.where} was truncated to the leader's when it followed; restore from a backup"
        elif self.follows:
            text = (
                f"copy the partition's folder from {self.where} at once: the copy there has what is missing until its "
                "replica follows a leader that lacks it, and was not in sync with one since"
            )
        elif before_it and (went_on or self.given_up is None):
            text = (
                f"save {self.where} before broker {self.broker_id} starts with it: the copy there is complete, and is "
                "truncated to the leader's then"
            )
        elif before_it:
            action, disks = Action.BRING_BACK, "all its disks" if self.directory_id is None else "that disk"
            it = "one" if self._many else "it"
            text = f"{self._keep}: {it} holds the last copy; start broker {self.broker_id} again with {disks}"
        elif self.given_up == "removed":
            text = f"look into {self.where} before Kafka deletes the replica there: it held the last copy"
        elif self.place == "online":
            text = (
                f"look into {self.where} at once: it is online again, and Kafka renames or deletes a folder that it "
                "does not expect there; copy the folder, if it is still there"
            )
        else:
            return self._keep_folder(name, went_on, alone)
        return self._step(action, text)

    def step_of_older(self) -> Advice:
        """What to do about it, where it lacks newer writes, and the last copies may not be readable."""
        text = (
            f"{self._keep} either: the older copy there lacks the newest writes, and is what remains if nothing else "
            f"can be read; copy the partition's folder before broker {self.broker_id} starts and truncates it"
        )
        return self._step(Action.READ, text)

    def _keep_folder(self, name: str, went_on: bool, alone: bool) -> Advice:
        """The replica of the partition ``name`` was recreated in another directory, and the disk is away."""
        of = "of what was lost" if went_on else "of the data"
        copy = "the only complete copy" if alone else "a complete copy"
        held = f"if that disk can still be read, it holds {copy} {of}"
        kept = f"{self._keep}: {held}; save it from there"
        if went_on:
            text = (
                f"{kept}. Before this disk goes back into the broker, move the partition's folder away from it: "
                "Kafka does not start with two folders of a partition"
            )
            return self._step(Action.READ, text)
        text = (
            f"{kept}. As no replica leads yet, the disk can also come back: stop the broker, move the partition's "
            "newer folder away from its other directories (Kafka does not start with two), and start it with the disk"
        )
        return self._step(Action.BRING_BACK, text, newer_leaves=(name,))

    def _step(self, action: Action, text: str, newer_leaves: tuple[str, ...] = ()) -> Advice:
        every_disk = action == Action.BRING_BACK and self.directory_id is None
        return Advice(action, text, self.broker_id, self.directories, every_disk=every_disk, newer_leaves=newer_leaves)


@dataclass(frozen=True)
class Places:
    """The state of directories at an offset."""

    online: frozenset[tuple[int, str]]
    """(broker, directory) of the online directories of brokers that are not fenced."""
    registered: frozenset[int]

    def copy(self, copy: Copy) -> LastCopy:
        """A copy, with the state of its place."""
        every = sorted(map(str, copy.where | copy.places))
        removed = copy.given_up == "removed"
        perhaps = [at for at in every if removed or (copy.broker_id, at) not in self.online]
        directory = None if copy.directory is None or (copy.places and perhaps) else str(copy.directory)
        if copy.broker_id not in self.registered:
            place = "unregistered"
        else:
            place = "online" if (copy.broker_id, directory) in self.online else "offline"
        directories = tuple(perhaps) if directory is None else (directory,)
        return LastCopy(copy.broker_id, directory, directories, copy.given_up, copy.away, place, copy.overwritten)
