"""Control records: the records of Raft itself, in separate batches (docs/spec/formats.md).

Source: Kafka's ``common.record.ControlRecordUtils`` and the schemas in ``common/message``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jbod_model.formats.records import Struct
from jbod_model.ids import ZERO, Uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRecord(Struct):
    """The value of a control record; ``version`` is also the version of its schema."""

    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Voter(Struct):
    """A voter in the record of a new leader."""

    voter_id: int = 0
    voter_directory_id: Uuid = ZERO


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChangeMessage(ControlRecord):
    """The first record of every epoch."""

    leader_id: int = 0
    voters: tuple[Voter, ...] = ()
    granting_voters: tuple[Voter, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotHeaderRecord(ControlRecord):
    """The first record of every snapshot."""

    last_contained_log_timestamp: int = 0
    """Milliseconds since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFooterRecord(ControlRecord):
    """The last record of every complete snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KRaftVersionRecord(ControlRecord):
    """The level of kraft.version: 1 for a quorum whose voters may change (KIP-853)."""

    k_raft_version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint(Struct):
    """A listener of a voter."""

    name: str = ""
    host: str = ""
    port: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KRaftVersionFeature(Struct):
    """The levels of kraft.version that a voter supports."""

    min_supported_version: int = 0
    max_supported_version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumVoter(Struct):
    """A voter with the id of its metadata directory. Replica assignments never name this id."""

    voter_id: int = 0
    voter_directory_id: Uuid = ZERO
    endpoints: tuple[Endpoint, ...] = ()
    k_raft_version_feature: KRaftVersionFeature = KRaftVersionFeature()


@dataclass(frozen=True, slots=True, kw_only=True)
class VotersRecord(ControlRecord):
    """All voters of the quorum."""

    voters: tuple[QuorumVoter, ...] = ()


CONTROL_TYPES: Mapping[int, type[ControlRecord]] = {
    2: LeaderChangeMessage,
    3: SnapshotHeaderRecord,
    4: SnapshotFooterRecord,
    5: KRaftVersionRecord,
    6: VotersRecord,
}
"""The class of each control type. Types 0 and 1 end a producer's transaction and do not occur in this log
(R-FMT-19)."""

CONTROL_TYPE_NAMES: Mapping[int, str] = {
    0: "ABORT",
    1: "COMMIT",
    2: "LEADER_CHANGE",
    3: "SNAPSHOT_HEADER",
    4: "SNAPSHOT_FOOTER",
    5: "KRAFT_VERSION",
    6: "KRAFT_VOTERS",
}
"""The names of control types in Kafka's ``ControlRecordType``."""

CONTROL_TYPE_OF: Mapping[type[ControlRecord], int] = {record: number for number, record in CONTROL_TYPES.items()}

DUMP_NAMES: Mapping[type[ControlRecord], str] = {
    LeaderChangeMessage: "LeaderChange",
    SnapshotHeaderRecord: "SnapshotHeader",
    SnapshotFooterRecord: "SnapshotFooter",
    KRaftVersionRecord: "KRaftVersion",
    VotersRecord: "KRaftVoters",
}
"""The names of control records in the output of ``kafka-dump-log``."""
