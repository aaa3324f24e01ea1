"""A damaged log is published up to its damage, whatever the damage and the size of micro-batches, then refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from shutil import copy, copytree, rmtree

import pytest

from jbod_model.errors import JbodError, LogChanged, MalformedLog, ReplayViolation, UsageError
from jbod_model.formats import records as r
from jbod_model.formats.batch import Batch, crc32c, read_batch, write_batch
from jbod_model.formats.codec import decode, encode
from jbod_model.formats.log import LogReader, MetadataLog
from jbod_model.formats.records import Record, VersionedRecord
from jbod_model.ids import Uuid
from jbod_model.replay.transactions import images
from pipelines.run.log_lake import LogLake
from pipelines.run.options import Replay
from pipelines.run.runner import Runner
from pipelines.source.log_dir import LogDir
from pipelines.source.log_options import LogOptions
from pipelines.source.plan import Planner
from pipelines.source.slices import read_slice
from tests.support import local
from tests.support.paths import metadata_dir
from tests.support.tables import differences, rows_of
from tests.support.volume import rare, sampled
from tests.support.written import TIME
from tests.unit.run.test_rollback import PLACED, retained, write
from tests.unit.run.test_rollback import Batch as Written

LOG = "__cluster_metadata-0"
SOURCE = metadata_dir("kafka-3.9.2-zk-migration")
"""Its first segment holds a transaction of several batches."""


def whole(target: Path, segments: int = 2) -> Path:
    (target / LOG).mkdir(parents=True)
    copy(SOURCE / "meta.properties", target)
    for path in sorted((SOURCE / LOG).glob("*.log"))[:segments]:
        copy(path, target / LOG / path.name)
    return target


def batches_of(path: Path) -> list[tuple[int, Batch]]:
    """Position and batch, as far as the plain reader takes them."""
    raw, at, batches = path.read_bytes(), 0, []
    expected = int(path.name[:20])
    while at < len(raw):
        try:
            batch = read_batch(raw, at, file=path.name)
            if batch is None or batch.header.base_offset != expected:
                break
            for value in batch.values:
                decode(value)
        except Exception as problem:
            assert isinstance(problem, (JbodError, ValueError)), problem
            break
        batches.append((at, batch))
        at, expected = at + batch.header.size, batch.header.last_offset + 1
    return batches


def sound(log_dir: Path, target: Path) -> Path:
    """The log up to its damage, told by the plain reader alone."""
    copytree(log_dir, target)
    paths = sorted((target / LOG).glob("*.log"))
    expected, epoch, kept = 0, 0, []
    for path in paths:
        taken = batches_of(path) if int(path.name[:20]) == expected else []
        for at, batch in taken:
            if batch.header.epoch < epoch:
                break
            epoch, expected = batch.header.epoch, batch.header.last_offset + 1
            kept.append((path, at, batch))
        if not kept or kept[-1][0] != path or kept[-1][1] + kept[-1][2].header.size < path.stat().st_size:
            break
    for path in paths:
        ends = [at + batch.header.size for other, at, batch in kept if other == path]
        path.write_bytes(path.read_bytes()[: max(ends, default=0)]) if ends else path.unlink()
    if kept:
        try:
            list(images(LogReader(MetadataLog.open(target))))
        except ReplayViolation as problem:
            for path, at, batch in reversed(kept):
                if batch.header.last_offset >= problem.offset:
                    path.write_bytes(path.read_bytes()[:at])
                if path.stat().st_size == 0 and path != paths[0]:
                    path.unlink()
    return target


# WAYS TO DAMAGE A LOG


def flip(path: Path, chance: random.Random) -> None:
    raw = bytearray(path.read_bytes())
    raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
    path.write_bytes(raw)


def cut(path: Path, chance: random.Random) -> None:
    raw = path.read_bytes()
    path.write_bytes(raw[: chance.randrange(len(raw))])


def replace_batch(path: Path, at: int, batch: Batch, values: list[bytes]) -> None:
    header = batch.header
    new = write_batch(values, base_offset=header.base_offset, epoch=header.epoch, timestamp=header.max_timestamp)
    raw = path.read_bytes()
    path.write_bytes(raw[:at] + new + raw[at + header.size :])


def garble(path: Path, chance: random.Random) -> None:
    """A byte of a record under a checksum that fits."""
    at, batch = chance.choice([(at, batch) for at, batch in batches_of(path) if batch.values])
    values = [bytearray(value) for value in batch.values]
    value = chance.choice(values)
    value[chance.randrange(len(value))] ^= 1 << chance.randrange(8)
    replace_batch(path, at, batch, [bytes(value) for value in values])


def empty(path: Path, chance: random.Random) -> None:
    """A batch of nothing: what stands on its records later is illegal."""
    at, batch = chance.choice([(at, batch) for at, batch in batches_of(path) if len(batch.values) > 1])
    replace_batch(path, at, batch, [encode(VersionedRecord(r.NoOpRecord(), 0))] * len(batch.values))


DAMAGES: list[Callable[[Path, random.Random], None]] = [flip, cut, garble, empty]


@pytest.mark.parametrize("seed", sampled(range(40), 5))
def test_planner_hands_out_all_before_damaged_bytes_then_refuses(tmp_path: Path, seed: int) -> None:
    """R-READ-1, by the bytes alone: records are the workers' to read."""
    chance = random.Random(seed)
    log_dir = whole(tmp_path / "log", 3)
    path = chance.choice(sorted((log_dir / LOG).glob("*.log")))
    chance.choice([flip, cut])(path, chance)
    expected = sound(log_dir, tmp_path / "sound")
    kept = sum(file.stat().st_size for file in (expected / LOG).glob("*.log"))
    for most in (None, 1, 30):
        planner = Planner(LogDir(str(log_dir)))
        position, refused = planner.begin(), False
        while True:
            try:
                end = planner.advance(position, most)
            except MalformedLog as problem:
                assert not isinstance(problem, LogChanged)
                refused = True
                break
            if end == position:
                break
            position = end
        assert position.offset == settled_end(expected)
        total = sum(file.stat().st_size for file in (log_dir / LOG).glob("*.log"))
        assert refused != (planner.scan.tail is not None or kept == total)


def test_segment_that_overlaps_the_one_before_is_refused(tmp_path: Path) -> None:
    """It was called a gap: the segments of two logs in one directory seemed to lack a file."""
    log_dir = whole(tmp_path / "log", 1)
    copy(log_dir / LOG / f"{0:020d}.log", log_dir / LOG / f"{49:020d}.log")
    planner = Planner(LogDir(str(log_dir)))
    position = planner.advance(planner.begin())
    assert position.offset == 50
    with pytest.raises(
        MalformedLog, match=r"049\.log: offset 50: overlap: .* has the offsets from 49 to 49, too: take"
    ):
        planner.advance(position)


def settled_end(log_dir: Path) -> int:
    """Offset after the last record that is in no open transaction, by the plain reader."""
    end, opened = 0, None
    for path in sorted((log_dir / LOG).glob("*.log")):
        for _, batch in batches_of(path):
            for offset, value in enumerate(batch.values, batch.header.base_offset):
                record = decode(value).record
                if isinstance(record, r.BeginTransactionRecord):
                    opened = offset
                elif isinstance(record, r.EndTransactionRecord | r.AbortTransactionRecord):
                    opened = None
            end = batch.header.last_offset + 1
    return end if opened is None else opened


@pytest.mark.parametrize(("seed", "most"), sampled([(seed, (40, 10**6)[seed % 2]) for seed in range(8)], 1))
def test_tables_of_a_damaged_log_are_those_of_its_sound_part_and_go_on_once_it_is_mended(
    tmp_path: Path, seed: int, most: int
) -> None:
    """R-READ-1."""
    chance = random.Random(seed)
    mended = whole(tmp_path / "mended")
    log_dir = copytree(mended, tmp_path / "log")
    path = chance.choice(sorted((log_dir / LOG).glob("*.log")))
    DAMAGES[seed % len(DAMAGES)](path, chance)
    reference, lake = tmp_path / "reference", tmp_path / "lake"
    try:
        local.replay(sound(log_dir, tmp_path / "sound"), reference)
    except JbodError:  # not even one batch is sound
        rmtree(reference, ignore_errors=True)
    wanted = Replay(str(log_dir), str(lake), max_records=most)
    outcomes = [outcome_of(wanted) for _ in range(2)]
    assert outcomes[0] == outcomes[1]
    if (reference / "ledger").exists() and list((reference / "records").glob("*.parquet")):
        assert differences(rows_of(lake), rows_of(reference)) == []
    else:
        assert not lake.exists()
    local.replay(mended, reference, replace=True)
    outcome_of(Replay(str(mended), str(lake), max_records=most, replace_history=True))
    assert differences(rows_of(lake), rows_of(reference)) == []


def outcome_of(wanted: Replay) -> str | None:
    try:
        Runner(wanted).load()
    except JbodError as problem:
        return str(problem)
    return None


A, B = (r.TopicRecord(name=name, topic_id=Uuid(7, number)) for number, name in enumerate("ab", 1))
ILLEGAL = r.PartitionRecord(topic_id=Uuid(9, 9), partition_id=0, replicas=(1,), isr=(1,))
BEGIN, END, NOOP = r.BeginTransactionRecord(), r.EndTransactionRecord(), r.NoOpRecord()


@pytest.mark.parametrize(
    ("batches", "offset", "end"),
    sampled(
        [
            ([[A], [NOOP, NOOP], [B, ILLEGAL], [NOOP]], 4, 3),
            ([[A], [BEGIN, B], [ILLEGAL], [END], [NOOP]], 3, 1),
            ([[A], [NOOP], [A], [ILLEGAL]], 2, 2),
            ([[A], [NOOP], [END], [NOOP]], 2, 2),
            ([[A], [BEGIN, NOOP], [BEGIN], [NOOP]], 3, 1),
        ],
        3,
    ),
)
@pytest.mark.parametrize("most", [rare(1), 3, rare(1000)])
def test_history_is_published_up_to_the_batch_or_transaction_that_is_illegal(
    tmp_path: Path, batches: list[list[Record]], offset: int, end: int, most: int
) -> None:
    """R-READ-1: nothing of a transaction that is not whole is shown."""
    log_dir = write(tmp_path / "log", [(1, records) for records in batches])
    wanted = Replay(str(log_dir), str(tmp_path / "lake"), max_records=most)
    for _ in range(2):
        with pytest.raises(ReplayViolation) as refused:
            Runner(wanted).load()
        assert refused.value.offset == offset
        assert [row["log_offset"] for row in rows_of(tmp_path / "lake")["records"]] == list(range(end))


NOOP_VALUE, END_VALUE = (encode(VersionedRecord(record, 0)) for record in (NOOP, END))


@pytest.mark.parametrize(
    ("values", "old", "new", "offset"),
    [
        ([b"\1\x18\1\0"], b"", b"", 2),
        ([b"\2\x18\0\0"], b"", b"", 2),
        ([b"\1\xff\xff\xff\xff\x1f\0\0"], b"", b"", 2),
        ([NOOP_VALUE, END_VALUE], b"\x14\0\0\2", b"\x14\0\0\4", 3),
    ],
    ids=["later version", "frame of the value", "type of the value", "frame of the record"],
)
def test_record_that_may_end_a_transaction_and_cannot_be_read_is_refused(
    tmp_path: Path, values: list[bytes], old: bytes, new: bytes, offset: int
) -> None:
    """The transaction counted as open: all after its begin was left out of every answer, without a word."""
    path = write(tmp_path, [(1, [NOOP]), (1, [BEGIN])]) / LOG / f"{0:020d}.log"
    batch = write_batch(values, base_offset=2, epoch=1, timestamp=TIME)
    covered = batch[21:].replace(old, new, 1) if old else batch[21:]
    after = write_batch([NOOP_VALUE], base_offset=2 + len(values), epoch=1, timestamp=TIME)
    path.write_bytes(path.read_bytes() + batch[:17] + crc32c(covered).to_bytes(4, "big") + covered + after)
    planner = Planner(LogDir(str(tmp_path)))
    position = planner.advance(planner.begin())
    assert position.offset == 1
    with pytest.raises(ReplayViolation, match=f"offset {offset}: the transaction of offset 1 has a record that cannot"):
        planner.advance(position)


def test_damaged_snapshot_is_refused_and_the_lake_keeps_all_rows(tmp_path: Path) -> None:
    log_dir = write(tmp_path / "log", [(1, [record]) for record in PLACED])
    wanted = Replay(str(log_dir), str(tmp_path / "lake"))
    Runner(wanted).load()
    before = rows_of(tmp_path / "lake")
    later: list[Written] = [(2, [NOOP]), (2, [NOOP])]
    retained(log_dir, 50, 2, later, [*PLACED[:2], ILLEGAL])
    for _ in range(2):
        with pytest.raises(ReplayViolation, match="offset 49"):
            Runner(wanted).load()
        assert rows_of(tmp_path / "lake") == before
    retained(log_dir, 50, 2, later, PLACED[:2])
    outcome = Runner(wanted).load()
    assert (outcome.start_offset, outcome.end_offset, outcome.snapshots) == (50, 52, [(4, 50)])


def test_log_damaged_after_a_snapshot_is_published_up_to_there(tmp_path: Path) -> None:
    """A later record is illegal: the snapshot and what is sound after it count."""
    log_dir = write(tmp_path / "log", [(1, [NOOP])])
    retained(log_dir, 50, 2, [(2, [NOOP]), (2, [ILLEGAL]), (2, [NOOP])], PLACED[:2])
    with pytest.raises(ReplayViolation, match="offset 51"):
        Runner(Replay(str(log_dir), str(tmp_path / "lake"))).load()
    assert max(row["log_offset"] for row in rows_of(tmp_path / "lake")["records"]) == 50


# WHAT AN ANSWER SAYS


def flip_at(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.chmod(0o600)
    path.write_bytes(raw)


def damaged(target: Path) -> Path:
    """A bit in the segment from 175 on is flipped; a snapshot at 406 and the log after it are sound."""
    copytree(metadata_dir("kafka-4.1.2"), target)
    flip_at(target / LOG / f"{175:020d}.log", 2000)
    return target


def test_question_about_an_offset_behind_damage_names_the_damage_and_the_way_out(tmp_path: Path) -> None:
    """It said only that the offset is after the newest one, as if the log ended there."""
    log_dir = damaged(tmp_path / "log")
    assert LogLake.of(LogOptions(path=str(log_dir)), 191).offset == 191
    with pytest.raises(MalformedLog, match=r"175\.log: offset 192: CRC-32C .*: take the file from another") as refused:
        LogLake.of(LogOptions(path=str(log_dir)), 200)
    assert "the snapshot at 406: jbod replay --start snapshot" in str(refused.value)


def test_damage_of_a_log_is_named_beside_a_damaged_snapshot(tmp_path: Path) -> None:
    """The snapshot, which nothing needs, was named instead."""
    log_dir = damaged(tmp_path / "log")
    (path,) = (log_dir / LOG).glob("*.checkpoint")
    flip_at(path, 83 + 16)  # the magic of its second batch
    with pytest.raises(MalformedLog, match=r"175\.log: offset 192: CRC-32C .*: take the file from another controller$"):
        LogLake.of(LogOptions(path=str(log_dir)), 200)


@pytest.mark.parametrize(
    ("at", "what"), [(83 + 16, "batch magic is not 2"), (83 + 15, "a batch is not of .* epoch 1"), (3000, "CRC-32C")]
)
def test_damaged_snapshot_is_refused_with_the_way_out(tmp_path: Path, at: int, what: str) -> None:
    """It named only the damage."""
    log_dir = tmp_path / "log"
    copytree(metadata_dir("kafka-4.1.2"), log_dir)
    (log_dir / LOG / f"{0:020d}.log").unlink()
    (path,) = (log_dir / LOG).glob("*.checkpoint")
    flip_at(path, at)
    todo = "take the file from another controller, or remove it if the log reaches back to offset 0 or to the end of"
    with pytest.raises(MalformedLog, match=f"{path.name}: .*{what}.*: {todo} an older complete snapshot$"):
        LogLake.of(LogOptions(path=str(log_dir)))
    copy(metadata_dir("kafka-4.1.2") / LOG / f"{0:020d}.log", log_dir / LOG)
    path.unlink()
    assert LogLake.of(LogOptions(path=str(log_dir))).offset == 629


WRITTEN_SO = (
    "its checksum is right, so compare the segment with another controller's, take that one if it differs, and report "
    "a defect of jbod if it does not"
)


@pytest.mark.parametrize("what", ["no record", "no controller", "no transaction"])
def test_record_that_is_refused_in_a_sound_batch_is_named_with_the_way_out(tmp_path: Path, what: str) -> None:
    """Cause: only bytes with a wrong checksum had one."""
    log_dir = tmp_path / "log"
    copytree(metadata_dir("kafka-4.1.2"), log_dir)
    path = log_dir / LOG / f"{175:020d}.log"
    at, batch = next((at, batch) for at, batch in batches_of(path) if len(batch.values) > 1)
    cut = [value[:-3] for value in batch.values]
    removed = encode(VersionedRecord(r.RemoveTopicRecord(topic_id=Uuid(5, 7)), 0))
    ended = encode(VersionedRecord(r.EndTransactionRecord(), 0))
    made = {"no record": cut, "no controller": [removed] * len(cut), "no transaction": [ended] * len(cut)}
    replace_batch(path, at, batch, made[what])
    log = LogLake.of(LogOptions(path=str(log_dir))).log
    assert type(log.refusal) is (MalformedLog if what == "no record" else ReplayViolation)
    assert str(log.refusal).count(WRITTEN_SO) == 1
    assert str(log.refusal).endswith(WRITTEN_SO)


def test_record_of_a_newer_kafka_is_refused_with_the_advice_to_upgrade_alone(tmp_path: Path) -> None:
    log_dir = tmp_path / "log"
    copytree(metadata_dir("kafka-4.1.2"), log_dir)
    path = log_dir / LOG / f"{175:020d}.log"
    at, batch = next((at, batch) for at, batch in batches_of(path) if len(batch.values) > 1)
    newer = bytearray(encode(VersionedRecord(r.RemoveTopicRecord(topic_id=Uuid(5, 7)), 0)))
    newer[2] = 99  # its version
    replace_batch(path, at, batch, [bytes(newer)] * len(batch.values))
    assert str(LogLake.of(LogOptions(path=str(log_dir))).log.refusal).endswith(": upgrade jbod")


def test_record_that_is_refused_in_a_snapshot_is_named_with_the_way_out(tmp_path: Path) -> None:
    log_dir = tmp_path / "log"
    copytree(metadata_dir("kafka-4.1.2"), log_dir)
    (log_dir / LOG / f"{0:020d}.log").unlink()
    (path,) = (log_dir / LOG).glob("*.checkpoint")
    raw = path.read_bytes()
    header = read_batch(raw, 0, file=path.name)
    assert header is not None
    batch = read_batch(raw, header.header.size, file=path.name)
    assert batch is not None
    replace_batch(path, header.header.size, batch, [value[:-3] for value in batch.values])
    with pytest.raises(MalformedLog, match=r"take the file from another controller, or remove it if .* snapshot$"):
        LogLake.of(LogOptions(path=str(log_dir)))


def test_snapshot_that_is_gone_is_no_damage(tmp_path: Path) -> None:
    """Nobody is sent for a file that Kafka deleted."""
    log_dir = tmp_path / "log"
    copytree(metadata_dir("kafka-4.1.2"), log_dir)
    planner = Planner(LogDir(str(log_dir)))
    start = planner.begin("snapshot")
    pieces = list(planner.slices(start, planner.advance(start)))
    next((log_dir / LOG).glob("*.checkpoint")).unlink()
    with pytest.raises(LogChanged, match=r"Kafka deletes segments and snapshots, or .* does not reach it$"):
        read_slice(pieces[0])


def test_damage_below_the_end_of_a_lake_is_refused_with_the_way_out(tmp_path: Path) -> None:
    """It named only the damage."""
    log_dir, lake = tmp_path / "log", tmp_path / "lake"
    copytree(SOURCE, log_dir)
    local.replay(log_dir, lake)
    before = rows_of(lake)
    path = max((log_dir / LOG).glob("*.log"))
    path.chmod(0o600)
    raw = bytearray(path.read_bytes())
    raw[-100] ^= 1
    path.write_bytes(raw)
    with pytest.raises(MalformedLog, match=f"{path.name}: offset .*: take the file from another controller"):
        local.replay(log_dir, lake)
    assert rows_of(lake) == before


def test_question_about_an_offset_after_the_end_of_a_sound_log_says_where_it_ends() -> None:
    with pytest.raises(UsageError, match="the log ends with offset 629: ask for 629 or less"):
        LogLake.of(LogOptions(path=str(metadata_dir("kafka-4.1.2"))), 700)


def test_damage_is_named_by_its_byte_in_the_file(tmp_path: Path) -> None:
    """It was counted from where the last read began."""
    log_dir = tmp_path / "log"
    copytree(metadata_dir("kafka-4.1.2"), log_dir)
    path = log_dir / LOG / f"{540:020d}.log"
    size = path.stat().st_size
    path.chmod(0o600)
    with path.open("ab") as segment:
        segment.write(bytes(4096))
    with pytest.raises(MalformedLog, match=rf"offset 630: .*\(byte {size}\)"):
        LogLake.of(LogOptions(path=str(log_dir)), 630)


def test_gap_names_the_snapshot_that_is_not_complete(tmp_path: Path) -> None:
    log_dir = tmp_path / "log"
    copytree(metadata_dir("kafka-4.1.2"), log_dir)
    (log_dir / LOG / f"{0:020d}.log").unlink()
    for path in (log_dir / LOG).glob("*.checkpoint"):
        path.chmod(0o600)
        path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(MalformedLog, match=r"no complete snapshot reaches it \(.*406-0000000001\.checkpoint is not"):
        LogLake.of(LogOptions(path=str(log_dir)))
