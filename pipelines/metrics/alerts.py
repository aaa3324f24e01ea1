"""Sends findings to a destination: once when they are new, and once when they are cleared.

A file per destination beside the lake records the delivered messages. It is written after each delivery, so a later run
sends the undelivered messages, and none is sent twice. The only exception is a run that is killed after a delivery and
before the write: the message is sent again with the same key.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout

from jbod_model.errors import JbodError, UsageError
from pipelines.ask.json_values import camel_case, jsonable
from pipelines.check.definition import Severity, at_least, subject
from pipelines.metrics.destinations import Destination, Undelivered
from pipelines.metrics.findings import Recorded
from pipelines.storage import objects
from pipelines.storage.lease import Held, Lease
from pipelines.storage.objects import is_object

FOLDER = "alerts"
PER_MESSAGE = 200
_FORMAT = 1

Event = Literal["new", "cleared"]
Row = dict[str, Any]


@dataclass
class State:
    """The state of a destination: the newest delivered event of each finding.

    Findings that are not in ``told`` and were cleared before the offset ``settled`` are never sent.
    """

    since: int
    told: dict[str, Event] = field(default_factory=dict)


@dataclass(frozen=True)
class Delivery:
    """The events of a run: delivered ones, and those kept for the next run because of ``problem``."""

    destination: str
    new: int
    cleared: int
    kept: int
    problem: str | None


@dataclass(frozen=True)
class Patience:
    """Seconds per message, number of attempts, and seconds before the second attempt, doubled for each further one."""

    seconds: float = 10
    tries: int = 3
    pause: float = 1


def alert(
    found: Recorded,
    to: Destination,
    least: Severity = "warning",
    patience: Patience | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Delivery:
    """Sends the new events of findings of severity ``least`` or worse, except findings cleared before the first run.

    Raises UsageError if the lake cannot be written to, and JbodError while another run sends to the same destination.
    """
    with _only_one(f"{found.lake.path}/{FOLDER}", to) as file:
        newest = found.offset
        state = _read(file)
        if state is None:
            state = State(newest)
            _write(file, state)
        rows = found.rows(state.since)
        waiting = list(_events(rows, state, least))
        sent: list[tuple[Event, Row]] = []
        problem = None
        for start in range(0, len(waiting), PER_MESSAGE):
            message = waiting[start : start + PER_MESSAGE]
            try:
                _send(to, _message(found, message), patience or Patience(), sleep)
            except Undelivered as failed:
                problem = str(failed)
                break
            state.told |= {_identity(row): event for event, row in message}
            _write(file, state)
            sent += message
        if problem is None:
            over = {
                _identity(row) for row in rows if row["cleared_offset"] is not None and row["cleared_offset"] < newest
            }
            told = {one: event for one, event in state.told.items() if one not in over}
            _write(file, State(newest, told))
    new = sum(event == "new" for event, _ in sent)
    return Delivery(to.shown, new, len(sent) - new, len(waiting) - len(sent), problem)


def _events(rows: Sequence[Row], state: State, least: Severity) -> Iterator[tuple[Event, Row]]:
    """The events to send, in the order in which they happened."""
    wanted = at_least(least)
    cleared: list[Row] = []
    for row in rows:
        known = state.told.get(_identity(row))
        if known is None and row["severity"] in wanted:
            yield "new", row
            known = "new"
        if known == "new" and row["cleared_offset"] is not None:
            cleared.append(row)
    for row in sorted(cleared, key=lambda one: (one["cleared_offset"], one["key"])):
        yield "cleared", row


def _identity(row: Row) -> str:
    """The identity of a finding. A finding that comes back gets another one."""
    return f"{row['key']}@{row['first_seen_offset']}"


def _message(found: Recorded, events: Sequence[tuple[Event, Row]]) -> dict[str, Any]:
    published = found.lake.published
    return {
        "from": "jbod",
        "clusterId": published.cluster_id,
        "offset": found.lake.offset,
        "time": found.lake.time.isoformat(),
        "findings": [_finding(event, row) for event, row in events],
    }


def _finding(event: Event, row: Row) -> dict[str, Any]:
    about = subject(row["broker_id"], row["directory_id"], row["topic_id"], row["topic"], row["partition"])
    said = {"event": event, "id": _identity(row), "subject": about}
    return said | {camel_case(name): jsonable(value) for name, value in row.items()}


def _send(to: Destination, message: dict[str, Any], patience: Patience, sleep: Callable[[float], None]) -> None:
    events = " ".join(f"{one['event']} {one['id']}" for one in message["findings"])
    key = hashlib.sha256(events.encode()).hexdigest()
    content = json.dumps(message).encode()
    pause = patience.pause
    for left in reversed(range(patience.tries)):
        try:
            return to.send(content, key, patience.seconds)
        except Undelivered as failed:
            if not failed.again or not left:
                raise
        sleep(pause)
        pause *= 2
    return None


# THE FILE


@contextmanager
def _only_one(folder: str, to: Destination) -> Iterator[str]:
    """Opens the file of a destination, locked against other runs."""
    try:
        if is_object(folder):
            lease = Lease(f"{folder}/{to.id}.lock")
            lease.acquire(0)
            try:
                yield f"{folder}/{to.id}.json"
            finally:
                lease.release()
            return
        Path(folder).mkdir(exist_ok=True)
        with FileLock(Path(folder, f"{to.id}.lock"), timeout=0):
            yield f"{folder}/{to.id}.json"
    except (Timeout, Held):
        raise JbodError(f"{folder}: another run is sending to {to.shown}: nothing to do") from None
    except OSError as problem:
        raise UsageError(
            f"{folder}: the record of delivered messages cannot be written here: {problem.strerror}"
        ) from None


def _read(file: str) -> State | None:
    try:
        content = json.loads(objects.get(file) if is_object(file) else Path(file).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        content = None
    match content:
        case {"format": 1, "settled": int(settled), "told": dict(told)}:
            return State(settled, told)
    raise UsageError(f"{file}: is not a record of delivered messages: remove it, and all open findings are sent again")


def _write(file: str, state: State) -> None:
    """Replaces the file in one step: a reader, or a run after a crash, sees the old content or the new one."""
    text = json.dumps({"format": _FORMAT, "settled": state.since, "told": state.told})
    if is_object(file):
        objects.put(file, text.encode())
        return
    fresh = Path(file).with_suffix(".new")
    with fresh.open("w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    fresh.replace(file)
