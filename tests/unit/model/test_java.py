"""Java's random numbers and hash tables, against values that a JVM printed (R-JAVA-1, R-JAVA-2)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jbod_model.java import JavaRandom, hash_order, int_hash, string_hash, table_for_copy


def test_random_with_a_small_bound_gives_what_java_gives() -> None:
    random = JavaRandom(42)
    assert [random.next_int(10) for _ in range(5)] == [0, 3, 8, 4, 0]


def test_random_with_a_negative_seed_and_mixed_bounds_gives_what_java_gives() -> None:
    """1073741825 redraws about half of the numbers, 16 takes the high bits."""
    random = JavaRandom(-7)
    drawn = [(random.next_int(16), random.next_int(1 << 30 | 1)) for _ in range(4)]
    assert drawn == [(4, 314447087), (13, 677675436), (1, 425474944), (7, 370061409)]


def test_random_shuffles_as_java_does() -> None:
    items = list(range(10))
    JavaRandom(42).shuffle(items)
    assert items == [4, 6, 2, 1, 7, 9, 8, 5, 3, 0]


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 20))
def test_random_resumed_from_its_state_gives_the_same_numbers(seed: int, drawn: int) -> None:
    first = JavaRandom(seed)
    for _ in range(drawn):
        first.next_int(7)
    second = JavaRandom.resume(first.state)
    assert [first.next_int(1000) for _ in range(5)] == [second.next_int(1000) for _ in range(5)]


@pytest.mark.parametrize("bound", [0, -1, 1 << 31])
def test_random_with_an_impossible_bound_raises(bound: int) -> None:
    with pytest.raises(ValueError, match="bound"):
        JavaRandom(1).next_int(bound)


def test_string_hash_is_javas() -> None:
    assert string_hash("hello") == 99162322
    assert string_hash("") == 0


def test_hash_order_of_numbers_is_that_of_a_copied_hash_set() -> None:
    numbers = [33, 17, 1, 100, 65, 7, 16, 5, 2000000, -1, 48, 32]
    expected = [16, -1, 48, 32, 33, 17, 1, 65, 100, 5, 7, 2000000]
    assert hash_order(numbers, int_hash, table_for_copy(7)) == expected


def test_hash_order_of_names_is_that_of_a_hash_map() -> None:
    names = (
        "min.insync.replicas unclean.leader.election.enable retention.ms a b segment.bytes cleanup.policy é "
        "rack1 rack2 rack-10 us-east-1a us-east-1b"
    ).split()
    assert hash_order(names, string_hash) == [
        *("a", "b", "rack-10", "é", "min.insync.replicas", "unclean.leader.election.enable", "rack1", "rack2"),
        *("cleanup.policy", "us-east-1a", "us-east-1b", "retention.ms", "segment.bytes"),
    ]


@given(st.lists(st.integers(0, 15), unique=True))
def test_hash_order_of_small_ids_is_ascending(ids: list[int]) -> None:
    assert hash_order(ids, int_hash) == sorted(ids)
