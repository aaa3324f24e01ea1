"""Plans of restarts: as few batches as there can be, each safe by the model; what no batch can have; the next batch."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from jbod_model.formats.responses import ControllerFault
from jbod_model.ids import Uuid
from jbod_model.replay.image import Image, Partition
from jbod_model.restart import settled
from pipelines.ask.restart_batches import BatchLimits, fewest
from pipelines.ask.restart_plan import RestartPlan, restart_plan
from pipelines.cli.main import application, main
from pipelines.lake.reader import Lake
from tests.support.images import brokers, images, in_memory_of, one_topic, partition
from tests.support.volume import amount
from tests.unit.ask.restart_play import Place, played
from tests.unit.ask.test_restart_property import REPAIRED, with_directories
from tests.unit.check.story import Story

DIRS = {number: Uuid(number, 1000) for number in range(1, 10)}


def on(*ids: int, **fields: object) -> Partition:
    return partition(*((broker_id, DIRS[broker_id]) for broker_id in ids), **fields)


def plan(*partitions: Partition, size: int = 6, min_isr: str = "2", **options: object) -> RestartPlan:
    made = one_topic(*partitions, registered=brokers(*((DIRS[broker_id],) for broker_id in range(1, size + 1))))
    made = replace(made, configs={(4, ""): {"min.insync.replicas": min_isr}})
    return restart_plan(in_memory_of(made), **options)  # type: ignore[arg-type]


# BATCHES


def smallest(nodes: int, limits: Sequence[tuple[Sequence[int], int]], most: int) -> int:
    """The fewest batches, by trying all of them."""

    def possible(batch: frozenset[int]) -> bool:
        return len(batch) <= most and all(len(batch & {*some}) <= limit for some, limit in limits)

    for number in range(1, nodes + 1):
        for colours in itertools.product(range(number), repeat=nodes):
            batches = [frozenset(at for at in range(nodes) if colours[at] == colour) for colour in range(number)]
            if all(map(possible, batches)):
                return number
    return nodes


def batch_limits(nodes: int, limits: Sequence[tuple[Sequence[int], int]], most_in_all: int) -> BatchLimits:
    """Limits as lists of nodes, each with how many of them may be in a batch."""
    members = np.zeros((len(limits), nodes), bool)
    for row, (some, _) in enumerate(limits):
        members[row, list(some)] = True
    return BatchLimits(nodes, members, np.array([most for _, most in limits], np.int64), most_in_all)


@pytest.mark.parametrize("seed", range(60))
def test_search_finds_the_fewest_batches_and_proves_it(seed: int) -> None:
    chance = random.Random(seed)
    nodes = chance.randint(1, 6)
    limits = []
    for _ in range(chance.randint(0, 8)):
        some = chance.sample(range(nodes), chance.randint(1, min(4, nodes)))
        limit = chance.choice([1, 1, 2])
        if len(some) > limit:
            limits.append((some, limit))
    most = chance.choice([nodes, 2, 3])
    node_batches = fewest(batch_limits(nodes, limits, most))
    assert len(node_batches.batches) == node_batches.bound == smallest(nodes, limits, most)
    assert sorted(node for batch in node_batches.batches for node in batch) == [*range(nodes)]
    for batch in node_batches.batches:
        assert len(batch) <= most
        assert all(len({*batch} & {*some}) <= limit for some, limit in limits)


def test_search_that_gives_up_still_has_batches_and_an_honest_bound() -> None:
    chance = random.Random(1)
    edges = [(pair, 1) for pair in itertools.combinations(range(40), 2) if chance.random() < 0.5]
    node_batches = fewest(batch_limits(40, edges, 40), steps=1)
    assert sum(map(len, node_batches.batches)) == 40
    assert node_batches.bound < len(node_batches.batches)
    for batch in node_batches.batches:
        assert not any(pair in {edge for edge, _ in edges} for pair in itertools.combinations(sorted(batch), 2))


# PLANS


def test_brokers_that_share_no_partition_are_restarted_at_once() -> None:
    answer = plan(on(1, 2, 3), on(4, 5, 6))
    assert ([len(batch) for batch in answer.batches], answer.bound) == ([2, 2, 2], 3)
    assert all(len({*batch} & {1, 2, 3}) == 1 for batch in answer.batches)


def test_partition_that_can_spare_two_replicas_lets_two_of_its_brokers_go_at_once() -> None:
    answer = plan(on(1, 2, 3), size=3, min_isr="1")
    assert (sorted(map(len, answer.batches)), answer.is_best) == ([1, 2], True)


def test_max_parallel_limits_a_batch() -> None:
    answer = plan(on(1, 2, 3), on(4, 5, 6), max_parallel=1)
    assert [len(batch) for batch in answer.batches] == [1] * 6
    assert answer.is_best


def test_batches_by_rack_have_brokers_of_one_rack() -> None:
    made = one_topic(on(1, 4), on(2, 5), registered=brokers(*((DIRS[broker_id],) for broker_id in range(1, 6))))
    racks = {number: replace(registration, rack=f"r{number % 2}") for number, registration in made.brokers.items()}
    lake = in_memory_of(replace(made, brokers=racks))
    answer = restart_plan(lake, by_rack=True)
    rack = {node.node_id: node.rack for node in answer.nodes}
    assert all(len({rack[node_id] for node_id in batch}) == 1 for batch in answer.batches)


def test_brokers_that_no_batch_can_have_are_named_with_the_smallest_reason() -> None:
    answer = plan(on(1), on(2, 3), on(2, 3, 4), on(5, 6, 4))
    assert {node.node_id: node.reason for node in answer.impossible} == {
        1: "one replica",
        2: "min.insync.replicas",
        3: "min.insync.replicas",
    }
    assert answer.impossible[0].reasons[0].names == ["t-0"]
    assert sorted(node_id for batch in answer.batches for node_id in batch) == [4, 5, 6]


def test_follower_that_lags_is_waited_for_and_does_not_change_the_plan() -> None:
    answer = plan(on(1, 2, 3, isr=(1, 2)), size=3)
    assert [len(batch) for batch in answer.batches] == [1, 1, 1]
    assert (answer.next.state, answer.next.batch) == ("go", [3])
    waiting = plan(on(1, 2, 3, isr=(1, 2)), size=3, node_ids=[1])
    assert (waiting.next.state, waiting.next.exit_code) == ("wait", 1)
    assert "broker 3 is in sync again" in waiting.next.why[0]


def test_reasons_to_wait_name_their_partitions_once() -> None:
    """It was "1 partition can be spared a replica" for each, once for the batch and once for its brokers."""
    waiting = plan(on(1, 2, 3, isr=(1, 2)), on(1, 3, 2, isr=(1, 3)), size=3, node_ids=[1, 2]).next
    when = "1 partition can be spared a replica when broker"
    assert sorted(waiting.why) == [f"{when} 2 is in sync again: t-1", f"{when} 3 is in sync again: t-0"]


def test_broker_that_is_down_is_started_first() -> None:
    made = one_topic(on(1, 2, 3), on(4, 5, 6), registered=brokers(*((DIRS[broker_id],) for broker_id in range(1, 7))))
    registered = {**made.brokers, 3: replace(made.brokers[3], fenced=True)}
    made = replace(made, brokers=registered, configs={(4, ""): {"min.insync.replicas": "2"}})
    answer = restart_plan(in_memory_of(made))
    assert (answer.down, {node.node_id: node.reason for node in answer.impossible}) == (
        [3],
        {1: "broker down", 2: "broker down"},
    )
    assert answer.next.state == "go"  # 4, 5 or 6
    assert restart_plan(in_memory_of(made), [1, 3]).next.state == "wait"


def test_unregistered_broker_that_has_replicas_is_down_already() -> None:
    """It was in no line of the plan, and the exit code was 0, though its replicas are offline as of a fenced broker."""
    made = one_topic(on(1, 2, 4, isr=(1, 2)), on(2, 3), registered=brokers(*((DIRS[number],) for number in (1, 2, 3))))
    answer = restart_plan(in_memory_of(made))
    assert (answer.down, answer.next.state, len(answer.batches)) == ([4], "go", 2)
    assert not restart_plan(in_memory_of(made), [1, 2, 3]).down


def test_plan_of_old_knowledge_is_not_decidable() -> None:
    lake = in_memory_of(one_topic(on(1, 2), registered=brokers((DIRS[1],), (DIRS[2],))))
    answer = restart_plan(lake, max_age=60, now=lake.time + timedelta(seconds=61))
    assert (answer.next.state, answer.next.exit_code, len(answer.batches)) == ("not decidable", 2, 2)


# CONTROLLERS


def test_brokers_come_before_controllers_and_the_active_one_is_last(tmp_path: Path) -> None:
    story = Story().broker(1, "a").broker(2, "b").broker(3, "c").topic("t", {1: "a", 2: "b"}, {3: "c", 2: "b"})
    story.lead(3001, 3000, 3, 3003, 3004)
    answer = restart_plan(story.lake(tmp_path))
    assert answer.batches == [[1], [2], [3, 3000], [3003, 3004], [3001]] or (
        [*answer.batches[0], *answer.batches[1]] == [1, 2] and 3001 in answer.batches[-1]
    )
    assert all(len({*batch} & {3, 3000, 3001, 3003, 3004}) <= 2 for batch in answer.batches)
    assert {node.node_id: node.role for node in answer.nodes}[3] == "both"
    assert [node.node_id for node in answer.nodes if node.active] == [3001]


def test_quorum_of_one_is_in_no_batch(tmp_path: Path) -> None:
    answer = restart_plan(Story().broker(1, "a").lead(3000).lake(tmp_path))
    assert [(node.node_id, node.reason) for node in answer.impossible] == [(3000, "quorum")]


# THE NEXT BATCH


def run(*words: str) -> tuple[int, str]:
    left = CliRunner().invoke(application(["restart-plan"]), ["restart-plan", *words])
    return left.exit_code, left.stdout


def test_id_that_no_node_has_is_bad_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code was 0: of the nodes that were named none was left, so all of them had a plan."""
    Story().broker(1, "a").broker(2, "b").lake(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(["restart-plan", "7", "1", "--lake", str(tmp_path), "--at-offset", "2"])
    captured = capsys.readouterr()
    assert (end.value.code, captured.out) == (2, "")
    assert captured.err == "jbod: no broker and no controller has the id 7; known: 1, 2\n"


def test_option_that_is_no_time_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Cause: a wrong --since was refused as --at-time, and a wrong --max-age as a time between two answers."""
    Story().broker(1, "a").lake(tmp_path / "lake")
    for option, problem in (("--since", "not a time: write "), ("--max-age", "not a span of time: write 5s or 2m")):
        with pytest.raises(SystemExit):
            main(["restart-plan", "--next", option, "soon", "--lake", str(tmp_path / "lake")])
        assert f"jbod: {option} soon: {problem}" in capsys.readouterr().err


def test_loop_of_next_batches_restarts_every_broker_once(tmp_path: Path) -> None:
    """As docs/restart.md does: the next batch, until nothing is left. A broker counts once it has registered again."""
    path = tmp_path / "lake"
    story = Story().broker(1, "a").broker(2, "b").broker(3, "c").topic("t", {1: "a", 2: "b", 3: "c"})
    story.configure("t", "2").lake(path)
    since = f"{Lake.open(path).time:%Y-%m-%dT%H:%M:%SZ}"
    at, restarted = ("--lake", str(path)), []
    for _ in range(9):
        code, output = run("--next", "--since", since, *at, "--at-offset", str(len(story.entries) - 1))
        if not output.strip():
            break
        (broker,) = map(int, output.split(","))
        assert code == 0
        restarted.append(broker)
        rest = tuple(replica for replica in (1, 2, 3) if replica != broker)
        story.fence(broker).change("t", 0, isr=rest, leader=rest[0])
        story.broker(broker, "_abc"[broker], process=2, fenced=True).lake(path)
        code, output = run("--next", "--since", since, *at, "--at-offset", str(len(story.entries) - 1))
        assert (code, output) == (1, "")
        story.fence(broker, up=True).lake(path)
        if len(restarted) < 3:
            code, output = run("--next", "--since", since, *at, "--at-offset", str(len(story.entries) - 1))
            assert (code, output) == (1, "")
        story.change("t", 0, isr=(1, 2, 3)).lake(path)
    assert sorted(restarted) == [1, 2, 3]
    assert code == 0


def test_plan_without_a_batch_says_first_that_nothing_can_be_restarted(tmp_path: Path) -> None:
    """It began with "0 batches for 0 nodes: no plan has fewer" where a broker was waited for."""
    story = Story().broker(1, "a").broker(2, "x").topic("t", {1: "a", 2: "x"}).fence(2).change("t", 0, isr=(1,))
    offset = str(story.lake(tmp_path).offset)

    def first_line(*brokers: str) -> str:
        words = ["restart-plan", *brokers, "--lake", str(tmp_path), "--at-offset", offset]
        return CliRunner().invoke(application(words), words).output.splitlines()[0]

    assert first_line().startswith(f"No node can be restarted without harm (offset {offset}, ")
    assert first_line("2").startswith(f"Nothing that runs is left to restart (offset {offset}, ")


def test_command_shows_the_plan_and_json_has_the_documented_names(tmp_path: Path) -> None:
    story = Story().broker(1, "a").broker(2, "b").broker(3, "c").topic("t", {1: "a", 2: "b"}, {3: "c"})
    story.lake(tmp_path)
    code, output = run("--lake", str(tmp_path), "--at-offset", "6")
    assert code == 1
    assert output.startswith("2 batches for 2 nodes (offset 6")
    assert "1 node cannot be restarted without harm." in output
    assert "  3: 1 partition has one replica (t-1)" in output
    answer = json.loads(run("--lake", str(tmp_path), "--at-offset", "6", "--json")[1])
    assert (answer["batches"], answer["number"], answer["bound"], answer["is_best"]) == ([[1], [2]], 2, 2, True)
    assert answer["next"] == {"state": "go", "batch": [1], "why": []}
    assert [node["node_id"] for node in answer["impossible"]] == [3]


def test_nodes_that_no_batch_can_have_are_named_with_their_own_partitions(tmp_path: Path) -> None:
    """Brokers 1 and 2 were both named with t-0, which only broker 1 has."""
    story = Story().broker(1, "a").broker(2, "b").topic("t", {1: "a"}, {2: "b"})
    lake = story.lake(tmp_path)
    _, output = run("--lake", str(tmp_path), "--at-offset", str(lake.offset))
    assert output.splitlines()[-3:] == [
        "  1: 1 partition has one replica (t-0)",
        "  2: 1 partition has one replica (t-1)",
        "jbod safe-to-restart ID says what to do first.",
    ]


# AGAINST THE MODEL


@settings(
    max_examples=amount(6, 1000),
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(image=images().map(with_directories), most=st.sampled_from([None, 1, 2]))
def test_no_batch_of_any_image_does_harm_in_any_order(image: Image, most: int | None) -> None:
    """Each batch on the image that has settled, as the model settles it; and the next batch on the image as it is."""
    answer = restart_plan(in_memory_of(image), max_parallel=most)
    later = settled(image)
    for batch, before in [*((batch, later) for batch in answer.batches), (answer.next.batch, image)]:
        for kill in (False, True):
            if batch and not (kill and before is image):
                assert not any(harmed(before, batch, kill=kill).values())
    possible = {node_id for batch in answer.batches for node_id in batch}
    for broker in {*image.brokers} - possible - {*answer.down}:
        alone = [any(harmed(later, [broker], kill=kill).values()) for kill in (False, True)]
        assert any(alone) or is_judged_otherwise(answer, broker, image)


def harmed(image: Image, brokers: Sequence[int], *, kill: bool) -> dict[Place, set[str]]:
    try:
        return played(image, brokers, kill=kill).caused
    except ControllerFault:
        return played(image, brokers, kill=kill, profile=REPAIRED).caused


def is_judged_otherwise(answer: RestartPlan, broker: int, image: Image) -> bool:
    """A start with a disk that is not online (test_next_start.py), a state on which Kafka's own controller fails, or
    another broker that is shutting down: the plan counts on none that leaves."""
    (node,) = [node for node in answer.nodes if node.node_id == broker]
    leaving = {other.broker_id for other in image.brokers.values() if other.in_controlled_shutdown}
    return node.reason in ("last copy", "fault") or any(leaving & {*reason.waits_for} for reason in node.reasons)
