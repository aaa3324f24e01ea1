"""The few settings of a server.properties that say which directories a node has (R-STORE-17).

Source: Kafka's ``StorageTool.configToLogDirectories``, ``KafkaConfig`` (log.dirs before log.dir, the metadata
directory defaults to the first log directory, node.id before broker.id).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jbod_model.errors import UsageError
from jbod_model.storage.properties import parse_properties

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
