"""Alerting and recording rules for Prometheus, made from the declared metrics.

docs/alerts.md has a section on each alert. There are three kinds: effects on clients and lost data (critical), their
causes (warning), and a lake or log that no longer says how the cluster is. ``lasting`` leaves out what a restart does
for a moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import yaml

from pipelines.metrics import declared as m

RUNBOOK = "docs/alerts.md"


@dataclass(frozen=True)
class Recording:
    """A rule that stores the result of a query as a series. Its name says which labels are left, as is the custom."""

    record: str
    expr: str


@dataclass(frozen=True)
class Alert:
    """A rule that fires once ``expr`` had a result for ``lasting``."""

    name: str
    severity: Literal["critical", "warning"]
    expr: str
    lasting: str
    summary: str
    """What is wrong, with labels and value of the series."""
    description: str
    """What to do."""

    @property
    def anchor(self) -> str:
        """The anchor of its section in the runbook."""
        return self.name.lower()


RECORDINGS = (
    Recording("instance:jbod_offline_replicas:sum", f"{m.OFFLINE_REPLICAS.summed()} or 0 * {m.REPLICAS}"),
    Recording("instance:jbod_offline_replicas:ratio", f"instance:jbod_offline_replicas:sum / ({m.REPLICAS} > 0)"),
    Recording("reason:jbod_offline_replicas:sum", m.OFFLINE_REPLICAS.summed("reason")),
    Recording("broker:jbod_offline_replicas:sum", m.OFFLINE_REPLICAS.summed("broker")),
    Recording("directory:jbod_offline_replicas:sum", m.OFFLINE_REPLICAS.summed("broker", "directory")),
    Recording("broker:jbod_directory_online:sum", m.DIRECTORY_ONLINE.summed("broker")),
    Recording("instance:jbod_lake_age_seconds:now", f"time() - {m.LAST_RECORD}"),
)

_PLACE = "directory {{ $labels.directory }} of broker {{ $labels.broker }}"

ALERTS = (
    # Effects on clients, and lost data.
    Alert(
        "JbodPartitionsWithoutLeader",
        "critical",
        f"{m.WITHOUT_LEADER} > 0",
        "1m",
        "{{ $value }} partitions have no leader: they can neither be read nor written",
        "jbod offline names the brokers and disks that hold their replicas. Start these brokers, or repair the disks.",
    ),
    Alert(
        "JbodPartitionsLedFromOffline",
        "critical",
        f"{m.LED_FROM_OFFLINE} > 0",
        "1m",
        "{{ $value }} partitions are led by a replica that is offline",
        "The election has not happened. jbod check says which partitions. Look at the active controller.",
    ),
    Alert(
        "JbodPartitionsAllOffline",
        "critical",
        f"{m.ALL_OFFLINE} > 0",
        "1m",
        "all replicas of {{ $value }} partitions are offline",
        "Wipe no disk. jbod offline names the disks that hold them; bring one broker or disk of each partition back.",
    ),
    Alert(
        "JbodPartitionsUnderMinIsr",
        "critical",
        f"{m.UNDER_MIN_ISR} > 0",
        "5m",
        "{{ $value }} partitions refuse writes with acks=all: too few replicas are in sync and online",
        "jbod offline says which replicas are offline and why. Bring back their brokers or disks.",
    ),
    Alert(
        "JbodDataLost",
        "critical",
        f"{m.DATA_LOST} > 0",
        "0s",
        "the last complete copy of {{ $value }} partitions was given up",
        "Wipe no disk. jbod check --only B-32,B-33 names the disk that held the copy of each. If it can still be read, "
        "copy the partition from it; if not, accept the loss with check.losses_accepted_until.",
    ),
    # Causes.
    Alert(
        "JbodDirectoryFailed",
        "warning",
        f"{m.OFFLINE_REPLICAS.summed('broker', 'directory', reason='directory offline')} > 0",
        "1m",
        f"{_PLACE} is offline, with {{{{ $value }}}} replicas",
        "jbod incidents says when it failed, jbod safe-to-remove whether a complete copy of everything is elsewhere. "
        "Then repair or replace the disk, and restart the broker.",
    ),
    Alert(
        "JbodReplicasInLostDirectory",
        "warning",
        f"{m.OFFLINE_REPLICAS.summed('broker', reason='directory lost')} > 0",
        "1m",
        "{{ $value }} replicas of broker {{ $labels.broker }} are in a directory that is gone",
        "jbod offline names them. Bring the disk back, or restart the broker so that it recreates them on another one.",
    ),
    Alert(
        "JbodBrokerFenced",
        "warning",
        f"{m.BROKERS.summed(state='fenced')} > 0",
        "5m",
        "{{ $value }} brokers are fenced: all of their replicas are offline",
        "jbod incidents says since when, and whether they were shut down or lost. Start them, or look at their logs.",
    ),
    Alert(
        "JbodBrokerMissing",
        "warning",
        f"{m.BROKERS.summed(state='missing')} > 0",
        "5m",
        "{{ $value }} brokers that are not registered have replicas assigned",
        "Reassign the replicas to other brokers, or start the brokers again. jbod offline names both.",
    ),
    Alert(
        "JbodPartitionsUnderReplicated",
        "warning",
        f"{m.UNDER_REPLICATED} > 0",
        "15m",
        "{{ $value }} partitions have replicas that are not in sync",
        "jbod offline says which replicas are offline. If none is, a broker or disk is too slow: look at its load.",
    ),
    Alert(
        "JbodReplicasUnassigned",
        "warning",
        f"{m.NO_DIRECTORY.summed('broker', kind='unassigned')} > 0",
        "15m",
        "the directory of {{ $value }} replicas of broker {{ $labels.broker }} is not known",
        "A broker reports directories within seconds. jbod assignments shows what it asked for; look at its log.",
    ),
    Alert(
        "JbodWritesMayBeLost",
        "warning",
        f"{m.MAY_LACK_WRITES} > 0",
        "0s",
        "{{ $value }} partitions were led by a copy that was not complete, and may lack acknowledged writes",
        "jbod check --only B-32,B-33 names them. Compare with the source of the data; then accept it with "
        "check.losses_accepted_until.",
    ),
    Alert(
        "JbodCriticalFindings",
        "warning",
        f"{m.FINDINGS.summed('check', 'name', severity='critical')} > 0",
        "0s",
        "jbod check {{ $labels.check }} ({{ $labels.name }}) has {{ $value }} critical findings",
        "jbod check --only {{ $labels.check }} lists them with what to do.",
    ),
    # The lake, the log, and jbod itself.
    Alert(
        "JbodLakeIncomplete",
        "warning",
        f"{m.INCOMPLETE} > 0",
        "0s",
        "the log has records that this jbod does not know: answers may be incomplete",
        "Install a newer jbod and run jbod rebuild. jbod status names the kinds of records.",
    ),
    Alert(
        "JbodLakeStale",
        "warning",
        f"time() - {m.LAST_RECORD} > {10 * 60}",
        "5m",
        "the newest record of the lake is {{ $value | humanizeDuration }} old",
        "A live log has a record every half second. Look whether jbod replay --follow or the scheduled job runs, and "
        "whether the quorum has a leader (jbod quorum).",
    ),
    Alert(
        "JbodLakeBehind",
        "warning",
        f"{m.UNREAD_RECORDS} > 10000",
        "15m",
        "{{ $value }} records of the log are not in the lake yet",
        "Look at the output of jbod replay. If it keeps up but began late, wait.",
    ),
    Alert(
        "JbodLakeUnreadable",
        "critical",
        f"{m.LAKE_READABLE} == 0",
        "2m",
        "the lake cannot be read: nothing is known about the disks",
        "The standard error of jbod metrics --listen names the file. jbod verify checks the lake, jbod rebuild makes "
        "its tables again from its records.",
    ),
    Alert(
        "JbodLogUnreadable",
        "warning",
        f"{m.LOG_READABLE} == 0",
        "2m",
        "the metadata log on disk cannot be read",
        "The standard error of jbod metrics --listen names the file. Look at the disk of metadata.log.dir.",
    ),
    Alert(
        "JbodMetricsStale",
        "warning",
        f"time() - {m.MEASURED} > {15 * 60}",
        "0s",
        "the metrics are {{ $value | humanizeDuration }} old",
        "Whatever writes the file of jbod metrics --out has stopped.",
    ),
    Alert(
        "JbodMetricsAbsent",
        "warning",
        f"absent({m.LAKE_READABLE})",
        "10m",
        "no metrics of jbod are scraped",
        "Look whether jbod metrics --listen runs, and at Prometheus' page of targets.",
    ),
)


def rules_text() -> str:
    """The rules as a file for ``rule_files`` of Prometheus, which Mimir, Thanos and VictoriaMetrics read, too."""
    groups = [
        {"name": "jbod-recordings", "rules": [{"record": one.record, "expr": one.expr} for one in RECORDINGS]},
        {"name": "jbod-alerts", "rules": [_alert(one) for one in ALERTS]},
    ]
    return f"# Made by jbod metrics --rules.\n{yaml.safe_dump({'groups': groups}, sort_keys=False, width=1000)}"


def _alert(one: Alert) -> dict[str, Any]:
    return {
        "alert": one.name,
        "expr": one.expr,
        **({} if one.lasting == "0s" else {"for": one.lasting}),
        "labels": {"severity": one.severity},
        "annotations": {
            "summary": one.summary,
            "description": one.description,
            "runbook": f"{RUNBOOK}#{one.anchor}",
        },
    }
