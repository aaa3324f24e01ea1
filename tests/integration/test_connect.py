"""Spark Connect: the data source, a replay, and a lake's tables and views through a real server.

The client has no JVM. It runs in a process of its own: a process has either classic sessions or those of Connect.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copytree

import pytest

from pipelines import ask
from pipelines.lake.ledger import open_ledger
from tests.support.connect_server import connect_server
from tests.support.lakes import Reference
from tests.support.logs import read_log
from tests.support.paths import ROOT, metadata_dir
from tests.support.request_lakes import JoinedLake, request_lines, request_log
from tests.support.request_lakes import rows_of as request_rows_of
from tests.support.tables import differences, expected_rows, rows_of

pytestmark = pytest.mark.exhaustive  # the same run without a server: test_replay_runs.py, test_requests.py

KAFKA = "kafka-4.1.2"
JBOD = (sys.executable, "-c", "from pipelines.cli import run; run()")
Jbod = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with connect_server(tmp_path_factory.mktemp("server")) as address:
        yield address


def environment(remote: str) -> dict[str, str]:
    clean = {name: text for name, text in os.environ.items() if not name.startswith(("JBOD_", "SPARK_", "PYSPARK_"))}
    return clean | {"JBOD_SPARK__REMOTE": remote}


@pytest.fixture(scope="module")
def jbod(server: str) -> Jbod:
    """Runs jbod with ``spark.remote``."""

    def run(*words: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*JBOD, *words],
            cwd=ROOT,
            env=environment(server),
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == code, done.stderr
        return done

    return run


@pytest.fixture(scope="module")
def whole(jbod: Jbod, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object]]:
    """A lake of the log and the request log, published in three batches, and what the run reported."""
    lake = tmp_path_factory.mktemp("connect") / "lake"
    words = ("--max-records", "250", "--start", "log", "--requests", request_log(KAFKA), "--json")
    return lake, json.loads(jbod("replay", metadata_dir(KAFKA), "--lake", lake, *words).stdout)


def test_tables_are_the_references_row_for_row(whole: tuple[Path, dict[str, object]]) -> None:
    lake, _ = whole
    assert differences(rows_of(lake), expected_rows(Reference().add(read_log(metadata_dir(KAFKA), "log")))) == []


def test_client_reports_what_the_ledger_says(whole: tuple[Path, dict[str, object]], tmp_path: Path) -> None:
    lake, reply = whole
    assert (reply["start_offset"], reply["end_offset"], reply["batches"], reply["interrupted"]) == (0, 630, 3, False)
    ledger = open_ledger(str(lake)).to_pyarrow_table().to_pylist()
    written: Counter[str] = Counter()
    for row in ledger:
        written.update(dict(row["rows"]))
    assert reply["rows"] == dict(written)
    joined = JoinedLake(tmp_path / "lake", KAFKA)
    joined.replay()
    joined.add(request_lines(KAFKA))
    assert request_rows_of(lake) == joined.rows
    outcomes = Counter(": ".join(filter(None, (row["outcome"], row["why"]))) for row in joined.rows)
    assert reply["requests"] == dict(outcomes)


def test_run_that_follows_ends_at_sigterm_with_its_query_and_later_runs_go_on_from_the_checkpoint(
    server: str, jbod: Jbod, tmp_path: Path
) -> None:
    log, lake = tmp_path / "log", tmp_path / "lake"
    copytree(metadata_dir(KAFKA), log)
    segments = sorted((log / "__cluster_metadata-0").glob("*.log"))
    held = segments[-1].rename(tmp_path / "held")
    followed = int(segments[-1].stem)
    words = (*JBOD, "replay", log, "--lake", lake, "--start", "log", "--follow", "--json")
    with subprocess.Popen(
        words, cwd=ROOT, env=environment(server), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as client:
        wait_for(lambda: (lake / "ledger/_delta_log/00000000000000000001.json").exists())
        client.send_signal(signal.SIGTERM)
        out, err = client.communicate(timeout=120)
    assert client.returncode == 0, err
    reply = json.loads(out)
    assert (reply["end_offset"], reply["batches"], reply["interrupted"]) == (followed, 1, False)
    assert "nothing new" in jbod("replay", log, "--lake", lake).stdout
    planned = len(list((lake / "_checkpoint" / "offsets").iterdir()))
    held.rename(segments[-1])
    time.sleep(3)
    assert len(list((lake / "_checkpoint" / "offsets").iterdir())) == planned, "the server still follows the log"
    done = json.loads(jbod("replay", log, "--lake", lake, "--json").stdout)
    assert (done["start_offset"], done["end_offset"], done["batches"]) == (followed, 630, 1)
    assert not [line for line in done["notices"] if "rebuilt" in line]
    rows, expected = rows_of(lake), expected_rows(Reference().add(read_log(metadata_dir(KAFKA), "log")))
    assert differences(rows, expected) == []


@pytest.mark.exhaustive  # without a server: test_replay_input.py
def test_error_of_the_log_is_one_line_after_everything_before_it_is_published(jbod: Jbod, tmp_path: Path) -> None:
    log = tmp_path / "log"
    copytree(metadata_dir(KAFKA), log)
    segment = max((log / "__cluster_metadata-0").glob("*.log"))
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 0xFF
    segment.write_bytes(content)
    done = jbod("replay", log, "--lake", tmp_path / "lake", "--start", "log", code=2)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("jbod: ")]
    assert str(segment.name) in line
    assert ask.Lake.open(tmp_path / "lake").offset > int(segment.stem)


@pytest.mark.exhaustive
def test_server_publishes_nothing_once_its_client_is_dead(server: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    copytree(metadata_dir(KAFKA), log)
    segments = sorted((log / "__cluster_metadata-0").glob("*.log"))
    held = segments[-1].rename(tmp_path / "held")
    lake = tmp_path / "lake"
    words = ("replay", log, "--lake", lake, "--start", "log", "--follow")
    with subprocess.Popen([*JBOD, *words], cwd=ROOT, env=environment(server)) as client:
        wait_for(lambda: (lake / "ledger/_delta_log/00000000000000000001.json").exists())
        client.send_signal(signal.SIGKILL)
    end = ask.Lake.open(lake).offset
    commits = lake / "_checkpoint" / "commits"
    planned = lake / "_checkpoint" / "offsets"
    before = len(list(planned.iterdir()))
    held.rename(segments[-1])
    wait_for(lambda: len(list(planned.iterdir())) > before)
    time.sleep(3)
    assert ask.Lake.open(lake).offset == end
    assert commits.is_dir()


NOTEBOOK = """
import json, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
before = dict(spark.conf.getAll)
from pipelines.source.kraft_metadata import register
register(spark)
records = spark.read.format("kraft_metadata").load(sys.argv[2])
types = {row.record_type: row["count"] for row in records.groupBy("record_type").count().collect()}
from pipelines import open_lake
lake = open_lake(sys.argv[3], at_offset=231).in_spark()
assert lake.spark is spark, lake.spark
lake.create_views()
offline = spark.sql("SELECT * FROM offline_now").count()
at = spark.sql("SELECT count(*) FROM offline_replicas_at(200)").collect()[0][0]
assert dict(spark.conf.getAll) == before
from jbod_model.errors import UsageError
from pipelines.run.options import Replay
from pipelines.run.runner import Runner
try:
    Runner(Replay(sys.argv[2], sys.argv[4])).run(spark)
except UsageError as problem:
    refused = str(problem)
print(json.dumps([types, offline, at, refused]))
"""


@pytest.mark.exhaustive
def test_session_that_exists_reads_the_log_and_the_lake_and_keeps_its_settings(
    server: str, whole: tuple[Path, dict[str, object]], tmp_path: Path
) -> None:
    """The server's state store is Spark's default, which has no stateful operator: a replay says what to set."""
    lake, _ = whole
    words = [sys.executable, "-c", NOTEBOOK, server, str(metadata_dir(KAFKA)), str(lake), str(tmp_path / "lake")]
    done = subprocess.run(words, cwd=ROOT, env=environment(""), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    types, offline, at, refused = json.loads(done.stdout)
    assert refused.startswith("a replay keeps its state in RocksDB: set spark.sql.streaming.stateStore.providerClass")
    assert not (tmp_path / "lake").exists()
    entries = Reference().add(read_log(metadata_dir(KAFKA))).records
    assert types == dict(Counter(row["record_type"] for row in entries))
    now, then = ask.Lake.open(lake, at_offset=231), ask.Lake.open(lake, at_offset=200)
    assert offline == now.query(f"SELECT count(*) FROM {now.at('offline_replicas')}")[0][0]
    assert at == then.query(f"SELECT count(*) FROM {then.at('offline_replicas')}")[0][0]


def wait_for(condition: Callable[[], bool], seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.2)
