"""The declarations of all metrics, which the rules, the dashboard and docs/alerts.md name, and their text.

Prometheus text is printed, or written to a file for node_exporter's textfile collector.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client import generate_latest, write_to_textfile
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from jbod_model.errors import UsageError

WITH_LOG = "with `--log`"
OF_QUORUM = "of a lake whose log comes from a quorum"
AFTER_CHECK = "once a run of `jbod check` was kept"


@dataclass(frozen=True)
class Metric:
    """A gauge."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    present: str = ""
    """The condition under which it has samples at all, empty for always."""


_declared: list[Metric] = []


def _metric(name: str, help_text: str, labels: Sequence[str] = (), present: str = "") -> Metric:
    metric = Metric(f"jbod_{name}", help_text, tuple(labels), present)
    _declared.append(metric)
    return metric


LAKE_READABLE = _metric("lake_readable", "1 if the lake could be read. If not, only this metric has a sample.")
MEASURED = _metric("measured_timestamp_seconds", "When this was measured.")
LAKE_INFO = _metric("lake_info", "The cluster, and the rules it was replayed by.", ["cluster_id", "profile"])
LAKE_FIRST = _metric(
    "lake_first_offset", "Offset before which failures and losses are not known: 0, or that of a snapshot."
)
LAKE_END = _metric("lake_end_offset", "Offset after the last record of the lake.")
LAKE_PUBLISHED = _metric("lake_published_timestamp_seconds", "When it was published.")
LAST_RECORD = _metric("lake_last_record_timestamp_seconds", "When it was appended.")
LAST_RECORD_AGE = _metric("lake_last_record_age_seconds", "How old it was when this was measured.")
INCOMPLETE = _metric("lake_incomplete", "1 if the log has records that this jbod does not know.")
UNKNOWN_RECORDS = _metric(
    "lake_unknown_records_offset",
    "Offset of the first record of a kind that is not known. No sample: all are.",
    ["record"],
)
LOG_READABLE = _metric("log_readable", "1 if the log on disk could be read.", present=WITH_LOG)
LOG_END = _metric("log_end_offset", "Offset after the last whole record of the log on disk.", present=WITH_LOG)
UNREAD_RECORDS = _metric("log_unread_records", "Records of the log that are not in the lake yet.", present=WITH_LOG)
UNREAD_BYTES = _metric("log_unread_bytes", "Bytes of the log that are not in the lake yet.", present=WITH_LOG)
QUORUM_COMMITTED = _metric("quorum_high_watermark", "Offset after the last committed record.", present=OF_QUORUM)
QUORUM_UNREAD = _metric("quorum_unread_records", "Committed records that are not in the lake yet.", present=OF_QUORUM)
QUORUM_ANSWERED = _metric(
    "quorum_answered_timestamp_seconds",
    "When a leader of the quorum answered last, and which controller that was.",
    ["controller", "leader"],
    present=OF_QUORUM,
)
QUORUM_SILENT = _metric(
    "quorum_silent_since_timestamp_seconds",
    "Since when no leader of the quorum answers.",
    present="while no leader answers",
)

BROKERS = _metric("brokers", "Brokers by state; missing: not registered, but with replicas.", ["state"])
NO_DIRECTORY = _metric(
    "replicas_without_directory",
    "Replicas that are in no directory that is known, by broker and why.",
    ["broker", "kind"],
)
DIRECTORY_ONLINE = _metric(
    "directory_online", "1 if the directory is online on a broker that is, too.", ["broker", "directory"]
)
DIRECTORY_REPLICAS = _metric("directory_replicas", "Replicas in the directory.", ["broker", "directory"])
DIRECTORY_LEADERS = _metric(
    "directory_leaders", "Replicas in the directory that lead their partition.", ["broker", "directory"]
)
DIRECTORY_INFO = _metric(
    "directory_info",
    "Path and label of a directory, as jbod label keeps them, to be joined with the metrics of directories.",
    ["broker", "directory", "path", "label"],
)
OFFLINE_REPLICAS = _metric(
    "offline_replicas",
    "Replicas that are offline, by where they are and why. No sample: none.",
    ["broker", "directory", "reason"],
)

PARTITIONS = _metric("partitions", "Partitions of all topics.")
REPLICAS = _metric("replicas", "Replicas of all partitions.")
WITHOUT_LEADER = _metric("partitions_without_leader", "Partitions without a leader.")
LED_FROM_OFFLINE = _metric("partitions_led_from_offline", "Partitions whose leader is an offline replica.")
ALL_OFFLINE = _metric("partitions_all_offline", "Partitions all of whose replicas are offline.")
UNDER_MIN_ISR = _metric(
    "partitions_under_min_isr",
    "Partitions with fewer replicas in sync and online than min.insync.replicas asks.",
)
UNDER_REPLICATED = _metric("partitions_under_replicated", "Partitions with fewer replicas in sync than replicas.")
DATA_LOST = _metric("partitions_data_lost", "Partitions whose last complete copy was given up, unless accepted.")
DATA_UNREACHABLE = _metric(
    "partitions_data_unreachable", "Partitions whose last complete copy lies on a broker that is not registered."
)
MAY_LACK_WRITES = _metric(
    "partitions_may_lack_writes", "Partitions that may lack acknowledged writes, unless accepted."
)

DIRECTORY_RISK = _metric(
    "directory_failure_partitions",
    "Partitions that the failure of this directory would harm beyond what is lost already, by effect.",
    ["broker", "directory", "effect"],
)
BROKER_RISK = _metric(
    "broker_failure_partitions",
    "Partitions that the failure of this broker would harm beyond what is lost already, by effect.",
    ["broker", "effect"],
)
EFFECTS = {
    "without leader": "without_leader",
    "no other replica": "last_replicas",
    "unclean election": "unclean",
    "under min ISR": "under_min_isr",
}
"""Values of the label effect, each with the count of ``pipelines.ask.risk.Exposure`` that it shows."""

FINDINGS = _metric(
    "findings", "Open findings, as jbod check kept them.", ["check", "name", "severity"], present=AFTER_CHECK
)
FINDINGS_OFFSET = _metric(
    "findings_offset", "Newest offset at which a check found, or found no more.", present=AFTER_CHECK
)

METRICS: tuple[Metric, ...] = tuple(_declared)


@dataclass(frozen=True)
class _Measured(Collector):
    """Families that were measured once."""

    families: Iterable[GaugeMetricFamily]

    def collect(self) -> Iterable[GaugeMetricFamily]:
        return self.families


def as_text(families: Iterable[GaugeMetricFamily]) -> str:
    """The exposition format, version 0.0.4."""
    return generate_latest(_Measured(families)).decode()


def as_json(families: Iterable[GaugeMetricFamily]) -> dict[str, Any]:
    """Every family by its name: its help text, and its samples as labels and value."""
    return {
        family.name: {
            "help": family.documentation,
            "samples": [
                {"name": sample.name, "labels": sample.labels, "value": sample.value} for sample in family.samples
            ],
        }
        for family in families
    }


def write(families: Iterable[GaugeMetricFamily], out: Path) -> None:
    """Writes the same to a file in one step: a reader sees the old or the new content.

    Creates its folder, as that of the first run of a job, but none above it: the path may be mistyped.
    """
    if out.exists() and not out.is_file():  # it would be replaced, for root even /dev/null
        raise UsageError(f"--out {out}: that is no file: name one")
    try:
        out.parent.mkdir(exist_ok=True)
        write_to_textfile(str(out.resolve()), _Measured(families))
    except OSError as problem:
        raise UsageError(f"--out {out}: cannot be written: {problem.strerror}") from None
