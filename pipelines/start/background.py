"""Does the work of ``jbod warm`` in the background after a replay on a machine that is not prepared."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipelines.java import Java, find_java
from pipelines.start.cache import cache_dir, prepared
from pipelines.start.switch import is_on

VARIABLE = "_JBOD_BACKGROUND"
"""The variable that, if it is 0, keeps a process from starting anything in the background. Tests set it."""
RETRY_SECONDS = 24 * 60 * 60
"""Seconds from the start of a preparation that failed until the next one."""
_MODULE = "pipelines.upkeep.warm"
_LOCK = "warm.lock"


@dataclass(frozen=True)
class Preparation:
    """What prepares this machine, once a command has given its answer."""

    java: Java
    environment: Mapping[str, str]
    """The environment before the session changed it."""

    @property
    def log(self) -> Path:
        """The file for the output."""
        return prepared(self.java).with_suffix(".log")

    def start(self) -> Path | None:
        """Starts the process and returns its log.

        Returns None if a process prepares this machine now, if one has tried within a day, or if the cache cannot be
        written.
        """
        try:
            cache_dir().mkdir(parents=True, exist_ok=True)
            with (cache_dir() / _LOCK).open("ab") as lock:
                # The process inherits the lock, which is free when it ends, however it ends.
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if prepared(self.java).exists() or self._tried_lately():
                    return None
                with self.log.open("wb") as output:
                    subprocess.Popen(  # noqa: S603
                        [sys.executable, "-m", _MODULE],
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=output,
                        cwd=Path(__file__).parents[2],
                        env=dict(self.environment),
                        start_new_session=True,
                        preexec_fn=_give_way,
                        pass_fds=[lock.fileno()],
                    )
        except OSError:
            return None
        return self.log

    def _tried_lately(self) -> bool:
        try:
            return time.time() - self.log.stat().st_mtime < RETRY_SECONDS
        except FileNotFoundError:
            return False


def preparation() -> Preparation | None:
    """What would prepare this machine, None if this jbod has prepared it, or if the trick is off.

    Call it before a session changes the environment.
    """
    if not is_on("background") or os.environ.get(VARIABLE) == "0":
        return None
    java = find_java()
    if java is None or prepared(java).exists():
        return None
    return Preparation(java, dict(os.environ))


def _give_way() -> None:
    os.nice(19)
