"""A log loaded without Spark: the tables of the model, and a seed from which the next run continues."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from shutil import copytree, rmtree

import numpy as np
import pytest

from jbod_model.errors import JbodError, LogChanged, ReplayViolation
from jbod_model.formats import records as r
from jbod_model.ids import Uuid
from pipelines.fold.events import shards_of
from pipelines.fold.machine import Row
from pipelines.run.options import Replay, RunOutcome
from pipelines.run.runner import Runner
from pipelines.run.seed import CHECKPOINT, checkpoint_fits, seed_position, write_seed
from pipelines.run.stage_options import Job
from pipelines.run.stages import decode_slice
from pipelines.source.positions import Position, Slice
from tests.support.lakes import Reference
from tests.support.logs import read_log, segments
from tests.support.paths import KAFKAS, metadata_dir
from tests.support.tables import differences, expected_rows, rows_of
from tests.support.volume import rare, sampled
from tests.unit.run.test_rollback import write

KAFKA = "kafka-4.1.2"


def loaded(log_dir: Path, lake: Path, messages: list[str] | None = None, **options: object) -> RunOutcome:
    wanted = Replay(str(log_dir), str(lake), **options)  # type: ignore[arg-type]
    return Runner(wanted, progress=None if messages is None else messages.append).load()


@pytest.mark.parametrize(
    ("kafka", "most"),
    [
        *(rare(kafka, 10_000) for kafka in KAFKAS),
        *((kafka, 61) if kafka == KAFKA else rare(kafka, 61) for kafka in KAFKAS),
    ],
)
def test_tables_of_a_loaded_log_are_those_of_the_model(tmp_path: Path, kafka: str, most: int) -> None:
    source = metadata_dir(kafka)
    outcome = loaded(source, tmp_path / "lake", max_records=most, start="log")
    expected = expected_rows(Reference().add(read_log(source, "log")))
    assert differences(rows_of(tmp_path / "lake"), expected) == []
    assert (outcome.batches > 1) == (most == 61)
    assert {name for name in outcome.rows if outcome.rows[name]} >= {"records", "partitions"}
    assert not (tmp_path / "lake" / "_staged").exists()


def test_snapshot_that_a_log_begins_with_is_loaded(tmp_path: Path) -> None:
    source = metadata_dir("kafka-3.7.2")
    outcome = loaded(source, tmp_path / "lake", start="snapshot")
    assert outcome.snapshots == [(-1, 430)]
    expected = expected_rows(Reference().add(read_log(source, "snapshot")))
    assert differences(rows_of(tmp_path / "lake"), expected) == []


def test_next_run_continues_from_the_seed_and_reads_no_record_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, log = tmp_path / "lake", tmp_path / "log"
    first = loaded(segments(metadata_dir(KAFKA), log, most=2), lake)
    home = str(lake)
    position = seed_position(home)
    assert position is not None
    assert (position.offset, position.base >= 0, position.epoch >= 0) == (first.end_offset, True, True)
    assert checkpoint_fits(home, first.end_offset)
    assert Runner(Replay(str(log), str(lake))).up_to_date()
    monkeypatch.setattr("pipelines.run.rollback.states_at", lambda *_, **__: pytest.fail("states made again"))
    second = loaded(segments(metadata_dir(KAFKA), log), lake)
    assert (second.start_offset, second.rolled_back) == (first.end_offset, [])
    expected = expected_rows(Reference().add(read_log(metadata_dir(KAFKA), "log")))
    assert differences(rows_of(lake), expected) == []


def test_lake_without_its_seed_is_continued_from_its_records(tmp_path: Path) -> None:
    lake, log = tmp_path / "lake", tmp_path / "log"
    loaded(segments(metadata_dir(KAFKA), log, most=2), lake)
    rmtree(lake / CHECKPOINT)
    loaded(segments(metadata_dir(KAFKA), log), lake)
    expected = expected_rows(Reference().add(read_log(metadata_dir(KAFKA), "log")))
    assert differences(rows_of(lake), expected) == []


@pytest.mark.parametrize("harm", sampled(["gone", "swapped", "no position"], 2))
def test_lake_whose_seed_lacks_the_state_of_a_shard_is_continued_from_its_records(tmp_path: Path, harm: str) -> None:
    """Cause: a shard without state began empty, so its new rows replaced all open rows of the shard."""
    lake, log, seed = tmp_path / "lake", tmp_path / "log", tmp_path / "lake" / CHECKPOINT / "seed"
    records: list[r.Record] = [r.RegisterBrokerRecord(broker_id=1, broker_epoch=1, log_dirs=(Uuid(2, 2),))]
    for number in range(1, 9):
        records.append(r.TopicRecord(name=f"t{number}", topic_id=Uuid(number, 1)))
        records += [
            r.PartitionRecord(
                topic_id=Uuid(number, 1),
                partition_id=at,
                replicas=(1,),
                isr=(1,),
                leader=1,
                directories=(Uuid(2, 2),),
            )
            for at in range(number)
        ]
    loaded(write(log, [(1, [record]) for record in records[:15]]), lake)  # four topics
    if harm == "gone":
        (seed / "0000").unlink()
    elif harm == "swapped":
        (seed / "0000").rename(seed / "other")
        (seed / "0001").rename(seed / "0000")
        (seed / "other").rename(seed / "0001")
    else:
        (lake / CHECKPOINT / "seed.json").unlink()
    loaded(write(log, [(1, [record]) for record in records]), lake)
    assert differences(rows_of(lake), expected_rows(Reference().add(read_log(log, "log")))) == []


@pytest.mark.exhaustive
def test_lake_that_spark_has_continued_is_loaded_from_its_records(tmp_path: Path) -> None:
    """The seed of its checkpoint is older than the lake."""
    lake, log = tmp_path / "lake", tmp_path / "log"
    loaded(segments(metadata_dir(KAFKA), log, most=1), lake)
    older = copytree(lake / CHECKPOINT, tmp_path / "older")
    loaded(segments(metadata_dir(KAFKA), log, most=2), lake)
    rmtree(lake / CHECKPOINT)
    copytree(older, lake / CHECKPOINT)
    (lake / CHECKPOINT / "offsets").mkdir()
    loaded(segments(metadata_dir(KAFKA), log), lake)
    expected = expected_rows(Reference().add(read_log(metadata_dir(KAFKA), "log")))
    assert differences(rows_of(lake), expected) == []


def test_progress_names_the_batch_the_slices_and_the_shards(tmp_path: Path) -> None:
    messages: list[str] = []
    loaded(metadata_dir(KAFKA), tmp_path / "lake", messages, start="log")
    assert "loading batch 1: 1 of 6 slices" in messages
    assert "loading batch 1: 3 of 3 shards" in messages
    assert messages[-1].startswith("published up to offset")


def test_error_in_one_shard_is_raised_and_the_records_before_it_are_published(tmp_path: Path) -> None:
    """R-READ-1."""
    lost = r.PartitionChangeRecord(topic_id=r.TopicRecord().topic_id, partition_id=3)
    log = write(tmp_path / "log", [(1, [r.NoOpRecord()]), (1, [r.NoOpRecord()]), (1, [lost])])
    for _ in range(2):
        with pytest.raises(ReplayViolation) as refused:
            loaded(log, tmp_path / "lake")
        assert refused.value.offset == 2
    assert [row["log_offset"] for row in rows_of(tmp_path / "lake")["records"]] == [0, 1]


def test_errors_in_several_shards_cost_one_more_attempt(tmp_path: Path) -> None:
    ids = [Uuid(number**13, number**17) for number in range(1, 9)]
    shards = shards_of(
        np.frombuffer(b"".join(topic_id.bytes for topic_id in ids), np.uint64).reshape(-1, 2), 2
    ).tolist()
    lost = [r.PartitionChangeRecord(topic_id=ids[shards.index(shard)], partition_id=3) for shard in (1, 0)]
    log = write(tmp_path / "log", [(1, [record]) for record in (r.NoOpRecord(), *lost)])
    messages: list[str] = []
    with pytest.raises(ReplayViolation) as refused:
        loaded(log, tmp_path / "lake", messages, shards=2)
    assert (refused.value.offset, messages.count("planning")) == (1, 2)


def test_records_that_are_appended_during_a_load_are_left_for_the_next_run(tmp_path: Path) -> None:
    log = write(tmp_path / "log", [(1, [r.NoOpRecord()])] * 4)

    def append(line: str) -> None:
        if line.startswith("published"):
            write(log, [(1, [r.NoOpRecord()])] * 9)

    wanted = Replay(str(log), str(tmp_path / "lake"), max_records=2)
    assert Runner(wanted, progress=append).load().end_offset == 4
    assert loaded(log, tmp_path / "lake").end_offset == 9


@pytest.mark.parametrize("times", [1, 9])
def test_log_that_changes_while_it_is_loaded_is_planned_again_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    good, left = decode_slice, [times]

    def changing(job: Job, sequence: int, piece: Slice) -> Iterator[Row]:
        if left[0]:
            left[0] -= 1
            raise LogChanged(piece.path, 1, "rewritten")
        return good(job, sequence, piece)

    monkeypatch.setattr("pipelines.run.runner.decode_slice", changing)
    source = segments(metadata_dir(KAFKA), tmp_path / "log", most=1)
    if times > 1:
        with pytest.raises(LogChanged):
            loaded(source, tmp_path / "lake")
        assert not (tmp_path / "lake").exists()
    else:
        assert loaded(source, tmp_path / "lake").batches == 1


def test_load_that_is_stopped_publishes_the_batch_that_it_has_begun(tmp_path: Path) -> None:
    def tell(line: str) -> None:
        if line.startswith("loading batch 2"):
            runner.stop()

    wanted = Replay(str(metadata_dir(KAFKA)), str(tmp_path / "lake"), max_records=61, start="log")
    runner = Runner(wanted, progress=tell)
    assert runner.load().batches == 2


def test_two_loads_of_a_lake_exclude_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(home: str, states: Mapping[int, bytes], position: Position) -> None:
        begun.set()
        assert go_on.wait(60)
        write_seed(home, states, position)

    monkeypatch.setattr("pipelines.run.runner.write_seed", slow)
    first = threading.Thread(target=loaded, args=(metadata_dir(KAFKA), tmp_path / "lake"))
    first.start()
    assert begun.wait(60)
    with pytest.raises(JbodError, match="another jbod replay runs on this lake"):
        loaded(metadata_dir(KAFKA), tmp_path / "lake")
    go_on.set()
    first.join()
    assert rows_of(tmp_path / "lake")["records"]
