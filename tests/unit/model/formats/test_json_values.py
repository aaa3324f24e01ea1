"""Kafka's JSON form of records and requests (R-JSON-1)."""

from typing import Any

import pytest

from jbod_model.formats.json_values import JsonMismatch, camel_case, read, write
from jbod_model.formats.records import ConfigRecord, PartitionChangeRecord, RegisterBrokerRecord
from jbod_model.formats.requests import AssignReplicasToDirsRequest
from jbod_model.formats.responses import CreatePartitionsTopicResult, KafkaError
from jbod_model.ids import Uuid


def test_camel_case_matches_the_schemas() -> None:
    """R-CTL-4."""
    names = ["last_known_elr", "is_migrating_zk_broker", "want_shut_down", "id"]
    assert [camel_case(name) for name in names] == ["lastKnownElr", "isMigratingZkBroker", "wantShutDown", "id"]


def test_read_leaves_missing_fields_at_their_defaults() -> None:
    record = read(PartitionChangeRecord, {"partitionId": 3, "topicId": "AAAAAAAAAAAAAAAAAAAAZA", "isr": [1, 2]})
    assert record == PartitionChangeRecord(partition_id=3, topic_id=Uuid(0, 100), isr=(1, 2))


def test_read_tells_null_from_an_empty_list() -> None:
    assert read(PartitionChangeRecord, {"eligibleLeaderReplicas": []}).eligible_leader_replicas == ()
    assert read(PartitionChangeRecord, {"eligibleLeaderReplicas": None}).eligible_leader_replicas is None
    assert read(ConfigRecord, {"value": None}).value is None


@pytest.mark.parametrize("cls", [RegisterBrokerRecord, PartitionChangeRecord, ConfigRecord])
def test_write_then_read_is_the_identity(cls: type[Any]) -> None:
    assert read(cls, write(cls())) == cls()


def test_write_then_read_of_nested_lists_is_the_identity() -> None:
    value = {
        "brokerId": 1,
        "brokerEpoch": 9,
        "directories": [
            {
                "id": "AAAAAAAAAAAAAAAAAAAAZA",
                "topics": [{"topicId": "AAAAAAAAAAAAAAAAAAAAZQ", "partitions": [{"partitionIndex": 4}]}],
            }
        ],
    }
    assert write(read(AssignReplicasToDirsRequest, value)) == value


def test_write_of_an_error_code_is_a_plain_number() -> None:
    written = write(CreatePartitionsTopicResult(name="t", error_code=KafkaError.INVALID_PARTITIONS))
    assert type(written["errorCode"]) is int


@pytest.mark.parametrize(
    ("cls", "value", "problem"),
    [
        (ConfigRecord, [], "an object"),
        (ConfigRecord, {"nmae": "x"}, "no field nmae"),
        (ConfigRecord, {"name": 1}, "str is needed"),
        (ConfigRecord, {"resourceType": True}, "int is needed"),
        (PartitionChangeRecord, {"isr": 1}, "a list"),
        (PartitionChangeRecord, {"isr": ["1"]}, "int is needed"),
        (PartitionChangeRecord, {"topicId": "short"}, "topicId"),
        (PartitionChangeRecord, {"topicId": 5}, "a text"),
        (AssignReplicasToDirsRequest, {}, "broker_id"),
    ],
)
def test_read_of_another_form_names_the_field(cls: type[Any], value: Any, problem: str) -> None:
    with pytest.raises(JsonMismatch, match=problem):
        read(cls, value)
