"""Where new partitions go, as Kafka's StripedReplicaPlacerTest has it and as Kafka placed them."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jbod_model.controller.placement import UsableBroker, place
from jbod_model.formats.responses import InvalidReplicationFactor
from jbod_model.java import JavaRandom


class MockRandom(JavaRandom):
    """The generator of Kafka's tests: Java's, with another recurrence below it."""

    def __init__(self) -> None:
        super().__init__(0)
        self.state = 17

    def _next(self, bits: int) -> int:
        self.state = (self.state * 2862933555777941757 + 3037000493) & (1 << 64) - 1
        return (self.state >> (64 - bits)) & 0xFFFFFFFF


def brokers(*unfenced: int, fenced: tuple[int, ...] = (), rack: str | None = None) -> list[UsableBroker]:
    return [UsableBroker(broker_id, rack, False) for broker_id in unfenced] + [
        UsableBroker(broker_id, rack, True) for broker_id in fenced
    ]


CASES: dict[str, tuple[list[UsableBroker], int, list[tuple[int, ...]]]] = {
    "a fenced broker is avoided": (
        brokers(3, 0, 4, 2, fenced=(1,)),
        4,
        [(3, 4, 0, 2), (4, 0, 2, 3), (0, 2, 3, 4), (2, 3, 4, 0), (0, 4, 3, 2)],
    ),
    "one unfenced broker leads everything": (brokers(0, fenced=(1,)), 1, [(0,), (0,), (0,)]),
    "a fenced broker follows": (brokers(3, 2, fenced=(1,)), 3, [(3, 2, 1), (2, 3, 1), (3, 2, 1), (2, 3, 1)]),
    "racks in turn": (
        brokers(11, 10, rack="1") + brokers(30, 31, rack="3") + brokers(21, fenced=(20,), rack="2"),
        4,
        [(11, 21, 31, 10), (21, 30, 10, 20), (31, 11, 21, 30)],
    ),
    "racks without unfenced brokers": (
        brokers(11, 10, rack="1")
        + brokers(fenced=(30, 31), rack="3")
        + brokers(fenced=(20, 21), rack="2")
        + brokers(41, fenced=(40,), rack="4"),
        4,
        [(41, 11, 21, 30), (10, 20, 31, 41), (41, 21, 30, 11)],
    ),
    "four brokers": (brokers(0, 3, 2, 1), 3, [(2, 3, 0), (3, 0, 1), (0, 1, 2), (1, 2, 3), (1, 0, 2)]),
}


@pytest.mark.parametrize("case", CASES)
def test_place_is_as_kafkas_placer_test_has_it(case: str) -> None:
    """R-PLACE-2."""
    usable, replication_factor, placed = CASES[case]
    assert place(usable, len(placed), replication_factor, MockRandom()) == placed


def test_place_spreads_leaders_and_followers_evenly() -> None:
    """R-PLACE-2: the counts of Kafka's test of 200 partitions."""
    assert Counter(place(brokers(0, 1, 2, 3), 200, 2, MockRandom())) == {
        (0, 1): 14,
        (0, 2): 22,
        (0, 3): 14,
        (1, 0): 17,
        (1, 2): 17,
        (1, 3): 16,
        (2, 0): 13,
        (2, 1): 17,
        (2, 3): 20,
        (3, 0): 20,
        (3, 1): 19,
        (3, 2): 11,
    }


@pytest.mark.parametrize(
    ("usable", "replication_factor", "problem"),
    [
        (brokers(fenced=(11, 10), rack="1"), 1, "fenced"),
        (brokers(11, 10, rack="1"), 3, "there are 2"),
        (brokers(11, 10, rack="1"), 0, "positive"),
        (brokers(11, 10, rack="1"), -1, "positive"),
        ([], 1, "fenced"),
    ],
)
def test_place_what_brokers_cannot_host_is_refused(
    usable: list[UsableBroker], replication_factor: int, problem: str
) -> None:
    """R-PLACE-1."""
    with pytest.raises(InvalidReplicationFactor, match=problem):
        place(usable, 1, replication_factor, MockRandom())


def test_place_from_a_given_state_places_as_kafka_did() -> None:
    """R-PLACE-2, R-JAVA-1, R-JAVA-2: recorded from Kafka 4.1.2 with its own generator, two racks and none."""
    usable = [*brokers(fenced=(0,), rack="b"), *brokers(1, 2, rack="a"), *brokers(3), *brokers(4, rack="a")]
    random = JavaRandom.resume(25214907842)
    assert place(usable, 9, 4, random) == [
        *((3, 0, 2, 4), (3, 4, 0, 1), (1, 0, 3, 2), (3, 0, 2, 4), (4, 0, 3, 2)),
        *((3, 0, 2, 1), (3, 1, 0, 4), (4, 0, 3, 2), (3, 0, 2, 1)),
    ]
    assert random.state == 256048491100654


@given(
    st.lists(st.tuples(st.sampled_from([None, "a", "b", "c"]), st.booleans()), min_size=1, max_size=8),
    st.integers(1, 12),
    st.integers(1, 5),
    st.integers(0, 2**48 - 1),
)
def test_place_never_repeats_a_broker_and_leads_by_an_unfenced_one(
    kinds: list[tuple[str | None, bool]], partitions: int, replication_factor: int, seed: int
) -> None:
    """R-PLACE-2; the same seed places alike."""
    usable = [UsableBroker(broker_id, rack, fenced) for broker_id, (rack, fenced) in enumerate(kinds)]
    try:
        placed = place(usable, partitions, replication_factor, JavaRandom(seed))
    except InvalidReplicationFactor:
        assert replication_factor > len(usable) or all(broker.fenced for broker in usable)
        return
    assert placed == place(usable, partitions, replication_factor, JavaRandom(seed))
    for replicas in placed:
        assert len(set(replicas)) == replication_factor
        assert not usable[replicas[0]].fenced
