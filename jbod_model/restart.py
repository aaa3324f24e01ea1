"""The states of a cluster while some of its brokers restart at once, and the harm that this does to a partition.

The controller decides about every step (R-RESTART-1 to R-RESTART-3). What counts as harm: R-RESTART-4, R-RESTART-5.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jbod_model.controller import Context, Controller
from jbod_model.controller.cluster import MIN_ISR, Cluster
from jbod_model.controller.partition_change import RECOVERING, Election
from jbod_model.formats.metadata_version import METADATA_VERSION
from jbod_model.formats.records import BrokerFeature, PartitionChangeRecord, VersionedRecord
from jbod_model.formats.requests import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    SessionExpired,
)
from jbod_model.ids import Uuid
from jbod_model.profiles import KAFKA, Profile
from jbod_model.replay.image import BrokerRegistration, Image, Partition
from jbod_model.replay.offline import has_online_dir, offline_replicas
from jbod_model.whatif import applied

MOST_IN_EVERY_ORDER = 3
"""Brokers whose stops and returns are played in every order."""


class Harm(enum.StrEnum):
    """The classes of harm (R-RESTART-4)."""

    NO_LEADER = "no_leader"
    """Nobody leads: no reads, no writes."""
    WRITES_REFUSED = "writes_refused"
    """It is led, and its in-sync set is smaller than min.insync.replicas: writes with acks=all are refused."""
    LAST_REPLICA = "last_replica_offline"
    """No replica is online."""
    LAST_COPY = "last_complete_copy"
    """No copy with every acknowledged write is online: if its disk does not come back, they are lost."""
    UNCLEAN = "unclean_election"
    """A replica that lacks acknowledged writes leads, or can lead: they are lost."""
    ACKS1 = "acks1_at_risk"
    """Its leader is killed: writes with acks=1 that no follower has fetched are lost. This does not decide."""


DECIDING = frozenset(Harm) - {Harm.ACKS1}
"""The classes that make a restart unsafe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """A restart of several brokers at once."""

    brokers: tuple[int, ...]
    """In the order in which the controller hears that they stop."""
    back: tuple[int, ...] = ()
    """In the order in which they come back; empty: the same."""
    kill: bool = False
    """They are killed: no leader moves before."""
    unclean: frozenset[int] = frozenset()
    """Brokers whose shutdown counts as unclean although nobody kills them now (R-RESTART-3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What the controller makes of a restart."""

    restart: Restart
    before: Image
    down: Image
    """All of the brokers are stopped."""
    back: Image
    """All of them are unfenced again, and no follower has caught up yet."""
    refused: tuple[int, ...] = ()
    """Brokers that the controller never lets stop, because they still lead."""
    uncleanly: Mapping[tuple[Uuid, int], Collection[int]] = field(default_factory=dict)
    """Partition (topic id, number) -> the replicas that it elected, and that were neither in sync nor eligible."""
    uncleanly_at_stop: frozenset[tuple[Uuid, int]] = frozenset()
    """The partitions that did so before a broker came back."""


@dataclass(slots=True)
class _Play:
    image: Image
    profile: Profile
    uncleanly: dict[tuple[Uuid, int], set[int]] = field(default_factory=dict)

    def ask(self, request: BrokerHeartbeatRequest | BrokerRegistrationRequest | SessionExpired) -> None:
        """The controller's records for one request, applied."""
        highest = max((broker.epoch for broker in self.image.brokers.values()), default=0)
        context = Context(next_offset=highest + 1)
        answer = Controller(self.profile).handle(self.image, request, context)
        for partition, leader in _elected_uncleanly(self.image, answer.records):
            self.uncleanly.setdefault(partition, set()).add(leader)
        self.image = applied(self.image, answer.records, self.profile)

    def heartbeat(self, broker_id: int, *, stops: bool) -> BrokerRegistration:
        """A heartbeat of a broker that has read the whole log; then its registration."""
        epoch = self.image.brokers[broker_id].epoch
        self.ask(
            BrokerHeartbeatRequest(
                broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=1 << 62, want_shut_down=stops
            )
        )
        return self.image.brokers[broker_id]


def course(image: Image, restart: Restart, *, profile: Profile = KAFKA) -> Course:
    """What the controller makes of a restart. KeyError for a broker that is not registered; ControllerFault if
    Kafka's controller itself would fail.

    A broker that is fenced does not stop: it only comes back.
    """
    play = _Play(image, profile)
    running = [broker for broker in restart.brokers if not image.brokers[broker].fenced]
    refused = () if restart.kill else _stop_in_order(play, running)
    for broker in running:
        if not play.image.brokers[broker].fenced:
            play.ask(SessionExpired(broker_id=broker))  # R-RESTART-2
    down, at_stop = play.image, frozenset(play.uncleanly)
    for broker in restart.back or restart.brokers:
        killed = restart.kill and broker in running
        _come_back(play, broker, clean=not killed and broker not in restart.unclean)
    return Course(
        restart=restart,
        before=image,
        down=down,
        back=play.image,
        refused=tuple(refused),
        uncleanly=play.uncleanly,
        uncleanly_at_stop=at_stop,
    )


def in_any_order(restart: Restart) -> Iterator[Restart]:
    """The same restart with other orders of stops and of returns: all, or of more than three brokers those in which
    each stops last and each comes back first.

    Which replica stays in the in-sync set depends on who stops last, and who leads again on who comes back first.
    """
    brokers = restart.brokers
    if len(brokers) <= MOST_IN_EVERY_ORDER:
        orders = list(itertools.permutations(brokers))
        pairs = itertools.product(orders, orders)
    else:
        last = [(*(other for other in brokers if other != broker), broker) for broker in brokers]
        first = [(broker, *(other for other in brokers if other != broker)) for broker in brokers]
        pairs = itertools.product(last, first)
    for stop, back in pairs:
        yield replace(restart, brokers=stop, back=back)


def _stop_in_order(play: _Play, brokers: Sequence[int]) -> list[int]:
    """Each broker asks to shut down, then asks again until it is let go (R-RESTART-1); those that never are."""
    for broker in brokers:
        play.heartbeat(broker, stops=True)
    return [
        broker
        for broker in brokers
        if not play.image.brokers[broker].fenced and not play.heartbeat(broker, stops=True).fenced
    ]


def _come_back(play: _Play, broker_id: int, *, clean: bool) -> None:
    """A new process registers with the same directories, and is unfenced (R-RESTART-3)."""
    was = play.image.brokers[broker_id]
    levels = {METADATA_VERSION: 0, **play.image.features}
    ranges = tuple(
        BrokerFeature(name=name, min_supported_version=0, max_supported_version=level) for name, level in levels.items()
    )
    directories = was.directories or _named(play.image, broker_id)
    play.ask(
        BrokerRegistrationRequest(
            broker_id=broker_id,
            incarnation_id=Uuid(broker_id, was.epoch + 1),
            features=ranges,
            rack=was.rack,
            log_dirs=directories,
            previous_broker_epoch=was.epoch if clean else -1,
        )
    )
    play.heartbeat(broker_id, stops=False)


def _named(image: Image, broker_id: int) -> tuple[Uuid, ...]:
    """The directories of a broker whose registration is older than directories: those that its replicas name."""
    directories = {
        partition.directory(broker_id)
        for topic in image.topics.values()
        for partition in topic.partitions.values()
        if broker_id in partition.replicas
    }
    return tuple(sorted(directory for directory in directories if image.ids.kind(directory) == "assigned")) or (
        Uuid(1 << 32, broker_id),
    )


def _elected_uncleanly(image: Image, written: Iterable[VersionedRecord]) -> Iterable[tuple[tuple[Uuid, int], int]]:
    for record in (versioned.record for versioned in written):
        if isinstance(record, PartitionChangeRecord) and record.leader >= 0:
            was = image.topics[record.topic_id].partitions[record.partition_id]
            states_recovery = record.leader_recovery_state == RECOVERING
            hidden = was.leader_recovery_state == RECOVERING and record.leader not in was.named
            if record.leader != was.leader and (states_recovery or hidden):
                yield (record.topic_id, record.partition_id), record.leader


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartEffect:
    """What a restart does to a partition."""

    caused: frozenset[Harm] = frozenset()
    already: frozenset[Harm] = frozenset()
    """What is so without the restart, and stays so."""
    by_return: bool = False
    """Whether all that decides among ``caused`` comes with the return of a broker, not while it is down."""
    leader: int = -1
    """Who leads while the brokers are down; -1: nobody."""
    in_sync: int = 0
    """Replicas in sync and online, before."""
    in_sync_down: int = 0
    """The same while the brokers are down."""
    online_down: int = 0
    """Replicas online while the brokers are down, in sync or not."""
    min_isr: int = 1
    """The effective min.insync.replicas: at most the number of replicas."""

    def or_else(self, other: RestartEffect) -> RestartEffect:
        """The harm of either of two orders of the same restart."""
        caused = self.caused | other.caused
        return replace(
            self,
            caused=caused,
            already=(self.already | other.already) - caused,
            by_return=self.by_return and other.by_return,
        )


@dataclass(frozen=True, slots=True)
class _State:
    """A partition at one time of a restart."""

    leader: int
    in_sync: frozenset[int]
    """Replicas in sync and online."""
    online: frozenset[int]

    def harms(self, min_isr: int, complete: frozenset[int]) -> frozenset[Harm]:
        state_harms = set(self.unserved(min_isr))
        if not self.online:
            state_harms.add(Harm.LAST_REPLICA)
        if not self.online & complete:
            state_harms.add(Harm.LAST_COPY)
        return frozenset(state_harms)

    def unserved(self, min_isr: int, broken: Collection[int] = ()) -> frozenset[Harm]:
        """What clients are refused. ``broken``: replicas that count as online, and whose logs cannot be read."""
        if self.leader == -1 or self.leader in broken:
            return frozenset({Harm.NO_LEADER})
        return frozenset({Harm.WRITES_REFUSED} if len(self.in_sync.difference(broken)) < min_isr else ())


def judged(
    played: Course,
    topic_id: Uuid,
    number: int,
    *,
    complete: Iterable[int] | None = None,
    unsure: Collection[int] = (),
    profile: Profile = KAFKA,
    static_configs: Mapping[str, str] | None = None,
) -> RestartEffect:
    """The harm that a restart does to one partition (R-RESTART-4, R-RESTART-5).

    ``complete``: the brokers whose copies hold every acknowledged write (docs/spec/loss.md); None: those in sync or
    eligible. ``unsure``: the brokers that count as online, and whose copies may not be (R-ACT-1). Whether clients are
    served is judged both ways: with all of these copies, and with none of them.
    """
    topic = played.before.topics[topic_id]
    was, will = topic.partitions[number], played.down.topics[topic_id].partitions[number]
    cluster = Cluster(played.before, profile, Context(static_configs=static_configs or {}))
    min_isr = min(int(cluster.topic_config(topic.name, MIN_ISR)), len(was.replicas))
    whole = was.named if complete is None else frozenset(complete)
    before, down = _state(played.before, was, profile), _state(played.down, will, profile)
    sure = whole.difference(unsure)
    now, then = before.harms(min_isr, sure), down.harms(min_isr, sure)
    if Harm.NO_LEADER not in (unread := before.unserved(min_isr, unsure)):
        then |= down.unserved(min_isr, unsure) - unread
    uncleanly = cluster.unclean_election(topic.name) is Election.UNCLEAN
    if was.leader == -1 and uncleanly and _may_lead_uncleanly(played.before, was, profile):
        now |= {Harm.UNCLEAN}
    possible = will.leader == -1 and uncleanly and _may_lead_uncleanly(played.down, will, profile)
    while_down = then - now
    only_back = {broker for broker in played.restart.brokers if played.before.brokers[broker].fenced}
    if not whole & only_back >= {*played.uncleanly.get((topic_id, number), ())}:  # R-RESTART-5
        now, then = now - {Harm.UNCLEAN}, then | {Harm.UNCLEAN}
    elif possible:
        then |= {Harm.UNCLEAN}
    back = played.back.topics[topic_id].partitions[number]
    if complete is not None and {will.leader, back.leader} - {-1, was.leader, *whole}:  # R-QUIRK-3: eligible, and empty
        then |= {Harm.UNCLEAN}
    if was.named and not back.named:  # the controller no longer knows who has every write
        now, then = now - {Harm.LAST_COPY}, then | {Harm.LAST_COPY}
    if played.restart.kill and was.leader in played.restart.brokers:
        then |= {Harm.ACKS1}
    return RestartEffect(
        caused=then - now,
        already=now & then,
        by_return=not while_down and (topic_id, number) not in played.uncleanly_at_stop,
        leader=will.leader,
        in_sync=len(before.in_sync),
        in_sync_down=len(down.in_sync),
        online_down=len(down.online),
        min_isr=min_isr,
    )


def _state(image: Image, partition: Partition, profile: Profile) -> _State:
    offline = offline_replicas(image, partition, profile=profile)
    online = frozenset(partition.replicas) - set(offline)
    return _State(partition.leader, online.intersection(partition.isr), online)


def _may_lead_uncleanly(image: Image, partition: Partition, profile: Profile) -> bool:
    """Whether a replica that is neither in sync nor eligible leads as soon as its broker is unfenced."""
    for broker_id, directory in zip(partition.replicas, partition.directories, strict=True):
        broker = image.brokers.get(broker_id)
        if broker is None or broker_id in partition.named:
            continue
        if has_online_dir(broker, directory, image.ids, profile):
            return True
    return False


def settled(image: Image, profile: Profile = KAFKA) -> Image:
    """The image after every follower that can catch up has: the in-sync sets have every replica that is online."""
    topics = {}
    for topic_id, topic in image.topics.items():
        partitions = {number: _settled(image, partition, profile) for number, partition in topic.partitions.items()}
        topics[topic_id] = replace(topic, partitions=partitions)
    return replace(image, topics=topics)


def _settled(image: Image, partition: Partition, profile: Profile) -> Partition:
    if partition.leader == -1:
        return partition
    offline = offline_replicas(image, partition, profile=profile)
    isr = tuple(broker_id for broker_id in partition.replicas if broker_id not in offline)
    return replace(partition, isr=isr or partition.isr, eligible_leader_replicas=())
