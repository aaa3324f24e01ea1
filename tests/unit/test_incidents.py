"""The stories of failures, as the clusters that lived them tell them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.ask.incidents import Incident, incidents
from pipelines.ask.lake import Lake
from tests.lakes import write_lake
from tests.logs import read_log
from tests.paths import KAFKAS, metadata_dir


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("lakes")
    for kafka in KAFKAS:
        write_lake(root / kafka, read_log(metadata_dir(kafka)))
    return {kafka: root / kafka for kafka in KAFKAS}


def told(one: Incident) -> tuple[object, ...]:
    return (
        one.what,
        (one.directory_id or "")[:4],
        one.start_offset,
        one.end_offset,
        one.replicas,
        one.already_offline,
        one.replicas_offline,
        one.leaders,
        dict(one.successors),
        one.without_leader,
        one.without_leader_now,
    )


STORY_4_1_2 = [
    ("broker 1: directory failed", "r60J", 162, 230, 7, 0, 0, 2, {2: 1}, 1, 0),
    ("broker 2: directory failed", "tVpK", 174, 289, 6, 0, 0, 3, {3: 2}, 1, 0),
    ("broker 1: stopped", "", 218, 230, 22, 7, 0, 7, {2: 5, 3: 2}, 0, 0),
    ("broker 2: stopped", "", 275, 289, 24, 6, 0, 12, {1: 7, 3: 2, 4: 2}, 1, 0),
    ("broker 4: lost", "", 341, 421, 22, 0, 0, 13, {1: 7, 2: 2, 3: 1}, 3, 0),
    ("broker 3: stopped", "", 366, 376, 21, 0, 0, 17, {1: 6, 2: 7}, 4, 0),
    ("broker 4: stopped", "", 471, 488, 22, 0, 0, 3, {}, 3, 0),
    ("broker 4: directory gone", "jYd7", 487, 487, 0, 0, 0, 0, {}, 0, 0),
    ("broker 3: stopped", "", 537, None, 24, 0, 24, 5, {1: 1, 4: 2}, 2, 2),
    ("broker 1: stopped", "", 574, None, 25, 0, 25, 24, {2: 13, 4: 9}, 2, 2),
    ("broker 2: stopped", "", 605, None, 28, 0, 28, 26, {4: 8}, 18, 18),
    ("broker 4: stopped", "", 629, None, 22, 0, 22, 22, {}, 22, 22),
]


def test_incidents_of_a_real_cluster_are_those_of_its_story(lakes: dict[str, Path]) -> None:
    assert [told(one) for one in incidents(Lake.open(lakes["kafka-4.1.2"]))] == STORY_4_1_2
