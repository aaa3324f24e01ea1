"""Mistakes that a check of restarts can make: each changes an answer that the exhaustive play of the model gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from jbod_model.formats.metadata_version import ELR_FEATURE
from jbod_model.ids import KAFKA_IDS, Uuid
from jbod_model.replay.image import Image, Partition
from jbod_model.restart import Restart
from pipelines.ask import restart, restart_columns, restart_judge
from pipelines.ask.restart_columns import Columns, Flags
from tests.support.images import brokers, in_memory_of, one_topic, partition
from tests.support.volume import sampled
from tests.unit.ask.restart_play import played

DIRS = {number: Uuid(number, 1000) for number in range(1, 5)}
TOPIC, CLUSTER = (2, "t"), (4, "")
MIN_ISR, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"


def on(*ids: int, **fields: object) -> Partition:
    return partition(*((broker_id, DIRS[broker_id]) for broker_id in ids), **fields)


def made(*partitions: Partition, elr: bool = False, **changes: Any) -> Image:
    """Four brokers and a topic. ``changes``: of brokers by ``b1``, and ``configs``."""
    image = one_topic(*partitions, registered=brokers(*((directory,) for directory in DIRS.values())))
    registered = {
        number: replace(registration, **changes.get(f"b{number}", {})) for number, registration in image.brokers.items()
    }
    features = {**image.features, ELR_FEATURE: 1} if elr else image.features
    return replace(image, brokers=registered, features=features, configs=changes.get("configs", {}))


CASES: dict[str, tuple[Image, tuple[int, ...], bool]] = {
    "one replica": (made(on(1)), (1,), False),
    "lagging follower": (made(on(1, 2, isr=(1,))), (1,), False),
    "a follower that is down": (made(on(1, 2), b2={"fenced": True}), (1,), False),
    "a follower that shuts down": (made(on(1, 2), b2={"in_controlled_shutdown": True}), (1,), False),
    "a directory offline": (made(partition((1, DIRS[1]), (2, Uuid(2, 9)))), (1,), False),
    "the topic is stricter": (made(on(1, 2), configs={TOPIC: {MIN_ISR: "2"}, CLUSTER: {MIN_ISR: "1"}}), (1,), False),
    "the topic is laxer": (made(on(1, 2), configs={TOPIC: {MIN_ISR: "1"}, CLUSTER: {MIN_ISR: "2"}}), (1,), False),
    "more than the replicas": (made(on(2, 1), on(1, 2, 3), configs={TOPIC: {MIN_ISR: "3"}}), (4,), False),
    "no leader": (made(on(1, 2, 3, isr=(2,), leader=-1), b2={"fenced": True}), (1,), False),
    "no leader, last replica": (made(on(1, 2, isr=(2,), leader=-1), b2={"fenced": True}), (1,), False),
    "an eligible leader takes over": (
        made(on(1, 2, isr=(1,), eligible_leader_replicas=(2,)), elr=True, configs={TOPIC: {MIN_ISR: "2"}}),
        (1,),
        False,
    ),
    "a disk offline costs the eligible leader": (
        made(partition((1, KAFKA_IDS.lost), (2, DIRS[2]), isr=(), eligible_leader_replicas=(1,), leader=-1), elr=True),
        (1,),
        False,
    ),
    "a leader in no directory leads again": (
        made(
            partition((1, KAFKA_IDS.lost), (2, DIRS[2]), isr=(1,), eligible_leader_replicas=(2,)),
            elr=True,
            configs={CLUSTER: {MIN_ISR: "2"}},
            b1={"fenced": True},
        ),
        (1,),
        True,
    ),
    "a kill costs the eligible leader": (made(on(1, 2, isr=(1,)), elr=True, b2={"fenced": True}), (1,), True),
    "unclean elections": (made(on(1, 2, isr=(1,)), configs={TOPIC: {UNCLEAN: "true"}}), (1,), False),
    "two at once": (made(on(1, 2, 3), configs={TOPIC: {MIN_ISR: "2"}}), (1, 2), False),
    "the one that lags comes back first": (
        made(
            on(2, 1, isr=(2,), leader=-1),
            b1={"fenced": True},
            b2={"fenced": True},
            configs={TOPIC: {UNCLEAN: "true"}},
        ),
        (2, 1),
        False,
    ),
}


def differences() -> Iterator[str]:
    """The cases whose answer is not what the play does."""
    for name, (image, nodes, kill) in CASES.items():
        answer = restart.safe_to_restart(in_memory_of(image), nodes, kill=kill)
        stakes = {stake.partition: ({*stake.harms} - {"acks1_at_risk"}, {*stake.already}) for stake in answer.stakes}
        expected = played(image, nodes, kill=kill)
        for (topic_id, number), caused in expected.caused.items():
            if stakes.get(number, (set(), set())) != (caused, expected.already[topic_id, number] - caused):
                yield name


def test_without_a_mistake_every_answer_is_what_the_play_does() -> None:
    assert [*differences()] == []


def flags(value: bool) -> Callable[[Flags], Flags]:
    return lambda column: np.full_like(column, value)


def settings(it: Columns, **changes: Any) -> Columns:
    return replace(it, settings=[replace(topic_settings, **changes) for topic_settings in it.settings])


def registered(it: Columns, **changes: Any) -> Columns:
    return replace(
        it, registered={number: replace(registration, **changes) for number, registration in it.registered.items()}
    )


MISREAD: dict[str, Callable[[Columns], Columns]] = {
    "brokers that are down count": lambda it: registered(it, fenced=False),
    "brokers that shut down count": lambda it: registered(it, in_controlled_shutdown=False),
    "directories that are offline count": lambda it: replace(it, placed=it.there),
    "replicas that lag count": lambda it: replace(it, isr=it.there),
    "eligible leaders are ignored": lambda it: replace(it, elr=flags(value=False)(it.elr)),
    "min.insync.replicas is ignored": lambda it: settings(it, min_isr=1),
    "min.insync.replicas of all brokers comes first": lambda it: settings(it, min_isr=2),
    "unclean elections are ignored": lambda it: settings(it, unclean=False),
    "every partition is led": lambda it: replace(it, leader=np.maximum(it.leader, 0)),
}


@pytest.mark.parametrize("mistake", sampled(MISREAD, 3))
def test_mistake_in_what_is_read_is_noticed(monkeypatch: pytest.MonkeyPatch, mistake: str) -> None:
    read = restart_columns.columns
    monkeypatch.setattr(restart, "columns", lambda *arguments: MISREAD[mistake](read(*arguments)))
    assert next(differences(), None) is not None


def first_only(it: Columns, stopping: Flags) -> Flags:
    """As if one replica in sync were enough."""
    return np.asarray((it.isr & it.can_lead & ~stopping).any(axis=1), bool)


MISJUDGED: dict[str, tuple[str, Any]] = {
    "one replica in sync is enough": ("spares", first_only),
    "an unclean return counts as clean": ("Restart", lambda **fields: Restart(**{**fields, "unclean": frozenset()})),
    "only the order as given is played": ("in_any_order", lambda order: iter([order])),
    "a kill counts as a stop in order": ("Restart", lambda **fields: Restart(**{**fields, "kill": False})),
}


@pytest.mark.parametrize("mistake", sampled(MISJUDGED, 1))
def test_mistake_in_the_judgement_is_noticed(monkeypatch: pytest.MonkeyPatch, mistake: str) -> None:
    name, wrong = MISJUDGED[mistake]
    monkeypatch.setattr(restart_judge, name, wrong)
    assert next(differences(), None) is not None
