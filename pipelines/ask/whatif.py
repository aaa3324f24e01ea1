"""The effects of a simultaneous failure of directories and brokers, partition by partition."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jbod_model.controller.cluster import MIN_ISR
from jbod_model.controller.partition_change import RECOVERING
from jbod_model.ids import Uuid
from jbod_model.loss.copies import Copy, Registration
from jbod_model.loss.fate import Fate, last_copies
from jbod_model.profiles import PROFILES, Profile
from jbod_model.replay.image import Image, Partition
from jbod_model.replay.offline import offline_replicas
from jbod_model.whatif import Failures, after
from pipelines.ask.configs import ConfigValues, MinIsr, is_true, min_isr, tiered_topics, unclean_elections
from pipelines.ask.json_values import DatedAnswer, NamedPartition, members
from pipelines.ask.loss import followed
from pipelines.ask.lost_data import AtRisk, Losses, complete_copies, losses, perhaps_offline, places_of
from pipelines.ask.restart import QuorumEffect, nodes, quorum_effect
from pipelines.ask.whatif_places import Already, Place, already, as_repaired, find_place, registrations, touched
from pipelines.lake.reader import Lake


@dataclass(frozen=True)
class LeaderChange(NamedPartition):
    """A partition that would get another leader, or lose something."""

    replicas: Sequence[int]
    leader: int
    leader_after: int
    """-1: nobody."""
    in_sync: int
    """Replicas in sync and online."""
    in_sync_after: int
    min_isr: int
    online_after: int
    """Replicas online, in sync or not, without those that may be in a directory which is not (R-ACT-1)."""
    all_offline: bool
    """Its last replica online would fail: if the disks are dead and no other copy exists, the data is gone."""
    unclean: bool
    """A leader lacks writes, the new one or one on the way: it was not in sync, or is empty (R-QUIRK-3)."""
    last_complete: bool = False
    """The last online replica with every acknowledged write would fail. Empty or incomplete replicas may be left."""
    tiered: bool = False
    """Whether only the local part of its data is at stake, which was not copied to remote storage yet."""
    stalled: bool = False
    """Its leader stays, and waits for an in-sync replica that fails: without a quorum nobody takes it off the in-sync
    set, so no write with acks=all is answered and consumers see no new record (Kafka's ``maximalIsr``)."""
    perhaps_unserved: bool = False
    """Perhaps nobody answers, or writes with acks=all are refused: a replica that would lead, or that
    min.insync.replicas needs, counts as online and may be in a directory that is not or that fails (R-RESTART-4)."""

    @property
    def without_leader(self) -> bool:
        """It has a leader now, and would have none."""
        return self.leader >= 0 and self.leader_after == -1

    @property
    def under_min_isr(self) -> bool:
        """It would fall below min.insync.replicas."""
        return self.in_sync >= self.min_isr > self.in_sync_after

    @property
    def moved(self) -> bool:
        """Another replica would lead."""
        return self.leader >= 0 and self.leader_after not in (-1, self.leader)

    @property
    def harmless(self) -> bool:
        """Clients only have to find another leader."""
        lost = self.without_leader or self.under_min_isr or self.all_offline or self.last_complete
        return not (lost or self.unclean or self.stalled or self.perhaps_unserved)


@dataclass(frozen=True)
class WhatIf(DatedAnswer):
    """The answer."""

    failing: Sequence[Place]
    replicas: int
    """Replicas that would go offline."""
    changes: Sequence[LeaderChange]
    """The changes, those with a loss first, then by topic and number."""
    fault: str
    """Defects that Kafka's controller (4.1) would meet. The answer is that of a repaired controller. Usually empty."""
    already: Sequence[Already] = ()
    """The places in ``failing`` that are offline already."""
    last_offline: Sequence[AtRisk] = ()
    """Partitions whose last complete copy is in one of the places, and is offline already."""
    went_on: Sequence[AtRisk] = ()
    """Partitions that went on without writes which a copy in one of the places may hold."""
    last_unplaced: Sequence[AtRisk] = ()
    """Partitions whose last complete copies no record has placed, and that may be in one of the directories."""
    quorum: QuorumEffect | None = None
    """The quorum of controllers then; None if no voter fails. Without a majority, nobody elects leaders."""

    @property
    def nothing_new(self) -> bool:
        """Whether all places have failed already."""
        return len(self.already) == len(self.failing)

    def chosen(self, what: str) -> list[LeaderChange]:
        """The changes for which a property of `LeaderChange` holds."""
        return [change for change in self.changes if getattr(change, what)]

    def as_json(self) -> dict[str, Any]:
        """One JSON object."""
        counts = (
            "without_leader",
            "all_offline",
            "unclean",
            "last_complete",
            "under_min_isr",
            "stalled",
            "moved",
            "perhaps_unserved",
        )
        return {
            **members(self, "offset", "time", "failing", "already", "replicas"),
            **{what: len(self.chosen(what)) for what in counts},
            **members(self, "quorum", "changes", "last_offline", "went_on", "last_unplaced", "fault"),
        }


def whatif(lake: Lake, failing: Sequence[str], default_min_isr: int = 1) -> WhatIf:
    """The reference controller's decisions if all of ``failing`` fail, each ``BROKER`` or ``BROKER:DIRECTORY``.

    Directories fail first, then brokers, both in the given order: see `jbod_model.whatif`. Raises UsageError if a
    place does not exist.
    """
    places = list(dict.fromkeys(find_place(lake, text, listed=True) for text in failing))
    wholly = [place.broker_id for place in places if place.halts]
    single = [place for place in places if place.directory_id is not None and place.online]
    before = touched(lake, wholly, single)
    failures = Failures(
        directories=_by_broker(single),
        brokers=tuple(
            place.broker_id for place in places if place.directory_id is None or place.metadata or place.zookeeper
        ),
    )
    stopped = failures.noticed(before).brokers
    if set(stopped) - set(wholly):
        # If all directories of a broker with several fail, so do its replicas without a directory.
        before = touched(lake, [*wholly, *stopped], single)
    profile = PROFILES[lake.published.profile]
    static = {MIN_ISR: str(default_min_isr)}
    then, fault = as_repaired(lambda rules: after(before, failures, profile=rules, static_configs=static), profile)
    effect, elected = quorum_effect(nodes(lake), stopped), then
    frozen = effect is not None and not effect.safe
    if frozen:
        then = _without_elections(before, failures, stopped)
    down = {(broker, directory) for broker, failed in failures.directories.items() for directory in failed}
    judge = _Judge(before, then, elected, profile, min_isr(lake, default_min_isr), down, frozenset(stopped), frozen)
    complete = complete_copies(lake, judge.doubtful(), default_min_isr)
    perhaps = perhaps_offline(lake, default_min_isr)
    unclean = unclean_elections(lake)
    judge = replace(judge, complete=complete, perhaps_offline=perhaps, tiered=tiered_topics(lake), unclean=unclean)
    changes = sorted(judge.changes(), key=lambda change: (change.harmless, change.topic, change.partition))
    off = [offline_place for place in places if (offline_place := already(lake, place)) is not None]
    holders = {
        directory: broker.broker_id for broker in registrations(lake) for directory in map(str, broker.directories)
    }
    data = losses(lake, default_min_isr)
    last = [each for each in _last_offline(data) if _is_hit(each, places, holders)]
    went_on = [each for each in _went_on(data) if _is_hit(each, places, holders)]
    lost = {(leader_change.topic, leader_change.partition) for leader_change in changes if leader_change.last_complete}
    hidden = [
        partition
        for partition in _unplaced(lake, places, default_min_isr)
        if (partition.topic, partition.partition) not in lost
    ]
    return WhatIf(lake.offset, lake.time, places, judge.replicas(), changes, fault, off, last, went_on, hidden, effect)


def _without_elections(image: Image, failures: Failures, stopped: Collection[int]) -> Image:
    """The image while the quorum of controllers has no majority: what the failing replicas led has no leader."""

    def left(partition: Partition) -> Partition:
        leads = partition.leader in partition.replicas
        failing = failures.directories.get(partition.leader, ()) if leads else ()
        gone = leads and (partition.leader in stopped or partition.directory(partition.leader) in failing)
        return replace(partition, leader=-1) if gone else partition

    topics = {
        topic_id: replace(topic, partitions={number: left(each) for number, each in topic.partitions.items()})
        for topic_id, topic in image.topics.items()
    }
    return replace(image, topics=topics)


def _unplaced(lake: Lake, places: Sequence[Place], default_min_isr: int) -> list[AtRisk]:
    """Partitions whose last complete copies would be those that no record has placed, and may be in ``places``.

    The controller counts such a replica as online whichever directory of its broker fails.
    """
    single = [place for place in places if place.directory_id is not None]
    if not single:
        return []
    brokers = ", ".join(str(place.broker_id) for place in places)
    also = f"""
        SELECT p.topic_id, p.partition FROM {lake.at("partitions")} p
        SEMI JOIN {lake.at("assignments")} a ON a.topic_id = p.topic_id AND a.partition = p.partition
             AND a.broker_id IN ({", ".join(str(place.broker_id) for place in single)})
             AND a.kind IN ('unassigned', 'migrating')
        LEFT JOIN {lake.offline_brokers()} o USING (topic_id, partition)
        WHERE len(list_filter(list_concat(p.isr, p.elr), lambda b: b NOT IN ({brokers})
                  AND NOT list_contains(coalesce(down, []), b))) = 0
    """
    state = places_of(lake)
    at_risk = []
    for partition in followed(lake, default_min_isr, also):
        copies = [copy for copy in last_copies(_failed(partition.shape, places)) if _may_be_in(copy, single)]
        if copies:
            at_risk.append(
                AtRisk(partition.topic, partition.topic_id, partition.partition, tuple(map(state.copy, copies)))
            )
    return at_risk


def _failed(fate: Fate, places: Sequence[Place]) -> Fate:
    """The fate after the failures, for ``last_copies``. A copy that can be anywhere is in a directory that is left or
    in one that fails."""
    brokers, copies = dict(fate.brokers), dict(fate.copies)
    for place in places:
        broker, copy = brokers.get(place.broker_id), copies.get(place.broker_id)
        if broker is None:
            continue
        if copy is not None and copy.directory is None and not copy.places and broker.directories:
            directory = frozenset[Uuid]() if place.directory_id is None else {Uuid.parse(place.directory_id)}
            copies[place.broker_id] = replace(copy, places=broker.directories | directory)
        brokers[place.broker_id] = _without(broker, place)
    return replace(fate, brokers=brokers, copies=copies)


def _without(broker: Registration, place: Place) -> Registration:
    left = broker.directories if place.directory_id is None else broker.directories - {Uuid.parse(place.directory_id)}
    return replace(broker, directories=left) if left and place.directory_id else replace(broker, fenced=True)


def _may_be_in(copy: Copy, places: Sequence[Place]) -> bool:
    return copy.directory is None and any(
        place.broker_id == copy.broker_id and Uuid.parse(place.directory_id or "") in copy.places for place in places
    )


def _last_offline(data: Losses) -> list[AtRisk]:
    """The partitions at risk, and those whose last copies were given up while none leads without them."""
    pending = [loss for loss in data.losses if loss.went_on_offset is None]
    given_up = [AtRisk(loss.topic, loss.topic_id, loss.partition, loss.copies, loss.tiered) for loss in pending]
    return sorted([*data.at_risk, *given_up], key=lambda partition: (partition.topic, partition.partition))


def _went_on(data: Losses) -> list[AtRisk]:
    """The partitions that went on without what other copies may hold, with these copies."""
    gone_on = [loss for loss in data.losses if loss.went_on_offset is not None and not loss.accepted]
    return [AtRisk(loss.topic, loss.topic_id, loss.partition, loss.holding, loss.tiered) for loss in gone_on]


def _is_hit(partition: AtRisk, places: Sequence[Place], holders: Mapping[str, int]) -> bool:
    """Whether a last copy is on one of the brokers, or in one of the directories. ``holders``: directory -> the broker
    that lists it: a disk that was moved may have the copy of another broker."""
    return any(
        place.directory_id in copy.directories
        if place.directory_id is not None
        else place.broker_id in (copy.broker_id, *map(holders.get, copy.directories))
        for copy in partition.copies
        for place in places
    )


def _by_broker(places: Sequence[Place]) -> dict[int, tuple[Uuid, ...]]:
    directories: dict[int, tuple[Uuid, ...]] = {}
    for place in places:
        if place.directory_id is not None:
            directories[place.broker_id] = (*directories.get(place.broker_id, ()), Uuid.parse(place.directory_id))
    return directories


@dataclass(frozen=True)
class _Judge:
    """Compares the image before with the one after."""

    before: Image
    after: Image
    elected: Image
    """``after`` if the quorum of controllers kept its majority: what it does before it loses that counts."""
    profile: Profile
    min_isr: MinIsr
    directories: set[tuple[int, Uuid]]
    brokers: frozenset[int]
    frozen: bool
    """Whether the quorum has no majority: nobody elects leaders or changes in-sync sets."""
    complete: Mapping[tuple[str, int], Mapping[int, Copy]] = field(default_factory=dict)
    """Brokers with every acknowledged write, for partitions whose lists do not name them."""
    perhaps_offline: Mapping[tuple[str, int], Collection[int]] = field(default_factory=dict)
    """Brokers whose replica counts as online, and may be in a directory that is not (R-ACT-1)."""
    tiered: frozenset[str] = frozenset()
    """Topics with remote storage."""
    unclean: ConfigValues = field(default_factory=lambda: ConfigValues({}, None))
    """unclean.leader.election.enable."""

    def changes(self) -> Iterator[LeaderChange]:
        """Partitions with another leader, or with fewer replicas than before."""
        for topic_id, topic, number, was, will in self._partitions():
            failing = self._failing(will)
            unsure = set(self.perhaps_offline.get((str(topic_id), number), ()))
            unsure_after = unsure | self._perhaps_failing(will)
            if was is will and not failing and unsure == unsure_after:
                continue
            down = self._down(self.before, was)
            down_after = self._down(self.after, will) | failing
            left = set(will.replicas) - down_after - unsure_after
            change = LeaderChange(
                topic=topic,
                partition=number,
                replicas=was.replicas,
                leader=was.leader,
                leader_after=will.leader,
                in_sync=len(set(was.isr) - down),
                in_sync_after=len(set(will.isr) - down_after),
                min_isr=self.min_isr.of(topic, len(was.replicas)),
                online_after=len(left),
                all_offline=bool(failing - down) and not left,
                unclean=self._uncleanly(topic_id, number, was)
                or self._without_writes(topic_id, number, was, will)
                or self._on_the_way(topic, was, will, failing - down),
                last_complete=self._last_complete(topic_id, number, was, down, down_after),
                tiered=topic in self.tiered,
                stalled=self.frozen and will.leader >= 0 and bool((failing - down).intersection(was.isr)),
            )
            if not (self.frozen or change.under_min_isr):
                sure = set(was.isr) - down - unsure, set(will.isr) - down_after - unsure_after
                change = replace(change, perhaps_unserved=_perhaps_unserved(change, (unsure, unsure_after), sure))
            if change.moved or not change.harmless:
                yield change

    def replicas(self) -> int:
        """Number of replicas that are online and would go offline."""
        return sum(len(self._failing(was) - self._down(self.before, was)) for _, _, _, was, _ in self._partitions())

    def doubtful(self) -> list[tuple[str, int]]:
        """Partitions whose in-sync and eligible replicas would all be offline, while some are online now."""
        return [
            (str(topic_id), number)
            for topic_id, _, number, was, will in self._partitions()
            if self._failing(will) and not was.named - self._down(self.after, will) - self._failing(will)
        ]

    def _last_complete(self, topic_id: Uuid, number: int, was: Partition, down: set[int], down_after: set[int]) -> bool:
        copies = self.complete.get((str(topic_id), number))
        complete = was.named if copies is None else frozenset(copies)
        complete = complete.difference(self.perhaps_offline.get((str(topic_id), number), ()))
        return bool(complete - down) and not complete - down_after

    def _without_writes(self, topic_id: Uuid, number: int, was: Partition, will: Partition) -> bool:
        """Whether a leader that has every acknowledged write is followed by one that does not (R-QUIRK-3)."""
        copies = self.complete.get((str(topic_id), number), {})
        return was.leader in copies and will.leader >= 0 and will.leader not in copies

    def _uncleanly(self, topic_id: Uuid, number: int, was: Partition) -> bool:
        """Whether the new leader was not in sync. False for a partition that was recovering before."""
        will = self.elected.topics[topic_id].partitions[number]
        if will.leader in (-1, was.leader):
            return False
        if was.leader_recovery_state == RECOVERING:
            return will.leader not in was.named
        return will.leader_recovery_state == RECOVERING

    def _on_the_way(self, topic: str, was: Partition, will: Partition, failing: set[int]) -> bool:
        """Whether the last of the ``failing`` replicas may be elected uncleanly before it fails, too: the order in
        which the controller learns of failures is not known."""
        named = was.named
        uncleanly = is_true(self.unclean.topics.get(topic, self.unclean.cluster))
        return uncleanly and was.leader >= 0 > will.leader and bool(failing & named) and bool(failing - named)

    def _partitions(self) -> Iterator[tuple[Uuid, str, int, Partition, Partition]]:
        for topic_id, topic in self.before.topics.items():
            for number, was in topic.partitions.items():
                yield topic_id, topic.name, number, was, self.after.topics[topic_id].partitions[number]

    def _down(self, image: Image, partition: Partition) -> set[int]:
        return set(offline_replicas(image, partition, profile=self.profile))

    def _failing(self, partition: Partition) -> set[int]:
        """The replicas in the failing places. They are offline under every profile."""
        placed = zip(partition.replicas, partition.directories, strict=True)
        return {place[0] for place in placed if place[0] in self.brokers or place in self.directories}

    def _perhaps_failing(self, partition: Partition) -> set[int]:
        """The replicas that no record has placed, on a broker of which a directory fails."""
        ids, brokers = self.before.ids, {broker for broker, _ in self.directories}
        placed = zip(partition.replicas, partition.directories, strict=True)
        return {broker for broker, at in placed if broker in brokers and at in (ids.unassigned, ids.migrating)}


def _perhaps_unserved(change: LeaderChange, unsure: tuple[set[int], set[int]], sure: tuple[set[int], set[int]]) -> bool:
    """Whether the failure leaves a partition that is surely served to replicas which perhaps answer nobody.

    ``unsure``: these, before and after. ``sure``: the other replicas in sync and online, before and after.
    """
    if change.leader in (-1, *unsure[0]) or change.leader_after == -1:
        return False
    before, later = map(len, sure)
    return change.leader_after in unsure[1] or before >= change.min_isr > later
