"""Which replicas are offline, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from jbod_model.ids import IdTable, Uuid
from jbod_model.profiles import KAFKA, Profile
from jbod_model.replay.image import Image
from jbod_model.replay.registrations import BrokerRegistration, Partition

Reason = Literal["broker missing", "broker fenced", "directory offline", "directory lost"]
Rule = Callable[[Uuid, BrokerRegistration, IdTable], bool]


def _offline_in_kafka(directory: Uuid, broker: BrokerRegistration, ids: IdTable) -> bool:
    """Source: ``server.common.DirectoryId.isOnline``."""
    if directory in (ids.unassigned, ids.migrating):  # R-OFF-4
        return False
    if directory == ids.lost:  # R-OFF-5
        return True
    if not broker.directories:  # R-OFF-6
        return False
    return directory not in broker.directories  # R-OFF-7


def _offline_in_kip858(directory: Uuid, broker: BrokerRegistration, ids: IdTable) -> bool:
    """R-OFF-8, the KIP read literally: an unassigned replica of a broker with two directories is offline."""
    return directory not in broker.directories and (directory == ids.lost or len(broker.directories) > 1)


def _offline_in_draft(directory: Uuid, broker: BrokerRegistration, ids: IdTable) -> bool:
    """R-OFF-9: as in the KIP, and also if the broker has the flag for offline directories."""
    return directory not in broker.directories and (
        directory == ids.lost or len(broker.directories) > 1 or broker.has_offline_directories
    )


RULES: Mapping[str, Rule] = {
    "kafka": _offline_in_kafka,
    "kip858": _offline_in_kip858,
    "draft": _offline_in_draft,
}


def has_online_dir(broker: BrokerRegistration, directory: Uuid, ids: IdTable, profile: Profile = KAFKA) -> bool:
    """Whether a replica in the directory is online while its broker is."""
    return not RULES[profile.offline_rule](directory, broker, ids)


def offline_reason(image: Image, broker_id: int, directory: Uuid, *, profile: Profile = KAFKA) -> Reason | None:
    """Why a replica of the broker in the directory is offline; None if it is online."""
    broker = image.brokers.get(broker_id)
    if broker is None:  # R-OFF-2
        return "broker missing"
    if broker.fenced:  # R-OFF-3
        return "broker fenced"
    if has_online_dir(broker, directory, image.ids, profile):
        return None
    return "directory lost" if directory == image.ids.lost else "directory offline"


def offline_replicas(image: Image, partition: Partition, *, profile: Profile = KAFKA) -> dict[int, Reason]:
    """Broker id -> reason of the offline replicas, in the order of the replicas (R-OFF-1).

    Source: ``KRaftMetadataCache.getOfflineReplicas``, for a client that asks without naming a listener.
    """
    reasons = {
        broker_id: offline_reason(image, broker_id, directory, profile=profile)
        for broker_id, directory in zip(partition.replicas, partition.directories, strict=True)
    }
    return {broker_id: reason for broker_id, reason in reasons.items() if reason is not None}
