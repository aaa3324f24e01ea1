"""The stories of failures, as the clusters that lived them tell them."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from jbod_model.errors import UsageError
from jbod_model.formats.records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from jbod_model.ids import KAFKA_IDS, Uuid
from jbod_model.profiles import PROFILES
from pipelines.ask.incident_list import Incident, details, incidents
from pipelines.ask.moves import moves
from pipelines.ask.offline_replicas import offline
from pipelines.cli.main import application
from pipelines.lake.reader import Lake
from pipelines.show.incidents import show_story
from pipelines.show.text import Screen, lasted
from tests.support.images import as_entries
from tests.support.lakes import write_lake
from tests.support.logs import Entry
from tests.support.request_lakes import JoinedLake, request_lines
from tests.support.volume import lines_run
from tests.unit.check.story import Story


def summary(incident: Incident) -> tuple[object, ...]:
    return (
        incident.what,
        (incident.directory_id or "")[:4],
        incident.from_offset,
        incident.to_offset,
        incident.replicas_taken,
        incident.already_offline,
        incident.replicas_offline,
        incident.leaders,
        dict(incident.successors),
        incident.without_leader,
        incident.without_leader_now,
    )


STORY_4_1_2 = [
    ("broker 1: directory failed", "r60J", 162, 230, 7, 0, 0, 2, {2: 1}, 1, 0),
    ("broker 2: directory failed", "tVpK", 174, 289, 6, 0, 0, 3, {3: 2}, 1, 0),
    ("broker 1: stopped", "", 218, 230, 22, 7, 0, 7, {2: 5, 3: 2}, 0, 0),
    ("broker 2: stopped", "", 275, 289, 24, 6, 0, 12, {1: 7, 3: 2, 4: 2}, 1, 0),
    ("broker 4: lost", "", 341, 421, 22, 0, 0, 13, {1: 7, 2: 2, 3: 1}, 3, 0),
    ("broker 3: stopped", "", 366, 376, 21, 0, 0, 17, {1: 6, 2: 7}, 4, 0),
    ("broker 4: stopped", "", 471, 488, 22, 0, 0, 3, {}, 3, 0),
    ("broker 4: directory gone", "jYd7", 487, 487, 0, 0, 0, 0, {}, 0, 0),
    ("broker 3: stopped", "", 537, None, 24, 0, 24, 5, {1: 1, 4: 2}, 2, 2),
    ("broker 1: stopped", "", 574, None, 25, 0, 25, 24, {2: 13, 4: 9}, 2, 2),
    ("broker 2: stopped", "", 605, None, 28, 0, 28, 26, {4: 8}, 18, 18),
    ("broker 4: stopped", "", 629, None, 22, 0, 22, 22, {}, 22, 22),
]


def test_incidents_of_a_real_cluster_are_those_of_its_story(cluster_lakes: Mapping[str, Path]) -> None:
    assert [summary(incident) for incident in incidents(Lake.open(cluster_lakes["kafka-4.1.2"]))] == STORY_4_1_2


def test_incidents_of_an_upgrade_begin_with_the_registrations_that_bring_directories(
    cluster_lakes: Mapping[str, Path],
) -> None:
    stories = incidents(Lake.open(cluster_lakes["kafka-3.9.2-upgrade"]))
    assert [summary(story) for story in stories] == [
        ("broker 1: re-registered", "", 36, 36, 0, 0, 0, 0, {}, 0, 0),
        ("broker 3: re-registered", "", 37, 37, 0, 0, 0, 0, {}, 0, 0),
        ("broker 2: re-registered", "", 38, 38, 0, 0, 0, 0, {}, 0, 0),
        ("broker 1: stopped", "", 64, 67, 13, 0, 0, 6, {2: 4}, 2, 0),
        ("broker 2: stopped", "", 125, 128, 12, 0, 0, 9, {1: 5, 3: 3}, 1, 0),
        ("broker 1: directory failed", "Qe_m", 177, None, 10, 0, 10, 6, {2: 4}, 2, 2),
        ("broker 3: stopped", "", 200, 203, 15, 0, 0, 10, {1: 4, 2: 4}, 2, 0),
        ("broker 1: stopped", "", 232, None, 17, 10, 17, 7, {2: 5, 3: 2}, 0, 0),
        ("broker 2: stopped", "", 251, None, 16, 0, 16, 16, {3: 11}, 5, 5),
        ("broker 3: stopped", "", 268, None, 15, 0, 15, 15, {}, 15, 15),
    ]
    assert stories[0].ending == "came back with directory Qe_mcpuG8wC8aMQHZB4oeg added"
    assert [event.what for event in stories[0].events] == [
        "the same process registered, with directory Qe_mcpuG8wC8aMQHZB4oeg added"
    ]


def test_incidents_of_a_migration_from_zookeeper(cluster_lakes: Mapping[str, Path]) -> None:
    assert [summary(incident) for incident in incidents(Lake.open(cluster_lakes["kafka-3.9.2-zk-migration"]))] == [
        ("broker 1: stopped", "", 70, 73, 9, 0, 0, 8, {2: 4, 3: 3}, 1, 0),
        ("broker 2: stopped", "", 108, 111, 10, 0, 0, 9, {1: 4, 3: 4}, 1, 0),
        ("broker 3: stopped", "", 148, 151, 11, 0, 0, 11, {1: 4, 2: 5}, 2, 0),
        ("broker 1: directory failed", "RV8I", 199, None, 6, 0, 6, 5, {2: 3, 3: 2}, 0, 0),
        ("broker 1: stopped", "", 213, None, 12, 6, 12, 6, {2: 2, 3: 3}, 1, 1),
        ("broker 2: stopped", "", 227, None, 12, 0, 12, 12, {3: 6}, 6, 6),
        ("broker 3: stopped", "", 243, None, 14, 0, 14, 14, {}, 14, 14),
    ]


def test_incidents_of_kafka_3_7_where_a_directory_gone_at_a_restart_holds_replicas(
    cluster_lakes: Mapping[str, Path],
) -> None:
    stories = {
        (incident.what, incident.from_offset): incident
        for incident in incidents(Lake.open(cluster_lakes["kafka-3.7.2"]))
    }
    assert len(stories) == 12
    gone = stories["broker 4: directory gone", 462]
    assert summary(gone)[3:6] == (479, 12, 12)
    assert [event.what for event in gone.events][-3:] == [
        "12 replicas recreated empty in other directories of the broker",
        "data of 1 partition lost",
        "no replica is offline for it any more",
    ]
    assert gone.data_lost == ["solo-3"]
    blank = stories["broker 2: directory failed", 170]
    assert blank.ending == "blank disk in its place: pRwSYbpfoZMvoABtx_JbtQ"
    # After an unclean election nobody may lead solo-1 until the log ends: its replica was placed without an election.
    assert stories["broker 4: stopped", 460].without_leader_now == 1


def test_details_tell_each_replica_and_each_leader_of_a_failed_directory(cluster_lakes: Mapping[str, Path]) -> None:
    answer = details(Lake.open(cluster_lakes["kafka-4.1.2"]), 1)
    assert [(outage.topic, outage.partition, outage.from_offset, outage.to_offset) for outage in answer.outages] == [
        ("clicks", 5, 162, 230),
        ("clicks", 6, 162, 230),
        ("orders", 3, 162, 230),
        ("orders", 4, 162, 230),
        ("orders", 11, 162, 230),
        ("pinned", 2, 162, 230),
        ("solo", 6, 162, 230),
    ]
    assert [
        (loss.topic, loss.partition, loss.leader, loss.successor, loss.offset, loss.led_again_offset, loss.lacking)
        for loss in answer.leader_losses
    ] == [("orders", 3, 1, 2, 158, None, None), ("solo", 6, 1, -1, 160, 231, "lost")]
    assert answer.incident.data_lost == ["solo-6"]
    assert answer.incident.may_lack_writes == []


def test_story_of_a_failed_directory_is_told_as_far_as_the_offset_knows(cluster_lakes: Mapping[str, Path]) -> None:
    (incident,) = incidents(Lake.open(cluster_lakes["kafka-4.1.2"], at_offset=170))
    assert incident.going_on
    assert summary(incident) == ("broker 1: directory failed", "r60J", 162, None, 7, 0, 7, 2, {2: 1}, 1, 1)
    assert incident.ending == "not back"


# STORIES OF OUR OWN

A, B, C, NEW = Uuid(1, 1000), Uuid(1, 1001), Uuid(2, 1000), Uuid(3, 1000)
TOPIC = Uuid(5, 5)


def register(broker: int, *dirs: Uuid, epoch: int = 1, process: int = 1, fenced: bool = False) -> Record:
    return RegisterBrokerRecord(
        broker_id=broker, broker_epoch=epoch, incarnation_id=Uuid(7, process), log_dirs=dirs, fenced=fenced
    )


def change(broker: int, *dirs: Uuid, epoch: int = 1, fenced: int = 0, stopping: int = 0) -> Record:
    return BrokerRegistrationChangeRecord(
        broker_id=broker, broker_epoch=epoch, fenced=fenced, in_controlled_shutdown=stopping, log_dirs=dirs
    )


def made(number: int, *placed: tuple[int, Uuid]) -> Record:
    replicas = tuple(broker for broker, _ in placed)
    return PartitionRecord(
        partition_id=number,
        topic_id=TOPIC,
        replicas=replicas,
        isr=replicas,
        leader=replicas[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=tuple(directory for _, directory in placed),
    )


def moved(number: int, **fields: Any) -> Record:
    return PartitionChangeRecord(partition_id=number, topic_id=TOPIC, **fields)


BEGINNING = (
    register(1, A, B),
    register(2, C),
    TopicRecord(name="[b]t[/b]", topic_id=TOPIC),
    made(0, (1, A), (2, C)),
    made(1, (1, B)),
    moved(0, leader=2, isr=(2,)),
    change(1, B),  # offset 6: A failed
)


def lake(path: Path, *more: Record, beginning: Sequence[Record] = BEGINNING) -> Lake:
    write_lake(path / "lake", as_entries(*beginning, *more))
    return Lake.open(path / "lake")


def test_same_disk_that_comes_back_ends_the_story(tmp_path: Path) -> None:
    first, second = incidents(lake(tmp_path, register(1, A, B, epoch=2, process=2)))
    assert summary(first) == ("broker 1: directory failed", str(A)[:4], 6, 7, 1, 0, 0, 1, {2: 1}, 0, 0)
    assert first.ending == "same disk came back"
    assert summary(second)[:4] == ("broker 1: restarted", "", 7, 7)


def test_disk_that_moved_to_another_broker_is_named_there(tmp_path: Path) -> None:
    stories = incidents(lake(tmp_path, register(1, B, epoch=2, process=2), register(2, A, C, epoch=2, process=2)))
    assert stories[0].ending == "moved to broker 2"
    assert stories[0].going_on
    assert [event.what for event in stories[0].events if event.offset > 6] == [
        "the broker registered without it, no directory is new",
        f"directory {A} is online: moved to broker 2",
    ]


def test_blank_disk_that_replaces_a_failed_one_is_named(tmp_path: Path) -> None:
    stories = incidents(
        lake(tmp_path, register(1, B, NEW, epoch=2, process=2), moved(0, directories=(NEW, C))),
    )
    assert stories[0].ending == f"blank disk in its place: {NEW}"
    assert summary(stories[0])[2:7] == (6, 8, 1, 0, 0)


def test_failed_directory_that_held_nothing_goes_on_until_its_broker_starts_without_it(tmp_path: Path) -> None:
    empty = (register(1, A, B), change(1, B))
    (incident,) = incidents(lake(tmp_path, beginning=empty))
    assert (incident.replicas_taken, incident.going_on) == (0, True)
    (tmp_path / "later").mkdir()
    later = incidents(lake(tmp_path / "later", register(1, B, epoch=2, process=2), beginning=empty))
    assert (later[0].to_offset, later[0].ending) == (2, "not back: the broker runs without it")
    out = Screen(file=io.StringIO(), width=200)
    show_story(out, later[0])
    line = out.file.getvalue().splitlines()[0]  # type: ignore[attr-defined]
    assert ": no replica offline after " in line and line.endswith("; not back: the broker runs without it")
    assert "over after" not in line


def test_disk_that_died_while_its_broker_was_down_is_a_story_of_its_own(tmp_path: Path) -> None:
    stories = incidents(
        lake(
            tmp_path,
            moved(0, leader=2, isr=(2,)),
            moved(1, leader=-1),
            change(1, fenced=1),
            register(1, B, epoch=9, process=2, fenced=True),
            change(1, epoch=9, fenced=-1),
            moved(1, leader=1),
            beginning=BEGINNING[:5],
        )
    )
    assert [summary(story) for story in stories] == [
        ("broker 1: lost", "", 7, 9, 2, 0, 0, 2, {2: 1}, 1, 0),
        ("broker 1: directory gone", str(A)[:4], 8, None, 1, 1, 1, 0, {}, 0, 0),
    ]


def test_unregistered_broker_is_over_when_its_replicas_are_elsewhere(tmp_path: Path) -> None:
    gone = (*BEGINNING[:5], UnregisterBrokerRecord(broker_id=1, broker_epoch=1))
    (going,) = incidents(lake(tmp_path, beginning=gone))
    assert summary(going)[:5] == ("broker 1: unregistered", "", 5, None, 2)
    assert going.advice.startswith("start broker 1 again with the same disks: directory ")
    (tmp_path / "later").mkdir()
    away = (
        moved(0, replicas=(2,), isr=(2,), leader=2, directories=(C,)),
        moved(1, replicas=(2,), isr=(2,), leader=2, directories=(C,)),
    )
    (over,) = incidents(lake(tmp_path / "later", *away, beginning=gone))
    assert summary(over)[:7] == ("broker 1: unregistered", "", 5, 7, 2, 0, 0)
    assert over.ending == "unregistered"


def test_times_are_those_of_the_records_where_a_later_controllers_clock_is_behind(tmp_path: Path) -> None:
    """Cause: the latest time stood beside the newest offset, and a replica was offline for less than nothing."""
    records = (*BEGINNING[:5], change(1, fenced=1), moved(0, replicas=(2,), isr=(2,), leader=2, directories=(C,)))
    times = (0, 0, 0, 0, 0, 9_000_000, 8_000_000, 5_000_000)
    entries = as_entries(*records, change(1, fenced=-1))
    write_lake(tmp_path / "lake", [replace(entry, time=time) for entry, time in zip(entries, times, strict=True)])
    (incident,) = incidents(Lake.open(tmp_path / "lake"))
    time_of = {event.offset: event.time.timestamp() for event in incident.events}
    assert (time_of[5], time_of[7]) == (9, 5)
    assert (incident.replicas_taken, incident.longest_offline) == (2, timedelta())


def test_topic_that_is_deleted_ends_what_was_missing_of_it(tmp_path: Path) -> None:
    stories = incidents(lake(tmp_path, RemoveTopicRecord(topic_id=TOPIC)))
    assert summary(stories[0])[2:7] == (6, 7, 1, 0, 0)


def test_leader_that_stays_on_a_failed_directory_is_lost_when_another_one_leads(tmp_path: Path) -> None:
    late = (*BEGINNING[:5], change(1, B), moved(0, leader=2, isr=(2,)))
    (incident,) = incidents(lake(tmp_path, beginning=late))
    assert (incident.leaders, dict(incident.successors)) == (1, {2: 1})


def test_broker_that_was_down_before_the_snapshot_is_a_story_without_a_beginning(tmp_path: Path) -> None:
    snapshot = [
        replace(entry, offset=9, snapshot_index=index)
        for index, entry in enumerate(as_entries(register(1, A, fenced=True), register(2, C), *BEGINNING[2:4]))
    ]
    write_lake(tmp_path / "lake", snapshot)
    (incident,) = incidents(Lake.open(tmp_path / "lake"))
    assert summary(incident)[:5] == ("broker 1: lost", "", 9, None, 1)
    assert incident.from_snapshot


def _snapshot_at(offset: int, *records: Record) -> list[Entry]:
    return [replace(entry, offset=offset, snapshot_index=n) for n, entry in enumerate(as_entries(*records))]


def test_broker_that_was_unregistered_before_the_snapshot_is_told_by_its_replicas(tmp_path: Path) -> None:
    """Cause: no record of the lake has the broker, so no incident began, and the answer was that no broker failed."""
    snapshot = _snapshot_at(9, register(2, C), *BEGINNING[2:5])
    back = as_entries(register(1, A, B, epoch=9, fenced=True), change(1, epoch=9, fenced=-1), first=10)
    write_lake(tmp_path / "lake", snapshot, back)
    (missing,) = incidents(Lake.open(tmp_path / "lake", 9))
    assert summary(missing)[:7] == ("broker 1: unregistered", "", 9, None, 2, 0, 2)
    assert missing.from_snapshot
    assert [event.what for event in missing.events] == ["not registered, says a snapshot", "2 replicas offline"]
    assert missing.advice.startswith("start broker 1 again")
    (over,) = incidents(Lake.open(tmp_path / "lake"))
    assert (over.to_offset, over.ending) == (11, f"came back with directories {A}, {B}")


def test_times_since_a_snapshot_are_told_as_the_least_that_passed(tmp_path: Path) -> None:
    """Cause: a broker down for hours before the snapshot was told to be over after the seconds since."""
    stopping = replace(register(1, A, fenced=True), in_controlled_shutdown=True)  # type: ignore[call-arg]
    snapshot = _snapshot_at(9, stopping, register(2, C), *BEGINNING[2:4])
    back = as_entries(register(1, A, epoch=9), first=10)
    write_lake(tmp_path / "lake", snapshot, [replace(entry, time=5_000_000) for entry in back])
    run = CliRunner().invoke(application(["incidents"]), ["incidents", "--lake", str(tmp_path / "lake")])
    assert "offline is at least 4.7 s: broker 1: stopped." in run.stdout
    assert " 1  ≤ 1970-01-01 00:00:00.300Z " in run.stdout
    assert "1. broker 1: stopped: over after at least 4.7 s; " in run.stdout
    assert "shutdown began before this snapshot" in run.stdout


def test_incident_that_was_over_ended_then_at_every_later_offset(tmp_path: Path) -> None:
    """Cause: the newest event after its end, or a disk that came back later, became the end."""
    story = (
        *(register(1, A, B), register(2, C), change(1, B), register(1, B, epoch=3, process=2)),
        *(TopicRecord(name="t", topic_id=TOPIC), made(0, (1, B)), change(1, epoch=3, fenced=1)),
        moved(0, replicas=(2,), isr=(2,), leader=2, directories=(C,)),  # offset 7
        UnregisterBrokerRecord(broker_id=1, broker_epoch=3),
        register(1, A, B, epoch=9, process=3, fenced=True),
        change(1, epoch=9, fenced=-1),
    )
    lake(tmp_path, beginning=story)
    for offset in range(8, len(story)):
        ends = {it.what: it.to_offset for it in incidents(Lake.open(tmp_path / "lake", offset))}
        assert ends == {"broker 1: directory failed": 3, "broker 1: restarted": 3, "broker 1: lost": 8}


def test_broker_that_a_snapshot_knows_no_more_is_unregistered_at_or_before(tmp_path: Path) -> None:
    snapshot = [
        replace(entry, offset=20, snapshot_index=index)
        for index, entry in enumerate(as_entries(register(2, C), *BEGINNING[2:4]))
    ]
    write_lake(tmp_path / "lake", as_entries(*BEGINNING[:4]), snapshot)
    (incident,) = incidents(Lake.open(tmp_path / "lake"))
    assert summary(incident)[:5] == ("broker 1: unregistered", "", 20, None, 1)
    assert incident.from_snapshot
    assert incident.events[0].what == "not registered any more, says a snapshot"


def test_directory_that_was_gone_before_the_snapshot_is_told_by_its_replicas(tmp_path: Path) -> None:
    """Cause: offline told that the broker never registered it, and most logs begin with a snapshot."""
    snapshot = [
        replace(entry, offset=20, snapshot_index=index)
        for index, entry in enumerate(as_entries(register(1, B), register(2, C), *BEGINNING[2:5]))
    ]
    write_lake(tmp_path / "lake", snapshot, as_entries(register(1, A, B, epoch=9, process=2), first=21))
    (early,) = incidents(Lake.open(tmp_path / "lake", at_offset=20))
    assert summary(early)[:7] == ("broker 1: directory unknown", str(A)[:4], 20, None, 1, 0, 1)
    (cause,) = offline(Lake.open(tmp_path / "lake", at_offset=20)).causes
    failed = f"no record has directory {A} online on broker 1: it may have failed before offset 20"
    assert cause.finding == f"{failed}, where the history begins"
    assert cause.advice == early.advice
    assert early.from_snapshot
    assert early.events == ((20, early.from_time, "1 replica offline"),)
    later = incidents(Lake.open(tmp_path / "lake"))[0]
    assert (later.to_offset, later.ending) == (21, "same disk came back")


def test_directory_that_a_broker_lost_while_it_was_unregistered_is_gone_when_it_is_back(tmp_path: Path) -> None:
    stories = incidents(
        lake(
            tmp_path,
            UnregisterBrokerRecord(broker_id=1, broker_epoch=1),
            register(1, B, epoch=9, process=2),
            beginning=BEGINNING[:5],
        )
    )
    assert [summary(story)[:7] for story in stories] == [
        ("broker 1: unregistered", "", 5, 6, 2, 0, 0),
        ("broker 1: directory gone", str(A)[:4], 6, None, 1, 1, 1),
    ]


def test_replica_marked_lost_is_a_story_without_a_directory_that_is_known(tmp_path: Path) -> None:
    lost = KAFKA_IDS.lost
    (incident,) = incidents(lake(tmp_path, moved(0, directories=(lost, C)), beginning=BEGINNING[:5]))
    assert summary(incident)[:5] == ("broker 1: directory unknown", str(lost)[:4], 5, None, 1)
    assert not incident.from_snapshot
    assert incident.advice.startswith("run jbod disks on that broker to find the failed directory")


def test_replica_that_no_record_places_is_told_so_where_the_kip_has_it_offline(tmp_path: Path) -> None:
    """Cause: the reserved id was told to be of a disk that the broker had not registered."""
    unassigned = KAFKA_IDS.unassigned
    placed = as_entries(*BEGINNING[:5], moved(0, directories=(unassigned, C)))
    write_lake(tmp_path / "lake", placed, profile=PROFILES["kip858"])
    (cause,) = offline(Lake.open(tmp_path / "lake")).causes
    assert cause.finding == "no record says in which directory of broker 1 these replicas are: offline by the KIP"
    (incident,) = incidents(Lake.open(tmp_path / "lake"))
    assert summary(incident)[:5] == ("broker 1: directory unknown", str(unassigned)[:4], 5, None, 1)
    assert incident.advice == cause.advice == "wait until the broker reports where they are: jbod assignments"


def test_many_incidents_are_a_table_and_the_stories_of_those_that_go_on(tmp_path: Path) -> None:
    restarts = [
        record
        for epoch in range(2, 22)
        for record in (
            change(1, epoch=epoch - 1, fenced=1),
            register(1, A, B, epoch=epoch, process=epoch, fenced=True),
            change(1, epoch=epoch, fenced=-1),
        )
    ]
    lake(tmp_path, *restarts, change(2, fenced=1), beginning=BEGINNING[:5])
    path = str(tmp_path / "lake")
    run = CliRunner().invoke(application(["incidents"]), ["incidents", "--lake", path])
    assert len(run.stdout.splitlines()) < 38
    assert "21 incidents, 1 still going on" in run.stdout
    assert "\n21. broker 2: lost: still going on" in run.stdout
    assert "\n1. broker 1" not in run.stdout
    run = CliRunner().invoke(application(["incidents"]), ["incidents", "--all", "--lake", path])
    assert "\n1. broker 1: lost: over after 200 ms; came back with the same directories\n" in run.stdout


def _failing_again_and_again(path: Path, times: int) -> Lake:
    """A broker registers without a disk, recreates its replica elsewhere, and registers with it: each time anew."""
    failures = [
        record
        for epoch in range(2, 2 + 2 * times, 2)
        for record in (
            change(1, epoch=epoch - 1, stopping=1),
            moved(1, leader=-1),
            change(1, epoch=epoch - 1, fenced=1),
            register(1, A, epoch=epoch, process=epoch, fenced=True),
            moved(1, directories=(A,)),
            change(1, epoch=epoch, fenced=-1),
            moved(1, leader=1),
            register(1, A, B, epoch=epoch + 1, process=epoch + 1),
            moved(1, directories=(B,)),
        )
    ]
    return lake(path, *failures, beginning=BEGINNING[:5])


@pytest.mark.exhaustive
def test_incidents_of_a_disk_that_fails_twice_as_often_take_twice_the_work(tmp_path: Path) -> None:
    """Each incident read the rows of all brokers and directories, and each loss all incidents: 80 s for 5,000."""
    once, twice = (_failing_again_and_again(tmp_path / str(times), times) for times in (30, 60))
    stories = incidents(twice)
    assert Counter(story.kind for story in stories) == {
        "broker stopped": 60,
        "broker restarted": 60,
        "directory gone": 60,
    }
    assert sum(len(story.data_lost) for story in stories) == 60
    assert all(story.without_leader == 1 for story in stories if story.kind == "broker stopped")
    assert lines_run(partial(incidents, twice)) < 2.3 * lines_run(partial(incidents, once))


def _blank_again_and_again(path: Path, times: int) -> Lake:
    """A broker registers with a blank disk in the place of the one before: each time anew."""
    restarts = [
        record
        for epoch in range(2, 2 + times)
        for record in (
            change(1, epoch=epoch - 1, fenced=1),
            register(1, A, Uuid(8, epoch), epoch=epoch, process=epoch, fenced=True),
            change(1, epoch=epoch, fenced=-1),
        )
    ]
    return lake(path, *restarts, beginning=BEGINNING[:5])


@pytest.mark.exhaustive
def test_incidents_of_a_blank_disk_at_twice_as_many_restarts_take_twice_the_work(tmp_path: Path) -> None:
    """Cause: the incident of each disk had every later registration of its broker, 12 million for 5,000 restarts."""
    once, twice = (_blank_again_and_again(tmp_path / str(times), times) for times in (30, 60))
    gone = [story for story in incidents(twice) if story.kind == "directory gone"]
    assert len(gone) == 60
    for number, story in enumerate(gone, 2):
        assert story.ending == f"blank disk in its place: {Uuid(8, number)}"
        registrations = [event.what for event in story.events if event.what.startswith("the broker registered")]
        assert registrations == [f"the broker registered without it, with directory {Uuid(8, number)} new"]
    assert lines_run(partial(incidents, twice)) < 2.1 * lines_run(partial(incidents, once))


def test_cluster_in_which_nothing_failed_has_no_incidents(tmp_path: Path) -> None:
    calm = lake(tmp_path, beginning=BEGINNING[:5])
    assert incidents(calm) == []
    with pytest.raises(UsageError, match="incident 1: no such incident up to offset 4: there is none"):
        details(calm, 1)
    run = CliRunner().invoke(application(["incidents"]), ["incidents", "--lake", str(tmp_path / "lake")])
    assert "no broker and no directory failed" in run.stdout


def test_incidents_on_the_command_line_print_names_as_they_are(tmp_path: Path) -> None:
    lake(tmp_path)
    path = str(tmp_path / "lake")
    run = CliRunner().invoke(application(["incidents"]), ["incidents", "--lake", path])
    assert run.exit_code == 0
    assert run.stdout.startswith("Up to offset 6, 1970-01-01 00:00:00.600Z: 1 incident, 1 still going on.")
    assert "What to do: find that disk" in run.stdout
    run = CliRunner().invoke(application(["incidents"]), ["incidents", "1", "--lake", path])
    assert "\n[b]t[/b]-0  1       AAAA" in run.stdout
    run = CliRunner().invoke(application(["incidents"]), ["incidents", "--json", "--lake", path])
    (incident,) = json.loads(run.stdout)["incidents"]
    assert (incident["going_on"], incident["replicas_taken"], incident["longest_offline"]) == (True, 1, 0.0)
    assert incident["successors"] == {"2": 1}
    run = CliRunner().invoke(application(["incidents"]), ["incidents", "1", "--json", "--lake", path])
    assert [outage["topic"] for outage in json.loads(run.stdout)["outages"]] == ["[b]t[/b]"]


def test_incidents_end_with_the_moves_and_say_what_the_log_cannot_tell(cluster_lakes: Mapping[str, Path]) -> None:
    path = str(cluster_lakes["kafka-4.1.2"])
    run = CliRunner().invoke(application(["incidents"]), ["incidents", "--lake", path])
    moved, unknown = run.stdout.splitlines()[-2:]
    assert moved.startswith(
        "1 move between disks: 1 accepted, none reverted; 24 replicas recreated empty in another directory. "
    )
    assert unknown.startswith("When moves were asked for, and the assignment queue, is not in the log")
    run = CliRunner().invoke(application(["incidents"]), ["incidents", "--json", "--lake", path])
    answer = json.loads(run.stdout)
    assert (answer["moves"]["count"], answer["moves"]["longest"], answer["assignment_queue"]) == (25, None, None)


def test_incidents_with_requests_tell_the_longest_move_and_the_queue(tmp_path: Path) -> None:
    joined = JoinedLake(tmp_path / "lake", "kafka-3.7.2")
    joined.replay()
    joined.add(request_lines("kafka-3.7.2"))
    run = CliRunner().invoke(application(["incidents"]), ["incidents", "--json", "--lake", str(tmp_path / "lake")])
    answer = json.loads(run.stdout)
    queue, lake = answer["assignment_queue"], Lake.open(tmp_path / "lake")
    each = {(row["broker_id"], row["connection"], row["correlation_id"]) for row in joined.rows}
    assert (queue["entries"], queue["requests"], queue["refused"]) == (len(joined.rows), len(each), 2)
    assert queue["largest"] == max(row["entries"] for row in joined.rows)
    disk_moves = moves(lake)
    durations = [move.duration for move in disk_moves if move.duration is not None]
    assert answer["moves"]["longest_duration"] == max(durations).total_seconds()
    assert answer["moves"]["reverted"] == sum(move.outcome == "reverted" for move in disk_moves)
    before = Lake.open(tmp_path / "lake", queue["waiting_offset"])
    waiting = [
        row
        for row in before.query(f"SELECT broker_id, kind FROM {before.at('assignments')}")
        if row == (queue["waiting_broker"], "unassigned")
    ]
    assert len(waiting) == queue["waiting"] == 9


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.014, "14 ms"), (6.47, "6.5 s"), (200, "3 min 20 s"), (7500, "2 h 5 min"), (525_600, "6 d 2 h")],
)
def test_spans_are_told_in_two_units_at_most(seconds: float, text: str) -> None:
    assert lasted(timedelta(seconds=seconds)) == text


AN_HOUR = 3_600_000
"""In ms."""
UNCLEAN = moved(1, leader=2, isr=(2,), leader_recovery_state=1)


def with_breaks(records: Sequence[Record], *breaks: int) -> list[Entry]:
    """Entries in which an hour passes before each offset of ``breaks``; the others are of one append."""
    entries = as_entries(*records)
    began = entries[0].time
    return [
        replace(entry, time=began + AN_HOUR * sum(entry.offset >= offset for offset in breaks)) for entry in entries
    ]


ALONE = (
    register(1, A, B),
    register(2, C),
    TopicRecord(name="u", topic_id=TOPIC),
    made(1, (1, B), (2, C)),
    moved(1, isr=(1,)),
)
"""Broker 1 has the only complete copy, in B."""


def lacking(path: Path, records: Sequence[Record], *breaks: int) -> dict[tuple[str, int], list[str]]:
    write_lake(path / "lake", with_breaks(records, *breaks))
    return {
        (incident.what, incident.from_offset): list(incident.may_lack_writes)
        for incident in incidents(Lake.open(path / "lake"))
    }


def test_unclean_election_before_the_record_of_its_failure_belongs_to_that_failure(tmp_path: Path) -> None:
    """Losses before the offset of the failure's record were dropped, though the controller appends both together."""
    partitions_of = lacking(tmp_path, (*ALONE, UNCLEAN, change(1, A)), 5)
    assert partitions_of == {("broker 1: directory failed", 6): ["u-1"]}


def test_unclean_election_is_not_blamed_on_an_older_failure_that_is_over(tmp_path: Path) -> None:
    """The last failure before the loss was taken, though the broker had been back for hours."""
    stopped = (change(1, fenced=1), change(1, fenced=-1))
    partitions_of = lacking(tmp_path, (*ALONE, *stopped, UNCLEAN, change(1, A)), 5, 6, 7)
    assert partitions_of == {("broker 1: lost", 5): [], ("broker 1: directory failed", 8): ["u-1"]}


def test_unclean_election_of_a_disk_that_came_back_is_blamed_on_the_newer_loss_of_its_broker(tmp_path: Path) -> None:
    """A failure of the directory was preferred, however long the directory had been back."""
    back = (change(1, A), register(1, A, B, epoch=2, process=2))
    partitions_of = lacking(tmp_path, (*ALONE, *back, UNCLEAN, change(1, epoch=2, fenced=1)), 5, 6, 7)
    assert partitions_of == {
        ("broker 1: directory failed", 5): [],
        ("broker 1: restarted", 6): [],
        ("broker 1: lost", 8): ["u-1"],
    }


def test_unclean_election_long_before_a_failure_does_not_belong_to_it(tmp_path: Path) -> None:
    partitions_of = lacking(tmp_path, (*ALONE, UNCLEAN, change(1, A)), 5, 6)
    assert partitions_of == {("broker 1: directory failed", 6): []}


def test_loss_by_a_replica_that_is_recreated_before_its_process_registers_belongs_to_the_directory(
    tmp_path: Path,
) -> None:
    """R-COPY-12: the loss stands before the registration without the directory, and no incident had it."""
    story = Story().broker(1, "ab").broker(2, "c").topic("t", {1: "a", 2: "c"}, {1: "a"}).change("t", 0, isr=(1,))
    story.fence(1).fence(1, up=True).assign("t", 1, 1, "d").assign("t", 0, 1, "d").change("t", 0, leader=-1)
    story.change("t", 0, leader=2, isr=(2,), leader_recovery_state=1).wait(15).broker(1, "bd", process=2)
    losers = {incident.what: list(incident.data_lost) for incident in incidents(story.lake(tmp_path))}
    assert losers == {
        "broker 1: lost": [],
        "broker 1: directory not registered": [],
        "broker 1: restarted": [],
        "broker 1: directory gone": ["t-0", "t-1"],
    }
