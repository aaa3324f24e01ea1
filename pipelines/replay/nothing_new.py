"""Whether a replay into a lake on S3 has nothing to do, found out by few requests: no table is opened."""

from __future__ import annotations

from collections.abc import Callable

from pipelines.lake.head import read_head
from pipelines.replay.options import Replay, RunOutcome
from pipelines.replay.run_log import RunLog, lines_of_end
from pipelines.source.plan import Planner
from pipelines.source.positions import Position
from pipelines.storage.objects import is_object


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
