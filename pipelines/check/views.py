"""The views that checks read.

For every history table ``T`` of a lake: ``T``, the rows true at the given offset, and ``T_history``, the rows that
began by then, with later ends shown as open. ``records``: the records up to the offset. ``assignment_requests``: the
requests of brokers by then, empty if the lake never read requests. ``min_isr``: topic and min_insync_replicas, if the
log sets it. ``tiered``: topics with remote storage. ``zookeeper_brokers``: those in ZooKeeper mode. ``cordons``: the
directories that are cordoned, and since when. ``moves``: the replicas that went from one directory of their broker to
another, and what it means (``MOVES``). ``losses``: the model's results about lost data (``LOSSES``). ``last_copies``:
what has to come before a broker is restarted or its disks are replaced (``LAST_COPIES``). ``disk_sizes``: the newest
sizes of each broker's directories (``DISK_SIZES``). ``held_back``: nodes that support lower levels of a feature than
others (``HELD_BACK``), a row for each broker and one for all controllers. ``params``: one row, of ``_params``. The
views of ``DERIVED`` are built on these.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from datetime import UTC, datetime, timedelta
from typing import Any

from jbod_model.formats.metadata_version import METADATA_VERSION, level_text
from pipelines.ask.advice import steps_in_words
from pipelines.ask.assignment_requests import ERROR_NAMES, LAST_REQUESTS, NO_REQUESTS, PROCESSES, requests_until
from pipelines.ask.configs import features, min_isr, tiered_topics, zookeeper_brokers
from pipelines.ask.lake_status import cordons
from pipelines.ask.lost_data import DataLoss, Losses, losses
from pipelines.ask.moves import directory_changes
from pipelines.ask.upgrade import BROKER, Blocker, held_back
from pipelines.lake.directory_sizes import newest_sizes
from pipelines.lake.kept_sizes import growth
from pipelines.lake.ledger import time_of
from pipelines.lake.reader import Lake
from pipelines.lake.tables import ASSIGNMENT_REQUESTS, SQL_TYPES
from pipelines.quorum.state import mirror_of, read_state
from pipelines.settings import Settings

_GRACE_OFFSETS = 10
"""Records that must pass beside ``check.grace_seconds``, so that a quiet log does not count as a long time."""
_SKEW_REPLICAS = 10
"""The replicas that a directory holds more than the mean at least, beside ``check.skew_factor``."""
_SKEW_BYTES = 10 << 30
"""The bytes that a directory holds more than its share at least, beside ``check.skew_factor``."""

HISTORY_TABLES = ("brokers", "directories", "partitions", "assignments", "offline_replicas")

DERIVED: Mapping[str, str] = {
    "processes": PROCESSES,
    # Directories that left their broker: when, and why.
    "away": """
        SELECT h.broker_id, h.directory_id, max(h.to_offset) AS to_offset, max(h.to_time) AS to_time,
               max_by(h.ended_by, h.from_offset) AS ended_by
        FROM directories_history h
        LEFT JOIN directories d ON d.broker_id = h.broker_id AND d.directory_id = h.directory_id
        WHERE d.directory_id IS NULL
        GROUP BY h.broker_id, h.directory_id
    """,
    # A replica whose topic was removed while its disk or broker was away, and that is still away: it still has the log.
    "strays": """
        SELECT a.topic_id, a.topic, a.partition, a.replica_index, a.broker_id, a.directory_id, o.reason,
               a.to_offset AS removed_offset, a.to_time AS removed_time
        FROM assignments_history a
        JOIN offline_replicas_history o ON o.topic_id = a.topic_id AND o.partition = a.partition
             AND o.replica_index = a.replica_index AND o.to_offset = a.to_offset
        LEFT JOIN directories d ON d.broker_id = a.broker_id AND d.directory_id = a.directory_id
        LEFT JOIN brokers b ON b.broker_id = a.broker_id
        WHERE a.ended_by = 'removed' AND a.kind = 'assigned' AND o.reason <> 'directory lost'
          AND (d.directory_id IS NULL OR b.broker_id IS NULL OR b.fenced)
    """,
    "error_names": ERROR_NAMES,
    "last_asked": LAST_REQUESTS,
    # Since when a replica is in its directory, where a reassignment changed its position meanwhile.
    "stays": """
        SELECT topic_id, partition, broker_id, directory_id, max(from_offset) AS from_offset,
               max(from_time) AS from_time
        FROM (
            SELECT h.topic_id, h.partition, h.broker_id, h.directory_id, h.from_offset, h.from_time,
                   lag(h.to_offset) OVER (PARTITION BY h.topic_id, h.partition, h.broker_id, h.directory_id
                                          ORDER BY h.from_offset) AS before
            FROM assignments_history h
            JOIN (SELECT DISTINCT topic_id, partition, broker_id, directory_id
                  FROM assignments_history WHERE ended_by = 'reordered') r
                 ON r.topic_id = h.topic_id AND r.partition = h.partition AND r.broker_id = h.broker_id
                 AND r.directory_id = h.directory_id
        ) part
        WHERE before IS NULL OR before <> from_offset
        GROUP BY topic_id, partition, broker_id, directory_id
    """,
    # Replicas for whose directory their broker should have asked long ago.
    "stuck_assignments": """
        SELECT a.topic_id, a.topic, a.partition, a.replica_index, a.broker_id, a.from_snapshot,
               coalesce(y.from_offset, a.from_offset) AS from_offset, coalesce(y.from_time, a.from_time) AS from_time,
               r.from_offset AS process_offset
        FROM assignments a
        LEFT JOIN stays y ON y.topic_id = a.topic_id AND y.partition = a.partition AND y.broker_id = a.broker_id
             AND y.directory_id = a.directory_id
        JOIN brokers b ON b.broker_id = a.broker_id
        JOIN processes r ON r.broker_id = a.broker_id
        CROSS JOIN params
        WHERE a.kind = 'unassigned' AND NOT b.fenced AND array_length(b.log_dirs) > 1
          AND greatest(coalesce(y.from_offset, a.from_offset), coalesce(r.unfenced_offset, 0)) <= params.stuck_offset
          AND greatest(coalesce(y.from_time, a.from_time), coalesce(r.unfenced_time, y.from_time, a.from_time))
              <= params.stuck_time
    """,
    # How many replicas of a partition are offline, and how many of these count as in sync.
    "offline_counts": """
        SELECT o.topic_id, o.partition, count(*) AS replicas,
               count(CASE WHEN array_contains(p.isr, o.broker_id) THEN 1 END) AS in_sync
        FROM offline_replicas o
        JOIN partitions p ON p.topic_id = o.topic_id AND p.partition = o.partition
        GROUP BY o.topic_id, o.partition
    """,
    # Partitions without a leader or a replica online, or with too few in sync.
    "unusable": """
        SELECT *, CASE WHEN offline = replicas THEN 'offline' WHEN leader = -1 THEN 'leaderless' ELSE 'few' END AS kind
        FROM (
            SELECT p.topic_id, p.topic, p.partition, p.leader, array_length(p.replicas) AS replicas,
                   coalesce(f.replicas, 0) AS offline, array_length(p.isr) - coalesce(f.in_sync, 0) AS in_sync,
                   least(coalesce(m.min_insync_replicas, params.min_insync_replicas),
                         array_length(p.replicas)) AS wanted,
                   coalesce(m.min_insync_replicas, params.min_insync_replicas) AS min_isr
            FROM partitions p
            CROSS JOIN params
            LEFT JOIN offline_counts f ON f.topic_id = p.topic_id AND f.partition = p.partition
            LEFT JOIN min_isr m ON m.topic = p.topic
        ) state
        WHERE leader = -1 OR offline = replicas OR in_sync < wanted
    """,
}
"""Views that several checks read, or that are small although they are selected from large tables. Each may name those
before it, and ``params`` and ``min_isr``."""

_MOVES = (
    *("topic_id", "topic", "partition", "replica_index", "broker_id", "source", "target", "came_offset", "at_offset"),
    *("at_time", "undecided", "meaning"),
)
"""The columns of ``directory_changes``, without those that no check reads."""


def _params(lake: Lake, settings: Settings, min_insync_replicas: int) -> dict[str, Any]:
    """The parameters of checks: settings, converted to offsets and times of the lake."""
    check = settings.check
    newest = lake.offset == lake.published.end_offset - 1
    late = (lake.published.published_time - lake.published.end_time).total_seconds() if newest else 0
    level = features(lake).get(METADATA_VERSION, -1)
    return {
        "at_offset": lake.offset,
        "at_time": lake.time,
        "metadata_version": level,  # -1 if the log has none
        "metadata_release": level_text(level),
        # Seconds from the newest record to its publication, 0 for a question about an older offset; and their limit.
        "late": int(late),
        "stale": float(check.stale_seconds),
        # Seconds for which the mirror of the log has found no leader of its quorum; -1 if one answers, or for files.
        "leaderless": _leaderless(lake) if newest else -1,
        **_rewritten(lake),
        **_unknown(lake),
        # A state that began at or before this offset and time has lasted longer than the grace period.
        "stuck_offset": lake.offset - _GRACE_OFFSETS,
        "stuck_time": lake.time - timedelta(seconds=check.grace_seconds),
        # Events before these times are not reported.
        "window_time": lake.time - timedelta(hours=check.window_hours),
        "flap_time": lake.time - timedelta(seconds=check.flap_seconds),
        # A directory that left before this time has been away for too long; one that was cordoned was forgotten.
        "offline_time": lake.time - timedelta(hours=check.offline_hours),
        "cordon_time": lake.time - timedelta(hours=check.cordon_hours),
        "soon": check.soon_seconds,  # the most seconds between two events that probably belong together
        "flaps": check.flaps,
        "refusals": check.refusals,
        "min_insync_replicas": min_insync_replicas,
        "blast_partitions": check.blast_partitions,
        "skew_factor": float(check.skew_factor),
        "skew_replicas": _SKEW_REPLICAS,
        "skew_bytes": _SKEW_BYTES,
        "full_percent": check.full_percent,
        "full_days": check.full_days,
    }


def _make_inputs(lake: Lake, settings: Settings) -> None:
    """Makes ``params``, and ``min_isr`` of the topics that set it."""
    wanted = min_isr(lake, settings.ask.min_insync_replicas)
    params = _params(lake, settings, wanted.default)
    columns = ", ".join(f"{name} {SQL_TYPES[type(value)]}" for name, value in params.items())
    lake.make("params", columns, [[*params.values()]])
    topics = [(topic, number) for topic, number in wanted.topics.items() if topic]
    lake.make("min_isr", "topic VARCHAR, min_insync_replicas INTEGER", topics)


def _leaderless(lake: Lake) -> int:
    quorum = read_state(mirror_of(lake.path))
    if quorum is None or quorum.silent_since is None:
        return -1
    return int((datetime.now(UTC) - quorum.silent_since).total_seconds())


MADE = frozenset(
    (
        "moves",
        "losses",
        "last_copies",
        "tiered",
        "zookeeper_brokers",
        "cordons",
        "disk_sizes",
        "held_back",
        "params",
        "min_isr",
    )
)
"""The views that are temporary tables, made for an answer."""


def make_tables(lake: Lake, settings: Settings, wanted: Set[str]) -> None:
    """Makes those views of ``MADE`` that are wanted, or that others come with."""
    if "moves" in wanted:
        columns = ", ".join(_MOVES)
        lake.query(f"CREATE OR REPLACE TEMP TABLE moves AS SELECT {columns} FROM {directory_changes(lake)}")
    if {"losses", "last_copies"} & wanted:
        data = losses(lake, settings.ask.min_insync_replicas, settings.check.losses_accepted_until)
        _make_losses(lake, data)
        if "last_copies" in wanted:
            _make_last_copies(lake, data)
    if "tiered" in wanted:
        lake.make("tiered", "topic VARCHAR", [(topic,) for topic in sorted(tiered_topics(lake))])
    if "zookeeper_brokers" in wanted:
        lake.make("zookeeper_brokers", "id INTEGER", [(broker_id,) for broker_id in sorted(zookeeper_brokers(lake))])
    if "cordons" in wanted:
        columns = "broker_id INTEGER, directory_id VARCHAR, from_offset BIGINT, from_time TIMESTAMPTZ"
        lake.make("cordons", columns, [(*place, *since[:2]) for place, since in cordons(lake).items()])
    if "disk_sizes" in wanted:
        _make_disk_sizes(lake)
    if "held_back" in wanted:
        _make_held_back(lake, settings)
    _make_inputs(lake, settings)


def _make_losses(lake: Lake, data: Losses) -> None:
    """Makes ``losses``: partitions whose data is lost, or may lack writes, at the lake's offset."""
    # There is one finding per partition: it reports the newest loss, and the offset of the previous one.
    of_partition: dict[tuple[str, int, str], list[DataLoss]] = {}
    for data_loss in sorted(data.losses, key=lambda loss: loss.offset):
        of_partition.setdefault((data_loss.topic_id, data_loss.partition, data_loss.kind), []).append(data_loss)
    rows = []
    for *earlier, newest in of_partition.values():
        before = ", ".join(str(data_loss.offset) for data_loss in earlier)
        finding = newest.finding + (f"; the same happened at offset {before}" if before else "")
        subject = (newest.topic_id, newest.topic, newest.partition, newest.kind, newest.accepted)
        rows.append((*subject, newest.offset, newest.time, finding, newest.advice, int(newest.is_of_a_crash)))
    columns = (
        "topic_id VARCHAR, topic VARCHAR, partition INTEGER, kind VARCHAR, accepted BOOLEAN, from_offset BIGINT, "
        "from_time TIMESTAMPTZ, finding VARCHAR, advice VARCHAR, grade INTEGER"
    )
    lake.make("losses", columns, rows)


def _make_last_copies(lake: Lake, data: Losses) -> None:
    """Makes ``last_copies`` as of the lake's offset.

    ``keep``: the steps that keep the last copies of a broker that is down or lacks their disks, null if there is none.
    ``before_restart``: what has to come before a restart, null if nothing has.
    """
    last = data.last_copies
    brokers = dict(lake.query(f"SELECT broker_id, NOT fenced FROM {lake.at('brokers')}"))
    rows = []
    for broker in {*brokers, *last.away}:
        running = brokers.get(broker, False)
        kept = last.steps(broker, running=running)
        if not kept and broker in last.down:
            kept = last.about_fenced(broker, in_order=False)
        before = [*last.before_start(broker, running=running)]
        if kept or before:
            rows.append((broker, *(steps_in_words(steps) or None for steps in (kept, before))))
    lake.make("last_copies", "broker_id INTEGER, keep VARCHAR, before_restart VARCHAR", rows)


def _make_disk_sizes(lake: Lake) -> None:
    """Makes ``disk_sizes``, of runs up to the lake's offset.

    ``directory_id``: the path where no id is known. ``growth``: bytes a day. From: when they were kept.
    """
    newest = newest_sizes(lake)
    rates = growth(lake) if newest else {}
    rows = [
        (
            disk["broker_id"],
            disk["directory_id"] or disk["path"],
            *(disk[name] for name in ("path", "bytes", "total_bytes", "free_bytes")),
            rates.get((disk["broker_id"], disk["path"])),
            disk["log_offset"],
            disk["time"],
        )
        for disk in newest
    ]
    columns = (
        "broker_id INTEGER, directory_id VARCHAR, path VARCHAR, bytes BIGINT, total_bytes BIGINT, free_bytes BIGINT, "
        "growth BIGINT, from_offset BIGINT, from_time TIMESTAMPTZ"
    )
    lake.make("disk_sizes", columns, rows)


def _make_held_back(lake: Lake, settings: Settings) -> None:
    """Makes ``held_back`` at the lake's offset. ``broker_id`` null: controllers, of which findings have no column."""
    all_blockers = held_back(lake, timedelta(hours=settings.check.offline_hours))
    of_subject: dict[tuple[bool, int | None], list[Blocker]] = {}
    for blocker in all_blockers:
        of_subject.setdefault((blocker.ghost, blocker.node_id if blocker.kind == BROKER else None), []).append(blocker)
    rows = []
    for (ghost, broker), blockers in of_subject.items():
        first = min(since for blocker in blockers if (since := blocker.state_since if ghost else blocker.registered))
        finding = "; ".join(blocker.finding for blocker in blockers)
        advice = "; ".join(
            blocker.advice + (f": {blocker.command}" if ghost and blocker.command else "") for blocker in blockers
        )
        rows.append((ghost, broker, first.offset, first.time, finding, advice))
    columns = "ghost BOOLEAN, broker_id INTEGER, from_offset BIGINT, from_time TIMESTAMPTZ, finding VARCHAR"
    lake.make("held_back", f"{columns}, advice VARCHAR", rows)


def make_views(lake: Lake, settings: Settings, queries: Iterable[str]) -> None:
    """Makes only the views that the queries name, because each view opens files of the lake.

    Raises UsageError if a file of the lake is damaged or gone.
    """
    wanted = named(queries)
    for table in HISTORY_TABLES:
        if table in wanted:
            lake.query(f"CREATE OR REPLACE TEMP VIEW {table} AS FROM {lake.at(table)}")
        if f"{table}_history" in wanted:
            lake.query(f"CREATE OR REPLACE TEMP VIEW {table}_history AS FROM {lake.until(table)}")
    if "records" in wanted:
        lake.query(f"CREATE OR REPLACE TEMP VIEW records AS FROM {lake.records()}")
    if ASSIGNMENT_REQUESTS.name in wanted:
        requests = requests_until(lake) or NO_REQUESTS
        lake.query(f"CREATE OR REPLACE TEMP VIEW {ASSIGNMENT_REQUESTS.name} AS FROM {requests}")
    make_tables(lake, settings, wanted)
    for name, query in DERIVED.items():
        if name in wanted:  # a table: DuckDB knows its size, and so does not join the large tables with each other
            lake.query(f"CREATE OR REPLACE TEMP TABLE {name} AS {query}")


def named(queries: Iterable[str]) -> Set[str]:
    """The words of the queries, and of the derived views that they name."""
    words: set[str] = set()
    for query in queries:
        words.update(re.findall(r"\w+", query))
    for name, query in reversed(list(DERIVED.items())):
        if name in words:
            words.update(re.findall(r"\w+", query))
    return words


def _rewritten(lake: Lake) -> dict[str, Any]:
    """The newest rollback in the ledger up to the offset: the lake's end offset before it (-1: there was none), the
    first offset that it removed, and the time of the record before that."""
    names = ("rewritten_from", "rewritten_offset", "rewritten_time")
    rollbacks = [rollback for rollback in lake.rollbacks() if rollback[1] <= lake.offset + 1]
    return dict(zip(names, rollbacks[-1] if rollbacks else (-1, -1, lake.time), strict=True))


def _unknown(lake: Lake) -> dict[str, Any]:
    """Since when the lake is incomplete: the first unknown record (offset -1: there is none), and the kinds of all."""
    incomplete = lake.incomplete_since
    if incomplete is None:
        return {"unknown_offset": -1, "unknown_time": lake.time, "unknown_kinds": ""}
    ((micros,),) = lake.query(
        f"SELECT epoch_us(min(append_time)) FROM {lake.setting_records()} WHERE log_offset = {incomplete.offset}"
    )
    time = lake.time if micros is None else time_of(micros)
    return {"unknown_offset": incomplete.offset, "unknown_time": time, "unknown_kinds": ", ".join(incomplete.kinds)}
