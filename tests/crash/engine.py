"""The main job without Spark in a forked process. Importing this loads and warms what such a process needs."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from jbod_model.errors import JbodError
from pipelines.daemon import warm
from tests import local
from tests.crash.points import arm

warm()


def run(log_dir: str, lake: str, most: int | None, point: str | None) -> None:
    """Replay to the end of the log; exit code 2 where the run is refused."""
    if point is not None:
        arm(point, lake, death=lambda: os.kill(os.getpid(), signal.SIGKILL))
    try:
        local.replay(Path(log_dir), Path(lake), most=most)
    except (JbodError, OSError) as problem:
        print(f"{type(problem).__name__}: {problem}", file=sys.stderr)
        sys.exit(2)
