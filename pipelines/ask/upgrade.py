"""Whether a cluster is ready for a feature level: who supports it, who blocks it, and how to clear the way.

Kafka raises a level only where every registered node supports it, fenced brokers and forgotten controllers included,
and where every voter is registered (``FeatureControlManager.reasonNotSupported``). A node that does not name a feature
supports level 0 of it. It changes no metadata.version while a migration from ZooKeeper is in progress.

The advice about a node has a command that can be run without changes. ``kafka-cluster.sh unregister`` unregisters
brokers, and ``kafka-metadata-quorum.sh remove-controller`` removes voters of a dynamic quorum (3.9 and later).
``kafka-cluster.sh unregister-controller`` and ``remove-controller --unregister`` came with 4.4 (KIP-1312), and the
controllers accept them from metadata.version 4.4-IV2 on (R-UNREG-3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache

from jbod_model.errors import UsageError
from jbod_model.formats.metadata_version import (
    FEATURE_LEVELS,
    KRAFT_VERSION,
    LEVEL_NAMES,
    LEVELS,
    METADATA_VERSION,
    STABLE,
    controllers_register,
    controllers_unregister,
)
from jbod_model.loss.fate import OperatorAction
from pipelines.ask.advice import few
from pipelines.ask.advice_last_copies import save_before_start
from pipelines.ask.configs import features, in_zookeeper, migrates
from pipelines.ask.json_values import DatedAnswer
from pipelines.ask.last_copies import LastCopies
from pipelines.ask.lost_data import losses
from pipelines.ask.quorum import (
    ALIVE,
    GHOST,
    GHOST_AFTER,
    LEADER,
    OBSERVER,
    UNKNOWN,
    VOTER,
    Levels,
    Moment,
    Node,
    QuorumAnswer,
    quorum,
)
from pipelines.lake.reader import Lake


def broker_advice(
    node: Node, needed: str, who: QuorumAnswer, last: Sequence[str], kept: Sequence[str] = ()
) -> tuple[str, str | None]:
    """What to do about a broker that lacks a level, and the command, where one helps.

    ``last``: the partitions whose last complete copy an unregistration gives up (R-ACT-4). ``kept``: those of which its
    start truncates the only copy of lost writes (R-LOSS-11).
    """
    number = node.node_id
    install = f"start broker {number} with {needed} or later"
    if kept and node.state != ALIVE:
        return f"{save_before_start(number, kept).text}; after that {install}", None
    if node.state == ALIVE:
        return install, None
    if last:
        return f"{install}; do not unregister it: its disks have the last complete copies of {few(last)}", None
    command = f"kafka-cluster.sh unregister --id {number} --bootstrap-server {server(who)}"
    return f"{install}; if it never comes back, move its replicas to other brokers and unregister it", command


def controller_advice(
    node: Node, registered: bool, needed: str, who: QuorumAnswer, metadata_version: int
) -> tuple[str, str | None]:
    """What to do about a controller that lacks a level, and the command, where one helps."""
    number, to = node.node_id, server(who)
    install = f"start controller {number} with {needed} or later"
    if not registered:
        return f"start controller {number}, or see why it does not register: Kafka asks for all voters", None
    if node.state in (LEADER, OBSERVER, UNKNOWN):
        return install, None
    if node.state == GHOST:
        look = f"see that controller {number} does not run (kafka-metadata-quorum describe --replication)"
        if controllers_unregister(metadata_version):
            command = f"kafka-cluster.sh unregister-controller --id {number} --bootstrap-server {to}"
            return f"{look}, then unregister it with the tools of Kafka 4.4 or later", command
        # No release has a command for this: UnregisterController needs the very level that the ghost blocks.
        return (
            f"{look}; no command unregisters a controller below metadata.version 4.4-IV2: start one with node.id "
            f"{number} and {needed} or later, which registers in its place, and stop it once the level is raised",
            None,
        )
    voter = next((voter for voter in who.voters if voter.node_id == number), None)
    if voter is None or voter.directory_id is None or not who.kraft_version:
        gone = "if it is gone for good, start another with its node.id: the voters of this quorum are static"
        return f"{install}; {gone}", None
    command = (
        f"kafka-metadata-quorum.sh --bootstrap-server {to} remove-controller --controller-id {number} "
        f"--controller-directory-id {voter.directory_id}"
    )
    also = "" if controllers_unregister(metadata_version) else "; its registration stays, and is a ghost then"
    return f"{install}; if it is gone for good, remove it from the voters{also}", command + (
        " --unregister" if controllers_unregister(metadata_version) else ""
    )


def server(who: QuorumAnswer) -> str:
    """``host:port`` of a broker that runs."""
    for node in who.brokers:
        if node.state == ALIVE and node.endpoints:
            return node.endpoints[0].partition("://")[2]
    return "HOST:PORT"


BROKER, CONTROLLER, JBOD, MIGRATION = "broker", "controller", "jbod", "migration"
_DISABLED = Levels(0, 0)


@dataclass(frozen=True)
class Missing:
    """A level of a feature that a node does not support."""

    feature: str
    wanted: int
    supported: Levels | None
    """None if the node is not registered."""

    @property
    def finding(self) -> str:
        """In words."""
        wanted = named(self.feature, self.wanted)
        if self.supported is None:
            return f"is not registered, so it is unknown whether it supports {self.feature} {wanted}"
        if not self.supported.highest:
            return f"does not support {self.feature}"
        return f"supports {self.feature} up to {named(self.feature, self.supported.highest)}, not {wanted}"


@dataclass(frozen=True)
class Blocker:
    """A node that blocks feature levels, a migration from ZooKeeper, or this jbod, which could not read the records of
    these levels."""

    kind: str
    node_id: int | None
    """None for what is no node."""
    state: str
    state_since: Moment | None = None
    registered: Moment | None = None
    """The record with the levels that it supports."""
    heard: Moment | None = None
    missing: tuple[Missing, ...] = ()
    advice: str = ""
    command: str | None = None
    """A command that can be run without changes; None if no command helps."""

    @property
    def ghost(self) -> bool:
        """Whether only its registration is left, as far as the log shows."""
        return self.state == GHOST

    @property
    def finding(self) -> str:
        """Which node it is, and what it does not support."""
        if self.kind == MIGRATION:
            return "a migration from ZooKeeper is not finished: until it is, Kafka does not change the metadata.version"
        who = "this jbod" if self.kind == JBOD else f"{self.kind} {self.node_id} ({self.state})"
        return f"{who}: {'; '.join(missing_level.finding for missing_level in self.missing)}"


@dataclass(frozen=True)
class FeatureLevel:
    """A feature: its finalized level, and the level that it could be raised to."""

    feature: str
    finalized: int
    supported_by_all: int
    """The highest level that all nodes support."""
    wanted: int | None
    """What was asked about; without a question the next level that some node supports and not all."""
    blocked_by: tuple[str, ...]
    """``broker 3``, ``controller 102``."""


@dataclass(frozen=True)
class UpgradeCheck(DatedAnswer):
    """What blocks an upgrade at an offset."""

    to: str | None
    """What was asked about: a metadata.version or ``FEATURE=LEVEL``; None for the next levels."""
    ready: bool
    controllers_known: bool
    """Below 3.7-IV0 controllers do not register: the log cannot tell what they support."""
    features: tuple[FeatureLevel, ...]
    blockers: tuple[Blocker, ...]
    ready_nodes: tuple[str, ...]
    command: str | None
    """The command that raises the levels once nothing blocks them; None if they are reached already."""


@dataclass(frozen=True)
class _Member:
    """A node that Kafka checks before it raises a level."""

    kind: str
    node: Node
    registered: bool = True

    @property
    def name(self) -> str:
        return f"{self.kind} {self.node.node_id}"

    def supports(self, feature: str) -> Levels:
        return self.node.features.get(feature, _DISABLED)

    def lacks(self, feature: str, level: int) -> bool:
        supported = self.supports(feature)
        return not self.registered or not supported.lowest <= level <= supported.highest


def upgrade_check(lake: Lake, to: str | None = None, ghost_after: timedelta = GHOST_AFTER) -> UpgradeCheck:
    """Whether the levels of release ``to`` can be finalized, or which are next, and who blocks them.

    ``to``: a release (``4.4``), a metadata.version (``4.4-IV2``), its level (``33``), or a level of another feature
    (``kraft.version=1``). UsageError if it is unknown, or lower than the finalized level.
    """
    who = quorum(lake, ghost_after)
    finalized = _finalized(lake, who)
    now = finalized.get(METADATA_VERSION, 0)
    members = _members(who, now)
    most = _highest(members)
    if to is None:
        wanted = _next_levels(members, finalized)
    else:
        wanted = most = _levels_of(to)
        target = METADATA_VERSION if METADATA_VERSION in wanted else next(iter(wanted))
        if wanted[target] < finalized.get(target, 0):
            raise UsageError(
                f"--to {to}: {target} is {named(target, finalized[target])} already: name a later release or level"
            )
    # A level that is finalized already needs no support.
    wanted = {feature: level for feature, level in wanted.items() if level > finalized.get(feature, 0)}
    blockers = _blockers(lake, members, wanted, most, who, now)
    at = tuple(
        FeatureLevel(
            feature=feature,
            finalized=finalized.get(feature, 0),
            supported_by_all=min(
                (member.supports(feature).highest for member in members if member.registered),
                default=finalized.get(feature, 0),
            ),
            wanted=wanted.get(feature),
            blocked_by=tuple(
                member.name for member in members if feature in wanted and member.lacks(feature, wanted[feature])
            ),
        )
        for feature in _order({*finalized, *wanted, *(name for member in members for name in member.node.features)})
    )
    raised = {feature_level.feature: feature_level.supported_by_all for feature_level in at} if to is None else wanted
    if raised.get(METADATA_VERSION, 0) > max(STABLE, now):
        blockers.append(_unreadable(raised[METADATA_VERSION]))
    if raised.get(METADATA_VERSION, 0) > now and migrates(lake):
        advice = (
            "restart the brokers that run in ZooKeeper mode under KRaft, then the controllers without "
            "zookeeper.metadata.migration.enable"
        )
        if in_zookeeper(lake):  # until then the controller registers no broker that runs under KRaft
            advice = (
                "restart every broker in ZooKeeper mode with zookeeper.metadata.migration.enable=true, and wait until "
                f"the topics are in the log; then {advice}"
            )
        # The first: Kafka 4.0 and later cannot run in ZooKeeper mode.
        blockers.insert(0, Blocker(MIGRATION, None, ALIVE, advice=advice))
    names = {name for feature_level in at for name in feature_level.blocked_by}
    level = most.get(METADATA_VERSION)
    return UpgradeCheck(
        offset=lake.offset,
        time=lake.time,
        to=to if not to or "=" in to or level is None else LEVEL_NAMES[level],
        ready=not blockers,
        controllers_known=controllers_register(now),
        features=at,
        blockers=tuple(blockers),
        ready_nodes=tuple(member.name for member in members if member.name not in names),
        command=_raise(at, None if to is None else wanted, "=" not in (to or ""), server(who)),
    )


def held_back(lake: Lake, ghost_after: timedelta = GHOST_AFTER) -> list[Blocker]:
    """Registered nodes that support lower levels of a feature than another node does, and so block its next level."""
    who = quorum(lake, ghost_after)
    finalized = _finalized(lake, who)
    members = [member for member in _members(who, finalized.get(METADATA_VERSION, 0)) if member.registered]
    wanted = _next_levels(members, finalized)
    return _blockers(lake, members, wanted, _highest(members), who, finalized.get(METADATA_VERSION, 0))


def level_of(text: str) -> int:
    """The metadata.version in ``--to``; for a release, its last one. UsageError if it is unknown."""
    if text in LEVELS:
        return LEVELS[text]
    if text.isascii() and text.isdigit() and int(text) in LEVEL_NAMES:
        return int(text)
    of_release = [
        level for name, level in LEVELS.items() if name.rpartition("-")[0] in (text, ".".join(text.split(".")[:2]))
    ]
    if of_release:
        return max(of_release)
    raise UsageError(
        f"--to {text}: no metadata.version that this jbod knows: name a release from 3.3 to 4.4, a metadata.version "
        f"(4.4-IV2) or its level, at most {max(LEVEL_NAMES)}; for a later release install a later jbod"
    )


def named(feature: str, level: int) -> str:
    """``4.4-IV2 (33)`` for a metadata.version, else the number."""
    name = LEVEL_NAMES.get(level) if feature == METADATA_VERSION else None
    return f"{name} ({level})" if name else str(level)


def _finalized(lake: Lake, who: QuorumAnswer) -> dict[str, int]:
    """Feature -> level; kraft.version is in a control record."""
    return features(lake) | ({KRAFT_VERSION: who.kraft_version} if who.kraft_version else {})


def _members(who: QuorumAnswer, metadata_version: int) -> list[_Member]:
    members = [_Member(BROKER, node) for node in who.brokers]
    if not controllers_register(metadata_version):
        return members
    members += [_Member(CONTROLLER, node) for node in who.controllers]
    registered = {node.node_id for node in who.controllers}
    for voter in who.voters:
        if voter.node_id not in registered:
            node = Node(voter.node_id, "", voter.endpoints, {}, voter.since, False, VOTER, voter.since)
            members.append(_Member(CONTROLLER, node, registered=False))
    return members


def _levels_of(to: str) -> dict[str, int]:
    """What a release sets: its metadata.version, and of every other feature its default. Or the one level asked for."""
    feature, given, level = to.partition("=")
    if given:
        if not (level.isascii() and level.isdigit()) or not feature:
            raise UsageError(f"--to {to}: write FEATURE=LEVEL, for instance {KRAFT_VERSION}=1")
        return {feature: int(level)}
    target = level_of(to)
    levels = {METADATA_VERSION: target} | {name: _set_at(name, target) for name in FEATURE_LEVELS}
    return {name: level for name, level in levels.items() if level}


def _highest(members: Iterable[_Member]) -> dict[str, int]:
    """Feature -> the highest level that any node supports."""
    highest: dict[str, int] = {}
    for member in members:
        for feature, levels in member.node.features.items():
            highest[feature] = max(levels.highest, highest.get(feature, 0))
    return highest


def _next_levels(members: Sequence[_Member], finalized: Mapping[str, int]) -> dict[str, int]:
    """For each feature of which only some nodes support a higher level: the first level that not all support."""
    wanted = {}
    for feature in {name for member in members for name in member.node.features}:
        highest = [member.supports(feature).highest for member in members if member.registered]
        if max(highest) > min(highest):
            wanted[feature] = max(min(highest), finalized.get(feature, 0)) + 1
    return wanted


def _order(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: (name != METADATA_VERSION, name))


def _blockers(
    lake: Lake,
    members: Iterable[_Member],
    wanted: Mapping[str, int],
    most: Mapping[str, int],
    who: QuorumAnswer,
    now: int,
) -> list[Blocker]:
    """``most``: the levels to be supported in the end, if ``wanted`` has only the next step."""

    @cache
    def last_copies() -> LastCopies:
        return losses(lake).last_copies

    blockers = []
    for member in members:
        missing = tuple(
            Missing(feature, wanted[feature], member.supports(feature) if member.registered else None)
            for feature in _order(wanted)
            if member.lacks(feature, wanted[feature])
        )
        if missing:
            needed = _needs(missing, most)
            if member.kind == BROKER:
                gone = OperatorAction(kind="unregister", broker_id=member.node.node_id)
                last = [] if member.node.state == ALIVE else last_copies().given_up(gone)
                kept = () if member.node.state == ALIVE else last_copies().truncated.get(member.node.node_id, ())
                advice, command = broker_advice(member.node, needed, who, last, kept)
            else:
                advice, command = controller_advice(member.node, member.registered, needed, who, now)
            registered = member.node.registered if member.registered else None
            node = member.node
            blockers.append(
                Blocker(
                    member.kind, node.node_id, node.state, node.since, registered, node.heard, missing, advice, command
                )
            )
    return blockers


def _needs(missing: Sequence[Missing], most: Mapping[str, int]) -> str:
    """The release of Kafka that supports the missing levels: ``Kafka 4.4``."""
    for missing_level in missing:
        level = most.get(missing_level.feature, missing_level.wanted)
        if missing_level.feature == METADATA_VERSION and level in LEVEL_NAMES:
            return f"Kafka {LEVEL_NAMES[level].partition('-')[0]}"
    return f"a Kafka that supports {missing[0].feature} {most.get(missing[0].feature, missing[0].wanted)}"


def _unreadable(level: int) -> Blocker:
    missing = Missing(METADATA_VERSION, level, Levels(min(LEVEL_NAMES), STABLE))
    advice = (
        f"install a jbod that knows metadata.version {named(METADATA_VERSION, level)} before the level is raised: "
        f"this one knows the records up to {named(METADATA_VERSION, STABLE)}"
    )
    return Blocker(JBOD, None, ALIVE, missing=(missing,), advice=advice)


_RELEASE_OPTION = LEVELS["4.0-IV0"]
"""The first metadata.version whose tools know --release-version: those of 3.9.1 do not (FeatureCommand)."""


def _raise(at: Sequence[FeatureLevel], wanted: Mapping[str, int] | None, release: bool, to: str) -> str | None:
    """The command that raises the requested levels; without a request, the levels that all nodes support and releases
    set."""
    upgrade = f"kafka-features.sh --bootstrap-server {to} upgrade"
    if wanted is not None:
        level = wanted.get(METADATA_VERSION, 0)
        if level in LEVEL_NAMES and release and level >= _RELEASE_OPTION:
            return f"{upgrade} --release-version {LEVEL_NAMES[level]}"
        options = [f"--feature {feature}={level}" for feature, level in wanted.items()]
        return f"{upgrade} {' '.join(options)}" if options else None
    supported = {feature_level.feature: feature_level.supported_by_all for feature_level in at}
    version = supported.get(METADATA_VERSION, 0)
    options = [
        f"--feature {feature_level.feature}={level}"
        for feature_level in at
        if (level := min(feature_level.supported_by_all, _set_at(feature_level.feature, version)))
        > feature_level.finalized
    ]
    return f"{upgrade} {' '.join(options)}" if options else None


def _set_at(feature: str, metadata_version: int) -> int:
    """The level that releases of a metadata.version set; 0 for a feature that they do not set."""
    if feature == METADATA_VERSION:
        return metadata_version
    return max(
        (level for level, since in FEATURE_LEVELS.get(feature, {}).items() if since <= metadata_version), default=0
    )
