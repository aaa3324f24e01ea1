"""The broker shard: tables of brokers, directories and the quorum, features, checks that need the whole cluster.

It sees every broker record, feature level and topic name. By the names it refuses a topic that is created twice and a
ClearElrRecord of a topic that does not exist. A shard of topics cannot detect either.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from jbod_model.errors import ReplayViolation
from jbod_model.ids import Uuid
from pipelines.fold.brokers import BrokerChange, RegisteredBroker, load_brokers
from pipelines.fold.events import CLEAR_ELR, REMOVE_TOPIC, SNAPSHOT_END, TOPIC, Events
from pipelines.fold.quorum import Quorum
from pipelines.fold.rows import TableRows, row_table
from pipelines.formats.arrow_arrays import id_texts
from pipelines.lake import tables
from pipelines.lake.tables import CHANGES

Row = dict[str, Any]


def broker_changes(change: BrokerChange, gone: Mapping[str, str], generation: int) -> Iterator[Row]:
    """Rows for the change of a broker (R-EVENT-5, R-EVENT-6). ``gone``: directories that left, and why."""
    old, new = change.before, change.after
    place = dict.fromkeys(CHANGES.schema.names) | {
        "log_offset": change.offset,
        "batch_offset": change.batch,
        "append_time": change.time,
        "broker_id": change.broker_id,
        "from_snapshot": change.snapshot,
        "retraction": False,
        "generation": generation,
        "why": change.cause,
    }
    for what, before, after in (
        ("registration", old and str(old.epoch), new and str(new.epoch)),
        ("fencing", old and _fencing(old), new and _fencing(new)),
        ("controlled shutdown", old and _shutdown(old), new and _shutdown(new)),
    ):
        if before != after:
            yield {**place, "what": what, "before": before, "after": after}
    for what, state, listed in (
        ("directory", "online", (old and old.directories, new and new.directories)),
        ("cordon", "cordoned", (old and old.cordoned, new and new.cordoned)),
    ):
        before_set, after_set = (set(one or ()) for one in listed)
        for directory in sorted(before_set ^ after_set):
            came = directory in after_set
            yield {
                **place,
                "what": what,
                "directory_id": directory,
                "before": None if came else state,
                "after": state if came else None,
                "why": gone.get(directory, change.cause) if what == "directory" else change.cause,
            }


def _fencing(broker: RegisteredBroker) -> str:
    return "fenced" if broker.fenced else "unfenced"


def _shutdown(broker: RegisteredBroker) -> str | None:
    return "shutting down" if broker.in_controlled_shutdown else None


METADATA_VERSION = "metadata.version"


@dataclass
class RowStart:
    """Where a row of history began."""

    offset: int
    time: int
    snapshot: bool


@dataclass
class BrokerShardState:
    """Registrations, the start of each open row, online directories, feature levels, topic ids by name, the quorum."""

    brokers: dict[int, RegisteredBroker] = field(default_factory=dict)
    broker_since: dict[int, RowStart] = field(default_factory=dict)
    directory_since: dict[tuple[int, str], tuple[int, RowStart]] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    topics: dict[str, str] = field(default_factory=dict)
    quorum: Quorum = field(default_factory=Quorum)

    def dump(self) -> bytes:
        """Returns the state as JSON, for the state store."""
        return json.dumps(
            {
                "brokers": [vars(broker) for broker in self.brokers.values()],
                "broker_since": [[broker, asdict(since)] for broker, since in self.broker_since.items()],
                "directory_since": [[*key, epoch, asdict(at)] for key, (epoch, at) in self.directory_since.items()],
                "features": self.features,
                "topics": self.topics,
                "quorum": self.quorum.dump(),
            }
        ).encode()

    @classmethod
    def load(cls, data: bytes) -> BrokerShardState:
        """Undo ``dump``."""
        raw: dict[str, Any] = json.loads(data)
        return cls(
            brokers=load_brokers(json.dumps(raw["brokers"]).encode()),
            broker_since={broker: RowStart(**since) for broker, since in raw["broker_since"]},
            directory_since={(b, d): (epoch, RowStart(**at)) for b, d, epoch, at in raw["directory_since"]},
            features=raw["features"],
            topics=raw["topics"],
            quorum=Quorum.load(raw["quorum"]),
        )

    @property
    def metadata_version(self) -> int:
        """Feature level of metadata.version, -1 if no record gave it."""
        return self.features.get(METADATA_VERSION, -1)


def check_topics(topics: dict[str, str], events: Events) -> dict[str, str]:
    """Returns the topic ids by name after the events. A snapshot replaces all of them at its end (R-REPLAY-2).

    Raises ReplayViolation if a new name is taken (R-TOPIC-1) or a cleared name is unknown (R-CLEAR-1).
    """
    now = dict(topics)
    loading: dict[str, str] = {}
    name_of = {topic: name for name, topic in topics.items()}
    # The appended id is for events that name no topic.
    ids = [*id_texts(events.topics).to_pylist(), str(Uuid(0, 0))]
    columns = (column.tolist() for column in (events.kinds, events.offsets, events.topic_of, events.snapshot))
    for row, (kind, offset, number, from_snapshot) in enumerate(zip(*columns, strict=True)):
        topic = ids[number]
        known = loading if from_snapshot else now
        if kind == TOPIC:
            name = events.name(row)
            if known.get(name, topic) != topic:
                raise ReplayViolation(offset, f"TopicRecord of {name!r}, a name that is taken (R-TOPIC-1)")
            known[name] = topic
            name_of[topic] = name
        elif kind == REMOVE_TOPIC:
            name = name_of.get(topic, "")
            if known.get(name) == topic:
                del known[name]
        elif kind == CLEAR_ELR:
            name = events.name(row)
            if name and name not in known:
                raise ReplayViolation(offset, f"ClearElrRecord of {name!r}, a topic that does not exist (R-CLEAR-1)")
        elif kind == SNAPSHOT_END:
            now, loading = loading, {}
    return now


def broker_rows(
    state: BrokerShardState, changes: Sequence[BrokerChange], generation: int | None = None
) -> dict[str, TableRows]:
    """Rows of ``brokers`` and ``directories`` for the changes, and of ``changes``. Updates ``state``."""
    closed: list[dict[str, Any]] = []
    closed_dirs: list[dict[str, Any]] = []
    happened: list[dict[str, Any]] = []
    for change in changes:
        if change.before is not None and change.after is not None and change.before == change.after:
            state.brokers[change.broker_id] = change.after
            continue
        at = RowStart(change.offset, change.time, change.snapshot)
        if change.before is not None:
            row = _broker_row(change.before, state.broker_since.pop(change.broker_id))
            closed.append({**row, **_end(at), "ended_by": change.cause})
        before = set(change.before.directories) if change.before else set()
        after = set(change.after.directories) if change.after else set()
        for directory in sorted(before - after):
            epoch, since = state.directory_since.pop((change.broker_id, directory))
            why = _why_gone(state, change, directory)
            closed_dirs.append(
                {**_directory_row(change.broker_id, directory, epoch, since), **_end(at), "ended_by": why}
            )
        if generation is not None:
            gone = {one: _why_gone(state, change, one) for one in before - after}
            happened += broker_changes(change, gone, generation)
        if change.after is None:
            state.brokers.pop(change.broker_id, None)
            continue
        state.brokers[change.broker_id] = change.after
        state.broker_since[change.broker_id] = at
        for directory in after - before:
            state.directory_since[(change.broker_id, directory)] = (change.after.epoch, at)
    open_rows = [_broker_row(state.brokers[b], state.broker_since[b]) for b in sorted(state.brokers)]
    open_dirs = [
        _directory_row(broker, directory, epoch, since)
        for (broker, directory), (epoch, since) in sorted(state.directory_since.items(), key=lambda item: item[0])
    ]
    told = row_table(tables.CHANGES, happened)
    return {
        **({} if generation is None else {"changes": TableRows(told, told.slice(0, 0))}),
        "brokers": TableRows(row_table(tables.BROKERS, closed), row_table(tables.BROKERS, open_rows)),
        "directories": TableRows(row_table(tables.DIRECTORIES, closed_dirs), row_table(tables.DIRECTORIES, open_dirs)),
    }


def _why_gone(state: BrokerShardState, change: BrokerChange, directory: str) -> str:
    if change.cause == "changed":
        return "failed"
    if change.cause in ("unregistered", "resync"):
        return change.cause
    elsewhere = any(
        directory in broker.directories for broker in state.brokers.values() if broker.broker_id != change.broker_id
    )
    return "moved" if elsewhere else "deregistered"


def _end(at: RowStart) -> dict[str, Any]:
    return {"to_offset": at.offset, "to_time": at.time}


def _start(at: RowStart) -> dict[str, Any]:
    return {
        "from_offset": at.offset,
        "from_time": at.time,
        "to_offset": None,
        "to_time": None,
        "from_snapshot": at.snapshot,
        "ended_by": None,
    }


def _broker_row(broker: RegisteredBroker, since: RowStart) -> dict[str, Any]:
    return {
        "broker_id": broker.broker_id,
        "broker_epoch": broker.epoch,
        "incarnation_id": broker.incarnation,
        "fenced": broker.fenced,
        "in_controlled_shutdown": broker.in_controlled_shutdown,
        "rack": broker.rack,
        "log_dirs": list(broker.directories),
        "cordoned_log_dirs": None if broker.cordoned is None else list(broker.cordoned),
        **_start(since),
    }


def _directory_row(broker_id: int, directory: str, epoch: int, since: RowStart) -> dict[str, Any]:
    return {"broker_id": broker_id, "directory_id": directory, "broker_epoch": epoch, **_start(since)}
