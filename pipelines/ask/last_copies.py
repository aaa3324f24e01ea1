"""The last complete copies that are offline at a lake's offset, and the steps that keep them.

``jbod_model.loss.fate`` says what an action gives up. Partitions of the same shape are asked about once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import get_args

from jbod_model.ids import Uuid
from jbod_model.loss.copies import Copy, Level
from jbod_model.loss.fate import Fate, OperatorAction, given_up_by, is_online, last_copies
from pipelines.ask.advice import Action, Advice, start_or_reassign
from pipelines.ask.advice_last_copies import (
    ElectedInstead,
    UncleanElection,
    bring_back,
    do_not_replace,
    elect,
    forbid_unclean,
    read_first,
    save_before_start,
    save_from,
    start,
    start_with_disks,
    take_out,
    wait_and_keep,
    wait_until_in_sync,
)
from pipelines.ask.configs import ConfigValues, is_true, unclean_elections
from pipelines.ask.loss import Followed
from pipelines.ask.loss_sql import left_elsewhere
from pipelines.lake.reader import Lake

Member = tuple[str, int]
"""A partition: topic and number."""
Shape = tuple[Fate, Sequence[Member]]
"""A fate with its partitions."""


@dataclass(frozen=True)
class LastCopies:
    """The partitions without a complete copy in use, and what actions on brokers and directories give up."""

    lake: Lake
    shapes: Sequence[Shape] = ()
    """Each fate with its partitions."""
    eligible: Mapping[int, Mapping[int, Sequence[str]]] = field(default_factory=dict)
    """Leader -> replica that is eligible and online, but lacks writes -> partitions that elect it if the leader stops
    (R-QUIRK-3)."""
    truncated: Mapping[int, Sequence[str]] = field(default_factory=dict)
    """Partitions that go on without writes which a copy of the broker still holds: its start truncates the copy."""

    def given_up(self, deed: OperatorAction) -> list[str]:
        """The partitions whose last copies an action gives up, by name."""
        shapes = self.shapes if deed.broker_id is None else self._on(deed.broker_id)
        return sorted(name for fate, members in shapes if given_up_by(deed, fate) for name in map(_name, members))

    def _on(self, broker: int) -> Sequence[Shape]:
        """The shapes with a copy on a broker. If all brokers are down, each is asked about, and every partition has a
        shape."""
        return self._by_broker.get(broker, ())

    @cached_property
    def _by_broker(self) -> Mapping[int, Sequence[Shape]]:
        shapes_of: dict[int, list[Shape]] = {}
        for fate, members in self.shapes:
            for broker in _brokers(fate):
                shapes_of.setdefault(broker, []).append((fate, members))
        return shapes_of

    @cached_property
    def _without_leader(self) -> Sequence[Shape]:
        """The shapes without a leader, of which one copy is online."""
        return [
            (fate, members)
            for fate, members in self.shapes
            if fate.state is not None and fate.state.leader < 0
            if any(is_online(fate, copy) for copy in fate.copies.values())
        ]

    @cached_property
    def away(self) -> Mapping[int, Mapping[str, Sequence[str]]]:
        """Broker -> directory that it does not list -> partitions with a last copy there; "" if no record names it."""
        directories_of: dict[int, dict[str, list[str]]] = {}
        for fate, members in self.shapes:
            for copy in last_copies(fate):
                broker = fate.brokers.get(copy.broker_id)
                for directory in _places(copy):
                    listed = broker is not None and directory is not None and broker.lists(directory)
                    if not listed and not (directory is None and broker is not None and broker.fenced):
                        held = directories_of.setdefault(copy.broker_id, {})
                        held.setdefault("" if directory is None else str(directory), []).extend(map(_name, members))
        return directories_of

    @cached_property
    def down(self) -> Mapping[int, Sequence[str]]:
        """Broker -> partitions whose last copy is in a directory that the broker lists, but the broker is fenced."""
        partitions_of: dict[int, list[str]] = {}
        for fate, members in self.shapes:
            for copy in last_copies(fate):
                broker = fate.brokers.get(copy.broker_id)
                if broker is not None and broker.fenced and _listed(fate, copy):
                    partitions_of.setdefault(copy.broker_id, []).extend(map(_name, members))
        return partitions_of

    @cached_property
    def shared(self) -> Collection[str]:
        """The partitions with several last copies."""
        several = (members for fate, members in self.shapes if len(last_copies(fate)) > 1)
        return frozenset(_name(member) for members in several for member in members)

    def moved_here(self, broker: int, directories: Collection[str]) -> Mapping[int, Sequence[Member]]:
        """Other broker -> the partitions whose last copies are all in ``directories``: its disk was moved to
        ``broker``."""
        members_of: dict[int, list[Member]] = {}
        for fate, members in self.shapes:
            last = last_copies(fate)
            places = [{*map(str, copy.where)} for copy in last if copy.broker_id != broker]
            if places and len(places) == len(last) and all(place and place <= {*directories} for place in places):
                members_of.setdefault(last[0].broker_id, []).extend(members)
        return members_of

    def may_lie_in(self, broker: int, directory: str) -> set[str]:
        """The partitions whose replica on a broker is not empty, and lies in a directory or may: while no complete copy
        is in use, an older one may be the best that is left (R-ACT-9)."""
        names: set[str] = set()
        for fate, members in self._on(broker):
            copy = fate.copies.get(broker)
            if copy is not None and copy.level != "empty" and (not copy.where or directory in map(str, copy.where)):
                names |= set(map(_name, members))
        return names

    def _unplaced(self, broker: int) -> list[str]:
        """The partitions with a last copy on a broker that no record has placed."""
        names: list[str] = []
        for fate, members in self._on(broker):
            if any(copy.broker_id == broker and copy.directory is None for copy in last_copies(fate)):
                names += map(_name, members)
        return sorted(names)

    def _undecided(self, broker: int) -> tuple[set[str], set[str], set[str]]:
        """The last copies on a broker that a process reported in a directory before it registered with it (R-COPY-12):
        (the directories reported, those before, the partitions)."""
        new, old, names = set[str](), set[str](), set[str]()
        for fate, members in self._on(broker):
            known = fate.brokers.get(broker)
            for copy in last_copies(fate):
                under_way = (known is not None and known.starting) or not _listed(fate, copy)
                if copy.broker_id == broker and copy.left and under_way:
                    new.add(str(copy.directory))
                    old |= {str(directory) for left in copy.left for directory in left.directories}
                    names |= set(map(_name, members))
        return new, old, names

    def _given_up_on(self, broker: int) -> set[str | None]:
        """How the last copies that a broker lacks were given up; None among them if one was not."""
        every = ((fate, copy) for fate, _ in self._on(broker) for copy in last_copies(fate) if copy.broker_id == broker)
        return {copy.given_up for fate, copy in every if copy.given_up is not None or not _listed(fate, copy)}

    # STEPS

    def steps(self, broker: int, *, running: bool) -> list[Advice]:
        """The steps that keep the last copies in directories that a broker lacks. Empty if there is none."""
        new, old, undecided = self._undecided(broker)
        first = wait_and_keep(broker, sorted(new), sorted(old), sorted(undecided)) if undecided else []
        away = self.away.get(broker, {})
        held = {place: names for place, members in away.items() if (names := sorted({*members} - undecided))}
        before = [*self.before_start(broker, running=running)]
        if not held:
            return [*before, *first] if first else []
        names = sorted({name for members in held.values() for name in members})
        directories = sorted(directory for directory in held if directory)
        twice = sorted({name for directory in directories for name in self.twice(broker, directory)})
        restart, unplaced = OperatorAction(kind="restart", broker_id=broker), self._unplaced(broker)
        return [
            *before,
            *first,
            read_first(broker, directories, names, self.shared, unplaced),
            *self._taken_out(broker, directories),
            bring_back(broker, directories, names, running=running, twice=twice, placed=not unplaced),
            *self._elections(broker, names),
            do_not_replace(
                broker,
                directories,
                names,
                may_run=not self.given_up(restart),
                recreated=self._given_up_on(broker) == {"recreated"},
            ),
        ]

    def about_directory(self, broker: int, ordinary: Advice, *, running: bool) -> list[Advice]:
        """The steps for a directory that a broker lacks, or lacked: ``ordinary``, unless a last copy is at stake."""
        kept = self.steps(broker, running=running)
        if kept:
            return kept
        if ordinary.action == Action.REPLACE and self._back_with_last_copy(broker, ordinary.directories):
            return self.about_fenced(broker, in_order=False)
        return [*self.before_start(broker, running=running), ordinary]

    def _back_with_last_copy(self, broker: int, directories: Sequence[str]) -> bool:
        """Whether a fenced broker lists one of the directories again, and a last copy lies there."""
        known = ((fate, copy) for fate, _ in self._on(broker) for copy in last_copies(fate) if copy.broker_id == broker)
        return any(
            _listed(fate, copy) and not {*map(str, _places(copy))}.isdisjoint(directories) for fate, copy in known
        )

    def about_fenced(self, broker: int, *, in_order: bool) -> list[Advice]:
        """The steps for a fenced broker: what its disks need comes first."""
        kept = self.steps(broker, running=False)
        if kept:
            return kept
        last = sorted(set(self.down.get(broker, ())))
        first = self.before_start(broker, running=False)
        return [*first, start(broker, in_order=in_order, last=last, shared=self.shared), *self._elections(broker, last)]

    def about_missing(self, broker: int) -> list[Advice]:
        """The steps for a broker that is not registered."""
        held = self.away.get(broker)
        if not held:
            return [*self.before_start(broker, running=False), start_or_reassign(broker)]
        names = sorted({name for members in held.values() for name in members})
        directories = sorted(directory for directory in held if directory)
        return [
            *self.before_start(broker, running=False),
            *self._taken_out(broker, directories),
            start_with_disks(broker, directories, names, self.shared),
            *self._elections(broker, names),
            do_not_replace(broker, directories, names, registered=False, may_run=False),
        ]

    def _taken_out(self, broker: int, directories: Sequence[str]) -> Iterator[Advice]:
        """The disks among ``directories`` are in other brokers now."""
        for holder, directory in self.lake.query(
            f"SELECT broker_id, directory_id FROM {self.lake.at('directories')} "
            "WHERE broker_id <> $1 AND list_contains($2::VARCHAR[], directory_id) ORDER BY directory_id",
            [broker, [*directories]],
        ):
            yield take_out(holder, directory, broker)

    def before_start(self, broker: int, *, running: bool) -> Iterator[Advice]:
        """What has to come before a broker is started or restarted."""
        saved = self.truncated.get(broker)
        if saved:
            yield save_before_start(broker, saved)
        for instead, names in self._elected_instead(broker).items():
            yield save_from(names, broker, instead)
        hit = self._elected_at_start(broker, running=running)
        if hit:
            yield forbid_unclean(hit, f"broker {broker} could lead without writes that only a disk offline holds")
        hit = [name for name in self._elected_at_registration(broker) if name not in hit]
        if hit:
            yield forbid_unclean(
                hit, f"if broker {broker} was killed, a replica that lacks writes leads when it registers"
            )
        hit = self._elected_at_any_start(broker)
        if hit:
            yield forbid_unclean(hit, "as soon as any broker starts, a replica that lacks writes would lead")
        for other, names in sorted(self.eligible.get(broker, {}).items()) if running else ():
            yield wait_until_in_sync(
                other,
                sorted(names),
                f". Kafka counts it as eligible, and would elect it without writes while broker {broker} restarts",
            )
        hit = self.elected_at_stop(broker) if running else []
        if hit:
            yield forbid_unclean(hit, f"while broker {broker} restarts, a replica that lacks writes would lead")

    def _elections(self, broker: int, names: Sequence[str]) -> Iterator[Advice]:
        """Elections of the best copies that are online, for the partitions without a leader whose last copies a broker
        has. While one leads, Kafka refuses an unclean election as not needed."""
        wanted = set(names)
        members_of: dict[UncleanElection, list[Member]] = {}
        for fate, members in self._on(broker):
            if fate.state is None or fate.state.leader >= 0:
                continue
            hit = [member for member in members if _name(member) in wanted]
            there = [fate.copies[other] for other in fate.state.replicas if other != broker and other in fate.copies]
            online = [copy for copy in there if is_online(fate, copy)]
            best = min(online, key=lambda copy: get_args(Level).index(copy.level), default=None)
            if hit and best is not None and best.level != "empty":
                whole = best.level == "complete" and best in last_copies(fate)
                earlier = () if whole else tuple(sorted(map(str, best.earlier)))
                election = UncleanElection(best.broker_id, whole, online[0].broker_id, earlier)
                members_of.setdefault(election, []).extend(hit)
        for election, hit in sorted(members_of.items()):
            yield elect(sorted(hit), election)

    # ELECTIONS

    @cached_property
    def _unclean(self) -> ConfigValues:
        return unclean_elections(self.lake)

    def _may_elect(self, topic: str) -> bool:
        return is_true(self._unclean.topics.get(topic, self._unclean.cluster))

    def _elected_at_start(self, broker: int, *, running: bool) -> list[str]:
        """Partitions that a broker would lead without a complete copy as soon as it starts, or is back from a restart
        where nobody leads."""
        names = []
        for fate, members in self._on(broker):
            copy, last = fate.copies.get(broker), last_copies(fate)
            leaderless = fate.state is not None and fate.state.leader < 0
            if copy is None or (is_online(fate, copy) and not (running and leaderless)):
                continue
            safe = copy.level == "complete" and _listed_or_alone(fate, copy, last)
            if copy in last and (safe or not any(last_copy.level == "complete" for last_copy in last)):
                continue
            names += [_name(member) for member in members if self._may_elect(member[0])]
        return sorted(names)

    def _elected_instead(self, broker: int) -> Mapping[ElectedInstead, Sequence[str]]:
        """Election -> partitions of which the controller elects a replica that holds less than the last copy when
        ``broker`` is back.

        The replica is in a list (R-ACT-1), or is the last known leader. It is the broker's own, or is online while
        nobody leads (R-ACT-5). A broker that was killed leaves the lists when it registers, and one that is not
        registered leaves the eligible leaders.
        """
        partitions_of: dict[ElectedInstead, list[str]] = {}
        elsewhere = (shape for shape in self._without_leader if broker not in _brokers(shape[0]))
        for fate, members in (*self._on(broker), *elsewhere):
            last, state = last_copies(fate), fate.state
            if state is None:
                continue
            eligible = (other for other in state.eligible_leader_replicas if other != broker or broker in fate.brokers)
            named = (*state.isr, *eligible)
            for copy in fate.copies.values():
                ready = state.leader < 0 if is_online(fate, copy) else copy.broker_id == broker
                others = [other for other in named if other != broker or copy.broker_id == broker]
                if copy in last or not ready or copy.broker_id not in (others or state.last_known_elr):
                    continue
                killed = copy.broker_id not in (named or state.last_known_elr)
                for holder in last:
                    if holder.broker_id == copy.broker_id == broker:
                        registration = fate.brokers.get(broker)
                        if registration is None or not any(map(registration.lists, holder.where)):
                            continue  # it is back with that disk
                    instead = ElectedInstead(holder.broker_id, copy.broker_id, is_online(fate, holder), killed)
                    partitions_of.setdefault(instead, []).extend(map(_name, members))
        return {instead: sorted(names) for instead, names in sorted(partitions_of.items())}

    def _elected_at_registration(self, broker: int) -> list[str]:
        """Partitions whose last copy a broker has while another replica is online: after an unclean shutdown the
        controller takes the broker off the lists when it registers, and elects the other (R-ACT-5)."""
        names = []
        for fate, members in self._on(broker):
            last = last_copies(fate)
            others = (copy for copy in fate.copies.values() if copy not in last and copy.broker_id != broker)
            if any(copy.broker_id == broker for copy in last) and any(is_online(fate, copy) for copy in others):
                names += [_name(member) for member in members if self._may_elect(member[0])]
        return sorted(names)

    def _elected_at_any_start(self, broker: int) -> list[str]:
        """Partitions without a leader and without a replica on the broker, of which one that lacks writes is online:
        when a broker is unfenced, the controller looks at every partition without a leader (R-ACT-5)."""
        names = []
        for fate, members in self._without_leader:
            last = last_copies(fate)
            if broker in fate.copies:
                continue
            if any(is_online(fate, copy) for copy in fate.copies.values() if copy not in last):
                names += [_name(member) for member in members if self._may_elect(member[0])]
        return sorted(names)

    def elected_at_stop(self, broker: int) -> list[str]:
        """Partitions that would get a leader without a complete copy as soon as a broker stops."""
        if not any(map(is_true, (self._unclean.cluster, *self._unclean.topics.values()))):
            return []
        return [name for name in self._last_online.get(broker, ()) if self._may_elect(name.rpartition("-")[0])]

    @cached_property
    def _last_online(self) -> Mapping[int, Sequence[str]]:
        """Broker -> partitions whose only online replica among the in-sync and eligible ones is its own."""
        rows = self.lake.query(
            f"""
            WITH p AS (
                SELECT p.topic, p.partition, list_filter(p.replicas, lambda b: NOT list_contains(
                           coalesce(o.down, []), b)) AS up, list_concat(p.isr, p.elr) AS named
                FROM {self.lake.at("partitions")} p
                LEFT JOIN {self.lake.offline_brokers()} o USING (topic_id, partition)
            )
            SELECT list_intersect(up, named)[1], topic, partition FROM p
            WHERE len(list_intersect(up, named)) = 1 AND len(up) > 1 ORDER BY topic, partition
            """
        )
        partitions_of: dict[int, list[str]] = {}
        for broker, topic, number in rows:
            partitions_of.setdefault(broker, []).append(f"{topic}-{number}")
        return partitions_of

    # FOLDERS

    def twice(self, broker: int, directory: str) -> list[str]:
        """Partitions that were recreated in another directory of the broker since the directory left (R-ACT-7), or
        reported there, before it left, by a process that had not registered (R-COPY-12)."""
        return list(self._recreated.get((broker, directory), ()))

    def left_in(self, broker: int, directory: str) -> set[str]:
        """The partitions of ``twice``, and those that no record had placed when the directory left (R-ACT-8)."""
        here = f"d.broker_id = {broker} AND d.directory_id = '{directory}'"
        unplaced = self._left(f"a.kind <> 'assigned' AND a.from_offset < d.to_offset AND {here}")
        return {*self.twice(broker, directory), *unplaced.get((broker, directory), ())}

    def only_leader_in_sync(self, broker: int) -> set[str]:
        """Partitions of a broker whose in-sync set is one other replica."""
        rows = self.lake.query(
            f"SELECT topic || '-' || partition FROM {self.lake.at('partitions')} "
            "WHERE list_contains(replicas, $1) AND len(isr) = 1 AND isr[1] <> $1",
            [broker],
        )
        return {name for (name,) in rows}

    @cached_property
    def _recreated(self) -> Mapping[tuple[int, str], Sequence[str]]:
        return self._left("a.kind = 'assigned' AND a.directory_id = d.directory_id")

    def _left(self, which: str) -> dict[tuple[int, str], list[str]]:
        """By broker and directory: partitions placed elsewhere since it left, of assignments ``which`` (SQL)."""
        partitions_of: dict[tuple[int, str], list[str]] = {}
        for broker, directory, topic, number in self.lake.query(left_elsewhere(self.lake, which)):
            partitions_of.setdefault((broker, directory), []).append(f"{topic}-{number}")
        return partitions_of


def last_copies_of(lake: Lake, partitions: Sequence[Followed], truncated: Mapping[int, Sequence[str]]) -> LastCopies:
    """``partitions``: at least those that have no leader or whose leader is offline, with their fates."""
    members_of: dict[int, tuple[Fate, list[Member]]] = {}
    for partition in partitions:
        member = partition.topic, partition.partition
        members_of.setdefault(id(partition.shape), (partition.shape, []))[1].append(member)
    shapes: list[Shape] = []
    eligible: dict[int, dict[int, list[str]]] = {}
    for fate, members in members_of.values():
        if last_copies(fate):
            shapes.append((fate, members))
        elif (pair := _elects_without_writes(fate)) is not None:
            leader, elected = pair
            eligible.setdefault(leader, {}).setdefault(elected, []).extend(map(_name, members))
    return LastCopies(lake, shapes, eligible, truncated)


def _elects_without_writes(fate: Fate) -> tuple[int, int] | None:
    """The leader, and the replica that is elected cleanly when it stops, and lacks writes (R-QUIRK-3). None if there is
    no such replica. It is no longer eligible once it is in sync."""
    state = fate.state
    if state is None or state.leader < 0:
        return None
    online = [
        broker
        for broker in state.replicas
        if broker != state.leader and broker in fate.copies and is_online(fate, fate.copies[broker])
    ]
    if any(broker in state.isr for broker in online):
        return None
    elected = next((broker for broker in online if broker in state.eligible_leader_replicas), None)
    return None if elected is None or fate.copies[elected].usable else (state.leader, elected)


def _brokers(fate: Fate) -> set[int]:
    """The brokers with a copy of a partition, or with a last copy that was given up."""
    return {*fate.copies, *(copy.broker_id for copy in last_copies(fate))}


def _name(member: Member) -> str:
    return f"{member[0]}-{member[1]}"


def _places(copy: Copy) -> Sequence[Uuid | None]:
    if copy.directory is not None:
        return (copy.directory,)
    return sorted(copy.places) or (None,)


def _listed_or_alone(fate: Fate, copy: Copy, last: Sequence[Copy]) -> bool:
    """Whether no other copy is better: one in neither list may lack what its broker had not flushed (R-LOSS-5)."""
    return len(last) == 1 or (fate.state is not None and copy.broker_id in fate.state.named)


def _listed(fate: Fate, copy: Copy) -> bool:
    broker = fate.brokers.get(copy.broker_id)
    return broker is not None and all(directory is None or broker.lists(directory) for directory in _places(copy))
