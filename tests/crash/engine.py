"""The main job without Spark in a forked process. Importing this module loads and warms the code of such a process."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from jbod_model.errors import JbodError
from pipelines.run.options import Replay
from pipelines.run.preload import warm
from pipelines.run.runner import Runner
from tests.crash.points import arm
from tests.support import local

warm()


def run(
    log_dir: Path,
    lake: Path | str,
    most: int | None,
    point: str | None,
    first: Callable[[], object] | None,
    loads: bool,
) -> None:
    """Replay to the end of the log; exit code 2, with a line on standard error, if the run is refused.

    ``loads``: by ``Runner.load``, which leaves the seed of a checkpoint.
    ``first`` is called before: it sets limits, changes the user, or sends standard error elsewhere.
    """
    if point is not None:
        arm(point, str(lake), death=lambda: os.kill(os.getpid(), signal.SIGKILL))
    if first is not None:
        first()
    try:
        if loads:
            Runner(Replay(str(log_dir), str(lake), max_records=most or 1_000_000)).load()
        else:
            local.replay(log_dir, lake, most=most, template=False)
    except (JbodError, OSError) as problem:
        os.write(2, f"{type(problem).__name__}: {problem}\n".encode())
        sys.exit(2)
