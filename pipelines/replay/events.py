"""What the fold of a shard consumes: the records that touch partitions and topics, in log order, in columns."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from mmap import mmap

import numpy as np

from pipelines.formats.partitions import INT_LISTS
from pipelines.replay.lists import number_ids, renumber, take_lists
from pipelines.replay.pack import narrow, pack, unpack

TOPIC, PARTITION, CHANGE, REMOVE_TOPIC, CLEAR_ELR = 2, 3, 5, 9, 28
# Not a record: the end of a snapshot, where whatever it did not mention is gone.
SNAPSHOT_END = 255
NO_IDS = np.empty((0, 2), np.uint64)
_MILLISECOND = 1000


@dataclass(frozen=True)
class Events:
    """Columns of ``m`` events.

    ``offsets`` int64, ``times`` int64 (microseconds UTC), ``kinds`` uint8 (apiKey), ``snapshot`` bool; ``topic_of``
    int32 into ``topics`` uint64[t, 2] (-1: none); ``partitions`` int32, ``scalars`` int32[4, m]; ``int_values`` int32
    holds six columns of lists, one after another, with ``int_starts``, ``int_sizes`` int32[6, m] (size -1: null);
    ``id_of`` int32[*] into ``ids`` uint64[d, 2] with ``id_starts``, ``id_sizes`` int32[m]; ``names`` uint8[*] with
    ``name_ends`` int32[m + 1]: topic names in UTF-8.
    """

    offsets: np.ndarray
    times: np.ndarray
    kinds: np.ndarray
    snapshot: np.ndarray
    topic_of: np.ndarray
    topics: np.ndarray
    partitions: np.ndarray
    scalars: np.ndarray
    int_values: np.ndarray
    int_starts: np.ndarray
    int_sizes: np.ndarray
    id_of: np.ndarray
    ids: np.ndarray
    id_starts: np.ndarray
    id_sizes: np.ndarray
    names: np.ndarray
    name_ends: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets)

    def name(self, row: int) -> str:
        """The topic name of one event."""
        return bytes(self.names[self.name_ends[row] : self.name_ends[row + 1]]).decode()

    def topic_bytes(self, row: int) -> bytes:
        """The topic id of one event, big-endian as in the log."""
        number = int(self.topic_of[row])
        return bytes(16) if number < 0 else self.topics[number].tobytes()

    def take(self, rows: np.ndarray) -> Events:
        """The events at ``rows``, in that order, lists gathered and ids that they do not use left out."""
        values = [
            take_lists(self.int_values, self.int_starts[slot], self.int_sizes[slot], rows)[0]
            for slot in range(INT_LISTS)
        ]
        id_of, id_ends = take_lists(self.id_of, self.id_starts, self.id_sizes, rows)
        names, name_ends = take_lists(self.names, self.name_ends[:-1], np.diff(self.name_ends), rows)
        topic_of, topics = renumber(self.topic_of[rows], self.topics)
        id_of, ids = renumber(id_of, self.ids)
        int_sizes = self.int_sizes[:, rows]
        return Events(
            offsets=self.offsets[rows],
            times=self.times[rows],
            kinds=self.kinds[rows],
            snapshot=self.snapshot[rows],
            topic_of=topic_of,
            topics=topics,
            partitions=self.partitions[rows],
            scalars=self.scalars[:, rows],
            int_values=np.concatenate(values),
            int_starts=starts_of(int_sizes),
            int_sizes=int_sizes,
            id_of=id_of,
            ids=ids,
            id_starts=id_ends[:-1],
            id_sizes=self.id_sizes[rows],
            names=names,
            name_ends=name_ends,
        )

    def to_bytes(self, bounds: np.ndarray | None = None) -> bytes:
        """Packed, every column as narrow as its values allow.

        ``bounds`` int64[k + 1]: rows between which ``from_bytes`` can read one part without the others. Lists and
        topics lie in the order of the rows then, as ``take`` leaves them, and no two parts have a topic in common.
        """
        first = self.offsets[:1]
        began = self.times[:1] // _MILLISECOND
        return pack(
            {
                "cuts": self._cuts(np.array([0, len(self)]) if bounds is None else bounds),
                "first": first,
                "offsets": narrow(self.offsets - first if len(self) else self.offsets),
                "began": began,
                "times": narrow(self.times // _MILLISECOND - began if len(self) else self.times),
                "kinds": self.kinds,
                "snapshot": self.snapshot,
                "topic_of": narrow(self.topic_of),
                "topics": self.topics,
                "partitions": narrow(self.partitions),
                **{f"scalar{k}": narrow(self.scalars[k]) for k in range(len(self.scalars))},
                "int_values": narrow(self.int_values),
                "int_sizes": narrow(self.int_sizes),
                "id_of": narrow(self.id_of),
                "ids": self.ids,
                "id_sizes": narrow(self.id_sizes),
                "names": self.names,
                "name_sizes": narrow(np.diff(self.name_ends)),
            }
        )

    def _cuts(self, bounds: np.ndarray) -> np.ndarray:
        """Where each part begins and ends: int64[4 + INT_LISTS, k + 1], of rows, topics, ids, names and int lists."""
        tops = [int(self.topic_of[a:b].max(initial=-1)) + 1 for a, b in itertools.pairwise(bounds.tolist())]
        int_ends = [*self.int_starts[1:, :1].ravel().tolist(), len(self.int_values)] if len(self) else [0] * INT_LISTS
        return np.array(
            [
                bounds,
                [0, *np.maximum.accumulate(tops)[:-1], len(self.topics)] if tops else [0],
                np.append(self.id_starts, len(self.id_of))[bounds],
                self.name_ends[bounds],
                *(np.append(starts, end)[bounds] for starts, end in zip(self.int_starts, int_ends, strict=True)),
            ],
            np.int64,
        )

    @classmethod
    def from_bytes(cls, data: bytes | mmap, part: int = 0) -> Events:
        """Undo ``to_bytes``: one part of it, between its bounds. Of a mapped file only that part is read."""
        raw = unpack(data)
        rows, topics, ids, names, *ints = (slice(*ends) for ends in raw["cuts"][:, part : part + 2].tolist())
        int_sizes = raw["int_sizes"][:, rows].astype(np.int32)
        id_sizes = raw["id_sizes"][rows].astype(np.int32)
        topic_of = raw["topic_of"][rows].astype(np.int32)
        if topics.start:
            topic_of -= np.where(topic_of >= 0, np.int32(topics.start), np.int32(0))
        return cls(
            offsets=raw["offsets"][rows].astype(np.int64) + raw["first"],
            times=(raw["times"][rows].astype(np.int64) + raw["began"]) * _MILLISECOND,
            kinds=raw["kinds"][rows],
            snapshot=raw["snapshot"][rows],
            topic_of=topic_of,
            topics=raw["topics"][topics],
            partitions=raw["partitions"][rows].astype(np.int32),
            scalars=np.stack([raw[f"scalar{k}"][rows].astype(np.int32) for k in range(4)]),
            int_values=np.concatenate([raw["int_values"][values] for values in ints]).astype(np.int32),
            int_starts=starts_of(int_sizes),
            int_sizes=int_sizes,
            id_of=raw["id_of"][ids].astype(np.int32),
            ids=raw["ids"],
            id_starts=starts_of(id_sizes),
            id_sizes=id_sizes,
            names=raw["names"][names],
            name_ends=np.concatenate([[0], np.cumsum(raw["name_sizes"][rows].astype(np.int32))]).astype(np.int32),
        )


def starts_of(sizes: np.ndarray) -> np.ndarray:
    """Where lists of ``sizes`` (-1: null) begin when they lie one after another, row after row: int32, same shape."""
    flat = np.maximum(sizes.reshape(-1), 0)
    starts: np.ndarray = np.cumsum(flat, dtype=np.int64) - flat
    return starts.astype(np.int32).reshape(sizes.shape)


def no_events() -> Events:
    """No event at all."""
    none = np.zeros(0, np.int32)
    return Events(
        offsets=np.zeros(0, np.int64),
        times=np.zeros(0, np.int64),
        kinds=np.zeros(0, np.uint8),
        snapshot=np.zeros(0, np.bool_),
        topic_of=none,
        topics=NO_IDS,
        partitions=none,
        scalars=np.zeros((4, 0), np.int32),
        int_values=none,
        int_starts=np.zeros((INT_LISTS, 0), np.int32),
        int_sizes=np.zeros((INT_LISTS, 0), np.int32),
        id_of=none,
        ids=NO_IDS,
        id_starts=none,
        id_sizes=none,
        names=np.zeros(0, np.uint8),
        name_ends=np.zeros(1, np.int32),
    )


def end_of_snapshot(offset: int, time: int) -> Events:
    """The one event that closes a snapshot, at its last contained offset."""
    return Events(
        offsets=np.array([offset], np.int64),
        times=np.array([time], np.int64),
        kinds=np.array([SNAPSHOT_END], np.uint8),
        snapshot=np.ones(1, np.bool_),
        topic_of=np.full(1, -1, np.int32),
        topics=NO_IDS,
        partitions=np.full(1, -1, np.int32),
        scalars=np.zeros((4, 1), np.int32),
        int_values=np.zeros(0, np.int32),
        int_starts=np.zeros((INT_LISTS, 1), np.int32),
        int_sizes=np.full((INT_LISTS, 1), -1, np.int32),
        id_of=np.zeros(0, np.int32),
        ids=NO_IDS,
        id_starts=np.zeros(1, np.int32),
        id_sizes=np.full(1, -1, np.int32),
        names=np.zeros(0, np.uint8),
        name_ends=np.zeros(2, np.int32),
    )


def concat(parts: Sequence[Events]) -> Events:
    """Events one after another."""
    if not parts:
        return no_events()
    if len(parts) == 1:
        return parts[0]
    int_bases = _bases(len(part.int_values) for part in parts)
    id_bases = _bases(len(part.id_of) for part in parts)
    name_bases = _bases(len(part.names) for part in parts)
    topic_of, topics = _joined([(part.topic_of, part.topics) for part in parts])
    id_of, ids = _joined([(part.id_of, part.ids) for part in parts])
    return Events(
        offsets=np.concatenate([part.offsets for part in parts]),
        times=np.concatenate([part.times for part in parts]),
        kinds=np.concatenate([part.kinds for part in parts]),
        snapshot=np.concatenate([part.snapshot for part in parts]),
        topic_of=topic_of,
        topics=topics,
        partitions=np.concatenate([part.partitions for part in parts]),
        scalars=np.concatenate([part.scalars for part in parts], axis=1),
        int_values=np.concatenate([part.int_values for part in parts]),
        int_starts=np.concatenate([p.int_starts + b for p, b in zip(parts, int_bases, strict=True)], axis=1),
        int_sizes=np.concatenate([part.int_sizes for part in parts], axis=1),
        id_of=id_of,
        ids=ids,
        id_starts=np.concatenate([p.id_starts + b for p, b in zip(parts, id_bases, strict=True)]),
        id_sizes=np.concatenate([part.id_sizes for part in parts]),
        names=np.concatenate([part.names for part in parts]),
        name_ends=np.concatenate(
            [np.zeros(1, np.int32), *(p.name_ends[1:] + b for p, b in zip(parts, name_bases, strict=True))]
        ),
    )


def _bases(sizes: Iterable[int]) -> list[np.int32]:
    bases, total = [], 0
    for size in sizes:
        bases.append(np.int32(total))
        total += size
    return bases


def _joined(parts: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Numbers into several tables of ids as numbers into one."""
    table = np.concatenate([ids for _, ids in parts])
    one, distinct = number_ids(table, NO_IDS)
    bases = _bases(len(ids) for _, ids in parts)
    # The last entry serves number -1, "none".
    one = np.append(one, np.int32(-1))
    moved = [one[np.where(numbers < 0, -1, numbers + base)] for (numbers, _), base in zip(parts, bases, strict=True)]
    return np.concatenate(moved), distinct
