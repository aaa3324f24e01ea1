"""The fold against Kafka's images of traces, against the plain reference on random histories, and its refusals."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from jbod_model.errors import JbodError, MalformedLog, ReplayViolation
from jbod_model.formats import records as r
from jbod_model.formats.log import LogReader, MetadataLog, write_snapshot
from jbod_model.formats.records import Record, VersionedRecord
from jbod_model.ids import KAFKA_IDS, KIP858_IDS, Uuid
from jbod_model.profiles import KAFKA, KIP858, Profile
from jbod_model.replay.image import Image, snapshot_records
from jbod_model.replay.transactions import images
from lab.conformance.trace import image_as_json
from pipelines.fold import tables as fold
from pipelines.lake.tables import DERIVED
from pipelines.run.publisher import batch_of
from pipelines.run.stages import error_row
from pipelines.source.log_dir import LogDir
from pipelines.source.plan import Planner
from pipelines.source.positions import Position
from tests.support import engine
from tests.support.lakes import Reference
from tests.support.logs import Entry
from tests.support.tables import differences, expected_rows, in_order
from tests.support.traces import IMAGES, NAMES
from tests.support.volume import amount, rare, sampled
from tests.support.written import TIME
from tests.unit.fold.histories import LAST, histories, log_of, write_log, write_trace

# Shrinking a log takes minutes; what is found is small enough to read.
UNSHRUNK = (Phase.explicit, Phase.reuse, Phase.generate)
FAST = ("seed1", "seed22")
TOPIC, D0, D1 = Uuid(7, 1), Uuid(8, 1), Uuid(8, -2)
Tables = dict[str, list[dict[str, Any]]]


# TRACES


@pytest.mark.parametrize(
    ("name", "most"),
    sampled([(name, most) for name in NAMES for most in ((None, 97) if name in FAST else (None,))], 2),
)
def test_records_of_a_trace_give_kafkas_images(tmp_path: Path, name: str, most: int | None) -> None:
    """Issue 3, 8: after every 50 operations."""
    expected = write_trace(tmp_path, name)
    tables = engine.replay(tmp_path, most=most)
    assert len(expected) > IMAGES
    for image in expected:
        cordons = any("cordonedLogDirs" in broker for broker in image["brokers"])
        engine_image = engine.image(tables, image["offset"], cordons=cordons)
        assert {key: engine_image[key] for key in image} == image


# RANDOM HISTORIES


def reference_of(log_dir: Path, start: str = "earliest", profile: Profile = KAFKA) -> Reference:
    """The plain reference's tables of a log read by the plain reader."""
    reader = LogReader(MetadataLog.open(log_dir), start="snapshot" if start == "snapshot" else "earliest")
    entries = [
        Entry(
            offset=entry.offset,
            epoch=entry.epoch,
            time=entry.timestamp * 1000,
            batch_offset=entry.header.base_offset,
            value=b"\0\0",
            versioned=entry.record if isinstance(entry.record, VersionedRecord) else None,
            control=None if isinstance(entry.record, VersionedRecord) else "CONTROL",
            snapshot_index=0 if entry.in_snapshot else None,
        )
        for entry in reader
    ]
    return Reference(profile).add(entries)


def sorted_rows(tables: Mapping[str, list[dict[str, Any]]]) -> Tables:
    return {table.name: in_order(table.name, tables[table.name]) for table in DERIVED}


def of_history(reference: Reference) -> Tables:
    return {name: rows for name, rows in expected_rows(reference).items() if name != "records"}


@settings(max_examples=amount(10, 60), phases=UNSHRUNK)
@given(histories(), st.sampled_from([1, 2, 5]), st.integers(1, 4), st.integers(1, 3))
def test_any_legal_history_in_any_split_gives_the_tables_of_the_reference(
    history: list[Record], most: int, shards: int, batch: int
) -> None:
    """docs/spec/replay.md; R-INV-27, R-EVENT-1, R-VOTER-1."""
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        records = [VersionedRecord(record, LAST[type(record)]) for record in history]
        write_log(directory, [records[at : at + batch] for at in range(0, len(records), batch)])
        expected = of_history(reference_of(directory))
        for options in ({"shards": shards}, {"most": most, "shards": shards}):
            assert differences(sorted_rows(engine.replay(directory, **options)), expected) == []  # type: ignore[arg-type]


@settings(max_examples=amount(10, 60), phases=UNSHRUNK)
@given(histories(), st.lists(st.sampled_from(range(10_000)), min_size=1, max_size=3))
def test_any_history_with_records_out_of_place_ends_as_the_model_does(history: list[Record], swaps: list[int]) -> None:
    """R-REPLAY-1: refused at the same offset, or accepted with the same tables."""
    for swap in swaps:
        at = swap % len(history)
        history.insert((swap // 7) % len(history), history.pop(at))
    with tempfile.TemporaryDirectory() as made:
        directory = log_of(Path(made), *history)
        expected: Any
        outcome: Any
        try:
            expected = of_history(reference_of(directory))
        except ReplayViolation as problem:
            expected = problem.offset
        try:
            outcome = sorted_rows(engine.replay(directory, most=1))
        except ReplayViolation as problem:
            outcome = problem.offset
        if isinstance(expected, int) or isinstance(outcome, int):
            assert outcome == expected
        else:
            assert differences(outcome, expected) == []


# REFUSALS

PARTITION = r.PartitionRecord(topic_id=TOPIC, partition_id=0, replicas=(1, 2), isr=(1,), directories=(D0, D1))
CREATED: tuple[Record, ...] = (r.TopicRecord(name="t", topic_id=TOPIC), PARTITION)
BROKER = r.RegisterBrokerRecord(broker_id=1, broker_epoch=5, log_dirs=(D0,))
ILLEGAL: list[tuple[str, tuple[Record, ...]]] = [
    (fold.PROBLEMS[fold.NO_TOPIC], (PARTITION,)),
    (fold.PROBLEMS[fold.NO_TOPIC], (r.PartitionChangeRecord(topic_id=TOPIC),)),
    (fold.PROBLEMS[fold.NO_TOPIC], (r.RemoveTopicRecord(topic_id=TOPIC),)),
    (fold.PROBLEMS[fold.NO_TOPIC], (*CREATED, r.RemoveTopicRecord(topic_id=TOPIC), PARTITION)),
    (fold.PROBLEMS[fold.NO_PARTITION], (*CREATED, r.PartitionChangeRecord(topic_id=TOPIC, partition_id=3))),
    (fold.PROBLEMS[fold.TOPIC_EXISTS], (*CREATED, r.TopicRecord(name="u", topic_id=TOPIC))),
    (
        fold.PROBLEMS[fold.ARITY_RECORD],
        (CREATED[0], r.PartitionRecord(topic_id=TOPIC, replicas=(1, 2), directories=(D0,))),
    ),
    (
        fold.PROBLEMS[fold.ARITY_CHANGE],
        (*CREATED, r.PartitionChangeRecord(topic_id=TOPIC, partition_id=0, replicas=(1, 2), directories=(D0,))),
    ),
    (
        fold.PROBLEMS[fold.ARITY_MERGED],
        (*CREATED, r.PartitionChangeRecord(topic_id=TOPIC, partition_id=0, replicas=(1, 2, 3))),
    ),
    (
        fold.PROBLEMS[fold.ARITY_MERGED],
        (*CREATED, r.PartitionChangeRecord(topic_id=TOPIC, partition_id=0, directories=(D0,))),
    ),
    (fold.PROBLEMS[fold.BAD_RECOVERY], (CREATED[0], r.PartitionRecord(topic_id=TOPIC, leader_recovery_state=-1))),
    (
        fold.PROBLEMS[fold.BAD_RECOVERY],
        (*CREATED, r.PartitionChangeRecord(topic_id=TOPIC, partition_id=0, leader_recovery_state=2)),
    ),
    ("a name that is taken (R-TOPIC-1)", (*CREATED, r.TopicRecord(name="t", topic_id=Uuid(7, 2)))),
    ("a topic that does not exist (R-CLEAR-1)", (*CREATED, r.ClearElrRecord(topic_name="other"))),
    ("not registered (R-BROKER-5)", (r.FenceBrokerRecord(id=1, epoch=5),)),
    ("not registered (R-BROKER-5)", (r.UnregisterBrokerRecord(broker_id=1, broker_epoch=5),)),
    ("broker 1 has epoch 5, the record says", (BROKER, r.UnfenceBrokerRecord(id=1, epoch=4))),
    ("broker 1 has epoch 5, the record says", (BROKER, r.UnregisterBrokerRecord(broker_id=1, broker_epoch=6))),
    ("broker 1 has epoch 5, the record says", (BROKER, r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=6))),
    (
        "fenced is 2, not -1, 0 or 1",
        (BROKER, r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=2)),
    ),
    (
        "inControlledShutdown is -1, not 0 or 1 (R-BROKER-7)",
        (BROKER, r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, in_controlled_shutdown=-1)),
    ),
    ("of broker 1 (R-BROKER-8)", (BROKER, r.RegisterBrokerRecord(broker_id=2, log_dirs=(D1, D0)))),
    (
        "of broker 1 (R-BROKER-8)",
        (
            BROKER,
            r.RegisterBrokerRecord(broker_id=2, broker_epoch=6, log_dirs=(D1,)),
            r.BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=6, log_dirs=(D0,)),
        ),
    ),
    # The engine took it for a record without effect.
    ("controller 100 is not registered (R-CONTROLLER-2)", (r.UnregisterControllerRecord(controller_id=100),)),
    (
        "controller 100 is not registered (R-CONTROLLER-2)",
        (
            r.RegisterControllerRecord(controller_id=100),
            r.UnregisterControllerRecord(controller_id=100),
            r.UnregisterControllerRecord(controller_id=100),
        ),
    ),
]


@pytest.mark.parametrize("most", [None, 1])
@pytest.mark.parametrize(("problem", "history"), ILLEGAL)
def test_illegal_history_is_refused_at_its_record(
    tmp_path: Path, problem: str, history: tuple[Record, ...], most: int | None
) -> None:
    """R-REPLAY-1: at the offset at which the model refuses it, with what came before and after it."""
    noise = (r.NoOpRecord(), r.FeatureLevelRecord(name="a", feature_level=1))
    log_of(tmp_path, *noise, *history, *noise)
    with pytest.raises(ReplayViolation) as of_model:
        list(images(LogReader(MetadataLog.open(tmp_path))))
    with pytest.raises(ReplayViolation) as of_engine:
        engine.replay(tmp_path, most=most)
    assert of_engine.value.offset == of_model.value.offset == len(noise) + len(history) - 1
    assert problem in of_engine.value.problem


def test_every_refusal_of_the_fold_has_a_case() -> None:
    cases = {problem for problem, _ in ILLEGAL}
    assert set(fold.PROBLEMS.values()) <= cases


@pytest.mark.parametrize(
    "records",
    [
        (PARTITION,),
        (CREATED[0], CREATED[0]),
        (CREATED[0], r.TopicRecord(name="t", topic_id=Uuid(7, 2))),
        (CREATED[0], r.PartitionChangeRecord(topic_id=TOPIC, partition_id=0)),
        (r.RemoveTopicRecord(topic_id=TOPIC),),
        (r.ClearElrRecord(topic_name="t"),),
        (r.FenceBrokerRecord(id=1, epoch=5),),
        (BROKER, r.RegisterBrokerRecord(broker_id=2, log_dirs=(D0,))),
        (r.UnregisterControllerRecord(controller_id=100),),
    ],
)
def test_snapshot_that_leans_on_the_state_before_is_refused(tmp_path: Path, records: tuple[Record, ...]) -> None:
    """R-REPLAY-2: a snapshot stands for itself."""
    log_of(tmp_path, BROKER, *CREATED)
    snapshot = [VersionedRecord(record, LAST[type(record)]) for record in records]
    with pytest.raises(ReplayViolation) as of_engine:
        replay_onto(tmp_path, snapshot, 9)
    with pytest.raises(ReplayViolation) as of_model:
        list(images(LogReader(MetadataLog.open(tmp_path / "second"))))
    assert of_engine.value.offset == of_model.value.offset == 8


# SNAPSHOT ONTO A STATE


def replay_onto(first: Path, records: Iterable[VersionedRecord], end_offset: int) -> Tables:
    """Replay a log; then go on where the log begins later, with a snapshot of these records before it."""
    run = engine.Run()
    planner = Planner(LogDir(str(first)))
    position = planner.advance(Position(0))
    run.add(planner.slices(Position(0), position))
    second = first / "second"
    second.mkdir()
    write_snapshot(second, records, end_offset=end_offset, epoch=1, timestamp=TIME)
    write_log(second, [[VersionedRecord(r.NoOpRecord(), 0)]], base_offset=end_offset)
    planner = Planner(LogDir(str(second)))
    end = planner.advance(position)
    assert end.snapshot == end_offset > position.offset
    run.add(planner.slices(position, end))
    return run.tables


@settings(max_examples=amount(8, 50), phases=UNSHRUNK)
@given(histories(), histories(most=15))
def test_snapshot_onto_a_state_keeps_what_it_repeats_and_ends_the_rest(
    before: list[Record], after: list[Record]
) -> None:
    """R-REPLAY-2: the snapshot of another history, on top of the first."""
    image = Image()
    for record in [*before, *_applicable(before, after)]:
        image = image.apply(record, 0)
    with tempfile.TemporaryDirectory() as made:
        directory = log_of(Path(made), *before)
        end = len(before) + 30
        entries = [
            Entry(at, 1, (TIME + at) * 1000, at, b"", versioned=VersionedRecord(record, 0))
            for at, record in enumerate(before)
        ] + [
            Entry(end - 1, 1, TIME * 1000, at, b"\0\0", versioned=versioned, snapshot_index=at)
            for at, versioned in enumerate(_all(image))
        ]
        expected = of_history(Reference().add(entries))
        assert differences(sorted_rows(replay_onto(directory, _all(image), end)), expected) == []


def _all(image: Image) -> list[VersionedRecord]:
    return list(
        snapshot_records(replace(image, features={"metadata.version": 27, "eligible.leader.replicas.version": 1}))
    )


def _applicable(before: list[Record], after: list[Record]) -> list[Record]:
    image = Image()
    for record in before:
        image = image.apply(record, 0)
    kept = []
    for record in after:
        try:
            image = image.apply(record, 0)
        except JbodError:
            continue
        kept.append(record)
    return kept


def test_snapshot_ends_what_it_does_not_repeat_with_resync(tmp_path: Path) -> None:
    """R-REPLAY-2: rows that go on are one row, all others end at the snapshot's last offset."""
    other = r.TopicRecord(name="u", topic_id=Uuid(7, 2))
    log_of(tmp_path, BROKER, *CREATED, other)
    moved = r.PartitionRecord(topic_id=TOPIC, partition_id=0, replicas=(1, 2), isr=(1,), directories=(D0, D0))
    snapshot = [VersionedRecord(record, LAST[type(record)]) for record in (CREATED[0], moved)]
    tables = replay_onto(tmp_path, snapshot, 9)
    assert [(row["broker_id"], row["to_offset"], row["ended_by"]) for row in tables["brokers"]] == [(1, 8, "resync")]
    assert [(row["from_offset"], row["to_offset"], row["ended_by"]) for row in tables["directories"]] == [
        (0, 8, "resync")
    ]
    slots = [
        (row["replica_index"], row["from_offset"], row["to_offset"], row["from_snapshot"], row["ended_by"])
        for row in in_order("assignments", tables["assignments"])
    ]
    assert slots == [(0, 2, None, False, None), (1, 2, 8, False, "resync"), (1, 8, None, True, None)]


def test_snapshot_that_says_a_partition_twice_counts_the_last(tmp_path: Path) -> None:
    """R-PART-1, R-REPLAY-2: no row that was true at no offset."""
    again = r.PartitionRecord(topic_id=TOPIC, partition_id=0, replicas=(2, 3), isr=(2,), directories=(D1, D0))
    changed = r.PartitionChangeRecord(topic_id=TOPIC, partition_id=0, leader=3)
    fenced = r.FenceBrokerRecord(id=1, epoch=5)
    records = [VersionedRecord(record, LAST[type(record)]) for record in (BROKER, *CREATED, again, changed, fenced)]
    write_snapshot(tmp_path, records, end_offset=9, epoch=1, timestamp=TIME)
    tables = sorted_rows(engine.replay(tmp_path))
    assert differences(tables, of_history(reference_of(tmp_path))) == []
    assert all(row.get("to_offset") is None for rows in tables.values() for row in rows)


def test_bytes_that_cannot_be_read_are_told_before_what_follows_from_it() -> None:
    """A shard that missed the records of a damaged slice may find fault with the next ones."""
    errors = [ReplayViolation(3, "no topic"), MalformedLog("b", 9, "cut"), MalformedLog("c", 5, "CRC")]
    rows = [payload for *_, payload in map(error_row, errors)]
    with pytest.raises(MalformedLog, match="c: offset 5: CRC"):
        batch_of("lake", rows, -1)
    with pytest.raises(ReplayViolation, match="offset 3"):
        batch_of("lake", rows[:1], -1)


# PROFILES

CELLS = [
    # assigned id, directories of the broker, offline by (kafka, kip858): the table of differences, cell by cell
    *((D0, dirs, (False, False)) for dirs in ((D0,), (D0, D1), (D1, D0, Uuid(8, 9)))),
    (D0, (), (False, False)),
    (D0, (D1,), (True, False)),
    (D0, (D1, Uuid(8, 9)), (True, True)),
    ("unassigned", (), (False, False)),
    ("unassigned", (D1,), (False, False)),
    ("unassigned", (D1, D0), (False, True)),
    ("migrating", (), (False, False)),
    ("migrating", (D1,), (False, False)),
    ("migrating", (D1, D0), (False, True)),
    ("lost", (), (True, True)),
    ("lost", (D1,), (True, True)),
    ("lost", (D1, D0), (True, True)),
    (Uuid(0, 3), (), (False, False)),
    (Uuid(0, 99), (D1,), (True, False)),
    (Uuid(0, 3), (D1, D0), (True, True)),
]


@pytest.mark.parametrize("ids", [KAFKA_IDS, rare(KIP858_IDS)], ids=lambda table: table.name)
@pytest.mark.parametrize("profile", [KAFKA, KIP858], ids=lambda profile: profile.name)
@pytest.mark.parametrize(("assigned", "dirs", "offline"), CELLS)
def test_offline_rule_of_every_cell(
    tmp_path: Path, ids: Any, profile: Profile, assigned: Any, dirs: Any, offline: Any
) -> None:
    """R-OFF-4, R-OFF-5, R-OFF-6, R-OFF-7, R-OFF-8, R-ID-4: by profile, and by the log's table of reserved ids."""
    directory = getattr(ids, assigned) if isinstance(assigned, str) else assigned
    log_of(
        tmp_path,
        r.RegisterBrokerRecord(broker_id=1, broker_epoch=1, fenced=False, log_dirs=dirs),
        r.TopicRecord(name="t", topic_id=TOPIC),
        r.PartitionRecord(topic_id=TOPIC, partition_id=0, replicas=(1,), isr=(1,), directories=(directory,)),
    )
    image = engine.image(engine.replay(tmp_path, profile=profile.name, ids=ids.name), 2)
    assert image["partitions"][0]["offlineReplicas"] == [1] * offline[profile is KIP858]
    *_, (_, expected) = images(LogReader(MetadataLog.open(tmp_path)), image=Image(ids=ids), profile=profile)
    assert image == image_as_json(expected, 2, profile=profile, cordons=False)


@settings(max_examples=amount(8, 50), phases=UNSHRUNK)
@given(
    histories(), st.sampled_from([KAFKA_IDS, KIP858_IDS]), st.sampled_from([KAFKA, KIP858]), st.sampled_from([None, 3])
)
def test_any_history_under_any_profile_and_table_of_ids_gives_the_models_image(
    history: list[Record], ids: Any, profile: Profile, most: int | None
) -> None:
    """R-PART-3, R-BROKER-6, R-ID-4."""
    with tempfile.TemporaryDirectory() as made:
        directory = log_of(Path(made), *history)
        refused = None
        expected = []
        try:
            for offset, image in images(LogReader(MetadataLog.open(directory)), image=Image(ids=ids), profile=profile):
                expected.append(image_as_json(image, offset, profile=profile, cordons=False))
        except ReplayViolation as problem:
            refused = problem.offset
        try:
            tables = engine.replay(directory, profile=profile.name, ids=ids.name, most=most)
        except ReplayViolation as problem:
            assert problem.offset == refused
        else:
            assert refused is None
            for image_json in expected:
                assert engine.image(tables, image_json["offset"]) == image_json
