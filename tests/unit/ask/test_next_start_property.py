"""What jbod says before a broker starts is what the broker, the controller and the loss rules do then.

Random histories of clusters whose disks hold logs: 10 in a run, 2,000 with ``--exhaustive``. After each, one broker
starts with its disks as one of the four cases says. A failure names its seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import pytest

from jbod_model.ids import Uuid
from pipelines.ask.lost_data import losses
from pipelines.ask.next_start import HOWS, How, StartOutcome, next_starts
from tests.support.volume import amount
from tests.unit.ask.advice_operator import NAME, RecordedWorld, history
from tests.unit.model.loss.loss_disks import Broker, Disk, Unsound
from tests.unit.model.loss.loss_operations import WEIGHTS, Operation, fail_disk
from tests.unit.model.loss.loss_restarts import MORE
from tests.unit.model.loss.loss_truth import starting

HISTORIES, CHUNK = amount(6, 2_000), amount(6, 10)


@pytest.mark.parametrize("first", range(0, HISTORIES, CHUNK))
@pytest.mark.parametrize("weights", [WEIGHTS, MORE], ids=["usual", "restarts in a session"])
def test_start_does_what_was_said_before_it(first: int, weights: Sequence[tuple[Operation, int]]) -> None:
    for seed in range(first, first + CHUNK):
        compare(seed, HOWS[seed % len(HOWS)], weights)


def compare(seed: int, how: How, weights: Sequence[tuple[Operation, int]] = WEIGHTS) -> Counter[str]:
    """Ask about a broker, let it start, and compare."""
    counts: Counter[str] = Counter()
    try:
        world = history(seed, weights=weights)
        random = Random(seed)
        broker = chosen(world, random)
        answer = outcome_of(world, broker, how, random)
        if answer is None:
            counts["nothing to ask"] += 1
            return counts
        outcome = answer
        if world.partition is None:
            return counts
        if lies_unseen(world, broker):
            counts["not reported yet where the log is"] += 1
            return counts
        before = State.of(world, broker)
        if not arrange(world, broker, outcome):
            counts["disks thrown away"] += 1
            return counts
        check(world, broker, before, outcome, counts, late=random.random() < 0.3)
    except Unsound:
        counts["unsound"] += 1
    return counts


def chosen(world: RecordedWorld, random: Random) -> Broker:
    """A broker: most often one whose replica is in a directory that is away; if there is none, a disk fails, or gives
    its place to a blank one."""
    partition = world.partition
    holders = [world.brokers[broker_id] for broker_id in partition.replicas] if partition else []
    if not holders or random.random() < 0.2:
        return random.choice([*world.brokers.values()])
    away = [holder for holder in holders if is_away(world, holder)]
    broker = random.choice(away or holders)
    if not away and random.random() < 0.3:
        recreate_without_leader(world, broker, random)
    elif not away and random.random() < 0.7:
        fail_disk(world, broker)
    return broker


def recreate_without_leader(world: RecordedWorld, broker: Broker, random: Random) -> None:
    """A blank disk takes the place of that of the broker's replica. The broker reports where it recreated the replica
    before it is unfenced, or after that, which elects nobody (R-ASSIGN-6): the older folder may come back."""
    held = world.at.get(broker.id)
    if held is None or held not in broker.disks or starting(world, broker.id):
        return
    world.shut_down(broker)
    world.expire(broker)
    broker.disks[broker.disks.index(held)] = world.new_disk()
    broker.shelf.append(held)
    world.start(broker)
    if random.random() < 0.5:
        world.heartbeat(broker)
    world.report(broker)


def is_away(world: RecordedWorld, broker: Broker) -> bool:
    """Whether the broker does not list the directory of its replica."""
    known = world.image.brokers.get(broker.id)
    assert world.partition is not None
    return known is None or world.partition.directory(broker.id) not in known.directories


def outcome_of(world: RecordedWorld, broker: Broker, how: How, random: Random) -> StartOutcome | None:
    """The answer about the broker's directories that are away, or about one that it lists, most often that of its
    replica."""
    lake = world.lake()
    known = world.image.brokers.get(broker.id)
    if known is None and broker.id not in world.fates.unregistered:
        return None
    data = losses(lake)
    answer = next_starts(lake, broker.id, data=data)
    if answer.starts:
        return answer.starts[HOWS.index(how)]
    if known is None:
        return None
    at = world.at.get(broker.id)
    held = at is not None and at.id in known.directories and random.random() < 0.7
    directory = str(at.id if at is not None and held else random.choice(known.directories))
    which = how if how in ("blank", "gone") else random.choice(("blank", "gone"))
    answer = next_starts(lake, broker.id, data=data, **{which: [directory]})  # type: ignore[arg-type]
    return answer.starts[0]


def arrange(world: RecordedWorld, broker: Broker, outcome: StartOutcome) -> bool:
    """Stop the broker, and make its disks what the outcome says. False if a disk that it needs is thrown away."""
    known = world.image.brokers.get(broker.id)
    if broker.up and (known is None or known.incarnation_id != broker.incarnation):
        return False  # a process is starting already
    disks = {str(disk.id): disk for disk in [*broker.disks, *broker.shelf]}
    listed = [str(directory) for directory in known.directories] if known else []
    away = {*outcome.blank, *outcome.gone, *outcome.broken}
    kept = [*(directory_id for directory_id in listed if directory_id not in away), *outcome.back]
    if not {*kept} <= {*disks}:
        return False
    if not all(disks[directory_id].works for directory_id in listed if directory_id in kept):
        return False  # a failure that nobody reported yet
    if known is not None and not (known.fenced or broker.up):
        return False  # a death that nobody noticed yet
    world.shut_down(broker)
    broker.shelf = [disk for disk in disks.values() if str(disk.id) not in kept]
    broker.disks = [disks[directory_id] for directory_id in kept]
    for disk in broker.disks:
        if str(disk.id) in outcome.back:
            disk.works, disk.clean_epoch = True, -1
            one_folder(world, broker, disk)
    broker.disks += [world.new_disk() for _ in outcome.blank]
    broker.disks += [Disk(world.new_disk().id, works=False) for _ in outcome.broken]
    return True


def one_folder(world: RecordedWorld, broker: Broker, disk: Disk) -> None:
    """R-ACT-7: the newer folder leaves if the disk has the last copy, and the older one otherwise."""
    at = world.at.get(broker.id)
    if at is None or at is disk or disk.log is None or at.log is None:
        return
    fate = world.fate
    pending = bool(fate.losses) and fate.losses[-1].went_on is None and fate.losses[-1].until is None
    last = [copy for copy in fate.gone if copy.broker_id == broker.id and disk.id in (copy.directory, *copy.places)]
    if pending and last:
        at.log, world.at[broker.id], disk.log.mounted = None, disk, True
    else:
        disk.log = None


def lies_unseen(world: RecordedWorld, broker: Broker) -> bool:
    """Whether the broker has recreated the replica, or has its old log again, and has not reported where: no record can
    tell."""
    at, partition = world.at.get(broker.id), world.partition
    if at is None or at.log is None or partition is None or broker.id not in partition.replicas:
        return False
    return (at.log.recreated or at.log.mounted) and partition.directory(broker.id) != at.id


@dataclass(frozen=True)
class State:
    """What a start can change."""

    leads: bool
    losses: frozenset[tuple[int, str, bool]]
    directories: tuple[Uuid, ...]
    """Those in the broker's registration."""
    crashes: frozenset[tuple[int, str, bool]]
    """The losses in which the leader's own copy is the last one: it may lack what its broker had not flushed."""

    @classmethod
    def of(cls, world: RecordedWorld, broker: Broker) -> State:
        """The state now."""
        assert world.partition is not None
        losses = {(loss.offset, loss.kind, loss.went_on is not None): loss for loss in world.fate.losses}
        own = (
            key
            for key, loss in losses.items()
            if [(copy.broker_id, copy.given_up) for copy in loss.copies] == [(loss.leader, None)]
        )
        lasting = frozenset(key for key, loss in losses.items() if loss.until is None)
        known = world.image.brokers.get(broker.id)
        directories = known.directories if known else ()
        return cls(world.partition.leader == broker.id, lasting, tuple(directories), frozenset(own))


def check(
    world: RecordedWorld, broker: Broker, before: State, outcome: StartOutcome, counts: Counter[str], *, late: bool
) -> None:
    """Start the broker, and compare what happens with what was said. ``late``: it reports after it is unfenced."""
    offset, held = world.offset, world.copy(broker.id)
    world.start(broker)
    if broker.up:
        if not late:
            world.report(broker)
        world.heartbeat(broker)
        world.report(broker)
    after = State.of(world, broker)
    unplaced = NAME in outcome.perhaps_recreated
    recreated = world.copy(broker.id) is not held
    at = world.at.get(broker.id)
    if recreated and outcome.blank and at is not None and at.id in before.directories:
        counts["created where Kafka would not"] += 1  # Kafka takes the directory with the fewest logs, a blank one
        return
    new = after.losses - before.losses - (frozenset() if recreated else after.crashes)
    facts = {
        "recreated": (recreated, NAME in outcome.recreated, unplaced),
        "leads": (after.leads and not before.leads, NAME in outcome.leads, unplaced or NAME in outcome.perhaps_leads),
        "gives up": (bool(new), bool(outcome.gives_up), unplaced or NAME in outcome.perhaps_gives_up),
    }
    for what, (is_so, was_said, vague) in facts.items():
        counts[f"{what} {is_so}{', perhaps' if vague else ''}"] += 1
        if is_so != was_said and not (vague and was_said):
            story = "\n".join(world.story[-40:])
            pytest.fail(
                f"{story}\nseed {world.seed} at {offset}, broker {broker.id}: {what} is {is_so}, said {was_said}: "
                f"{outcome}\n{world.fate.losses}",
                pytrace=False,
            )
