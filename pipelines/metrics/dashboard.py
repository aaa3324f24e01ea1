"""A Grafana dashboard, made from the declared metrics. Grafana 10 and later can import it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.metrics import declared as m
from pipelines.metrics.declared import Metric

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDE = 24
"""Columns of Grafana's grid."""
_GREEN, _RED = {"color": "green", "value": None}, {"color": "red", "value": 1}


@dataclass(frozen=True)
class Query:
    """A query of a panel, and the name of its series."""

    expr: str
    legend: str = ""


def shown(metric: Metric, **labels: str) -> str:
    """The selector of a metric for the chosen instances."""
    return metric.where(**labels).replace("}", ", instance=~'$instance'}" if labels else "instance=~'$instance'}")


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana's JSON model."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, rows in _SECTIONS:
        panels.append(_row(title, len(panels) + 1, top))
        top += 1
        for row, height in rows:
            width = _WIDE // len(row)
            for place, panel in enumerate(row):
                grid = {"x": place * width, "y": top, "w": width, "h": height}
                panels.append(panel | {"id": len(panels) + 1, "gridPos": grid, "datasource": _SOURCE})
            top += height
    return {
        "title": "jbod: disks of a Kafka cluster",
        "uid": "jbod-disks",
        "tags": ["jbod", "kafka"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "",
        "templating": {"list": _VARIABLES},
        "annotations": {"list": []},
        "panels": panels,
    }


def dashboard_text() -> str:
    """The dashboard as a file to import."""
    return json.dumps(dashboard(), indent=2) + "\n"


_VARIABLES = [
    {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "hide": 0},
    {
        "name": "instance",
        "label": "Instance",
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": f"label_values({m.LAKE_READABLE}, instance)", "refId": "instance"},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "current": {"text": ["All"], "value": ["$__all"]},
        "hide": 0,
    },
]


def _row(title: str, number: int, top: int) -> dict[str, Any]:
    grid = {"x": 0, "y": top, "w": _WIDE, "h": 1}
    return {"type": "row", "title": title, "id": number, "gridPos": grid, "collapsed": False, "panels": []}


def _targets(queries: Sequence[Query], **settings: Any) -> list[dict[str, Any]]:
    return [
        {
            "refId": chr(ord("A") + number),
            "datasource": _SOURCE,
            "expr": query.expr,
            "legendFormat": query.legend or "__auto",
            **settings,
        }
        for number, query in enumerate(queries)
    ]


def _stat(title: str, metric: Metric, expr: str = "", unit: str = "none", *, trouble: bool = True) -> dict[str, Any]:
    """The newest value. ``trouble``: red from 1 on."""
    return {
        "type": "stat",
        "title": title,
        "description": metric.help,
        "targets": _targets([Query(expr or f"sum({shown(metric)})")], instant=True),
        "options": {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "colorMode": "background" if trouble else "value",
            "graphMode": "none",
            "textMode": "value",
        },
        "fieldConfig": {
            "defaults": {
                "unit": unit,
                "thresholds": {"mode": "absolute", "steps": [_GREEN, _RED] if trouble else [_GREEN]},
            },
            "overrides": [],
        },
    }


def _graph(
    title: str, description: str, queries: Sequence[Query], unit: str = "none", *, stacked: bool = False
) -> dict[str, Any]:
    """Values over time."""
    return {
        "type": "timeseries",
        "title": title,
        "description": description,
        "targets": _targets(queries),
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "fieldConfig": {
            "defaults": {
                "unit": unit,
                "min": 0,
                "custom": {
                    "drawStyle": "line",
                    "lineInterpolation": "stepAfter",
                    "fillOpacity": 30 if stacked else 0,
                    "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
                },
            },
            "overrides": [],
        },
    }


def _table(title: str, description: str, columns: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The newest values: a row for each set of labels, a column for each named query."""
    named = {f"Value #{chr(ord('A') + number)}": name for number, (name, _) in enumerate(columns)}
    if len(columns) == 1:
        named["Value"] = columns[0][0]
    hidden = dict.fromkeys(("Time", "__name__", "job"), True)
    return {
        "type": "table",
        "title": title,
        "description": description,
        "targets": _targets([Query(expr) for _, expr in columns], instant=True, format="table"),
        "transformations": [
            {"id": "merge", "options": {}},
            {"id": "organize", "options": {"excludeByName": hidden, "renameByName": named}},
        ],
        "options": {"showHeader": True, "cellHeight": "sm", "footer": {"show": False}},
        "fieldConfig": {"defaults": {"unit": "none", "custom": {"align": "auto", "filterable": True}}, "overrides": []},
    }


def _sum(metric: Metric, *by: str, **labels: str) -> str:
    return f"sum by ({', '.join(('instance', *by))}) ({shown(metric, **labels)})"


def _one(metric: Metric, effect: str) -> str:
    """The samples of one effect, without that label: the columns of a table must agree in their labels."""
    return f"sum without (effect) ({shown(metric, effect=effect)})"


_SECTIONS: Sequence[tuple[str, Sequence[tuple[Sequence[dict[str, Any]], int]]]] = (
    (
        "Now",
        (
            (
                (
                    _stat("Offline replicas", m.OFFLINE_REPLICAS, f"sum({shown(m.OFFLINE_REPLICAS)}) or vector(0)"),
                    _stat("Without a leader", m.WITHOUT_LEADER),
                    _stat("Under min ISR", m.UNDER_MIN_ISR),
                    _stat("Data lost", m.DATA_LOST),
                    _stat("May lack writes", m.MAY_LACK_WRITES),
                    _stat(
                        "Directories offline",
                        m.DIRECTORY_ONLINE,
                        f"count({shown(m.DIRECTORY_ONLINE)} == 0) or vector(0)",
                    ),
                    _stat("Lake incomplete", m.INCOMPLETE, f"max({shown(m.INCOMPLETE)})"),
                    _stat(
                        "Age of the newest record",
                        m.LAST_RECORD,
                        f"max(time() - {shown(m.LAST_RECORD)})",
                        "s",
                        trouble=False,
                    ),
                ),
                4,
            ),
        ),
    ),
    (
        "Offline",
        (
            (
                (
                    _graph(
                        "Offline replicas by reason",
                        m.OFFLINE_REPLICAS.help,
                        [Query(_sum(m.OFFLINE_REPLICAS, "reason"), "{{reason}}")],
                        stacked=True,
                    ),
                    _graph(
                        "Partitions in trouble",
                        "Partitions that clients cannot use as they should, and those that are not fully replicated.",
                        [
                            Query(_sum(m.WITHOUT_LEADER), "without a leader"),
                            Query(_sum(m.LED_FROM_OFFLINE), "led from offline"),
                            Query(_sum(m.ALL_OFFLINE), "all replicas offline"),
                            Query(_sum(m.UNDER_MIN_ISR), "under min ISR"),
                            Query(_sum(m.UNDER_REPLICATED), "under-replicated"),
                        ],
                    ),
                ),
                9,
            ),
        ),
    ),
    (
        "Directories",
        (
            (
                (
                    _table(
                        "Directories",
                        "Each directory: whether it is online, and what it holds.",
                        [
                            ("online", shown(m.DIRECTORY_ONLINE)),
                            ("replicas", shown(m.DIRECTORY_REPLICAS)),
                            ("leaders", shown(m.DIRECTORY_LEADERS)),
                        ],
                    ),
                    _table(
                        "Offline replicas by directory",
                        m.OFFLINE_REPLICAS.help,
                        [("replicas", shown(m.OFFLINE_REPLICAS))],
                    ),
                ),
                9,
            ),
            (
                (
                    _graph("Brokers", m.BROKERS.help, [Query(_sum(m.BROKERS, "state"), "{{state}}")], stacked=True),
                    _graph(
                        "Replicas without a directory",
                        m.NO_DIRECTORY.help,
                        [Query(_sum(m.NO_DIRECTORY, "broker", "kind") + " > 0", "broker {{broker}}: {{kind}}")],
                        stacked=True,
                    ),
                ),
                8,
            ),
        ),
    ),
    (
        "Risk",
        (
            (
                (
                    _table(
                        "The failure of one directory",
                        m.DIRECTORY_RISK.help,
                        [(effect, _one(m.DIRECTORY_RISK, effect)) for effect in m.EFFECTS],
                    ),
                    _table(
                        "The failure of one broker",
                        m.BROKER_RISK.help,
                        [(effect, _one(m.BROKER_RISK, effect)) for effect in m.EFFECTS],
                    ),
                ),
                9,
            ),
            (
                (
                    _graph(
                        "The worst failure of one directory",
                        m.DIRECTORY_RISK.help,
                        [Query(f"max by (instance, effect) ({shown(m.DIRECTORY_RISK)})", "{{effect}}")],
                    ),
                    _graph(
                        "Lost data",
                        "Partitions whose last complete copy was given up; partitions that may lack writes.",
                        [Query(_sum(m.DATA_LOST), "data lost"), Query(_sum(m.MAY_LACK_WRITES), "may lack writes")],
                    ),
                ),
                8,
            ),
        ),
    ),
    (
        "The lake",
        (
            (
                (
                    _graph(
                        "Age of the newest record",
                        "It grows if the lake is not updated, or if the quorum writes nothing.",
                        [Query(f"time() - {shown(m.LAST_RECORD)}", "{{instance}}")],
                        "s",
                    ),
                    _graph(
                        "Records not in the lake yet",
                        m.UNREAD_RECORDS.help,
                        [Query(shown(m.UNREAD_RECORDS), "{{instance}}")],
                    ),
                    _graph(
                        "Can be read, is complete",
                        "1 if the lake could be read; 1 if it lacks records that this jbod does not know.",
                        [
                            Query(shown(m.LAKE_READABLE), "lake readable"),
                            Query(shown(m.LOG_READABLE), "log readable"),
                            Query(shown(m.INCOMPLETE), "incomplete"),
                        ],
                    ),
                ),
                8,
            ),
            (
                (
                    _table(
                        "Clusters", m.LAKE_INFO.help, [("1", shown(m.LAKE_INFO)), ("end offset", shown(m.LAKE_END))]
                    ),
                    _table("Unknown records", m.UNKNOWN_RECORDS.help, [("since offset", shown(m.UNKNOWN_RECORDS))]),
                    _table("Open findings", m.FINDINGS.help, [("findings", shown(m.FINDINGS) + " > 0")]),
                ),
                8,
            ),
        ),
    ),
)
