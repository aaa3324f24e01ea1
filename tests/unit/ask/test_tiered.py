"""Topics with remote storage: a disk has only the local part of their data at stake, and every answer says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from jbod_model.formats import records as r
from pipelines.ask.lost_data import losses
from pipelines.ask.removal import safe_to_remove
from pipelines.ask.risk import risk
from pipelines.ask.whatif import whatif
from pipelines.check.catalogue import run_checks
from pipelines.cli import main
from tests.support.volume import rare
from tests.unit.check.story import Story, disk

LOCAL = "only the local part, which was not copied to remote storage yet"


def story(value: str = "true") -> Story:
    """Topic t has one replica, in directory a of broker 1; topic u likewise, and is not tiered."""
    tiered = r.ConfigRecord(resource_type=2, resource_name="t", name="remote.storage.enable", value=value)
    return Story().broker(1, "ab").broker(2, "c").topic("t", {1: "a"}).topic("u", {1: "a"}).append(tiered, 0)


def output_of(lake: Path, *words: str) -> str:
    """What a command prints."""
    ran = CliRunner().invoke(main.application(words), [*words, "--lake", str(lake)])
    if ran.exception and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    return ran.stdout


def test_whatif_says_what_of_a_tiered_topic_is_at_stake(tmp_path: Path) -> None:
    lake = story().lake(tmp_path)
    assert {change.name: change.tiered for change in whatif(lake, ["1"]).changes} == {"t-0": True, "u-0": False}
    assert f"of 1 partition {LOCAL}: t-0" in output_of(tmp_path, "whatif", "--fail", "1")


def test_risk_names_tiered_topics_where_the_last_replica_is_at_stake(tmp_path: Path) -> None:
    lake = story().lake(tmp_path)
    assert risk(lake).tiered_topics == ["t"]
    line = "Of tiered topics only the local part is at stake, which was not copied to remote storage yet: t"
    assert line in output_of(tmp_path, "risk")


def test_removal_says_what_of_the_last_replicas_is_at_stake(tmp_path: Path) -> None:
    lake = story().lake(tmp_path)
    (reason, *_) = safe_to_remove(lake, f"1:{disk('a')}").reasons
    assert reason.finding.endswith(f"2 with no other replica online (of 1 {LOCAL})")


def test_offline_says_what_of_the_only_copies_is_at_stake(tmp_path: Path) -> None:
    lake = story().left(1, "b").lake(tmp_path)
    assert {partition.name: partition.tiered for partition in losses(lake).at_risk} == {"t-0": True, "u-0": False}
    assert f"of 1 partition {LOCAL}: t-0" in output_of(tmp_path, "offline")


def test_check_of_the_blast_radius_says_what_is_at_stake(tmp_path: Path) -> None:
    (blast_radius,) = (
        finding for finding in run_checks(story().lake(tmp_path), ["B-18"]) if finding.directory_id == str(disk("a"))
    )
    (_, text) = blast_radius.finding.split("failed now: ")
    assert text == f"2; without any copy online: 2 (of 1 {LOCAL})"


def test_check_of_offline_partitions_names_the_tiered_topic(tmp_path: Path) -> None:
    """B-17: every replica is offline, and of topic t only the local part with it."""
    findings = run_checks(story().left(1, "b").lake(tmp_path), ["B-17"])
    assert {f"{finding.topic}-{finding.partition}": finding.finding for finding in findings} == {
        "t-0": "every replica is offline; the topic is tiered: what was copied to remote storage is safe",
        "u-0": "every replica is offline",
    }


@pytest.mark.parametrize(
    "words", [["whatif", "--fail", "1"], rare(["risk"]), rare(["safe-to-remove", f"1:{disk('a')}"]), ["check"]]
)
def test_topic_that_is_not_tiered_is_said_nothing_of(tmp_path: Path, words: list[str]) -> None:
    story("false").lake(tmp_path)
    assert "remote storage" not in output_of(tmp_path, *words)
