"""Answers from a log, without a lake: the same as a lake of that log gives."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings

from jbod_model.errors import JbodError, MalformedLog, ReplayViolation, UsageError
from jbod_model.formats.records import Record
from pipelines.ask.incident_list import incidents
from pipelines.ask.json_values import image, jsonable
from pipelines.ask.lake_status import directories, status
from pipelines.ask.moves import moves
from pipelines.ask.offline_replicas import offline
from pipelines.ask.partition_history import history
from pipelines.ask.risk import risk
from pipelines.check.catalogue import run_checks
from pipelines.lake.reader import Lake
from pipelines.lake.tables import BY_NAME, CHANGES, HISTORY, RECORDS
from pipelines.run.log_lake import LogLake
from pipelines.settings import load
from pipelines.source.log_dir import LOG_NAME as LOG
from pipelines.source.log_options import LogOptions
from tests.support import engine, local
from tests.support.paths import CLUSTERS, EVERY_KAFKA, metadata_dir
from tests.support.tables import differences, in_order, rows_of
from tests.support.volume import amount, exhaustive, sampled
from tests.unit.fold.histories import histories, log_of

COPIES = sorted(path for path in CLUSTERS.glob("*/metadata/*") if path.is_dir())
QUESTIONS: dict[str, Callable[[Lake], object]] = {
    "offline": lambda lake: (answer := offline(lake)).as_json() | {"replicas": answer.replicas},
    "status": status,
    "directories": directories,
    "image": image,
    "incidents": incidents,
    "moves": moves,
    "risk": lambda lake: jsonable(risk(lake)),
    "history": lambda lake: history(lake, "solo-6", 1),
    "check": lambda lake: list(run_checks(lake, (), load())),
}


def _name(path: Path) -> str:
    return f"{path.parts[-3]}/{path.name}"


def _tables(lake: LogLake) -> dict[str, list[dict[str, Any]]]:
    """Every row of the in-memory tables."""
    tables = {}
    for table in (*HISTORY, RECORDS):
        every = lake.records() if table is RECORDS else lake.until(table.name)
        rows = (
            lake.connection.sql(f"SELECT * FROM {every}").to_arrow_table().cast(BY_NAME[table.name].schema).to_pylist()
        )
        tables[table.name] = in_order(table.name, rows)
    return tables


def _answer(lake: Lake, question: str) -> Any:
    try:
        answer = json.loads(json.dumps(jsonable(QUESTIONS[question](lake)), default=str))
    except UsageError as problem:
        return str(problem).replace(lake.path, "")
    if question == "status":
        answer.pop("published_time", answer.pop("publishedTime", None))
    return answer


def _same_tables(log: Path, lake: Path) -> list[str]:
    expected = {name: rows for name, rows in rows_of(lake).items() if name in {t.name for t in (*HISTORY, RECORDS)}}
    return differences(_tables(LogLake.of(LogOptions(path=str(log)))), expected)


@pytest.mark.parametrize("copy", sampled(COPIES, 2), ids=_name)
def test_log_has_the_tables_of_its_lake(tmp_path: Path, copy: Path) -> None:
    local.replay(copy, tmp_path / "lake")
    assert _same_tables(copy, tmp_path / "lake") == []


@settings(max_examples=amount(3, 24), deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(records=histories())
def test_log_of_a_random_history_has_the_tables_of_the_engine_in_small_batches(records: list[Record]) -> None:
    with tempfile.TemporaryDirectory() as made:
        (Path(made) / "log").mkdir()
        log = log_of(Path(made) / "log", *records)
        try:
            expected = engine.replay(log, most=3)
        except ReplayViolation as problem:
            try:
                refusal = LogLake.of(LogOptions(path=str(log))).log.refusal
            except ReplayViolation as raised:
                refusal = raised
            assert str(refusal) == str(problem)
            return
        tables = _tables(LogLake.of(LogOptions(path=str(log))))
        expected.pop(CHANGES.name, None)  # for streams, not for questions
        assert differences(tables | {RECORDS.name: []}, {n: in_order(n, rows) for n, rows in expected.items()}) == []


@pytest.mark.parametrize("kafka", sampled(EVERY_KAFKA[::-1], 1))
def test_questions_to_a_log_are_answered_as_by_its_lake(tmp_path: Path, kafka: str) -> None:
    source = metadata_dir(kafka)
    local.replay(source, tmp_path / "lake")
    newest = Lake.open(tmp_path / "lake").offset
    log = LogLake.of(LogOptions(path=str(source)))
    for offset in (newest // 3, newest) if exhaustive() else (newest // 2,):
        lake, ours = Lake.open(tmp_path / "lake", offset), log._at(offset)
        for question in QUESTIONS:
            # Both are asked at the same moment as far as checks of freshness go.
            if question == "check" and offset == newest:
                continue
            assert _answer(ours, question) == _answer(lake, question), (question, offset)


def test_log_is_asked_as_of_a_time_like_its_lake(tmp_path: Path) -> None:
    source = metadata_dir("kafka-4.1.2")
    local.replay(source, tmp_path / "lake")
    at = Lake.open(tmp_path / "lake", 231).time
    log_lake = LogLake.of(LogOptions(path=str(source)), at_time=at)
    assert (log_lake.offset, log_lake.time) == (Lake.open(tmp_path / "lake", at_time=at).offset, at)


def test_damaged_log_answers_from_what_is_sound_and_says_why_not_from_more(tmp_path: Path) -> None:
    shutil.copytree(metadata_dir("kafka-4.1.2"), tmp_path / "log")
    segment = sorted((tmp_path / "log" / LOG).glob("*.log"))[-1]
    data = bytearray(segment.read_bytes())
    data[-10] ^= 1
    segment.write_bytes(data)
    whole, damaged_lake = (
        LogLake.of(LogOptions(path=str(metadata_dir("kafka-4.1.2")))),
        LogLake.of(LogOptions(path=str(tmp_path / "log"))),
    )
    assert isinstance(damaged_lake.log.refusal, MalformedLog)
    assert whole.offset > damaged_lake.offset > 0
    assert _answer(damaged_lake, "offline") == _answer(whole._at(damaged_lake.offset), "offline")


@pytest.mark.parametrize(("at", "what"), [(83 + 16, "batch magic is not 2"), (3000, "CRC-32C")])
def test_sound_log_answers_before_a_damaged_snapshot_after_its_end(tmp_path: Path, at: int, what: str) -> None:
    """R-READ-1: a wrong checksum in the snapshot hid the log, a wrong magic did not."""
    shutil.copytree(metadata_dir("kafka-4.1.2"), tmp_path / "log")
    (snapshot,) = (tmp_path / "log" / LOG).glob("*.checkpoint")
    data = bytearray(snapshot.read_bytes())
    data[at] ^= 1
    snapshot.with_name(f"{900:020d}-{1:010d}.checkpoint").write_bytes(data)
    lake = LogLake.of(LogOptions(path=str(tmp_path / "log")))
    assert lake.offset == 629
    assert re.search(rf"900-0000000001\.checkpoint: .*{what}", str(lake.refusal))
    with pytest.raises(MalformedLog, match=what):
        LogLake.of(LogOptions(path=str(tmp_path / "log")), 700)


def test_log_of_nothing_but_damage_is_refused(tmp_path: Path) -> None:
    shutil.copytree(metadata_dir("kafka-4.1.2"), tmp_path / "log")
    for segment in (tmp_path / "log" / LOG).glob("*.log"):
        segment.write_bytes(b"\0" * 100)
    for snapshot in (tmp_path / "log" / LOG).glob("*.checkpoint"):
        snapshot.unlink()
    with pytest.raises(JbodError):
        LogLake.of(LogOptions(path=str(tmp_path / "log")))


def test_questions_to_a_log_write_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(metadata_dir("kafka-4.1.2"), tmp_path / "log")
    monkeypatch.chdir(tmp_path)
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    LogLake.of(LogOptions(path="log")).query("SELECT 1")
    _answer(LogLake.of(LogOptions(path="log")), "offline")
    assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")) == before


@pytest.mark.parametrize("copy", sampled(COPIES, 1), ids=_name)
def test_log_in_several_shards_has_the_tables_of_one(monkeypatch: pytest.MonkeyPatch, copy: Path) -> None:
    expected = _tables(LogLake.of(LogOptions(path=str(copy))))
    monkeypatch.setattr("pipelines.run.log_lake.SHARD_BYTES", 4_000)
    assert differences(_tables(LogLake.of(LogOptions(path=str(copy)))), expected) == []


@pytest.mark.parametrize("copy", sampled(COPIES, 3), ids=_name)
def test_times_of_offsets_of_a_log_are_those_of_its_records(copy: Path) -> None:
    lake = LogLake.of(LogOptions(path=str(copy)))
    offsets = [offset for (offset,) in lake.query(f"SELECT DISTINCT log_offset FROM {lake.records()} ORDER BY 1")]
    assert len(offsets) > 1
    assert lake.times(offsets) == Lake.times(lake, offsets)


@pytest.mark.parametrize("copy", sampled(COPIES, 3), ids=_name)
def test_batches_of_offsets_of_a_log_are_those_of_its_records(copy: Path) -> None:
    lake = LogLake.of(LogOptions(path=str(copy)))
    offsets = [offset for (offset,) in lake.query(f"SELECT log_offset FROM {lake.records()} WHERE NOT snapshot")]
    batches = lake.batches(offsets)
    assert batches == Lake.batches(lake, offsets)
    assert len(offsets) > len(set(batches.values())) > 1
