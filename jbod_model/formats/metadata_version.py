"""What each metadata.version allows, and the record versions it writes (R-FEAT-1).

Source: Kafka's ``server.common.MetadataVersion``.
"""

from __future__ import annotations

from collections.abc import Mapping

METADATA_VERSION = "metadata.version"
ELR_FEATURE = "eligible.leader.replicas.version"
KRAFT_VERSION = "kraft.version"

LEVELS: Mapping[str, int] = {
    "3.3-IV3": 7,
    "3.4-IV0": 8,
    "3.5-IV0": 9,
    "3.5-IV1": 10,
    "3.5-IV2": 11,
    "3.6-IV0": 12,
    "3.6-IV1": 13,
    "3.6-IV2": 14,
    "3.7-IV0": 15,
    "3.7-IV1": 16,
    "3.7-IV2": 17,
    "3.7-IV3": 18,
    "3.7-IV4": 19,
    "3.8-IV0": 20,
    "3.9-IV0": 21,
    "4.0-IV0": 22,
    "4.0-IV1": 23,
    "4.0-IV2": 24,
    "4.0-IV3": 25,
    "4.1-IV0": 26,
    "4.1-IV1": 27,
    "4.2-IV0": 28,
    "4.2-IV1": 29,
    "4.3-IV0": 30,
    "4.4-IV0": 31,
    "4.4-IV1": 32,
    "4.4-IV2": 33,
    "4.5-IV0": 34,
}
"""The feature level of each metadata.version that Kafka 4.4.0 names; 4.5-IV0 is not stable there."""

LEVEL_NAMES: Mapping[int, str] = {level: name for name, level in LEVELS.items()}
"""Feature level -> metadata.version."""


def level_text(level: int) -> str:
    """``27 (4.1-IV1)``; the number alone if Kafka 4.4.0 names no such level, ``not set`` for -1."""
    name = LEVEL_NAMES.get(level)
    return f"{level} ({name})" if name else str(level) if level >= 0 else "not set"


STABLE = LEVELS["4.4-IV2"]
"""The highest stable level: the content of a log with this level is known."""

FEATURE_LEVELS: Mapping[str, Mapping[int, int]] = {
    "transaction.version": {2: LEVELS["4.0-IV2"]},
    "group.version": {1: LEVELS["4.0-IV0"]},
    ELR_FEATURE: {1: LEVELS["4.1-IV0"]},
    "share.version": {1: LEVELS["4.2-IV0"], 2: LEVELS["4.4-IV0"]},
    "streams.version": {1: LEVELS["4.2-IV1"]},
}
"""Feature -> its level -> the metadata.version from which a release sets it (``Feature.defaultLevel``, 4.4.0).

kraft.version is not in it, because it is a decision about the quorum.
"""

CHANGES_METADATA = frozenset({7, 8, 11, 13, 14, 15, 17, 23, 30, 32, 33})
"""Levels that introduced records or fields; a downgrade across one would lose them (R-FEAT-3)."""

_MIGRATION = LEVELS["3.4-IV0"]
_NO_BUMP_ON_SHRINK = LEVELS["3.6-IV0"]
_CONTROLLER_REGISTRATION = LEVELS["3.7-IV0"]
_DIRECTORIES = LEVELS["3.7-IV2"]
_ELR_RECORDS = LEVELS["4.0-IV1"]
_CORDONS = LEVELS["4.3-IV0"]
_CONTROLLER_UNREGISTRATION = LEVELS["4.4-IV2"]


def directories_supported(level: int) -> bool:
    """Whether registrations and partitions carry directories."""
    return level >= _DIRECTORIES


def controllers_register(level: int) -> bool:
    """Whether controllers register their features."""
    return level >= _CONTROLLER_REGISTRATION


def cordons_supported(level: int) -> bool:
    """Whether registrations carry cordoned directories (KIP-1066)."""
    return level >= _CORDONS


def controllers_unregister(level: int) -> bool:
    """Whether controllers can be unregistered."""
    return level >= _CONTROLLER_UNREGISTRATION


def epoch_bump_on_isr_shrink(level: int) -> bool:
    """Whether brokers of this level need a new leader epoch when the in-sync set shrinks (KAFKA-15021)."""
    return level < _NO_BUMP_ON_SHRINK


def partition_record_version(level: int) -> int:
    """The version of PartitionRecord and PartitionChangeRecord."""
    if level >= _ELR_RECORDS:
        return 2
    return 1 if level >= _DIRECTORIES else 0


def register_broker_record_version(level: int) -> int:
    """The version of RegisterBrokerRecord."""
    if level >= _CORDONS:
        return 4
    if level >= _DIRECTORIES:
        return 3
    return 2 if level >= _MIGRATION else 1
