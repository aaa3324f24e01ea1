"""Real logs through TLC: what one broker's disks and partitions became, as a path that lab/tla/Jbod.tla must have.

`Jbod.tla` has one broker with its own partitions, no timers and no shutdown in order. So a trace is the part of a real
log that is about one broker and about partitions with their only replica there, batch by batch. A broker that shuts
down counts as fenced: neither may lead, and a session that expires early does the same to partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jbod_model.formats.log import LogEntry
from jbod_model.formats.records import (
    BrokerRegistrationChangeRecord,
    NoOpRecord,
    PartitionChangeRecord,
    Record,
    RegisterBrokerRecord,
    VersionedRecord,
)
from jbod_model.ids import KAFKA_IDS, Uuid
from jbod_model.replay.image import Image
from lab.behaviour import Behaviour, Refusal, Step
from lab.tla.tlc import explain_trace
from tests.support.behaviours import log_of
from tests.support.forged import with_record


@dataclass(frozen=True)
class Meta:
    """The variable ``meta`` of the module, for one broker."""

    fenced: bool
    online: tuple[int, ...]
    leads: tuple[bool, ...]
    """Of each partition."""
    directory: tuple[int, ...]
    """Of each partition; 0: unassigned."""

    def __str__(self) -> str:
        """As TLA+ writes it: broker 1 is the only one, partitions are numbers from 0."""
        leader = _function(self.leads, lambda leads: "1" if leads else "NoLeader")
        in_sync = _function(self.leads, lambda _: "<<1>>")
        directory = _function(self.directory, lambda number: f"(1 :> {number})")
        return (
            f"[fenced |-> (1 :> {str(self.fenced).upper()}), online |-> (1 :> {{{', '.join(map(str, self.online))}}}), "
            f"leader |-> {leader}, isr |-> {in_sync}, dir |-> {directory}]"
        )


@dataclass(frozen=True)
class Trace:
    """The part of a bundled cluster's log that the module has."""

    name: str
    kafka: str
    broker: int
    partitions: tuple[str, ...]
    end: int | None = None
    """The offset at which something happens that the module does not have."""
    forge: tuple[int, Callable[[Record], Record]] | None = None
    """Which record is another one, and which."""

    def entries(self) -> Sequence[LogEntry]:
        """The log, forged or not."""
        entries = log_of(self.kafka)
        if self.forge is not None:
            offset, change = self.forge
            at = next(place for place, entry in enumerate(entries) if entry.offset == offset)
            present = entries[at].record
            assert isinstance(present, VersionedRecord)
            entries = tuple(with_record(entries, at, change(present.record)))
        return [entry for entry in entries if self.end is None or entry.offset < self.end]

    def states(self) -> list[tuple[int, Meta]]:
        """(base offset of the batch, state after it): the first with all partitions, then where something changes."""
        batch_states: list[tuple[int, Meta]] = []
        numbers = self.numbers()
        for base, image in _after_batches(self.entries()):
            if self.broker not in image.brokers or not set(self.partitions) <= set(_names(image)):
                continue
            meta = _meta(image, self.broker, self.partitions, numbers)
            if not batch_states or meta != batch_states[-1][1]:
                batch_states.append((base, meta))
        return batch_states

    def numbers(self) -> dict[Uuid, int]:
        """The directories that the broker registered first, from 1; 0 stands for unassigned."""
        records = (entry.record.record for entry in self.entries() if isinstance(entry.record, VersionedRecord))
        own = (
            record for record in records if isinstance(record, RegisterBrokerRecord) and record.broker_id == self.broker
        )
        return {directory: number for number, directory in enumerate((KAFKA_IDS.unassigned, *next(own).log_dirs))}

    def by_behaviour(self) -> str:
        """What `python -m lab explore --trace` says of the whole log."""
        entries = self.entries()
        *_, last = Behaviour(lambda: entries)
        if isinstance(last, Step):
            return "a behaviour"
        assert isinstance(last, Refusal)
        assert last.batch is not None
        return f"not from {last.batch[0]} on"

    def by_tlc(self) -> str:
        """What TLC says of this part of it."""
        states = self.states()
        constants = {
            "Brokers": "{1}",
            "Dirs": "{" + ", ".join(map(str, range(1, len(self.numbers())))) + "}",
            "Partitions": "{" + ", ".join(map(str, range(len(self.partitions)))) + "}",
            "Profile": '"kafka"',
            "Moves": "FALSE",
            "Faults": '{"fail", "crash", "expire"}',
            "Bug": '""',
        }
        explained = explain_trace(constants, module([meta for _, meta in states]))
        return "a behaviour" if explained == len(states) else f"not from {states[explained][0]} on"


def module(states: Sequence[Meta]) -> str:
    """Trace.tla: the behaviours of Jbod whose ``meta`` is these states, one after the other.

    An action that leaves ``meta`` as it is may come at any time; one that changes it must make the next state. The
    invariant says that the trace is not explained to its end, so that its counterexample is the explanation.
    """
    recorded = ",\n    ".join(map(str, states))
    return f"""---- MODULE Trace ----
EXTENDS Jbod, TLC

Recorded == <<
    {recorded}>>

VARIABLE at     \\* how much of it is explained

Farthest == IF TLCGet(1) < at' THEN TLCSet(1, at') /\\ PrintT(<<"explained", at'>>) ELSE TRUE

TraceInit == Init /\\ meta = Recorded[1] /\\ at = 1 /\\ TLCSet(1, 1)

TraceNext ==
    \\/ Next /\\ meta' = meta /\\ at' = at
    \\/ at < Len(Recorded) /\\ Next /\\ meta' = Recorded[at + 1] /\\ at' = at + 1 /\\ Farthest

TraceSpec == TraceInit /\\ [][TraceNext]_<<vars, at>>

Unexplained == at < Len(Recorded)
====
"""


def _after_batches(entries: Sequence[LogEntry]) -> Iterator[tuple[int, Image]]:
    image = Image()
    for at, entry in enumerate(entries):
        if isinstance(entry.record, VersionedRecord):
            image = image.apply(entry.record.record, entry.offset)
        if at + 1 == len(entries) or entries[at + 1].header != entry.header:
            yield entry.header.base_offset, image


def _names(image: Image) -> Iterator[str]:
    for topic in image.topics.values():
        for number in topic.partitions:
            yield f"{topic.name}-{number}"


def _meta(image: Image, broker_id: int, partitions: Sequence[str], numbers: dict[Uuid, int]) -> Meta:
    registration = image.brokers[broker_id]
    own = []
    for name in partitions:
        topic, _, number = name.rpartition("-")
        present = image.topic(topic)
        assert present is not None
        own.append(present.partitions[int(number)])
    assert all(partition.replicas == partition.isr == (broker_id,) for partition in own)
    return Meta(
        fenced=registration.fenced or registration.in_controlled_shutdown,
        online=tuple(sorted(numbers[directory] for directory in registration.directories)),
        leads=tuple(partition.leader == broker_id for partition in own),
        directory=tuple(numbers[partition.directory(broker_id)] for partition in own),
    )


def _function(values: Sequence[Any], shown: Callable[[Any], str]) -> str:
    return "(" + " @@ ".join(f"{number} :> {shown(value)}" for number, value in enumerate(values)) + ")"


def _home_lost(record: Record) -> Record:
    """The directory that fails is that of the partition, which goes on being led there."""
    assert isinstance(record, BrokerRegistrationChangeRecord)
    return replace(record, log_dirs=(Uuid.parse("4dY52-xSS6onnTRrhailpw"), record.log_dirs[0]))


def _nothing(_: Record) -> Record:
    return NoOpRecord()


def _leader_stays(record: Record) -> Record:
    assert isinstance(record, PartitionChangeRecord)
    return replace(record, leader=1)


def _other_partition(record: Record) -> Record:
    """The record elects for the partition in the other directory, which is gone."""
    assert isinstance(record, PartitionChangeRecord)
    return replace(record, partition_id=3)


LOSES = Trace("3.7.2, broker 1 loses a disk, stops, starts without it", "kafka-3.7.2", 1, ("solo-5",))
RETURNS = Trace("3.7.2, broker 4 is killed, stops, starts without a disk", "kafka-3.7.2", 4, ("solo-3", "solo-6"), 466)
"""At offset 477 a replica is recreated whose disk was taken out of log.dirs; the module's disks stay configured."""

TRACES = (
    LOSES,
    RETURNS,
    replace(LOSES, name=f"{LOSES.name}: another disk reported", forge=(157, _home_lost)),
    replace(LOSES, name=f"{LOSES.name}: led after its stop", forge=(209, _leader_stays)),
    replace(LOSES, name=f"{LOSES.name}: nobody elected", forge=(222, _nothing)),
    replace(RETURNS, name=f"{RETURNS.name}: led on the lost disk", forge=(464, _other_partition)),
)
