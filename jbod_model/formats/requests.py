"""The requests to a controller, with the fields of Kafka's schemas (R-CTL-4).

Attributes are the schema's field names in snake_case, lists are tuples, ids are `Uuid`, a null is None. The requests
without a schema are the controller's own periodic work (`SessionExpired`, `BalanceLeaders`, `ElectUncleanLeaders`).
"""

from __future__ import annotations

from dataclasses import dataclass

from jbod_model.formats.records import BrokerEndpoint, BrokerFeature
from jbod_model.ids import ZERO, Uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistrationRequest:
    """A broker process registers with its directories (api key 62)."""

    broker_id: int
    cluster_id: str = ""
    incarnation_id: Uuid = ZERO
    listeners: tuple[BrokerEndpoint, ...] = ()
    features: tuple[BrokerFeature, ...] = ()
    rack: str | None = None
    is_migrating_zk_broker: bool = False
    log_dirs: tuple[Uuid, ...] = ()
    previous_broker_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeatRequest:
    """A broker's heartbeat: the state it wants, and its failed and cordoned directories (api key 63)."""

    broker_id: int
    broker_epoch: int = -1
    current_metadata_offset: int = -1
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: tuple[Uuid, ...] = ()
    cordoned_log_dirs: tuple[Uuid, ...] | None = None
    """All cordoned directories (version 2); None before the broker has recovered its logs, and from older brokers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionExpired:
    """The session of a broker expired: the controller received no heartbeat within the timeout."""

    broker_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBrokerRequest:
    """An operator unregisters a broker (api key 64)."""

    broker_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterControllerRequest:
    """An operator unregisters a controller (api key 94)."""

    controller_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaAssignment:
    """The brokers of one new partition, the preferred leader first."""

    partition_index: int = 0
    broker_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """A configuration value of a new topic."""

    name: str
    value: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableTopic:
    """A topic to create. The controller places it, or ``assignments`` does, with both numbers -1."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: tuple[ReplicaAssignment, ...] = ()
    configs: tuple[TopicConfig, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsRequest:
    """Topics to create (api key 19)."""

    topics: tuple[CreatableTopic, ...] = ()
    timeout_ms: int = 60_000
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsAssignment:
    """The brokers of one added partition."""

    broker_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsTopic:
    """A topic that should have ``count`` partitions."""

    name: str
    count: int = 0
    assignments: tuple[CreatePartitionsAssignment, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsRequest:
    """Topics that should have more partitions (api key 37)."""

    topics: tuple[CreatePartitionsTopic, ...] = ()
    timeout_ms: int = 60_000
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicsRequest:
    """Topics to delete (api key 20)."""

    topic_ids: tuple[Uuid, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    """A member that a leader wants in its in-sync set. Epoch -1 is not checked."""

    broker_id: int = 0
    broker_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionPartition:
    """The new in-sync set of one partition, and the epochs that the leader knows."""

    partition_index: int = 0
    leader_epoch: int = 0
    new_isr_with_epochs: tuple[BrokerState, ...] = ()
    leader_recovery_state: int = 0
    partition_epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionTopic:
    """The partitions of one topic."""

    topic_id: Uuid = ZERO
    partitions: tuple[AlterPartitionPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionRequest:
    """A leader changes in-sync sets (api key 56)."""

    broker_id: int
    broker_epoch: int = -1
    topics: tuple[AlterPartitionTopic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignablePartition:
    """The brokers that a partition should have; None cancels the reassignment in progress."""

    partition_index: int = 0
    replicas: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignableTopic:
    """The partitions of one topic."""

    name: str
    partitions: tuple[ReassignablePartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionReassignmentsRequest:
    """Partitions to move between brokers (api key 45)."""

    topics: tuple[ReassignableTopic, ...] = ()
    timeout_ms: int = 60_000
    allow_replication_factor_change: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartitions:
    """Partitions of one topic by name."""

    topic: str
    partitions: tuple[int, ...] = ()


PREFERRED_ELECTION = 0
UNCLEAN_ELECTION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectLeadersRequest:
    """Leaders to elect, preferred or unclean; None means every partition (api key 43)."""

    election_type: int = PREFERRED_ELECTION
    topic_partitions: tuple[TopicPartitions, ...] | None = None
    timeout_ms: int = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedPartition:
    """A partition that lies in the directory."""

    partition_index: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedTopic:
    """The partitions of one topic that lie in the directory."""

    topic_id: Uuid = ZERO
    partitions: tuple[AssignedPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedDirectory:
    """A directory and the replicas in it."""

    id: Uuid = ZERO
    topics: tuple[AssignedTopic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignReplicasToDirsRequest:
    """A broker reports the directories of its replicas (api key 73)."""

    broker_id: int
    broker_epoch: int = -1
    directories: tuple[AssignedDirectory, ...] = ()


CONFIG_SET = 0
CONFIG_DELETE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterableConfig:
    """One value to set (``config_operation`` 0) or delete (1)."""

    name: str
    config_operation: int = CONFIG_SET
    value: str | None = None


TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigsResource:
    """A topic (type 2) or broker (type 4; the empty name is the default of all brokers) and its changes."""

    resource_type: int
    resource_name: str
    configs: tuple[AlterableConfig, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalAlterConfigsRequest:
    """Configuration values to change (api key 44)."""

    resources: tuple[AlterConfigsResource, ...] = ()
    validate_only: bool = False


UPGRADE = 1
SAFE_DOWNGRADE = 2
UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureUpdate:
    """A feature and the level it should have."""

    feature: str
    max_version_level: int = 0
    upgrade_type: int = UPGRADE


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateFeaturesRequest:
    """Feature levels to change (api key 57)."""

    feature_updates: tuple[FeatureUpdate, ...] = ()
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceLeaders:
    """The controller's periodic work: elect preferred replicas that can lead."""

    max_elections: int = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectUncleanLeaders:
    """The controller's periodic work: unclean elections for leaderless partitions of topics that allow them."""

    max_elections: int = 1_000


Request = (
    BrokerRegistrationRequest
    | BrokerHeartbeatRequest
    | SessionExpired
    | UnregisterBrokerRequest
    | UnregisterControllerRequest
    | CreateTopicsRequest
    | CreatePartitionsRequest
    | DeleteTopicsRequest
    | AlterPartitionRequest
    | AlterPartitionReassignmentsRequest
    | ElectLeadersRequest
    | AssignReplicasToDirsRequest
    | IncrementalAlterConfigsRequest
    | UpdateFeaturesRequest
    | BalanceLeaders
    | ElectUncleanLeaders
)
"""Every request that a controller handles."""
