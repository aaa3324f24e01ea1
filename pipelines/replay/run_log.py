"""The log of a run: one directory, or several directories and what they agree on."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress

from jbod_model.errors import JbodError, UsageError
from pipelines.replay.notices import Standing, end_of_log
from pipelines.replay.options import Replay
from pipelines.source.log_dir import LogDir
from pipelines.source.log_dirs import Agreed, LogDirs
from pipelines.source.log_options import Options
from pipelines.source.plan import Planner
from pipelines.source.planners import planner_of
from pipelines.source.positions import Position, Tail
from pipelines.storage.objects import SCHEME, is_object

STUCK = 10.0
"""Seconds without progress after which a run that follows names the directories that are ahead."""


class RunLog:
    """Says where and how far the log is read, and reports directories that differ. It publishes nothing."""

    def __init__(self, wanted: Replay, notice: Callable[[str], None], first: Planner | None = None) -> None:
        """``first``: a planner that has read the log just now, for the first question. Each one lists the log."""
        self._wanted = wanted
        self._first = first
        self._notice = notice
        self._standing = Standing()
        self.patience = STUCK if wanted.follow_seconds is not None else 0.0
        """Seconds without progress after which it names the directories that are ahead."""
        every = (wanted.log_dir, *wanted.more_dirs)
        self._log_dirs = LogDirs(every, tail=wanted.tail, settle=wanted.settle) if wanted.more_dirs else None
        if first is not None:
            self.log = first.log
        else:
            self.log = self._log_dirs.log if self._log_dirs else LogDir(wanted.log_dir)

    @property
    def has_several_dirs(self) -> bool:
        """Whether the run reads several directories."""
        return self._log_dirs is not None

    def planner(self) -> Planner:
        """Returns a new planner of the log."""
        return Planner(self.log, tail=self._wanted.tail, settle=self._wanted.settle)

    def first(self) -> Planner:
        """Returns the planner that has read the log just now, or a new one."""
        return self._first or self.planner()

    def options(self, limit: int | None) -> dict[str, str]:
        """Returns the options of the data source. It reads nothing from ``limit`` on."""
        # On S3, a listing would find the folder of the log again.
        found = is_object(self._wanted.log_dir) and not self._wanted.more_dirs
        return {
            "path": f"{SCHEME}{self.log.root}" if found else self._wanted.log_dir,
            "layout": "slices",
            "start": self._wanted.start,
            "maxRecords": str(self._wanted.max_records),
            "tail": self._wanted.tail,
            "settle": str(self._wanted.settle),
            "waitSeconds": str(self._wanted.wait_seconds),
            "moreDirs": json.dumps(self._wanted.more_dirs),
            "limit": str(-1 if limit is None else limit),
        }

    def has_more(self, end: int | None, limit: int) -> bool:
        """Whether any record between ``end`` (None: nothing is read yet) and ``limit`` may be read."""
        planner = planner_of(Options.read(self.options(limit)))
        with suppress(JbodError):
            begun = planner.begin(self._wanted.start)
            here = begun if end is None else Position(end)
            return planner.advance(here) != here
        return False

    def last_batch(self, end: int) -> Position | None:
        """Returns the position at ``end`` if no record after it may be read, otherwise None."""
        planner: Planner | None = self.first()
        if self._log_dirs is not None:
            agreed = self._log_dirs.agreed(Position(end, base=end - 1))
            self._tell(agreed)
            planner = agreed.chosen
            if planner is None:
                return None
            planner.limit = agreed.end
        here = Position(end)
        return None if planner is None or planner.advance(here) != here else planner.position(end, -1)

    def agreed(self, end: int, stop: threading.Event) -> LogDir:
        """Returns the log to compare a lake with. Of several directories, waits for one that has what they agree on."""
        if self._log_dirs is None:
            return self.log
        while True:
            agreed = self._log_dirs.agreed(Position(end, base=end - 1))
            if agreed.chosen is None:  # the directories agree on less than the lake has
                agreed = self._log_dirs.afresh().agreed(Position(0))
            self._tell(agreed)
            if agreed.chosen is not None:
                return agreed.chosen.log
            if self._wanted.follow_seconds is None or stop.wait(self._wanted.follow_seconds):
                raise UsageError(
                    f"{self._wanted.log_dir}: the directories share no batch, and no majority holds one: name the "
                    "directories of one quorum's controllers"
                )

    def follow(self, end: int) -> None:
        """Reports changes among the directories. Call it regularly."""
        if self._log_dirs is not None:
            self._tell(self._log_dirs.agreed(Position(end, base=end - 1)))

    def tail(self, end: int) -> Tail | None:
        """Returns the incomplete batch at the end of a log that was read up to ``end``, and reports it."""
        tail, lines = end_of_log(self.log, end)
        for line in lines:
            self._notice(line)
        return tail

    def _tell(self, agreed: Agreed) -> None:
        if self._log_dirs is not None:
            for line in self._standing.news(self._log_dirs, agreed, patience=self.patience):
                self._notice(line)
