"""When the acknowledged writes of a partition are lost (docs/spec/loss.md).

Theory of operation. A write is acknowledged (acks=all) once every member of the in-sync set has it, and only while at
least min.insync.replicas are in sync. So at any offset some copies hold every acknowledged write: the *complete* ones.
``Fate`` follows them from record to record.

- While a complete copy leads and enough replicas are in sync, writes may be acknowledged. A copy outside the in-sync
  set and the eligible leaders misses them: it becomes partial. A copy that joins the in-sync set becomes complete.
- While no replica leads, no write is acknowledged. The complete copies stay complete, whatever the partition's records
  list. A leader begins to lead with the last record of the append that elects it.
- When the last complete copy is given up, the data is lost from that offset on. The loss ends if the copy returns
  before another copy leads. While the broker of such a copy is unregistered the data is only unreachable.
- When a copy that is not complete leads, the partition goes on without what the leader misses, and the other copies
  are truncated to its log when they return. If the leader's copy was recreated empty, the data is lost; otherwise the
  partition may lack writes. From then on the leader's copy is the measure.

The kind of the election says none of this. Kafka elects a recreated, empty replica *cleanly* where the in-sync set or
the eligible leaders still name its broker, and elects a replica that misses nothing *uncleanly* where an assignment
emptied the eligible leaders (R-QUIRK-1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from jbod_model.ids import KAFKA_IDS, IdTable, Uuid
from jbod_model.loss.copies import (
    BrokerChanged,
    Copy,
    Event,
    Kind,
    Level,
    Loss,
    MinIsrChanged,
    Registration,
    Removed,
    Version,
    back,
    caught_up,
    completes,
    created,
    decided,
    elected,
    known_better,
    lay_outside,
    lies_in_listed,
    may_serve,
    measure,
    overwritten,
    reassigned,
    registered,
)
from jbod_model.replay.registrations import Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What happened to a partition's data up to an offset; ``after`` returns the next fate."""

    ids: IdTable = KAFKA_IDS
    min_isr: int = 1
    brokers: Mapping[int, Registration] = field(default_factory=dict)
    state: Partition | None = None
    copies: Mapping[int, Copy] = field(default_factory=dict)
    """The copy of each replica, by broker. A copy that was given up stays until its replica has another."""
    gone: tuple[Copy, ...] = ()
    """Copies that were complete when their replica was recreated or removed, and that lack nothing since."""
    doubted: tuple[Copy, ...] = ()
    """Copies that held everything when they fell behind a leader whose log may be in a directory that is not online:
    if it is, they lack nothing (R-LOSS-2)."""
    led: bool = False
    """Whether any replica has led: before that no write was acknowledged (R-LOSS-7)."""
    last_led: int = -1
    """Offset until which the partition last had a leader; -1 if it never had one."""
    losses: tuple[Loss, ...] = ()
    waiting: tuple[int, ...] = ()
    """Indexes of the losses that have a copy which may still be overwritten (R-LOSS-11)."""

    def after(self, event: Event) -> Fate:
        """The fate after one more event; events come in the order of their offsets."""
        fate = self._after(event)
        if not fate.losses:
            return fate
        losses, waiting = list(fate.losses), []
        for at in (*self.waiting, *range(len(self.losses), len(fate.losses))):
            losses[at] = overwritten(losses[at], fate.copies, fate.brokers, event)
            if fate._may_follow(losses[at]):
                waiting.append(at)
        return replace(fate, losses=tuple(losses), waiting=tuple(waiting))

    def _may_follow(self, loss: Loss) -> bool:
        """Whether a copy of the loss, not overwritten so far, is in use or may return."""
        if loss.until is not None:
            return False
        kept = {(copy.broker_id, copy.since) for copy in (*self.copies.values(), *self.gone)}
        every = (*loss.copies, *loss.older)
        return any(copy.overwritten is None and (copy.broker_id, copy.since) in kept for copy in every)

    def _after(self, event: Event) -> Fate:
        if isinstance(event, Version):
            if event.superseded:  # R-LOSS-10
                event = replace(event, state=replace(event.state, leader=-1))
            return _lead(_place(_join(self, event), event), event, self.state)
        if isinstance(event, BrokerChanged):
            return _register(self, event)
        if isinstance(event, MinIsrChanged):
            return _acknowledge(replace(self, min_isr=event.value))
        return _remove(self, event)

    @property
    def complete(self) -> tuple[Copy, ...]:
        """The copies that hold every acknowledged write and were not given up, by broker."""
        return tuple(copy for _, copy in sorted(self.copies.items()) if copy.usable)

    @property
    def last(self) -> tuple[Copy, ...]:
        """The complete copies; if all were given up, the last ones that were complete."""
        return self.complete or self._held

    @property
    def kept(self) -> tuple[Copy, ...]:
        """The last copies, then those that were given up, and that their brokers did not delete (R-COPY-11)."""
        given_up = (copy for copy in self._held if copy.given_up not in (None, "removed"))
        held = (*self.complete, *given_up) if self.complete else self._held
        return (*held, *self.doubted)

    @property
    def _held(self) -> tuple[Copy, ...]:
        return (*self.gone, *(copy for _, copy in sorted(self.copies.items()) if copy.holds_everything))

    @property
    def away(self) -> bool:
        """Whether a copy that held every acknowledged write lies on a broker that is not registered."""
        held = (copy for copy in self.copies.values() if copy.holds_everything)
        return any(copy.given_up == "unregistered" and copy.broker_id not in self.brokers for copy in held)

    @property
    def rests(self) -> bool:
        """Whether restarts leave it the same, once all replicas are in sync again: every copy is complete, and lies
        where the state says and its broker lists, and no copy that was given up can return or be overwritten."""
        state = self.state
        if state is None or self.gone or self.doubted or self.waiting:
            return False
        brokers = {broker: known for broker, known in self.brokers.items() if not known.undecided}
        return all(
            (copy.level, copy.given_up, copy.missed, copy.left) == ("complete", None, None, ())
            and copy.directory == state.directory(broker)
            and broker in brokers
            and copy.directory in brokers[broker].directories
            for broker, copy in self.copies.items()
        )


# COPIES


def _join(fate: Fate, version: Version) -> Fate:
    """Replicas that the leader added to the in-sync set hold every acknowledged write (R-LOSS-3).

    The leader requests it, so it stays in sync itself, unless the same record completes a reassignment and removes it.
    The record of an unclean election also adds the winner to the in-sync set, but does not keep the previous leader in
    it. The same holds if a cancelled reassignment leaves no replica in sync: Kafka then takes the first of the others.
    """
    before = fate.state
    leader = None if before is None else fate.copies.get(before.leader)
    if before is None or leader is None or not leader.usable:
        return fate
    completed = leader.broker_id in before.removing_replicas and completes(before, version.state)
    if leader.broker_id not in version.state.isr and not completed:
        return fate
    copies, gone = dict(fate.copies), fate.gone
    for broker_id in (set(version.state.isr) - set(before.isr)) & set(copies):
        copy, broker = copies[broker_id], fate.brokers.get(broker_id)
        copies[broker_id] = replace(caught_up(copy, version.offset, broker), measured=leader.measured)
        if copies[broker_id].since != copy.since and copy.holds_everything:
            gone = (*gone, copy.give_up("recreated", version.offset))
    return replace(fate, copies=copies, gone=gone)


def _place(fate: Fate, version: Version) -> Fate:
    """The copies of the replicas that the version names (docs/spec/loss.md)."""
    if fate.state is None:
        return _begin(fate, version)
    if fate.state.leader >= 0:
        fate = replace(fate, last_led=version.offset)
    assert fate.state is not None
    was = dict(zip(fate.state.replicas, fate.state.directories, strict=True))
    copies: dict[int, Copy] = {}
    given_up = [
        (copy.returned() if copy.given_up == "unregistered" else copy).give_up("removed", version.offset)  # R-COPY-11
        for broker, copy in fate.copies.items()
        if broker not in version.state.replicas
    ]
    for broker_id, directory in zip(version.state.replicas, version.state.directories, strict=True):
        broker = fate.brokers.get(broker_id)
        if broker_id not in was:
            copies[broker_id] = created(broker_id, directory, version.offset, "empty", broker, fate.ids)
            continue
        copy, old = fate.copies[broker_id], None
        returned = back(copy, directory, fate.gone, broker) if was[broker_id] != directory else None
        if returned is not None:
            left, copies[broker_id] = returned
            given_up.append(copy.give_up("recreated", version.offset))
            fate = replace(fate, gone=tuple(old for old in fate.gone if old is not left))
            continue
        if was[broker_id] != directory:
            led = fate.last_led
            copy, old = reassigned(copy, was[broker_id], directory, version.offset, broker, fate.ids, led=led)
        copies[broker_id] = copy
        given_up += [old] if old is not None else []
    gone = tuple(copy for copy in given_up if copy.holds_everything)
    return replace(fate, state=version.state, copies=copies, gone=(*fate.gone, *gone))


def _begin(fate: Fate, version: Version) -> Fate:
    """The first version: replicas that are in sync or eligible hold every acknowledged write (R-LOSS-1)."""
    state = version.state
    named = state.named or set(state.last_known_elr)
    other: Level = "partial" if version.in_snapshot else "empty"
    copies = {
        broker_id: created(
            broker_id,
            directory,
            version.offset,
            "complete" if broker_id in named else other,
            fate.brokers.get(broker_id),
            fate.ids,
        )
        for broker_id, directory in zip(state.replicas, state.directories, strict=True)
    }
    return replace(fate, state=state, copies=copies, gone=(), led=version.in_snapshot)


def _register(fate: Fate, event: BrokerChanged) -> Fate:
    """The copies of an unregistered broker are given up; they return if it registers their directory again.

    After an unclean shutdown Kafka removes a broker from both lists if eligible leaders are on. A complete copy that is
    then in neither list, or that was given up, becomes unsure (R-LOSS-5). The partitions' records come before the
    registration.
    """
    brokers = {broker: known for broker, known in fate.brokers.items() if broker != event.broker_id}
    copy, before = fate.copies.get(event.broker_id), fate.brokers.get(event.broker_id)
    gone = fate.gone
    if event.registration is None:
        copy = copy and copy.give_up("unregistered", event.offset)  # R-COPY-9
    else:
        brokers[event.broker_id] = now = event.registration
        doubted = (lies_in_listed(it, before, now) if it.broker_id == event.broker_id else it for it in fate.doubted)
        fate = replace(fate, doubted=tuple(doubted))
        new_process = before is None or before.incarnation != event.registration.incarnation
        if copy is not None:
            led = event.offset if fate.state is not None and fate.state.leader >= 0 else fate.last_led
            copy = lies_in_listed(copy, before, event.registration)
            copy, old = decided(copy, event.registration, event.offset, new_process=new_process, led=led)
            if old is not None:
                gone = (*gone, old) if old.holds_everything else gone
                fate = replace(fate, losses=tuple(known_better(loss, old) for loss in fate.losses))
            copy = registered(copy, event.registration, event.offset, new_process=new_process)
            copy = _measured(fate, copy, event, before)
            gone = tuple(lay_outside(old, copy, event.registration) for old in gone)
        named = frozenset[int]() if fate.state is None else fate.state.named
        if copy is not None and event.unclean and copy.level == "complete" and event.broker_id not in named:
            copy = replace(copy, level="unsure")
        if event.unclean:
            gone = tuple(
                replace(old, level="unsure") if old.broker_id == event.broker_id and old.level == "complete" else old
                for old in gone
            )
    copies = fate.copies if copy is None else {**fate.copies, event.broker_id: copy}
    return _weigh(replace(fate, brokers=brokers, copies=copies, gone=gone), event.offset)


def _measured(fate: Fate, copy: Copy, event: BrokerChanged, before: Registration | None) -> Copy:
    """The copy of a leader that is the measure, where the append that elected it takes directories from its broker.

    It never led with a log in one of them, unless it lay there before (R-LOSS-10).
    """
    loss = fate.losses[-1] if fate.losses else None
    if loss is None or loss.went_on is None or event.first is None or before is None or event.registration is None:
        return copy
    if copy.directory is not None or loss.leader != copy.broker_id or loss.went_on < event.first:
        return copy
    lay = next((old.where for old in loss.copies if old.broker_id == copy.broker_id), copy.places)
    gone = before.directories - event.registration.directories
    return replace(copy, places=copy.places - (gone - lay))


def _remove(fate: Fate, event: Removed) -> Fate:
    """A deleted topic ends its losses (R-LOSS-9)."""
    losses = tuple(loss if loss.until is not None else replace(loss, until=event.offset) for loss in fate.losses)
    return Fate(ids=fate.ids, min_isr=fate.min_isr, brokers=fate.brokers, losses=losses)


# LEADERS


def _lead(fate: Fate, version: Version, before: Partition | None) -> Fate:
    """The effect of the version's leader on the copies."""
    if version.in_snapshot and before is not None:
        fate = _bridge(fate)
    leader = fate.copies.get(version.state.leader)
    broker = fate.brokers.get(version.state.leader)
    if leader is not None and (leader.given_up is None or (leader.given_up == "unregistered" and broker is not None)):
        leader, old = elected(leader, version.offset, broker, led=fate.last_led)
        gone = (*fate.gone, old) if old is not None and old.holds_everything else fate.gone
        fate = replace(fate, copies={**fate.copies, leader.broker_id: leader}, gone=gone)
    fate = _weigh(fate, version.offset)
    if leader is None or leader.given_up is not None:
        return fate
    if leader.holds_everything and leader.measured is None:  # the writes of a loss are back (R-LOSS-12)
        lesser = {
            broker: replace(copy, level=copy.measured if leader.level == "complete" else "unsure")
            for broker, copy in fate.copies.items()
            if copy.measured and copy.holds_everything and broker not in version.state.isr
        }
        fate = replace(fate, copies={**fate.copies, **lesser})
    if not fate.led:  # R-LOSS-7
        fate = replace(_follow_leader(fate), led=True)
    elif leader.level != "complete":
        fate = _go_on(fate, leader, version.offset)
    # Followers of a complete leader may have fetched from it.
    copies = {
        broker: replace(copy, level="partial") if copy.level == "empty" else copy
        for broker, copy in fate.copies.items()
    }
    return _acknowledge(replace(fate, copies=copies))


def _acknowledge(fate: Fate) -> Fate:
    """While writes can be acknowledged, copies outside of the in-sync set lack them (R-LOSS-2)."""
    state = fate.state
    leader = fate.copies.get(state.leader) if state is not None else None
    if state is None or leader is None or leader.given_up is not None or leader.level != "complete":
        return fate
    if len(state.isr) < min(fate.min_isr, len(state.replicas)):
        return fate
    kept = {leader.broker_id, *state.named}
    copies = {
        broker: replace(copy, level="partial") if copy.holds_everything and broker not in kept else copy
        for broker, copy in fate.copies.items()
    }
    fell = (copy for broker, copy in fate.copies.items() if copies[broker] is not copy)
    doubted = () if is_online(fate, leader) else (*fate.doubted, *fate.gone, *fell)
    return replace(fate, copies=copies, gone=(), doubted=doubted)


def _go_on(fate: Fate, leader: Copy, offset: int) -> Fate:
    """A copy that is not complete leads (R-LOSS-6)."""
    losses, pending = fate.losses, _open(fate)
    if pending is not None and pending.kind == "unreachable":
        lost = replace(pending, kind="lost", offset=offset, older=_older(fate), leader=leader.broker_id, went_on=offset)
        losses = (*losses[:-1], replace(pending, until=offset), lost)
    elif pending is not None:
        losses = (*losses[:-1], replace(pending, leader=leader.broker_id, went_on=offset))
    else:
        kind: Kind = "lost" if leader.level == "empty" else "may lack writes"
        doubted = tuple(copy for copy in fate.doubted if copy.broker_id != leader.broker_id)
        copies = replace(fate, doubted=doubted).kept
        loss = replace(_loss(fate, kind, offset, copies), leader=leader.broker_id, went_on=offset)
        losses = (*losses, loss)
    return replace(_follow_leader(fate), losses=losses)


def _follow_leader(fate: Fate) -> Fate:
    """The leader's copy is the measure from now on. A complete copy holds everything that the leader has."""
    assert fate.state is not None
    copies: dict[int, Copy] = {}
    was = fate.copies[fate.state.leader].level if fate.led else None
    for broker_id, copy in fate.copies.items():
        if broker_id in {fate.state.leader, *fate.state.isr} and copy.given_up is None:
            copies[broker_id] = replace(measure(copy, fate.brokers.get(broker_id)), measured=was)
        else:
            level: Level = copy.level if copy.holds_everything else "partial"
            copies[broker_id] = replace(copy, level=level, measured=None)
    return replace(fate, copies=copies)


def _bridge(fate: Fate) -> Fate:
    """Records before a snapshot were not read.

    The snapshot's lists decide, unless every copy was recreated (R-LOSS-8).
    """
    assert fate.state is not None
    if all(copy.level == "empty" or copy.given_up is not None for copy in fate.copies.values()):
        return fate
    named = fate.state.named or set(fate.state.last_known_elr)
    copies = {
        broker: replace(copy, level="complete" if broker in named else "partial", measured=None)
        if copy.given_up is None
        else copy
        for broker, copy in fate.copies.items()
    }
    return replace(fate, copies=copies, gone=())


# LOSSES


def _weigh(fate: Fate, offset: int) -> Fate:
    """Check whether a complete copy remains, and whether a lost one can be reached (R-LOSS-4)."""
    pending = _open(fate)
    ended = fate.losses if pending is None else (*fate.losses[:-1], replace(pending, until=offset))
    if fate.complete:
        return fate if pending is None else replace(fate, losses=ended)
    kind: Kind = "unreachable" if fate.away else "lost"
    if not fate.led or not fate.last or (pending is not None and pending.kind == kind):
        return fate
    return replace(fate, losses=(*ended, _loss(fate, kind, offset, fate.last)))


def _loss(fate: Fate, kind: Kind, offset: int, copies: tuple[Copy, ...]) -> Loss:
    return Loss(kind=kind, offset=offset, copies=copies, older=_older(fate) if kind == "lost" else ())


def _older(fate: Fate) -> tuple[Copy, ...]:
    """The copies that lack newer writes and were not given up, by broker (R-LOSS-4)."""
    return tuple(copy for _, copy in sorted(fate.copies.items()) if copy.level == "partial" and not copy.given_up)


def _open(fate: Fate) -> Loss | None:
    """The loss that a returning copy can still end; None if there is none."""
    last = fate.losses[-1] if fate.losses else None
    return last if last is not None and last.went_on is None and last.until is None else None


ActionKind = Literal["restart", "bring back", "replace", "unregister", "elect", "reassign"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorAction:
    """An action of an operator."""

    kind: ActionKind
    """``restart``: start the broker, or start it again, with the same log.dirs; a disk that failed stays among them.
    ``bring back``: the same after the disk of ``directory`` was repaired or mounted again, with its id. ``replace``:
    restart after the directory was taken out of log.dirs, or a blank disk took its place. ``unregister``: the broker.
    ``elect``: an unclean election. ``reassign``: the replicas to other brokers."""
    broker_id: int | None = None
    directory: Uuid | None = None
    """The directory of ``bring back`` and ``replace``."""


def last_copies(fate: Fate) -> tuple[Copy, ...]:
    """The copies to save: those that hold everything, if none of them is in use (R-ACT-1)."""
    state = fate.state
    if not fate.led or state is None:
        return ()
    if any(copy.broker_id in state.named and is_online(fate, copy) for copy in fate.complete):
        return ()
    return fate.last if _open(fate) or fate.complete else ()


def is_online(fate: Fate, copy: Copy) -> bool:
    """Whether a broker serves the copy. If no record has placed it, all its possible places have to be listed; if a
    process reported it that has not registered, it may have been recreated empty."""
    broker = fate.brokers.get(copy.broker_id)
    placed = broker is not None and all(map(broker.lists, copy.where)) and not copy.left
    return placed and may_be_online(fate, copy)


def may_be_online(fate: Fate, copy: Copy) -> bool:
    """Whether a broker may serve the copy: it lists at least one of its possible places."""
    broker = fate.brokers.get(copy.broker_id)
    return broker is not None and not broker.fenced and copy.given_up is None and may_serve(copy, broker)


def given_up_by(action: OperatorAction, fate: Fate) -> tuple[Copy, ...]:
    """The copies that the action gives up, where the last ones are not in use. Those of replicas that were recreated
    count as well: one of a broker that is down may not come back."""
    return tuple(copy for copy in (fate.kept if last_copies(fate) else ()) if _gives_up(action, fate, copy))


def _gives_up(action: OperatorAction, fate: Fate, copy: Copy) -> bool:
    if action.kind in ("elect", "reassign"):  # R-ACT-5, R-ACT-6
        return True
    if copy.broker_id != action.broker_id:
        return False
    if action.kind == "unregister":  # R-ACT-4
        return True
    broker = fate.brokers.get(copy.broker_id)
    listed = frozenset[Uuid]() if broker is None else broker.directories
    places = copy.where
    if action.kind == "replace" and any(action.directory in left.directories for left in copy.left):  # R-COPY-12
        return True
    if action.kind == "replace":  # R-ACT-3
        if copy.given_up is not None:
            return action.directory in places if places else action.directory not in listed
        others = action.directory not in listed and not places <= listed
        return not places or action.directory in places or others
    # R-ACT-2
    state = fate.state
    if copy.given_up is not None or state is None or copy.broker_id not in state.replicas:
        return False
    back = listed if action.directory is None else listed | {action.directory}
    return state.directory(copy.broker_id) == fate.ids.unassigned and not places <= back
