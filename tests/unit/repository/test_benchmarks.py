"""What benchmarks measure is what Kafka does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.budget import BUDGETS, Taken, tiny_log
from benchmarks.floor import REPLAY, commands, table
from benchmarks.increments import disk_failure
from benchmarks.memory import family
from benchmarks.scale import Figure, exponent
from pipelines.lake.reader import Lake
from tests.support.lakes import write_lake
from tests.support.logs import read_log
from tests.support.paths import metadata_dir

BEFORE, BROKER, DIRECTORY = 154, 1, "r60JqwAFn7gsit5hNSGjVw"
"""In the log of a real cluster this disk failed with the records after this offset."""


def test_failed_disk_of_a_benchmark_is_what_kafka_wrote_but_for_the_order(tmp_path: Path) -> None:
    log = read_log(metadata_dir("kafka-4.1.2"))
    write_lake(tmp_path / "lake", log)
    written = {str(entry.versioned) for entry in log if entry.batch_offset == BEFORE + 1}
    lake = Lake.open(tmp_path / "lake", at_offset=BEFORE)
    assert len(written) == 8
    assert {str(record) for record in disk_failure(lake, BROKER, DIRECTORY)} == written


def test_exponent_of_linear_growth_is_one_and_of_squares_two() -> None:
    points = [Figure(size, "any", seconds=size / 10, bytes=size**2) for size in (20, 200, 2000)]
    assert (exponent(points, "seconds"), exponent(points, "bytes")) == (1, 2)
    assert exponent(points[:1], "seconds") is None


def test_log_of_start_up_has_whole_batches_of_the_bundled_one(tmp_path: Path) -> None:
    assert 0 < len(read_log(tiny_log(tmp_path))) < 50


def test_budget_names_each_measurement_once() -> None:
    assert len({(budget.command, budget.on, budget.size) for budget in BUDGETS}) == len(BUDGETS)
    assert Taken(BUDGETS[0], 1.2, 0.5, 1, 100).ratio == 2


def test_family_of_a_process_that_has_ended_is_itself() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
        assert list(family(process.pid)) == [process.pid]


def test_table_of_the_floor_has_the_median_of_the_ratios_within_each_round() -> None:
    rounds = [{REPLAY: 2.0, "floor": 1.0}, {REPLAY: 30.0, "floor": 20.0}, {REPLAY: 9.0, "floor": 3.0}]
    assert table(rounds)[2:] == [
        "| jbod replay | 9.00 (2.00 to 30.00) |  |",
        "| floor | 3.00 (1.00 to 20.00) | 2.00 times this |",
    ]


def test_commands_of_the_floor_share_no_folder(tmp_path: Path) -> None:
    folders = [words[-1] for words in commands(tmp_path).values()]
    assert len(set(folders)) == 3  # a query that finds a checkpoint has nothing to do
