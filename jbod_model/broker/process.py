"""One running broker: its lifecycle, its queue of assignments and its replicas together (docs/spec/broker.md).

Sans-IO: each function takes the broker, an event and the time in milliseconds, and returns the next broker with the
requests to send. The caller delivers the requests to the controller and returns the answers.

Source: Kafka's ``BrokerServer``, ``BrokerMetadataPublisher``, ``AssignmentsManager``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from jbod_model.broker import assignments, lifecycle, replicas
from jbod_model.broker.assignments import Answer, Assignment, AssignmentQueue, AssignmentReason, GlobalFailure, Replica
from jbod_model.broker.lifecycle import BrokerSurroundings, Lifecycle, LifecycleState, Shutdown
from jbod_model.broker.replicas import ReplicaChange, Replicas, Report
from jbod_model.formats.requests import (
    AssignedDirectory,
    AssignedPartition,
    AssignedTopic,
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
)
from jbod_model.formats.responses import AssignReplicasToDirsResponse, BrokerHeartbeatResponse
from jbod_model.ids import Uuid

Action = BrokerRegistrationRequest | BrokerHeartbeatRequest | AssignReplicasToDirsRequest | Shutdown
Next = tuple["Broker", tuple[Action, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A broker's process.

    ``metadata_offset`` is the offset of the last image that it applied, ``registration_epoch`` its epoch in that image
    (-1 if none), ``assigned`` the directory of each of its replicas in that image.
    """

    life: Lifecycle
    replicas: Replicas
    queue: AssignmentQueue = field(default_factory=AssignmentQueue)
    metadata_offset: int = -1
    registration_epoch: int = -1
    assigned: Mapping[Replica, Uuid] = field(default_factory=dict)
    published: bool = False
    cordons_supported: bool = False
    """Whether the applied image has metadata.version 4.3-IV0 or later."""

    @property
    def running(self) -> bool:
        """Whether the process exists and has not ended."""
        return self.life.state not in (LifecycleState.NOT_RUNNING, LifecycleState.SHUTTING_DOWN)

    @property
    def timers(self) -> tuple[int, ...]:
        """The times at which something is due, ascending."""
        due = list(self.life.timers)
        if self.queue.deadline is not None:
            due.append(self.queue.deadline)
        overdue = _undelivered(self)
        if overdue is not None:
            due.append(overdue)
        return tuple(sorted(due))


def start(broker: Broker, now: int) -> Next:
    """Start the process: it registers."""
    life, actions = lifecycle.start(broker.life, now)
    return replace(broker, life=life), actions


def apply_metadata(
    broker: Broker,
    *,
    offset: int,
    changes: Iterable[ReplicaChange],
    deletes: Iterable[Replica],
    assigned: Mapping[Replica, Uuid],
    registration: tuple[int, tuple[Uuid, ...]] | None,
    registration_changed: bool,
    directories_supported: bool,
    now: int,
    cordons_supported: bool = False,
) -> Broker:
    """Apply an image up to ``offset`` (R-PROC-1): the changes to this broker's replicas, and its own registration.

    A process applies its first image as soon as it has read the log to its end, registered or not (R-PROC-4).

    ``assigned`` is the directory of every replica of the broker in the image, ``registration`` its epoch and
    directories there. ``registration_changed`` says whether the registration or the metadata.version changed.
    """
    state = broker.replicas
    if not broker.published:
        state = replicas.recover_future_logs(state, assigned)
    state, reports = replicas.apply_metadata(state, changes, deletes, directories_supported=directories_supported)
    life = broker.life
    registered = None if registration is None else registration[1]
    if registration_changed and lifecycle.needs_registration(registered, directories_supported):
        life = lifecycle.resend_registration(life, now)
    broker = replace(
        broker,
        life=life,
        replicas=state,
        metadata_offset=offset,
        registration_epoch=-1 if registration is None else registration[0],
        assigned=assigned,
        published=True,
        cordons_supported=cordons_supported,
    )
    return _ready_if_caught_up(_submit(broker, reports, now), now)


def fail_directory(broker: Broker, directory: Uuid, now: int) -> Next:
    """A directory fails (R-PROC-2): the process halts if it was the last one or the metadata directory."""
    disks = broker.replicas.disks
    if directory not in disks.online and directory != disks.metadata_dir:
        return broker, ()
    state, reports = replicas.fail_directory(broker.replicas, directory)
    broker = replace(broker, replicas=state)
    if not state.disks.online:
        return _halt(broker, "every log directory has failed")
    if broker.life.zookeeper:  # R-ZK-2
        return _halt(broker, f"directory {directory} has failed in ZooKeeper mode", halt=False)
    if directory == disks.metadata_dir:
        return _halt(broker, f"the metadata directory {directory} has failed")
    broker = _submit(broker, reports, now)
    return replace(broker, life=lifecycle.fail_directory(broker.life, directory, now)), ()


def cordon(broker: Broker, directories: Iterable[Uuid], now: int) -> Broker:
    """An operator sets ``cordoned.log.dirs`` (R-DISK-7, R-LIFE-11).

    Before metadata.version 4.3-IV0 a broker that has caught up does not report the change; its next process does.
    """
    listed = tuple(directory for directory in directories if directory in broker.life.log_dirs)
    disks = replace(broker.replicas.disks, cordoned=frozenset(listed))
    broker = replace(broker, replicas=replace(broker.replicas, disks=disks))
    if broker.cordons_supported:
        return replace(broker, life=lifecycle.cordon(broker.life, listed, now))
    if broker.life.state in (LifecycleState.NOT_RUNNING, LifecycleState.STARTING):
        return replace(broker, life=replace(broker.life, cordoned=listed))
    return broker


def alter_replica_log_dir(broker: Broker, replica: Replica, directory: Uuid, now: int) -> tuple[Broker, int]:
    """AlterReplicaLogDirs for one replica: the broker and the error code."""
    state, reports, error = replicas.alter_replica_log_dir(broker.replicas, replica, directory)
    return _submit(replace(broker, replicas=state), reports, now), error


def catch_up(broker: Broker, replica: Replica, now: int) -> Broker:
    """The future log of a moving replica has caught up."""
    state, reports = replicas.catch_up(broker.replicas, replica)
    return _submit(replace(broker, replicas=state), reports, now)


def begin_shutdown(broker: Broker, now: int) -> Next:
    """An operator stops the broker."""
    life, actions = lifecycle.begin_shutdown(broker.life, now)
    return replace(broker, life=life), actions


def tick(broker: Broker, now: int) -> Next:
    """Advance the clock to ``now``."""
    if not broker.running:
        return broker, ()
    limit = _undelivered(broker)
    if limit is not None and now >= limit:
        return _halt(broker, "an assignment into a failed directory could not be reported in time", halt=False)
    around = BrokerSurroundings(
        metadata_offset=broker.metadata_offset,
        pending_assignments=broker.queue.pending,
        leading_in=frozenset(broker.assigned[replica] for replica in broker.replicas.leading),
        cordons_supported=broker.cordons_supported,
    )
    life, actions = lifecycle.tick(broker.life, around, now)
    queue, batch = assignments.take_batch(broker.queue, broker.assigned.__contains__, now)
    broker = replace(broker, life=life, queue=queue)
    if batch and broker.running:
        return broker, (*actions, assignment_request(broker, batch))
    return broker, actions


def assignment_request(broker: Broker, batch: tuple[Assignment, ...]) -> AssignReplicasToDirsRequest:
    """A batch as a request, with the broker's epoch in the metadata (R-PROC-3)."""
    replicas_ = broker.replicas
    unnamed = frozenset() if broker.life.rules.names_failed_directories else replicas_.disks.failed
    directories = tuple(
        AssignedDirectory(
            id=replicas_.ids.lost if directory in unnamed else directory,  # R-DRAFT-3
            topics=tuple(
                AssignedTopic(topic_id=topic, partitions=tuple(AssignedPartition(partition_index=i) for i in indexes))
                for topic, indexes in topics
            ),
        )
        for directory, topics in assignments.group_by_directory(batch)
    )
    return AssignReplicasToDirsRequest(
        broker_id=broker.life.node_id, broker_epoch=broker.registration_epoch, directories=directories
    )


def answer_registration(broker: Broker, epoch: int | None, now: int) -> Broker:
    """The answer to a registration, None for an error."""
    return replace(broker, life=lifecycle.answer_registration(broker.life, epoch, now))


def answer_heartbeat(broker: Broker, response: BrokerHeartbeatResponse | None, now: int) -> Next:
    """The answer to a heartbeat, None for an error."""
    life, actions = lifecycle.answer_heartbeat(broker.life, response, now)
    return _ready_if_caught_up(replace(broker, life=life), now), actions


def answer_assignments(broker: Broker, response: AssignReplicasToDirsResponse | GlobalFailure, now: int) -> Broker:
    """The answer to an assignment request: moves whose promotion was accepted continue."""
    answer: Answer | GlobalFailure
    if isinstance(response, GlobalFailure):
        answer = response
    else:
        results = tuple(
            (Replica(topic.topic_id, partition.partition_index), partition.error_code)
            for directory in response.directories
            for topic in directory.topics
            for partition in topic.partitions
        )
        answer = Answer(response.error_code, results)
    queue, accepted = assignments.take_answer(broker.queue, answer, now)
    state = broker.replicas
    for assignment in accepted:
        if assignment.reason is AssignmentReason.PROMOTION:
            state = replicas.confirm(state, assignment.replica, assignment.directory)
    return replace(broker, queue=queue, replicas=state)


def _ready_if_caught_up(broker: Broker, now: int) -> Broker:
    """Once the controller considers it caught up and it has applied an image, the broker may be unfenced (R-LIFE-3)."""
    caught_up = broker.life.state not in (
        LifecycleState.NOT_RUNNING,
        LifecycleState.STARTING,
        LifecycleState.SHUTTING_DOWN,
    )
    if not caught_up or not broker.published or broker.life.ready_to_unfence:
        return broker
    return replace(broker, life=lifecycle.become_ready(broker.life, now))


def _submit(broker: Broker, reports: Iterable[Report], now: int) -> Broker:
    queue = broker.queue
    if broker.life.zookeeper and not broker.life.rules.reports_under_zookeeper:  # R-ZK-3
        return broker
    for report in reports:
        if report.reason is AssignmentReason.REVERT and broker.life.rules.withdraws_queued_moves:
            withdrawn = assignments.withdraw(queue, report.replica)
            if withdrawn is not None:
                queue = withdrawn
                continue
        queue = assignments.submit(queue, Assignment(report.replica, report.directory, now, report.reason), now)
    return replace(broker, queue=queue)


def _halt(broker: Broker, reason: str, *, halt: bool = True) -> Next:
    life = replace(
        broker.life,
        state=LifecycleState.SHUTTING_DOWN,
        next_communication=None,
        registration_limit=None,
        failure_checks=(),
    )
    queue = replace(broker.queue, deadline=None)
    return replace(broker, life=life, queue=queue), (Shutdown(reason, halt),)


def _undelivered(broker: Broker) -> int | None:
    """The deadline of the oldest waiting assignment into a failed directory, of a partition that the broker leads
    (R-LIFE-8)."""
    if not broker.life.rules.undelivered_assignments_count:
        return None
    failed = broker.replicas.disks.failed
    waiting = (*broker.queue.ready.values(), *broker.queue.in_flight.values())
    times = [
        assignment.submitted + broker.life.failure_timeout
        for assignment in waiting
        if assignment.directory in failed and assignment.replica in broker.replicas.leading
    ]
    return min(times, default=None)
