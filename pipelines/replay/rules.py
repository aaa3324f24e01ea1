"""The rules of a profile as the numbers that the engine's kernels take."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jbod_model.errors import UsageError
from jbod_model.ids import ID_TABLES, IdTable

# Directory numbers 0 and 1 of every shard: pipelines.replay.fold_columns.DIR_MIGRATING, DIR_UNASSIGNED.
_MIGRATING, _UNASSIGNED = 0, 1


@dataclass(frozen=True)
class EngineRules:
    """How a log is replayed. ``profile`` names the rules, ``ids`` says what the log's reserved ids mean (R-ID-4).

    ``absent_directory`` is the number of the id that applies if a record gives none (R-PART-3). ``literal_offline``
    KIP's rule for offline replicas (R-OFF-8).
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


PROFILES = {
    "kafka": (_MIGRATING, False),
    "kip858": (_UNASSIGNED, True),
}


def rules(profile: str = "kafka", ids: str = "kafka") -> EngineRules:
    """The rules of a profile for a log with the given table of ids."""
    if profile not in PROFILES:
        raise UsageError(f"--profile {profile}: no such profile, there are {', '.join(PROFILES)}")
    if ids not in ID_TABLES:
        raise UsageError(f"--ids {ids}: no such table of ids, there are {', '.join(ID_TABLES)}")
    return EngineRules(profile, ids, *PROFILES[profile])
