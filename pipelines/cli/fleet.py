"""``jbod fleet``: many clusters in one process, their replays and the questions to all of their lakes."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jbod_model.errors import UsageError
from pipelines.cli import progress
from pipelines.cli.options import AsJson, Group, Listen, MetricsFile
from pipelines.cli.progress import Interrupts, Stopped
from pipelines.cli.question import print_json

if TYPE_CHECKING:
    from pipelines.fleet.answers import FleetAnswer
    from pipelines.fleet.replay import Done

_MOST_TODO = 10
"""Commands that are listed."""
FleetFile = Annotated[Path, typer.Argument(metavar="FILE", help="The YAML file that lists the clusters.")]


class _ReplayByDefault(Group):
    """``jbod fleet FILE`` is ``jbod fleet replay FILE``. A word that looks like no file is a command, perhaps wrong."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = {*self.commands, *ctx.help_option_names}
        first = args[0] if args else ""
        replays = first.startswith("-") or Path(first).suffix or (first and Path(first).exists())
        rest: list[str] = super().parse_args(ctx, ["replay", *args] if replays and first not in known else args)
        return rest


def fleet() -> typer.Typer:
    """The group of commands."""
    group = typer.Typer(
        cls=_ReplayByDefault, help="Many clusters: jbod fleet FILE replays what is new.", no_args_is_help=True
    )
    group.command("replay")(replay)
    for function in (status, offline, check, risk, report, metrics):
        group.command(function.__name__)(function)
    return group


def replay(
    file: FleetFile,
    parallel: Annotated[int, typer.Option(min=1, max=64, help="How many clusters are replayed at a time.")] = 2,
    follow: Annotated[bool, typer.Option("--follow", help="Look again and again, until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Replay what is new in every cluster, in one process. Exit code: the highest of any cluster's replay."""
    from pipelines.cli.replay import relabel
    from pipelines.fleet.answers import keep_status
    from pipelines.fleet.clusters import FollowedFile
    from pipelines.fleet.replay import Fleet
    from pipelines.settings import load
    from pipelines.start.process import choose, share_heaps

    share_heaps()
    settings = load()
    choose(settings.spark.fast_start)
    listed = FollowedFile(file, progress.notice)
    clusters = [*listed]
    run = Fleet(listed, settings.spark, parallel, relabel, keep=keep_status, brief=not follow)
    rounds = run.rounds(settings.replay.follow_seconds) if follow else run.round()
    with Interrupts() as interrupts:
        interrupts.stop = run.stop
        outcomes = _listen(rounds, len(clusters), _as_they_come(as_json) if follow else None, interrupts)
    progress.say("")
    if not follow:
        order = {cluster.name: at for at, cluster in enumerate(clusters)}
        outcomes.sort(key=lambda done: order[done.name])
        _report(outcomes, as_json)
        if interrupts.signal:
            raise Stopped(interrupts.exit_code)
        if code := max(done.code for done in outcomes):
            raise typer.Exit(code)


def status(file: FleetFile, as_json: AsJson = False) -> None:
    """Every cluster in a line, worst first: what is lost, without leader, under min ISR or offline."""
    _ask("status", file, as_json)


def offline(file: FleetFile, as_json: AsJson = False) -> None:
    """The offline replicas of every cluster, by reason."""
    _ask("offline", file, as_json)


def check(file: FleetFile, as_json: AsJson = False) -> None:
    """What is wrong in every cluster: the findings by severity, and the first of the worst. Nothing is kept."""
    _ask("check", file, as_json)


def risk(file: FleetFile, as_json: AsJson = False) -> None:
    """What the worst next failure would cost in every cluster."""
    _ask("risk", file, as_json)


def report(
    file: FleetFile,
    out: Annotated[Path, typer.Option("--out", metavar="FILE.html", help="Where to write the page.")],
) -> None:
    """One page: every cluster, worst first, what to do, and a link to its own page if NAME.html is beside it."""
    from pipelines.fleet.answers import fleet_page, headline
    from pipelines.report.page import write_page

    answers = _answers("status", file)
    size = write_page(str(out), fleet_page(answers, out, datetime.now(UTC)))
    typer.echo(f"{out}: {size / 1e3:,.0f} kB. {headline(answers)}")
    _leave("status", answers)


def metrics(
    file: FleetFile,
    out: MetricsFile = None,
    listen: Listen = None,
) -> None:
    """The metrics of every cluster as Prometheus text, with the label cluster."""
    from pipelines.fleet.clusters import FollowedFile
    from pipelines.fleet.metrics import FleetMeasured
    from pipelines.metrics.declared import as_text, write
    from pipelines.metrics.serve import MetricsServer

    if out is not None and listen is not None:
        raise UsageError("--out and --listen: give one of them")

    def tell(line: str) -> None:
        typer.echo(f"jbod: {line}", err=True)

    measured = FleetMeasured(FollowedFile(file, tell), tell)
    if listen is None:
        families = measured.collect()
        if out is None:
            sys.stdout.write(as_text(families))
        else:
            write(families, out)
        return
    listener = MetricsServer(listen, measured)
    with Interrupts() as interrupts:
        interrupts.stop = listener.stop
        measured.collect()  # the first scrape would wait for all lakes
        progress.notice(f"metrics of {file} at {listener.url}")
        progress.say("")
        listener.serve()


def _ask(question: str, file: Path, as_json: bool) -> None:
    from pipelines.fleet.answers import states_of

    answers = _answers(question, file)
    if as_json:
        print_json({"states": states_of(answers), "clusters": [asdict(answer) for answer in answers]})
    else:
        _show(answers)
    _leave(question, answers)


def _answers(question: str, file: Path) -> list[FleetAnswer]:
    """Those of all clusters, worst first."""
    from pipelines.fleet.answers import ask_all
    from pipelines.fleet.clusters import read_fleet

    clusters = read_fleet(file)
    answers = []
    for number, answer in enumerate(ask_all(question, clusters), 1):
        answers.append(answer)
        progress.say(f"{number} of {len(clusters)} clusters")
    progress.say("")
    return sorted(answers, key=lambda answer: (answer.badness, answer.name))


def _leave(question: str, answers: Sequence[FleetAnswer]) -> None:
    """Exit code 2 if a lake cannot be read; of check, 1 if something is wrong or stale."""
    from pipelines.fleet.answers import CLEAN, UNREACHABLE

    states = {answer.state for answer in answers}
    if UNREACHABLE in states:
        raise typer.Exit(2)
    if question == "check" and states != {CLEAN}:
        raise typer.Exit(1)


def _show(answers: Sequence[FleetAnswer]) -> None:
    from pipelines.fleet.answers import headline
    from pipelines.show.text import Screen, show_table

    typer.echo(f"{headline(answers)}.\n")
    show_table(
        Screen(),
        (
            ("CLUSTER", "name"),
            ("STATE", "state"),
            ("NEWEST RECORD", lambda answer: answer.time and f"{answer.time:%Y-%m-%d %H:%M:%SZ}"),
            ("WHAT", "what"),
        ),
        answers,
    )
    todo = [*dict.fromkeys(answer.todo for answer in answers if answer.todo)]
    if todo:
        typer.echo("\nThen:")
    for command in todo[:_MOST_TODO]:
        typer.echo(f"  {command}")
    if len(todo) > _MOST_TODO:
        typer.echo(f"  and {len(todo) - _MOST_TODO} more: --json has all")


def _listen(
    rounds: Iterable[Done], clusters: int, tell: Callable[[Done], None] | None, interrupts: Interrupts
) -> list[Done]:
    """What the rounds did. With ``tell``, each is told at once and nothing is kept: rounds may go on for days."""
    outcomes: list[Done] = []
    for number, done in enumerate(rounds, 1):
        interrupts.listen()  # a new session replaces the handler
        if tell is not None:
            tell(done)
        else:
            outcomes.append(done)
            progress.say(f"{number} of {clusters} clusters")
        for line in done.notices:
            progress.notice(f"{done.name}: {line}")
    return outcomes


def _as_they_come(as_json: bool) -> Callable[[Done], None]:
    def tell(done: Done) -> None:
        if as_json:
            print_json(_object(done))
        else:
            typer.echo(str(done))
        sys.stdout.flush()

    return tell


def _object(done: Done) -> dict[str, Any]:
    fields = asdict(done)
    fields["exit_code"] = fields.pop("code")
    return fields


def _report(outcomes: Sequence[Done], as_json: bool) -> None:
    """The counts first, then what failed, then what was replayed."""
    counts = Counter(done.state for done in outcomes)
    if as_json:
        print_json({"states": dict(counts), "clusters": [_object(done) for done in outcomes]})
        return
    from pipelines.show.text import many

    states = ", ".join(f"{count} {state}" for state, count in counts.items())
    typer.echo(f"{many(len(outcomes), 'cluster', 'clusters')}: {states}")
    for done in sorted(outcomes, key=lambda done: -done.code):
        if done.state == "nothing new":
            progress.decision(str(done))
        else:
            typer.echo(f"  {done}")
