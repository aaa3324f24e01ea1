"""The effects of failures on replicas and leaders, from the history tables."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import accumulate
from typing import NamedTuple

from pipelines.ask.incidents_failures import FOREVER, Story
from pipelines.ask.lost_data import DataLoss
from pipelines.ask.moves import RECREATED, directory_changes
from pipelines.lake.ledger import micros_of, time_if_any, time_of
from pipelines.lake.reader import Lake

LEADERS_LEAVE_BEFORE = timedelta(seconds=1)
"""The controller writes new leaders before the record that fences a broker or takes a directory out (R-LEADER-2,
R-FAIL-1), in one append."""


NO_LEADER = -1

_Place = tuple[int, str | None]
"""A broker and a directory of it; None: all of them."""


class Outage(NamedTuple):
    """A replica that an incident took offline, until it was online again."""

    topic: str
    partition: int
    broker_id: int
    directory_id: str
    already: bool
    """Whether it was offline before, for another reason."""
    from_offset: int
    from_time: datetime
    to_offset: int | None
    to_time: datetime | None


class LeaderLoss(NamedTuple):
    """A partition that lost its leader to an incident."""

    topic: str
    partition: int
    leader: int
    successor: int
    """The new leader in the same record, -1 for none."""
    offset: int
    time: datetime
    led_again_offset: int | None
    """If there was no new leader: when the partition had a leader again, or the topic was removed."""
    led_again_time: datetime | None
    led_again_by: int | None
    lacking: str | None
    """Whether the next leader lacks acknowledged writes: lost, or may lack writes. None: it has all of them."""


@dataclass
class Effects:
    """Counts for one incident."""

    replicas: int = 0
    already_offline: int = 0
    offline: int = 0
    longest_offline: timedelta = timedelta()
    last_offset: int | None = None
    last_time: datetime | None = None
    successors: dict[int, int] = field(default_factory=dict)
    """Partitions by their new leader, -1 for none."""
    first_loss: tuple[int, datetime] | None = None
    """When the first leader was lost."""
    leaderless: int = 0
    """Partitions without a new leader that still have none."""
    longest_leaderless: timedelta = timedelta()
    led_again: tuple[int, datetime] | None = None
    """When the last of these had a leader again."""
    lost: list[DataLoss] = field(default_factory=list)
    """Partitions whose last complete copy was given up, or that continued without it."""
    rehomed: int = 0
    """Replicas that the broker recreated empty in other directories."""
    rehomed_from: tuple[int, datetime] | None = None


def effects(lake: Lake, stories: Sequence[Story], lost: Sequence[DataLoss] = ()) -> list[Effects]:
    """The effects of each incident, in the order of ``stories``. ``lost``: all data losses up to the lake's offset."""
    effects_of = [Effects() for _ in stories]
    if not stories:
        return effects_of
    numbers_of: dict[_Place, list[int]] = {}
    for number, story in enumerate(stories):
        numbers_of.setdefault((story.broker_id, story.directory_id), []).append(number)
    begins = {place: _Begins(stories, numbers) for place, numbers in numbers_of.items()}
    for loss in lost:
        if (took := _story_of(loss, stories, begins)) is not None:
            effects_of[took].lost.append(loss)
    now = micros_of(lake.time)
    _select_outages(lake, stories)
    rows = lake.query(
        f"""
        SELECT story, count(*), count(*) FILTER (already), count(*) FILTER (to_offset IS NULL),
               greatest(max(coalesce(epoch_us(to_time), {now}) - epoch_us(from_time)), 0), max(to_offset),
               epoch_us(arg_max(to_time, to_offset))
        FROM incident_outages GROUP BY story
        """
    )
    for story, replicas, already, offline, longest, last, last_time in rows:
        counts = effects_of[story]
        counts.replicas, counts.already_offline, counts.offline = replicas, already, offline
        counts.longest_offline = timedelta(microseconds=longest)
        counts.last_offset, counts.last_time = last, time_if_any(last_time)
    rows = lake.query(
        f"""
        WITH {_losses(lake, stories)}
        SELECT story, successor, count(*), min(x), epoch_us(arg_min(x_time, x)), count(*) FILTER (again IS NULL),
               greatest(max(coalesce(epoch_us(again_time), {now}) - epoch_us(x_time)), 0), max(again),
               epoch_us(arg_max(again_time, again))
        FROM losses GROUP BY story, successor ORDER BY story, successor
        """
    )
    for story, successor, partitions, first, first_time, leaderless, longest, again, again_time in rows:
        counts = effects_of[story]
        counts.successors[successor] = partitions
        counts.first_loss = min(counts.first_loss or (first, time_of(first_time)), (first, time_of(first_time)))
        if successor == NO_LEADER:
            counts.leaderless, counts.longest_leaderless = leaderless, timedelta(microseconds=longest)
            counts.led_again = None if leaderless else (again, time_of(again_time))
    rows = lake.query(
        f"""
        SELECT story, count(*), min(at_offset), epoch_us(arg_min(at_time, at_offset))
        FROM {directory_changes(lake)} c JOIN incident_stories t ON t.place = c.broker_id || '/' || c.source
        WHERE c.meaning = '{RECREATED}' AND decided_offset >= t.since AND decided_offset < until GROUP BY story
        """
    )
    for story, replicas, first, first_time in rows:
        effects_of[story].rehomed, effects_of[story].rehomed_from = replicas, (first, time_of(first_time))
    return effects_of


def outages(lake: Lake, stories: Sequence[Story], story: int) -> list[Outage]:
    """The replicas that one incident took offline."""
    _select_outages(lake, stories)
    return lake.named_rows(
        Outage, f"incident_outages WHERE story = {story} ORDER BY topic, partition, broker_id, from_offset"
    )


def leader_losses(lake: Lake, stories: Sequence[Story], story: int, lost: Sequence[DataLoss] = ()) -> list[LeaderLoss]:
    """The partitions that lost their leader in one incident, in log order. ``lost`` as for ``effects``."""
    _select_outages(lake, stories)
    lacking = {(loss.topic, loss.partition, loss.went_on_offset): loss.kind for loss in lost}
    return [
        LeaderLoss._make(
            [*row[:5], time_of(row[5]), row[6], time_if_any(row[7]), row[8], lacking.get((*row[:2], row[6] or row[4]))]
        )
        for row in lake.query(
            f"""
            WITH {_losses(lake, stories)}
            SELECT topic, partition, broker_id, successor, x, epoch_us(x_time), again, epoch_us(again_time), again_by
            FROM losses WHERE story = {story} ORDER BY x, topic, partition
            """
        )
    ]


class _Begins:
    """When the incidents ``numbers`` of one directory or broker began."""

    def __init__(self, stories: Sequence[Story], numbers: Sequence[int]) -> None:
        self.numbers = numbers
        newest_first = [stories[number] for number in reversed(numbers)]
        # Each or a later one: incidents may overlap, and the clock may go back.
        self.since = [*accumulate((story.since for story in newest_first), min)][::-1]
        self.leaders_from = [*accumulate(map(_leaders_from, newest_first), min)][::-1]

    def newest(self, loss: DataLoss) -> list[int]:
        """The newest one that had begun, if any. A loss may stand before its record (see ``LEADERS_LEAVE_BEFORE``)."""
        begun = bisect_right(self.since, loss.offset)
        if loss.leader is not None:
            begun = max(begun, bisect_right(self.leaders_from, loss.time))
        return [self.numbers[begun - 1]] if begun else []


def _story_of(loss: DataLoss, stories: Sequence[Story], begins: Mapping[_Place, _Begins]) -> int | None:
    """The incident that took away the last complete copy: the newest one at its directory, as long as the directory is
    away. If its replica was recreated before its process registered without the directory (R-COPY-12), the next one
    there. Otherwise the newest one at the directory or its broker."""
    for copy in loss.copies:
        places = [(copy.broker_id, directory) for directory in (*copy.directories, None)]
        newest = [number for place in places if place in begins for number in begins[place].newest(loss)]
        of_directory = [number for number in newest if stories[number].directory_id is not None]
        away = [number for number in of_directory if _back_offset(stories[number]) >= loss.offset]
        there = [number for place in places[:-1] if place in begins for number in begins[place].numbers]
        later = [number for number in there if stories[number].since > loss.offset and copy.given_up == "recreated"]
        if away:
            return max(away)
        if later:
            return min(later)
        if newest:
            return max(newest)
    return None


def _select_outages(lake: Lake, stories: Sequence[Story]) -> None:
    """Creates incident_outages: each period in which a replica was offline for one kind of reason, with the last
    incident that explains it.

    Outages by a directory last until the replica is online, those by a broker until the broker is back. Most replicas
    were never offline for one reason right after another: only the others are sorted.
    """
    _select_stories(lake, stories)
    lake.query(
        f"""
        CREATE OR REPLACE TEMP TABLE incident_spells AS
        SELECT topic_id, topic, partition, broker_id, directory_id, reason LIKE 'broker%' AS of_broker,
               from_offset, from_time, to_offset, to_time
        FROM {lake.until("offline_replicas")}
        """
    )
    lake.query(
        """
        CREATE OR REPLACE TEMP TABLE incident_chained AS
        SELECT topic_id, partition, broker_id FROM incident_spells n
        SEMI JOIN (FROM incident_spells WHERE to_offset IS NOT NULL) o ON n.topic_id = o.topic_id
             AND n.partition = o.partition AND n.broker_id = o.broker_id AND n.from_offset = o.to_offset
        """
    )
    lake.query(
        f"""
        CREATE OR REPLACE TEMP TABLE incident_outages AS
        WITH spells AS (
            SELECT *, coalesce(from_offset = lag(to_offset) OVER replica, false) AS goes_on
            FROM incident_spells SEMI JOIN incident_chained USING (topic_id, partition, broker_id)
            WINDOW replica AS (PARTITION BY topic_id, partition, broker_id ORDER BY from_offset)
        ),
        marked AS (
            SELECT *, sum((NOT goes_on)::INT) OVER replica AS chain,
                   (NOT goes_on OR of_broker <> lag(of_broker) OVER replica)::INT AS other
            FROM spells WINDOW replica AS (PARTITION BY topic_id, partition, broker_id ORDER BY from_offset)
        ),
        counted AS (
            SELECT *, sum(other) OVER (PARTITION BY topic_id, partition, broker_id ORDER BY from_offset) AS stretch,
                   CASE WHEN bool_and(to_offset IS NOT NULL) OVER chain THEN max(to_offset) OVER chain END AS chain_end,
                   CASE WHEN bool_and(to_offset IS NOT NULL) OVER chain THEN arg_max(to_time, to_offset) OVER chain
                        END AS chain_time
            FROM marked WINDOW chain AS (PARTITION BY topic_id, partition, broker_id, chain)
        ),
        stretches AS (
            SELECT topic_id, topic, partition, broker_id, arg_min(directory_id, from_offset) AS directory_id,
                   arg_min(goes_on, from_offset) AS already, min(from_offset) AS from_offset,
                   arg_min(from_time, from_offset) AS from_time,
                   CASE WHEN NOT of_broker THEN any_value(chain_end)
                        WHEN bool_and(to_offset IS NOT NULL) THEN max(to_offset) END AS to_offset,
                   CASE WHEN NOT of_broker THEN any_value(chain_time)
                        WHEN bool_and(to_offset IS NOT NULL) THEN arg_max(to_time, to_offset) END AS to_time, of_broker
            FROM counted GROUP BY topic_id, topic, partition, broker_id, chain, stretch, of_broker
            UNION ALL
            SELECT topic_id, topic, partition, broker_id, directory_id, false, from_offset, from_time, to_offset,
                   to_time, of_broker
            FROM incident_spells ANTI JOIN incident_chained USING (topic_id, partition, broker_id)
        ),
        placed AS (
            SELECT *, broker_id || CASE WHEN of_broker THEN '' ELSE '/' || directory_id END AS place FROM stretches
        ),
        stories AS (
            SELECT *, lead(start, 1, {FOREVER}) OVER (PARTITION BY place ORDER BY start) AS next_start
            FROM incident_stories
        )
        SELECT story, start, leaders_from, topic_id, topic, partition, broker_id,
               arg_min(directory_id, from_offset) AS directory_id, arg_min(already, from_offset) AS already,
               min(from_offset) AS from_offset, arg_min(from_time, from_offset) AS from_time,
               CASE WHEN bool_and(to_offset IS NOT NULL) THEN max(to_offset) END AS to_offset,
               CASE WHEN bool_and(to_offset IS NOT NULL) THEN arg_max(to_time, to_offset) END AS to_time
        FROM placed s JOIN stories t ON s.place = t.place AND s.from_offset >= start AND s.from_offset < next_start
        GROUP BY story, start, leaders_from, topic_id, topic, partition, broker_id
        """
    )


def _losses(lake: Lake, stories: Sequence[Story]) -> str:
    """SQL: leaders lost in outages, with the next leader."""
    # The large table stands in each place that reads it: DuckDB would copy all rows of a common table expression.
    columns = "topic_id, partition, leader, from_offset, from_time, to_offset, to_time"
    states = f"(SELECT {columns} FROM {lake.until('partitions')})"
    # What is true of each loss stands beside the join of all states with the states before them, which it makes small.
    since, leaders_from = min(story.offset for story in stories), min(map(_leaders_from, stories))
    in_time = f"make_timestamptz({micros_of(leaders_from)})"
    return f"""
        left_behind AS (
            SELECT a.topic_id, a.partition, a.leader AS broker_id, b.leader AS successor, b.from_offset AS x,
                   b.from_time AS x_time
            FROM {states} a JOIN {states} b
            ON a.to_offset = b.from_offset AND a.topic_id = b.topic_id AND a.partition = b.partition
            WHERE a.leader >= 0 AND a.leader <> b.leader
              AND (a.to_offset > {since} OR a.to_time >= {in_time})
              AND (b.from_offset > {since} OR b.from_time >= {in_time})
        ),
        taken AS (
            SELECT o.story, o.topic, l.* FROM incident_outages o JOIN left_behind l
            USING (topic_id, partition, broker_id)
            WHERE (NOT already AND epoch_us(x_time) >= leaders_from AND x <= start)
               OR (x > start AND (o.to_offset IS NULL OR x < o.to_offset))
        ),
        leaderless AS (
            SELECT * FROM {states} SEMI JOIN (FROM taken WHERE successor = -1) USING (topic_id, partition)
        ),
        following AS (
            SELECT topic_id, partition, -1 AS successor, from_offset AS again, from_time AS again_time,
                   leader AS again_by
            FROM leaderless WHERE leader >= 0
            UNION ALL
            SELECT topic_id, partition, -1, max(to_offset), arg_max(to_time, to_offset), NULL
            FROM leaderless GROUP BY ALL HAVING bool_and(to_offset IS NOT NULL)
        ),
        losses AS (
            SELECT t.*, again, again_time, again_by FROM taken t ASOF LEFT JOIN following f
            ON t.topic_id = f.topic_id AND t.partition = f.partition AND f.successor = t.successor AND t.x <= f.again
        )
    """


def _select_stories(lake: Lake, stories: Sequence[Story]) -> None:
    """Creates incident_stories: number, place, first offset, the time since which leaders may have been moved away for
    it, and the offsets between which replicas leave a directory because of it."""
    rows = [
        (
            number,
            f"{story.broker_id}" if story.directory_id is None else f"{story.broker_id}/{story.directory_id}",
            story.offset,
            micros_of(_leaders_from(story)),
            story.since,
            _back_offset(story),
        )
        for number, story in enumerate(stories)
    ]
    columns = "story INT, place VARCHAR, start BIGINT, leaders_from BIGINT, since BIGINT, until BIGINT"
    lake.make("incident_stories", columns, rows)


def _leaders_from(story: Story) -> datetime:
    return story.leaders_from or story.time - LEADERS_LEAVE_BEFORE


def _back_offset(story: Story) -> int:
    return FOREVER if story.back_offset is None else story.back_offset
