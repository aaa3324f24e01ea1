"""These tests start a Spark cluster: only under ``make cluster``, and nowhere by chance."""

from __future__ import annotations

import os
from pathlib import Path

WANTED = "SPARK_CLUSTER"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Outside ``make cluster`` there is nothing here to collect."""
    return None if os.environ.get(WANTED) else True
