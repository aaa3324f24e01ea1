"""``python -m lab explore --trace``: whether a real log is a behaviour of the specification that is explored."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC
from pathlib import Path

import typer

from jbod_model.errors import JbodError
from jbod_model.formats.request_log_file import RequestLog
from jbod_model.ids import IdTable
from jbod_model.profiles import Profile
from lab.behaviour.files import behaviour
from lab.behaviour.show import behaviour_as_json, show_behaviour
from pipelines.cli.requests import zone_of


def explain(
    log_dir: Path,
    requests: Sequence[Path],
    configs: Mapping[str, str],
    time_zone: str | None,
    profile: Profile,
    ids: IdTable,
    *,
    as_json: bool,
) -> None:
    """Print the answer. Exit 0 if the log is a behaviour, 1 if not or if an invariant breaks without a known flaw.

    JbodError, so exit 2, where it is newer than the specification.
    """
    zone = zone_of(time_zone) if requests else UTC
    verdict = behaviour(log_dir, [RequestLog(path, zone) for path in requests], configs, profile, ids)
    if as_json:
        sys.stdout.write(json.dumps(behaviour_as_json(verdict)) + "\n")
    else:
        show_behaviour(verdict)
    if verdict.refused or verdict.breaches:
        raise typer.Exit(1)
    if verdict.end is not None:
        raise JbodError(f"not decidable from offset {verdict.end.offset} on: {verdict.end.problem}")
