"""Whole simulated clusters (docs/spec/simulation.md): what each story of the KIP leads to."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise, product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jbod_model.broker.assignments import Replica
from jbod_model.errors import UsageError
from jbod_model.formats.metadata_version import LEVELS, METADATA_VERSION
from jbod_model.formats.records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    TopicRecord,
    VersionedRecord,
)
from jbod_model.formats.requests import (
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    CreateTopicsRequest,
    FeatureUpdate,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from jbod_model.formats.responses import NotAuthorized, RequestRefused
from jbod_model.ids import KAFKA_IDS, KIP858_IDS, Uuid
from jbod_model.profiles import PROFILES
from jbod_model.replay.image import Image
from jbod_model.replay.offline import offline_replicas
from jbod_model.replay.transactions import image_at
from jbod_model.storage.properties import MetaProperties, as_read_before_directory_ids
from lab.conformance.trace import image_as_json
from lab.explore.invariants import check_state
from lab.simulation.controller_node import LeaderChange
from lab.simulation.output import START, metadata_log, write_world
from lab.simulation.request_log import request_log_lines
from lab.simulation.scenario import bootstrap, cluster, topic
from lab.simulation.scheduler import Scheduler
from lab.simulation.stories import SCENARIOS, play
from lab.simulation.world import Exchange, World
from tests.support.volume import amount, sampled

SEEDS = (1, 2)


@pytest.mark.parametrize("from_snapshot", [False, True])
@pytest.mark.parametrize("profile", ["kafka", "kip858", "draft"])
def test_heartbeats_after_a_failed_disk_and_a_failover_are_answered(profile: str, from_snapshot: bool) -> None:
    """R-FAIL-4: the failed directory is in every report, and in no registration that a snapshot would hold."""
    world = World.create(1, profile)
    cluster(world)
    world.break_disk(1, "/disks/1-c")
    world.run(5)
    world.fail_over(from_snapshot=from_snapshot)
    failed_over = world.now
    world.run(40)
    heartbeats = [
        exchange
        for exchange in world.exchanges
        if exchange.time_ms > failed_over and isinstance(exchange.request, BrokerHeartbeatRequest)
    ]
    reports = [
        each
        for each in heartbeats
        if isinstance(each.request, BrokerHeartbeatRequest) and each.request.offline_log_dirs
    ]
    assert len(reports) > 15
    assert [each.response for each in heartbeats if isinstance(each.response, RequestRefused)] == []
    assert not world.image.brokers[1].fenced


def test_failover_leaves_the_new_controller_nothing_but_the_log() -> None:
    """R-SIM-2: what a process registered comes from the log, not from the memory of the controller before."""
    world = World.create(1, "kip858")
    cluster(world)
    world.controller.heard.clear()
    world.fail_over()
    registered = {node_id: heard.directories for node_id, heard in world.controller.heard.items()}
    assert registered == {
        node_id: frozenset(host.broker.life.log_dirs) for node_id, host in world.hosts.items() if host.broker
    }


def replicas_of(world: World, node_id: int) -> dict[Replica, tuple[str, bool]]:
    """Where the metadata has a broker's replicas, by mount point, and whether they are online."""
    paths = {host.directory_id(path): path for host in world.hosts.values() for path in host.disks}
    return {
        Replica(topic_id, number): (
            paths.get(partition.directory(node_id), str(partition.directory(node_id))),
            node_id not in offline_replicas(world.image, partition),
        )
        for topic_id, topic in world.image.topics.items()
        for number, partition in topic.partitions.items()
        if node_id in partition.replicas
    }


def on(world: World, path: str) -> int:
    """How many replicas the metadata has in a disk."""
    return sum(where == path for where, _ in replicas_of(world, int(path.split("/")[-1][0])).values())


def offline(world: World) -> set[tuple[int, str]]:
    """Every replica that is offline: its broker and disk."""
    return {
        (node_id, where)
        for node_id in world.hosts
        for where, online in replicas_of(world, node_id).values()
        if not online
    }


def leaderless(world: World) -> int:
    return sum(p.leader < 0 for topic in world.image.topics.values() for p in topic.partitions.values())


def unassigned(world: World) -> int:
    return sum(
        p.directories.count(world.image.ids.unassigned)
        for t in world.image.topics.values()
        for p in t.partitions.values()
    )


def in_story(world: World, words: str) -> bool:
    return any(words in what for _, what in world.story)


def running(world: World) -> set[int]:
    return {node_id for node_id, host in world.hosts.items() if host.broker is not None}


def as_the_brokers_have_it(world: World) -> bool:
    """Every log that a running broker has is where the metadata says, and nothing waits (R-INV-31)."""
    draft = world.controller.profile.name == "draft"
    for node_id, host in world.hosts.items():
        if host.broker is None:
            continue
        if host.broker.queue.pending:
            return False
        for replica, directory in host.broker.replicas.disks.current.items():
            partition = world.image.topics[replica.topic_id].partitions[replica.partition]
            alone = draft and len(host.log_dirs) == 1  # R-DRAFT-4
            if partition.directory(node_id) != directory and not (
                alone and partition.directory(node_id) == world.image.ids.unassigned
            ):
                return False
    return True


# What holds at the end of each story.
ENDS: dict[str, list[Callable[[World], bool]]] = {
    "disk-fails": [
        lambda w: offline(w) == {(1, "/disks/1-b")},
        lambda w: leaderless(w) == 0,
        lambda w: running(w) == {1, 2, 3},
        lambda w: len(w.image.brokers[1].directories) == 2,
    ],
    "disk-fails-elr": [lambda w: offline(w) == {(1, "/disks/1-b")}],
    "disks-fail-one-by-one": [
        lambda w: running(w) == {1, 3},
        lambda w: in_story(w, "broker 2 halts"),
        lambda w: w.image.brokers[2].fenced,
    ],
    "metadata-disk-fails": [
        lambda w: running(w) == {1, 2},
        lambda w: in_story(w, "metadata directory"),
        lambda w: leaderless(w) == 0,
    ],
    "failure-not-reported": [lambda w: in_story(w, "could not be reported in time"), lambda w: running(w) == {2, 3}],
    "disk-dies-while-hanging": [lambda w: [b.number for b in check_state(w.image)] == [9]],
    "disk-replaced": [lambda w: offline(w) == set(), lambda w: on(w, "/disks/1-b") > 0],
    "disk-comes-back": [lambda w: offline(w) == set(), lambda w: leaderless(w) == 0],
    "disk-added": [lambda w: offline(w) == set(), lambda w: on(w, "/disks/2-c") > 0],
    "disk-removed": [lambda w: offline(w) == set(), lambda w: len(w.image.brokers[1].directories) == 2],
    "disk-removed-at-once": [lambda w: offline(w) == set(), lambda w: len(w.image.brokers[1].directories) == 2],
    "disk-remounted": [lambda w: offline(w) == set(), lambda w: on_path(w, 1, "/mnt/new") > 0],
    "disk-of-another-broker": [
        lambda w: in_story(w, "belongs to node 1, expected node 2"),
        lambda w: running(w) == {1, 2, 3},
    ],
    "replica-moved": [lambda w: on(w, "/disks/1-a") == 0, lambda w: offline(w) == set()],
    "move-cancelled": [lambda w: on(w, "/disks/1-a") > 0, lambda w: offline(w) == set()],
    "move-source-fails": [lambda w: offline(w) == {(1, "/disks/1-b")}, lambda w: leaderless(w) == 0],
    "move-destination-fails": [lambda w: on(w, "/disks/1-b") > 0, lambda w: (1, "/disks/1-b") not in offline(w)],
    "logs-moved-offline": [lambda w: on(w, "/disks/1-b") == 0, lambda w: offline(w) == set()],
    "duplicate-directory-id": [lambda w: in_story(w, "is also the id of"), lambda w: running(w) == {2, 3}],
    "permission-revoked": [
        lambda w: running(w) == {1},
        lambda w: on(w, "/disks/1-a") == 0,
        lambda w: (
            offline(w) == {(2, path) for path in w.hosts[2].log_dirs} | {(3, path) for path in w.hosts[3].log_dirs}
        ),
        lambda w: leaderless(w) == 0,
    ],
    "everything": [],
    "jbod-on": [
        lambda w: offline(w) == set(),
        lambda w: all(len(b.directories) == 3 for b in w.image.brokers.values()),
    ],
    "jbod-off": [
        lambda w: offline(w) == set(),
        lambda w: all(len(b.directories) == 1 for b in w.image.brokers.values()),
    ],
    "upgrade": [lambda w: offline(w) <= {(1, "/disks/1-b")}, lambda w: leaderless(w) == 0],
    "zk-migration": [
        lambda w: (
            not any(
                w.image.ids.migrating in p.directories for t in w.image.topics.values() for p in t.partitions.values()
            )
        )
    ],
    "rolling-restart": [lambda w: offline(w) == set(), lambda w: leaderless(w) == 0],
    "reassignment": [
        lambda w: 1 not in w.image.brokers,
        lambda w: offline(w) == set(),
        lambda w: len(replicas_of(w, 4)) == 4,
    ],
    "replica-added": [lambda w: unassigned(w) == 4, lambda w: all(host.broker for host in w.hosts.values())],
    "controller-fails-over": [lambda w: offline(w) == {(1, "/disks/1-c")}, lambda w: w.controller.epoch == 2],
}


def on_path(world: World, node_id: int, path: str) -> int:
    return sum(where == path for where, _ in replicas_of(world, node_id).values())


def test_scenarios_are_all_checked() -> None:
    assert set(ENDS) == set(SCENARIOS)
    assert all(each.summary and each.section for each in SCENARIOS.values())


# Where the page or its drafts end a story otherwise than Kafka does.
REPORTED = [
    lambda w: unassigned(w) == 0,
    lambda w: offline(w) == {(1, "/disks/1-b"), (2, "/disks/2-b"), (3, "/disks/3-b")},
    lambda w: leaderless(w) == 0,
]
SAFE = [lambda w: check_state(w.image) == (), lambda w: offline(w) == {(1, "/disks/1-b")}, lambda w: leaderless(w) == 1]
ALIVE = [  # broker 3 leads nothing on its failed disk, and reports it once it may
    lambda w: running(w) == {1, 3},
    lambda w: on(w, "/disks/1-a") == 0,
    lambda w: offline(w) == {(2, path) for path in w.hosts[2].log_dirs} | {(3, "/disks/3-b")},
    lambda w: leaderless(w) == 0,
]
ENDS_OTHERWISE: dict[tuple[str, str], list[Callable[[World], bool]]] = {
    ("kip858", "replica-added"): REPORTED,
    ("draft", "replica-added"): REPORTED,
    ("kip858", "disk-dies-while-hanging"): SAFE,
    ("draft", "disk-dies-while-hanging"): SAFE,
    ("kip858", "permission-revoked"): ALIVE,
    ("draft", "permission-revoked"): ALIVE,
    ("draft", "move-source-fails"): [
        lambda w: offline(w) == {(1, str(w.image.ids.lost))},
        lambda w: leaderless(w) == 0,
    ],
}


def ends(profile: str, name: str) -> list[Callable[[World], bool]]:
    return ENDS_OTHERWISE.get((profile, name), ENDS[name])


@pytest.mark.parametrize("seed", sampled(SEEDS, 1))
@pytest.mark.parametrize(
    ("name", "profile"),
    [
        *product(sorted(SCENARIOS), ["kafka"]),
        *sampled(product(sorted(SCENARIOS), ["kip858"]), 8),
        *sampled(product(sorted(SCENARIOS), ["draft"]), 4),
    ],
)
def test_scenario_ends_as_the_profile_says(name: str, profile: str, seed: int) -> None:
    """R-SIM-6; under the page and its drafts no invariant breaks at all."""
    world = play(name, seed, profile)
    for number, holds in enumerate(ends(profile, name)):
        assert holds(world), f"{name}, seed {seed}: condition {number}, {offline(world)}, {world.story[-5:]}"
    assert as_the_brokers_have_it(world) is ((profile, name) != ("kafka", "replica-added"))
    if profile != "kafka" or name not in ("disk-dies-while-hanging", "everything"):
        assert check_state(world.image) == ()


@pytest.mark.parametrize("profile", ["kip858", "draft"])
@pytest.mark.parametrize("name", sampled(["jbod-off", "move-source-fails", "zk-migration"], 2))
def test_scenario_goes_the_same_way_with_the_ids_of_the_page(name: str, profile: str) -> None:
    """R-SIM-10: the records hold (0, 0), (0, 1) and (0, 2) as the page has them, and the story is the same."""
    world, other = play(name, 1, profile, "kip858"), play(name, 1, profile)
    assert (world.image.ids, other.image.ids) == (KIP858_IDS, KAFKA_IDS)
    assert world.story == other.story
    assert written(world) == written(other)
    assert set(written(world)) - {"assigned"}


def written(world: World) -> list[str]:
    """What the directories in the records of partitions mean, in the order of the log."""
    records = [
        each.record
        for batch in world.controller.log
        if not isinstance(batch, LeaderChange)
        for each in batch.records
        if isinstance(each.record, PartitionRecord | PartitionChangeRecord)
    ]
    return [world.image.ids.kind(directory) for record in records for directory in record.directories or ()]


def test_table_of_ids_that_is_not_known_is_bad_usage() -> None:
    """R-SIM-10."""
    with pytest.raises(UsageError, match="table of ids 'no such' is not known; known are kafka, kip858"):
        play("disk-fails", 1, "kip858", "no such")


@pytest.mark.parametrize("profile", ["kafka", "kip858", "draft"])
def test_queue_gauge_rises_with_new_replicas_and_falls_to_zero(profile: str, tmp_path: Path) -> None:
    """R-SIM-9, R-QUEUE-8: every value it took, under the profile's name, null when the process has ended."""
    world = play("disks-fail-one-by-one", 1, profile)
    write_world(world, tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert {line["name"] for line in lines} == {PROFILES[profile].broker.queue_metric}
    values = {node_id: [line["value"] for line in lines if line["broker"] == node_id] for node_id in world.hosts}
    assert all(max(value or 0 for value in each) > 1 for each in values.values())
    assert [each[-1] for each in values.values()] == [0, None, 0]
    assert all(a != b for each in values.values() for a, b in pairwise(each))


@pytest.mark.parametrize(("profile", "completed"), [("kafka", 0), ("kip858", 2), ("draft", 2)])
def test_formatting_and_the_start_of_a_broker_complete_missing_ids(profile: str, completed: int) -> None:
    """R-STORE-16, R-STORE-9, R-STORE-4: by the KIP the tool does it, in Kafka the start; the version stays, and a
    broker from before, to which an operator goes back, still reads the file.
    """
    world = World.create(1, profile)
    bootstrap(world)
    host = world.add_host(1, 2)
    for path in host.log_dirs:
        host.disks[path].meta = MetaProperties(version=1, cluster_id=host.cluster_id, node_id=1)
    host.format()
    assert sum(host.directory_id(path) is not None for path in host.log_dirs) == completed
    world.start_broker(1)
    ids = [host.directory_id(path) for path in host.log_dirs]
    assert len(set(ids) - {None}) == 2
    for path in host.log_dirs:
        meta = host.disks[path].meta
        assert meta is not None
        before = as_read_before_directory_ids(meta.to_properties())
        assert (before.version, before.node_id, before.cluster_id) == (1, 1, host.cluster_id)
    world.kill_broker(1)
    world.start_broker(1)
    assert [host.directory_id(path) for path in host.log_dirs] == ids


def ruins(profile: str) -> list[World]:
    """Worlds where nothing ended well: nothing there, disks lost without another replica, nobody alive."""
    lost = World.create(2, profile)
    cluster(lost, (3, 3, 3))
    topic(lost, "orders", 9, 1)
    for node_id in lost.hosts:
        lost.break_disk(node_id, f"/disks/{node_id}-c")
    lost.run(5)
    dead = World.create(2, profile)
    cluster(dead, (2, 2, 2))
    topic(dead, "orders", 6, 3)
    for node_id in dead.hosts:
        dead.kill_broker(node_id)
    dead.run(20)
    return [World.create(2, profile), lost, dead, play("disk-dies-while-hanging", 1, "kafka"), migrating(profile)]


def migrating(profile: str) -> World:
    """A cluster whose one partition was copied from ZooKeeper, and whose brokers never came."""
    world = World.create(2, profile)
    bootstrap(world)
    ids = world.image.ids
    topic_id = Uuid(1, 1)
    directories = (ids.migrating, ids.unassigned)
    partition = PartitionRecord(topic_id=topic_id, replicas=(1, 2), isr=(1,), leader=1, directories=directories)
    world.write(VersionedRecord(TopicRecord(name="t", topic_id=topic_id), 0), VersionedRecord(partition, 1))
    return world


@pytest.mark.parametrize("profile", ["kafka", "kip858", "draft"])
def test_every_end_of_a_scenario_can_fail(profile: str) -> None:
    worlds = ruins(profile)

    def fails(holds: Callable[[World], bool], world: World) -> bool:
        try:
            return not holds(world)
        except (KeyError, AttributeError):
            return True

    vacuous = [
        (name, number)
        for name in SCENARIOS
        for number, holds in enumerate(ends(profile, name))
        if not any(fails(holds, world) for world in worlds)
    ]
    assert vacuous == []


@pytest.mark.parametrize("name", sampled(["disk-fails", "everything", "zk-migration"], 1))
def test_scenario_with_the_same_seed_is_the_same_byte_for_byte(name: str) -> None:
    """R-SIM-1."""
    world, two, other = play(name, 5), play(name, 5), play(name, 6)
    assert metadata_log(world).bytes == metadata_log(two).bytes
    assert world.story == two.story
    assert metadata_log(world).bytes != metadata_log(other).bytes


@pytest.mark.parametrize("name", sampled(["everything", "upgrade", "zk-migration", "controller-fails-over"], 2))
def test_log_of_a_scenario_read_back_is_the_controllers_image(tmp_path: Path, name: str) -> None:
    """R-SIM-8: the log goes through bytes and back."""
    world = play(name, 3)
    files = write_world(world, tmp_path)
    assert files[0].name == "00000000000000000000.log"
    offset, image = image_at(tmp_path / "controller-100")
    assert image_as_json(image, offset) == image_as_json(world.image, offset)
    assert offset == world.controller.next_offset - 1
    with pytest.raises(UsageError, match="already"):
        write_world(world, tmp_path)


def test_log_takes_an_offset_for_every_new_controller() -> None:
    world = play("controller-fails-over", 1)
    changes = [batch for batch in world.controller.log if isinstance(batch, LeaderChange)]
    assert [change.epoch for change in changes] == [1, 2]
    offsets = [batch.base_offset for batch in world.controller.log]
    assert offsets[0] == 0
    assert all(a.end_offset == b for a, b in zip(world.controller.log, offsets[1:], strict=False))


def test_request_log_has_a_line_for_every_request_in_kafkas_form(tmp_path: Path) -> None:
    """R-SIM-8."""
    world = play("disk-fails", 1)
    write_world(world, tmp_path)
    lines = (tmp_path / "requests-100.log").read_text().splitlines()
    assert len(lines) == len(world.exchanges)
    bodies = []
    for line in lines:
        head, _, rest = line.partition("] DEBUG Completed request:")
        assert len(head) == len("[2024-01-01 00:00:00,000")
        body, tail = rest[: -len(" (kafka.request.logger)")], rest[-len(" (kafka.request.logger)") :]
        assert tail == " (kafka.request.logger)"
        bodies.append(json.loads(body))
    names = {body["requestHeader"]["requestApiKeyName"] for body in bodies}
    assert {"BROKER_REGISTRATION", "BROKER_HEARTBEAT", "ASSIGN_REPLICAS_TO_DIRS", "CREATE_TOPICS"} <= names
    heartbeats = [b["request"] for b in bodies if b["requestHeader"]["requestApiKey"] == 63]
    assert any("offlineLogDirs" in request for request in heartbeats)
    assert any("offlineLogDirs" not in request for request in heartbeats)
    assert all(body["response"]["errorCode"] == 0 for body in bodies if "errorCode" in body["response"])


def test_heartbeats_after_a_failure_list_the_directory_until_the_end() -> None:
    world = play("disk-fails", 1)
    failed = world.hosts[1].directory_id("/disks/1-b")
    sent = [
        each.request.offline_log_dirs
        for each in world.exchanges
        if isinstance(each.request, BrokerHeartbeatRequest) and each.request.broker_id == 1
    ]
    first = next(i for i, directories in enumerate(sent) if directories)
    assert set(sent[first:]) == {(failed,)}


def test_upgrade_first_registers_without_directories_then_with() -> None:
    world = play("upgrade", 1)
    registrations = [
        each.record
        for batch in world.controller.log
        if not isinstance(batch, LeaderChange)
        for each in batch.records
        if isinstance(each.record, RegisterBrokerRecord)
    ]
    assert [bool(record.log_dirs) for record in registrations[:6]] == [False] * 3 + [True] * 3
    assert {record.incarnation_id for record in registrations[:3]} == {
        record.incarnation_id for record in registrations[3:6]
    }


def test_migration_writes_partitions_without_directories_first() -> None:
    world = play("zk-migration", 1)
    batches = [batch for batch in world.controller.log if not isinstance(batch, LeaderChange)]
    partitions = [
        each.record for batch in batches for each in batch.records if isinstance(each.record, PartitionRecord)
    ]
    assert [partition.directories for partition in partitions[:7]] == [()] * 7
    assert any(isinstance(each.request, AssignReplicasToDirsRequest) for each in world.exchanges)


@pytest.mark.parametrize("profile", ["kip858", "draft"])
def test_migration_by_the_page_learns_every_directory_before_the_restart(profile: str) -> None:
    """R-ZK-1, R-ZK-3, R-ZK-4: brokers in ZooKeeper mode register and report; what was copied is MIGRATING first."""
    world = play("zk-migration", 1, profile)
    migrating = world.image.ids.migrating
    image, states = Image(), []
    for batch in world.controller.log:
        if not isinstance(batch, LeaderChange):
            for offset, each in enumerate(batch.records, batch.base_offset):
                image = image.apply(each.record, offset, profile=world.controller.profile)
            held = [d for t in image.topics.values() for p in t.partitions.values() for d in p.directories]
            states.append((batch.time_ms, held.count(migrating), len(held)))
    copied = next(state for state in states if state[2])
    assert copied[1:] == (11, 11)
    restarts = min(time for time, what in world.story if "is killed" in what)
    assert [count for time, count, _ in states if time < restarts][-1] == 0
    modes = [
        each.request.is_migrating_zk_broker
        for each in registrations(world)
        if isinstance(each.request, BrokerRegistrationRequest)
    ]
    assert modes[:3] == [True] * 3
    assert not any(modes[3:])
    assert not any(broker.is_migrating_zk_broker for broker in world.image.brokers.values())
    metas = [disk.meta for host in world.hosts.values() for disk in host.disks.values() if disk.meta is not None]
    assert [(meta.version, meta.directory_id is None) for meta in metas] == [(0, False)] * 5
    assert offline(world) == {(1, "/disks/1-b")}
    assert leaderless(world) == 0


def registrations(world: World) -> list[Exchange]:
    return [each for each in world.exchanges if isinstance(each.request, BrokerRegistrationRequest)]


@pytest.mark.parametrize("profile", ["kafka", "kip858", "draft"])
def test_several_disks_before_the_upgrade_are_warned_of_once_per_broker(profile: str) -> None:
    """R-LIFE-13: until metadata.version is raised."""
    world = World.create(1, profile)
    cluster(world, (2, 1), version="3.6-IV2")
    assert [what.split(",")[0] for _, what in world.story if "records none" in what] == [
        "broker 1 has 2 log directories"
    ]
    update = FeatureUpdate(feature=METADATA_VERSION, max_version_level=LEVELS["3.9-IV0"])
    world.ask(UpdateFeaturesRequest(feature_updates=(update,)))
    world.run(20)
    assert sum("records none" in what for _, what in world.story) == 1


def test_all_directories_offline_is_never_written_by_a_broker_that_halts() -> None:
    world = play("disks-fail-one-by-one", 1)
    batches = [batch for batch in world.controller.log if not isinstance(batch, LeaderChange)]
    changes = [
        each.record.log_dirs
        for batch in batches
        for each in batch.records
        if isinstance(each.record, BrokerRegistrationChangeRecord) and each.record.log_dirs
    ]
    assert [len(directories) for directories in changes] == [2, 1]


@given(st.integers(0, 2**32))
@settings(max_examples=amount(3, 24), deadline=None)
def test_everything_that_can_happen_leaves_brokers_and_metadata_in_agreement(seed: int) -> None:
    """R-INV-31, with R-SIM-2, R-SIM-3, R-SIM-4, R-SIM-5, R-SIM-6: after the last event the cluster comes to rest."""
    world = play("everything", seed)
    assert as_the_brokers_have_it(world), f"seed {seed}"
    assert {breach.number for breach in check_state(world.image)} <= {9}


@given(st.integers(0, 2**32))
@settings(max_examples=amount(3, 24), deadline=None)
def test_everything_under_the_kip_is_safe(seed: int) -> None:
    """R-SIM-7."""
    world = play("everything", seed, "kip858")
    assert as_the_brokers_have_it(world), f"seed {seed}"
    assert check_state(world.image) == (), f"seed {seed}"


@pytest.mark.parametrize("name", sampled(sorted(set(SCENARIOS) - {"disk-dies-while-hanging"}), 8))
def test_scenario_keeps_the_invariants_after_every_batch(name: str) -> None:
    """R-INV-1, R-INV-2, R-INV-6, R-INV-9, R-INV-28; and R-INV-35: partition by partition it comes to the same."""
    world = play(name, 4)
    image = Image()
    others: list[Record] = []
    by_partition: dict[tuple[Uuid, int], list[Record]] = {}
    for batch in world.controller.log:
        if isinstance(batch, LeaderChange):
            continue
        for offset, each in enumerate(batch.records, batch.base_offset):
            image = image.apply(each.record, offset)
            if isinstance(each.record, PartitionRecord | PartitionChangeRecord):
                by_partition.setdefault((each.record.topic_id, each.record.partition_id), []).append(each.record)
            else:
                others.append(each.record)
        assert check_state(image) == ()
    shuffled = Image()
    for record in [*others, *(record for group in reversed(by_partition.values()) for record in group)]:
        shuffled = shuffled.apply(record, 0)
    assert image_as_json(shuffled, 0) == image_as_json(image, 0)


def test_reassignment_keeps_directories_of_replicas_that_stay() -> None:
    """R-INV-5."""
    world = play("reassignment", 1)
    image = Image()
    seen = 0
    for batch in world.controller.log:
        if isinstance(batch, LeaderChange):
            continue
        before = image
        for offset, each in enumerate(batch.records, batch.base_offset):
            image = image.apply(each.record, offset)
            if isinstance(each.record, PartitionChangeRecord) and each.record.replicas is not None:
                old = before.topics[each.record.topic_id].partitions[each.record.partition_id]
                new = image.topics[each.record.topic_id].partitions[each.record.partition_id]
                for broker_id in new.replicas:
                    stays = broker_id in old.replicas
                    expected = old.directory(broker_id) if stays else image.ids.unassigned
                    assert new.directory(broker_id) == expected
                    seen += 1
    assert seen > 8


def small_world() -> World:
    world = World.create(1)
    cluster(world, (2, 2))
    topic(world, "orders", 4, 2)
    return world


def in_sync(world: World, node_id: int) -> int:
    return sum(node_id in p.isr for each in world.image.topics.values() for p in each.partitions.values())


def test_disk_that_breaks_keeps_what_was_on_it_and_a_stopped_broker_leaves_its_logs() -> None:
    """R-SIM-3."""
    world = small_world()
    host = world.hosts[1]
    before = {path: dict(disk.logs) for path, disk in host.disks.items()}
    assert sum(map(len, before.values())) == 4
    world.break_disk(1, "/disks/1-b")
    world.run(5)
    assert host.broker is not None
    assert host.broker.replicas.disks.has_offline
    assert host.disks["/disks/1-b"].logs == before["/disks/1-b"]
    world.kill_broker(1)
    assert {path: disk.logs for path, disk in host.disks.items()} == before


def test_broker_that_is_cut_off_is_fenced_and_reads_the_missed_records_when_it_is_back() -> None:
    """R-SIM-4, R-SIM-2: its requests time out, its session ends after nine seconds."""
    world = small_world()
    world.set_connected(1, False)
    world.run(8)
    assert not world.image.brokers[1].fenced
    world.run(6)
    assert world.image.brokers[1].fenced
    topic(world, "missed", 2, 1)
    assert world.hosts[1].applied.topic("missed") is None
    world.set_connected(1, True)
    world.run(5)
    assert not world.image.brokers[1].fenced
    assert world.hosts[1].applied.topic("missed") is not None


def test_follower_that_was_away_is_in_sync_again_after_a_while() -> None:
    """R-SIM-5."""
    world = small_world()
    world.restart_broker(2)
    world.run(0.5)
    assert in_sync(world, 2) == 0
    world.run(15)
    assert in_sync(world, 2) == 4


def test_follower_that_serves_nothing_leaves_the_in_sync_set_after_half_a_minute() -> None:
    """R-SIM-5: its broker is alive, but the log is gone from its disk."""
    world = small_world()
    host = world.hosts[2]
    assert host.broker is not None
    held = {replica: where for replica, where in host.broker.replicas.disks.current.items() if replica.partition != 0}
    host.broker = replace(
        host.broker, replicas=replace(host.broker.replicas, disks=replace(host.broker.replicas.disks, current=held))
    )
    partition = next(iter(world.image.topics.values())).partitions[0]
    leads = partition.leader == 2
    world.run(20)
    assert 2 in next(iter(world.image.topics.values())).partitions[0].isr
    world.run(15)
    assert (2 in next(iter(world.image.topics.values())).partitions[0].isr) is leads


@pytest.mark.parametrize("profile", ["kafka", "kip858"])
def test_broker_without_permission_is_refused_and_reads_nothing(profile: str) -> None:
    """R-AUTH-1, R-AUTH-2, R-SIM-11: its assignments wait, its session ends, and it still believes that it leads."""
    world = World.create(1, profile)
    world.controller.authorizes = True
    cluster(world, (2, 2))
    assert running(world) == {1, 2}
    assert world.image.brokers == {}
    refused = {type(each.request) for each in world.exchanges if isinstance(each.response, NotAuthorized)}
    assert refused == {BrokerRegistrationRequest}
    assert not any(host.applied.features for host in world.hosts.values())
    world = play("permission-revoked", 1, profile)
    refused = {type(each.request) for each in world.exchanges if isinstance(each.response, NotAuthorized)}
    assert refused == {BrokerHeartbeatRequest, AssignReplicasToDirsRequest}
    assert world.hosts[2].applied.brokers[2].fenced is False
    assert world.image.brokers[2].fenced


def test_replica_added_to_a_partition_is_reported_by_the_kip_and_overlooked_by_kafka() -> None:
    """R-LOCAL-4: real brokers leave such replicas unassigned, see test_broker_real_assignments."""
    assert unassigned(play("replica-added", 1)) == 4
    assert unassigned(play("replica-added", 1, "kip858")) == 0


def test_scheduler_runs_events_by_time_and_leaves_the_rest() -> None:
    scheduler = Scheduler(1)
    seen: list[int] = []
    for delay in (30, 10, 20, 500):
        scheduler.after(delay, partial(seen.append, delay))
    scheduler.run(100)
    assert (seen, scheduler.now) == ([10, 20, 30], 100)
    scheduler.at(5, lambda: seen.append(scheduler.now))
    scheduler.run(1)
    assert seen[-1] == 100


def test_scenario_or_profile_that_is_not_known_is_bad_usage() -> None:
    with pytest.raises(UsageError, match="disk-fails"):
        play("no such story", 1)
    with pytest.raises(UsageError, match="kip858"):
        play("disk-fails", 1, "no such profile")


def test_request_log_has_refused_requests_with_their_error() -> None:
    world = World.create(1)
    world.ask(CreateTopicsRequest(topics=()))
    with pytest.raises(RequestRefused):
        world.ask(UnregisterBrokerRequest(broker_id=9))
    lines = list(request_log_lines(world.exchanges, START))
    assert '"errorCode":102' in lines[1]
