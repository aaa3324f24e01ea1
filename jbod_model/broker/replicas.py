"""The replicas of a broker: they follow the metadata, move between disks and lose disks (docs/spec/broker.md).

Theory of operation. Three facts decide what a broker does with a replica that the metadata assigns to it: what the
metadata says about the replica's directory (:class:`Target`), which logs of the replica the broker has
(:class:`Holding`), and whether a directory of the broker is offline, since a missing log may lie there.
:data:`DECISIONS` has every case. Where the KIP's text and Kafka differ, :data:`DIFFERENCES` has the KIP's answer. A
broker with one directory is no special case (R-DECIDE-13).

Every function on :class:`Replicas` takes the state and returns the next one, with the reports for the queue of
assignments in the order in which Kafka queues them. `local_changes` has the effect of a metadata change on one broker
(docs/spec/simulation.md).

Source: KIP-858 "Replica management", "Intra-broker replica movement"; Kafka's ``ReplicaManager``, ``Partition``,
``ReplicaAlterLogDirsThread``, ``LogManager``, ``TopicDelta.localChanges``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from jbod_model.broker import disks as storage
from jbod_model.broker.assignments import AssignmentReason, Replica
from jbod_model.broker.disks import Disks, Effect, MoveEvent, MoveState, ReplicaMove, advance
from jbod_model.ids import KAFKA_IDS, IdTable, Uuid
from jbod_model.profiles import KAFKA_BROKER, BrokerRules
from jbod_model.replay.image import Image, Partition


class Target(Enum):
    """What the metadata says about the directory of the broker's replica."""

    ONLINE = "an online directory of this broker"
    UNASSIGNED = "none yet"
    MIGRATING = "some, from before assignments"
    UNKNOWN = "lost, or an id that is not online here"
    SAME = "nothing new: the change was about something else"


class Holding(Enum):
    """The logs of the replica in the broker's online directories."""

    NOTHING = "no log"
    IN_TARGET = "the log, in the assigned directory"
    ELSEWHERE = "the log, in another directory"
    FUTURE_IN_TARGET = "the log in another directory, and a future log in the assigned one"


class ReplicaStep(Enum):
    """What happens to the replica's log."""

    KEEP = "use the log that is there"
    CREATE_THERE = "create the log in the assigned directory"
    CREATE_CHOSEN = "choose a directory and create the log there"
    SKIP = "create nothing: the log may lie in a directory that is offline"
    PROMOTE = "let the future log take the place of the current one when it has caught up"


@dataclass(frozen=True, slots=True)
class ReplicaDecision:
    """The step, and whether the broker then reports the log's directory to the controller."""

    step: ReplicaStep
    report: bool
    rule: str


def _rows() -> dict[tuple[Target, Holding, bool], ReplicaDecision]:
    keep, create, choose = ReplicaStep.KEEP, ReplicaStep.CREATE_THERE, ReplicaStep.CREATE_CHOSEN
    table: dict[tuple[Target, Holding, bool], ReplicaDecision] = {}
    for offline in (False, True):
        table |= {
            # The assigned directory is online: the log is created there, or is used there, or the metadata is
            # corrected.
            (Target.ONLINE, Holding.NOTHING, offline): ReplicaDecision(create, False, "R-DECIDE-1"),
            (Target.ONLINE, Holding.IN_TARGET, offline): ReplicaDecision(keep, False, "R-DECIDE-2"),
            (Target.ONLINE, Holding.ELSEWHERE, offline): ReplicaDecision(keep, True, "R-DECIDE-3"),
            (Target.ONLINE, Holding.FUTURE_IN_TARGET, offline): ReplicaDecision(keep, True, "R-DECIDE-4"),
            # No directory was assigned yet: a new replica, created even while a directory is offline.
            (Target.UNASSIGNED, Holding.NOTHING, offline): ReplicaDecision(choose, True, "R-DECIDE-5"),
            (Target.UNASSIGNED, Holding.ELSEWHERE, offline): ReplicaDecision(keep, True, "R-DECIDE-6"),
            # Assigned before directories were recorded: the broker reports the log's directory.
            (Target.MIGRATING, Holding.ELSEWHERE, offline): ReplicaDecision(keep, True, "R-DECIDE-7"),
            # Lost or unknown, but the broker has the log: its directory counts.
            (Target.UNKNOWN, Holding.ELSEWHERE, offline): ReplicaDecision(keep, True, "R-DECIDE-9"),
            # The change was not about the directory: there is nothing to compare or to report.
            (Target.SAME, Holding.NOTHING, offline): ReplicaDecision(choose, False, "R-DECIDE-11"),
            (Target.SAME, Holding.ELSEWHERE, offline): ReplicaDecision(keep, False, "R-DECIDE-12"),
        }
    # No log, and the assignment may mean an offline directory: the log is created again only if no directory is
    # offline.
    table |= {
        (Target.MIGRATING, Holding.NOTHING, False): ReplicaDecision(choose, True, "R-DECIDE-8"),
        (Target.MIGRATING, Holding.NOTHING, True): ReplicaDecision(ReplicaStep.SKIP, False, "R-DECIDE-8"),
        (Target.UNKNOWN, Holding.NOTHING, False): ReplicaDecision(choose, True, "R-DECIDE-10"),
        (Target.UNKNOWN, Holding.NOTHING, True): ReplicaDecision(ReplicaStep.SKIP, False, "R-DECIDE-10"),
    }
    return table


DECISIONS = _rows()

# By the KIP's text a future replica in the assigned directory is promoted once it has caught up, at any time. Kafka
# does so only at start (R-DECIDE-4). While running it corrects the metadata to the current directory.
DIFFERENCES: dict[tuple[Target, Holding, bool], ReplicaDecision] = {
    (Target.ONLINE, Holding.FUTURE_IN_TARGET, offline): ReplicaDecision(ReplicaStep.PROMOTE, False, "R-DECIDE-4")
    for offline in (False, True)
}


def classify_target(directory: Uuid | None, online: Collection[Uuid], ids: IdTable) -> Target:
    """What an assignment means to a broker with the directories ``online``; None for a change without one."""
    if directory is None:
        return Target.SAME
    if directory in online:
        return Target.ONLINE
    if directory == ids.unassigned:
        return Target.UNASSIGNED
    if directory == ids.migrating:
        return Target.MIGRATING
    return Target.UNKNOWN


def classify_holding(directory: Uuid | None, current: Uuid | None, future: Uuid | None) -> Holding:
    """The broker's logs of a replica, from the directories of the current and the future log (None for no log)."""
    if current is None:
        return Holding.NOTHING
    if directory == current:
        return Holding.IN_TARGET
    if directory is not None and directory == future:
        return Holding.FUTURE_IN_TARGET
    return Holding.ELSEWHERE


def decide(target: Target, holding: Holding, has_offline: bool, rules: BrokerRules) -> ReplicaDecision:
    """The row of the table; ``has_offline`` says whether any configured directory of the broker is offline."""
    key = (target, holding, has_offline)
    if not rules.promote_future_at_start and key in DIFFERENCES:
        return DIFFERENCES[key]
    return DECISIONS[key]


# Error codes of AlterReplicaLogDirs.
NONE = 0
REPLICA_NOT_AVAILABLE = 9
INVALID_REPLICA_ASSIGNMENT = 39
KAFKA_STORAGE_ERROR = 56
LOG_DIR_NOT_FOUND = 57


class Hosted(Enum):
    """How the broker hosts a replica. Unknown replicas are not in the map."""

    ONLINE = "online"
    WITHOUT_LOG = "online, but its log was not created"
    OFFLINE = "its log lies in a directory that failed"


@dataclass(frozen=True, slots=True)
class ReplicaChange:
    """One partition of a metadata change that this broker hosts.

    ``directory`` is the replica's directory if the change lists it (the partition is new to the reader, or its
    directories changed), else None. ``leads`` says whether the broker is the leader now.
    """

    replica: Replica
    leads: bool
    directory: Uuid | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """A replica's directory, for the queue."""

    replica: Replica
    directory: Uuid
    reason: AssignmentReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """The replicas that the broker hosts, those that it moves, and those that it leads."""

    disks: Disks
    hosted: Mapping[Replica, Hosted] = field(default_factory=dict)
    moves: Mapping[Replica, ReplicaMove] = field(default_factory=dict)
    leading: frozenset[Replica] = frozenset()
    rules: BrokerRules = KAFKA_BROKER
    ids: IdTable = KAFKA_IDS


Result = tuple[Replicas, tuple[Report, ...]]


def recover_future_logs(state: Replicas, assigned: Mapping[Replica, Uuid]) -> Replicas:
    """At start: promote future logs whose directory the metadata already names (R-MOVE-9).

    Kafka replaces the current log at once. By the KIP the future log first catches up (R-DECIDE-4). Without a current
    log there is nothing to catch up with.
    """
    for replica, directory in state.disks.future.items():
        if assigned.get(replica) != directory:
            continue
        if state.rules.promote_future_at_start or replica not in state.disks.current:
            state = replace(state, disks=storage.promote_future_log(state.disks, replica))
    return state


def apply_metadata(
    state: Replicas,
    changes: Iterable[ReplicaChange],
    deletes: Iterable[Replica] = (),
    *,
    directories_supported: bool = True,
) -> Result:
    """Follow a change of the metadata (R-HOST-1): delete, create, restart copying, then report the differences.

    Reports are queued only where the metadata version has directories (R-HOST-2).
    """
    changes = tuple(changes)
    reports: list[Report] = []
    for replica in deletes:
        state, reverted = _delete(state, replica)
        reports += reverted
    changed = []
    for change in sorted(changes, key=lambda change: not change.leads):
        leading = state.leading | {change.replica} if change.leads else state.leading - {change.replica}
        state = replace(state, leading=leading)
        if state.hosted.get(change.replica) is Hosted.OFFLINE:
            continue  # R-HOST-3: a replica in a failed directory stays as it is until the broker restarts.
        state = _follow(state, change)
        if state.hosted[change.replica] is Hosted.ONLINE:
            changed.append(change.replica)
    for replica in changed:
        state = _restart_copying(state, replica)
    if directories_supported:
        reports += _corrections(state, changes)
    return state, tuple(reports)


def fail_directory(state: Replicas, directory: Uuid) -> Result:
    """A directory fails (R-HOST-4): its replicas go offline, moves from and to it end, its future logs are dropped."""
    hit = [replica for replica, where in state.disks.current.items() if where == directory]
    futures = [replica for replica, where in state.disks.future.items() if where == directory]
    reports: list[Report] = []
    for replica in dict.fromkeys([*hit, *futures]):
        state, reverted = _end_move(state, replica, source_failed=replica in hit)
        reports += reverted
    hosted = {**state.hosted, **{replica: Hosted.OFFLINE for replica in hit if replica in state.hosted}}
    return replace(state, disks=storage.fail(state.disks, directory), hosted=hosted), tuple(reports)


def alter_replica_log_dir(
    state: Replicas, replica: Replica, directory: Uuid
) -> tuple[Replicas, tuple[Report, ...], int]:
    """AlterReplicaLogDirs for one replica (R-HOST-5, R-HOST-9): the next state, reports, and the error code.

    A request for another directory than that of the present move ends that move first. A request for the replica's own
    directory cancels it. For a replica that the broker does not host yet, the directory is remembered and the answer
    is an error. A cordoned directory is refused before anything else, so naming it cannot cancel a move away from it.
    """
    disks = state.disks
    if directory not in disks.configured:
        return state, (), LOG_DIR_NOT_FOUND
    if directory in disks.failed:
        return state, (), KAFKA_STORAGE_ERROR
    if directory in disks.cordoned:
        return state, (), INVALID_REPLICA_ASSIGNMENT
    if state.hosted.get(replica) is Hosted.OFFLINE:
        return state, (), KAFKA_STORAGE_ERROR
    reports: tuple[Report, ...] = ()
    if replica in state.hosted and disks.future.get(replica, directory) != directory:
        state, reports = _end_move(state, replica)
        state = replace(state, disks=storage.drop_future_log(state.disks, replica))
    disks = state.disks
    if directory not in (disks.current.get(replica), disks.future.get(replica)):
        state = replace(state, disks=replace(disks, preferred={**disks.preferred, replica: directory}))
    if state.hosted.get(replica) is not Hosted.ONLINE:
        return state, reports, REPLICA_NOT_AVAILABLE
    if disks.current[replica] == directory or replica in disks.future:
        return state, reports, NONE
    try:
        state = replace(state, disks=storage.create_future_log(state.disks, replica, directory))
    except storage.OfflineDirectories:
        return state, reports, KAFKA_STORAGE_ERROR
    move = ReplicaMove(disks.current[replica], directory)
    return replace(state, moves={**state.moves, replica: move}), reports, NONE


def catch_up(state: Replicas, replica: Replica) -> Result:
    """The future log of a move has everything that the current one has (R-MOVE-1, R-MOVE-2, R-MOVE-3)."""
    move, effects = advance(state.moves[replica], MoveEvent.CAUGHT_UP)
    state = replace(state, moves={**state.moves, replica: move})
    if Effect.REPORT_TARGET in effects:
        return state, (Report(replica, move.target, AssignmentReason.PROMOTION),)
    if Effect.SWAP in effects:
        state = replace(state, disks=storage.promote_future_log(state.disks, replica))
        return _end_move(state, replica)
    return state, ()


def confirm(state: Replicas, replica: Replica, directory: Uuid) -> Replicas:
    """The controller accepted ``directory`` as the target of a move (R-MOVE-8).

    A move that has ended is not restored. If another move has replaced it, Kafka takes the confirmation for the new
    move; by the KIP's text the confirmation does not concern it.
    """
    if replica not in state.moves:
        return state
    if state.moves[replica].target != directory and not state.rules.confirms_any_move:
        return state
    move, _ = advance(state.moves[replica], MoveEvent.CONFIRMED)
    return replace(state, moves={**state.moves, replica: move})


def _follow(state: Replicas, change: ReplicaChange) -> Replicas:
    """Host the replica as the table of decisions says: use its log, create it, or leave it uncreated."""
    replica = change.replica
    disks = state.disks
    target = classify_target(change.directory, disks.online, state.ids)
    holding = classify_holding(change.directory, disks.current.get(replica), disks.future.get(replica))
    step = decide(target, holding, disks.has_offline, state.rules).step
    hosted = Hosted.ONLINE
    if step in (ReplicaStep.CREATE_THERE, ReplicaStep.CREATE_CHOSEN):
        try:
            disks = storage.create_log(disks, replica, change.directory, is_new=replica not in state.hosted)
        except (storage.OfflineDirectories, storage.NoDirectoryAvailable):
            hosted = Hosted.OFFLINE  # R-HOST-6
    elif step is ReplicaStep.SKIP:
        hosted = Hosted.WITHOUT_LOG  # R-HOST-7
    moves = state.moves
    if step is ReplicaStep.PROMOTE and change.directory is not None and replica not in moves:
        moves = {**moves, replica: ReplicaMove(disks.current[replica], change.directory, MoveState.ACCEPTED)}
    return replace(state, disks=disks, moves=moves, hosted={**state.hosted, replica: hosted})


def _restart_copying(state: Replicas, replica: Replica) -> Replicas:
    """Copying to a future log continues after a change of the partition (R-MOVE-7).

    Kafka adds the partition to the copying thread again, which restarts its move; by the KIP's text a move in progress
    continues.
    """
    future = state.disks.future.get(replica)
    if future is None:
        return state
    if replica in state.moves and not state.rules.promote_future_at_start:
        return state
    move = ReplicaMove(state.disks.current[replica], future)
    return replace(state, moves={**state.moves, replica: move})


def _corrections(state: Replicas, changes: Iterable[ReplicaChange]) -> list[Report]:
    """Reports for replicas whose log is not in the directory that the change says (R-HOST-8)."""
    reports = []
    for change in changes:
        actual = state.disks.current.get(change.replica)
        if change.directory is None or actual is None or actual == change.directory:
            continue
        if change.directory == state.ids.unassigned and not _reports_unassigned(state):
            continue
        move = state.moves.get(change.replica)
        if move is not None and move.target == change.directory and not state.rules.promote_future_at_start:
            continue  # By the KIP the move completes, or reports the original directory.
        reports.append(Report(change.replica, actual, AssignmentReason.METADATA))
    return reports


def _reports_unassigned(state: Replicas) -> bool:
    """Whether the broker reports an unassigned replica: by the drafts not if it has one directory (R-DRAFT-4)."""
    return state.rules.reports_single_directory or len(state.disks.configured) + state.disks.unreadable > 1


def _delete(state: Replicas, replica: Replica) -> Result:
    state, reports = _end_move(state, replica)
    hosted = {key: value for key, value in state.hosted.items() if key != replica}
    disks = storage.delete_logs(state.disks, replica)
    return replace(state, disks=disks, hosted=hosted, leading=state.leading - {replica}), reports


def _end_move(state: Replicas, replica: Replica, *, source_failed: bool = False) -> Result:
    """Remove a move; if the controller may know the new directory, report the original one (R-MOVE-4)."""
    if replica not in state.moves:
        return state, ()
    move, effects = advance(state.moves[replica], MoveEvent.ENDED)
    state = replace(state, moves={key: value for key, value in state.moves.items() if key != replica})
    if Effect.REPORT_ORIGINAL not in effects:
        return state, ()
    lost = source_failed and state.rules.source_failure_assigns_lost
    return state, (Report(replica, state.ids.lost if lost else move.original, AssignmentReason.REVERT),)


def local_changes(
    before: Image, after: Image, broker_id: int, rules: BrokerRules = KAFKA_BROKER
) -> tuple[tuple[ReplicaChange, ...], tuple[Replica, ...]]:
    """The broker's replicas that changed between two images, and those that it no longer has.

    A replica changed if it is new or its partition has another epoch (R-LOCAL-1). The change lists its directory if
    the partition is new (so the first image after a start lists all directories), or if any replica of the partition
    was assigned to another directory (R-LOCAL-2): Kafka compares objects, and a change of one directory creates new
    objects for all. Kafka does not list it if the broker joins an existing partition (R-LOCAL-4). A replica is removed
    with its topic, or when the partition's replicas no longer name the broker (R-LOCAL-3).
    """
    changes = []
    deletes = []
    for topic_id, topic in after.topics.items():
        old = before.topics.get(topic_id)
        if old is topic:
            continue
        for number, partition in topic.partitions.items():
            replica = Replica(topic_id, number)
            previous = None if old is None else old.partitions.get(number)
            if broker_id in partition.replicas:
                change = _change(replica, previous, partition, broker_id, rules)
                if change is not None:
                    changes.append(change)
            elif previous is not None and broker_id in previous.replicas:
                deletes.append(replica)
    for topic_id, topic in before.topics.items():
        if topic_id not in after.topics:
            there = topic.partitions.items()
            deletes += [Replica(topic_id, number) for number, partition in there if broker_id in partition.replicas]
    return tuple(changes), tuple(deletes)


def assigned_directories(image: Image, broker_id: int) -> Mapping[Replica, Uuid]:
    """The directory of every replica that the image gives to the broker."""
    return {
        Replica(topic_id, number): partition.directory(broker_id)
        for topic_id, topic in image.topics.items()
        for number, partition in topic.partitions.items()
        if broker_id in partition.replicas
    }


def _change(
    replica: Replica, before: Partition | None, after: Partition, broker_id: int, rules: BrokerRules
) -> ReplicaChange | None:
    leads = after.leader == broker_id
    directory = after.directory(broker_id)
    if before is None:
        return ReplicaChange(replica, leads, directory)
    if before.partition_epoch == after.partition_epoch:
        return None
    if broker_id not in before.replicas:
        return ReplicaChange(replica, leads, None if rules.overlooks_added_replicas else directory)
    return ReplicaChange(replica, leads, None if before.directories == after.directories else directory)
