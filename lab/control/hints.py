"""What a stream of requests tells about random decisions and private knowledge of its controller.

This is a first pass over the requests, before they are handled. The answers give topic ids. No answer says where the
replicas of a topic were placed, but brokers that later report a directory for a partition, or are in sync on it, are
its replicas. The first change of the in-sync set shows their order: leaders keep the set in the order of the replicas
and add a replica that returns at the end. A replica that returns in a later leader epoch than 0 probably led before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from jbod_model.formats.metadata_version import LEVELS, METADATA_VERSION
from jbod_model.formats.request_log import RequestLine
from jbod_model.formats.requests import AlterPartitionRequest, AssignReplicasToDirsRequest, BrokerRegistrationRequest
from jbod_model.formats.responses import AlterPartitionResponse, AssignReplicasToDirsResponse
from jbod_model.ids import Uuid

NEWEST = LEVELS["4.4-IV2"]
"""The newest level of metadata.version that a release of Kafka uses by default."""

Place = tuple[Uuid, int]


@dataclass(slots=True)
class Hints:
    """The known replicas of each partition, and the levels that every broker supports."""

    cluster_id: str = ""
    metadata_version: int = NEWEST
    """The highest level of metadata.version at which every registration is accepted."""
    supports: set[str] = field(default_factory=set)
    """Features that every broker lists."""
    _replicas: dict[Place, list[int]] = field(default_factory=dict)
    _order: dict[Place, tuple[int, ...]] = field(default_factory=dict)
    _registered: bool = False

    @classmethod
    def of(cls, lines: Iterable[RequestLine]) -> Hints:
        """The hints in ``lines``, which are in the order of completion. Their size is that of the cluster."""
        hints = cls()
        for line in lines:
            if line.error_code == 0:
                hints._learn(line)
        return hints

    def replicas(
        self, topic_id: Uuid, partition: int, count: int, others: Sequence[int]
    ) -> tuple[tuple[int, ...], int]:
        """``count`` replicas of a partition, and how many of them are known. The others are the first of ``others``."""
        place = (topic_id, partition)
        known = self._replicas.get(place, [])[:count]
        ordered = [broker_id for broker_id in self._order.get(place, ()) if broker_id in known]
        known = list(dict.fromkeys([*ordered, *known]))
        guessed = [broker_id for broker_id in others if broker_id not in known][: count - len(known)]
        return (*known, *guessed), len(known)

    def _learn(self, line: RequestLine) -> None:
        request, response = line.request, line.response
        if isinstance(request, BrokerRegistrationRequest):
            self._learn_registration(request)
        elif isinstance(response, AssignReplicasToDirsResponse) and isinstance(request, AssignReplicasToDirsRequest):
            for directory in response.directories:
                for topic in directory.topics:
                    for result in topic.partitions:
                        if result.error_code == 0:
                            self._add((topic.topic_id, result.partition_index), request.broker_id)
        elif isinstance(response, AlterPartitionResponse) and isinstance(request, AlterPartitionRequest):
            for changed in response.topics:
                for after in changed.partitions:
                    if after.error_code == 0:
                        place = (changed.topic_id, after.partition_index)
                        returned = after.isr[-1:] if after.leader_epoch > 0 else (after.leader_id,)
                        self._order.setdefault(place, (*returned, *after.isr))
                        for broker_id in after.isr:
                            self._add(place, broker_id)

    def _add(self, place: Place, broker_id: int) -> None:
        known = self._replicas.setdefault(place, [])
        if broker_id not in known:
            known.append(broker_id)

    def _learn_registration(self, request: BrokerRegistrationRequest) -> None:
        self.cluster_id = self.cluster_id or request.cluster_id
        names = {feature.name for feature in request.features}
        self.supports = self.supports & names if self._registered else names
        self._registered = True
        for feature in request.features:
            if feature.name == METADATA_VERSION:
                self.metadata_version = min(self.metadata_version, feature.max_supported_version)
