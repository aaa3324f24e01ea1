"""The state of a lake and of its cluster on one screen; every directory of every broker; and partitions in trouble.

Of a directory: whether it is online or cordoned, since when, and the replicas in it. Of partitions: those that lack a
leader, a replica or in-sync replicas, and those without a leader though all are online.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from operator import itemgetter
from typing import NamedTuple

from pipelines.ask.advice import Advice, Advised, few, look, restart_to_elect, steps_in_words
from pipelines.ask.advice_last_copies import elect_any
from pipelines.ask.configs import features, min_isr
from pipelines.ask.json_values import NamedPartition
from pipelines.ask.last_copies import LastCopies
from pipelines.ask.lost_data import LOST, MAY_LACK, UNREACHABLE, count_lost
from pipelines.lake.ledger import time_of
from pipelines.lake.reader import Lake
from pipelines.quorum.state import WatchedQuorum, mirror_of, read_state


@dataclass(frozen=True)
class Directory:
    """A directory, or the replicas of a broker whose directory is unknown."""

    broker_id: int
    broker: str
    """online, fenced or missing."""
    directory_id: str
    state: str
    """online; failed, deregistered, moved or unregistered; unknown; or the kind: unassigned, lost, migrating."""
    from_offset: int | None
    from_time: datetime | None
    from_snapshot: bool
    """Whether it began at or before the offset: the beginning is known only from a snapshot."""
    replicas: int
    leaders: int
    cordoned_from_offset: int | None = None
    """Offset of the record that cordoned it, None if it is not cordoned."""
    cordoned_from_time: datetime | None = None
    cordoned_from_snapshot: bool = False
    """Whether only a snapshot says that it is cordoned: it was at or before that offset."""


def directories(lake: Lake) -> list[Directory]:
    """Registered directories, others with assigned replicas, and replicas without a directory; by broker."""
    brokers = dict(lake.query(f"SELECT broker_id, fenced FROM {lake.at('brokers')}"))
    held = {
        (broker, directory): (kind, replicas, leaders)
        for broker, directory, kind, replicas, leaders in lake.query(
            f"""
            SELECT a.broker_id, a.directory_id, a.kind, count(*), count(*) FILTER (p.leader = a.broker_id)
            FROM {lake.at("assignments")} a JOIN {lake.at("partitions")} p USING (topic_id, partition)
            GROUP BY ALL
            """
        )
    }
    known = {
        (broker, directory): (ended_by, since, time_of(micros), in_snapshot)
        for broker, directory, ended_by, since, micros, in_snapshot in lake.query(
            f"""
            SELECT broker_id, directory_id, ended_by, coalesce(to_offset, from_offset),
                   epoch_us(coalesce(to_time, from_time)), coalesce(ended_by = 'resync', from_snapshot)
            FROM {lake.until("directories")}
            QUALIFY row_number() OVER (PARTITION BY broker_id, directory_id ORDER BY from_offset DESC) = 1
            """
        )
    }
    cordoned = cordons(lake)
    broker_directories = []
    for broker, directory in sorted({*held, *(key for key, (ended_by, *_) in known.items() if ended_by is None)}):
        kind, replicas, leaders = held.get((broker, directory), ("assigned", 0, 0))
        ended_by, since, time, in_snapshot = known.get((broker, directory), ("unknown", None, None, False))
        fenced = brokers.get(broker)
        status = "missing" if fenced is None else "fenced" if fenced else "online"
        state = kind if kind != "assigned" else ended_as(ended_by or "online", status)
        cordon = cordoned.get((broker, directory), (None, None, False))
        broker_directories.append(
            Directory(broker, status, directory, state, since, time, in_snapshot, replicas, leaders, *cordon)
        )
    return broker_directories


def ended_as(ended_by: str, broker: str) -> str:
    """Why a directory went. If a snapshot lacks it: by whether its ``broker``, online, fenced or missing, is there."""
    return ended_by if ended_by != "resync" else "unregistered" if broker == "missing" else "deregistered"


def cordons(lake: Lake) -> dict[tuple[int, str], tuple[int, datetime, bool]]:
    """(broker, directory) -> since when it is cordoned, and whether a snapshot says so. A restart keeps a cordon.

    A new registration lists no cordons until the first heartbeats. That does not end a cordon.
    """
    rows = lake.query(
        f"""
        WITH told AS (
            SELECT broker_id, from_offset, epoch_us(from_time) AS micros, from_snapshot, cordoned_log_dirs
            FROM {lake.until("brokers")} WHERE cordoned_log_dirs IS NOT NULL
        ),
        now AS (
            SELECT broker_id, unnest(list_distinct(cordoned_log_dirs)) AS directory_id
            FROM {lake.at("brokers")} WHERE cordoned_log_dirs IS NOT NULL
        ),
        free AS (
            SELECT n.broker_id, n.directory_id, max(t.from_offset) AS last
            FROM now n JOIN told t USING (broker_id)
            WHERE NOT list_contains(t.cordoned_log_dirs, n.directory_id) GROUP BY ALL
        )
        SELECT n.broker_id, n.directory_id, min(t.from_offset), min(t.micros), arg_min(t.from_snapshot, t.from_offset)
        FROM now n LEFT JOIN free f USING (broker_id, directory_id)
        JOIN told t ON t.broker_id = n.broker_id AND t.from_offset > coalesce(f.last, -1)
        GROUP BY ALL
        """
    )
    return {
        (broker, directory): (offset, time_of(micros), in_snapshot)
        for broker, directory, offset, micros, in_snapshot in rows
    }


@dataclass(frozen=True)
class Status:
    """Counts at the lake's offset."""

    cluster_id: str
    profile: str
    offset: int
    time: datetime
    first_offset: int
    newest_offset: int
    newest_time: datetime
    published_time: datetime
    """When the newest offset was published."""
    log_end_offset: int | None
    """The log's end offset at the last run, if that was before the newest offset."""
    features: Mapping[str, int]
    brokers: int
    brokers_fenced: int
    brokers_missing: int
    """Brokers that are not registered, but have replicas."""
    directories: int
    topics: int
    partitions: int
    replicas: Mapping[str, int]
    """By kind: assigned, unassigned, lost, migrating."""
    offline_replicas: int
    partitions_without_leader: int
    partitions_led_from_offline: int
    partitions_under_min_isr: int
    partitions_under_replicated: int
    partitions_data_lost: int
    """Partitions whose last complete copy was given up, without accepted losses."""
    partitions_data_unreachable: int
    partitions_may_lack_writes: int
    """Partitions whose leader's copy was not complete, without accepted losses."""
    quorum: WatchedQuorum | None
    """What the mirror of the log knows of its quorum. None: the log does not come from a quorum."""


def status(lake: Lake, default_min_isr: int = 1, accepted_until: int = -1) -> Status:
    """The status at the lake's offset. Lost data up to the offset ``accepted_until`` is accepted."""
    ((brokers, fenced),) = lake.query(f"SELECT count(*), count(*) FILTER (fenced) FROM {lake.at('brokers')}")
    ((directories,),) = lake.query(f"SELECT count(*) FROM {lake.at('directories')}")
    ((topics, partitions),) = lake.query(f"SELECT count(DISTINCT topic_id), count(*) FROM {lake.at('partitions')}")
    kinds = lake.query(f"SELECT kind, count(*) FROM {lake.at('assignments')} GROUP BY kind ORDER BY kind")
    missing = "count(DISTINCT broker_id) FILTER (reason = 'broker missing')"
    ((offline, missing),) = lake.query(f"SELECT count(*), {missing} FROM {lake.at('offline_replicas')}")
    hit = count_troubled(lake, default_min_isr)
    lost = count_lost(lake, default_min_isr, accepted_until)
    return Status(
        cluster_id=lake.published.cluster_id,
        profile=lake.published.profile,
        offset=lake.offset,
        time=lake.time,
        first_offset=lake.first,
        newest_offset=lake.published.end_offset - 1,
        newest_time=lake.published.end_time,
        published_time=lake.published.published_time,
        log_end_offset=lake.log_end(),
        features=features(lake),
        brokers=brokers,
        brokers_fenced=fenced,
        brokers_missing=missing,
        directories=directories,
        topics=topics,
        partitions=partitions,
        replicas=dict(kinds),
        offline_replicas=offline,
        partitions_without_leader=hit.without_leader,
        partitions_led_from_offline=hit.led_from_offline,
        partitions_under_min_isr=hit.under_min_isr,
        partitions_under_replicated=hit.under_replicated,
        partitions_data_lost=lost[LOST],
        partitions_data_unreachable=lost[UNREACHABLE],
        partitions_may_lack_writes=lost[MAY_LACK],
        quorum=read_state(mirror_of(lake.path)),
    )


@dataclass(frozen=True)
class LeaderlessPartition(NamedPartition):
    """A partition that no replica leads, although every replica is online."""

    replicas: Sequence[int]
    named: Sequence[int]
    """The replicas that are in sync or eligible."""
    from_offset: int
    from_time: datetime
    from_snapshot: bool


@dataclass(frozen=True)
class Leaderless(Advised):
    """These partitions with the same steps: thousands can wait for one broker, whose steps name them all."""

    finding: str
    steps: Sequence[Advice]
    partitions: Sequence[LeaderlessPartition]
    also_in_json = ("advice",)


def shutting_down(lake: Lake) -> set[int]:
    """Brokers that are being shut down in order, or were: no replica on them is elected."""
    rows = lake.query(f"SELECT broker_id FROM {lake.at('brokers')} WHERE in_controlled_shutdown")
    return {broker for (broker,) in rows}


def leaderless(lake: Lake, last: LastCopies) -> list[Leaderless]:
    """The groups of these partitions at the lake's offset; the partitions of each by topic and number."""
    rows = lake.query(
        f"""
        WITH p AS (
            SELECT p.* FROM {lake.at("partitions")} p
            ANTI JOIN {lake.at("offline_replicas")} o ON o.topic_id = p.topic_id AND o.partition = p.partition
            WHERE p.leader = -1
        )
        SELECT topic, partition, replicas, named, min(from_offset), epoch_us(min(from_time)),
               arg_min(from_snapshot, from_offset)
        FROM (
            SELECT p.topic, p.partition, p.replicas, list_distinct(list_concat(p.isr, p.elr)) AS named,
                   h.from_offset, h.from_time, h.from_snapshot,
                   max(h.to_offset) FILTER (h.leader >= 0) OVER (PARTITION BY h.topic_id, h.partition) AS led
            FROM p JOIN {lake.until("partitions")} h ON h.topic_id = p.topic_id AND h.partition = p.partition
        )
        WHERE from_offset >= coalesce(led, 0)
        GROUP BY ALL ORDER BY topic, partition
        """
    )
    if not rows:
        return []
    about = _Reasons(last, shutting_down(lake)).about
    groups: dict[tuple[str, str], tuple[Sequence[Advice], list[LeaderlessPartition]]] = {}
    end = lake.append_end
    cut = (
        {since for since, _ in lake.of_one_append([(row[4], lake.offset) for row in rows])} if end > lake.offset else ()
    )
    within = f"no replica leads at an offset within an append, which the controller wrote up to offset {end}"
    wait = look(f"ask with --at-offset {end}: what else it wrote at once says why, or who leads")
    for topic, number, replicas, named, since, micros, in_snapshot in rows:
        finding, steps = (within, wait) if since in cut else about(topic, number, replicas, named)
        _, members = groups.setdefault((finding, steps_in_words(steps)), (steps, []))
        members.append(LeaderlessPartition(topic, number, replicas, named, since, time_of(micros), in_snapshot))
    return [Leaderless(finding, *group) for (finding, _), group in groups.items()]


class _Reasons:
    """Why partitions have no leader, and what to do. Thousands can share a broker: its steps are asked for once."""

    def __init__(self, last: LastCopies, stopping: Collection[int]) -> None:
        self._stopping = stopping
        self._steps = cache(lambda broker, running: last.steps(broker, running=running) or last.about_missing(broker))
        self._about_fenced = cache(partial(last.about_fenced, in_order=True))
        self._before_start = cache(lambda broker: [*last.before_start(broker, running=True)])
        self._away: dict[str, dict[int, dict[str, None]]] = {}
        for broker, held in last.away.items():
            for directory, names in held.items():
                for name in names if directory else ():
                    self._away.setdefault(name, {}).setdefault(broker, {})[directory] = None

    def about(
        self, topic: str, number: int, replicas: Sequence[int], named: Sequence[int]
    ) -> tuple[str, Sequence[Advice]]:
        """The finding, and the steps."""
        name = f"{topic}-{number}"
        for broker, directories in self._away.get(name, {}).items():
            where = f"directory {few([*directories])} of broker {broker}"
            return f"no replica leads: the last complete copy is in {where}", self._steps(broker, broker in replicas)
        complete = [broker for broker in replicas if broker in named]
        electable = [broker for broker in complete if broker not in self._stopping]
        if complete and not electable:
            broker = complete[0]
            finding = f"no replica leads: broker {broker} is being shut down in order, and leads again when it is back"
            return finding, self._about_fenced(broker)
        if electable:
            broker = electable[0]
            finding = f"no replica leads, although broker {broker} could: the controller has not elected it"
            return finding, [*self._before_start(broker), restart_to_elect(broker)]
        return "no replica leads: none that is online is in sync or eligible", [elect_any(topic, number)]


class Troubled(NamedTuple):
    """A partition whose clients notice trouble, or of which every replica is offline."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    offline: tuple[int, ...]
    min_isr: int

    @property
    def name(self) -> str:
        """``topic-0``"""
        return f"{self.topic}-{self.partition}"

    @property
    def without_leader(self) -> bool:
        """It has no leader: clients can neither read nor write."""
        return self.leader == -1

    @property
    def led_from_offline(self) -> bool:
        """Its leader is offline: clients are sent to a replica that cannot answer."""
        return self.leader in self.offline

    @property
    def all_offline(self) -> bool:
        """No replica is online."""
        return len(self.offline) == len(self.replicas)

    @property
    def under_min_isr(self) -> bool:
        """Fewer replicas are in sync and online than ``min.insync.replicas`` requires: acks=all writes fail."""
        return len(set(self.isr) - set(self.offline)) < self.min_isr


_TROUBLE = {
    "without_leader": "p.leader = -1",
    "led_from_offline": "list_contains(o.down, p.leader)",
    "all_offline": "len(o.down) = len(p.replicas)",
    "under_min_isr": "CASE WHEN o.down IS NULL THEN len(p.isr) "
    "ELSE len(list_filter(p.isr, lambda b: NOT list_contains(o.down, b))) END "
    "< least(coalesce(m.min_isr, $3), len(p.replicas))",
}
"""The properties of Troubled in SQL."""


def _with_offline(lake: Lake, default_min_isr: int) -> tuple[str, str, list[object]]:
    """SQL for WITH and for FROM, and its parameters: p, the partitions; o, their offline replicas; m, min ISRs set."""
    values = min_isr(lake, default_min_isr)
    names = f"""
        WITH o AS {lake.offline_brokers()},
        m AS (SELECT unnest($1::VARCHAR[]) AS topic, unnest($2::INT[]) AS min_isr)
    """
    joined = f"{lake.at('partitions')} p LEFT JOIN o USING (topic_id, partition) LEFT JOIN m USING (topic)"
    return names, joined, [list(values.topics), list(values.topics.values()), values.default]


def troubled(lake: Lake, default_min_isr: int = 1) -> list[Troubled]:
    """The troubled partitions, by topic and number."""
    names, joined, parameters = _with_offline(lake, default_min_isr)
    rows = lake.query(
        f"""
        {names}
        SELECT p.topic, p.partition, p.replicas, p.isr, p.leader, coalesce(o.down, []),
               least(coalesce(m.min_isr, $3), len(p.replicas))
        FROM {joined} WHERE {" OR ".join(_TROUBLE.values())}
        """,
        parameters,
    )
    rows.sort(key=itemgetter(0, 1))  # DuckDB would sort the lists with the names
    return [
        Troubled(topic, partition, tuple(replicas), tuple(isr), leader, tuple(offline), wanted)
        for topic, partition, replicas, isr, leader, offline, wanted in rows
    ]


class TroubledCounts(NamedTuple):
    """How many partitions are troubled, as the properties of Troubled say."""

    without_leader: int
    led_from_offline: int
    all_offline: int
    under_min_isr: int
    under_replicated: int
    """Fewer replicas are in sync than there are."""


def count_troubled(lake: Lake, default_min_isr: int = 1) -> TroubledCounts:
    """The counts at the lake's offset, without a row of Python for each partition."""
    names, joined, parameters = _with_offline(lake, default_min_isr)
    counted = [*_TROUBLE.values(), "len(p.isr) < len(p.replicas)"]
    (counts,) = lake.query(
        f"{names} SELECT {', '.join(f'count(*) FILTER ({what})' for what in counted)} FROM {joined}", parameters
    )
    return TroubledCounts(*counts)
