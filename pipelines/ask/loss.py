"""The fate of the partitions' data: lost, possibly incomplete, or at risk.

``jbod_model.loss.fate`` decides. Few partitions can have lost anything (``loss_sql``), and many of those share a shape:
the same states, in the same order relative to the events of brokers. The model follows one partition of each shape. It
does not follow the restarts between which a partition rested (``Fate.rests``), however many there were.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from operator import attrgetter
from typing import Any, NamedTuple

from jbod_model.ids import ID_TABLES, IdTable, Uuid
from jbod_model.loss.copies import BrokerChanged, Copy, Event, Loss, MinIsrChanged, Registration, Removed, Version
from jbod_model.loss.fate import Fate
from jbod_model.replay.registrations import Partition
from pipelines.ask.configs import ALL_BROKERS, MIN_ISR, TOPIC, ConfigChange, changes
from pipelines.ask.loss_sql import candidates, select_rests
from pipelines.ask.starting import Start, starts
from pipelines.lake.reader import Lake

_RECOVERY_STATES = {"RECOVERED": 0, "RECOVERING": 1}
_VERSION, _REMOVED = 1, 0

_uuid = cache(Uuid.parse)


class Followed(NamedTuple):
    """A partition and its fate up to the lake's offset."""

    topic_id: str
    topic: str
    partition: int
    shape: Fate
    """The fate of the first partition of this shape."""
    offsets: Mapping[int, int]
    """Maps offsets in ``shape`` to those of this partition. Offsets that it lacks are the same for both."""

    @property
    def losses(self) -> tuple[Loss, ...]:
        """Its losses, at its own offsets."""
        return tuple(self._loss(loss) for loss in self.shape.losses)

    @property
    def copies(self) -> dict[int, Copy]:
        """The copies of its replicas, by broker."""
        return {broker: self._copy(copy) for broker, copy in self.shape.copies.items()}

    def _loss(self, loss: Loss) -> Loss:
        return replace(
            loss,
            offset=self.offsets.get(loss.offset, loss.offset),
            copies=tuple(map(self._copy, loss.copies)),
            older=tuple(map(self._copy, loss.older)),
            went_on=self._at(loss.went_on),
            until=self._at(loss.until),
        )

    def _copy(self, copy: Copy) -> Copy:
        since = self.offsets.get(copy.since, copy.since)
        left = tuple(replace(place, report=self.offsets.get(place.report, place.report)) for place in copy.left)
        return replace(
            copy,
            since=since,
            away=self._at(copy.away),
            missed=self._at(copy.missed),
            left=left,
            overwritten=self._at(copy.overwritten),
        )

    def _at(self, offset: int | None) -> int | None:
        return None if offset is None else self.offsets.get(offset, offset)


def followed(lake: Lake, default_min_isr: int = 1, also: str = "") -> list[Followed]:
    """The fates of the partitions that can have lost data, and of those in ``also`` (SQL for topic_id and partition).

    ``default_min_isr``: min.insync.replicas if the log does not set it.
    """

    def read() -> list[Followed]:
        few = lake.keep("loss_candidates", lambda: candidates(lake))
        wanted = lake.query(f"SELECT * FROM {few}" + (f" UNION ({also})" if also else ""))
        known: dict[tuple[str, int], Followed] = lake.once(("fates", default_min_isr), dict)
        for partition in _follow(lake, default_min_isr, [row for row in wanted if row not in known]):
            known[partition.topic_id, partition.partition] = partition
        partitions = (known[row] for row in wanted if row in known)
        return sorted(partitions, key=attrgetter("topic", "partition", "topic_id"))

    return lake.once(("followed", default_min_isr, also), read)


def _follow(lake: Lake, default_min_isr: int, wanted: Sequence[tuple[str, int]]) -> list[Followed]:
    """The fates of the partitions ``wanted``, by topic id and number."""
    if not wanted:
        return []
    lake.make("loss_wanted", "topic_id VARCHAR, partition INT", wanted)
    lake.query(f"CREATE OR REPLACE TEMP TABLE loss_states AS {_states(lake)}")
    broker_events = _broker_events(lake)
    select_rests(lake, _other_directories(broker_events))
    partitions = []
    while True:
        doubted: list[dict[str, Any]] = []
        for shape, members in _fates(lake, broker_events, default_min_isr):
            if shape is None:
                doubted += members
                continue
            first = members[0]["offsets"]
            for member in members:
                offsets = dict(zip(first, member["offsets"], strict=True))
                partitions.append(Followed(member["topic_id"], member["topic"], member["partition"], shape, offsets))
        if not doubted:
            return partitions
        lake.query("DELETE FROM loss_rests")
        lake.make(
            "loss_wanted",
            "topic_id VARCHAR, partition INT",
            [(member["topic_id"], member["partition"]) for member in doubted],
        )


def _fates(
    lake: Lake, broker_events: Sequence[BrokerChanged], default_min_isr: int
) -> Iterator[tuple[Fate | None, list[dict[str, Any]]]]:
    """For each shape: its fate, and all its partitions with their offsets. None if they did not rest where loss_rests
    says so."""
    lake.query(f"CREATE OR REPLACE TEMP TABLE loss_versions AS {_VERSIONS}")
    lake.query(f"CREATE OR REPLACE TEMP TABLE loss_events AS {_EVENTS}", _superseded(lake))
    brokers = _with_starts(_in_appends(lake, broker_events), starts(lake))
    begun = dict(lake.query("SELECT topic, min(o) FROM loss_events GROUP BY topic"))
    min_isr = _min_isr(lake, begun, default_min_isr)
    events_of: dict[int, list[BrokerChanged]] = defaultdict(list)
    for event in brokers:
        events_of[event.broker_id].append(event)
    for topic, events, members in _shapes(lake, brokers, min_isr, begun):
        rests = {event["o"] for event in events if event["rests"]}
        yield _fate(_model_events(events, events_of, min_isr[topic]), rests, ID_TABLES[lake.published.ids]), members


def _fate(events: Iterable[Event], rests: Collection[int], ids: IdTable) -> Fate | None:
    """The fate after the events. None if it does not rest after a state whose offset is in ``rests``."""
    fate = Fate(ids=ids)
    for event in events:
        fate = fate.after(event)
        if isinstance(event, Version) and event.offset in rests and not fate.rests:
            return None
    return fate


# WHAT HAPPENED


def _broker_events(lake: Lake) -> list[BrokerChanged]:
    """The parts of registrations that matter to copies, in log order."""
    rows = lake.query(
        f"""
        WITH said AS (
            SELECT *, {{'is': incarnation_id, 'has': log_dirs, 'fenced': fenced}} AS now FROM {lake.until("brokers")}
        ),
        b AS (
            SELECT *, lag(now) OVER w AS was, lag(to_offset) OVER w = from_offset AS follows,
                   lag(NOT (fenced AND in_controlled_shutdown)) OVER w AS was_running,
                   lead(from_offset) OVER w AS next_offset
            FROM said WINDOW w AS (PARTITION BY broker_id ORDER BY from_offset)
        )
        SELECT from_offset AS o, broker_id, coalesce(
                   NOT from_snapshot AND was_running AND was['is'] <> incarnation_id, false
               ) AS unclean, log_dirs, incarnation_id, fenced
        FROM b WHERE NOT coalesce(follows, false) OR was IS DISTINCT FROM now
        UNION ALL
        SELECT to_offset, broker_id, false, NULL, NULL, NULL
        FROM b WHERE to_offset IS NOT NULL AND next_offset IS DISTINCT FROM to_offset
        ORDER BY o, broker_id
        """
    )
    return [
        BrokerChanged(offset=offset, broker_id=broker, registration=_registration(*registered), unclean=unclean)
        for offset, broker, unclean, *registered in rows
    ]


def _in_appends(lake: Lake, events: Sequence[BrokerChanged]) -> list[BrokerChanged]:
    """The events, those that can be of an append that elected a leader with its first offset (R-LOSS-10)."""
    rows = lake.query(
        f"""
        WITH b AS (
            SELECT from_offset AS o, from_time AS time FROM {lake.until("brokers")}
            UNION SELECT to_offset, to_time FROM {lake.until("brokers")}
        )
        SELECT o FROM b SEMI JOIN loss_versions v ON v.from_time = time AND v.from_offset < o AND v.leader >= 0
        """
    )
    first = lake.batches(sorted(offset for (offset,) in rows)) if rows else {}
    return [replace(event, first=first.get(event.offset)) for event in events]


def _with_starts(events: Sequence[BrokerChanged], begun: Sequence[Start]) -> list[BrokerChanged]:
    """The events, and from each start on that a process of the broker has not registered yet (R-COPY-12)."""
    since = {(start.broker_id, _uuid(start.incarnation_id)): start.offset for start in begun}
    timeline: list[BrokerChanged] = []
    known: dict[int, Registration | None] = {}
    waiting = sorted(begun, key=lambda start: start.offset)
    for event in [*events, None]:
        while waiting and (
            event is None or (waiting[0].offset, waiting[0].broker_id) < (event.offset, event.broker_id)
        ):
            start = waiting.pop(0)
            now = known.get(start.broker_id)
            if now is not None and not now.starting and now.incarnation == _uuid(start.incarnation_id):
                known[start.broker_id] = now = replace(now, starting=True)
                timeline.append(BrokerChanged(offset=start.offset, broker_id=start.broker_id, registration=now))
        if event is None:
            break
        now = event.registration
        if now is not None and since.get((event.broker_id, now.incarnation), event.offset + 1) <= event.offset:
            event = replace(event, registration=replace(now, starting=True))
        known[event.broker_id] = event.registration
        timeline.append(event)
    return timeline


def _registration(directories: Sequence[str] | None, incarnation: str, fenced: bool) -> Registration | None:
    if directories is None:
        return None
    return Registration(directories=frozenset(map(_uuid, directories)), incarnation=_uuid(incarnation), fenced=fenced)


def _min_isr(lake: Lake, topics: Collection[str], default: int) -> dict[str, list[tuple[int, int]]]:
    """For each topic (offset, min.insync.replicas from it on), ascending. The first entry is the initial value."""
    every: list[ConfigChange] = []
    own: dict[str, list[ConfigChange]] = {topic: [] for topic in topics}
    for change in changes(lake, MIN_ISR):
        if change.scope is None or change.scope == ALL_BROKERS:
            every.append(change)
        elif change.scope[0] == TOPIC and change.scope[1] in own:
            own[change.scope[1]].append(change)
    steps_of = {}
    for topic in topics:
        values: dict[tuple[int, str], int] = {}
        steps = {-1: default}
        for offset, scope, value in sorted([*every, *own[topic]], key=attrgetter("offset")):
            if scope is None:
                values.clear()
            elif value is None:
                values.pop(scope, None)
            else:
                values[scope] = int(value)
            steps[offset] = values.get((TOPIC, topic), values.get(ALL_BROKERS, default))
        steps_of[topic] = [
            step for step, before in zip(steps.items(), [None, *steps.values()], strict=False) if step[1] != before
        ]
    return steps_of


def _other_directories(events: Sequence[BrokerChanged]) -> list[tuple[int, int]]:
    """(broker, offset) at which a broker lists other directories than before."""
    known: dict[int, frozenset[Uuid] | None] = {}
    changed = []
    for event in events:
        listed = None if event.registration is None else event.registration.directories
        if known.get(event.broker_id) != listed:
            changed.append((event.broker_id, event.offset))
        known[event.broker_id] = listed
    return changed


def _states(lake: Lake) -> str:
    """SQL: the states of the partitions in question.

    A row with more or fewer directories than replicas is damage, which B-11 reports.
    """
    return f"""
        SELECT topic_id, topic, partition, replicas, isr, elr, last_known_elr, adding, removing, leader,
               leader_recovery, directories, may_follow_loss, from_offset, from_time, to_offset, from_snapshot
        FROM {lake.scan("partitions")} SEMI JOIN loss_wanted USING (topic_id, partition)
        WHERE topic_id IN (SELECT topic_id FROM loss_wanted) AND len(directories) = len(replicas)
    """


_VERSIONS = """
    SELECT s.*, begins IS NOT NULL AS rests,
           lead(from_offset) OVER w AS next_offset, lead(from_time) OVER w AS next_time
    FROM loss_states s SEMI JOIN loss_wanted USING (topic_id, partition)
    LEFT JOIN loss_rests r ON r.topic_id = s.topic_id AND r.partition = s.partition
         AND from_offset >= begins AND from_offset < ends
    WHERE begins IS NULL OR from_offset = begins
    WINDOW w AS (PARTITION BY s.topic_id, s.partition ORDER BY from_offset)
"""
"""SQL: the states to follow. Where a partition rests, this is the first one only."""


def _superseded(lake: Lake) -> tuple[list[int], list[int]]:
    """The offsets of states that a later record of the same append replaces, and of that record (R-LOSS-10)."""
    rows = lake.query(
        """
        SELECT DISTINCT from_offset, next_offset FROM loss_versions
        WHERE next_time = from_time AND NOT from_snapshot
        """
    )
    pairs = lake.of_one_append(rows)
    return [offset for offset, _ in pairs], [following for _, following in pairs]


_EVENTS = f"""
    WITH superseded AS (SELECT unnest($1::BIGINT[]) AS from_offset, unnest($2::BIGINT[]) AS next_offset)
    SELECT topic_id, topic, partition, from_offset AS o, {_VERSION} AS what,
           {{'replicas': replicas, 'directories': directories, 'isr': isr, 'elr': elr, 'last_known_elr': last_known_elr,
             'adding': adding, 'removing': removing,
             'leader': leader, 'leader_recovery': leader_recovery, 'in_snapshot': from_snapshot,
             'superseded': superseded.next_offset IS NOT NULL}} AS said, rests
    FROM loss_versions LEFT JOIN superseded USING (from_offset, next_offset)
    UNION ALL
    SELECT topic_id, topic, partition, to_offset, {_REMOVED}, NULL, false
    FROM loss_versions WHERE to_offset IS NOT NULL AND next_offset IS DISTINCT FROM to_offset AND NOT rests
"""
"""SQL: the states of the partitions in question, and their ends; its parameters are those that are superseded."""


# SHAPES


def _shapes(
    lake: Lake,
    brokers: Sequence[BrokerChanged],
    min_isr: Mapping[str, Sequence[tuple[int, int]]],
    begun: Mapping[str, int],
) -> Iterator[tuple[str, list[dict[str, Any]], list[dict[str, Any]]]]:
    """For each shape: a topic, the events of its first partition in order, and all its partitions with their offsets.

    Two partitions have the same shape if they have the same events, in the same order relative to registrations and
    changes of min.insync.replicas. ``begun``: the offset of a topic's first event.
    """
    changing = {topic: steps for topic, steps in min_isr.items() if steps[-1][0] > begun[topic]}
    marks = {offset for event in brokers for offset in (event.offset, event.first) if offset is not None}
    marks |= {offset for steps in changing.values() for offset, _ in steps}
    settings = {topic: topic if topic in changing else str(steps[-1][1]) for topic, steps in min_isr.items()}
    rows = lake.query(
        """
        WITH marks AS (SELECT unnest($1::BIGINT[]) AS mark),
        settings AS (SELECT unnest($2::VARCHAR[]) AS topic, unnest($3::VARCHAR[]) AS setting),
        placed AS (
            SELECT e.*, mark, mark = o AS at_mark, len(said.replicas) AS size
            FROM loss_events e ASOF LEFT JOIN marks ON e.o >= marks.mark
        ),
        stories AS (
            SELECT topic_id, topic, partition, list(o ORDER BY o, what) AS offsets,
                   list({'mark': mark, 'at_mark': at_mark, 'what': what, 'said': said, 'rests': rests}
                        ORDER BY o, what) AS story
            FROM placed GROUP BY topic_id, topic, partition
        )
        SELECT min(topic), story,
               list({'topic_id': topic_id, 'topic': topic, 'partition': partition, 'offsets': offsets}
                    ORDER BY topic_id, partition)
        FROM stories JOIN settings USING (topic) GROUP BY setting, story
        """,
        [sorted(marks), list(settings), list(settings.values())],
    )
    for topic, story, members in rows:
        events = [event | {"o": offset} for event, offset in zip(story, members[0]["offsets"], strict=True)]
        yield topic, events, members


def _model_events(
    events: Sequence[Mapping[str, Any]],
    brokers: Mapping[int, Sequence[BrokerChanged]],
    min_isr: Sequence[tuple[int, int]],
) -> list[Event]:
    """The model's events of one partition, in order. At the same offset, brokers come first and the partition last.

    ``brokers``: the events of each broker.
    """
    replicas = {broker for event in events if event["said"] for broker in event["said"]["replicas"]}
    rests = [(event["o"], following["o"]) for event, following in pairwise(events) if event["rests"]]
    timeline: list[tuple[int, int, Event]] = [
        (event.offset, 0, event)
        for broker in sorted(replicas)
        for event in _last_within(brokers.get(broker, ()), [(-1, events[0]["o"]), *rests])
    ]
    timeline += [(offset, 1, MinIsrChanged(offset=offset, value=value)) for offset, value in min_isr]
    for event in events:
        if event["what"] == _VERSION:
            timeline.append((event["o"], 3, _version(event["o"], event["said"])))
        else:
            timeline.append((event["o"], 2, Removed(offset=event["o"])))
    return [event for *_, event in sorted(timeline, key=lambda place: place[:2])]


def _last_within(events: Sequence[BrokerChanged], spans: Sequence[tuple[int, int]]) -> list[BrokerChanged]:
    """The events of a broker; of those within a span of offsets, the last one only."""
    kept: list[BrokerChanged] = []
    at = 0
    for begins, ends in spans:
        first, last = (bisect_left(events, offset, key=attrgetter("offset")) for offset in (begins, ends))
        kept += events[at:first]
        at = max(first, last - 1)
    return [*kept, *events[at:]]


def _version(offset: int, row: Mapping[str, Any]) -> Version:
    return Version(offset=offset, state=partition_of(row), in_snapshot=row["in_snapshot"], superseded=row["superseded"])


def partition_of(row: Mapping[str, Any]) -> Partition:
    """The model's state of a partition, from columns of the table partitions; -1 for epochs that are not among them."""
    return Partition(
        replicas=tuple(row["replicas"]),
        directories=tuple(map(_uuid, row["directories"])),
        isr=tuple(row["isr"]),
        eligible_leader_replicas=tuple(row["elr"]),
        last_known_elr=tuple(row["last_known_elr"]),
        adding_replicas=tuple(row["adding"]),
        removing_replicas=tuple(row["removing"]),
        leader=row["leader"],
        leader_recovery_state=_RECOVERY_STATES[row["leader_recovery"]],
        leader_epoch=row.get("leader_epoch", -1),
        partition_epoch=row.get("partition_epoch", -1),
    )
