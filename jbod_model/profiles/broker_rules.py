"""The differences between the sources about the broker: a row per difference, a column per profile (R-RULES-1).

Source: the KIP's current page (kip858), older drafts of it (draft), Kafka 4.1.2 (kafka).
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRules:
    """The broker's switches. The values of ``kafka`` are the defaults."""

    fence_until_assigned: bool = False
    """A broker with several directories asks to stay fenced until its queue of assignments is empty (R-LIFE-9)."""

    shut_down_only_if_leading: bool = False
    """An undelivered directory failure ends the broker only if it leads a partition there (R-LIFE-8)."""

    one_failure_check: bool = True
    """A later failure replaces the check of an earlier one; otherwise each failed directory has its own check until the
    failure is reported (R-LIFE-7)."""

    undelivered_assignments_count: bool = False
    """An undelivered assignment into a failed directory counts like an undelivered failure (R-LIFE-8)."""

    promote_future_at_start: bool = True
    """At start, a future replica in the assigned directory replaces the current one at once; otherwise it catches up
    first."""

    overlooks_added_replicas: bool = True
    """The directory of a replica that joins an existing partition is not compared, and so not reported (R-LOCAL-4)."""

    confirms_any_move: bool = True
    """A late confirmation counts for the replica's present move, to any directory; otherwise only for its own move."""

    withdraws_queued_moves: bool = False
    """A move that ends before its report is sent removes the report from the queue; otherwise the original directory is
    reported nevertheless (R-MOVE-10)."""

    reports_under_zookeeper: bool = False
    """A broker in ZooKeeper mode, before its migration, reports assignments (R-ZK-3)."""

    names_failed_directories: bool = True
    """An assignment into a directory that failed meanwhile names that directory; otherwise LOST (R-DRAFT-3)."""

    reports_single_directory: bool = True
    """A broker with one directory reports unassigned replicas; otherwise it only corrects assignments (R-DRAFT-4)."""

    source_failure_assigns_lost: bool = False
    """When the source disk of a move fails, the broker reports LOST, not the original directory (R-MOVE-4)."""

    format_adds_missing_ids: bool = False
    """Formatting completes directories that have no id; otherwise the broker does at start (R-STORE-16)."""

    queue_metric: str = "org.apache.kafka.server:type=AssignmentsManager,name=QueuedReplicaToDirAssignments"
    """The name of the gauge of assignments that wait or are in flight (R-QUEUE-8)."""


KAFKA_BROKER = BrokerRules()

KIP858_BROKER = BrokerRules(
    fence_until_assigned=True,
    shut_down_only_if_leading=True,
    one_failure_check=False,
    undelivered_assignments_count=True,
    promote_future_at_start=False,
    overlooks_added_replicas=False,
    confirms_any_move=False,
    withdraws_queued_moves=True,
    reports_under_zookeeper=True,
    format_adds_missing_ids=True,
    queue_metric="kafka.server:type=KafkaServer,name=QueuedReplicaToDirAssignments",
)

# The revision before the current page assigned LOST when the source of a move failed. The oldest revision names
# another gauge.
DRAFT_BROKER = replace(
    KIP858_BROKER,
    source_failure_assigns_lost=True,
    names_failed_directories=False,
    reports_single_directory=False,
    queue_metric="kafka.server:type=KafkaServer,name=NumMismatchingReplicaToLogDirAssignments",
)
