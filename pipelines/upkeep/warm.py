"""Prepares a machine for fast starts: compiles the kernels, archives the classes that Spark loads."""

from __future__ import annotations

import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pyspark

from jbod_model.formats.log import LogWriter
from jbod_model.formats.records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    TopicRecord,
    VersionedRecord,
)
from jbod_model.ids import Uuid
from pipelines.java import use_java
from pipelines.lake.reader import Lake
from pipelines.plan.answer import plan
from pipelines.plan.goals import LEADERS, REPLICAS, balance
from pipelines.run.options import Replay
from pipelines.run.runner import Runner
from pipelines.settings import Spark
from pipelines.spark.jvm import end_jvm
from pipelines.spark.session import spark_session
from pipelines.spark.versions import folder, keep
from pipelines.start.session import class_archive

Batch = tuple[tuple[Record, int], ...]
"""Records with their versions."""

_DIRECTORIES = (Uuid(1, 1000), Uuid(1, 1001))
_BROKERS: Batch = (
    (RegisterBrokerRecord(broker_id=1, incarnation_id=Uuid(3, 1000), fenced=False, log_dirs=_DIRECTORIES[:1]), 3),
    (RegisterBrokerRecord(broker_id=2, incarnation_id=Uuid(3, 1001), fenced=False, log_dirs=_DIRECTORIES[1:]), 3),
)


def _created(topic: int, partitions: int) -> Batch:
    """A topic whose partitions lie on broker 1."""
    rows = (
        PartitionRecord(
            partition_id=partition,
            topic_id=Uuid(2, topic),
            replicas=(1,),
            isr=(1,),
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=_DIRECTORIES[:1],
        )
        for partition in range(partitions)
    )
    return (TopicRecord(name=f"warm-{topic}", topic_id=Uuid(2, topic)), 0), *((row, 1) for row in rows)


def _moved(topic: int, partitions: int) -> Batch:
    """The partitions are moved to broker 2."""
    rows = (
        PartitionChangeRecord(
            partition_id=partition,
            topic_id=Uuid(2, topic),
            replicas=(2,),
            isr=(2,),
            leader=2,
            directories=_DIRECTORIES[1:],
        )
        for partition in range(partitions)
    )
    return tuple((row, 1) for row in rows)


_FENCED: Batch = ((BrokerRegistrationChangeRecord(broker_id=2, fenced=1), 2),)
_UNFENCED: Batch = ((BrokerRegistrationChangeRecord(broker_id=2, fenced=-1), 2),)
BATCHES: tuple[Batch, ...] = (
    (*_BROKERS, *_created(1000, 1), *_moved(1000, 1)),
    (*_created(1001, 3), *_created(1002, 3), *_moved(1002, 3), *_FENCED),
    (*_moved(1001, 3), *_created(1003, 1), *_UNFENCED),
)
"""Each is replayed by itself. Numba has a kernel for each layout of its arrays: columns of one row have another layout
than those of several, and arrays of a stored state are read-only."""


def main() -> int:
    """Replays a small log into a temporary lake, and makes plans of it."""
    java = use_java()
    archive = class_archive(java)
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="jbod-warm-") as scratch:
        log, lake = Path(scratch, "log"), Path(scratch, "lake")
        log.mkdir()
        write_log(log, 1)
        # A JVM that starts meanwhile must not load a part of it.
        written = archive.with_suffix(f".{os.getpid()}.part")
        options = f"{Spark().java_options} -XX:ArchiveClassesAtExit={written}"
        spark = spark_session(Spark(java_options=options), archive=False)
        Runner(Replay(str(log), str(lake))).run(spark)
        with ThreadPoolExecutor(1) as pool:
            ended = pool.submit(end_jvm, spark)  # it writes the archive, for half a minute
            for batches in range(2, len(BATCHES) + 1):
                write_log(log, batches)
                Runner(Replay(str(log), str(lake))).load()
            compile_plans(lake)
        ended.result()
        if written.is_file():  # some JVMs write none
            written.replace(archive)
    return 0


def write_log(log: Path, batches: int) -> None:
    """Writes a log of that many batches into a folder. Plans can be made of it."""
    writer = LogWriter()
    for records in BATCHES[:batches]:
        writer.append([VersionedRecord(record, version) for record, version in records], epoch=1, timestamp=1)
    writer.write(log)


def compile_plans(lake: Path) -> None:
    """Makes two plans, so that their kernels are kept: compiling takes ten seconds."""
    for by in (REPLICAS, LEADERS):
        plan(Lake.open(lake), partial(balance, broker=None, by=by))


def fetch_delta_jars() -> Path:
    """Keeps Delta Lake's jars on this machine, unless they are kept already. Returns their folder."""
    there = folder()
    if not there.is_dir():
        session = spark_session(delta=True)
        fetched = [Path(url2pathname(urlsplit(jar).path)) for jar in (session.conf.get("spark.jars") or "").split(",")]
        keep(fetched, Path(pyspark.__file__).parent / "jars")
        session.stop()
    return there


if __name__ == "__main__":
    if sys.argv[1:] == ["--delta"]:
        fetch_delta_jars()
    else:
        main()
