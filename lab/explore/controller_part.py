"""The controller in a search: states have numbers, and each request is computed once per state (R-EXPLORE-2).

Epochs, offsets and incarnations grow without bound. Each is set to one value (:mod:`lab.explore.machine`), so
states that differ only in them count as one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from jbod_model.broker.assignments import Replica
from jbod_model.controller import Context, Controller
from jbod_model.controller.broker_requests import state_of
from jbod_model.controller.context import NEVER
from jbod_model.formats.records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    VersionedRecord,
)
from jbod_model.formats.requests import BrokerHeartbeatRequest, BrokerRegistrationRequest, Request
from jbod_model.formats.responses import ControllerFault, RequestRefused, Response
from jbod_model.ids import Uuid
from jbod_model.profiles import Profile
from jbod_model.replay.image import BrokerRegistration, Image, Partition, Topic
from lab.explore.invariants import Breach, Step, check_state, check_step
from lab.explore.machine import NEW, OLD, PRESENT, READ

Listed = Mapping[int, frozenset[Uuid] | None]
"""Broker -> the directories that its registered process listed; None if the controller cannot know (R-FAIL-4)."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """The image, and what a controller knows besides it."""

    image: Image
    listed: Listed = field(default_factory=dict)
    acknowledged: Mapping[Replica, int] = field(default_factory=dict)
    """The offset up to which the records of a partition were acknowledged. No process knows it; the invariants need
    it."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The result of a request: the state after it, the number of the answer, the broken invariants.

    ``changed`` are the partitions with a record. ``registered``: the requesting broker has a new registration.
    ``same_process``: this registration is of a process that was registered before.
    """

    state: int
    answer: int
    breaches: tuple[Breach, ...] = ()
    changed: frozenset[Replica] = frozenset()
    registered: bool = False
    same_process: bool = False


class ControllerPart:
    """Every controller state so far, by number, with the result of each request."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.images: list[Image] = []
        self.states: list[Metadata] = []
        self.breaches: list[tuple[Breach, ...]] = []
        self.requests: list[Request] = []
        self.answers: list[Response | RequestRefused] = []
        self._numbers: dict[object, int] = {}
        self._request_numbers: dict[Request, int] = {}
        self._answer_numbers: dict[object, int] = {}
        self._exchanges: dict[tuple[int, int], Answered] = {}
        self._aged: dict[tuple[int, int], int] = {}
        self._views: dict[tuple[int, int], int] = {}
        self._view_numbers: dict[object, int] = {}

    def number(
        self, image: Image, listed: Listed | None = None, acknowledged: Mapping[Replica, int] | None = None
    ) -> int:
        """The number of a state."""
        known = {b: each for b, each in (listed or {}).items() if each is not None}
        written = {} if acknowledged is None else acknowledged
        key = (
            _key(image),
            tuple((b, tuple(sorted(each))) for b, each in sorted(known.items())),
            tuple(sorted(written.items())),
        )
        state_number = self._numbers.get(key)
        if state_number is None:
            state_number = len(self.images)
            self._numbers[key] = state_number
            compact = _compact(image)
            self.images.append(compact)
            self.states.append(Metadata(compact, known, written))
            self.breaches.append(check_state(compact))
        return state_number

    def request(self, request: Request) -> int:
        """The number of a request."""
        request_number = self._request_numbers.get(request)
        if request_number is None:
            request_number = len(self.requests)
            self._request_numbers[request] = request_number
            self.requests.append(request)
        return request_number

    def ask(self, state: int, request: int) -> Answered:
        """The result of a request in a state."""
        exchange = self._exchanges.get((state, request))
        if exchange is None:
            exchange = self._handle(self.states[state], self.requests[request])
            self._exchanges[state, request] = exchange
        return exchange

    def view(self, state: int, broker_id: int) -> int:
        """The number of what a broker reads in a state: its partitions, whether others exist, its registration."""
        view_number = self._views.get((state, broker_id))
        if view_number is None:
            image = self.images[state]
            key = (
                broker_id,
                image.brokers[broker_id].directories if broker_id in image.brokers else None,
                tuple(
                    (topic_id, n, (p.directories, p.leader == broker_id) if broker_id in p.replicas else None)
                    for topic_id, topic in image.topics.items()
                    for n, p in topic.partitions.items()
                ),
            )
            view_number = self._view_numbers.setdefault(key, len(self._view_numbers))
            self._views[state, broker_id] = view_number
        return view_number

    def aged(self, state: int, broker_id: int) -> int:
        """The state after the registered process of a broker has ended."""
        aged_number = self._aged.get((state, broker_id))
        if aged_number is None:
            metadata = self.states[state]
            image = metadata.image
            gone = replace(image.brokers[broker_id], incarnation_id=OLD)
            image = replace(image, brokers={**image.brokers, broker_id: gone})
            listed = {b: each for b, each in metadata.listed.items() if b != broker_id}
            aged_number = self.number(image, listed, metadata.acknowledged)
            self._aged[state, broker_id] = aged_number
        return aged_number

    def forgotten(self, state: int) -> int:
        """The state of a new controller that has a snapshot and the log after it (R-FAIL-4)."""
        metadata = self.states[state]
        return self.number(metadata.image, {}, metadata.acknowledged)

    def acknowledged(self, state: int, replica: Replica, end: int) -> int:
        """The state after the records of a partition were acknowledged up to ``end``."""
        metadata = self.states[state]
        most = max(end, metadata.acknowledged.get(replica, 0))
        return self.number(metadata.image, metadata.listed, {**metadata.acknowledged, replica: most})

    def _handle(self, metadata: Metadata, request: Request) -> Answered:
        image = metadata.image
        broker_id = getattr(request, "broker_id", -1)
        registration = image.brokers.get(broker_id)
        context = Context(
            next_offset=broker_id,
            register_broker_record_offset=READ,
            state=None if registration is None else state_of(registration),
            registered_log_dirs=metadata.listed.get(broker_id),
            lowest_active_offset=NEVER,
            has_valid_session=registration is not None and not registration.fenced,
        )
        before = self.number(image, metadata.listed, metadata.acknowledged)
        try:
            result = Controller(self.profile).handle(image, request, context)
        except ControllerFault as fault:
            return Answered(before, self._answer(fault), (Breach(0, f"the controller fails: {fault.problem}"),))
        except RequestRefused as refused:
            step = Step(before=image, request=request, records=(), response=refused, after=image, profile=self.profile)
            return Answered(before, self._answer(refused), check_step(step))
        after = image
        for each in result.records:
            after = after.apply(each.record, 0, profile=self.profile)
        step = Step(
            before=image,
            request=request,
            records=result.records,
            response=result.response,
            after=after,
            profile=self.profile,
        )
        breaches = check_step(step) + self._repeated(after, request, context)
        listed = dict(metadata.listed)
        registered = isinstance(request, BrokerRegistrationRequest) and any(
            isinstance(each.record, RegisterBrokerRecord) for each in result.records
        )
        if registered and isinstance(request, BrokerRegistrationRequest):
            listed[broker_id] = frozenset(request.log_dirs)
        kept = {r: end for r, end in metadata.acknowledged.items() if r.topic_id in after.topics}
        return Answered(
            self.number(after, listed, kept),
            self._answer(result.response),
            breaches,
            _changed(result.records),
            registered,
            registration is not None and registration.incarnation_id == NEW,
        )

    def _answer(self, answer: Response | RequestRefused) -> int:
        key: object = (RequestRefused, answer.code) if isinstance(answer, RequestRefused) else answer
        answer_number = self._answer_numbers.get(key)
        if answer_number is None:
            answer_number = len(self.answers)
            self._answer_numbers[key] = answer_number
            self.answers.append(answer)
        return answer_number

    def _repeated(self, after: Image, request: Request, context: Context) -> tuple[Breach, ...]:
        """R-INV-19: a heartbeat that repeats a report of failed directories does not change the registration again."""
        if not isinstance(request, BrokerHeartbeatRequest) or not request.offline_log_dirs:
            return ()
        again = replace(context, state=state_of(after.brokers[request.broker_id]))
        records = Controller(self.profile).handle(after, request, again).records
        if any(isinstance(each.record, BrokerRegistrationChangeRecord) and each.record.log_dirs for each in records):
            return (Breach(19, f"broker {request.broker_id}: the same report changes the registration again"),)
        return ()


def _changed(records: tuple[VersionedRecord, ...]) -> frozenset[Replica]:
    """The partitions that records changed."""
    return frozenset(
        Replica(each.record.topic_id, each.record.partition_id)
        for each in records
        if isinstance(each.record, (PartitionRecord, PartitionChangeRecord))
    )


def _key(image: Image) -> object:
    brokers = tuple(
        (b.broker_id, b.fenced, b.in_controlled_shutdown, b.directories, b.incarnation_id)
        for _, b in sorted(image.brokers.items())
    )
    partitions = tuple(
        (
            (topic_id, number, p.replicas, p.leader, p.isr, p.directories, p.leader_recovery_state),
            (p.eligible_leader_replicas, p.last_known_elr, p.adding_replicas, p.removing_replicas),
        )
        for topic_id, topic in image.topics.items()
        for number, p in topic.partitions.items()
    )
    return brokers, partitions


def _compact(image: Image) -> Image:
    """The same state with every epoch at its one value, and brokers in order."""

    def broker(each: BrokerRegistration) -> BrokerRegistration:
        return replace(each, epoch=each.broker_id)

    def partition(each: Partition) -> Partition:
        return replace(each, leader_epoch=0, partition_epoch=PRESENT)

    topics = {
        topic_id: Topic(
            name=topic.name, topic_id=topic_id, partitions={n: partition(p) for n, p in topic.partitions.items()}
        )
        for topic_id, topic in image.topics.items()
    }
    return replace(image, brokers={b: broker(image.brokers[b]) for b in sorted(image.brokers)}, topics=topics)
