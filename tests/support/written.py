"""A small log, snapshot and bootstrap file of our own writer; Kafka's dump of them is a golden file."""

from __future__ import annotations

import math
from pathlib import Path

from jbod_model.formats import records as r
from jbod_model.formats.control_records import Endpoint, KRaftVersionFeature, LeaderChangeMessage, QuorumVoter, Voter
from jbod_model.formats.log import LogWriter, write_bootstrap, write_snapshot
from jbod_model.formats.records import Record, VersionedRecord
from jbod_model.ids import KAFKA_IDS, Uuid

TIME = 1_700_000_000_000

TOPIC = Uuid(1, 1)
ID = Uuid(0x1122334455667788, -2)

EVERY_TYPE: tuple[tuple[Record, int], ...] = (
    (r.BeginTransactionRecord(name="all"), 0),
    (r.FeatureLevelRecord(name="metadata.version", feature_level=27), 0),
    (
        r.RegisterBrokerRecord(
            broker_id=1,
            incarnation_id=ID,
            broker_epoch=7,
            end_points=(r.BrokerEndpoint(name="PLAINTEXT", host="höst", port=65535, security_protocol=0),),
            features=(r.BrokerFeature(name="f", min_supported_version=0, max_supported_version=3),),
            rack=None,
            log_dirs=(ID, Uuid(5, 5)),
        ),
        3,
    ),
    (r.RegisterBrokerRecord(broker_id=2, rack="r", is_migrating_zk_broker=True), 2),
    (r.RegisterBrokerRecord(broker_id=3, in_controlled_shutdown=True), 1),
    (r.RegisterBrokerRecord(broker_id=4, fenced=False), 0),
    (r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=-1), 0),
    (r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, in_controlled_shutdown=1), 1),
    (r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, log_dirs=(ID,)), 2),
    (r.FenceBrokerRecord(id=4), 0),
    (r.UnfenceBrokerRecord(id=4), 0),
    (r.UnregisterBrokerRecord(broker_id=4), 0),
    (r.TopicRecord(name="t", topic_id=TOPIC), 0),
    (r.PartitionRecord(topic_id=TOPIC, partition_id=0, replicas=(1, 2), isr=(1,), leader_recovery_state=1), 0),
    (r.PartitionRecord(topic_id=TOPIC, partition_id=1, replicas=(1,), isr=(1,), directories=(KAFKA_IDS.lost,)), 1),
    (r.PartitionRecord(topic_id=TOPIC, partition_id=2, replicas=(1,), last_known_elr=(1,)), 2),
    (r.PartitionChangeRecord(topic_id=TOPIC, partition_id=0, leader=-1, isr=()), 0),
    (r.PartitionChangeRecord(topic_id=TOPIC, partition_id=1, directories=(ID,)), 1),
    (r.PartitionChangeRecord(topic_id=TOPIC, partition_id=2, eligible_leader_replicas=(), last_known_elr=(1,)), 2),
    (r.ConfigRecord(resource_type=2, resource_name="t", name="k", value="v"), 0),
    (r.ConfigRecord(resource_type=2, resource_name="t", name="k", value=None), 0),
    (r.ClearElrRecord(topic_name="t"), 0),
    (r.RemoveTopicRecord(topic_id=TOPIC), 0),
    (r.DelegationTokenRecord(owner="o", requester="q", renewers=("a", "b"), issue_timestamp=1, token_id="x"), 0),
    (r.RemoveDelegationTokenRecord(token_id="x"), 0),
    (r.UserScramCredentialRecord(name="u", mechanism=1, salt=b"\0\xff", stored_key=b"k", iterations=4096), 0),
    (r.RemoveUserScramCredentialRecord(name="u", mechanism=1), 0),
    (r.ClientQuotaRecord(entity=(r.EntityData(entity_type="user", entity_name=None),), key="q", value=1.5), 0),
    (r.ClientQuotaRecord(key="q", value=math.nan, remove=True), 0),
    (r.ProducerIdsRecord(broker_id=1, next_producer_id=1000), 0),
    (r.AccessControlEntryRecord(id=ID, resource_type=2, resource_name="t", principal="User:a", host="*"), 0),
    (r.RemoveAccessControlEntryRecord(id=ID), 0),
    (r.ZkMigrationStateRecord(zk_migration_state=3), 0),
    (
        r.RegisterControllerRecord(
            controller_id=100,
            end_points=(r.ControllerEndpoint(name="C", host="h", port=1),),
            features=(r.ControllerFeature(name="f", max_supported_version=2),),
        ),
        0,
    ),
    (r.NoOpRecord(), 0),
    (r.AbortTransactionRecord(reason="enough"), 0),
    (r.BeginTransactionRecord(), 0),
    (r.EndTransactionRecord(), 0),
)


def segment() -> LogWriter:
    """A leader change, and a batch with every record type."""
    writer = LogWriter()
    voters = (Voter(voter_id=100),)
    leader = LeaderChangeMessage(leader_id=100, voters=voters, granting_voters=voters)
    writer.append([leader], epoch=1, timestamp=TIME)
    writer.append([VersionedRecord(record, version) for record, version in EVERY_TYPE], epoch=1, timestamp=TIME)
    return writer


def write_files(directory: Path) -> tuple[Path, ...]:
    """Segment, snapshot and bootstrap file."""
    features = [VersionedRecord(r.FeatureLevelRecord(name="metadata.version", feature_level=27), 0)]
    voter = QuorumVoter(
        voter_id=8,
        voter_directory_id=ID,
        endpoints=(Endpoint(name="CONTROLLER", host="localhost", port=19093),),
        k_raft_version_feature=KRaftVersionFeature(max_supported_version=1),
    )
    return (
        segment().write(directory),
        write_snapshot(directory, features, end_offset=42, epoch=3, timestamp=TIME, voters=[voter]),
        write_bootstrap(directory, features, timestamp=TIME),
    )
