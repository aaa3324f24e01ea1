"""Parts of a plan that whole plans seldom meet: the order of steps, pairs of moves, what the controller refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from pipelines.plan.answer import blocked
from pipelines.plan.goals import Goal, repair, replicas
from pipelines.plan.problem import Problem, problem
from pipelines.plan.solve import Solution, solve
from pipelines.plan.steps import Limits, in_steps
from tests.support.planned import Broker, Cluster, disk_id
from tests.unit.plan.test_drain import targets
from tests.unit.plan.test_plans import made


def seen(path: Path, cluster: Cluster) -> Problem:
    return problem(cluster.lake(), [cluster.sizes(path / "sizes.txt")])


def moved(it: Problem, **to: int) -> Solution:
    """``t_0=2``: the replica of t-0 goes to this disk of broker 1."""
    target, size = it.place.copy(), np.zeros_like(it.bytes)
    where = {it.state.name(row): row for row in range(len(it.place))}
    for name, number in to.items():
        row = where[name.replace("_", "-")]
        target[row, 0], size[row, 0] = it.disks.ids.index(str(disk_id(1, number))), it.bytes[row, 0]
    return Solution(it.place, target, size)


def steps_of(it: Problem, solution: Solution) -> dict[str, int]:
    step, _, _ = in_steps(it, solution, Limits())
    return {it.state.name(row): int(step[row]) for row in range(len(step)) if step[row]}


def test_what_leaves_a_disk_makes_room_in_the_next_step_only(tmp_path: Path) -> None:
    """Of 90 bytes 60 are used: 20 more fit, and 30 more when the 40 have left."""
    cluster = Cluster({1: Broker(3, total=100)})
    cluster.put("t-0", {1: 0}, 20).put("t-1", {1: 1}, 40).put("t-2", {1: 0}, 30).put("u-0", {1: 1}, 20)
    it = seen(tmp_path, cluster.put("v-0", {1: 2}, 1))
    assert steps_of(it, moved(it, t_0=1, t_1=2, t_2=1)) == {"t-0": 1, "t-1": 1, "t-2": 2}


def test_two_replicas_that_wait_for_each_others_room_have_no_step(tmp_path: Path) -> None:
    cluster = Cluster({1: Broker(2, total=100)}).put("t-0", {1: 0}, 60).put("t-1", {1: 1}, 60)
    it = seen(tmp_path, cluster)
    assert steps_of(it, moved(it, t_0=1, t_1=0)) == {}


def test_replica_never_takes_the_place_that_another_of_its_partition_leaves(tmp_path: Path) -> None:
    cluster = Cluster({1: Broker(1), 2: Broker(1), 3: Broker(1)}).put("t-0", {1: 0, 2: 0}).put("e-0", {3: 0})
    it = seen(tmp_path, cluster)
    leaves = it.state.there & (np.array([it.state.name(row) == "t-0" for row in range(len(it.place))])[:, None])
    solution = solve(it, replace(Goal.of(it, "leave", "empty"), leaves=leaves))
    assert [(lack.replicas, lack.example) for lack in solution.lacks] == [(1, "t-0")]


def test_partition_that_can_be_repaired_in_part_is_left_as_it_is(tmp_path: Path) -> None:
    """Its file would name a broker that is down."""
    cluster = Cluster({1: Broker(1), 2: Broker(1, fenced=True), 3: Broker(1, fenced=True), 4: Broker(1)})
    cluster.put("t-0", {1: 0, 2: 0, 3: 0}).put("t-1", {1: 0, 2: 0}).put("e-0", {4: 0})
    answer = made(tmp_path, cluster, repair)
    assert (answer.exit_code, {*targets(answer)}, [lack.example for lack in answer.lacks]) == (1, {"t-1"}, ["t-0"])


def test_more_replicas_are_fewer_partitions_that_a_failure_takes(tmp_path: Path) -> None:
    cluster = Cluster({1: Broker(1), 2: Broker(1)}).put("t-0", {1: 0}).put("t-1", {1: 0}).put("e-0", {2: 0})
    answer = made(tmp_path, cluster, lambda it: replicas(it, {"t": 2}))
    assert (answer.now[1].last_replicas, answer.now[1].place) == (2, "broker 1")
    assert (answer.steps[-1].broker.last_replicas, answer.steps[-1].broker.place) == (1, "broker 2")


def test_controller_has_the_last_word_about_each_kind_of_partition(tmp_path: Path) -> None:
    """Of two partitions of a kind one is played, and both are blocked."""
    cluster = Cluster({1: Broker(1), 2: Broker(1, fenced=True), 3: Broker(1)})
    cluster.put("t-0", {1: 0}).put("t-1", {1: 0}).put("t-2", {1: 0}).put("e-0", {2: 0}).put("e-1", {3: 0})
    it, lake = seen(tmp_path, cluster), cluster.lake()
    target, size = it.place.copy(), np.zeros_like(it.bytes)
    rows = {it.state.name(row): row for row in range(len(it.place))}
    for name, broker in (("t-0", 2), ("t-1", 2), ("t-2", 3)):
        target[rows[name], 0] = it.disks.ids.index(str(disk_id(broker, 0)))
    moving = np.array([rows[name] for name in ("t-0", "t-1", "t-2")])
    lacks, bad = blocked(lake, it, Solution(it.place, target, size), moving)
    assert [(lack.replicas, lack.reason.partition(":")[0]) for lack in lacks] == [(2, "never done")]
    assert {it.state.name(row) for row in bad.tolist()} == {"t-0", "t-1"}
