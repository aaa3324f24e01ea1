"""Restarts played step by step, every request through the model's controller, in every order; apart from the code that
answers questions."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from jbod_model.controller import Context, Controller
from jbod_model.formats import requests as r
from jbod_model.formats.records import BrokerFeature, PartitionChangeRecord
from jbod_model.ids import Uuid
from jbod_model.profiles import KAFKA, Profile
from jbod_model.replay.image import Image, Partition
from jbod_model.replay.offline import offline_replicas

Place = tuple[Uuid, int]


class Harmed(NamedTuple):
    """The classes of harm by partition."""

    caused: dict[Place, set[str]]
    already: dict[Place, set[str]]


def ask(image: Image, request: r.Request, profile: Profile) -> tuple[Image, set[tuple[Place, int]]]:
    """The image after the controller's records, one by one; the partitions that elected uncleanly, with the leader."""
    answer = Controller(profile).handle(image, request, Context(next_offset=1000))
    unclean, before = set(), image
    for versioned in answer.records:
        if isinstance(versioned.record, PartitionChangeRecord):
            place = versioned.record.topic_id, versioned.record.partition_id
            was = before.topics[place[0]].partitions[place[1]]
            new = versioned.record.leader if versioned.record.leader >= 0 else was.leader
            marked = versioned.record.leader_recovery_state == 1 and new != was.leader
            if marked or new not in (was.leader, *was.isr, *was.eligible_leader_replicas):
                unclean.add((place, new))
        image = image.apply(versioned.record, 0, profile=profile)
    return image, unclean


def heartbeat(image: Image, broker: int, *, stops: bool) -> r.BrokerHeartbeatRequest:
    return r.BrokerHeartbeatRequest(
        broker_id=broker,
        broker_epoch=image.brokers[broker].epoch,
        current_metadata_offset=10**9,
        want_shut_down=stops,
    )


def stopped(
    image: Image, stop: Sequence[int], kill: bool, profile: Profile, *, together: bool
) -> tuple[Image, set[tuple[Place, int]]]:
    """The image while the brokers are down (R-RESTART-1), and what elected uncleanly. Not ``together``: each broker is
    let go before the next one asks."""
    uncleanly: set[tuple[Place, int]] = set()
    running = [broker for broker in stop if not image.brokers[broker].fenced]
    beats = [*running, *running] if together else [broker for broker in running for _ in range(2)]
    for broker in [] if kill else beats:
        if not image.brokers[broker].fenced:
            image, places = ask(image, heartbeat(image, broker, stops=True), profile)
            uncleanly |= places
    for broker in running:
        if not image.brokers[broker].fenced:
            image, places = ask(image, r.SessionExpired(broker_id=broker), profile)
            uncleanly |= places
    return image, uncleanly


def returned(
    image: Image, back: Sequence[int], unclean: Collection[int], profile: Profile
) -> tuple[Image, set[tuple[Place, int]]]:
    """The image when the brokers are back (R-RESTART-2), and what elected uncleanly. ``unclean``: the brokers without
    the mark of a stop in order."""
    uncleanly: set[tuple[Place, int]] = set()
    for broker in back:
        was = image.brokers[broker]
        features = tuple(
            BrokerFeature(name=name, min_supported_version=0, max_supported_version=level)
            for name, level in image.features.items()
        )
        registration = r.BrokerRegistrationRequest(
            broker_id=broker,
            incarnation_id=Uuid(77, broker),
            features=features,
            log_dirs=was.directories,
            previous_broker_epoch=-1 if broker in unclean else was.epoch,
        )
        image, first = ask(image, registration, profile)
        image, second = ask(image, heartbeat(image, broker, stops=False), profile)
        uncleanly |= first | second
    return image, uncleanly


def without_mark(image: Image, brokers: Iterable[int], *, kill: bool) -> set[int]:
    """The brokers that come back without the mark of a stop in order: one of their directories is offline, or they are
    killed, or died before."""
    away = {
        broker
        for topic in image.topics.values()
        for partition in topic.partitions.values()
        for broker, directory in zip(partition.replicas, partition.directories, strict=True)
        if broker in image.brokers and not is_placed(image, broker, directory)
    }
    registrations = {broker: image.brokers[broker] for broker in brokers}
    return {
        broker
        for broker, registration in registrations.items()
        if broker in away or (not registration.in_controlled_shutdown if registration.fenced else kill)
    }


def is_placed(image: Image, broker: int, directory: Uuid) -> bool:
    listed = image.brokers[broker].directories
    if directory == image.ids.lost:
        return False
    return not listed or directory in listed or directory in (image.ids.unassigned, image.ids.migrating)


def setting(image: Image, topic: str, name: str, otherwise: str) -> str:
    for key in ((2, topic), (4, "")):
        if name in image.configs.get(key, {}):
            return image.configs[key][name]
    return otherwise


def harms(image: Image, place: Place, complete: Iterable[int], profile: Profile) -> set[str]:
    topic = image.topics[place[0]]
    partition = topic.partitions[place[1]]
    down = offline_replicas(image, partition, profile=profile)
    online = {broker for broker in partition.replicas if broker not in down}
    wanted = min(int(setting(image, topic.name, "min.insync.replicas", "1")), len(partition.replicas))
    classes = set()
    if partition.leader == -1:
        classes.add("no_leader")
    elif len(online & {*partition.isr}) < wanted:
        classes.add("writes_refused")
    if not online:
        classes.add("last_replica_offline")
    if not online & {*complete}:
        classes.add("last_complete_copy")
    if partition.leader == -1 and setting(image, topic.name, "unclean.leader.election.enable", "false") == "true":
        named = named_in(partition)
        if any(
            broker in image.brokers and broker not in named and is_placed(image, broker, directory)
            for broker, directory in zip(partition.replicas, partition.directories, strict=True)
        ):
            classes.add("unclean_election")
    return classes


def named_in(partition: Partition) -> set[int]:
    return {*partition.isr, *partition.eligible_leader_replicas}


def played(image: Image, brokers: Sequence[int], *, kill: bool, profile: Profile = KAFKA) -> Harmed:
    """What a restart does in some order of its steps to the brokers' partitions, and to others that have no leader and
    elect uncleanly."""
    caused: dict[Place, set[str]] = {}
    already: dict[Place, set[str]] = {}
    places = [(key, number) for key, topic in image.topics.items() for number in topic.partitions]
    known = {(key, number): image.topics[key].partitions[number] for key, number in places}
    hit = [place for place, partition in known.items() if {*brokers} & {*partition.replicas} or partition.leader == -1]
    orders = [*itertools.permutations(brokers)]
    schedules = [True] if kill or len(brokers) == 1 else [True, False]
    unclean = without_mark(image, brokers, kill=kill)
    whole = {place: named_in(known[place]) or {*known[place].last_known_elr} for place in hit}  # R-LOSS-1
    before = {place: harms(image, place, whole[place], profile) for place in hit}
    for stop, together in itertools.product(orders, schedules):
        down, first = stopped(image, stop, kill, profile, together=together)
        then = {place: harms(down, place, whole[place], profile) for place in hit}
        for back in orders:
            later, second = returned(down, back, unclean, profile)
            for place in hit:
                new = then[place] - before[place]
                # R-RESTART-5: what is down was killed before, and has what it has
                spared = {broker for broker in whole[place] if broker in brokers and image.brokers[broker].fenced}
                if any(at == place and leader not in spared for at, leader in first | second):
                    new.add("unclean_election")
                if named_in(known[place]) and not named_in(later.topics[place[0]].partitions[place[1]]):
                    new.add("last_complete_copy")
                if not {*brokers} & {*known[place].replicas} and "unclean_election" not in new:
                    new = set()
                caused.setdefault(place, set()).update(new)
                already.setdefault(place, set()).update(before[place] & then[place])
    return Harmed(caused, already)
