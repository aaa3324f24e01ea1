"""The named profiles, and the differences between releases of Kafka at the same metadata.version.

See docs/spec/controller.md. Source: the controller classes of Kafka 4.0.2, 4.1.2, 4.2.0, 4.3.1 and 4.4.0.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from jbod_model.profiles.rules import (
    DRAFT_BROKER,
    DRAFT_RULES,
    KAFKA_BROKER,
    KAFKA_RULES,
    KIP858_BROKER,
    KIP858_RULES,
    Profile,
    Quirk,
)

KAFKA = Profile(
    name="kafka",
    absent_directories="migrating",
    empty_log_dirs_change="ignore",
    logical_rewrites=False,
    derives_offline_flag=False,
    offline_rule="kafka",
    controller=KAFKA_RULES,
    broker=KAFKA_BROKER,
)
"""The rules of Kafka 4.1.2 to 4.4.0."""

KIP858 = Profile(
    name="kip858",
    absent_directories="unassigned",
    empty_log_dirs_change="ignore",
    logical_rewrites=False,
    derives_offline_flag=False,
    offline_rule="kip858",
    controller=KIP858_RULES,
    broker=KIP858_BROKER,
)
"""The rules of the accepted KIP-858, read literally."""

DRAFT = Profile(
    name="draft",
    absent_directories="unassigned",
    empty_log_dirs_change="apply",
    logical_rewrites=True,
    derives_offline_flag=True,
    offline_rule="draft",
    controller=DRAFT_RULES,
    broker=DRAFT_BROKER,
)
"""The rules of earlier drafts of KIP-858: registrations with an offline flag, rewrites without records."""


class Release(NamedTuple):
    """A release of Kafka. Its patch releases do not differ in what this model covers."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


OLDEST = Release(4, 0)
"""The oldest release that jbod distinguishes. An older controller counts as one of this release."""
REFERENCE = Release(4, 1)
"""The release of simulated clusters, of recorded operations that name none, and of controllers that are unknown."""
NEWEST = Release(4, 4)
"""The newest known release. A newer controller counts as one of this release."""

REPAIRED_IN: Mapping[Quirk, Release] = {
    Quirk.FENCED_LAST_LEADER: Release(4, 1),
    Quirk.ELR_WIPE: Release(4, 3),
    Quirk.CORDONED_ASSIGNMENT: Release(4, 4),
    Quirk.UNBOUNDED_GROWTH: Release(4, 4),
    Quirk.PARTITION_COUNT_OVERFLOW: Release(4, 4),
}
"""The first release without the flaw. A flaw that is not listed is in all releases (R-RELEASE-2)."""

ADDED_SUFFICE = Release(4, 3)
"""The first release in which a reassignment is complete once all added replicas are in sync (R-RELEASE-4)."""

LEADERLESS_COUNTS = Release(4, 1)
"""The first release that records the last known leader when the leader goes, not when the in-sync set empties
(R-RELEASE-5). In fact its first patch release, 4.1.1."""

_SINCE: Mapping[int, Release] = {27: Release(4, 1), 28: Release(4, 2), 30: Release(4, 3), 32: Release(4, 4)}
"""The lowest level that a controller supports from a release on. Each release also knows the first level of the next
one, which is not stable there: 4.3 supports level 31, 4.4-IV0."""

_UNTIL_4_0 = {
    "metadata.version": (7, 26),
    "kraft.version": (0, 1),
    "transaction.version": (0, 2),
    "group.version": (0, 1),
    "eligible.leader.replicas.version": (0, 1),
}
_UNTIL_4_1 = {**_UNTIL_4_0, "metadata.version": (7, 29), "share.version": (0, 1), "streams.version": (0, 1)}

SUPPORTED_FEATURES: Mapping[Release, Mapping[str, tuple[int, int]]] = {
    Release(4, 0): _UNTIL_4_0,
    Release(4, 1): _UNTIL_4_1,
    Release(4, 2): {**_UNTIL_4_1, "metadata.version": (7, 30)},
    Release(4, 3): {**_UNTIL_4_1, "metadata.version": (7, 31)},
    Release(4, 4): {**_UNTIL_4_1, "metadata.version": (7, 34), "share.version": (0, 2)},
}
"""(lowest, highest) level of each feature, by release, of a controller that admits unreleased levels."""


def release_of(level: int) -> Release:
    """The release of a node whose highest metadata.version is ``level`` (R-RELEASE-1)."""
    return max((release for since, release in _SINCE.items() if level >= since), default=OLDEST)


@functools.cache
def as_released(profile: Profile, release: Release) -> Profile:
    """``profile`` without the flaws that ``release`` has repaired, and with its rules for reassignments and last
    known leaders (R-RELEASE-2, R-RELEASE-4, R-RELEASE-5)."""
    rules = profile.controller
    repaired = [quirk for quirk, since in REPAIRED_IN.items() if release >= since]
    if repaired:
        rules = rules.without(*repaired)
    if release >= ADDED_SUFFICE:
        rules = replace(rules, reassignment_completion="added in sync")
    if release < LEADERLESS_COUNTS:
        rules = replace(rules, last_known_leader="empty in-sync set")
    return profile if rules is profile.controller else replace(profile, controller=rules)
