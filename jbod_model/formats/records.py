"""Every record type of the metadata log up to Kafka 4.4.0, with Kafka's names and defaults (R-REC-2).

Attributes are the schema's field names in snake_case and in the schema's order; lists are tuples, a null is None.
Source: the JSON schemas in ``metadata/src/main/resources/common/metadata`` of Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass

from jbod_model.ids import ZERO, Uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class Struct:
    """A group of fields with a tagged section of its own."""

    unknown_tags: tuple[tuple[int, bytes], ...] = ()
    """Tagged fields of a later Kafka, kept unchanged: (tag, bytes), ascending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(Struct):
    """The value of one record of the metadata log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownRecord(Record):
    """A record that this version of jbod cannot read, kept on request so that nothing is lost (R-REC-4)."""

    api_key: int
    body: bytes
    """All bytes after the frame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEndpoint(Struct):
    """A listener of a broker."""

    name: str = ""
    host: str = ""
    port: int = 0
    security_protocol: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFeature(Struct):
    """The levels of a feature that a broker supports."""

    name: str = ""
    min_supported_version: int = 0
    max_supported_version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerRecord(Record):
    """A broker registers: everything known about it is replaced (R-BROKER-1)."""

    broker_id: int = 0
    is_migrating_zk_broker: bool = False
    incarnation_id: Uuid = ZERO
    broker_epoch: int = 0
    end_points: tuple[BrokerEndpoint, ...] = ()
    features: tuple[BrokerFeature, ...] = ()
    rack: str | None = ""
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[Uuid, ...] = ()
    cordoned_log_dirs: tuple[Uuid, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBrokerRecord(Record):
    """A broker is unregistered (R-BROKER-2)."""

    broker_id: int = 0
    broker_epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord(Record):
    """A topic is created; its partitions follow (R-TOPIC-1)."""

    name: str = ""
    topic_id: Uuid = ZERO


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecord(Record):
    """The whole state of one partition (R-PART-1)."""

    partition_id: int = -1
    topic_id: Uuid = ZERO
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    leader: int = -1
    leader_recovery_state: int = 0
    leader_epoch: int = -1
    partition_epoch: int = -1
    directories: tuple[Uuid, ...] = ()
    eligible_leader_replicas: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRecord(Record):
    """One configuration value of a resource; ``value`` None deletes it (R-CONFIG-1)."""

    resource_type: int = 0
    resource_name: str = ""
    name: str = ""
    value: str | None = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChangeRecord(Record):
    """A change of one partition; a field with its default does not change (docs/spec/replay.md)."""

    partition_id: int = -1
    topic_id: Uuid = ZERO
    isr: tuple[int, ...] | None = None
    leader: int = -2
    replicas: tuple[int, ...] | None = None
    removing_replicas: tuple[int, ...] | None = None
    adding_replicas: tuple[int, ...] | None = None
    leader_recovery_state: int = -1
    directories: tuple[Uuid, ...] | None = None
    eligible_leader_replicas: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceBrokerRecord(Record):
    """A broker is fenced; written before metadata.version 3.3-IV2 (R-BROKER-3)."""

    id: int = 0
    epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfenceBrokerRecord(Record):
    """A broker is unfenced; written before metadata.version 3.3-IV2 (R-BROKER-3)."""

    id: int = 0
    epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveTopicRecord(Record):
    """A topic and its partitions are deleted (R-TOPIC-2)."""

    topic_id: Uuid = ZERO


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationTokenRecord(Record):
    """A delegation token is issued or renewed."""

    owner: str = ""
    requester: str = ""
    renewers: tuple[str, ...] = ()
    issue_timestamp: int = 0
    max_timestamp: int = 0
    expiration_timestamp: int = 0
    token_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserScramCredentialRecord(Record):
    """A SCRAM credential of a user."""

    name: str = ""
    mechanism: int = 0
    salt: bytes = b""
    stored_key: bytes = b""
    server_key: bytes = b""
    iterations: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLevelRecord(Record):
    """The finalised level of a feature; 0 removes it (R-FEATURE-1)."""

    name: str = ""
    feature_level: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityData(Struct):
    """One part of the name of a quota entity; ``entity_name`` None is the default entity."""

    entity_type: str = ""
    entity_name: str | None = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientQuotaRecord(Record):
    """A quota of an entity, set or removed."""

    entity: tuple[EntityData, ...] = ()
    key: str = ""
    value: float = 0.0
    remove: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsRecord(Record):
    """A block of producer ids is allocated to a broker."""

    broker_id: int = 0
    broker_epoch: int = -1
    next_producer_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistrationChangeRecord(Record):
    """A change of a registration; a field with its default does not change (R-BROKER-4)."""

    broker_id: int = 0
    broker_epoch: int = 0
    fenced: int = 0
    in_controlled_shutdown: int = 0
    log_dirs: tuple[Uuid, ...] = ()
    cordoned_log_dirs: tuple[Uuid, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessControlEntryRecord(Record):
    """An ACL is added."""

    id: Uuid = ZERO
    resource_type: int = 0
    resource_name: str = ""
    pattern_type: int = 0
    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveAccessControlEntryRecord(Record):
    """An ACL is removed."""

    id: Uuid = ZERO


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOpRecord(Record):
    """A record without content: the controller was idle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZkMigrationStateRecord(Record):
    """The state of the migration from ZooKeeper."""

    zk_migration_state: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveUserScramCredentialRecord(Record):
    """A SCRAM credential is removed."""

    name: str = ""
    mechanism: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginTransactionRecord(Record):
    """A metadata transaction starts (R-TXN-1)."""

    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionRecord(Record):
    """The open metadata transaction ends, and its records take effect (R-TXN-2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortTransactionRecord(Record):
    """The open metadata transaction is aborted, and its records have no effect (R-TXN-3)."""

    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveDelegationTokenRecord(Record):
    """A delegation token is removed."""

    token_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerEndpoint(Struct):
    """A listener of a controller."""

    name: str = ""
    host: str = ""
    port: int = 0
    security_protocol: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerFeature(Struct):
    """The levels of a feature that a controller supports."""

    name: str = ""
    min_supported_version: int = 0
    max_supported_version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterControllerRecord(Record):
    """A controller registers (R-CONTROLLER-1)."""

    controller_id: int = 0
    incarnation_id: Uuid = ZERO
    zk_migration_ready: bool = False
    end_points: tuple[ControllerEndpoint, ...] = ()
    features: tuple[ControllerFeature, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearElrRecord(Record):
    """Empties the eligible leader replicas of a topic, or with an empty name of every topic (R-CLEAR-1)."""

    topic_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterControllerRecord(Record):
    """A controller is unregistered (R-CONTROLLER-2)."""

    controller_id: int = 0


@dataclass(frozen=True, slots=True)
class VersionedRecord:
    """A record with the version of its schema."""

    record: Record
    version: int
