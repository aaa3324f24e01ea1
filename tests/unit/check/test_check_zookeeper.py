"""Advice for brokers that run in ZooKeeper mode: they report directories only after a start under KRaft (R-ZK-3)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from jbod_model.formats.records import RegisterBrokerRecord
from jbod_model.ids import Uuid
from pipelines.ask.removal import safe_to_remove
from pipelines.check.catalogue import run_checks
from pipelines.lake.reader import Lake
from tests.unit.check.story import Story, disk


def migrating(level: int = 21) -> Story:
    """Broker 1 runs in ZooKeeper mode, and broker 2 under KRaft; both were asked for two replicas long ago."""
    story = Story(level)
    for broker, disks in ((1, "ab"), (2, "cd")):
        record = RegisterBrokerRecord(
            broker_id=broker,
            is_migrating_zk_broker=broker == 1,
            incarnation_id=Uuid(broker, 5000),
            fenced=False,
            log_dirs=tuple(map(disk, disks)),
        )
        story.append(record, 3)
    placed = {1: "unassigned", 2: "unassigned"}, {1: "migrating", 2: "migrating"}
    return story.topic("t", *placed).topic("u", {1: "a"}).wait(600)


@pytest.mark.parametrize("check", ["B-01", "B-07"])
def test_broker_in_zookeeper_mode_reports_nothing_until_it_starts_under_kraft(tmp_path: Path, check: str) -> None:
    """It said that any restart brings the report."""
    advice = {finding.broker_id: finding.advice for finding in run_checks(migrating().lake(tmp_path), [check])}
    assert "restart broker 1 under KRaft" in advice[1]
    assert "restart broker 2" in advice[2]
    assert "KRaft" not in advice[2]


@pytest.mark.parametrize(
    ("kafka", "offset", "restart"),
    [
        ("kafka-3.9.2-zk-migration", 133, "restart broker 3 under KRaft"),
        ("kafka-3.9.2-upgrade", 157, "restart broker 3"),
    ],
)
def test_directories_of_a_real_broker_are_reported_when_it_starts_under_kraft(
    cluster_lakes: Mapping[str, Path], kafka: str, offset: int, restart: str
) -> None:
    findings = run_checks(Lake.open(cluster_lakes[kafka], offset), ["B-07"])
    assert {finding.advice for finding in findings} == {
        f"{restart}: it reports the directories of all its replicas then"
    }


def test_disk_is_removed_after_its_broker_starts_under_kraft(tmp_path: Path) -> None:
    lake = migrating().lake(tmp_path)
    steps = {
        broker: " ".join(reason.advice for reason in safe_to_remove(lake, f"{broker}:{disk(name)}").reasons)
        for broker, name in ((1, "b"), (2, "d"))
    }
    assert "its next restart under KRaft reports them" in steps[1]
    assert "restart broker 1 under KRaft: it then reports where they are" in steps[1]
    assert "KRaft" not in steps[2]
