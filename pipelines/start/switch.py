"""Which start-up tricks are on, by the setting ``spark.fast_start``: true, false, or a list of names."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Literal, get_args

Trick = Literal["plain", "process", "home", "archive", "workers", "jvm"]
TRICKS: tuple[Trick, ...] = get_args(Trick)
VARIABLE = "JBOD_SPARK__FAST_START"
"""The setting as a variable, for worker processes and for modules that are imported before the settings."""
PRELOAD = "_JBOD_PRELOAD"
"""The variable of workers that names the module whose ``warm()`` their parent calls."""
PLAIN = "_JBOD_PLAIN"
"""The variable of workers that says, if it is 1, that their kernels are plain functions."""


def choose(fast_start: bool | Sequence[Trick]) -> None:
    """Uses these tricks in this process and its child processes: all, none, or the named ones."""
    os.environ[VARIABLE] = json.dumps(fast_start if isinstance(fast_start, bool) else list(fast_start))


def is_on(trick: Trick) -> bool:
    """Whether a trick may be used. A value that is not JSON counts as true, because the settings refuse it later."""
    try:
        chosen = json.loads(os.environ.get(VARIABLE, "true").lower())
    except ValueError:
        return True
    return trick in chosen if isinstance(chosen, list) else bool(chosen)
