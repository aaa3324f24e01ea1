"""The model of a broker against what real brokers reported: which replicas, from their own metadata logs.

Each process of four clusters is given the metadata as it was committed, and the logs that its disks must have held.
In which of several directories a broker puts a new replica is chance, so that is taken from its first report of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest

from jbod_model.broker import replicas
from jbod_model.broker.assignments import Replica
from jbod_model.broker.disks import Disks
from jbod_model.broker.replicas import Replicas, assigned_directories, local_changes
from jbod_model.formats.log import LogEntry, LogReader, MetadataLog
from jbod_model.formats.metadata_version import METADATA_VERSION, directories_supported
from jbod_model.ids import Uuid
from jbod_model.replay.image import Image
from jbod_model.replay.transactions import images
from tests.support.paths import CLUSTERS
from tests.support.real_brokers import ALL, ASSIGNMENT, Exchange, ids, processes

# What a broker learned last may not have been sent when it was killed.
UNSENT_MS = 2_000


@cache
def history(cluster: str) -> list[tuple[int, Image]]:
    """(time, image) after every record, in milliseconds."""
    times: dict[int, int] = {}

    def noted(entries: Iterator[LogEntry]) -> Iterator[LogEntry]:
        for entry in entries:
            times[entry.offset] = entry.timestamp
            yield entry

    log = MetadataLog.open(CLUSTERS / cluster / "metadata" / "controller-100")
    return [(times[offset], image) for offset, image in images(noted(iter(LogReader(log))))]


def reported(process: list[Exchange]) -> dict[Replica, Uuid]:
    """Every replica that a process reported, with the directory of its first report."""
    first: dict[Replica, Uuid] = {}
    for exchange in process:
        if exchange.key == ASSIGNMENT:
            for directory in exchange.request["directories"]:
                for topic in directory["topics"]:
                    for partition in topic["partitions"]:
                        replica = Replica(Uuid.parse(topic["topicId"]), partition["partitionIndex"])
                        first.setdefault(replica, Uuid.parse(directory["id"]))
    return first


def predicted(cluster: str, broker_id: int, process: list[Exchange]) -> dict[Replica, int]:
    """Every replica that the model reports while the process lives, with the time of its first report."""
    began, ended = process[0].arrived, process[-1].answered
    chosen = reported(process)
    directories = ids(process[0].request["logDirs"])
    before = [image for time, image in history(cluster) if time <= began]
    at_start = before[-1] if before else Image()
    on_disk = {r: d for r, d in assigned_directories(at_start, broker_id).items() if d in directories}
    state = Replicas(disks=Disks(configured=directories, current=on_disk))
    times: dict[Replica, int] = {}
    last = Image()
    for time, image in [(began, at_start), *((t, i) for t, i in history(cluster) if began < t <= ended)]:
        changes, deletes = local_changes(last, image, broker_id)
        wishes = {c.replica: chosen[c.replica] for c in changes if c.replica in chosen}
        new = {r: d for r, d in wishes.items() if r not in state.disks.current}
        state = replace(state, disks=replace(state.disks, preferred=new))
        supported = directories_supported(image.features.get(METADATA_VERSION, 0))
        state, reports = replicas.apply_metadata(state, changes, deletes, directories_supported=supported)
        for report in reports:
            times.setdefault(report.replica, time)
        last = image
    return times


@pytest.mark.parametrize(("cluster", "broker_id"), sorted(ALL), ids=str)
def test_broker_reports_the_replicas_that_real_brokers_reported(cluster: str, broker_id: int) -> None:
    """R-DECIDE-1, R-DECIDE-2, R-DECIDE-3, R-DECIDE-4, R-DECIDE-5, R-DECIDE-6, R-DECIDE-7, R-DECIDE-8, R-DECIDE-9,
    R-DECIDE-10, R-DECIDE-11, R-DECIDE-12, R-LOCAL-1, R-LOCAL-2, R-LOCAL-3, R-LOCAL-4, R-PROC-4; brokers under
    ZooKeeper report nothing."""
    for process in processes(ALL[cluster, broker_id]):
        if process[0].request["isMigratingZkBroker"]:
            assert reported(process) == {}
            continue
        ours, theirs = predicted(cluster, broker_id, process), reported(process)
        assert set(theirs) <= set(ours), "reported without a reason that the model knows"
        ended = process[-1].answered
        unsent = {replica for replica in set(ours) - set(theirs) if ours[replica] < ended - UNSENT_MS}
        assert not unsent, "not reported though the model would"


def test_real_brokers_reported_hundreds_of_replicas() -> None:
    total = sum(len(reported(process)) for sent in ALL.values() for process in processes(sent))
    assert total > 200
