"""Plans of random clusters: each constraint at every step, by a check of its own, and the controller's own play of it.

The clusters have racks, several disks, fenced brokers, cordons, failed disks, replicas that lag, and moves under way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from jbod_model.errors import UsageError
from jbod_model.plan import play
from jbod_model.replay.image import Image
from pipelines.ask.risk import risk
from pipelines.ask.whatif_places import find_place, image_of
from pipelines.lake.reader import Lake
from pipelines.plan.answer import MovePlan, plan
from pipelines.plan.files import WAIT
from pipelines.plan.goals import Goal, balance, drain, fill, repair, replicas
from pipelines.plan.problem import CLOSED, Problem
from pipelines.plan.steps import Limits
from tests.support.planned import Broker, Cluster, disk_id, path_of
from tests.support.volume import amount, sampled

HEADROOM, DISKS = 10, 12
KINDS = ("drain", "fill", "drain broker", "balance", "balance replicas", "balance leaders", "repair", "replicas")
LARGE = (1, 2)
"""Seeds of large clusters."""


def generated(seed: int) -> Cluster:
    chance = Random(seed)
    racks = chance.choice(([None], ["x", "y"], ["x", "y", "z"]))
    brokers = {}
    for number in range(1, chance.randint(4, 8) + 1):
        disks = chance.randint(1, 4)
        planned_broker = Broker(disks, racks[number % len(racks)], total=chance.choice((600, 1_000, 3_000)))
        planned_broker.fenced = chance.random() < 0.08
        planned_broker.cordoned = tuple(disk for disk in range(disks) if chance.random() < 0.08)
        failed = [disk for disk in range(disks) if disks > 1 and chance.random() < 0.04]
        planned_broker.failed = tuple(failed[: disks - 1])  # Kafka stops when its last disk fails
        brokers[number] = planned_broker
    made = Cluster(brokers, min_isr=chance.choice((1, 1, 2)), unclean=Random(-seed).random() < 0.5)
    favoured = {broker: chance.randrange(planned_broker.disks) for broker, planned_broker in brokers.items()}
    for _ in range(chance.randint(20, 60)):
        of = chance.sample([*brokers], chance.choice((1, 2, 2, 3)))
        placed = {
            broker: favoured[broker] if chance.random() < 0.5 else chance.randrange(brokers[broker].disks)
            for broker in of
        }
        topic = chance.choice("tuv")
        key = (topic, sum(placed_topic == topic for placed_topic, _ in made.placed))
        made.put(f"{topic}-{key[1]}", placed, chance.choice((0, 5, 20, 30, 60)))
        if len(of) > 1 and chance.random() < 0.05:
            made.adding[key] = (of[-1],)
        if len(of) > 1 and chance.random() < 0.1:
            made.out_of_sync[key] = (of[0],)
        broker, disk = next(iter(placed.items()))
        others = [other_disk for other_disk in range(brokers[broker].disks) if other_disk != disk]
        if others and not brokers[broker].failed and not brokers[broker].fenced and chance.random() < 0.04:
            made.future[key, broker] = (chance.choice(others), made.bytes[key] // 2)
    return made


def large(seed: int, number: int, partitions: int) -> Cluster:
    """Brokers of 12 disks in 5 racks, some of them nearly empty or nearly full. Of odd seeds some have failed."""
    chance = Random(seed)
    brokers = {broker_id: Broker(DISKS, f"rack {broker_id % 5}", total=4_000_000) for broker_id in range(1, number + 1)}
    brokers[chance.randint(2, number)].fenced = seed % 2 == 1
    for broker_id in chance.sample([*brokers], max(2, number // 20)):
        brokers[broker_id].failed = (chance.randrange(DISKS),) if seed % 2 else ()
        brokers[broker_id % number + 1].cordoned = (chance.randrange(DISKS),)
    made = Cluster(brokers, min_isr=2, unclean=True)
    weights = {broker_id: [chance.choice((0.2, 0.6, 1.0, 1.0, 1.4)) for _ in range(DISKS)] for broker_id in brokers}
    mean = 0.35 * 4_000_000 * DISKS * number / (partitions * 2.5)
    for at in range(partitions):
        first, count = chance.randrange(number), chance.choice((1, 2, 3, 3, 3))
        of = [(first + step) % number + 1 for step in range(count)]
        placed = {broker: chance.choices(range(DISKS), weights[broker])[0] for broker in of}
        key = f"topic-{at // 50:05}", at % 50
        made.put(f"{key[0]}-{key[1]}", placed, int(mean * chance.lognormvariate(-0.5, 1.0)))
        if count > 1 and seed % 2 and chance.random() < 0.001:
            made.adding[key] = (of[-1],)
        if count > 1 and chance.random() < 0.002:
            made.out_of_sync[key] = (of[0],)
    return made


def large_cluster(seed: int) -> Cluster:
    return large(seed, amount(10, 100), amount(1_000, 200_000))


def goals(cluster: Cluster, lake: Lake, chance: Random) -> Mapping[str, Callable[[Problem], Goal]]:
    broker = chance.choice([*cluster.brokers])
    disk = (
        find_place(lake, f"{broker}:{disk_id(broker, chance.randrange(cluster.brokers[broker].disks))}")
        if (cluster.brokers[broker].disks > len(cluster.brokers[broker].failed)) and not cluster.brokers[broker].failed
        else None
    )
    whole = find_place(lake, str(broker))
    topic = next(iter(cluster.placed))[0]
    running = sum(not planned_broker.fenced for planned_broker in cluster.brokers.values())
    goals_by_name: dict[str, Callable[[Problem], Goal]] = {
        "drain broker": lambda it: drain(it, whole),
        "balance": lambda it: balance(it, None, "bytes"),
        "balance replicas": lambda it: balance(it, None, "replicas"),
        "balance leaders": lambda it: balance(it, None, "leaders"),
        "repair": repair,
        "replicas": lambda it: replicas(it, {topic: min(running, chance.choice((1, 2, 3, 4)))}),
    }
    if disk is not None:
        goals_by_name |= {"drain": lambda it: drain(it, disk), "fill": lambda it: fill(it, disk)}
    return goals_by_name


class Play:
    """The cluster while a plan is executed."""

    def __init__(self, cluster: Cluster, name: str, image: Image) -> None:
        self.cluster, self.name, self.image = cluster, name, image
        self.placed = {f"{topic}-{number}": dict(placed) for (topic, number), placed in cluster.placed.items()}
        self.size = {f"{topic}-{number}": size for (topic, number), size in cluster.bytes.items()}
        self.used = {
            (broker, disk): 0
            for broker, planned_broker in cluster.brokers.items()
            for disk in range(planned_broker.disks)
        }
        for key, placed in cluster.placed.items():
            for broker, disk in placed.items():
                if broker in cluster.brokers:
                    self.used[broker, disk] += cluster.bytes[key]
        for (key, broker), (disk, _) in cluster.future.items():
            self.used[broker, disk] += cluster.bytes[key]
        self.began = dict(self.used)
        self.renamed: list[tuple[int, int, int]] = []
        """What has left a disk and is not deleted yet: broker, disk, bytes."""
        self.expected: dict[tuple[str, int], int] = {}
        """Where a replica goes back to if the undo file does not know the path."""
        self.busy = {f"{topic}-{number}" for topic, number in cluster.adding}
        self.busy |= {f"{topic}-{number}" for (topic, number), _ in cluster.future}

    def step(self, document: Mapping[str, Any], limits: Limits) -> None:
        copies = amount_of_bytes = 0
        for reassignment in document["partitions"]:
            name = f"{reassignment['topic']}-{reassignment['partition']}"
            assert name not in self.busy, "a move under way is replaced"
            was, now = self.placed[name], self.target(name, reassignment)
            self._check(name, was, now)
            new = sum(was.get(broker) != disk for broker, disk in now.items())
            copies, amount_of_bytes = copies + new, amount_of_bytes + new * self.size[name]
        self._together(document["partitions"])
        assert len(document["partitions"]) == 1 or (copies <= limits.moves and amount_of_bytes <= limits.bytes)

    def undo(self, document: Mapping[str, Any]) -> None:
        """A file that undoes a step."""
        for reassignment in document["partitions"]:
            name = f"{reassignment['topic']}-{reassignment['partition']}"
            was = self.cluster.placed[reassignment["topic"], reassignment["partition"]]
            assert [*was] == reassignment["replicas"]
            for broker, path in zip(reassignment["replicas"], reassignment["log_dirs"], strict=True):
                stays = self.placed[name].get(broker) == was[broker]
                self.expected[name, broker] = was[broker]
                assert path == path_of(was[broker]) or (path == "any" and (stays or not self.is_known(broker)))
        self._together(document["partitions"])

    def _together(self, partitions: Sequence[Mapping[str, Any]]) -> None:
        """The partitions of a file move. A replica that is new on its broker may come to any of the disks with the
        fewest replicas first (LogManager.nextLogDirs), and is deleted there as late as one that moved away."""
        new: dict[int, list[tuple[int, int]]] = {}
        number = Counter((broker, disk) for placed in self.placed.values() for broker, disk in placed.items())
        for reassignment in partitions:
            name = f"{reassignment['topic']}-{reassignment['partition']}"
            was, now = self.placed[name], self.target(name, reassignment)
            for broker in now.keys() - was.keys():
                new.setdefault(broker, []).append((now[broker], self.size[name]))
            self._copy(name, now)
        strays = {}
        for broker, copies in new.items():
            fewest = min((number[broker, disk] for disk in self.open(broker)), default=0)
            for disk in self.open(broker) if len(self.open(broker)) > 1 else ():
                if number[broker, disk] < fewest + len(copies):
                    strays[broker, disk] = sum(size for at, size in copies if at != disk)
        for broker, disk in self.used:
            most = self.used[broker, disk] + strays.get((broker, disk), 0)
            assert most <= max(self.limit(broker), self.began[broker, disk])
        for (broker, disk), size in strays.items():
            self.used[broker, disk] += size
            self.renamed.append((broker, disk, size))

    def _copy(self, name: str, now: Mapping[int, int]) -> None:
        """Both copies are there: what leaves is renamed only."""
        was, size = self.placed[name], self.size[name]
        for broker, disk in now.items():
            self.used[broker, disk] += size * (was.get(broker) != disk)
        self.renamed += [(broker, disk, size) for broker, disk in was.items() if now.get(broker) != disk]
        self.placed[name] = dict(now)

    def delete(self) -> None:
        """Kafka deletes what has left the disks."""
        for broker, disk, size in self.renamed:
            self.used[broker, disk] -= size
        self.renamed = []

    def limit(self, broker: int) -> float:
        return self.cluster.brokers[broker].total * (100 - HEADROOM) / 100

    def target(self, name: str, reassignment: Mapping[str, Any]) -> dict[int, int]:
        """Where the file puts the replicas."""
        assert len({*reassignment["replicas"]}) == len(reassignment["replicas"]) == len(reassignment["log_dirs"])
        disks = {}
        for broker, path in zip(reassignment["replicas"], reassignment["log_dirs"], strict=True):
            held = self.placed[name].get(broker, self.expected.get((name, broker)))
            assert path != "any" or held is not None or len(self.open(broker)) == 1
            disks[broker] = (
                int(path.removeprefix("/data/"))
                if path != "any"
                else held
                if held is not None
                else self.open(broker)[0]
            )
        return disks

    def open(self, broker: int) -> list[int]:
        planned_broker = self.cluster.brokers[broker]
        return [
            disk
            for disk in range(planned_broker.disks)
            if disk not in (*planned_broker.cordoned, *planned_broker.failed)
        ]

    def is_known(self, broker: int) -> bool:
        """Whether each disk of a broker had a replica that tells its path."""
        held = {placed[broker] for placed in self.cluster.placed.values() if broker in placed}
        return len(held) == self.cluster.brokers[broker].disks and not self.cluster.brokers[broker].failed

    def _check(self, name: str, was: Mapping[int, int], now: Mapping[int, int]) -> None:
        brokers, late = self.cluster.brokers, {(topic, str(number)) for topic, number in self.cluster.out_of_sync}
        assert not any(brokers[broker].fenced for broker in now), "Kafka's tool refuses a broker that is down"
        for broker, disk in now.items():
            if was.get(broker) == disk:
                continue
            assert disk in self.open(broker), "a disk is cordoned or offline"
            assert not (broker in was and brokers[broker].failed), "R-HOST-5"
        if self.name != "replicas":
            assert len(now) == len(was)
        elif (*name.rsplit("-", 1),) in late or any(disk in brokers[broker].failed for broker, disk in was.items()):
            return  # those that are offline or lag go first
        racks = {brokers[broker].rack for broker in now} - {None}
        lost = {brokers[broker].rack for broker in was} - {None}
        assert len(racks) >= min(len(lost), len(now)), "fewer racks"

    def controller(self, document: Mapping[str, Any]) -> None:
        """The reference controller executes the step."""
        wanted = {
            (reassignment["topic"], reassignment["partition"]): tuple(reassignment["replicas"])
            for reassignment in document["partitions"]
        }
        before = self.image
        played = play(before, wanted)
        assert not played.refused
        self.image = played.done
        for (topic, number), wanted_replicas in wanted.items():
            was = before.topics[before.topic_ids[topic]].partitions[number]
            done = self.image.topics[self.image.topic_ids[topic]].partitions[number]
            assert done.replicas == wanted_replicas and not done.adding_replicas and not done.removing_replicas
            assert done.leader >= 0 and done.leader_recovery_state == was.leader_recovery_state
            need = min(self.cluster.min_isr, len(wanted_replicas))
            assert len(done.isr) >= min(need, len(was.isr))


@pytest.mark.parametrize("seed", range(amount(2, 400)))
def test_plan_keeps_every_constraint_at_every_step_and_ends_as_promised(tmp_path: Path, seed: int) -> None:
    print("seed", seed)
    chance = Random(seed)
    limits = [Limits(chance.choice((1, 3, 100)), chance.choice((60, 10_000))) for _ in range(8)]
    check_plans(generated(seed), chance, limits, tmp_path)


@pytest.mark.parametrize("seed", sampled(LARGE, 1))
def test_plans_of_a_large_cluster_keep_every_constraint_and_end_as_promised(tmp_path: Path, seed: int) -> None:
    """With --exhaustive: 100 brokers of 12 disks, 200,000 partitions."""
    check_plans(large_cluster(seed), Random(seed), [Limits(moves=amount(100, 5_000), bytes=1 << 40)], tmp_path)


def check_plans(cluster: Cluster, chance: Random, limits: Sequence[Limits], path: Path) -> None:
    def lake_of(cluster: Cluster) -> Lake:
        count = len([*path.iterdir()])
        return cluster.lake() if len(cluster.placed) < 500 else cluster.replayed(path / str(count))

    source, lake = cluster.sizes(path / "sizes.txt"), lake_of(cluster)
    image = image_of(lake, "true")
    for number, (name, goal) in enumerate(goals(cluster, lake, chance).items()):
        assert name in KINDS
        limit = limits[number % len(limits)]
        try:
            answer = plan(lake, goal, [source], limit, headroom=HEADROOM)
        except UsageError as closed:
            assert name == "fill" or "fewer than two of its disks" in str(closed)
            assert any(why in str(closed) for why in CLOSED.values())
            continue
        run = Play(cluster, name, image)
        for document in typed(run, answer.commands, answer):
            run.step(document, limit)
            run.controller(document)
        check_end(run, name, answer)
        check_risk(run, answer, lake, lake_of)
        for last in {len(answer.steps), chance.randint(0, len(answer.steps))}:
            check_undo(Play(cluster, name, image), answer, last, limit)
        print(f"{name}: {len(answer.steps)} steps, {answer.replicas} copies, {len(answer.lacks)} reasons")


def check_end(run: Play, name: str, answer: MovePlan) -> None:
    """What the goal promises."""
    cluster = run.cluster
    down = {broker for broker, planned_broker in cluster.brokers.items() if planned_broker.fenced}
    if answer.lacks:
        assert answer.exit_code == 1 and (name == "repair" or not answer.steps)
    elif name == "drain broker":
        gone = int(answer.title.split()[-1])
        assert not any(gone in placed for placed in run.placed.values())
    elif name == "drain":
        path, _, broker = answer.title.removeprefix("leave ").partition(" of broker ")
        assert not any(path_of(placed[int(broker)]) == path for placed in run.placed.values() if int(broker) in placed)
    elif name == "repair":
        for placed in run.placed.values():
            assert not down & {*placed}
            assert not any(disk in cluster.brokers[broker].failed for broker, disk in placed.items())
    elif name == "replicas":
        topic, _, number = answer.title.split()[-1].partition("=")
        assert {len(placed) for key, placed in run.placed.items() if key.startswith(topic + "-")} <= {int(number)}
    elif name in ("balance", "balance replicas"):
        assert answer.spread[1] <= max(answer.spread[0], 0.02) + 1e-9
        moved = answer.bytes if name == "balance" else answer.replicas
        assert moved is not None and moved >= answer.bound - 1e-6


def check_risk(run: Play, answer: MovePlan, lake: Lake, lake_of: Callable[[Cluster], Lake]) -> None:
    """The worst failures before the first step, and after the last one, are those of jbod risk."""
    ends, lakes = [answer.now], [lake]
    if answer.steps:
        end = {(topic, number): run.placed[f"{topic}-{number}"] for topic, number in run.cluster.placed}
        late = {  # a reassignment ends when all of its replicas are in sync
            key: brokers
            for key, brokers in run.cluster.out_of_sync.items()
            if end[key].keys() == run.cluster.placed[key].keys()
        }
        ends.append((answer.steps[-1].disk, answer.steps[-1].broker))
        lakes.append(lake_of(replace(run.cluster, placed=end, out_of_sync=late)))
    for worst_failures, now in zip(ends, lakes, strict=True):
        risk_answer = risk(now)
        for failure, exposures in zip(worst_failures, (risk_answer.directories, risk_answer.brokers), strict=True):
            costs = [(exposure.last_replicas, exposure.unclean, exposure.under_min_isr) for exposure in exposures]
            assert (failure.last_replicas, failure.unclean, failure.under_min_isr) == max(costs, default=(0, 0, 0))


def typed(run: Play, commands: Sequence[str], answer: MovePlan) -> Iterator[dict[str, Any]]:
    """The files of the commands, in order; Kafka deletes what has left the disks when they wait."""
    for command in commands:
        if command == WAIT:
            run.delete()
        elif "--execute" in command:
            yield answer.documents[file_of(command)]


def file_of(command: str) -> str:
    return command.partition("--reassignment-json-file ")[2].split()[0]


def check_undo(run: Play, answer: MovePlan, last: int, limits: Limits) -> None:
    """After the step ``last`` the undo files lead back, from its own to the first, and every disk has room."""
    if not last:
        return
    forth, back = [*answer.commands], [*answer.undo]
    for document in typed(run, forth[: 1 + index(forth, f"step-{last}.json")], answer):
        run.step(document, limits)
    files = [
        file_of(command)
        for command in back
        if "--execute" in command and int(file_of(command)[5:-5].split("-")[0]) <= last
    ]
    if files:
        first = index(back, files[0])
        for document in typed(run, back[first - (first > 0 and back[first - 1] == WAIT) :], answer):
            run.undo(document)
    undone = {
        f"{reassignment['topic']}-{reassignment['partition']}"
        for file in files
        for reassignment in answer.documents[file]["partitions"]
    }
    assert all(run.placed[name] == placed for name, placed in named(run.cluster).items() if name in undone)


def index(commands: Sequence[str], file: str) -> int:
    """Of the command that executes a file."""
    return next(at for at, command in enumerate(commands) if "--execute" in command and file_of(command) == file)


def named(cluster: Cluster) -> dict[str, dict[int, int]]:
    return {f"{topic}-{number}": placed for (topic, number), placed in cluster.placed.items()}


@pytest.mark.parametrize("name", KINDS)
def test_plan_of_every_kind_has_steps_for_a_cluster_of_the_property(tmp_path: Path, name: str) -> None:
    """Otherwise the properties above say nothing about plans of this kind."""
    small = ((generated(seed), seed) for seed in range(amount(6, 400)))
    assert any(has_steps(made, seed, name, tmp_path / "small.txt") for made, seed in small) or any(
        has_steps(large_cluster(seed), seed, name, tmp_path / "large.txt") for seed in LARGE
    )


def has_steps(cluster: Cluster, seed: int, name: str, sizes: Path) -> bool:
    lake = cluster.lake()
    goal = goals(cluster, lake, Random(seed)).get(name)
    if goal is None:
        return False
    try:
        return bool(plan(lake, goal, [cluster.sizes(sizes)], Limits(), headroom=HEADROOM).steps)
    except UsageError:
        return False
