"""Configurations in a lake: where a snapshot stands in the place of records that were not read."""

from __future__ import annotations

from pathlib import Path

import pytest

from jbod_model.formats.codec import encode
from jbod_model.formats.records import ConfigRecord, VersionedRecord
from pipelines.ask.configs import MIN_ISR, TIERED, UNCLEAN_ELECTION, ConfigChange, changes, min_isr, setting
from pipelines.lake.reader import Lake
from tests.support.lakes import write_lake
from tests.support.logs import Entry


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
        ConfigChange(0, "a", "2"),
        ConfigChange(1, "b", "3"),
        ConfigChange(5, None, None),
        ConfigChange(5, "b", "4"),
        ConfigChange(5, "c", "5"),
        ConfigChange(6, "d", "6"),
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
    assert changes(lake, name) == [ConfigChange(0, "a", "1")]


@pytest.mark.parametrize("value", ["many", "true", "", "0", "-1", "2147483648", "1_0", "\u0663"])
def test_min_isr_that_brokers_ignore_counts_as_none(value: str, tmp_path: Path) -> None:
    """R-CFG-7: the controller writes any text as the value of the brokers (R-CFG-6)."""
    of_all = [config(1, "", "2", resource_type=4), config(2, "", value, resource_type=4)]
    write_lake(tmp_path, [config(0, "a", " 3 "), *of_all, config(3, "1", value, resource_type=4)])
    lake = Lake.open(tmp_path)
    values = min_isr(lake, default=4)
    assert (values.of("a", 9), values.of("b", 9)) == (3, 4)
    assert setting(lake, MIN_ISR).brokers == {}
    assert changes(lake, MIN_ISR)[1:] == [ConfigChange(1, "", "2"), ConfigChange(2, "", None)]
