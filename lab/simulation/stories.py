"""Every scenario, by name (R-SIM-6)."""

from jbod_model.errors import UsageError
from lab.simulation import access_stories, disk_stories, upgrade_stories
from lab.simulation.scenario import SCENARIOS, Scenario
from lab.simulation.world import World

MODULES = (access_stories, disk_stories, upgrade_stories)
"""Importing these modules registers their scenarios."""


def play(name: str, seed: int, profile: str = "kafka", ids: str = "kafka") -> World:
    """The world after a scenario. Raises :class:`UsageError` for a scenario, profile or table that does not exist."""
    if name not in SCENARIOS:
        raise UsageError(f"scenario {name!r} is not known; known are {', '.join(sorted(SCENARIOS))}")
    world = World.create(seed, profile, ids)
    SCENARIOS[name].play(world)
    return world


__all__ = ["MODULES", "SCENARIOS", "Scenario", "play"]
