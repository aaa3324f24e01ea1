"""All directories of one node: the content of each, its problems (docs/spec/storage.md), and how they are formatted.

Formatting, and the completion of ids at start (R-STORE-15), first plan from what was read, then write: a plan that
breaks a rule writes nothing.

Source: KIP-858 "Storage format command", "Reserved UUIDs"; Kafka's ``MetaPropertiesEnsemble`` and its ``Copier``,
``Formatter``, ``KafkaRaftServer.initializeLogDirs`` and ``StorageTool`` (info).
"""

from __future__ import annotations

import re
import secrets
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from jbod_model.ids import Uuid, reserved
from jbod_model.storage.problems import (
    AlreadyFormatted,
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
    NothingToFormat,
    PartitionTwice,
    ReservedDirectoryId,
    StorageProblem,
    WriteFailed,
)
from jbod_model.storage.properties import MetaProperties, read_meta_properties, write_meta_properties

METADATA_LOG = "__cluster_metadata-0"
PARTITION_FOLDER = re.compile(r"[^/]+-[0-9]+\Z")
TOPIC_ID = re.compile(r"^topic_id:\s*(\S+)\s*$", re.MULTILINE)

# The content of a directory: its properties, or why there are none. Kafka keeps three sets (empty, failed, read) that
# must not overlap; one state per directory cannot overlap.
DirectoryState = MetaProperties | StorageProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Ensemble:
    """The content of the directories of one node, ordered by path; ``metadata_dir`` is one of them, or None."""

    directories: Mapping[str, DirectoryState]
    metadata_dir: str | None = None
    metadata_logs: frozenset[str] = frozenset()
    topic_ids: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Path -> folder -> topic id, of the folders of partitions that are in several directories."""

    @property
    def properties(self) -> dict[str, MetaProperties]:
        """The directories whose meta.properties was read."""
        return {path: state for path, state in self.directories.items() if isinstance(state, MetaProperties)}

    @property
    def empty(self) -> tuple[str, ...]:
        """The directories without meta.properties: they need formatting, and formatting may create them."""
        return tuple(p for p, state in self.directories.items() if isinstance(state, NotFormatted | MissingDirectory))

    @property
    def failed(self) -> dict[str, StorageProblem]:
        """The directories that could not be read. A broker starts without them."""
        return {
            path: state
            for path, state in self.directories.items()
            if isinstance(state, StorageProblem) and not isinstance(state, NotFormatted | MissingDirectory)
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
    states: dict[str, DirectoryState] = {}
    for path in paths:
        try:
            states[path] = read_meta_properties(path)
        except StorageProblem as problem:
            states[path] = problem
    logs = frozenset(path for path in paths if _holds_metadata_log(path))
    return Ensemble(directories=states, metadata_dir=metadata_dir, metadata_logs=logs, topic_ids=_in_several(paths))


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
    yield from _partitions_twice(ensemble)
    for path, state in ensemble.directories.items():
        if isinstance(state, StorageProblem):
            yield state
            continue
        if state.node_id is None:
            yield NodeIdMissing(path, "has no node id")
        if state.cluster_id is None:
            yield ClusterIdMissing(path, "has no cluster.id")
        if state.directory_id is None:
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


def _in_several(paths: Iterable[str]) -> dict[str, dict[str, str]]:
    """Path -> folder -> topic id in its partition.metadata, of folders that are in several directories."""
    holders: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        try:
            names = {entry.name for entry in Path(path).iterdir()}
        except (OSError, ValueError):
            continue
        for folder in filter(PARTITION_FOLDER.match, names - {METADATA_LOG}):
            holders[folder].append(path)
    topic_ids: dict[str, dict[str, str]] = defaultdict(dict)
    for folder, directories in holders.items():
        for path in directories if len(directories) > 1 else ():
            try:
                content = Path(path, folder, "partition.metadata").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            if (match := TOPIC_ID.search(content)) is not None:
                topic_ids[path][folder] = match[1]
    return dict(topic_ids)


def _partitions_twice(ensemble: Ensemble) -> Iterator[PartitionTwice]:
    """Folders of one partition in two directories. With another topic id, the folder of the older topic is no log of
    the partition: the broker renames it (R-STORE-24)."""
    holder: dict[tuple[str, str], str] = {}
    for path in ensemble.properties:
        twice: dict[str, list[str]] = defaultdict(list)
        for folder in sorted(ensemble.topic_ids.get(path, {}).items()):
            if (other := holder.setdefault(folder, path)) != path:
                twice[other].append(folder[0])
        for other, names in twice.items():
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            yield PartitionTwice(path, f"has folders of partitions that {other} has, too: {', '.join(names[:3])}{more}")


def secure_long() -> int:
    """64 random bits from the operating system, as a signed number."""
    return secrets.randbits(64) - 2**63


def generate_directory_id(used: Collection[Uuid], next_long: Callable[[], int] = secure_long) -> Uuid:
    """An id for a directory: 128 random bits, drawn again if the id cannot be used.

    Ids cannot be used if their text starts with "-" (command lines would read an option), if they are reserved, or if
    they are in ``used``, the ids of the node's other directories.
    """
    while True:
        candidate = Uuid(next_long(), next_long())
        if not str(candidate).startswith("-") and not reserved(candidate) and candidate not in used:
            return candidate


def plan_format(
    ensemble: Ensemble,
    *,
    cluster_id: str,
    node_id: int,
    ignore_formatted: bool = False,
    add_missing_ids: bool = False,
    metadata_directory_id: Uuid | None = None,
    next_long: Callable[[], int] = secure_long,
) -> dict[str, MetaProperties]:
    """The plan of formatting: directory -> the file to write, of those that need it (R-STORE-16).

    Nothing is written before the whole plan is made (R-STORE-22).

    ``metadata_directory_id`` is the id that the initial voters give this node (R-STORE-19). ``add_missing_ids`` is
    the KIP's reading of "needs it": formatted directories without an id get one, too; Kafka does this at start.

    Raises :class:`ClusterIdMismatch` or :class:`NodeIdMismatch` for a mix (R-STORE-18), :class:`AlreadyFormatted`
    unless told to ignore it, :class:`NothingToFormat`, and the first of :func:`find_problems`, as Kafka does.
    """
    if ensemble.metadata_dir is not None and ensemble.metadata_dir not in ensemble.directories:
        raise MetadataDirectoryNotGiven(ensemble.metadata_dir, "is the metadata directory, but not one to format")
    # An unreadable metadata directory is skipped like others. The node cannot start with it, but the rest is formatted.
    for problem in find_problems(replace(ensemble, metadata_dir=None), cluster_id=cluster_id, node_id=node_id):
        raise problem
    formatted = ensemble.properties
    if formatted and not (ignore_formatted or add_missing_ids):
        first = next(iter(formatted))
        raise AlreadyFormatted(first, "is already formatted")
    if ensemble.failed and not ensemble.empty and not formatted:
        raise NothingToFormat("", "no directory can be formatted: all are unreadable")
    used = set(ensemble.directory_ids)
    writes: dict[str, MetaProperties] = {}
    if metadata_directory_id is not None:
        used.add(metadata_directory_id)
    for path in ensemble.directories:
        meta = formatted.get(path)
        if path in ensemble.empty:
            meta = MetaProperties(version=1, cluster_id=cluster_id, node_id=node_id)
        elif meta is None or meta.directory_id is not None or not add_missing_ids:
            continue
        directory_id = metadata_directory_id if path == ensemble.metadata_dir else None
        if directory_id is None:
            directory_id = generate_directory_id(used, next_long)
        used.add(directory_id)
        writes[path] = replace(meta, directory_id=directory_id)
    return writes


def plan_start(
    ensemble: Ensemble, *, node_id: int, next_long: Callable[[], int] = secure_long
) -> dict[str, MetaProperties]:
    """The rewrites of a starting broker: directories without an id get one, their version stays (R-STORE-9).

    Raises the first fatal problem of the directories. It starts without those that failed (R-STORE-11).
    """
    for problem in find_start_problems(ensemble, node_id=node_id, need_metadata_dir=True):
        if problem.fatal:
            raise problem
    used = set(ensemble.directory_ids)
    writes: dict[str, MetaProperties] = {}
    for path, meta in ensemble.properties.items():
        if meta.directory_id is None:
            directory_id = generate_directory_id(used, next_long)
            used.add(directory_id)
            writes[path] = replace(meta, directory_id=directory_id)
    return writes


def apply_plan(
    writes: Mapping[str, MetaProperties], *, before_write: Callable[[str], None] = lambda _directory: None
) -> None:
    """Write the plan, directory by directory, each in one step; directories that do not exist are created.

    ``before_write`` runs after the directory was created and before its meta.properties is written, so its files are
    complete when the directory counts as formatted. Raises :class:`WriteFailed` at the first directory that cannot be
    written: those before it are done, this one and the rest are unchanged.
    """
    for directory, meta in writes.items():
        try:
            Path(directory).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WriteFailed(directory, f"cannot be created: {error.strerror or error}") from None
        before_write(directory)
        write_meta_properties(directory, meta)


def registered_directories(ensemble: Ensemble, log_dirs: Iterable[str]) -> tuple[Uuid, ...]:
    """The ids a broker registers: those of its readable ``log_dirs``, sorted (R-IDENT-1).

    The metadata directory counts only where it is one of ``log_dirs``.
    """
    properties = ensemble.properties
    ids = {properties[path].directory_id for path in log_dirs if path in properties}
    return tuple(sorted(directory_id for directory_id in ids if directory_id is not None))
