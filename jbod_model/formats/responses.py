"""The answers of a controller (R-CTL-4), and Kafka's error codes in them (R-CTL-1). Every error code is a number."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from jbod_model.errors import JbodError
from jbod_model.ids import ZERO, Uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """Root of all answers; by itself it is an answer without fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistrationResponse(Response):
    """The epoch under which the broker is registered."""

    broker_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeatResponse(Response):
    """The state of the broker, as the controller has it."""

    is_caught_up: bool
    is_fenced: bool
    in_controlled_shutdown: bool
    should_shut_down: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableTopicResult:
    """A created topic, or the error."""

    name: str
    topic_id: Uuid = ZERO
    error_code: int = 0
    error_message: str | None = None
    num_partitions: int = -1
    replication_factor: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsResponse(Response):
    """One result for each topic, in the order of the request."""

    topics: tuple[CreatableTopicResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsTopicResult:
    """Whether partitions were added to a topic."""

    name: str
    error_code: int = 0
    error_message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsResponse(Response):
    """One result for each topic, in the order of the request."""

    results: tuple[CreatePartitionsTopicResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletableTopicResult:
    """Whether a topic was deleted."""

    topic_id: Uuid
    error_code: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicsResponse(Response):
    """One result for each topic, in the order of the request."""

    responses: tuple[DeletableTopicResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionPartitionResult:
    """The partition after the change. With an error the other fields have their defaults."""

    partition_index: int
    error_code: int = 0
    leader_id: int = 0
    leader_epoch: int = 0
    isr: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    partition_epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionTopicResult:
    """The partitions of one topic."""

    topic_id: Uuid
    partitions: tuple[AlterPartitionPartitionResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionResponse(Response):
    """One result for each partition, nested as in the request."""

    throttle_time_ms: int = 0
    error_code: int = 0
    topics: tuple[AlterPartitionTopicResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignablePartitionResponse:
    """Whether a reassignment began or was cancelled."""

    partition_index: int
    error_code: int = 0
    error_message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignableTopicResponse:
    """The partitions of one topic."""

    name: str
    partitions: tuple[ReassignablePartitionResponse, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionReassignmentsResponse(Response):
    """One result for each partition, nested as in the request."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    responses: tuple[ReassignableTopicResponse, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionPartitionResult:
    """Whether a leader was elected."""

    partition_id: int
    error_code: int = 0
    error_message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaElectionResult:
    """The partitions of one topic."""

    topic: str
    partition_result: tuple[ElectionPartitionResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectLeadersResponse(Response):
    """One result for each requested partition; if all were requested, only for those that needed an election."""

    replica_election_results: tuple[ReplicaElectionResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedPartitionResult:
    """Whether an assignment was accepted."""

    partition_index: int
    error_code: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedTopicResult:
    """The partitions of one topic."""

    topic_id: Uuid
    partitions: tuple[AssignedPartitionResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedDirectoryResult:
    """The topics of one directory."""

    id: Uuid
    topics: tuple[AssignedTopicResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignReplicasToDirsResponse(Response):
    """One result for each partition, nested and ordered as in the request."""

    throttle_time_ms: int = 0
    error_code: int = 0
    directories: tuple[AssignedDirectoryResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigsResult:
    """Whether the changes of one resource were accepted."""

    resource_type: int
    resource_name: str
    error_code: int = 0
    error_message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalAlterConfigsResponse(Response):
    """One result for each resource, in the order of the request."""

    responses: tuple[AlterConfigsResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MoreWork(Response):
    """Whether the periodic work stopped at its limit and should continue at once."""

    more: bool


class KafkaError(enum.IntEnum):
    """An error code of Kafka's protocol. Source: Kafka's ``common.protocol.Errors``."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_LEADER_OR_FOLLOWER = 6
    INVALID_TOPIC_EXCEPTION = 17
    CLUSTER_AUTHORIZATION_FAILED = 31
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    FENCED_LEADER_EPOCH = 74
    STALE_BROKER_EPOCH = 77
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    INVALID_UPDATE_VERSION = 95
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_CLUSTER_ID = 104
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    INVALID_REGISTRATION = 119
    CONTROLLER_ID_NOT_REGISTERED = 136


class RequestRefused(JbodError):
    """A request, or one entry of it, breaks a rule: nothing changes and ``code`` is the answer (R-CTL-2).

    Each broken rule is a subclass; ``code`` is its error code. Source: Kafka's ``ApiException``.
    """

    code: KafkaError = KafkaError.UNKNOWN_SERVER_ERROR

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"{self.code.name} ({self.code.value}): {problem}")

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return type(self), (self.problem,)


class NotAuthorized(RequestRefused):
    """A broker's request without CLUSTER_ACTION on the cluster (R-AUTH-1)."""

    code = KafkaError.CLUSTER_AUTHORIZATION_FAILED


class DirectoriesNotSupported(RequestRefused):
    """A directory assignment below metadata.version 3.7-IV2 (R-ASSIGN-1)."""

    code = KafkaError.UNSUPPORTED_VERSION


class ControllerUnregistrationNotSupported(RequestRefused):
    """An unregistration of a controller below metadata.version 4.4-IV2 (R-UNREG-3)."""

    code = KafkaError.UNSUPPORTED_VERSION


class ControllerNotRegistered(RequestRefused):
    """An unregistration of a controller that is not registered (R-UNREG-3)."""

    code = KafkaError.CONTROLLER_ID_NOT_REGISTERED


class FeatureNotSupported(RequestRefused):
    """A broker registers without support for a finalized feature level (R-REG-9)."""

    code = KafkaError.UNSUPPORTED_VERSION


class StaleBrokerEpoch(RequestRefused):
    """The broker is not registered, or not with this epoch (R-HB-1, R-ASSIGN-2)."""

    code = KafkaError.STALE_BROKER_EPOCH


class WrongCluster(RequestRefused):
    """A registration that names another cluster (R-REG-1)."""

    code = KafkaError.INCONSISTENT_CLUSTER_ID


class DuplicateRegistration(RequestRefused):
    """A second process registers while the first one's session is alive (R-REG-2)."""

    code = KafkaError.DUPLICATE_BROKER_REGISTRATION


class MigratingBrokerRefused(RequestRefused):
    """A broker in ZooKeeper mode registers (R-REG-3)."""

    code = KafkaError.BROKER_ID_NOT_REGISTERED


class InvalidRegistration(RequestRefused):
    """A registration whose directories or features are not acceptable: R-REG-4, R-REG-5, R-REG-6, R-REG-7, R-REG-8."""

    code = KafkaError.INVALID_REGISTRATION


class InvalidRegistrationRequest(RequestRefused):
    """A registration whose directories are not acceptable, with the error of KIP-858 (R-REG-4, R-REG-7)."""

    code = KafkaError.INVALID_REQUEST


class LogDirNotFound(RequestRefused):
    """A heartbeat that reports an unregistered directory, which KIP-858 refuses (R-FAIL-2)."""

    code = KafkaError.LOG_DIR_NOT_FOUND


class BrokerNotRegistered(RequestRefused):
    """An unregistration of a broker that is not registered (R-UNREG-1)."""

    code = KafkaError.BROKER_ID_NOT_REGISTERED


class UnknownTopicOrPartition(RequestRefused):
    """A topic name or partition index that does not exist."""

    code = KafkaError.UNKNOWN_TOPIC_OR_PARTITION


class InvalidRequest(RequestRefused):
    """A request whose fields contradict each other (R-CTL-3)."""

    code = KafkaError.INVALID_REQUEST


class InvalidTopicName(RequestRefused):
    """A topic name that Kafka does not allow, or that differs from another only in ``.`` and ``_`` (R-CREATE-2)."""

    code = KafkaError.INVALID_TOPIC_EXCEPTION


class TopicExists(RequestRefused):
    """A topic that exists already."""

    code = KafkaError.TOPIC_ALREADY_EXISTS


class InvalidPartitions(RequestRefused):
    """A number of partitions that is not positive, or not an increase (R-CREATE-3)."""

    code = KafkaError.INVALID_PARTITIONS


class InvalidReplicationFactor(RequestRefused):
    """A number of replicas that the brokers cannot host (R-PLACE-1)."""

    code = KafkaError.INVALID_REPLICATION_FACTOR


class InvalidReplicaAssignment(RequestRefused):
    """A manual assignment that no partition can have (R-CREATE-4)."""

    code = KafkaError.INVALID_REPLICA_ASSIGNMENT


class InvalidConfig(RequestRefused):
    """A configuration change that is not allowed (R-CFG-2)."""

    code = KafkaError.INVALID_CONFIG


class PolicyViolation(RequestRefused):
    """More partitions in one request than the controller takes (R-CREATE-5)."""

    code = KafkaError.POLICY_VIOLATION


class NoReassignmentInProgress(RequestRefused):
    """A cancel of a reassignment that is not in progress (R-REASSIGN-5)."""

    code = KafkaError.NO_REASSIGNMENT_IN_PROGRESS


class InvalidUpdateVersion(RequestRefused):
    """A feature level that cannot be set (R-FEAT-2)."""

    code = KafkaError.INVALID_UPDATE_VERSION


class ControllerFault(RequestRefused):
    """An inconsistency of the controller's own state, on which Kafka's active controller resigns (R-QUIRK-2,
    R-QUIRK-3)."""

    code = KafkaError.UNKNOWN_SERVER_ERROR
