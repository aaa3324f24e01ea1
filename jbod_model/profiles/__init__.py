"""The named sets of rules: ``kafka`` (as released), ``kip858`` (as accepted), ``draft`` (as proposed)."""

from collections.abc import Mapping

from jbod_model.profiles.base import Profile
from jbod_model.profiles.draft import DRAFT
from jbod_model.profiles.kafka import KAFKA
from jbod_model.profiles.kip858 import KIP858

PROFILES: Mapping[str, Profile] = {profile.name: profile for profile in (KAFKA, KIP858, DRAFT)}

__all__ = ["DRAFT", "KAFKA", "KIP858", "PROFILES", "Profile"]
