"""Configurations in a lake: where a snapshot stands in the place of records that were not read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from jbod_model.formats.codec import encode
from jbod_model.formats.records import ConfigRecord, VersionedRecord
from pipelines.ask.configs import (
    ALL_BROKERS,
    MIN_ISR,
    TIERED,
    UNCLEAN_ELECTION,
    ConfigChange,
    changes,
    is_true,
    min_isr,
    setting,
    unclean_elections,
)
from pipelines.ask.restart import SAFE, safe_to_restart
from pipelines.ask.risk import risk
from pipelines.ask.whatif import whatif
from pipelines.lake.reader import Lake
from tests.support.lakes import write_lake
from tests.support.logs import Entry
from tests.unit.check.story import Story


def config(
    offset: int, topic: str, value: str, name: str = MIN_ISR, index: int | None = None, resource_type: int = 2
) -> Entry:
    record = ConfigRecord(resource_type=resource_type, resource_name=topic, name=name, value=value)
    versioned = VersionedRecord(record, 0)
    return Entry(offset, 1, offset, offset, encode(versioned), versioned=versioned, snapshot_index=index)


def test_snapshot_replaces_the_configurations_before_it(tmp_path: Path) -> None:
    read = [config(0, "a", "2"), config(1, "b", "3")]
    snapshot = [config(5, "b", "4", index=0), config(5, "c", "5", index=1)]
    write_lake(tmp_path, [*read, *snapshot, config(6, "d", "6")])
    lake = Lake.open(tmp_path)
    assert setting(lake, MIN_ISR).topics == {"b": "4", "c": "5", "d": "6"}
    assert changes(lake, MIN_ISR) == [
        ConfigChange(0, (2, "a"), "2"),
        ConfigChange(1, (2, "b"), "3"),
        ConfigChange(5, None, None),
        ConfigChange(5, (2, "b"), "4"),
        ConfigChange(5, (2, "c"), "5"),
        ConfigChange(6, (2, "d"), "6"),
    ]


@pytest.mark.parametrize("name", [MIN_ISR, TIERED, UNCLEAN_ELECTION])
def test_configurations_that_are_read_together_are_told_apart(name: str, tmp_path: Path) -> None:
    others = [config_name for config_name in (MIN_ISR, TIERED, UNCLEAN_ELECTION) if config_name != name]
    write_lake(
        tmp_path,
        [config(offset, "a", str(offset + 1), config_name) for offset, config_name in enumerate([name, *others])],
    )
    lake = Lake.open(tmp_path)
    assert setting(lake, name).topics == {"a": "1"}
    assert changes(lake, name) == [ConfigChange(0, (2, "a"), "1")]


@pytest.mark.parametrize("value", ["many", "true", "", "0", "-1", "2147483648", "1_0", "\u0663"])
def test_min_isr_that_brokers_ignore_counts_as_none(value: str, tmp_path: Path) -> None:
    """R-CFG-7: the controller writes any text as the value of the brokers (R-CFG-6)."""
    of_all = [config(1, "", "2", resource_type=4), config(2, "", value, resource_type=4)]
    write_lake(tmp_path, [config(0, "a", " 3 "), *of_all, config(3, "1", value, resource_type=4)])
    lake = Lake.open(tmp_path)
    values = min_isr(lake, default=4)
    assert (values.of("a", 9), values.of("b", 9)) == (3, 4)
    assert setting(lake, MIN_ISR).brokers == {}
    assert changes(lake, MIN_ISR)[1:] == [
        ConfigChange(1, ALL_BROKERS, "2"),
        ConfigChange(2, ALL_BROKERS, None),
        ConfigChange(3, (4, "1"), None),
    ]


def of_node(story: Story, node: str, name: str, value: str) -> Story:
    return story.append(ConfigRecord(resource_type=4, resource_name=node, name=name, value=value), 0)


@pytest.mark.parametrize(
    ("values", "effective"),
    [({"1": "2", "2": "2"}, 2), ({"1": "3"}, 3), ({"1": "1", "2": "1", "": "2"}, 1), ({"9": "3"}, 1)],
)
def test_largest_min_isr_of_the_brokers_counts(values: Mapping[str, str], effective: int, tmp_path: Path) -> None:
    """Set for each broker, it was not read, and a restart was safe that made writes with acks=all fail. 9 is gone."""
    story = Story().broker(1, "a").broker(2, "b").topic("t", {1: "a", 2: "b"})
    for node, value in values.items():
        of_node(story, node, MIN_ISR, value)
    lake = story.lake(tmp_path)
    assert min_isr(lake).of("t", 3) == effective
    assert (safe_to_restart(lake, [2]).verdict == SAFE) is (effective == 1)


@pytest.mark.parametrize(("node", "leader"), [("1", 2), ("2", -1)])
def test_unclean_elections_of_the_active_controller_come_before_those_of_all(
    node: str, leader: int, tmp_path: Path
) -> None:
    """R-CFG-1: it was not read, and a failure left a partition without a leader where Kafka elects uncleanly."""
    story = of_node(Story().lead(1, 2).broker(1, "a").broker(2, "b"), node, UNCLEAN_ELECTION, "true")
    lake = story.broker(3, "c").topic("t", {3: "c", 2: "b"}, isr=(3,)).lake(tmp_path)
    assert is_true(unclean_elections(lake).cluster) is (leader == 2)
    assert [(change.leader_after, change.unclean) for change in whatif(lake, ["3"]).changes] == [(leader, leader == 2)]
    assert risk(lake).brokers[0].unclean == (leader == 2)
