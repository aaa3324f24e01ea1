"""Advice to the operator: its kinds, its cost, and its sentences.

One rule holds for all of it: no action is advised that gives up a last copy (``jbod_model.loss.fate``). What saves
the copy comes first, and the cost of the forbidden action is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

MOST_NAMES = 4
"""Partitions that a sentence names."""


class Action(StrEnum):
    """What the operator is to do."""

    LOOK = "look"
    """Find out something. It changes nothing."""
    READ = "read the disk"
    """Make the disk readable, or copy folders from it. It changes nothing in the cluster."""
    BRING_BACK = "bring back"
    """The same disk, or its files with meta.properties on another one; then start or restart the broker."""
    START = "start"
    """Start the broker, with log.dirs as they were."""
    RESTART = "restart"
    """Restart the broker, with log.dirs as they are. A disk that failed stays among them."""
    REPLACE = "replace"
    """A blank disk in the place of the directory, or log.dirs without it; then start or restart the broker."""
    REASSIGN = "reassign"
    """Move replicas to other brokers."""
    MOVE = "move"
    """Move replicas to another directory of the broker."""
    ELECT = "elect"
    """An unclean election of a replica that is not complete."""
    FORBID_UNCLEAN = "forbid unclean elections"
    """Set unclean.leader.election.enable to false for the topics of the partitions."""


@dataclass(frozen=True)
class Advice:
    """One step. Steps of one answer are taken in order."""

    action: Action
    text: str
    broker_id: int | None = None
    directories: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    """The partitions that the step is for; all if it names none."""
    cost: tuple[str, ...] = ()
    """Partitions whose last complete copy it gives up, as ``text`` says."""
    forbidden: bool = False
    """Not to be done: ``text`` says so, and what it would cost."""
    every_disk: bool = False
    """Whether the broker may start only with all its disks, readable: no record says which of them has the copies."""
    newer_leaves: tuple[str, ...] = ()
    """Partitions with two folders on the broker, of which the newer one leaves before the start (R-ACT-7)."""


def steps_in_words(steps: Sequence[Advice]) -> str:
    """The steps as one line."""
    return "; ".join(dict.fromkeys(step.text for step in steps))


def few(names: Sequence[str], most: int = MOST_NAMES) -> str:
    """``a-0, a-1, a-2, a-3 and 5 more``"""
    rest = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def directories_of(broker: int, directories: Sequence[str]) -> str:
    """``directory D of broker 1``"""
    if not directories:
        return f"the disk of broker {broker}"
    what = "directory" if len(directories) == 1 else "directories"
    return f"{what} {' and '.join(directories)} of broker {broker}"


def only_copies(
    broker: int, directories: Sequence[str], names: Sequence[str], shared: Sequence[str] = (), *, certain: bool = True
) -> str:
    """``directory D of broker 1 holds the only complete copy of a-0``

    ``shared``: partitions of which another copy is complete, but offline, too. Not ``certain``: ``may hold``.
    """
    hold = "may hold" if not certain else "hold" if len(directories) > 1 else "holds"
    return f"{directories_of(broker, directories)} {hold} {complete_copies_of(names, shared)}"


def complete_copies_of(names: Sequence[str], shared: Sequence[str]) -> str:
    """``the only complete copy of a-0``, ``complete copies of a-0, a-1, of which none is in use``"""
    copies = "copy" if len(names) == 1 else "copies"
    if {*names} & {*shared}:
        return f"{'a ' if len(names) == 1 else ''}complete {copies} of {few(names)}, of which none is in use"
    return f"the only complete {copies} of {few(names)}"


# STEPS


def read_first(
    broker: int, directories: Sequence[str], names: Sequence[str], shared: Sequence[str], unplaced: Sequence[str] = ()
) -> Advice:
    """The disk has a last copy: what it needs is to be read. ``unplaced``: no record says which directory has it."""
    it = "it" if len(directories) < 2 else "them"
    holds = only_copies(broker, directories, names, shared, certain=not unplaced)
    if unplaced:
        holds += (
            f" (no record says which directory of broker {broker} has {few(unplaced)}: if kafka-log-dirs.sh --describe "
            "--broker-list lists it in a directory that works, the copy is there)"
        )
    text = (
        f"{holds}: read {it} before anything else (kernel log, cable, mount, "
        f"file system), and copy {_folders(names)} to a safe place"
    )
    return Advice(Action.READ, text, broker, tuple(directories), tuple(names))


def save_before_start(broker: int, names: Sequence[str]) -> Advice:
    """The partitions go on without writes that a copy of the broker may hold."""
    held = "it may hold" if len(names) == 1 else "they may hold"
    text = (
        f"copy {_folder(names)} of {few(names)} from the disks of broker {broker} before it starts with them: {held} "
        f"writes that the leader's log lacks, and {'is' if len(names) == 1 else 'are'} truncated to it then"
    )
    return Advice(Action.READ, text, broker, partitions=tuple(names))


def save_from(holder: int, names: Sequence[str], broker: int, elected: int, *, online: bool, killed: bool) -> Advice:
    """The last copy is on ``holder``, and ``elected`` is elected when ``broker`` is back. ``online``: the copy is
    online, but no list of the partition has the holder. ``killed``: only if ``broker`` was killed."""
    it = "copy" if len(names) == 1 else "copies"
    why = f"no list of the partition has broker {holder}, " if online else ""
    then = (
        f"the {it} on broker {holder} {'is' if len(names) == 1 else 'are'} truncated then"
        if online
        else "after that the writes do not return by themselves"
    )
    back = "it" if elected == broker else f"broker {broker}"
    condition = f"if broker {broker} was killed, " if killed else ""
    text = (
        f"first copy {_folder(names)} of {few(names)} from the disks of broker {holder} to a safe place: they have the "
        f"last complete {it}, {why}and {condition}the controller elects broker {elected}, which lacks writes, when "
        f"{back} is back; {then}"
    )
    return Advice(Action.READ, text, holder, partitions=tuple(names), cost=tuple(names))


def _folders(names: Sequence[str]) -> str:
    return "the folder of this partition" if len(names) == 1 else "the folders of these partitions"


def bring_back(
    broker: int, directories: Sequence[str], names: Sequence[str], *, running: bool, twice: Sequence[str], placed: bool
) -> Advice:
    """The same directories come back. ``twice``: partitions that were recreated in another directory meanwhile.

    ``placed``: records say which directory has the copies. Otherwise the broker needs every one of them (R-ACT-2).
    """
    disks = "" if placed else " and all its disks readable"
    it = "it" if len(directories) < 2 else "them"
    text = (
        f"bring {it} back with the same directory id (the disk itself, or all its files with meta.properties on a new "
        f"one), and {'restart' if running else 'start'} broker {broker} with the same log.dirs{disks}: "
        f"{'the copy is' if len(names) == 1 else 'the copies are'} then in use again{leave_one_folder(twice, names)}"
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
    )


def _folder(names: Sequence[str], which: str = "") -> str:
    return f"the {which}folder{'s' if len(names) > 1 else ''}"


def leave_one_folder(twice: Sequence[str], last: Sequence[str]) -> str:
    """What to do first with the folders of partitions that are in two directories of the broker (R-ACT-7)."""
    newer = [name for name in twice if name in last]
    older = [name for name in twice if name not in last]
    moves = []
    if older:
        moves.append(f"move {_folder(older)} of {few(older)} away from this disk")
    if newer:
        moves.append(f"move {_folder(newer, 'newer ')} of {few(newer)} away from the other directories of the broker")
    if not moves:
        return ""
    return f"; before the start, {' and '.join(moves)}: Kafka does not start with two folders of a partition"


def start_with_disks(broker: int, directories: Sequence[str], names: Sequence[str], shared: Sequence[str]) -> Advice:
    """The broker is unregistered, and its disks have last copies."""
    text = (
        f"start broker {broker} again with the same disks: {only_copies(broker, directories, names, shared)}; the data "
        "is not reachable, and not lost"
    )
    return Advice(Action.BRING_BACK, text, broker, tuple(directories), tuple(names), every_disk=True)


def elect(partitions: Sequence[tuple[str, int]], broker: int) -> Advice:
    """An unclean election of the part of the log that is online: ``partitions`` by topic and number."""
    names = tuple(f"{topic}-{number}" for topic, number in partitions)
    topic, number = partitions[0]
    more = f", and the same for {few(names[1:])}" if len(names) > 1 else ""
    text = (
        f"only if it can never be read again: broker {broker} has a copy of {few(names)} that may lack writes; elect "
        f"it before the other broker gets a blank disk ({_unclean_election(topic, number)}{more}): this gives up the "
        "writes that it lacks"
    )
    return Advice(Action.ELECT, text, broker, partitions=names, cost=names)


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


def restart_to_elect(broker: int, name: str) -> Advice:
    """A replica could lead, and was not elected."""
    text = f"restart broker {broker}, which is in sync or eligible: the controller elects it when it is back"
    return Advice(Action.RESTART, text, broker, partitions=(name,))


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
        text += "; with the broken disk still in log.dirs the broker can run and be restarted"
    return Advice(Action.REPLACE, text, broker, tuple(directories), tuple(names), tuple(names), forbidden=True)


def forbid_unclean(names: Sequence[str], why: str) -> Advice:
    """Unclean elections are on, and the next step would cause one."""
    topics = sorted({name.rpartition("-")[0] for name in names})
    more = f", and the same for {few(topics[1:])}" if len(topics) > 1 else ""
    text = (
        f"first forbid unclean elections (kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type topics "
        f"--entity-name {topics[0]} --add-config unclean.leader.election.enable=false{more}): {why}"
    )
    return Advice(Action.FORBID_UNCLEAN, text, partitions=tuple(names))


# CAUSES


def start(broker: int, *, in_order: bool, last: Sequence[str], shared: Sequence[str]) -> Advice:
    """The broker is fenced. ``last``: partitions with a last complete copy on a disk that it lists."""
    text = (
        "start that broker if nobody meant to stop it"
        if in_order
        else "look whether that broker runs; if it does, its log says why it cannot reach the controller"
    )
    if last:
        text += (
            f"; broker {broker} has {complete_copies_of(last, shared)}: start it with all its disks and the "
            "same log.dirs, and replace or format none of them"
        )
    return Advice(Action.START, text, broker, partitions=tuple(last), every_disk=bool(last))


def start_or_reassign(broker: int) -> Advice:
    """The broker is not registered, and has no last copy."""
    text = "start that broker again with all its disks, or reassign its replicas to other brokers"
    return Advice(Action.REASSIGN, text, broker, every_disk=True)


def repair_or_replace(broker: int, directory: str) -> Advice:
    """The directory failed, and has no last copy."""
    text = (
        "find that disk (kafka-log-dirs.sh --describe has an error for its path) and look at the kernel log and its "
        "mount; repair or replace it, then restart the broker"
    )
    return Advice(Action.REPLACE, text, broker, (directory,))


def mount_or_reassign(broker: int, directory: str, twice: Sequence[str]) -> Advice:
    """The broker came back without the directory, which has no last copy."""
    text = "mount that disk again on its broker, or let replicas be rebuilt by reassigning them"
    return Advice(Action.BRING_BACK, text + leave_one_folder(twice, ()), broker, (directory,))


def put_back(broker: int, directory: str, holder: int) -> Advice:
    """The disk is in another broker."""
    text = f"the disk was moved from broker {broker} to {holder}: put it back, or reassign the replicas"
    return Advice(Action.LOOK, text, broker, (directory,))


def compare_ids(broker: int, directory: str) -> Advice:
    """The broker never registered the directory."""
    text = "compare the meta.properties of that broker's disks with this id (jbod disks)"
    return Advice(Action.LOOK, text, broker, (directory,))


def wait_for_registration(broker: int, directory: str) -> Advice:
    """A process of the broker reported the directory, and has not registered."""
    text = f"wait until broker {broker} registers, and ask again; if it does not, its log says why"
    return Advice(Action.LOOK, text, broker, (directory,))


def wait_and_keep(broker: int, new: Sequence[str], old: Sequence[str], names: Sequence[str]) -> list[Advice]:
    """The same, of replicas with a last copy that were in ``old``: its registration decides what they are."""
    text = (
        f"a new process of broker {broker} reported {few(names)} in {directories_of(broker, new)}, and has not "
        f"registered yet: {'it was' if len(names) == 1 else 'they were'} moved there from {' or '.join(old)}, or "
        "recreated empty while that disk was away"
    )
    wait = wait_for_registration(broker, new[0])
    keep = (
        f"until then wipe, replace or format none of {' and '.join([*old, *new])}: the data of {few(names)} could "
        "be lost"
    )
    forbidden = Advice(Action.REPLACE, keep, broker, (*old, *new), tuple(names), tuple(names), forbidden=True)
    return [Advice(Action.LOOK, text, broker, tuple(new), tuple(names)), wait, forbidden]


def find_failed(broker: int) -> Advice:
    """The replicas are in LOST, and have no last copy."""
    text = "run jbod disks on that broker to find the failed directory; repair or replace the disk"
    return Advice(Action.REPLACE, text, broker)


# LOSSES


def about_crash(led: bool) -> Advice:
    """The leader's own copy is the last one, and it may lack what its broker had not flushed."""
    then = "no other disk holds more; then accept it" if led else "no other disk holds more"
    return Advice(Action.LOOK, f"compare with what producers and consumers know: {then}")


@dataclass(frozen=True)
class CopyPlace:
    """The place of a copy that held everything before its partition lost data."""

    broker_id: int
    directory_id: str | None

    @property
    def where(self) -> str:
        """``directory D of broker 1``"""
        named = "a directory" if self.directory_id is None else f"directory {self.directory_id}"
        return f"{named} of broker {self.broker_id}"

    def was_truncated(self) -> Advice:
        """Its broker ran again and followed the new leader."""
        text = f"the copy in {self.where} was truncated to the leader's when it followed; restore from a backup"
        return self._step(Action.LOOK, text)

    def save_before_start(self) -> Advice:
        """The partition went on without it."""
        return self._step(
            Action.READ,
            f"save {self.where} before broker {self.broker_id} starts with it: the copy there is complete, and is "
            "truncated to the leader's then",
        )

    def start_again(self) -> Advice:
        """Its broker is unregistered, and nobody leads without it."""
        disks = "all its disks" if self.directory_id is None else "that disk"
        return self._step(
            Action.BRING_BACK,
            f"do not wipe {self.where}: it holds the last copy; start broker {self.broker_id} again with {disks}",
        )

    def look_before_deletion(self) -> Advice:
        """Its replica left the broker."""
        text = f"look into {self.where} before Kafka deletes the replica there: it held the last copy"
        return self._step(Action.READ, text)

    def look_at_once(self) -> Advice:
        """Its replica was recreated in another directory, and the disk is online again."""
        return self._step(
            Action.READ,
            f"look into {self.where} at once: it is online again, and Kafka renames or deletes a folder that it does "
            "not expect there; copy the folder, if it is still there",
        )

    def keep_folder(self, name: str, *, went_on: bool) -> Advice:
        """The replica of the partition ``name`` was recreated in another directory, and the disk is away."""
        of = "of what was lost" if went_on else "of the data"
        held = f"if that disk can still be read, it holds the only copy {of}"
        kept = f"do not wipe {self.where}: {held}; save it from there"
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
        directories = () if self.directory_id is None else (self.directory_id,)
        every_disk = action == Action.BRING_BACK and not directories
        return Advice(action, text, self.broker_id, directories, every_disk=every_disk, newer_leaves=newer_leaves)


# INCIDENTS


def compare_and_mount(broker: int, directory: str) -> Advice:
    """The lake does not know that the broker ever had the directory."""
    text = (
        "compare the id with the meta.properties of the broker's disks (jbod disks); mount that disk, or reassign the "
        "replicas"
    )
    return Advice(Action.BRING_BACK, text, broker, (directory,))


def see_if_back(broker: int) -> Advice:
    """The broker restarted."""
    return Advice(Action.LOOK, "look at its log if it does not come back", broker)


# REMOVAL OF A DIRECTORY


def drain(broker: int, command: str) -> Advice:
    """Replicas in a directory that works."""
    return Advice(Action.MOVE, f"move them away: {command} makes the files for kafka-reassign-partitions", broker)


def reassign_or_take_out(broker: int, directory: str) -> Advice:
    """Replicas in a directory that its broker lacks. None is a last copy."""
    text = (
        f"reassign them to other brokers (kafka-reassign-partitions), or take the directory out of log.dirs and "
        f"restart broker {broker}, which recreates them in its other directories"
    )
    return Advice(Action.REPLACE, text, broker, (directory,))


def reassign_or_start(broker: int) -> Advice:
    """Replicas on a broker that is not registered. None is a last copy."""
    text = (
        "reassign these partitions to brokers that are registered (kafka-reassign-partitions), or start broker "
        f"{broker} again with all its disks"
    )
    return Advice(Action.REASSIGN, text, broker, every_disk=True)


def look(text: str) -> tuple[Advice, ...]:
    """Something to find out or to wait for. It changes nothing."""
    return (Advice(Action.LOOK, text),) if text else ()
