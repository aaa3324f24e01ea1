"""The answers of a controller, with the fields of Kafka's schemas; every error code is a number (R-CTL-4)."""

from __future__ import annotations

from dataclasses import dataclass

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
