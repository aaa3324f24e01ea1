"""The questions: commands that only read a lake or a log."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jbod_model.errors import UsageError
from pipelines.cli import progress
from pipelines.cli.options import AsJson, AtOffset, AtTime, CommandConfig, LakePath, LogDirs, Logs, SizeSources
from pipelines.cli.question import Inquiry, Reply, open_lake, print_json, question, refuse_damage
from pipelines.show.columns import (
    CONFIG,
    DIRECTORIES,
    HISTORY,
    INCIDENTS,
    OFFLINE,
    OUTAGES,
    QUORUM,
    REMOVAL,
    RISK,
    STATUS,
    UPGRADE,
    WHATIF,
)
from pipelines.show.columns_plans import SIZES
from pipelines.show.rows import Format

if TYPE_CHECKING:
    from pipelines.settings import Settings
    from pipelines.show.text import Screen


@question(OFFLINE, log_argument=True)
def offline(query: Inquiry, sizes: SizeSources = None) -> Reply:
    """Which replicas are offline, why, since when, and what to do. Exit code 0 whatever the answer is."""
    from pipelines.ask.offline_replicas import causes
    from pipelines.ask.offline_replicas import offline as ask
    from pipelines.ask.weights import weights
    from pipelines.show.answers import show_offline

    bytes_known = weights(query.lake, sizes or ())
    answer = ask(query.lake, query.min_isr, query.accepted_until, bytes_known)
    chosen = query.choose(OFFLINE, answer.replicas)
    wanted = query.wanted
    if wanted.filters:
        data = answer.data.only(wanted.keeps) if {*wanted.filters} - {"reason"} else answer.data
        why = causes(query.lake, chosen.matching, data.last_copies, bytes_known)
        answer = answer.only(
            chosen.matching,
            data,
            why,
            lambda partition: (
                wanted.keeps(partition)
                and not {"dir", "reason"} & {*wanted.filters}
                and (not wanted.brokers or not {*wanted.brokers}.isdisjoint(partition.replicas))
            ),
        )
    return Reply(
        chosen,
        lambda: {
            **answer.as_json(),
            "replicas": query.objects(chosen, chosen.rows if wanted.orders else answer.replicas),
        },
        lambda out: show_offline(out, answer, chosen, query.every),
        of_losses=True,
    )


@question(STATUS, log_argument=True)
def status(query: Inquiry) -> Reply:
    """The lake and its cluster on one screen."""
    from pipelines.ask.json_values import jsonable
    from pipelines.ask.lake_status import status as ask
    from pipelines.show.answers import show_status

    answer = ask(query.lake, query.min_isr, query.accepted_until)
    rows = [(name, value if isinstance(value, str) else json.dumps(value)) for name, value in jsonable(answer).items()]
    return Reply(query.choose(STATUS, rows), lambda: answer, lambda out: show_status(out, answer))


@question(DIRECTORIES, log_argument=True)
def directories(query: Inquiry) -> Reply:
    """Every directory of every broker: whether it is online, since when, and what it holds."""
    from pipelines.ask.lake_status import directories as ask
    from pipelines.show.answers import show_directories

    lake, answer = query.lake, ask(query.lake)
    return query.listing(
        DIRECTORIES,
        answer,
        "directories",
        lambda out, chosen: show_directories(out, lake.offset, lake.time, answer, chosen),
    )


@question(HISTORY)
def history(
    query: Inquiry,
    partition: Annotated[str, typer.Argument(metavar="TOPIC[-PARTITION]", help="For instance orders-3, or orders.")],
) -> Reply:
    """The history of one partition, or of all partitions of a topic, record by record."""
    from pipelines.ask.partition_history import histories
    from pipelines.show.answers import show_history

    answer = histories(query.lake, partition, query.min_isr)
    events = sorted(
        (event for partition_history in answer for event in partition_history.partition_events),
        key=lambda event: event.offset,
    )
    chosen = query.choose(HISTORY, events)
    of_topic = len(answer) != 1 or answer[0].name != partition
    content = {"histories": answer} if of_topic else {"history": answer[0]}
    return Reply(
        chosen,
        lambda: {**query.position, **content, "events": query.objects(chosen)},
        lambda out: show_history(out, query.lake.offset, answer, chosen, query.every),
    )


def image(
    log_dirs: LogDirs = None,
    lake: LakePath = None,
    log: Logs = None,
    at_offset: AtOffset = None,
    at_time: AtTime = None,
    _as_json: Annotated[bool, typer.Option("--json", help="The only output format; may be omitted.")] = False,
) -> None:
    """The whole state as one JSON object, in the shape of a Kafka metadata image."""
    from pipelines.ask.json_values import image_text

    opened, _ = open_lake(lake, at_offset, at_time, log_dirs, log)
    opened.check_files()  # before the first line is printed
    sys.stdout.writelines(image_text(opened))
    sys.stdout.write("\n")
    refuse_damage(opened)


def dump(
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Segments (.log) or snapshots (.checkpoint).")],
    keep_unknown: Annotated[
        bool, typer.Option("--keep-unknown", help="Also print, undecoded, records of versions at which a replay stops.")
    ] = False,
) -> None:
    """Every record of log segments or snapshots as a line of JSON, control records included."""
    from jbod_model.formats.json_values import dump_lines

    for file in files:
        if Path(file).is_dir():
            raise UsageError(f"{file}: a directory: name the files in it, *.log or *.checkpoint")
        for line in dump_lines(Path(file), keep_unknown=keep_unknown):
            sys.stdout.write(json.dumps(line) + "\n")


@question(INCIDENTS, OUTAGES)
def incidents(
    query: Inquiry,
    number: Annotated[int | None, typer.Argument(metavar="NO", help="One incident, replica by replica.")] = None,
) -> Reply:
    """Every failed directory and lost broker so far: what it took, who took over, how it came back. Exit code 0."""
    from pipelines.ask.incident_list import details
    from pipelines.ask.incident_list import incidents as ask
    from pipelines.ask.json_values import jsonable
    from pipelines.ask.moves import asking, count_moves
    from pipelines.show.incidents import show_details, show_incidents, show_moving

    lake = query.lake
    if number is not None:
        incident = details(lake, number, query.min_isr)
        chosen = query.choose(OUTAGES, incident.outages)
        return Reply(
            chosen,
            lambda: {**query.position, **jsonable(incident), "outages": query.objects(chosen)},
            lambda out: show_details(out, incident, chosen, lake.time, query.every),
        )
    answer = ask(lake, query.min_isr)
    chosen = query.choose(INCIDENTS, answer)
    moved, queue = count_moves(lake), asking(lake)

    def show(out: Screen) -> None:
        show_incidents(out, lake.offset, lake.time, answer, chosen, query.every)
        show_moving(out, moved, queue)

    return Reply(
        chosen,
        lambda: {
            **query.position,
            "incidents": query.objects(chosen),
            "moves": moved,
            "assignment_queue": queue,
        },
        show,
        of_losses=True,
    )


@question(RISK, log_argument=True)
def risk(query: Inquiry, sizes: SizeSources = None) -> Reply:
    """For each directory and broker: what would be lost if it failed now, worst first. Exit code 0."""
    from pipelines.ask.json_values import jsonable
    from pipelines.ask.risk import risk as ask
    from pipelines.ask.weights import weights
    from pipelines.show.risk import show_risk

    answer = ask(query.lake, query.min_isr, weights(query.lake, sizes or ()))
    chosen = query.choose(RISK, [*answer.brokers, *answer.directories])
    shown = replace(
        answer,
        brokers=[exposure for exposure in chosen.rows if exposure.directory_id is None],
        directories=[exposure for exposure in chosen.rows if exposure.directory_id is not None],
    )
    return Reply(
        chosen,
        lambda: {
            **jsonable(shown),
            "brokers": query.objects(chosen, shown.brokers),
            "directories": query.objects(chosen, shown.directories),
        },
        lambda out: show_risk(out, answer, shown, chosen, query.every),
    )


@question(WHATIF, CONFIG)
def whatif(
    query: Inquiry,
    fail: Annotated[
        list[str] | None,
        typer.Option(
            "--fail",
            metavar="BROKER[:DIR]",
            help="What fails; give it several times. DIR is an id, the beginning of one, a path or a label.",
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="NAME=VALUE",
            help="What is set, for --topic or --broker, else for all brokers: min.insync.replicas, "
            "unclean.leader.election.enable or eligible.leader.replicas.version.",
        ),
    ] = None,
) -> Reply:
    """What would happen if these brokers and directories failed at once, or if a configuration changed, partition by
    partition. Exit code 0."""
    from rich.console import Console

    if bool(fail) == (config is not None):
        raise UsageError("jbod whatif: give --fail BROKER[:DIR], once or several times, or --config NAME=VALUE")
    with Console(stderr=True, quiet=progress.is_quiet()).status(
        "Asking the controller about every partition that is touched"
    ):
        if config is None:
            from pipelines.ask.whatif import whatif as ask
            from pipelines.show.risk import show_whatif

            return query.reply(WHATIF, ask(query.lake, fail or (), query.min_isr), "changes", show_whatif)
        from pipelines.ask.whatif_config import whatif_config
        from pipelines.show.risk import show_config

        wanted = query.wanted
        changes = whatif_config(query.lake, config, wanted.topics, wanted.brokers, query.min_isr)
        return query.reply(CONFIG, changes, "changes", show_config)


@question(REMOVAL)
def safe_to_remove(
    query: Inquiry,
    directory: Annotated[str, typer.Argument(metavar="BROKER:DIR", help="For instance 1:r60J, or 1:/data/disk1b.")],
) -> Reply:
    """Whether a directory can be removed, and what to do first. Exit code 0: safe, 1: not, 2: no such directory."""
    from pipelines.ask.removal import safe_to_remove as ask
    from pipelines.show.risk import show_removal

    answer = ask(query.lake, directory, query.min_isr, query.accepted_until)
    return query.reply(REMOVAL, answer, "held", show_removal, 0 if answer.safe else 1)


@question(QUORUM, log_argument=True)
def quorum(
    query: Inquiry,
    live: Annotated[
        str | None,
        typer.Option("--live", metavar="kafka://HOST:PORT", help="Ask the leader how far each node is behind it."),
    ] = None,
) -> Reply | None:
    """Leader, epoch, voters and observers; registered and unregistered controllers.

    The exit code is 0 for every answer.
    """
    if live is not None:
        _show_live_quorum(query, live)
        return None
    from pipelines.ask.json_values import jsonable
    from pipelines.ask.quorum import quorum as ask
    from pipelines.show.quorum import node_rows, show_quorum

    answer = ask(query.lake, _ghost_after(query.settings))
    chosen = query.choose(QUORUM, node_rows(answer))
    return Reply(
        chosen,
        lambda: {**jsonable(answer), "nodes": query.objects(chosen)},
        lambda out: show_quorum(out, answer, chosen),
    )


def _show_live_quorum(query: Inquiry, url: str) -> None:
    """Asks the leader, and prints its answer."""
    from pipelines.quorum.client import QuorumClient, addresses_of
    from pipelines.quorum.live import live_quorum
    from pipelines.quorum.security import security_of
    from pipelines.settings import load
    from pipelines.show.quorum import show_live_quorum
    from pipelines.show.text import Screen

    if query.given.logs or query.given.lake is not None or query.is_past:
        raise UsageError("--live asks the quorum as it is now: leave out lake, log, --at-offset and --at-time")
    if query.given.form not in (Format.table, Format.json):
        raise UsageError(f"--live and --format {query.given.form}: the answer is text or --json")
    leader = QuorumClient(addresses_of(url), security_of(load().quorum.command_config), notice=progress.notice)
    try:
        answer = live_quorum(leader)
    finally:
        leader.close()
    if query.given.form is Format.json:
        print_json(answer)
    else:
        show_live_quorum(Screen(), answer)


@question(UPGRADE, log_argument=True)
def upgrade_check(
    query: Inquiry,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="RELEASE",
            help="4.4, 4.4-IV2, or a level of one feature: kraft.version=1. Without: what blocks the next levels.",
        ),
    ] = None,
) -> Reply:
    """Whether all nodes support a feature level, who blocks it, and what to do. Exit code 0: ready, 1: blocked."""
    from pipelines.ask.upgrade import upgrade_check as ask
    from pipelines.show.quorum import show_upgrade_check

    answer = ask(query.lake, to, _ghost_after(query.settings))
    return query.reply(UPGRADE, answer, "features", show_upgrade_check, 0 if answer.ready else 1)


def _ghost_after(settings: Settings) -> timedelta:
    """How long a broker may be fenced before it counts as a ghost."""
    return timedelta(hours=settings.check.offline_hours)


def report(
    log_dirs: LogDirs = None,
    lake: LakePath = None,
    log: Logs = None,
    out: Annotated[str | None, typer.Option("--out", metavar="FILE.html", help="Where to write the page.")] = None,
    at_offset: AtOffset = None,
    at_time: AtTime = None,
    sizes: SizeSources = None,
    as_json: AsJson = False,
) -> None:
    """One self-contained page: the state of the cluster, what is offline and why, what to do, with charts."""
    if out is None and not as_json:
        raise UsageError("give --out FILE.html for the page, or --json for its numbers")
    from pipelines.report.content import gather

    opened, settings = open_lake(lake, at_offset, at_time, log_dirs, log)
    content = gather(opened, settings, sizes or ())
    if out is not None:
        from pipelines.report.page import page, write_page

        size = write_page(out, page(content))
        typer.echo(f"{out}: {size / 1e3:,.0f} kB. {content.headline}", err=as_json)
    if as_json:
        print_json(content.as_json(), opened)
    refuse_damage(opened)


@question(SIZES)
def sizes(
    query: Inquiry,
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SOURCE",
            help="A cluster (kafka://BROKER:PORT), a file that kafka-log-dirs --describe printed, mounted disks, or a "
            "folder with them. Without one: what was kept.",
        ),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the sizes in the lake, for what grows and how fast.")
    ] = False,
    command_config: CommandConfig = None,
) -> Reply:
    """How full each directory is, and what fills it. Exit code 0 whatever the answer is."""
    from pipelines.ask.sizes import keep as keep_in_lake
    from pipelines.ask.sizes import kept
    from pipelines.ask.sizes import sizes as ask
    from pipelines.show.sizes import show_sizes

    if keep and (query.is_log or not sources):
        raise UsageError("--keep: name a source, and the lake that keeps what it says (--lake)")
    answer = ask(query.lake, sources, command_config or "") if sources else kept(query.lake)
    for line in answer.notes:
        progress.notice(f"sizes: {line}")
    if keep:
        new = keep_in_lake(query.lake, answer)
        progress.notice(f"sizes of {new:,} directories are kept" if new else "these sizes were kept before")
    return query.reply(SIZES, answer, "directories", show_sizes)
