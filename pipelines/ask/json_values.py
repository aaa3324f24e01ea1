"""Answers as JSON: names in snake_case, times as ISO text, durations in seconds."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta
from typing import Any

_PLAIN = (str, int, bool, float, type(None))


def jsonable(answer: Any) -> Any:
    """Converts dataclasses and named tuples to objects, recursively. Keys of mappings do not change."""
    if type(answer) in _PLAIN:
        return answer
    if dataclasses.is_dataclass(answer) and not isinstance(answer, type):
        return {field.name: jsonable(getattr(answer, field.name)) for field in dataclasses.fields(answer)}
    if isinstance(answer, tuple) and hasattr(answer, "_asdict"):
        return {name: jsonable(value) for name, value in answer._asdict().items()}
    if isinstance(answer, dict):
        return {name: jsonable(value) for name, value in answer.items()}
    if isinstance(answer, list | tuple):
        return [jsonable(value) for value in answer]
    if isinstance(answer, timedelta):
        return answer.total_seconds()
    return answer.isoformat() if isinstance(answer, datetime) else answer
