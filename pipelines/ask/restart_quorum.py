"""What a restart of nodes does to the quorum of controllers (R-RESTART-6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.ask.advice import Action, Advice
from pipelines.ask.json_values import jsonable
from pipelines.lake.reader import Lake


@dataclass(frozen=True)
class Nodes:
    """The nodes that the log names."""

    brokers: Sequence[int]
    voters: Sequence[int]
    leader: int | None
    """The active controller."""
    controllers: Sequence[int]
    """Controllers that are registered. Empty before metadata.version 3.7-IV0."""

    def role(self, node: int) -> str:
        """broker, controller or both."""
        controls = node in self.voters or node in self.controllers
        if node not in self.brokers:
            return "controller"
        return "both" if controls else "broker"

    def missing(self, asked: Sequence[int]) -> list[int]:
        """Those of ``asked`` that are no node."""
        known = {*self.brokers, *self.voters, *self.controllers}
        return [one for one in asked if one not in known]

    def unknown(self, missing: Sequence[int]) -> list[str]:
        """A sentence for each of ``missing``."""
        known = sorted({*self.brokers, *self.voters, *self.controllers})
        listed = ", ".join(map(str, known)) or "none"
        return [f"no broker and no controller has the id {one}; known: {listed}" for one in missing]


def nodes(lake: Lake) -> Nodes:
    """The nodes at the lake's offset."""
    voters = lake.query(f"SELECT node_id, role = 'leader' FROM {lake.at('voters')} WHERE voter ORDER BY node_id")
    brokers = lake.query(f"SELECT broker_id FROM {lake.at('brokers')} ORDER BY broker_id")
    controllers = lake.query(f"SELECT controller_id FROM {lake.at('controllers')} ORDER BY controller_id")
    return Nodes(
        brokers=[one for (one,) in brokers],
        voters=[one for one, _ in voters],
        leader=next((one for one, leads in voters if leads), None),
        controllers=[one for (one,) in controllers],
    )


@dataclass(frozen=True)
class QuorumEffect:
    """The quorum while nodes of it are down."""

    stopping: Sequence[int]
    """Voters that stop."""
    voters: Sequence[int]
    majority: int
    """Voters that it takes."""
    left: Sequence[int]
    """Voters that stay, and are registered."""
    unregistered: Sequence[int]
    """Voters that are not registered as controllers: they do not count."""
    leader_stops: bool
    """Whether the active controller stops, so that another one is elected."""

    @property
    def safe(self) -> bool:
        """Whether a majority stays."""
        return len(self.left) >= self.majority

    @property
    def ends(self) -> bool:
        """Whether it is safe once every voter is registered."""
        return len(self.voters) - len(self.stopping) >= self.majority

    @property
    def finding(self) -> str:
        """What would be so."""
        brought = "" if not self.unregistered else f", as voters {_listed(self.unregistered)} are not registered"
        left = f"{len(self.left)} of {len(self.voters)} voters would be left{brought}"
        if self.safe:
            return f"{left}, and {self.majority} are a majority"
        return f"the quorum of controllers would have no majority: {left}, and it takes {self.majority}"

    @property
    def advice(self) -> Advice:
        """What to do if it is not safe."""
        if self.ends:
            return Advice(Action.LOOK, f"start voters {_listed(self.unregistered)} first: jbod quorum shows the voters")
        if len(self.stopping) > 1:
            return Advice(Action.LOOK, "restart fewer controllers at once: jbod restart-plan has the batches")
        text = (
            f"a quorum of {len(self.voters)} has no majority while one is down: nothing can be changed meanwhile, and "
            "no leader can be elected; restart it alone, when no broker is being restarted"
        )
        return Advice(Action.LOOK, text)

    def as_json(self) -> dict[str, Any]:
        """One JSON object."""
        return {**jsonable(self), "safe": self.safe, "ends": self.ends, "finding": self.finding}


def spare_voters(known: Nodes) -> int:
    """How many voters may be down at once (R-RESTART-6); negative if there are too few already."""
    there = [one for one in known.voters if not known.controllers or one in known.controllers]
    return len(there) - (len(known.voters) // 2 + 1)


def quorum_effect(known: Nodes, stopping: Sequence[int]) -> QuorumEffect | None:
    """What the quorum is while ``stopping`` are down; None if none of them votes."""
    down = [one for one in known.voters if one in stopping]
    if not down:
        return None
    absent = [one for one in known.voters if known.controllers and one not in known.controllers]
    return QuorumEffect(
        stopping=down,
        voters=known.voters,
        majority=len(known.voters) // 2 + 1,
        left=[one for one in known.voters if one not in down and one not in absent],
        unregistered=absent,
        leader_stops=known.leader in down,
    )


def _listed(ids: Sequence[int]) -> str:
    return " and ".join(map(str, ids))
