"""``jbod`` in a process that dies at a given point: ``python -m tests.crash.child [--die POINT] ARGUMENTS...``.

It prints ``ready`` on standard error when Spark is up and the main job begins.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipelines.run.options import RunOutcome


def main() -> None:
    words = sys.argv[1:]
    point = None
    if words[0] == "--die":
        _, point, *words = words
    from pipelines.cli.main import main as jbod
    from pipelines.run import runner
    from tests.crash.points import arm

    replay = runner.Runner._replay

    def begin(self: runner.Runner, attempt: Callable[[], None]) -> RunOutcome:
        print("ready", file=sys.stderr, flush=True)
        if point is not None:
            arm(point, self.wanted.lake)
        return replay(self, attempt)

    runner.Runner._replay = begin  # type: ignore[assignment, method-assign]
    jbod(words)


if __name__ == "__main__":
    main()
