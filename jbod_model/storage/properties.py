"""Java properties files: their syntax (R-STORE-1), and the two that name a node's directories and their ids.

They are server.properties, with the settings of the directories (R-STORE-17), and meta.properties in each directory,
with its cluster, node and id (docs/spec/storage.md).

Source: the format that ``java.util.Properties`` documents; KIP-858 "meta.properties", "Storage formatting"; Kafka's
``PropertiesUtils``, ``MetaProperties``, ``MetaPropertiesVersion``, ``StorageTool.configToLogDirectories``,
``KafkaConfig`` (log.dirs before log.dir, the metadata directory defaults to the first log directory, node.id before
broker.id).
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from jbod_model.errors import JbodError, UsageError
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

# A meta.properties file has a few hundred bytes; what is larger is something else under that name.
MAX_PROPERTIES_BYTES = 64 * 1024

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"


def parse_properties(data: bytes) -> dict[str, str]:
    """Keys and values of a properties file; of a repeated key the last value counts.

    Raises ``ValueError`` for a broken ``\\uXXXX`` escape and for a file larger than :data:`MAX_PROPERTIES_BYTES`.
    """
    if len(data) > MAX_PROPERTIES_BYTES:
        raise ValueError(f"{len(data)} bytes, more than the {MAX_PROPERTIES_BYTES} that such a file may have")
    values = {}
    for line in _logical_lines(data.decode("latin-1")):
        key_end = _end_of_key(line)
        value_start = _skip_blanks(line, key_end)
        if value_start < len(line) and line[value_start] in "=:":
            value_start = _skip_blanks(line, value_start + 1)
        values[_unescape(line[:key_end])] = _unescape(line[value_start:])
    return values


def render_properties(properties: Mapping[str, str], written: datetime | None = None) -> bytes:
    """The file that holds ``properties`` in their order; ``written`` becomes the date line that Java writes."""
    lines = ["#"]
    if written is not None:
        lines.append(f"#{written:%a %b %d %H:%M:%S} {written.tzname() or 'UTC'} {written:%Y}")
    lines += [f"{_escape(key, key=True)}={_escape(value, key=False)}" for key, value in properties.items()]
    return ("\n".join(lines) + "\n").encode("ascii")


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blank lines; an odd number of backslashes at its end continues a line."""
    pending = ""
    continued = False
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        stripped = line.lstrip(_BLANKS)
        if not continued and (not stripped or stripped[0] in "#!"):
            continue
        backslashes = len(stripped) - len(stripped.rstrip("\\"))
        continued = backslashes % 2 == 1
        pending += stripped[:-1] if continued else stripped
        if not continued:
            yield pending
            pending = ""
    if pending:
        yield pending


def _end_of_key(line: str) -> int:
    at = 0
    while at < len(line) and line[at] not in "=:" and line[at] not in _BLANKS:
        at += 2 if line[at] == "\\" else 1
    return min(at, len(line))


def _skip_blanks(line: str, at: int) -> int:
    while at < len(line) and line[at] in _BLANKS:
        at += 1
    return at


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "\\" and at < len(text):
            char = text[at]
            at += 1
            if char == "u":
                digits = text[at : at + 4]
                if len(digits) != 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                    raise ValueError(f"\\u is followed by {digits!r}, not by four hexadecimal digits")
                char = chr(int(digits, 16))
                at += 4
            else:
                char = _ESCAPES.get(char, char)
        out.append(char)
    return "".join(out)


def _escape(text: str, *, key: bool) -> str:
    out = []
    for at, char in enumerate(text):
        if char == " " and (key or at == 0):
            out.append("\\ ")
        elif char in "\\=:#!":
            out.append("\\" + char)
        elif char in "\t\n\r\f":
            out.append("\\" + {"\t": "t", "\n": "n", "\r": "r", "\f": "f"}[char])
        elif " " <= char <= "~":
            out.append(char)
        else:
            units = char.encode("utf-16-be", "surrogatepass")
            out += [f"\\u{units[i] << 8 | units[i + 1]:04X}" for i in range(0, len(units), 2)]
    return "".join(out)


DEFAULT_FAILURE_TIMEOUT_MS, LEAST_FAILURE_TIMEOUT_MS = 30_000, 1
ALL_LOG_DIRS = "*"
DEFAULT_LOG_DIR = "/tmp/kafka-logs"  # noqa: S108 - Kafka's own default


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """``log_dirs`` as configured, the directory of the metadata log, the node's id where one is set."""

    log_dirs: tuple[str, ...]
    metadata_dir: str
    node_id: int | None = None
    failure_timeout_ms: int = DEFAULT_FAILURE_TIMEOUT_MS
    cordoned_log_dirs: tuple[str, ...] = ()
    """Those of ``log_dirs`` that the file cordons in effect. A dynamic configuration of the broker wins over it."""

    @property
    def directories(self) -> tuple[str, ...]:
        """Every directory of the node, each once, by path."""
        return tuple(sorted({*self.log_dirs, self.metadata_dir}))


def parse_server_config(data: bytes, source: str) -> ServerConfig:
    """The directories that a server.properties configures. Raises :class:`UsageError` naming ``source``."""
    try:
        settings = parse_properties(data)
    except ValueError as error:
        raise UsageError(f"{source}: {error}") from None
    listed = settings.get("log.dirs") or settings.get("log.dir") or DEFAULT_LOG_DIR
    log_dirs = tuple(path for path in (part.strip() for part in listed.split(",")) if path)
    if not log_dirs:
        raise UsageError(f"{source}: log.dirs names no directory")
    metadata_dir = settings.get("metadata.log.dir", "").strip() or log_dirs[0]
    node_text = settings.get("node.id", settings.get("broker.id", "")).strip()
    try:
        node_id = int(node_text) if node_text else None
    except ValueError:
        raise UsageError(f"{source}: node.id is {node_text!r}, not a number") from None
    return ServerConfig(
        log_dirs=log_dirs,
        metadata_dir=metadata_dir,
        node_id=node_id,
        failure_timeout_ms=_failure_timeout(settings, source),
        cordoned_log_dirs=_cordoned(settings, log_dirs, source),
    )


def _cordoned(settings: Mapping[str, str], log_dirs: tuple[str, ...], source: str) -> tuple[str, ...]:
    """cordoned.log.dirs: entries of log.dirs as they stand there, or * for all (R-STORE-23)."""
    listed = [part.strip() for part in settings.get("cordoned.log.dirs", "").split(",")]
    cordoned = tuple(path for path in listed if path)
    if cordoned == (ALL_LOG_DIRS,):
        return log_dirs
    for path in cordoned:
        if path not in log_dirs:
            raise UsageError(
                f"{source}: cordoned.log.dirs names {path!r}, which log.dirs does not list: name it as log.dirs does, "
                "or * alone for all"
            )
    # Kafka accepts a relative path, and does not cordon it (KAFKA-20901).
    return tuple(path for path in cordoned if Path(path).is_absolute())


def _failure_timeout(settings: Mapping[str, str], source: str) -> int:
    """log.dir.failure.timeout.ms, at least 1 (R-LIFE-11)."""
    text = settings.get("log.dir.failure.timeout.ms", "").strip() or str(DEFAULT_FAILURE_TIMEOUT_MS)
    if re.fullmatch(r"-?[0-9]{1,18}", text, re.ASCII) is None or int(text) < LEAST_FAILURE_TIMEOUT_MS:
        raise UsageError(f"{source}: log.dir.failure.timeout.ms is {text!r}: set it to a number from 1 on")
    return int(text)


def read_server_config(path: str) -> ServerConfig:
    """:func:`parse_server_config` of a file. Raises :class:`UsageError` if it cannot be read."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror or error}); give the broker's own file") from None
    return parse_server_config(data, path)


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
