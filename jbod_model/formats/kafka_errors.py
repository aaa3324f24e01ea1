"""Kafka's error codes in the answers of a controller (R-CTL-1)."""

from __future__ import annotations

import enum

from jbod_model.errors import JbodError


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
