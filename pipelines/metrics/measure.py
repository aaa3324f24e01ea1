"""The metrics of a lake: what is offline and where, the findings of checks, and the age of the data.

The findings are those of the table ``findings``, read without a JVM. How far the lake is behind the log on disk is read
from headers of batches only, in a long segment only from those near the end.
"""

from __future__ import annotations

import mmap
import struct
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from prometheus_client.core import GaugeMetricFamily

from jbod_model.errors import MalformedLog, UsageError
from jbod_model.formats.batch import Data, read_header
from jbod_model.formats.log import MetadataLog, SegmentFile
from pipelines.ask.lake_status import count_troubled, directories
from pipelines.ask.lost_data import LOST, MAY_LACK, UNREACHABLE, count_lost
from pipelines.ask.risk import Exposure, risk
from pipelines.check.catalogue import CHECKS
from pipelines.lake.delta import is_table, local_path, open_table, read_parquet
from pipelines.lake.ledger import Published
from pipelines.lake.reader import Lake
from pipelines.lake.uris import LakeUri
from pipelines.metrics import declared
from pipelines.metrics.declared import Metric
from pipelines.quorum.state import mirror_of, read_state

_ENTRY = struct.Struct(">ii")


@dataclass(frozen=True)
class Behind:
    """The part of a log that a lake has not read, in records and in bytes of whole batches."""

    end_offset: int
    """Offset after the last complete record on disk."""
    records: int
    bytes: int


def behind(log_dir: str, seen: int) -> Behind:
    """How far a lake that has read all offsets below ``seen`` is behind the log in ``log_dir``, on a disk.

    Raises UsageError if there is no log, and MalformedLog if the files are not a log.
    """
    log = MetadataLog.open(Path(local_path(log_dir)))
    if not log.segments:
        end = max(snapshot.end_offset for snapshot in log.snapshots)
        return Behind(end, max(end - seen, 0), 0)
    last = log.segments[-1]
    end, unread = _walk(last, max(seen, last.base_offset))
    for segment, after in zip(log.segments[:-1], log.segments[1:], strict=True):
        if after.base_offset > seen:
            unread += _walk(segment, max(seen, segment.base_offset))[1]
    return Behind(end, max(end - seen, 0), unread)


def _walk(segment: SegmentFile, seen: int) -> tuple[int, int]:
    """Offset after the segment's last whole batch, and bytes of the batches that end after ``seen``."""
    try:
        with segment.path.open("rb") as file:
            if file.seek(0, 2) == 0:
                return segment.base_offset, 0
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                first = _seek(segment, data, seen)
                begin = _end(segment, data, first, seen)[1]
                end, stop = _end(segment, data, max(first, _seek(segment, data, None)), None)
                return end, stop - begin
    except OSError as problem:
        raise UsageError(f"{segment.path}: cannot be read: {problem.strerror}") from None


def _end(segment: SegmentFile, data: Data, at: int, until: int | None) -> tuple[int, int]:
    """Reads on from the batch at byte ``at``: offset and byte after the last whole batch (that ends by ``until``)."""
    offset = segment.base_offset
    while (header := read_header(data, at, file=str(segment.path))) is not None:
        if until is not None and header.last_offset >= until:
            break
        offset, at = header.last_offset + 1, at + header.size
    return offset, at


def _seek(segment: SegmentFile, data: Data, offset: int | None) -> int:
    """By the offset index: the start of a batch at or before the one with ``offset`` (None: the last), in bytes.

    Kafka keeps a sparse index beside each segment. An entry has an offset, relative to the segment's first, and the
    byte of the batch that ends with it. The active index is padded with zeros. Returns 0 without a credible index.
    """
    try:
        index = segment.path.with_suffix(".index").read_bytes()
    except OSError:
        return 0
    count = len(index) // _ENTRY.size

    def beyond(entry: int) -> bool:
        relative, at = _ENTRY.unpack_from(index, entry * _ENTRY.size)
        return not at or (offset is not None and segment.base_offset + relative > offset)

    entry_number = bisect_left(range(count), True, key=beyond) - 1
    if entry_number < 0:
        return 0
    relative, at = _ENTRY.unpack_from(index, entry_number * _ENTRY.size)
    try:
        header = read_header(data, at, file=str(segment.path)) if 0 < at < len(data) else None
    except MalformedLog:
        return 0
    return at if header is not None and header.last_offset == segment.base_offset + relative else 0


TABLE = "findings"


def version(lake: LakeUri) -> int | None:
    """The version of the findings of the lake at ``lake``, None if no run of checks was kept yet."""
    return open_table(lake, TABLE, None).version() if is_table(f"{lake}/{TABLE}") else None


def measure(
    lake: Lake,
    now: datetime,
    *,
    default_min_isr: int = 1,
    accepted_until: int = -1,
    log: Behind | None = None,
) -> Iterator[GaugeMetricFamily]:
    """The metrics of a lake at its offset, and of ``log`` if it is given."""
    yield from of_moment(lake.path, lake.published, now)
    if log is not None:
        yield from of_log(log)
    yield from of_lake(lake, default_min_isr=default_min_isr, accepted_until=accepted_until)


def of_moment(lake: LakeUri, published: Published, now: datetime) -> Iterator[GaugeMetricFamily]:
    """The metrics that differ each time they are measured."""
    yield gauge(declared.LAKE_READABLE, 1)
    yield gauge(declared.MEASURED, now.timestamp())
    yield gauge(declared.LAST_RECORD_AGE, (now - published.end_time).total_seconds())
    yield from _of_quorum(lake, published.end_offset)


def _of_quorum(lake: LakeUri, end_offset: int) -> Iterator[GaugeMetricFamily]:
    """The metrics of the quorum from which the log of a lake comes; none if it comes from files."""
    quorum = read_state(mirror_of(lake))
    if quorum is None:
        return
    yield gauge(declared.QUORUM_COMMITTED, quorum.high_watermark)
    yield gauge(declared.QUORUM_UNREAD, max(quorum.high_watermark - end_offset, 0))
    who = (quorum.controller, quorum.leader_id)
    yield gauges(declared.QUORUM_ANSWERED, {who: quorum.answered_time.timestamp()})
    if quorum.silent_since is not None:
        yield gauge(declared.QUORUM_SILENT, quorum.silent_since.timestamp())


def of_log(log: Behind) -> Iterator[GaugeMetricFamily]:
    """The metrics of a log on disk."""
    yield gauge(declared.LOG_READABLE, 1)
    yield gauge(declared.LOG_END, log.end_offset)
    yield gauge(declared.UNREAD_RECORDS, log.records)
    yield gauge(declared.UNREAD_BYTES, log.bytes)


def of_lake(lake: Lake, *, default_min_isr: int = 1, accepted_until: int = -1) -> Iterator[GaugeMetricFamily]:
    """The metrics that stay the same until the lake advances or a check finds something."""
    yield from _published(lake)
    yield from _brokers_and_directories(lake)
    yield from _offline(lake)
    yield from _partitions(lake, default_min_isr, accepted_until)
    yield from _risk(lake, default_min_isr)
    yield from _findings(lake)


def gauge(metric: Metric, value: float) -> GaugeMetricFamily:
    """A single value."""
    return GaugeMetricFamily(metric.name, metric.help, value=value)


def gauges(metric: Metric, values: Mapping[Any, float]) -> GaugeMetricFamily:
    """A value for each tuple of label values."""
    family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    for key in sorted(values):
        family.add_metric([str(label) for label in key], values[key])
    return family


def _published(lake: Lake) -> Iterator[GaugeMetricFamily]:
    published = lake.published
    yield gauges(declared.LAKE_INFO, {(published.cluster_id, published.profile): 1})
    yield gauge(declared.LAKE_FIRST, lake.first)
    yield gauge(declared.LAKE_END, published.end_offset)
    yield gauge(declared.LAKE_PUBLISHED, published.published_time.timestamp())
    yield gauge(declared.LAST_RECORD, published.end_time.timestamp())
    missing = lake.incomplete_since
    yield gauge(declared.INCOMPLETE, int(missing is not None))
    unknown = {} if missing is None else {(kind,): published.unknown[kind] for kind in missing.kinds}
    yield gauges(declared.UNKNOWN_RECORDS, unknown)


def _brokers_and_directories(lake: Lake) -> Iterator[GaugeMetricFamily]:
    places = directories(lake)
    registered = lake.query(f"SELECT broker_id, fenced FROM {lake.at('brokers')}")
    missing = {place.broker_id for place in places if place.broker == "missing"}
    states = Counter({("online",): 0, ("fenced",): 0, ("missing",): len(missing)})
    states.update(("fenced" if fenced else "online",) for _, fenced in registered)
    yield gauges(declared.BROKERS, states)

    kinds = ("unassigned", "lost", "migrating")
    nowhere = Counter({(broker, kind): 0 for broker, _ in registered for kind in kinds})
    disks = [place for place in places if place.state not in kinds]
    for place in places:
        if place.state in kinds:
            nowhere[(place.broker_id, place.state)] += place.replicas
    yield gauges(declared.NO_DIRECTORY, nowhere)
    online = {(disk.broker_id, disk.directory_id): disk.state == disk.broker == "online" for disk in disks}
    replicas = {(disk.broker_id, disk.directory_id): disk.replicas for disk in disks}
    leaders = {(disk.broker_id, disk.directory_id): disk.leaders for disk in disks}
    yield gauges(declared.DIRECTORY_ONLINE, online)
    yield gauges(declared.DIRECTORY_REPLICAS, replicas)
    yield gauges(declared.DIRECTORY_LEADERS, leaders)
    names = {(disk.broker_id, disk.directory_id): lake.names.get(disk.directory_id) for disk in disks}
    known = {(*key, name.path or "", name.label or ""): 1 for key, name in names.items() if name is not None}
    yield gauges(declared.DIRECTORY_INFO, known)


def _offline(lake: Lake) -> Iterator[GaugeMetricFamily]:
    rows = lake.query(
        f"SELECT broker_id, directory_id, reason, count(*) FROM {lake.at('offline_replicas')} GROUP BY ALL"
    )
    yield gauges(
        declared.OFFLINE_REPLICAS,
        {(broker, directory, reason): count for broker, directory, reason, count in rows},
    )


def _partitions(lake: Lake, default_min_isr: int, accepted_until: int) -> Iterator[GaugeMetricFamily]:
    ((partitions, replicas),) = lake.query(
        f"SELECT count(*), coalesce(sum(len(replicas)), 0)::BIGINT FROM {lake.at('partitions')}"
    )
    hit, lost = count_troubled(lake, default_min_isr), count_lost(lake, default_min_isr, accepted_until)
    yield gauge(declared.PARTITIONS, partitions)
    yield gauge(declared.REPLICAS, replicas)
    yield gauge(declared.WITHOUT_LEADER, hit.without_leader)
    yield gauge(declared.LED_FROM_OFFLINE, hit.led_from_offline)
    yield gauge(declared.ALL_OFFLINE, hit.all_offline)
    yield gauge(declared.UNDER_MIN_ISR, hit.under_min_isr)
    yield gauge(declared.UNDER_REPLICATED, hit.under_replicated)
    yield gauge(declared.DATA_LOST, lost[LOST])
    yield gauge(declared.DATA_UNREACHABLE, lost[UNREACHABLE])
    yield gauge(declared.MAY_LACK_WRITES, lost[MAY_LACK])


def _risk(lake: Lake, default_min_isr: int) -> Iterator[GaugeMetricFamily]:
    answer = risk(lake, default_min_isr)
    yield gauges(declared.DIRECTORY_RISK, _exposed(answer.directories))
    yield gauges(declared.BROKER_RISK, _exposed(answer.brokers))


def _exposed(exposures: Sequence[Exposure]) -> dict[tuple[object, ...], int]:
    counts: dict[tuple[object, ...], int] = {}
    for exposure in exposures:
        place = (exposure.broker_id,) if exposure.directory_id is None else (exposure.broker_id, exposure.directory_id)
        counts |= {(*place, effect): getattr(exposure, count) for effect, count in declared.EFFECTS.items()}
    return counts


def _findings(lake: Lake) -> Iterator[GaugeMetricFamily]:
    """The open findings, and the newest offset at which one was seen or cleared. Nothing if no run was kept."""
    if not is_table(f"{lake.path}/{TABLE}"):
        return
    kept = read_parquet(lake.path, TABLE, open_table(lake.path, TABLE, None))
    names = {check.id: check.name for check in CHECKS}
    counts: dict[tuple[str, str, str], int] = {(check.id, check.name, check.severity): 0 for check in CHECKS}
    for check_id, severity, count in lake.query(
        f"SELECT check_id, severity, count(*) FROM {kept} WHERE cleared_offset IS NULL GROUP BY ALL"
    ):
        counts[check_id, names.get(check_id, ""), severity] = count
    ((newest,),) = lake.query(f"SELECT coalesce(max(greatest(last_seen_offset, cleared_offset)), -1) FROM {kept}")
    yield gauges(declared.FINDINGS, counts)
    yield gauge(declared.FINDINGS_OFFSET, newest)
