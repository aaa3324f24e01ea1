"""Bad input to ``jbod replay``: one line that names the file and the offset, exit 2, the lake as it was before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shutil import copy, copytree

import pytest
from pyspark.sql import SparkSession

from jbod_model.formats.batch import write_batch
from jbod_model.formats.codec import encode
from jbod_model.formats.log import LogWriter, read_file, write_snapshot
from jbod_model.formats.records import (
    FeatureLevelRecord,
    NoOpRecord,
    PartitionRecord,
    Record,
    UnknownRecord,
    VersionedRecord,
)
from pipelines.cli import main
from pipelines.lake.publish import LakeWriter
from pipelines.lake.written_lake import Identity
from tests.support.paths import metadata_dir
from tests.support.tables import rows_of
from tests.support.volume import rare
from tests.support.written import TIME

SOURCE = metadata_dir("kafka-3.7.2")
LOG = "__cluster_metadata-0"
LAST = f"{535:020d}.log"
END = 619
Damage = Callable[[Path], object]


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as left:
        main.main(words)
    return int(left.value.code or 0)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line that a refused ``jbod replay`` prints."""
    assert run("replay", *words) == 2
    output = capsys.readouterr()
    line = [line for line in output.err.splitlines() if line.startswith("jbod: ")]
    assert len(line) == 1, output.err
    assert output.out == ""
    return line[0]


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A log that one can spoil."""
    target = tmp_path / "log"
    (target / LOG).mkdir(parents=True)
    copy(SOURCE / "meta.properties", target)
    for path in (SOURCE / LOG).glob("*.log"):
        copy(path, target / LOG)
    return target


# WHAT IS SEEN BEFORE SPARK


@pytest.mark.parametrize(
    ("case", "problem"),
    [
        ("missing", "no such directory"),
        ("file", "is a file"),
        ("empty", "holds no segment or snapshot"),
        ("foreign names", "holds no segment or snapshot"),
        ("another topic", "is the log of another topic"),
        ("gap", "offset 0: gap: the log begins at 131"),
        ("gap after snapshot", "offset 100: gap: the log begins at 131"),
        ("damaged snapshot", "offset 0: "),
    ],
)
def test_path_that_is_no_whole_log_is_refused(
    log_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str, problem: str
) -> None:
    given = log_dir
    if case == "missing":
        given = tmp_path / "nowhere"
    elif case == "file":
        given = log_dir / "meta.properties"
    elif case in ("empty", "foreign names"):
        given = tmp_path / "other"
        given.mkdir()
        if case == "foreign names":
            (given / "server.log").write_text("hello")
    elif case == "another topic":
        (log_dir / LOG / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABQ\n")
    else:
        (log_dir / LOG / f"{0:020d}.log").unlink()
    if case.endswith("snapshot"):
        path = write_snapshot(log_dir / LOG, (), end_offset=100, epoch=1, timestamp=TIME)
        if case == "damaged snapshot":
            path.chmod(0o600)
            path.write_bytes(path.read_bytes()[:16] + b"\1" + path.read_bytes()[17:])
    line = refused(capsys, str(given), "--lake", str(tmp_path / "lake"))
    assert problem in line
    assert str(given) in line
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize(
    ("made", "words", "problem"),
    [
        (("", "kip858", "kafka"), (), "made with profile 'kip858', this run has 'kafka'"),
        (("", "kafka", "kip858"), (), "made with ids 'kip858', this run has 'kafka'"),
        (("AnotherClusterAltogeth", "kafka", "kafka"), (), "made with cluster_id 'AnotherClusterAltogeth'"),
        (("", "kafka", "kafka"), ("--profile", "kip858"), "made with profile 'kafka', this run has 'kip858'"),
    ],
)
def test_lake_of_something_else_is_refused(
    log_dir: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    made: tuple[str, str, str],
    words: tuple[str, ...],
    problem: str,
) -> None:
    lake = tmp_path / "lake"
    LakeWriter.create_or_open(str(lake), Identity(*made, shards=2))
    before = {path: path.read_bytes() for path in lake.rglob("*") if path.is_file()}
    assert problem in refused(capsys, str(log_dir), "--lake", str(lake), *words)
    assert {path: path.read_bytes() for path in lake.rglob("*") if path.is_file()} == before


# WHAT IS SEEN WHEN IT IS READ


def cut(segment: Path) -> None:
    segment.write_bytes(segment.read_bytes()[:-5])


def flip(segment: Path) -> None:
    raw = bytearray(segment.read_bytes())
    raw[-5] ^= 1
    segment.write_bytes(raw)


def append(*values: bytes) -> Damage:
    def damage(segment: Path) -> None:
        *_, last = read_file(segment)
        batch = write_batch(values, base_offset=last.header.last_offset + 1, epoch=last.header.epoch, timestamp=TIME)
        segment.write_bytes(segment.read_bytes() + batch)

    return damage


def value(record: Record, version: int = 0) -> bytes:
    return encode(VersionedRecord(record, version))


NOOP = value(NoOpRecord())
UNKNOWN = value(UnknownRecord(api_key=99, body=b"x"), 3)
LATER = value(UnknownRecord(api_key=3, body=b"x"), 7)
Case = tuple[str, Damage, tuple[str, ...], str]
CUT: Case = ("cut off", cut, ("--tail", "stop"), "batch is cut off at the end of the file")
# The planner finds damage of the file, a worker that of a record.
CRC: Case = ("bad CRC", flip, (), "CRC-32C of the batch does not match its bytes")
VERSION: Case = ("unknown version", append(NOOP, LATER), (), "PartitionRecord version 7: this jbod knows up to 2")
TRAILING: Case = ("trailing bytes", append(NOOP, NOOP + b"x"), (), "1 bytes follow its end")
FOREIGN: Case = ("foreign bytes", lambda path: path.write_bytes(b"not a log at all, by no means"), (), "magic is not 2")


@pytest.mark.spark
@pytest.mark.parametrize(
    ("case", "damage", "words", "problem"), [rare(*CUT), CRC, rare(*VERSION), rare(*TRAILING), rare(*FOREIGN)]
)
def test_damaged_log_is_published_up_to_its_damage_and_refused_each_time(
    spark: SparkSession,
    log_dir: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    case: str,
    damage: Damage,
    words: tuple[str, ...],
    problem: str,
) -> None:
    damage(log_dir / LOG / LAST)
    line = refused(capsys, str(log_dir), "--lake", str(tmp_path / "lake"), *words)
    assert problem in line
    assert LAST in line
    assert "offset " in line
    if "append" in damage.__qualname__:
        assert f"offset {END + 1}: " in line
    # R-READ-1
    ends = {"cut off": 618, "bad CRC": 618, "foreign bytes": 535}
    assert ends_at(tmp_path / "lake") == ends.get(case, END)
    assert refused(capsys, str(log_dir), "--lake", str(tmp_path / "lake"), *words) == line
    assert ends_at(tmp_path / "lake") == ends.get(case, END)


def ends_at(lake: Path) -> int:
    last: int = max(row["log_offset"] for row in rows_of(lake)["records"])
    return last + 1


@pytest.fixture(scope="module")
def begun(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of the first segments."""
    root = tmp_path_factory.mktemp("begun")
    (root / "log" / LOG).mkdir(parents=True)
    copy(SOURCE / "meta.properties", root / "log")
    for path in (SOURCE / LOG).glob("*.log"):
        if path.name != LAST:
            copy(path, root / "log" / LOG)
    assert run("replay", str(root / "log"), "--lake", str(root / "lake")) == 0
    return root / "lake"


@pytest.mark.spark
@pytest.mark.parametrize(("case", "damage", "words", "problem"), [CUT, rare(*CRC), rare(*VERSION)])
def test_damaged_log_is_added_up_to_its_damage_and_can_be_mended(
    begun: Path,
    log_dir: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    case: str,
    damage: Damage,
    words: tuple[str, ...],
    problem: str,
) -> None:
    lake = copytree(begun, tmp_path / "lake")
    before = rows_of(lake)
    whole = (log_dir / LOG / LAST).read_bytes()
    damage(log_dir / LOG / LAST)
    assert problem in refused(capsys, str(log_dir), "--lake", str(lake), *words)
    assert ends_at(lake) == (END if case == "unknown version" else 618)
    (log_dir / LOG / LAST).write_bytes(whole)
    assert run("replay", str(log_dir), "--lake", str(lake), *words) == 0
    assert len(rows_of(lake)["records"]) > len(before["records"])


@pytest.mark.spark
def test_unknown_type_is_kept_and_reported_and_the_run_continues(
    begun: Path, log_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-REC-4."""
    lake = copytree(begun, tmp_path / "lake")
    append(NOOP, UNKNOWN)(log_dir / LOG / LAST)
    assert run("replay", str(log_dir), "--lake", str(lake)) == 0
    output = capsys.readouterr().err
    assert "record type 99 is not known to this jbod" in output
    assert "UNKNOWN_99" in {row["record_type"] for row in rows_of(lake)["records"]}


@pytest.mark.spark
def test_illegal_history_is_refused_with_its_offset(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-REPLAY-1."""
    writer = LogWriter()
    records = (FeatureLevelRecord(name="a", feature_level=1), PartitionRecord(replicas=(1,)))
    writer.append([VersionedRecord(record, 0) for record in records], epoch=1, timestamp=TIME)
    writer.write(tmp_path)
    line = refused(capsys, str(tmp_path), "--lake", str(tmp_path / "lake"))
    assert line.startswith("jbod: offset 1: PartitionRecord of topic AAAAAAAAAAAAAAAAAAAAAA")
    assert "R-TOPIC-2" in line
    assert not (tmp_path / "lake").exists()
