"""The options of a run of the main job, and its outcome. The command line imports this at once: keep it light."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pipelines.lake.uris import LakeUri
from pipelines.source.log_options import Settle

if TYPE_CHECKING:
    from pipelines.run.rollback import RolledBack
    from pipelines.settings import Settings
    from pipelines.source.positions import Tail

Progress = Callable[[str], None]
"""A function that shows a line of progress. The next line replaces it."""
# Bytes of log per shard, a power of two: few files for a small lake, bounded memory for a large one.
BYTES_PER_SHARD = 48 << 20
MOST_SHARDS = 64


@dataclass(frozen=True)
class Requests:
    """Which request logs to read, and how."""

    paths: tuple[str, ...]
    time_zone: str = "UTC"
    clock_skew: timedelta = timedelta(milliseconds=500)
    max_bytes: int = 128 << 20

    def check(self) -> None:
        """Raises UsageError if a file or the time zone does not exist."""
        from pipelines.source.log_options import check_zone
        from pipelines.source.request_files import RequestFiles

        check_zone(self.time_zone, "requests.time_zone")
        RequestFiles(self.paths).check()


@dataclass(frozen=True)
class Replay:
    """What to replay, into what, and how. Offsets and counts are of records."""

    log_dir: str
    lake: LakeUri
    profile: str = "kafka"
    ids: str = "kafka"
    start: str = "auto"
    tail: str = "wait"
    max_records: int = 10_000_000
    changes: bool = True
    """Whether a new lake has the table ``changes``."""
    follow_seconds: float | None = None
    shards: int | None = None
    requests: Requests | None = None
    settle: Settle = field(default_factory=Settle)
    replace_history: bool = False
    """Whether a log that has nothing in common with the lake replaces its history."""
    checkpoints: str = ""
    """Where the checkpoints of lakes on S3 are, the user's cache if empty."""

    @classmethod
    def of(cls, settings: Settings, log_dir: str, **others: Any) -> Replay:
        """The replay of a log that the settings say. ``others``: what only a command says."""
        return cls(
            log_dir=log_dir,
            lake=settings.lake,
            profile=settings.replay.profile,
            tail=settings.replay.tail,
            max_records=settings.replay.max_records,
            changes=settings.replay.changes,
            checkpoints=settings.replay.checkpoints,
            **others,
        )

    @property
    def wait_seconds(self) -> float:
        """How long the source may wait for new records. On object storage each look at the log is a request."""
        return 0.0 if "://" in self.log_dir else self.follow_seconds or 0.0


@dataclass
class RunOutcome:
    """The outcome of a run: offsets ``[start, end)`` and rows written per table.

    A run that began with a snapshot starts at the snapshot's end.
    """

    start_offset: int
    end_offset: int
    batches: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    rolled_back: list[RolledBack] = field(default_factory=list)
    log_end: int | None = None
    """The log's end offset when the run began, if that was before the lake's end."""
    snapshots: list[tuple[int, int]] = field(default_factory=list)
    """(the lake's end before, -1 if it was empty; the end of the snapshot that the run continued with)."""
    tail: Tail | None = None
    """The incomplete batch at the end of the log."""
    notices: list[str] = field(default_factory=list)

    def add_batch(self, before: int, end: int, snapshot: int | None) -> None:
        """Counts a publication of the log on a lake that ended at ``before``."""
        if snapshot is not None:
            self.snapshots.append((before, snapshot))
            if not self.batches:
                self.start_offset = snapshot
        self.end_offset = end
        self.batches += 1

    def add_rows(self, rows: Mapping[str, int]) -> None:
        """Counts rows written per table."""
        for name, count in rows.items():
            self.rows[name] = self.rows.get(name, 0) + count


def shards_for(size: int) -> int:
    """The number of shards of a new lake for a log of ``size`` bytes."""
    shards = 2
    while shards < MOST_SHARDS and shards * BYTES_PER_SHARD < size:
        shards *= 2
    return shards
