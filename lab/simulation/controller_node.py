"""The active controller of a simulated cluster: the pure controller, its log, and its state from heartbeats (R-SIM-2).

Source: Kafka's ``QuorumController``, ``BrokerHeartbeatManager``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from jbod_model.controller import Context, Controller, ControllerMemory, Result
from jbod_model.controller.broker_requests import state_of
from jbod_model.controller.context import NEVER, Authorizer
from jbod_model.formats.records import (
    AccessControlEntryRecord,
    Record,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    VersionedRecord,
)
from jbod_model.formats.requests import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    CreateTopicsRequest,
    Request,
    SessionExpired,
)
from jbod_model.formats.responses import BrokerHeartbeatResponse, RequestRefused, Response
from jbod_model.ids import KAFKA_IDS, IdTable, Uuid
from jbod_model.java import JavaRandom
from jbod_model.profiles import Profile
from jbod_model.replay.image import Image

SESSION_TIMEOUT_MS = 9_000
NODE_ID = 100


def principal_of(node_id: int) -> str:
    """The principal of a broker (R-SIM-11)."""
    return f"User:broker-{node_id}"


@dataclass(frozen=True, slots=True)
class Batch:
    """Records that were committed together; ``end_offset`` is the offset after the last one."""

    base_offset: int
    epoch: int
    time_ms: int
    records: tuple[VersionedRecord, ...]

    @property
    def end_offset(self) -> int:
        """The offset of what comes next."""
        return self.base_offset + len(self.records)


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """The control record with which a new controller begins its epoch. It takes an offset and changes nothing."""

    base_offset: int
    epoch: int
    time_ms: int

    @property
    def end_offset(self) -> int:
        """The offset of what comes next."""
        return self.base_offset + 1


@dataclass(slots=True)
class _Heard:
    """The facts from the heartbeats of one broker process."""

    epoch: int
    last_contact: int
    register_offset: int
    directories: frozenset[Uuid] | None
    metadata_offset: int = -1
    shutdown_offset: int = -1


@dataclass(slots=True)
class ControllerNode:
    """The controller with its log. The epoch is the number of controllers so far.

    ``authorizes``: an authorizer is configured. Its ``entries`` are those in the log (R-SIM-11).
    """

    profile: Profile
    cluster_id: str
    random_state: int
    epoch: int = 0
    image: Image = field(default_factory=Image)
    next_offset: int = 0
    log: list[Batch | LeaderChange] = field(default_factory=list)
    memory: ControllerMemory = field(default_factory=ControllerMemory)
    heard: dict[int, _Heard] = field(default_factory=dict)
    authorizes: bool = False
    entries: dict[Uuid, AccessControlEntryRecord] = field(default_factory=dict)

    @classmethod
    def create(cls, profile: Profile, cluster_id: str, seed: int, ids: IdTable = KAFKA_IDS) -> ControllerNode:
        """A controller with an empty log. The reserved ids are Kafka's by default (R-SIM-10)."""
        node = cls(deciding(profile), cluster_id, JavaRandom(seed).state, image=Image(ids=ids))
        node.fail_over(0)
        return node

    def handle(self, request: Request, now: int, new_topic_ids: tuple[Uuid, ...] = ()) -> Response | RequestRefused:
        """Answer the request and commit its records, or return the error."""
        broker_id = getattr(request, "broker_id", None)
        try:
            result = Controller(self.profile).handle(self.image, request, self._context(request, now, new_topic_ids))
        except RequestRefused as refused:
            return refused
        base = self.next_offset
        if result.records:
            self.append(result.records, now)
        if result.random_state is not None:
            self.random_state = result.random_state
        if broker_id is not None:
            self._hear(request, result, base, now)
        return result.response

    def append(self, records: tuple[VersionedRecord, ...], now: int) -> None:
        """Commit records as one batch."""
        batch = Batch(self.next_offset, self.epoch, now, records)
        for offset, versioned in enumerate(records, self.next_offset):
            self.memory.before(versioned.record, self.image)
            self.image = self.image.apply(versioned.record, offset, profile=self.profile)
            self._note_permission(versioned.record)
        self.next_offset = batch.end_offset
        self.log.append(batch)

    def _note_permission(self, record: Record) -> None:
        if isinstance(record, AccessControlEntryRecord):
            self.entries[record.id] = record
        elif isinstance(record, RemoveAccessControlEntryRecord):
            del self.entries[record.id]

    def may_act_as_broker(self, node_id: int) -> bool:
        """Whether a broker may send its requests and read the metadata."""
        return not self.authorizes or self._authorizer().may_act_as_broker(principal_of(node_id))

    def _authorizer(self) -> Authorizer:
        return Authorizer(entries=tuple(self.entries.values()))

    def expire_sessions(self, now: int) -> None:
        """Fence one unfenced broker whose session expired."""
        for broker_id, registration in self.image.brokers.items():
            if not registration.fenced and not self._has_session(broker_id, now):
                self.handle(SessionExpired(broker_id=broker_id), now)
                return

    def fail_over(self, now: int, *, from_snapshot: bool = False) -> None:
        """Another controller takes over with only the log: a new epoch begins, and so does every session.

        The controller reads in the log which directories a process registered. With ``from_snapshot`` its log begins
        with a snapshot, whose registrations list only online directories (R-FAIL-4).
        """
        self.epoch += 1
        change = LeaderChange(self.next_offset, self.epoch, now)
        self.log.append(change)
        self.next_offset = change.end_offset
        self.heard = {
            record.broker_id: _Heard(
                record.broker_epoch, now, offset, None if from_snapshot else frozenset(record.log_dirs)
            )
            for offset, record in self._registrations()
            if record.broker_id in self.image.brokers
        }

    def _registrations(self) -> Iterator[tuple[int, RegisterBrokerRecord]]:
        """Offset and record of every registration, in the order of the log."""
        for batch in self.log:
            if isinstance(batch, Batch):
                for offset, versioned in enumerate(batch.records, batch.base_offset):
                    if isinstance(versioned.record, RegisterBrokerRecord):
                        yield offset, versioned.record

    def hear_of(self, broker_id: int, now: int) -> None:
        """Note that a broker is alive that this model does not run: a ZooKeeper broker during a migration."""
        registration = self.image.brokers[broker_id]
        self.heard[broker_id] = _Heard(registration.epoch, now, -1, frozenset(registration.directories))

    def _has_session(self, broker_id: int, now: int) -> bool:
        known = self.heard.get(broker_id)
        return known is not None and now - known.last_contact < SESSION_TIMEOUT_MS

    def _context(self, request: Request, now: int, new_topic_ids: tuple[Uuid, ...]) -> Context:
        context = Context(
            next_offset=self.next_offset,
            cluster_id=self.cluster_id,
            controller_id=NODE_ID,
            memory=self.memory,
            random_state=self.random_state,
            new_topic_ids=new_topic_ids if isinstance(request, CreateTopicsRequest) else (),
        )
        broker_id = getattr(request, "broker_id", None)
        if self.authorizes and broker_id is not None:
            context = replace(context, principal=principal_of(broker_id), authorizer=self._authorizer())
        known = self.heard.get(broker_id) if broker_id is not None else None
        registration = self.image.brokers.get(broker_id) if broker_id is not None else None
        if known is None or registration is None or broker_id is None:
            return context
        return replace(
            context,
            has_valid_session=self._has_session(broker_id, now),
            register_broker_record_offset=known.register_offset,
            registered_log_dirs=known.directories,
            state=state_of(registration),
            controlled_shutdown_offset=known.shutdown_offset,
            lowest_active_offset=self._lowest_active_offset(),
        )

    def _lowest_active_offset(self) -> int:
        active = [
            self.heard[broker_id].metadata_offset
            for broker_id, registration in self.image.brokers.items()
            if not registration.fenced and not registration.in_controlled_shutdown and broker_id in self.heard
        ]
        return min(active, default=NEVER)

    def _hear(self, request: Request, result: Result, base: int, now: int) -> None:
        if isinstance(request, BrokerRegistrationRequest):
            offset = next(
                base + i for i, each in enumerate(result.records) if isinstance(each.record, RegisterBrokerRecord)
            )
            epoch = self.image.brokers[request.broker_id].epoch
            self.heard[request.broker_id] = _Heard(epoch, now, offset, frozenset(request.log_dirs))
        elif isinstance(request, BrokerHeartbeatRequest) and isinstance(result.response, BrokerHeartbeatResponse):
            known = self.heard[request.broker_id]
            known.last_contact = now
            known.metadata_offset = request.current_metadata_offset
            if result.response.in_controlled_shutdown and result.records:
                known.shutdown_offset = self.next_offset - 1


def deciding(profile: Profile) -> Profile:
    """The profile with the rule by which a controller, not a client, considers a directory offline (R-SIM-7).

    The KIP has two rules. By "Metadata caching" a replica in an unlisted directory is online if its broker lists only
    one directory. By "Handling replica assignments" the controller considers it offline if the directory is not among
    the broker's online ones. The first rule is for clients. A controller that used it in elections would leave leaders
    on a dead disk once only one disk is left: ``python -m lab explore --literal`` shows how.
    """
    return replace(profile, offline_rule="kafka")
