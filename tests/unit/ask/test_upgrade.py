"""Who blocks a feature level, and what clears the way: of real clusters, and made up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jbod_model.errors import UsageError
from jbod_model.formats import records as r
from jbod_model.formats.metadata_version import LEVELS
from jbod_model.ids import Uuid
from pipelines.ask.quorum import Levels
from pipelines.ask.upgrade import Blocker, UpgradeCheck, upgrade_check
from pipelines.run.log_lake import LogLake
from pipelines.source.log_options import LogOptions
from tests.support.paths import metadata_dir
from tests.support.volume import sampled
from tests.unit.ask.test_quorum import dynamic, run
from tests.unit.check.story import Story, disk


def of_log(kafka: str, to: str | None, offset: int | None = None) -> UpgradeCheck:
    return upgrade_check(LogLake.of(LogOptions(path=str(metadata_dir(kafka))), offset), to)


def only(answer: UpgradeCheck) -> Blocker:
    (blocker,) = answer.blockers
    assert not answer.ready
    return blocker


def broker(story: Story, number: int, *, fenced: bool = False, **levels: int) -> Story:
    """A broker with a listener and these features: ``metadata_version=33``."""
    features = tuple(
        r.BrokerFeature(name=name.replace("_", "."), max_supported_version=level) for name, level in levels.items()
    )
    end = r.BrokerEndpoint(name="PLAINTEXT", host="kafka", port=9090 + number, security_protocol=0)
    record = r.RegisterBrokerRecord(
        broker_id=number,
        broker_epoch=len(story.entries),
        fenced=fenced,
        end_points=(end,),
        features=features,
        log_dirs=(disk(str(number)),),
    )
    story.epochs[number] = len(story.entries)
    return story.append(record, 3)


def wanted(answer: UpgradeCheck) -> dict[str, int]:
    return {feature.feature: feature.wanted for feature in answer.features if feature.wanted is not None}


# REAL CLUSTERS


@pytest.mark.parametrize("to", sampled(["4.4", "4.4-IV2", "33", "4.4.0", "kraft.version=1", None], 3))
def test_cluster_of_the_newest_release_is_ready_for_its_present_levels(to: str | None) -> None:
    answer = of_log("kafka-4.4.0", to, 662)
    assert answer.ready
    assert (wanted(answer), answer.command, answer.blockers) == ({}, None, ())
    assert answer.ready_nodes == ("broker 1", "broker 2", "broker 4", "controller 100", "controller 101")


def test_controller_that_was_killed_and_removed_blocks_as_a_ghost_until_it_is_unregistered() -> None:
    """By name: everybody blocks a level of the future, and what to do differs."""
    blockers = {(blocker.kind, blocker.node_id): blocker for blocker in of_log("kafka-4.4.0", "4.5", 436).blockers}
    ghost = blockers["controller", 102]
    assert ghost.ghost
    assert ghost.state_since is not None
    assert ghost.registered is not None
    assert (ghost.state_since.offset, ghost.registered.offset) == (435, 12)
    assert ghost.command == "kafka-cluster.sh unregister-controller --id 102 --bootstrap-server 127.0.0.1:19301"
    voter = blockers["controller", 101]
    assert voter.command == (
        "kafka-metadata-quorum.sh --bootstrap-server 127.0.0.1:19301 remove-controller --controller-id 101 "
        "--controller-directory-id AjObs2PnUHWqjwwxfRVj6A --unregister"
    )
    assert blockers["controller", 100].command is None
    assert blockers["jbod", None].advice.startswith("install a jbod that knows metadata.version 4.5-IV0 (34)")
    assert ("controller", 102) not in {
        (blocker.kind, blocker.node_id) for blocker in of_log("kafka-4.4.0", "4.5", 439).blockers
    }


def test_release_wants_its_defaults_of_every_feature() -> None:
    answer = of_log("kafka-4.1.2", "4.4")
    assert wanted(answer) == {"metadata.version": 33, "share.version": 2, "streams.version": 1}
    assert {feature.feature for feature in answer.blockers[0].missing} == wanted(answer).keys()
    assert answer.ready_nodes == ()
    old = of_log("kafka-3.7.2", "4.0")
    assert wanted(old) == {"metadata.version": 25, "group.version": 1, "transaction.version": 2}


def test_feature_that_a_node_does_not_name_is_supported_at_level_0() -> None:
    (missing,) = of_log("kafka-3.7.2", "group.version=1").blockers[0].missing
    assert missing.supported == Levels(0, 0)
    assert missing.finding == "does not support group.version"


def test_release_before_4_is_raised_by_its_level() -> None:
    """It printed --release-version, which kafka-features.sh of 3.9.1 does not know."""
    command = of_log("kafka-3.7.2", "3.9").command
    assert command == "kafka-features.sh --bootstrap-server HOST:PORT upgrade --feature metadata.version=21"
    newer = of_log("kafka-3.7.2", "4.0").command
    assert newer == "kafka-features.sh --bootstrap-server HOST:PORT upgrade --release-version 4.0-IV3"


# MADE UP


def test_ready_cluster_gets_the_command_that_raises_the_level(tmp_path: Path) -> None:
    story = broker(Story(27).lead(7).controller(7, 33), 1, metadata_version=33, share_version=2, streams_version=1)
    lake = story.lake(tmp_path)
    answer = upgrade_check(lake, "metadata.version=33")
    assert answer.ready
    assert answer.command == "kafka-features.sh --bootstrap-server kafka:9091 upgrade --feature metadata.version=33"
    release = upgrade_check(lake, "4.4")
    assert not release.ready
    assert release.command == "kafka-features.sh --bootstrap-server kafka:9091 upgrade --release-version 4.4-IV2"
    assert wanted(upgrade_check(lake)) == {"share.version": 1, "streams.version": 1}


def test_broker_that_is_fenced_can_be_unregistered_and_one_that_runs_must_be_upgraded(tmp_path: Path) -> None:
    story = broker(Story(27), 1, metadata_version=27)
    broker(broker(story, 2, metadata_version=27, fenced=True), 3, metadata_version=33)
    alive, fenced = upgrade_check(story.lake(tmp_path)).blockers
    assert (alive.state, alive.command) == ("alive", None)
    assert alive.advice == "start broker 1 with Kafka 4.4 or later"
    assert (fenced.state, fenced.ghost) == ("fenced", False)
    assert fenced.command == "kafka-cluster.sh unregister --id 2 --bootstrap-server kafka:9091"


def test_broker_with_the_only_copy_of_lost_writes_is_started_after_it_is_saved(tmp_path: Path) -> None:
    """It said only "start broker 1 with Kafka 4.4 or later", which truncates the copy (R-LOSS-11)."""
    story = (
        Story(27).supporting(3, 33).supporting(1, 27).supporting(2, 27).topic("t", {1: "1", 2: "2"}, isr=(1,)).fence(1)
    )
    lake = story.change("t", 0, isr=(2,), leader=2, leader_recovery_state=1).lake(tmp_path)
    saved, other = upgrade_check(lake).blockers
    assert saved.advice.startswith("copy the folder of t-0 from the disks of broker 1 before it starts")
    assert saved.advice.endswith("after that start broker 1 with Kafka 4.4 or later")
    assert (saved.command, other.advice) == (None, "start broker 2 with Kafka 4.4 or later")


def test_ghost_of_a_controller_below_the_level_that_unregisters_has_no_command(tmp_path: Path) -> None:
    story = Story(27).lead(7, 8).controller(7, 33).controller(6, 27).lead(8, 7).controller(8, 33)
    broker(story, 1, metadata_version=33)
    ghost = only(upgrade_check(story.lake(tmp_path), "metadata.version=33"))
    assert (ghost.node_id, ghost.ghost, ghost.command) == (6, True, None)
    assert "no command unregisters a controller below metadata.version 4.4-IV2" in ghost.advice
    assert "node.id 6 and Kafka 4.4 or later" in ghost.advice


def test_voter_of_a_dynamic_quorum_can_be_removed_and_stays_registered(tmp_path: Path) -> None:
    story = dynamic(Story(27).lead(7, 8).controller(7, 33).controller(8, 27), 7, 8)
    voter = only(upgrade_check(story.lake(tmp_path), "metadata.version=33"))
    assert voter.command == (
        "kafka-metadata-quorum.sh --bootstrap-server HOST:PORT remove-controller --controller-id 8 "
        f"--controller-directory-id {Uuid(8, 1)}"
    )
    assert "its registration stays, and is a ghost then" in voter.advice


def test_voter_of_a_static_quorum_cannot_be_removed(tmp_path: Path) -> None:
    story = Story(27).lead(7, 8).controller(7, 33).controller(8, 27)
    voter = only(upgrade_check(story.lake(tmp_path), "metadata.version=33"))
    assert voter.command is None
    assert "the voters of this quorum are static" in voter.advice


def test_controller_without_other_facts_in_the_log_is_to_be_upgraded(tmp_path: Path) -> None:
    """A log without voters does not tell whether it is one."""
    story = Story(27).controller(7, 33).controller(8, 27)
    blocker = only(upgrade_check(story.lake(tmp_path), "metadata.version=33"))
    assert (blocker.advice, blocker.command) == ("start controller 8 with Kafka 4.4 or later", None)


def test_voter_that_is_not_registered_blocks_every_level(tmp_path: Path) -> None:
    voter = only(upgrade_check(Story(27).lead(7, 8).controller(7, 33).lake(tmp_path), "metadata.version=33"))
    assert (voter.node_id, voter.registered, voter.missing[0].supported) == (8, None, None)
    assert "is not registered" in voter.finding


def test_controllers_below_the_level_that_registers_them_are_not_judged(tmp_path: Path) -> None:
    story = Story(14).lead(7, 8).controller(7, 14)
    answer = upgrade_check(broker(story, 1, metadata_version=33).lake(tmp_path), "metadata.version=33")
    assert (answer.ready, answer.controllers_known) == (True, False)


def test_without_a_question_the_next_level_and_the_newest_kafka_are_named(tmp_path: Path) -> None:
    story = broker(broker(broker(Story(27), 1, metadata_version=27), 2, metadata_version=30), 3, metadata_version=33)
    answer = upgrade_check(story.lake(tmp_path))
    assert wanted(answer) == {"metadata.version": 28}
    assert only(answer).node_id == 1
    assert only(answer).advice == "start broker 1 with Kafka 4.4 or later"
    assert answer.command is None


@pytest.mark.parametrize("says", [False, True])
def test_answer_says_what_all_nodes_support_only_if_each_of_them_registered_a_level(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], says: bool
) -> None:
    story = broker(Story(27), 1, metadata_version=33)
    lake = (broker(story, 2, metadata_version=27) if says else broker(story, 2)).lake(tmp_path)
    code, out = run(capsys, "upgrade-check", "--lake", str(lake.path))
    assert code == 1
    assert ("all nodes support metadata.version" in out) == says


def test_without_a_question_what_all_support_and_a_release_sets_is_to_be_raised(tmp_path: Path) -> None:
    story = broker(Story(26), 1, metadata_version=29, share_version=2, streams_version=1, kraft_version=1)
    answer = upgrade_check(story.lake(tmp_path))
    assert answer.ready
    assert answer.command == (
        "kafka-features.sh --bootstrap-server kafka:9091 upgrade --feature metadata.version=29 "
        "--feature share.version=1 --feature streams.version=1"
    )


@pytest.mark.parametrize("to", [None, "metadata.version=34"])
def test_level_that_this_jbod_cannot_read_blocks(tmp_path: Path, to: str | None) -> None:
    story = broker(Story(33), 1, metadata_version=LEVELS["4.5-IV0"])
    blocker = only(upgrade_check(story.lake(tmp_path), to))
    assert (blocker.kind, blocker.node_id) == ("jbod", None)
    assert blocker.finding == "this jbod: supports metadata.version up to 4.4-IV2 (33), not 4.5-IV0 (34)"


@pytest.mark.parametrize(("state", "blocks"), [(0, False), (1, True), (2, True), (3, False)])
@pytest.mark.parametrize("to", ["3.9", None])
def test_migration_from_zookeeper_that_is_not_finished_blocks_every_metadata_version(
    tmp_path: Path, to: str | None, state: int, blocks: bool
) -> None:
    """It said ready, and Kafka refuses (FeatureControlManager.updateMetadataVersion)."""
    story = Story(LEVELS["3.8-IV0"]).append(r.ZkMigrationStateRecord(zk_migration_state=state), 0)
    answer = upgrade_check(story.supporting(1, LEVELS["3.9-IV0"]).lake(tmp_path), to)
    assert [blocker.kind for blocker in answer.blockers] == ["migration"] * blocks
    assert answer.ready == (not blocks)


def test_migration_from_zookeeper_is_finished_before_any_node_starts_with_a_kafka_without_it(tmp_path: Path) -> None:
    """The first step was to start the nodes with Kafka 4.0, which cannot run in ZooKeeper mode."""
    story = Story(LEVELS["3.9-IV0"]).append(r.ZkMigrationStateRecord(zk_migration_state=2), 0)
    answer = upgrade_check(story.supporting(1, LEVELS["3.9-IV0"]).lake(tmp_path), "4.0")
    assert [blocker.kind for blocker in answer.blockers] == ["migration", "broker"]


@pytest.mark.parametrize(
    ("state", "first"), [(1, "restart the brokers that run in"), (2, "restart every broker in ZooKeeper")]
)
def test_no_broker_starts_under_kraft_before_the_topics_are_copied(tmp_path: Path, state: int, first: str) -> None:
    """The controller does not register it (ClusterControlManager.registerBroker): brokers went down one by one."""
    story = Story(LEVELS["3.8-IV0"]).append(r.ZkMigrationStateRecord(zk_migration_state=state), 0)
    (blocker,) = upgrade_check(story.supporting(1, LEVELS["3.9-IV0"]).lake(tmp_path), "3.9").blockers
    assert blocker.advice.startswith(first)


def test_level_that_is_reached_is_not_blocked_by_a_migration_from_zookeeper(tmp_path: Path) -> None:
    story = Story(LEVELS["3.9-IV0"]).append(r.ZkMigrationStateRecord(zk_migration_state=1), 0)
    lake = story.supporting(1, LEVELS["3.9-IV0"]).lake(tmp_path)
    assert upgrade_check(lake, "3.9").ready
    assert upgrade_check(lake).ready


def test_node_that_supports_only_higher_levels_blocks(tmp_path: Path) -> None:
    features = (r.BrokerFeature(name="metadata.version", min_supported_version=30, max_supported_version=33),)
    story = Story(27).append(r.RegisterBrokerRecord(broker_id=1, features=features), 3)
    assert only(upgrade_check(story.lake(tmp_path), "metadata.version=29")).node_id == 1


@pytest.mark.parametrize(
    ("to", "says"),
    sampled(
        [
            ("5.0", "no metadata.version that this jbod knows"),
            ("35", "no metadata.version that this jbod knows"),
            ("", "no metadata.version that this jbod knows"),
            ("group.version=", "write FEATURE=LEVEL"),
            ("=1", "write FEATURE=LEVEL"),
            ("group.version=one", "write FEATURE=LEVEL"),
            ("4.3", "is 4.4-IV2 (33) already"),
        ],
        3,
    ),
)
def test_level_that_is_not_known_or_lower_is_refused(to: str, says: str) -> None:
    with pytest.raises(UsageError) as refused:
        of_log("kafka-4.4.0", to)
    assert says in str(refused.value)
    assert str(refused.value).startswith(f"--to {to}: ")


def test_command_leaves_with_0_1_and_2(capsys: pytest.CaptureFixture[str]) -> None:
    log = str(metadata_dir("kafka-4.4.0"))
    code, out = run(capsys, "upgrade-check", log, "--to", "4.4")
    assert code == 0
    assert out.splitlines()[0] == "At offset 768, 2026-11-22 04:31:14.438Z: the cluster is at 4.4-IV2 already."
    code, out = run(capsys, "upgrade-check", log, "--to", "4.5", "--at-offset", "436")
    assert code == 1
    assert "not ready for 4.5-IV0: 8 blockers" in out.splitlines()[0]
    lines = [line.strip() for line in out.splitlines()]
    assert "controller 102 (ghost): supports metadata.version up to 4.4-IV2 (33), not 4.5-IV0 (34)" in lines
    assert "kafka-cluster.sh unregister-controller --id 102 --bootstrap-server 127.0.0.1:19301" in lines
    assert run(capsys, "upgrade-check", log, "--to", "4.9")[0] == 2


def test_command_answers_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(capsys, "upgrade-check", str(metadata_dir("kafka-4.1.2")), "--to", "4.4", "--json")
    answer = json.loads(out)
    assert (code, answer["ready"], answer["to"]) == (1, False, "4.4-IV2")
    assert answer["blockers"][0]["missing"][0] == {
        "feature": "metadata.version",
        "wanted": 33,
        "supported": {"lowest": 7, "highest": 27},
    }
