"""Kafka's own images of the bundled clusters."""

from __future__ import annotations

import gzip
import json
from functools import cache
from typing import Any

from tests.support.paths import CLUSTERS


@cache
def kafka_images(kafka: str) -> tuple[dict[str, Any], ...]:
    """The image at every tenth offset, as Kafka's classes gave it. All tests share these: change none of them."""
    with gzip.open(CLUSTERS / kafka / "images.jsonl.gz", "rt", encoding="utf-8") as lines:
        return tuple(map(json.loads, lines))
