"""The quorum as the records tell it: controllers, voters and observers, the leader."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jbod_model.formats import records as r
from jbod_model.formats.control_records import (
    Endpoint,
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    QuorumVoter,
    Voter,
    VotersRecord,
)
from jbod_model.ids import ZERO, Uuid
from jbod_model.replay.registrations import QUORUM_RECORDS, Member, QuorumState, RecordMoment

A, B, C = Uuid(8, 1), Uuid(8, 2), Uuid(8, 3)
FIRST, SECOND, THIRD = (RecordMoment(at, 1000 * at) for at in (1, 2, 3))


def leader(leader_id: int, voters: dict[int, Uuid], granting: tuple[int, ...] = ()) -> LeaderChangeMessage:
    return LeaderChangeMessage(
        leader_id=leader_id,
        voters=tuple(Voter(voter_id=voter_id, voter_directory_id=directory) for voter_id, directory in voters.items()),
        granting_voters=tuple(Voter(voter_id=voter_id) for voter_id in granting),
    )


def voters(**directories: Uuid) -> VotersRecord:
    return VotersRecord(
        voters=tuple(
            QuorumVoter(
                voter_id=int(name[1:]),
                voter_directory_id=directory,
                endpoints=(Endpoint(name="CONTROLLER", host="host", port=9000 + int(name[1:])),),
                k_raft_version_feature=KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
            )
            for name, directory in directories.items()
        )
    )


def test_leader_change_names_static_voters_and_who_voted() -> None:
    """R-VOTER-2, R-VOTER-4: a static voter has no directory; the leader and those that voted for it are heard of."""
    state = QuorumState().follow(leader(2, {1: ZERO, 2: ZERO, 3: ZERO}, granting=(3,)), FIRST)
    assert (state.leader_id, state.elected) == (2, FIRST)
    assert dict(state.members) == {
        1: Member(node_id=1, voter=True, since=FIRST),
        2: Member(node_id=2, voter=True, since=FIRST, heard=FIRST),
        3: Member(node_id=3, voter=True, since=FIRST, heard=FIRST),
    }
    assert [state.role(node_id) for node_id in (1, 2, 3)] == ["voter", "leader", "voter"]
    assert list(state.members) == [1, 2, 3]


def test_voter_stays_the_same_in_the_next_epoch_and_is_an_observer_when_it_is_not_named() -> None:
    """R-VOTER-2."""
    state = QuorumState().follow(leader(2, {1: ZERO, 2: A}), FIRST).follow(leader(1, {1: ZERO}), SECOND)
    assert dict(state.members) == {
        1: Member(node_id=1, voter=True, since=FIRST, heard=SECOND),
        2: Member(node_id=2, directory_id=str(A), voter=False, since=SECOND, heard=FIRST),
    }
    assert state.role(2) == "observer"
    back = state.follow(leader(1, {1: ZERO, 2: B}), THIRD)
    assert back.members[2] == Member(node_id=2, directory_id=str(B), voter=True, since=THIRD, heard=FIRST)


def test_members_are_in_the_order_of_their_ids() -> None:
    """R-VOTER-2."""
    state = QuorumState().follow(leader(16, {16: ZERO, 8: ZERO, 24: ZERO}), FIRST)
    assert list(state.members) == [8, 16, 24]


def test_leader_that_is_no_voter_is_kept_as_an_observer_would_be() -> None:
    """R-VOTER-2: a leader that removed itself leads until another is elected."""
    state = QuorumState().follow(leader(3, {1: A}), FIRST)
    assert state.members[3] == Member(node_id=3, voter=False, since=FIRST, heard=FIRST)
    assert state.role(3) == "leader"


def test_voters_record_names_all_voters_with_directory_endpoints_and_levels() -> None:
    """R-VOTER-3."""
    state = QuorumState().follow(voters(n1=A, n2=B), FIRST)
    assert state.members[1] == Member(
        node_id=1,
        directory_id=str(A),
        endpoints=("CONTROLLER://host:9001",),
        kraft=(0, 1),
        voter=True,
        since=FIRST,
        heard=FIRST,
    )
    later = state.follow(voters(n1=A, n2=C), SECOND)
    assert (later.members[1].since, later.members[1].heard) == (FIRST, FIRST)
    assert (later.members[2].since, later.members[2].heard) == (SECOND, SECOND)  # another disk is another voter
    assert later.members[2].directory_id == str(C)
    without = later.follow(voters(n1=A), THIRD)
    assert without.members[2] == replace(later.members[2], voter=False, since=THIRD)
    assert without.follow(voters(n1=A), RecordMoment(4, 4)).members[2].since == THIRD
    again = without.follow(voters(n1=A, n2=C), RecordMoment(4, 4))
    assert (again.members[2].since, again.members[2].heard) == (RecordMoment(4, 4), RecordMoment(4, 4))


def test_static_voter_stays_when_the_first_voters_record_gives_its_directory() -> None:
    """R-VOTER-3."""
    state = QuorumState().follow(leader(1, {1: ZERO, 2: ZERO}), FIRST).follow(voters(n1=A, n2=B), SECOND)
    assert (state.members[1].since, state.members[1].heard) == (FIRST, FIRST)
    assert (state.members[2].since, state.members[2].heard) == (FIRST, None)
    assert state.members[2].directory_id == str(B)


def registration(controller_id: int, incarnation: Uuid, port: int = 9093) -> r.RegisterControllerRecord:
    return r.RegisterControllerRecord(
        controller_id=controller_id,
        incarnation_id=incarnation,
        zk_migration_ready=True,
        end_points=(r.ControllerEndpoint(name="CONTROLLER", host="host", port=port),),
        features=(
            r.ControllerFeature(name="metadata.version", min_supported_version=7, max_supported_version=29),
            r.ControllerFeature(name="kraft.version", min_supported_version=0, max_supported_version=1),
        ),
    )


def test_controllers_register_again_and_leave() -> None:
    """R-VOTER-1."""
    state = QuorumState().follow(registration(1, A), FIRST).follow(registration(2, B), FIRST)
    controller = state.controllers[1]
    assert (controller.controller_id, controller.incarnation_id, controller.zk_migration_ready) == (1, str(A), True)
    assert (controller.endpoints, controller.registered) == (("CONTROLLER://host:9093",), FIRST)
    assert controller.features == (("kraft.version", 0, 1), ("metadata.version", 7, 29))
    again = state.follow(registration(1, C), SECOND)
    assert (again.controllers[1].incarnation_id, again.controllers[1].registered) == (str(C), SECOND)
    left = again.follow(r.UnregisterControllerRecord(controller_id=1), THIRD)
    assert list(left.controllers) == [2]


def test_snapshot_replaces_the_controllers_and_keeps_when_the_same_registered() -> None:
    """R-VOTER-1: what a snapshot repeats did not happen then. Members stay unless it names voters."""
    before = QuorumState().follow(leader(1, {1: ZERO}), FIRST)
    for each in (registration(1, A), registration(2, B), registration(3, C)):
        before = before.follow(each, FIRST)
    loaded = before.load((registration(1, A), registration(2, B, port=9094), registration(4, A)), SECOND)
    assert {node_id: node.registered for node_id, node in loaded.controllers.items()} == {
        1: FIRST,
        2: SECOND,
        4: SECOND,
    }
    assert loaded.members == before.members
    assert loaded.load((voters(n1=A),), THIRD).members[1].directory_id == str(A)


def test_level_of_the_quorum_is_the_newest() -> None:
    """R-VOTER-3."""
    assert QuorumState().kraft_version == 0
    assert QuorumState().follow(KRaftVersionRecord(k_raft_version=1), FIRST).kraft_version == 1


@pytest.mark.parametrize(
    "record",
    [
        leader(1, {1: A}),
        voters(n1=A),
        KRaftVersionRecord(k_raft_version=1),
        registration(1, A),
        r.UnregisterControllerRecord(controller_id=1),
        r.UnregisterBrokerRecord(broker_id=1),
    ],
    ids=lambda record: type(record).__name__,
)
def test_records_that_change_the_quorum_are_listed(record: r.Record) -> None:
    """R-VOTER-1, R-VOTER-2, R-VOTER-3: readers skip all other records."""
    state = QuorumState().follow(registration(1, B), FIRST)
    assert (state.follow(record, SECOND) != state) == isinstance(record, QUORUM_RECORDS)
