"""An operator who does what jbod prints, on the simulated clusters whose disks hold logs (``loss_world``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from jbod_model.formats.codec import encode
from jbod_model.formats.records import VersionedRecord
from jbod_model.formats.requests import (
    TOPIC_RESOURCE,
    AlterableConfig,
    AlterConfigsResource,
    ElectUncleanLeaders,
    IncrementalAlterConfigsRequest,
)
from pipelines.ask.advice import Action, Advice
from pipelines.ask.incident_list import incidents
from pipelines.ask.offline_replicas import offline
from pipelines.ask.removal import safe_to_remove
from pipelines.lake.reader import Lake
from tests.support.lakes import in_memory
from tests.support.logs import Entry
from tests.unit.model.loss import loss_operations as done
from tests.unit.model.loss.loss_disks import Broker, Disk
from tests.unit.model.loss.loss_world import TOPIC, World

NAME = f"{TOPIC}-0"
START = 1_700_000_000
SAFE = "safe to remove"
"""The step that the operator makes of the verdict."""


class RecordedWorld(World):
    """A world that keeps its log."""

    def __init__(self, seed: int) -> None:
        self.entries: list[Entry] = []
        self.seed = seed
        super().__init__(seed)

    def append(self, *records: object) -> None:
        versioned = [each if isinstance(each, VersionedRecord) else VersionedRecord(each, 0) for each in records]  # type: ignore[arg-type]
        time = (START + self.offset) * 1_000_000  # one for the records of an append, as Kafka's controller has it
        for index, each in enumerate(versioned):
            self.entries.append(Entry(self.offset + index, 1, time, self.offset, encode(each), versioned=each))
        super().append(*records)

    def lake(self) -> Lake:
        return in_memory(self.entries)


class Operator:
    """Follows printed steps. ``random`` decides which answer is read, and which disks can be read again."""

    def __init__(self, world: World, random: Random) -> None:
        self.world, self.random = world, random
        self.readable: dict[object, bool] = {}
        self.acts: dict[Action, Callable[[Advice], bool]] = {
            Action.READ: lambda _: False,
            Action.LOOK: self._look,
            Action.BRING_BACK: self._bring_back,
            Action.START: self._start,
            Action.RESTART: self._start,
            Action.REPLACE: self._replace,
            Action.REASSIGN: self._reassign,
            Action.MOVE: self._move,
            Action.ELECT: self._elect,
            Action.FORBID_UNCLEAN: self._forbid_unclean,
        }

    def follow(self, step: Advice) -> bool:
        """Do one step; whether it did something after which jbod is asked again."""
        self.world.tell(f"OPERATOR {step.action}: {step.text}")
        unseen = not step.forbidden and self._lost_a_disk_unseen(step)
        return not unseen and self.acts[step.action](step)

    def _lost_a_disk_unseen(self, step: Advice) -> bool:
        """Whether the step's broker is down and lost a disk that no record tells of: a start recreates what lay there.
        The operator sees that the broker is down within its session, and waits until the controller knows; and sees at
        the broker, where he replaces one disk, that others are gone or do not work."""
        broker = self._broker(step)
        known = self.world.image.brokers.get(step.broker_id or -1)
        if broker is None or known is None or broker.up or (known.fenced and step.action != Action.REPLACE):
            return False
        others = {str(directory) for directory in known.directories} - {*step.directories}
        if step.action == Action.REPLACE:
            there = [disk for disk in broker.disks if disk.works]
        else:
            there = [*broker.disks, *broker.shelf]
        return not others <= {str(disk.id) for disk in there}

    def _broker(self, step: Advice) -> Broker | None:
        return self.world.brokers.get(step.broker_id or -1)

    def _disk(self, broker: Broker, directory: str) -> Disk | None:
        return next((disk for disk in [*broker.disks, *broker.shelf] if str(disk.id) == directory), None)

    def _bring_back(self, step: Advice) -> bool:
        broker = self._broker(step)
        if broker is None:
            return False
        disks = [disk for name in step.directories if (disk := self._disk(broker, name))]
        if not step.directories:  # no record names it: he looks for the folder on every disk that he has
            every, now = [*broker.disks, *broker.shelf], self.world.at.get(broker.id)
            disks = [disk for disk in every if disk.log is not None and disk is not now]
        if not disks or len(disks) < len(step.directories):
            return False  # thrown away
        if not all(self.readable.setdefault(disk, self.random.random() < 0.7) for disk in disks if not disk.works):
            return False
        if step.every_disk:
            complete = self._has_its_disks(broker)
            if not complete or not all(disk.works for disk in broker.disks if disk not in disks):
                return False
        self._stop(broker)
        for disk in disks:
            disk.works = True
            if disk in broker.shelf:
                broker.shelf.remove(disk)
                broker.disks.append(disk)
            self._one_folder(broker, disk, newer_goes=NAME in (*step.partitions, *step.newer_leaves))
        return self._run(broker)

    def _one_folder(self, broker: Broker, disk: Disk, *, newer_goes: bool) -> None:
        """R-ACT-7."""
        at = self.world.at.get(broker.id)
        if at is None or at is disk or disk.log is None:
            return
        if newer_goes:
            at.log, self.world.at[broker.id] = None, disk
        else:
            disk.log = None

    def _look(self, step: Advice) -> bool:
        """Wait, where the step says so, until a replica is in sync."""
        partition = self.world.partition
        if "into sync" not in step.text or partition is None or step.broker_id is None:
            return False
        if step.broker_id not in partition.isr and self.world.serving(step.broker_id) is not None:
            self.world.sync(step.broker_id)
            done.alter_isr(self.world, [*partition.isr, step.broker_id])
        return True

    def _start(self, step: Advice) -> bool:
        broker = self._broker(step)
        if broker is None or (step.every_disk and not self._has_its_disks(broker)):
            return False
        self._stop(broker)
        return self._run(broker)

    def _has_its_disks(self, broker: Broker) -> bool:
        """Whether the broker can start with all its disks: none is broken or thrown away, which no record may tell."""
        known = self.world.image.brokers.get(broker.id) or self.world.fates.unregistered.get(broker.id)
        disks = [self._disk(broker, str(directory)) for directory in (known.directories if known else ())]
        for disk in disks:
            if disk in broker.shelf:
                broker.shelf.remove(disk)
                broker.disks.append(disk)
                self._one_folder(broker, disk, newer_goes=True)
        return all(disk is not None and disk.works for disk in disks)

    def _replace(self, step: Advice) -> bool:
        broker = self._broker(step)
        if broker is None:
            return False
        starts = broker.up or step.text != SAFE
        self._stop(broker)
        for disk in [*broker.disks]:
            if str(disk.id) in step.directories or not (step.directories or disk.works):
                broker.disks[broker.disks.index(disk)] = self.world.new_disk()
        return self._run(broker) if starts else True

    def _reassign(self, step: Advice) -> bool:
        if self.random.random() < 0.5:
            return self._start(step)
        others = [broker for broker in sorted(self.world.brokers) if broker != step.broker_id]
        done.reassign_to(self.world, tuple(self.random.sample(others, self.random.randint(1, len(others)))))
        return True

    def _move(self, step: Advice) -> bool:
        done.move(self.world)
        return True

    def _elect(self, step: Advice) -> bool:
        self.world.ask(ElectUncleanLeaders())
        return True

    def _forbid_unclean(self, step: Advice) -> bool:
        resource = AlterConfigsResource(
            resource_type=TOPIC_RESOURCE,
            resource_name=TOPIC,
            configs=(AlterableConfig(name="unclean.leader.election.enable", value="false"),),
        )
        self.world.ask(IncrementalAlterConfigsRequest(resources=(resource,)))
        return False

    def _stop(self, broker: Broker) -> None:
        self.world.shut_down(broker)

    def _run(self, broker: Broker) -> bool:
        self.world.start(broker)
        if broker.up:
            self.world.report(broker)
            self.world.heartbeat(broker)
            self.world.report(broker)
        return True


def history(seed: int, steps: int = 40, weights: Sequence[tuple[done.Operation, int]] = done.WEIGHTS) -> RecordedWorld:
    """A random history, as that of the property of losses."""
    world = RecordedWorld(seed)
    operations, numbers = zip(*weights, strict=True)
    for operation in world.random.choices(operations, numbers, k=steps):
        operation(world)
    return world


def printed(lake: Lake, world: World, random: Random) -> Sequence[Sequence[Advice]]:
    """The steps of every answer, a list for each subject."""
    answer = offline(lake)
    lists = [cause.steps for cause in answer.causes]
    lists += [group.steps for group in answer.leaderless]
    lists += [loss.steps for loss in answer.data.losses]
    lists += [incident.steps for incident in incidents(lake)]
    broker = random.choice([*world.brokers.values()])
    known = [disk.id for disk in [*broker.disks, *broker.shelf]]
    rows = lake.query(f"SELECT directory_id FROM {lake.until('directories')} WHERE broker_id = {broker.id}")
    directories = [directory for (directory,) in rows if directory in map(str, known)]
    if directories:
        removal = safe_to_remove(lake, f"{broker.id}:{random.choice(directories)}")
        lists += [reason.steps for reason in removal.reasons]
        if removal.safe:
            before = [step for reason in removal.reasons for step in reason.steps]
            lists.append([*before, Advice(Action.REPLACE, SAFE, broker.id, (removal.directory_id,))])
    return [steps for steps in lists if steps]
