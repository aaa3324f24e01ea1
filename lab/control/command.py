"""``python -m lab control``: the reference controller answers a stream of requests in place of a real one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from jbod_model.errors import UsageError
from jbod_model.formats.request_log_file import RequestLog
from lab.control.files import control as run
from lab.control.show import outcome_as_json, show_control
from pipelines.cli.options import AsJson
from pipelines.cli.requests import Requests, TimeZone, zone_of


def control(
    requests: Requests = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write the log here: a new metadata.log.dir.")] = None,
    metadata_version: Annotated[
        str | None,
        typer.Option(
            "--metadata-version", help="Of the new cluster: 3.7-IV2. Default: the newest that its brokers support."
        ),
    ] = None,
    time_zone: TimeZone = None,
    as_json: AsJson = False,
) -> None:
    """Answer a stream of requests with the reference controller, and write the resulting metadata log."""
    if not requests or out is None:
        raise UsageError("--requests FILE and --out DIR are needed")
    zone = zone_of(time_zone)
    logs = [RequestLog(path, zone) for path in requests]
    controller = run(logs, out, metadata_version)
    if as_json:
        sys.stdout.write(json.dumps(outcome_as_json(controller, logs)) + "\n")
    else:
        show_control(controller, logs, out)
