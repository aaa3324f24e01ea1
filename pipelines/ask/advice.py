"""Advice to the operator: its kinds, its cost, and its sentences.

One rule holds for all of it: no action is advised that gives up a last copy (``jbod_model.loss.fate``). What saves
the copy comes first, and the cost of the forbidden action is named (``advice_last_copies``).
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
    question: str = ""
    """The end of ``text`` in a step of a start: what to ask about the restart. The answer to that leaves it out."""
    not_in_json = ("question",)


def steps_in_words(steps: Sequence[Advice]) -> str:
    """The steps as one line."""
    return "; ".join(dict.fromkeys(step.text for step in steps))


class Advised:
    """What has steps to take, in order."""

    steps: Sequence[Advice]

    @property
    def advice(self) -> str:
        """The steps as one line."""
        return steps_in_words(self.steps)


def few(names: Sequence[str]) -> str:
    """``a-0, a-1, a-2, a-3 and 5 more``"""
    rest = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + rest


def brokers_in_words(brokers: Sequence[int]) -> str:
    """``broker 1``, ``brokers 1, 2``"""
    return f"broker{'' if len(brokers) == 1 else 's'} {', '.join(map(str, brokers))}"


def directories_of(broker: int, directories: Sequence[str]) -> str:
    """``directory D of broker 1``"""
    if not directories:
        return f"the disk of broker {broker}"
    what = "directory" if len(directories) == 1 else "directories"
    return f"{what} {' and '.join(directories)} of broker {broker}"


def folders(names: Sequence[str], which: str = "") -> str:
    """``the newer folders`` of partitions"""
    return f"the {which}folder{'s' if len(names) > 1 else ''}"


def leave_one_folder(twice: Sequence[str], last: Sequence[str]) -> str:
    """What to do first with the folders of partitions that are in two directories of the broker (R-ACT-7)."""
    newer = [name for name in twice if name in last]
    older = [name for name in twice if name not in last]
    moves = []
    if older:
        moves.append(f"move {folders(older)} of {few(older)} away from this disk")
    if newer:
        moves.append(f"move {folders(newer, 'newer ')} of {few(newer)} away from the other directories of the broker")
    if not moves:
        return ""
    return f"; before the start, {' and '.join(moves)}: Kafka does not start with two folders of a partition"


def restart_costs(broker: int) -> str:
    """The end of every step that restarts a running broker: other partitions may need it."""
    return f"; before the restart, ask jbod safe-to-restart {broker} what it costs other partitions"


def start_again(broker: int, *, running: bool) -> tuple[str, str]:
    """What a step says to do with the broker, and its end."""
    return ("restart", restart_costs(broker)) if running else ("start", "")


# CAUSES


def restart_to_elect(broker: int) -> Advice:
    """A replica could lead, and was not elected."""
    text = f"restart broker {broker}, which is in sync or eligible: the controller elects it when it is back"
    return Advice(Action.RESTART, text + restart_costs(broker), broker)


def start_or_reassign(broker: int) -> Advice:
    """The broker is not registered, and has no last copy."""
    text = "start that broker again with all its disks, or reassign its replicas to other brokers"
    return Advice(Action.REASSIGN, text, broker, every_disk=True)


def repair_or_replace(broker: int, directory: str, *, running: bool) -> Advice:
    """The directory failed, and has no last copy."""
    then, costs = start_again(broker, running=running)
    find = (
        "kafka-log-dirs --describe has an error for its path" if running else f"the log of broker {broker} has its path"
    )
    look_at = f"find that disk ({find}) and look at the kernel log and its mount"
    text = f"{look_at}; repair or replace it, then {then} the broker{costs}"
    return Advice(Action.REPLACE, text, broker, (directory,))


def mount_or_reassign(broker: int, directory: str, twice: Sequence[str], *, running: bool) -> Advice:
    """The broker came back without the directory, which has no last copy."""
    then, costs = start_again(broker, running=running)
    mount = f"mount that disk again and {then} broker {broker}{leave_one_folder(twice, ())}{costs}"
    text = f"{mount}; or let replicas be rebuilt by reassigning them"
    return Advice(Action.BRING_BACK, text, broker, (directory,))


def put_back(broker: int, directory: str, holder: int) -> Advice:
    """The disk is in another broker."""
    text = f"the disk was moved from broker {broker} to {holder}: put it back, or reassign the replicas"
    return Advice(Action.LOOK, text, broker, (directory,))


def take_copy_out(broker: int, directory: str, holder: int) -> Advice:
    """Another broker has the directory, and no record has it on this one: its disk is a copy."""
    text = (
        f"leave the disk of broker {holder} where it is: it is in use; if broker {broker} has a copy of it in log.dirs "
        "(jbod disks shows the ids), put back the disk that was there before: Kafka registers no broker with the "
        "directory.id of another one; otherwise reassign the replicas"
    )
    return Advice(Action.LOOK, text, broker, (directory,))


def wait_for_registration(broker: int, directory: str) -> Advice:
    """A process of the broker reported the directory, and has not registered."""
    text = f"wait until broker {broker} registers, and ask again; if it does not, its log says why"
    return Advice(Action.LOOK, text, broker, (directory,))


def find_failed(broker: int) -> Advice:
    """The replicas are in LOST, and have no last copy."""
    text = "run jbod disks on that broker to find the failed directory; repair or replace the disk"
    return Advice(Action.REPLACE, text, broker)


def wait_for_report(broker: int) -> Advice:
    """By the KIP, a replica whose directory no record names is offline."""
    return Advice(Action.LOOK, "wait until the broker reports where they are: jbod assignments", broker)


# INCIDENTS


def compare_and_mount(broker: int, directory: str) -> Advice:
    """The lake does not know that the broker ever had the directory."""
    text = (
        "compare the id with the meta.properties of the broker's disks (jbod disks); mount that disk and restart the "
        "broker, or reassign the replicas"
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
    return Advice(Action.REPLACE, text + restart_costs(broker), broker, (directory,))


def reassign_or_start(broker: int) -> Advice:
    """Replicas on a broker that is not registered. None is a last copy."""
    text = (
        "reassign these partitions to brokers that are registered (kafka-reassign-partitions), or start broker "
        f"{broker} again with all its disks"
    )
    return Advice(Action.REASSIGN, text, broker, every_disk=True)


def bring_home(broker: int, names: Sequence[str]) -> tuple[Advice, ...]:
    """The disk was moved from this broker, and has its replicas."""
    return look(f"bring the disk back to broker {broker}, or save {few(names)} from it (a folder may end in -stray)")


def look(text: str) -> tuple[Advice, ...]:
    """Something to find out or to wait for. It changes nothing."""
    return (Advice(Action.LOOK, text),) if text else ()
