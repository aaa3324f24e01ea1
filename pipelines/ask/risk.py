"""For each directory and each broker: what would be lost if it failed now.

The controller's decision about every partition is one query for all failures: its answer is that of `jbod_model`'s
controller for each failure, in the time of one scan. A test compares them. A failure removes the broker from the
in-sync set and forbids it to lead (R-LEADER-1). Then an election is held (R-ELECT-2, R-ELECT-3, R-ELECT-4, R-ELECT-5).
A failure never completes a reassignment.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from jbod_model.formats.metadata_version import ELR_FEATURE, LEVELS, METADATA_VERSION, directories_supported
from pipelines.ask.configs import (
    ConfigValues,
    MinIsr,
    features,
    is_true,
    min_isr,
    tiered_topics,
    unclean_elections,
    zookeeper_brokers,
)
from pipelines.ask.json_values import DatedAnswer
from pipelines.ask.lost_data import complete_copies, perhaps_offline
from pipelines.ask.restart import nodes, quorum_effect
from pipelines.ask.weights import COPY_RATE, Weights, alone
from pipelines.ask.whatif_places import metadata_directories
from pipelines.lake.delta import literal
from pipelines.lake.reader import Lake


@dataclass(frozen=True)
class Exposure:
    """The effects of the failure of one directory, or of a whole broker, beyond what is lost already."""

    broker_id: int
    directory_id: str | None
    """None for the whole broker."""
    replicas: int = 0
    """Online replicas in it."""
    leaders: int = 0
    """Partitions that the broker leads from it."""
    without_leader: int = 0
    """Partitions that would have no leader."""
    last_replicas: int = 0
    """Partitions with no other replica surely online (R-ACT-1): they would be unavailable, and if the disk is dead the
    data is gone."""
    unclean: int = 0
    """Partitions that would elect a replica that lacks writes: it was not in sync, or is empty (R-QUIRK-3)."""
    under_min_isr: int = 0
    """Partitions that would fall below min.insync.replicas."""
    moved: int = 0
    """Partitions that another replica would lead."""
    stalled: int = 0
    """Partitions whose leader stays, and would wait for an in-sync replica that fails: without a quorum nobody takes it
    off the in-sync set (Kafka's ``maximalIsr``)."""
    perhaps_unserved: int = 0
    """Partitions where perhaps nobody would answer, or writes with acks=all would be refused: a replica that would
    lead, or that min.insync.replicas needs, counts as online and may be in a directory that is not (R-RESTART-4)."""
    no_quorum: str = ""
    """Why nobody elects leaders then: the node is a controller, too, and no majority would be left. Else empty."""
    unplaced: int = 0
    """Online replicas of the broker whose directory is unknown: some of them may be in this one."""
    unplaced_at_risk: int = 0
    """Partitions of these that the failure would harm if they are in it: as many as of the harm that hits most."""
    stops_broker: bool = False
    """The broker's last online directory, that of its metadata log, or one of a broker in ZooKeeper mode: Kafka stops
    when it fails (R-ZK-2), so that the whole broker is lost with it."""
    bytes: int | None = None
    """Log segments in it: what has to be copied again if the disk is dead. None if no size is known."""
    last_bytes: int | None = None
    """The data of ``last_replicas``. None if the sizes of partitions are not known."""

    @property
    def copy_seconds(self) -> int | None:
        """How long it takes to copy ``bytes`` again at COPY_RATE."""
        return None if self.bytes is None else self.bytes // COPY_RATE

    @property
    def harmless(self) -> bool:
        """Whether clients would notice only a change of leaders."""
        return not any(self.harms)

    @property
    def harms(self) -> tuple[int, ...]:
        """The partitions that clients would notice, by what they notice, the worst first."""
        surely = self.without_leader, self.last_replicas, self.unclean, self.under_min_isr, self.stalled
        return (*surely, self.perhaps_unserved)

    @property
    def badness(self) -> tuple[int, ...]:
        """Sort key, from harmless to worst."""
        return (*self.harms, self.unplaced_at_risk, self.moved, self.replicas)


@dataclass(frozen=True)
class Risk(DatedAnswer):
    """The answer."""

    partitions_in_all: int
    without_leader: int
    """Partitions that have no leader already."""
    under_min_isr: int
    """Partitions under min.insync.replicas already."""
    fenced_brokers: Sequence[int]
    """Fenced brokers. Their failure can lose nothing more: their replicas are offline."""
    brokers: Sequence[Exposure]
    """Every unfenced broker, worst first."""
    directories: Sequence[Exposure]
    """Every online directory of these brokers, worst first."""
    tiered_topics: Sequence[str] = ()
    """Partitions of which only the local part is at stake, which was not copied to remote storage yet."""
    sizes_time: datetime | None = None
    """Since when sizes are known at least. None if none are."""


def risk(lake: Lake, default_min_isr: int = 1, weights: Weights | None = None) -> Risk:
    """The additional losses of each failure at the lake's offset.

    The leaders are those that Kafka's controller would elect: in-sync replicas first, eligible leaders if none is in
    sync, others only if unclean elections are allowed. ``default_min_isr`` applies if the log does not set it.
    """
    registered = lake.query(f"SELECT broker_id, fenced, in_controlled_shutdown, log_dirs FROM {lake.at('brokers')}")
    alive = {broker: tuple(listed) for broker, fenced, _, listed in registered if not fenced}
    levels = features(lake)
    _select_complete(lake, default_min_isr)
    known = nodes(lake)
    effects = {broker: quorum_effect(known, [broker]) for broker in alive}
    no_quorum = {broker: effect.finding for broker, effect in effects.items() if effect is not None and not effect.safe}
    rules = RiskRules(
        min_isr=min_isr(lake, default_min_isr),
        unclean=unclean_elections(lake),
        elr=levels.get(ELR_FEATURE, 0) >= 1,
        stopping=tuple(broker for broker, _, leaving, _ in registered if leaving),
        majority=tuple(no_quorum),
    )
    places = {(row[0], row[1]): row[2:] for row in lake.query(by_place(lake, rules))}
    ((partitions, leaderless, under),) = lake.query(totals(lake, rules))
    brokers = {broker: replace(_broker(lake, broker, places), no_quorum=no_quorum.get(broker, "")) for broker in alive}
    directories = []
    if directories_supported(levels.get(METADATA_VERSION, LEVELS["3.7-IV2"])):
        elsewhere, metadata = _stray(lake, rules, alive, places), metadata_directories(lake)
        halting = zookeeper_brokers(lake).union(broker for broker, listed in alive.items() if len(listed) == 1)
        directories = [
            _directory(brokers[broker], at, places, elsewhere, broker in halting or at == metadata.get(broker))
            for broker, listed in alive.items()
            for at in listed
        ]
    weighed = _weighed(lake, weights, alive)
    return Risk(
        lake.offset,
        lake.time,
        partitions,
        leaderless,
        under,
        sorted(broker for broker, fenced, *_ in registered if fenced),
        _worst_first(map(weighed, brokers.values())),
        _worst_first(map(weighed, directories)),
        sorted(tiered_topics(lake)),
        None if weights is None else weights.time,
    )


def _select_complete(lake: Lake, default_min_isr: int) -> None:
    """Creates risk_complete: partitions whose lists may name a copy that is not complete, and the brokers that have
    complete ones. Only an eligible leader can be elected for it (R-QUIRK-3): without one, no partition is needed.

    Also creates risk_perhaps: the brokers whose replica counts as online, and may not be."""
    eligible = lake.query(f"SELECT 1 FROM {lake.at('partitions')} WHERE len(elr) > 0 AND leader >= 0 LIMIT 1")
    copies = complete_copies(lake, (), default_min_isr) if eligible else {}
    perhaps = perhaps_offline(lake, default_min_isr)
    for column, brokers_of in (("complete", copies), ("perhaps", perhaps)):
        rows = [(*partition, [*brokers]) for partition, brokers in brokers_of.items()]
        lake.make(f"risk_{column}", f"topic_id VARCHAR, partition INT, {column} INT[]", rows)


def _weighed(lake: Lake, weights: Weights | None, alive: Mapping[int, Sequence[str]]) -> Callable[[Exposure], Exposure]:
    """Adds the bytes to an exposure: for a broker those of its online directories of which a size is known."""
    if weights is None:
        return lambda exposure: exposure
    last = None if weights.partitions is None else alone(lake, weights.partitions)

    def weighed(exposure: Exposure) -> Exposure:
        def of(held: Mapping[tuple[int, str], int]) -> int | None:
            places = alive[exposure.broker_id] if exposure.directory_id is None else [exposure.directory_id]
            sizes = [held[exposure.broker_id, place] for place in places if (exposure.broker_id, place) in held]
            return sum(sizes) if sizes else None

        lone = None if last is None else of({place: held for place, (_, held) in last.items()}) or 0
        return replace(exposure, bytes=of(weights.directories), last_bytes=lone)

    return weighed


Places = Mapping[tuple[int, str], Sequence[int]]
"""(broker, directory) -> COUNTS if the directory fails, then COUNTS if the broker fails."""


def _broker(lake: Lake, broker: int, places: Places) -> Exposure:
    """The exposure of a whole broker, in all its directories."""
    held = {directory: row for (holder, directory), row in places.items() if holder == broker}
    summed = [sum(column) for column in zip(*(row[len(COUNTS) :] for row in held.values()), strict=True)]
    loose = [sum(column) for column in zip(*(held[where] for where in lake.unplaced & held.keys()), strict=True)]
    unplaced = Exposure(broker, None, **dict(zip(COUNTS, loose, strict=False)))
    whole = Exposure(broker, None, **dict(zip(COUNTS, summed, strict=False)))
    return replace(whole, unplaced=unplaced.replicas, unplaced_at_risk=max(unplaced.harms))


def _directory(
    broker: Exposure, directory: str, places: Places, elsewhere: Mapping[str, Sequence[int]], halts: bool
) -> Exposure:
    if halts:
        return replace(broker, directory_id=directory, stops_broker=True)
    nothing = (0,) * len(COUNTS)
    here = places.get((broker.broker_id, directory), nothing)[: len(COUNTS)]
    # A replica left on another broker is not a replica of this one, but the failure affects its partition.
    added = (0, 0, 0, *elsewhere.get(directory, nothing)[3:])
    counts = dict(zip(COUNTS, map(operator.add, here, added), strict=True))
    exposure = Exposure(broker.broker_id, directory, **counts)
    return replace(exposure, unplaced=broker.unplaced, unplaced_at_risk=broker.unplaced_at_risk)


def _stray(
    lake: Lake, rules: RiskRules, alive: Mapping[int, Sequence[str]], places: Places
) -> dict[str, Sequence[int]]:
    owners = {directory: broker for broker, listed in alive.items() for directory in listed}
    moved = {directory: owners[directory] for broker, directory in places if owners.get(directory, broker) != broker}
    return {row[0]: row[1:] for row in lake.query(strays(lake, rules, moved))} if moved else {}


def _worst_first(exposures: Iterable[Exposure]) -> list[Exposure]:
    return sorted(
        exposures,
        key=lambda exposure: (*(-count for count in exposure.badness), exposure.broker_id, exposure.directory_id or ""),
    )


COUNTS = (
    "replicas",
    "leaders",
    "last_replicas",
    "without_leader",
    "unclean",
    "under_min_isr",
    "moved",
    "stalled",
    "perhaps_unserved",
)
"""The counts for each place, first for a failure of its directory, then for a failure of its broker."""


@dataclass(frozen=True)
class RiskRules:
    """The inputs of an election besides the partition."""

    min_isr: MinIsr
    unclean: ConfigValues
    elr: bool
    """Whether eligible leader replicas are on."""
    stopping: tuple[int, ...]
    """Brokers in controlled shutdown: online, but they are not elected."""
    majority: tuple[int, ...] = ()
    """Brokers without which the quorum of controllers has no majority: if they fail, nobody is elected."""


def by_place(lake: Lake, rules: RiskRules) -> str:
    """(broker, directory, counts if the directory fails, counts if the broker fails) of all that holds replicas.

    The controller elects nobody for replicas that no record has placed, whichever directory of their broker fails.
    """
    placed = f"d NOT IN ({', '.join(map(literal, sorted(lake.unplaced)))})"
    return f"""
        WITH {_partitions(lake, rules)},
        slots AS (SELECT *, unnest(replicas) AS b, unnest(directories) AS d, false AS stray FROM ranked),
        {_after(rules)}
        SELECT b, d, {_counts(placed, placed=placed)}, {_counts("in_isr", rules.majority)} FROM judged GROUP BY b, d
    """


def totals(lake: Lake, rules: RiskRules) -> str:
    """(partitions, those without a leader, those under min.insync.replicas) before any failure."""
    return f"""
        WITH {_partitions(lake, rules)}
        SELECT count(*), count(*) FILTER (leader = -1), count(*) FILTER (in_sync < wanted) FROM ranked
    """


def strays(lake: Lake, rules: RiskRules, owners: Mapping[str, int]) -> str:
    """(directory, counts) of partitions that a failure affects because another broker's replica names the directory.

    The controller finds partitions by directory (R-FAIL-1). So after a disk was moved, a failure of the disk also
    affects its new broker in the partitions whose replicas still name the disk on its old broker.
    """
    moved = ", ".join(f"('{directory}', {broker})" for directory, broker in owners.items())
    return f"""
        WITH {_partitions(lake, rules)},
        slots AS (
            SELECT *, true AS stray FROM ranked JOIN (VALUES {moved}) AS m(d, b) ON list_contains(directories, d)
            WHERE directories[list_position(replicas, b)] IS DISTINCT FROM d
        ),
        {_after(rules)}
        SELECT d, {_counts("true")} FROM judged GROUP BY d
    """


def _partitions(lake: Lake, rules: RiskRules) -> str:
    """Every partition with the replicas that may lead it: the first two in sync, in the order of election."""
    wanted = _by_topic(rules.min_isr.topics, str(rules.min_isr.default))
    unclean = {topic: str(is_true(value)) for topic, value in rules.unclean.topics.items()}
    leaving = ", ".join(map(str, rules.stopping))
    return f"""
        p AS (
            SELECT p.*, complete, coalesce(perhaps, []) AS unsure, least({wanted}, len(replicas)) AS wanted,
                   {_by_topic(unclean, str(is_true(rules.unclean.cluster)))} AS unclean,
                   {_without("down", "replicas")} AS online, {_without("perhaps", "online")} AS sure,
                   {f"list_filter(online, lambda b: b NOT IN ({leaving}))" if leaving else "online"} AS able
            FROM {lake.at("partitions")} p LEFT JOIN {lake.offline_brokers()} o USING (topic_id, partition)
                 LEFT JOIN risk_complete USING (topic_id, partition)
                 LEFT JOIN risk_perhaps USING (topic_id, partition)
        ),
        ranked AS (
            SELECT leader, replicas, directories, isr, elr, last_known_elr, complete, wanted, unclean, online, unsure,
                   sure, able, len(list_filter(online, lambda b: list_contains(isr, b))) AS in_sync,
                   len(list_filter(sure, lambda b: list_contains(isr, b))) AS sure_in_sync,
                   CASE WHEN list_contains(able, leader) AND list_contains(isr, leader) THEN leader
                        ELSE list_filter(able, lambda b: list_contains(isr, b))[1] END AS preferred,
                   list_filter(able, lambda b: b <> preferred AND list_contains(isr, b))[1] AS next
            FROM p
        )
    """


def _after(rules: RiskRules) -> str:
    """Each slot with the leader of its partition without broker ``b``, and the number of in-sync replicas then.

    Without eligible leaders an in-sync set never becomes empty (R-ELIG-4): a stray's last member stays, and is online.
    """
    return f"""
        failed AS (
            SELECT *, list_contains(isr, b) AS in_isr, list_contains(online, b) AS is_online,
                   CASE WHEN preferred <> b THEN preferred ELSE next END AS clean
            FROM slots
        ),
        elected AS (
            SELECT *,
                   CASE WHEN clean IS NULL AND len(isr) = in_isr::INT
                        THEN {_first("list_filter(able, lambda r: list_contains(elr, r))")} END AS eligible,
                   CASE WHEN {rules.elr} AND len(isr) + len(elr) = 0 AND len(last_known_elr) = 1
                             AND list_contains(able, last_known_elr[1]) AND last_known_elr[1] <> b
                        THEN last_known_elr[1] END AS last_known,
                   CASE WHEN unclean THEN {_first("able")} END AS anybody
            FROM failed
        ),
        judged AS (
            SELECT b, d, leader, wanted, in_isr, is_online, in_sync, sure_in_sync, unsure,
                   len(sure) - list_contains(sure, b)::INT AS others,
                   coalesce(clean, eligible, last_known, anybody, -1) AS after,
                   clean IS NULL AND after >= 0 AND after <> leader AND (
                       eligible IS NULL OR coalesce(leader >= 0 AND NOT list_contains(complete, eligible), false)
                   ) AS uncleanly,
                   CASE WHEN clean IS NULL AND after >= 0 THEN 1
                        WHEN stray AND NOT {rules.elr} AND len(isr) = in_isr::INT THEN in_sync
                        ELSE in_sync - (in_isr AND is_online)::INT END AS in_sync_after,
                   CASE WHEN clean IS NULL AND after >= 0 THEN NOT list_contains(unsure, after)
                        WHEN stray AND NOT {rules.elr} AND len(isr) = in_isr::INT THEN sure_in_sync
                        ELSE sure_in_sync - (in_isr AND list_contains(sure, b))::INT END AS sure_in_sync_after
            FROM elected
        )
    """


def _counts(elected: str, majority: Collection[int] = (), placed: str = "true") -> str:
    """The aggregates of COUNTS. ``elected`` is true if the failure leads to an election. ``placed``: whether a record
    has placed the replica.

    Without a broker of ``majority`` nobody is elected: what it led has no leader, and in-sync sets stay as they are.
    """
    frozen = f"b IN ({', '.join(map(str, majority))})" if majority else "false"
    left = f"CASE WHEN {frozen} THEN in_sync - (in_isr AND is_online)::INT ELSE in_sync_after END"
    under = f"in_sync >= wanted AND {left} < wanted"
    perhaps_under = "sure_in_sync >= wanted AND sure_in_sync_after < wanted"
    unseen = "sure_in_sync >= wanted AND sure_in_sync - (NOT list_contains(unsure, b))::INT < wanted"
    conditions = (
        "is_online",
        "leader = b",
        "is_online AND others = 0",
        f"CASE WHEN {frozen} THEN leader = b ELSE {elected} AND leader >= 0 AND after = -1 END",
        f"{elected} AND uncleanly",
        f"{elected} AND {under}",
        f"NOT {frozen} AND {elected} AND leader >= 0 AND after >= 0 AND after <> leader",
        f"{frozen} AND leader >= 0 AND leader <> b AND in_isr AND is_online",
        f"NOT {frozen} AND leader >= 0 AND NOT list_contains(unsure, leader) AND CASE WHEN {placed} "
        f"THEN {elected} AND after >= 0 AND NOT ({under}) AND (list_contains(unsure, after) OR ({perhaps_under})) "
        f"ELSE leader = b OR (in_isr AND is_online AND {unseen}) END",
    )
    return ", ".join(f"count(*) FILTER ({condition})" for condition in conditions)


def _without(brokers: str, replicas: str) -> str:
    """``replicas`` without ``brokers``, which is null if there are none."""
    return f"""CASE WHEN {brokers} IS NULL THEN {replicas}
                        ELSE list_filter({replicas}, lambda b: NOT list_contains({brokers}, b)) END"""


def _first(candidates: str) -> str:
    """The first of a list that is not ``b``, null if there is none."""
    return f"list_filter({candidates}, lambda r: r <> b)[1]"


def _by_topic(values: Mapping[str, object], otherwise: str) -> str:
    """SQL for the value of the partition's topic."""
    if not values:
        return otherwise
    names = ", ".join(literal(topic) for topic in values)
    chosen = ", ".join(str(value) for value in values.values())
    return f"coalesce(map([{names}], [{chosen}])[p.topic], {otherwise})"
