"""Micro-batches that touch few partitions: only these are folded, and tables whose open rows stay are not written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jbod_model.formats import records as r
from jbod_model.formats.records import Record, VersionedRecord
from jbod_model.ids import Uuid
from pipelines.fold.partitions import fold
from pipelines.source.log_dir import LogDir
from pipelines.source.plan import Planner
from tests.support import engine
from tests.support.tables import differences
from tests.support.volume import sampled
from tests.unit.fold.histories import LAST, write_log
from tests.unit.fold.test_fold_histories import of_history, reference_of, sorted_rows

DIRECTORIES = {broker: (Uuid(broker, 1000), Uuid(broker, 1001)) for broker in (1, 2, 3)}
TOPICS = [Uuid(9, 1000 + number) for number in range(12)]
NEW_TOPIC, NEW_DIRECTORY = Uuid(9, 2000), Uuid(3, 1002)
ALL = {"partitions", "assignments", "offline_replicas"}


def registration(broker: int, epoch: int = 1, *, fenced: bool = False) -> Record:
    return r.RegisterBrokerRecord(
        broker_id=broker, broker_epoch=epoch, fenced=fenced, log_dirs=tuple(sorted(DIRECTORIES[broker]))
    )


def partition(topic: Uuid, number: int, *replicas: int) -> Record:
    return r.PartitionRecord(
        partition_id=number,
        topic_id=topic,
        replicas=replicas,
        isr=replicas,
        leader=replicas[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=tuple(DIRECTORIES[broker][number % 2] for broker in replicas),
    )


def change(**columns: object) -> Record:
    return r.PartitionChangeRecord(topic_id=TOPICS[4], partition_id=1, **columns)  # type: ignore[arg-type]


def of_broker(broker: int, **columns: object) -> Record:
    return r.BrokerRegistrationChangeRecord(broker_id=broker, broker_epoch=1, **columns)  # type: ignore[arg-type]


BEFORE = [
    *map(registration, DIRECTORIES),
    *(r.TopicRecord(name=f"t{number}", topic_id=topic) for number, topic in enumerate(TOPICS)),
    *(partition(topic, number, 1, 2) for topic in TOPICS for number in range(2)),
    # Broker 3 has few partitions, so that it may fail without touching most. One is offline from the start.
    partition(TOPICS[7], 2, 3, 1),
    partition(TOPICS[8], 2, 3, 2),
    change(directories=(DIRECTORIES[1][0], Uuid(7, 7))),
]


@pytest.mark.parametrize(
    ("last", "kept"),
    sampled(
        [
            pytest.param([change(isr=(1,))], {"assignments", "offline_replicas"}, id="in-sync set"),
            pytest.param(
                [change(directories=(DIRECTORIES[1][0], DIRECTORIES[2][1]))],
                set(),
                id="directory, which ends an offline replica",
            ),
            pytest.param(
                [
                    r.PartitionChangeRecord(
                        topic_id=TOPICS[2], partition_id=0, directories=(DIRECTORIES[1][1], Uuid(7, 8))
                    )
                ],
                set(),
                id="directory, which begins one",
            ),
            pytest.param(
                [
                    r.PartitionChangeRecord(
                        topic_id=TOPICS[2], partition_id=0, replicas=(1,), isr=(1,), directories=(DIRECTORIES[1][0],)
                    )
                ],
                {"offline_replicas"},
                id="fewer replicas",
            ),
            pytest.param([partition(TOPICS[3], 2, 2, 3)], {"offline_replicas"}, id="new partition"),
            pytest.param(
                [r.TopicRecord(name="new", topic_id=NEW_TOPIC), partition(NEW_TOPIC, 0, 1)],
                {"offline_replicas"},
                id="new topic",
            ),
            pytest.param([of_broker(3, fenced=1)], {"partitions", "assignments"}, id="broker fenced"),
            pytest.param(
                [
                    change(isr=(1,)),
                    of_broker(3, log_dirs=DIRECTORIES[3][1:]),
                    r.PartitionChangeRecord(topic_id=TOPICS[7], partition_id=2, isr=(1,), leader=1),
                ],
                {"assignments"},
                id="failed disk",
            ),
            pytest.param(
                [
                    of_broker(3, log_dirs=(DIRECTORIES[3][1], NEW_DIRECTORY)),
                    r.PartitionChangeRecord(
                        topic_id=TOPICS[8], partition_id=2, directories=(NEW_DIRECTORY, DIRECTORIES[2][0])
                    ),
                ],
                set(),
                id="new directory",
            ),
            pytest.param([r.NoOpRecord(), registration(3, 2)], ALL, id="broker registers again"),
            pytest.param([r.RemoveTopicRecord(topic_id=TOPICS[4])], set(), id="topic removed"),
            pytest.param([r.ClearElrRecord(topic_name="t4")], set(), id="eligible leaders cleared"),
            pytest.param([of_broker(1, fenced=1)], set(), id="most partitions touched"),
        ],
        6,
    ),
)
def test_last_micro_batch_gives_the_tables_of_the_reference_and_keeps_open_rows(
    tmp_path: Path, last: list[Record], kept: set[str]
) -> None:
    # The state after the micro-batch is used again, for a few partitions and for all.
    few = r.PartitionChangeRecord(topic_id=TOPICS[0], partition_id=0, isr=(2,), leader=2)
    records = [*BEFORE, *last, few, of_broker(2, fenced=1)]
    write_log(tmp_path, [[VersionedRecord(record, LAST[type(record)])] for record in records])
    planner = Planner(LogDir(str(tmp_path)))
    run = engine.Run(shards=1)
    begin = position = planner.begin()
    kept_tables = []
    for count in (len(BEFORE), len(last), 1, 1):
        end = planner.advance(position, count)
        assert end.offset == position.offset + count
        run.add(planner.slices(position, end))
        kept_tables.append(run.kept & ALL)
        at_once = engine.Run(shards=1)
        at_once.add(planner.slices(begin, end))
        assert differences(sorted_rows(run.tables), sorted_rows(at_once.tables)) == []
        position = end
    assert kept_tables == [set(), kept, {"assignments", "offline_replicas"}, set()]
    assert differences(sorted_rows(run.tables), of_history(reference_of(tmp_path))) == []
    kernel: Any = fold
    assert len(kernel.signatures) == 1, "compiled again during a run, for another layout of the same arrays"
