"""Metrics: what Prometheus reads equals what the questions answer."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from jbod_model.errors import MalformedLog, UsageError
from pipelines.ask import Lake, directories, offline, status
from pipelines.check.catalogue import CHECKS, run_checks
from pipelines.check.findings import record
from pipelines.cli import main
from pipelines.metrics.measure import behind
from tests.support.lakes import write_lake
from tests.support.logs import read_file, read_log
from tests.support.paths import KAFKAS, ROOT, metadata_dir
from tests.support.volume import sampled

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(text: str) -> Samples:
    """Every sample by name and labels; a name that breaks Prometheus' rules, or stands twice, fails."""
    values: Samples = {}
    for family in text_string_to_metric_families(text):
        assert family.type == "gauge"
        assert family.documentation
        for sample in family.samples:
            key = (sample.name.removeprefix("jbod_"), tuple(sorted(sample.labels.items())))
            assert key not in values
            values[key] = sample.value
    return values


def metrics(*arguments: Any) -> str:
    words = ["metrics", *map(str, arguments)]
    ran = CliRunner().invoke(main.application(words), words)
    if ran.exception and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    assert ran.exit_code == 0
    return ran.stdout


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """kafka-4.1.2 after the loss of a disk (offset 200)."""
    path = tmp_path_factory.mktemp("metrics") / "lake"
    write_lake(path, [entry for entry in read_log(metadata_dir("kafka-4.1.2")) if entry.offset <= 200])
    return path


def test_metrics_equal_what_the_questions_answer(lake: Path) -> None:
    values = samples(metrics("--lake", lake))
    opened = Lake.open(lake)
    state, gone = status(opened), offline(opened)
    assert values["lake_end_offset", ()] == 201
    assert values["lake_info", (("cluster_id", "test"), ("profile", "kafka"))] == 1
    assert values["lake_last_record_timestamp_seconds", ()] == state.newest_time.timestamp()
    assert values["lake_published_timestamp_seconds", ()] == state.published_time.timestamp()
    assert values["lake_last_record_age_seconds", ()] == pytest.approx(
        time.time() - state.newest_time.timestamp(), abs=60
    )
    assert values["partitions", ()] == state.partitions
    assert values["partitions_without_leader", ()] == state.partitions_without_leader > 0
    assert values["partitions_under_min_isr", ()] == state.partitions_under_min_isr
    assert values["partitions_under_replicated", ()] == state.partitions_under_replicated
    assert values["brokers", (("state", "online"),)] == state.brokers - state.brokers_fenced
    offline_replicas = {key: value for (name, key), value in values.items() if name == "offline_replicas"}
    assert sum(offline_replicas.values()) == len(gone.replicas) > 0
    where: tuple[tuple[str, str], ...]
    for replica in gone.replicas:
        where = (("broker", str(replica.broker_id)), ("directory", replica.directory_id), ("reason", replica.reason))
        assert offline_replicas[where] > 0
    for directory in directories(opened):
        if directory.state in ("unassigned", "lost", "migrating"):
            where = (("broker", str(directory.broker_id)), ("kind", directory.state))
            assert values["replicas_without_directory", where] == directory.replicas
            continue
        where = (("broker", str(directory.broker_id)), ("directory", directory.directory_id))
        assert values["directory_replicas", where] == directory.replicas
        assert values["directory_leaders", where] == directory.leaders
        assert values["directory_online", where] == (directory.state == directory.broker == "online")


def test_metrics_count_open_findings_by_check_and_severity(tmp_path: Path) -> None:
    path = tmp_path / "lake"
    write_lake(path, [entry for entry in read_log(metadata_dir("kafka-4.1.2")) if entry.offset <= 200])
    assert not any(name.startswith("findings") for name, _ in samples(metrics("--lake", path)))
    opened = Lake.open(path)
    findings = run_checks(opened)
    record(opened, CHECKS, findings)
    values = samples(metrics("--lake", path))
    counts = {key: value for (name, key), value in values.items() if name == "findings"}
    expected = Counter((finding.check.id, finding.check.name, finding.severity) for finding in findings)
    assert expected
    for check in CHECKS:
        expected.setdefault((check.id, check.name, check.severity), 0)
    labels = ("check", "name", "severity")
    assert counts == {tuple(zip(labels, key, strict=True)): value for key, value in expected.items()}
    assert values["findings_offset", ()] == 200


@pytest.mark.parametrize("kafka", sampled(KAFKAS, 2))
def test_metrics_of_every_cluster_parse(tmp_path: Path, kafka: str) -> None:
    write_lake(tmp_path / "lake", read_log(metadata_dir(kafka)))
    assert samples(metrics("--lake", tmp_path / "lake"))["partitions", ()] > 0


def test_metrics_label_values_are_escaped(tmp_path: Path) -> None:
    odd = 'a"b\\c\nd'
    write_lake(tmp_path / "lake", read_log(metadata_dir("kafka-4.1.2"))[:100], cluster_id=odd)
    values = samples(metrics("--lake", tmp_path / "lake"))
    assert values["lake_info", (("cluster_id", odd), ("profile", "kafka"))] == 1


def test_metrics_out_replaces_the_file_in_one_step_and_lets_others_read_it(lake: Path, tmp_path: Path) -> None:
    out = tmp_path / "jbod.prom"
    out.write_text("old")
    with out.open() as kept:
        assert metrics("--lake", lake, "--out", out) == ""
        assert kept.read() == "old"
    assert samples(out.read_text())["lake_end_offset", ()] == 201
    assert out.stat().st_mode & 0o444 == 0o444
    assert [file.name for file in tmp_path.iterdir()] == ["jbod.prom"]


def test_metrics_in_json_are_the_same_samples(lake: Path) -> None:
    answer = json.loads(metrics("--lake", lake, "--json"))
    values = {
        (sample["name"].removeprefix("jbod_"), tuple(sorted(sample["labels"].items()))): sample["value"]
        for family in answer.values()
        for sample in family["samples"]
    }
    printed = samples(metrics("--lake", lake))
    aging = {("lake_last_record_age_seconds", ()), ("measured_timestamp_seconds", ())}
    assert values.keys() == printed.keys()
    assert {key: value for key, value in values.items() if key not in aging} == {
        key: value for key, value in printed.items() if key not in aging
    }
    assert all(family["help"] for family in answer.values())


def test_folder_of_the_file_is_made(lake: Path, tmp_path: Path) -> None:
    metrics("--lake", lake, "--out", tmp_path / "out" / "jbod.prom")
    assert (tmp_path / "out" / "jbod.prom").is_file()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--lake", "nowhere"], "nowhere: no lake there"),
        (["--lake", "LAKE", "--out", "file/jbod.prom"], "--out file/jbod.prom: cannot be written: File exists"),
        (["--lake", "LAKE", "--out", "mis/typed/a.prom"], "--out mis/typed/a.prom: cannot be written: No such file or"),
        (["--lake", "LAKE", "--out", "pipe"], "--out pipe: that is no file: name one"),
        (["--lake", "LAKE", "--out", "jbod.prom", "--json"], "--out and --json: give one of them"),
        (["--lake", "LAKE", "--log", "missing"], "missing is not a directory"),
    ],
)
def test_metrics_bad_usage_is_one_line_and_leaves_with_2(
    lake: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    line: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SystemExit) as left:
        main.main(["metrics", *(str(lake) if word == "LAKE" else word for word in arguments)])
    printed = capsys.readouterr()
    assert (left.value.code, printed.out, printed.err.count("\n")) == (2, "", 1)
    assert line in printed.err
    assert (tmp_path / "pipe").is_fifo()  # as /dev/null, which was replaced by a file if root asked


def test_metrics_start_no_jvm_and_no_engine(lake: Path) -> None:
    code = (
        "import sys; from pipelines import cli\n"
        f"try: cli.main(['metrics', '--lake', {str(lake)!r}])\n"
        "finally: print(*sorted({'pyspark', 'numba', 'pandas', 'great_expectations'} & set(sys.modules)), 'end')"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ran.stdout.splitlines()[-1].split() == ["end"]


# HOW FAR THE LAKE IS BEHIND


def headers(segment: Path) -> list[tuple[int, int, int]]:
    """First offset, offset after the last record and size of every batch."""
    data, at, batches = segment.read_bytes(), 0, []
    while at < len(data):
        base, length = struct.unpack_from(">qi", data, at)
        (delta,) = struct.unpack_from(">i", data, at + 23)
        batches.append((base, base + delta + 1, length + 12))
        at += length + 12
    return batches


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A copy of a log of several segments, with an offset index beside each as Kafka writes it."""
    folder = tmp_path / "log" / "__cluster_metadata-0"
    folder.mkdir(parents=True)
    for segment in (metadata_dir("kafka-4.1.2") / folder.name).glob("*.log"):
        (folder / segment.name).write_bytes(segment.read_bytes())
    return folder.parent


def write_indexes(log: Path, *, every: int, spare: int) -> None:
    for segment in log.glob("*/*.log"):
        entries, at = [], 0
        for number, (_, end, size) in enumerate(headers(segment)):
            if number % every == 0 and at:
                entries.append(struct.pack(">ii", end - 1 - int(segment.stem), at))
            at += size
        segment.with_suffix(".index").write_bytes(b"".join(entries) + bytes(8 * spare))


@pytest.mark.parametrize("index", ["none", "closed", "live", "of another segment"])
def test_behind_counts_records_and_bytes_of_what_is_unread(log: Path, index: str) -> None:
    segments = sorted(log.glob("*/*.log"))
    batches = [header for segment in segments for header in headers(segment)]
    assert len(segments) > 2
    if index != "none":
        write_indexes(log, every=3, spare=5 if index == "live" else 0)
    if index == "of another segment":
        for segment in segments:
            segment.with_suffix(".index").write_bytes(struct.pack(">iiii", 1, 77, 2, 1 << 30))
    newest = batches[-1][1]
    for seen in (0, 1, *(end for _, end, _ in batches[::7]), newest - 1, newest, newest + 5):
        lag = behind(str(log), seen)
        assert lag.end_offset == newest
        assert lag.records == max(newest - seen, 0)
        assert lag.bytes == sum(size for _, end, size in batches if end > seen)


def test_behind_leaves_out_a_batch_that_is_cut_off(log: Path) -> None:
    last = max(log.glob("*/*.log"))
    *whole, (begins, _, _) = headers(last)
    last.write_bytes(last.read_bytes()[:-1])
    assert whole
    assert behind(str(log), whole[-1][0]).records == begins - whole[-1][0]
    assert behind(str(log), begins).bytes == 0


def test_behind_of_a_snapshot_alone_is_its_end(log: Path) -> None:
    for segment in log.glob("*/*.log"):
        segment.unlink()
    (log / "__cluster_metadata-0" / "00000000000000000500-0000000003.checkpoint").write_bytes(b"")
    assert (behind(str(log), 480).records, behind(str(log), 500).records) == (20, 0)


def test_behind_refuses_what_is_no_log(log: Path, tmp_path: Path) -> None:
    max(log.glob("*/*.log")).write_bytes(b"x" * 200)
    with pytest.raises(MalformedLog, match="byte 0 starts no record batch"):
        behind(str(log), 0)
    with pytest.raises(UsageError, match="is not a directory"):
        behind(str(tmp_path / "missing"), 0)


def test_behind_an_empty_new_segment_counts_nothing(log: Path) -> None:
    newest = headers(max(log.glob("*/*.log")))[-1][1]
    (log / "__cluster_metadata-0" / f"{newest:020d}.log").write_bytes(b"")
    assert (behind(str(log), newest).end_offset, behind(str(log), newest).bytes) == (newest, 0)


def test_metrics_say_how_far_the_lake_is_behind_its_log(lake: Path) -> None:
    source = metadata_dir("kafka-4.1.2")
    values = samples(metrics("--lake", lake, "--log", source))
    newest = max(entry.offset for entry in read_file(max(source.glob("*/*.log"))))
    assert values["log_end_offset", ()] == newest + 1
    assert values["log_unread_records", ()] == newest - 200
    assert values["log_unread_bytes", ()] > 0
