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


def test_disks_of_a_server_config_include_the_metadata_directory(tmp_path: Path) -> None:
    disks = broker(tmp_path)
    config = tmp_path / "server.properties"
    config.write_text(f"node.id=2\nlog.dirs={disks[0]},{disks[1]}\nmetadata.log.dir={tmp_path}/metadata\n")
    result = run("disks", "-c", config, "--json")
    report = json.loads(result.output)
    assert result.exit_code == 1
    assert report["metadata_directory_path"] == f"{tmp_path}/metadata"
    assert [problem["directory_path"] for problem in report["problems"]] == [f"{tmp_path}/metadata"]
