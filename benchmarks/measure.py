"""Run a command as a whole and say how long it took and how much memory it and all it started held at once."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Run:
    """Wall seconds, peak memory in megabytes (shared pages counted once), exit code and standard output."""

    seconds: float
    peak_megabytes: int
    code: int
    output: str


def _session_of(stat: str) -> int:
    return int(stat.rsplit(")", 1)[1].split()[3])


def _held(session: int) -> int:
    """Kilobytes that the processes of a session hold: their proportional share of every page."""
    total = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if _session_of((entry / "stat").read_text()) != session:
                continue
            for line in (entry / "smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
        except (OSError, ValueError, IndexError):
            continue
    return total


def run(*command: str, env: dict[str, str] | None = None) -> Run:
    """Run a command in a session of its own, looking at its memory five times a second."""
    started = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        env={**os.environ, **(env or {})},
    )
    peak = 0
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.2):
            peak = max(peak, _held(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    output, _ = process.communicate()
    seconds = time.perf_counter() - started
    done.set()
    watcher.join()
    return Run(seconds, peak // 1024, process.returncode, output)
