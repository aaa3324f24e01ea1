"""``jbod safe-to-restart | restart-plan``: questions before somebody restarts brokers (docs/restart.md)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from jbod_model.errors import UsageError
from pipelines.cli.question import Inquiry, Reply, question
from pipelines.lake.times import parse_span
from pipelines.show.columns import RESTART, RESTART_PLAN

if TYPE_CHECKING:
    from pipelines.ask.restart import RestartVerdict

_LOOKS = 1.0
"""Seconds between two looks of --wait."""

Kill = Annotated[bool, typer.Option("--kill", help="They are killed: no leader moves before they stop.")]
MaxAge = Annotated[
    str,
    typer.Option(
        "--max-age", metavar="60s", help="How old the newest record may be, unless --at-offset or --at-time is given."
    ),
]


@question(RESTART)
def safe_to_restart(
    query: Inquiry,
    brokers: Annotated[
        list[str], typer.Argument(metavar="ID", help="Brokers or controllers that restart at once: 3, or 3 4.")
    ],
    kill: Kill = False,
    max_age: MaxAge = "60s",
    wait: Annotated[
        str | None,
        typer.Option("--wait", metavar="10m", help="Look again until it is safe, for at most this long."),
    ] = None,
    blank: Annotated[
        list[str] | None,
        typer.Option("--blank", metavar="DIR", help="A blank disk takes the place of this directory of the broker."),
    ] = None,
    gone: Annotated[
        list[str] | None,
        typer.Option("--gone", metavar="DIR", help="This directory of the broker is taken out of log.dirs."),
    ] = None,
) -> Reply:
    """Whether brokers can be restarted now, and if not, why and until when.

    Exit code 0: safe, 1: not, 2: not decidable.
    """
    from pipelines.ask.restart import node_ids
    from pipelines.show.restart import show_verdict

    nodes = node_ids(brokers)
    seconds = parse_span("--max-age", max_age)
    answer, query = _waited(query, nodes, _Manner(kill, blank or (), gone or ()), seconds, wait)
    return query.reply(RESTART, answer, "stakes", show_verdict, answer.exit_code)


class _Manner(NamedTuple):
    """How the brokers restart."""

    kill: bool
    blank: Sequence[str]
    gone: Sequence[str]


def _waited(
    query: Inquiry, nodes: list[int], how: _Manner, max_age: float, wait: str | None
) -> tuple[RestartVerdict, Inquiry]:
    """The answer, and the inquiry that gave it: with ``wait``, the first that is safe, or the last one in time."""
    from pipelines.ask.restart import NOT_SAFE, SAFE, safe_to_restart
    from pipelines.show.restart import headline

    if wait is not None and query.is_past:
        raise UsageError("--wait looks at the newest offset: leave out --at-offset and --at-time")
    until = time.monotonic() + (0.0 if wait is None else parse_span("--wait", wait))
    last_line = ""
    while True:
        age = None if query.is_past else max_age
        answer = safe_to_restart(
            query.lake, nodes, query.min_isr, accepted_until=query.accepted_until, max_age=age, **how._asdict()
        )
        if wait is None or answer.verdict in (SAFE, NOT_SAFE) or time.monotonic() >= until:
            return answer, query
        line = (
            f"{headline(answer)}: {'; '.join([*answer.undecided, *(blocker.finding for blocker in answer.blocking)])}"
        )
        if line != last_line:
            typer.echo(line, err=True)
            last_line = line
        time.sleep(min(_LOOKS, max(0.0, until - time.monotonic())))
        query = Inquiry(query.given)


@question(RESTART_PLAN)
def restart_plan(
    query: Inquiry,
    brokers: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID", help="The brokers and controllers to restart; all of them without."),
    ] = None,
    max_parallel: Annotated[
        int | None, typer.Option("--max-parallel", metavar="N", min=1, help="At most this number in a batch.")
    ] = None,
    rack: Annotated[bool, typer.Option("--rack", help="A batch has brokers of one rack only.")] = False,
    following: Annotated[
        bool, typer.Option("--next", help="Print only the ids to restart now. Exit code 1: wait, 2: not decidable.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Leave out the nodes that have restarted since."),
    ] = None,
    max_age: MaxAge = "60s",
) -> Reply | None:
    """In which batches brokers can be restarted, so that every partition can be read and written all the time.

    Exit code 0: there is a plan for all of them, 1: not for all.
    """
    from pipelines.ask.restart import node_ids
    from pipelines.ask.restart_plan import restart_plan as ask
    from pipelines.lake.times import parse_time
    from pipelines.show.restart import show_plan

    answer = ask(
        query.lake,
        node_ids(brokers or ()),
        query.min_isr,
        max_parallel=max_parallel,
        by_rack=rack,
        since=None if since is None else parse_time(since, option="--since"),
        accepted_until=query.accepted_until,
        max_age=None if query.is_past else parse_span("--max-age", max_age),
    )
    if following:
        for line in answer.next.why:
            typer.echo(f"jbod: {line}", err=True)
        for node in answer.impossible:
            typer.echo(f"jbod: left out: {node.role} {node.node_id}: {node.finding}", err=True)
        if answer.next.batch:
            typer.echo(",".join(map(str, answer.next.batch)))
        raise typer.Exit(answer.next.exit_code)
    return query.reply(RESTART_PLAN, answer, "nodes", show_plan, 1 if answer.impossible or answer.down else 0)
