"""The file of a fleet."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jbod_model.errors import UsageError
from pipelines.fleet.clusters import FollowedFile, read_fleet
from tests.support.lakes import write_lake
from tests.support.logs import read_log
from tests.support.paths import metadata_dir


def fleet(folder: Path, text: str) -> Path:
    path = folder / "fleet.yaml"
    path.write_text(f"clusters:\n{text}")
    return path


def test_cluster_has_its_log_its_lake_and_its_settings(tmp_path: Path) -> None:
    orders, other = read_fleet(
        fleet(
            tmp_path,
            "- {name: orders, log: /logs/orders, lake: s3://lakes/orders}\n"
            "- name: payments\n  log: logs/payments\n  lake: lakes/payments\n  labels: [names.txt]\n"
            "  settings: {replay: {max_records: 7}, check: {stale_seconds: 600}}\n",
        )
    )
    assert (orders.name, orders.log, orders.lake) == ("orders", "/logs/orders", "s3://lakes/orders")
    assert (other.log, other.lake) == (f"{tmp_path}/logs/payments", f"{tmp_path}/lakes/payments")
    assert (other.settings.replay.max_records, other.settings.check.stale_seconds) == (7, 600)
    assert other.settings.labels.sources == [f"{tmp_path}/names.txt"]
    assert orders.settings.replay.max_records > 7


def test_settings_of_a_cluster_that_are_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    """Cause: they were relative to the folder of the command, so that cron or a service did not find the file."""
    own = "{quorum: {command_config: tls}, replay: {checkpoints: 's3://x'}, labels: {sources: [/a, b]}}"
    (cluster,) = read_fleet(fleet(tmp_path, f"- {{name: a, log: 'kafka://b:9093', lake: a, settings: {own}}}\n"))
    assert cluster.settings.quorum.command_config == f"{tmp_path}/tls"
    assert cluster.settings.replay.checkpoints == "s3://x"
    assert cluster.settings.labels.sources == ["/a", f"{tmp_path}/b"]


def test_pattern_names_a_cluster_for_each_folder(tmp_path: Path) -> None:
    for name in ("kafka-b", "kafka-a", "other", "kafka-without-a-log"):
        (tmp_path / "logs" / name / "" if "without" in name else tmp_path / "logs" / name / "metadata").mkdir(
            parents=True
        )
    clusters = read_fleet(fleet(tmp_path, "- {log: logs/kafka-*/metadata, lake: lakes/*}\n"))
    assert [(cluster.name, Path(cluster.log).parent.name, Path(cluster.lake).name) for cluster in clusters] == [
        ("a", "kafka-a", "a"),
        ("b", "kafka-b", "b"),
    ]


def test_star_in_a_folder_above_the_file_is_no_pattern(tmp_path: Path) -> None:
    """Cause: paths were joined with that folder before the star was looked for: a file without patterns was refused."""
    folder = tmp_path / "a*b"
    for name in ("x", "*"):
        (folder / "logs" / name).mkdir(parents=True)
    text = "- {name: plain, log: log, lake: lake}\n- {log: logs/*, lake: lakes/k-*}\n"
    clusters = read_fleet(fleet(folder, text))
    assert [(cluster.name, cluster.log, cluster.lake) for cluster in clusters] == [
        ("plain", f"{folder}/log", f"{folder}/lake"),
        ("*", f"{folder}/logs/*", f"{folder}/lakes/k-*"),
        ("x", f"{folder}/logs/x", f"{folder}/lakes/k-x"),
    ]


def test_folder_that_cannot_be_looked_into_costs_no_other_cluster(tmp_path: Path) -> None:
    (tmp_path / "logs" / "a").mkdir(parents=True)
    (tmp_path / "logs" / "b").mkdir()
    name = "too-long" * 50
    assert [cluster.name for cluster in read_fleet(fleet(tmp_path, f"- {{log: logs/*/{name}, lake: lakes/*}}\n"))] == [
        "a",
        "b",
    ]


def test_pattern_whose_logs_cannot_be_listed_has_the_clusters_that_have_a_lake(tmp_path: Path) -> None:
    """Cause: the file was refused, so that a disk that was not mounted cost all other clusters their replays."""
    (tmp_path / "lakes" / "notes").mkdir(parents=True)
    write_lake(tmp_path / "lakes" / "a", read_log(metadata_dir("kafka-4.1.2"), "log")[:9])
    listed = "- {name: b, log: b, lake: b}\n- {log: unmounted/*, lake: lakes/*}\n"
    assert [cluster.name for cluster in read_fleet(fleet(tmp_path, listed))] == ["b", "a"]


def test_pattern_whose_lakes_cannot_be_listed_has_the_clusters_that_have_a_log(tmp_path: Path) -> None:
    """Cause: the file was refused."""
    (tmp_path / "logs" / "a").mkdir(parents=True)
    (tmp_path / "lakes").touch()
    assert [cluster.name for cluster in read_fleet(fleet(tmp_path, "- {log: logs/*, lake: lakes/*}\n"))] == ["a"]


def test_file_that_is_followed_has_the_clusters_of_new_folders_and_of_before_while_it_is_wrong(tmp_path: Path) -> None:
    def until(condition: Callable[[], bool]) -> None:
        began = time.monotonic()
        while not condition():
            assert time.monotonic() - began < 30
            time.sleep(0.01)

    def names() -> list[str]:
        return [cluster.name for cluster in followed]

    (tmp_path / "logs" / "a").mkdir(parents=True)
    path, lines = fleet(tmp_path, "- {log: logs/*, lake: lakes/*}\n"), list[str]()
    followed = FollowedFile(path, lines.append, 0.0)
    (tmp_path / "logs" / "b").mkdir()
    until(lambda: names() == ["a", "b"])
    (tmp_path / "edited").mkdir()
    fleet(tmp_path / "edited", "- {log: logs/*}\n").rename(path)
    until(lambda: names() != ["a", "b"] or bool(lines))
    assert (names(), lines[0]) == (["a", "b"], f"{path}: cluster 1: lake is missing")


def test_folder_whose_name_cannot_be_printed_is_refused(tmp_path: Path) -> None:
    """The name was printed as it is, over several lines."""
    (tmp_path / "logs" / "a\nb").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"cluster 1: name 'a\\nb': has a character that cannot be printed"):
        read_fleet(fleet(tmp_path, "- {log: logs/*, lake: lakes/*}\n"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("  {}\n", "clusters: is no list of clusters"),
        ("- just text\n", "cluster 1: is no mapping"),
        ("- {name: a, log: x}\n", "cluster a: lake is missing"),
        ("- {log: x, lake: y}\n", "cluster 1: name is missing"),
        ("- {name: 7, log: x, lake: y}\n", "cluster 1: name is no text but 7, as YAML reads it: put it in quotes"),
        ("- {name: yes, log: x, lake: y}\n", "cluster 1: name is no text but True"),
        ("- {name: a, log: 2026-11-21, lake: y}\n", "cluster a: log is no text but 2026-11-21, as YAML"),
        ("- {name: a, log: ~, lake: y}\n", "cluster a: log is missing"),
        ("- {name: a, log: x, lake: /y}\n- {name: b, log: x, lake: 'file:///y'}\n", "two clusters have the lake /y"),
        ("- {name: a, log: x, lake: y, lags: 1}\n", "cluster a: lags: no such key; there are name, log, lake"),
        ("- {name: a, log: x, lake: y}\n- {name: a, log: x, lake: z}\n", "two clusters have the name a"),
        ("- {name: a, log: x, lake: y}\n- {name: b, log: x, lake: y}\n", "two clusters have the lake "),
        ("- {name: a, log: x, lake: y}\n- {name: b, log: x, lake: z/../y}\n", "two clusters have the lake "),
        ("- {log: x/*, lake: y}\n", "cluster 1: a pattern has one"),
        ("- {log: ./*/metadata, lake: y/*}\n", "its patterns match no folder"),
        ("- {log: kafka://*, lake: y/*}\n", "a pattern is of folders"),
        ("- {log: none/*/metadata, lake: y/*}\n", "No such file or directory"),
        ('- {name: a, log: x, lake: "a\\0b"}\n', r"cluster a: lake 'a\x00b': has a character that cannot be printed"),
        ('- {log: "x\\0/*", lake: y/*}\n', r"cluster 1: log 'x\x00/*': has a character"),
        ('- {name: "\\ud800", log: x, lake: y}\n', r"cluster 1: name '\ud800': has a character"),
        ('- {name: "a\\nb", log: x, lake: y}\n', r"cluster 1: name 'a\nb': has a character"),
        ("- {name: a, log: x, lake: y, settings: {spark: {master: yarn}}}\n", "settings.spark: all clusters share"),
        (
            "- {name: a, log: x, lake: y, settings: {replay: {tale: wait}}}\n",
            "cluster a: settings: replay.tale: no such",
        ),
        ("- {name: a, log: x, lake: y, settings: {replay: {tale: wait}}}\n", "did you mean tail?"),
        ("- {name: a, log: x, lake: y, settings: {files: [z]}}\n", "cluster a: settings: files: no such setting"),
        ("- {name: a, log: ~/x, lake: y}\n", "cluster a: ~/x: no shell has replaced the ~: write the whole path, /"),
        ("- {log: x/*, lake: ~/y/*}\n", "cluster 1: ~/y/*: no shell has replaced the ~"),
        ("- {name: a, log: x, lake: y, labels: [~/z]}\n", "cluster a: ~/z: no shell has replaced the ~"),
    ],
)
def test_wrong_file_is_refused_with_its_name_and_the_cluster(tmp_path: Path, text: str, message: str) -> None:
    path = fleet(tmp_path, text)
    with pytest.raises(UsageError) as refused:
        read_fleet(path)
    assert message in str(refused.value)
    assert str(tmp_path) in str(refused.value)
    assert "\n" not in str(refused.value)
