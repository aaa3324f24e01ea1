"""Logs of traces, of hand-written steps and of random legal histories."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from jbod_model.errors import ReplayViolation
from jbod_model.formats import records as r
from jbod_model.formats.log import LogWriter
from jbod_model.formats.records import Record, VersionedRecord
from jbod_model.formats.schema import API_KEYS, SCHEMAS
from jbod_model.ids import Uuid
from jbod_model.replay.image import Image
from lab.conformance.trace import recorded_records
from tests.support.traces import lines
from tests.support.written import TIME

LAST = {  # the version that can say everything
    kind: SCHEMAS[kind.__name__].max_version for kind in API_KEYS.values()
}


def write_log(directory: Path, batches: Iterable[Sequence[VersionedRecord]], *, base_offset: int = 0) -> int:
    """One segment of these batches, a millisecond apart; the offset after it."""
    writer = LogWriter(base_offset=base_offset)
    for number, batch in enumerate(batches):
        writer.append(batch, epoch=1, timestamp=TIME + number)
    writer.write(directory)
    return writer.next_offset


def log_of(directory: Path, *records: Record) -> Path:
    """A log of these records, a batch each."""
    write_log(directory, [[VersionedRecord(record, LAST[type(record)])] for record in records])
    return directory


def write_trace(directory: Path, name: str) -> list[dict[str, Any]]:
    """The records of a bundled trace as a log, a batch for each operation; the images of the trace."""
    images = []
    batches = []
    expected = 0
    for line in lines(name):
        if line["op"] == "image":
            images.append(line)
        elif records := recorded_records(line):
            assert line["baseOffset"] == expected
            expected += len(records)
            batches.append(records)
    assert write_log(directory, batches) == expected
    return images


# RANDOM HISTORIES


def _id(kind: int, number: int) -> Uuid:
    return Uuid(kind, -number if number % 2 else 1000 + number)


RESERVED = [Uuid(0, 0), Uuid(0, 1), Uuid(0, 2), Uuid(0, 7)]


@st.composite
def histories(draw: st.DrawFn, most: int = 40) -> list[Record]:
    """A legal history: every record is drawn, and kept if the model accepts it after those before."""
    image = Image()
    kept: list[Record] = [
        r.RegisterBrokerRecord(broker_id=1, broker_epoch=1, fenced=False, log_dirs=(_id(1, 0), _id(1, 1))),
        r.TopicRecord(name="t0", topic_id=_id(9, 0)),
    ]
    for record in kept:
        image = image.apply(record, 0)
    for number in range(draw(st.integers(3, most))):
        record = draw(_records(number))
        try:
            image = image.apply(record, number)
        except ReplayViolation:
            continue
        kept.append(record)
    return kept


@cache
def _records(number: int) -> st.SearchStrategy[Record]:
    """What can be drawn as record ``number``. Hypothesis takes longer to make strategies than to draw from them."""
    brokers = st.integers(1, 3)
    topics = st.integers(0, 3)
    partitions = st.integers(0, 2)
    directories = st.sampled_from([*RESERVED, *(_id(broker, n) for broker in (1, 2, 3) for n in (0, 1))])
    replicas = st.lists(brokers, min_size=1, max_size=3, unique=True).map(tuple)
    own = brokers.flatmap(
        lambda broker: st.tuples(st.just(broker), st.sets(st.integers(0, 2), max_size=3)).map(
            lambda pair: (pair[0], tuple(_id(pair[0], n) for n in sorted(pair[1])))
        )
    )
    assigned = replicas.flatmap(
        lambda broker_ids: st.tuples(
            st.just(broker_ids),
            st.lists(directories, min_size=len(broker_ids), max_size=len(broker_ids)).map(tuple) | st.just(()),
        )
    )
    ints = st.lists(brokers, max_size=3, unique=True).map(tuple)
    topic_ids = topics.map(lambda topic: _id(9, topic))
    change = st.builds(
        r.PartitionChangeRecord,
        topic_id=topic_ids,
        partition_id=partitions,
        isr=st.none() | ints,
        leader=st.sampled_from([-2, -2, -1, 1, 2]),
        removing_replicas=st.none() | ints,
        adding_replicas=st.none() | ints,
        eligible_leader_replicas=st.none() | ints,
        last_known_elr=st.none() | ints,
        leader_recovery_state=st.sampled_from([-1, 0, 1]),
    )
    return st.one_of(
        st.builds(
            lambda pair, fenced, ics: r.RegisterBrokerRecord(
                broker_id=pair[0],
                broker_epoch=number,
                incarnation_id=_id(5, number),
                fenced=fenced,
                in_controlled_shutdown=ics,
                log_dirs=pair[1],
            ),
            own,
            st.booleans(),
            st.booleans(),
        ),
        st.builds(
            lambda pair, fenced, ics, epoch: r.BrokerRegistrationChangeRecord(
                broker_id=pair[0], broker_epoch=epoch, fenced=fenced, in_controlled_shutdown=ics, log_dirs=pair[1]
            ),
            own,
            st.sampled_from([-1, 0, 1]),
            st.sampled_from([0, 0, 1]),
            st.integers(0, max(number, 1)),
        ),
        st.builds(r.FenceBrokerRecord, id=brokers, epoch=st.integers(0, max(number, 1))),
        st.builds(r.UnfenceBrokerRecord, id=brokers, epoch=st.integers(0, max(number, 1))),
        st.builds(r.UnregisterBrokerRecord, broker_id=brokers, broker_epoch=st.integers(0, max(number, 1))),
        # A name may come back with another id; an id is never drawn again for another name.
        topics.map(lambda topic: r.TopicRecord(name=f"t{topic % 2}", topic_id=_id(9, topic))),
        st.builds(r.RemoveTopicRecord, topic_id=topic_ids),
        st.builds(r.ClearElrRecord, topic_name=st.sampled_from(["", "t0", "t1", "t2"])),
        *[
            st.builds(
                lambda topic_id, partition, pair, isr, elr: r.PartitionRecord(
                    topic_id=topic_id,
                    partition_id=partition,
                    replicas=pair[0],
                    directories=pair[1],
                    isr=isr,
                    eligible_leader_replicas=elr,
                    leader=1,
                    leader_epoch=0,
                    partition_epoch=0,
                ),
                topic_ids,
                partitions,
                assigned,
                ints,
                st.none() | ints,
            )
        ]
        * 3,
        change,
        st.builds(_moved, change, assigned),
        st.builds(
            lambda base, directory_ids: r.PartitionChangeRecord(
                topic_id=base.topic_id, partition_id=base.partition_id, directories=directory_ids
            ),
            change,
            st.lists(directories, max_size=3).map(tuple),
        ),
    )


def _moved(base: r.PartitionChangeRecord, pair: tuple[tuple[int, ...], tuple[Uuid, ...]]) -> r.PartitionChangeRecord:
    return r.PartitionChangeRecord(
        topic_id=base.topic_id, partition_id=base.partition_id, replicas=pair[0], directories=pair[1] or None
    )
