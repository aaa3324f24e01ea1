"""The controller as the explorer sees it: states by number, each request answered once per state (R-EXPLORE-2).

Epochs, offsets and incarnations grow without end and decide nothing here, since no request is late: they are set to
one value, so that states which differ only in them are one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from jbod_model.broker.assignments import Replica
from jbod_model.controller import Context, Controller
from jbod_model.controller.broker_requests import state_of
from jbod_model.controller.context import NEVER
from jbod_model.explore.invariants import Breach, Step, check_state, check_step
from jbod_model.formats.kafka_errors import ControllerFault, RequestRefused
from jbod_model.formats.records import BrokerRegistrationChangeRecord
from jbod_model.formats.requests import BrokerHeartbeatRequest, Request
from jbod_model.formats.responses import Response
from jbod_model.ids import Uuid
from jbod_model.profiles import Profile
from jbod_model.replay.image import BrokerRegistration, Image, Partition, Topic

OLD, NEW = Uuid(7, 1), Uuid(7, 2)
"""Incarnations: of every registered process, and of one that registers."""

View = tuple[tuple[Replica, Uuid, int, tuple[int, ...]], ...]
"""What a broker reads of its partitions: replica, its own directory, leader, in-sync set."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The state after a request, what the controller said, and the invariants that do not hold."""

    state: int
    response: Response | RequestRefused
    breaches: tuple[Breach, ...]
    records: tuple[str, ...]


class ControllerPart:
    """Every controller state that was met, by number, with what each request led to."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.images: list[Image] = []
        self._numbers: dict[object, int] = {}
        self._answers: dict[tuple[int, object], Answered] = {}
        self._views: dict[tuple[int, int], View] = {}
        self.breaches: list[tuple[Breach, ...]] = []

    def number(self, image: Image) -> int:
        """The number of a state."""
        key = _key(image)
        found = self._numbers.get(key)
        if found is None:
            found = len(self.images)
            self._numbers[key] = found
            self.images.append(_compact(image))
            self.breaches.append(check_state(image))
        return found

    def ask(self, state: int, key: object, request: Callable[[], Request]) -> Answered:
        """What the controller does with the request that ``key`` stands for."""
        found = self._answers.get((state, key))
        if found is None:
            found = self._handle(self.images[state], request())
            self._answers[state, key] = found
        return found

    def view(self, state: int, broker_id: int) -> View:
        """What the metadata says about a broker's replicas."""
        found = self._views.get((state, broker_id))
        if found is None:
            found = tuple(
                (Replica(topic_id, number), partition.directory(broker_id), partition.leader, partition.isr)
                for topic_id, topic in self.images[state].topics.items()
                for number, partition in topic.partitions.items()
                if broker_id in partition.replicas
            )
            self._views[state, broker_id] = found
        return found

    def _handle(self, image: Image, request: Request) -> Answered:
        broker_id = getattr(request, "broker_id", -1)
        registration = image.brokers.get(broker_id)
        context = Context(
            next_offset=broker_id,
            register_broker_record_offset=0,
            state=None if registration is None else state_of(registration),
            registered_log_dirs=_all_directories(image, broker_id),
            lowest_active_offset=NEVER,
            has_valid_session=False,
        )
        try:
            result = Controller(self.profile).handle(image, request, context)
        except ControllerFault as fault:
            return Answered(self.number(image), fault, (Breach(0, f"the controller fails: {fault.problem}"),), ())
        except RequestRefused as refused:
            step = Step(before=image, request=request, records=(), response=refused, after=image, profile=self.profile)
            return Answered(self.number(image), refused, check_step(step), ())
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
        records = tuple(_short(each.record) for each in result.records)
        return Answered(self.number(after), result.response, breaches, records)

    def _repeated(self, after: Image, request: Request, context: Context) -> tuple[Breach, ...]:
        """R-INV-19: a heartbeat that reports the same directories again does not change the registration again."""
        if not isinstance(request, BrokerHeartbeatRequest) or not request.offline_log_dirs:
            return ()
        again = replace(context, state=state_of(after.brokers[request.broker_id]))
        records = Controller(self.profile).handle(after, request, again).records
        if any(isinstance(each.record, BrokerRegistrationChangeRecord) and each.record.log_dirs for each in records):
            return (Breach(19, f"broker {request.broker_id}: the same report changes the registration again"),)
        return ()


def _all_directories(image: Image, broker_id: int) -> frozenset[Uuid]:
    """Every directory that the broker ever has: the explorer gives them ids by broker."""
    assigned = {d for topic in image.topics.values() for p in topic.partitions.values() for d in p.directories}
    registered = {d for broker in image.brokers.values() for d in broker.directories}
    return frozenset(Uuid(1000 + broker_id, 1000 + i) for i in range(8)) | assigned | registered


def _key(image: Image) -> object:
    brokers = tuple((b.broker_id, b.fenced, b.in_controlled_shutdown, b.directories) for b in image.brokers.values())
    partitions = tuple(
        (p.leader, p.isr, p.directories, p.eligible_leader_replicas, p.last_known_elr, p.leader_recovery_state)
        for topic in image.topics.values()
        for p in topic.partitions.values()
    )
    return tuple(sorted(brokers)), partitions


def _compact(image: Image) -> Image:
    """The same state with every epoch and incarnation at its one value, brokers in their order."""

    def broker(each: BrokerRegistration) -> BrokerRegistration:
        return replace(each, epoch=each.broker_id, incarnation_id=OLD)

    def partition(each: Partition) -> Partition:
        return replace(each, leader_epoch=0, partition_epoch=0)

    topics = {
        topic_id: Topic(
            name=topic.name, topic_id=topic_id, partitions={n: partition(p) for n, p in topic.partitions.items()}
        )
        for topic_id, topic in image.topics.items()
    }
    return replace(image, brokers={b: broker(image.brokers[b]) for b in sorted(image.brokers)}, topics=topics)


def _short(record: object) -> str:
    """A record for people: its type, and the fields that say something."""
    name = type(record).__name__
    fields = ("leader", "isr", "directories", "fenced", "log_dirs", "eligible_leader_replicas", "leader_recovery_state")
    silent: dict[str, object] = {"leader": -2, "isr": None, "directories": None, "fenced": 0, "log_dirs": ()}
    silent |= {"eligible_leader_replicas": None, "leader_recovery_state": -1}
    values = {field: getattr(record, field, silent[field]) for field in fields}
    return f"{name}({', '.join(f'{field}={value}' for field, value in values.items() if value != silent[field])})"
