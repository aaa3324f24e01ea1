"""The tables of a standalone cluster equal those of one machine, whatever process is killed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from shutil import copy

import pytest

from pipelines.run.seed import CHECKPOINT
from pipelines.upkeep.compact import vacuum
from tests.cluster.kills import MOMENTS, Killer, orphans, publications
from tests.cluster.standalone import Run, Standalone, started, wait_for
from tests.support import local
from tests.support.lakes import Reference
from tests.support.logs import read_log
from tests.support.paths import metadata_dir
from tests.support.tables import differences, expected_rows, rows_of

LOG = "__cluster_metadata-0"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    cluster = Standalone(tmp_path_factory.mktemp("spark"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def grown(source: Path, target: Path, below: int) -> None:
    """Copy the segments of a log that begin below an offset."""
    (target / LOG).mkdir(parents=True, exist_ok=True)
    copy(source / "meta.properties", target)
    for segment in (source / LOG).glob("*.log"):
        if int(segment.stem) < below:
            copy(segment, target / LOG)


def test_cluster_writes_the_tables_of_this_machine(cluster: Standalone, tmp_path: Path) -> None:
    source = metadata_dir("kafka-3.7.2")
    with started(Run(cluster.url, source, tmp_path / "lake", tmp_path)) as run:
        run.end()
    local.replay(source, tmp_path / "alone")
    assert differences(rows_of(tmp_path / "lake"), rows_of(tmp_path / "alone")) == []
    assert differences(rows_of(tmp_path / "lake"), expected_rows(Reference().add(read_log(source)))) == []


def test_checkpoint_is_gone_on_from_by_the_cluster_and_by_this_machine_again(
    cluster: Standalone, tmp_path: Path
) -> None:
    source, log, lake = metadata_dir("kafka-4.1.2"), tmp_path / "log", tmp_path / "lake"
    queries = set()
    for below, master in ((300, "local[2]"), (500, cluster.url), (1_000, "local[2]")):
        grown(source, log, below)
        with started(Run(master, log, lake, tmp_path, "--max-records", "100")) as run:
            run.end()
        queries.add((lake / CHECKPOINT / "metadata").read_text())
        assert differences(rows_of(lake), expected_rows(Reference().add(read_log(log)))) == []
        assert not (lake / CHECKPOINT / "seed").exists()
    assert len(queries) == 1


def test_killed_executors_change_nothing_and_what_they_left_is_in_no_table(cluster: Standalone, tmp_path: Path) -> None:
    source, lake = metadata_dir("kafka-3.7.2"), tmp_path / "lake"
    killer = Killer(cluster, lake, random.Random(1))
    with started(Run(cluster.url, source, lake, tmp_path, "--max-records", "20")) as run:
        for moment in MOMENTS:
            killer.kill(run, moment, 2)
        # Only one: the finished work of the other stays.
        killer.kill(run, "keeping state", 1)
        run.end()
    print(dict(killer.counts), len(orphans(lake)), "orphans")
    assert all(killer.counts[moment] for moment in MOMENTS)
    expected = expected_rows(Reference().add(read_log(source)))
    assert differences(rows_of(lake), expected) == []
    assert orphans(lake)
    vacuum(str(lake), timedelta(hours=1), now=datetime.now(UTC) + timedelta(days=2))
    assert orphans(lake) == []
    assert differences(rows_of(lake), expected) == []


def advanced(lake: Path, before: int) -> bool:
    return publications(lake) > before + 2


def test_killed_workers_change_nothing(cluster: Standalone, tmp_path: Path) -> None:
    source, lake = metadata_dir("kafka-4.1.2"), tmp_path / "lake"
    options = ("--start", "snapshot", "--max-records", "10")
    with started(Run(cluster.url, source, lake, tmp_path, *options)) as run:
        for _ in range(2):
            before = publications(lake)
            wait_for("publications", partial(advanced, lake, before), 300)
            cluster.replace_worker()
        assert run.runs()
        run.end()
    assert differences(rows_of(lake), expected_rows(Reference().add(read_log(source, "snapshot")))) == []
