"""The input of a shard's fold: the records that touch partitions and topics, in log order, as columns."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from mmap import mmap
from typing import Any

import numpy as np

from jbod_model.formats.records import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from jbod_model.formats.schema import API_KEY_OF
from pipelines.fold.pack import narrow, pack, unpack
from pipelines.formats.kernels import mix, njit, number_ids, renumber, take_lists
from pipelines.formats.partitions import INT_LISTS
from pipelines.formats.records import Records

TOPIC, REMOVE_TOPIC, CLEAR_ELR = (API_KEY_OF[kind] for kind in (TopicRecord, RemoveTopicRecord, ClearElrRecord))
PARTITION, CHANGE = (API_KEY_OF[kind] for kind in (PartitionRecord, PartitionChangeRecord))
# Not a record: the end of a snapshot. Everything that the snapshot did not contain ends here.
SNAPSHOT_END = 255
NO_IDS = np.empty((0, 2), np.uint64)
_MILLISECOND = 1000


@dataclass(frozen=True)
class Events:
    """Columns of ``m`` events.

    ``offsets`` int64, ``batches`` int64 (base offset of the batch; of a snapshot's record its offset), ``times`` int64
    (microseconds UTC), ``kinds`` uint8 (apiKey), ``snapshot`` bool; ``topic_of``
    int32 into ``topics`` uint64[t, 2] (-1: none); ``partitions`` int32, ``scalars`` int32[4, m]; ``int_values`` int32
    holds the values of six columns of lists, with ``int_starts``, ``int_sizes`` int32[6, m] (size -1: null);
    ``directories`` int32[*] into ``directory_ids`` uint64[d, 2] with ``directory_starts``, ``directory_sizes``
    int32[m]; ``names`` uint8[*] with ``name_ends`` int32[m + 1]: topic names in UTF-8.
    """

    offsets: np.ndarray
    batches: np.ndarray
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
    directories: np.ndarray
    directory_ids: np.ndarray
    directory_starts: np.ndarray
    directory_sizes: np.ndarray
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
        """Returns the events at ``rows``, in that order, with only the lists and ids that they use."""
        values = [
            take_lists(self.int_values, self.int_starts[slot], self.int_sizes[slot], rows)[0]
            for slot in range(INT_LISTS)
        ]
        directories, directory_ends = take_lists(self.directories, self.directory_starts, self.directory_sizes, rows)
        names, name_ends = take_lists(self.names, self.name_ends[:-1], np.diff(self.name_ends), rows)
        topic_of, topics = renumber(self.topic_of[rows], self.topics)
        directories, ids = renumber(directories, self.directory_ids)
        int_sizes = self.int_sizes.take(rows, axis=1)  # in the layout that kernels are compiled for
        return Events(
            offsets=self.offsets[rows],
            batches=self.batches[rows],
            times=self.times[rows],
            kinds=self.kinds[rows],
            snapshot=self.snapshot[rows],
            topic_of=topic_of,
            topics=topics,
            partitions=self.partitions[rows],
            scalars=self.scalars.take(rows, axis=1),
            int_values=np.concatenate(values),
            int_starts=starts_of(int_sizes),
            int_sizes=int_sizes,
            directories=directories,
            directory_ids=ids,
            directory_starts=directory_ends[:-1],
            directory_sizes=self.directory_sizes[rows],
            names=names,
            name_ends=name_ends,
        )

    def to_bytes(self, bounds: np.ndarray | None = None) -> bytes:
        """Packs ``columns``."""
        return pack(self.columns(bounds))

    def columns(self, bounds: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """The columns of ``Part``, each in the narrowest type for its values.

        ``bounds`` int64[k + 1]: the rows where parts begin and end, so that ``join`` can read one part alone. Lists and
        topics must then be in the order of the rows, as after ``take``, and no two parts may share a topic.
        """
        first = self.offsets[:1]
        began = self.times[:1] // _MILLISECOND
        return {
            "cuts": self._cuts(np.array([0, len(self)]) if bounds is None else bounds),
            "first": first,
            "offsets": narrow(self.offsets - first if len(self) else self.offsets),
            "in_batch": narrow(self.offsets - self.batches),
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
            "directories": narrow(self.directories),
            "directory_ids": self.directory_ids,
            "directory_sizes": narrow(self.directory_sizes),
            "names": self.names,
            "name_sizes": narrow(np.diff(self.name_ends)),
        }

    def _cuts(self, bounds: np.ndarray) -> np.ndarray:
        """Bounds of the parts: int64[4 + INT_LISTS, k + 1], in rows, topics, ids, names and int lists."""
        tops = [int(self.topic_of[a:b].max(initial=-1)) + 1 for a, b in itertools.pairwise(bounds.tolist())]
        int_ends = [*self.int_starts[1:, :1].ravel().tolist(), len(self.int_values)] if len(self) else [0] * INT_LISTS
        return np.array(
            [
                bounds,
                [0, *np.maximum.accumulate(tops)[:-1], len(self.topics)] if tops else [0],
                np.append(self.directory_starts, len(self.directories))[bounds],
                self.name_ends[bounds],
                *(np.append(starts, end)[bounds] for starts, end in zip(self.int_starts, int_ends, strict=True)),
            ],
            np.int64,
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Events:
        """Undo ``to_bytes``."""
        return join([Part.of(data)])


@dataclass(frozen=True)
class Part:
    """The events between two bounds of columns (``Events.columns``)."""

    packed: Mapping[str, np.ndarray]
    number: int = 0

    @classmethod
    def of(cls, data: bytes | mmap, number: int = 0) -> Part:
        """Part ``number`` of packed events, or of a file of them that is mapped into memory."""
        return cls(unpack(data), number)


# The kinds of rows of ``Events._cuts``, in its order. Int lists follow.
_ROWS, _TOPICS, _IDS, _NAMES, _INTS = range(5)


class _Joined:
    """The columns of several parts, concatenated. ``bounds`` int64[parts + 1, kinds]: of each part in the result."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.tables = [part.packed for part in parts]
        cuts = [part.packed["cuts"][:, part.number : part.number + 2] for part in parts]
        self._cuts = np.array(cuts, np.int64).reshape(len(parts), _INTS + INT_LISTS, 2)
        self.bounds = np.zeros((len(parts) + 1, _INTS + INT_LISTS), np.int64)
        np.cumsum(self._cuts[:, :, 1] - self._cuts[:, :, 0], axis=0, out=self.bounds[1:])
        self._sources, self._targets = self._cuts.tolist(), self.bounds.tolist()

    def spans(self, kind: int) -> Iterator[tuple[Mapping[str, np.ndarray], slice, slice]]:
        """For each part: its columns, its bounds in them, and its bounds in the result."""
        for packed, source, begin, end in zip(
            self.tables, self._sources, self._targets[:-1], self._targets[1:], strict=True
        ):
            yield packed, slice(*source[kind]), slice(begin[kind], end[kind])

    def size(self, kind: int) -> int:
        """The number of rows of a kind in the result."""
        return int(self.bounds[-1, kind])

    def column(self, name: str, kind: int, dtype: type[np.generic], origin: str = "") -> np.ndarray:
        """A column of the result. ``origin``: the column whose only value each part adds."""
        out = np.empty(self.size(kind), dtype)
        for packed, source, target in self.spans(kind):
            if origin:
                np.add(packed[name][source], packed[origin], out=out[target])
            else:
                out[target] = packed[name][source]
        return out

    def scalars(self) -> np.ndarray:
        """The scalars of the events: int32[4, m]."""
        scalars = np.empty((4, self.size(_ROWS)), np.int32)
        for packed, source, target in self.spans(_ROWS):
            for k in range(len(scalars)):
                scalars[k, target] = packed[f"scalar{k}"][source]
        return scalars

    def int_sizes(self) -> np.ndarray:
        """The sizes of the int lists: int32[6, m]."""
        sizes = np.empty((INT_LISTS, self.size(_ROWS)), np.int32)
        for packed, source, target in self.spans(_ROWS):
            sizes[:, target] = packed["int_sizes"][:, source]
        return sizes

    def topics(self) -> tuple[np.ndarray, np.ndarray]:
        """The topic number of each event, and the ids of the topics, each once."""
        ids = np.empty((self.size(_TOPICS), 2), np.uint64)
        for packed, source, target in self.spans(_TOPICS):
            ids[target] = packed["topics"][source]
        numbers, unique = number_ids(ids, NO_IDS)
        topic_of = self.column("topic_of", _ROWS, np.int32)
        _renumber_parts(topic_of, self.bounds[:, _ROWS], self.bounds[:-1, _TOPICS] - self._cuts[:, _TOPICS, 0], numbers)
        return topic_of, unique

    def directories(self) -> tuple[np.ndarray, np.ndarray]:
        """The directory numbers in the lists, and the ids of the directories, each once."""
        ids = [packed["directory_ids"] for packed in self.tables]
        numbers, unique = number_ids(np.concatenate([NO_IDS, *ids]), NO_IDS)
        directories = self.column("directories", _IDS, np.int32)
        _renumber_parts(directories, self.bounds[:, _IDS], np.cumsum([0, *map(len, ids)], dtype=np.int64), numbers)
        return directories, unique


def join(parts: Sequence[Part]) -> Events:
    """Concatenates the events of all parts. Each value is copied once."""
    joined = _Joined(parts)
    topic_of, topics = joined.topics()
    directories, directory_ids = joined.directories()
    offsets = joined.column("offsets", _ROWS, np.int64, "first")
    int_sizes = joined.int_sizes()
    directory_sizes = joined.column("directory_sizes", _ROWS, np.int32)
    times = joined.column("times", _ROWS, np.int64, "began")
    times *= _MILLISECOND
    return Events(
        offsets=offsets,
        batches=offsets - joined.column("in_batch", _ROWS, np.int64),
        times=times,
        kinds=joined.column("kinds", _ROWS, np.uint8),
        snapshot=joined.column("snapshot", _ROWS, np.bool_),
        topic_of=topic_of,
        topics=topics,
        partitions=joined.column("partitions", _ROWS, np.int32),
        scalars=joined.scalars(),
        int_values=np.concatenate([joined.column("int_values", _INTS + slot, np.int32) for slot in range(INT_LISTS)]),
        int_starts=starts_of(int_sizes),
        int_sizes=int_sizes,
        directories=directories,
        directory_ids=directory_ids,
        directory_starts=starts_of(directory_sizes),
        directory_sizes=directory_sizes,
        names=joined.column("names", _NAMES, np.uint8),
        name_ends=np.concatenate([[0], np.cumsum(joined.column("name_sizes", _ROWS, np.int32))]).astype(np.int32),
    )


@njit(cache=True, nogil=True)
def _renumber_parts(numbers: Any, ends: Any, shifts: Any, new_numbers: Any) -> None:
    """Renumbers references into the tables of parts (-1: none): n of part i becomes ``new_numbers[n + shifts[i]]``."""
    for i in range(len(ends) - 1):
        for row in range(ends[i], ends[i + 1]):
            if numbers[row] >= 0:
                numbers[row] = new_numbers[numbers[row] + shifts[i]]


@njit(cache=True, nogil=True)
def _starts(sizes: Any, out: Any) -> None:
    at = np.int32(0)
    for i in range(len(sizes)):
        out[i] = at
        at += max(sizes[i], np.int32(0))


def starts_of(sizes: np.ndarray) -> np.ndarray:
    """Start of each list if lists of ``sizes`` (int32, -1: null) are concatenated row by row: same shape."""
    out = np.empty(sizes.shape, np.int32)
    _starts(sizes.reshape(-1), out.reshape(-1))
    return out


def end_of_snapshot(offset: int, time: int) -> Events:
    """The event that closes a snapshot, at its last contained offset."""
    return Events(
        offsets=np.array([offset], np.int64),
        batches=np.array([offset], np.int64),
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
        directories=np.zeros(0, np.int32),
        directory_ids=NO_IDS,
        directory_starts=np.zeros(1, np.int32),
        directory_sizes=np.full(1, -1, np.int32),
        names=np.zeros(0, np.uint8),
        name_ends=np.zeros(2, np.int32),
    )


@dataclass(frozen=True)
class SliceIds:
    """For each of ``n`` records: ``part_row`` int64[n], its row among the partition records (-1: not one of them), and
    ``topic_of`` int32[n], its topic's number in ``topics`` uint64[t, 2] (-1: no topic). ``directories`` int32[*]: the
    directories of partitions in the order of the records, as numbers in ``directory_ids`` uint64[d, 2]."""

    part_row: np.ndarray
    topic_of: np.ndarray
    topics: np.ndarray
    directories: np.ndarray
    directory_ids: np.ndarray

    @classmethod
    def of(cls, records: Records) -> SliceIds:
        """Numbers the ids in all records of a slice."""
        part_row = np.full(len(records), -1, np.int64)
        part_row[records.partition_at] = np.arange(len(records.partition_at))
        of_part, topics = number_ids(records.partitions.topics, NO_IDS)
        topic_of = np.full(len(records), -1, np.int32)
        topic_of[records.partition_at] = of_part
        others = np.flatnonzero(records.topic_at >= 0)
        if len(others):
            at = records.topic_at[others][:, None] + np.arange(16)
            topic_of[others], topics = number_ids(records.data[at].view(np.uint64), topics)
        part = records.partitions
        return cls(part_row, topic_of, topics, *number_ids(part.directory_ids[: part.directory_ends[-1]], NO_IDS))


_MOST_TYPES = 255
_OF_PARTITIONS = np.zeros(_MOST_TYPES + 1, np.bool_)
_OF_PARTITIONS[[TOPIC, PARTITION, CHANGE, REMOVE_TOPIC, CLEAR_ELR]] = True


@njit(cache=True, nogil=True)
def _shards(topics: Any, shards: int, out: Any) -> None:
    for i in range(len(topics)):
        out[i] = mix(topics[i, 0], topics[i, 1]) % np.uint64(shards)


def shards_of(topics: np.ndarray, shards: int) -> np.ndarray:
    """Shard of each topic id (uint64[n, 2]): int32[n]."""
    out = np.empty(len(topics), np.int32)
    _shards(topics, shards, out)
    return out


def rows_of_events(records: Records, kept: np.ndarray | None = None) -> np.ndarray:
    """Rows of the records that touch topics and partitions. ``kept`` bool[n]: false for those that do not count."""
    wanted = _OF_PARTITIONS[np.minimum(records.types, _MOST_TYPES)] & records.known
    if kept is not None:
        wanted &= kept
    return np.flatnonzero(wanted)


def events_of(
    records: Records, rows: np.ndarray, *, snapshot: int | None = None, named: SliceIds | None = None
) -> Events:
    """Events of the records at ``rows``, in that order.

    ``snapshot``: the last contained offset if the records are those of a snapshot. All of them apply at that offset.
    """
    named = named or SliceIds.of(records)
    m = len(rows)
    part = records.partitions
    part_row = named.part_row[rows]
    hits = np.flatnonzero(part_row >= 0)
    at = part_row[hits]
    partitions, scalars = np.full(m, -1, np.int32), np.zeros((4, m), np.int32)
    partitions[hits] = part.partitions[at]
    values: list[np.ndarray] = []
    int_sizes = np.full((INT_LISTS, m), -1, np.int32)
    for slot in range(len(scalars)):
        scalars[slot, hits] = part.scalars[slot, at]
    for slot in range(INT_LISTS):
        taken, sizes = _lists(part.ints[slot], part.int_ends[slot], part.present[slot], at)
        int_sizes[slot, hits] = sizes
        values.append(taken)
    directory_sizes = np.full(m, -1, np.int32)
    directories, directory_sizes[hits] = _lists(named.directories, part.directory_ends, part.present[INT_LISTS], at)
    names, name_ends = take_lists(records.data, records.name_at, records.name_sizes, rows)
    topic_of, topics = renumber(named.topic_of[rows], named.topics)
    offsets = records.offsets[rows] if snapshot is None else np.full(m, snapshot, np.int64)
    return Events(
        offsets=offsets,
        batches=records.headers["base_offset"][records.batch[rows]] if snapshot is None else offsets,
        times=records.headers["timestamp"][records.batch[rows]] * 1000,
        kinds=records.types[rows].astype(np.uint8),
        snapshot=np.full(m, snapshot is not None, np.bool_),
        topic_of=topic_of,
        topics=topics,
        partitions=partitions,
        scalars=scalars,
        int_values=np.concatenate(values),
        int_starts=starts_of(int_sizes),
        int_sizes=int_sizes,
        directories=directories,
        directory_ids=named.directory_ids,
        directory_starts=starts_of(directory_sizes),
        directory_sizes=directory_sizes,
        names=names,
        name_ends=name_ends,
    )


def _lists(
    values: np.ndarray, ends: np.ndarray, present: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The lists at ``rows``: (values of all lists, concatenated; sizes, -1 for null)."""
    sizes = np.where(present, np.diff(ends), np.int32(-1))
    # Most kinds of lists are empty in most clusters.
    taken = take_lists(values, ends[:-1], sizes, rows)[0] if ends[-1] else values[:0]
    return taken, sizes[rows]


def by_shard(rows: np.ndarray, named: SliceIds, shards: int) -> tuple[np.ndarray, np.ndarray]:
    """Sorts ``rows`` by shard, and by log order within a shard. Events without a topic id go to every shard.

    Returns the rows and the bounds of the shards among them: int64[shards + 1].
    """
    topics = named.topic_of[rows]
    owner = np.append(shards_of(named.topics, shards), np.int32(0))[topics].astype(np.uint8)
    everywhere = topics < 0
    if everywhere.any():
        wide, own = rows[everywhere], rows[~everywhere]
        rows = np.concatenate([own, np.tile(wide, shards)])
        owner = np.concatenate([owner[~everywhere], np.repeat(np.arange(shards, dtype=np.uint8), len(wide))])
        order = np.lexsort((rows, owner))
    else:
        order = np.argsort(owner, kind="stable")
    return rows[order], np.searchsorted(owner[order], np.arange(shards + 1))
