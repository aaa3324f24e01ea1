"""Partitions whose data is lost, unreachable, incomplete, or only on offline disks; the disks to look at; advice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple

from jbod_model.loss.copies import Copy, Loss
from jbod_model.loss.fate import Fate, is_online, last_copies, may_be_online
from pipelines.ask.advice import Advice, steps_in_words
from pipelines.ask.advice_last_copies import LastCopy, Places, about_crash
from pipelines.ask.configs import tiered_topics
from pipelines.ask.json_values import jsonable
from pipelines.ask.last_copies import LastCopies, last_copies_of
from pipelines.ask.loss import Followed, followed
from pipelines.lake.reader import Lake

LOST, MAY_LACK, UNREACHABLE = "lost", "may lack writes", "unreachable"


class DataLoss(NamedTuple):
    """Acknowledged writes of a partition that are lost, may be lost, or cannot be reached."""

    topic: str
    topic_id: str
    partition: int
    kind: str
    """lost, may lack writes, or unreachable: the last complete copy lies on a broker that is not registered."""
    offset: int
    """Offset of the record that gave up the last complete copy, that elected a leader without one, or that made lost
    data of unreachable data."""
    time: datetime
    copies: Sequence[LastCopy]
    """The last copies that held every acknowledged write."""
    leader: int | None
    """The leader without the data, None if there was none."""
    went_on_offset: int | None
    """Offset of the record that elected this leader. After it the data does not return by itself."""
    until_offset: int | None
    """Offset of the record that brought the data back, or removed the topic. None while the loss lasts."""
    tiered: bool
    """The topic keeps the older part of its log in remote storage. Only the part not uploaded yet is at stake."""
    accepted: bool
    """Whether an operator accepted the loss (check.losses_accepted_until)."""
    leader_now: int | None = None
    """The leader at the lake's offset, None if there is none."""
    followed_by: int | None = None
    """Offset of the partition's next loss, None if this is its newest."""
    followed_by_kind: str | None = None
    """The kind of that loss."""
    older: Sequence[LastCopy] = ()
    """Of lost data: the copies that lacked newer writes by then, without the leader's."""

    @property
    def name(self) -> str:
        """``topic-0``"""
        return f"{self.topic}-{self.partition}"

    @property
    def finding(self) -> str:
        """What happened."""
        where = " and ".join(copy.where for copy in self.copies)
        what = "the local part of the log that was not uploaded yet" if self.tiered else "the data"
        hows = {copy.given_up for copy in self.copies}
        if self.kind == UNREACHABLE:
            away = [copy for copy in self.copies if copy.given_up == "unregistered"]
            holds = "holds the last complete copy" if len(away) == 1 else "hold the last complete copies"
            brokers = list(dict.fromkeys(copy.broker for copy in away))
            were = f"{' and '.join(brokers)} {'was' if len(brokers) == 1 else 'were'}"
            where = " and ".join(copy.where for copy in away)
            return f"{what} is unreachable, not lost: {where} {holds}, and {were} unregistered"
        if self.kind == LOST:
            how = " and ".join(sorted(_HOW[given_up] for given_up in hows))
            return f"{what} is lost: the last complete copy was in {where}, and {how}"
        now = "" if self.leader_now == self.leader else f"; {_leads(self.leader_now)} now"
        if self.followed_by is not None:
            now = f"; {_MORE[self.followed_by_kind or LOST]} offset {self.followed_by}"
        if own := self._crashed:
            others = " and ".join(copy.where for copy in self.copies if copy != own)
            return (
                f"{own.broker} {'led' if now else 'leads'} after an unclean shutdown: what it had not flushed from "
                f"{own.where} may be missing, and "
                f"{f'may have been in {others}' if others else 'no other copy was complete'}{now}"
            )
        leads = f"{'led' if now else 'leads'}, and they may be"
        how = leads if self._own else "was elected without them; they were"
        return f"{what} may lack writes: broker {self.leader} {how} in {where}{now}"

    @property
    def is_of_a_crash(self) -> bool:
        """Whether nothing may be missing but what the leader itself had not flushed."""
        return self.kind == MAY_LACK and self._crashed is not None

    @property
    def steps(self) -> list[Advice]:
        """What to do now, in order."""
        crashed, went_on, now = self._crashed, self.went_on_offset is not None, self.leader_now
        copies = [copy for copy in self.copies if crashed is None or not (copy == crashed or copy.follows)]
        steps = [copy.step(self.name, went_on, copies == [copy], now, leads=copy == self._own) for copy in copies]
        steps += [copy.step_of_older() for copy in self.older if not copy.follows]
        return list(dict.fromkeys(steps)) or [about_crash(now is not None and self.followed_by is None)]

    @property
    def advice(self) -> str:
        """What to do now, as one line."""
        return steps_in_words(self.steps)

    @property
    def kept(self) -> list[LastCopy]:
        """The copies that may still hold writes which the partition goes on without. None of a loss that is
        accepted."""
        gone_on = self.went_on_offset is not None and not self.accepted
        return [
            copy
            for copy in ((*self.copies, *self.older) if gone_on else ())
            if copy.given_up in (None, "unregistered") and copy.overwritten_offset is None
            if copy.place != "online" and copy.broker_id != self.leader
        ]

    def held_in(self, broker_id: int, directory_id: str | None) -> list[LastCopy]:
        """The copies that were in a directory, or may have been."""

        def may_lie_there(copy: LastCopy) -> bool:
            anywhere = copy.given_up == "removed" and not copy.directories and copy.broker_id == broker_id
            return anywhere or directory_id in copy.directories

        return [*filter(may_lie_there, (*self.copies, *self.older))]

    def holds_more(self, broker_id: int, directory_id: str | None) -> bool:
        """Whether the copy in a directory may hold writes that the partition lacks."""
        return any(copy in self.holding for copy in self.held_in(broker_id, directory_id))

    @property
    def holding(self) -> list[LastCopy]:
        """The copies that may: a leader's own copy, and one that was truncated to it, holds none."""
        every = (*self.copies, *self.older)
        return [copy for copy in every if copy.overwritten_offset is None and copy != self._crashed]

    @property
    def _crashed(self) -> LastCopy | None:
        """The leader's own copy, if it was one of the last, and may lack writes that were not flushed."""
        return None if self._own is None or self._own.may_be_away else self._own

    @property
    def _own(self) -> LastCopy | None:
        return next((copy for copy in self.copies if copy.broker_id == self.leader and copy.given_up is None), None)

    def as_json(self) -> dict[str, Any]:
        """One JSON object."""
        fields: dict[str, Any] = jsonable(self)
        return {**fields, "finding": self.finding, "advice": self.advice}


_HOW = {
    "recreated": "its replica was recreated empty in another directory",
    "removed": "its replica was removed before another one was complete",
    "lost": "the directory failed (LOST)",
    "unregistered": "its broker was unregistered",
    None: "another replica leads without it",
}
_MORE = {LOST: "more was lost at", MAY_LACK: "more may be missing since", UNREACHABLE: "unreachable since"}


def _leads(leader: int | None) -> str:
    return "no replica leads" if leader is None else f"broker {leader} leads"


class AtRisk(NamedTuple):
    """A partition whose complete copies are offline, or cannot be elected. Nothing is lost while their disks live."""

    topic: str
    topic_id: str
    partition: int
    copies: Sequence[LastCopy]
    tiered: bool = False
    """Whether only the local part is at stake, which was not copied to remote storage yet."""
    certain: bool = True
    """Whether each of ``copies`` is complete. If not, one of them is: a start that is under way decides which."""

    @property
    def name(self) -> str:
        """``topic-0``"""
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True)
class Losses:
    """The answer."""

    losses: Sequence[DataLoss]
    """The losses at the lake's offset, by topic and number."""
    at_risk: Sequence[AtRisk]
    last_copies: LastCopies
    """What actions on brokers and disks give up."""
    perhaps: Sequence[AtRisk] = ()
    """Partitions that may have no complete copy online: no record has placed it, and a directory of its broker is not
    online (R-ACT-1)."""
    ever: Sequence[DataLoss] = ()
    """Every loss up to the lake's offset, including those that ended, by topic and number."""

    def only(self, keeps: Callable[[Any], bool]) -> Losses:
        """The losses whose partition, and one of whose copies, pass the test ``keeps``."""

        def kept(loss: DataLoss | AtRisk) -> bool:
            return keeps(loss) and any(map(keeps, loss.copies))

        losses, at_risk, perhaps = (
            [*filter(kept, partitions)] for partitions in (self.losses, self.at_risk, self.perhaps)
        )
        return replace(self, losses=losses, at_risk=at_risk, perhaps=perhaps)

    def chosen(self, kind: str) -> list[DataLoss]:
        """The losses of a kind that are not accepted."""
        return [loss for loss in self.losses if loss.kind == kind and not loss.accepted]

    def count(self, kind: str) -> int:
        """Number of partitions with a loss of this kind that is not accepted."""
        return _count(self.losses)[kind]

    @property
    def accepted(self) -> int:
        """Number of losses that an operator accepted."""
        return sum(loss.accepted for loss in self.losses)

    @property
    def groups(self) -> list[list[DataLoss]]:
        """The losses that are not accepted, by cause and advice: by kind, a crash last, then by partitions."""
        losses_by_cause: dict[tuple[str, str], dict[str, DataLoss]] = {}
        order = (LOST, UNREACHABLE, MAY_LACK)
        for loss in sorted((loss for kind in order for loss in self.chosen(kind)), key=attrgetter("offset")):
            # A partition can have the same loss twice: the group names it once.
            losses_by_cause.setdefault((loss.finding, loss.advice), {}).setdefault(loss.name, loss)
        groups = [list(group.values()) for group in losses_by_cause.values()]

        def place(group: Sequence[DataLoss]) -> tuple[int, bool, int, int]:
            # The crash of a process alone loses nothing, so it comes after what is missing.
            crash = group[0]._crashed is not None and not group[0].kept
            return order.index(group[0].kind), crash, -len(group), group[0].offset

        return sorted(groups, key=place)

    @property
    def held(self) -> list[tuple[tuple[LastCopy, ...], list[AtRisk]]]:
        """The offline places of the only complete copies, most partitions first."""
        return _by_copies(self.at_risk)

    @property
    def perhaps_held(self) -> list[tuple[tuple[LastCopy, ...], list[AtRisk]]]:
        """The places in which the only complete copies may be, most partitions first."""
        return _by_copies(self.perhaps)

    def as_json(self) -> dict[str, Any]:
        """One JSON object."""
        return {
            "losses": [loss.as_json() for loss in self.losses],
            "at_risk": jsonable(list(self.at_risk)),
            "perhaps_at_risk": jsonable(list(self.perhaps)),
        }


def _by_copies(partitions: Sequence[AtRisk]) -> list[tuple[tuple[LastCopy, ...], list[AtRisk]]]:
    partitions_of: dict[tuple[LastCopy, ...], list[AtRisk]] = {}
    for partition in partitions:
        partitions_of.setdefault(tuple(partition.copies), []).append(partition)
    return sorted(partitions_of.items(), key=lambda item: -len(item[1]))


def losses(lake: Lake, default_min_isr: int = 1, accepted_until: int = -1) -> Losses:
    """Data that is lost or at risk at the lake's offset. Losses up to the offset ``accepted_until`` are accepted."""
    partitions = followed(lake, default_min_isr, also=_without_online_leader(lake))
    if not partitions:
        return Losses((), (), LastCopies(lake))
    every = _data_losses(lake, partitions, accepted_until)
    lasting = _in_order([loss for loss in every if loss.until_offset is None])
    last = last_copies_of(lake, partitions, truncated(lasting))
    places = places_of(lake)
    return Losses(lasting, _at_risk(lake, partitions, places), last, _perhaps(partitions, places), every)


def count_lost(lake: Lake, default_min_isr: int = 1, accepted_until: int = -1) -> Counter[str]:
    """Number of partitions with a loss of each kind that lasts at the lake's offset and is not accepted.

    For this, partitions that can have lost nothing are not followed, as they are for ``losses``.
    """
    data_losses = _data_losses(lake, followed(lake, default_min_isr), accepted_until)
    return _count(loss for loss in data_losses if loss.until_offset is None)


def _count(losses: Iterable[DataLoss]) -> Counter[str]:
    """Number of partitions with a loss of each kind that is not accepted."""
    return Counter(
        kind for *_, kind in {(loss.topic_id, loss.partition, loss.kind) for loss in losses if not loss.accepted}
    )


def every_loss(lake: Lake, default_min_isr: int = 1) -> list[DataLoss]:
    """Every loss up to the lake's offset, including those that ended, by topic and number."""
    return _data_losses(lake, followed(lake, default_min_isr), -1)


def complete_copies(
    lake: Lake, partitions: Iterable[tuple[str, int]], default_min_isr: int = 1
) -> dict[tuple[str, int], dict[int, Copy]]:
    """The complete copies, by broker, of partitions (topic id, number) at the lake's offset, and of all others whose
    lists may name a copy that is not complete."""
    values = ", ".join(f"('{topic_id}', {number})" for topic_id, number in partitions)
    also = f"SELECT * FROM (VALUES {values}) v(topic_id, partition)" if values else ""
    return {
        (partition.topic_id, partition.partition): {
            broker: copy for broker, copy in partition.copies.items() if copy.usable
        }
        for partition in followed(lake, default_min_isr, also)
    }


def perhaps_offline(lake: Lake, default_min_isr: int = 1) -> dict[tuple[str, int], set[int]]:
    """The brokers, by partition (topic id, number), of replicas that no record has placed, that count as online, and
    that may lie in a directory which is not (R-ACT-1)."""
    return {partition: {*places} for partition, places in perhaps_in(lake, default_min_isr).items()}


def perhaps_in(lake: Lake, default_min_isr: int = 1) -> dict[tuple[str, int], dict[int, set[str]]]:
    """As ``perhaps_offline``: of each broker the directories that are not online, and in which its replica may lie."""
    unplaced = f"""
        SELECT DISTINCT topic_id, partition FROM {lake.at("assignments")} WHERE kind IN ('unassigned', 'migrating')
        AND broker_id IN (
            SELECT broker_id FROM {lake.until("directories")}
            GROUP BY broker_id, directory_id HAVING bool_and(to_offset IS NOT NULL)
        )
    """
    if not lake.query(f"{unplaced} LIMIT 1"):
        return {}
    places_of = {
        (partition.topic_id, partition.partition): {
            broker: _away(partition.shape, copy)
            for broker, copy in partition.copies.items()
            if copy.directory is None and _in_doubt(partition.shape, copy)
        }
        for partition in followed(lake, default_min_isr, unplaced)
    }
    return {partition: places for partition, places in places_of.items() if places}


def _away(fate: Fate, copy: Copy) -> set[str]:
    """The places of a copy that its broker does not list."""
    broker = fate.brokers[copy.broker_id]
    return {str(at) for at in copy.places.union(*(left.directories for left in copy.left)) if not broker.lists(at)}


def _in_doubt(fate: Fate, copy: Copy) -> bool:
    """Whether a broker may serve the copy, and no record says that it does (R-ACT-1)."""
    return may_be_online(fate, copy) and not is_online(fate, copy)


def _without_online_leader(lake: Lake) -> str:
    """SQL: partitions that may have no complete copy online.

    A leader that no record has placed may have its log in a directory that failed.
    """
    return f"""
        SELECT topic_id, partition FROM {lake.at("partitions")} WHERE leader = -1
        UNION SELECT p.topic_id, p.partition FROM {lake.at("partitions")} p
        SEMI JOIN {lake.at("offline_replicas")} o ON o.topic_id = p.topic_id AND o.partition = p.partition
             AND p.leader = o.broker_id
        UNION SELECT p.topic_id, p.partition FROM {lake.at("partitions")} p
        JOIN {lake.at("assignments")} a ON a.topic_id = p.topic_id AND a.partition = p.partition
             AND p.leader = a.broker_id
        WHERE a.kind <> 'assigned'
          AND a.broker_id IN (SELECT broker_id FROM {lake.until("directories")} WHERE to_offset IS NOT NULL)
    """


def _in_order(losses: Sequence[DataLoss]) -> list[DataLoss]:
    """The losses, each with the offset of its partition's next one."""
    following: dict[tuple[str, int], DataLoss] = {}
    answer = []
    for loss in sorted(losses, key=attrgetter("offset"), reverse=True):
        key = loss.topic_id, loss.partition
        if (newer := following.get(key)) is not None:
            answer.append(loss._replace(followed_by=newer.offset, followed_by_kind=newer.kind))
        else:
            answer.append(loss)
        following[key] = loss
    return sorted(answer, key=lambda loss: (loss.topic, loss.partition, loss.topic_id, loss.offset))


def truncated(losses: Sequence[DataLoss], gone: Collection[str] = ()) -> dict[int, list[str]]:
    """By broker: the partitions that go on without writes which a copy of the broker may still hold.

    Its start truncates that copy to the leader's (R-LOSS-11), unless its directory is ``gone`` from log.dirs.
    """
    partitions_of: dict[int, dict[str, None]] = {}
    for loss in losses:
        for copy in loss.kept:
            if copy.directories and {*copy.directories} <= {*gone}:
                continue
            partitions_of.setdefault(copy.broker_id, {})[loss.name] = None
    return {broker: list(names) for broker, names in partitions_of.items()}


def _data_losses(lake: Lake, partitions: Sequence[Followed], accepted_until: int) -> list[DataLoss]:
    hit = [(partition, loss) for partition in partitions for loss in partition.losses]
    if not hit:
        return []
    places, tiered = places_of(lake), tiered_topics(lake)
    times = lake.times(sorted({loss.offset for _, loss in hit}))
    return [_data_loss(partition, loss, times[loss.offset], places, tiered, accepted_until) for partition, loss in hit]


def _data_loss(
    partition: Followed, loss: Loss, time: datetime, places: Places, tiered: frozenset[str], accepted_until: int
) -> DataLoss:
    state = partition.shape.state

    def by_now(copies: Sequence[Copy]) -> tuple[LastCopy, ...]:
        return tuple(places.copy(_by_now(copy, partition.copies.get(copy.broker_id), loss)) for copy in copies)

    return DataLoss(
        topic=partition.topic,
        topic_id=partition.topic_id,
        partition=partition.partition,
        kind=loss.kind,
        offset=loss.offset,
        time=time,
        copies=by_now(loss.copies),
        older=by_now([copy for copy in loss.older if copy.broker_id != loss.leader]),
        leader=loss.leader,
        went_on_offset=loss.went_on,
        until_offset=loss.until,
        tiered=partition.topic in tiered,
        accepted=loss.kind != UNREACHABLE and loss.offset <= accepted_until,
        leader_now=None if state is None or state.leader < 0 else state.leader,
    )


def _by_now(copy: Copy, present: Copy | None, loss: Loss) -> Copy:
    """The copy of a loss; given up if another replica leads and its own was removed, or recreated elsewhere since
    (R-ACT-7)."""
    kept = copy.given_up is None and copy.overwritten is None and copy.broker_id != loss.leader
    if kept and present is None:  # its folder is a stray: Kafka deletes it, and truncates nothing
        return replace(copy, given_up="removed")
    if not kept or present is None or present.since == copy.since:
        return copy
    return copy.give_up("recreated", present.since)


def places_of(lake: Lake) -> Places:
    """The directories and brokers at the lake's offset."""
    online = lake.query(
        f"SELECT d.broker_id, d.directory_id FROM {lake.at('directories')} d "
        f"JOIN {lake.at('brokers')} b ON b.broker_id = d.broker_id AND NOT b.fenced"
    )
    registered = lake.query(f"SELECT broker_id FROM {lake.at('brokers')}")
    return Places(frozenset(online), frozenset(broker for (broker,) in registered))


def _at_risk(lake: Lake, partitions: Sequence[Followed], places: Places) -> list[AtRisk]:
    at_risk = []
    tiered: frozenset[str] | None = None
    for partition in partitions:
        last = {copy.broker_id: copy for copy in last_copies(partition.shape) if copy.given_up is None}
        if any(not may_be_online(partition.shape, copy) for copy in last.values()):
            tiered = tiered_topics(lake) if tiered is None else tiered
            here = [copy for broker, copy in sorted(partition.copies.items()) if broker in last]
            before = [
                replace(copy, directory=directory)
                for copy in here
                for left in copy.left
                for directory in sorted(left.directories)
            ]
            copies = tuple(places.copy(copy) for copy in (*here, *before))
            at_risk.append(
                AtRisk(
                    partition.topic,
                    partition.topic_id,
                    partition.partition,
                    copies,
                    partition.topic in tiered,
                    not before,
                )
            )
    return at_risk


def _perhaps(partitions: Sequence[Followed], places: Places) -> list[AtRisk]:
    perhaps = []
    for partition in partitions:
        shape = partition.shape
        copies = [copy for copy in last_copies(shape) if copy.given_up is None]
        if not copies and not (shape.losses and shape.losses[-1].until is None):
            copies = [copy for copy in shape.complete if is_online(shape, copy)]
        if copies and all(copy.perhaps_recreated or _in_doubt(shape, copy) for copy in copies):
            kept = tuple(map(places.copy, copies))
            perhaps.append(AtRisk(partition.topic, partition.topic_id, partition.partition, kept, certain=False))
    return perhaps
