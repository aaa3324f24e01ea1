"""Keeps pandas out of commands that do not use it. Arrow imports it for the first array, which takes 0.2 s."""

from __future__ import annotations

import sys

from pipelines.start.switch import is_on


class _NotFound:
    """A finder that finds no pandas. Arrow's compiled code does not notice a None in ``sys.modules``."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name=name)


def without_pandas() -> None:
    """Lets Arrow look for pandas while it cannot be found: Arrow does not look again in this process.

    Arrow then cannot convert a table to pandas. If pandas is loaded already, nothing changes.
    """
    if not is_on("pandas") or "pandas" in sys.modules:
        return
    sys.meta_path.insert(0, _NotFound)
    try:
        import numpy as np
        import pyarrow as pa

        pa.array(np.zeros(1))
        pa.array([""])  # a list is converted by other code, which looks itself
    finally:
        sys.meta_path.remove(_NotFound)
