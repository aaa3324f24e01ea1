"""``jbod metrics | alert``: metrics for a monitor, and alerts."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from jbod_model.errors import JbodError, UsageError
from pipelines.cli import progress
from pipelines.cli.lakes import open_lake, print_json
from pipelines.cli.options import AsJson, LakePath, Logs, Severity
from pipelines.show.text import many

if TYPE_CHECKING:
    from pipelines.metrics.destinations import Destination


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command("metrics", rich_help_panel="Questions, answered without a JVM")(metrics)
    app.command("alert", rich_help_panel="Checks")(alert)


def metrics(
    lake: LakePath = None,
    log: Logs = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write this file in one step instead; node_exporter's textfile collector reads *.prom."),
    ] = None,
    log_dir: Annotated[
        str | None, typer.Option("--log-dir", metavar="DIR", help="The log, to measure how far the lake is behind it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of Prometheus text.")] = False,
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Serve the metrics to Prometheus at this address, until interrupted."),
    ] = None,
    rules: Annotated[bool, typer.Option("--rules", help="Print alerting and recording rules for Prometheus.")] = False,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="Print a dashboard for Grafana to import.")] = False,
) -> None:
    """The state of the cluster and of the lake as Prometheus text."""
    if rules or dashboard or listen is not None:
        _refuse_others(out is not None, as_json, bool(log), listen is not None, rules, dashboard)
        if listen is not None:
            _serve(listen, lake, log_dir)
        else:
            from pipelines.metrics.dashboard import dashboard_text
            from pipelines.metrics.rules import rules_text

            sys.stdout.write(rules_text() if rules else dashboard_text())
        return
    from pipelines.metrics.behind import behind
    from pipelines.metrics.exposition import as_json as measured
    from pipelines.metrics.exposition import as_text, write
    from pipelines.metrics.findings import recorded
    from pipelines.metrics.measure import measure

    opened, settings = open_lake(lake, None, None, log)
    lag = None if log_dir is None else behind(log_dir, opened.published.end_offset)
    families = measure(
        opened,
        datetime.now(UTC),
        default_min_isr=settings.ask.min_insync_replicas,
        accepted_until=settings.check.losses_accepted_until,
        log=lag,
        found=recorded(opened),
    )
    if as_json:
        if out is not None:
            raise UsageError("--out and --json: give one of them: the file has Prometheus text")
        print_json(measured(families))
    elif out is None:
        sys.stdout.write(as_text(families))
    else:
        write(families, out)


def _refuse_others(*given: bool) -> None:
    if sum(given) > 1:
        names = ("--out", "--json", "--log", "--listen", "--rules", "--dashboard")
        told = [name for name, is_given in zip(names, given, strict=True) if is_given]
        raise UsageError(f"{' and '.join(told)}: give one of them")


def _serve(address: str, path: str | None, log_dir: str | None) -> None:
    """Serves until Ctrl-C or SIGTERM. A lake or log that cannot be read is reported, and read again by each scrape."""
    from pipelines.cli.interrupts import Interrupts
    from pipelines.metrics.serve import Listener, Measured
    from pipelines.settings import load

    settings = load(lake=path)
    measured = Measured(
        settings.lake,
        lambda line: typer.echo(f"jbod: {line}", err=True),
        log_dir,
        settings.ask.min_insync_replicas,
        settings.check.losses_accepted_until,
    )
    listener = Listener(address, measured)
    with Interrupts() as interrupts:
        interrupts.stop = listener.stop
        typer.echo(f"jbod: metrics of {settings.lake} at {listener.url}", err=True)
        progress.say("")
        listener.serve()


def alert(
    lake: LakePath = None,
    webhook: Annotated[str | None, typer.Option(metavar="URL", help="Post to this URL.")] = None,
    command: Annotated[
        str | None,
        typer.Option(metavar="CMD", help="Start this program, without a shell. It reads messages from standard input."),
    ] = None,
    severity: Annotated[Severity, typer.Option(help="Send findings of this severity, or worse.")] = Severity.warning,
    fail_on: Annotated[
        Severity | None,
        typer.Option("--fail-on", help="Exit with 1 if findings of this severity, or worse, are open."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tell a webhook or a command what jbod check found: once when it is new, once more when it is cleared."""
    from pipelines.check.definition import at_least
    from pipelines.metrics.alerts import Patience
    from pipelines.metrics.alerts import alert as send
    from pipelines.metrics.destinations import Command, Webhook
    from pipelines.metrics.findings import recorded

    opened, settings = open_lake(lake, None, None)
    given = webhook is not None
    webhook = webhook or None
    if webhook is None and command is None:
        webhook, command = settings.alert.webhook or None, settings.alert.command or None
    to: Destination | None = None
    if webhook is not None and command is None:
        to = Webhook(webhook)
    elif command is not None and webhook is None:
        to = Command(command)
    elif webhook is not None or not given:
        raise UsageError("--webhook URL or --command CMD: give one of them")
    found = recorded(opened)
    if found is None:
        raise UsageError(f"{opened.path}: no findings are kept there yet: run jbod check --lake {quote(opened.path)}")
    if to is None:
        _say_no_destination(sum(found.counts().values()), as_json)
    else:
        outcome = send(found, to, severity.value, Patience(settings.alert.timeout_seconds, settings.alert.tries))
        if as_json:
            print_json(outcome)
        elif outcome.problem is None:
            typer.echo(f"{outcome.new} new and {outcome.cleared} cleared sent to {outcome.destination}")
        if outcome.problem is not None:
            sent = outcome.new + outcome.cleared
            raise JbodError(
                f"{outcome.destination}: {outcome.problem}: {sent} of {sent + outcome.kept} sent, {outcome.kept} kept, "
                "to be sent by the next run"
            )
    if fail_on is not None and any(severity in at_least(fail_on.value) for _, severity in found.counts()):
        raise typer.Exit(1)


def _say_no_destination(count: int, as_json: bool) -> None:
    """Reports that nothing was sent. ``--webhook ''`` is valid: a job has it if its parameter is not set."""
    if as_json:
        print_json({"destination": None, "new": 0, "cleared": 0, "kept": count, "problem": "no destination is set"})
    else:
        typer.echo(
            f"no destination is set: nothing was sent, {many(count, 'finding')} open: give --webhook URL or --command "
            "CMD, or set alert.webhook or alert.command"
        )
