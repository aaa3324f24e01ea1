"""``jbod offline | status | directories | history | image | dump``: the commands that only read."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.lakes import open_lake
from pipelines.cli.options import AtOffset, AtTime, LakePath, LogDirs, Logs
from pipelines.cli.question import Asked, Reply, question
from pipelines.show.columns import DIRECTORIES, HISTORY, OFFLINE, STATUS


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    for command in (offline, status, directories, history, image, dump):
        app.command(command.__name__)(command)


@question(OFFLINE, log_argument=True)
def offline(asked: Asked) -> Reply:
    """Which replicas are offline, why, since when, and what to do. Exit code 0 whatever the answer is."""
    from pipelines.ask.offline_replicas import causes
    from pipelines.ask.offline_replicas import offline as ask
    from pipelines.show.answers import show_offline

    answer = ask(asked.lake, asked.min_isr, asked.accepted_until)
    chosen = asked.choose(OFFLINE, answer.replicas)
    wanted = asked.wanted
    if wanted.filters:
        data = answer.data.only(wanted.keeps) if {*wanted.filters} - {"reason"} else answer.data
        rest = [one for one in answer.leaderless if wanted.keeps(one) and not {"dir", "reason"} & {*wanted.filters}]
        rest = [one for one in rest if not wanted.brokers or {*wanted.brokers} & {*one.replicas}]
        answer = answer.only(chosen.matching, data, causes(asked.lake, chosen.matching, data.last_copies), rest)
    return Reply(
        chosen,
        lambda: {
            **answer.as_json(()),
            "replicas": asked.objects(chosen, chosen.rows if wanted.orders else answer.replicas),
        },
        lambda: show_offline(answer, chosen, asked.every),
    )


@question(STATUS, log_argument=True)
def status(asked: Asked) -> Reply:
    """The lake and its cluster on one screen."""
    from pipelines.ask.json_values import jsonable
    from pipelines.ask.lake_status import status as ask
    from pipelines.show.answers import show_status

    answer = ask(asked.lake, asked.min_isr, asked.accepted_until)
    rows = [(name, value if isinstance(value, str) else json.dumps(value)) for name, value in jsonable(answer).items()]
    return Reply(asked.choose(STATUS, rows), lambda: answer, lambda: show_status(answer))


@question(DIRECTORIES, log_argument=True)
def directories(asked: Asked) -> Reply:
    """Every directory of every broker: whether it is online, since when, and what it holds."""
    from pipelines.ask.directory_list import directories as ask
    from pipelines.show.answers import show_directories

    answer = ask(asked.lake)
    chosen = asked.choose(DIRECTORIES, answer)
    return Reply(
        chosen,
        lambda: {**asked.position, "directories": asked.objects(chosen)},
        lambda: show_directories(asked.lake.offset, asked.lake.time, answer, chosen),
    )


@question(HISTORY)
def history(
    asked: Asked,
    partition: Annotated[str, typer.Argument(metavar="TOPIC[-PARTITION]", help="For instance orders-3, or orders.")],
) -> Reply:
    """The history of one partition, or of all partitions of a topic, record by record."""
    from pipelines.ask.partition_history import histories
    from pipelines.show.answers import show_history

    answer = histories(asked.lake, partition, asked.min_isr)
    events = sorted((event for one in answer for event in one.partition_events), key=lambda event: event.offset)
    chosen = asked.choose(HISTORY, events)
    of_topic = len(answer) != 1 or answer[0].name != partition
    said = {"histories": answer} if of_topic else {"history": answer[0]}
    return Reply(
        chosen,
        lambda: {**asked.position, **said, "events": asked.objects(chosen)},
        lambda: show_history(asked.lake.offset, answer, chosen),
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
    from pipelines.ask.metadata_image import image_text

    opened, _ = open_lake(lake, at_offset, at_time, log_dirs, log)
    sys.stdout.writelines(image_text(opened))
    sys.stdout.write("\n")


def dump(
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Segments (.log) or snapshots (.checkpoint).")],
    keep_unknown: Annotated[
        bool, typer.Option("--keep-unknown", help="Also print, undecoded, records of versions at which a replay stops.")
    ] = False,
) -> None:
    """Every record of log segments or snapshots as a line of JSON, control records included."""
    from jbod_model.formats.text import dump_lines

    for file in files:
        for line in dump_lines(Path(file), keep_unknown=keep_unknown):
            sys.stdout.write(json.dumps(line) + "\n")
