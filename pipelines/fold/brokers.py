"""The fold of broker registrations, and the timeline that every shard joins with its replicas (docs/spec/replay.md).

Brokers and their records are few, so this module uses plain objects. The shards get the timeline as columns. Source:
Kafka's ClusterDelta, with the epoch checks of ClusterControlManager.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np

from jbod_model.formats.control_records import ControlRecord
from jbod_model.formats.records import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    Record,
    RegisterBrokerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from jbod_model.formats.schema import API_KEY_OF
from jbod_model.ids import Uuid
from jbod_model.profiles import KAFKA, Profile
from jbod_model.replay.changes import cause_of
from jbod_model.replay.image import Image
from jbod_model.replay.registrations import BrokerRegistration
from pipelines.fold.offline import BROKER_ACTIVE, BROKER_FENCED, BROKER_MISSING, Timeline
from pipelines.formats.kernels import number_ids

BrokerRecord = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | FenceBrokerRecord
    | UnfenceBrokerRecord
    | BrokerRegistrationChangeRecord
)
BROKER_TYPES = tuple(API_KEY_OF[kind] for kind in get_args(BrokerRecord))


@dataclass(frozen=True)
class BrokerEvent:
    """A record that changes registrations or the quorum, with its offset, time and the base offset of its batch.
    ``record`` None: the end of a snapshot."""

    offset: int
    time: int
    batch: int
    snapshot: bool
    record: Record | ControlRecord | None


@dataclass(frozen=True)
class BrokerChange:
    """The change of a broker by an event. ``after`` is None if the broker is gone, ``cause`` an ended_by of brokers."""

    offset: int
    time: int
    batch: int
    snapshot: bool
    broker_id: int
    before: BrokerRegistration | None
    after: BrokerRegistration | None
    cause: str


def _apply(
    brokers: Mapping[int, BrokerRegistration], record: Record | ControlRecord, offset: int, profile: Profile
) -> tuple[int, BrokerRegistration | None, str]:
    """The change of a broker by a record, as the model has it.

    R-BROKER-1, R-BROKER-2, R-BROKER-3, R-BROKER-4, R-BROKER-5, R-BROKER-6, R-BROKER-7, R-BROKER-8.
    """
    assert isinstance(record, BrokerRecord)
    broker_id = record.id if isinstance(record, FenceBrokerRecord | UnfenceBrokerRecord) else record.broker_id
    after = Image(brokers=brokers).apply(record, offset, profile=profile).brokers.get(broker_id)
    return broker_id, after and _kept(after), cause_of(record)


def _kept(registration: BrokerRegistration) -> BrokerRegistration:
    """The part of a registration that the tables have (R-BROKER-1)."""
    return replace(registration, is_migrating_zk_broker=False, listeners=(), features=(), has_offline_directories=False)


def fold_brokers(
    brokers: Mapping[int, BrokerRegistration], events: Iterable[BrokerEvent], profile: Profile = KAFKA
) -> tuple[dict[int, BrokerRegistration], list[BrokerChange]]:
    """Applies events in log order: (registrations, changes that have an effect).

    A snapshot builds its own registrations, which replace the others at its end (R-REPLAY-2).
    """
    now = dict(brokers)
    changes: list[BrokerChange] = []
    loading: dict[int, BrokerRegistration] = {}
    for event in events:
        if event.record is None:
            changes += [
                BrokerChange(event.offset, event.time, event.batch, True, broker_id, before, after, "resync")
                for broker_id in sorted({*now, *loading})
                if (before := now.get(broker_id)) != (after := loading.get(broker_id))
            ]
            now, loading = loading, {}
            continue
        known = loading if event.snapshot else now
        broker_id, after, cause = _apply(known, event.record, event.offset, profile)
        if event.snapshot:
            loading.pop(broker_id, None)
            if after is not None:
                loading[broker_id] = after
            continue
        before = now.get(broker_id)
        if after == before:
            continue
        if after is None:
            del now[broker_id]
        else:
            now[broker_id] = after
        changes.append(BrokerChange(event.offset, event.time, event.batch, False, broker_id, before, after, cause))
    return now, changes


def timeline(
    brokers: Mapping[int, BrokerRegistration], changes: Sequence[BrokerChange], directory_ids: np.ndarray
) -> tuple[Timeline, np.ndarray]:
    """The states of every broker during the batch, from its registration before it on.

    ``directory_ids`` are those that the shard has numbered. Returns the timeline and the ids, with those of the brokers
    appended.
    """
    steps: dict[int, list[tuple[int, int, int, bool, BrokerRegistration | None]]] = {
        broker_id: [(-1, -1, -1, False, broker)] for broker_id, broker in brokers.items()
    }
    for change in changes:
        steps.setdefault(change.broker_id, [(-1, -1, -1, False, None)]).append(
            (change.offset, change.time, change.batch, change.snapshot, change.after)
        )
    flat = [step for broker_id in sorted(steps) for step in steps[broker_id]]
    listed = [directory.bytes for *_, broker in flat if broker is not None for directory in broker.directories]
    ids = np.frombuffer(b"".join(listed), np.uint64).reshape(-1, 2)
    numbers, distinct = number_ids(ids, directory_ids)
    sizes = [0 if broker is None else len(broker.directories) for *_, broker in flat]
    line = Timeline(
        brokers=np.array(sorted(steps), np.int32),
        step_ends=np.cumsum([0] + [len(steps[broker_id]) for broker_id in sorted(steps)], dtype=np.int64),
        offsets=np.array([offset for offset, *_ in flat], np.int64),
        times=np.array([time for _, time, *_ in flat], np.int64),
        states=np.array([_state(broker) for *_, broker in flat], np.int8),
        snapshot=np.array([snapshot for *_, snapshot, _ in flat], np.bool_),
        batches=np.array([batch for _, _, batch, *_ in flat], np.int64),
        directories=numbers,
        directory_ends=np.cumsum([0, *sizes], dtype=np.int64),
    )
    return line, distinct


def _state(broker: BrokerRegistration | None) -> int:
    if broker is None:
        return BROKER_MISSING
    return BROKER_FENCED if broker.fenced else BROKER_ACTIVE


def dump_brokers(brokers: Mapping[int, BrokerRegistration]) -> bytes:
    """Registrations as JSON, for the state store."""
    return json.dumps(broker_states(brokers)).encode()


def broker_states(brokers: Mapping[int, BrokerRegistration]) -> list[dict[str, Any]]:
    """Registrations as JSON can hold them."""
    return [
        {
            "broker_id": broker.broker_id,
            "epoch": broker.epoch,
            "incarnation": str(broker.incarnation_id),
            "fenced": broker.fenced,
            "in_controlled_shutdown": broker.in_controlled_shutdown,
            "rack": broker.rack,
            "directories": [*map(str, broker.directories)],
            "cordoned": None if broker.cordoned_directories is None else [*map(str, broker.cordoned_directories)],
        }
        for broker in brokers.values()
    ]


def brokers_of(states: Iterable[Mapping[str, Any]]) -> dict[int, BrokerRegistration]:
    """Undo ``broker_states``."""
    return {
        state["broker_id"]: BrokerRegistration(
            broker_id=state["broker_id"],
            epoch=state["epoch"],
            incarnation_id=Uuid.parse(state["incarnation"]),
            fenced=state["fenced"],
            in_controlled_shutdown=state["in_controlled_shutdown"],
            rack=state["rack"],
            directories=tuple(map(Uuid.parse, state["directories"])),
            cordoned_directories=None if state["cordoned"] is None else tuple(map(Uuid.parse, state["cordoned"])),
        )
        for state in states
    }
