"""Which start-up tricks are on. The setting ``spark.fast_start`` says it: true, false, or a list of names."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Literal, get_args

Trick = Literal["numba", "home", "command", "archive", "workers", "jvm", "sources", "first_batch", "exit"]
TRICKS: tuple[Trick, ...] = get_args(Trick)
VARIABLE = "JBOD_SPARK__FAST_START"
"""The setting as a variable: worker processes and modules that are imported before any settings read it."""
PRELOAD = "_JBOD_PRELOAD"
"""The variable of workers that names the module whose ``warm()`` their parent calls."""


def choose(fast_start: bool | Sequence[Trick]) -> None:
    """Use these tricks in this process and in those it starts: all, none, or the named ones."""
    os.environ[VARIABLE] = json.dumps(fast_start if isinstance(fast_start, bool) else list(fast_start))


def is_on(trick: Trick) -> bool:
    """Whether a trick may be used. A value that is no JSON counts as true: the settings refuse it in one line."""
    try:
        chosen = json.loads(os.environ.get(VARIABLE, "true").lower())
    except ValueError:
        return True
    return trick in chosen if isinstance(chosen, list) else bool(chosen)
