"""``jbod audit | moves``: compares a controller's request log with its metadata log."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from datetime import UTC, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Annotated
from zoneinfo import ZoneInfo

import typer

from jbod_model.errors import JbodError, UsageError
from pipelines.cli.options import AsJson
from pipelines.cli.question import Asked, Reply, question
from pipelines.show.columns import MOVES

Requests = Annotated[
    list[Path] | None,
    typer.Option("--requests", metavar="FILE", help="A controller's request log, plain or gzipped; may be repeated."),
]
StaticConfigs = Annotated[
    list[str] | None,
    typer.Option("--config", help="Of the controller's own file: min.insync.replicas=2; may be repeated."),
]
TimeZone = Annotated[
    str | None,
    typer.Option("--time-zone", help="Time zone of lines that name none: Europe/Berlin, +02:00."),
]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command("audit")(audit)
    app.command("moves")(moves)


def audit(
    log_dir: Annotated[Path, typer.Argument(metavar="LOG_DIR", help="The controller's metadata log.")],
    requests: Requests = None,
    lake: Annotated[str | None, typer.Option("--lake", help="Write the table audit into this lake.")] = None,
    invariants: Annotated[bool, typer.Option("--invariants", help="Check the invariants of the log itself.")] = False,
    config: StaticConfigs = None,
    time_zone: TimeZone = None,
    as_json: AsJson = False,
) -> None:
    """Did the controller write what it should have? Exit 0 if so or for a known reason, 1 if not, 2 if undecidable.

    The audit knows Kafka up to 4.4. Anything newer is undecidable: neither a difference nor clean.
    """
    if not requests and not invariants:
        raise UsageError("nothing to audit: give --requests FILE, --invariants or both")
    if lake is not None and not requests:
        raise UsageError("--lake is for the verdicts on requests: give --requests FILE too")
    from jbod_model.formats.request_log_file import RequestLog
    from pipelines.audit.files import audit as run

    zone = zone_of(time_zone) if requests else UTC
    logs = [RequestLog(path, zone) for path in requests or ()]
    summary = run(log_dir, logs, lake, static_configs(config or ()), invariants=invariants)
    if as_json:
        sys.stdout.write(json.dumps(summary.as_json(logs)) + "\n")
    else:
        from pipelines.show.audit import show_audit

        show_audit(summary, logs)
    if summary.found:
        raise typer.Exit(1)
    if summary.undecided_because is not None:
        raise JbodError(summary.undecided_because)


@question(MOVES, log_argument=True)
def moves(asked: Asked) -> Reply:
    """Replicas that moved between the disks of their broker: when asked, accepted, and whether they stayed."""
    from pipelines.ask.moves import moves as ask
    from pipelines.show.audit_moves import show_moves

    answer = ask(asked.lake)
    chosen = asked.choose(MOVES, answer)
    return Reply(
        chosen,
        lambda: {**asked.position, "moves": asked.objects(chosen)},
        lambda: show_moves(asked.lake.offset, asked.lake.time, answer, chosen),
    )


def static_configs(given: Sequence[str]) -> dict[str, str]:
    """``min.insync.replicas=2`` -> name and value. Raises UsageError for another name, or if there is no value."""
    from jbod_model.controller.cluster import TOPIC_CONFIG_DEFAULTS

    configs = dict(one.partition("=")[::2] for one in given)
    for name, value in configs.items():
        if name not in TOPIC_CONFIG_DEFAULTS or not value:
            raise UsageError(f"--config {name}={value}: give a value of {' or '.join(TOPIC_CONFIG_DEFAULTS)}")
    return configs


def zone_of(name: str | None) -> tzinfo:
    """A zone by name or UTC offset, for None the setting requests.time_zone. Raises UsageError for an unknown zone."""
    if name is None:
        from pipelines.settings import load

        name = load().requests.time_zone
    found = re.fullmatch(r"([+-])([01]\d):?([0-5]\d)", name, re.ASCII)
    if found is not None:
        distance = timedelta(hours=int(found[2]), minutes=int(found[3]))
        return timezone(-distance if found[1] == "-" else distance)
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise UsageError(f"--time-zone {name}: no such time zone: write UTC, +02:00 or Europe/Berlin") from None
