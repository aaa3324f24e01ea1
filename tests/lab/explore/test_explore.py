"""The explorer (docs/spec/simulation.md): it finds Kafka's hole by itself, and nothing under the KIP."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jbod_model.broker.assignments import Replica
from jbod_model.formats.records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    VersionedRecord,
)
from jbod_model.formats.requests import (
    AlterPartitionPartition,
    AlterPartitionRequest,
    AlterPartitionTopic,
    AssignedDirectory,
    AssignedPartition,
    AssignedTopic,
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    BrokerState,
    SessionExpired,
)
from jbod_model.formats.responses import (
    AssignedDirectoryResult,
    AssignedPartitionResult,
    AssignedTopicResult,
    AssignReplicasToDirsResponse,
    InvalidRequest,
    Response,
)
from jbod_model.ids import Uuid
from jbod_model.profiles import DRAFT, KAFKA, KIP858, PROFILES, Profile
from jbod_model.replay.image import Image
from lab.explore import symmetry
from lab.explore.bounds import Bounds
from lab.explore.cluster import Cluster, State
from lab.explore.controller_part import ControllerPart
from lab.explore.invariants import STATE_INVARIANTS, STEP_INVARIANTS, Step, check_state, check_step
from lab.explore.machines import Machines
from lab.explore.search import Findings, Search, explore
from lab.explore.start import TOPIC, directory_ids, first_image
from lab.simulation.controller_node import deciding
from tests.support.volume import amount, sampled

P = Replica(TOPIC, 0)


def search(profile: Profile, **bounds: Any) -> Findings:
    return explore(profile, Bounds(**bounds))


def test_explorer_finds_the_two_in_one_heartbeat_by_itself() -> None:
    """R-EXPLORE-1, R-INV-9: five steps at least; the last heartbeat unfences and reports a dead disk."""
    findings = search(KAFKA, brokers=1, depth=30)
    assert set(findings.counterexamples) == {9, 10, 36}
    steps = findings.counterexamples[9].steps
    assert len(steps) == 5
    assert steps[-1].startswith("heartbeat of broker 1: broker 1 unfenced with 1b; partition 0 leader 1")
    assert sum("the session of broker 1, which lives, expires" in step for step in steps) == 1
    assert sum(step.startswith("directory 1a of broker 1 fails") for step in steps) == 1
    assert "leader 1" in steps[-1]
    assert "leader -1" in steps[-2]
    assert search(KAFKA, brokers=1, depth=4).counterexamples == {}


def test_explorer_finds_the_hole_with_two_brokers_too() -> None:
    assert 9 in search(KAFKA, brokers=2, depth=6).counterexamples


SIZES = [{"directories": 2}, {"directories": 3}, {"directories": 2, "elr": True}, {"directories": 1}]


@pytest.mark.parametrize("bounds", sampled(SIZES, 2))
def test_explorer_finds_nothing_under_the_kip_in_every_state_of_one_broker(bounds: dict[str, int]) -> None:
    """Complete: there are no more states, and what must happen in the end does."""
    findings = search(KIP858, brokers=1, depth=100, **{"crashes": bounds.get("directories", 2) < 3, **bounds})
    assert findings.complete
    assert findings.counterexamples == {}
    assert findings.runs == {}


@pytest.mark.parametrize("profile", [KIP858, DRAFT])
def test_explorer_meets_the_same_states_with_the_ids_of_the_page(profile: Profile) -> None:
    """R-SIM-10."""
    kafka = search(profile, brokers=1, depth=100, crashes=False)
    page = explore(profile, Bounds(brokers=1, depth=100, crashes=False, ids="kip858"))
    assert kafka.complete
    assert (page.states, page.steps, page.depth) == (kafka.states, kafka.steps, kafka.depth)
    assert set(page.counterexamples) == set(kafka.counterexamples)


def test_explorer_finds_what_the_drafts_do_without_records() -> None:
    """R-INV-4: registrations rewrite assignments."""
    findings = search(DRAFT, brokers=1, depth=100)
    assert findings.complete
    assert set(findings.counterexamples) == {4}


def test_explorer_finds_nothing_under_the_kip_with_two_brokers() -> None:
    findings = search(KIP858, brokers=2, depth=4)
    assert findings.counterexamples == {}
    assert findings.states > 500


def test_explorer_finds_a_move_that_kafka_forgets() -> None:
    """R-INV-31 with R-MOVE-7: a move put back to its beginning is not reverted when it ends."""
    findings = search(KAFKA, brokers=1, depth=10, moves=True, crashes=False, expiry=False, failures=False)
    assert set(findings.counterexamples) == {31}
    assert any("is asked to move" in step for step in findings.counterexamples[31].steps)


def test_explorer_finds_what_an_assignment_does_to_eligible_leaders() -> None:
    """R-INV-17: Kafka's ELR wipe."""
    assert 17 in search(KAFKA, brokers=1, depth=3, elr=True).counterexamples
    assert 17 not in search(KIP858, brokers=1, depth=5, elr=True).counterexamples


def test_explorer_with_the_literal_rule_finds_what_the_kips_two_rules_do_to_each_other() -> None:
    """R-SIM-7: electing by the rule for what clients are shown leaves a leader on a dead disk."""
    findings = search(KIP858, brokers=1, depth=6, literal=True)
    assert 9 in findings.counterexamples


def test_explorer_stops_at_its_bounds() -> None:
    """R-EXPLORE-5."""
    depths: list[int] = []
    findings = explore(KAFKA, Bounds(brokers=1, depth=3), lambda each: depths.append(each.depth))
    assert depths == [1, 2, 3]
    assert not findings.complete
    assert search(KAFKA, brokers=2, depth=50, states=300).states < 700


@pytest.mark.parametrize("profile", [KAFKA, KIP858])
def test_explorer_finds_the_same_without_symmetry_only_in_more_states(profile: Profile) -> None:
    """R-EXPLORE-4."""
    plain = search(profile, brokers=1, depth=30, crashes=False, symmetry=False)
    reduced = search(profile, brokers=1, depth=30, crashes=False)
    assert plain.states > reduced.states
    assert {n: len(c.steps) for n, c in plain.counterexamples.items()} == {
        n: len(c.steps) for n, c in reduced.counterexamples.items()
    }
    assert {n: len(r.steps) for n, r in plain.runs.items()} == {n: len(r.steps) for n, r in reduced.runs.items()}


def test_states_that_differ_only_in_epochs_are_one() -> None:
    """R-EXPLORE-2."""
    part = ControllerPart(KAFKA)
    names = {1: directory_ids(1, 2)}
    image = first_image(KAFKA, names, 1, elr=False)
    later = with_broker(with_partition(image, leader_epoch=7, partition_epoch=9), epoch=55, incarnation_id=Uuid(3, 3))
    later = with_broker(later, incarnation_id=image.brokers[1].incarnation_id)
    assert part.number(image) == part.number(later)
    assert part.number(with_broker(image, fenced=True)) != part.number(image)


def test_steps_wait_for_no_timer() -> None:
    """R-EXPLORE-3: at once after the start the session may expire, a disk fail, an image arrive."""
    cluster = small(KAFKA)
    kinds = {action.kind for action, _, _ in cluster.steps(start(cluster, 1))}
    assert kinds == {"fail", "crash", "expire early", "deliver"}


def test_renaming_directories_and_back_is_the_identity() -> None:
    names = {1: directory_ids(1, 2)}
    image = first_image(KAFKA, names, 1, elr=False)
    swap = {names[1][0]: names[1][1], names[1][1]: names[1][0]}
    assert symmetry.rename_image(symmetry.rename_image(image, swap), swap) == image
    cluster = small(KAFKA)
    state = start(cluster, 1)
    rng = random.Random(1)
    for _ in range(60):
        steps = list(cluster.steps(state)) or list(cluster.steps(start(cluster, 1)))
        state = rng.choice(steps)[1]
        machine = cluster.machines.states[state[1]]
        assert symmetry.rename_machine(symmetry.rename_machine(machine, swap), swap) == machine


# The invariants themselves: each is broken by hand once.

A, B = directory_ids(1, 2)
IMAGE = first_image(KAFKA, {1: (A, B), 2: directory_ids(2, 2)}, 1, elr=False)


def with_partition(image: Image, **changes: Any) -> Image:
    topic = image.topics[TOPIC]
    partition = replace(topic.partitions[0], **changes)
    return replace(image, topics={TOPIC: replace(topic, partitions={0: partition})})


def with_broker(image: Image, broker_id: int = 1, **changes: Any) -> Image:
    broker = replace(image.brokers[broker_id], **changes)
    return replace(image, brokers={**image.brokers, broker_id: broker})


BROKEN_STATES = [
    (1, with_partition(IMAGE, directories=(A,))),
    (2, with_partition(IMAGE, replicas=(1, 1))),
    (2, with_partition(IMAGE, isr=(1, 3))),
    (2, with_partition(IMAGE, eligible_leader_replicas=(1,))),
    (2, with_partition(IMAGE, isr=(2,), leader=1)),
    (6, with_broker(IMAGE, 2, directories=(A,))),
    (9, with_broker(IMAGE, fenced=True)),
    (9, with_partition(IMAGE, directories=(Uuid(5, 500), IMAGE.ids.unassigned))),
]


@pytest.mark.parametrize(("number", "image"), BROKEN_STATES)
def test_state_that_breaks_an_invariant_is_reported(number: int, image: Image) -> None:
    assert number in {breach.number for breach in check_state(image)}
    assert check_state(IMAGE) == ()


HEARTBEAT = BrokerHeartbeatRequest(broker_id=1, broker_epoch=1, offline_log_dirs=(A,))
IN_A = with_partition(IMAGE, directories=(A, directory_ids(2, 2)[0]))
REPORTED = with_broker(IN_A, directories=(B,))
IDLE = Response()


def change(**fields: Any) -> tuple[VersionedRecord, ...]:
    return (VersionedRecord(PartitionChangeRecord(partition_id=0, topic_id=TOPIC, **fields), 2),)


def assign(directory: Uuid, error: int = 0) -> dict[str, Any]:
    request = AssignReplicasToDirsRequest(
        broker_id=1,
        broker_epoch=1,
        directories=(
            AssignedDirectory(id=directory, topics=(AssignedTopic(topic_id=TOPIC, partitions=(AssignedPartition(),)),)),
        ),
    )
    result = AssignedPartitionResult(partition_index=0, error_code=error)
    topic = AssignedTopicResult(topic_id=TOPIC, partitions=(result,))
    response = AssignReplicasToDirsResponse(directories=(AssignedDirectoryResult(id=directory, topics=(topic,)),))
    return {"request": request, "response": response}


def registered(*log_dirs: Uuid) -> tuple[VersionedRecord, ...]:
    return (VersionedRecord(RegisterBrokerRecord(broker_id=1, log_dirs=log_dirs), 3),)


ELIGIBLE = with_partition(IN_A, isr=(1,), eligible_leader_replicas=(2,))

LEADERLESS = with_partition(IN_A, leader=-1, isr=(1,))

LED_BY_2: dict[str, Any] = {
    "before": with_partition(IN_A, isr=(2,), leader=2),
    "after": with_partition(IN_A, isr=(1,), leader=1),
}


def alter(*isr: int) -> AlterPartitionRequest:
    partition = AlterPartitionPartition(new_isr_with_epochs=tuple(BrokerState(broker_id=member) for member in isr))
    return AlterPartitionRequest(broker_id=2, topics=(AlterPartitionTopic(topic_id=TOPIC, partitions=(partition,)),))


BROKEN_STEPS = [
    (18, {**assign(B), "before": LEADERLESS, "after": LEADERLESS, "profile": KIP858}),
    (3, {"records": change(leader=1), "after": IN_A}),
    (4, {"after": with_partition(IN_A, directories=(B, A))}),
    (7, {"records": registered()}),
    (7, {"records": registered(A, A)}),
    (7, {"records": registered(Uuid(0, 5))}),
    (8, {"before": REPORTED, "after": IN_A, "request": SessionExpired(broker_id=1)}),
    (10, {"after": REPORTED}),
    (10, {"after": with_partition(REPORTED, leader=2)}),
    (11, {"after": with_partition(REPORTED, leader=-1, isr=(2,))}),
    (12, LED_BY_2),
    (12, {**LED_BY_2, "request": alter(2)}),
    (13, {**assign(B), "after": IN_A}),
    (14, {**assign(B, 6), "after": with_partition(IN_A, directories=(B, A))}),
    (14, {"response": InvalidRequest("no"), "after": REPORTED}),
    (15, {**assign(Uuid(5, 500)), "after": with_partition(IN_A, directories=(Uuid(5, 500), IN_A.ids.lost))}),
    (16, {**assign(A), "records": change(directories=(A, B))}),
    (17, {**assign(B), "before": ELIGIBLE, "after": with_partition(ELIGIBLE, eligible_leader_replicas=())}),
    (20, {"before": REPORTED, "after": with_broker(REPORTED, directories=())}),
    (20, {"before": REPORTED, "after": with_partition(REPORTED, directories=(B, A))}),
    (29, {"before": with_broker(IMAGE, fenced=True), "after": IMAGE, "profile": KIP858}),
]


@pytest.mark.parametrize(("number", "changes"), BROKEN_STEPS)
def test_step_that_breaks_an_invariant_is_reported(number: int, changes: dict[str, Any]) -> None:
    good = {"before": IN_A, "request": HEARTBEAT, "records": (), "response": IDLE, "after": IN_A}
    step = Step(**{**good, **changes})
    assert number in {breach.number for breach in check_step(step)}


def test_invariants_are_each_broken_once_above() -> None:
    assert {number for number, _ in BROKEN_STATES} | {28} == set(STATE_INVARIANTS)  # R-INV-28 holds by construction
    assert {number for number, _ in BROKEN_STEPS} == set(STEP_INVARIANTS)


LED_BY_1 = with_partition(IN_A, isr=(1,), leader=1)

NOT_BROKEN = [
    (18, {**assign(B), "before": LEADERLESS, "after": LEADERLESS}),  # Kafka's election sees the old directory
    (18, {**assign(B, 6), "before": LEADERLESS, "after": LEADERLESS, "profile": KIP858}),
    (18, {**assign(B), "before": LEADERLESS, "after": LED_BY_1, "profile": KIP858}),
    (18, {**assign(B), "before": LED_BY_1, "after": LEADERLESS, "profile": KIP858}),
    (18, {**assign(Uuid(5, 500)), "before": LEADERLESS, "after": LEADERLESS, "profile": KIP858}),
    (18, {**assign(B), **dict.fromkeys(("before", "after"), with_partition(LEADERLESS, isr=(2,))), "profile": KIP858}),
    (18, {**assign(B), **dict.fromkeys(("before", "after"), with_broker(LEADERLESS, fenced=True)), "profile": KIP858}),
]


@pytest.mark.parametrize(("number", "changes"), NOT_BROKEN)
def test_step_that_an_invariant_allows_is_not_reported(number: int, changes: dict[str, Any]) -> None:
    good = {"before": IN_A, "request": HEARTBEAT, "records": (), "response": IDLE, "after": IN_A}
    assert number not in {breach.number for breach in check_step(Step(**{**good, **changes}))}


def test_search_ends_with_the_state_that_reaches_the_bound() -> None:
    """R-EXPLORE-5."""
    met = explore(KIP858, Bounds(brokers=1, depth=100, states=50, liveness=False)).states
    assert 50 <= met < 60
    again = explore(KIP858, Bounds(brokers=1, depth=100, states=met, liveness=False))
    assert (again.states, again.complete) == (met, False)


def test_leader_that_the_one_before_named_in_sync_need_not_recover() -> None:
    """R-INV-12: a completed reassignment takes the leader that asked for the set out of it."""
    step = Step(**{"records": (), "response": IDLE, **LED_BY_2, "request": alter(2, 1)})
    assert 12 not in {breach.number for breach in check_step(step)}


def test_registration_change_is_no_breach() -> None:
    records = (VersionedRecord(BrokerRegistrationChangeRecord(broker_id=1, log_dirs=(B,)), 2),)
    led = with_partition(REPORTED, leader=2, isr=(2,), leader_epoch=1, partition_epoch=1)
    step = Step(
        before=IN_A, request=HEARTBEAT, records=(*change(leader=2, isr=(2,)), *records), response=IDLE, after=led
    )
    assert check_step(step) == ()


# Random walks, longer than any search is deep.


def small(profile: Profile) -> Cluster:
    return Cluster(ControllerPart(deciding(profile)), Machines(profile.broker, Bounds(moves=True)))


def start(cluster: Cluster, brokers: int, partitions: int = 1) -> State:
    bounds = Bounds(brokers=brokers, partitions=partitions)
    search = Search(cluster.controller.profile, bounds)
    search.cluster = cluster
    return search.first()


class Walk(RuleBasedStateMachine):
    """Any order of steps of two brokers with two directories and two partitions."""

    @initialize(profile=st.sampled_from(sorted(PROFILES)))
    def begin(self, profile: str) -> None:
        self.profile = profile
        self.cluster = small(PROFILES[profile])
        self.state = start(self.cluster, 2, 2)
        self.allowed = {"kafka": {9, 10, 31, 36}, "kip858": set(), "draft": {4}}[profile]

    @rule(choice=st.randoms(use_true_random=False))
    @precondition(lambda self: hasattr(self, "cluster"))
    def step(self, choice: random.Random) -> None:
        for _ in range(10):
            steps = list(self.cluster.steps(self.state))
            if not steps:
                return
            _, self.state, breaches = choice.choice(steps)
            numbers = {breach.number for breach in (*breaches, *self.cluster.breaches(self.state))}
            assert numbers <= self.allowed, (self.profile, numbers)

    @invariant()
    def something_can_always_happen_while_a_disk_works(self) -> None:
        if hasattr(self, "cluster"):
            machines = [self.cluster.machines.states[number] for number in self.state[1:]]
            if any(machine.working for machine in machines):
                assert list(self.cluster.steps(self.state))


TestWalk = Walk.TestCase
TestWalk.settings = settings(max_examples=amount(4, 10), stateful_step_count=8, deadline=None)
