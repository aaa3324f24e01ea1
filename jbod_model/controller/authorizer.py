"""Who may send the requests of brokers: permissions on the cluster, by principal (R-AUTH-2).

Source: Kafka's ``StandardAuthorizer``, ``AclOperation``, ``AclPermissionType``, for the cluster resource only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from jbod_model.formats.records import AccessControlEntryRecord

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
