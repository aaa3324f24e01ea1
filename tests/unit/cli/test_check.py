"""jbod check: what it prints, how it leaves, what it keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from pipelines.check.catalogue import CHECKS, ELSEWHERE
from pipelines.check.findings import findings
from pipelines.cli import main
from pipelines.lake import FORMAT_VERSION
from pipelines.lake.tables import LEDGER
from tests.support.volume import sampled
from tests.unit.check.story import Story, disk


@pytest.fixture
def dying(tmp_path: Path) -> Path:
    """A disk of broker 1 failed, and the only copy of t-0 with it."""
    story = (
        Story().broker(1, "abe").broker(2, "cd").topic("t", {1: "a"}, {2: "c"}).change("t", 0, leader=-1).left(1, "be")
    )
    story.lake(tmp_path / "lake")
    return tmp_path / "lake"


def run(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main.main(["check", *map(str, arguments)])
    printed = capsys.readouterr()
    return int(left.value.code or 0), printed.out, printed.err


def test_check_says_what_is_wrong_first_then_what_to_do(dying: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--lake", dying)
    assert (code, err) == (1, "")
    lines = out.splitlines()
    assert lines[0] == (f"At offset 7, 2023-11-14 22:13:28.000Z: {len(CHECKS)} checks, 4 findings: 2 critical, 2 info.")
    assert lines[2].startswith("CRITICAL B-03 replica-in-unknown-dir: ")
    assert (
        lines[3]
        == f"  t-0 on broker 1: directory {disk('a')} of broker 1 failed while the broker ran (since offset 7, 0 s)"
    )
    assert lines[4].startswith(
        f"    do: directory {disk('a')} of broker 1 holds the only complete copy of t-0: read it "
    )
    assert [line.split()[1] for line in lines if line[:1].isupper()][1:] == ["B-03", "B-17", "B-18", "B-24"]


def test_partitions_that_went_offline_one_after_the_other_each_have_their_own_beginning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    story = Story().broker(1, "abe").topic("t", {1: "a"}, {1: "b"}, {1: "a"}).change("t", 0, leader=-1)
    story.left(1, "be").left(1, "e").lake(tmp_path)
    _, out, _ = run(capsys, "--lake", tmp_path, "--only", "B-17")
    assert out.splitlines()[3:6] == [
        "  every replica is offline",
        "    2 since offset 7, 1 s: t-0, t-2",
        "    1 since offset 8, 0 s: t-1",
    ]


def test_check_of_a_healthy_cluster_leaves_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Story().broker(1, "a").broker(2, "c").topic("t", {1: "a", 2: "c"}).lake(tmp_path)
    assert run(capsys, "--lake", tmp_path) == (
        0,
        f"At offset 4, 2023-11-14 22:13:25.000Z: {len(CHECKS)} checks, nothing found.\n",
        "",
    )


@pytest.mark.parametrize(
    ("arguments", "code"),
    sampled(
        [
            (["--only", "B-03,B-04"], 1),
            (["--only", "B-04", "--only", "mv-missing"], 0),
            (["--only", "B-18"], 0),
            (["--only", "B-18", "--fail-on", "info"], 1),
            (["--only", "offline-partition", "--fail-on", "critical"], 1),
            (["--only", "b-17,Offline-Partition"], 1),
            (["--at-offset", "6", "--fail-on", "critical", "--only", "B-03"], 0),
        ],
        4,
    ),
)
def test_check_leaves_with_1_for_what_is_severe_enough(
    dying: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int
) -> None:
    assert run(capsys, "--lake", dying, *arguments)[0] == code


def test_check_as_json_is_one_object(dying: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--lake", dying, "--json", "--only", "B-03")
    answer = json.loads(out)
    assert (code, answer["offset"], answer["checks"], len(answer["findings"])) == (1, 7, ["B-03"], 1)
    (finding,) = answer["findings"]
    assert (finding["check_id"], finding["severity"], finding["broker_id"], finding["topic"]) == (
        "B-03",
        "critical",
        1,
        "t",
    )
    assert finding["from_offset"] == 7
    assert finding["directory_id"] == str(disk("a"))


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--only", "B-99"], "jbod: --only B-99: no such check: jbod check --list names all of them"),
        (["--only", ""], "jbod: --only: the value is empty"),
        (["--only", "B-26"], "jbod: --only B-26: the tables cannot decide this one: jbod disks, on the machine"),
        (["--at-offset", "99"], "{lake}: offset 99 is after the newest published one, 7"),
        (["--at-offset", "1", "--at-time", "0"], "jbod: --at-offset and --at-time: give one of them"),
    ],
)
def test_check_of_what_is_not_there_is_one_line(
    dying: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    code, out, err = run(capsys, "--lake", dying, *arguments)
    assert (code, out) == (2, "")
    assert line.format(lake=dying) in err
    assert err.count("\n") == 1


def test_check_of_a_lake_that_is_none_empty_half_built_or_of_another_version_is_one_line(
    dying: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(lake: Path) -> str:
        code, out, err = run(capsys, "--lake", lake)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert not (lake / "findings").exists()
        return err

    assert f"{tmp_path}/none: no lake there" in refused(tmp_path / "none")
    DeltaTable.create((tmp_path / "empty" / "ledger").as_uri(), LEDGER.schema)
    assert "nothing was published into this lake yet" in refused(tmp_path / "empty")
    DeltaTable.create(
        (tmp_path / "newer" / "ledger").as_uri(),
        LEDGER.schema,
        description=json.dumps({"format": FORMAT_VERSION + 1}),
    )
    assert f"lake of format {FORMAT_VERSION + 1}, this jbod reads {FORMAT_VERSION}" in refused(tmp_path / "newer")
    for file in (dying / "assignments").glob("_delta_log/*.json"):
        file.unlink()
    assert f"{dying}/assignments: cannot be opened" in refused(dying)


def test_check_keeps_findings_of_the_newest_offset_only(dying: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--no-keep"], ["--at-offset", "7"], ["--at-time", "2023-11-14T22:13:28Z"]):
        run(capsys, "--lake", dying, *arguments)
        assert findings(str(dying)) == []
    run(capsys, "--lake", dying)
    assert [row["check_id"] for row in findings(str(dying))] == ["B-03", "B-17", "B-18", "B-24"]


def test_check_shows_hostile_names_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "[red]\x1b[2J'; DROP VIEW brokers; --{0}<b>\n"
    Story().broker(1, "ab").topic(name, {1: "a"}).change(name, 0, leader=-1).lake(tmp_path)
    _, out, _ = run(capsys, "--lake", tmp_path, "--only", "B-17")
    assert "  [red]\\x1b[2J'; DROP VIEW brokers; --{0}<b>\\n-0: no replica leads it (since offset 4, 0 s)" in out
    (row,) = findings(str(tmp_path))
    assert row["topic"] == name


def test_check_lists_every_check_and_what_decides_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--list")
    assert code == 0
    known = [*(check.id for check in CHECKS), *(check.id for check in ELSEWHERE)]
    assert [line.split()[0] for line in out.splitlines() if line.startswith("B-")] == known
    assert set(known) == {f"B-{number:02}" for number in range(1, len(known) + 1)}
    code, out, _ = run(capsys, "--list", "--json")
    assert len(json.loads(out)["checks"]) == len(CHECKS)


def test_check_names_eight_of_many_or_all_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    story = Story().broker(1, "ab").topic("t", *[{1: "a"} for _ in range(12)]).left(1, "b")
    story.lake(tmp_path)
    _, out, _ = run(capsys, "--lake", tmp_path, "--only", "B-03")
    assert "    12: t-0 on broker 1, t-1 on broker 1" in out
    assert "t-7 on broker 1 and 4 more" in out
    _, out, _ = run(capsys, "--lake", tmp_path, "--only", "B-03", "--all")
    assert "t-11 on broker 1\n" in out


def test_worst_finding_of_a_check_is_listed_before_many_that_are_less_bad(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cause: by subject, an election without the data came after leaders that only may lack what was not flushed."""
    story = Story().broker(1, "a").broker(2, "cdefghijkl").broker(3, "m")
    story.topic("crashed", *({2: name} for name in "cdefghijkl")).topic("elected", {1: "a", 3: "m"}, isr=(1,))
    story.fence(2)
    for number in range(10):
        story.change("crashed", number, leader=-1, isr=())
    story.broker(2, "cdefghijkl", process=2)
    for number in range(10):
        story.change("crashed", number, leader=2, isr=(2,), leader_recovery_state=1)
    story.fence(1).change("elected", 0, leader=3, isr=(3,), leader_recovery_state=1)
    story.lake(tmp_path)
    out = run(capsys, "--lake", tmp_path, "--only", "B-33")[1]
    listed = [line.strip() for line in out.splitlines() if line.startswith("  ")]
    assert listed[0].startswith("elected-0: the data may lack writes: broker 3 was elected without them")
    assert "and 3 more causes (--all)" in listed
    rows = json.loads(run(capsys, "--lake", tmp_path, "--only", "B-33", "--json")[1])["findings"]
    assert [row["topic"] for row in rows] == ["elected"] + ["crashed"] * 10
