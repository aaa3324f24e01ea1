"""Questions against a lake: equal to Kafka's own images, and clear where there is no answer."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jbod_model.errors import UsageError
from jbod_model.formats.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    VersionedRecord,
)
from jbod_model.ids import KAFKA_IDS, Uuid
from lab.conformance.trace import image_as_json
from pipelines.ask import Lake, directories, history, image, offline, status
from pipelines.ask.configs import features, min_isr
from pipelines.ask.lake_status import Troubled, count_troubled, troubled
from pipelines.ask.partition_history import histories
from tests.support.kafka_images import kafka_images
from tests.support.lakes import Reference, write_lake
from tests.support.logs import Entry, read_file, read_log
from tests.support.paths import KAFKAS, TRACES, metadata_dir
from tests.support.volume import amount, lines_run, sampled

A, B, C = (Uuid(9, lsb) for lsb in (1, 2, 3))
TOPIC, AGAIN = Uuid(1, 1), Uuid(1, 2)


def entries(*records: Record, first: int = 0, snapshot_at: int | None = None) -> list[Entry]:
    from jbod_model.formats.codec import encode

    made = []
    for index, record in enumerate(records):
        version = 3 if isinstance(record, RegisterBrokerRecord) else 0
        if isinstance(record, BrokerRegistrationChangeRecord | PartitionChangeRecord):
            version = 2 if getattr(record, "cordoned_log_dirs", None) is None else 3
        if isinstance(record, PartitionRecord):
            version = 1
        versioned = VersionedRecord(record, version)
        offset = first + index if snapshot_at is None else snapshot_at
        time = 1_000_000 * (first + index)
        place = None if snapshot_at is None else index
        made.append(Entry(offset, 1, time, offset, encode(versioned), None, versioned, place))
    return made


def broker(broker_id: int, *dirs: Uuid, epoch: int = 1, fenced: bool = False) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch, log_dirs=dirs, fenced=fenced)


def partition(*replicas: int, dirs: tuple[Uuid, ...] = (), topic: Uuid = TOPIC, number: int = 0) -> PartitionRecord:
    return PartitionRecord(
        partition_id=number,
        topic_id=topic,
        replicas=replicas,
        isr=replicas,
        leader=replicas[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=dirs,
    )


FAILURE = (
    broker(1, A, B),
    broker(2, C),
    TopicRecord(name="orders", topic_id=TOPIC),
    partition(1, 2, dirs=(A, C)),
    partition(1, dirs=(A,), number=1),
    BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, log_dirs=(B,)),
    PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=(2,), leader=2),
    PartitionChangeRecord(partition_id=1, topic_id=TOPIC, leader=-1),
)


@pytest.mark.parametrize("kafka", sampled(KAFKAS, 1))
def test_image_at_every_recorded_offset_equals_kafkas(cluster_lakes: Mapping[str, Path], kafka: str) -> None:
    for expected in kafka_images(kafka)[:: amount(3, 1)]:
        answer = image(Lake.open(cluster_lakes[kafka], at_offset=expected["offset"]))
        assert answer == expected
        assert [list(part) for part in answer["partitions"]] == [list(part) for part in expected["partitions"]]


def test_image_from_snapshot_and_tail_equals_kafkas(tmp_path: Path) -> None:
    write_lake(tmp_path / "lake", read_log(metadata_dir("kafka-4.1.2"), "snapshot"))
    first = Lake.open(tmp_path / "lake").first
    known = [expected for expected in kafka_images("kafka-4.1.2") if expected["offset"] >= first]
    assert len(known) > 5
    for expected in known:
        assert image(Lake.open(tmp_path / "lake", at_offset=expected["offset"])) == expected


@pytest.mark.exhaustive
def test_image_of_random_operations_equals_kafkas(tmp_path: Path) -> None:
    segment = tmp_path / "seed2.log"
    segment.write_bytes(gzip.decompress((TRACES / "seed2.log.gz").read_bytes()))
    some = [entry for entry in read_file(segment) if entry.offset < 3000]
    with gzip.open(TRACES / "seed2.jsonl.gz", "rt") as lines:
        images = [
            operation
            for line in lines
            if (operation := json.loads(line))["op"] == "image" and operation["offset"] < 3000
        ]
    write_lake(tmp_path / "lake", some[:1000], some[1000:])
    assert len(images) > 5
    for expected in images[:: amount(2, 1)]:
        assert image(Lake.open(tmp_path / "lake", at_offset=expected["offset"])) == expected


def test_image_at_a_time_is_that_of_the_last_record_by_then(cluster_lakes: Mapping[str, Path]) -> None:
    at = Lake.open(cluster_lakes["kafka-4.1.2"], at_offset=300)
    later = Lake.open(cluster_lakes["kafka-4.1.2"], at_time=at.time)
    assert later.time == at.time
    assert later.offset >= 300
    before = Lake.open(cluster_lakes["kafka-4.1.2"], at_time=at.time - timedelta(microseconds=1))
    assert before.offset < 300


def test_image_of_topics_in_java_order_and_odd_paths(tmp_path: Path) -> None:
    names = ["b", "a.b", "a-b", "A"]
    records = [record for n, name in enumerate(names) for record in topic(name, Uuid(5, n))]
    write_lake(tmp_path / "lake", entries(*records))
    path = (tmp_path / "lake").rename(tmp_path / "it's [odd] 100% *?")
    answer = image(Lake.open(path))
    assert [part["topic"] for part in answer["partitions"]] == ["A", "a-b", "a.b", "b"]


def topic(name: str, topic_id: Uuid) -> list[Record]:
    return [TopicRecord(name=name, topic_id=topic_id), partition(1, dirs=(A,), topic=topic_id)]


def test_offline_names_cause_and_hurt_partitions(tmp_path: Path) -> None:
    write_lake(tmp_path / "lake", entries(*FAILURE))
    answer = offline(Lake.open(tmp_path / "lake"))
    (cause,) = answer.causes
    assert (cause.reason, cause.broker_id, cause.directory_id, cause.replicas) == ("directory offline", 1, str(A), 2)
    assert (cause.from_offset, cause.from_time) == (5, datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC))
    assert "reported that directory" in cause.finding
    document = answer.as_json()
    assert document["partitions_without_leader"] == ["orders-1"]
    assert document["partitions_all_offline"] == ["orders-1"]
    assert document["partitions_under_min_isr"] == ["orders-1"]
    assert (document["replicas_in_all"], document["partitions_in_all"], document["offline_replicas"]) == (3, 2, 2)
    assert [replica.from_offset for replica in answer.replicas] == [5, 5]


def test_offline_before_the_failure_is_nothing(tmp_path: Path) -> None:
    write_lake(tmp_path / "lake", entries(*FAILURE))
    answer = offline(Lake.open(tmp_path / "lake", at_offset=4))
    assert (answer.replicas, answer.causes, answer.partitions) == ([], [], [])


def test_offline_between_failure_and_election_is_led_from_offline(tmp_path: Path) -> None:
    write_lake(tmp_path / "lake", entries(*FAILURE))
    answer = offline(Lake.open(tmp_path / "lake", at_offset=5))
    assert [part.name for part in answer.partitions if part.led_from_offline] == ["orders-0", "orders-1"]
    assert not any(part.without_leader for part in answer.partitions)


@pytest.mark.parametrize(
    ("records", "finding"),
    [
        ((broker(1, B, epoch=9),), "broker 1 came back without directory"),
        ((broker(1, B, epoch=9), broker(2, A, C, epoch=9)), "is now on broker 2"),
    ],
)
def test_offline_directory_tells_how_it_went(tmp_path: Path, records: tuple[Record, ...], finding: str) -> None:
    write_lake(tmp_path / "lake", entries(*FAILURE[:5], *records))
    (cause, *_) = offline(Lake.open(tmp_path / "lake")).causes
    assert finding in cause.finding


@pytest.mark.parametrize("kafka", sampled(KAFKAS[::-1], 1))
def test_offline_equals_the_image_at_every_offset(cluster_lakes: Mapping[str, Path], kafka: str) -> None:
    for expected in kafka_images(kafka)[:: amount(12, 4)]:
        answer = offline(Lake.open(cluster_lakes[kafka], at_offset=expected["offset"]))
        dark: dict[str, list[int]] = {}
        for replica in answer.replicas:
            dark.setdefault(f"{replica.topic}-{replica.partition}", []).append(replica.broker_id)
        wanted = {f"{p['topic']}-{p['partition']}": p["offlineReplicas"] for p in expected["partitions"]}
        assert dark == {name: replicas for name, replicas in wanted.items() if replicas}
        assert answer.partitions_hit == len(dark)
        assert {part.name: list(part.offline) for part in answer.partitions}.items() <= wanted.items()
        assert sum(cause.replicas for cause in answer.causes) == len(answer.replicas)


def partitions_of(lake: Lake, default: int) -> list[Troubled]:
    """Every partition at the lake's offset, troubled or not, from rows of the tables."""
    dark: dict[tuple[str, int], list[int]] = {}
    for topic, partition, broker in lake.query(
        f"SELECT topic, partition, broker_id FROM {lake.at('offline_replicas')} ORDER BY replica_index"
    ):
        dark.setdefault((topic, partition), []).append(broker)
    values = min_isr(lake, default)
    return [
        Troubled(
            topic,
            partition,
            tuple(replicas),
            tuple(isr),
            leader,
            tuple(dark.get((topic, partition), ())),
            values.of(topic, len(replicas)),
        )
        for topic, partition, replicas, isr, leader in sorted(
            lake.query(f"SELECT topic, partition, replicas, isr, leader FROM {lake.at('partitions')}")
        )
    ]


def test_troubled_partitions_are_listed_and_counted_as_their_rows_say(
    cluster_lakes: Mapping[str, Path], tmp_path: Path
) -> None:
    write_lake(tmp_path / "lake", entries(*FAILURE))
    places = [(tmp_path / "lake", offset) for offset in range(len(FAILURE))]
    for kafka in KAFKAS:
        places += [
            (cluster_lakes[kafka], kafka_image["offset"]) for kafka_image in kafka_images(kafka)[:: amount(16, 8)]
        ]
    seen: Counter[str] = Counter()
    for place, offset in places:
        lake = Lake.open(place, at_offset=offset)
        for default in (1, 2, 5):
            every = partitions_of(lake, default)
            trouble = {
                name: [partition for partition in every if getattr(partition, name)]
                for name in ("without_leader", "led_from_offline", "all_offline", "under_min_isr")
            }
            listed = [partition for partition in every if any(partition in members for members in trouble.values())]
            assert troubled(lake, default) == listed
            under = sum(len(partition.isr) < len(partition.replicas) for partition in every)
            assert count_troubled(lake, default) == (*map(len, trouble.values()), under)
            seen.update({name: len(members) for name, members in trouble.items()})
    assert len(+seen) == 4


def config(name: str, value: str | None, kind: int = 2) -> ConfigRecord:
    return ConfigRecord(resource_type=kind, resource_name=name, name="min.insync.replicas", value=value)


def test_min_isr_is_of_the_topic_then_the_cluster_then_the_default(tmp_path: Path) -> None:
    write_lake(
        tmp_path / "lake",
        entries(*topic("a", TOPIC), config("a", "3"), config("", "2", 4), config("", "5", 4), config("b", "7")),
    )
    assert min_isr(Lake.open(tmp_path / "lake", at_offset=2)).default == 1
    minimum = min_isr(Lake.open(tmp_path / "lake"))
    assert (minimum.of("a", 4), minimum.of("a", 2), minimum.of("c", 9), minimum.of("b", 9)) == (3, 2, 5, 7)


def test_min_isr_of_a_removed_topic_is_gone(tmp_path: Path) -> None:
    removed = (*topic("a", TOPIC), config("a", "3"), RemoveTopicRecord(topic_id=TOPIC), *topic("a", AGAIN))
    write_lake(tmp_path / "lake", entries(*removed))
    assert min_isr(Lake.open(tmp_path / "lake", at_offset=2)).of("a", 9) == 3
    assert min_isr(Lake.open(tmp_path / "lake")).of("a", 9) == 1


@pytest.mark.parametrize(
    ("kafka", "level"),
    [("kafka-3.7.2", 19), ("kafka-3.9.2-upgrade", 21), ("kafka-3.9.2-zk-migration", 21), ("kafka-4.1.2", 27)],
)
def test_features_have_the_level_of_the_log(cluster_lakes: Mapping[str, Path], kafka: str, level: int) -> None:
    assert features(Lake.open(cluster_lakes[kafka]))["metadata.version"] == level
    reference = Reference().add(read_log(metadata_dir(kafka)))
    assert features(Lake.open(cluster_lakes[kafka])) == dict(reference.image.features)


def test_status_counts_what_the_image_has(cluster_lakes: Mapping[str, Path]) -> None:
    answer = status(Lake.open(cluster_lakes["kafka-4.1.2"], at_offset=288))
    expected = next(kafka_image for kafka_image in kafka_images("kafka-4.1.2") if kafka_image["offset"] == 288)
    assert (answer.brokers, answer.partitions) == (len(expected["brokers"]), len(expected["partitions"]))
    assert sum(answer.replicas.values()) == sum(len(part["replicas"]) for part in expected["partitions"])
    assert answer.offline_replicas == sum(len(part["offlineReplicas"]) for part in expected["partitions"])
    assert answer.partitions_under_replicated == sum(len(p["isr"]) < len(p["replicas"]) for p in expected["partitions"])
    assert (answer.offset, answer.newest_offset, answer.first_offset) == (288, 629, 0)


def test_history_tells_every_change_of_a_partition(tmp_path: Path) -> None:
    moved = PartitionChangeRecord(partition_id=0, topic_id=TOPIC, directories=(B, KAFKA_IDS.lost))
    write_lake(tmp_path / "lake", entries(*FAILURE, moved, RemoveTopicRecord(topic_id=TOPIC), *topic("orders", AGAIN)))
    answer = history(Lake.open(tmp_path / "lake"), "orders-0")
    assert [(event.offset, event.what) for event in answer.events] == [
        (3, f"created as topic {TOPIC}: replicas 1 in {A}, 2 in {C}; leader 1"),
        (5, "replica on 1 is offline: directory offline"),
        (6, "leader 1 -> 2 (leader epoch 1)"),
        (6, "isr [1,2] -> [2]"),
        (8, f"replica on 1 recreated empty in {B} (its data was in {A})"),
        (8, f"replica on 2: the broker reported that its directory failed (LOST; was {C})"),
        (8, "replica on 1 is offline no more"),
        (8, "replica on 2 is offline: directory lost"),
        (
            8,
            f"the data is lost: the last complete copy was in directory {C} of broker 2, "
            "and the directory failed (LOST)",
        ),
        (9, "removed with its topic"),
        (11, f"created as topic {AGAIN}: replicas 1 in {A}; leader 1"),
        (11, "replica on 1 is offline: directory offline"),
    ]
    assert [event.offset for event in history(Lake.open(tmp_path / "lake", at_offset=5), "orders-0").events] == [3, 5]


def test_history_of_a_replica_that_is_offline_twice_as_often_takes_twice_the_work(tmp_path: Path) -> None:
    """The end of each time offline read all states of the partition: minutes for 10,000 of them."""
    lines = []
    for times in (40, 80):
        elections = (
            PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=time % 2 + 1) for time in range(times)
        )
        restarts = (
            BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=fenced)
            for _ in range(times)
            for fenced in (1, -1)
        )
        write_lake(tmp_path / str(times), entries(*FAILURE[:5], *elections, *restarts))
        answer = Lake.open(tmp_path / str(times))
        events = Counter(event.what for event in history(answer, "orders-0").events)
        assert events["replica on 1 is offline no more"] == times
        lines.append(lines_run(partial(history, answer, "orders-0")))
    assert lines[1] < 2.3 * lines[0]


def test_history_of_a_topic_makes_each_table_once_for_all_partitions(
    cluster_lakes: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The states of all brokers were selected again for each partition."""
    tables, query = [], Lake.query

    def count(lake: Lake, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        tables.extend(re.findall(r"CREATE OR REPLACE TEMP TABLE (\w+)", sql))
        return query(lake, sql, *parameters)

    monkeypatch.setattr(Lake, "query", count)
    answer = histories(Lake.open(cluster_lakes["kafka-4.1.2"]), "solo")
    assert len(answer) == 8
    assert {"loss_brokers_629", "moved_629"} <= {*tables}
    assert len({*tables}) == len(tables)


def test_history_of_a_topic_makes_no_more_queries_than_that_of_one_of_its_partitions(
    cluster_lakes: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five for each partition, each of which read the whole table: minutes for a topic of 1,000."""
    queries, query = 0, Lake.query

    def count(lake: Lake, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        nonlocal queries
        queries += 1
        return query(lake, sql, *parameters)

    monkeypatch.setattr(Lake, "query", count)
    made = []
    for name, partitions in (("solo-6", 1), ("solo", 8)):
        queries = 0
        assert len(histories(Lake.open(cluster_lakes["kafka-4.1.2"]), name)) == partitions
        made.append(queries)
    assert made[1] <= made[0]


def test_history_of_an_offline_replica_that_is_reassigned_away_never_says_offline_no_more(tmp_path: Path) -> None:
    moved = PartitionChangeRecord(partition_id=0, topic_id=TOPIC, replicas=(2,), directories=(C,), isr=(2,), leader=2)
    write_lake(tmp_path / "lake", entries(*FAILURE, moved))
    answer = history(Lake.open(tmp_path / "lake"), "orders-0")
    last = [event.what for event in answer.events if event.offset == 8]
    assert last == [f"replica on 1 removed from {A}", "leader stays 2 (leader epoch 2)"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("order-0", "did you mean orders-0?"),
        ("order", "did you mean orders-0?"),
        ("order-s", "did you mean orders-0?"),
        ("orders1", "did you mean orders-1?"),
        ("order-9", "did you mean orders-0?"),
        ("orders-7", "orders has the partitions orders-0 to orders-1"),
        ("orders", "orders has the partitions orders-0 to orders-1"),
        ("orders-x", "orders has the partitions orders-0 to orders-1"),
        ("zzzz-1", "the topics are orders"),
        ("", "the topics are orders"),
    ],
)
def test_history_of_an_unknown_partition_suggests(tmp_path: Path, name: str, hint: str) -> None:
    """Cause: of a name without a number, the end was taken for the number: did you mean orders-order?"""
    write_lake(tmp_path / "lake", entries(*FAILURE))
    with pytest.raises(UsageError, match=r"\?$|orders") as problem:
        history(Lake.open(tmp_path / "lake"), name)
    assert hint in str(problem.value)


def test_directories_lists_held_empty_failed_and_unassigned(tmp_path: Path) -> None:
    born = partition(1, 2, dirs=(B, KAFKA_IDS.unassigned), number=2)
    write_lake(tmp_path / "lake", entries(*FAILURE, born))
    rows = [
        (directory.broker_id, directory.directory_id, directory.state, directory.replicas, directory.leaders)
        for directory in _directories(tmp_path)
    ]
    assert rows == [
        (1, str(A), "failed", 2, 0),
        (1, str(B), "online", 1, 1),
        (2, str(KAFKA_IDS.unassigned), "unassigned", 1, 0),
        (2, str(C), "online", 1, 1),
    ]
    (failed, *_) = _directories(tmp_path)
    assert (failed.broker, failed.from_offset) == ("online", 5)


def _directories(tmp_path: Path) -> list[Any]:
    return directories(Lake.open(tmp_path / "lake"))


def test_missing_lake_is_refused_with_the_command_that_makes_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere: no lake there: make one with jbod replay .*nowhere$"):
        Lake.open(tmp_path / "nowhere")


def test_lake_without_a_publication_is_reported(tmp_path: Path) -> None:
    write_lake(tmp_path / "lake")
    with pytest.raises(UsageError, match="nothing was published into this lake yet"):
        Lake.open(tmp_path / "lake")


@pytest.mark.parametrize(("offset", "problem"), [(-1, "before the first this lake knows, 0"), (8, "published one, 7")])
def test_lake_at_an_unknown_offset_names_the_known_ones(tmp_path: Path, offset: int, problem: str) -> None:
    write_lake(tmp_path / "lake", entries(*FAILURE))
    with pytest.raises(UsageError, match=problem):
        Lake.open(tmp_path / "lake", at_offset=offset)


def test_lake_at_a_time_before_it_names_the_oldest(tmp_path: Path) -> None:
    write_lake(tmp_path / "lake", entries(*FAILURE))
    with pytest.raises(UsageError, match=r"1969-12-31 00:00:00 UTC is before the oldest .* 1970-01-01 00:00:00 UTC"):
        Lake.open(tmp_path / "lake", at_time=datetime(1969, 12, 31))


def test_lake_with_a_gap_answers_beside_it_only(tmp_path: Path) -> None:
    later = (broker(1, B, epoch=4), TopicRecord(name="orders", topic_id=TOPIC), partition(1, 2, dirs=(B, C)))
    reference = write_lake(
        tmp_path / "lake",
        entries(*FAILURE),
        [*entries(*later, snapshot_at=19), *entries(UnfenceBrokerRecord(id=1, epoch=4), first=20)],
    )
    expected = image_as_json(reference.image, 20)
    assert image(Lake.open(tmp_path / "lake")) == json.loads(json.dumps(expected))
    assert Lake.open(tmp_path / "lake", at_offset=7).offset == 7
    assert Lake.open(tmp_path / "lake", at_offset=19).offset == 19
    with pytest.raises(UsageError, match="offset 12 was never read: the log went from 7 to the snapshot at 19"):
        Lake.open(tmp_path / "lake", at_offset=12)


def test_replica_whose_directory_changed_in_a_gap_is_not_said_to_have_moved(tmp_path: Path) -> None:
    """No record says whether the broker still had the old disk."""
    later = (broker(1, B, epoch=4), TopicRecord(name="orders", topic_id=TOPIC), partition(1, 2, dirs=(B, C)))
    write_lake(tmp_path / "lake", entries(*FAILURE), entries(*later, snapshot_at=19))
    events = [event.what for event in history(Lake.open(tmp_path / "lake"), "orders-0").events if event.offset == 19]
    never_read = "moved, or recreated empty, which was never read (at or before this snapshot)"
    assert f"replica on 1 is in {B} (was {A}): {never_read}" in events


def test_events_that_only_a_snapshot_tells_are_told_as_of_its_offset_or_before(tmp_path: Path) -> None:
    """Cause: what happened before the history begins, or in a gap of it, was told to be of the snapshot's offset."""
    known = (broker(1, A, B), broker(2, C), TopicRecord(name="orders", topic_id=TOPIC))
    fenced = (broker(1, A, B, fenced=True), *known[1:], partition(1, 2, dirs=(A, C)))
    elected = (*known, partition(2, 1, dirs=(C, A)))
    write_lake(tmp_path / "lake", entries(*fenced, snapshot_at=9), entries(*elected, snapshot_at=19))
    first_seen, offline_before, *in_gap = history(Lake.open(tmp_path / "lake"), "orders-0").events
    assert first_seen.what.startswith("found in a snapshot as topic ") and first_seen.what.endswith("; leader 1")
    assert offline_before[::2] == (9, "replica on 1 is offline: broker fenced (at or before this snapshot)")
    assert [event.what for event in in_gap] == [
        "replicas in another order: [1,2] -> [2,1] (at or before this snapshot)",
        "leader 1 -> 2 (leader epoch 0) (at or before this snapshot)",
        "isr [1,2] -> [2,1] (at or before this snapshot)",
        "replica on 1 is offline no more (at or before this snapshot)",
    ]


def test_partition_that_a_snapshot_has_without_a_leader_has_none_since_then(tmp_path: Path) -> None:
    """It was since the newest change of the partition, while check B-17 said since the snapshot."""
    led_by_none = PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=-1)
    known = (broker(1, A, B), TopicRecord(name="orders", topic_id=TOPIC), partition(1, dirs=(A,)), led_by_none)
    moved = PartitionChangeRecord(partition_id=0, topic_id=TOPIC, directories=(B,))
    write_lake(tmp_path / "lake", [*entries(*known, snapshot_at=19), *entries(moved, first=20)])
    (group,) = offline(Lake.open(tmp_path / "lake")).leaderless
    (partition_without_leader,) = group.partitions
    assert partition_without_leader.from_offset == 19


def test_lake_published_in_many_parts_opens_few_files_of_the_ledger(tmp_path: Path) -> None:
    every = entries(*FAILURE)
    write_lake(tmp_path / "lake", *([entry] for entry in every))
    ledger = sorted((tmp_path / "lake" / "ledger").glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    assert len(ledger) == len(every)
    for file in ledger[:-1]:
        file.unlink()
    lake = Lake.open(tmp_path / "lake", at_offset=3)
    assert (lake.first, lake.published.end_offset) == (0, 8)


def test_lake_answers_from_the_published_version_while_a_table_is_ahead(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    write_lake(tmp_path / "lake", entries(*FAILURE))
    before = image(Lake.open(tmp_path / "lake"))
    DeltaTable(str(tmp_path / "lake" / "partitions")).delete()
    assert image(Lake.open(tmp_path / "lake")) == before


@pytest.mark.parametrize("damage", ["cut", "gone", "foreign"])
@pytest.mark.parametrize("table", ["ledger", "partitions"])
def test_lake_with_a_damaged_file_names_it(tmp_path: Path, table: str, damage: str) -> None:
    write_lake(tmp_path / "lake", entries(*FAILURE))
    file = max((tmp_path / "lake" / table).rglob("*.parquet"), key=lambda path: path.stat().st_size)
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-9] if damage == "cut" else b"not a table" * 9)
    with pytest.raises(UsageError, match=f"a file of the lake is damaged or gone .*{file.name}"):
        image(Lake.open(tmp_path / "lake"))


@pytest.mark.parametrize("table", ["brokers", "partitions"])
def test_lake_without_a_table_names_it(tmp_path: Path, table: str) -> None:
    write_lake(tmp_path / "lake", entries(*FAILURE))
    (tmp_path / "lake" / table).rename(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match=f"lake/{table}: cannot be opened at version"):
        Lake.open(tmp_path / "lake")


def test_reference_tables_end_rows_with_the_reason() -> None:
    reference = Reference().add(read_log(metadata_dir("kafka-4.1.2")))
    reasons = {row["ended_by"] for row in reference.assignments.rows}
    assert reasons >= {None, "assigned", "moved", "reassigned", "reordered", "removed"}
    assert {row["ended_by"] for row in reference.directories.rows} >= {"failed", "deregistered", "unregistered"}
    assert all(row["to_offset"] is None or row["to_offset"] > row["from_offset"] for row in reference.partitions.rows)
