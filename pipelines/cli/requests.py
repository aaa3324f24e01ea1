"""``jbod audit | moves | assignments``: what a controller's request log says, beside its metadata log."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, timedelta, timezone, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo

import typer

from jbod_model.errors import JbodError, UsageError
from pipelines.cli.options import AsJson, take_log
from pipelines.cli.question import Inquiry, Reply, question
from pipelines.show.columns import ASSIGNMENTS, MOVES, QUEUE, REQUESTS

if TYPE_CHECKING:
    from pipelines.ask.assignment_requests import Assignments, LastRequest, Request
    from pipelines.lake.reader import Lake
    from pipelines.show.rows import Chosen
    from pipelines.show.text import Screen


def _files(given: list[Path] | None) -> list[Path]:
    """Each file once. What matches nothing stays as given."""
    from pipelines.source.request_files import files_of

    paths = (path for pattern in given or () for path in [*files_of([str(pattern)])] or [str(pattern)])
    return [*dict.fromkeys(map(Path, paths))]


Requests = Annotated[
    list[Path] | None,
    typer.Option(
        "--requests",
        metavar="FILE",
        help="A controller's request log, or a glob of rotated ones; may be repeated.",
        callback=_files,
    ),
]
StaticConfigs = Annotated[
    list[str] | None,
    typer.Option("--config", help="Of the controller's own file: min.insync.replicas=2; may be repeated."),
]
TimeZone = Annotated[
    str | None,
    typer.Option("--time-zone", help="Time zone of lines that name none: Europe/Berlin, +02:00."),
]


def audit(
    log_dir: Annotated[
        str,
        typer.Argument(
            metavar="LOG_DIR", help="The controller's metadata log; -: a tar stream of it.", callback=take_log
        ),
    ],
    requests: Requests = None,
    lake: Annotated[str | None, typer.Option("--lake", help="Write the table audit into this lake.")] = None,
    invariants: Annotated[bool, typer.Option("--invariants", help="Check the invariants of the log itself.")] = False,
    config: StaticConfigs = None,
    time_zone: TimeZone = None,
    as_json: AsJson = False,
) -> None:
    """Did the controller write what it should have? Exit code 0: so, or for a known reason, 1: not, 2: undecidable.

    The audit knows Kafka up to 4.4. Anything newer is undecidable: neither a difference nor clean.
    """
    if not requests and not invariants:
        raise UsageError("nothing to audit: give --requests FILE, --invariants or both")
    if lake is not None and not requests:
        raise UsageError("--lake is for the verdicts on requests: give --requests FILE too")
    from jbod_model.formats.request_log_file import RequestLog
    from pipelines.audit import audit as run

    zone = zone_of(time_zone) if requests else UTC
    logs = [RequestLog(path, zone) for path in requests or ()]
    summary = run(Path(log_dir), logs, lake, static_configs(config or ()), invariants=invariants)
    if as_json:
        sys.stdout.write(json.dumps(summary.as_json(logs)) + "\n")
    else:
        from pipelines.show.audit import show_audit
        from pipelines.show.text import Screen

        show_audit(Screen(), summary, logs)
    if summary.has_findings:
        raise typer.Exit(1)
    if summary.undecided_because is not None:
        raise JbodError(summary.undecided_because)


@question(MOVES, log_argument=True)
def moves(query: Inquiry) -> Reply:
    """Replicas that moved between the disks of their broker: when asked, accepted, and whether they stayed."""
    from pipelines.ask.moves import moves as ask
    from pipelines.show.incidents import show_moves

    lake, answer = query.lake, ask(query.lake)
    return query.listing(
        MOVES, answer, "moves", lambda out, chosen: show_moves(out, lake.offset, lake.time, answer, chosen)
    )


def static_configs(given: Sequence[str]) -> dict[str, str]:
    """``min.insync.replicas=2`` -> name and value. Raises UsageError for another name, or if there is no value."""
    from jbod_model.controller.cluster import TOPIC_CONFIG_DEFAULTS

    configs = dict(setting.partition("=")[::2] for setting in given)
    for name, value in configs.items():
        if name not in TOPIC_CONFIG_DEFAULTS or not value:
            raise UsageError(f"--config {name}={value}: give a value of {' or '.join(TOPIC_CONFIG_DEFAULTS)}")
    return configs


def zone_of(name: str | None) -> tzinfo:
    """A zone by name or UTC offset, for None the setting requests.time_zone. Raises UsageError for an unknown zone."""
    if name is None:
        from pipelines.settings import load

        name = load().requests.time_zone
    match = re.fullmatch(r"([+-])([01]\d):?([0-5]\d)", name, re.ASCII)
    if match is not None:
        distance = timedelta(hours=int(match[2]), minutes=int(match[3]))
        return timezone(-distance if match[1] == "-" else distance)
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise UsageError(f"--time-zone {name}: no such time zone: write UTC, +02:00 or Europe/Berlin") from None


@question(ASSIGNMENTS, REQUESTS, QUEUE)
def assignments(
    query: Inquiry,
    partition: Annotated[
        str | None, typer.Argument(metavar="TOPIC-PARTITION", help="Only the requests about this partition.")
    ] = None,
    queue: Annotated[
        float | None, typer.Option("--queue", metavar="SECONDS", help="The queue of each broker, in such steps.")
    ] = None,
) -> Reply:
    """Replicas whose directory the controller does not know, for how long, and their brokers' last requests.

    Needs request logs: jbod replay LOG_DIR --requests FILE.
    """
    from pipelines.ask import assignment_requests as ask
    from pipelines.ask.json_values import jsonable
    from pipelines.ask.partition_history import partition_named

    if queue is not None and not 0.001 <= queue <= 10**9:
        raise UsageError(f"--queue {queue}: seconds from 0.001 on")
    if partition is not None and queue is not None:
        raise UsageError("--queue is about brokers, not about a partition: give one of them")
    if partition is not None:
        requests = ask.requests_of(query.lake, *partition_named(query.lake, partition))
        return query.listing(REQUESTS, requests, "requests", lambda out, chosen: _show_requests(out, partition, chosen))
    if queue is not None:
        steps = ask.queue(query.lake, timedelta(seconds=queue))
        return query.listing(QUEUE, steps, "queue", lambda out, chosen: _show_queue(out, query.lake, chosen))
    check = query.settings.check
    answer = ask.assignments(query.lake, check.refusals, timedelta(hours=check.window_hours))
    chosen = query.choose(ASSIGNMENTS, answer.unassigned)
    keeps = query.wanted.keeps
    shown = replace(
        answer,
        unassigned=chosen.rows,
        refused=[replica for replica in answer.refused if keeps(replica)],
        retry_loops=[loop for loop in answer.retry_loops if keeps(loop)],
    )
    return Reply(
        chosen,
        lambda: {**jsonable(shown), "unassigned": query.objects(chosen)},
        lambda out: _show(out, shown, chosen),
    )


def _show(out: Screen, answer: Assignments, chosen: Chosen) -> None:
    from pipelines.show.answers import broker_and_state, since_offset
    from pipelines.show.text import age, many, partition_name, say, show_table, when

    request = (
        ("ASKED", lambda row: row.last_request and f"{age(row.last_request.requested_time, answer.time)} ago"),
        ("DIRECTORY", lambda row: row.last_request and row.last_request.directory_id),
        ("ANSWER", lambda row: row.last_request and _answered(row.last_request)),
    )
    known = "does not know the directory of " + many(chosen.of, "replica")
    if not chosen.of and not answer.migrating:
        known = "knows the directory of every replica"
    say(
        out,
        f"At offset {answer.offset}, {when(answer.time)}: the controller {known}.",
        "bold red" if chosen.of else "green",
    )
    if answer.migrating:
        before = many(answer.migrating, "more replica")
        say(out, f"{before} from before directories were recorded (MIGRATING): a start under KRaft reports them.")
    if chosen.line:
        say(out, f"{chosen.line}.", "bold yellow")
    if not answer.seen:
        say(out, "No requests are known: jbod replay LOG_DIR --requests FILE adds them to a lake.")
    else:
        outcomes = ", ".join(f"{count:,} {outcome}" for outcome, count in answer.outcomes.items())
        say(
            out,
            f"{many(sum(answer.outcomes.values()), 'assignment')} requested" + (f": {outcomes}." if outcomes else "."),
        )
        if answer.median_ms is not None:
            say(
                out,
                f"From the first request to the record: half within {answer.median_ms} ms, all within "
                f"{answer.slowest_ms} ms.",
            )
        for why, count in answer.not_in_the_log.items():
            say(out, f"{many(count, 'accepted assignment')} not in the log: {why}.", "red")
        if answer.unreadable:
            say(out, f"{many(answer.unreadable, 'line')} of the request logs could not be read: table request_rejects.")
    if answer.unassigned:
        say(out)
        show_table(
            out,
            (
                ("PARTITION", partition_name),
                (">BROKER", broker_and_state),
                (">SINCE", since_offset),
                (">FOR", lambda replica: age(replica.from_time, answer.time)),
                ("IS", "state"),
                *request,
            ),
            answer.unassigned,
        )
    if answer.refused:
        say(out)
        say(out, "Refused, and in another directory than their brokers reported:", "bold red")
        show_table(
            out,
            (("PARTITION", partition_name), (">BROKER", "broker_id"), ("RECORDED", "directory_id"), *request),
            answer.refused,
        )
    if answer.retry_loops:
        say(out)
        say(out, "Refused repeatedly:", "bold red")
        show_table(
            out,
            (
                ("PARTITION", lambda loop: f"{loop.topic or loop.topic_id}-{loop.partition}"),
                (">BROKER", "broker_id"),
                ("DIRECTORY", "directory_id"),
                ("ANSWER", "error"),
                (">ATTEMPTS", "attempts"),
                ("FIRST", "first_time"),
                ("LAST", "last_time"),
            ),
            answer.retry_loops,
        )


def _after(row: Request) -> str | None:
    latency = row.last_request.latency_ms
    return None if latency is None else f"{latency} ms"


def _answered(request: LastRequest) -> str:
    again = f", attempt {request.attempt}" if request.attempt > 1 else ""
    return (request.error or request.outcome) + again


def _show_requests(out: Screen, name: str, chosen: Chosen) -> None:
    from pipelines.show.text import many, say, show_table

    say(out, f"{name}: {many(len(chosen.rows), 'assignment')} requested.", "bold")
    show_table(
        out,
        (
            ("TIME", "last_request.requested_time"),
            (">BROKER", "broker_id"),
            ("DIRECTORY", "last_request.directory_id"),
            (">ATTEMPT", "last_request.attempt"),
            ("ANSWER", lambda row: row.last_request.error or row.last_request.outcome),
            (">RECORD", "last_request.realised_offset"),
            (">AFTER", _after),
        ),
        chosen.rows,
    )


def _show_queue(out: Screen, lake: Lake, steps: Chosen) -> None:
    from pipelines.ask.assignment_requests import requests_until
    from pipelines.show.text import say, show_selection, show_table

    if requests_until(lake) is None:
        say(
            out,
            "No requests are known, so nobody can say how long the brokers' queues were: only a controller's request "
            "log has them, and jbod replay LOG_DIR --requests FILE adds it to a lake.",
        )
        return
    if not steps.of:
        say(out, f"Up to offset {lake.offset}, no broker requested an assignment, and no replica waited for one.")
        return
    show_selection(out, steps)
    if not steps.rows:
        return
    show_table(
        out,
        (
            ("TIME", "start"),
            (">BROKER", "broker_id"),
            (">REQUESTS", "requests"),
            (">ENTRIES", "entries"),
            (">LARGEST", "largest"),
            (">RETRIES", "retries"),
            (">REFUSED", "refused"),
            (">ANSWER MS", "answer_ms"),
            (">RECORD MS", "latency_ms"),
            (">WAITING", "waiting"),
        ),
        steps.rows,
    )
