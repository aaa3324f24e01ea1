import base64
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jbod_model import ids
from jbod_model.ids import KAFKA_IDS, KIP858_IDS, Uuid

SIGNED = st.integers(-(2**63), 2**63 - 1)
UUIDS = st.builds(Uuid, SIGNED, SIGNED)


@given(UUIDS)
def test_uuid_text_and_bytes_come_back(uuid: Uuid) -> None:
    """R-ID-1."""
    assert Uuid.parse(str(uuid)) == uuid
    assert Uuid.from_bytes(uuid.bytes) == uuid
    assert len(str(uuid)) == 22
    assert base64.urlsafe_b64decode(str(uuid) + "==") == uuid.bytes


@pytest.mark.parametrize("text", ["", "AAAA", "A" * 23, "A" * 25, "*" * 22, "AAAAAAAAAAAAAAAAAAAA+/", "é" * 22])
def test_uuid_of_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Uuid.parse(text)


def test_uuid_order_is_signed() -> None:
    assert sorted([Uuid(1, 0), Uuid(0, -1), Uuid(-1, 5), Uuid(0, 1)]) == [
        Uuid(-1, 5),
        Uuid(0, -1),
        Uuid(0, 1),
        Uuid(1, 0),
    ]


def test_id_tables_are_permuted_between_kafka_and_the_page() -> None:
    """R-ID-4."""
    assert [str(u) for u in (KAFKA_IDS.migrating, KAFKA_IDS.unassigned, KAFKA_IDS.lost)] == [
        "AAAAAAAAAAAAAAAAAAAAAA",
        "AAAAAAAAAAAAAAAAAAAAAQ",
        "AAAAAAAAAAAAAAAAAAAAAg",
    ]
    assert (KIP858_IDS.unassigned, KIP858_IDS.lost, KIP858_IDS.migrating) == (Uuid(0, 0), Uuid(0, 1), Uuid(0, 2))


@example(Uuid(0, 99))
@example(Uuid(0, 100))
@example(Uuid(0, -(2**63)))
@example(Uuid(-1, 0))
@given(UUIDS)
def test_reserved_is_the_first_hundred_by_signed_comparison(uuid: Uuid) -> None:
    """R-ID-2."""
    assert ids.reserved(uuid) == (uuid.msb == 0 and uuid.lsb < 100)


@given(st.integers())
def test_random_id_is_a_version_4_uuid_and_not_reserved(seed: int) -> None:
    """R-ID-3."""
    drawn = ids.random(random.Random(seed))
    assert not ids.reserved(drawn)
    assert not str(drawn).startswith("-")
    assert drawn.bytes[6] >> 4 == 4
    assert drawn.bytes[8] >> 6 == 2


def test_kind_of_ids() -> None:
    assert [KAFKA_IDS.kind(Uuid(0, n)) for n in range(4)] == ["migrating", "unassigned", "lost", "assigned"]
