"""These tests start a Spark cluster, so they run only under ``make cluster``."""

from __future__ import annotations

import os
from pathlib import Path

WANTED = "SPARK_CLUSTER"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Collect nothing outside of ``make cluster``."""
    return None if os.environ.get(WANTED) else True
