"""The rules for Prometheus and the dashboard for Grafana that come with jbod, as data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import yaml

from pipelines.cli.upkeep import DASHBOARD, RULES

RUNBOOK = "docs/alerts.md"


@dataclass(frozen=True)
class Alert:
    """A rule that fires once ``expr`` had a result for some time."""

    name: str
    severity: str
    expr: str
    summary: str
    description: str
    runbook: str


_GROUPS = {group["name"]: group["rules"] for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]}
RECORDINGS: dict[str, str] = {rule["record"]: rule["expr"] for rule in _GROUPS["jbod-recordings"]}
"""The queries of the recording rules by name."""
ALERTS = [
    Alert(rule["alert"], rule["labels"]["severity"], rule["expr"], **rule["annotations"])
    for rule in _GROUPS["jbod-alerts"]
]


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana's JSON model."""
    model: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return model
