"""What a controller knows besides the metadata, who may send it which request, and what it returns (R-CTL-5, R-AUTH-2).

Source: Kafka's ``StandardAuthorizer``, ``AclOperation``, ``AclPermissionType``, for the cluster resource only.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from jbod_model.controller.memory import BrokerControlState, ControllerMemory
from jbod_model.controller.placement import UsableBroker
from jbod_model.formats.records import AccessControlEntryRecord, VersionedRecord
from jbod_model.formats.responses import Response
from jbod_model.ids import Uuid
from jbod_model.profiles.releases import Release

CLUSTER_RESOURCE, CLUSTER_NAME = 4, "kafka-cluster"
ANY_NAME = "*"
LITERAL, PREFIXED = 3, 4
ALL, CLUSTER_ACTION = 2, 9
DENY, ALLOW = 2, 3
ANYBODY = "User:*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorizer:
    """Access control entries, and the superusers. Hosts are ignored."""

    entries: tuple[AccessControlEntryRecord, ...] = ()
    super_users: frozenset[str] = frozenset()
    allow_if_no_entry: bool = False
    """``allow.everyone.if.no.acl.found``."""

    def may_act_as_broker(self, principal: str) -> bool:
        """Whether the principal has CLUSTER_ACTION on the cluster. A denial overrides every permission."""
        if principal in self.super_users:
            return True
        on_cluster = [entry for entry in self.entries if _is_of_cluster(entry)]
        if not on_cluster:
            return self.allow_if_no_entry
        said = {
            entry.permission_type
            for entry in on_cluster
            if entry.principal in (principal, ANYBODY) and entry.operation in (ALL, CLUSTER_ACTION)
        }
        return ALLOW in said and DENY not in said


def authorizer_of(entries: Iterable[AccessControlEntryRecord], *super_users: str) -> Authorizer:
    """The authorizer from the access control entries of a log."""
    return Authorizer(entries=tuple(entries), super_users=frozenset(super_users))


def _is_of_cluster(entry: AccessControlEntryRecord) -> bool:
    if entry.resource_type != CLUSTER_RESOURCE:
        return False
    if entry.pattern_type == PREFIXED:
        return CLUSTER_NAME.startswith(entry.resource_name)
    return entry.resource_name in (CLUSTER_NAME, ANY_NAME)


NEVER = sys.maxsize
"""The lowest offset of no active broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The context of one request. Offsets are log offsets. A value that is None is derived from the metadata."""

    next_offset: int = 0
    """The offset of the next record: the epoch of a broker that registers again."""
    authorized: bool = True
    """Whether the sender has CLUSTER_ACTION on the cluster, if there is no ``authorizer``."""
    principal: str = ""
    """The sender's principal, such as ``User:broker-1``."""
    authorizer: Authorizer | None = None
    """Who may act as a broker (R-AUTH-2)."""
    cluster_id: str | None = None
    """The cluster's id; None accepts any."""
    has_valid_session: bool = False
    """Whether the registered process of the broker sent a heartbeat within the session timeout."""
    clean_shutdown_detection: bool = True
    """Whether the registration's previous epoch shows a clean shutdown (request version 3 and above)."""
    register_broker_record_offset: int = -1
    """The offset of the broker's RegisterBrokerRecord."""
    registered_log_dirs: frozenset[Uuid] | None = None
    """The directories that the broker's process registered with; None refuses no report (R-FAIL-2, R-FAIL-4)."""
    state: BrokerControlState | None = None
    """The broker's state after the last heartbeat."""
    controlled_shutdown_offset: int = -1
    """The last offset of the records that moved the broker's leaderships away."""
    lowest_active_offset: int = NEVER
    """The lowest offset that an active broker reported."""
    usable_brokers: tuple[UsableBroker, ...] | None = None
    """The brokers that can receive replicas, after the last heartbeats; None reads the registrations (R-PLACE-3)."""
    new_topic_ids: tuple[Uuid, ...] = ()
    """The ids of created topics, in order."""
    random_state: int = 0
    """The state of the placer's `java.JavaRandom`."""
    static_configs: Mapping[str, str] = field(default_factory=dict)
    """The controller's own configuration file: ``min.insync.replicas``, ``unclean.leader.election.enable``."""
    controller_id: int = -1
    """The node id, for configuration set on this controller alone."""
    kraft_version: int = 0
    """The finalized kraft.version, which is not in a metadata record."""
    default_num_partitions: int = 1
    default_replication_factor: int = 3
    supported_features: Mapping[str, tuple[int, int]] | None = None
    """(lowest, highest) level of each feature that this controller supports; None takes those of its release."""
    release: Release | None = None
    """The release of the active controller; None derives it from the metadata (R-RELEASE-3)."""
    memory: ControllerMemory | None = None
    """What a running Kafka remembers besides the metadata; None reads the metadata alone (R-MEM-1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a request; the caller applies the records in order."""

    records: tuple[VersionedRecord, ...] = ()
    response: Response = field(default_factory=Response)
    random_state: int | None = None
    """The placer's state afterwards, if it was used."""
