"""One meta.properties (R-STORE-1, R-STORE-2, R-STORE-3, R-STORE-4, R-STORE-5, R-STORE-9, R-STORE-15); Kafka's
MetaPropertiesTest as facts."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jbod_model.ids import Uuid
from jbod_model.storage.ensemble import generate_directory_id
from jbod_model.storage.problems import (
    ClusterIdMissing,
    MalformedMetaProperties,
    MissingDirectory,
    NodeIdMissing,
    NotFormatted,
    StorageProblem,
    UnreadableDirectory,
    WriteFailed,
)
from jbod_model.storage.properties import (
    MetaProperties,
    as_read_before_directory_ids,
    from_properties,
    parse_properties,
    read_meta_properties,
    render_properties,
    write_meta_properties,
)
from tests.support.paths import CLUSTERS

CLUSTER = "zd2vLVrZQlCLJj8-k7A10w"
DIRECTORY = Uuid.parse("3Adc4FjfTeypRWROmQDNIQ")

# version, cluster, node, directory: the cases of MetaPropertiesTest.testV0Serialization* and testV1Serialization*
VALID = [
    (0, None, None, None),
    (0, CLUSTER, None, None),
    (0, None, 0, None),
    (0, CLUSTER, 0, None),
    (0, CLUSTER, 0, DIRECTORY),
    (1, CLUSTER, 0, None),
    (1, CLUSTER, 1, DIRECTORY),
    (1, "my@cluster@id", 2, None),
]


@pytest.mark.parametrize(("version", "cluster", "node", "directory"), VALID)
def test_meta_properties_of_either_version_survive_a_round_trip(
    version: int, cluster: str | None, node: int | None, directory: Uuid | None
) -> None:
    meta = MetaProperties(version=version, cluster_id=cluster, node_id=node, directory_id=directory)
    properties = meta.to_properties()
    expected: dict[str, object] = {
        "version": str(version),
        "cluster.id": cluster,
        ("node.id" if version else "broker.id"): node,
    }
    expected["directory.id"] = directory
    assert properties == {key: str(value) for key, value in expected.items() if value is not None}
    assert from_properties(properties) == meta


def test_meta_properties_without_version_are_of_version_0() -> None:
    assert from_properties({"broker.id": "7"}) == MetaProperties(version=0, node_id=7)


BROKEN = [
    ({"version": "1", "node.id": "1"}, ClusterIdMissing, "no cluster.id"),
    ({"version": "1", "cluster.id": CLUSTER}, NodeIdMissing, "no node.id"),
    ({"version": "1", "cluster.id": CLUSTER, "broker.id": "1"}, NodeIdMissing, "no node.id"),
    ({"version": "2"}, MalformedMetaProperties, "version is '2'"),
    ({"version": "-1"}, MalformedMetaProperties, "version is '-1'"),
    ({"version": "one"}, MalformedMetaProperties, "version is 'one'"),
    ({"version": ""}, MalformedMetaProperties, "version is ''"),
    ({"version": "0", "broker.id": "4294967296"}, MalformedMetaProperties, "not an integer"),
    ({"version": "0", "broker.id": "1 "}, MalformedMetaProperties, "not an integer"),
    ({"version": "0", "broker.id": ""}, MalformedMetaProperties, "not an integer"),
    ({"version": "0", "directory.id": "too short"}, MalformedMetaProperties, "directory.id"),
    ({"version": "0", "directory.id": "x" * 1000}, MalformedMetaProperties, "directory.id"),
    ({"version": "0", "directory.id": ""}, MalformedMetaProperties, "directory.id"),
]


@pytest.mark.parametrize(("properties", "error", "words"), BROKEN)
def test_meta_properties_that_break_a_rule_raise_its_error(
    properties: dict[str, str], error: type[StorageProblem], words: str
) -> None:
    with pytest.raises(error, match=words) as raised:
        from_properties(properties, "/d1")
    assert raised.value.directory == "/d1"
    assert raised.value.rule.startswith("R-STORE-")
    assert raised.value.advice


def test_meta_properties_version_may_be_surrounded_by_blanks() -> None:
    assert from_properties({"version": " 0 "}).version == 0


def test_meta_properties_read_from_a_missing_path_an_empty_directory_and_a_file(tmp_path: Path) -> None:
    with pytest.raises(MissingDirectory):
        read_meta_properties(str(tmp_path / "none"))
    with pytest.raises(NotFormatted):
        read_meta_properties(str(tmp_path))
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(UnreadableDirectory):
        read_meta_properties(str(file))
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "meta.properties").mkdir()
    with pytest.raises(UnreadableDirectory):
        read_meta_properties(str(tmp_path / "d"))
    with pytest.raises(UnreadableDirectory):
        read_meta_properties("nul\0byte")


@given(st.binary(max_size=120))
def test_meta_properties_of_any_bytes_are_read_or_raise_a_storage_problem(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    directory = tmp_path_factory.mktemp("fuzz")
    (directory / "meta.properties").write_bytes(b"version=0\n" + data)
    try:
        read_meta_properties(str(directory))
    except StorageProblem as problem:
        assert problem.directory == str(directory)


def test_meta_properties_written_replace_the_old_file_in_one_step(tmp_path: Path) -> None:
    """R-STORE-3."""
    meta = MetaProperties(version=1, cluster_id=CLUSTER, node_id=1, directory_id=DIRECTORY)
    write_meta_properties(str(tmp_path), MetaProperties(version=0))
    write_meta_properties(str(tmp_path), meta, datetime(2022, 8, 18, 15, 23, 7, tzinfo=UTC))
    assert [path.name for path in tmp_path.iterdir()] == ["meta.properties"]
    assert read_meta_properties(str(tmp_path)) == meta
    text = (tmp_path / "meta.properties").read_text()
    assert text.startswith("#\n#Thu Aug 18 15:23:07 UTC 2022\nnode.id=1\n")


def test_meta_properties_that_cannot_be_written_leave_the_old_file(tmp_path: Path) -> None:
    write_meta_properties(str(tmp_path), MetaProperties(version=0, node_id=3))
    (tmp_path / "meta.properties.tmp").mkdir()
    with pytest.raises(WriteFailed):
        write_meta_properties(str(tmp_path), MetaProperties(version=0, node_id=4))
    assert read_meta_properties(str(tmp_path)).node_id == 3


def test_meta_properties_that_fail_at_the_rename_leave_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").mkdir()
    (tmp_path / "meta.properties" / "in the way").write_text("")
    with pytest.raises(WriteFailed):
        write_meta_properties(str(tmp_path), MetaProperties(version=0))
    assert [path.name for path in tmp_path.iterdir()] == ["meta.properties"]


REAL = sorted(CLUSTERS.glob("*/disks/*/meta.properties"))


def test_meta_properties_of_real_clusters_exist() -> None:
    assert len(REAL) >= 26


@pytest.mark.parametrize("path", REAL, ids=lambda path: "-".join(path.parts[-4:-1]))
def test_meta_properties_of_a_real_broker_are_rendered_byte_for_byte(path: Path) -> None:
    data = path.read_bytes()
    meta = read_meta_properties(str(path.parent))
    written = datetime.strptime(data.split(b"\n")[1].decode(), "#%a %b %d %H:%M:%S UTC %Y").replace(tzinfo=UTC)
    assert meta.directory_id is not None
    assert meta.version == (0 if "zk-migration" in str(path) else 1)
    assert render_properties(meta.to_properties(), written) == data


@pytest.mark.parametrize("path", REAL, ids=lambda path: "-".join(path.parts[-4:-1]))
def test_meta_properties_read_by_an_older_broker_lack_only_the_directory_id(path: Path) -> None:
    """R-STORE-4: the version stays, so that a downgrade still opens the file."""
    meta = read_meta_properties(str(path.parent))
    older = as_read_before_directory_ids(parse_properties(path.read_bytes()))
    assert older.directory_id is None
    assert (older.version, older.node_id, older.cluster_id) == (meta.version, meta.node_id, meta.cluster_id)


def test_directory_id_generated_skips_unsafe_and_used_ids() -> None:
    """MetaPropertiesEnsembleTest.testCopierGenerateValidDirectoryId, and one that starts with a dash."""
    dash = Uuid.parse("-" + "A" * 21)
    used = {Uuid(2336837413447398698, 1758400403264101670), Uuid(4341931186263415792, 6389410885970711333)}
    fresh = Uuid(7265008559332826740, 3478747443029687715)
    draws = chain.from_iterable([Uuid(0, 0), Uuid(0, 57), Uuid(0, -1), dash, *sorted(used), fresh])
    assert generate_directory_id(used, lambda: next(draws)) == fresh


def test_directory_ids_generated_differ_and_use_all_bits() -> None:
    ids = [generate_directory_id(()) for _ in range(200)]
    assert len(set(ids)) == 200
    assert any(id_.msb < 0 for id_ in ids)
    versions = {(id_.msb >> 12) & 0xF for id_ in ids}
    assert len(versions) > 1  # random bits, not a version 4 uuid
