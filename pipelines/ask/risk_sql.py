"""The controller's decision about every partition for the failure of each broker or directory, in one query.

The answer is that of `jbod_model`'s controller for each failure, in the time of one scan. A test compares them. A
failure removes the broker from the in-sync set and forbids it to lead (R-LEADER-1). Then an election is held
(R-ELECT-2, R-ELECT-3, R-ELECT-4, R-ELECT-5). A failure never completes a reassignment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.ask.configs import ConfigValues, MinIsr
from pipelines.lake.delta import literal
from pipelines.lake.reader import Lake

COUNTS = ("replicas", "leaders", "last_replicas", "without_leader", "unclean", "under_min_isr", "moved")
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


def by_place(lake: Lake, rules: RiskRules) -> str:
    """(broker, directory, counts if the directory fails, counts if the broker fails) of all that holds replicas."""
    return f"""
        WITH {_partitions(lake, rules)},
        slots AS (SELECT *, unnest(replicas) AS b, unnest(directories) AS d, false AS stray FROM ranked),
        {_after(rules)}
        SELECT b, d, {_counts("true")}, {_counts("in_isr")} FROM judged GROUP BY b, d
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
    """Every partition with the replicas that may lead it, in the order of election."""
    wanted = _by_topic(rules.min_isr.topics, str(rules.min_isr.default))
    unclean = {topic: str(_is_true(value)) for topic, value in rules.unclean.topics.items()}
    stopping = "".join(f", {broker}" for broker in rules.stopping)
    return f"""
        o AS (
            SELECT topic_id, partition, list(replica_index + 1) AS down FROM {lake.at("offline_replicas")} GROUP BY ALL
        ),
        p AS (
            SELECT p.*, least({wanted}, len(replicas)) AS wanted,
                   {_by_topic(unclean, str(_is_true(rules.unclean.cluster or "")))} AS unclean,
                   CASE WHEN down IS NULL THEN replicas
                        ELSE list_filter(replicas, lambda b, i: NOT list_contains(down, i)) END AS online
            FROM {lake.at("partitions")} p LEFT JOIN o USING (topic_id, partition)
        ),
        able AS (SELECT *, list_filter(online, lambda b: b NOT IN (-1{stopping})) AS able FROM p),
        ranked AS (
            SELECT leader, replicas, directories, isr, elr, last_known_elr, wanted, unclean, online, able,
                   list_filter(CASE WHEN list_contains(able, leader) THEN list_prepend(leader, able) ELSE able END,
                               lambda b: list_contains(isr, b)) AS synced,
                   len(list_filter(online, lambda b: list_contains(isr, b))) AS in_sync
            FROM able
        )
    """


def _after(rules: RiskRules) -> str:
    """Each slot with the leader of its partition without broker ``b``, and the number of in-sync replicas then.

    Without eligible leaders an in-sync set never becomes empty (R-ELIG-4): a stray's last member stays, and is online.
    """
    return f"""
        failed AS (
            SELECT *, list_contains(isr, b) AS in_isr, list_contains(online, b) AS is_online,
                   {_first("synced")} AS clean
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
            SELECT b, d, leader, wanted, in_isr, is_online, in_sync, len(online) AS onlines,
                   coalesce(clean, eligible, last_known, anybody, -1) AS after,
                   clean IS NULL AND eligible IS NULL AND after >= 0 AND after <> leader AS uncleanly,
                   CASE WHEN clean IS NULL AND after >= 0 THEN 1
                        WHEN stray AND NOT {rules.elr} AND len(isr) = in_isr::INT THEN in_sync
                        ELSE in_sync - (in_isr AND is_online)::INT END AS in_sync_after
            FROM elected
        )
    """


def _counts(elected: str) -> str:
    """The aggregates of COUNTS. ``elected`` is true if the failure leads to an election."""
    conditions = (
        "is_online",
        "leader = b",
        "is_online AND onlines = 1",
        f"{elected} AND leader >= 0 AND after = -1",
        f"{elected} AND uncleanly",
        f"{elected} AND in_sync >= wanted AND in_sync_after < wanted",
        f"{elected} AND leader >= 0 AND after >= 0 AND after <> leader",
    )
    return ", ".join(f"count(*) FILTER ({condition})" for condition in conditions)


def _first(candidates: str) -> str:
    """The first of a list that is not ``b``, null if there is none. The head of a list may be in it twice."""
    return f"list_filter({candidates}, lambda r: r <> b)[1]"


def _by_topic(values: Mapping[str, object], otherwise: str) -> str:
    """SQL for the value of the partition's topic."""
    if not values:
        return otherwise
    names = ", ".join(literal(topic) for topic in values)
    chosen = ", ".join(str(value) for value in values.values())
    return f"coalesce(map([{names}], [{chosen}])[p.topic], {otherwise})"


def _is_true(value: str) -> bool:
    return value.lower() == "true"
