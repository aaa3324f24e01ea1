"""The named profiles: the switches in which the rules of Kafka, of KIP-858 and of its drafts differ, and Kafka's flaws.

A row per difference, a column per profile (R-RULES-1). Source: the KIP's current page (kip858), older drafts of it
(draft), Kafka 4.1.2 (kafka). And the differences between releases of Kafka at the same metadata.version
(docs/spec/controller.md). Source: the controller classes of Kafka 4.0.2, 4.1.2, 4.2.0, 4.3.1 and 4.4.0.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple


class Quirk(enum.Enum):
    """A flaw of released Kafka. Each has its own switch. `REPAIRED_IN` has the release that repaired it."""

    ELR_WIPE = "elr_wipe"
    """A directory assignment empties the partition's eligible leader replicas (R-QUIRK-1)."""
    INDEX_LEAK = "index_leak"
    """A topic deleted with an empty in-sync set stays in the index from directories to partitions (R-QUIRK-2)."""
    STALE_ELR = "stale_elr"
    """A completed reassignment leaves the replicas it removes among the eligible leaders (R-QUIRK-3)."""
    STALE_ELR_INDEX = "stale_elr_index"
    """Clearing eligible leaders leaves them in the index from brokers to partitions (R-QUIRK-6)."""
    TWO_IN_ONE_HEARTBEAT = "two_in_one_heartbeat"
    """A heartbeat that unfences and reports a failed directory elects leaders onto that directory (R-QUIRK-4)."""
    PARTIAL_GROWTH = "partial_growth"
    """A request for more partitions that fails for lack of brokers keeps those placed before (R-QUIRK-7)."""
    ALL_DIRECTORIES_OFFLINE = "all_directories_offline"
    """When every directory fails, Kafka writes the change as an empty list, which readers ignore (R-QUIRK-5)."""
    CORDONED_ASSIGNMENT = "cordoned_assignment"
    """A replica can be assigned by hand to a broker whose directories are all cordoned (R-QUIRK-8)."""
    UNBOUNDED_GROWTH = "unbounded_growth"
    """A request may add any number of partitions; it fails half way if it exceeds 10,000 records (R-QUIRK-9)."""
    PARTITION_COUNT_OVERFLOW = "partition_count_overflow"
    """The partitions of a request for new topics are added up in 32 bits, which may overflow (R-QUIRK-10)."""
    FENCED_LAST_LEADER = "fenced_last_leader"
    """The last known leader is elected although it is fenced or its directory is offline (R-QUIRK-11)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRules:
    """The decisions of a controller in which the sources differ. The profiles share everything else."""

    quirks: frozenset[Quirk]
    preselects_single_directory: bool
    """A new replica on a broker with one online directory is assigned to it at once (R-NEWDIR-1)."""
    migrating_without_directories: bool
    """A new replica on a broker that registered no directories is MIGRATING, otherwise UNASSIGNED (R-NEWDIR-1)."""
    unknown_offline_directory: Literal["ignore", "refuse"]
    """What a report of an unregistered directory in a heartbeat causes: nothing, or error 57 (R-FAIL-2)."""
    registration_error: Literal["119", "42"]
    """The error for a registration without directories, or with those of another broker (R-REG-4, R-REG-7)."""
    checks_directory_ids: bool
    """Registrations with reserved or repeated directories are refused (R-REG-5, R-REG-6)."""
    registration_change: Literal["last", "first"]
    """The position of the registration's record among the records of a directory failure (R-FAIL-1)."""
    fences_until_assigned: bool
    """A broker with several directories stays fenced until none of its replicas is unassigned (R-HB-5)."""
    admits_zookeeper_brokers: bool
    """A broker in ZooKeeper mode registers, with its directories, before its migration (R-ZK-1)."""
    zero_assignment_is_lost: bool
    """An assignment to Uuid.ZERO counts as one to LOST (R-DRAFT-5)."""
    election_after_assignment: Literal["old directory", "new directory"]
    """The directory that the election in an assignment's record sees: the old or the new one (R-ASSIGN-6)."""
    reassignment_completion: Literal["all in sync", "added in sync"] = "all in sync"
    """The replicas that must be in sync before a reassignment is complete; depends on the release (R-RELEASE-4)."""

    last_known_leader: Literal["no leader", "empty in-sync set"] = "no leader"
    """The change by which the last known leader is recorded; depends on the release (R-RELEASE-5)."""

    def has(self, quirk: Quirk) -> bool:
        """Whether a flaw is switched on."""
        return quirk in self.quirks

    def without(self, *quirks: Quirk) -> ControllerRules:
        """The same rules with these flaws repaired; without arguments, with all flaws repaired."""
        return replace(self, quirks=self.quirks - set(quirks or Quirk))


KAFKA_RULES = ControllerRules(
    quirks=frozenset(Quirk),
    preselects_single_directory=True,
    migrating_without_directories=True,
    unknown_offline_directory="ignore",
    registration_error="119",
    checks_directory_ids=True,
    registration_change="last",
    fences_until_assigned=False,
    admits_zookeeper_brokers=False,
    zero_assignment_is_lost=False,
    election_after_assignment="old directory",
)
"""Kafka as released, with the flaws of all releases from 4.0 on; `releases.as_released` removes the repaired ones."""

KIP858_RULES = ControllerRules(
    quirks=frozenset(),
    preselects_single_directory=True,
    migrating_without_directories=False,
    unknown_offline_directory="refuse",
    registration_error="42",
    checks_directory_ids=False,
    registration_change="first",
    fences_until_assigned=True,
    admits_zookeeper_brokers=True,
    zero_assignment_is_lost=False,
    election_after_assignment="new directory",
)
"""The current page of the KIP. If it contradicts itself, its newer sentence counts. If it says nothing, the safe
reading does."""

DRAFT_RULES = replace(KIP858_RULES, preselects_single_directory=False, zero_assignment_is_lost=True)
"""The older pages: every new replica starts unassigned, and Uuid.ZERO in an assignment means an offline directory."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Named switches.

    The meaning of reserved ids is not among them: it belongs to the log (``jbod_model.ids.IdTable``).
    """

    name: str

    # REPLAY

    absent_directories: Literal["migrating", "unassigned"]
    """The id of every replica of a partition whose record names no directories (R-PART-3)."""
    empty_log_dirs_change: Literal["ignore", "apply"]
    """The effect of an empty LogDirs in a BrokerRegistrationChangeRecord (R-BROKER-6)."""
    logical_rewrites: bool
    """Whether a registration rewrites the directories of the broker's partitions without records (R-DRAFT-1,
    R-DRAFT-2)."""
    derives_offline_flag: bool
    """Whether a change that removes directories from a registration sets the draft's flag (R-DRAFT-6)."""

    # DERIVED

    offline_rule: Literal["kafka", "kip858", "draft"]
    """When the directory of a replica counts as offline (Kafka: R-OFF-7, the KIP: R-OFF-8, the draft: R-OFF-9)."""

    # CONTROLLER

    controller: ControllerRules
    """The rules of the controller."""

    # BROKER

    broker: BrokerRules
    """The rules of the broker."""


KAFKA = Profile(
    name="kafka",
    absent_directories="migrating",
    empty_log_dirs_change="ignore",
    logical_rewrites=False,
    derives_offline_flag=False,
    offline_rule="kafka",
    controller=KAFKA_RULES,
    broker=KAFKA_BROKER,
)
"""The rules of Kafka 4.1.2 to 4.4.0."""

KIP858 = Profile(
    name="kip858",
    absent_directories="unassigned",
    empty_log_dirs_change="ignore",
    logical_rewrites=False,
    derives_offline_flag=False,
    offline_rule="kip858",
    controller=KIP858_RULES,
    broker=KIP858_BROKER,
)
"""The rules of the accepted KIP-858, read literally."""

DRAFT = Profile(
    name="draft",
    absent_directories="unassigned",
    empty_log_dirs_change="apply",
    logical_rewrites=True,
    derives_offline_flag=True,
    offline_rule="draft",
    controller=DRAFT_RULES,
    broker=DRAFT_BROKER,
)
"""The rules of earlier drafts of KIP-858: registrations with an offline flag, rewrites without records."""

PROFILES: Mapping[str, Profile] = {profile.name: profile for profile in (KAFKA, KIP858, DRAFT)}
"""The named sets of rules: ``kafka`` (as released), ``kip858`` (as accepted), ``draft`` (as proposed)."""


class Release(NamedTuple):
    """A release of Kafka. Its patch releases do not differ in what this model covers."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


OLDEST = Release(4, 0)
"""The oldest release that jbod distinguishes. An older controller counts as one of this release."""
REFERENCE = Release(4, 1)
"""The release of simulated clusters, of recorded operations that name none, and of controllers that are unknown."""
NEWEST = Release(4, 4)
"""The newest known release. A newer controller counts as one of this release."""

REPAIRED_IN: Mapping[Quirk, Release] = {
    Quirk.FENCED_LAST_LEADER: Release(4, 1),
    Quirk.ELR_WIPE: Release(4, 3),
    Quirk.CORDONED_ASSIGNMENT: Release(4, 4),
    Quirk.UNBOUNDED_GROWTH: Release(4, 4),
    Quirk.PARTITION_COUNT_OVERFLOW: Release(4, 4),
}
"""The first release without the flaw. A flaw that is not listed is in all releases (R-RELEASE-2)."""

ADDED_SUFFICE = Release(4, 3)
"""The first release in which a reassignment is complete once all added replicas are in sync (R-RELEASE-4)."""

LEADERLESS_COUNTS = Release(4, 1)
"""The first release that records the last known leader when the leader goes, not when the in-sync set empties
(R-RELEASE-5). In fact its first patch release, 4.1.1."""

_SINCE: Mapping[int, Release] = {27: Release(4, 1), 28: Release(4, 2), 30: Release(4, 3), 32: Release(4, 4)}
"""The lowest level that a controller supports from a release on. Each release also knows the first level of the next
one, which is not stable there: 4.3 supports level 31, 4.4-IV0."""

_UNTIL_4_0 = {
    "metadata.version": (7, 26),
    "kraft.version": (0, 1),
    "transaction.version": (0, 2),
    "group.version": (0, 1),
    "eligible.leader.replicas.version": (0, 1),
}
_UNTIL_4_1 = {**_UNTIL_4_0, "metadata.version": (7, 29), "share.version": (0, 1), "streams.version": (0, 1)}

SUPPORTED_FEATURES: Mapping[Release, Mapping[str, tuple[int, int]]] = {
    Release(4, 0): _UNTIL_4_0,
    Release(4, 1): _UNTIL_4_1,
    Release(4, 2): {**_UNTIL_4_1, "metadata.version": (7, 30)},
    Release(4, 3): {**_UNTIL_4_1, "metadata.version": (7, 31)},
    Release(4, 4): {**_UNTIL_4_1, "metadata.version": (7, 34), "share.version": (0, 2)},
}
"""(lowest, highest) level of each feature, by release, of a controller that admits unreleased levels."""


def release_of(level: int) -> Release:
    """The release of a node whose highest metadata.version is ``level`` (R-RELEASE-1)."""
    return max((release for since, release in _SINCE.items() if level >= since), default=OLDEST)


@functools.cache
def as_released(profile: Profile, release: Release) -> Profile:
    """``profile`` without the flaws that ``release`` has repaired, and with its rules for reassignments and last
    known leaders (R-RELEASE-2, R-RELEASE-4, R-RELEASE-5)."""
    rules = profile.controller
    repaired = [quirk for quirk, since in REPAIRED_IN.items() if release >= since]
    if repaired:
        rules = rules.without(*repaired)
    if release >= ADDED_SUFFICE:
        rules = replace(rules, reassignment_completion="added in sync")
    if release < LEADERLESS_COUNTS:
        rules = replace(rules, last_known_leader="empty in-sync set")
    return profile if rules is profile.controller else replace(profile, controller=rules)
