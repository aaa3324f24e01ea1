"""The rules of a profile as the numbers that the engine's kernels take."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jbod_model.errors import UsageError
from jbod_model.ids import ID_TABLES, IdTable
from jbod_model.profiles import KAFKA, KIP858

PROFILES = {profile.name: profile for profile in (KAFKA, KIP858)}
"""The profiles by which logs are replayed. No log was ever written by the rules of the draft."""
# DIR_MIGRATING and DIR_UNASSIGNED of pipelines.fold.tables, which takes longer to import.
_ABSENT = {"migrating": 0, "unassigned": 1}


@dataclass(frozen=True)
class EngineRules:
    """How a log is replayed. ``profile`` names the rules, ``ids`` says what the log's reserved ids mean (R-ID-4).

    ``absent_directory`` is the number of the id that applies if a record gives none (R-PART-3). ``literal_offline``
    says whether the KIP's rule applies for offline replicas (R-OFF-8).
    """

    profile: str
    ids: str
    absent_directory: int
    literal_offline: bool

    @property
    def reserved_ids(self) -> np.ndarray:
        """Ids of MIGRATING, UNASSIGNED and LOST: uint64[3, 2], bytes as in the log."""
        table: IdTable = ID_TABLES[self.ids]
        raw = table.migrating.bytes + table.unassigned.bytes + table.lost.bytes
        return np.frombuffer(raw, np.uint64).reshape(3, 2)


def rules(profile: str = "kafka", ids: str = "kafka") -> EngineRules:
    """The rules of a profile for a log with the given table of ids."""
    if profile not in PROFILES:
        raise UsageError(f"--profile {profile}: no such profile, there are {', '.join(PROFILES)}")
    if ids not in ID_TABLES:
        raise UsageError(f"--ids {ids}: no such table of ids, there are {', '.join(ID_TABLES)}")
    chosen = PROFILES[profile]
    return EngineRules(
        profile=profile,
        ids=ids,
        absent_directory=_ABSENT[chosen.absent_directories],
        literal_offline=chosen.offline_rule != "kafka",
    )
