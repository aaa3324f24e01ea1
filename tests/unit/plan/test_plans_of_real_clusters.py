"""Plans of the bundled clusters, along their histories: the controller blocks nothing of what a plan has."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from jbod_model.errors import UsageError
from pipelines.ask.plan_check import ReassignedPartition, judge
from pipelines.ask.starting import without_a_disk
from pipelines.ask.whatif_places import find_place
from pipelines.lake.reader import Lake
from pipelines.plan.answer import plan
from pipelines.plan.goals import balance, drain, fill, repair, replicas
from pipelines.plan.problem import CLOSED
from pipelines.plan.steps import Limits
from tests.support.paths import EVERY_KAFKA
from tests.support.volume import amount, sampled


def offsets(path: Path) -> list[int]:
    last = Lake.open(path).offset
    return [last * part // 6 for part in range(2, 7, amount(3, 1))]


@pytest.mark.parametrize("kafka", sampled(EVERY_KAFKA, 1))
def test_no_step_of_any_plan_of_a_real_cluster_is_blocked(cluster_lakes: Mapping[str, Path], kafka: str) -> None:
    planned = 0
    for offset in offsets(cluster_lakes[kafka]):
        lake = Lake.open(cluster_lakes[kafka], at_offset=offset)
        ((running,),) = lake.query(
            f"SELECT count(*) FROM {lake.at('brokers')} WHERE NOT fenced AND NOT in_controlled_shutdown"
        )
        brokers = [number for (number,) in lake.query(f"SELECT broker_id FROM {lake.at('brokers')}")]
        disks = lake.query(f"SELECT broker_id, directory_id FROM {lake.at('directories')}")
        places = [find_place(lake, f"{broker}:{directory}") for broker, directory in disks[:2]]
        topics = lake.query(f"SELECT topic, min(len(replicas)) FROM {lake.at('partitions')} GROUP BY ALL ORDER BY 1")
        goals = [partial(balance, broker=None, by=by) for by in ("replicas", "leaders")] + [repair]
        goals += [
            partial(drain, place=place) for place in [*places, *(find_place(lake, str(each)) for each in brokers[:2])]
        ]
        goals += [partial(fill, place=place) for place in places]
        goals += [
            partial(replicas, wanted={topic: max(1, number - 1)}) for topic, number in topics[:1] if number <= running
        ]
        for goal in goals:
            try:
                answer = plan(lake, goal, limits=Limits(moves=4))
            except UsageError as closed:
                assert any(why in str(closed) for why in CLOSED.values())
                continue
            assert answer.steps or answer.lacks or answer.exit_code == 0
            for step in answer.steps:
                reassignments = {
                    (reassignment["topic"], reassignment["partition"]): ReassignedPartition(
                        tuple(reassignment["replicas"]), tuple(reassignment["log_dirs"])
                    )
                    for reassignment in answer.documents[f"step-{step.number}.json"]["partitions"]
                }
                assert judge(lake, reassignments, without_a_disk(lake)).ok
                planned += 1
    assert planned
