"""Where the sources differ about the broker: one row per difference, one column per profile (R-RULES-1).

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
    """A later failure replaces the check of an earlier one; else each failed directory has its own, which lasts until
    the failure is reported (R-LIFE-7)."""

    undelivered_assignments_count: bool = False
    """An undelivered assignment into a failed directory counts like an undelivered failure (R-LIFE-8)."""

    promote_future_at_start: bool = True
    """At start, a future replica in the assigned directory replaces the current one at once; else it catches up."""

    overlooks_added_replicas: bool = True
    """The directory of a replica that joins an existing partition is not compared, so not reported (R-LOCAL-4)."""

    confirms_any_move: bool = True
    """A late confirmation counts for the replica's present move, to any directory; else only for its own."""

    withdraws_queued_moves: bool = False
    """A move that ends while its report waits, never sent, takes the report out of the queue; else the original
    directory is reported nevertheless (R-MOVE-10)."""

    reports_under_zookeeper: bool = False
    """A broker in ZooKeeper mode, before its migration, reports assignments (R-ZK-3)."""

    names_failed_directories: bool = True
    """An assignment into a directory that failed meanwhile names that directory, else LOST (R-DRAFT-3)."""

    reports_single_directory: bool = True
    """A broker with one directory reports replicas that are unassigned; else it only corrects (R-DRAFT-4)."""

    source_failure_assigns_lost: bool = False
    """When the source disk of a move fails, report the id for lost directories, not the original one (R-MOVE-4)."""

    format_adds_missing_ids: bool = False
    """Formatting completes directories that have no id; else the start of the broker does (R-STORE-16)."""

    queue_metric: str = "org.apache.kafka.server:type=AssignmentsManager,name=QueuedReplicaToDirAssignments"
    """The gauge of assignments that wait or are out (R-QUEUE-8)."""


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

# The revision before the current page assigned "lost" when the source of a move failed; the oldest view names
# another gauge.
DRAFT_BROKER = replace(
    KIP858_BROKER,
    source_failure_assigns_lost=True,
    names_failed_directories=False,
    reports_single_directory=False,
    queue_metric="kafka.server:type=KafkaServer,name=NumMismatchingReplicaToLogDirAssignments",
)
