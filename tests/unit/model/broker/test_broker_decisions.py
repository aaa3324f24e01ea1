"""What a broker does with a replica (docs/spec/broker.md): the KIP, ReplicaManagerTest, LogManagerTest."""

from __future__ import annotations

import pickle
from collections import Counter

import pytest

from jbod_model.broker import disks as storage
from jbod_model.broker import replicas
from jbod_model.broker.assignments import AssignmentReason, Replica
from jbod_model.broker.disks import Disks, NoDirectoryAvailable, OfflineDirectories
from jbod_model.broker.replicas import (
    DECISIONS,
    DIFFERENCES,
    Holding,
    Hosted,
    ReplicaChange,
    Replicas,
    ReplicaStep,
    Report,
    Target,
    classify_holding,
    classify_target,
    decide,
)
from jbod_model.ids import KAFKA_IDS, Uuid
from jbod_model.profiles import KAFKA_BROKER, KIP858_BROKER, BrokerRules

A, B, GONE = Uuid(11, 1), Uuid(11, 2), Uuid(11, 9)
UNASSIGNED, LOST, MIGRATING = KAFKA_IDS.unassigned, KAFKA_IDS.lost, KAFKA_IDS.migrating
P = Replica(Uuid(1, 1), 0)
Q = Replica(Uuid(1, 1), 1)

# The rows of semantics 4.3 as a broker with disks A and B lives them: assigned directory, where the log lies,
# whether a directory is offline; then the log's directory, and what is reported. Kafka's column.
CASES = [
    ("R-DECIDE-6: unassigned, log exists", UNASSIGNED, A, False, A, A),
    ("R-DECIDE-5: unassigned, no log", UNASSIGNED, None, False, A, A),
    ("R-DECIDE-5: unassigned, no log, a directory offline", UNASSIGNED, None, True, A, A),
    ("R-DECIDE-1: online directory, no log", B, None, False, B, None),
    ("R-DECIDE-1: online directory, no log, a directory offline", B, None, True, B, None),
    ("R-DECIDE-2: online directory, the log there", B, B, False, B, None),
    ("R-DECIDE-3: online directory, the log elsewhere", B, A, False, A, A),
    ("R-DECIDE-10: lost, no log, none offline", LOST, None, False, A, A),
    ("R-DECIDE-10: lost, no log, a directory offline", LOST, None, True, None, None),
    ("R-DECIDE-9: lost, but the log is here", LOST, A, True, A, A),
    ("R-DECIDE-10: unknown id, no log, none offline", GONE, None, False, A, A),
    ("R-DECIDE-10: unknown id, no log, a directory offline", GONE, None, True, None, None),
    ("R-DECIDE-9: unknown id, but the log is here", GONE, A, True, A, A),
    ("R-DECIDE-7: migrating, log exists", MIGRATING, A, False, A, A),
    ("R-DECIDE-8: migrating, no log, none offline", MIGRATING, None, False, A, A),
    ("R-DECIDE-8: migrating, no log, a directory offline", MIGRATING, None, True, None, None),
    ("R-DECIDE-12: a change about something else", None, A, False, A, None),
    ("R-DECIDE-11: a change about something else, no log", None, None, False, A, None),
]


@pytest.mark.parametrize("leads", [True, False])
@pytest.mark.parametrize("rules", [KAFKA_BROKER, KIP858_BROKER], ids=("kafka", "kip858"))
@pytest.mark.parametrize(("case", "assigned", "log", "offline", "after", "reported"), CASES)
def test_decision_for_a_replica(
    case: str,
    assigned: Uuid | None,
    log: Uuid | None,
    offline: bool,
    after: Uuid | None,
    reported: Uuid | None,
    rules: BrokerRules,
    leads: bool,
) -> None:
    """testApplyDeltaShouldHandleReplicaAssignedTo{Online,Unassigned,Lost}Directory and the KIP's other cases.

    R-DISK-5: a log that exists stays where it is; R-HOST-7: one that is not created; R-HOST-8: what is reported.
    """
    disks = Disks(configured=(A, B), unreadable=int(offline), current={} if log is None else {P: log})
    state, reports = replicas.apply_metadata(Replicas(disks=disks, rules=rules), [ReplicaChange(P, leads, assigned)])
    assert state.disks.current.get(P) == after
    assert reports == (() if reported is None else (Report(P, reported, AssignmentReason.METADATA),))
    assert (P in state.leading) == leads
    assert state.hosted[P] is (Hosted.WITHOUT_LOG if after is None else Hosted.ONLINE)


def test_decision_for_a_single_directory_corrects_only() -> None:
    """R-DECIDE-13: nothing is special about one directory; the controller has assigned it already."""
    state = Replicas(disks=Disks(configured=(A,)))
    state, reports = replicas.apply_metadata(state, [ReplicaChange(P, True, A)])
    assert (state.disks.current, reports) == ({P: A}, ())
    _, reports = replicas.apply_metadata(Replicas(disks=Disks(configured=(A,))), [ReplicaChange(P, True, LOST)])
    assert reports == (Report(P, A, AssignmentReason.METADATA),)


def test_decisions_cover_every_situation_that_can_be() -> None:
    impossible = {
        (target, holding)
        for target in (Target.UNASSIGNED, Target.MIGRATING, Target.UNKNOWN, Target.SAME)
        for holding in (Holding.IN_TARGET, Holding.FUTURE_IN_TARGET)
    }
    for target in Target:
        for holding in Holding:
            for offline in (False, True):
                assert ((target, holding, offline) in DECISIONS) == ((target, holding) not in impossible)
    assert set(DIFFERENCES) <= set(DECISIONS)


def test_decision_for_a_future_log_in_the_assigned_directory_differs_by_profile() -> None:
    """R-DECIDE-4."""
    situation = (Target.ONLINE, Holding.FUTURE_IN_TARGET, False)
    assert (decide(*situation, KAFKA_BROKER).step, decide(*situation, KAFKA_BROKER).report) == (ReplicaStep.KEEP, True)
    assert (decide(*situation, KIP858_BROKER).step, decide(*situation, KIP858_BROKER).report) == (
        ReplicaStep.PROMOTE,
        False,
    )


@pytest.mark.parametrize(
    ("directory", "expected"),
    [
        (A, Target.ONLINE),
        (UNASSIGNED, Target.UNASSIGNED),
        (MIGRATING, Target.MIGRATING),
        (LOST, Target.UNKNOWN),
        (GONE, Target.UNKNOWN),
        (Uuid(0, 50), Target.UNKNOWN),
        (None, Target.SAME),
    ],
)
def test_target_of_an_assignment(directory: Uuid | None, expected: Target) -> None:
    assert classify_target(directory, (A, B), KAFKA_IDS) is expected


@pytest.mark.parametrize(
    ("directory", "current", "future", "expected"),
    [
        (A, None, None, Holding.NOTHING),
        (A, None, A, Holding.NOTHING),
        (A, A, B, Holding.IN_TARGET),
        (A, B, A, Holding.FUTURE_IN_TARGET),
        (A, B, None, Holding.ELSEWHERE),
        (None, A, None, Holding.ELSEWHERE),
    ],
)
def test_holding_of_a_replica(
    directory: Uuid | None, current: Uuid | None, future: Uuid | None, expected: Holding
) -> None:
    assert classify_holding(directory, current, future) is expected


# LogManagerTest


def test_log_is_created_in_the_assigned_directory() -> None:
    """R-DISK-1, testCreateLogOnTargetedLogDirectory."""
    disks = Disks(configured=tuple(Uuid(11, i) for i in range(5)))
    assert storage.create_log(disks, P, Uuid(11, 3), is_new=True).current == {P: Uuid(11, 3)}


@pytest.mark.parametrize("target", [UNASSIGNED, LOST, MIGRATING, GONE, None])
def test_log_without_a_usable_target_goes_to_a_directory_of_choice(target: Uuid | None) -> None:
    """testCreateLogWithTargetedLogDirectorySetAsUnassigned, ...SetAsUnknownWithoutAnyOfflineDirectories."""
    assert storage.create_log(Disks(configured=(A,)), P, target, is_new=True).current == {P: A}


def test_logs_are_spread_over_the_least_loaded_directories() -> None:
    """R-DISK-1, testLeastLoadedAssignment; future logs count too."""
    disks = Disks(configured=tuple(Uuid(11, i) for i in range(3)))
    for partition in range(20):
        disks = storage.create_log(disks, Replica(Uuid(1, 1), partition), None, is_new=False)
        counts = Counter(disks.current.values())
        assert max(counts.values()) <= min(counts[directory] for directory in disks.configured) + 1
    loaded = Disks(configured=(A, B), current={P: B}, future={P: A, Q: A})
    assert storage.candidates(loaded, Replica(Uuid(1, 1), 7), None) == (B, A)


def test_log_creation_falls_back_to_the_next_directory() -> None:
    """R-DISK-3, testCreateLogWithLogDirFallback: half of the directories refuse."""
    directories = tuple(Uuid(11, i) for i in range(5))
    broken = directories[:2]
    disks = storage.create_log(
        Disks(configured=directories), P, None, is_new=True, can_create=lambda d: d not in broken
    )
    assert disks.current == {P: directories[2]}
    with pytest.raises(NoDirectoryAvailable) as raised:
        storage.create_log(Disks(configured=directories), P, None, is_new=True, can_create=lambda _: False)
    assert pickle.loads(pickle.dumps(raised.value)).tried == directories


def test_log_in_an_assigned_directory_that_refuses_does_not_go_elsewhere() -> None:
    with pytest.raises(NoDirectoryAvailable):
        storage.create_log(Disks(configured=(A, B)), P, A, is_new=True, can_create=lambda directory: directory != A)


def test_log_that_is_not_new_is_not_created_while_a_directory_is_offline() -> None:
    """R-DISK-4, R-HOST-6; testPartitionMarkedOfflineIfLogCantBeCreated, testDeltaToLeaderOrFollowerMarks..."""
    disks = storage.fail(Disks(configured=(A, B)), B)
    with pytest.raises(OfflineDirectories) as raised:
        storage.create_log(disks, P, A, is_new=False)
    assert pickle.loads(pickle.dumps(raised.value)).replica == P
    state = Replicas(disks=disks, hosted={P: Hosted.WITHOUT_LOG})
    state, reports = replicas.apply_metadata(state, [ReplicaChange(P, True, A)])
    assert (state.hosted[P], reports) == (Hosted.OFFLINE, ())


def test_replica_on_a_failed_directory_is_left_alone_until_a_restart() -> None:
    """R-HOST-3, R-HOST-4, R-DISK-6; testGetOrCreatePartitionShouldNotCreateOfflinePartition."""
    state = Replicas(disks=Disks(configured=(A, B), current={P: A}), hosted={P: Hosted.ONLINE})
    state, _ = replicas.fail_directory(state, A)
    assert state.hosted[P] is Hosted.OFFLINE
    for directory in (A, B, UNASSIGNED, LOST):
        after, reports = replicas.apply_metadata(state, [ReplicaChange(P, True, directory)])
        assert (after.disks, after.hosted, reports) == (state.disks, state.hosted, ())


def test_replicas_to_lead_come_before_replicas_to_follow() -> None:
    """R-HOST-1: the log of the leader is created first, so it gets the directory that comes first."""
    state = Replicas(disks=Disks(configured=(A, B)))
    changes = [ReplicaChange(P, False, UNASSIGNED), ReplicaChange(Q, True, UNASSIGNED)]
    state, reports = replicas.apply_metadata(state, changes)
    assert state.disks.current == {Q: A, P: B}
    assert [report.replica for report in reports] == [P, Q]


def test_replica_that_is_no_longer_hosted_is_deleted_with_its_move() -> None:
    state = Replicas(disks=Disks(configured=(A, B), current={P: A, Q: A}), hosted={P: Hosted.ONLINE, Q: Hosted.ONLINE})
    state, _, _ = replicas.alter_replica_log_dir(state, P, B)
    state, _ = replicas.apply_metadata(state, [], [P])
    assert (state.disks.current, state.disks.future, state.moves, state.hosted) == ({Q: A}, {}, {}, {Q: Hosted.ONLINE})


def test_reports_wait_for_a_metadata_version_with_directories() -> None:
    """R-HOST-2."""
    state = Replicas(disks=Disks(configured=(A, B)))
    state, reports = replicas.apply_metadata(state, [ReplicaChange(P, True, MIGRATING)], directories_supported=False)
    assert (state.disks.current, reports) == ({P: A}, ())


def test_directory_that_failed_before_is_not_failed_again() -> None:
    state = Replicas(disks=Disks(configured=(A, B)))
    once, _ = replicas.fail_directory(state, A)
    assert once.disks.online == (B,)
    assert once.disks.has_offline
