"""The layout of every record version: one table, read once (R-FMT-3).

A line that is not indented starts a type: its api key if it is a record of the metadata log, its name, its versions
(a nested struct has those of its record). An indented line is a field: name, type, versions if not all, and ``#n`` if
it is tagged. ``[]`` means an array, ``?`` that the value may be null.

Source: the JSON schemas of Kafka 4.4.0; ``make kafka-schema`` compares with those of another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from jbod_model.formats import control_records, records
from jbod_model.formats.records import Record, Struct

TABLE = """
BrokerEndpoint
    name string
    host string
    port uint16
    security_protocol int16
BrokerFeature
    name string
    min_supported_version int16
    max_supported_version int16
0 RegisterBrokerRecord 0-4
    broker_id int32
    is_migrating_zk_broker bool 2+
    incarnation_id uuid
    broker_epoch int64
    end_points []BrokerEndpoint
    features []BrokerFeature
    rack string?
    fenced bool
    in_controlled_shutdown bool 1+
    log_dirs []uuid 3+ #0
    cordoned_log_dirs []uuid? 4+ #1
1 UnregisterBrokerRecord 0
    broker_id int32
    broker_epoch int64
2 TopicRecord 0
    name string
    topic_id uuid
3 PartitionRecord 0-2
    partition_id int32
    topic_id uuid
    replicas []int32
    isr []int32
    removing_replicas []int32
    adding_replicas []int32
    leader int32
    leader_recovery_state int8 #0
    leader_epoch int32
    partition_epoch int32
    directories []uuid 1+
    eligible_leader_replicas []int32? 2+ #1
    last_known_elr []int32? 2+ #2
4 ConfigRecord 0
    resource_type int8
    resource_name string
    name string
    value string?
5 PartitionChangeRecord 0-2
    partition_id int32
    topic_id uuid
    isr []int32? #0
    leader int32 #1
    replicas []int32? #2
    removing_replicas []int32? #3
    adding_replicas []int32? #4
    leader_recovery_state int8 #5
    directories []uuid? 1+ #8
    eligible_leader_replicas []int32? 2+ #6
    last_known_elr []int32? 2+ #7
7 FenceBrokerRecord 0
    id int32
    epoch int64
8 UnfenceBrokerRecord 0
    id int32
    epoch int64
9 RemoveTopicRecord 0
    topic_id uuid
10 DelegationTokenRecord 0
    owner string
    requester string
    renewers []string
    issue_timestamp int64
    max_timestamp int64
    expiration_timestamp int64
    token_id string
11 UserScramCredentialRecord 0
    name string
    mechanism int8
    salt bytes
    stored_key bytes
    server_key bytes
    iterations int32
12 FeatureLevelRecord 0
    name string
    feature_level int16
EntityData
    entity_type string
    entity_name string?
14 ClientQuotaRecord 0
    entity []EntityData
    key string
    value float64
    remove bool
15 ProducerIdsRecord 0
    broker_id int32
    broker_epoch int64
    next_producer_id int64
17 BrokerRegistrationChangeRecord 0-3
    broker_id int32
    broker_epoch int64
    fenced int8 #0
    in_controlled_shutdown int8 1+ #1
    log_dirs []uuid 2+ #2
    cordoned_log_dirs []uuid? 3+ #3
18 AccessControlEntryRecord 0
    id uuid
    resource_type int8
    resource_name string
    pattern_type int8
    principal string
    host string
    operation int8
    permission_type int8
19 RemoveAccessControlEntryRecord 0
    id uuid
20 NoOpRecord 0
21 ZkMigrationStateRecord 0
    zk_migration_state int8
22 RemoveUserScramCredentialRecord 0
    name string
    mechanism int8
23 BeginTransactionRecord 0
    name string? #0
24 EndTransactionRecord 0
25 AbortTransactionRecord 0
    reason string? #0
26 RemoveDelegationTokenRecord 0
    token_id string
ControllerEndpoint
    name string
    host string
    port uint16
    security_protocol int16
ControllerFeature
    name string
    min_supported_version int16
    max_supported_version int16
27 RegisterControllerRecord 0
    controller_id int32
    incarnation_id uuid
    zk_migration_ready bool
    end_points []ControllerEndpoint
    features []ControllerFeature
28 ClearElrRecord 0
    topic_name string
29 UnregisterControllerRecord 0
    controller_id int32
"""

CONTROL_TABLE = """
Voter
    voter_id int32
    voter_directory_id uuid 1+
LeaderChangeMessage 0-1
    version int16
    leader_id int32
    voters []Voter
    granting_voters []Voter
SnapshotHeaderRecord 0
    version int16
    last_contained_log_timestamp int64
SnapshotFooterRecord 0
    version int16
KRaftVersionRecord 0
    version int16
    k_raft_version int16
Endpoint
    name string
    host string
    port uint16
KRaftVersionFeature
    min_supported_version int16
    max_supported_version int16
QuorumVoter
    voter_id int32
    voter_directory_id uuid
    endpoints []Endpoint
    k_raft_version_feature KRaftVersionFeature
VotersRecord 0
    version int16
    voters []QuorumVoter
"""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a type."""

    name: str
    type: str
    """The type; of the element if the field is an array."""
    array: bool
    nullable: bool
    since: int
    """The first version that has the field. No field was ever removed."""
    tag: int | None


@dataclass(frozen=True, slots=True)
class Schema:
    """The fields of a type, in the order of the schema, and its newest version (of a nested struct: 32767)."""

    cls: type[Struct]
    fields: tuple[Field, ...]
    max_version: int

    def of(self, version: int) -> tuple[Field, ...]:
        """The fields of a version."""
        return tuple(field for field in self.fields if field.since <= version)


def _field(line: str) -> Field:
    name, kind, *rest = line.split()
    array, nullable = kind.startswith("[]"), kind.endswith("?")
    since = next((int(word.removesuffix("+")) for word in rest if word.endswith("+")), 0)
    tag = next((int(word[1:]) for word in rest if word.startswith("#")), None)
    return Field(name, kind.removeprefix("[]").removesuffix("?"), array, nullable, since, tag)


def _read(table: str, module: object) -> dict[str, Schema]:
    schemas: dict[str, Schema] = {}
    blocks: list[tuple[list[str], list[Field]]] = []
    for line in table.strip().splitlines():
        if line.startswith(" "):
            blocks[-1][1].append(_field(line))
        else:
            blocks.append((line.split(), []))
    for head, fields in blocks:
        name = head[1] if head[0].isdigit() else head[0]
        newest = int(head[-1].rpartition("-")[2]) if len(head) > 1 else 32767
        schemas[name] = Schema(getattr(module, name), tuple(fields), newest)
    return schemas


SCHEMAS: Mapping[str, Schema] = _read(TABLE, records) | _read(CONTROL_TABLE, control_records)
"""The schemas by type name, including nested structs."""

API_KEYS: Mapping[int, type[Record]] = {
    int(api_key): getattr(records, name) for api_key, name in re.findall(r"^(\d+) (\w+)", TABLE, re.MULTILINE)
}
"""The class of each api key (R-REC-1). 6, 13 and 16 are not used."""

API_KEY_OF: Mapping[type[Record], int] = {record: api_key for api_key, record in API_KEYS.items()}


def _upper_snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper()


TYPE_NAMES: Mapping[type[Record], str] = {record: _upper_snake(record.__name__) for record in API_KEYS.values()}
"""``PartitionChangeRecord`` -> ``"PARTITION_CHANGE_RECORD"``, as Kafka's tools print it."""

TYPE_OF_NAME: Mapping[str, type[Record]] = {name: record for record, name in TYPE_NAMES.items()}
