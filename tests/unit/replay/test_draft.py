"""The engine replays a log by the draft's rules: registrations rewrite partitions that no record names."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jbod_model.errors import ReplayViolation
from jbod_model.formats import records as r
from jbod_model.formats.log_writer import write_snapshot
from jbod_model.formats.records import Record, VersionedRecord
from jbod_model.ids import KAFKA_IDS, Uuid
from jbod_model.profiles import DRAFT, PROFILES
from pipelines.ask.whatif_image import touched
from pipelines.check.contract_run import run_contracts
from pipelines.lake.reader import Lake
from pipelines.lake.tables import BY_NAME, HISTORY
from pipelines.replay.brokers import Registration, dump_brokers, load_brokers
from pipelines.replay.log_lake import LogLake
from pipelines.source.log_options import Options
from pipelines.upkeep.rebuild import rebuild
from pipelines.upkeep.verify import verify
from tests.support import engine, local
from tests.support.tables import differences, in_order, rows_of
from tests.support.volume import amount
from tests.support.written import TIME
from tests.unit.replay.histories import LAST, histories, log_of, write_log
from tests.unit.replay.test_fold_histories import UNSHRUNK, of_history, reference_of, sorted_rows

TOPIC = Uuid(7, 1)
A, B, C, D = (Uuid(8, number) for number in range(1, 5))
LOST = str(KAFKA_IDS.lost)
CREATED: tuple[Record, ...] = (
    r.TopicRecord(name="t", topic_id=TOPIC),
    r.PartitionRecord(topic_id=TOPIC, partition_id=0, replicas=(1, 2), isr=(1,), directories=(A, C)),
    r.PartitionRecord(topic_id=TOPIC, partition_id=1, replicas=(2,), isr=(2,), directories=(C,)),
)


def registered(epoch: int, *directories: Uuid) -> Record:
    return r.RegisterBrokerRecord(broker_id=1, broker_epoch=epoch, fenced=False, log_dirs=directories)


def failed(epoch: int, *left: Uuid) -> Record:
    return r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, log_dirs=left)


def draft(log_dir: Path, **options: Any) -> dict[str, list[dict[str, Any]]]:
    """The engine's rows, after a comparison with the reference's."""
    found = sorted_rows(engine.replay(log_dir, profile="draft", **options))
    assert differences(found, of_history(reference_of(log_dir, profile=DRAFT))) == []
    return found


@settings(max_examples=amount(8, 60), phases=UNSHRUNK)
@given(histories(), st.sampled_from([None, 1, 2, 5]), st.integers(1, 4), st.integers(1, 3))
def test_any_history_in_any_split_gives_the_tables_of_the_reference(
    history: list[Record], most: int | None, shards: int, batch: int
) -> None:
    """R-DRAFT-1, R-DRAFT-2, R-DRAFT-6, R-OFF-9, R-BROKER-6; R-INV-27. A history that is refused is refused alike."""
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        records = [VersionedRecord(record, LAST[type(record)]) for record in history]
        write_log(directory, [records[at : at + batch] for at in range(0, len(records), batch)])
        refused = None
        try:
            expected = of_history(reference_of(directory, profile=DRAFT))
        except ReplayViolation as problem:
            refused = problem.offset
        try:
            found = sorted_rows(engine.replay(directory, most=most, shards=shards, profile="draft"))
        except ReplayViolation as problem:
            # A micro-batch reports its first error of any shard.
            assert refused is not None and (most != 1 or batch != 1 or problem.offset == refused)
        else:
            assert refused is None
            assert differences(found, expected) == []


@pytest.mark.parametrize(
    ("before", "after", "directory", "ended_by"),
    [
        pytest.param((D,), (D, B), str(D), "moved", id="R-DRAFT-1"),
        pytest.param((A, B), (B,), LOST, "lost", id="R-DRAFT-2"),
    ],
)
@pytest.mark.parametrize("most", [None, 1])
def test_registration_rewrites_the_replicas_of_its_broker(
    tmp_path: Path, before: tuple[Uuid, ...], after: tuple[Uuid, ...], directory: str, ended_by: str, most: int | None
) -> None:
    """R-DRAFT-1, R-DRAFT-2: one partition has a new version and a new assignment; the other one goes on."""
    log_of(tmp_path, registered(1, *before), *CREATED, registered(2, *after))
    tables = draft(tmp_path, most=most)
    versions = [(row["partition"], row["directories"], row["partition_epoch"]) for row in tables["partitions"]]
    assert versions == [(0, [str(A), str(C)], -1), (0, [directory, str(C)], -1), (1, [str(C)], -1)]
    ended = [(row["replica_index"], row["to_offset"], row["ended_by"]) for row in tables["assignments"]]
    assert ended == [(0, 4, ended_by), (0, None, None), (1, None, None), (0, None, None)]


def test_change_after_a_rewrite_keeps_the_rewritten_directories(tmp_path: Path) -> None:
    """R-DRAFT-2, R-MERGE-3: also if the state in between was stored."""
    change = r.PartitionChangeRecord(topic_id=TOPIC, partition_id=0, replicas=(2, 1), leader=2)
    log_of(tmp_path, registered(1, A, B), *CREATED, registered(2, B), change)
    for most in (None, 1, 5):
        assert draft(tmp_path, most=most)["partitions"][2]["directories"] == [LOST, str(C)]


def test_snapshot_that_registers_a_broker_twice_rewrites_what_it_named_before(tmp_path: Path) -> None:
    """R-REPLAY-2, R-DRAFT-2."""
    late = r.PartitionRecord(topic_id=TOPIC, partition_id=2, replicas=(1,), isr=(1,), directories=(A,))
    records = (registered(1, A, B), *CREATED, registered(2, B), late)
    versioned = [VersionedRecord(record, LAST[type(record)]) for record in records]
    write_snapshot(tmp_path, versioned, end_offset=9, epoch=1, timestamp=TIME)
    assert [row["directories"] for row in draft(tmp_path)["partitions"]] == [[LOST, str(C)], [str(C)], [str(A)]]


@pytest.mark.parametrize(("profile", "reasons"), [("kafka", [4]), ("kip858", []), ("draft", [4])])
@pytest.mark.parametrize("most", [None, 1])
def test_broker_with_one_directory_left_is_impaired_until_it_registers(
    tmp_path: Path, profile: str, reasons: list[int], most: int | None
) -> None:
    """R-OFF-8, R-OFF-9, R-DRAFT-6: the flag is in the state between batches."""
    log_of(tmp_path, registered(1, A, B), *CREATED, failed(1, B), registered(2, B))
    found = sorted_rows(engine.replay(tmp_path, profile=profile, most=most))
    assert differences(found, of_history(reference_of(tmp_path, profile=PROFILES[profile]))) == []
    offline = [row for row in found["offline_replicas"] if row["broker_id"] == 1]
    assert [row["from_offset"] for row in offline if row["reason"] == "directory offline"] == reasons


def test_registration_that_only_resets_the_flag_is_no_row(tmp_path: Path) -> None:
    """R-DRAFT-6: the same registration again, which the tables cannot tell from the change before."""
    log_of(tmp_path, registered(1, A, B), *CREATED, failed(1, B), registered(1, B))
    assert [row["to_offset"] for row in draft(tmp_path)["brokers"]] == [4, None]


def test_state_of_an_earlier_release_has_no_flag() -> None:
    """R-DRAFT-6: checkpoints of lakes of the other profiles stay readable."""
    broker = Registration(1, 5, str(A), False, False, None, (str(B),), None)
    rows = json.loads(dump_brokers({1: broker}))
    del rows[0]["has_offline_directories"]
    assert load_brokers(json.dumps(rows).encode()) == {1: broker}


@pytest.fixture(scope="module")
def rewritten(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with both rewrites and the flag. As in Kafka, a broker's epoch is the offset of its registration."""
    unassigned = r.PartitionRecord(topic_id=TOPIC, partition_id=2, replicas=(1,), isr=(1,))
    log_dir = tmp_path_factory.mktemp("draft") / "__cluster_metadata-0"
    log_dir.mkdir()
    log_of(
        log_dir,
        registered(0, A),
        *CREATED,
        unassigned,
        registered(5, A, B),  # partition 2 is in A
        failed(5, B),  # both replicas are offline, by the flag
        registered(7, B),
        r.PartitionChangeRecord(topic_id=TOPIC, partition_id=0, directories=(B, C)),
        registered(9, D),  # partition 0 is in LOST
        r.PartitionChangeRecord(topic_id=TOPIC, partition_id=0, leader=2),
    )
    return log_dir.parent


def test_log_with_all_rules_of_the_draft_is_replayed_as_its_story_says(rewritten: Path) -> None:
    """R-DRAFT-1, R-DRAFT-2, R-OFF-9."""
    tables = draft(rewritten / "__cluster_metadata-0")
    on_first = [row for row in tables["assignments"] if row["broker_id"] == 1]
    assert [(row["partition"], row["directory_id"], row["from_offset"]) for row in on_first] == [
        (0, str(A), 2), (0, str(B), 8), (0, LOST, 9), (2, str(KAFKA_IDS.unassigned), 4), (2, str(A), 5),
    ]  # fmt: skip
    offline = [row for row in tables["offline_replicas"] if row["broker_id"] == 1]
    assert [(row["partition"], row["from_offset"], row["to_offset"], row["reason"]) for row in offline] == [
        (0, 6, 7, "directory offline"), (0, 9, None, "directory lost"), (2, 6, 7, "directory offline"),
    ]  # fmt: skip


def test_log_that_answers_like_a_lake_takes_the_draft(rewritten: Path) -> None:
    """``jbod offline --log``."""
    lake = LogLake.of(Options(path=str(rewritten)), profile="draft")
    expected = of_history(reference_of(rewritten / "__cluster_metadata-0", profile=DRAFT))
    for table in HISTORY:
        rows = lake.connection.sql(f"SELECT * FROM {lake._table(table.name)}").to_arrow_table()
        found = in_order(table.name, rows.cast(BY_NAME[table.name].schema).to_pylist())
        assert differences({table.name: found}, {table.name: expected[table.name]}) == []


def test_lake_of_the_draft_goes_on_after_a_run_and_keeps_its_contracts(rewritten: Path, tmp_path: Path) -> None:
    """The state comes from the records of the lake; the model and the engine verify the tables; a rebuild is equal."""
    local.replay(rewritten, tmp_path / "lake", most=3, profile="draft")
    lake = Lake.open(tmp_path / "lake")
    expected = of_history(reference_of(rewritten / "__cluster_metadata-0", profile=DRAFT))
    assert differences({name: rows_of(tmp_path / "lake")[name] for name in expected}, expected) == []
    assert run_contracts(lake) == []
    assert verify(str(tmp_path / "lake"), by="model").differences == []
    assert verify(str(tmp_path / "lake"), by="engine").differences == []
    rebuild(str(tmp_path / "lake"), say=print)
    assert differences({name: rows_of(tmp_path / "lake")[name] for name in expected}, expected) == []


def test_whatif_knows_the_flag(tmp_path: Path) -> None:
    """R-DRAFT-6: it follows from the history of directories."""
    log = tmp_path / "log"
    (log / "__cluster_metadata-0").mkdir(parents=True)
    log_of(log / "__cluster_metadata-0", registered(1, A, B), *CREATED, failed(1, B))
    local.replay(log, tmp_path / "lake", profile="draft")
    assert touched(Lake.open(tmp_path / "lake"), [1], []).brokers[1].has_offline_directories
    assert not touched(Lake.open(tmp_path / "lake", 3), [1], []).brokers[1].has_offline_directories
