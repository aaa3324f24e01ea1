"""A stream on ``changes`` never breaks, and its consumer has each event once (R-EVENT-7, R-EVENT-8)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest
from deltalake import DeltaTable

from jbod_model.formats import records as r
from jbod_model.formats.records import Record
from jbod_model.ids import Uuid
from pipelines.lake.tables import CHANGES, HISTORY
from pipelines.upkeep.compact import optimize, vacuum
from pipelines.upkeep.rebuild import rebuild
from tests.support import local
from tests.support.spark_engine import SparkEngine, spark_engine
from tests.support.tables import in_force, rows_of
from tests.support.volume import amount, exhaustive, sampled
from tests.unit.run.test_rollback import write

PUBLICATIONS, BATCHES = amount(8, 50), amount(30, 4)
"""At least so many publications, of so many batches of the log each."""
KEY = [name for name in CHANGES.key if name not in ("generation", "retraction")]
D = {broker: (Uuid(broker, 1), Uuid(broker, 2)) for broker in (1, 2, 3)}


def history(seed: int, steps: int, topics: int) -> list[list[Record]]:
    """Batches of a small cluster that moves replicas, loses disks and brokers, and cordons."""
    chance = Random(seed)
    batches: list[list[Record]] = [
        [r.RegisterBrokerRecord(broker_id=broker_id, broker_epoch=broker_id, fenced=False, log_dirs=D[broker_id])]
        for broker_id in D
    ]
    for topic in range(topics):
        made: list[Record] = [r.TopicRecord(name=f"t{topic}", topic_id=Uuid(9, 100 + topic))]
        made += [
            r.PartitionRecord(
                topic_id=Uuid(9, 100 + topic),
                partition_id=number,
                replicas=(1, 2, 3),
                isr=(1, 2, 3),
                leader=1,
                directories=tuple(D[broker_id][number % 2] for broker_id in D),
            )
            for number in range(3)
        ]
        batches.append(made)
    for _ in range(steps):
        broker, topic = chance.choice((1, 2, 3)), chance.randrange(topics)
        change = r.PartitionChangeRecord(topic_id=Uuid(9, 100 + topic), partition_id=chance.randrange(3))
        isr = tuple(broker_id for broker_id in D if broker_id == broker or chance.random() < 0.5)
        batches.append(
            chance.choice(
                [
                    [r.FenceBrokerRecord(id=broker, epoch=broker)],
                    [r.UnfenceBrokerRecord(id=broker, epoch=broker)],
                    [r.BrokerRegistrationChangeRecord(broker_id=broker, broker_epoch=broker, log_dirs=D[broker][:1])],
                    [
                        r.BrokerRegistrationChangeRecord(
                            broker_id=broker, broker_epoch=broker, log_dirs=D[broker], cordoned_log_dirs=D[broker][1:]
                        )
                    ],
                    [
                        r.PartitionChangeRecord(
                            topic_id=change.topic_id,
                            partition_id=change.partition_id,
                            directories=tuple(chance.choice(D[broker_id]) for broker_id in D),
                        )
                    ],
                    [
                        r.PartitionChangeRecord(
                            topic_id=change.topic_id, partition_id=change.partition_id, isr=isr, leader=broker
                        )
                    ],
                ]
            )
        )
    return batches


def consume(engine: SparkEngine, lake: Path, target: Path, *, files: int | None = None, dies: str = "") -> None:
    """One run of the example, in the process of the engine."""
    engine.call("tests.support.changes_consumer:consume", str(lake), str(target), files, dies)


def publications(lake: Path) -> int:
    return sum(1 for row in DeltaTable(str(lake / "ledger")).history() if row["operation"] == "WRITE")


@pytest.mark.exhaustive
def test_consumer_has_each_event_once_over_publications_rollbacks_optimize_and_rebuild(
    engine: SparkEngine, tmp_path: Path
) -> None:
    log, lake, target = tmp_path / "log", tmp_path / "lake", tmp_path / "target"

    def replay(*parts: tuple[int, Sequence[Sequence[Record]]]) -> None:
        local.replay(
            write(log, [(epoch, records) for epoch, batches in parts for records in batches]), lake, most=BATCHES
        )

    first, second, third = (history(seed, steps, 3) for seed, steps in ((1, 60), (2, 90), (3, 120)))
    replay((1, first))
    consume(engine, lake, target)
    replay((1, first[:40]), (2, second[6:60]))  # the first rollback
    optimize(str(lake))
    # A file at a time, and the run dies between its two writes.
    if exhaustive():
        with spark_engine() as another, pytest.raises(AssertionError, match="Spark died"):
            consume(another, lake, target, files=1, dies="end")
    else:
        with pytest.raises(AssertionError, match="died between two writes"):
            consume(engine, lake, target, files=1, dies="error")
    replay((1, first[:40]), (2, second[6:30]), (3, third[6:]))  # the second one
    consume(engine, lake, target)
    optimize(str(lake))
    rebuild(str(lake), say=lambda _line: None)
    vacuum(str(lake), timedelta(days=7))
    replay((1, first[:40]), (2, second[6:30]), (3, third[6:] + second[60:]))
    consume(engine, lake, target, files=amount(30, 8))
    assert publications(lake) >= PUBLICATIONS

    changes = DeltaTable(str(lake / "changes")).to_pyarrow_table().sort_by("generation").to_pylist()
    assert [row["why"] for row in changes if row["what"] == "history"] == ["rolled back", "rolled back", "rebuilt"]
    assert any(row["retraction"] for row in changes)
    events = DeltaTable(str(target / "events")).to_pyarrow_table().drop_columns(["version"]).to_pylist()
    assert len(events) == len({tuple(row[name] for name in KEY) for row in events})

    def ordered(rows: list[dict[str, object]]) -> list[dict[str, object]]:
        return sorted(rows, key=lambda row: str([row[name] for name in KEY]))

    assert ordered(in_force(events)) == ordered(in_force(changes)) == ordered(rows_of(lake)["changes"])
    state = DeltaTable(str(target / "state")).to_pyarrow_table().to_pylist()
    assert {of: {row for row in facts if row} for of, facts in values(state).items()} == of_tables(lake)


def values(state: list[dict[str, object]]) -> dict[str, set[tuple[object, ...]]]:
    """The consumer's state, without what has no value."""
    facts: dict[str, set[tuple[object, ...]]] = {}
    for row in state:
        if row["value"] is not None:
            subject = (row[name] for name in ("topic_id", "partition", "broker_id", "directory_id"))
            key = tuple(part for part in subject if part is not None)
            facts.setdefault(str(row["what"]), set()).add((*key, row["value"]))
    return facts


def of_tables(lake: Path) -> dict[str, set[tuple[object, ...]]]:
    """The same from the history tables."""
    tables = rows_of(lake)
    now = {table.name: [row for row in tables[table.name] if row["to_offset"] is None] for table in HISTORY}
    facts: dict[str, set[tuple[object, ...]]] = {
        "assignment": {(a["topic_id"], a["partition"], a["broker_id"], a["directory_id"]) for a in now["assignments"]},
        "offline": {(o["topic_id"], o["partition"], o["broker_id"], o["reason"]) for o in now["offline_replicas"]},
        "leader": {(p["topic_id"], p["partition"], str(p["leader"])) for p in now["partitions"] if p["leader"] >= 0},
        "isr": {(p["topic_id"], p["partition"], f"[{','.join(map(str, p['isr']))}]") for p in now["partitions"]},
        "registration": {(b["broker_id"], str(b["broker_epoch"])) for b in now["brokers"]},
        "fencing": {(b["broker_id"], "fenced" if b["fenced"] else "unfenced") for b in now["brokers"]},
        "directory": {(d["broker_id"], d["directory_id"], "online") for d in now["directories"]},
        "cordon": {
            (b["broker_id"], directory, "cordoned")
            for b in now["brokers"]
            for directory in b["cordoned_log_dirs"] or ()
        },
    }
    return {what: rows for what, rows in facts.items() if rows}


@pytest.mark.parametrize("name", sampled(["assignments", "brokers"], 1))
def test_stream_on_a_history_table_fails_after_a_replay_and_its_description_names_the_table_to_use(
    engine: SparkEngine, tmp_path: Path, name: str
) -> None:
    log, lake = tmp_path / "log", tmp_path / "lake"
    batches = history(1, 40, 2)
    local.replay(write(log, [(1, records) for records in batches[:30]]), lake)
    stream = ("tests.support.changes_consumer:stream", str(lake / name), str(tmp_path / "out"))
    engine.call(*stream)
    local.replay(write(log, [(1, records) for records in batches]), lake)
    with pytest.raises(AssertionError, match="DELTA_SOURCE"):
        engine.call(*stream)
    assert "stream from the table changes" in str(DeltaTable(str(lake / name)).metadata().description)
