"""The partitions of a lake as columns of numbers, to judge restarts of a large cluster in a moment.

Brokers are numbered from 0 (``Columns.brokers``), and a partition has a slot for each of its replicas: every list of
brokers becomes a row of flags, parallel to the replicas.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jbod_model.controller.cluster import MIN_ISR
from jbod_model.formats.metadata_version import LEVELS, METADATA_VERSION
from jbod_model.ids import ID_TABLES, Uuid
from jbod_model.profiles import PROFILES, Profile
from jbod_model.replay.image import BrokerRegistration, Image, Partition, Topic
from jbod_model.replay.offline import has_online_dir
from pipelines.ask.configs import UNCLEAN_ELECTION, features, is_true, min_isr, unclean_elections
from pipelines.ask.lost_data import perhaps_offline
from pipelines.ask.whatif_places import registrations, stand_in
from pipelines.lake.delta import reading
from pipelines.lake.reader import Lake

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int32]

_LISTS = ("isr", "elr", "last_known_elr", "adding", "removing")
OTHER = 1 << 30
"""A broker that is in a list of a partition, and is none of its replicas."""


@dataclass(frozen=True)
class TopicSettings:
    """What an election and a write depend on besides the partition, by topic."""

    min_isr: int
    """As it is set."""
    first_replicas: int
    """Replicas of partition 0: the controller's limit of ``min_isr`` (R-CFG-3)."""
    unclean: bool


@dataclass(frozen=True)
class Columns:
    """The partitions at an offset. All arrays have a row for each partition, in the order of topic and number."""

    table: pa.Table
    """topic, topic_id, partition."""
    brokers: npt.NDArray[np.int64]
    """The ids of all brokers that a partition names or that are registered, ascending."""
    registered: Mapping[int, BrokerRegistration]
    profile: Profile
    features: Mapping[str, int]
    settings: Sequence[TopicSettings]
    replicas: Numbers
    """Numbers of brokers, -1 after the last replica."""
    directory: Numbers
    """The place in ``directories`` of each replica, -1 after the last one."""
    directories: Sequence[tuple[int, str]]
    """The number of a broker, and the id of one of the directories that its replicas name."""
    placed: Flags
    """Whether the replica is online as far as its directory is concerned."""
    unsure: Flags
    """Whether it counts as online, and may lie in a directory that is not (R-ACT-1)."""
    isr: Flags
    elr: Flags
    last_known_elr: Flags
    adding: Flags
    removing: Flags
    leader: Numbers
    """The slot of the leader, -1 if there is none, OTHER if it is no replica."""
    recovering: Flags
    strange: Flags
    """Whether a list names a broker that is no replica."""
    setting: Numbers
    """The index of the topic's setting."""

    def __len__(self) -> int:
        return len(self.replicas)

    @cached_property
    def there(self) -> Flags:
        """Whether a slot has a replica."""
        return self.replicas >= 0

    @cached_property
    def count(self) -> Numbers:
        """Replicas of each partition."""
        counts: Numbers = self.there.sum(axis=1, dtype=np.int32)
        return counts

    @cached_property
    def min_isr(self) -> Numbers:
        """The effective min.insync.replicas: at most the number of replicas."""
        wanted = np.array([topic_settings.min_isr for topic_settings in self.settings] or [1], np.int32)
        effective: Numbers = np.minimum(wanted[self.setting], self.count)
        return effective

    @cached_property
    def online(self) -> Flags:
        """Whether a replica is online."""
        return self.placed & self.on(
            broker for broker, registration in self.registered.items() if not registration.fenced
        )

    @cached_property
    def can_lead(self) -> Flags:
        """Whether the controller may elect the replica, once it is in sync (R-ELECT-1)."""
        stopping = [broker for broker, registration in self.registered.items() if registration.in_controlled_shutdown]
        return self.online & ~self.on(stopping)

    @cached_property
    def may_elect(self) -> Flags:
        """Partitions without a leader that may elect a replica which lacks writes as soon as any broker is unfenced:
        where unclean elections are on, the last known leader, if it can lead or not (R-ELECT-4, R-QUIRK-11), or one
        that is listed, and was recreated empty (R-ACT-1)."""
        unclean = np.array([topic_settings.unclean for topic_settings in self.settings] or [False], bool)[self.setting]
        able = (unclean & self.can_lead.any(axis=1)) | self.last_known_elr.any(axis=1) | self.listed_online
        flags: Flags = (self.leader < 0) & able
        return flags

    @cached_property
    def listed_online(self) -> Flags:
        """Partitions with a replica that is in sync or eligible, and can lead."""
        flags: Flags = np.asarray(((self.isr | self.elr) & self.can_lead).any(axis=1))
        return flags

    def on(self, brokers: Any) -> Flags:
        """Whether a replica is on one of the brokers."""
        known = np.zeros(len(self.brokers) + 1, bool)  # the last one is for slots without a replica
        ids = np.fromiter(brokers, np.int64)
        known[:-1] = np.isin(self.brokers, ids)
        return known[self.replicas]

    def replica_ids(self, rows: npt.NDArray[np.int64]) -> list[list[int]]:
        """The brokers of each partition."""
        ids = self.brokers[self.replicas[rows]].tolist()
        return [brokers[:size] for brokers, size in zip(ids, self.count[rows].tolist(), strict=True)]

    def leader_ids(self, rows: npt.NDArray[np.int64]) -> list[int]:
        """The leader of each partition, -1 if there is none among its replicas."""
        slot = self.leader[rows]
        led = (slot >= 0) & (slot < self.replicas.shape[1])
        leaders: list[int] = np.where(led, self.brokers[self.replicas[rows, np.where(led, slot, 0)]], -1).tolist()
        return leaders

    def name(self, row: int) -> str:
        """``topic-0``"""
        return f"{self.table['topic'][row].as_py()}-{self.table['partition'][row].as_py()}"

    def among(self, keys: Container[tuple[str, int]]) -> dict[int, tuple[str, int]]:
        """Row -> (topic, partition) of those that are among ``keys``."""
        every = zip(self.table["topic"].to_pylist(), self.table["partition"].to_pylist(), strict=True)
        return {row: key for row, key in enumerate(every) if key in keys}

    def named(self, rows: npt.NDArray[np.int64]) -> list[dict[str, Any]]:
        """The rows of ``table``. Arrow's own constructor of arrays would import pandas first."""
        wanted = pa.py_buffer(np.ascontiguousarray(rows, np.int64))
        partitions: list[dict[str, Any]] = self.table.take(
            pa.Array.from_buffers(pa.int64(), len(rows), [None, wanted])
        ).to_pylist()
        return partitions

    def settled(self) -> Columns:
        """The same after every follower that can catch up has, and every reassignment that can be complete is."""
        led = (self.leader >= 0) & self.online.any(axis=1)
        complete = led & (self.online | self.removing | ~self.there).all(axis=1) & ~self.strange
        gone = self.removing & complete[:, None]  # a reassignment has what it removes at the end (R-REASSIGN-1)
        moving = ~complete[:, None]
        replicas = np.where(gone, -1, self.replicas).astype(np.int32)
        after = replace(self, replicas=replicas, adding=self.adding & moving, removing=self.removing & moving)
        in_sync = self.online & ~gone
        leads = np.where(complete & (self.leader >= after.count), in_sync.argmax(axis=1), self.leader)
        return replace(
            after,
            isr=np.where(led[:, None], in_sync, self.isr),
            elr=self.elr & ~led[:, None],
            placed=self.placed & ~gone,
            unsure=self.unsure & ~gone,
            leader=leads.astype(np.int32),
        )

    # IMAGES FOR THE MODEL

    def shapes(self, rows: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """One row of each kind among ``rows``, and for each of ``rows`` the index of its kind.

        Partitions are of a kind if the controller cannot tell them apart but for their names.
        """
        flags = (self.placed, self.unsure, self.isr, self.elr, self.last_known_elr, self.adding, self.removing)
        bits = np.zeros((len(rows), self.replicas.shape[1]), np.int32)
        for at, flag in enumerate(flags):
            bits |= flag[rows].astype(np.int32) << at
        of_one = (self.leader[rows], self.recovering[rows], self.setting[rows], self.strange[rows] * (rows + 1))
        key = np.column_stack([self.replicas[rows], bits, *of_one]).astype(np.int64)
        first, kind = kinds(key)
        return rows[first], kind

    def image(self, rows: npt.NDArray[np.int64], lake: Lake) -> tuple[Image, list[tuple[Uuid, int]]]:
        """An image with all brokers and these partitions, and where each of them is in it.

        Topics are made up: one for each setting. Their partition 0 stands for that of the topic (R-CFG-3). A directory
        that is online is its broker's first one, and any other is LOST: the controller treats them alike.
        """
        partitions: dict[int, dict[int, Partition]] = {}
        ids = ID_TABLES[lake.published.ids]
        nowhere = ids.migrating if self.profile.absent_directories == "migrating" else ids.unassigned  # R-PART-3
        strange = self._lists(rows[self.strange[rows]], lake)
        places = []
        for row in rows.tolist():
            topic = int(self.setting[row])
            known = partitions.setdefault(topic, {0: stand_in(self.settings[topic].first_replicas, ids.lost)})
            places.append((Uuid(topic + 1, 0), len(known)))
            known[len(known)] = self._partition(row, strange.get(row), nowhere, ids.lost)
        topics = {
            Uuid(topic + 1, 0): Topic(name=f"{topic}", topic_id=Uuid(topic + 1, 0), partitions=known)
            for topic, known in partitions.items()
        }
        configs = {(2, f"{topic}"): _config(self.settings[topic]) for topic in partitions}
        image = Image(
            ids=ids,
            brokers=dict(self.registered),
            topics=topics,
            topic_ids={topic.name: topic_id for topic_id, topic in topics.items()},
            features=dict(self.features),
            configs=configs,
        )
        return image, places

    def _partition(self, row: int, lists: Mapping[str, Sequence[int]] | None, nowhere: Uuid, lost: Uuid) -> Partition:
        size = int(self.count[row])
        replicas = [int(broker_id) for broker_id in self.brokers[self.replicas[row, :size]]]

        def members(name: str) -> tuple[int, ...]:
            if lists is not None:
                return tuple(lists[name])
            return tuple(
                broker_id for broker_id, there in zip(replicas, getattr(self, name)[row], strict=False) if there
            )

        def directory(broker: int, slot: int) -> Uuid:
            registration = self.registered.get(broker)
            if not self.placed[row, slot]:
                return lost
            return registration.directories[0] if registration is not None and registration.directories else nowhere

        slot = int(self.leader[row])
        leader = -1 if slot < 0 else replicas[slot] if slot < size else int(lists["leader"][0]) if lists else -1
        return Partition(
            replicas=tuple(replicas),
            directories=tuple(directory(broker, slot) for slot, broker in enumerate(replicas)),
            isr=members("isr"),
            removing_replicas=members("removing"),
            adding_replicas=members("adding"),
            eligible_leader_replicas=members("elr"),
            last_known_elr=members("last_known_elr"),
            leader=leader,
            leader_recovery_state=int(self.recovering[row]),
            leader_epoch=0,
            partition_epoch=0,
        )

    def _lists(self, rows: npt.NDArray[np.int64], lake: Lake) -> dict[int, dict[str, Sequence[int]]]:
        """The lists of partitions that name brokers which are no replicas, as the metadata has them."""
        lists = {}
        for row in rows.tolist():
            where = [self.table["topic_id"][row].as_py(), self.table["partition"][row].as_py()]
            (values,) = lake.query(
                f"SELECT {', '.join(_LISTS)}, [leader] FROM {lake.at('partitions')} "
                "WHERE topic_id = $1 AND partition = $2",
                where,
            )
            lists[row] = dict(zip((*_LISTS, "leader"), values, strict=True))
        return lists


def columns(lake: Lake, default_min_isr: int = 1) -> Columns:
    """The partitions at the lake's offset. ``default_min_isr`` applies if the log does not set it."""
    with reading(lake.path):
        table = lake.connection.sql(
            f"""
            SELECT topic, topic_id, partition, replicas, directories, {", ".join(_LISTS)}, leader,
                   (leader_recovery = 'RECOVERING')::TINYINT AS recovering
            FROM {lake.at("partitions")} ORDER BY topic, partition
            """
        ).to_arrow_table()
    registered = {broker.broker_id: broker for broker in registrations(lake)}
    table = table.combine_chunks()
    profile = PROFILES[lake.published.profile]
    lists = {name: _flat(table, name) for name in ("replicas", "directories", *_LISTS)}
    leader = _numbers(table["leader"])
    numbers = [values for name, (_, values) in lists.items() if name != "directories"]
    brokers = np.unique(np.concatenate([*numbers, leader[leader >= 0], np.array([*registered], np.int64)]))
    brokers = brokers.astype(np.int64)
    of, values = lists["replicas"]
    slot = np.arange(len(of)) - np.searchsorted(of, of)
    width = int(slot.max(initial=0)) + 1
    replicas = np.full((len(table), width), -1, np.int32)
    replicas[of, slot] = np.searchsorted(brokers, values)
    directory = np.full((len(table), width), -1, np.int32)
    directory[of, slot], directories = _directories(lists["directories"][1], replicas[of, slot])
    online = _online(directories, brokers, registered, profile, lake)
    flags, strange = {}, np.zeros(len(table), bool)
    for name in _LISTS:
        flags[name], other = _flags(replicas, *lists[name], brokers)
        strange |= other
    led = leader[:, None] == np.where(replicas >= 0, brokers[replicas], -2)
    slots = np.where(led.any(axis=1), led.argmax(axis=1), np.where(leader < 0, -1, OTHER)).astype(np.int32)
    settings, of_topic = _settings(lake, table, replicas, default_min_isr)
    return Columns(
        table=table.select(["topic", "topic_id", "partition"]),
        brokers=brokers,
        registered=registered,
        profile=profile,
        features={METADATA_VERSION: LEVELS["3.7-IV2"], **features(lake)},
        settings=settings,
        replicas=replicas,
        directory=directory,
        directories=directories,
        placed=online[directory],
        unsure=_unsure(table, replicas, brokers, perhaps_offline(lake, default_min_isr)),
        leader=slots,
        recovering=_numbers(table["recovering"]) > 0,
        strange=strange | (slots == OTHER),
        setting=of_topic,
        **flags,
    )


def _numbers(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """A column of numbers without nulls. ``to_numpy`` would import pandas, which takes longer than all that follows."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    numbers: npt.NDArray[Any] = np.from_dlpack(column)
    return numbers


def _flat(table: pa.Table, name: str) -> tuple[npt.NDArray[np.int64], Any]:
    """The row of each element of a column of lists, and the elements."""
    column = table[name].combine_chunks()
    rows = np.repeat(np.arange(len(column)), np.diff(_numbers(column.offsets)))
    values = column.flatten()
    return rows, values if pa.types.is_string(values.type) else _numbers(values)


def _flags(
    replicas: Numbers, rows: npt.NDArray[np.int64], values: npt.NDArray[np.int32], brokers: npt.NDArray[np.int64]
) -> tuple[Flags, Flags]:
    """Which slots a list names, and which rows name a broker without a slot."""
    flags = np.zeros(replicas.shape, bool)
    wanted = np.searchsorted(brokers, values)
    matches = replicas[rows] == wanted[:, None]
    at, slot = np.nonzero(matches)
    flags[rows[at], slot] = True
    other = np.zeros(len(replicas), bool)
    other[rows[~matches.any(axis=1)]] = True
    return flags, other


def _unsure(
    table: pa.Table,
    replicas: Numbers,
    brokers: npt.NDArray[np.int64],
    perhaps: Mapping[tuple[str, int], Collection[int]],
) -> Flags:
    flags = np.zeros(replicas.shape, bool)
    topics = {topic_id for topic_id, _ in perhaps}
    rows = [row for row, topic in enumerate(table["topic_id"].to_pylist()) if topic in topics] if topics else []
    for row in rows:
        key = table["topic_id"][row].as_py(), table["partition"][row].as_py()
        flags[row] = np.isin(replicas[row], np.searchsorted(brokers, [*perhaps.get(key, ())]))
    return flags


def _directories(directories: pa.Array, replicas: Numbers) -> tuple[Numbers, list[tuple[int, str]]]:
    """The directories of brokers that replicas name, and for each replica the place of its own among them."""
    coded = pc.dictionary_encode(directories)
    names = coded.dictionary.to_pylist()
    pairs = replicas.astype(np.int64) * max(1, len(names)) + _numbers(coded.indices)
    distinct, of = np.unique(pairs, return_inverse=True)
    broker_directories = [divmod(pair, max(1, len(names))) for pair in distinct.tolist()]
    return of.reshape(-1).astype(np.int32), [(broker, names[name]) for broker, name in broker_directories]


def _online(
    directories: Sequence[tuple[int, str]],
    brokers: npt.NDArray[np.int64],
    registered: Mapping[int, BrokerRegistration],
    profile: Profile,
    lake: Lake,
) -> Flags:
    """Whether each directory is online, by the model's rule; then a False, for slots without a replica."""
    ids = ID_TABLES[lake.published.ids]
    parsed = {name: Uuid.parse(name) for name in {name for _, name in directories}}
    flags = []
    for broker, name in directories:
        registration = registered.get(int(brokers[broker]))
        flags.append(registration is not None and has_online_dir(registration, parsed[name], ids, profile))
    return np.array([*flags, False], bool)


def kinds(key: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The first row of each kind of equal rows of ``key``, and for each row the number of its kind."""
    packed = np.ascontiguousarray(key).view(np.dtype((np.void, key.dtype.itemsize * key.shape[1]))).ravel()
    _, first, kind = np.unique(packed, return_index=True, return_inverse=True)
    return first, kind.reshape(-1)


def _settings(
    lake: Lake, table: pa.Table, replicas: Numbers, default_min_isr: int
) -> tuple[list[TopicSettings], Numbers]:
    """The distinct settings of topics, and the index of each partition's."""
    wanted, unclean = min_isr(lake, default_min_isr), unclean_elections(lake)
    coded = pc.dictionary_encode(table["topic"].combine_chunks())
    topic = _numbers(coded.indices)
    names = coded.dictionary.to_pylist()
    first = np.ones(len(names), np.int32)
    zero = _numbers(table["partition"]) == 0
    first[topic[zero]] = (replicas[zero] >= 0).sum(axis=1)
    known: dict[TopicSettings, int] = {}
    of_topic = [
        known.setdefault(
            TopicSettings(
                wanted.topics.get(name, wanted.default),
                replicas_of_first,
                is_true(unclean.topics.get(name, unclean.cluster)),
            ),
            len(known),
        )
        for name, replicas_of_first in zip(names, first.tolist(), strict=True)
    ]
    return [*known], np.array(of_topic, np.int32)[topic] if names else np.zeros(0, np.int32)


def _config(settings: TopicSettings) -> dict[str, str]:
    return {MIN_ISR: str(settings.min_isr), UNCLEAN_ELECTION: str(settings.unclean).lower()}
