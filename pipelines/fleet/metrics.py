"""The metrics of all clusters in one scrape: those of each lake, with the label ``cluster``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from pipelines.fleet.clusters import Cluster
from pipelines.metrics.serve import Measured


class FleetMeasured(Collector):
    """The metrics of a fleet. Each lake is measured again when it has advanced (pipelines.metrics.serve)."""

    def __init__(self, clusters: Sequence[Cluster], tell: Callable[[str], None]) -> None:
        """``tell`` gets a line when a lake or a log cannot be read, and when it can be read again."""
        self._measured = {
            one.name: Measured(
                one.lake,
                partial(_named, tell, one.name),
                None if "://" in one.log else one.log,
                one.settings.ask.min_insync_replicas,
                one.settings.check.losses_accepted_until,
            )
            for one in clusters
        }

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """The metrics as of now. Of a lake that cannot be read, only that it cannot."""
        found: dict[str, GaugeMetricFamily] = {}
        for name, measured in self._measured.items():
            for family in measured.collect():
                whole = found.setdefault(family.name, GaugeMetricFamily(family.name, family.documentation))
                for sample in family.samples:
                    whole.add_sample(sample.name, {"cluster": name, **sample.labels}, sample.value)
        return list(found.values())

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Nothing: the registry would measure once to learn the names."""
        return []


def _named(tell: Callable[[str], None], name: str, line: str) -> None:
    tell(f"{name}: {line}")
