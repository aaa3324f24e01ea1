"""What can happen in a small cluster, step by step (R-EXPLORE-1): one controller, machines, and nothing in between.

A request is sent, answered and the answer received in one step; only the answer to an assignment can get lost. What
time would bring, a session that expires or a report that is due, can happen whenever it is possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from jbod_model.broker.assignments import Replica
from jbod_model.explore import symmetry
from jbod_model.explore.broker_part import Machine
from jbod_model.explore.controller_part import NEW, OLD, ControllerPart
from jbod_model.explore.invariants import Breach
from jbod_model.explore.machines import Action, Machines
from jbod_model.formats.metadata_version import ELR_FEATURE, LEVELS, METADATA_VERSION
from jbod_model.formats.records import (
    BrokerFeature,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from jbod_model.formats.requests import (
    AlterPartitionPartition,
    AlterPartitionRequest,
    AlterPartitionTopic,
    AssignedDirectory,
    AssignedPartition,
    AssignedTopic,
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    BrokerState,
    SessionExpired,
    SupportedFeature,
)
from jbod_model.formats.responses import AssignReplicasToDirsResponse, BrokerHeartbeatResponse
from jbod_model.ids import KAFKA_IDS, IdTable, Uuid
from jbod_model.profiles import Profile
from jbod_model.profiles.releases import OLDEST, SUPPORTED_FEATURES
from jbod_model.replay.image import Image

State = tuple[int, ...]
"""The number of the controller's state, then one for each machine."""

TOPIC = Uuid(1, 1)
VERSION = LEVELS["4.1-IV1"]


SENTENCES = {
    "expire": "the session of broker {broker} expires",
    "start": "broker {broker} starts",
    "register": "broker {broker} registers",
    "crash": "broker {broker} is killed",
    "fail": "directory {directory} of broker {broker} fails",
    "heartbeat": "heartbeat of broker {broker}",
    "deliver": "broker {broker} applies the metadata",
    "assign": "broker {broker} reports its assignments",
    "assign, answer lost": "broker {broker} reports its assignments and does not hear the answer",
    "move": "broker {broker} is asked to move partition {partition} to directory {directory}",
    "catch up": "the copy of partition {partition} on broker {broker} has caught up",
    "rejoin": "partition {partition} of broker {broker} is in sync again",
}
"""Every kind of step, for people."""


def directory_ids(broker_id: int, count: int) -> tuple[Uuid, ...]:
    """The ids of a broker's directories, ascending."""
    return tuple(Uuid(1000 + broker_id, 1000 + i) for i in range(count))


def first_image(
    profile: Profile, names: Mapping[int, tuple[Uuid, ...]], partitions: int, *, elr: bool, ids: IdTable = KAFKA_IDS
) -> Image:
    """Brokers registered and unfenced, one topic on all of them with the directories that the profile gives."""
    image = Image(ids=ids)
    rules = profile.controller
    features = [FeatureLevelRecord(name=METADATA_VERSION, feature_level=VERSION)]
    if elr:
        features.append(FeatureLevelRecord(name=ELR_FEATURE, feature_level=1))
    records: list[FeatureLevelRecord | RegisterBrokerRecord | TopicRecord | PartitionRecord] = [*features]
    ranges = tuple(
        BrokerFeature(name=name, min_supported_version=least, max_supported_version=most)
        for name, (least, most) in SUPPORTED_FEATURES[OLDEST].items()
    )
    for broker_id, own in names.items():
        records.append(
            RegisterBrokerRecord(
                broker_id=broker_id,
                broker_epoch=broker_id,
                incarnation_id=OLD,
                fenced=False,
                log_dirs=own,
                features=ranges,
            )
        )
    records.append(TopicRecord(name="t", topic_id=TOPIC))
    brokers = tuple(names)
    directories = tuple(
        own[0] if len(own) == 1 and rules.preselects_single_directory else ids.unassigned for own in names.values()
    )
    for number in range(partitions):
        order = brokers[number % len(brokers) :] + brokers[: number % len(brokers)]
        placed = tuple(directories[brokers.index(b)] for b in order)
        records.append(
            PartitionRecord(
                partition_id=number,
                topic_id=TOPIC,
                replicas=order,
                isr=order,
                leader=order[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=placed,
            )
        )
    for record in records:
        image = image.apply(record, 0, profile=profile)
    return image


class Cluster:
    """The steps between states."""

    def __init__(self, controller: ControllerPart, machines: Machines) -> None:
        self.controller = controller
        self.machines = machines
        self._renamed: dict[tuple[object, ...], int] = {}
        self._rest: dict[tuple[int, int], tuple[Breach, ...]] = {}

    def steps(self, state: State) -> Iterator[tuple[Action, State, tuple[Breach, ...]]]:
        """Everything that can happen in a state, the state that follows, and the invariants that break on the way."""
        controller, *machines = state
        image = self.controller.images[controller]
        for i, number in enumerate(machines, 1):
            machine = self.machines.states[number]
            broker_id = machine.broker_id
            for action in self.machines.options(number):
                yield action, _with(state, i, self.machines.apply(number, action)), ()
            if not image.brokers[broker_id].fenced:
                yield self._expire(state, broker_id)
            if machine.process is None:
                if machine.working:
                    yield Action("start", broker_id), _with(state, i, self.machines.start(number)), ()
                continue
            if machine.accepted:
                yield self._heartbeat(state, i, number, machine)
            elif image.brokers[broker_id].fenced:
                yield self._register(state, i, number, machine)
            view = self.controller.view(controller, broker_id)
            if machine.view != view:
                yield Action("deliver", broker_id), _with(state, i, self.machines.deliver(number, view)), ()
            if machine.queue:
                yield from self._assign(state, i, number, machine)
            yield from self._rejoin(state, machine)

    def breaches(self, state: State) -> tuple[Breach, ...]:
        """Invariants that a state breaks by itself."""
        controller, *machines = state
        found = self.controller.breaches[controller]
        for number in machines:
            found += self._at_rest(controller, number)
        return found

    # STEPS

    def _expire(self, state: State, broker_id: int) -> tuple[Action, State, tuple[Breach, ...]]:
        answered = self.controller.ask(state[0], ("expire", broker_id), lambda: SessionExpired(broker_id=broker_id))
        return Action("expire", broker_id), _with(state, 0, answered.state), answered.breaches

    def _register(
        self, state: State, i: int, number: int, machine: Machine
    ) -> tuple[Action, State, tuple[Breach, ...]]:
        """A process registers; as long as the one before has its session, it would be refused."""

        def request() -> BrokerRegistrationRequest:
            return BrokerRegistrationRequest(
                broker_id=machine.broker_id,
                incarnation_id=NEW,
                log_dirs=machine.registered,
                features=tuple(
                    SupportedFeature(name=name, min_supported_version=least, max_supported_version=most)
                    for name, (least, most) in SUPPORTED_FEATURES[OLDEST].items()
                ),
            )

        answered = self.controller.ask(state[0], ("register", machine.broker_id, machine.registered), request)
        after = _with(_with(state, 0, answered.state), i, self.machines.accept(number))
        return Action("register", machine.broker_id), after, answered.breaches

    def _heartbeat(
        self, state: State, i: int, number: int, machine: Machine
    ) -> tuple[Action, State, tuple[Breach, ...]]:
        broker_id, fence, offline = machine.broker_id, machine.wants_fence, machine.offline

        def request() -> BrokerHeartbeatRequest:
            return BrokerHeartbeatRequest(
                broker_id=broker_id,
                broker_epoch=broker_id,
                current_metadata_offset=0,
                want_fence=fence,
                offline_log_dirs=offline,
            )

        answered = self.controller.ask(state[0], ("heartbeat", broker_id, fence, offline), request)
        after = number if fence else self.machines.unfencing(number)
        if isinstance(answered.response, BrokerHeartbeatResponse) and answered.response.should_shut_down:
            after = self.machines.stop(after)
        return Action("heartbeat", broker_id), _with(_with(state, 0, answered.state), i, after), answered.breaches

    def _assign(
        self, state: State, i: int, number: int, machine: Machine
    ) -> Iterator[tuple[Action, State, tuple[Breach, ...]]]:
        """Everything in the queue is sent; the answer comes, or gets lost."""
        answered = self.controller.ask(
            state[0], ("assign", machine.broker_id, machine.queue), lambda: _assignment(machine)
        )
        accepted = {}
        if isinstance(answered.response, AssignReplicasToDirsResponse):
            for directory in answered.response.directories:
                for topic in directory.topics:
                    for result in topic.partitions:
                        if result.error_code == 0:
                            accepted[Replica(topic.topic_id, result.partition_index)] = directory.id
        told = _with(state, 0, answered.state)
        yield (
            Action("assign", machine.broker_id),
            _with(told, i, self.machines.take_answer(number, accepted)),
            answered.breaches,
        )
        if answered.state != state[0]:
            yield Action("assign, answer lost", machine.broker_id), told, answered.breaches

    def _rejoin(self, state: State, machine: Machine) -> Iterator[tuple[Action, State, tuple[Breach, ...]]]:
        """Leaders take the broker's replicas back into their in-sync sets where it serves them again."""
        image = self.controller.images[state[0]]
        if image.brokers[machine.broker_id].fenced or machine.process is None:
            return
        for number, partition in image.topics[TOPIC].partitions.items():
            replica = Replica(TOPIC, number)
            leader = partition.leader
            if leader < 0 or machine.broker_id in partition.isr or replica not in machine.process.disks.current:
                continue
            leading = self.machines.states[state[leader]]
            if leading.process is None or replica not in leading.process.disks.current:
                continue
            isr = (*partition.isr, machine.broker_id)
            answered = self.controller.ask(state[0], ("isr", number, isr), partial(_isr_change, number, isr, leader))
            yield Action("rejoin", machine.broker_id, replica), _with(state, 0, answered.state), answered.breaches

    def _at_rest(self, controller: int, number: int) -> tuple[Breach, ...]:
        """R-INV-31: a broker with nothing left to do has its replicas where the metadata says."""
        key = (controller, number)
        if key not in self._rest:
            machine = self.machines.states[number]
            view = self.controller.view(controller, machine.broker_id)
            process = machine.process
            found: tuple[Breach, ...] = ()
            done = machine.accepted and not machine.queue and machine.view == view
            if process is not None and done and not process.moves:
                found = tuple(
                    Breach(
                        31, f"broker {machine.broker_id}: partition {replica.partition} is elsewhere, and nobody tells"
                    )
                    for replica, directory, _, _ in view
                    if process.disks.current.get(replica, directory) != directory
                )
            self._rest[key] = found
        return self._rest[key]

    # NAMES

    def renamed_controller(
        self, number: int, broker_id: int, order: tuple[int, ...], mapping: Mapping[Uuid, Uuid]
    ) -> int:
        """The controller's state with a broker's directories renamed."""
        key = ("controller", number, broker_id, order)
        if key not in self._renamed:
            image = symmetry.rename_image(self.controller.images[number], mapping)
            self._renamed[key] = self.controller.number(image)
        return self._renamed[key]

    def renamed_machine(self, number: int, order: tuple[int, ...], mapping: Mapping[Uuid, Uuid]) -> int:
        """A machine with its directories renamed."""
        key = ("machine", number, order)
        if key not in self._renamed:
            self._renamed[key] = self.machines.number(symmetry.rename_machine(self.machines.states[number], mapping))
        return self._renamed[key]

    def describe(self, state: State, action: Action, names: Mapping[Uuid, str]) -> str:
        """A step for people: what happens, and what the metadata then says."""
        after = next(after for each, after, _ in self.steps(state) if each == action)
        what = SENTENCES[action.kind].format(
            broker=action.broker_id,
            partition=None if action.replica is None else action.replica.partition,
            directory=None if action.directory is None else names[action.directory],
        )
        return f"{what}: {self._summary(after[0], names)}"

    def _summary(self, controller: int, names: Mapping[Uuid, str]) -> str:
        image = self.controller.images[controller]
        special = {image.ids.unassigned: "unassigned", image.ids.lost: "lost", image.ids.migrating: "migrating"}
        shown = {**special, **names}
        brokers = [
            f"broker {b.broker_id} {'' if b.fenced else 'un'}fenced with {_joined(shown[d] for d in b.directories)}"
            for b in image.brokers.values()
        ]
        partitions = [
            f"partition {n} leader {p.leader} isr {list(p.isr)} in {', '.join(shown[d] for d in p.directories)}"
            for n, p in image.topics[TOPIC].partitions.items()
        ]
        return "; ".join([*brokers, *partitions])


def _joined(names: Iterable[str]) -> str:
    return "+".join(sorted(names)) or "no directory"


def _with(state: State, i: int, number: int) -> State:
    return (*state[:i], number, *state[i + 1 :])


def _assignment(machine: Machine) -> AssignReplicasToDirsRequest:
    directories: dict[Uuid, list[int]] = {}
    for report in machine.queue:
        directories.setdefault(report.directory, []).append(report.replica.partition)
    return AssignReplicasToDirsRequest(
        broker_id=machine.broker_id,
        broker_epoch=machine.broker_id,
        directories=tuple(
            AssignedDirectory(
                id=directory,
                topics=(
                    AssignedTopic(
                        topic_id=TOPIC,
                        partitions=tuple(AssignedPartition(partition_index=number) for number in numbers),
                    ),
                ),
            )
            for directory, numbers in directories.items()
        ),
    )


def _isr_change(number: int, isr: tuple[int, ...], leader: int) -> AlterPartitionRequest:
    change = AlterPartitionPartition(
        partition_index=number,
        new_isr_with_epochs=tuple(BrokerState(broker_id=b, broker_epoch=b) for b in isr),
    )
    topic = AlterPartitionTopic(topic_id=TOPIC, partitions=(change,))
    return AlterPartitionRequest(broker_id=leader, broker_epoch=leader, topics=(topic,))
