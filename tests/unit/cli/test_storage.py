"""``jbod disks`` as a person or a script meets it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from jbod_model.errors import UsageError
from pipelines.cli.main import application

CLUSTERS = Path(__file__).parents[2] / "fixtures" / "clusters"
CLUSTER = "JBODtestCluster0123456"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(application(["disks"]), [str(argument) for argument in arguments])


def broker(tmp_path: Path, node: int = 2, version: str = "kafka-4.1.2") -> list[Path]:
    """A copy of a real broker's disks."""
    for source in sorted((CLUSTERS / version / "disks").glob(f"disk{node}*")):
        shutil.copytree(source, tmp_path / source.name)
    return sorted(tmp_path.glob("disk*"))


def test_disks_of_a_healthy_broker_exit_0(tmp_path: Path) -> None:
    result = run("disks", *broker(tmp_path))
    assert result.exit_code == 0, result.output
    assert "A broker starts with these directories." in result.output
    assert "ur7t5nJkF52EPU5ZHQapFQ" in result.output


def test_disks_with_problems_name_them_with_the_next_step_and_exit_1(tmp_path: Path) -> None:
    disks = broker(tmp_path)
    shutil.copy(disks[0] / "meta.properties", disks[1])
    result = run("disks", *disks, tmp_path / "gone")
    assert result.exit_code == 1
    assert "R-STORE-8" in result.output
    assert "one is a copy" in result.output
    assert "there is no such directory" in result.output
    assert "does not start" in result.output


def folder(disk: Path, name: str, topic_id: str) -> None:
    (disk / name).mkdir()
    (disk / name / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")


def test_disk_and_its_copy_with_an_id_of_its_own_do_not_start(tmp_path: Path) -> None:
    """A real broker stopped with "Duplicate log directories", after jbod had said that it starts."""
    disks = broker(tmp_path)
    for disk in disks[:2]:
        for number in range(5):
            folder(disk, f"clicks-{number}", "pI32v048Q-u9QSd-F7pIqg")
    result = run("disks", *disks)
    assert result.exit_code == 1
    assert "A broker does not start" in result.output
    twice = [line for line in result.output.splitlines() if line.startswith("R-STORE-24")]
    assert len(twice) == 1 and f"{disks[1]}: has folders of partitions that {disks[0]} has" in twice[0]
    assert "clicks-0, clicks-1, clicks-2 and 2 more" in twice[0]
    report = json.loads(run("disks", *disks, "--json").output)
    assert [place["state"] for place in report["directories"]] == ["ok", "broken", "ok"]


def test_folder_of_a_topic_that_was_created_again_does_not_stop_a_start(tmp_path: Path) -> None:
    disks = broker(tmp_path)
    folder(disks[0], "clicks-0", "pI32v048Q-u9QSd-F7pIqg")
    folder(disks[1], "clicks-0", "r60JqwAFn7gsit5hNSGjVw")
    assert run("disks", *disks).exit_code == 0


def test_folders_of_the_same_partition_on_two_brokers_are_no_problem(tmp_path: Path) -> None:
    disks = [broker(tmp_path)[0], broker(tmp_path, node=1)[0]]
    for disk in disks:
        folder(disk, "clicks-0", "pI32v048Q-u9QSd-F7pIqg")
    assert run("disks", *disks).exit_code == 0


def test_directory_without_meta_properties_is_to_be_mounted_before_it_is_formatted(tmp_path: Path) -> None:
    """The advice was to format it: where a disk was only not mounted, its broker recreated the replicas empty."""
    disks = broker(tmp_path)
    (disks[1] / "meta.properties").unlink()
    for paths in (disks, [disks[0], tmp_path / "gone"]):
        advice = next(line for line in run("disks", *paths).output.splitlines() if line.startswith("R-STORE-10"))
        assert (
            0 < advice.index("mount the disk") < advice.index("--blank DIR") < advice.index("kafka-storage.sh format")
        )
        for needed in ("--config server.properties", "--cluster-id CLUSTER_ID", "--ignore-formatted"):
            assert needed in advice
    assert "mount the disks" in run("disks", disks[1]).output


def test_disks_of_two_brokers_are_sound_and_grouped_by_node(tmp_path: Path) -> None:
    """Cause: the first disk's node was expected of all, and the others were to be wiped."""
    disks = broker(tmp_path) + broker(tmp_path, node=1)
    result = run("disks", *disks)
    assert result.exit_code == 0, result.output
    assert "Node 1: A broker starts" in result.output
    assert "Node 2: A broker starts" in result.output
    groups = json.loads(run("disks", *disks, "--json").output)["nodes"]
    assert [group["node_id"] for group in groups] == [1, 2]
    assert sum(len(group["directories"]) for group in groups) == len({*disks})


def test_disk_of_another_broker_is_not_to_be_wiped(tmp_path: Path) -> None:
    result = run("disks", *broker(tmp_path), *broker(tmp_path, node=1), "--node-id", "2")
    assert result.exit_code == 1
    assert "comes from another broker" in result.output
    assert "wipe" not in result.output


def test_disks_as_json_say_what_a_person_reads(tmp_path: Path) -> None:
    disks = broker(tmp_path)
    (disks[0] / "foo-0").mkdir()
    (disks[0] / "foo-1.0123456789abcdef0123456789abcdef-future").mkdir()
    (disks[1] / "meta.properties").write_text("version=7\n")
    result = run("disks", *disks, "--json")
    assert result.exit_code == 1
    report = json.loads(result.output)
    assert report["node_id"] == 2
    assert report["cluster_id"] == CLUSTER
    assert report["starts"] is True
    assert [row["state"] for row in report["directories"]][:2] == ["ok", "look"]
    assert (report["directories"][0]["replicas"], report["directories"][0]["future_replicas"]) == (1, 1)
    assert report["problems"][0]["rule"] == "R-STORE-2"


def test_disks_of_a_migrated_broker_are_clean_with_a_note(tmp_path: Path) -> None:
    result = run("disks", *broker(tmp_path, version="kafka-3.9.2-zk-migration"))
    assert result.exit_code == 0
    assert "R-STORE-4" in result.output


@pytest.mark.parametrize(("kind", "words"), [("empty", "no meta.properties"), ("missing", "no such"), ("file", "read")])
def test_disks_of_a_path_without_a_formatted_directory(tmp_path: Path, kind: str, words: str) -> None:
    """StorageToolTest.testInfoCommandOnEmptyDirectory, ...OnMissingDirectory, ...OnDirectoryAsFile."""
    path = tmp_path / kind
    if kind == "empty":
        path.mkdir()
    elif kind == "file":
        path.write_text("")
    result = run("disks", path)
    assert result.exit_code == 1
    assert words in result.output


def test_disks_without_a_directory_are_bad_usage() -> None:
    assert isinstance(run("disks").exception, UsageError)


def test_folder_of_log_directories_is_bad_usage(tmp_path: Path) -> None:
    """Cause: ``jbod disks /data`` said that no disk can be read, and how to format it."""
    broker(tmp_path)
    assert str(run("disks", tmp_path).exception) == (
        f"{tmp_path}: is a folder of log directories: name each of them: {tmp_path}/*"
    )


def test_disks_of_a_server_config_include_the_metadata_directory(tmp_path: Path) -> None:
    disks = broker(tmp_path)
    config = tmp_path / "server.properties"
    config.write_text(f"node.id=2\nlog.dirs={disks[0]},{disks[1]}\nmetadata.log.dir={tmp_path}/metadata\n")
    result = run("disks", "-c", config, "--json")
    report = json.loads(result.output)
    assert result.exit_code == 1
    assert report["metadata_directory_path"] == f"{tmp_path}/metadata"
    assert [problem["directory_path"] for problem in report["problems"]] == [f"{tmp_path}/metadata"]


def test_log_dir_that_no_file_system_has_is_a_problem(tmp_path: Path) -> None:
    """It was a traceback."""
    config = tmp_path / "server.properties"
    config.write_text("node.id=2\nlog.dirs=/data\\u0000x\n")
    result = run("disks", "--config", config)
    assert (result.exit_code, "is not a path" in result.output) == (1, True)
