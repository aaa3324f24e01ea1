"""The named sets of rules: ``kafka`` (as released), ``kip858`` (as accepted), ``draft`` (as proposed)."""

from collections.abc import Mapping

from jbod_model.profiles.releases import DRAFT, KAFKA, KIP858
from jbod_model.profiles.rules import Profile

PROFILES: Mapping[str, Profile] = {profile.name: profile for profile in (KAFKA, KIP858, DRAFT)}

__all__ = ["DRAFT", "KAFKA", "KIP858", "PROFILES", "Profile"]
