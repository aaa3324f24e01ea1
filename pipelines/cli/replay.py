"""``jbod replay | mirror | label``: a log into a lake, a copy of a log, and the names of disks that people know."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from jbod_model.errors import JbodError, MalformedLog, ReplayViolation, UsageError
from pipelines.cli import progress
from pipelines.cli.options import AsJson, CommandConfig, MaintainedLake, is_piped, take_pipe
from pipelines.cli.progress import Interrupts, Stopped, interruptible
from pipelines.lake.uris import LakeUri
from pipelines.quorum import KAFKA
from pipelines.quorum.state import link_mirror, mirror_of
from pipelines.run.decision import PRELOAD, Way, decide
from pipelines.run.options import Replay, Requests
from pipelines.settings import Settings, load
from pipelines.source.log_options import Settle
from pipelines.start.process import choose, keep_memory
from pipelines.start.session import is_new_advice

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipelines.ask.log_dirs import Read
    from pipelines.lake.names import Names, Statement
    from pipelines.lake.reader import Lake
    from pipelines.run.options import RunOutcome
    from pipelines.run.request_stream import RequestQuery
    from pipelines.run.runner import Runner


Rules = Literal["kafka", "kip858"]


def replay(
    log_dir: Annotated[
        str,
        typer.Argument(
            metavar="LOG_DIR",
            help="A metadata.log.dir, its __cluster_metadata-0, a URI, or kafka://HOST:PORT; -: a tar stream.",
            callback=take_pipe,
        ),
    ],
    lake: Annotated[str | None, typer.Option(help="The folder of the tables; created if it does not exist.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Continue as the log grows, until Ctrl-C.")] = False,
    max_records: Annotated[int | None, typer.Option(help="The most records of one micro-batch.")] = None,
    profile: Annotated[Rules | None, typer.Option(help="The rules.")] = None,
    ids: Annotated[Rules, typer.Option(help="What the log's reserved ids mean.")] = "kafka",
    start: Annotated[Literal["auto", "log", "snapshot"], typer.Option(help="Where a new lake begins.")] = "auto",
    tail: Annotated[
        Literal["wait", "stop"] | None, typer.Option(help="What follows a batch that is cut off at the end.")
    ] = None,
    settle: Annotated[str, typer.Option(help="Stay behind the end of the log: 100 (records) or 2s.")] = "0",
    shards: Annotated[
        int | None, typer.Option(min=1, help="Shards of a new lake. Default: by the size of the log.")
    ] = None,
    requests: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="A controller's request log, or a glob of rotated ones; may be repeated."),
    ] = None,
    replace_history: Annotated[
        bool, typer.Option("--replace-history", help="Let a log that has nothing in common with the lake replace it.")
    ] = False,
    mirror: Annotated[
        str | None,
        typer.Option("--mirror", metavar="DIR", help="The copy of a quorum's log (kafka://). Default: LAKE.mirror."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="What changed, as one JSON object.")] = False,
) -> None:
    """Replay a KRaft metadata log into Delta tables, from the lake's end offset to the end of the log."""
    started = time.monotonic()
    if follow and is_piped(log_dir):
        raise UsageError("--follow: a pipe holds the log as it was: leave out --follow, or name a folder")
    settings = load(
        lake=lake,
        replay={"profile": profile, "max_records": max_records, "tail": tail},
    )
    choose(settings.spark.fast_start)
    of_quorum = log_dir.startswith(KAFKA)
    if of_quorum and settle != "0":
        raise UsageError("--settle: what comes from the quorum is committed: leave out --settle")
    if mirror is not None and not of_quorum:
        raise UsageError("--mirror: is for the log of a quorum: kafka://HOST:PORT")
    folder = mirror or str(mirror_of(settings.lake))
    skew = timedelta(seconds=settings.requests.clock_skew_seconds)
    wanted = Replay.of(
        settings,
        folder if of_quorum else log_dir,
        settle=Settle.parse(settle),
        ids=ids,
        start=start,
        follow_seconds=settings.replay.follow_seconds if follow else None,
        shards=shards,
        requests=Requests(tuple(requests), settings.requests.time_zone, skew) if requests else None,
        replace_history=replace_history,
    )
    with ExitStack() as opened, Interrupts() as interrupts:
        runner = nothing = None
        problem: MalformedLog | ReplayViolation | None = None
        try:
            if of_quorum:
                _mirror(opened, log_dir, folder, settings, interrupts if follow else None)
            spark, least = settings.spark, settings.replay.load_bytes
            decision = decide(wanted, spark, least, progress=progress.say, notice=progress.notice)
            progress.decision(str(decision))
            runner, nothing = decision.runner, decision.nothing
            with interruptible():
                if runner is not None and decision.way is Way.LOAD:
                    from pipelines.spark.session import tasks_of

                    keep_memory()
                    runner.load(tasks_of(spark.master))
                if runner is not None and (decision.way is Way.SPARK or (decision.way is Way.LOAD and follow)):
                    _run(runner, settings, decision.soon, interrupts)
        except KeyboardInterrupt:
            interrupts.signal = interrupts.signal or 2
        except (MalformedLog, ReplayViolation) as refusal:
            problem = refusal
    progress.say("")
    # A run that follows ends with a signal, once it has something to follow.
    ended_well = not interrupts.signal or (runner is not None and runner.has_followed)
    outcome = nothing if runner is None else runner.outcome
    if problem is not None:
        problem, outcome = _refused(problem, outcome, settings.lake)
    if outcome is not None and (as_json or (ended_well and problem is None)):
        request_query = None if runner is None else runner.requests
        _report(outcome, settings.lake, time.monotonic() - started, as_json, request_query, ended_well)
    if problem is not None:
        raise problem
    if runner is not None and runner.lake.ledger is not None and settings.labels.sources:
        for line in relabel(settings):
            progress.notice(f"labels: {line}")
    if runner is not None and runner.outcome.batches and not interrupts.signal:
        _tell_of_warm(settings)
    if not ended_well:
        typer.echo(f"jbod: {_interrupted(runner)}", err=True)
        raise Stopped(interrupts.exit_code)


def _mirror(opened: ExitStack, url: str, folder: str, settings: Settings, follows: Interrupts | None) -> None:
    """Brings the mirror of a quorum up to date, and follows the quorum beside the run if ``follows`` is given."""
    from pipelines.mirror.follow import mirrored

    def fail() -> bool:
        if follows is None or follows.stop is None:
            return False
        follows.stop()
        return True

    progress.say(f"reading {url}")
    link_mirror(settings.lake, folder)
    config = settings.quorum.command_config
    failed = None if follows is None else fail
    mirror = opened.enter_context(mirrored(url, folder, config, progress.notice, failed=failed))
    progress.decision(f"{folder}: {mirror.begins}")


def _tell_of_warm(settings: Settings) -> None:
    """Tells once how this machine starts Spark faster, if its sessions are local."""
    from pipelines.java import find_java
    from pipelines.spark.session import is_of_this_process

    java = find_java() if is_of_this_process(settings.spark) else None
    if java is not None and is_new_advice(java):
        progress.notice("jbod warm, run once, makes every start of Spark on this machine faster")


def _run(runner: Runner, settings: Settings, soon: Callable[[], SparkSession] | None, interrupts: Interrupts) -> None:
    from pipelines.spark.session import is_local, remote_of, spark_session_soon
    from pipelines.spark.versions import check_installed
    from pipelines.storage.objects import is_object

    if settings.replay.checkpoints.startswith(("s3://", "s3a://")):
        raise UsageError("replay.checkpoints: Spark renames its checkpoints, which S3 cannot do: name another folder")
    remote = remote_of(settings.spark)
    here = is_local(remote or settings.spark.master)
    if is_object(settings.lake) and not (here or settings.replay.checkpoints):
        raise UsageError(
            "replay.checkpoints: on a cluster, a lake on S3 needs a folder or URI (not on S3) that all executors share"
        )
    progress.say("starting Spark")
    try:
        check_installed()
        spark = (soon or spark_session_soon(settings.spark, PRELOAD))()
    except BaseException:
        runner.lake.discard()
        raise
    interrupts.stop = runner.stop
    interrupts.listen()
    runner.run(spark)


def _interrupted(runner: Runner | None) -> str:
    """Describes the lake after a run that a signal ended."""
    if runner is None or runner.lake.ledger is None:
        return "interrupted: nothing was published yet; run again to begin"
    stands = f"up to offset {runner.lake.end_offset - 1}; run again to continue"
    if runner.outcome.batches:
        return f"interrupted: published {stands}"
    return f"interrupted: nothing new was published, the lake stands as it was, {stands}"


def _refused(
    problem: MalformedLog | ReplayViolation, outcome: RunOutcome | None, lake: LakeUri
) -> tuple[MalformedLog | ReplayViolation, RunOutcome]:
    """The error of a damaged log, which also says up to where the lake is published, and the outcome with this notice.

    ``outcome``: None if the run was refused before it began.
    """
    from pipelines.lake.written_lake import newest_head
    from pipelines.run.options import RunOutcome

    head = newest_head(lake)
    end = 0 if head is None else head["row"]["end_offset"]
    what = problem.problem + (f"; {lake} is published up to offset {end - 1}" if end else "")
    if isinstance(problem, MalformedLog):
        problem = type(problem)(problem.file, problem.offset, what)
    else:
        problem = ReplayViolation(problem.offset, what)
    outcome = outcome or RunOutcome(end, end)
    outcome.notices.append(str(problem))
    return problem, outcome


def _from_snapshot(before: int, snapshot: int) -> str:
    if before < 0:
        return f"began with the snapshot at offset {snapshot}"
    return f"went on with the snapshot at offset {snapshot}: offsets {before} to {snapshot - 1} were never read"


def _report(
    outcome: RunOutcome, lake: LakeUri, seconds: float, as_json: bool, requests: RequestQuery | None, ended_well: bool
) -> None:
    start, end = max(outcome.start_offset, 0), max(outcome.end_offset, 0)
    request_counts = None if requests is None else dict(+requests.outcomes)
    strange = 0 if requests is None else requests.strange
    if as_json:
        document = {
            "lake": lake,
            "start_offset": start,
            "end_offset": end,
            "batches": outcome.batches,
            "rows": outcome.rows,
            "rolled_back": [vars(rollback) for rollback in outcome.rolled_back],
            "log_end_offset": outcome.log_end,
            "from_snapshot": outcome.snapshots[-1][1] if outcome.snapshots else None,
            "tail": None if outcome.tail is None else vars(outcome.tail),
            "notices": outcome.notices,
            "interrupted": not ended_well,
            "seconds": round(seconds, 1),
        }
        if request_counts is not None:
            document["requests"] = request_counts
        typer.echo(json.dumps(document))
        return
    if end == start and not outcome.rows:
        typer.echo(f"{lake}: nothing new" + (f" after offset {end - 1}" if end else ""))
        return
    for before, snapshot in outcome.snapshots:
        typer.echo(f"{lake}: {_from_snapshot(before, snapshot)}")
    if end > start:
        from pipelines.show.text import many

        batches = many(outcome.batches, "batch", "batches")
        typer.echo(f"{lake}: replayed offsets {start} to {end - 1} in {seconds:.1f} s, {batches}")
    for name, count in outcome.rows.items():
        typer.echo(f"  {name:<19}{count:>10,} rows written")
    if request_counts:
        typer.echo("requested assignments:")
        for what, count in sorted(request_counts.items(), key=lambda each: -each[1]):
            typer.echo(f"  {count:>10,} {what}")
        if request_counts.get("pending"):
            progress.notice("pending: later than the metadata log; if they are not, set requests.time_zone", "")
        if strange:
            progress.notice(f"{strange:,} are of topics that the log does not know: another cluster's log?", "")
    typer.echo(f"next: jbod offline --lake {shlex.quote(lake)}")


def label(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SOURCE",
            help="Mounted disks (or the folder that has them), a server.properties, the output of kafka-log-dirs "
            "--describe, or a file with lines like: broker 1 /data/disk1b = rack 7 slot 3",
        ),
    ] = None,
    lake: MaintainedLake = None,
    forget: Annotated[
        list[str] | None, typer.Option("--forget", metavar="DIR", help="Remove the names of this id or path.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Give disks the names that people know: every answer then shows the path, with the id behind it.

    Without a source: the sources of the setting labels.sources are read again, and all names are listed.
    """
    from pipelines.cli.question import open_lake, print_json

    opened, settings = open_lake(lake, None, None)
    gone = {*(forget or ())}
    known = [each for each in opened.kept_names() if not gone & {each.directory_id, each.path}]
    if forget and len(known) == len(opened.kept_names()):
        raise UsageError(f"--forget {', '.join(forget)}: it has no names: jbod label lists all names")
    read, kept = _read(opened, sources or settings.labels.sources, known)
    from pipelines.lake.names import Names
    from pipelines.show.text import Screen, show_incomplete

    names = Names.of(kept)
    for line in (*read.notes, *names.conflicts):
        progress.notice(f"labels: {line}")
    if as_json:
        rows: list[dict[str, Any]] = [row._asdict() for row in kept]
        print_json({"statements": rows, "conflicts": names.conflicts, "notes": read.notes}, opened)
    else:
        show_incomplete(Screen(), opened)
        _show(kept, names)


def relabel(settings: Settings) -> list[str]:
    """Reads the names of directories into the lake again. Returns what could not be used or disagrees, a line each.

    A problem with the names is such a line, too: it does not fail a replay.
    """
    from pipelines.lake.names import Names
    from pipelines.lake.reader import Lake

    try:
        lake = Lake.open(settings.lake)
        read, kept = _read(lake, settings.labels.sources, lake.kept_names())
    except JbodError as problem:
        return [str(problem)]
    return [*read.notes, *Names.of(kept).conflicts]


def _read(lake: Lake, sources: Sequence[str], known: Sequence[Statement]) -> tuple[Read, list[Statement]]:
    """What the sources say, and the names with it, which the lake keeps from now on."""
    from pipelines.ask.log_dirs import merged, read_sources

    read = read_sources(lake, sources, known)
    kept = merged(known, read.statements)
    if kept != [*lake.kept_names()]:
        from pipelines.lake.labels import write_statements

        write_statements(lake.path, kept)
    return read, kept


def _show(kept: Sequence[Statement], names: Names) -> None:
    from pipelines.show.text import Screen, many, say, show_table

    out = Screen()  # the ids are shown beside the names
    say(out, f"{many(len(names.by_id), 'directory', 'directories')} with a name.", "bold")
    brokers = {statement.directory_id: statement.broker_id for statement in kept if statement.broker_id is not None}
    kinds: dict[str | None, list[str]] = {}
    for statement in kept:
        kinds.setdefault(statement.directory_id, []).append(statement.kind)
    rows = [
        (brokers.get(directory), name.path, name.label, directory, ", ".join(dict.fromkeys(kinds.get(directory, ()))))
        for directory, name in names.by_id.items()
    ]
    rows.sort(key=lambda row: (-1 if row[0] is None else row[0], row[1] or "", row[3]))
    if rows:
        headings = (">BROKER", "PATH", "LABEL", "DIRECTORY", "SAID BY")
        show_table(out, [(heading, itemgetter(at)) for at, heading in enumerate(headings)], rows)
    used = {name.path for name in names.by_id.values()}
    unused = [statement for statement in kept if statement.directory_id is None and statement.path not in used]
    if unused:
        say(out, f"{many(len(unused), 'label')} of a path that no directory is known to have:", "yellow")
    for statement in unused:
        place = "" if statement.broker_id is None else f"broker {statement.broker_id} "
        say(out, f"  {place}{statement.path} = {statement.label} ({statement.source})", hang=4)


_DELETE_SECONDS = 60.0
"""How often history is looked for that may be deleted."""


def mirror(
    quorum: Annotated[str, typer.Argument(metavar="kafka://HOST:PORT", help="The controllers, separated by commas.")],
    into: Annotated[str, typer.Option("--into", metavar="DIR", help="The folder of the copy, a metadata.log.dir.")],
    follow: Annotated[bool, typer.Option("--follow", help="Continue as the log grows, until Ctrl-C.")] = False,
    keep: Annotated[
        str | None, typer.Option("--keep", metavar="30d", help="Delete what is older. Default: nothing.")
    ] = None,
    lake: Annotated[
        list[str] | None,
        typer.Option("--lake", metavar="LAKE", help="With --keep: keep what this lake has not read yet, too."),
    ] = None,
    seed: Annotated[
        str | None, typer.Option("--seed", metavar="DIR", help="Begin a new copy with this copy of the files.")
    ] = None,
    command_config: CommandConfig = None,
) -> None:
    """Keep a byte-exact copy of the committed metadata log, which its controllers hand out with the high watermark."""
    from pipelines.lake.times import parse_age
    from pipelines.mirror.folder import MirrorFolder
    from pipelines.mirror.follow import Mirror
    from pipelines.quorum.client import QuorumClient, addresses_of
    from pipelines.quorum.connection import Halted
    from pipelines.quorum.security import security_of

    if not quorum.startswith(KAFKA):
        raise UsageError(f"{quorum}: write kafka://HOST:PORT[,HOST:PORT...], the controllers")
    if lake and keep is None:
        raise UsageError("--lake: says what --keep must not delete: give --keep, too")
    addresses, security = addresses_of(quorum), security_of(command_config or load().quorum.command_config)
    seconds = None if keep is None else parse_age("--keep", keep)
    needed = partial(_read_until, lake or ())
    with Interrupts() as interrupts:
        stopped: list[int] = []
        interrupts.stop = lambda: stopped.append(1)
        folder = MirrorFolder(into)
        source = QuorumClient(
            addresses,
            security,
            stop=lambda: bool(stopped),
            patience=float("inf") if follow else 60.0,
            notice=progress.notice,
        )
        copy = Mirror(source, folder, progress.notice)
        try:
            copy.begin(seed)
            deleted = 0.0
            while not copy.step() or follow:
                end = folder.end
                progress.say(f"offset {0 if end is None else end.offset} of {copy.high_watermark}")
                if seconds is not None and time.monotonic() - deleted > min(_DELETE_SECONDS, seconds):
                    copy.delete_before(seconds, needed)
                    deleted = time.monotonic()
            if seconds is not None:
                copy.delete_before(seconds, needed)
        except Halted:
            pass
        finally:
            source.close()
            folder.close()
    progress.say("")
    end = folder.end
    if end is not None:
        typer.echo(f"{into}: offsets {folder.first or 0} to {end.offset - 1}; {copy.begins}")
    if stopped and not follow:
        raise Stopped(interrupts.exit_code)


def _read_until(lakes: Sequence[str]) -> int | None:
    """The offset from which on one of the lakes has not read the log; None without lakes.

    A lake that cannot be read, or has nothing yet, may need all of the log.
    """
    from pipelines.lake.reader import Lake

    ends = []
    for lake in lakes:
        try:
            ends.append(Lake.open(lake).published.end_offset)
        except JbodError as problem:
            progress.notice(f"--keep deletes nothing: {problem}")
            ends.append(0)
    return min(ends, default=None)
