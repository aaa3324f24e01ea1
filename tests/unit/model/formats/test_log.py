from __future__ import annotations

import stat
from collections.abc import Sequence
from pathlib import Path

import pytest

from jbod_model.errors import MalformedLog, UsageError
from jbod_model.formats import records as r
from jbod_model.formats.batch import write_batch
from jbod_model.formats.control_records import LeaderChangeMessage
from jbod_model.formats.log import (
    LogEntry,
    LogReader,
    LogWriter,
    MetadataLog,
    read_file,
    write_bootstrap,
    write_snapshot,
)
from jbod_model.formats.records import FeatureLevelRecord, NoOpRecord, Record, VersionedRecord
from jbod_model.replay.image import Image
from jbod_model.replay.transactions import image_at, images
from tests.support.paths import GOLDEN

PARTITION = "__cluster_metadata-0"


def features(*names: str) -> list[VersionedRecord]:
    return [VersionedRecord(FeatureLevelRecord(name=name, feature_level=1), 0) for name in names]


def segment(directory: Path, base_offset: int, *batches: Sequence[VersionedRecord], epoch: int = 1) -> LogWriter:
    writer = LogWriter(base_offset=base_offset)
    for batch in batches:
        writer.append(batch, epoch=epoch, timestamp=1000)
    writer.write(directory)
    return writer


def read(directory: Path, **options: str) -> tuple[list[LogEntry], LogReader]:
    reader = LogReader(MetadataLog.open(directory), **options)  # type: ignore[arg-type]
    return list(reader), reader


def names(entries: list[LogEntry]) -> list[tuple[int, str]]:
    return [
        (entry.offset, entry.record.record.name)
        for entry in entries
        if isinstance(entry.record, VersionedRecord) and isinstance(entry.record.record, FeatureLevelRecord)
    ]


# WHICH FILES


def test_log_is_found_in_the_directory_or_the_one_around_it(tmp_path: Path) -> None:
    """R-LOG-1."""
    (tmp_path / PARTITION).mkdir()
    segment(tmp_path / PARTITION, 0, features("a"))
    assert MetadataLog.open(tmp_path) == MetadataLog.open(tmp_path / PARTITION)


@pytest.mark.parametrize("case", ["missing", "file", "empty", "foreign"])
def test_path_without_a_log_is_refused(tmp_path: Path, case: str) -> None:
    """R-LOG-1."""
    path = tmp_path / "there"
    if case == "file":
        path.write_text("x")
    elif case != "missing":
        path.mkdir()
    if case == "foreign":
        (path / "00000000000000000000.index").write_text("x")
        (path / "0.log").write_text("x")
    with pytest.raises(UsageError, match="there"):
        MetadataLog.open(path)


def test_partial_and_deleted_snapshots_do_not_count(tmp_path: Path) -> None:
    """R-LOG-2."""
    segment(tmp_path, 0, features("a"))
    for name in (
        "00000000000000000001-0000000001.checkpoint.deleted",
        "00000000000000000001-0000000001123.checkpoint.part",
        "leader-epoch-checkpoint",
        "quorum-state",
    ):
        (tmp_path / name).write_bytes(b"junk")
    assert MetadataLog.open(tmp_path).snapshots == ()


def test_name_with_other_digits_or_a_line_break_does_not_count(tmp_path: Path) -> None:
    """R-LOG-2."""
    segment(tmp_path, 0, features("a"))
    for name in ("\u0660" * 19 + "\u0661.log", f"{1:020d}.log\n", f"{1:020d}-{1:010d}.checkpoint\n"):
        (tmp_path / name).write_bytes(b"junk")
    assert len(MetadataLog.open(tmp_path).segments) == 1
    assert MetadataLog.open(tmp_path).snapshots == ()


@pytest.mark.parametrize(
    "name", [f"{1 << 63:020d}.log", f"{1 << 63:020d}-{1:010d}.checkpoint", f"{9:020d}-{1 << 31:010d}.checkpoint"]
)
def test_name_with_a_number_too_large_for_kafka_is_refused(tmp_path: Path, name: str) -> None:
    """R-LOG-2."""
    segment(tmp_path, 0, features("a"))
    (tmp_path / name).touch()
    with pytest.raises(UsageError, match=f"{name}: no file of Kafka has an offset above int64 or an epoch above int32"):
        MetadataLog.open(tmp_path)


def test_newest_complete_snapshot_is_taken(tmp_path: Path) -> None:
    """R-LOG-3."""
    for end in (3, 5, 7, 9):
        write_snapshot(tmp_path, features(f"s{end}"), end_offset=end, epoch=1, timestamp=1)
    log = MetadataLog.open(tmp_path)
    cut_off, no_footer = log.snapshots[3].path, log.snapshots[2].path
    for path, content in (
        (cut_off, cut_off.read_bytes()[:-1]),
        (no_footer, no_footer.read_bytes()[: -_last_size(no_footer)]),
    ):
        path.unlink()
        path.write_bytes(content)
    newest = log.newest_snapshot()
    assert newest is not None
    assert newest.end_offset == 5


def _last_size(path: Path) -> int:
    *_, last = read_file(path)
    return last.header.size


def test_empty_snapshot_of_a_formatted_quorum_leaves_everything_to_the_log(tmp_path: Path) -> None:
    """R-LOG-3: what kafka-storage format writes."""
    name = "00000000000000000000-0000000000.checkpoint"
    (tmp_path / name).write_bytes((GOLDEN / name).read_bytes())
    segment(tmp_path, 0, features("a"))
    entries, reader = read(tmp_path, start="snapshot")
    assert reader.snapshot is not None
    assert names(entries) == [(0, "a")]


# ORDER


def test_log_alone_and_snapshot_with_tail_give_the_same_image(tmp_path: Path) -> None:
    """R-LOG-4, R-LOG-6, invariant 23."""
    segment(tmp_path, 0, features("a", "b"))
    segment(tmp_path, 2, features("c"), features("d"))
    write_snapshot(tmp_path, features("a", "b", "c"), end_offset=3, epoch=1, timestamp=1)
    entries, reader = read(tmp_path, start="snapshot")
    assert names(entries) == [(2, "a"), (2, "b"), (2, "c"), (3, "d")]
    assert [entry.in_snapshot for entry in entries].count(False) == 1
    assert reader.next_offset == 4
    assert image_at(tmp_path, start="snapshot") == image_at(tmp_path)
    assert image_at(tmp_path, 2)[1].features == {"a": 1, "b": 1, "c": 1}


def test_snapshot_is_needed_where_the_log_no_longer_begins_at_zero(tmp_path: Path) -> None:
    """R-LOG-4."""
    segment(tmp_path, 3, features("d"))
    with pytest.raises(MalformedLog, match="starts at 3, and no complete snapshot"):
        read(tmp_path)
    write_snapshot(tmp_path, features("a", "b", "c"), end_offset=3, epoch=1, timestamp=1)
    assert names(read(tmp_path)[0]) == [(2, "a"), (2, "b"), (2, "c"), (3, "d")]
    with pytest.raises(UsageError, match="no state at offset 1"):
        image_at(tmp_path, 1)


def test_gap_between_snapshot_and_log_is_refused(tmp_path: Path) -> None:
    """R-LOG-4."""
    segment(tmp_path, 5, features("d"))
    write_snapshot(tmp_path, features("a"), end_offset=3, epoch=1, timestamp=1)
    with pytest.raises(MalformedLog, match="offset 3: the log starts at 5"):
        read(tmp_path)


def test_snapshot_alone_and_snapshot_past_the_log_are_enough(tmp_path: Path) -> None:
    """R-LOG-4."""
    write_snapshot(tmp_path, features("a"), end_offset=9, epoch=1, timestamp=1)
    assert names(read(tmp_path)[0]) == [(8, "a")]
    segment(tmp_path, 4, features("z"))
    entries, reader = read(tmp_path)
    assert (names(entries), reader.next_offset) == ([(8, "a")], 9)


def test_snapshot_past_a_log_from_zero_comes_after_it(tmp_path: Path) -> None:
    """R-LOG-4: between the end of a fetch of a snapshot and the truncation, and in a copy that is not complete."""
    segment(tmp_path, 0, features("a", "b"))
    write_snapshot(tmp_path, features("b", "c"), end_offset=9, epoch=1, timestamp=1)
    entries, reader = read(tmp_path)
    assert (names(entries), reader.next_offset) == ([(0, "a"), (1, "b"), (8, "b"), (8, "c")], 9)
    assert image_at(tmp_path)[1].features == {"b": 1, "c": 1}


def test_snapshot_past_the_log_of_an_older_epoch_does_not_count(tmp_path: Path) -> None:
    """R-LOG-4."""
    segment(tmp_path, 0, features("a"), epoch=3)
    write_snapshot(tmp_path, features("b"), end_offset=9, epoch=2, timestamp=1)
    assert names(read(tmp_path)[0]) == [(0, "a")]


def test_history_out_of_order_is_refused(tmp_path: Path) -> None:
    """R-LOG-5."""

    def problem(*parts: tuple[int, int, int]) -> str:
        """Of (name, first offset, epoch) of segments with one batch of two records."""
        directory = tmp_path / str(parts)
        directory.mkdir()
        for name, first, epoch in parts:
            writer = segment(directory, first, features("a", "b"), epoch=epoch)
            writer.write(directory).rename(directory / f"{name:020d}.log")
        with pytest.raises(MalformedLog) as caught:
            read(directory)
        return caught.value.problem

    assert problem((0, 0, 1), (3, 3, 1)) == "the log continues at 3: a segment is missing"
    assert problem((0, 0, 1), (1, 1, 1)) == "the log continues at 1: segments overlap"
    assert problem((0, 0, 1), (2, 3, 1)) == "the next batch starts at 3"
    assert problem((0, 0, 2), (2, 2, 1)) == "epoch 1 follows epoch 2"
    assert problem((0, 1, 1)) == "the next batch starts at 1"


def test_snapshot_end_inside_a_batch_is_refused(tmp_path: Path) -> None:
    """R-LOG-5: Kafka's snapshots end where a batch does."""
    segment(tmp_path, 0, features("a", "b"))
    write_snapshot(tmp_path, features("a"), end_offset=1, epoch=1, timestamp=1)
    with pytest.raises(MalformedLog, match="ends inside this batch"):
        read(tmp_path, start="snapshot")


def test_snapshot_of_another_epoch_or_without_header_is_refused(tmp_path: Path) -> None:
    """R-LOG-7."""
    path = write_snapshot(tmp_path, features("a"), end_offset=1, epoch=1, timestamp=1)
    other = path.rename(tmp_path / "00000000000000000001-0000000002.checkpoint")
    with pytest.raises(MalformedLog, match="epoch 1 in a snapshot of epoch 2"):
        read(tmp_path)
    other.unlink()
    writer = LogWriter()
    writer.append(features("a"), epoch=1, timestamp=1)
    (tmp_path / "00000000000000000001-0000000001.checkpoint").write_bytes(
        writer.bytes + write_snapshot(tmp_path, (), end_offset=9, epoch=1, timestamp=1).read_bytes()
    )
    (tmp_path / "00000000000000000009-0000000001.checkpoint").unlink()
    with pytest.raises(MalformedLog, match="starts with its header"):
        read(tmp_path)


# THE END OF THE LOG


def small_log(directory: Path) -> bytes:
    writer = LogWriter()
    writer.append([LeaderChangeMessage(leader_id=1)], epoch=1, timestamp=1)
    writer.append(features("a", "b"), epoch=1, timestamp=2)
    writer.append(features("c"), epoch=2, timestamp=3)
    return writer.write(directory).read_bytes()


def test_log_cut_at_every_byte_gives_its_complete_batches_and_the_tail(tmp_path: Path) -> None:
    """R-LOG-5."""
    whole = small_log(tmp_path)
    ends = {0: 0}
    for batch in read_file(tmp_path / f"{0:020d}.log"):
        ends[batch.header.position + batch.header.size] = batch.header.last_offset + 1
    for size in range(len(whole)):
        (tmp_path / f"{0:020d}.log").write_bytes(whole[:size])
        entries, reader = read(tmp_path)
        complete = max(end for end in ends if end <= size)
        assert (len(entries), reader.next_offset) == (ends[complete], ends[complete])
        if complete == size:
            assert reader.tail is None
        else:
            assert reader.tail is not None
            assert (reader.tail.position, reader.tail.size) == (complete, size - complete)
            assert reader.tail.next_offset == ends[complete]


def test_log_with_any_byte_flipped_is_the_same_or_waits_or_is_malformed(tmp_path: Path) -> None:
    """R-FMT-12, reliability test 4: never other records, never another error."""
    whole = small_log(tmp_path)
    expected = names(read(tmp_path)[0])
    for at in range(len(whole)):
        for bit in (0, 3, 7):
            damaged = bytearray(whole)
            damaged[at] ^= 1 << bit
            (tmp_path / f"{0:020d}.log").write_bytes(damaged)
            try:
                entries, reader = read(tmp_path)
            except MalformedLog as problem:
                assert str(tmp_path) in problem.file
            else:
                records = names(entries)
                assert records == expected or (reader.tail is not None and records == expected[: len(records)])


def test_segment_cut_off_before_another_is_refused(tmp_path: Path) -> None:
    """R-LOG-5."""
    whole = small_log(tmp_path)
    segment(tmp_path, 4, features("e"))
    (tmp_path / f"{0:020d}.log").write_bytes(whole[:-1])
    with pytest.raises(MalformedLog, match="cut off, but another follows"):
        read(tmp_path)


def test_unknown_type_is_kept_and_changes_nothing_in_the_image(tmp_path: Path) -> None:
    """R-REC-4."""
    unknown = VersionedRecord(r.UnknownRecord(api_key=99, body=b"x"), 3)
    segment(tmp_path, 0, features("a"), [unknown, *features("b")])
    entries = list(LogReader(MetadataLog.open(tmp_path)))
    assert [entry.record for entry in entries][1] == unknown
    image = Image()
    assert image.apply(unknown.record, 1) == image


def test_later_version_of_a_record_of_the_tables_stops_unless_it_is_kept(tmp_path: Path) -> None:
    """R-REC-4."""
    unknown = VersionedRecord(r.UnknownRecord(api_key=5, body=b"x"), 3)
    segment(tmp_path, 0, features("a"), [unknown, *features("b")])
    with pytest.raises(MalformedLog, match="offset 1: PartitionChangeRecord version 3: this jbod knows up to 2"):
        read(tmp_path)
    reader = LogReader(MetadataLog.open(tmp_path), keep_unknown=True)
    assert [entry.record for entry in reader][1] == unknown


# WRITING


def test_written_files_have_kafkas_names_and_modes(tmp_path: Path) -> None:
    """R-LOG-8, R-LOG-9, R-LOG-10."""
    snapshot = write_snapshot(tmp_path, features("a"), end_offset=42, epoch=7, timestamp=1)
    assert snapshot.name == "00000000000000000042-0000000007.checkpoint"
    assert stat.S_IMODE(snapshot.stat().st_mode) == 0o400
    assert write_bootstrap(tmp_path, features("a"), timestamp=1).name == "bootstrap.checkpoint"
    assert segment(tmp_path, 5, features("a")).next_offset == 6
    assert {path.name for path in tmp_path.iterdir()} == {
        snapshot.name,
        "bootstrap.checkpoint",
        "00000000000000000005.log",
    }


def test_large_snapshot_is_cut_into_batches(tmp_path: Path) -> None:
    """R-LOG-9."""
    path = write_snapshot(tmp_path, features(*map(str, range(2500))), end_offset=1, epoch=1, timestamp=1)
    assert [batch.header.count for batch in read_file(path)] == [1, 1024, 1024, 452, 1]


@pytest.mark.parametrize("name", ["bootstrap.checkpoint", "00000000000000000000-0000000000.checkpoint"])
def test_real_checkpoint_is_written_the_same(name: str) -> None:
    """R-LOG-9, R-LOG-10: byte for byte what Kafka's own tool wrote."""
    written = b"".join(
        write_batch(
            batch.control or batch.values,
            base_offset=batch.header.base_offset,
            epoch=batch.header.epoch,
            timestamp=batch.header.max_timestamp,
        )
        for batch in read_file(GOLDEN / name)
    )
    assert written == (GOLDEN / name).read_bytes()


# SPLITS


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_any_split_into_batches_gives_the_same_image(tmp_path: Path, size: int) -> None:
    """Invariant 27, also with records that say nothing in between."""
    records: list[Record] = [FeatureLevelRecord(name=str(n % 5), feature_level=n % 3) for n in range(20)]
    expected = Image()
    for record in records:
        expected = expected.apply(record, 0)
    padded = [item for record in records for item in (record, NoOpRecord())]
    writer = LogWriter()
    for at in range(0, len(padded), size):
        part = [VersionedRecord(record, 0) for record in padded[at : at + size]]
        writer.append(part, epoch=1, timestamp=1)
    writer.write(tmp_path)
    *_, (offset, image) = images(LogReader(MetadataLog.open(tmp_path)))
    assert (offset, image) == (39, expected)
