"""Formats the directories of a node, and completes their ids at start (docs/spec/storage.md, R-STORE-15).

Source: KIP-858 "Storage format command", "Reserved UUIDs"; Kafka's ``Formatter``, ``MetaPropertiesEnsemble.Copier``,
``KafkaRaftServer.initializeLogDirs``. Both first plan from what was read, then write: a plan that breaks a rule writes
nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from jbod_model.ids import Uuid, reserved
from jbod_model.storage.ensemble import Ensemble, find_start_problems, verify
from jbod_model.storage.meta_properties import MetaProperties, write_meta_properties
from jbod_model.storage.problems import (
    AlreadyFormatted,
    MetadataDirectoryNotGiven,
    NothingToFormat,
    StorageProblem,
    WriteFailed,
)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One meta.properties to write. ``is_new``: the directory had none."""

    directory: str
    meta: MetaProperties
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The files to write, the directories that stay as they are, and the unreadable ones that are skipped."""

    writes: tuple[Write, ...]
    untouched: tuple[str, ...] = ()
    skipped: tuple[StorageProblem, ...] = ()


def plan_format(
    ensemble: Ensemble,
    *,
    cluster_id: str,
    node_id: int,
    ignore_formatted: bool = False,
    add_missing_ids: bool = False,
    metadata_directory_id: Uuid | None = None,
    next_long: Callable[[], int] = secure_long,
) -> Plan:
    """The plan of formatting, which writes only to directories that need it (R-STORE-16).

    Nothing is written before the whole plan is made (R-STORE-22).

    ``metadata_directory_id`` is the id that the initial voters give this node (R-STORE-19). ``add_missing_ids`` is
    the KIP's reading of "needs it": formatted directories without an id get one, too; Kafka does this at start.

    Raises :class:`ClusterIdMismatch` or :class:`NodeIdMismatch` for a mix (R-STORE-18), :class:`AlreadyFormatted`
    unless told to ignore it, :class:`NothingToFormat`, and what :func:`verify` raises.
    """
    if ensemble.metadata_dir is not None and ensemble.metadata_dir not in ensemble.directories:
        raise MetadataDirectoryNotGiven(ensemble.metadata_dir, "is the metadata directory, but not one to format")
    # An unreadable metadata directory is skipped like others. The node cannot start with it, but the rest is formatted.
    verify(replace(ensemble, metadata_dir=None), cluster_id=cluster_id, node_id=node_id)
    formatted = ensemble.properties
    if formatted and not (ignore_formatted or add_missing_ids):
        first = next(iter(formatted))
        raise AlreadyFormatted(first, "is already formatted")
    if ensemble.failed and not ensemble.empty and not formatted:
        raise NothingToFormat("", "no directory can be formatted: all are unreadable")
    used = set(ensemble.directory_ids)
    writes = []
    untouched = []
    if metadata_directory_id is not None:
        used.add(metadata_directory_id)
    for path in ensemble.directories:
        meta = formatted.get(path)
        if path in ensemble.empty:
            meta = MetaProperties(version=1, cluster_id=cluster_id, node_id=node_id)
        elif meta is None:
            continue
        elif meta.directory_id is not None or not add_missing_ids:
            untouched.append(path)
            continue
        directory_id = metadata_directory_id if path == ensemble.metadata_dir else None
        if directory_id is None:
            directory_id = generate_directory_id(used, next_long)
        used.add(directory_id)
        writes.append(
            Write(directory=path, meta=replace(meta, directory_id=directory_id), is_new=path in ensemble.empty)
        )
    return Plan(writes=tuple(writes), untouched=tuple(untouched), skipped=tuple(ensemble.failed.values()))


def plan_start(ensemble: Ensemble, *, node_id: int, next_long: Callable[[], int] = secure_long) -> Plan:
    """The rewrites of a starting broker: directories without an id get one, their version stays (R-STORE-9).

    Raises the first fatal problem of the directories; those it starts without are in ``skipped`` (R-STORE-11).
    """
    for problem in find_start_problems(ensemble, node_id=node_id, need_metadata_dir=True):
        if problem.fatal:
            raise problem
    used = set(ensemble.directory_ids)
    writes = []
    for path, meta in ensemble.properties.items():
        if meta.directory_id is None:
            directory_id = generate_directory_id(used, next_long)
            used.add(directory_id)
            writes.append(Write(directory=path, meta=replace(meta, directory_id=directory_id), is_new=False))
    touched = {write.directory for write in writes}
    return Plan(
        writes=tuple(writes),
        untouched=tuple(path for path in ensemble.properties if path not in touched),
        skipped=tuple(ensemble.failed.values()),
    )


def apply_plan(
    plan: Plan,
    *,
    written: datetime | None = None,
    before_write: Callable[[Write], None] | None = None,
) -> tuple[Write, ...]:
    """Write the plan, directory by directory, each in one step; directories that do not exist are created.

    ``before_write`` runs after the directory was created and before its meta.properties is written, so its files are
    complete when the directory counts as formatted. Raises :class:`WriteFailed` at the first directory that cannot be
    written: those before it are done, this one and the rest are unchanged.
    """
    for write in plan.writes:
        try:
            Path(write.directory).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WriteFailed(write.directory, f"cannot be created: {error.strerror or error}") from None
        if before_write is not None:
            before_write(write)
        write_meta_properties(write.directory, write.meta, written)
    return plan.writes


def registered_directories(ensemble: Ensemble, log_dirs: Iterable[str]) -> tuple[Uuid, ...]:
    """The ids a broker registers: those of its readable ``log_dirs``, sorted (R-IDENT-1).

    The metadata directory counts only where it is one of ``log_dirs``.
    """
    properties = ensemble.properties
    ids = {properties[path].directory_id for path in log_dirs if path in properties}
    return tuple(sorted(directory_id for directory_id in ids if directory_id is not None))
