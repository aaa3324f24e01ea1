"""Garbage collection, threads and cores in the process of a command, and in the parent of Spark's workers."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.start.process import VARIABLE
from tests.support.paths import ROOT
from tests.support.volume import rare

COMMAND = """
import gc, os, sys
before = gc.get_threshold()
import pipelines.cli.main as main
assert "numpy" not in sys.modules
try:
    sys.argv = ["jbod", "--version"]
    main.run()
except SystemExit:
    pass
import numpy
threads = len(os.listdir("/proc/self/task"))
print(gc.get_threshold() == before, threads > 1)
"""

PARENT = """
import gc, os, runpy, sys
import pyspark.daemon
def say():
    print(gc.get_freeze_count() > 10_000, gc.get_threshold()[0] > 10_000)
pyspark.daemon.manager = say
sys.argv = ["daemon", "pyspark.worker"]
runpy.run_module("pipelines.start.daemon", run_name="__main__")
"""

RESIDENT = """
import pathlib
def resident():
    pages = pathlib.Path("/proc/self/statm").read_text().split()
    return (int(pages[1]) - int(pages[2])) * 4096  # without those of files
"""

RETURN = (
    RESIDENT
    + """
from pipelines.start.process import return_memory
pieces = [bytearray(20_000) for _ in range(5_000)]
last = bytearray(20_000)
before = resident()
del pieces
return_memory()
print("MB:", (before - resident()) // 1_000_000)
"""
)

OPEN_A_TABLE = (
    RESIDENT
    + """
import json, sys, threading, time
from pipelines.start.process import share_heaps
share_heaps()
from deltalake import DeltaTable
log = pathlib.Path(sys.argv[1]) / "_delta_log"
log.mkdir()
def commit(version, actions):
    (log / f"{version:020}.json").write_text("\\n".join(map(json.dumps, actions)))
def file(number):
    return {"path": f"{number}.parquet", "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
def open_table():
    DeltaTable(log.parent.as_uri()).get_add_actions()
column = {"name": "a", "type": "long", "nullable": True, "metadata": {}}
schema = {"schemaString": json.dumps({"type": "struct", "fields": [column]}), "partitionColumns": []}
table = {"id": "t", "format": {"provider": "parquet", "options": {}}, "configuration": {}, **schema}
commit(0, [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": table}, {"add": file(0)}])
open_table()
commit(1, [{"add": file(number)} for number in range(1, 100_000)])
before = resident()
thread = threading.Thread(target=open_table)
thread.start()
thread.join()
for _ in range(50):  # threads of delta-rs may still hold some
    if resident() - before > 10_000_000:
        time.sleep(0.1)
print("MB:", (resident() - before) // 1_000_000)
"""
)


def _last_words(program: str, *arguments: str, **env: str) -> list[str]:
    clean = {name: text for name, text in os.environ.items() if name not in (VARIABLE, "OPENBLAS_NUM_THREADS")}
    words = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(words, cwd=ROOT, env=clean | env, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.split()[-2:]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc gives memory back when it is asked")
def test_freed_memory_goes_back_to_the_system_although_some_above_it_is_in_use() -> None:
    assert int(_last_words(RETURN)[-1]) > 80


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_delta_rs_keeps_no_memory_of_a_table_that_is_closed(tmp_path: Path) -> None:
    """Cause: the memory of a fleet grew with each replay, by freed memory of delta-rs."""
    assert int(_last_words(OPEN_A_TABLE, str(tmp_path))[-1]) < 10


needs_threads = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="OpenBLAS starts a thread for each further core"
)


@needs_threads
def test_command_collects_garbage_rarely_and_numpy_starts_no_thread() -> None:
    assert _last_words(COMMAND) == ["False", "False"]


@needs_threads
def test_command_without_the_trick_keeps_the_defaults() -> None:
    assert _last_words(COMMAND, **{VARIABLE: "[]"}) == ["True", "True"]


@needs_threads
def test_number_of_threads_that_the_user_set_stays() -> None:
    assert _last_words(COMMAND, OPENBLAS_NUM_THREADS="2") == ["False", "True"]


@pytest.mark.parametrize(("tricks", "words"), [(["process"], ["True", "True"]), rare([], ["False", "False"])])
def test_parent_of_workers_hides_its_objects_from_the_collector(tricks: list[str], words: list[str]) -> None:
    assert _last_words(PARENT, **{VARIABLE: json.dumps(tricks)}) == words


def test_process_that_is_bound_to_one_core_counts_one() -> None:
    """Cause: a fleet's questions started a process for each core of the node, in a pod that may use one of them."""
    program = (
        "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); import pipelines.start.process as p; "
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{program}print(p.cores())"], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("1\n", "")
