import dataclasses

import pytest

from jbod_model.formats import records
from jbod_model.formats.records import PartitionChangeRecord, Record
from jbod_model.formats.schema import API_KEY_OF, API_KEYS, TYPE_NAMES, TYPE_OF_NAME


def test_records_know_their_kafka_names() -> None:
    """R-REC-1."""
    assert len(API_KEYS) == 27
    assert API_KEY_OF[PartitionChangeRecord] == 5
    assert TYPE_NAMES[PartitionChangeRecord] == "PARTITION_CHANGE_RECORD"
    assert TYPE_OF_NAME["NO_OP_RECORD"] is records.NoOpRecord


@pytest.mark.parametrize("record", API_KEYS.values())
def test_record_with_nothing_said_has_a_default_for_every_field(record: type[Record]) -> None:
    """R-REC-2."""
    made = record()
    assert made == record()
    assert made.unknown_tags == ()
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.unknown_tags = ((1, b""),)  # type: ignore[misc]


def test_change_records_default_to_no_change() -> None:
    change = PartitionChangeRecord()
    assert (change.leader, change.leader_recovery_state, change.directories) == (-2, -1, None)
    assert records.RegisterBrokerRecord().fenced is True
