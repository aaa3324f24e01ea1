"""A machine in a search: its disks and, while it runs, the broker of :mod:`jbod_model.broker.process`.

Time is a choice (R-EXPLORE-3). Now is always 0, and a running timer is due at :data:`FAR`. To fire a timer, the
explorer sets it to 0 and the broker ticks. Values that grow without bound (times, failures in a row, epochs) are reset
after every event.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar, cast

from jbod_model.broker import process
from jbod_model.broker.assignments import Assignment, AssignmentReason, Replica
from jbod_model.broker.disks import Disks
from jbod_model.broker.lifecycle import Lifecycle, LifecycleState, Shutdown
from jbod_model.broker.process import Broker
from jbod_model.broker.replicas import Replicas, assigned_directories, local_changes
from jbod_model.formats.requests import (
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    Request,
)
from jbod_model.ids import IdTable, Uuid
from jbod_model.profiles import BrokerRules
from jbod_model.replay.image import Image, Partition, Topic

NOW, FAR = 0, 1 << 40
"""The present time, and the time at which running timers are due."""
OLD, NEW = Uuid(7, 1), Uuid(7, 2)
"""Incarnations: of an ended process, and of the running one."""

NO_EPOCH, STALE_EPOCH = -1, 0
"""Broker epochs: of no registration, and of any replaced one. The present epoch is the broker's id."""

UNREAD, READ = 0, 1
"""Metadata offsets: before the broker's registration, and from the registration on."""

PRESENT, BEHIND = 1, 0
"""Partition epochs: the present one, and any earlier one."""

Part = TypeVar("Part")

Log = tuple[Replica, Uuid, bool]
"""A log on a disk: its replica, its directory, and whether it is a future log."""


class Seen(NamedTuple):
    """A partition in the metadata that a broker applied last; ``directories`` is None if it had no replica of it."""

    replica: Replica
    directories: tuple[Uuid, ...] | None
    behind: bool


class UnderWay(NamedTuple):
    """A request of the broker that is in flight, or its answer. ``awaited``: the sending process still waits for it."""

    request: Request
    answer: int | None
    awaited: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """``log_dirs`` is the configuration, ``working`` the disks that work, ``broker`` the process or None.

    ``stored`` are the logs on disk that no process has open: all logs if no process runs, else those of failed disks.
    ``clean``: the last process ended with the controller's permission.
    """

    broker_id: int
    log_dirs: tuple[Uuid, ...]
    working: frozenset[Uuid]
    stored: frozenset[Log] = frozenset()
    clean: bool = False
    broker: Broker | None = None
    seen: tuple[Seen, ...] = ()
    wire: tuple[UnderWay, ...] = ()
    ends: frozenset[tuple[Log, int]] = frozenset()
    """The log end offset of each log that is not empty, wherever it lies."""
    cut: bool = False
    """Whether the machine can no longer reach the controller."""
    spares: tuple[Uuid, ...] = ()
    """Ids for future disks, the longest unused first."""
    timed: bool = False
    """Whether the machine checks that failures were reported (R-LIFE-7); if not, state that only these checks need is
    left out."""


# PROCESSES


def running(machine: Machine, rules: BrokerRules, ids: IdTable) -> Machine:
    """A process on empty disks that is registered, unfenced and has applied the metadata."""
    life = Lifecycle(
        node_id=machine.broker_id,
        cluster_id="",
        incarnation_id=NEW,
        log_dirs=machine.log_dirs,
        rules=rules,
        state=LifecycleState.RUNNING,
        epoch=machine.broker_id,
        ready_to_unfence=True,
        unfence_asked=True,
        registered=True,
        ever_registered=True,
        next_communication=FAR,
    )
    broker = Broker(
        life=life,
        replicas=Replicas(disks=Disks(configured=machine.log_dirs), rules=rules, ids=ids),
        metadata_offset=READ,
        registration_epoch=machine.broker_id,
        published=True,
    )
    return replace(machine, broker=normal(broker, machine.timed))


def upgraded(machine: Machine, image: Image) -> Machine:
    """A process whose logs are older than the recording of directories; they lie in the directories in turn."""
    broker = machine.broker
    assert broker is not None
    replicas = [Replica(topic_id, number) for topic_id, topic in image.topics.items() for number in topic.partitions]
    own = [r for r in replicas if machine.broker_id in image.topics[r.topic_id].partitions[r.partition].replicas]
    current = {replica: machine.log_dirs[i % len(machine.log_dirs)] for i, replica in enumerate(own)}
    disks = replace(broker.replicas.disks, current=current)
    return replace(machine, broker=replace(broker, replicas=replace(broker.replicas, disks=disks)))


def start(machine: Machine, rules: BrokerRules, ids: IdTable) -> Machine:
    """A process on the working disks. Its first registration has not been sent yet."""
    readable = tuple(directory for directory in machine.log_dirs if directory in machine.working)
    on_disk: dict[bool, dict[Replica, Uuid]] = {True: {}, False: {}}
    for replica, directory, future in machine.stored:
        if directory in readable:
            on_disk[future][replica] = directory
    disks = Disks(
        configured=readable,
        unreadable=len(machine.log_dirs) - len(readable),
        current=on_disk[False],
        future=on_disk[True],
    )
    life = Lifecycle(
        node_id=machine.broker_id,
        cluster_id="",
        incarnation_id=NEW,
        log_dirs=readable,
        previous_epoch=machine.broker_id if machine.clean else NO_EPOCH,
        rules=rules,
    )
    broker, _ = process.start(Broker(life=life, replicas=Replicas(disks=disks, rules=rules, ids=ids)), NOW)
    broker = process.answer_registration(broker, None, NOW)
    kept = frozenset(log for log in machine.stored if log[1] not in readable)
    return replace(machine, stored=kept, clean=False, broker=normal(broker, machine.timed), seen=())


def stop(machine: Machine, *, clean: bool = False) -> Machine:
    """The process has ended; its logs are on the disks."""
    if machine.broker is None:
        return machine
    stored = machine.stored | in_hand(machine)
    return replace(machine, stored=stored, clean=clean, broker=None, seen=(), wire=_abandoned(machine.wire))


def _abandoned(wire: tuple[UnderWay, ...]) -> tuple[UnderWay, ...]:
    """The messages in flight after the sending process has ended: requests that may still arrive."""
    return tuple(
        sorted(
            (
                UnderWay(
                    replace(each.request, incarnation_id=OLD)
                    if isinstance(each.request, BrokerRegistrationRequest)
                    else each.request,
                    None,
                    False,
                )
                for each in wire
                if each.answer is None
            ),
            key=repr,
        )
    )


def fail(machine: Machine, directory: Uuid) -> Machine:
    """A disk fails, with its content."""
    lost = {log for log in in_hand(machine) if log[1] == directory}
    machine = replace(machine, working=machine.working - {directory})
    if machine.broker is None:
        return machine
    broker, actions = process.fail_directory(machine.broker, directory, NOW)
    machine = replace(machine, stored=machine.stored | lost)
    return after(machine, broker, actions)


def after(machine: Machine, broker: Broker, actions: Iterable[process.Action] = ()) -> Machine:
    """The machine after its process became ``broker``; a process that shuts down is removed."""
    machine = replace(machine, broker=normal(broker, machine.timed))
    for action in actions:
        if isinstance(action, Shutdown):
            return stop(machine, clean=action.allowed)
    return machine


# METADATA


def deliver(machine: Machine, image: Image) -> Machine:
    """The process applies the newest metadata (R-LOCAL-1, R-PROC-1)."""
    broker = machine.broker
    assert broker is not None
    broker_id = machine.broker_id
    changes, deletes = local_changes(_applied(machine), image, broker_id, broker.life.rules)
    registration = image.brokers.get(broker_id)
    broker = process.apply_metadata(
        broker,
        offset=READ,
        changes=changes,
        deletes=deletes,
        assigned=assigned_directories(image, broker_id),
        registration=None if registration is None else (registration.epoch, registration.directories),
        registration_changed=True,
        directories_supported=True,
        now=NOW,
    )
    return replace(machine, broker=normal(broker, machine.timed), seen=seen_in(image, broker_id))


def creates(before: Machine, after: Machine) -> bool:
    """Whether the process may have chosen a directory for a log: any log has come or gone."""
    assert before.broker is not None and after.broker is not None
    disks, then = before.broker.replicas.disks, after.broker.replicas.disks
    return (disks.current, disks.future) != (then.current, then.future)


def in_order(machine: Machine, order: tuple[Uuid, ...]) -> Machine:
    """The machine with the directories of its process in another order, which only decides between equally empty
    ones."""
    assert machine.broker is not None
    state = machine.broker.replicas
    disks = replace(state.disks, configured=order)
    return replace(machine, broker=replace(machine.broker, replicas=replace(state, disks=disks)))


def seen_in(image: Image, broker_id: int) -> tuple[Seen, ...]:
    """The part of ``image`` that a broker remembers after it applied the image."""
    return tuple(
        Seen(Replica(topic_id, number), partition.directories, False)
        if broker_id in partition.replicas
        else Seen(Replica(topic_id, number), None, True)
        for topic_id, topic in image.topics.items()
        for number, partition in topic.partitions.items()
    )


def _applied(machine: Machine) -> Image:
    """The metadata that the process applied last, as an image with what :func:`local_changes` reads."""
    topics: dict[Uuid, dict[int, Partition]] = {}
    for replica, directories, behind in machine.seen:
        topics.setdefault(replica.topic_id, {})[replica.partition] = Partition(
            replicas=() if directories is None else (machine.broker_id,),
            isr=(),
            leader=-1,
            leader_epoch=0,
            partition_epoch=BEHIND if behind else PRESENT,
            directories=directories or (),
        )
    return Image(topics={t: Topic(name=str(t), topic_id=t, partitions=each) for t, each in topics.items()})


def fall_behind(machine: Machine, changed: frozenset[Replica]) -> Machine:
    """Note that the metadata of these partitions changed after the process applied it."""
    seen = tuple(entry._replace(behind=True) if entry.replica in changed else entry for entry in machine.seen)
    return replace(machine, seen=seen)


def superseded(machine: Machine, *, same_process: bool) -> Machine:
    """Note that the controller accepted a registration of the broker, which its process has not read yet."""
    machine = machine if same_process else outdated(machine)
    broker = machine.broker
    if broker is None:
        return machine
    broker = replace(broker, metadata_offset=min(broker.metadata_offset, UNREAD))
    if not same_process:
        life = broker.life
        broker = replace(
            broker,
            life=replace(life, epoch=min(life.epoch, STALE_EPOCH)),
            registration_epoch=min(broker.registration_epoch, STALE_EPOCH),
        )
    return replace(machine, broker=broker)


def outdated(machine: Machine) -> Machine:
    """Messages in flight name an outdated epoch of the broker."""
    wire = tuple(
        sorted(
            (
                each._replace(request=replace(each.request, broker_epoch=min(each.request.broker_epoch, STALE_EPOCH)))
                if isinstance(each.request, (BrokerHeartbeatRequest, AssignReplicasToDirsRequest))
                else each
                for each in machine.wire
            ),
            key=repr,
        )
    )
    return replace(machine, wire=wire)


# RECORDS


def end_of(machine: Machine, log: Log) -> int:
    """The log end offset of a log."""
    return next((end for each, end in machine.ends if each == log), 0)


def with_end(machine: Machine, log: Log, end: int) -> Machine:
    """The machine with another log end offset of a log."""
    others = frozenset(each for each in machine.ends if each[0] != log)
    return replace(machine, ends=others | {(log, end)} if end else others)


def settled(machine: Machine) -> Machine:
    """The machine with the log end offsets of existing logs only; a promoted future log keeps its own."""
    if not machine.ends:
        return machine
    known = dict(machine.ends)
    ends = {}
    for log in machine.stored | in_hand(machine):
        replica, directory, future = log
        end = known.get(log, 0 if future else known.get((replica, directory, True), 0))
        if end:
            ends[log] = end
    return replace(machine, ends=frozenset(ends.items()))


# NORMAL FORM


def normal(broker: Broker, timed: bool) -> Broker:
    """The broker in normal form: everything that depends on time reset, everything ordered (R-EXPLORE-2)."""
    life, queue = broker.life, broker.queue
    reported = {directory: is_reported and timed for directory, is_reported in life.offline}
    waits = queue.deadline is not None and bool(queue.ready)
    life = _with(
        life,
        previous_epoch=NO_EPOCH if life.registered else life.previous_epoch,
        next_communication=None if life.next_communication is None else FAR,
        registration_limit=None,
        failure_checks=_checks(life) if timed else (),
        overdue=life.overdue if timed else frozenset(),
        offline=tuple(sorted(reported.items())),
    )
    queue = _with(
        queue,
        ready=_plain(queue.ready, broker.life.rules),
        in_flight=_plain(queue.in_flight, broker.life.rules),
        failures=0,
        deadline=FAR if waits else None,
    )
    return _with(broker, life=life, queue=queue)


def _with(part: Part, **values: object) -> Part:
    """The part with these values: itself if it has them, because copies take a third of a search's time."""
    if all(getattr(part, name) == value for name, value in values.items()):
        return part
    copy: Part = replace(cast(Any, part), **values)
    return copy


def _checks(life: Lifecycle) -> tuple[tuple[int, Uuid], ...]:
    """The checks that may still end the process: those of unreported failures."""
    reported = dict(life.offline)
    return tuple(sorted((FAR, directory) for _, directory in life.failure_checks if not reported.get(directory)))


def _plain(waiting: Mapping[Replica, Assignment], rules: BrokerRules) -> dict[Replica, Assignment]:
    """Assignments without their time. ``untold`` is kept only if a move can be withdrawn (R-MOVE-10)."""
    return {
        replica: replace(
            each,
            submitted=NOW,
            untold=each.untold and rules.withdraws_queued_moves and each.reason is AssignmentReason.PROMOTION,
        )
        for replica, each in sorted(waiting.items())
    }


def in_hand(machine: Machine) -> frozenset[Log]:
    """The logs of the process on working disks."""
    if machine.broker is None:
        return frozenset()
    disks = machine.broker.replicas.disks
    logs = [(replica, where, False) for replica, where in disks.current.items()]
    logs += [(replica, where, True) for replica, where in disks.future.items()]
    return frozenset(log for log in logs if log[1] in machine.working)
