"""The Prometheus metrics of a lake: what is offline and where, the findings of checks, and the age of the data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from prometheus_client.core import GaugeMetricFamily

from pipelines.ask.directories import directories
from pipelines.ask.impaired import troubled
from pipelines.ask.lost_data import LOST, MAY_LACK, losses
from pipelines.check.catalogue import CHECKS
from pipelines.lake.reader import Lake
from pipelines.metrics.behind import Behind
from pipelines.metrics.findings import Recorded


def measure(
    lake: Lake,
    now: datetime,
    *,
    default_min_isr: int = 1,
    accepted_until: int = -1,
    log: Behind | None = None,
    found: Recorded | None = None,
) -> Iterator[GaugeMetricFamily]:
    """The metrics of a lake at its offset, and of ``log`` and the findings ``found`` if they are given."""
    yield from _freshness(lake, now, log)
    yield from _brokers_and_directories(lake)
    yield from _offline(lake)
    yield from _partitions(lake, default_min_isr, accepted_until)
    if found is not None:
        yield from _findings(found)


def gauge(name: str, help_text: str, value: float) -> GaugeMetricFamily:
    """A single value."""
    return GaugeMetricFamily(f"jbod_{name}", help_text, value=value)


def gauges(name: str, help_text: str, labels: Sequence[str], values: Mapping[Any, float]) -> GaugeMetricFamily:
    """A value for each tuple of label values."""
    family = GaugeMetricFamily(f"jbod_{name}", help_text, labels=labels)
    for key in sorted(values):
        family.add_metric([str(label) for label in key], values[key])
    return family


def _freshness(lake: Lake, now: datetime, log: Behind | None) -> Iterator[GaugeMetricFamily]:
    published = lake.published
    identity = (published.cluster_id, published.profile)
    yield gauges(
        "lake_info", "The cluster, and the rules it was replayed by.", ["cluster_id", "profile"], {identity: 1}
    )
    yield gauge("lake_end_offset", "Offset after the last record of the lake.", published.end_offset)
    yield gauge("lake_published_timestamp_seconds", "When it was published.", published.published_time.timestamp())
    yield gauge("lake_last_record_timestamp_seconds", "When it was appended.", published.end_time.timestamp())
    missing = lake.incomplete_since
    yield gauge("lake_incomplete", "1 if the log has records that this jbod does not know.", int(missing is not None))
    yield gauges(
        "lake_unknown_records_offset",
        "Offset of the first record of a kind that is not known. No sample: all are.",
        ["record"],
        {} if missing is None else {(kind,): published.unknown[kind] for kind in missing.kinds},
    )
    age = (now - published.end_time).total_seconds()
    yield gauge("lake_last_record_age_seconds", "How old it was when this was measured.", age)
    if log is not None:
        yield gauge("log_end_offset", "Offset after the last whole record of the log on disk.", log.end_offset)
        yield gauge("log_unread_records", "Records of the log that are not in the lake yet.", log.records)
        yield gauge("log_unread_bytes", "Bytes of the log that are not in the lake yet.", log.bytes)


def _brokers_and_directories(lake: Lake) -> Iterator[GaugeMetricFamily]:
    found = directories(lake)
    registered = lake.query(f"SELECT broker_id, fenced FROM {lake.at('brokers')}")
    missing = {one.broker_id for one in found if one.broker == "missing"}
    states = Counter({("online",): 0, ("fenced",): 0, ("missing",): len(missing)})
    states.update(("fenced" if fenced else "online",) for _, fenced in registered)
    yield gauges("brokers", "Brokers by state; missing: not registered, but with replicas.", ["state"], states)

    kinds = ("unassigned", "lost", "migrating")
    nowhere = Counter({(broker, kind): 0 for broker, _ in registered for kind in kinds})
    disks = [one for one in found if one.state not in kinds]
    for one in found:
        if one.state in kinds:
            nowhere[(one.broker_id, one.state)] += one.replicas
    yield gauges(
        "replicas_without_directory",
        "Replicas that are in no directory that is known, by broker and why.",
        ["broker", "kind"],
        nowhere,
    )
    labels = ["broker", "directory"]
    online = {(one.broker_id, one.directory_id): one.state == one.broker == "online" for one in disks}
    replicas = {(one.broker_id, one.directory_id): one.replicas for one in disks}
    leaders = {(one.broker_id, one.directory_id): one.leaders for one in disks}
    yield gauges("directory_online", "1 if the directory is online on a broker that is, too.", labels, online)
    yield gauges("directory_replicas", "Replicas in the directory.", labels, replicas)
    names = {(one.broker_id, one.directory_id): lake.names.get(one.directory_id) for one in disks}
    yield gauges(
        "directory_info",
        "Path and label of a directory, as jbod label keeps them, to be joined with the metrics of directories.",
        [*labels, "path", "label"],
        {(*key, name.path or "", name.label or ""): 1 for key, name in names.items() if name is not None},
    )
    yield gauges("directory_leaders", "Replicas in the directory that lead their partition.", labels, leaders)


def _offline(lake: Lake) -> Iterator[GaugeMetricFamily]:
    rows = lake.query(
        f"SELECT broker_id, directory_id, reason, count(*) FROM {lake.at('offline_replicas')} GROUP BY ALL"
    )
    yield gauges(
        "offline_replicas",
        "Replicas that are offline, by where they are and why. No sample: none.",
        ["broker", "directory", "reason"],
        {(broker, directory, reason): count for broker, directory, reason, count in rows},
    )


def _partitions(lake: Lake, default_min_isr: int, accepted_until: int) -> Iterator[GaugeMetricFamily]:
    ((partitions, replicas),) = lake.query(
        f"SELECT count(*), coalesce(sum(len(replicas)), 0)::BIGINT FROM {lake.at('partitions')}"
    )
    hit, data = troubled(lake, default_min_isr), losses(lake, default_min_isr, accepted_until)
    yield gauge("partitions", "Partitions of all topics.", partitions)
    yield gauge("replicas", "Replicas of all partitions.", replicas)
    for name, help_text, count in (
        ("without_leader", "that nobody leads", sum(one.without_leader for one in hit)),
        ("led_from_offline", "whose leader is an offline replica", sum(one.led_from_offline for one in hit)),
        ("all_offline", "all of whose replicas are offline", sum(one.all_offline for one in hit)),
        (
            "under_min_isr",
            "with fewer replicas in sync and online than min.insync.replicas asks",
            sum(one.under_min_isr for one in hit),
        ),
        (
            "under_replicated",
            "with fewer replicas in sync than replicas",
            sum(len(one.isr) < len(one.replicas) for one in hit),
        ),
        ("data_lost", "whose last complete copy was given up, unless accepted", data.count(LOST)),
        ("may_lack_writes", "that may lack acknowledged writes, unless accepted", data.count(MAY_LACK)),
    ):
        yield gauge(f"partitions_{name}", f"Partitions {help_text}.", count)


def _findings(found: Recorded) -> Iterator[GaugeMetricFamily]:
    counts: dict[tuple[str, str, str], int] = {(check.id, check.name, check.severity): 0 for check in CHECKS}
    names = {check.id: check.name for check in CHECKS}
    for (check_id, severity), count in found.counts().items():
        counts[(check_id, names.get(check_id, ""), severity)] = count
    yield gauges("findings", "Open findings, as jbod check kept them.", ["check", "name", "severity"], counts)
    yield gauge("findings_offset", "Newest offset at which a check found, or found no more.", found.offset)
