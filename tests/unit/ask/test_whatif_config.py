"""What a change of a configuration or of a feature does, by the model's controller."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from jbod_model.controller import Context, Controller
from jbod_model.controller.cluster import Cluster
from jbod_model.errors import UsageError
from jbod_model.formats import records as r
from jbod_model.formats.metadata_version import ELR_FEATURE, LEVELS
from jbod_model.formats.requests import (
    BROKER_RESOURCE,
    AlterableConfig,
    AlterConfigsResource,
    ElectUncleanLeaders,
    IncrementalAlterConfigsRequest,
)
from jbod_model.formats.responses import ControllerFault
from jbod_model.profiles import KAFKA
from jbod_model.replay.image import Image
from pipelines.ask.whatif_config import whatif_config
from pipelines.cli.main import application
from tests.support.images import images, lake_of
from tests.support.volume import amount
from tests.unit.check.story import Story, topic_id

MIN_ISR, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"


def cluster(*, eligible: bool = False) -> Story:
    """Three brokers; pair-0 has one of two in sync, wide-0 all three; lost-0 has no leader."""
    story = Story(LEVELS["4.1-IV1"])
    if eligible:
        story = story.append(r.FeatureLevelRecord(name=ELR_FEATURE, feature_level=1), 0)
    story = story.broker(1, "a").broker(2, "b").broker(3, "c")
    story = story.topic("pair", {1: "a", 2: "b"}).topic("wide", {1: "a", 2: "b", 3: "c"})
    story = story.topic("lost", {3: "c", 2: "b"}).topic("own", {1: "a", 2: "b"}).configure("own", "1")
    story = story.change("pair", 0, isr=(1,)).change("own", 0, isr=(1,)).change("lost", 0, isr=(3,)).fence(3)
    return story.change("lost", 0, leader=-1)


def with_eligible_leader() -> Story:
    """The same with min.insync.replicas 2; broker 3 is the eligible leader of lost-0."""
    story = for_all(cluster(eligible=True), MIN_ISR, "2")
    change = r.PartitionChangeRecord(topic_id=topic_id("lost"), partition_id=0, isr=(), eligible_leader_replicas=(3,))
    return story.append(change, 2)


def for_all(story: Story, name: str, value: str) -> Story:
    return story.append(r.ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name=name, value=value), 0)


def test_larger_min_isr_refuses_writes_where_too_few_are_in_sync(tmp_path: Path) -> None:
    """R-CFG-1: a topic with a value of its own keeps it."""
    answer = whatif_config(cluster().lake(tmp_path), f"{MIN_ISR}=2")
    assert [change.name for change in answer.chosen("refuses_writes")] == ["pair-0"]
    assert (answer.before, answer.refused, answer.at_limit) == ({}, "", 0)
    three = whatif_config(cluster().lake(tmp_path / "again"), f"{MIN_ISR}=3")
    assert three.at_limit == 1  # wide-0


def test_smaller_min_isr_of_a_topic_accepts_writes_again(tmp_path: Path) -> None:
    lake = cluster().configure("pair", "2").lake(tmp_path)
    answer = whatif_config(lake, f"{MIN_ISR}=1", ["p*"])
    assert (answer.topics, answer.before) == (["pair"], {"pair": "2"})
    assert [change.name for change in answer.chosen("accepts_writes")] == ["pair-0"]


def test_min_isr_of_a_broker_counts_for_what_it_leads(tmp_path: Path) -> None:
    lake = cluster().lake(tmp_path)
    assert [change.name for change in whatif_config(lake, f"{MIN_ISR}=2", (), [1]).changes] == ["pair-0"]
    assert whatif_config(lake, f"{MIN_ISR}=2", (), [2]).changes == []


def test_min_isr_of_a_broker_is_refused_with_eligible_leaders(tmp_path: Path) -> None:
    """R-CFG-2."""
    answer = whatif_config(cluster(eligible=True).lake(tmp_path), f"{MIN_ISR}=2", (), [1])
    assert "cannot change while eligible leader replicas are on" in answer.refused


@pytest.mark.parametrize("value", ["1", "2"])
def test_present_value_for_all_brokers_clears_the_eligible_leaders_too(tmp_path: Path, value: str) -> None:
    """R-CFG-4; apache/kafka 20237."""
    lake = with_eligible_leader().lake(tmp_path)
    answer = whatif_config(lake, f"{MIN_ISR}={value}")
    assert answer.unchanged == (value == "2")
    assert [(change.name, change.eligible, change.eligible_after) for change in answer.chosen("loses_eligible")] == [
        ("lost-0", (3,), ())
    ]
    assert [change.name for change in answer.chosen("stranded")] == ["lost-0"]


def test_present_value_of_a_topic_changes_nothing(tmp_path: Path) -> None:
    """R-CFG-5."""
    lake = with_eligible_leader().configure("lost", "2").lake(tmp_path)
    answer = whatif_config(lake, f"{MIN_ISR}=2", ["lost"])
    assert answer.unchanged and answer.changes == []


def test_unclean_elections_elect_at_once_what_lacks_writes(tmp_path: Path) -> None:
    """R-ELECT-11: lost-0 was led by 3, and 2 is not in sync."""
    lake = cluster().lake(tmp_path)
    (change,) = whatif_config(lake, f"{UNCLEAN}=true").changes
    assert (change.name, change.leader, change.leader_after) == ("lost-0", -1, 2)
    assert change.lacks_writes
    assert whatif_config(lake, f"{UNCLEAN}=false").changes == []
    assert whatif_config(lake, f"{UNCLEAN}=true", ["pair"]).changes == []


@pytest.mark.parametrize(("node", "leader"), [("1", None), ("2", 2)])
def test_own_value_of_the_active_controller_stays_before_a_new_one_of_all(
    tmp_path: Path, node: str, leader: int | None
) -> None:
    """R-CFG-1: the new value of all was taken to replace it."""
    story = cluster().lead(1, 2)
    own = r.ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=node, name=UNCLEAN, value="false")
    lake = story.append(own, 0).lake(tmp_path)
    of_all = whatif_config(lake, f"{UNCLEAN}=true").changes
    assert [change.leader_after for change in of_all] == ([leader] if leader else [])
    assert [change.leader_after for change in whatif_config(lake, f"{UNCLEAN}=true", ["lost"]).changes] == [2]


def test_level_0_of_the_feature_gives_up_the_eligible_leaders(tmp_path: Path) -> None:
    """R-ELIG-3."""
    lake = with_eligible_leader().lake(tmp_path)
    answer = whatif_config(lake, f"{ELR_FEATURE}=0")
    assert (answer.before, [change.name for change in answer.chosen("loses_eligible")]) == ({"": "1"}, ["lost-0"])


def test_level_1_of_the_feature_removes_values_of_single_brokers(tmp_path: Path) -> None:
    """R-FEAT-4: own-0 is led by broker 1, and keeps its own value; pair-0 has that of the broker."""
    single = r.ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="1", name=MIN_ISR, value="2")
    answer = whatif_config(cluster().append(single, 0).lake(tmp_path), f"{ELR_FEATURE}=1")
    assert answer.removed_from == [1]
    assert [change.name for change in answer.chosen("accepts_writes")] == ["pair-0"]
    old = Story(LEVELS["3.9-IV0"]).broker(1, "a").topic("pair", {1: "a"})
    assert "needs metadata.version" in whatif_config(old.lake(tmp_path / "old"), f"{ELR_FEATURE}=1").refused


@pytest.mark.parametrize(
    ("text", "topics", "brokers"),
    [
        ("retention.ms=1", [], []),
        (MIN_ISR, [], []),
        (f"{MIN_ISR}=many", [], []),
        (f"{MIN_ISR}=2", ["nowhere"], []),
        (f"{MIN_ISR}=2", ["pair"], [1]),
        (f"{UNCLEAN}=true", [], [1]),
        (f"{UNCLEAN}=yes", [], []),  # no partition would lose anything
        (f"{ELR_FEATURE}=1", ["pair"], []),
    ],
)
def test_wrong_change_is_bad_usage(tmp_path: Path, text: str, topics: list[str], brokers: list[int]) -> None:
    with pytest.raises(UsageError):
        whatif_config(cluster().lake(tmp_path), text, topics, brokers)


# THE MODEL


@settings(max_examples=amount(10, 200), deadline=None, phases=(Phase.explicit, Phase.generate))
@given(image=images(), value=st.sampled_from(("1", "2", "3")))
def test_answer_is_that_of_the_controller_on_the_whole_cluster(
    tmp_path_factory: pytest.TempPathFactory, image: Image, value: str
) -> None:
    """Only the partitions that a change can matter to are asked about."""
    from pipelines.lake.reader import Lake

    path = lake_of(tmp_path_factory.mktemp("lake"), image)
    try:
        base = applied(image, ElectUncleanLeaders())
        resource = AlterConfigsResource(
            resource_type=BROKER_RESOURCE, resource_name="", configs=(AlterableConfig(name=MIN_ISR, value=value),)
        )
        after = applied(applied(base, IncrementalAlterConfigsRequest(resources=(resource,))), ElectUncleanLeaders())
    except ControllerFault:
        return
    answer = whatif_config(Lake.open(str(path)), f"{MIN_ISR}={value}")
    changes = {(change.topic, change.partition): change for change in answer.changes}
    refused, cleared = set(), set()
    for key, topic in image.topics.items():
        for number in topic.partitions:
            was, will = base.topics[key].partitions[number], after.topics[key].partitions[number]
            before = Cluster(base, KAFKA, Context()).topic_config(topic.name, MIN_ISR)
            now = Cluster(after, KAFKA, Context()).topic_config(topic.name, MIN_ISR)
            size = len(was.replicas)
            if will.leader >= 0 and len(was.isr) >= min(int(before), size) and len(will.isr) < min(int(now), size):
                refused.add((topic.name, number))
            if base.features.get(ELR_FEATURE) and not {*was.eligible_leader_replicas} <= {
                *will.eligible_leader_replicas
            }:
                cleared.add((topic.name, number))
    assert {key for key, change in changes.items() if change.refuses_writes} == refused
    assert cleared <= {key for key, change in changes.items() if change.loses_eligible or change.elects}


def applied(image: Image, request: IncrementalAlterConfigsRequest | ElectUncleanLeaders) -> Image:
    for each in Controller(KAFKA).handle(image, request, Context()).records:
        image = image.apply(each.record, 0)
    return image


# THE COMMAND


def test_command_says_what_is_refused_and_what_to_do(tmp_path: Path) -> None:
    cluster().lake(tmp_path)
    run = CliRunner().invoke(application(["whatif"]), ["whatif", "--lake", str(tmp_path), "--config", f"{MIN_ISR}=2"])
    assert run.exit_code == 0, run.output
    assert "1 partition would refuse writes with acks=all" in run.output
    assert "First bring the other replicas into sync" in run.output
    run = CliRunner().invoke(
        application(["whatif"]), ["whatif", "--lake", str(tmp_path), "--config", f"{UNCLEAN}=true", "--json"]
    )
    answer = json.loads(run.stdout)
    assert (answer["elects"], answer["lacks_writes"], answer["config"]["value"]) == (1, 1, "true")


def test_command_needs_a_failure_or_a_change(tmp_path: Path) -> None:
    cluster().lake(tmp_path)
    for more in ([], ["--fail", "1", "--config", f"{MIN_ISR}=2"]):
        run = CliRunner().invoke(application(["whatif"]), ["whatif", "--lake", str(tmp_path), *more])
        assert isinstance(run.exception, UsageError)
