"""Commands that may not read or write a file, or find no room for it: one line, which says what to do, and exit 2."""

from __future__ import annotations

import ctypes
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.check.findings import findings
from pipelines.lake.reader import Lake
from tests.support.paths import CLUSTERS, ROOT, metadata_dir
from tests.unit.check.story import Story, disk

REASON = "File too large: raise the limit on the size of files and run again; what was published is whole and stays"
NO_KEEP = "--no-keep checks without writing findings"
TO_READ = "Permission denied: give this user the right to read it"
TO_WRITE = "Permission denied: give this user the right to write there"


def without_room() -> None:
    """No file of this process has room for a byte."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def without_rights() -> None:
    """Permissions count for the programs of this process even if it is root's: no CAP_DAC_OVERRIDE and so on."""
    for capability in (1, 2):
        ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


def run(
    *words: str | Path, before: Callable[[], object] | None = None, cwd: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pipelines.cli.main", *map(str, words)],
        cwd=cwd,
        preexec_fn=before,
        capture_output=True,
        text=True,
        check=False,
    )


def refusal(*words: str | Path, before: Callable[[], object] = without_rights) -> str:
    """The line with which a command refuses. If a disk is full, Rust may print a panic of delta-rs before it."""
    done = run("-q", *words, before=before)
    lines = done.stderr.splitlines()
    assert (done.returncode, lines[-1][:6], len(lines) == 1 or before is without_room) == (2, "jbod: ", True), lines
    return lines[-1].removeprefix("jbod: ")


def broken_lake(path: Path) -> Path:
    Story().broker(1, "ab").broker(2, "c").topic("t", {1: "a", 2: "c"}).left(1, "b").lake(path)
    return path


def test_names_that_find_no_room_are_refused_with_the_reason(tmp_path: Path) -> None:
    """Cause: "cannot be written (Generic LocalFileSystem error)", without the reason."""
    lake = broken_lake(tmp_path / "lake")
    names = tmp_path / "names"
    names.write_text(f"{disk('a')} = rack 7\n")
    assert refusal("label", names, "--lake", lake, before=without_room) == f"{lake}/labels: {REASON}"
    assert Lake.open(str(lake)).offset == 5
    assert run("label", names, "--lake", lake).returncode == 0


@pytest.mark.parametrize("kept", [False, True], ids=["first", "second"])
def test_findings_that_find_no_room_are_refused_with_the_reason(tmp_path: Path, kept: bool) -> None:
    """Cause: "cannot be created (Generic LocalFileSystem error)", without the reason."""
    lake = broken_lake(tmp_path / "lake")
    if kept:
        assert run("check", "--lake", lake, "--only", "B-17").returncode == 0
    before = findings(str(lake))
    assert refusal("check", "--lake", lake, before=without_room) == f"{lake}/findings: {REASON}: {NO_KEEP}"
    assert findings(str(lake)) == before
    assert run("check", "--lake", lake).returncode == 1


def test_lake_that_cannot_be_written_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """Cause: "Could not create local directory", without the reason."""
    lake = broken_lake(tmp_path / "lake")
    names = tmp_path / "names"
    names.write_text(f"{disk('a')} = rack 7\n")
    lake.chmod(0o555)
    for words, table in ((("check",), "findings"), (("label", names), "labels")):
        assert refusal(*words, "--lake", lake).startswith(f"{lake}/{table}: {TO_WRITE}")
    assert run("offline", "--lake", lake, before=without_rights).returncode == 0


def test_what_cannot_be_read_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """Cause: "Permission denied", and nothing else; of ``jbod DIR`` a ledger that is not there."""
    log = shutil.copytree(metadata_dir("kafka-4.1.2"), tmp_path / "log")
    segment = min(log.glob("*/*.log"))
    lake = broken_lake(tmp_path / "lake")
    names = tmp_path / "names"
    names.touch()
    for hidden, words in (
        (segment, ("offline", log)),
        (log, ("offline", log)),
        (log, (log,)),
        (lake / "ledger", ("offline", "--lake", lake)),
        (names, ("label", names, "--lake", lake)),
        (names, ("--conf", names, "status")),
    ):
        mode = hidden.stat().st_mode
        hidden.chmod(0)
        line = refusal(*words) if len(words) > 1 else run(*words, before=without_rights).stderr.rstrip()
        assert line.removeprefix("jbod: ").startswith(str(hidden if hidden.parent != lake else lake)), line
        assert line.replace("Permission denied):", "Permission denied:").endswith(TO_READ)
        hidden.chmod(mode)


def test_lake_beside_a_folder_that_cannot_be_read_is_found(tmp_path: Path) -> None:
    """Cause: "other/ledger/_delta_log: Permission denied" and exit code 2, for jbod and for jbod DIR."""
    broken_lake(tmp_path / "lake")
    (tmp_path / "other").mkdir(mode=0)
    for words in ((), (tmp_path,)):
        done = run(*words, before=without_rights, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("A lake: ")


def test_disk_that_this_user_may_not_read_is_not_called_failed(tmp_path: Path) -> None:
    """Cause: "A broker does not start with these directories", with the advice to repair the disk."""
    directory = shutil.copytree(min((CLUSTERS / "kafka-4.1.2" / "disks").glob("disk2*")), tmp_path / "disk")
    (directory / "meta.properties").chmod(0)
    assert refusal("disks", directory) == (
        f"{directory}: meta.properties cannot be read: Permission denied: run jbod disks as the user of the broker"
    )


def test_command_without_a_temporary_folder_says_which_variable_names_one() -> None:
    """Cause: "[Errno 2] No usable temporary directory found in [...]", without what to do."""
    line = refusal("offline", "-", before=without_room)
    assert line.startswith("No usable temporary directory found in [")
    assert line.endswith("]: TMPDIR names a folder that this user can write")


def test_terminal_of_no_width_gets_the_whole_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cause: with COLUMNS=0, only the table of an answer was printed, no help, and no refusal of an option."""
    lake = broken_lake(tmp_path / "lake")
    for words in (("offline", "--lake", lake), ("offline", "--no-such-option"), ("--help",)):
        monkeypatch.delenv("COLUMNS", raising=False)
        usual = run("-q", *words)
        monkeypatch.setenv("COLUMNS", "0")
        narrow = run("-q", *words)
        assert (narrow.stdout, narrow.stderr) == (usual.stdout, usual.stderr)
