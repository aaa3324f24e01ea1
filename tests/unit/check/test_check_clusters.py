"""What the checks say of real clusters: written by hand from their stories, and compared with Kafka's own images."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pipelines.ask.risk import risk
from pipelines.check.catalogue import run_checks
from pipelines.check.definition import Finding
from pipelines.lake.reader import Lake
from tests.support.kafka_images import kafka_images
from tests.support.paths import KAFKAS
from tests.support.volume import amount, rare, sampled

RESERVED = "AAAAAAAAAAAAAAAAAAAAA"


def on(broker: int, partitions: str) -> set[str]:
    return {f"{name} on broker {broker}" for name in partitions.split()}


def named(partitions: str) -> set[str]:
    return set(partitions.split())


# The disks that died, and what Kafka's image had on each.
DISK_412_1 = on(1, "clicks-5 clicks-6 orders-3 orders-4 orders-11 pinned-2 solo-6")
DISK_412_2 = on(2, "clicks-2 clicks-4 orders-0 orders-2 orders-7 solo-0")
DISK_372_1 = on(1, "clicks-0 clicks-2 orders-5 orders-9 orders-11 pinned-2")
DISK_372_2 = on(2, "clicks-4 clicks-8 orders-2 orders-8 orders-10 pinned-0 solo-7")
DISK_UP_1 = on(1, "mid-0 mid-2 mid-3 old-3 old-4 old-5 old-6 old-7 solo-0 solo-3")
DISK_ZK_1 = on(1, "after-0 after-3 dual-1 zkold-1 zkold-3 zkold-8")

# The one copy of each was on a disk that died, or was not flushed when its broker was killed.
DISKS_412 = named("solo-0 solo-6")
KILLED_412 = named("solo-1 solo-3 solo-5")

# Cluster -> offset -> check -> subjects: everything critical or a warning, and so nothing else.
EXPECTED: Mapping[str, Mapping[int, Mapping[str, set[str]]]] = {
    "kafka-4.1.2": {
        # Topics are young; directories are still being reported.
        40: {},
        # Moves and reassignments are under way.
        142: {},
        # A disk of broker 1 has died; then one of broker 2.
        162: {"B-03": DISK_412_1, "B-17": {"solo-6"}},
        186: {"B-03": DISK_412_1 | DISK_412_2, "B-17": {"solo-0", "solo-6"}},
        # Broker 1 is back and recreated its replicas. Broker 2 joined clicks-0 long ago and has not said where.
        252: {"B-03": DISK_412_2, "B-17": {"solo-0"}, "B-01": on(2, "clicks-0"), "B-32": {"solo-6"}},
        # Broker 2 is registered again with a blank disk, still fenced.
        288: {"B-17": {"solo-0", "solo-4"}, "B-32": DISKS_412},
        313: {"B-32": DISKS_412},
        # Broker 4 was killed; broker 3 restarts in order, with one disk more.
        341: {"B-17": named("solo-1 solo-3 solo-5"), "B-32": DISKS_412},
        364: {"B-17": named("clicks-3 pinned-3 solo-1 solo-2 solo-3 solo-5 solo-7"), "B-32": DISKS_412},
        # It leads after a kill what only it had: what it had not flushed may be missing.
        424: {"B-32": DISKS_412, "B-33": KILLED_412},
        # Broker 4 came back with one disk of two.
        510: {"B-32": DISKS_412 | named("solo-1 solo-3"), "B-33": KILLED_412},
        # Broker 3 is unregistered: what only it has cannot be reached.
        544: {
            "B-17": named("solo-2 solo-7"),
            "B-32": DISKS_412 | named("solo-1 solo-3"),
            "B-33": KILLED_412,
            "B-37": named("solo-2 solo-7"),
        },
    },
    "kafka-3.7.2": {
        139: {},
        157: {"B-03": DISK_372_1},
        196: {"B-03": DISK_372_1 | DISK_372_2, "B-17": {"solo-7"}},
        244: {"B-03": DISK_372_2, "B-17": {"solo-7"}},
        297: {"B-17": {"solo-7"}, "B-32": {"solo-7"}},
        398: {"B-17": named("solo-1 solo-3 solo-6"), "B-32": {"solo-7"}},
        429: {"B-32": {"solo-7"}},
        # Broker 4 came back with one disk of two and has not yet corrected its assignments. The leader of orders-7 took
        # it back into the ISR meanwhile: Kafka does not look at directories there.
        466: {
            "B-03": on(4, "clicks-1 clicks-2 clicks-6 degraded-0 degraded-1 orders-3 orders-7 orders-10 orders-11")
            | on(4, "pinned-1 pinned-2 solo-3"),
            "B-04": on(4, "orders-7"),
            "B-17": {"solo-3"},
            "B-32": {"solo-7"},
        },
        # Without eligible leader replicas nobody elects the one copy of solo-3 again.
        490: {"B-17": {"solo-3"}, "B-32": {"solo-3", "solo-7"}},
        533: {
            "B-17": named("solo-2 solo-3 solo-4"),
            "B-32": named("solo-3 solo-7"),
            "B-37": named("solo-2 solo-4"),
        },
    },
    "kafka-3.9.2-upgrade": {
        # Before directories: no registration has any, every replica is migrating.
        30: {},
        # metadata.version is 21; brokers 1 and 3 have amended their registrations, broker 2 not yet.
        37: {"B-08": {"broker 2"}},
        39: {},
        63: {"B-17": named("solo-0 solo-3")},
        # Broker 1 was restarted; brokers 2 and 3 were not, and report only what changes.
        107: {},
        157: {"B-07": on(3, "solo-2")},
        177: {"B-03": DISK_UP_1, "B-17": named("solo-0 solo-3"), "B-07": on(3, "solo-2")},
        # Broker 3 was restarted too.
        219: {"B-03": DISK_UP_1, "B-17": named("solo-0 solo-3")},
    },
    "kafka-3.9.2-zk-migration": {
        39: {},
        56: {},
        68: {"B-17": {"zksolo-1"}},
        # Broker 3 is the last that still runs with ZooKeeper's knowledge.
        133: {"B-07": on(3, "zkold-0 zkold-1 zkold-4 zkold-5 zkold-6 zkold-7 zksolo-0 zksolo-3")},
        190: {},
        # One of the two disks of broker 1 died.
        199: {"B-03": DISK_ZK_1, "B-16": {"broker 1"}},
    },
}


def subjects(findings: list[Finding]) -> dict[str, set[str]]:
    by_check: dict[str, set[str]] = {}
    for finding in findings:
        by_check.setdefault(finding.check.id, set()).add(finding.subject)
    return by_check


@pytest.mark.parametrize(
    ("kafka", "offset"), sampled([(kafka, offset) for kafka in EXPECTED for offset in EXPECTED[kafka]], 1)
)
def test_cluster_at_an_offset_has_exactly_the_findings_of_its_story(
    cluster_lakes: Mapping[str, Path], kafka: str, offset: int
) -> None:
    findings = run_checks(Lake.open(cluster_lakes[kafka], offset))
    assert subjects([finding for finding in findings if finding.severity != "info"]) == EXPECTED[kafka][offset]


@pytest.mark.parametrize("kafka", KAFKAS)
def test_cluster_that_was_stopped_has_no_partition_left(cluster_lakes: Mapping[str, Path], kafka: str) -> None:
    lake = Lake.open(cluster_lakes[kafka])
    by_check = subjects(run_checks(lake, ["B-17"]))
    image = kafka_images(kafka)[-1]
    assert image["offset"] == lake.offset
    assert by_check == {"B-17": {name(partition) for partition in image["partitions"]}}


def unusable(lake: Lake) -> dict[str, list[str]]:
    """What is wrong with each partition at each offset up to the lake's newest, told from its rows alone."""
    by_partition: dict[str, list[str]] = {}
    spells: dict[tuple[str, int], list[tuple[int, range]]] = {}
    for topic_id, number, broker, start, end in lake.query(
        f"SELECT topic_id, partition, broker_id, from_offset, to_offset FROM {lake.until('offline_replicas')}"
    ):
        spell = range(start, lake.offset + 1 if end is None else end)
        spells.setdefault((topic_id, number), []).append((broker, spell))
    for topic_id, number, topic, leader, replicas, isr, start, end in lake.query(
        "SELECT topic_id, partition, topic, leader, replicas, isr, from_offset, to_offset "
        f"FROM {lake.until('partitions')} ORDER BY from_offset"
    ):
        troubles = by_partition.setdefault(f"{topic}-{number}", [""] * (lake.offset + 1))
        for offset in range(start, lake.offset + 1 if end is None else end):
            off = {broker for broker, spell in spells.get((topic_id, number), ()) if offset in spell}
            few = len(set(isr) - off) < min(2 if topic == "pinned" else 1, len(replicas))
            troubles[offset] = "offline" * (off == set(replicas)) + " leaderless" * (leader == -1) + " few" * few
    return by_partition


@pytest.mark.parametrize("kafka", sampled(KAFKAS, 1))
def test_unusable_partition_is_so_since_its_own_offset_and_at_each_one_after_it(
    cluster_lakes: Mapping[str, Path], kafka: str
) -> None:
    wrong = unusable(Lake.open(cluster_lakes[kafka]))
    offsets = [offset for offset in EXPECTED[kafka] if "B-17" in EXPECTED[kafka][offset]]
    for lake in (*(Lake.open(cluster_lakes[kafka], offset) for offset in offsets), Lake.open(cluster_lakes[kafka])):
        for finding in run_checks(lake, ["B-17"]):
            kind = {"every": "offline", "no": "leaderless"}.get(finding.finding.split()[0], "few")
            troubles = wrong[finding.subject]
            assert all(kind in troubles[offset] for offset in range(finding.from_offset, lake.offset + 1)), finding
            assert kind not in troubles[finding.from_offset - 1], finding


def test_replica_that_joined_a_partition_is_told_why_its_directory_is_not_known(
    cluster_lakes: Mapping[str, Path],
) -> None:
    (finding,) = run_checks(Lake.open(cluster_lakes["kafka-4.1.2"], 252), ["B-01"])
    assert finding.finding == "broker 2 joined a partition that existed, and Kafka does not report the directory then"
    assert finding.advice == "the report comes with the next restart of broker 2"
    assert run_checks(Lake.open(cluster_lakes["kafka-4.1.2"], 313), ["B-01"]) == []


def test_disks_that_died_after_moves_and_deletions_are_named(cluster_lakes: Mapping[str, Path]) -> None:
    findings = run_checks(Lake.open(cluster_lakes["kafka-4.1.2"], 186), ["B-15"])
    assert [(finding.broker_id, finding.from_offset, finding.severity) for finding in findings] == [
        (1, 162, "info"),
        (2, 174, "info"),
    ]


@pytest.mark.parametrize(
    ("kafka", "offset"),
    [
        ("kafka-4.1.2", 186),
        rare("kafka-4.1.2", 424),
        rare("kafka-3.7.2", 244),
        rare("kafka-3.9.2-upgrade", 107),
        ("kafka-3.9.2-zk-migration", 133),
    ],
)
def test_blast_radius_is_what_the_controller_would_do(
    cluster_lakes: Mapping[str, Path], kafka: str, offset: int
) -> None:
    lake = Lake.open(cluster_lakes[kafka], offset)
    messages = {(finding.broker_id, finding.directory_id): finding.finding for finding in run_checks(lake, ["B-18"])}
    wanted = {
        (
            directory.broker_id,
            directory.directory_id,
        ): f"partitions without a leader if it failed now: {directory.without_leader}"
        for directory in risk(lake).directories
        if directory.without_leader
    }
    assert wanted
    assert {place: message.rpartition("; ")[0] for place, message in messages.items()} == wanted


@pytest.mark.parametrize("kafka", sampled(KAFKAS, 1))
def test_checks_agree_with_every_image_of_kafka(cluster_lakes: Mapping[str, Path], kafka: str) -> None:
    for image in kafka_images(kafka)[:: amount(6, 1)]:
        lake = Lake.open(cluster_lakes[kafka], image["offset"])
        by_check = subjects(run_checks(lake, ["B-03", "B-04", "B-06", "B-08", "B-17"]))
        assert by_check == expected(image, recorded=lake.offset >= 36), image["offset"]


def name(partition: Mapping[str, Any]) -> str:
    return f"{partition['topic']}-{partition['partition']}"


def expected(image: Mapping[str, Any], recorded: bool) -> dict[str, set[str]]:
    """The findings that follow from an image, reckoned without tables; ``recorded``: directories are."""
    brokers = {broker["brokerId"]: broker for broker in image["brokers"]}
    by_check: dict[str, set[str]] = {"B-03": set(), "B-04": set(), "B-17": set(), "B-08": set()}
    if recorded:
        by_check["B-08"] = {f"broker {number}" for number, broker in brokers.items() if not broker["logDirs"]}
    for partition in image["partitions"]:
        offline = set(partition["offlineReplicas"])
        if partition["leader"] == -1 or offline >= set(partition["replicas"]):
            by_check["B-17"].add(name(partition))
        for replica, directory in zip(partition["replicas"], partition["directories"], strict=True):
            broker = brokers.get(replica)
            if broker is None or not broker["logDirs"] or directory.startswith(RESERVED):
                continue
            if directory not in broker["logDirs"]:
                subject = f"{name(partition)} on broker {replica}"
                by_check["B-03"].add(subject)
                others = set(partition["isr"]) - {replica}
                if not broker["fenced"] and (
                    partition["leader"] == replica or (replica in partition["isr"] and others)
                ):
                    by_check["B-04"].add(subject)
    return {check: who for check, who in by_check.items() if who}
