"""The quorum of a cluster of Kafka 4.4.0, beside what Kafka's own tool said of it, and of made-up logs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from jbod_model.formats import records as r
from jbod_model.formats.codec import write_struct
from jbod_model.formats.control_records import (
    Endpoint,
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    QuorumVoter,
    Voter,
    VotersRecord,
)
from jbod_model.ids import Uuid
from pipelines.ask import Lake
from pipelines.ask.quorum import Levels, QuorumAnswer, quorum
from pipelines.ask.upgrade import upgrade_check
from pipelines.cli import main
from pipelines.run.log_lake import LogLake
from pipelines.show.quorum import node_rows
from pipelines.source.log_options import LogOptions
from tests.support.lakes import write_lake
from tests.support.logs import Entry
from tests.support.paths import CLUSTERS, metadata_dir
from tests.support.volume import exhaustive
from tests.unit.check.story import Story, disk

KAFKA = "kafka-4.4.0"
TOLD_AT = 662
"""Kafka's tools were asked when the log ended here."""


@pytest.fixture(scope="module")
def lake(cluster_lakes: Mapping[str, Path]) -> Path:
    return cluster_lakes[KAFKA]


def of_log(offset: int | None = None, kafka: str = KAFKA) -> QuorumAnswer:
    return quorum(LogLake.of(LogOptions(path=str(metadata_dir(kafka))), offset))


def states(answer: QuorumAnswer) -> dict[int, tuple[str, int | None]]:
    return {
        controller.node_id: (controller.state, controller.since and controller.since.offset)
        for controller in answer.controllers
    }


def test_quorum_is_what_kafkas_tool_described(lake: Path) -> None:
    lines = (CLUSTERS / KAFKA / "quorum.txt").read_text().splitlines()
    rows = [line.split() for line in lines if line.split()[0].isdigit()]
    listed = {status: {int(row[0]): row[1] for row in rows if row[6].startswith(status)} for status in ("L", "F", "O")}
    answer = quorum(Lake.open(lake, at_offset=TOLD_AT))
    assert [answer.leader_id] == [*listed["L"]]
    voters = {voter.node_id: voter.directory_id for voter in answer.voters}
    assert voters == listed["L"] | listed["F"]
    # Broker 3 was unregistered two records before; for the leader of the quorum it fetched a while ago.
    registered = {node.node_id for node in (*answer.controllers, *answer.brokers)}
    assert registered - voters.keys() == listed["O"].keys() - {3}


def test_feature_ranges_are_what_kafkas_tool_described(lake: Path) -> None:
    lines = [line.split() for line in (CLUSTERS / KAFKA / "quorum.txt").read_text().splitlines() if "Feature: " in line]
    descriptions = {
        line[line.index("Feature:") + 1]: line[line.index("FinalizedVersionLevel:") + 1 :] for line in lines
    }
    features = {feature.feature: feature for feature in upgrade_check(Lake.open(lake, at_offset=TOLD_AT)).features}
    assert {name: str(feature.finalized) for name, feature in features.items()} == {
        name: level[1] if level[0] == "UNKNOWN" else level[0] for name, level in descriptions.items()
    }
    assert all(feature.supported_by_all == feature.finalized for feature in features.values())


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (11, {}),
        (200, {100: ("voter", 0), 101: ("voter", 0), 102: ("leader", 0)}),
        (418, {100: ("leader", 418), 101: ("voter", 0), 102: ("voter", 0)}),
        (435, {100: ("leader", 418), 101: ("voter", 0), 102: ("ghost", 435)}),
        (439, {100: ("leader", 418), 101: ("voter", 0)}),
        (768, {100: ("voter", 0), 101: ("leader", 768)}),
    ],
)
def test_controllers_at_an_offset_have_the_states_of_their_story(
    lake: Path, offset: int, expected: dict[int, tuple[str, int]]
) -> None:
    """102 leads, is killed, removed from the voters and unregistered; 100 leads, and then 101."""
    answer = quorum(Lake.open(lake, at_offset=offset))
    assert states(answer) == expected
    assert [
        (controller.node_id, controller.registered.offset, controller.gone.offset) for controller in answer.gone
    ] == ([(102, 12, 439)] if offset >= 439 else [])


def test_leader_that_never_registered_is_the_leader_among_the_rows() -> None:
    """Below 3.7-IV0 no controller registers: the row said "voter", and --reason leader listed nobody."""
    rows = node_rows(of_log(20, "kafka-3.9.2-upgrade"))
    assert [(row.node_id, row.state, row.from_offset) for row in rows if row.kind == "controller"] == [
        (100, "leader, not registered", 0)
    ]


def test_log_and_lake_give_the_same_quorum(lake: Path) -> None:
    for offset in (3, 435, 768) if not exhaustive() else (3, 14, 302, 435, 600, 768):
        answer = quorum(Lake.open(lake, at_offset=offset))
        assert of_log(offset) == answer
        assert answer.epoch == (1 if offset < 418 else 2 if offset < 768 else 3)


def test_registration_has_endpoints_incarnation_and_ranges(lake: Path) -> None:
    controller = quorum(Lake.open(lake, at_offset=200)).controllers[2]
    assert (controller.node_id, controller.incarnation_id) == (102, "WQ6TfMtGTAe2QAgvF4dDJw")
    assert controller.endpoints == ("CONTROLLER://127.0.0.1:19352",)
    assert controller.features["metadata.version"] == Levels(7, 33)
    assert (controller.registered.offset, controller.heard and controller.heard.offset) == (12, 12)


def test_voters_of_a_static_quorum_have_no_directory() -> None:
    answer = of_log(kafka="kafka-4.1.2")
    assert [(voter.node_id, voter.directory_id) for voter in answer.voters] == [(100, None)]
    assert (answer.kraft_version, answer.leader_id) == (0, 100)


# MADE UP


def control(story: Story, name: str, record: object, snapshot_index: int | None = None) -> Story:
    story.time += 1
    value = write_struct(record, 0)  # type: ignore[arg-type]
    offset = len(story.entries)
    story.entries.append(
        Entry(offset, 1, story.time * 1_000_000, offset, value, control=name, snapshot_index=snapshot_index)
    )
    return story


def dynamic(story: Story, *voters: int, life: int = 1) -> Story:
    """kraft.version 1, and these voters."""
    control(story, "KRAFT_VERSION", KRaftVersionRecord(k_raft_version=1))
    levels = KRaftVersionFeature(min_supported_version=0, max_supported_version=1)
    listed = tuple(
        QuorumVoter(
            voter_id=voter_id,
            voter_directory_id=Uuid(voter_id, life),
            endpoints=(Endpoint(name="C", host="h", port=voter_id),),
            k_raft_version_feature=levels,
        )
        for voter_id in voters
    )
    return control(story, "KRAFT_VOTERS", VotersRecord(voters=listed))


def test_controller_beside_the_quorum_is_an_observer_until_a_leader_is_elected_without_it(tmp_path: Path) -> None:
    story = Story(27).lead(7, 8).controller(9, 27)
    assert states(quorum(story.lake(tmp_path / "one"))) == {9: ("observer", 2)}
    assert states(quorum(story.lead(8, 7).lake(tmp_path / "two"))) == {9: ("ghost", 3)}
    assert states(quorum(story.controller(9, 27).lake(tmp_path / "three"))) == {9: ("observer", 4)}


def test_controller_of_a_log_without_voters_is_called_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = quorum(Story(27).controller(9, 27).lake(tmp_path))
    assert states(answer) == {9: ("unknown", 1)}
    assert (answer.leader_id, answer.voters) == (None, ())
    # It said "0 voters" of a quorum that has some, as where the log begins with a snapshot.
    _, out = run(capsys, "quorum", "--lake", str(tmp_path))
    assert out.splitlines()[1].startswith(
        "The log that was read names no voters, kraft.version 0: the voters are those"
    )


def test_voter_that_comes_back_with_another_directory_was_heard_of(tmp_path: Path) -> None:
    story = dynamic(Story(27).controller(8, 27).lead(7, 8), 7, 8)
    before = quorum(story.lake(tmp_path / "one"))
    assert [(voter.directory_id, voter.since.offset) for voter in before.voters] == [
        (str(Uuid(n, 1)), 2) for n in (7, 8)
    ]
    after = quorum(dynamic(story, 7, 8, life=2).lake(tmp_path / "two"))
    assert [(voter.directory_id, voter.since.offset) for voter in after.voters] == [
        (str(Uuid(n, 2)), 6) for n in (7, 8)
    ]
    assert after.voters[0].endpoints == ("C://h:7",)
    assert after.controllers[0].heard is not None
    assert after.controllers[0].heard.offset == 6


def test_voter_that_did_not_vote_keeps_when_it_was_heard_of(tmp_path: Path) -> None:
    story = Story(27).controller(8, 27)
    voters = (Voter(voter_id=7), Voter(voter_id=8))
    control(story, "LEADER_CHANGE", LeaderChangeMessage(leader_id=7, voters=voters, granting_voters=voters[:1]))
    (controller,) = quorum(story.lake(tmp_path)).controllers
    assert controller.state == "voter"
    assert controller.heard is not None
    assert controller.heard.offset == 1


def test_snapshot_replaces_registrations_and_keeps_the_leader(tmp_path: Path) -> None:
    story = Story(27).lead(7, 8).controller(7, 27).controller(8, 27).supporting(1, 27)
    log = [*story.entries]
    records = [
        r.FeatureLevelRecord(name="metadata.version", feature_level=27),
        r.RegisterControllerRecord(controller_id=7),
    ]
    taken = Story(None)
    for record in records:
        taken.append(record, 0)
    end = len(log) + 5
    snapshot = [
        Entry(end, 1, entry.time, end, entry.value, versioned=entry.versioned, snapshot_index=number)
        for number, entry in enumerate(taken.entries[1:])
    ]
    write_lake(tmp_path / "lake", log, snapshot)
    assert {*states(quorum(Lake.open(tmp_path / "lake", at_offset=len(log) - 1)))} == {7, 8}
    answer = quorum(Lake.open(tmp_path / "lake"))
    assert {*states(answer)} == {7}
    assert (answer.leader_id, answer.brokers, answer.controllers[0].from_snapshot) == (7, (), True)


def test_state_that_only_a_snapshot_says_began_at_or_before_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """SINCE and HEARD OF named the offset of the snapshot as if it were that of the record."""
    story = Story(27).broker(1, "a").fence(1).broker(2, "b").controller(7, 27).controller(8, 27)
    snapshot = [*story.entries]
    end = len(snapshot)
    taken = [
        replace(entry, offset=end, batch_offset=end, snapshot_index=number) for number, entry in enumerate(snapshot)
    ]
    log = [replace(entry, offset=entry.offset + 1) for entry in story.broker(3, "c").fence(2).entries[end:]]
    write_lake(tmp_path / "lake", taken, log)
    nodes = node_rows(quorum(Lake.open(tmp_path / "lake")))
    assert {node.node_id: (node.from_snapshot, node.heard_from_snapshot) for node in nodes} == {
        1: (True, True),
        2: (False, True),
        3: (False, False),
        7: (True, False),
        8: (True, False),
    }
    _, out = run(capsys, "quorum", "--lake", str(tmp_path / "lake"))
    assert f"observer, fenced      {end + 2}       ≤ {end}" in out
    assert f"≤ {end}       ≤ {end}" in out
    _, out = run(capsys, "upgrade-check", "--lake", str(tmp_path / "lake"))
    assert f"registered so at offset {end} or earlier, " in out


def test_broker_is_a_ghost_once_it_was_fenced_for_long(tmp_path: Path) -> None:
    story = Story().broker(1, "a").fence(1).pause(99)
    lake = story.lake(tmp_path)
    assert [node.state for node in quorum(lake, timedelta(seconds=101)).brokers] == ["fenced"]
    (broker,) = quorum(lake, timedelta(seconds=100)).brokers
    assert (broker.state, broker.since and broker.since.offset, broker.heard and broker.heard.offset) == ("ghost", 2, 1)
    back = story.append(r.RegisterBrokerRecord(broker_id=1, broker_epoch=9, log_dirs=(disk("a"),)), 3)
    assert [node.state for node in quorum(back.lake(tmp_path / "back"), timedelta(seconds=100)).brokers] == ["fenced"]


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str]:
    try:
        main.main([*words])
        code: object = 0
    except SystemExit as left:
        code = left.code
    return code, capsys.readouterr().out


def test_command_tells_the_quorum_of_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(capsys, "quorum", str(metadata_dir(KAFKA)), "--at-offset", "436")
    assert code in (0, None)
    lines = out.splitlines()
    assert lines[0] == (
        "At offset 436, 2026-11-22 04:30:15.936Z: controller 100 leads, epoch 2, since offset 418, 12 s."
    )
    assert "Only the registration is left, as far as the log shows: controller 102." in lines
    assert [line.split()[:4] for line in lines if line.startswith("controller")] == [
        ["controller", "100", "leader", "418"],
        ["controller", "101", "voter", "0"],
        ["controller", "102", "ghost", "435"],
    ]


def test_command_answers_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    _, out = run(capsys, "quorum", str(metadata_dir(KAFKA)), "--json")
    answer = json.loads(out)
    assert (answer["leader_id"], answer["epoch"], answer["kraft_version"]) == (101, 3, 1)
    assert answer["gone"][0]["gone"]["offset"] == 439
