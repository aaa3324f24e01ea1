"""A plan of which one partition of each kind is played has the outcomes of one that is played in full."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from random import Random

from jbod_model.controller.cluster import MIN_ISR
from jbod_model.errors import JbodError
from jbod_model.formats.metadata_version import ELR_FEATURE, LEVELS, METADATA_VERSION
from jbod_model.formats.requests import TOPIC_RESOURCE
from jbod_model.formats.responses import ControllerFault
from jbod_model.ids import KAFKA_IDS, Uuid
from jbod_model.plan import Outcome, Target, outcomes, play
from jbod_model.replay.image import BrokerRegistration, Image, Partition, Topic
from tests.support.volume import amount


def cluster(random: Random) -> Image:
    """Brokers in all states, and partitions in many, also such as no controller writes."""
    brokers = {}
    for number in random.sample(range(1, 13), random.randint(4, 9)):
        brokers[number] = BrokerRegistration(
            broker_id=number,
            epoch=number,
            incarnation_id=Uuid(number, 1),
            fenced=random.random() < 0.2,
            in_controlled_shutdown=random.random() < 0.15,
            directories=tuple(Uuid(number, 1000 + at) for at in range(random.randint(1, 3))),
        )
    topics, configs = {}, {}
    for at in range(random.randint(1, 4)):
        name, topic_id = f"t{at}", Uuid(at + 1, 7)
        size = random.randint(1, 3)
        partitions = {number: partition(random, brokers, size) for number in range(random.randint(1, 12))}
        topics[topic_id] = Topic(name=name, topic_id=topic_id, partitions=partitions)
        if random.random() < 0.6:
            configs[TOPIC_RESOURCE, name] = {
                MIN_ISR: random.choice("123"),
                "unclean.leader.election.enable": random.choice(("true", "false")),
            }
    levels = {METADATA_VERSION: LEVELS["4.1-IV1"], ELR_FEATURE: random.randint(0, 1)}
    names = {topic.name: topic_id for topic_id, topic in topics.items()}
    return Image(brokers=brokers, topics=topics, topic_ids=names, features=levels, configs=configs)


def partition(random: Random, brokers: dict[int, BrokerRegistration], size: int) -> Partition:
    replicas = tuple(random.sample([*brokers], min(size + random.randint(0, 1), len(brokers))))
    isr = tuple(replica for replica in replicas if random.random() < 0.7)
    adding = tuple(sorted(replica for replica in replicas[1:] if random.random() < 0.1))
    leader = random.choice(isr) if isr and random.random() < 0.9 else -1
    placed = [random.choice([*brokers[replica].directories, KAFKA_IDS.lost, Uuid(99, 99)]) for replica in replicas]
    return Partition(
        replicas=replicas,
        directories=tuple(placed),
        isr=isr,
        adding_replicas=adding,
        removing_replicas=tuple(
            sorted(replica for replica in replicas if replica not in adding and random.random() < 0.1)
        ),
        eligible_leader_replicas=tuple(replica for replica in replicas if replica not in isr and random.random() < 0.3),
        leader=leader,
        leader_recovery_state=int(random.random() < 0.1),
    )


def plan(random: Random, image: Image) -> dict[Target, tuple[int, ...]]:
    reassignments = {}
    for topic in image.topics.values():
        for number in topic.partitions:
            if random.random() < 0.8:
                known = [*image.brokers, *([77] if random.random() < 0.05 else [])]
                reassignments[topic.name, number] = tuple(random.sample(known, random.randint(1, 3)))
    return reassignments


def alike(random: Random, image: Image, reassignments: dict[Target, tuple[int, ...]]) -> None:
    """Makes partitions of a topic those of others under other names, now and then with a change."""
    classes: dict[object, list[int]] = {}
    for number, registration in image.brokers.items():
        classes.setdefault(
            (registration.fenced, registration.in_controlled_shutdown, len(registration.directories)), []
        ).append(number)
    for topic in image.topics.values():
        partitions = topic.partitions
        assert isinstance(partitions, dict)
        for number in partitions:
            first = random.choice([*topic.partitions])
            if random.random() < 0.3 or (topic.name, first) not in reassignments:
                continue
            names: dict[int, int] = {77: random.choice((77, 78))}
            for members in classes.values() if random.random() < 0.8 else [[*image.brokers]]:
                names |= dict(zip(members, random.sample(members, len(members)), strict=True))
            was = topic.partitions[first]
            renamed = replace(
                was,
                replicas=tuple(names[replica] for replica in was.replicas),
                isr=tuple(names[replica] for replica in was.isr),
                eligible_leader_replicas=tuple(names[replica] for replica in was.eligible_leader_replicas),
                adding_replicas=tuple(sorted(names[replica] for replica in was.adding_replicas)),
                removing_replicas=tuple(sorted(names[replica] for replica in was.removing_replicas)),
                leader=names.get(was.leader, -1),
                directories=tuple(
                    image.brokers[names[broker]].directories[0] if where in image.brokers[broker].directories else where
                    for broker, where in zip(was.replicas, was.directories, strict=True)
                ),
            )
            partitions[number] = renamed if random.random() < 0.5 else changed(random, renamed)
            wanted = [names.get(replica, replica) for replica in reassignments[topic.name, first]]
            reassignments[topic.name, number] = tuple(wanted if random.random() < 0.8 else wanted[::-1])


def changed(random: Random, partition: Partition) -> Partition:
    """The same with one thing that is otherwise."""
    some = random.choice(partition.replicas)
    what = random.randrange(5)
    if what == 0:
        return replace(partition, leader_recovery_state=1 - partition.leader_recovery_state)
    if what == 1 and some != partition.leader:
        return replace(
            partition, isr=tuple(each for each in partition.replicas if (each in partition.isr) != (each == some))
        )
    if what == 2:
        placed = [
            KAFKA_IDS.lost if each == some else at
            for each, at in zip(partition.replicas, partition.directories, strict=True)
        ]
        return replace(partition, directories=tuple(placed))
    if what == 3:
        placed = [
            Uuid(99, 99) if each == some else at
            for each, at in zip(partition.replicas, partition.directories, strict=True)
        ]
        return replace(partition, directories=tuple(placed))
    return replace(partition, eligible_leader_replicas=() if some in partition.isr else (some,))


def test_outcomes_are_those_of_a_plan_that_is_played_in_full() -> None:
    played = kinds = refused = 0
    for seed in range(amount(150, 3000)):
        random = Random(seed)
        image = cluster(random)
        reassignments = plan(random, image)
        alike(random, image, reassignments)
        try:
            full = play(image, reassignments)
        except (ControllerFault, JbodError):
            with contextlib.suppress(ControllerFault, JbodError):
                outcomes(image, reassignments)
            continue
        predictions = outcomes(image, reassignments)
        for target, outcome in predictions.items():
            assert outcome == Outcome.of(full, target), f"seed {seed}, {target}"
        assert predictions.keys() == reassignments.keys(), f"seed {seed}"
        played += len(predictions)
        refused += sum(bool(prediction.refused) for prediction in predictions.values())
        kinds += len(set(predictions.values()))
    assert played > 1000
    assert refused > 10
    assert kinds > 100
