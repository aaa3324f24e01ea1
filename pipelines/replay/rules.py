"""The rules of a profile as the numbers that the engine's kernels take."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jbod_model.errors import UsageError
from jbod_model.ids import ID_TABLES, IdTable
from jbod_model.profiles import PROFILES

# DIR_MIGRATING and DIR_UNASSIGNED of pipelines.replay.fold_columns, which takes longer to import.
_ABSENT = {"migrating": 0, "unassigned": 1}
# The draft's registrations rewrite partitions without a record, which a fold by partition cannot do.
ENGINE_PROFILES = tuple(name for name, profile in PROFILES.items() if not profile.logical_rewrites)


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
    if profile not in ENGINE_PROFILES:
        raise UsageError(f"--profile {profile}: no such profile, there are {', '.join(ENGINE_PROFILES)}")
    if ids not in ID_TABLES:
        raise UsageError(f"--ids {ids}: no such table of ids, there are {', '.join(ID_TABLES)}")
    chosen = PROFILES[profile]
    return EngineRules(profile, ids, _ABSENT[chosen.absent_directories], chosen.offline_rule == "kip858")
