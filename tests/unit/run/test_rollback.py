"""A log that was rewritten: the lake afterwards equals one that only ever saw the log as it is now."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from deltalake import DeltaTable
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from jbod_model.errors import ReplayViolation, UsageError
from jbod_model.formats import records as r
from jbod_model.formats.log import LogWriter, write_snapshot
from jbod_model.formats.records import Record, VersionedRecord
from jbod_model.ids import Uuid
from jbod_model.replay.image import Image
from pipelines import ask
from pipelines.cli import main
from pipelines.lake.publish import LakeWriter
from pipelines.run import rebuild_states as from_records
from pipelines.run import rollback
from pipelines.run.log_lake import LogLake
from pipelines.run.seed import OF_REQUESTS
from pipelines.source.log_options import LogOptions
from tests.crash import loop
from tests.support import local
from tests.support.paths import metadata_dir
from tests.support.tables import differences, rows_of
from tests.support.volume import amount, rare, sampled
from tests.support.written import TIME
from tests.unit.fold.histories import LAST, histories
from tests.unit.fold.test_fold_histories import UNSHRUNK

LOG = "__cluster_metadata-0"
Batch = tuple[int, Sequence[Record]]
"""Epoch and records."""


def write(directory: Path, batches: Sequence[Batch]) -> Path:
    """A metadata.log.dir with these batches in one segment."""
    writer = LogWriter()
    for number, (epoch, records) in enumerate(batches):
        writer.append(
            [VersionedRecord(record, LAST[type(record)]) for record in records],
            epoch=epoch,
            timestamp=TIME + 10 * number + epoch,
        )
    (directory / LOG).mkdir(parents=True, exist_ok=True)
    (directory / "meta.properties").write_text("version=1\ncluster.id=abcdefghijklmnopqrstuv\nnode.id=1\n")
    writer.write(directory / LOG)
    return directory


def legal(history: Sequence[Record], then: Sequence[Record]) -> list[Record]:
    """Those of ``then`` that may follow on ``history``."""
    image, kept = Image(), []
    for record in history:
        image = image.apply(record, 0)
    for record in then:
        try:
            image = image.apply(record, 0)
        except ReplayViolation:
            continue
        kept.append(record)
    return kept


def ledger_of(lake: Path) -> list[dict[str, object]]:
    rows = DeltaTable(str(lake / "ledger")).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: row["end_offset"])


def check_ledger(lake: Path) -> None:
    """Its rows follow on each other, and the newest names versions that are there."""
    rows = ledger_of(lake)
    assert [row["start_offset"] for row in rows] == [0, *(row["end_offset"] for row in rows[:-1])]
    for name, version in rows[-1]["versions"]:  # type: ignore[attr-defined]
        assert DeltaTable(str(lake / name)).version() == version


@settings(max_examples=amount(2, 24), phases=UNSHRUNK)
@given(histories(), histories(most=15), st.data())
def test_lake_after_any_fork_equals_one_of_the_final_log(
    history: list[Record], other: list[Record], data: st.DataObject
) -> None:
    """Reliability test 5."""
    batch = data.draw(st.integers(1, 3))
    old: list[Batch] = [(1, history[at : at + batch]) for at in range(0, len(history), batch)]
    kept = data.draw(st.integers(1, len(old)))
    common = old[:kept]
    epoch = data.draw(st.integers(1, 3))
    after = legal([record for _, records in common for record in records], other)
    new = common + [(epoch, after[at : at + batch]) for at in range(0, len(after), batch)]
    # Raft's log matching, on which the comparison stands: logs with the same batch are the same up to it.
    assume(all(old[:at] == new[:at] for at in range(min(len(old), len(new))) if old[at] == new[at]))
    most = data.draw(st.sampled_from([None, 4]))
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        local.replay(write(root / "log", old), root / "lake", most=most)
        done = local.replay(write(root / "log", new), root / "lake", most=most)
        # A log that only ends earlier disproves nothing.
        final = new if new != old[: len(new)] else old
        local.replay(write(root / "final", final), root / "fresh")
        assert differences(rows_of(root / "lake"), rows_of(root / "fresh")) == []
        check_ledger(root / "lake")
        shared = sum(len(records) for _, records in common)
        ends = sum(len(records) for _, records in old)
        if done is not None:
            assert done.before == ends
            assert done.offset <= ends
            # A batch that both wrote alike is shared, too.
            assert done.offset >= shared
        else:
            assert new[: len(old)] == old[: len(new)]


def test_log_that_only_ends_earlier_causes_no_rollback_and_is_reported_until_it_catches_up(
    tmp_path: Path,
) -> None:
    """A copy that lags behind, or a controller whose disk was replaced: what it lacks may still be true."""
    batches: list[Batch] = [(1, [record]) for record in [*PLACED, r.NoOpRecord(), r.NoOpRecord()]]
    lake = tmp_path / "lake"
    local.replay(write(tmp_path / "log", batches), lake, most=2)
    before = rows_of(lake)
    for kept, end in ((3, 3), (0, 0), (5, 5), (5, 5), (6, None)):
        assert local.replay(write(tmp_path / "log", batches[:kept]), lake) is None
        assert differences(rows_of(lake), before) == []
        assert ask.status(ask.Lake.open(lake)).log_end_offset == end
    # Three publications, and a row whenever the log was found to end elsewhere.
    assert [row["log_end"] for row in newest_last(lake)] == [None, None, None, 3, 0, 5, None]
    local.replay(write(tmp_path / "log", batches[:4]), lake)
    local.replay(write(tmp_path / "log", [*batches, (1, [r.NoOpRecord()])]), lake)
    assert ask.status(ask.Lake.open(lake)).log_end_offset is None
    assert len(rows_of(lake)["records"]) == 7


def test_log_that_ended_earlier_and_goes_on_otherwise_takes_the_lake_back(tmp_path: Path) -> None:
    batches: list[Batch] = [(1, [r.NoOpRecord()]) for _ in range(6)]
    local.replay(write(tmp_path / "log", batches), tmp_path / "lake", most=2)
    local.replay(write(tmp_path / "log", batches[:3]), tmp_path / "lake")
    local.replay(write(tmp_path / "log", [*batches[:3], (2, [r.NoOpRecord()])]), tmp_path / "lake")
    assert [row["epoch"] for row in rows_of(tmp_path / "lake")["records"]] == [1, 1, 1, 2]
    assert ask.status(ask.Lake.open(tmp_path / "lake")).log_end_offset is None


def test_snapshot_alone_that_ends_before_the_lake_takes_nothing_back_and_status_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log_dir = write(tmp_path / "log", [(1, [record]) for record in PLACED])
    local.replay(log_dir, tmp_path / "lake")
    retained(log_dir, 2, 1, [], PLACED[:2])
    next((log_dir / LOG).glob("*.log")).unlink()
    assert local.replay(log_dir, tmp_path / "lake") is None
    with pytest.raises(SystemExit) as left:
        main.main(["status", "--lake", str(tmp_path / "lake")])
    assert left.value.code == 0
    assert "ended before offsets 2 to 3 at the last run: a later log may contradict them" in capsys.readouterr().out
    assert len(rows_of(tmp_path / "lake")["records"]) == len(PLACED)


def newest_last(lake: Path) -> list[dict[str, object]]:
    """The rows of a ledger in the order in which they were written."""
    return sorted(ledger_of(lake), key=lambda row: row["published_time"])  # type: ignore[arg-type, return-value]


def test_log_that_was_cut_off_takes_the_lake_back_once_it_goes_on_otherwise(tmp_path: Path) -> None:
    batches: list[Batch] = [(1, [r.NoOpRecord()]) for _ in range(6)]
    local.replay(write(tmp_path / "log", batches), tmp_path / "lake", most=2)
    write(tmp_path / "log", [*batches[:3], (2, [BEGIN])])
    notice = str(local.replay(tmp_path / "log", tmp_path / "lake"))
    assert "no longer has what was published as offsets 3 to 5; the lake is rolled back to offset 3" in notice
    assert [row["log_offset"] for row in rows_of(tmp_path / "lake")["records"]] == [0, 1, 2]
    newest = ledger_of(tmp_path / "lake")[-1]
    assert (newest["start_offset"], newest["end_offset"], newest["rolled_back_from"]) == (2, 3, 6)
    assert ask.Lake.open(tmp_path / "lake").offset == 2


def test_log_of_nothing_that_was_read_takes_the_place_of_the_lake_only_on_request(tmp_path: Path) -> None:
    """R-READ-2."""
    batches: list[Batch] = [(1, [r.NoOpRecord()])]
    other: list[Batch] = [(2, [r.NoOpRecord()]), (2, [r.NoOpRecord()])]
    local.replay(write(tmp_path / "log", batches), tmp_path / "lake")
    (tmp_path / "lake" / OF_REQUESTS).mkdir()
    before = rows_of(tmp_path / "lake")
    write(tmp_path / "log", other)
    with pytest.raises(UsageError, match=r"the first of them, 0, where the log has epoch 2 and the lake 1 \(log: off"):
        local.replay(tmp_path / "log", tmp_path / "lake")
    assert rows_of(tmp_path / "lake") == before
    assert str(local.replay(tmp_path / "log", tmp_path / "lake", replace=True)).endswith(
        "offset 0 and continues from there"
    )
    assert len(rows_of(tmp_path / "lake")["records"]) == 2
    # Its requests went with the history they belonged to: they are read again.
    assert not (tmp_path / "lake" / OF_REQUESTS).exists()
    local.replay(nameless(write(tmp_path / "log", batches)), tmp_path / "another")
    with pytest.raises(UsageError, match=r"is not the log that .*: use another --lake, or --replace-history"):
        local.replay(nameless(write(tmp_path / "log", other)), tmp_path / "another")
    local.replay(tmp_path / "log", tmp_path / "another", replace=True)
    assert [row["epoch"] for row in rows_of(tmp_path / "another")["records"]] == [2, 2]


def test_log_of_the_same_offsets_that_no_election_can_have_made_is_refused(tmp_path: Path) -> None:
    """Its beginning is behind a snapshot; what can be compared is of the very epoch of the lake's."""
    log_dir = write(tmp_path / "log", [(2, [record]) for record in [*PLACED, r.NoOpRecord()]])
    local.replay(log_dir, tmp_path / "lake")
    retained(log_dir, 3, 2, [(2, [r.NoOpRecord()]) for _ in range(4)], PLACED[:2])
    with pytest.raises(UsageError, match="differ from the first of them, 3, where the log has epoch 2 and the lake 2"):
        local.replay(log_dir, tmp_path / "lake")
    assert local.replay(log_dir, tmp_path / "lake", replace=True) is not None
    assert {row["log_offset"] for row in rows_of(tmp_path / "lake")["records"]} == {2, 3, 4, 5, 6}


def nameless(log_dir: Path) -> Path:
    (log_dir / "meta.properties").unlink()
    return log_dir


@pytest.mark.parametrize(
    "step", [rare("states_at"), rare("discard_checkpoint"), rare("commit"), "ledger", rare("write_seed"), "take_seed"]
)
def test_run_that_dies_while_it_takes_back_is_made_good_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Readers see the old tables or the new ones, whole."""
    topic, other = r.TopicRecord(name="t", topic_id=Uuid(7, 1)), r.TopicRecord(name="u", topic_id=Uuid(7, 2))
    placed = r.PartitionRecord(topic_id=Uuid(7, 1), partition_id=0, replicas=(1,), isr=(1,))
    moved = r.PartitionChangeRecord(topic_id=Uuid(7, 1), partition_id=0, isr=())
    common: list[Batch] = [(1, [topic]), (1, [placed])]
    local.replay(write(tmp_path / "log", [*common, (1, [moved]), (1, [other])]), tmp_path / "lake")
    before = rows_of(tmp_path / "lake")
    write(tmp_path / "log", [*common, (2, [r.NoOpRecord()])])
    local.replay(tmp_path / "log", tmp_path / "fresh")
    after = rows_of(tmp_path / "fresh")
    calls = 0
    place, name, die_at = {
        "commit": (LakeWriter, "commit", 3),
        "ledger": (LakeWriter, "commit", 4),
    }.get(step, (rollback, step, 1))
    good = getattr(place, name)

    def dies(*arguments: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        if calls == die_at:
            raise KeyboardInterrupt
        return good(*arguments, **options)

    monkeypatch.setattr(place, name, dies)
    with pytest.raises(KeyboardInterrupt):
        local.replay(tmp_path / "log", tmp_path / "lake")
    monkeypatch.undo()
    tables = rows_of(tmp_path / "lake")
    if step in ("write_seed", "take_seed"):
        assert tables["records"] == after["records"][:2]
    else:
        assert differences(tables, before) == []
    local.replay(tmp_path / "log", tmp_path / "lake")
    assert differences(rows_of(tmp_path / "lake"), after) == []


@settings(max_examples=amount(2, 20), phases=UNSHRUNK)
@given(histories(), st.integers(1, 5), st.sampled_from([1, 3, 1000]))
def test_state_made_again_from_the_records_goes_on_as_if_never_lost(
    history: list[Record], cuts: int, most: int
) -> None:
    """Every run of ``local.replay`` begins with the state of ``states_at``."""
    batches: list[Batch] = [(1, [record]) for record in history]
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        for part in range(1, cuts + 1):
            local.replay(write(root / "log", batches[: len(batches) * part // cuts + 1]), root / "lake")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rollback, "states_at", partial(from_records.states_at, max_records=most))
            local.replay(write(root / "log", batches), root / "lake")
        local.replay(root / "log", root / "fresh")
        assert differences(rows_of(root / "lake"), rows_of(root / "fresh")) == []


# BEHIND RETENTION

TOPIC = Uuid(7, 1)
PLACED: list[Record] = [
    r.TopicRecord(name="t", topic_id=TOPIC),
    r.PartitionRecord(topic_id=TOPIC, partition_id=0, replicas=(1,), isr=(1,)),
    r.TopicRecord(name="gone", topic_id=Uuid(7, 2)),
    r.PartitionRecord(topic_id=Uuid(7, 2), partition_id=0, replicas=(1,), isr=(1,)),
]


def retained(log_dir: Path, begins: int, epoch: int, batches: Sequence[Batch], records: Sequence[Record]) -> Path:
    """A log that begins with a snapshot of ``records``, all that came before is deleted."""
    for path in (log_dir / LOG).glob("*"):
        path.unlink()
    writer = LogWriter(base_offset=begins)
    for number, (of, kept) in enumerate(batches):
        values = [VersionedRecord(record, LAST[type(record)]) for record in kept]
        writer.append(values, epoch=of, timestamp=TIME + 1000 + number)
    writer.write(log_dir / LOG)
    snapshot_records = [VersionedRecord(record, LAST[type(record)]) for record in records]
    write_snapshot(log_dir / LOG, snapshot_records, end_offset=begins, epoch=epoch, timestamp=TIME + 999)
    return log_dir


def test_topic_that_was_made_anew_behind_retention_is_another_topic(tmp_path: Path) -> None:
    """Its history went on as if its replicas had another order."""
    log_dir = write(tmp_path / "log", [(1, [record]) for record in PLACED])
    local.replay(log_dir, tmp_path / "lake")
    anew = [
        r.TopicRecord(name="gone", topic_id=Uuid(7, 3)),
        r.PartitionRecord(topic_id=Uuid(7, 3), partition_id=0, replicas=(1,), isr=(1,)),
    ]
    retained(log_dir, 50, 2, [(2, [r.NoOpRecord()])], [*PLACED[:2], *anew])
    local.replay(log_dir, tmp_path / "lake")
    events = ask.history(ask.Lake.open(tmp_path / "lake"), "gone-0").events
    of_topic = [event.what for event in events if event.offset == 49 and not event.what.startswith("replica on")]
    assert [what.partition(":")[0] for what in of_topic] == [
        "gone by this snapshot",
        f"found in a snapshot as topic {Uuid(7, 3)}",
    ]


def test_reader_behind_retention_goes_on_from_the_snapshot_and_does_not_know_what_was_between(tmp_path: Path) -> None:
    """Reliability test 6."""
    log_dir = write(tmp_path / "log", [(1, [record]) for record in PLACED])
    local.replay(log_dir, tmp_path / "lake")
    retained(log_dir, 50, 2, [(2, [r.NoOpRecord()])], PLACED[:2])
    assert local.replay(log_dir, tmp_path / "lake") is None
    rows = rows_of(tmp_path / "lake")["assignments"]
    assert [(row["topic"], row["from_offset"], row["to_offset"], row["ended_by"]) for row in rows] == [
        ("t", 1, None, None),
        ("gone", 3, 49, "resync"),
    ]
    assert [row["from_snapshot"] for row in ledger_of(tmp_path / "lake")] == [None, 50]
    events = [(event.offset, event.what) for event in ask.history(ask.Lake.open(tmp_path / "lake"), "gone-0").events]
    assert (49, "gone by this snapshot: when it was removed was never read") in events
    for known in (3, 49, 50):
        assert ask.Lake.open(tmp_path / "lake", at_offset=known).offset == known
    for unknown in (4, 48):
        with pytest.raises(
            UsageError, match=f"offset {unknown} was never read: the log went from 3 to the snapshot at 49"
        ):
            ask.Lake.open(tmp_path / "lake", at_offset=unknown)


@pytest.mark.parametrize("begins", sampled([0, 2, None], 1))
def test_snapshot_after_the_end_of_the_log_is_gone_on_with(tmp_path: Path, begins: int | None) -> None:
    """R-LOG-4: it was not looked at, and the answer was that of the log's end, without a word. ``begins``: the first
    offset of the log beside it; None: there is only the snapshot."""
    log_dir = write(tmp_path / "log", [(1, [record]) for record in PLACED])
    local.replay(log_dir, tmp_path / "lake")
    if begins != 0:
        for path in (log_dir / LOG).glob("*"):
            path.unlink()
    if begins:
        writer = LogWriter(base_offset=begins)
        for number, record in enumerate(PLACED[begins:], begins):
            writer.append([VersionedRecord(record, LAST[type(record)])], epoch=1, timestamp=TIME + 10 * number + 1)
        writer.write(log_dir / LOG)
    state = [VersionedRecord(record, LAST[type(record)]) for record in PLACED[:2]]
    write_snapshot(log_dir / LOG, state, end_offset=50, epoch=1, timestamp=TIME + 999)
    names = ["lake", "fresh"]
    for name in names:
        local.replay(log_dir, tmp_path / name)
        assert ask.Lake.open(tmp_path / name).offset == 49
        assert local.replay(log_dir, tmp_path / name) is None, "and again nothing is taken back"
    assert LogLake.of(LogOptions(path=str(log_dir))).offset == 49
    if begins == 0:
        assert LogLake.of(LogOptions(path=str(log_dir)), 2).offset == 2
    retained(log_dir, 50, 1, [(1, [r.NoOpRecord()])], PLACED[:2])
    for name in names:
        assert local.replay(log_dir, tmp_path / name) is None
        assert ask.Lake.open(tmp_path / name).offset == 50
        open_topics = {row["topic"] for row in rows_of(tmp_path / name)["partitions"] if row["to_offset"] is None}
        assert open_topics == {"t"}


def test_fork_after_a_snapshot_is_taken_back_to_it(tmp_path: Path) -> None:
    other = r.TopicRecord(name="new", topic_id=Uuid(7, 3))
    log_dir = write(tmp_path / "log", [(1, [record]) for record in PLACED])
    for name in ("lake", "fresh"):
        local.replay(log_dir, tmp_path / name)
    retained(log_dir, 50, 2, [(2, [r.NoOpRecord()]), (2, [r.RemoveTopicRecord(topic_id=TOPIC)])], PLACED[:2])
    local.replay(log_dir, tmp_path / "lake")
    retained(log_dir, 50, 2, [(2, [r.NoOpRecord()]), (3, [other]), (3, [r.NoOpRecord()])], PLACED[:2])
    done = local.replay(log_dir, tmp_path / "lake")
    assert done is not None
    assert (done.offset, done.before) == (51, 52)
    local.replay(log_dir, tmp_path / "fresh")
    assert differences(rows_of(tmp_path / "lake"), rows_of(tmp_path / "fresh")) == []


@pytest.mark.exhaustive
def test_fork_of_a_lake_that_began_with_a_snapshot_inside_its_log_is_rolled_back_no_further(tmp_path: Path) -> None:
    """Found by kills: the log below the snapshot, which was never read, was taken for a difference."""
    source, log_dir = metadata_dir("kafka-4.1.2"), tmp_path / "log"
    local.replay(loop.retained(source, log_dir), tmp_path / "lake")
    loop.rewrite(log_dir, random.Random(1))
    done = local.replay(log_dir, tmp_path / "lake")
    assert done is not None
    assert 540 < done.offset < done.before == 630
    local.replay(log_dir, tmp_path / "fresh")
    assert differences(rows_of(tmp_path / "lake"), rows_of(tmp_path / "fresh")) == []


@pytest.mark.parametrize(("begins", "kept"), sampled([(5, 3), (4, 3), (9, 4)], 1))
def test_fork_below_the_beginning_of_the_log_is_settled_by_the_snapshot(tmp_path: Path, begins: int, kept: int) -> None:
    """What the log can still disprove is taken back: what lies in it, and what is of an epoch newer than its own."""
    epoch = 3 if begins == 9 else 1
    batches: list[Batch] = [*((1, [record]) for record in PLACED), *((epoch, [r.NoOpRecord()]) for _ in range(2))]
    log_dir = write(tmp_path / "log", batches)
    local.replay(log_dir, tmp_path / "lake")
    retained(log_dir, begins, 2, [(2, [r.NoOpRecord()]), (2, [r.NoOpRecord()])], PLACED[:2])
    done = local.replay(log_dir, tmp_path / "lake")
    assert done is not None
    assert done.before == 6
    assert done.offset == (begins - 1 if begins < 9 else kept)
    open_topics = {row["topic"] for row in rows_of(tmp_path / "lake")["partitions"] if row["to_offset"] is None}
    assert open_topics == {"t"}
    newest = ask.Lake.open(tmp_path / "lake")
    assert newest.offset == begins + 1
    if done.offset < begins - 1:
        with pytest.raises(UsageError, match="was never read"):
            ask.Lake.open(tmp_path / "lake", at_offset=done.offset)


# TRANSACTIONS

BEGIN, END, ABORT, NOOP = (
    r.BeginTransactionRecord(),
    r.EndTransactionRecord(),
    r.AbortTransactionRecord(),
    r.NoOpRecord(),
)
A, B, C = (r.TopicRecord(name=name, topic_id=Uuid(7, number)) for number, name in enumerate("abc", 1))


@pytest.mark.parametrize(
    ("old", "new", "offset"),
    sampled(
        [
            # Committed, then aborted by the next leader, and the other way round.
            ([[NOOP, BEGIN, A], [B, END]], [[NOOP, BEGIN, A], [ABORT]], 0),
            ([[NOOP, BEGIN, A], [ABORT]], [[NOOP, BEGIN, A], [B, END]], 0),
            ([[NOOP], [BEGIN, A], [B, END]], [[NOOP], [BEGIN, A], [C, END]], 1),
            # Open again: what was published of it is taken back, and waits.
            ([[NOOP], [BEGIN, A], [B, END]], [[NOOP], [BEGIN, A], [NOOP]], 1),
            ([[NOOP], [BEGIN, A], [ABORT]], [[NOOP], [BEGIN, B], [ABORT]], 1),
            ([[NOOP], [BEGIN, A], [ABORT], [NOOP]], [[NOOP], [BEGIN, A], [ABORT], [B]], 4),
        ],
        2,
    ),
)
def test_fork_in_a_transaction_is_taken_back_to_where_it_begins(
    tmp_path: Path, old: list[list[Record]], new: list[list[Record]], offset: int
) -> None:
    """docs/spec/replay.md: no part of a transaction is ever published."""
    local.replay(write(tmp_path / "log", [(1, records) for records in old]), tmp_path / "lake")
    same = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    write(tmp_path / "log", [(1 if at < same else 2, records) for at, records in enumerate(new)])
    done = local.replay(tmp_path / "log", tmp_path / "lake")
    assert done is not None
    assert done.offset == offset
    local.replay(tmp_path / "log", tmp_path / "fresh")
    assert differences(rows_of(tmp_path / "lake"), rows_of(tmp_path / "fresh")) == []
