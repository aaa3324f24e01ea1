"""Formatting (docs/spec/storage.md): FormatterTest and StorageToolTest as facts, for directories and ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jbod_model.errors import UsageError
from jbod_model.ids import Uuid, reserved
from jbod_model.storage import problems
from jbod_model.storage.ensemble import Ensemble, apply_plan, load_ensemble, plan_format
from jbod_model.storage.problems import StorageProblem
from jbod_model.storage.properties import (
    MetaProperties,
    parse_server_config,
    read_meta_properties,
    read_server_config,
    write_meta_properties,
)

CLUSTER = "b3dGE68sQQKzfk80C_aLZw"
VOTER = Uuid.parse("3Adc4FjfTeypRWROmQDNIQ")


def paths(tmp_path: Path, count: int) -> list[str]:
    made = [tmp_path / f"d{i}" for i in range(count)]
    for path in made:
        path.mkdir()
    return [str(path) for path in made]


def formatted(directories: list[str], **options: Any) -> dict[str, MetaProperties]:
    plan = plan_format(
        load_ensemble(directories, directories[0]),
        cluster_id=options.pop("cluster_id", CLUSTER),
        node_id=options.pop("node_id", 1),
        **options,
    )
    apply_plan(plan)
    return plan


@pytest.mark.parametrize("count", [1, 2, 3])
def test_format_gives_every_directory_a_file_with_an_id_of_its_own(tmp_path: Path, count: int) -> None:
    """FormatterTest.testDirectories, testFormattingCreatesLogDirId; StorageToolTest.testFormatSucceedsIfAll..."""
    directories = paths(tmp_path, count)
    formatted(directories)
    metas = [read_meta_properties(path) for path in directories]
    assert {(meta.version, meta.cluster_id, meta.node_id) for meta in metas} == {(1, CLUSTER, 1)}
    ids = {meta.directory_id for meta in metas}
    assert len(ids) == count
    assert all(id_ is not None and not reserved(id_) for id_ in ids)


def test_format_creates_directories_that_do_not_exist(tmp_path: Path) -> None:
    formatted([str(tmp_path / "new" / "d1")])
    assert read_meta_properties(str(tmp_path / "new" / "d1")).node_id == 1


def test_format_of_a_formatted_directory_is_refused(tmp_path: Path) -> None:
    """R-STORE-20, testFormatterFailsOnAlreadyFormatted, testOneDirectoryFormattedAndOthersNotFormatted."""
    metadata, two = paths(tmp_path, 2)
    formatted([metadata])
    before = Path(metadata, "meta.properties").read_bytes()
    with pytest.raises(problems.AlreadyFormatted) as raised:
        formatted([metadata, two])
    assert raised.value.directory == metadata
    assert not Path(two, "meta.properties").exists()
    assert Path(metadata, "meta.properties").read_bytes() == before


def test_format_with_ignore_formatted_changes_only_the_others(tmp_path: Path) -> None:
    """testIgnoreFormatted, testOneDirectoryFormattedAndOthersNotFormattedWithIgnoreFormatted."""
    metadata, two = paths(tmp_path, 2)
    formatted([metadata])
    before = Path(metadata, "meta.properties").stat()
    plan = formatted([metadata, two], ignore_formatted=True)
    assert [*plan] == [two]
    assert Path(metadata, "meta.properties").stat().st_ino == before.st_ino
    assert formatted([metadata, two], ignore_formatted=True) == {}


def test_format_with_a_directory_that_cannot_be_read_formats_the_rest(tmp_path: Path) -> None:
    """StorageToolTest.testFormatSucceedsIfAtLeastOneDirectoryIsAvailable."""
    (good,) = paths(tmp_path, 1)
    bad = tmp_path / "file"
    bad.write_text("")
    plan = formatted([good, str(bad)])
    assert [*plan] == [good]
    assert [*load_ensemble([good, str(bad)], good).failed] == [str(bad)]


def test_format_with_no_directory_that_can_be_read_is_refused(tmp_path: Path) -> None:
    """R-STORE-21, StorageToolTest.testFormatFailsIfAllDirectoriesAreUnavailable."""
    files = [tmp_path / "a", tmp_path / "b"]
    for file in files:
        file.write_text("")
    with pytest.raises(problems.NothingToFormat):
        formatted([str(file) for file in files])


def test_format_of_an_unwritable_directory_names_it(tmp_path: Path) -> None:
    """FormatterTest.testFormatterFailsOnUnwritableDirectory, with a file in the way instead of permissions."""
    (directory,) = paths(tmp_path, 1)
    (Path(directory) / "meta.properties.tmp").mkdir()
    with pytest.raises(problems.WriteFailed) as raised:
        formatted([directory])
    assert raised.value.directory == directory


@pytest.mark.parametrize(
    ("options", "error"),
    [({"cluster_id": "another"}, problems.ClusterIdMismatch), ({"node_id": 2}, problems.NodeIdMismatch)],
)
@pytest.mark.parametrize("ignore", [False, True])
def test_format_refuses_a_mix_even_with_ignore_formatted(
    tmp_path: Path, options: dict[str, Any], error: type[StorageProblem], ignore: bool
) -> None:
    """R-STORE-18."""
    metadata, two = paths(tmp_path, 2)
    formatted([metadata])
    with pytest.raises(error):
        formatted([metadata, two], ignore_formatted=ignore, **options)
    assert not Path(two, "meta.properties").exists()


def test_format_gives_the_metadata_directory_the_id_of_the_voters(tmp_path: Path) -> None:
    """FormatterTest.testFormatWithInitialVoters and testStandaloneWithIgnoreFormatted (R-STORE-19)."""
    metadata, two = paths(tmp_path, 2)
    formatted([metadata, two], metadata_directory_id=VOTER)
    assert read_meta_properties(metadata).directory_id == VOTER
    assert read_meta_properties(two).directory_id != VOTER
    other = Uuid.parse("oTM53yT_SbSfzlvkh_PfVA")
    assert formatted([metadata, two], metadata_directory_id=other, ignore_formatted=True) == {}
    assert read_meta_properties(metadata).directory_id == VOTER


def test_format_completes_missing_ids_only_on_request(tmp_path: Path) -> None:
    """R-STORE-16: the KIP's reading of what needs formatting; Kafka leaves it to the start of the broker."""
    metadata, two = paths(tmp_path, 2)
    write_meta_properties(metadata, MetaProperties(version=0, cluster_id=CLUSTER, node_id=1))
    write_meta_properties(two, MetaProperties(version=1, cluster_id=CLUSTER, node_id=1, directory_id=VOTER))
    assert formatted([metadata, two], ignore_formatted=True) == {}
    plan = formatted([metadata, two], add_missing_ids=True)
    assert [*plan] == [metadata]
    assert read_meta_properties(metadata).version == 0
    assert read_meta_properties(metadata).directory_id is not None


def test_format_with_a_foreign_metadata_directory_is_refused() -> None:
    with pytest.raises(problems.MetadataDirectoryNotGiven):
        plan_format(Ensemble(directories={}, metadata_dir="/elsewhere"), cluster_id=CLUSTER, node_id=1)


def test_format_writes_what_comes_first_before_the_directory_counts_as_formatted(tmp_path: Path) -> None:
    """R-STORE-22."""
    (directory,) = paths(tmp_path, 1)
    seen = []

    def before(path: str) -> None:
        seen.append((path, Path(path, "meta.properties").exists()))

    plan = plan_format(load_ensemble([directory]), cluster_id=CLUSTER, node_id=1)
    apply_plan(plan, before_write=before)
    assert seen == [(directory, False)]


STATES = st.sampled_from(["empty", "missing", "formatted", "without id", "unreadable"])


@given(st.lists(STATES, min_size=1, max_size=5), st.booleans(), st.booleans())
def test_format_plans_for_any_directories_leave_unique_ids_and_formatted_ones_alone(
    states: list[str], ignore: bool, add: bool
) -> None:
    """Invariant 33, over every mix of directories."""
    directories: dict[str, MetaProperties | StorageProblem] = {}
    for i, state in enumerate(states):
        path = f"/d{i}"
        base = MetaProperties(version=1, cluster_id=CLUSTER, node_id=1)
        as_found: dict[str, MetaProperties | StorageProblem] = {
            "empty": problems.NotFormatted(path, "x"),
            "missing": problems.MissingDirectory(path, "x"),
            "formatted": MetaProperties(version=1, cluster_id=CLUSTER, node_id=1, directory_id=Uuid(1000 + i, 1)),
            "without id": base,
            "unreadable": problems.UnreadableDirectory(path, "x"),
        }
        directories[path] = as_found[state]
    try:
        plan = plan_format(
            Ensemble(directories=directories),
            cluster_id=CLUSTER,
            node_id=1,
            ignore_formatted=ignore,
            add_missing_ids=add,
        )
    except problems.AlreadyFormatted:
        assert not (ignore or add)
        return
    except problems.NothingToFormat:
        assert set(states) == {"unreadable"}
        return
    written = {path: states[int(path[2:])] for path in plan}
    assert set(written.values()) <= {"empty", "missing"} | ({"without id"} if add else set())
    after = {path: meta for path, meta in directories.items() if isinstance(meta, MetaProperties)}
    after |= plan
    ids = [meta.directory_id for meta in after.values() if meta.directory_id is not None]
    assert len(ids) == len(set(ids))


# StorageToolTest.testConfigToLogDirectories, testConfigToLogDirectoriesWithMetaLogDir (R-STORE-17)

CONFIGS = [
    (b"log.dirs=/a,/b", ("/a", "/b"), "/a", None),
    (b"log.dirs= /b , /a\nnode.id=3", ("/a", "/b"), "/b", 3),
    (b"log.dirs=/a,/b\nmetadata.log.dir=/m\nbroker.id=7", ("/a", "/b", "/m"), "/m", 7),
    (b"log.dir=/only", ("/only",), "/only", None),
    (b"", ("/tmp/kafka-logs",), "/tmp/kafka-logs", None),
]


@pytest.mark.parametrize(("data", "directories", "metadata_dir", "node_id"), CONFIGS)
def test_server_config_names_every_directory_of_the_node(
    data: bytes, directories: tuple[str, ...], metadata_dir: str, node_id: int | None
) -> None:
    config = parse_server_config(data, "server.properties")
    assert (config.directories, config.metadata_dir, config.node_id) == (directories, metadata_dir, node_id)


@pytest.mark.parametrize(("text", "timeout"), [(b"", 30_000), (b"1", 1), (b" 2000 ", 2_000)])
def test_server_config_has_the_timeout_of_a_failed_directory(text: bytes, timeout: int) -> None:
    """R-LIFE-11."""
    config = parse_server_config(b"log.dir.failure.timeout.ms=" + text, "server.properties")
    assert config.failure_timeout_ms == timeout
    assert parse_server_config(b"", "server.properties").failure_timeout_ms == 30_000


@pytest.mark.parametrize("text", ["0", "-1", "x", "1.5", "9" * 19])
def test_server_config_with_a_timeout_out_of_range_is_bad_usage(text: str) -> None:
    """R-LIFE-11."""
    with pytest.raises(UsageError, match=r"^server\.properties: log\.dir\.failure\.timeout\.ms is "):
        parse_server_config(f"log.dir.failure.timeout.ms={text}".encode(), "server.properties")


@pytest.mark.parametrize("data", [b"log.dirs=,", b"node.id=x", b"a=\\u1"])
def test_server_config_that_is_broken_is_bad_usage(data: bytes) -> None:
    with pytest.raises(UsageError, match=r"server\.properties"):
        parse_server_config(data, "server.properties")


def test_server_config_that_is_missing_is_bad_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.properties"):
        read_server_config(str(tmp_path / "none.properties"))


@pytest.mark.parametrize(
    ("cordoned", "expected"),
    [("", ()), ("/a", ("/a",)), (" /b , /a ", ("/b", "/a")), ("*", ("/a", "/b", "c")), ("c,/b", ("/b",))],
)
def test_cordoned_log_dirs_are_entries_of_log_dirs(cordoned: str, expected: tuple[str, ...]) -> None:
    """R-STORE-23: a relative path is accepted and has no effect."""
    text = f"log.dirs=/a,/b,c\ncordoned.log.dirs={cordoned}\n"
    assert parse_server_config(text.encode(), "server.properties").cordoned_log_dirs == expected


@pytest.mark.parametrize("cordoned", ["/c", "/a/", "*,/a", "/a,/c"])
def test_cordoned_log_dirs_that_log_dirs_does_not_list_are_refused(cordoned: str) -> None:
    """R-STORE-23."""
    text = f"log.dirs=/a,/b\ncordoned.log.dirs={cordoned}\n"
    with pytest.raises(
        UsageError, match=r"server\.properties: cordoned\.log\.dirs names .*, which log.dirs does not list"
    ):
        parse_server_config(text.encode(), "server.properties")
