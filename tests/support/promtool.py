"""Tests rules with Prometheus' own promtool on the series of a lake at several offsets."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Collection, Sequence
from datetime import timedelta
from pathlib import Path
from shutil import copy
from typing import Any

import pytest
import yaml

from pipelines.cli.upkeep import RULES
from pipelines.lake.reader import Lake
from pipelines.metrics import declared
from pipelines.metrics.measure import measure
from tests.support.monitoring import ALERTS

STEP, HELD = 2, 10
"""Minutes between two samples, and samples for each state: together longer than any rule waits."""
Series = dict[str, float]
"""Every sample at one time."""
State = tuple[Series, Collection[str]]
"""The measured samples, and the alerts that must fire after they have lasted: ``Name`` or ``Name broker=1``."""
_CLOCKS = {declared.MEASURED.name, declared.LAST_RECORD.name, declared.LAKE_PUBLISHED.name}
"""Metrics whose value advances with time, so that the lake stays as fresh as when it was measured."""
_SEVERITIES = {alert.name: alert.severity for alert in ALERTS}


def program(name: str) -> str:
    """The path of a program of Debian's package prometheus."""
    path = shutil.which(name)
    if path is None:
        pytest.fail(f"no {name} on the path to test rules with: apt-get install prometheus")
    return path


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A run of promtool."""
    return subprocess.run([program("promtool"), *map(str, arguments)], capture_output=True, text=True)


def series(lake: Lake, **measured: Any) -> Series:
    """Every sample of the lake's metrics, as measured one second after its newest record."""
    now = lake.published.end_time + timedelta(seconds=1)
    samples = {}
    for family in measure(lake, now, **measured):
        for sample in family.samples:
            labels = ", ".join(f"{label}={json.dumps(value)}" for label, value in sorted(sample.labels.items()))
            clock = now.timestamp() if sample.name in _CLOCKS else 0
            samples[f"{sample.name}{{{labels}}}"] = float(sample.value) - clock
    return samples


def alerts_fire(states: Sequence[State], folder: Path) -> str:
    """The errors of promtool if the states follow each other; empty if exactly the wanted alerts fire."""
    names = sorted({name for state, _ in states for name in state})
    lines = [{"series": name, "values": _values(name, [state for state, _ in states])} for name in names]
    tests = [
        {
            "expr": "ALERTS{alertstate='firing'}",
            "eval_time": f"{((number + 1) * HELD - 1) * STEP}m",
            "exp_samples": [{"labels": _labels(alert), "value": 1} for alert in wanted],
        }
        for number, (_, wanted) in enumerate(states)
    ]
    content = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": f"{STEP}m",
        "tests": [{"interval": f"{STEP}m", "input_series": lines, "promql_expr_test": tests}],
    }
    copy(RULES, folder / "rules.yml")
    (folder / "test.yml").write_text(yaml.safe_dump(content, width=1 << 20))
    ran = promtool("test", "rules", folder / "test.yml")
    return "" if ran.returncode == 0 else ran.stdout + ran.stderr


def _values(name: str, states: Sequence[Series]) -> str:
    """promtool's notation: ``_x10`` is ten steps without a sample, ``1x9`` a sample and nine more.

    Values of clocks are relative to the time of the test.
    """
    is_clock = re.split("{", name)[0] in _CLOCKS
    parts = []
    for number, state in enumerate(states):
        value = state.get(name)
        if value is None:
            parts.append(f"_x{HELD}")
        elif is_clock:
            parts.append(f"{value + number * HELD * STEP * 60}+{STEP * 60}x{HELD - 1}")
        else:
            parts.append(f"{value}x{HELD - 1}")
    return " ".join(parts)


def _labels(alert: str) -> str:
    name, *others = alert.split()
    labels = [("alertname", name), ("alertstate", "firing"), ("severity", _SEVERITIES[name])]
    labels += [tuple(other.split("=", 1)) for other in others]  # type: ignore[misc]
    return f"ALERTS{{{', '.join(f'{key}={json.dumps(value)}' for key, value in labels)}}}"
