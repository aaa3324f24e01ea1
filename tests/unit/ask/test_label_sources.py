"""Names of directories: what each source says, what they say together, and where answers show them."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pytest

from jbod_model.errors import UsageError
from pipelines.ask.log_dirs import merged, read_sources
from pipelines.ask.whatif_places import find_place
from pipelines.cli import main
from pipelines.lake.labels import write_statements
from pipelines.lake.names import Name, Names, Statement
from pipelines.lake.reader import Lake
from tests.support.lakes import write_lake
from tests.support.logs import read_log
from tests.support.paths import CLUSTERS, metadata_dir
from tests.support.volume import amount

KAFKA = "kafka-4.1.2"
DISKS = CLUSTERS / KAFKA / "disks"
FAILED_OF_1, FAILED_OF_2 = "r60JqwAFn7gsit5hNSGjVw", "tVpKKovKXwQW6lj6leXrUQ"
DISK_1A = "KowJDD3QjA6g0Jm4Zr1xkA"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("labels") / "lake"
    write_lake(path, read_log(metadata_dir(KAFKA)), cluster_id="JBODtestCluster0123456")
    return path


@pytest.fixture
def lake(made: Path, tmp_path: Path) -> str:
    return str(shutil.copytree(made, tmp_path / "lake"))


def at_200(lake: str) -> Lake:
    """The lake while a disk of broker 1 and one of broker 2 are offline."""
    return Lake.open(lake, at_offset=200)


def names(lake: Lake, *sources: object) -> Names:
    return Names.of(read_sources(lake, map(str, sources)).statements)


def test_mounted_disk_has_the_path_where_its_id_is(lake: str) -> None:
    for source in (DISKS / "disk1a", DISKS / "disk1a" / "meta.properties", DISKS):
        assert names(at_200(lake), source).get(DISK_1A) == Name(str(DISKS / "disk1a"), None)


def test_disk_of_another_cluster_is_left_out_and_said(lake: str, tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id=other\ndirectory.id={DISK_1A}\n")
    read = read_sources(at_200(lake), [str(tmp_path)])
    assert read.statements == []
    assert read.notes == [
        f"{tmp_path}/meta.properties: belongs to cluster other, not to JBODtestCluster0123456: left out"
    ]


def test_disk_on_another_broker_than_in_the_log_is_reported(lake: str, tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(f"version=0\nbroker.id=3\ndirectory.id={DISK_1A}\n")
    assert (
        f"says broker 3; the log has directory {DISK_1A} on broker 1"
        in read_sources(at_200(lake), [str(tmp_path)]).notes[0]
    )


def test_failed_disk_gets_the_only_path_of_its_broker_that_is_left(lake: str, tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(f"node.id=1\nlog.dirs={DISKS}/disk1a,{DISKS}/disk1b,{DISKS}/disk1c\n")
    read = read_sources(at_200(lake), [str(config)])
    assert Names.of(read.statements).get(FAILED_OF_1) == Name(f"{DISKS}/disk1b", None)
    assert "the only directory of broker 1 that was left" in read.statements[-1].source
    # The same after its replicas were recreated elsewhere: the broker had the directory earlier.
    read = read_sources(Lake.open(lake, at_offset=231), [str(config)])
    assert Names.of(read.statements).get(FAILED_OF_1) == Name(f"{DISKS}/disk1b", None)
    # With two paths and one id, nothing is guessed.
    config.write_text(f"node.id=1\nlog.dirs={DISKS}/disk1a,{DISKS}/disk1b,{DISKS}/disk1c,/data/new\n")
    read = read_sources(at_200(lake), [str(config)])
    assert Names.of(read.statements).get(FAILED_OF_1) is None
    assert any(f"no id could be read; directories without a path: {FAILED_OF_1}" in note for note in read.notes)


def test_log_dirs_are_told_by_the_replicas_in_them(lake: str, tmp_path: Path) -> None:
    log_dir_names = names(Lake.open(lake), CLUSTERS / KAFKA / "logdirs.json")
    mounted = names(Lake.open(lake), DISKS)
    assert len(log_dir_names.by_id) == 6
    for directory, name in log_dir_names.by_id.items():
        assert Path(str(name.path)).name == Path(str(mounted.by_id[directory].path)).name
    file = tmp_path / "log-dirs.json"
    file.write_text('{"brokers": [{"broker": 1, "logDirs": [{"partitions": [{}], "logDir": "/data"}]}]}')
    with pytest.raises(UsageError, match="not the output of kafka-log-dirs"):
        read_sources(Lake.open(lake), [str(file)])


def test_file_of_labels_names_ids_paths_and_paths_of_a_broker(lake: str, tmp_path: Path) -> None:
    file = tmp_path / "labels"
    file.write_text(
        f"# slots\nbroker 1 {DISKS}/disk1a = rack 7 slot 1\n{DISKS}/disk1c = rack 7 slot 3\n"
        f"broker 2 {DISKS}/disk1c = no such place\n{FAILED_OF_2} = /data/old disk\n{FAILED_OF_2} = blue = left\n"
    )
    disk_names = names(at_200(lake), DISKS, file)
    assert disk_names.get(DISK_1A) == Name(f"{DISKS}/disk1a", "rack 7 slot 1")
    assert disk_names.get("klcU6Q6pIhmW1Anoahzlqg") == Name(f"{DISKS}/disk1c", "rack 7 slot 3")
    assert disk_names.get(FAILED_OF_2) == Name("/data/old disk", "blue = left")
    assert disk_names.conflicts == ()


@pytest.mark.parametrize("line", ["disk1b = rack 7", "broker 1 /data/disk1b", "= rack 7", "r60J = rack 7"])
def test_line_of_labels_that_cannot_be_read_is_named(lake: str, tmp_path: Path, line: str) -> None:
    (tmp_path / "labels").write_text(f"\n{line}\n")
    with pytest.raises(UsageError, match="labels line 2: "):
        read_sources(at_200(lake), [str(tmp_path / "labels")])


def test_source_that_is_not_there_is_bad_usage_with_its_name(lake: str, tmp_path: Path) -> None:
    """It was an error of the system, at which a replay failed whose labels.sources had it."""
    with pytest.raises(UsageError, match=f"^{tmp_path}/labels: No such file or directory$"):
        read_sources(at_200(lake), [str(tmp_path / "labels")])


def test_sources_that_disagree_are_said_and_the_disk_itself_wins(lake: str, tmp_path: Path) -> None:
    (tmp_path / "labels").write_text(f"{DISK_1A} = /data/elsewhere\n")
    disk_names = names(at_200(lake), tmp_path / "labels", DISKS / "disk1a")
    assert disk_names.get(DISK_1A) == Name(f"{DISKS}/disk1a", None)
    assert len(disk_names.conflicts) == 1
    assert (
        f"the path is {DISKS}/disk1a by {DISKS}/disk1a/meta.properties, and /data/elsewhere by"
        in disk_names.conflicts[0]
    )


def test_sources_that_disagree_are_told_where_directories_are_listed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Every answer repeated it."""
    (tmp_path / "labels").write_text(f"{DISK_1A} = /data/elsewhere\n")
    log = ["--log", str(metadata_dir(KAFKA)), "--at-offset", "200", "--format", "csv"]
    log += ["--labels", str(tmp_path / "labels"), "--labels", str(DISKS / "disk1a")]
    warning = f"jbod: sources of names disagree about directory {DISK_1A}: see jbod label\n"
    for question, times in (("directories", 1), ("offline", 0), ("status", 0)):
        assert run(capsys, question, *log)[2].count(warning) == times


def test_newer_statement_replaces_and_an_unmounted_disk_keeps_its_name(lake: str) -> None:
    first = read_sources(Lake.open(lake), [str(DISKS)]).statements
    again = read_sources(Lake.open(lake), [str(DISKS / "disk1a")]).statements
    kept = merged(first, again)
    assert len(kept) == len(first) == 9
    assert {statement.directory_id for statement in kept} == {statement.directory_id for statement in first}
    file = Statement("labels file", "/x line 1", None, DISK_1A, None, "a", first[0].read_time)
    assert merged([file], [file._replace(source="/x line 3", directory_id=FAILED_OF_1)])[0].directory_id == FAILED_OF_1


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main.main(words)
    output = capsys.readouterr()
    return int(left.value.code or 0), output.out, output.err


def test_names_are_kept_in_the_lake_and_shown_with_the_id_behind(
    lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "labels").write_text(f"{FAILED_OF_1} = /data/disk1b\nbroker 1 /data/disk1b = rack 7 slot 2\n")
    code, output, _ = run(capsys, "label", str(tmp_path / "labels"), str(DISKS), "--lake", lake)
    assert (code, output.splitlines()[0]) == (0, "10 directories with a name.")
    at = ("--lake", lake, "--at-offset", "200")
    output = run(capsys, "offline", *at)[1]
    assert f"broker 1 runs, but reported that directory /data/disk1b ({FAILED_OF_1}, rack 7 slot 2) failed" in output
    assert any(line.split()[2:4] == ["/data/disk1b", f"({FAILED_OF_1})"] for line in output.splitlines())
    (cause, *_) = json.loads(run(capsys, "offline", *at, "--dir", "/data/disk1b", "--json")[1])["causes"]
    assert (cause["directory_id"], cause["directory_path"], cause["directory_label"]) == (
        FAILED_OF_1,
        "/data/disk1b",
        "rack 7 slot 2",
    )
    assert FAILED_OF_1 in cause["finding"]
    for text in ("/data/disk1b", "rack 7*", "1:r60J", FAILED_OF_1)[: amount(2, 4)]:
        rows = [*csv.DictReader(io.StringIO(run(capsys, "offline", *at, "--dir", text, "--format", "csv")[1]))]
        assert {(row["directory_path"], row["directory_label"]) for row in rows} == {("/data/disk1b", "rack 7 slot 2")}
        assert len(rows) == 7
    assert (
        f"Not safe to remove: directory /data/disk1b ({FAILED_OF_1}"
        in run(capsys, "safe-to-remove", "1:/data/disk1b", *at)[1]
    )
    metrics = run(capsys, "metrics", "--lake", lake)[1]
    assert f'jbod_directory_info{{broker="1",directory="{DISK_1A}",label="",path="{DISKS}/disk1a"}} 1.0' in metrics
    assert find_place(Lake.open(lake, at_offset=200), "1:rack 7 slot 2").directory_id == FAILED_OF_1


def test_lake_without_names_shows_ids(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    output = run(capsys, "offline", "--lake", lake, "--at-offset", "200")[1]
    assert f"reported that directory {FAILED_OF_1} failed" in output


def test_names_of_a_log_come_from_files_or_the_setting(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("labels").write_text(f"{FAILED_OF_1} = /data/disk1b\n")
    log = ("--log", str(metadata_dir(KAFKA)), "--at-offset", "200")
    named = run(capsys, "offline", *log, "--labels", "labels")[1]
    assert f"directory /data/disk1b ({FAILED_OF_1}) failed" in named
    Path("mine.yaml").write_text("labels: {sources: [labels]}\n")
    assert run(capsys, "--conf", "mine.yaml", "offline", *log)[1] == named


def test_forgotten_name_is_gone(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    opened = Lake.open(lake)
    write_statements(lake, read_sources(opened, [str(DISKS)]).statements)
    assert run(capsys, "label", "--lake", lake, "--forget", DISK_1A)[1].startswith("8 directories with a name.")
    assert Lake.open(lake).names.get(DISK_1A) is None
    assert run(capsys, "label", "--lake", lake, "--forget", DISK_1A)[0] == 2
