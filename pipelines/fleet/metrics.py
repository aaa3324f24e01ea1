"""The metrics of all clusters in one scrape: those of each lake, with the label ``cluster``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from jbod_model.errors import JbodError
from pipelines.fleet.answers import Patience
from pipelines.fleet.clusters import FleetCluster
from pipelines.metrics import declared
from pipelines.metrics.measure import gauge
from pipelines.metrics.serve import Measured

PATIENCE = 20.0
"""Seconds after which a lake that has not answered counts as unreadable. Prometheus waits ten for a scrape."""


class FleetMeasured(Collector):
    """The metrics of a fleet. Each lake is measured again when it has advanced (pipelines.metrics.serve)."""

    def __init__(
        self, clusters: Iterable[FleetCluster], tell: Callable[[str], None], patience: float = PATIENCE
    ) -> None:
        """``clusters``: iterated at each scrape. ``tell`` gets a line when a lake or a log cannot be read, and when it
        can be read again."""
        self._clusters = clusters
        self._tell = tell
        self._patience = Patience(patience)
        self._known: dict[str, tuple[FleetCluster, Measured]] = {}

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """The metrics as of now. Of a lake that cannot be read, only that it cannot."""
        families: dict[str, GaugeMetricFamily] = {}
        self._known = {cluster.name: (cluster, self._measured(cluster)) for cluster in self._clusters}
        for name, (_, measured) in [*self._known.items()]:
            for family in self._collect(measured):
                whole = families.setdefault(family.name, GaugeMetricFamily(family.name, family.documentation))
                for sample in family.samples:
                    whole.add_sample(sample.name, {"cluster": name, **sample.labels}, sample.value)
        return list(families.values())

    def _measured(self, cluster: FleetCluster) -> Measured:
        known, measured = self._known.get(cluster.name, (None, None))
        if known == cluster and measured is not None:
            return measured
        return Measured(
            cluster.lake,
            partial(_named, self._tell, cluster.name),
            None if "://" in cluster.log else cluster.log,
            cluster.settings.ask.min_insync_replicas,
            cluster.settings.check.losses_accepted_until,
        )

    def _collect(self, measured: Measured) -> Sequence[GaugeMetricFamily]:
        try:
            return self._patience.ask(measured.lake, lambda: list(measured.collect()))
        except JbodError:
            return [gauge(declared.LAKE_READABLE, 0)]


def _named(tell: Callable[[str], None], name: str, line: str) -> None:
    tell(f"{name}: {line}")
