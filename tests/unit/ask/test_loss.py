"""Losses from the tables: equal to the model's, record by record."""

from __future__ import annotations

import gzip
import json
import random
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from jbod_model.formats.codec import encode
from jbod_model.formats.log import LogEntry, LogReader, MetadataLog, write_snapshot
from jbod_model.formats.records import (
    NoOpRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    TopicRecord,
    VersionedRecord,
)
from jbod_model.ids import KAFKA_IDS, Uuid
from jbod_model.loss.copies import Copy, Left, Loss
from jbod_model.loss.fate import Fate
from jbod_model.loss.log import Key, fates
from jbod_model.replay.image import Image, snapshot_records
from lab.conformance.trace import recorded_records
from pipelines.ask.loss import Followed, followed
from pipelines.lake.reader import Lake
from tests.support.images import brokers, images, one_topic
from tests.support.images import partition as placed
from tests.support.lakes import in_memory
from tests.support.logs import Entry
from tests.support.paths import KAFKAS, TRACES, metadata_dir
from tests.support.volume import amount, rare, sampled
from tests.support.written import TIME
from tests.unit.check.story import Story, disk, topic_id
from tests.unit.fold.histories import LAST, histories, write_log
from tests.unit.model.loss.loss_operations import (
    WEIGHTS,
    Operation,
    expand,
    expire,
    fetch,
    heartbeat,
    kill,
    report,
    run,
    shrink,
    shut_down,
    start,
    write,
)
from tests.unit.model.loss.loss_restarts import MORE
from tests.unit.model.loss.loss_world import World
from tests.unit.model.loss.test_loss_property import SEEDS

A, C = Uuid(1, 1000), Uuid(2, 1000)
Losses = Mapping[tuple[str, int], tuple[Loss, ...]]


@pytest.fixture(autouse=True)
def _lakes_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the queries select partitions, as they do for more states than these lakes have."""
    monkeypatch.setattr("pipelines.ask.loss_sql.FEW_STATES", -1)


def entries_of(log_dir: Path) -> list[Entry]:
    """What the model reads, as entries."""
    return as_entries(LogReader(MetadataLog.open(log_dir)))


def as_entries(entries: Iterable[LogEntry]) -> list[Entry]:
    return [
        Entry(
            offset=entry.offset,
            epoch=entry.epoch,
            time=entry.timestamp * 1000,
            batch_offset=entry.header.base_offset,
            value=encode(entry.record) if isinstance(entry.record, VersionedRecord) else b"\0\0",
            versioned=entry.record if isinstance(entry.record, VersionedRecord) else None,
            control=None if isinstance(entry.record, VersionedRecord) else "CONTROL",
            snapshot_index=index if entry.in_snapshot else None,
        )
        for index, entry in enumerate(entries)
    ]


def of_model(log_dir: Path) -> Iterator[tuple[int, Losses]]:
    """The losses after each append."""
    for offset, fate_of in fates(LogReader(MetadataLog.open(log_dir))):
        yield (
            offset,
            {(str(topic_id), number): fate.losses for (topic_id, number), fate in fate_of.items() if fate.losses},
        )


def of_engine(lake: Lake, offset: int) -> Losses:
    partitions = followed(replace(lake, offset=offset))
    return {(partition.topic_id, partition.partition): partition.losses for partition in partitions if partition.losses}


@pytest.mark.parametrize("kafka", sampled(KAFKAS, 1))
def test_losses_of_real_clusters_are_those_of_the_model_at_any_offset(kafka: str) -> None:
    """docs/spec/loss.md."""
    lake = in_memory(entries_of(metadata_dir(kafka)))
    for number, (offset, expected) in enumerate(of_model(metadata_dir(kafka))):
        if number % amount(180, 20) == 0 or offset == lake.offset:
            assert of_engine(lake, offset) == expected, offset


@pytest.mark.parametrize("until", [rare(60), 250])
def test_losses_after_a_snapshot_in_the_place_of_unread_records_are_those_of_the_model(until: int) -> None:
    """R-LOSS-8: the log was read up to an offset, and again from a newer snapshot on."""
    log = MetadataLog.open(metadata_dir("kafka-4.1.2"))
    read = [entry for entry in LogReader(log) if entry.offset <= until]
    read += [entry for entry in LogReader(log, start="snapshot") if entry.offset > until]
    lake = in_memory(as_entries(read))
    *_, (offset, fate_of) = fates(read)
    assert of_engine(lake, offset) == {
        (str(key[0]), key[1]): fate.losses for key, fate in fate_of.items() if fate.losses
    }


@settings(max_examples=amount(8, 50), deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(images())
@example(one_topic(placed((1, KAFKA_IDS.lost), (2, C), isr=(1,), leader=-1), registered=brokers((A,), (C,))))
def test_losses_since_the_snapshot_that_a_log_begins_with_are_those_of_the_model(image: Image) -> None:
    """Cause: a replica in LOST has no directory before in such a log, and a large lake did not look at it."""
    with tempfile.TemporaryDirectory() as made:
        write_snapshot(Path(made), snapshot_records(image), end_offset=10, epoch=1, timestamp=TIME)
        write_log(Path(made), [[VersionedRecord(NoOpRecord(), 0)]], base_offset=10)
        *_, (offset, expected) = of_model(Path(made))
        assert of_engine(in_memory(entries_of(Path(made))), offset) == expected


def trace_batches(name: str, most: int) -> Iterator[tuple[VersionedRecord, ...]]:
    with gzip.open(TRACES / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            if line["op"] != "image" and (records := recorded_records(line)) and (most := most - len(records)) > 0:
                yield records


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "most"), [rare("seed1", 700), ("seed4", 700)])
def test_losses_under_kafkas_own_controller_are_those_of_the_model(tmp_path: Path, name: str, most: int) -> None:
    write_log(tmp_path, trace_batches(name, most))
    lake = in_memory(entries_of(tmp_path))
    count = 0
    for number, (offset, expected) in enumerate(of_model(tmp_path)):
        if number % amount(180, 60) == 0 or offset == lake.offset:
            assert of_engine(lake, offset) == expected, offset
            count += len(expected)
    assert count


class _Records:
    """What a simulated cluster appends."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def take(self, records: Sequence[Any]) -> None:
        base = len(self.entries)
        for record in (getattr(each, "record", each) for each in records):
            versioned = VersionedRecord(record, LAST[type(record)])
            offset = len(self.entries)
            self.entries.append(Entry(offset, 1, base, base, encode(versioned), versioned=versioned))


def test_partition_with_the_shape_of_another_has_its_own_offsets() -> None:
    left = Left(directories=frozenset({Uuid(9, 1)}), report=3, placement=False)
    copy = Copy(broker_id=1, since=1, level="complete", missed=3, left=(left,), away=4)
    shape = Fate(copies={1: copy}, losses=(Loss(kind="lost", offset=4, copies=(copy,), went_on=5, until=6),))
    partition = Followed("id", "t", 1, shape, {1: 11, 3: 13, 4: 14, 5: 15})
    own = replace(copy, since=11, missed=13, left=(replace(left, report=13),), away=14)
    assert partition.copies == {1: own}
    assert partition.losses == (Loss(kind="lost", offset=14, copies=(own,), went_on=15, until=6),)


@pytest.mark.parametrize("weights", [WEIGHTS, MORE], ids=["", "restarts"])
@pytest.mark.parametrize("seed", [*sampled(range(20), 2), *sampled(SEEDS, 2)])
def test_losses_of_a_simulated_cluster_are_those_of_the_model(
    seed: int, weights: Sequence[tuple[Operation, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, fate_of = simulated(seed, weights, monkeypatch)
    assert of_engine(lake, lake.offset) == {
        (str(topic_id), number): fate.losses for (topic_id, number), fate in fate_of.items() if fate.losses
    }


def simulated(
    seed: int, weights: Sequence[tuple[Operation, int]], monkeypatch: pytest.MonkeyPatch, steps: int = 60
) -> tuple[Lake, Mapping[Key, Fate]]:
    """The lake of a simulated cluster, and the model's fates."""
    taken, append = _Records(), World.append

    def recorded(world: World, *records: Any) -> None:
        taken.take(records)
        append(world, *records)

    with monkeypatch.context() as patch:
        patch.setattr(World, "append", recorded)
        fate_of = run(seed, weights=weights, steps=steps).fates.of
    return in_memory(taken.entries), fate_of


OFTEN: Mapping[Operation, int] = {
    start: 40, heartbeat: 40, expand: 60, shut_down: 14, report: 14, expire: 8, fetch: 8, kill: 6, write: 6, shrink: 4
}  # fmt: skip
RESTARTS = [(operation, OFTEN.get(operation, 1)) for operation, _ in MORE]
"""Mostly restarts, after which all replicas are in sync again; now and then anything else."""


def test_fates_of_partitions_that_rested_between_restarts_are_those_of_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The states of a rest are not followed; what comes before and after it is."""
    rested = 0
    for seed in range(amount(8, 140)):
        lake, fate_of = simulated(seed, RESTARTS, monkeypatch, steps=160)
        if fate_of:
            assert_fates_are(lake, fate_of, f"seed {seed}")
            rested += lake.query("SELECT count(*) FROM loss_rests")[0][0]
    assert rested >= amount(3, 50)


def assert_fates_are(lake: Lake, fate_of: Mapping[Key, Fate], label: str = "") -> None:
    """All partitions are followed, whatever happened to them."""
    for partition in followed(lake, also=f"SELECT DISTINCT topic_id, partition FROM {lake.scan('partitions')}"):
        fate = fate_of[Uuid.parse(partition.topic_id), partition.partition]
        assert partition.losses == fate.losses, label
        assert partition.copies == fate.copies, label
        gone, expected = ([(copy.broker_id, copy.where) for copy in of.gone] for of in (partition.shape, fate))
        assert gone == expected, label


@settings(max_examples=amount(8, 50), deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(histories(60), st.integers(1, 3))
def test_losses_of_any_history_are_those_of_the_model(history: list[Record], batch: int) -> None:
    with tempfile.TemporaryDirectory() as made:
        records = [VersionedRecord(record, LAST[type(record)]) for record in history]
        write_log(Path(made), [records[at : at + batch] for at in range(0, len(records), batch)])
        lake = in_memory(entries_of(Path(made)))
        *_, (offset, expected) = of_model(Path(made))
        assert of_engine(lake, offset) == expected


def test_record_that_reorders_replicas_and_names_a_directory_is_a_report_of_it(tmp_path: Path) -> None:
    """R-COPY-12. The engine took only records that leave the order as it is for reports."""
    topic, other = Uuid(9, 1), Uuid(3, 9)
    placed = PartitionRecord(
        topic_id=topic, partition_id=0, replicas=(1, 3), isr=(1, 3), leader=1, leader_epoch=0, partition_epoch=0
    )
    history: list[Record] = [
        TopicRecord(name="t", topic_id=topic),
        RegisterBrokerRecord(
            broker_id=3, broker_epoch=1, incarnation_id=Uuid(5, 1), fenced=False, log_dirs=(Uuid(3, 1),)
        ),
        placed,
        replace(placed, replicas=(3,), isr=()),
        replace(placed, replicas=(1, 3), isr=(3,), directories=(Uuid(1, 1), other)),
        TopicRecord(name="later", topic_id=Uuid(9, 2)),
    ]
    write_log(tmp_path, [[VersionedRecord(record, LAST[type(record)])] for record in history])
    *_, (offset, expected) = of_model(tmp_path)
    ((loss,),) = expected.values()
    assert [(copy.directory, copy.missed) for copy in loss.copies] == [(other, 4)]
    assert of_engine(in_memory(entries_of(tmp_path)), offset) == expected


Step = tuple[str, tuple[Any, ...], dict[str, Any]]
RESTARTED: Step = ("broker", (1, "b"), {"process": 2})
FIRST_PLACED: dict[str, list[Step]] = {
    "in a directory that its broker never had": [RESTARTED, ("assign", ("t", 0, 1, "e"), {})],
    "in the directory that is left": [RESTARTED, ("assign", ("t", 0, 1, "b"), {})],
    "in a directory that came at the restart": [
        ("broker", (1, "be"), {"process": 2}),
        ("assign", ("t", 0, 1, "e"), {}),
    ],
    "in a directory that came later": [RESTARTED, ("left", (1, "be"), {}), ("assign", ("t", 0, 1, "e"), {})],
    "in a directory that its broker registered only afterwards": [
        RESTARTED,
        ("assign", ("t", 0, 1, "e"), {}),
        ("left", (1, "be"), {}),
    ],
    "while its broker is fenced": [
        ("fence", (1,), {}),
        ("assign", ("t", 0, 1, "b"), {}),
        ("broker", (1, "a"), {"process": 2}),
        ("assign", ("t", 0, 1, "a"), {}),
    ],
    "while its broker is fenced, in the directory that is left at its next start": [
        ("fence", (1,), {}),
        ("change", ("t", 0), {"leader": -1}),
        ("assign", ("t", 0, 1, "b"), {}),
        RESTARTED,
        ("change", ("t", 0), {"leader": 1}),
    ],
    "while its broker is fenced, in a directory that its next start adds": [
        ("fence", (1,), {}),
        ("assign", ("t", 0, 1, "e"), {}),
        ("broker", (1, "be"), {"process": 2}),
    ],
    "never: a directory leaves, and the topic is removed": [
        RESTARTED,
        ("change", ("t", 0), {"leader": 1}),
        ("remove", ("t",), {}),
    ],
    "for the second time, after its first directory left": [
        ("assign", ("t", 0, 1, "a"), {}),
        ("left", (1, "b"), {}),
        ("assign", ("t", 0, 1, "unassigned"), {}),
        ("assign", ("t", 0, 1, "b"), {}),
    ],
    "for the second time": [
        ("assign", ("t", 0, 1, "a"), {}),
        ("assign", ("t", 0, 1, "unassigned"), {}),
        RESTARTED,
        ("assign", ("t", 0, 1, "b"), {}),
    ],
}
"""What happens to a replica that was created without a directory, on broker 1 with the directories a and b."""


def write_story(steps: Iterable[Step], folder: Path, sizes: Iterable[int] = ()) -> None:
    """Writes the log of a story, in appends with these numbers of records, and of one record after them."""
    story = Story()
    for name, arguments, named in steps:
        getattr(story, name)(*arguments, **named)
    records = iter([entry.versioned for entry in story.entries if entry.versioned is not None])
    appends = [[*islice(records, size)] for size in sizes] + [[record] for record in records]
    write_log(folder, [append for append in appends if append])


def losses_of_both(steps: Iterable[Step], folder: Path, sizes: Iterable[int] = ()) -> tuple[Losses, Losses]:
    """The losses of a story from the tables, and those of the model. ``sizes`` as for ``write_story``."""
    write_story(steps, folder, sizes)
    *_, (offset, expected) = of_model(folder)
    return of_engine(in_memory(entries_of(folder)), offset), expected


@pytest.mark.parametrize("steps", sampled(FIRST_PLACED.values(), 5), ids=FIRST_PLACED)
def test_loss_of_a_replica_that_is_first_placed_is_that_of_the_model(steps: list[Step], tmp_path: Path) -> None:
    """R-LOSS-4: most first placements are not looked at one by one; these are."""
    created: list[Step] = [("broker", (1, "ab"), {}), ("topic", ("t", {1: "unassigned"}), {})]
    losses, expected = losses_of_both([*created, *steps], tmp_path)
    assert expected
    assert losses == expected


TOGETHER = (2,)
"""The first two reports are of one append."""
OF_A_NEW_PROCESS: dict[str, tuple[list[Step], Sequence[int], Mapping[str, str]]] = {
    "its next registration lacks the old directory": (
        [("assign", ("t", 0, 1, "e"), {}), ("broker", (1, "be"), {"process": 2})],
        (),
        {"t": "lost"},
    ),
    "its next registration lists the old directory": (
        [("assign", ("t", 0, 1, "e"), {}), ("broker", (1, "abe"), {"process": 2})],
        (),
        {},
    ),
    "another replica is assigned before, in the same append": (
        [("assign", ("u", 0, 1, "b"), {}), ("assign", ("t", 0, 1, "e"), {}), ("broker", (1, "be"), {"process": 2})],
        TOGETHER,
        {"t": "lost", "u": "lost"},
    ),
    "another replica was assigned before, in another append: a move": (
        [("assign", ("u", 0, 1, "b"), {}), ("assign", ("t", 0, 1, "e"), {}), ("broker", (1, "be"), {"process": 2})],
        (),
        {"t": "lost"},
    ),
    "another replica is assigned later": (
        [("assign", ("t", 0, 1, "e"), {}), ("assign", ("u", 0, 1, "b"), {}), ("broker", (1, "be"), {"process": 2})],
        (),
        {"t": "lost", "u": "lost"},
    ),
    "the broker registered in the same append before": (
        [
            ("broker", (1, "ab"), {"process": 3}),
            ("assign", ("t", 0, 1, "e"), {}),
            ("broker", (1, "be"), {"process": 2}),
        ],
        TOGETHER,
        {"t": "lost"},
    ),
    "the old disk is back before anybody led": (
        [
            ("change", ("t", 0), {"leader": -1}),
            ("assign", ("t", 0, 1, "e"), {}),
            ("broker", (1, "be"), {"process": 2}),
            ("broker", (1, "ab"), {"process": 3}),
            ("assign", ("t", 0, 1, "a"), {}),
        ],
        (),
        {},
    ),
    "the old disk is back after another log was written": (
        [
            ("assign", ("t", 0, 1, "e"), {}),
            ("broker", (1, "be"), {"process": 2}),
            ("change", ("t", 0), {"leader": 1}),
            ("broker", (1, "ab"), {"process": 3}),
            ("assign", ("t", 0, 1, "a"), {}),
        ],
        (),
        {"t": "lost"},
    ),
}
"""Reports of broker 1, with the directories a and b, which is never fenced. Replicas of t and u are in a. Each with the
sizes of the first appends, and with what is told at the end."""
FIRST = 6
"""The level, the broker, and two topics with their partitions."""


@pytest.mark.parametrize("story", sampled(OF_A_NEW_PROCESS, 2))
def test_losses_after_a_report_of_a_directory_that_no_registration_listed_are_those_of_the_model_at_any_offset(
    story: str, tmp_path: Path
) -> None:
    """R-COPY-12, R-COPY-13: a running process names no such directory, so it is a new one."""
    steps, sizes, kinds = OF_A_NEW_PROCESS[story]
    created: list[Step] = [("broker", (1, "ab"), {}), ("topic", ("t", {1: "a"}), {}), ("topic", ("u", {1: "a"}), {})]
    write_story([*created, *steps], tmp_path, [*[1] * FIRST, *sizes])
    lake = in_memory(entries_of(tmp_path))
    for offset, expected in of_model(tmp_path):
        assert of_engine(lake, offset) == expected, offset
    kind_of = {topic: loss.kind for (topic, _), losses in expected.items() for loss in losses if loss.until is None}
    assert kind_of == {str(topic_id(name)): kind for name, kind in kinds.items()}


LED_BY_1: Step = ("change", ("t", 0), {"isr": (1,)})
IN_SYNC: Step = ("change", ("t", 0), {"isr": (1, 2), "leader": 1})
NOT_AT_REST: dict[str, tuple[list[Step], list[int]]] = {
    "a replica that lacks writes leads": (
        [LED_BY_1, ("change", ("t", 0), {"isr": (2,), "leader": 2}), ("change", ("t", 0), {"isr": (1, 2)})],
        [],
    ),
    "a replica is removed and added again": (
        [
            ("change", ("t", 0), {"replicas": (1,), "isr": (1,), "directories": (disk("a"),)}),
            ("change", ("t", 0), {"replicas": (1, 2), "directories": (disk("a"), disk("c"))}),
        ],
        [],
    ),
    "a replica is recreated and moved back": (
        [LED_BY_1, *(("assign", ("t", 0, 2, where), {}) for where in ("lost", "d", "c"))],
        [],
    ),
    "a replica joins while its directory is away": (
        [LED_BY_1, ("left", (2, "d"), {}), IN_SYNC, LED_BY_1, ("left", (2, "cd"), {})],
        [],
    ),
    "a leader is replaced by its own append before anyone can follow it": (
        [("change", ("t", 0), {"isr": (1,)}), ("change", ("t", 0), {"leader": 1})],
        [1, 2],
    ),
    "a copy that is not complete stays in sync": (
        [("broker", (2, "d"), {"process": 2}), ("assign", ("t", 0, 2, "d"), {}), IN_SYNC],
        [],
    ),
}
"""What happens between two states with all replicas in sync, and the numbers of records of its appends."""


@pytest.mark.parametrize("between", sampled(NOT_AT_REST, 3))
def test_partition_to_which_more_than_restarts_happened_is_followed_through_it(between: str, tmp_path: Path) -> None:
    steps, sizes = NOT_AT_REST[between]
    begun: list[Step] = [("broker", (1, "ab"), {}), ("broker", (2, "cd"), {}), ("topic", ("t", {1: "a", 2: "c"}), {})]
    after: list[Step] = [IN_SYNC, *(("change", ("t", 0), {"isr": isr, "leader": 2}) for isr in ((2,), (1, 2)))]
    write_story([*begun, IN_SYNC, *steps, *after], tmp_path, [*[1] * 6, *sizes])
    *_, (_, fate_of) = fates(LogReader(MetadataLog.open(tmp_path)))
    assert_fates_are(in_memory(entries_of(tmp_path)), fate_of)


def short_story(draw: random.Random) -> list[Step]:
    """One or two brokers, a partition, and up to seven records about them."""
    placed = {1: draw.choice(["unassigned", "unassigned", "a"])}
    steps: list[Step] = [("broker", (1, draw.choice(["a", "ab", "ab"])), {})]
    if draw.random() < 0.5:
        steps.append(("broker", (2, draw.choice(["c", "cd"])), {}))
        placed[2] = draw.choice(["unassigned", "c"])
    steps.append(("topic", ("t", placed), {}))
    for process in range(2, draw.randint(4, 9)):
        broker = draw.choice([1, *placed])
        names = "abe" if broker == 1 else "cdf"
        some = "".join(draw.sample(names, draw.randint(1, 3)))
        where = draw.choice([*names, *names, "unassigned", "lost", "migrating"])
        state: dict[str, Any] = draw.choice([{"leader": broker}, {"leader": -1}, {"isr": (broker,), "leader": broker}])
        records: list[Step] = [
            ("broker", (broker, some), {"process": process, "fenced": draw.random() < 0.6}),
            ("left", (broker, some), {}),
            ("fence", (broker, draw.random() < 0.5), {}),
            ("assign", ("t", 0, broker, where), {}),
            ("assign", ("t", 0, broker, where), {}),
            ("change", ("t", 0), state),
        ]
        steps.append(draw.choice(records))
    return steps


def test_losses_of_short_stories_are_those_of_the_model(tmp_path: Path) -> None:
    stories_with_loss = 0
    for seed in range(amount(14, 1_000)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        draw = random.Random(seed)
        steps = short_story(draw)
        losses, expected = losses_of_both(steps, folder, draw.choices((1, 2, 3), k=draw.choice((0, 4, 12))))
        assert losses == expected, f"seed {seed}"
        stories_with_loss += bool(expected)
    assert stories_with_loss > amount(2, 5)
