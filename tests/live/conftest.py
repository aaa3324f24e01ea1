"""These tests start a real Kafka: only where its jars are named, as ``make live`` does, and nowhere by chance."""

from __future__ import annotations

import os
from pathlib import Path

from tests.live.kafka import LIBS


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Outside ``make live`` there is nothing here to collect."""
    return None if os.environ.get(LIBS) else True
