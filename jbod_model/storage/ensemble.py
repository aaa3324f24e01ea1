"""All directories of one node: the content of each, and its problems (docs/spec/storage.md).

Source: Kafka's ``MetaPropertiesEnsemble``, ``KafkaRaftServer.initializeLogDirs`` and ``StorageTool`` (info).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from jbod_model.ids import Uuid, reserved
from jbod_model.storage.meta_properties import MetaProperties, read_meta_properties
from jbod_model.storage.problems import (
    ClusterIdMismatch,
    ClusterIdMissing,
    DirectoryIdMissing,
    DuplicateDirectoryId,
    LegacyVersion,
    MetadataDirectoryFailed,
    MetadataDirectoryNotGiven,
    MisplacedMetadataLog,
    MissingDirectory,
    NodeIdMismatch,
    NodeIdMissing,
    NoReadableDirectory,
    NotFormatted,
    ReservedDirectoryId,
    StorageProblem,
)

METADATA_LOG = "__cluster_metadata-0"

# The content of a directory: its properties, or why there are none. Kafka keeps three sets (empty, failed, read) that
# must not overlap; one state per directory cannot overlap.
DirectoryState = MetaProperties | StorageProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Ensemble:
    """The content of the directories of one node, ordered by path; ``metadata_dir`` is one of them, or None."""

    directories: Mapping[str, DirectoryState]
    metadata_dir: str | None = None
    metadata_logs: frozenset[str] = frozenset()

    @property
    def properties(self) -> dict[str, MetaProperties]:
        """The directories whose meta.properties was read."""
        return {path: found for path, found in self.directories.items() if isinstance(found, MetaProperties)}

    @property
    def empty(self) -> tuple[str, ...]:
        """The directories without meta.properties: they need formatting, and formatting may create them."""
        return tuple(p for p, found in self.directories.items() if isinstance(found, NotFormatted | MissingDirectory))

    @property
    def failed(self) -> dict[str, StorageProblem]:
        """The directories that could not be read. A broker starts without them."""
        return {
            path: found
            for path, found in self.directories.items()
            if isinstance(found, StorageProblem) and not isinstance(found, NotFormatted | MissingDirectory)
        }

    @property
    def node_id(self) -> int | None:
        """The node that the directories belong to, from the first that names it."""
        return next((meta.node_id for meta in self.properties.values() if meta.node_id is not None), None)

    @property
    def cluster_id(self) -> str | None:
        """The cluster that the directories belong to, from the first that names it."""
        return next((meta.cluster_id for meta in self.properties.values() if meta.cluster_id is not None), None)

    @property
    def directory_ids(self) -> frozenset[Uuid]:
        """Every directory id in use on the node."""
        return frozenset(m.directory_id for m in self.properties.values() if m.directory_id is not None)


def load_ensemble(directories: Iterable[str], metadata_dir: str | None = None) -> Ensemble:
    """Read every directory once, in the order of their paths; problems become part of the result.

    Raises :class:`MetadataDirectoryNotGiven` for no directory at all.
    """
    paths = sorted({*directories, *([] if metadata_dir is None else [metadata_dir])})
    if not paths:
        raise MetadataDirectoryNotGiven("", "no directory was given")
    found: dict[str, DirectoryState] = {}
    for path in paths:
        try:
            found[path] = read_meta_properties(path)
        except StorageProblem as problem:
            found[path] = problem
    logs = frozenset(path for path in paths if _holds_metadata_log(path))
    return Ensemble(directories=found, metadata_dir=metadata_dir, metadata_logs=logs)


def find_problems(
    ensemble: Ensemble,
    *,
    cluster_id: str | None = None,
    node_id: int | None = None,
    need_one_readable: bool = False,
    need_metadata_dir: bool = False,
) -> Iterator[StorageProblem]:
    """Every broken rule among the files that could be read, in the order of Kafka's checks.

    ``cluster_id`` and ``node_id`` are the expected values; without them the first directory that names one decides.
    """
    if need_one_readable and not ensemble.properties:
        yield NoReadableDirectory("", "no directory has a meta.properties that can be read")
    owner: dict[Uuid, str] = {}
    for path, meta in ensemble.properties.items():
        if meta.cluster_id is not None:
            cluster_id = meta.cluster_id if cluster_id is None else cluster_id
            if meta.cluster_id != cluster_id:
                yield ClusterIdMismatch(path, f"cluster.id is {meta.cluster_id}, expected {cluster_id}")
        if meta.node_id is not None:
            node_id = meta.node_id if node_id is None else node_id
            if meta.node_id != node_id:
                yield NodeIdMismatch(path, f"belongs to node {meta.node_id}, expected node {node_id}")
        if meta.directory_id is not None:
            if reserved(meta.directory_id):
                yield ReservedDirectoryId(path, f"directory.id {meta.directory_id} is reserved")
            if meta.directory_id in owner:
                yield DuplicateDirectoryId(
                    path, f"directory.id {meta.directory_id} is also the id of {owner[meta.directory_id]}"
                )
            owner[meta.directory_id] = path
    if need_metadata_dir and ensemble.metadata_dir is None:
        yield MetadataDirectoryNotGiven("", "no metadata directory was given")
    if ensemble.metadata_dir in ensemble.failed:
        why = ensemble.failed[ensemble.metadata_dir].problem
        yield MetadataDirectoryFailed(ensemble.metadata_dir, f"the metadata directory cannot be used: {why}")


def verify(
    ensemble: Ensemble,
    *,
    cluster_id: str | None = None,
    node_id: int | None = None,
    need_one_readable: bool = False,
    need_metadata_dir: bool = False,
) -> None:
    """Raise the first problem of :func:`find_problems`, as Kafka does."""
    for problem in find_problems(
        ensemble,
        cluster_id=cluster_id,
        node_id=node_id,
        need_one_readable=need_one_readable,
        need_metadata_dir=need_metadata_dir,
    ):
        raise problem


def find_start_problems(
    ensemble: Ensemble,
    *,
    cluster_id: str | None = None,
    node_id: int | None = None,
    need_metadata_dir: bool = False,
) -> Iterator[StorageProblem]:
    """The problems that a starting KRaft broker would report, the worst first within each step of its start.

    Adds to :func:`find_problems`: the metadata log outside the metadata directory, directories that are not formatted,
    files without node, cluster or directory id, and (not fatal) the directories that it starts without. Without
    ``need_metadata_dir`` some disks of a broker can be checked alone.
    """
    yield from find_problems(
        ensemble, cluster_id=cluster_id, node_id=node_id, need_one_readable=True, need_metadata_dir=need_metadata_dir
    )
    if ensemble.metadata_dir is not None:
        for path in ensemble.properties:
            if path != ensemble.metadata_dir and path in ensemble.metadata_logs:
                yield MisplacedMetadataLog(
                    path, f"holds {METADATA_LOG}, but the metadata directory is {ensemble.metadata_dir}"
                )
    for path, found in ensemble.directories.items():
        if isinstance(found, StorageProblem):
            yield found
            continue
        if found.node_id is None:
            yield NodeIdMissing(path, "has no node id")
        if found.cluster_id is None:
            yield ClusterIdMissing(path, "has no cluster.id")
        if found.directory_id is None:
            yield DirectoryIdMissing(path, "has no directory.id")


def find_version_notes(ensemble: Ensemble) -> Iterator[StorageProblem]:
    """Warnings for files of version 0, which are legal on a broker that was migrated from ZooKeeper."""
    for path, meta in ensemble.properties.items():
        if meta.version == 0:
            yield LegacyVersion(path, "meta.properties has version 0, from a broker that ran under ZooKeeper")


def _holds_metadata_log(path: str) -> bool:
    try:
        return Path(path, METADATA_LOG).exists()
    except (OSError, ValueError):
        return False
