"""What it means that a replica has another directory: the tables say what becomes of the model's copies."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import pytest

from jbod_model.formats.log import LogEntry, LogReader, MetadataLog
from jbod_model.formats.records import PartitionChangeRecord, VersionedRecord
from jbod_model.ids import KAFKA_IDS
from jbod_model.loss.fate import Fate
from jbod_model.loss.log import Fates, Key
from jbod_model.replay.transactions import committed
from pipelines.ask.moves import MOVED, RECREATED, RETURNED, UNDECIDED, directory_changes
from tests.support.lakes import in_memory
from tests.support.paths import KAFKAS, metadata_dir
from tests.support.truth import TRUE_KAFKAS
from tests.support.truth import metadata_dir as truth_dir
from tests.support.volume import amount, sampled
from tests.unit.ask.test_loss import Step, entries_of, short_story, write_story

Change = tuple[str, int, int, int]
"""Topic id, partition, broker and offset."""
LOGS = {**{name: metadata_dir(name) for name in KAFKAS}, **{f"{name}-truth": truth_dir(name) for name in TRUE_KAFKAS}}


def of_tables(log_dir: Path) -> dict[Change, str]:
    """While it is undecided, the model has the same copy as before: a move so far."""
    lake = in_memory(entries_of(log_dir))
    rows = lake.query(f"SELECT topic_id, partition, broker_id, at_offset, meaning FROM {directory_changes(lake)}")
    return {tuple(change): MOVED if meaning == UNDECIDED else meaning for *change, meaning in rows}


def of_model(log_dir: Path) -> dict[Change, str]:
    """From the copies of each partition before and after every append."""
    state, meanings = Fates(), dict[Change, str]()
    for in_snapshot, batch in appends(log_dir):
        before = dict(state.of)
        (state.resync if in_snapshot else state.apply)(batch)
        for key, fate in state.of.items():
            was = before.get(key)
            if was is None or was is fate or was.state is None or fate.state is None:
                continue
            for broker in set(was.copies) & set(fate.copies):
                place = (str(key[0]), key[1], broker)
                if meaning := meaning_of(was, fate, broker):
                    meanings[(*place, named_at(batch, key))] = meaning
                    continue
                reports = {(*place, report) for report in recreated_before(was, fate, broker)}
                meanings |= dict.fromkeys(reports & set(meanings), RECREATED)
    return meanings


def appends(log_dir: Path) -> Iterator[tuple[bool, list[LogEntry]]]:
    def append(entry: LogEntry) -> tuple[bool, int]:
        return entry.in_snapshot, -1 if entry.in_snapshot else entry.header.base_offset

    for (in_snapshot, _), group in groupby(committed(LogReader(MetadataLog.open(log_dir))), key=append):
        yield in_snapshot, list(group)


def named_at(batch: Sequence[LogEntry], key: Key) -> int:
    """The offset of the append's record that names the directories of the partition."""
    records = [(entry.offset, entry.record.record) for entry in batch if isinstance(entry.record, VersionedRecord)]
    changes = [(at, record) for at, record in records if isinstance(record, PartitionChangeRecord)]
    return next(
        at for at, change in changes if (change.topic_id, change.partition_id) == key and change.directories is not None
    )


def meaning_of(was: Fate, fate: Fate, broker: int) -> str | None:
    """What became of the copy in the old directory, if the replica has another one now."""
    assert was.state
    assert fate.state
    old = dict(zip(was.state.replicas, was.state.directories, strict=True)).get(broker)
    new = dict(zip(fate.state.replicas, fate.state.directories, strict=True)).get(broker)
    if old is None or new is None or old == new or {*map(KAFKA_IDS.kind, (old, new))} != {"assigned"}:
        return None
    before, after = was.copies[broker], fate.copies[broker]
    if (after.since, old) == (before.since, before.directory):
        return MOVED
    gone = [(copy.broker_id, copy.since, copy.directory) for copy in was.gone]
    return RETURNED if (broker, after.since, new) in gone else RECREATED


def recreated_before(was: Fate, fate: Fate, broker: int) -> list[int]:
    """Offsets of the reports whose process turns out to have recreated the replica: it registers without the directory
    that a report left, or joins the in-sync set before it registers, with a copy in a directory that is not listed."""
    before, registration = was.copies[broker], fate.brokers.get(broker)
    if registration is None or fate.copies[broker].since == before.since:
        return []
    joined = registration.incarnation == was.brokers[broker].incarnation
    return [
        former_place.report
        for former_place in before.left
        if joined or not former_place.directories <= registration.directories
    ]


@pytest.mark.parametrize("log_dir", sampled(LOGS.values(), 3), ids=LOGS)
def test_meaning_of_every_change_of_a_directory_is_that_of_the_model(log_dir: Path) -> None:
    """R-COPY-3, R-COPY-4, R-COPY-12, R-COPY-13."""
    assert of_tables(log_dir) == of_model(log_dir)


def test_meaning_of_changes_in_short_stories_is_that_of_the_model(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    for seed in sorted({*range(amount(20, 1_000))} - {*NOT_OF_KAFKA}):
        folder = tmp_path / str(seed)
        folder.mkdir()
        steps = [step for step in short_story(random.Random(seed)) if not is_taken_back(step)]
        write_story(steps, folder)
        meanings = of_tables(folder)
        assert meanings == of_model(folder), f"seed {seed}"
        counts.update(meanings.values())
    assert counts[MOVED] > amount(2, 5)
    assert counts[RECREATED] > amount(2, 5)


def is_taken_back(step: Step) -> bool:
    """Kafka never takes the directory of a replica back without naming another one."""
    name, arguments, _ = step
    return name == "assign" and arguments[-1] in ("unassigned", "migrating")


NOT_OF_KAFKA = {
    474: "the replica's first report names a disk that is not the one where the log lay; then the old one is back",
    518: "a process reports a directory of a replica, and registers without it",
}
"""Seeds of stories that the model and the tables may judge differently."""
