"""Metrics as Prometheus text, printed or written to a file for node_exporter's textfile collector."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest, write_to_textfile
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from jbod_model.errors import UsageError


class _Measured(Collector):
    """Families that were measured once."""

    def __init__(self, families: Sequence[GaugeMetricFamily]) -> None:
        self._families = families

    def collect(self) -> Iterable[GaugeMetricFamily]:
        return self._families


def as_text(families: Iterable[GaugeMetricFamily]) -> str:
    """The exposition format, version 0.0.4."""
    return generate_latest(_registry(families)).decode()


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
    """Writes the same to a file in one step: a reader sees the old or the new content. Creates its folder."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_to_textfile(str(out), _registry(families))
    except OSError as problem:
        raise UsageError(f"--out {out}: cannot be written: {problem.strerror}") from None


def _registry(families: Iterable[GaugeMetricFamily]) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(_Measured(list(families)))
    return registry
