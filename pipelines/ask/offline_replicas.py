"""Which replicas are offline, why, since when, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from pipelines.ask.advice import (
    Action,
    Advice,
    Advised,
    compare_and_mount,
    few,
    find_failed,
    mount_or_reassign,
    put_back,
    repair_or_replace,
    steps_in_words,
    take_copy_out,
    wait_for_registration,
    wait_for_report,
)
from pipelines.ask.configs import unseen_disks
from pipelines.ask.json_values import DatedAnswer, jsonable
from pipelines.ask.lake_status import Leaderless, LeaderlessPartition, Troubled, leaderless, shutting_down, troubled
from pipelines.ask.last_copies import LastCopies
from pipelines.ask.lost_data import Losses, losses, perhaps_in
from pipelines.ask.starting import lost_directories, under_way
from pipelines.ask.weights import COPY_RATE, Weights, alone
from pipelines.lake.reader import Lake


class OfflineReplica(NamedTuple):
    """A replica that is offline, and the record that took it offline."""

    topic: str
    topic_id: str
    partition: int
    replica_index: int
    broker_id: int
    directory_id: str
    reason: str
    from_offset: int
    from_time: datetime
    from_snapshot: bool
    """Whether it began at or before the offset: the beginning is known only from a snapshot."""


@dataclass(frozen=True)
class Cause(Advised):
    """The common cause of several offline replicas."""

    reason: str
    broker_id: int
    directory_id: str | None
    """The directory, if it is the reason."""
    from_offset: int
    from_time: datetime
    from_snapshot: bool
    replicas: int
    finding: str
    steps: Sequence[Advice]
    """What to do, in order."""
    last_offset: int | None = None
    """Offset where the last of them went offline, if that is not ``from_offset``."""
    last_time: datetime | None = None
    bytes: int | None = None
    """What has to be copied again if the replicas are recreated. None if no size is known."""
    also_in_json = ("advice", "copy_seconds")

    @property
    def copy_seconds(self) -> int | None:
        """How long that takes at COPY_RATE."""
        return None if self.bytes is None else self.bytes // COPY_RATE


@dataclass(frozen=True)
class PerhapsOffline:
    """Replicas of a broker that count as online, and that may be in a directory which is not: no record says where
    they are (R-ACT-1)."""

    broker_id: int
    directories: Sequence[str]
    """Those that are not online."""
    holders: Mapping[str, int]
    """Those of them that are in other brokers now, with the broker."""
    since_start: bool
    """Whether its process started without them, and has said where the other replicas are."""
    partitions: Sequence[str]
    leads: Sequence[str]
    """Those of them that the broker leads."""
    also_in_json = ("finding", "advice")

    @property
    def finding(self) -> str:
        """What is so."""
        several = len(self.partitions) > 1
        where = f"directory {' or '.join(self.directories)}"
        led = (
            f"; the broker leads {len(self.leads):,} of them, and nobody can read or write these if they are there: "
            f"{few(self.leads)}"
            if several
            else f"; the broker leads {few(self.leads)}, and nobody can read or write it if it is there"
        )
        return (
            f"{len(self.partitions):,} replica{'s' if several else ''} on broker {self.broker_id} may be in {where}, "
            f"which is not online there: no record says where {'they are' if several else 'it is'}, so Kafka counts "
            f"{'them' if several else 'it'} as online{led if self.leads else ''}"
        )

    @property
    def steps(self) -> Sequence[Advice]:
        """What to do, in order."""
        broker = self.broker_id
        moved = [put_back(broker, directory, holder) for directory, holder in self.holders.items()]
        if self.since_start and len(moved) == len(self.directories):
            return moved
        if self.since_start:
            back = (
                f"broker {broker} has started without this disk, so what it does not report is there: bring the disk "
                f"back, or replace it as jbod safe-to-restart {broker} --blank DIR allows, and restart the broker"
            )
            return [*moved, Advice(Action.LOOK, back, broker, partitions=(*self.partitions,))]
        look = (
            f"kafka-log-dirs.sh --bootstrap-server HOST:PORT --describe --broker-list {broker} lists what it can "
            "read: a replica that is in none of its directories is offline"
        )
        restart = (
            f"then restart broker {broker} with the same log.dirs, if jbod safe-to-restart {broker} allows it, and if "
            "its failed disk is still mounted (Kafka refuses to start where nothing is): other replicas lead what it "
            "cannot read, and it reports where the rest is"
        )
        return [
            *moved,
            Advice(Action.LOOK, look, broker, partitions=(*self.partitions,)),
            Advice(Action.RESTART, restart, broker, partitions=(*self.partitions,)),
        ]

    @property
    def advice(self) -> str:
        """The steps as one line."""
        return steps_in_words(self.steps)


@dataclass(frozen=True)
class Offline(DatedAnswer):
    """The answer."""

    replicas_in_all: int
    partitions_in_all: int
    replicas: Sequence[OfflineReplica]
    causes: Sequence[Cause]
    """Most replicas first."""
    partitions: Sequence[Troubled]
    """The partitions whose clients notice something, or that are offline as a whole."""
    data: Losses
    """Data that is lost, even if no replica is offline now, and data at risk."""
    leaderless: Sequence[Leaderless] = ()
    """Partitions without a leader whose replicas are all online, by what is to be done."""
    one_copy: tuple[int, int] | None = None
    """Partitions of which one replica is online, and their bytes. None if no source says the sizes of partitions."""
    perhaps: Sequence[PerhapsOffline] = ()
    """By broker; those apart that its process started without."""
    unseen_disks: str = ""
    """Why no record says that a disk failed; empty if records do."""

    @property
    def replicas_in_doubt(self) -> int:
        """The number of replicas that count as online, and may be in a directory which is not."""
        return sum(len(broker.partitions) for broker in self.perhaps)

    @property
    def partitions_hit(self) -> int:
        """The number of partitions with an offline replica."""
        return len({*map(itemgetter(0, 2), self.replicas)})

    def only(
        self,
        replicas: Sequence[OfflineReplica],
        data: Losses,
        causes: Sequence[Cause],
        keeps: Callable[[Troubled | LeaderlessPartition], bool],
    ) -> Offline:
        """The part of the answer that is about some of the replicas and partitions, and all that may be offline.

        ``keeps``: whether it is about a partition whose replicas are all online.
        """
        names = {(replica.topic, replica.partition) for replica in replicas}
        hit = [
            partition
            for partition in self.partitions
            if (partition.topic, partition.partition) in names or (not partition.offline and keeps(partition))
        ]
        groups = (replace(group, partitions=[*filter(keeps, group.partitions)]) for group in self.leaderless)
        rest = [group for group in groups if group.partitions]
        return replace(self, replicas=replicas, causes=causes, partitions=hit, data=data, leaderless=rest)

    @property
    def too_few_in_sync(self) -> Sequence[Troubled]:
        """The partitions with a leader and every replica online, of which too few are in sync."""
        led = (partition for partition in self.partitions if not partition.offline and not partition.without_leader)
        return [partition for partition in led if partition.under_min_isr]

    def as_json(self) -> dict[str, Any]:
        """One JSON object, without the list of replicas."""

        def names(chosen: str) -> list[str]:
            return [partition.name for partition in self.partitions if getattr(partition, chosen)]

        return {
            "offset": self.offset,
            "time": self.time.isoformat(),
            "replicas_in_all": self.replicas_in_all,
            "partitions_in_all": self.partitions_in_all,
            "offline_replicas": len(self.replicas),
            "partitions_without_leader": names("without_leader"),
            "partitions_led_from_offline": names("led_from_offline"),
            "partitions_all_offline": names("all_offline"),
            "partitions_under_min_isr": names("under_min_isr"),
            "leaderless": jsonable(self.leaderless),
            "causes": jsonable(self.causes),
            "one_copy": None if self.one_copy is None else {"partitions": self.one_copy[0], "bytes": self.one_copy[1]},
            "unseen_disks": self.unseen_disks,
            "perhaps_offline": jsonable(self.perhaps),
            **self.data.as_json(),
        }


def offline(lake: Lake, default_min_isr: int = 1, accepted_until: int = -1, weights: Weights | None = None) -> Offline:
    """Offline replicas at the lake's offset. Lost data up to the offset ``accepted_until`` is accepted."""
    replicas_offline = lake.since("offline_replicas", "directory_id", "reason")
    offline_replicas = lake.named_rows(OfflineReplica, f"{replicas_offline} ORDER BY topic, partition, replica_index")
    ((partitions, replicas),) = lake.query(
        f"SELECT count(*), coalesce(sum(len(replicas)), 0)::BIGINT FROM {lake.at('partitions')}"
    )
    hit = troubled(lake, default_min_isr)
    data = losses(lake, default_min_isr, accepted_until)
    last = data.last_copies
    why = causes(lake, offline_replicas, last, weights)
    stuck, lone = leaderless(lake, last), None
    if weights is not None and weights.partitions is not None:
        places = alone(lake, weights.partitions).values()
        lone = sum(count for count, _ in places), sum(held for _, held in places)
    return Offline(
        lake.offset,
        lake.time,
        replicas,
        partitions,
        offline_replicas,
        why,
        hit,
        data,
        stuck,
        lone,
        find_perhaps_offline(lake, default_min_isr),
        unseen_disks(lake),
    )


def find_perhaps_offline(lake: Lake, default_min_isr: int = 1) -> list[PerhapsOffline]:
    """The replicas of each broker that may be in a directory which is not online."""
    where = perhaps_in(lake, default_min_isr)
    if not where:
        return []
    rows = lake.query(
        f"""
        WITH v AS (SELECT unnest($1::VARCHAR[]) AS topic_id, unnest($2::INT[]) AS partition)
        SELECT topic_id, partition, topic || '-' || partition, leader FROM {lake.at("partitions")}
        JOIN v USING (topic_id, partition) ORDER BY topic, partition
        """,
        [*map(list, zip(*where, strict=True))],
    )
    lost = lost_directories(lake)
    holders = dict(lake.query(f"SELECT directory_id, broker_id FROM {lake.at('directories')}"))
    doubts: dict[tuple[int, bool], list[tuple[str, bool, set[str]]]] = {}
    for topic_id, number, name, leader in rows:
        for broker, away in where[topic_id, number].items():
            since_start = away.isdisjoint(lost.get(broker, ()))
            doubts.setdefault((broker, since_start), []).append((name, leader == broker, away))
    return [
        PerhapsOffline(
            broker,
            directories := sorted(set[str]().union(*(away for _, _, away in members))),
            {directory: holders[directory] for directory in directories if directory in holders},
            since_start,
            [name for name, _, _ in members],
            [name for name, leads, _ in members if leads],
        )
        for (broker, since_start), members in sorted(doubts.items())
    ]


def causes(
    lake: Lake, replicas: Sequence[OfflineReplica], last: LastCopies, weights: Weights | None = None
) -> list[Cause]:
    """The causes of some offline replicas, most replicas first; of one broker, its disks before the broker itself.

    A directory that left before its broker did is a cause of its own.
    """
    groups: dict[tuple[str, int, str | None], list[OfflineReplica]] = {}
    ends = _directory_ends(lake) if replicas else {}
    unplaced = lake.unplaced
    for replica in replicas:
        end = ends.get(replica.directory_id)
        alone = replica.reason == "directory offline" and replica.directory_id not in unplaced
        elsewhere = end is not None and end.ended_by is None and end.holder != replica.broker_id
        before = end is not None and (elsewhere or end.ended_by in LEFT_BEFORE) and replica.reason in BROKER_STATES
        directory = replica.directory_id if alone or before else None
        groups.setdefault((replica.reason, replica.broker_id, directory), []).append(replica)
    begun = under_way(lake) if groups else {}
    stopping = shutting_down(lake) if any(reason == "broker fenced" for reason, _, _ in groups) else set()
    answer = []
    for (reason, broker, directory), members in groups.items():
        oldest = min(members, key=attrgetter("from_offset"))
        newest = max(members, key=attrgetter("from_offset"))
        newest = oldest if newest.from_offset == oldest.from_offset else newest
        state = BROKER_STATES.get(reason, "runs")
        if reason == "broker fenced" and broker in stopping:
            state = "was shut down in order"
        if directory is not None:
            finding, steps = _about_directory(
                broker, directory, ends.get(directory), state, last, starting=broker in begun, first=lake.first
            )
        elif reason == "broker fenced":
            finding, steps = _about_fenced(broker, broker in stopping, last)
        elif reason == "broker missing":
            finding = f"broker {broker} is not registered: it was unregistered, or never joined"
            steps = last.about_missing(broker)
        elif reason == "directory offline":
            finding = f"no record says in which directory of broker {broker} these replicas are: offline by the KIP"
            steps = [wait_for_report(broker)]
        else:
            finding = f"broker {broker} said these replicas were in a directory that failed, not in which"
            steps = last.about_directory(broker, find_failed(broker), running=True)
        answer.append(
            Cause(
                reason,
                broker,
                directory,
                oldest.from_offset,
                oldest.from_time,
                oldest.from_snapshot,
                len(members),
                finding,
                steps,
                newest.from_offset if newest is not oldest else None,
                newest.from_time if newest is not oldest else None,
                None
                if weights is None
                else weights.of(
                    (member.topic, member.partition, member.broker_id, member.directory_id) for member in members
                ),
            )
        )
    down: dict[int, int] = {}
    for cause in answer:
        if cause.reason in BROKER_STATES:
            down[cause.broker_id] = down.get(cause.broker_id, 0) + cause.replicas

    def order(cause: Cause) -> tuple[int, int, bool, str]:
        weight = down[cause.broker_id] if cause.reason in BROKER_STATES else cause.replicas
        return -weight, cause.broker_id, cause.directory_id is None, cause.directory_id or ""

    return sorted(answer, key=order)


LEFT_BEFORE = ("failed", "deregistered", "moved")
"""Ends of a directory that are not the end of its broker's registration."""
BROKER_STATES = {"broker fenced": "is fenced", "broker missing": "is not registered"}


def _about_fenced(broker: int, stopping: bool, last: LastCopies) -> tuple[str, Sequence[Advice]]:
    finding = (
        f"broker {broker} was shut down in order and is fenced since"
        if stopping
        else f"broker {broker} is fenced: down, still starting, or cut off from the controller"
    )
    return finding, last.about_fenced(broker, in_order=stopping)


class _End(NamedTuple):
    """The last time that a directory was online."""

    holder: int
    """The broker that had it."""
    ended_by: str | None
    """Why it left, None if it is online."""
    offset: int | None
    holders: Sequence[int]
    """The brokers that have registered it, in any order."""


def _about_directory(
    broker: int, directory: str, end: _End | None, state: str, last: LastCopies, *, starting: bool, first: int
) -> tuple[str, Sequence[Advice]]:
    """``state``: what the broker does; ``starting``: a process of it reported that has not registered yet; ``first``:
    the lake's first offset."""
    running = state == "runs"
    if end is None and starting:
        finding = f"a new process of broker {broker} reported directory {directory}, and has not registered yet"
        return finding, last.about_directory(broker, wait_for_registration(broker, directory), running=False)
    if end is None:
        finding = f"no record has directory {directory} online on broker {broker}"
        if first:
            finding += f": it may have failed before offset {first}, where the history begins"
        return finding, last.about_directory(broker, compare_and_mount(broker, directory), running=running)
    if end.ended_by is None:
        finding = f"directory {directory} is now on broker {end.holder}"
        ordinary = put_back(broker, directory, end.holder)
        if broker not in end.holders:
            finding = f"directory {directory} is that of broker {end.holder}, and no record has it on broker {broker}"
            ordinary = take_copy_out(broker, directory, end.holder)
        return finding, last.about_directory(broker, ordinary, running=running)
    if end.ended_by == "failed":
        finding = (
            f"broker {broker} runs, but reported that directory {directory} failed"
            if running
            else f"directory {directory} of broker {broker} failed at offset {end.offset}, and broker {broker} {state} "
            "besides"
        )
        ordinary = repair_or_replace(broker, directory, running=running)
        return finding, last.about_directory(broker, ordinary, running=running)
    finding = f"broker {broker} came back without directory {directory}"
    if not running:
        finding += f" at offset {end.offset}, and {state} besides"
    ordinary = mount_or_reassign(broker, directory, last.twice(broker, directory), running=running)
    return finding, last.about_directory(broker, ordinary, running=running)


def _directory_ends(lake: Lake) -> dict[str, _End]:
    rows = lake.query(
        f"""
        SELECT directory_id, broker_id, ended_by, to_offset,
               list(broker_id) OVER (PARTITION BY directory_id) AS holders
        FROM {lake.until("directories")}
        QUALIFY row_number() OVER (PARTITION BY directory_id ORDER BY from_offset DESC) = 1
        """
    )
    return {directory: _End(*end) for directory, *end in rows}
