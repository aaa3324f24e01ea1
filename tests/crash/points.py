"""The points at which a run is killed: before or after a named step, or when a file of Spark's checkpoint appears.

``arm`` wraps functions of the process it is called in, so the product has no hooks for it.
"""

from __future__ import annotations

import importlib
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipelines.lake.uris import home_of

TABLES = ("records", "brokers", "directories", "partitions", "assignments", "offline_replicas", "changes")
"""Tables that every publication here commits to, in its order. Controllers and voters change seldom."""
COMMITS = tuple(f"{when} {name}" for name in (*TABLES, "ledger") for when in ("before", "after"))
"""Before and after each Delta commit of a publication."""
TAKING_BACK = (
    "before states_at",
    "before discard_checkpoint",
    "after discard_checkpoint",
    *(f"{when} take-back:{name}" for name in (*TABLES, "ledger") for when in ("before", "after")),
    *(f"{when} {name}" for name in ("write_seed", "take_seed") for when in ("before", "after")),
)
"""The steps by which a lake follows a log that was rewritten, in their order."""
LOADING = tuple(
    f"{when} load:{name}"
    for name in ("decode_slice", "fold_shard", "write_seed", "take_seed")
    for when in ("before", "after")
)
"""The steps of a log that is loaded without Spark, in their order. A publication comes before take_seed."""
CHECKPOINT = ("file offsets", "file state", "before publish", "after publish", "file commits")
"""Spark's steps around a publication: offset log, state, foreachBatch, commit log. The file may be half written."""

_FILES = {
    "offsets": lambda batch: rf"offsets/\.?{batch}\b",
    "state": lambda batch: rf"state/0/\d+/\.?{batch + 1}[._]",
    "commits": lambda batch: rf"commits/\.?{batch}\b",
}


def die() -> None:
    """SIGKILL to this process and all of its group: the JVM, too."""
    os.killpg(os.getpgid(0), signal.SIGKILL)


def arm(point: str, lake: str, *, death: Callable[[], None] = die) -> None:
    """Make this process die at a point; at its second publication, so that there is a first."""
    when, what = point.split()
    if when == "file":
        folder = Path(home_of(lake), "_checkpoint")
        done = max((int(path.name) for path in folder.glob("commits/[0-9]*")), default=-1)
        pattern = re.compile(_FILES[what](done + 2))
        threading.Thread(target=_watch, args=(folder, pattern, death), daemon=True).start()
        return
    owner, name, counts = _step(what)
    good = getattr(owner, name)
    calls = 0
    wanted = 2 if what in (*TABLES, "ledger", "publish") else 1

    def step(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        mine = counts(arguments)
        calls += mine
        number = calls  # other threads go on counting
        if mine and number == wanted and when == "before":
            death()
        result = good(*arguments, **options)
        if mine and number == wanted and when == "after":
            death()
        return result

    setattr(owner, name, step)


def _step(what: str) -> tuple[Any, str, Callable[[tuple[Any, ...]], bool]]:
    """Owner and name of a function, and which of its calls count."""
    from pipelines.lake.publish import LakeWriter

    if what.startswith("load:"):
        return importlib.import_module("pipelines.run.runner"), what.removeprefix("load:"), lambda _: True
    name = what.removeprefix("take-back:")
    if what == "ledger":
        return LakeWriter, "append_ledger", lambda _: True
    if what == "publish":
        return LakeWriter, "publish", lambda _: True
    if name in TABLES or name == "ledger":
        # The commit of a publication adds offsets; that of a rollback ends where it begins.
        back = name != what
        return (
            LakeWriter,
            "commit",
            lambda arguments: arguments[1].name == name and (arguments[4] == arguments[5]) == back,
        )
    return importlib.import_module("pipelines.run.rollback"), name, lambda _: True


def _watch(folder: Path, pattern: re.Pattern[str], death: Callable[[], None]) -> None:
    while True:
        for path, _, names in os.walk(folder):
            if any(pattern.search(f"{path}/{name}"[len(str(folder)) + 1 :]) for name in names):
                death()
        time.sleep(0.001)
