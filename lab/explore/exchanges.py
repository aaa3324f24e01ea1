"""Exchanges between a broker and the controller; messages may be lost, late or doubled (R-EXPLORE-7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from jbod_model.broker.assignments import Replica
from jbod_model.formats.requests import AssignReplicasToDirsRequest, BrokerRegistrationRequest, Request
from lab.explore.actions import Action
from lab.explore.controller_part import Answered, ControllerPart
from lab.explore.invariants import Breach
from lab.explore.machine import Machine, UnderWay
from lab.explore.machines import Machines, registers


class Outcome(NamedTuple):
    """The result of a broker's step: both states after it, the partitions whose metadata changed, the breaches."""

    action: Action
    controller: int
    machine: int
    changed: frozenset[Replica] = frozenset()
    breaches: tuple[Breach, ...] = ()


class Exchanges:
    """Sends what a broker's timers request, lets the controller handle it, and delivers the answer."""

    def __init__(self, controller: ControllerPart, machines: Machines) -> None:
        self.controller = controller
        self.machines = machines
        self.bounds = machines.bounds

    def steps(self, controller: int, number: int) -> Iterator[Outcome]:
        """Every step that sends, handles or answers a message of the broker."""
        machine = self.machines.states[number]
        broker = machine.broker
        if broker is not None and broker.life.next_communication is not None:
            kind = "register" if registers(machine) else "heartbeat"
            yield from self._send(kind, "communicate", controller, number)
        if broker is not None and broker.queue.deadline is not None:
            yield from self._send("assign", "assign", controller, number)
        for each in dict.fromkeys(machine.wire):
            yield from self._under_way(each, controller, number)

    def alone(self, action: Action, controller: int, before: int, after: int) -> Outcome:
        """A step of the machine alone.

        If its process ends, the controller's state notes that the registered process is gone.
        """
        states = self.machines.states
        if states[after].broker is None and states[before].broker is not None:
            controller = self.controller.aged(controller, states[before].broker_id)
        return Outcome(action, controller, after)

    def ask(self, controller: int, request: Request) -> Answered:
        """The result of a request in the controller's state."""
        return self.controller.ask(controller, self.controller.request(request))

    def outcome(self, action: Action, machine: int, answered: Answered) -> Outcome:
        """The controller handled a request; the broker has no answer yet."""
        if answered.registered:
            machine = self.machines.registered(machine, same_process=answered.same_process)
        if answered.changed:
            machine = self.machines.behind(machine, answered.changed)
        return Outcome(action, answered.state, machine, answered.changed, answered.breaches)

    def _send(self, kind: str, timer: str, controller: int, number: int) -> Iterator[Outcome]:
        broker_id = self.machines.states[number].broker_id
        action = Action(kind, broker_id)
        sent, request = self.machines.send(number, timer)
        if request is None:
            yield self.alone(action, controller, number, sent)
            return
        if self.machines.states[number].cut:
            yield Outcome(action, controller, self.machines.answer(sent, request, -1, None))
            return
        if self.bounds.late:
            put = self.machines.after(
                sent, ("put", request), _wire(lambda wire: (*wire, UnderWay(request, None, True)))
            )
            yield Outcome(action, controller, put)
            return
        answered = self.ask(controller, request)
        outcome = self.outcome(action, sent, answered)
        yield self._heard(outcome, request, answered.answer)
        if self.bounds.lost or kind == "assign":
            deaf = self.machines.answer(sent, request, -1, None)
            yield self.outcome(Action(f"{kind}, answer lost", broker_id), deaf, answered)
        if self.bounds.lost and kind != "register":  # a registration that does not arrive changes nothing
            deaf = self.machines.answer(sent, request, -1, None)
            yield Outcome(Action(f"{kind}, request lost", broker_id), controller, deaf)

    def _heard(self, outcome: Outcome, request: Request, answer: int) -> Outcome:
        """The broker has received the answer."""
        after = self.machines.answer(outcome.machine, request, answer, self.controller.answers[answer])
        controller = self.alone(outcome.action, outcome.controller, outcome.machine, after).controller
        return outcome._replace(controller=controller, machine=after)

    # IN FLIGHT

    def _under_way(self, each: UnderWay, controller: int, number: int) -> Iterator[Outcome]:
        machine = self.machines.states[number]
        broker_id, detail = machine.broker_id, _named(each.request)
        taken = self.machines.after(number, ("take", each), _wire(lambda wire: _without(wire, each)))
        if each.answer is None:
            answered = self.ask(controller, each.request)
            yield self._handled(Action("handle", broker_id, detail=detail), each, taken, answered, again=False)
            room = sum(not other.awaited for other in machine.wire) < self.bounds.late
            if self.bounds.doubled and each.awaited and room:
                yield self._handled(Action("handle twice", broker_id, detail=detail), each, taken, answered, again=True)
            if each.awaited and room:
                yield self._given_up(each, controller, number, taken, stays=True)
        else:
            outcome = Outcome(Action("hear", broker_id, detail=detail), controller, taken)
            yield self._heard(outcome, each.request, each.answer)
        if each.awaited:
            yield self._given_up(each, controller, number, taken, stays=False)

    def _handled(self, action: Action, each: UnderWay, taken: int, answered: Answered, *, again: bool) -> Outcome:
        """The controller handles a request. Its answer is in flight if a process waits for it."""
        outcome = self.outcome(action, taken, answered)
        put = [UnderWay(each.request, answered.answer, True)] if each.awaited else []
        put += [UnderWay(each.request, None, False)] if again else []
        after = self.machines.after(outcome.machine, ("put", *put), _wire(lambda wire: (*wire, *put)))
        return outcome._replace(machine=after)

    def _given_up(self, each: UnderWay, controller: int, number: int, taken: int, *, stays: bool) -> Outcome:
        """The broker stops waiting; the request may still arrive, or is lost."""
        broker_id = self.machines.states[number].broker_id
        after = self.machines.answer(taken, each.request, -1, None)
        if stays:
            late = UnderWay(each.request, None, False)
            after = self.machines.after(after, ("put", late), _wire(lambda wire: (*wire, late)))
        detail = _named(each.request) + (", which is late" if stays else "")
        return Outcome(Action("give up", broker_id, detail=detail), controller, after)


def _wire(change: Callable[[tuple[UnderWay, ...]], tuple[UnderWay, ...]]) -> Callable[[Machine], Machine]:
    return lambda machine: replace(machine, wire=tuple(sorted(change(machine.wire), key=repr)))


def _without(wire: tuple[UnderWay, ...], each: UnderWay) -> tuple[UnderWay, ...]:
    left = list(wire)
    left.remove(each)
    return tuple(left)


def _named(request: Request) -> str:
    if isinstance(request, BrokerRegistrationRequest):
        return "registration"
    return "assignment" if isinstance(request, AssignReplicasToDirsRequest) else "heartbeat"
