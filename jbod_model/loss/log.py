"""The fate of every partition of a metadata log, record by record: the reference for the engine (docs/spec/loss.md)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from jbod_model.formats.log import LogEntry
from jbod_model.formats.records import ConfigRecord, Record, RegisterBrokerRecord, VersionedRecord
from jbod_model.ids import Uuid
from jbod_model.loss.copies import BrokerChanged, MinIsrChanged, Registration, Removed, Version
from jbod_model.loss.fate import Fate
from jbod_model.profiles import KAFKA, Profile
from jbod_model.replay.image import TOPIC_RESOURCE, Image, min_isr_of
from jbod_model.replay.registrations import BrokerRegistration, Partition
from jbod_model.replay.transactions import committed

MIN_ISR = "min.insync.replicas"
BROKER_RESOURCE = 4

Key = tuple[Uuid, int]
Process = tuple[int, Uuid]
"""Broker and incarnation."""


@dataclass
class Fates:
    """The fates of all partitions while records are applied.

    ``default_min_isr``: the value in the brokers' own files.
    """

    image: Image = field(default_factory=Image)
    profile: Profile = KAFKA
    default_min_isr: int = 1
    of: dict[Key, Fate] = field(default_factory=dict)
    """The fates by topic id and partition; those of a removed topic stay."""
    unregistered: dict[int, BrokerRegistration] = field(default_factory=dict)
    """The last registration of each broker that was unregistered."""
    listed: dict[Process, frozenset[Uuid]] = field(default_factory=dict)
    """The directories that each process ever registered with."""
    starting: dict[int, Process] = field(default_factory=dict)
    """Broker -> its process, if a later one has reported and not registered (R-COPY-12)."""

    def apply(self, batch: Iterable[LogEntry]) -> None:
        """Apply the records of one append, in order."""
        records = [(entry, entry.record.record) for entry in batch if isinstance(entry.record, VersionedRecord)]
        images = [self.image]
        for entry, record in records:
            images.append(images[-1].apply(record, entry.offset, profile=self.profile))
        starting = self._starting(records, images)
        for (entry, record), image, superseded in zip(records, images[1:], _superseded(images), strict=True):
            for broker_id in starting.get(entry.offset, ()):
                self._start(broker_id, entry.offset)
            before = self.image
            unclean = isinstance(record, RegisterBrokerRecord) and self._is_unclean(record)
            self.image = image
            if image is before:
                continue
            self._brokers(before, entry.offset, unclean=unclean, first=records[0][0].offset)
            if isinstance(record, ConfigRecord):
                self._min_isr(entry.offset)
            if self.image.topics is not before.topics:
                self._partitions(before, entry, superseded)

    def _starting(self, records: Sequence[tuple[LogEntry, Record]], images: Sequence[Image]) -> dict[int, set[int]]:
        """Offset -> brokers of which a later process reports from there on: a replica is assigned to a directory that
        its broker's process never registered with. All reports of an append are of one process (R-COPY-12)."""
        brokers_at: dict[int, set[int]] = {}
        for (entry, _), before, after in zip(records, images, images[1:], strict=False):
            self._list(after)
            if after.topics is before.topics:
                continue
            old = _states(before)
            for key, state in _states(after).items():
                was = old.get(key)
                if was is None or was is state:
                    continue
                lay = dict(zip(was.replicas, was.directories, strict=True))
                for broker_id, now in zip(state.replicas, state.directories, strict=True):
                    broker = after.brokers.get(broker_id)
                    if broker is None or lay.get(broker_id, now) == now or after.ids.kind(now) != "assigned":
                        continue
                    if not broker.directories:
                        continue
                    process = (broker_id, broker.incarnation_id)
                    if now not in self.listed[process] and self.starting.get(broker_id) != process:
                        self.starting[broker_id] = process
                        known = images[0].brokers.get(broker_id)
                        whole = known is not None and known.incarnation_id == broker.incarnation_id
                        brokers_at.setdefault(records[0][0].offset if whole else entry.offset, set()).add(broker_id)
        return brokers_at

    def _list(self, image: Image) -> None:
        for broker_id, broker in image.brokers.items():
            process = (broker_id, broker.incarnation_id)
            self.listed[process] = self.listed.get(process, frozenset()) | frozenset(broker.directories)

    def _start(self, broker_id: int, offset: int) -> None:
        """A process reports that has not registered yet."""
        registration = self._registration(self.image.brokers.get(broker_id), broker_id)
        changed = BrokerChanged(offset=offset, broker_id=broker_id, registration=registration)
        self.of = {key: fate.after(changed) if fate.state is not None else fate for key, fate in self.of.items()}

    def _registration(self, broker: BrokerRegistration | None, broker_id: int) -> Registration | None:
        if broker is None:
            return None
        return Registration(
            directories=frozenset(broker.directories),
            incarnation=broker.incarnation_id,
            fenced=broker.fenced,
            starting=self.starting.get(broker_id) == (broker_id, broker.incarnation_id),
        )

    def resync(self, entries: Iterable[LogEntry]) -> None:
        """Apply a snapshot: it replaces everything (R-REPLAY-2)."""
        before, offset = self.image, -1
        image = before.emptied()
        last: LogEntry | None = None
        for entry in entries:
            if isinstance(entry.record, VersionedRecord):
                image = image.apply(entry.record.record, entry.offset, profile=self.profile)
            last, offset = entry, entry.offset
        self.image = image
        self._list(image)
        self._brokers(before, offset)
        self._min_isr(offset)
        if last is not None:
            self._partitions(before, last)

    def _is_unclean(self, record: RegisterBrokerRecord) -> bool:
        """Whether the broker restarts without a controlled shutdown before it (R-LOSS-5).

        Kafka calls more restarts unclean: a broker that finds a new or failed disk lacks that disk's mark of a clean
        shutdown and sends no previous epoch.
        """
        known = self.image.brokers.get(record.broker_id) or self.unregistered.get(record.broker_id)
        if known is None or known.incarnation_id == record.incarnation_id:
            return False
        return not (known.fenced and known.in_controlled_shutdown)

    def _brokers(self, before: Image, offset: int, *, unclean: bool = False, first: int | None = None) -> None:
        if self.image.brokers is before.brokers:
            return
        for broker_id in {*before.brokers, *self.image.brokers}:
            broker = self.image.brokers.get(broker_id)
            if broker is before.brokers.get(broker_id):
                continue
            if broker is None:
                self.unregistered[broker_id] = before.brokers[broker_id]
            registration = self._registration(broker, broker_id)
            if registration == self._registration(before.brokers.get(broker_id), broker_id):
                continue
            changed = BrokerChanged(
                offset=offset, broker_id=broker_id, registration=registration, unclean=unclean, first=first
            )
            self.of = {key: fate.after(changed) if fate.state is not None else fate for key, fate in self.of.items()}

    def _min_isr(self, offset: int) -> None:
        for key, fate in self.of.items():
            topic = self.image.topics.get(key[0])
            value = fate.min_isr if topic is None else self._wanted(topic.name)
            if fate.state is not None and value != fate.min_isr:
                self.of[key] = fate.after(MinIsrChanged(offset=offset, value=value))

    def _wanted(self, topic: str) -> int:
        scopes = ((TOPIC_RESOURCE, topic), (BROKER_RESOURCE, ""))
        values = (min_isr_of(self.image.configs.get(scope, {}).get(MIN_ISR)) for scope in scopes)
        return next((value for value in values if value is not None), self.default_min_isr)

    def _partitions(self, before: Image, entry: LogEntry, superseded: Collection[Key] = ()) -> None:
        brokers = {
            broker_id: known
            for broker_id, registration in self.image.brokers.items()
            if (known := self._registration(registration, broker_id))
        }
        old, new = _states(before), _states(self.image)
        for key in [*new, *(key for key in old if key not in new)]:
            was, now = old.get(key), new.get(key)
            if was is now or (entry.in_snapshot and was == now):
                continue
            fate = self.of.get(key)
            if now is None:
                self.of[key] = self.of[key].after(Removed(offset=entry.offset))
                continue
            if fate is None:
                name = self.image.topics[key[0]].name
                fate = Fate(ids=self.image.ids, min_isr=self._wanted(name), brokers=brokers)
            version = Version(
                offset=entry.offset, state=now, in_snapshot=entry.in_snapshot, superseded=key in superseded
            )
            self.of[key] = fate.after(version)


def fates(
    entries: Iterable[LogEntry], *, profile: Profile = KAFKA, default_min_isr: int = 1
) -> Iterator[tuple[int, Mapping[Key, Fate]]]:
    """(offset of the append's last record, the fates after it), for each append; a snapshot counts as one.

    ReplayViolation for an illegal history.
    """
    state = Fates(profile=profile, default_min_isr=default_min_isr)
    for (in_snapshot, _), group in groupby(committed(entries), key=_append):
        batch = list(group)
        if in_snapshot:
            state.resync(batch)
        else:
            state.apply(batch)
        yield batch[-1].offset, state.of


def _append(entry: LogEntry) -> tuple[bool, int]:
    return entry.in_snapshot, -1 if entry.in_snapshot else entry.header.base_offset


def _superseded(images: Sequence[Image]) -> list[set[Key]]:
    """For each record of an append, the partitions that have another state after a later record of it (R-LOSS-10).

    ``images``: before the append, and after each of its records.
    """
    superseded_keys: list[set[Key]] = []
    again: set[Key] = set()
    for before, after in zip(images[-2::-1], images[:0:-1], strict=True):
        superseded_keys.append(set(again))
        if len(images) > 2 and after.topics is not before.topics:
            old, new = _states(before), _states(after)
            again |= {key for key, state in new.items() if state is not old.get(key)}
    return superseded_keys[::-1]


def _states(image: Image) -> dict[Key, Partition]:
    return {
        (topic_id, number): partition
        for topic_id, topic in image.topics.items()
        for number, partition in topic.partitions.items()
    }
