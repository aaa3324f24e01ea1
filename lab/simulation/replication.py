"""Replication between brokers: followers and future replicas fall behind and catch up (R-SIM-5).

Source: Kafka's ``Partition`` (in-sync sets), ``ReplicaAlterLogDirsThread``; the model has no bytes, only which replicas
are served.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from jbod_model.broker import process
from jbod_model.broker.assignments import Replica
from jbod_model.formats.requests import AlterPartitionPartition, AlterPartitionRequest, AlterPartitionTopic, BrokerState
from jbod_model.ids import Uuid
from jbod_model.replay.image import Image, Partition
from lab.simulation.host import Host
from lab.simulation.scheduler import Scheduler

REPLICA_LAG_TIME_MS = 30_000
CHECK_INTERVAL_MS = 500
# About how long a follower that was away needs to be in sync again.
CATCH_UP_MS = 1_500
# The first copy of a replica to another disk takes as long. After it the copying thread never pauses: it is faster than
# the delay before assignments are sent, otherwise a move would restart forever (R-MOVE-7).
COPY_INTERVAL_MS = 20


class Cluster(Protocol):
    """The interface of the simulated cluster that replication uses."""

    @property
    def now(self) -> int:
        """Milliseconds since the start."""

    @property
    def scheduler(self) -> Scheduler:
        """What happens later."""

    @property
    def hosts(self) -> Mapping[int, Host]:
        """The brokers' machines by broker id."""

    def after_event(self, host: Host) -> None:
        """Save the state of a process, and schedule its next action."""

    def alter_partition(self, host: Host, request: AlterPartitionRequest, done: Callable[[], None]) -> None:
        """Deliver a leader's change of in-sync sets to the controller; ``done`` is called after the answer."""


@dataclass(slots=True)
class Replication:
    """Tracks every replica of every partition: since when it is served, or not."""

    world: Cluster
    since: dict[tuple[int, Replica], tuple[bool, int]] = field(default_factory=dict)
    pending_changes: set[Replica] = field(default_factory=set)
    copying: dict[tuple[int, int, Replica, Uuid], int] = field(default_factory=dict)

    def begin(self) -> None:
        """Check everything periodically."""
        self.world.scheduler.every(CHECK_INTERVAL_MS, self._check)
        self.world.scheduler.every(COPY_INTERVAL_MS, self._copy)

    def _check(self) -> None:
        for host in self.world.hosts.values():
            if host.broker is not None and not host.paused:
                self._lead(host, host.applied)

    def _copy(self) -> None:
        """Future replicas catch up, one step of each move at a time."""
        for host in self.world.hosts.values():
            if host.broker is None or host.paused or not host.broker.replicas.moves:
                continue
            for replica, where in list(host.broker.replicas.disks.future.items()):
                began = self.copying.setdefault((host.node_id, host.generation, replica, where), self.world.now)
                if replica in host.broker.replicas.moves and self.world.now - began >= CATCH_UP_MS:
                    host.broker = process.catch_up(host.broker, replica, self.world.now)
            self.world.after_event(host)

    def _lead(self, host: Host, image: Image) -> None:
        """Act as the leaders: add followers that are served to the in-sync sets, and remove those that have long not
        been."""
        for topic_id, topic in image.topics.items():
            for number, partition in topic.partitions.items():
                replica = Replica(topic_id, number)
                if partition.leader != host.node_id or not host.serves(replica) or replica in self.pending_changes:
                    continue
                wanted = self._in_sync(replica, partition, image)
                if set(wanted) != set(partition.isr):
                    self._alter(host, replica, partition, wanted, image)

    def _in_sync(self, replica: Replica, partition: Partition, image: Image) -> tuple[int, ...]:
        members = [broker_id for broker_id in partition.isr if self._stays(broker_id, replica, partition)]
        for broker_id in partition.replicas:
            registration = image.brokers.get(broker_id)
            active = registration is not None and not registration.fenced and not registration.in_controlled_shutdown
            serves, since = self._state(broker_id, replica)
            if broker_id not in members and active and serves and self.world.now - since >= CATCH_UP_MS:
                members.append(broker_id)
        return tuple(members)

    def _stays(self, broker_id: int, replica: Replica, partition: Partition) -> bool:
        serves, since = self._state(broker_id, replica)
        return serves or broker_id == partition.leader or self.world.now - since < REPLICA_LAG_TIME_MS

    def _state(self, broker_id: int, replica: Replica) -> tuple[bool, int]:
        """Whether the broker serves the replica, and the time since which this holds."""
        host = self.world.hosts.get(broker_id)
        serves = host is not None and host.serves(replica)
        known = self.since.get((broker_id, replica))
        if known is None or known[0] != serves:
            known = (serves, self.world.now)
            self.since[broker_id, replica] = known
        return known

    def _alter(self, host: Host, replica: Replica, partition: Partition, wanted: tuple[int, ...], image: Image) -> None:
        change = AlterPartitionPartition(
            partition_index=replica.partition,
            leader_epoch=partition.leader_epoch,
            new_isr_with_epochs=tuple(
                BrokerState(broker_id=broker_id, broker_epoch=image.brokers[broker_id].epoch) for broker_id in wanted
            ),
            leader_recovery_state=0,
            partition_epoch=partition.partition_epoch,
        )
        request = AlterPartitionRequest(
            broker_id=host.node_id,
            broker_epoch=image.brokers[host.node_id].epoch,
            topics=(AlterPartitionTopic(topic_id=replica.topic_id, partitions=(change,)),),
        )
        self.pending_changes.add(replica)
        self.world.alter_partition(host, request, lambda: self.pending_changes.discard(replica))
