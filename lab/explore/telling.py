"""Steps for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jbod_model.ids import Uuid
from jbod_model.replay.image import Image
from lab.explore.actions import KINDS, Action


def plain_names(names: Mapping[int, tuple[Uuid, ...]]) -> dict[Uuid, str]:
    """Names for directories: 1a, 1b and so on for those of broker 1."""
    return {name: f"{b}{chr(ord('a') + i)}" for b, each in names.items() for i, name in enumerate(each)}


def describe(action: Action, after: Image, names: Mapping[Uuid, str]) -> str:
    """A step in words: what happens, and the metadata after it."""
    what = KINDS[action.kind].sentence.format(
        broker=action.broker_id,
        partition=None if action.replica is None else action.replica.partition,
        directory=None if action.directory is None else names[action.directory],
        detail=action.detail,
    )
    return f"{what}: {summary(after, names)}"


def summary(image: Image, names: Mapping[Uuid, str]) -> str:
    """The brokers and partitions of the metadata, in words."""
    special = {image.ids.unassigned: "unassigned", image.ids.lost: "lost", image.ids.migrating: "migrating"}
    shown = {**special, **names}
    brokers = [
        f"broker {b.broker_id} {'' if b.fenced else 'un'}fenced with {_joined(shown[d] for d in b.directories)}"
        for b in image.brokers.values()
    ]
    partitions = [
        f"partition {n} leader {p.leader} isr {list(p.isr)} in {', '.join(shown[d] for d in p.directories)}"
        for topic in image.topics.values()
        for n, p in topic.partitions.items()
    ]
    return "; ".join([*brokers, *partitions])


def _joined(names: Iterable[str]) -> str:
    return "+".join(sorted(names)) or "no directory"
