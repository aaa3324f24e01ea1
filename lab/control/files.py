"""Controller mode from files to a metadata log directory."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from jbod_model.audit.knowledge import Arrivals
from jbod_model.errors import UsageError
from jbod_model.formats.log import PARTITION_DIRECTORY, LogWriter
from jbod_model.formats.metadata_version import LEVELS
from jbod_model.formats.request_log_file import RequestLog
from jbod_model.storage.properties import MetaProperties, write_meta_properties
from lab.control.control import Control, default_features
from lab.control.hints import Hints
from lab.simulation.controller_node import NODE_ID

SEGMENT_BYTES = 64 << 20
"""The size at which a segment ends."""


def control(logs: Sequence[RequestLog], out: Path, metadata_version: str | None) -> Control:
    """Answers the requests of ``logs`` and writes the resulting log into ``out``, a new metadata.log.dir.

    Reads the files twice. Raises UsageError for an unknown version, a missing file, or an ``out`` that holds a log
    already or cannot be written.
    """
    if metadata_version is not None and metadata_version not in LEVELS:
        raise UsageError(f"--metadata-version {metadata_version}: not known: use one of {', '.join(LEVELS)}")
    directory = out / PARTITION_DIRECTORY
    if directory.exists():
        raise UsageError(f"{out} holds a metadata log already: give another --out")
    first_pass = heapq.merge(
        *(RequestLog(log.path, log.zone).requests() for log in logs), key=lambda line: line.completed_ms
    )
    hints = Hints.of(first_pass)
    level = hints.metadata_version if metadata_version is None else LEVELS[metadata_version]
    controller = Control(hints, default_features(level, hints.supports))
    try:
        directory.mkdir(parents=True)
        _write(controller, logs, directory)
        meta = MetaProperties(version=1, cluster_id=hints.cluster_id or "unknown", node_id=NODE_ID)
        write_meta_properties(str(out), meta, datetime.now(UTC))
    except OSError as problem:
        raise UsageError(f"{out}: cannot be written ({problem.strerror or problem})") from None
    return controller


def _write(controller: Control, logs: Sequence[RequestLog], directory: Path) -> None:
    writer = LogWriter()
    for line in Arrivals([log.requests() for log in logs]).in_order():
        controller.handle(line)
        controller.drain(writer)
        if len(writer) >= SEGMENT_BYTES:
            writer.write(directory)
            writer = LogWriter(base_offset=writer.next_offset)
    writer.write(directory)
