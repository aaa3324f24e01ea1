"""Sizes of directories: the sources, and how well it is known which path is which directory."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
from typer.testing import CliRunner

from jbod_model.errors import UsageError
from jbod_model.storage.properties import read_meta_properties
from pipelines.ask.sizes import CERTAIN, LIKELY, UNKNOWN, DirectorySize, keep, kept, sizes
from pipelines.cli.main import application
from pipelines.lake.reader import Lake
from pipelines.show.text import in_units
from tests.support.paths import CLUSTERS, EVERY_KAFKA
from tests.unit.ask.test_plan_check import named
from tests.unit.check.story import Story, disk

A, B, C, D = (str(disk(name)) for name in "abcd")


def printed(path: Path, broker: int = 1, **directories: Mapping[str, int]) -> str:
    """What kafka-log-dirs prints for a broker: directory -> partition -> bytes. ``+t-0`` is a future replica."""
    log_dirs = [
        {
            "partitions": [
                {"partition": name.lstrip("+"), "size": size, "offsetLag": 0, "isFuture": name.startswith("+")}
                for name, size in held.items()
            ],
            "error": None,
            "logDir": f"/data/{directory}",
        }
        for directory, held in directories.items()
    ]
    text = f"Querying brokers\n{json.dumps({'brokers': [{'broker': broker, 'logDirs': log_dirs}], 'version': 1})}\n"
    path.mkdir(parents=True, exist_ok=True)
    (path / "sizes.txt").write_text(text)
    return str(path / "sizes.txt")


def of(lake: Lake, *sources: str) -> dict[str, DirectorySize]:
    return {
        directory.path or f"id {directory.directory_id}": directory for directory in sizes(lake, sources).directories
    }


def two_disks(path: Path) -> Lake:
    """Broker 1 has t-0 and t-1 in a, u-0 in b."""
    return Story().broker(1, "ab").topic("t", {1: "a"}, {1: "a"}).topic("u", {1: "b"}).lake(path / "lake")


def test_replicas_that_are_in_one_directory_and_never_moved_make_its_path_certain(tmp_path: Path) -> None:
    directories = of(two_disks(tmp_path), printed(tmp_path, x={"t-0": 10, "t-1": 30}, y={"u-0": 5}))
    x, y = directories["/data/x"], directories["/data/y"]
    assert (x.directory_id, x.pairing, x.replicas, x.bytes, x.missing, x.astray) == (A, CERTAIN, 2, 40, 0, 0)
    assert (y.directory_id, y.pairing, y.bytes) == (B, CERTAIN, 5)
    assert [(topic.topic, topic.replicas, topic.bytes) for topic in x.topics] == [("t", 2, 40)]


def test_future_replicas_are_apart_and_tell_nothing(tmp_path: Path) -> None:
    """The log may name the target of a move before the copies are swapped."""
    lake = Story().broker(1, "ab").topic("t", {1: "a"}).topic("u", {1: "b"}).assign("t", 0, 1, "b").lake(tmp_path / "l")
    directories = of(lake, printed(tmp_path, x={"t-0": 10}, y={"u-0": 5, "+t-0": 7}))
    x, y = directories["/data/x"], directories["/data/y"]
    assert (y.replicas, y.bytes, y.future_replicas, y.future_bytes) == (1, 5, 1, 7)
    assert (y.directory_id, y.pairing, x.directory_id, x.pairing) == (B, CERTAIN, A, LIKELY)


def test_empty_directory_is_likely_the_one_that_is_left_and_two_are_unknown(tmp_path: Path) -> None:
    lake = Story().broker(1, "abcd").topic("t", {1: "a"}).topic("u", {1: "b"}).topic("v", {1: "c"}).lake(tmp_path / "l")
    directories = of(lake, printed(tmp_path, x={"t-0": 1}, y={"u-0": 1}, z={"v-0": 1}, w={}))
    assert (directories["/data/w"].directory_id, directories["/data/w"].pairing) == (D, LIKELY)
    directories = of(lake, printed(tmp_path, x={"t-0": 1}, y={"u-0": 1}, z={}, w={}))
    assert {directories[f"/data/{letter}"].pairing for letter in "zw"} == {UNKNOWN}
    assert {directories[f"id {directory_id}"].recorded for directory_id in (C, D)} == {0, 1}


def test_new_disk_in_the_place_of_a_dead_one_is_the_directory_that_the_broker_lists(tmp_path: Path) -> None:
    """Replicas that nobody could copy still name the dead one."""
    story = Story().broker(1, "ab").topic("t", {1: "a"}).topic("u", {1: "b"}).broker(1, "bc")
    directories = of(story.lake(tmp_path / "l"), printed(tmp_path, x={}, y={"u-0": 1}))
    assert (directories["/data/x"].directory_id, directories["/data/x"].pairing) == (C, LIKELY)
    assert directories[f"id {A}"].recorded == 1


def test_labelled_path_of_dead_disks_is_the_directory_that_the_broker_lists(tmp_path: Path) -> None:
    """Any of them was taken: those that are gone still have replicas."""
    story = Story().broker(1, "abcd").topic("t", {1: "a"}, {1: "b"}, {1: "c"}, {1: "d"}).broker(1, "zd", process=2)
    lake = story.lake(tmp_path / "lake")
    named(lake, {"/data/x": "abcz"})
    x = of(lake, printed(tmp_path, x={}, y={"t-3": 5}))["/data/x"]
    assert (x.directory_id, x.evidence) == (str(disk("z")), "jbod label has it")


def test_replica_that_moved_since_makes_nothing_certain(tmp_path: Path) -> None:
    """By the log t-0 went to b; the file is older."""
    lake = Story().broker(1, "ab").topic("t", {1: "a"}).assign("t", 0, 1, "b").lake(tmp_path / "l")
    directories = of(lake, printed(tmp_path, x={"t-0": 1}, y={}))
    assert directories["/data/x"].pairing != CERTAIN


def test_paths_that_claim_the_same_directory_are_unknown(tmp_path: Path) -> None:
    lake = Story().broker(1, "abc").topic("t", {1: "a"}, {1: "a"}, {1: "a"}, {1: "a"}).lake(tmp_path / "l")
    directories = of(lake, printed(tmp_path, x={"t-0": 1, "t-1": 1}, y={"t-2": 1, "t-3": 1}))
    assert {directories["/data/x"].pairing, directories["/data/y"].pairing} == {UNKNOWN}


def test_replicas_that_the_log_has_elsewhere_are_counted(tmp_path: Path) -> None:
    lake = Story().broker(1, "ab").topic("t", {1: "a"}, {1: "a"}, {1: "a"}, {1: "b"}).lake(tmp_path / "l")
    directories = of(lake, printed(tmp_path, x={"t-0": 1, "t-1": 1, "t-3": 1, "stray-0": 1}, y={}))
    x = directories["/data/x"]
    assert x.pairing == UNKNOWN or (x.directory_id, x.missing, x.astray) == (A, 1, 2)


def test_failed_directory_has_what_the_log_has_in_it(tmp_path: Path) -> None:
    lake = two_disks(tmp_path)
    source = Path(printed(tmp_path, x={"t-0": 10}, y={}))
    source.write_text(
        source.read_text().replace('"error": null, "logDir": "/data/y"', '"error": "X", "logDir": "/data/y"')
    )
    y = of(lake, str(source))["/data/y"]
    assert (y.error, y.replicas, y.directory_id, y.pairing, y.recorded, y.missing) == ("X", None, B, LIKELY, 1, 1)


def test_mounted_disk_is_certain_and_has_its_file_system(tmp_path: Path) -> None:
    lake = two_disks(tmp_path)
    mounted = tmp_path / "disks" / "x"
    for name, size in (("t-0", 3), ("t-1.0123456789abcdef0123456789abcdef-future", 4), ("not a partition", 9)):
        (mounted / name).mkdir(parents=True)
        (mounted / name / "00000000000000000000.log").write_bytes(b"x" * size)
        (mounted / name / "00000000000000000000.index").write_bytes(b"x" * 100)
    (mounted / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id=\ndirectory.id={A}\n")
    x = of(lake, str(mounted.parent))[str(mounted)]
    assert (x.directory_id, x.pairing, x.bytes, x.future_bytes) == (A, CERTAIN, 3, 4)
    assert x.total_bytes and x.used_percent is not None


@pytest.mark.parametrize("text", ["{}", "nothing", '{"logDirs": 1}'])
def test_file_that_is_no_source_is_bad_usage(tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(UsageError):
        sizes(two_disks(tmp_path), [str(tmp_path / "file")])


# KEPT


def keep_run(lake: Lake, path: Path, time: int, *, replicas: int = 2, **directories: int) -> int:
    """Keeps these sizes of broker 1, as of ``time``."""
    source = printed(
        path,
        1,
        **{
            directory: {f"t-{at}": size // replicas for at in range(replicas)}
            for directory, size in directories.items()
        },
    )
    os.utime(source, (time, time))
    return keep(lake, sizes(lake, [source]))


def grown(lake: Lake, place: str = "/data/x") -> int | None:
    return next(directory.growth for directory in kept(lake).directories if directory.path == place)


def test_sizes_that_are_kept_answer_without_a_source(tmp_path: Path) -> None:
    lake = two_disks(tmp_path)
    with pytest.raises(UsageError, match="no sizes are kept"):
        kept(lake)
    assert keep_run(lake, tmp_path, 1000, x=40) == 1
    directory = kept(lake).directories[0]
    assert (directory.path, directory.directory_id, directory.pairing, directory.bytes, directory.replicas) == (
        "/data/x",
        A,
        CERTAIN,
        40,
        2,
    )
    assert (directory.time, directory.growth) == (datetime.fromtimestamp(1000, UTC), None)


def test_source_that_was_kept_already_is_not_kept_twice(tmp_path: Path) -> None:
    lake = two_disks(tmp_path)
    assert [keep_run(lake, tmp_path, time, x=40) for time in (1000, 1000, 1001)] == [1, 0, 1]


def test_newest_run_of_each_broker_counts(tmp_path: Path) -> None:
    """A path that is not there any more is gone; a broker that was not asked keeps its sizes."""
    lake = (
        Story().broker(1, "ab").broker(2, "c").topic("t", {1: "a"}, {1: "b"}).topic("u", {2: "c"}).lake(tmp_path / "l")
    )
    for time, broker, held in (
        (1000, 1, {"x": {"t-0": 1}, "y": {"t-1": 1}}),
        (1000, 2, {"z": {"u-0": 5}}),
        (2000, 1, {"x": {"t-0": 7, "t-1": 7}}),
    ):
        source = printed(tmp_path, broker, **held)
        os.utime(source, (time, time))
        keep(lake, sizes(lake, [source]))
    assert [(directory.broker_id, directory.path, directory.bytes) for directory in kept(lake).directories] == [
        (1, "/data/x", 14),
        (2, "/data/z", 5),
    ]


def test_growth_is_the_slope_since_the_replicas_changed(tmp_path: Path) -> None:
    lake, hour = two_disks(tmp_path), 3600
    for at, size in enumerate((100, 200, 300)):
        keep_run(lake, tmp_path, 10**9 + at * hour, x=size)
    assert grown(lake) == 2400
    keep_run(lake, tmp_path, 10**9 + 3 * hour, replicas=4, x=100_000)
    assert grown(lake) is None
    keep_run(lake, tmp_path, 10**9 + 4 * hour, replicas=4, x=99_800)
    assert grown(lake) == -4800
    keep_run(lake, tmp_path, 10**9 + 60 * 24 * hour, replicas=4, x=99_900)
    assert grown(lake) is None


def test_days_until_full_follow_from_growth_and_free_bytes() -> None:
    directory = DirectorySize(1, "/x", A, CERTAIN, "", total_bytes=1000, free_bytes=250, growth=100)
    assert directory.days_until_full == 2
    assert [replace(directory, growth=growth).days_until_full for growth in (0, -5, None)] == [None] * 3


def test_sizes_of_later_offsets_are_not_those_of_the_past(tmp_path: Path) -> None:
    lake = two_disks(tmp_path)
    keep_run(lake, tmp_path, 1000, x=40)
    with pytest.raises(UsageError, match="no sizes are kept"):
        kept(Lake.open(lake.path, lake.offset - 1))


def test_run_that_dies_while_it_keeps_leaves_all_or_nothing(tmp_path: Path) -> None:
    """Delta's log names a file only in the commit after it was written."""
    lake = two_disks(tmp_path)
    keep_run(lake, tmp_path, 1000, x=40)
    folder = Path(lake.path) / "directory_sizes"
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    keep_run(lake, tmp_path, 2000, x=50)
    for commit in (folder / "_delta_log").glob("*1.json"):
        commit.unlink()  # its data file stays
    assert {path for path in folder.rglob("*") if path.is_file()} > {*before}
    assert kept(lake).directories[0].bytes == 40
    assert keep_run(lake, tmp_path, 2000, x=50) == 1
    assert kept(lake).directories[0].bytes == 50


def test_command_keeps_and_answers_with_growth(tmp_path: Path) -> None:
    two_disks(tmp_path)
    line = ["sizes", "--lake", str(tmp_path / "lake")]
    for time, size in ((10**9, 1 << 30), (10**9 + 86_400, 3 << 30)):
        source = printed(tmp_path, x={"t-0": size, "t-1": 0}, y={"u-0": 5})
        os.utime(source, (time, time))
        run = CliRunner().invoke(application(line), [*line, source, "--keep"])
        assert (run.exit_code, "sizes of 2 directories are kept" in run.stderr) == (0, True), run.output
    run = CliRunner().invoke(application(line), line)
    assert "+2.0 GiB" in run.output
    assert "as of 2001-09-10 01:46:40.000Z" in run.output
    refused = CliRunner().invoke(application(line), [*line, "--keep"])
    assert "name a source" in str(refused.exception)


# REAL CLUSTERS


@pytest.mark.parametrize("kafka", EVERY_KAFKA)
def test_path_that_is_certain_is_that_of_meta_properties(kafka: str, cluster_lakes: Mapping[str, Path]) -> None:
    truth: dict[str, str] = {}
    for disk_path in sorted((CLUSTERS / kafka / "disks").glob("*")):
        truth[disk_path.name] = str(read_meta_properties(str(disk_path)).directory_id)
    directories = sizes(Lake.open(str(cluster_lakes[kafka])), [str(CLUSTERS / kafka / "logdirs.json")]).directories
    certain = [directory for directory in directories if directory.pairing == CERTAIN]
    assert certain
    for directory in certain:
        assert truth.get(Path(directory.path or "").name, directory.directory_id) == directory.directory_id


# RANDOM BROKERS


def test_certain_paths_are_right_whatever_moves_between_the_file_and_the_log(tmp_path: Path) -> None:
    """Moves that the file has not seen yet, or that the log has not."""
    certain_paths = 0
    for seed in range(12):
        random = Random(seed)
        disks = "abcd"[: random.randint(2, 4)]
        place = {f"t-{number}": random.choice(disks) for number in range(random.randint(1, 8))}
        story = Story().broker(1, disks).topic("t", *({1: letter} for letter in place.values()))
        seen = dict(place)
        for _ in range(random.randint(0, 3)):
            name = random.choice([*place])
            place[name] = random.choice(disks)
            story = story.assign("t", int(name[2:]), 1, place[name])
            if random.random() < 0.5:
                seen = dict(place)
        held: dict[str, dict[str, int]] = {letter: {} for letter in disks}
        for name, where in seen.items():
            held[where][name] = 1
        directories = of(story.lake(tmp_path / str(seed) / "lake"), printed(tmp_path / str(seed), 1, **held))
        for path, directory in directories.items():
            if directory.pairing == CERTAIN:
                certain_paths += 1
                assert directory.directory_id == str(disk(path[-1])), f"seed {seed}"
    assert certain_paths


# THE COMMAND


def test_command_shows_what_fills_a_directory(tmp_path: Path) -> None:
    two_disks(tmp_path)
    source = printed(tmp_path, x={"t-0": 5 << 30, "t-1": 1 << 30}, y={})
    line = ["sizes", source, "--lake", str(tmp_path / "lake")]
    run = CliRunner().invoke(application(line), line)
    assert run.exit_code == 0, run.output
    assert "2 directories hold 6.0 GiB" in run.output
    assert "t 6.0 GiB" in run.output
    assert "/data/y of broker 1 is likely" in run.output
    answer: dict[str, Any] = json.loads(CliRunner().invoke(application(line), [*line, "--json"]).stdout)
    assert answer["directories"][0]["topics"] == [{"topic": "t", "replicas": 2, "bytes": 6 << 30}]


@pytest.mark.parametrize(("number", "text"), [(None, "-"), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB")])
def test_bytes_have_units(number: int | None, text: str) -> None:
    assert in_units(number) == text


@pytest.mark.parametrize("wrong", ["1e30", "Infinity", str(1 << 63), '"7"', "[" * 200_000 + "]" * 200_000])
def test_size_that_is_no_number_of_bytes_is_refused_in_one_line(tmp_path: Path, wrong: str) -> None:
    """It was a traceback. A negative one, which Kafka prints where it does not know, was subtracted."""
    lake = Story().broker(1, "a").topic("t", {1: "a"}).lake(tmp_path / "lake")
    file = tmp_path / "sizes.json"
    of = '{{"brokers": [{{"broker": 1, "logDirs": [{{"logDir": "/a", "partitions": [{}]}}]}}]}}\n'
    listed = '{{"partition": "t-0", "size": {}}}, {{"partition": "u-0", "size": 5}}'
    file.write_text(of.format(listed.format(wrong)))
    with pytest.raises(UsageError, match="not the output of kafka-log-dirs"):
        sizes(lake, [str(file)])
    file.write_text(of.format(listed.format(-1)))
    (directory,) = sizes(lake, [str(file)]).directories
    assert directory.bytes == 5
