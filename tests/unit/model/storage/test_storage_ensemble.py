"""All directories of a node (docs/spec/storage.md): MetaPropertiesEnsembleTest and KafkaRaftServerTest as facts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jbod_model.ids import Uuid
from jbod_model.storage import problems
from jbod_model.storage.ensemble import (
    Ensemble,
    apply_plan,
    find_problems,
    find_start_problems,
    load_ensemble,
    plan_start,
    registered_directories,
)
from jbod_model.storage.problems import StorageProblem
from jbod_model.storage.properties import MetaProperties, read_meta_properties, write_meta_properties

CLUSTER = "H3KKO4NTRPaCWtEmm3vW7A"
META = MetaProperties(version=1, cluster_id=CLUSTER, node_id=1)
A = Uuid.parse("s33AdXtkR8Gf_xRO-R_dpA")
B = Uuid.parse("oTM53yT_SbSfzlvkh_PfVA")

# MetaPropertiesEnsembleTest's example: two empty directories, one in error, two good ones.
FOO = Ensemble(
    directories={
        "/d/dir4": MetaProperties(version=1, cluster_id="fooClusterId", node_id=2),
        "/d/dir5": MetaProperties(version=1, cluster_id="fooClusterId", node_id=2),
        "/d/empty1": problems.NotFormatted("/d/empty1", "has no meta.properties"),
        "/d/empty2": problems.MissingDirectory("/d/empty2", "is not there"),
        "/d/error3": problems.UnreadableDirectory("/d/error3", "I/O error"),
    },
    metadata_dir="/d/dir4",
)
EMPTY = Ensemble(directories={})


def directory(tmp_path: Path, name: str, meta: MetaProperties | None = META, **changes: Any) -> str:
    path = tmp_path / name
    path.mkdir()
    if meta is not None:
        write_meta_properties(str(path), replace(meta, **changes))
    return str(path)


def broken(tmp_path: Path, name: str) -> str:
    """A file in the place of a directory, as in KafkaRaftServerTest."""
    (tmp_path / name).write_text("")
    return str(tmp_path / name)


def rules(ensemble: Ensemble, **expected: Any) -> list[str]:
    return [type(problem).__name__ for problem in find_problems(ensemble, **expected)]


def test_ensemble_tells_empty_failed_and_read_directories_apart() -> None:
    assert FOO.empty == ("/d/empty1", "/d/empty2")
    assert list(FOO.failed) == ["/d/error3"]
    assert list(FOO.properties) == ["/d/dir4", "/d/dir5"]
    assert (FOO.node_id, FOO.cluster_id, FOO.metadata_dir) == (2, "fooClusterId", "/d/dir4")
    assert (EMPTY.empty, EMPTY.failed, EMPTY.properties) == ((), {}, {})
    assert (EMPTY.node_id, EMPTY.cluster_id, EMPTY.metadata_dir) == (None, None, None)


@pytest.mark.parametrize("expected", [{}, {"cluster_id": "fooClusterId"}, {"cluster_id": "fooClusterId", "node_id": 2}])
def test_ensemble_that_is_consistent_has_no_problem(expected: dict[str, Any]) -> None:
    assert rules(FOO, need_one_readable=True, need_metadata_dir=True, **expected) == []


def with_ids(*ids: Uuid | None) -> Ensemble:
    return Ensemble(directories={f"/d{i}": replace(META, directory_id=id_) for i, id_ in enumerate(ids)})


def mixed(**changes: Any) -> Ensemble:
    return Ensemble(directories={"/d0": META, "/d1": replace(META, **changes)})


FAILED_METADATA = Ensemble(directories={"/m": problems.UnreadableDirectory("/m", "I/O error")}, metadata_dir="/m")

VERIFY = [
    (EMPTY, {"need_one_readable": True}, ["NoReadableDirectory"]),  # R-STORE-12
    (EMPTY, {}, []),
    (EMPTY, {"need_metadata_dir": True}, ["MetadataDirectoryNotGiven"]),  # R-STORE-13
    (FAILED_METADATA, {"need_metadata_dir": True}, ["MetadataDirectoryFailed"]),
    (FAILED_METADATA, {}, ["MetadataDirectoryFailed"]),
    # R-STORE-6
    (FOO, {"cluster_id": "another"}, ["ClusterIdMismatch", "ClusterIdMismatch"]),
    (FOO, {"node_id": 3}, ["NodeIdMismatch", "NodeIdMismatch"]),
    (mixed(cluster_id="another"), {}, ["ClusterIdMismatch"]),
    (mixed(node_id=2), {}, ["NodeIdMismatch"]),
    (mixed(node_id=2, cluster_id="another"), {}, ["ClusterIdMismatch", "NodeIdMismatch"]),
    (mixed(version=0, node_id=None, cluster_id=None), {}, []),
    # No case of Kafka's covers these (R-STORE-7, R-STORE-8).
    (with_ids(A, B), {}, []),
    (with_ids(A, A), {}, ["DuplicateDirectoryId"]),
    (with_ids(A, A, A), {}, ["DuplicateDirectoryId", "DuplicateDirectoryId"]),
    (with_ids(None, None), {}, []),
    (with_ids(Uuid(0, 0)), {}, ["ReservedDirectoryId"]),
    (with_ids(Uuid(0, 99)), {}, ["ReservedDirectoryId"]),
    (with_ids(Uuid(0, -1)), {}, ["ReservedDirectoryId"]),
    (with_ids(Uuid(0, 100)), {}, []),
    (with_ids(Uuid(-1, 5)), {}, []),
]


@pytest.mark.parametrize(("ensemble", "expected", "names"), VERIFY)
def test_ensemble_verification_names_every_broken_rule(
    ensemble: Ensemble, expected: dict[str, Any], names: list[str]
) -> None:
    assert rules(ensemble, **expected) == names


def test_ensemble_is_loaded_with_one_state_per_directory(tmp_path: Path) -> None:
    good = directory(tmp_path, "good")
    empty = directory(tmp_path, "empty", None)
    bad = broken(tmp_path, "bad")
    malformed = directory(tmp_path, "malformed", None)
    Path(malformed, "meta.properties").write_bytes(b"version=9")
    ensemble = load_ensemble([good, good, empty, malformed, str(tmp_path / "none")], bad)
    assert ensemble.properties == {good: META}
    assert ensemble.empty == (empty, str(tmp_path / "none"))
    assert set(ensemble.failed) == {bad, malformed}
    assert ensemble.metadata_dir == bad


def test_ensemble_of_no_directory_is_refused() -> None:
    with pytest.raises(problems.MetadataDirectoryNotGiven):
        load_ensemble([])


# KafkaRaftServerTest


def start(log_dirs: list[str], metadata_dir: str, node_id: int = 1) -> tuple[Ensemble, dict[str, MetaProperties]]:
    ensemble = load_ensemble(log_dirs, metadata_dir)
    return ensemble, plan_start(ensemble, node_id=node_id)


def test_start_generates_missing_directory_ids_and_keeps_the_rest(tmp_path: Path) -> None:
    """testSuccessfulLoadMetaProperties; R-STORE-9: the version stays, 0 included."""
    old = directory(tmp_path, "old", version=0)
    new = directory(tmp_path, "new")
    named = directory(tmp_path, "named", directory_id=A)
    _, plan = start([old, new, named], old)
    assert {*plan} == {old, new}
    apply_plan(plan)
    assert replace(read_meta_properties(old), directory_id=None) == replace(META, version=0)
    assert replace(read_meta_properties(new), directory_id=None) == META
    ids = {read_meta_properties(path).directory_id for path in (old, new, named)}
    assert len(ids) == 3
    assert None not in ids
    assert start([old, new, named], old)[1] == {}


def test_start_with_every_id_present_writes_nothing(tmp_path: Path) -> None:
    """testKRaftUpdate and testKRaftUpdateAt3_3_IV3, for the part about directories."""
    path = directory(tmp_path, "d", directory_id=Uuid.parse("4jm0e-YRYeB6CCKBvwoS8w"))
    ensemble, plan = start([path], path)
    assert (plan, [*ensemble.properties], ensemble.failed) == ({}, [path], {})


def test_start_with_another_node_id_is_refused(tmp_path: Path) -> None:
    """testLoadMetaPropertiesWithInconsistentNodeId."""
    path = directory(tmp_path, "d")
    with pytest.raises(problems.NodeIdMismatch):
        start([path], path, node_id=0)


def test_start_with_two_clusters_is_refused(tmp_path: Path) -> None:
    """testLoadPropertiesWithInconsistentClusterIds."""
    metadata = directory(tmp_path, "one")
    two = directory(tmp_path, "two", cluster_id="another")
    with pytest.raises(problems.ClusterIdMismatch):
        start([metadata, two], metadata)


def test_start_with_a_directory_that_is_not_formatted_is_refused(tmp_path: Path) -> None:
    """R-STORE-10, testStartupFailsIfMetaPropertiesMissingInSomeLogDir."""
    metadata = directory(tmp_path, "one")
    two = directory(tmp_path, "two", None)
    with pytest.raises(problems.NotFormatted):
        start([metadata, two], metadata)


def test_start_with_the_metadata_directory_offline_is_refused(tmp_path: Path) -> None:
    """testStartupFailsIfMetaLogDirIsOffline."""
    with pytest.raises(problems.MetadataDirectoryFailed):
        start([directory(tmp_path, "one")], broken(tmp_path, "bad"))


def test_start_with_an_offline_data_directory_continues_without_it(tmp_path: Path) -> None:
    """testStartupDoesNotFailIfDataDirIsOffline; what is registered then (R-STORE-11, R-IDENT-1)."""
    good = directory(tmp_path, "one", directory_id=A)
    bad = broken(tmp_path, "bad")
    ensemble, plan = start([bad, good], good)
    assert ([*ensemble.failed], plan) == ([bad], {})
    assert ensemble.node_id == 1
    assert registered_directories(ensemble, [bad, good]) == (A,)


def test_start_with_the_metadata_log_in_a_data_directory_is_refused(tmp_path: Path) -> None:
    """R-STORE-14, testStartupFailsIfUnexpectedMetadataDir."""
    metadata = directory(tmp_path, "metadata")
    data = directory(tmp_path, "data")
    Path(data, "__cluster_metadata-0").mkdir()
    with pytest.raises(problems.MisplacedMetadataLog):
        start([data], metadata)


@pytest.mark.parametrize(
    ("changes", "error"),
    [({"node_id": None}, problems.NodeIdMissing), ({"cluster_id": None}, problems.ClusterIdMissing)],
)
def test_start_with_a_file_that_names_no_owner_is_refused(
    tmp_path: Path, changes: dict[str, Any], error: type[StorageProblem]
) -> None:
    path = directory(tmp_path, "d", version=0, **changes)
    with pytest.raises(error):
        start([path], path)


def test_registered_directories_are_sorted_and_without_the_metadata_directory(tmp_path: Path) -> None:
    """R-IDENT-1 and invariant 34: signed order, and the metadata directory only where it is a log directory."""
    ids = [Uuid(5, 0), Uuid(-5, 0), Uuid(0, 1000)]
    paths = [directory(tmp_path, f"d{i}", directory_id=id_) for i, id_ in enumerate(ids)]
    metadata = directory(tmp_path, "metadata", directory_id=Uuid(1, 1))
    ensemble = load_ensemble(paths, metadata)
    assert registered_directories(ensemble, paths) == (Uuid(-5, 0), Uuid(0, 1000), Uuid(5, 0))
    assert Uuid(1, 1) in registered_directories(ensemble, [*paths, metadata])


def test_every_problem_has_a_rule_an_advice_and_survives_pickling() -> None:
    import pickle

    kinds = [kind for kind in vars(problems).values() if isinstance(kind, type) and issubclass(kind, StorageProblem)]
    for kind in kinds:
        if kind is StorageProblem:
            continue
        problem = kind("/d", "is wrong")
        assert problem.rule.startswith("R-STORE-")
        assert problem.advice
        assert str(pickle.loads(pickle.dumps(problem))) == "/d: is wrong"


def test_start_problems_are_all_reported_not_only_the_first(tmp_path: Path) -> None:
    without_id = directory(tmp_path, "a")
    two = directory(tmp_path, "b", node_id=2, directory_id=Uuid(0, 7))
    three = directory(tmp_path, "c", None)
    kinds = [type(problem).__name__ for problem in find_start_problems(load_ensemble([without_id, two, three]))]
    assert kinds == ["NodeIdMismatch", "ReservedDirectoryId", "DirectoryIdMissing", "NotFormatted"]
