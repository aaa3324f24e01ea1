"""meta.properties: the cluster and node of a log directory, and its id (docs/spec/storage.md).

Source: KIP-858 "meta.properties", "Storage formatting"; Kafka's ``MetaProperties``, ``MetaPropertiesVersion``,
``PropertiesUtils``.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from jbod_model.errors import JbodError
from jbod_model.ids import Uuid
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
from jbod_model.storage.properties import MAX_PROPERTIES_BYTES, parse_properties, render_properties

FILE_NAME = "meta.properties"

# The key that holds the node's id, per version of the file.
NODE_ID_KEYS = {0: "broker.id", 1: "node.id"}

_INTEGER = re.compile(r"[+-]?[0-9]{1,10}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """The content of one meta.properties. ``node_id`` and ``cluster_id`` are always there in version 1 (R-STORE-5)."""

    version: int
    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: Uuid | None = None

    def to_properties(self) -> dict[str, str]:
        """The keys and values of the file, in the order of Kafka's own files."""
        known = {
            NODE_ID_KEYS[self.version]: None if self.node_id is None else str(self.node_id),
            "directory.id": None if self.directory_id is None else str(self.directory_id),
            "version": str(self.version),
            "cluster.id": self.cluster_id,
        }
        return {key: value for key, value in known.items() if value is not None}


def from_properties(properties: Mapping[str, str], directory: str = "") -> MetaProperties:
    """Interpret a file's keys and values; unknown keys are ignored.

    Raises :class:`MalformedMetaProperties`, and for version 1 :class:`ClusterIdMissing` or :class:`NodeIdMissing`.
    """
    version_text = properties.get("version", "0").strip()
    version = _integer(version_text)
    if version not in NODE_ID_KEYS:
        raise MalformedMetaProperties(directory, f"version is {version_text!r}; 0 and 1 are known")
    node_key = NODE_ID_KEYS[version]
    node_id = None
    if node_key in properties:
        node_id = _integer(properties[node_key])
        if node_id is None:
            raise MalformedMetaProperties(directory, f"{node_key} is {properties[node_key]!r}, not an integer")
    directory_id = None
    if "directory.id" in properties:
        try:
            directory_id = Uuid.parse(properties["directory.id"])
        except (ValueError, JbodError) as problem:
            raise MalformedMetaProperties(
                directory, f"directory.id is {properties['directory.id']!r}, not 16 bytes in base64 ({problem})"
            ) from None
    meta = MetaProperties(
        version=version, cluster_id=properties.get("cluster.id"), node_id=node_id, directory_id=directory_id
    )
    require_identity(meta, directory)
    return meta


def require_identity(meta: MetaProperties, directory: str = "") -> None:
    """Check that version 1 names its cluster and its node; version 0 may lack both (R-STORE-5)."""
    if meta.version == 0:
        return
    if meta.node_id is None:
        raise NodeIdMissing(directory, "meta.properties of version 1 has no node.id")
    if meta.cluster_id is None:
        raise ClusterIdMissing(directory, "meta.properties of version 1 has no cluster.id")


def read_meta_properties(directory: str) -> MetaProperties:
    """The meta.properties of ``directory``.

    Raises :class:`MissingDirectory`, :class:`NotFormatted`, :class:`UnreadableDirectory` (anything the operating
    system refuses, a file in the place of a directory included) and what :func:`from_properties` raises.
    """
    path = Path(directory, FILE_NAME)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_PROPERTIES_BYTES + 1)
    except FileNotFoundError:
        if not Path(directory).exists():
            raise MissingDirectory(directory, "there is no such directory") from None
        raise NotFormatted(directory, f"has no {FILE_NAME}") from None
    except OSError as error:
        raise UnreadableDirectory(directory, f"{FILE_NAME} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise UnreadableDirectory(directory, f"is not a path: {error}") from None
    try:
        return from_properties(parse_properties(data), directory)
    except StorageProblem:
        raise
    except ValueError as error:
        raise MalformedMetaProperties(directory, f"{FILE_NAME}: {error}") from None


def write_meta_properties(directory: str, meta: MetaProperties, written: datetime | None = None) -> None:
    """Replace the meta.properties of ``directory`` in one step (R-STORE-3): readers see the old file or the new one.

    Raises :class:`WriteFailed`; the old file is then untouched and no temporary file stays behind.
    """
    target = Path(directory, FILE_NAME)
    temporary = Path(directory, FILE_NAME + ".tmp")
    try:
        try:
            with temporary.open("wb") as file:
                file.write(render_properties(meta.to_properties(), written))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise WriteFailed(directory, f"{FILE_NAME} cannot be written: {error.strerror or error}") from None


def as_read_before_directory_ids(properties: Mapping[str, str], directory: str = "") -> MetaProperties:
    """The file as a broker of Kafka 3.6 or older reads it: it ignores the id like any unknown key (R-STORE-4).

    The version did not change when directory.id was added, so older brokers still read the file after a downgrade, and
    the next upgrade finds the id again.
    """
    return from_properties({key: value for key, value in properties.items() if key != "directory.id"}, directory)


def _integer(text: str) -> int | None:
    if not _INTEGER.match(text):
        return None
    value = int(text)
    return value if -(2**31) <= value < 2**31 else None
