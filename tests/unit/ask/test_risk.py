"""The fast answer to what a failure would cost, against the reference controller asked about each failure."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from typer.testing import CliRunner

from jbod_model.formats.metadata_version import ELR_FEATURE
from jbod_model.formats.records import PartitionChangeRecord
from jbod_model.ids import KAFKA_IDS, Uuid
from jbod_model.profiles import KAFKA, KIP858, Profile
from jbod_model.replay.image import BrokerRegistration, Image, Topic
from jbod_model.replay.offline import offline_replicas
from jbod_model.whatif import Failures, after
from lab.conformance.trace import read_trace, recorded_records
from pipelines.ask.lost_data import perhaps_offline
from pipelines.ask.risk import Exposure, risk
from pipelines.ask.whatif import whatif
from pipelines.cli.main import application
from pipelines.lake.reader import Lake
from tests.support.images import brokers, images, lake_of, one_topic, partition
from tests.support.lakes import Reference, write_lake
from tests.support.logs import read_file, read_log
from tests.support.paths import KAFKAS, TRACES, metadata_dir
from tests.support.volume import amount, rare, sampled
from tests.unit.check.story import Story, disk
from tests.unit.check.story import topic_id as id_of

Perhaps = dict[tuple[str, int], set[int]]
REPAIRED = replace(KAFKA, controller=KAFKA.controller.without())


def reference_costs(
    image: Image, profile: Profile = KAFKA, perhaps: Perhaps | None = None
) -> dict[tuple[int, str | None], tuple[int, ...]]:
    """(broker, directory) -> what the reference says, for every unfenced broker and its directories. ``perhaps``: the
    replicas of which no record says that they are online (R-ACT-1)."""
    costs: dict[tuple[int, str | None], tuple[int, ...]] = {}
    for broker in image.brokers.values():
        if not broker.fenced:
            costs[broker.broker_id, None] = cost(image, broker, broker.directories, True, profile, perhaps or {})
            for directory in broker.directories:
                whole = len(broker.directories) == 1
                lost = cost(image, broker, (directory,), whole, profile, perhaps or {})
                costs[broker.broker_id, str(directory)] = lost
    return costs


def cost(
    image: Image,
    broker: BrokerRegistration,
    failing: tuple[Uuid, ...],
    whole: bool,
    profile: Profile,
    perhaps: Perhaps,
) -> tuple[int, ...]:
    """The fields of an exposure from ``replicas`` to ``moved``."""
    failures = Failures(brokers=(broker.broker_id,)) if whole else Failures(directories={broker.broker_id: failing})
    later = after(image, failures, profile=profile)
    counts = dict.fromkeys(("replicas", "leaders", "without", "last", "unclean", "under", "moved"), 0)
    for topic_id, topic in image.topics.items():
        for number, before in topic.partitions.items():
            then = later.topics[topic_id].partitions[number]
            down = set(offline_replicas(image, before, profile=profile))
            here = {
                replica
                for replica, directory in zip(before.replicas, before.directories, strict=True)
                if replica == broker.broker_id and (whole or directory in failing)
            }
            wanted = min(min_isr(image, topic), len(before.replicas))
            counts["replicas"] += len(here - down)
            counts["leaders"] += before.leader in here
            counts["without"] += before.leader >= 0 and then.leader == -1
            sure = set(before.replicas) - down - perhaps.get((str(topic_id), number), set())
            counts["last"] += bool(here - down) and not sure - {broker.broker_id}
            clean = set(before.isr) or set(before.eligible_leader_replicas)
            if set(before.isr) == {broker.broker_id}:
                clean = set(before.eligible_leader_replicas)
            counts["unclean"] += then.leader not in (-1, before.leader, *clean)
            counts["under"] += len(set(before.isr) - down) >= wanted > len(set(then.isr) - down - here)
            counts["moved"] += before.leader >= 0 and then.leader not in (-1, before.leader)
    return tuple(counts.values())


def min_isr(image: Image, topic: Topic) -> int:
    for key in ((2, topic.name), (4, "")):
        if "min.insync.replicas" in image.configs.get(key, {}):
            return int(image.configs[key]["min.insync.replicas"])
    return 1


def answered(lake: Lake) -> dict[tuple[int, str | None], tuple[int, ...]]:
    def counts(exposure: Exposure) -> tuple[int, ...]:
        return (
            exposure.replicas,
            exposure.leaders,
            exposure.without_leader,
            exposure.last_replicas,
            exposure.unclean,
            exposure.under_min_isr,
            exposure.moved,
        )

    answer = risk(lake)
    return {
        (exposure.broker_id, exposure.directory_id): counts(exposure)
        for exposure in (*answer.brokers, *answer.directories)
    }


@pytest.mark.parametrize("kafka", sampled(KAFKAS, 1))
def test_risk_of_every_directory_and_broker_of_a_real_cluster_is_what_the_controller_would_do(
    cluster_lakes: Mapping[str, Path], kafka: str
) -> None:
    log = read_log(metadata_dir(kafka))
    offsets = range(30, log[-1].offset + 1, amount(188, 47))
    reference = Reference()
    met = 0
    for entry in log:
        reference.add([entry])
        if entry.offset in offsets:
            lake = Lake.open(cluster_lakes[kafka], at_offset=entry.offset)
            expected = reference_costs(reference.image, perhaps=perhaps_offline(lake))
            assert answered(lake) == expected
            met += sum(any(counts[2:]) for counts in expected.values())
    assert met > amount(4, 10)


def test_replica_in_no_known_directory_puts_every_directory_of_its_broker_at_risk(tmp_path: Path) -> None:
    """The answer began with "0 of 2 directories cannot fail", and whatif said that each may lose the last copy."""
    a, b = Uuid(1, 1000), Uuid(1, 1001)
    made = one_topic(partition((1, KAFKA_IDS.unassigned)), registered=brokers((a, b)))
    lake = Lake.open(lake_of(tmp_path / "lake", made))
    answer = risk(lake)
    assert [(exposure.harmless, exposure.unplaced_at_risk) for exposure in answer.directories] == [(True, 1)] * 2
    run = CliRunner().invoke(application(["risk"]), ["risk", "--lake", str(tmp_path / "lake")])
    assert "2 more directories may not: no record says" in run.stdout
    rows = json.loads(CliRunner().invoke(application(["risk"]), [*"risk --json --lake".split(), lake.path]).stdout)
    assert [row["unplaced_at_risk"] for row in rows["directories"]] == [1, 1]


@pytest.mark.parametrize("where", ["unassigned", rare("migrating")])
def test_failure_of_a_directory_that_may_have_a_needed_replica_is_said_by_risk_as_by_whatif(
    tmp_path: Path, where: str
) -> None:
    """Cause: risk counted on an election. The controller holds none, as no record says that the replica is there."""
    story = Story().configure("n", "2").broker(1, "ab").broker(2, "c").broker(3, "d")
    story = story.topic("led", {1: where, 2: "c"}).topic("n", {2: "c", 1: where}, {2: "c", 3: "d", 1: where})
    lake = story.topic("follows", {2: "c", 1: where}).lake(tmp_path)
    for exposure in risk(lake).directories:
        then = whatif(lake, [f"{exposure.broker_id}:{exposure.directory_id}"])
        assert exposure.unplaced_at_risk == len(then.chosen("perhaps_unserved")) == (exposure.broker_id == 1) * 2


@pytest.mark.exhaustive
def test_risk_in_random_operations_is_what_the_controller_would_do(tmp_path: Path) -> None:
    segment = tmp_path / "seed2.log"
    segment.write_bytes(gzip.decompress((TRACES / "seed2.log.gz").read_bytes()))
    log = [entry for entry in read_file(segment) if entry.offset < amount(2000, 3000)]
    write_lake(tmp_path / "lake", log)
    reference = Reference()
    for entry in log:
        reference.add([entry])
        if entry.offset % amount(1500, 500) == 499:
            lake = Lake.open(tmp_path / "lake", at_offset=entry.offset)
            assert answered(lake) == reference_costs(reference.image, REPAIRED, perhaps_offline(lake))


@pytest.mark.parametrize("features", [{}, {ELR_FEATURE: 1}], ids=["plain", "with eligible leaders"])
def test_risk_of_a_disk_that_another_brokers_replica_still_names(tmp_path: Path, features: dict[str, int]) -> None:
    moved, own = Uuid(2, 1000), Uuid(2, 1001)
    left_behind = partition((1, moved), (2, own), isr=(2,), leader=2)
    image = one_topic(left_behind, partition((2, moved)), registered=brokers((Uuid(1, 1000),), (moved, own)))
    image = replace(image, features={**image.features, **features})
    costs = answered(Lake.open(lake_of(tmp_path / "lake", image)))
    assert costs == reference_costs(image)
    assert costs[2, str(moved)][2] == 2


@pytest.mark.parametrize("profile", [KAFKA, KIP858], ids=["kafka", "kip858"])
@settings(max_examples=amount(3, 50), deadline=None, phases=(Phase.explicit, Phase.generate))
@given(image=images())
def test_risk_of_any_image_is_what_the_controller_would_do(
    tmp_path_factory: pytest.TempPathFactory, profile: Profile, image: Image
) -> None:
    path = lake_of(tmp_path_factory.mktemp("any") / "lake", image, profile)
    assert answered(Lake.open(path)) == reference_costs(image, profile)


@pytest.mark.exhaustive
def test_risk_in_random_operations_with_eligible_leaders_is_what_the_controller_would_do(tmp_path: Path) -> None:
    image, offset, met = Image(), 0, 0
    for number, line in read_trace(TRACES / "seed5.jsonl.gz"):
        for versioned_record in recorded_records(line) if line["op"] != "image" else ():
            image = image.apply(versioned_record.record, offset)
            offset += 1
        if number % amount(900, 450) == 449:
            path = lake_of(tmp_path / str(number), image)
            expected = reference_costs(image, REPAIRED)
            assert answered(Lake.open(path)) == expected
            met += sum(any(counts[2:]) for counts in expected.values())
        if number == 1800:
            break
    assert met > amount(4, 10)


def test_broker_that_is_the_majority_of_controllers_costs_every_election_too(tmp_path: Path) -> None:
    """Cause: risk counted elections that no controller could hold; whatif did not."""
    story = Story(27).voters({1: "a", 2: "b", 3: "c"}).broker(1, "a").broker(2, "bx").broker(3, "c", fenced=True)
    story.broker(4, "d").topic("t", {1: "a", 2: "b", 4: "d"}, {2: "b", 1: "a"}, {4: "d", 2: "b"})
    lake = story.topic("u", {4: "d", 1: "a"}, isr=(4,)).lake(tmp_path)
    answer = risk(lake)
    for exposure in (*answer.brokers, *answer.directories):
        place = f"{exposure.broker_id}" + ("" if exposure.directory_id is None else f":{exposure.directory_id}")
        then = whatif(lake, [place])
        counts = {what: getattr(exposure, what) for what in ("without_leader", "under_min_isr", "moved", "stalled")}
        assert counts == {what: len(then.chosen(what)) for what in counts}, place
    whole = {exposure.broker_id: exposure for exposure in answer.brokers}
    assert (whole[1].without_leader, whole[1].moved, whole[1].stalled, whole[4].moved) == (1, 0, 1, 1)
    assert not whole[4].no_quorum
    run = CliRunner().invoke(application(["risk"]), ["risk", "--lake", str(tmp_path)])
    assert (
        "Nobody could elect leaders without broker 1, broker 2: the quorum of controllers would have no majority: "
        "1 of 3 voters would be left, as broker 3 is fenced, and it takes 2." in " ".join(run.stdout.split())
    )
    rows = json.loads(CliRunner().invoke(application(["risk"]), [*"risk --json --lake".split(), lake.path]).stdout)
    assert {row["broker_id"]: bool(row["no_quorum"]) for row in rows["brokers"]} == {1: True, 2: True, 4: False}


def test_failure_of_the_majority_of_controllers_puts_no_eligible_replica_in_sync(tmp_path: Path) -> None:
    """Cause: risk counted the eligible replica that would be elected as in sync, although nobody could elect it."""
    story = Story(27).voters({1: "a", 2: "b"}).broker(1, "a").broker(2, "b").broker(3, "c").topic("t", {1: "a", 3: "c"})
    left = PartitionChangeRecord(topic_id=id_of("t"), partition_id=0, isr=(1,), eligible_leader_replicas=(3,))
    lake = story.append(left, 2).lake(tmp_path)
    counts = {exposure.broker_id: (exposure.without_leader, exposure.under_min_isr) for exposure in risk(lake).brokers}
    assert counts == {1: (1, 1), 2: (0, 0), 3: (0, 0)}
    assert len(whatif(lake, ["1"]).chosen("under_min_isr")) == 1


@pytest.mark.parametrize("where", ["unassigned", rare("migrating")])
def test_failure_that_needs_a_replica_which_may_be_offline_is_not_harmless(tmp_path: Path, where: str) -> None:
    """Cause: "only leaders would move", while safe-to-restart knew that perhaps nobody would answer."""
    story = Story().configure("t", "2").broker(1, "ae").broker(2, "bc").broker(3, "df")
    story = story.topic("t", {1: "a", 2: where, 3: "d"}).topic("u", {1: "a", 3: "d"})
    whole = story.lake(tmp_path / "before")
    assert all(exposure.harmless for exposure in risk(whole).brokers)
    assert all(change.harmless for change in whatif(whole, ["1"]).changes)
    lake = story.left(2, "b").lake(tmp_path / "after")
    answer = risk(lake)
    unserved = {}
    for exposure in (*answer.brokers, *answer.directories):
        place = str(exposure.broker_id) + ("" if exposure.directory_id is None else f":{exposure.directory_id}")
        then = whatif(lake, [place])
        unserved[place] = [change.name for change in then.chosen("perhaps_unserved")]
        assert len(unserved[place]) == then.as_json()["perhaps_unserved"] == exposure.perhaps_unserved, place
        assert exposure.harmless == all(change.harmless for change in then.changes), place
    a, d = str(disk("a")), str(disk("d"))
    assert {place for place, names in unserved.items() if names == ["t-0"]} == {"1", "3", f"1:{a}", f"3:{d}"}
    assert not unserved["2"]
    for command in (["risk"], ["whatif", "--fail", "1"], ["whatif", "--fail", "3"]):
        run = CliRunner().invoke(application([command[0]]), [*command, "--lake", str(tmp_path / "after")])
        assert "only leaders" not in run.stdout, command
        assert "`jbod offline` names the replica that may be offline" in " ".join(run.stdout.split()), command


def test_failure_costs_nothing_more_where_nobody_answers_already_perhaps(tmp_path: Path) -> None:
    story = Story().broker(1, "a").broker(2, "bc").broker(3, "d")
    story = story.topic("t", {2: "unassigned", 1: "a", 3: "d"}).left(2, "b")
    lake = story.lake(tmp_path)
    assert not any(exposure.perhaps_unserved for exposure in risk(lake).brokers)
    assert not any(whatif(lake, [broker]).chosen("perhaps_unserved") for broker in "123")
