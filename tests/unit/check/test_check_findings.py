"""The life of a finding: new, lasting, cleared, back again; whatever runs in between."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from deltalake import DeltaTable

from jbod_model.errors import JbodError, UsageError
from pipelines.check.catalogue import chosen, run_checks
from pipelines.check.findings import Recorded, findings, record
from pipelines.lake.reader import Lake
from tests.unit.check.story import Story


def checked(path: Path, story: Story, only: Sequence[str] = ("B-03", "B-17")) -> Recorded | None:
    """The lake grows to the story's end, and the checks are run and kept."""
    for table in path.iterdir() if path.exists() else ():
        if table.name != "findings":
            shutil.rmtree(table)
    lake = story.lake(path)
    return record(lake, chosen(only), run_checks(lake, only))


def lives(path: Path) -> list[tuple[str, int, int, int | None]]:
    return [
        (row["check_id"], row["first_seen_offset"], row["last_seen_offset"], row["cleared_offset"])
        for row in findings(str(path))
    ]


def broken() -> Story:
    return Story().broker(1, "ab").broker(2, "c").topic("t", {1: "a", 2: "c"}).left(1, "b")


def test_finding_lasts_clears_and_comes_back_as_another_row(tmp_path: Path) -> None:
    story = broken()
    assert checked(tmp_path, story) == Recorded(new=1, lasting=0, cleared=0)
    assert checked(tmp_path, story.wait(30)) == Recorded(new=0, lasting=1, cleared=0)
    assert lives(tmp_path) == [("B-03", 5, 20, None)]
    assert checked(tmp_path, story.broker(1, "ab", process=2)) == Recorded(new=0, lasting=0, cleared=1)
    assert lives(tmp_path) == [("B-03", 5, 20, 21)]
    assert checked(tmp_path, story.left(1, "b")) == Recorded(new=1, lasting=0, cleared=0)
    assert lives(tmp_path) == [("B-03", 5, 20, 21), ("B-03", 22, 22, None)]
    assert len(findings(str(tmp_path), only_open=True)) == 1


def test_run_at_the_same_offset_writes_nothing(tmp_path: Path) -> None:
    story = broken()
    checked(tmp_path, story)
    assert DeltaTable(tmp_path / "findings").history(1)[0]["userMetadata"] == "jbod: compared findings"
    before = DeltaTable(tmp_path / "findings").version(), findings(str(tmp_path))
    assert checked(tmp_path, story) == Recorded(new=0, lasting=1, cleared=0)
    assert (DeltaTable(tmp_path / "findings").version(), findings(str(tmp_path))) == before


def test_run_of_some_checks_leaves_findings_of_the_others_alone(tmp_path: Path) -> None:
    story = broken()
    checked(tmp_path, story)
    assert checked(tmp_path, story.broker(1, "ab", process=2), only=["B-17"]) == Recorded(new=0, lasting=0, cleared=0)
    assert lives(tmp_path) == [("B-03", 5, 5, None)]


def test_finding_that_gets_worse_is_the_same_finding(tmp_path: Path) -> None:
    story = Story().broker(1, "ab").broker(2, "cd").topic("t", {1: "a", 2: "unassigned"}).wait(60)
    checked(tmp_path, story, ["B-01"])
    checked(tmp_path, story.change("t", 0, leader=2), ["B-01"])
    (row,) = findings(str(tmp_path))
    assert (row["severity"], row["first_seen_offset"], row["last_seen_offset"]) == ("critical", 19, 20)


def test_findings_of_the_past_are_not_kept(tmp_path: Path) -> None:
    broken().lake(tmp_path)
    with pytest.raises(UsageError, match="newest offset only"):
        record(Lake.open(tmp_path, 4), chosen(), [])
    assert not (tmp_path / "findings").exists()


def test_findings_of_a_lake_that_was_taken_back_wait_until_it_has_grown_again(tmp_path: Path) -> None:
    checked(tmp_path, broken().wait(30))
    before = findings(str(tmp_path))
    assert checked(tmp_path, broken()) is None
    assert findings(str(tmp_path)) == before
    assert checked(tmp_path, broken().wait(45).wait(45)) == Recorded(new=0, lasting=1, cleared=0)


def test_two_runs_at_once_keep_one_and_refuse_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    story = broken()
    lake = story.lake(tmp_path)
    new_findings = run_checks(lake, ["B-03"])
    record(lake, chosen(["B-03"]), [])
    stale = DeltaTable(tmp_path / "findings")
    record(lake, chosen(["B-03"]), new_findings)
    monkeypatch.setattr("pipelines.check.findings._open_or_create", lambda _: stale)
    with pytest.raises(JbodError, match="another check was written at the same time"):
        record(lake, chosen(["B-03"]), new_findings)
    assert lives(tmp_path) == [("B-03", 5, 5, None)]


def test_table_of_another_version_is_refused(tmp_path: Path) -> None:
    lake = broken().lake(tmp_path)
    shutil.copytree(tmp_path / "ledger", tmp_path / "findings")
    with pytest.raises(UsageError, match="findings of another version of jbod"):
        record(lake, chosen(), [])
