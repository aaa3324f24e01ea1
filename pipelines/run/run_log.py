"""The log of a run: where and how far it is read, and what waits at its end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from jbod_model.errors import JbodError
from pipelines.lake.head import read_head
from pipelines.run.options import Replay, RunOutcome
from pipelines.source.log_dir import LogDir
from pipelines.source.log_options import Options
from pipelines.source.plan import Planner, lines_of_end
from pipelines.source.positions import Position, Tail
from pipelines.storage.objects import SCHEME, is_object


def nothing_new(wanted: Replay, notice: Callable[[str], None]) -> tuple[RunOutcome | None, Planner | None]:
    """The outcome of a run that publishes nothing, or None if a Runner must decide; and what was read of the log.

    It must decide whenever the lake may have to change, or the log differs from the lake. It goes on with the planner,
    which is None if the log was not read.
    """
    if not is_object(wanted.lake) or wanted.requests or wanted.follow_seconds is not None:
        return None, None
    head = read_head(wanted.lake)
    if head is None:
        return None, None
    run_log = RunLog(wanted)
    planner = run_log.planner()
    row, identity = head["row"], head["identity"]
    mine = {"profile": wanted.profile, "ids": wanted.ids, "cluster_id": run_log.log.cluster_id()}
    if row["log_end"] is not None or any(identity[name] != value for name, value in mine.items()):
        return None, planner
    planner.freeze()
    end = int(row["end_offset"])
    here = Position(end)
    if planner.advance(here) != here:
        return None, planner
    last = planner.position(end, -1)
    if (last.epoch, last.crc) != (row["epoch"], row["fingerprint"]):
        return None, planner
    outcome = RunOutcome(end, end)
    outcome.tail, lines = lines_of_end(planner)
    for line in lines:
        outcome.notices.append(line)
        notice(line)
    return outcome, planner


class RunLog:
    """Says where and how far the log is read. It publishes nothing."""

    def __init__(self, wanted: Replay, first: Planner | None = None) -> None:
        """``first``: a planner that has read the log just now, for the first question. Each one lists the log."""
        self._wanted = wanted
        self._first = first
        self.log = LogDir(wanted.log_dir) if first is None else first.log

    def planner(self) -> Planner:
        """Returns a new planner of the log."""
        return Planner(self.log, tail=self._wanted.tail, settle=self._wanted.settle)

    def first(self) -> Planner:
        """Returns the planner that has read the log just now, or a new one."""
        return self._first or self.planner()

    def options(self, limit: int | None) -> dict[str, str]:
        """Returns the options of the data source. It reads nothing from ``limit`` on."""
        # On S3, a listing would find the folder of the log again.
        path = f"{SCHEME}{self.log.root}" if is_object(self._wanted.log_dir) else self._wanted.log_dir
        return {
            "path": path,
            "layout": "slices",
            "start": self._wanted.start,
            "maxRecords": str(self._wanted.max_records),
            "tail": self._wanted.tail,
            "settle": str(self._wanted.settle),
            "waitSeconds": str(self._wanted.wait_seconds),
            "limit": str(-1 if limit is None else limit),
        }

    def has_more(self, end: int | None, limit: int) -> bool:
        """Whether any record between ``end`` (None: nothing is read yet) and ``limit`` may be read."""
        planner = Planner.of(Options.read(self.options(limit)))
        with suppress(JbodError):
            begin = planner.begin(self._wanted.start)
            here = begin if end is None else Position(end)
            return planner.advance(here) != here
        return False

    def last_batch(self, end: int) -> Position | None:
        """Returns the position at ``end`` if no record after it may be read, otherwise None."""
        planner, here = self.first(), Position(end)
        return planner.position(end, -1) if planner.advance(here) == here else None

    def tail(self, end: int) -> tuple[Tail | None, list[str]]:
        """The incomplete batch at the end of a log that was read up to ``end``, and a line for what waits there."""
        planner = Planner(self.log)
        planner.refresh(Position(end, base=end - 1))
        return lines_of_end(planner)
