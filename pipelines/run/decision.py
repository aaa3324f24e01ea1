"""The decision of ``jbod replay``: the log is loaded in this process, Spark replays it, or nothing is new.

Everything that the decision depends on is looked at here, the cheap things first, so that a session that will be needed
starts before the engine is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from jbod_model.errors import UsageError
from pipelines.lake.uris import LakeUri, home_of
from pipelines.start.process import choose_kernels, log_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipelines.run.options import Progress, Replay, RunOutcome
    from pipelines.run.runner import Runner
    from pipelines.settings import Spark
    from pipelines.source.plan import Planner

PRELOAD = "pipelines.run.preload"
"""The module that Spark's workers load at their start."""
Session = Callable[[], "SparkSession"]
"""Waits for a session that was started in the background."""


class Way(StrEnum):
    """The ways of a run."""

    NOTHING_NEW = "nothing new"
    LOAD = "load"
    SPARK = "Spark"


@dataclass(frozen=True)
class Decision:
    """The way of a run, the reason, and what was opened to decide.

    ``runner``: None if nothing is new and the lake was not opened. ``soon``: the session, if it was started early.
    """

    way: Way
    reason: str
    runner: Runner | None = None
    nothing: RunOutcome | None = None
    """The outcome if there is no runner."""
    soon: Session | None = None

    def __str__(self) -> str:
        return f"{self.way}: {self.reason}"


def decide(
    wanted: Replay,
    spark: Spark,
    load_bytes: int,
    *,
    progress: Progress,
    notice: Progress,
    session: Session | None = None,
) -> Decision:
    """Decides how to replay, and starts what the run will need. ``load_bytes``: the size of a large log, 0 for none.

    ``session``: returns the one session of many runs, which is not started before it is called.

    A large log is loaded into a new lake, if Spark would run on this machine. So is its rest into a lake that was only
    ever loaded, in a run that does not follow. Raises UsageError for what cannot be replayed.
    """
    # A run that died before the first publication leaves an empty ledger.
    is_new = "://" not in wanted.lake and not any(Path(wanted.lake, "ledger").glob("*.parquet"))
    # A log that is followed grows, requests are many, and a lake may have a larger state than its log.
    if is_new and wanted.follow_seconds is None and not wanted.requests and session is None:
        choose_kernels([wanted.log_dir])
    loads = _is_large(wanted, spark, load_bytes) and (is_new or _is_only_loaded(wanted))
    if is_new:
        from pipelines.lake.written_lake import check_folder
        from pipelines.source.log_dir import LogDir

        check_folder(wanted.lake)
        LogDir(wanted.log_dir).check_beginning()
    reason, soon = "the lake is new" if is_new else "the lake lacks records of the log, or its checkpoint", session
    if not loads and session is None:
        reason, soon = _soon(wanted, spark, is_new)
    from pipelines.run.runner import Runner

    nothing, read = nothing_new(wanted, notice, of_many=session is not None)
    same = "the lake ends with the last batch of the log"
    if nothing is not None:
        return Decision(Way.NOTHING_NEW, same, nothing=nothing)
    runner = Runner(wanted, progress=progress, notice=notice, first=read)
    if runner.up_to_date():
        return Decision(Way.NOTHING_NEW, same, runner)
    if loads:
        lake = "the lake is new" if is_new else "the lake was only loaded so far"
        return Decision(Way.LOAD, f"the log is large, and {lake}", runner)
    return Decision(Way.SPARK, reason, runner, soon=soon)


def nothing_new(
    wanted: Replay, notice: Callable[[str], None], *, of_many: bool = False
) -> tuple[RunOutcome | None, Planner | None]:
    """The outcome of a run that publishes nothing, or None if a Runner must decide; and what was read of the log.

    It must decide whenever the lake may have to change, or the log differs from the lake. It goes on with the planner,
    which is None if the log was not read. ``of_many``: a lake on a disk is judged by its ledger alone, as one on S3
    is; otherwise all its tables are opened, which costs a single run little and finds damage at once.
    """
    from pipelines.lake.written_lake import newest_head
    from pipelines.run.options import RunOutcome
    from pipelines.run.runner import RunLog
    from pipelines.source.plan import lines_of_end
    from pipelines.storage.objects import is_object

    if not (is_object(wanted.lake) or of_many) or wanted.requests or wanted.follow_seconds is not None:
        return None, None
    head = newest_head(wanted.lake)
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
    if not planner.ends_with(end, row["epoch"], row["fingerprint"]):
        return None, planner
    outcome = RunOutcome(end, end)
    outcome.tail, lines = lines_of_end(planner)
    for line in lines:
        outcome.notices.append(line)
        notice(line)
    return outcome, planner


def _is_large(wanted: Replay, spark: Spark, load_bytes: int) -> bool:
    """Whether a log is worth a load: it is large and on this machine, where Spark would run (docs/architecture.md)."""
    from pipelines.spark.session import is_of_this_process

    if not load_bytes or wanted.requests or "://" in wanted.log_dir or not is_of_this_process(spark):
        return False
    with suppress(OSError):
        return sum(path.stat().st_size for path in log_files(Path(wanted.log_dir))) >= load_bytes
    return False  # the planner reports it


def _is_only_loaded(wanted: Replay) -> bool:
    """Whether a load can continue: a lake on this machine whose checkpoint is a seed that Spark has not taken.

    A run that follows needs Spark in any case.
    """
    from pipelines.run.seed import is_seed

    return (
        wanted.follow_seconds is None and "://" not in wanted.lake and is_seed(home_of(wanted.lake, wanted.checkpoints))
    )


def _soon(wanted: Replay, spark: Spark, is_new: bool) -> tuple[str, Session | None]:
    """Starts a session early: for a new lake, and for one on this machine if the run follows, or the log seems to have
    grown."""
    if is_new:
        reason = "the lake is new"
    elif "://" in wanted.lake:
        return "the lake may lack records of the log", None
    elif wanted.follow_seconds is not None:
        reason = "the run follows the log"
    elif _is_newer(wanted.log_dir, wanted.lake):
        reason = "the log was written after the last publication"
    else:
        return "the lake lacks records of the log, or its checkpoint", None
    from pipelines.spark.session import spark_session_soon
    from pipelines.spark.versions import check_installed

    try:
        check_installed()
        return reason, spark_session_soon(spark, PRELOAD)
    except UsageError:
        if is_new:
            raise
        return reason, None  # a run with nothing new needs neither Spark nor Java, and any other reports the problem


def _is_newer(log_dir: str, lake: LakeUri) -> bool:
    """Whether a segment of a log on this machine was written after the last publication."""
    try:
        published = max(path.stat().st_mtime for path in Path(lake, "ledger", "_delta_log").iterdir())
        segments = [path for path in log_files(Path(log_dir)) if path.suffix == ".log"]
        return any(path.stat().st_mtime > published for path in segments)
    except (OSError, ValueError):
        return False  # the run reports it, if it is a problem
