"""These tests install PySpark into environments of their own: only under ``make spark-versions``, nowhere by chance."""

from __future__ import annotations

import os
from pathlib import Path

WANTED = "SPARK_VERSIONS"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Outside ``make spark-versions`` there is nothing here to collect."""
    return None if os.environ.get(WANTED) else True
