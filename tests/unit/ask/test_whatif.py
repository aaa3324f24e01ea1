"""What a set of failures would do: the reference controller's answer, whatever part of the lake it was asked on."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from jbod_model.controller import Context, Controller
from jbod_model.errors import UsageError
from jbod_model.formats.records import ConfigRecord
from jbod_model.formats.requests import SessionExpired
from jbod_model.formats.responses import ControllerFault
from jbod_model.ids import Uuid
from jbod_model.profiles import KAFKA
from jbod_model.replay.image import BrokerRegistration, Image
from jbod_model.whatif import Failures, after, applied
from pipelines.ask.configs import UNCLEAN_ELECTION
from pipelines.ask.lake_status import directories
from pipelines.ask.removal import safe_to_remove
from pipelines.ask.risk import risk
from pipelines.ask.whatif import whatif
from pipelines.cli import main
from pipelines.cli.main import application
from pipelines.lake.reader import Lake
from tests.support.images import brokers, images, lake_of, one_topic, partition
from tests.support.lakes import Reference, write_lake
from tests.support.logs import read_log
from tests.support.paths import metadata_dir
from tests.support.volume import amount, rare
from tests.unit.ask.test_next_start import moved
from tests.unit.ask.test_plan_check import named, replaced
from tests.unit.check.story import Story, disk

A, B, C = Uuid(1, 1000), Uuid(1, 1001), Uuid(2, 1000)
REPAIRED = replace(KAFKA, controller=KAFKA.controller.without())


def leaders(image: Image) -> dict[tuple[Uuid, int], int]:
    return {
        (key, n): partition.leader for key, topic in image.topics.items() for n, partition in topic.partitions.items()
    }


# THE MODEL


@settings(max_examples=amount(16, 100), deadline=None, phases=(Phase.explicit, Phase.generate))
@given(image=images())
def test_records_applied_together_give_the_image_they_give_one_by_one(image: Image) -> None:
    for broker in image.brokers:
        answer = Controller(REPAIRED).handle(image, SessionExpired(broker_id=broker), Context())
        one_by_one = image
        for versioned in answer.records:
            one_by_one = one_by_one.apply(versioned.record, 0)
        assert applied(image, answer.records) == one_by_one


@settings(max_examples=amount(16, 200), deadline=None, phases=(Phase.explicit, Phase.generate))
@given(image=images(), data=st.data())
def test_order_in_which_failures_are_noticed_does_not_change_who_leads(image: Image, data: st.DataObject) -> None:
    image = settled(image)
    failing = data.draw(st.sets(st.sampled_from(sorted(image.brokers)), min_size=1, max_size=3))
    outcomes = [
        leaders(after(image, Failures(brokers=order), profile=REPAIRED)) for order in itertools.permutations(failing)
    ]
    assert outcomes == outcomes[:1] * len(outcomes)


def settled(image: Image) -> Image:
    """The image after every partition had an election, as a controller leaves it."""
    spare = BrokerRegistration(broker_id=9, epoch=9, incarnation_id=Uuid(7, 9), fenced=False)
    topics = {
        key: replace(
            topic,
            partitions={n: replace(partition, isr=(*partition.isr, 9)) for n, partition in topic.partitions.items()},
        )
        for key, topic in image.topics.items()
    }
    touched = replace(image, brokers={**image.brokers, 9: spare}, topics=topics)
    elected = after(touched, Failures(brokers=(9,)), profile=REPAIRED)
    return replace(elected, brokers=image.brokers)


def test_broker_that_loses_all_its_directories_is_lost_with_what_is_in_none_of_them() -> None:
    unassigned = Uuid(0, 1)
    image = one_topic(partition((1, A), (2, C)), partition((1, unassigned), (2, C)), registered=brokers((A, B), (C,)))
    both = after(image, Failures(directories={1: (A, B)}))
    assert both == after(image, Failures(brokers=(1,)))
    assert set(leaders(both).values()) == {2}
    assert leaders(after(image, Failures(directories={1: (A,)}))) == {(Uuid(5, 5), 0): 2, (Uuid(5, 5), 1): 1}


def test_report_of_a_broker_that_shuts_down_does_not_end_its_shutdown() -> None:
    registered = brokers((A, B), (C,))
    registered[1] = replace(registered[1], in_controlled_shutdown=True)
    then = after(one_topic(partition((2, C), (1, A)), registered=registered), Failures(directories={1: (A,)}))
    assert then.brokers[1] == replace(registered[1], directories=(B,))
    assert then.topics[Uuid(5, 5)].partitions[0].isr == (2,)


def test_report_of_a_fenced_broker_does_not_unfence_it() -> None:
    registered = brokers((A, B), (C,))
    registered[1] = replace(registered[1], fenced=True)
    image = one_topic(partition((1, A), isr=(1,), leader=-1), registered=registered)
    then = after(image, Failures(directories={1: (A,)}))
    assert then.brokers[1].fenced
    assert leaders(then) == leaders(image)


# THE LAKE


def places(image: Image) -> Iterable[tuple[str, Failures]]:
    for broker in image.brokers.values():
        if not broker.fenced:
            yield str(broker.broker_id), Failures(brokers=(broker.broker_id,))
            for directory in broker.directories:
                yield f"{broker.broker_id}:{directory}", Failures(directories={broker.broker_id: (directory,)})


@pytest.mark.parametrize(
    ("kafka", "offset"), [rare("kafka-3.7.2", 300), ("kafka-4.1.2", 300), rare("kafka-3.9.2-upgrade", 180)]
)
def test_whatif_of_two_failures_in_a_real_cluster_is_the_model_on_the_whole_image(
    cluster_lakes: Mapping[str, Path], kafka: str, offset: int
) -> None:
    image = Reference().add(entry for entry in read_log(metadata_dir(kafka)) if entry.offset <= offset).image
    names = {topic_id: topic.name for topic_id, topic in image.topics.items()}
    lake = Lake.open(cluster_lakes[kafka], at_offset=offset)
    changed = 0
    pairs = list(itertools.combinations(places(image), 2))
    for (first, first_failures), (second, second_failures) in pairs[:: amount(10, 1)]:
        answer = whatif(lake, [first, second])
        directories = {**first_failures.directories}
        for broker, failing in second_failures.directories.items():
            directories[broker] = (*directories.get(broker, ()), *failing)
        then = after(image, Failures(directories=directories, brokers=first_failures.brokers + second_failures.brokers))
        expected = {
            (names[key], n, was, leaders(then)[key, n])
            for (key, n), was in leaders(image).items()
            if leaders(then)[key, n] != was
        }
        changes = {
            (c.topic, c.partition, c.leader, c.leader_after) for c in answer.changes if c.leader != c.leader_after
        }
        assert changes == expected
        changed += len(expected)
    assert changed > amount(2, 20)


def test_whatif_tells_what_each_partition_loses(tmp_path: Path) -> None:
    image = one_topic(
        partition((1, A)),
        partition((1, A), (2, C)),
        partition((2, C), (1, B)),
        partition((1, A), (2, C), isr=(1,)),
        registered=brokers((A, B), (C,)),
    )
    image = replace(image, configs={(2, "t"): {"min.insync.replicas": "2", "unclean.leader.election.enable": "true"}})
    answer = whatif(Lake.open(lake_of(tmp_path / "lake", image)), [f"1:{A}"])
    assert [c.name for c in answer.chosen("without_leader")] == ["t-0"]
    assert [c.name for c in answer.chosen("all_offline")] == ["t-0"]
    assert [c.name for c in answer.chosen("unclean")] == ["t-3"]
    assert [c.name for c in answer.chosen("under_min_isr")] == ["t-0", "t-1"]
    assert [c.name for c in answer.chosen("moved")] == ["t-1", "t-3"]
    assert answer.replicas == 3


def test_last_replica_of_whatif_is_one_that_was_online_and_has_none_surely_online_beside_it_as_in_risk(
    tmp_path: Path,
) -> None:
    """whatif counted a replica that was offline already, and not one beside which only a lost disk may have another."""
    story = Story().broker(1, "ab").broker(2, "cd").topic("gone", {1: "b"}).topic("here", {1: "a"})
    story.topic("beside", {2: "unassigned", 1: "a"}, isr=(2,)).left(1, "a").left(2, "c").change("gone", 0, leader=1)
    lake = story.lake(tmp_path)
    for broker in risk(lake).brokers:
        answer = whatif(lake, [f"{broker.broker_id}"])
        names = {1: ["beside-0", "here-0"], 2: []}[broker.broker_id]
        assert [change.name for change in answer.chosen("all_offline")] == names
        assert broker.last_replicas == len(names)


def test_whatif_names_partitions_whose_last_copy_may_lie_where_no_record_placed_it(tmp_path: Path) -> None:
    """The controller counts such a replica as online whatever directory fails, so that nothing was named."""
    story = Story().broker(1, "ab").broker(2, "cd")
    story.topic("alone", {1: "unassigned"}).topic("both", {1: "unassigned", 2: "c"})
    story.topic("behind", {1: "unassigned", 2: "c"}, isr=(1,)).topic("placed", {1: "b"})
    story.topic("old", {1: "migrating"})

    def named(*failing: str) -> list[str]:
        answer = whatif(story.lake(tmp_path / str(len(story.entries))), failing)
        assert all(copy.broker_id == 1 for partition in answer.last_unplaced for copy in partition.copies)
        return [partition.name for partition in answer.last_unplaced]

    assert named(f"1:{disk('a')}") == ["alone-0", "behind-0", "old-0"]
    assert named(f"2:{disk('c')}") == []
    assert named(f"1:{disk('a')}", f"2:{disk('c')}") == ["alone-0", "behind-0", "both-0", "old-0"]
    assert named("1") == []  # all of its replicas fail for certain
    story.left(1, "b")
    assert named(f"1:{disk('a')}") == ["alone-0", "behind-0", "old-0"]
    story.fence(1)
    assert named(f"1:{disk('b')}") == ["alone-0", "behind-0", "old-0"]


def test_whatif_names_the_last_copies_on_a_disk_that_was_moved_to_another_broker(tmp_path: Path) -> None:
    """By its id: it named the copies of replicas of the broker only that lists it."""
    lake = moved().lake(tmp_path)
    for place in (f"2:{disk('a')}", "2", f"1:{disk('a')}"):
        assert [partition.name for partition in whatif(lake, [place]).last_offline] == ["solo-0"], place
    assert not whatif(lake, [f"2:{disk('c')}"]).last_offline


def test_whatif_names_the_last_copies_that_were_given_up_while_nobody_leads_without_them(
    cluster_lakes: Mapping[str, Path], tmp_path: Path
) -> None:
    """Of an unregistered broker, and of replicas that were recreated empty: nothing was named."""
    answer = whatif(Lake.open(cluster_lakes["kafka-4.1.2"], at_offset=629), ["3:DKz"])
    assert [partition.name for partition in answer.last_offline] == ["solo-2", "solo-7"]
    story = Story().broker(1, "ab").topic("t", {1: "a"}).fence(1).change("t", 0, leader=-1, isr=(1,))
    story.broker(1, "b", process=2).assign("t", 0, 1, "b")
    assert [partition.name for partition in whatif(story.lake(tmp_path / "1"), [f"1:{disk('a')}"]).last_offline] == [
        "t-0"
    ]
    story.change("t", 0, leader=1)
    assert not whatif(story.lake(tmp_path / "2"), [f"1:{disk('a')}"]).last_offline


def test_whatif_names_the_copies_of_partitions_that_went_on_without_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cause: only pending losses were named, so a wipe of the disk that safe-to-remove wants saved cost nothing."""
    story = Story().broker(1, "ab").topic("t", {1: "a"}).fence(1).change("t", 0, leader=-1, isr=(1,))
    story.broker(1, "b", process=2).assign("t", 0, 1, "b").change("t", 0, leader=1)
    lake = story.lake(tmp_path)
    for place, names in ((f"1:{disk('a')}", ["t-0"]), ("1", ["t-0"]), (f"1:{disk('b')}", [])):
        assert [partition.name for partition in whatif(lake, [place]).went_on] == names
    with pytest.raises(SystemExit):
        main.main(["whatif", "--fail", f"1:{disk('a')}", "--lake", str(tmp_path)])
    text = capsys.readouterr().out
    assert "1 partition went on without writes that a copy there may hold: save these before it is wiped" in text
    assert "  t-0\n" in text
    with pytest.raises(SystemExit):
        main.main(["whatif", "--fail", f"1:{disk('a')}", "--lake", str(tmp_path), "--json"])
    (partition,) = json.loads(capsys.readouterr().out)["went_on"]
    assert (partition["partition"], [copy["broker_id"] for copy in partition["copies"]]) == (0, [1])


def test_whatif_says_that_the_copy_may_be_in_the_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    story = Story().broker(1, "ab").topic("t", {1: "unassigned"}).topic("u", {1: "unassigned"})
    story.lake(tmp_path)
    with pytest.raises(SystemExit):
        main.main(["whatif", "--fail", f"1:{disk('a')}", "--lake", str(tmp_path)])
    first, _, *lines = capsys.readouterr().out.splitlines()
    assert first.endswith(": 2 partitions may lose something.")
    assert lines[:4] == [
        "2 partitions would need a replica that may be offline, as no record says where it is:",
        "  t-0, u-0",
        "2 partitions may have their last complete copy there (no record says which directory of broker 1 has it): if "
        "it is on a disk that is dead or wiped, the data is gone:",
        "  t-0, u-0",
    ]


@pytest.mark.parametrize("where", ["unassigned", rare("migrating")])
def test_whatif_of_a_directory_whose_broker_has_an_unplaced_replica_counts_it_for_leaders_and_min_isr(
    tmp_path: Path, where: str
) -> None:
    """Only where it was the last complete copy: nobody may answer, or writes be refused, and "only leaders would
    move"."""
    story = Story().configure("needed", "2").broker(1, "ab").broker(2, "cd").broker(3, "e")
    story.topic("led", {1: where, 2: "c"}).topic("needed", {2: "c", 1: where}).topic("more", {2: "c", 1: where})
    lake = story.topic("beside", {2: "c", 1: "a"}).topic("three", {3: "e", 2: "c", 1: where}).lake(tmp_path)
    for place in ("a", "b"):
        answer = whatif(lake, [f"1:{disk(place)}"])
        assert [change.name for change in answer.chosen("perhaps_unserved")] == ["led-0", "needed-0"]
        assert answer.replicas == (place == "a")
    assert not whatif(lake, [f"2:{disk('d')}"]).changes
    both = whatif(lake, [f"1:{disk('a')}", f"2:{disk('c')}"])
    assert {change.name: change.online_after for change in both.chosen("all_offline")}.keys() == {
        *("beside-0", "led-0", "needed-0", "more-0")
    }
    assert "led-0" not in [change.name for change in whatif(lake, ["1"]).chosen("perhaps_unserved")]


def test_whatif_of_a_directory_of_a_log_takes_all_its_replicas_offline() -> None:
    """The replicas of other directories were taken for those in it, so a disk with a last replica cost nothing."""
    log = metadata_dir("kafka-4.1.2")
    image = Reference().add(entry for entry in read_log(log) if entry.offset <= 300).image
    held = [
        place
        for topic in image.topics.values()
        for each in topic.partitions.values()
        for place in zip(each.replicas, each.directories, strict=True)
    ]
    for broker, directory in sorted(set(held))[:3]:
        words = ["whatif", "--fail", f"{broker}:{directory}", "--log", str(log), "--at-offset", "300", "--json"]
        answer = json.loads(CliRunner().invoke(application(words), words).stdout)
        assert answer["replicas"] == held.count((broker, directory))


def test_whatif_of_what_is_offline_already_changes_nothing(cluster_lakes: Mapping[str, Path]) -> None:
    answer = whatif(Lake.open(cluster_lakes["kafka-4.1.2"], at_offset=190), ["1:r60J"])
    assert not answer.changes
    assert not answer.failing[0].online
    assert answer.replicas == 0


def test_whatif_where_kafka_itself_would_fail_says_so_and_answers_as_if_repaired(tmp_path: Path) -> None:
    image = one_topic(
        partition((1, A), isr=(1,), eligible_leader_replicas=(), last_known_elr=()),
        partition((1, B), isr=(), leader=-1, last_known_elr=(2,)),
        registered=brokers((A, B), (C,)),
    )
    image = replace(image, features={**image.features, "eligible.leader.replicas.version": 1})
    answer = whatif(Lake.open(lake_of(tmp_path / "lake", image)), ["1:" + str(B)])
    assert "no replica" in answer.fault
    assert [(c.name, c.leader_after) for c in answer.changes] == [("t-1", -1)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x", "write one BROKER or BROKER:DIRECTORY"),
        ("-1", "write one BROKER or BROKER:DIRECTORY"),
        ("9", "broker 9 is not registered at offset 250; registered: 1, 2, 3, 4"),
        ("1:zz", "has no such directory; it has, or had: KowJ"),
        ("1:", "several directories match: KowJ"),
        ("9:a", "broker 9 never had a directory"),
    ],
)
def test_whatif_of_a_place_that_is_not_there_is_refused_with_those_there_are(
    cluster_lakes: Mapping[str, Path], text: str, problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        whatif(Lake.open(cluster_lakes["kafka-4.1.2"], at_offset=250), [text])


def test_path_of_two_directories_is_that_of_the_listed_one_where_no_disk_is_pulled_for_the_answer(
    tmp_path: Path,
) -> None:
    """A disk was replaced. jbod plan drain took the path of both, and whatif refused it."""
    lake = replaced("z").lake(tmp_path / "lake")
    named(lake, {"/data/a": "az"})
    (place,) = whatif(lake, ["1:/data/a"]).failing
    assert (place.directory_id, place.listed) == (str(disk("z")), True)
    with pytest.raises(UsageError, match=f"several directories match: .*{disk('a')}.*{disk('z')}"):
        safe_to_remove(lake, "1:/data/a")


def test_whatif_on_the_command_line_prints_names_as_they_are(tmp_path: Path) -> None:
    image = one_topic(
        partition((1, A), (2, C)), partition((1, A)), registered=brokers((A, B), (C,)), name="[red]a[/red]"
    )
    path = lake_of(tmp_path / "lake", image)
    run = CliRunner().invoke(
        application(["whatif"]), ["whatif", "--fail", "1:AAAAAAAAAAEAAAAAAAAD6A", "--lake", str(path)]
    )
    assert run.exit_code == 0
    assert "[red]a[/red]-1  1         1       none" in run.stdout
    run = CliRunner().invoke(application(["whatif"]), ["whatif", "--fail", "1", "--lake", str(path), "--json"])
    answer = json.loads(run.stdout)
    assert (answer["without_leader"], answer["moved"], answer["replicas"]) == (1, 1, 2)
    assert [change["partition"] for change in answer["changes"]] == [1, 0]


def test_directory_and_leader_that_a_snapshot_has_no_more_went_at_or_before_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A broker that catches up from a snapshot: it went at its offset, in the state "resync", and nobody led since."""
    before = Story().broker(1, "ab").topic("t", {1: "a"}).entries
    after = Story().broker(1, "b").topic("t", {1: "b"}).change("t", 0, leader=-1, isr=(1,)).entries
    write_lake(tmp_path, before, [replace(entry, offset=9, snapshot_index=at) for at, entry in enumerate(after)])
    lines = []
    for words in (["whatif", "--fail", f"1:{disk('a')}"], ["offline"]):
        with pytest.raises(SystemExit):
            main.main([*words, "--lake", str(tmp_path)])
        lines += capsys.readouterr().out.splitlines()
    gone, unled = [line for line in lines if "before offset 9, " in line]
    assert gone.startswith(
        f"  directory {disk('a')} of broker 1: its broker came back without it at or before offset 9, "
    )
    assert unled.startswith("    at or before offset 9, ")


@pytest.mark.parametrize(("registered", "state"), [(True, "deregistered"), (False, "unregistered")])
def test_directory_that_only_a_snapshot_lacks_went_as_for_the_other_answers(
    tmp_path: Path, registered: bool, state: str
) -> None:
    """It was "resync", which no page knows, where offline says that the broker came back without it."""
    before = Story().broker(1, "ab").broker(2, "c").topic("t", {1: "a", 2: "c"}).entries
    after = (Story().broker(1, "b") if registered else Story()).broker(2, "c").topic("t", {1: "a", 2: "c"}).entries
    write_lake(tmp_path, before, [replace(entry, offset=9, snapshot_index=at) for at, entry in enumerate(after)])
    lake = Lake.open(tmp_path)
    assert [row.state for row in directories(lake) if row.directory_id == str(disk("a"))] == [state]
    assert [failure.state for failure in whatif(lake, [f"1:{disk('a')}"]).already] == [state]
    since = [reason.finding for reason in safe_to_remove(lake, f"1:{disk('a')}").reasons if "since" in reason.finding]
    assert registered or since[0].startswith("broker 1 has not been registered since offset 9 or earlier: ")


def test_whatif_of_what_failed_says_since_when_and_what_it_took(
    cluster_lakes: Mapping[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    def output_lines(offset: int, *places: str) -> list[str]:
        words = [word for place in places for word in ("--fail", place)]
        with pytest.raises(SystemExit) as left:
            main.main(["whatif", *words, "--lake", str(cluster_lakes["kafka-4.1.2"]), "--at-offset", str(offset)])
        assert not left.value.code
        return capsys.readouterr().out.splitlines()

    failed = "  directory r60JqwAFn7gsit5hNSGjVw of broker 1: its broker reported it failed at offset 162, "
    at_once, later = output_lines(186, "1:r60J"), output_lines(300, "1:r60J")
    assert at_once[0] == "Nothing would change at offset 186, 2026-11-21 02:22:06.395Z: it has failed already."
    assert at_once[1] == f"{failed}2026-11-21 02:21:46.234Z; 7 replicas were in it, all still are."
    assert at_once[2] == "jbod offline shows the present state, and what to do."
    assert later[1:] == [
        f"{failed}2026-11-21 02:21:46.234Z; 7 replicas were in it, none is now.",
        at_once[2],
        "1 partition went on without writes that a copy there may hold: save these before it is wiped "
        "(jbod check --only B-32,B-33):",
        "  solo-6",
    ]
    gone = output_lines(629, "2", "3:DKz")
    assert (
        gone[1]
        == "  broker 2: fenced since offset 605, 2026-11-21 02:23:28.563Z; 28 replicas were on it, all still are."
    )
    assert "its broker was unregistered at offset 544, 2026-11-21 02:23:21.109Z; 21 replicas were in it" in gone[2]
    both = output_lines(186, "1:r60J", "2")
    assert both[0].startswith("If ")
    assert any(line.startswith("Nothing changes with what has failed already: directory r60J") for line in both)


def test_disk_of_an_unregistered_broker_comes_with_advice_that_can_be_followed(
    cluster_lakes: Mapping[str, Path],
) -> None:
    answer = safe_to_remove(Lake.open(cluster_lakes["kafka-4.1.2"]), "3:DKz")
    held, blocking, gone = answer.reasons
    assert held.finding == "without it broker 3 gives up the last complete copy of 2 partitions, which is not in use"
    assert held.partitions == ("solo-2", "solo-7")
    assert held.advice.startswith("start broker 3 again with the same disks")
    assert blocking.finding == "21 replicas in it, 21 with no other replica online"
    assert gone.finding.startswith("broker 3 has not been registered since offset 544")
    assert answer.plan is None
    text = " ".join(reason.finding + reason.advice for reason in answer.reasons)
    assert "another directory of broker 3" not in text
    assert "log.dirs" not in text


def test_failed_disk_cannot_be_emptied_by_moves_within_its_broker(cluster_lakes: Mapping[str, Path]) -> None:
    answer = safe_to_remove(Lake.open(cluster_lakes["kafka-4.1.2"], 186), "1:r60J")
    assert answer.plan is None
    first = answer.reasons[0]
    assert first.partitions == ("solo-6",)
    assert [step.action for step in first.steps] == ["read the disk", "bring back", "replace"]
    assert [step.action for step in first.steps if step.forbidden] == ["replace"]


def test_unclean_election_between_two_failures_counts_in_either_order(tmp_path: Path) -> None:
    """Only the leaders before and after all failures were compared."""
    story = Story().append(ConfigRecord(resource_type=2, resource_name="t", name=UNCLEAN_ELECTION, value="true"), 0)
    lake = story.broker(1, "a").broker(2, "b").topic("t", {1: "a", 2: "b"}, isr=(1,)).lake(tmp_path)
    for order in (["1", "2"], ["2", "1"]):
        assert [change.unclean for change in whatif(lake, order).changes] == [True]
    assert [change.unclean for change in whatif(lake, ["2"]).changes] == []


def test_failures_that_leave_no_majority_of_controllers_elect_nobody(tmp_path: Path) -> None:
    """It said that only leaders would move."""
    story = Story(27).voters({1: "a", 2: "b", 3: "c"}).broker(1, "a").broker(2, "b").broker(3, "c")
    lake = story.topic("t", {1: "a", 3: "c"}, {3: "c", 1: "a"}).lake(tmp_path)
    answer = whatif(lake, ["1", "2"])
    assert answer.quorum is not None
    assert not answer.quorum.safe
    assert {(change.partition, change.leader_after) for change in answer.changes} == {(0, -1), (1, 3)}
    assert [change.leader_after for change in whatif(lake, ["1"]).changes] == [3]


def test_leader_that_stays_without_a_quorum_waits_for_dead_replicas_of_its_in_sync_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cause: it counted as unharmed. Nobody takes the dead replica off the in-sync set (Kafka's maximalIsr)."""
    story = Story(27).voters({1: "a", 2: "b", 3: "c"}).broker(1, "a").broker(2, "b").broker(3, "c").broker(4, "d")
    story.topic("t", {3: "c", 1: "a", 4: "d"}, {3: "c", 4: "d"}).topic("u", {3: "c", 1: "a"}, isr=(3,))
    lake = story.lake(tmp_path)
    answer = whatif(lake, ["1", "2"])
    assert [(change.name, change.stalled, change.harmless) for change in answer.changes] == [("t-0", True, False)]
    assert answer.as_json()["stalled"] == 1
    assert [change.stalled for change in whatif(lake, ["1"]).changes] == []
    with pytest.raises(SystemExit):
        main.main(["whatif", "--fail", "1", "--fail", "2", "--lake", str(tmp_path)])
    out = capsys.readouterr().out
    assert out.splitlines()[0].endswith("1 partition would lose something.")
    assert (
        "1 partition would wait for a dead in-sync replica: writes with acks=all time out, consumers see nothing new:\n"
        "  t-0\n" in out
    )
    assert "bring a majority of the controllers back first" in out
    assert out.splitlines()[-1].split()[0] == "t-0" and out.endswith("acks=all writes\n")


def test_unclean_election_before_the_majority_is_gone_counts(tmp_path: Path) -> None:
    story = Story(27).append(ConfigRecord(resource_type=2, resource_name="t", name=UNCLEAN_ELECTION, value="true"), 0)
    story = story.voters({1: "a", 2: "b", 3: "c"}).broker(1, "a").broker(2, "b").broker(3, "c")
    lake = story.topic("t", {1: "a", 3: "c"}, isr=(1,)).lake(tmp_path)
    assert [change.unclean for change in whatif(lake, ["1", "2"]).changes] == [True]


def test_failure_before_partition_0_of_a_topic_was_written_is_answered() -> None:
    """R-CFG-3: in the migration from ZooKeeper partition 4 comes first, and the answer was UNKNOWN_SERVER_ERROR."""
    log = str(metadata_dir("kafka-3.9.2-zk-migration"))
    answer = CliRunner().invoke(
        application(["whatif"]), ["whatif", "--fail", "2", "--log", log, "--at-offset", "31", "--json"]
    )
    assert answer.exit_code == 0, answer.output
    changes = json.loads(answer.stdout)["changes"]
    assert [change["partition"] for change in changes if change["topic"] == "zkold" and change["without_leader"]] == [4]


def test_reassignment_that_the_metadata_version_cannot_record_is_a_fault_of_the_controller(tmp_path: Path) -> None:
    """It was a traceback. Below 3.7-IV2 the record that ends it names no directories, and the partition has some."""
    story = Story(17).broker(1, "ab").broker(2, "cd").topic("t", {1: "a", 2: "c"})
    lake = story.change("t", 0, removing_replicas=(1,)).version(16).lake(tmp_path)
    with pytest.raises(ControllerFault, match="t-0: 1 replicas keep 2 directories"):
        whatif(lake, ["1"])
