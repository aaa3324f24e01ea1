"""Kernels that are not compiled give the same tables and the same errors as compiled ones."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from jbod_model.errors import UsageError
from pipelines.cli.main import application
from pipelines.run import decision, runner
from pipelines.start import process
from pipelines.start.process import PLAIN
from tests.support.paths import EVERY_KAFKA, ROOT, metadata_dir
from tests.support.volume import sampled

DAMAGED = 8
"""Copies of a log of which one byte differs."""
SEGMENT = "__cluster_metadata-0/00000000000000000000.log"


PROFILES = {"kafka-4.1.2": ("kafka", "kip858")}
"""Profiles by cluster, where they are more than Kafka's."""


def lines_of(log: str, profiles: Sequence[str] = ("kafka",)) -> list[str]:
    """Every table of a log under some profiles, or the error: a line each."""
    from jbod_model.errors import JbodError
    from pipelines.run.log_lake import replay_log
    from pipelines.source.log_options import LogOptions

    lines = []
    for profile in profiles:
        try:
            replayed_log = replay_log(LogOptions(path=log), profile=profile)
        except JbodError as problem:
            lines.append(f"{profile}: {problem}")
            continue
        tables = {**replayed_log.history, "settings": replayed_log.settings, "records": [replayed_log.records()]}
        lines += [f"{profile} {name}: {[part.to_pylist() for part in parts]}" for name, parts in sorted(tables.items())]
        lines.append(f"{profile}: {replayed_log.end_offset} {replayed_log.refusal} {dict(replayed_log.unknown)}")
    return lines


def _plainly(logs: Sequence[Path], profiles: Sequence[str] = ("kafka",)) -> list[list[str]]:
    """What a process with plain kernels says of logs."""
    program = (
        "import json, sys\n"
        "import os\n"
        f"os.environ[{PLAIN!r}] = '1'\n"
        "from tests.unit.start.test_plain_kernels import lines_of\n"
        "logs, profiles = map(json.loads, sys.argv[1:])\n"
        "print(json.dumps([lines_of(log, profiles) for log in logs]))\n"
        "assert 'numba' not in sys.modules\n"
    )
    words = [sys.executable, "-W", "error::RuntimeWarning", "-c", program]
    words += [json.dumps(list(map(str, logs))), json.dumps(profiles)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    lines: list[list[str]] = json.loads(done.stdout)
    return lines


@pytest.mark.parametrize("kafka", sampled(EVERY_KAFKA, 1))
def test_plain_kernels_give_the_tables_of_compiled_ones(kafka: str) -> None:
    log = metadata_dir(kafka)
    profiles = PROFILES.get(kafka, ("kafka",))
    (plain,) = _plainly([log], profiles)
    assert plain == lines_of(str(log), profiles)


def test_plain_kernels_give_the_errors_of_compiled_ones(tmp_path: Path) -> None:
    chance = random.Random(858)
    logs = []
    for number in range(DAMAGED):
        log = tmp_path / str(number)
        shutil.copytree(metadata_dir("kafka-4.1.2"), log)
        segment = log / SEGMENT
        data = bytearray(segment.read_bytes())
        # Half of the bytes are in the header of a batch, where a checksum does not hide what a kernel finds.
        at = chance.randrange(61) if number % 2 else chance.randrange(len(data))
        data[at] ^= 1 << chance.randrange(8)
        segment.write_bytes(data)
        logs.append(log)
    plain = _plainly(logs)
    assert plain == [lines_of(str(log)) for log in logs]
    assert len({lines[-1] for lines in plain}) > 3, "damage of several kinds"


def _log(folder: Path, records: int, size: int = 100) -> str:
    """A log whose only batch declares a number of records."""
    log = folder / "__cluster_metadata-0"
    log.mkdir()
    header = bytearray(61)
    header[8:12] = (size - 12).to_bytes(4)
    header[57:61] = records.to_bytes(4)
    (log / "00000000000000000000.log").write_bytes(bytes(header).ljust(size, b"\0"))
    return str(folder)


@pytest.mark.parametrize(
    ("records", "size", "plain"),
    [
        (process.MOST_RECORDS, 100, True),
        (process.MOST_RECORDS + 1, 100, False),
        (1, process.MOST_BYTES, True),
        (1, process.MOST_BYTES + 1, False),
    ],
)
def test_kernels_are_plain_for_few_records_in_few_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: int, size: int, plain: bool
) -> None:
    monkeypatch.setenv(PLAIN, "")
    monkeypatch.delitem(sys.modules, "pipelines.formats.kernels", raising=False)
    process.choose_kernels([_log(tmp_path, records, size)])
    assert process.are_plain() is plain


def test_log_with_a_pipe_for_a_segment_is_not_waited_for(tmp_path: Path) -> None:
    """Cause: its content was read, to count records, before the planner refused it: a question hung."""
    segment = Path(_log(tmp_path, 1, 100)) / "__cluster_metadata-0" / "00000000000000000000.log"
    os.mkfifo(segment.with_name("00000000000000000001.log"))
    assert process.log_files(tmp_path) == [segment]


@pytest.mark.parametrize(("words", "plain"), [([], True), (["--follow"], False), (["--requests", "r.log"], False)])
def test_replay_has_plain_kernels_if_it_ends_with_a_small_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], plain: bool
) -> None:
    assert _chosen_by_replay(monkeypatch, tmp_path / "lake", words) is plain


def test_replay_into_a_lake_that_exists_has_compiled_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lake" / "ledger").mkdir(parents=True)
    (tmp_path / "lake" / "ledger" / "closed-1.parquet").touch()
    assert not _chosen_by_replay(monkeypatch, tmp_path / "lake", [])


def _chosen_by_replay(monkeypatch: pytest.MonkeyPatch, lake: Path, words: Sequence[str]) -> bool:
    """Whether a replay of the bundled log has chosen plain kernels when it looks for something new."""
    monkeypatch.setenv(PLAIN, "")
    monkeypatch.delitem(sys.modules, "pipelines.formats.kernels")
    monkeypatch.setattr("pipelines.spark.session.spark_session_soon", lambda *_: None)

    def stop(*_: object, **__: object) -> None:
        # Otherwise later tests of this process would have plain kernels.
        assert runner.__name__ in sys.modules
        assert process._KERNELS not in sys.modules
        raise UsageError("far enough")

    monkeypatch.setattr(decision, "nothing_new", stop)
    done = CliRunner().invoke(
        application(["replay"]), ["replay", str(metadata_dir("kafka-4.1.2")), "--lake", str(lake), *words]
    )
    assert str(done.exception) == "far enough"
    return process.are_plain()


@pytest.mark.parametrize(("value", "plain"), [("1", True), ("", False)])
def test_worker_has_plain_kernels_if_the_driver_chose_them(value: str, plain: bool) -> None:
    program = "from pipelines.start.process import are_plain; print(are_plain())"
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, cwd=ROOT, env=os.environ | {PLAIN: value}, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(plain)


def test_kernels_are_compiled_if_they_are_imported_or_the_log_is_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PLAIN, "")
    for places in (["s3://bucket/log"], [str(ROOT / "nothing")], []):
        monkeypatch.delitem(sys.modules, "pipelines.formats.kernels", raising=False)
        process.choose_kernels(places)
        assert not process.are_plain()
    monkeypatch.setitem(sys.modules, "pipelines.formats.kernels", process)
    process.choose_kernels([str(metadata_dir("kafka-4.1.2"))])
    assert not process.are_plain()
