"""New leaders and in-sync sets after brokers or directories appear or fail (docs/spec/controller.md).

Source: ``generateLeaderAndIsrUpdates`` and the ``handleBroker...`` methods of Kafka's ``ReplicationControlManager``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jbod_model.controller.cluster import Cluster, PartitionAt
from jbod_model.controller.partition_change import NO_LEADER, Wish
from jbod_model.formats.records import BrokerRegistrationChangeRecord, UnregisterBrokerRecord, VersionedRecord
from jbod_model.ids import Uuid
from jbod_model.profiles import Quirk
from jbod_model.replay.image import BrokerRegistration

FENCE = 1
UNFENCE = -1
ENTER_CONTROLLED_SHUTDOWN = 1

FENCING_VERSION = 0
SHUTDOWN_VERSION = 1
LOG_DIRS_VERSION = 2
CORDONED_VERSION = 3


def leader_and_isr_updates(
    cluster: Cluster,
    partitions: Iterable[PartitionAt],
    *,
    remove: int = NO_LEADER,
    add: int = NO_LEADER,
    unclean: int = NO_LEADER,
    failing: frozenset[Uuid] = frozenset(),
) -> Iterator[VersionedRecord]:
    """One record for each partition that needs one (R-LEADER-1).

    Broker ``remove`` leaves the in-sync set and cannot lead. Broker ``unclean`` does so too, and may have lost data.
    Broker ``add`` can lead although the state still has it fenced. The directories ``failing`` count as offline
    although the state still has them online.
    """

    def alive(broker_id: int) -> bool:
        return broker_id not in (remove, unclean) and (broker_id == add or cluster.active(broker_id))

    for at in partitions:
        partition = at.partition
        can_lead = cluster.acceptable(partition, alive, failing)
        wish = Wish(
            isr=tuple(replica for replica in partition.isr if replica not in (remove, unclean)),
            election=cluster.unclean_election(at.topic.name),
            unclean_shutdown=frozenset() if unclean == NO_LEADER else frozenset({unclean}),
        )
        record = cluster.change(at, wish, can_lead)
        if record is not None:
            yield record


def broker_fenced(cluster: Cluster, registration: BrokerRegistration) -> list[VersionedRecord]:
    """Partitions first, then the registration (R-LEADER-2)."""
    broker_id = registration.broker_id
    records = list(leader_and_isr_updates(cluster, cluster.partitions_in_sync_on(broker_id), remove=broker_id))
    return [*records, fencing_change(registration, FENCE)]


def broker_unfenced(
    cluster: Cluster, registration: BrokerRegistration, failing: frozenset[Uuid]
) -> list[VersionedRecord]:
    """The registration first, then every partition without a leader (R-LEADER-3)."""
    seen = frozenset() if cluster.rules.has(Quirk.TWO_IN_ONE_HEARTBEAT) else failing
    updates = leader_and_isr_updates(
        cluster, cluster.partitions_without_leader(), add=registration.broker_id, failing=seen
    )
    return [fencing_change(registration, UNFENCE), *updates]


def broker_shutting_down(cluster: Cluster, registration: BrokerRegistration) -> list[VersionedRecord]:
    """The registration, unless it is in controlled shutdown already, then the partitions (R-LEADER-4)."""
    broker_id = registration.broker_id
    records: list[VersionedRecord] = []
    if not registration.in_controlled_shutdown:
        change = BrokerRegistrationChangeRecord(
            broker_id=broker_id, broker_epoch=registration.epoch, in_controlled_shutdown=ENTER_CONTROLLED_SHUTDOWN
        )
        records.append(VersionedRecord(change, SHUTDOWN_VERSION))
    records += leader_and_isr_updates(cluster, cluster.partitions_in_sync_on(broker_id), remove=broker_id)
    return records


def broker_unregistered(cluster: Cluster, registration: BrokerRegistration) -> list[VersionedRecord]:
    """In-sync partitions, eligible ones, then the registration (R-LEADER-5)."""
    broker_id = registration.broker_id
    record = UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=registration.epoch)
    return [
        *leader_and_isr_updates(cluster, cluster.partitions_in_sync_on(broker_id), remove=broker_id),
        *leader_and_isr_updates(cluster, cluster.partitions_eligible_on(broker_id), remove=broker_id),
        VersionedRecord(record, 0),
    ]


def broker_restarted(cluster: Cluster, broker_id: int, *, clean: bool) -> list[VersionedRecord]:
    """The records of a broker's partitions when a new process of it registers (R-LEADER-6).

    If eligible leader replicas are on, an unclean shutdown removes the broker from both sets.
    """
    in_sync = cluster.partitions_in_sync_on(broker_id)
    if clean or not cluster.elr_enabled:
        return list(leader_and_isr_updates(cluster, in_sync, remove=broker_id))
    return [
        *leader_and_isr_updates(cluster, in_sync, unclean=broker_id),
        *leader_and_isr_updates(cluster, cluster.partitions_eligible_on(broker_id), unclean=broker_id),
    ]


def directories_failed(
    cluster: Cluster, registration: BrokerRegistration, reported: Iterable[Uuid]
) -> list[VersionedRecord]:
    """The partitions of each newly failed directory, then the directories that are still online (R-FAIL-1).

    Directories that are not registered are ignored (R-FAIL-2), as is a repeated report (R-FAIL-3).
    """
    failed = set(reported)
    broker_id = registration.broker_id
    newly = [directory for directory in registration.directories if directory in failed]
    if not newly:
        return []
    updates: list[VersionedRecord] = []
    for directory in newly:
        updates += leader_and_isr_updates(cluster, cluster.partitions_in(directory), remove=broker_id)
    left = tuple(directory for directory in registration.directories if directory not in failed)
    record = BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=registration.epoch, log_dirs=left)
    change = VersionedRecord(record, LOG_DIRS_VERSION)
    return [change, *updates] if cluster.rules.registration_change == "first" else [*updates, change]


def directories_cordoned(registration: BrokerRegistration, reported: tuple[Uuid, ...]) -> list[VersionedRecord]:
    """The reported cordons, if the set has changed; they are not validated (R-CORDON-2, R-CORDON-3)."""
    present = registration.cordoned_directories
    if present is not None and set(present) == set(reported):
        return []
    record = BrokerRegistrationChangeRecord(
        broker_id=registration.broker_id, broker_epoch=registration.epoch, cordoned_log_dirs=reported
    )
    return [VersionedRecord(record, CORDONED_VERSION)]


def fencing_change(registration: BrokerRegistration, fenced: int) -> VersionedRecord:
    """The record that fences or unfences a broker (R-LEADER-2, R-LEADER-3)."""
    record = BrokerRegistrationChangeRecord(
        broker_id=registration.broker_id, broker_epoch=registration.epoch, fenced=fenced
    )
    return VersionedRecord(record, FENCING_VERSION)
