"""Converts Quartz cron expressions, which Databricks schedules use, to triggers of APScheduler.

Source: Quartz's CronExpression. Six or seven fields: second, minute, hour, day of month, month, day of week and year.
Every field is written as the list of its values, because APScheduler reads ranges and steps differently: it counts week
days from Monday and has no ``0/5``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from jbod_model.errors import UsageError

if TYPE_CHECKING:
    from apscheduler.triggers.cron import CronTrigger

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_RANKS = ("1st", "2nd", "3rd", "4th", "5th")


@dataclass(frozen=True)
class _Field:
    """One field of an expression: its names here and in APScheduler, its bounds, and names for its values."""

    name: str
    trigger: str
    low: int
    high: int
    names: Mapping[str, int] = field(default_factory=dict)


_FIELDS = (
    _Field("second", "second", 0, 59),
    _Field("minute", "minute", 0, 59),
    _Field("hour", "hour", 0, 23),
    _Field("day of month", "day", 1, 31),
    _Field("month", "month", 1, 12, {name: index + 1 for index, name in enumerate(_MONTHS)}),
    _Field("day of week", "day_of_week", 1, 7, {name: index + 1 for index, name in enumerate(_DAYS)}),
    _Field("year", "year", 1970, 2099),
)


def cron_trigger(expression: str, timezone_id: str) -> CronTrigger:
    """The trigger that fires when Quartz would. Raises UsageError, with the field, for a wrong expression or zone."""
    from apscheduler.triggers.cron import CronTrigger

    trigger = CronTrigger(timezone=_zone(timezone_id), **cron_fields(expression))
    if trigger.get_next_fire_time(None, datetime.now(UTC)) is None:
        raise _wrong(expression, "never comes")
    return trigger


def cron_fields(expression: str) -> dict[str, str]:
    """The fields of an expression for APScheduler."""
    texts = expression.upper().split()
    if len(texts) not in (6, 7):
        raise _wrong(
            expression,
            f"{len(texts)} fields: Quartz has second, minute, hour, day of month, month, day of week and maybe a year",
        )
    if (texts[3] == "?") == (texts[5] == "?"):
        raise _wrong(expression, "one of day of month and day of week is ?, the other is not")
    found = {}
    for one, text in zip(_FIELDS, texts, strict=False):
        day = _last_or_ranked(one, text)
        if day is not None:
            found["day"] = day
        elif text != "?" or not one.name.startswith("day"):
            found[one.trigger] = _listed(one, _values(expression, one, text))
    return found


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise UsageError(f"timezone_id {name!r}: no such time zone: write UTC or Europe/Berlin") from None


def _wrong(expression: str, problem: str) -> UsageError:
    return UsageError(f"quartz_cron_expression {expression!r}: {problem}")


def _unknown(expression: str, one: _Field, part: str) -> UsageError:
    return _wrong(
        expression, f"{one.name} {part!r} is not understood here: numbers, names, lists, ranges, steps, L and # are"
    )


def _last_or_ranked(one: _Field, text: str) -> str | None:
    """``L`` (the last day of the month), ``6L`` (its last Friday), ``6#3`` (its third Friday); None for the rest."""
    if one.name == "day of month":
        return "last" if text == "L" else None
    match = re.fullmatch(r"([1-7]|[A-Z]{3})(?:L|#([1-5]))", text) if one.name == "day of week" else None
    if match is None:
        return None
    day = int(match[1]) if match[1].isdigit() else one.names.get(match[1], 0)
    if not day:
        return None
    return f"{_RANKS[int(match[2]) - 1] if match[2] else 'last'} {_DAYS[day - 1].lower()}"


def _values(expression: str, one: _Field, text: str) -> set[int]:
    if one.name == "day of week" and text == "L":
        return {7}
    values: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"(\*|\w+)(?:-(\w+))?(?:/(\d+))?", part)
        if match is None or (match[1] == "*" and match[2]):
            raise _unknown(expression, one, part)
        first = one.low if match[1] == "*" else _value(expression, one, match[1], part)
        size = one.high - one.low + 1
        if match[2]:
            last = _value(expression, one, match[2], part)
            if last < first:  # Quartz wraps around: FRI-MON, 22-2
                if one.name == "year":
                    raise _wrong(expression, f"year {part!r} goes backwards")
                last += size
        else:
            last = one.high if match[1] == "*" or match[3] else first
        step = int(match[3] or 1)
        if not 1 <= step <= size:
            raise _wrong(expression, f"{one.name} {part!r}: a step is 1 to {size}")
        values |= {one.low + (value - one.low) % size for value in range(first, last + 1, step)}
    return values


def _value(expression: str, one: _Field, text: str, part: str) -> int:
    if text in one.names:
        return one.names[text]
    if not text.isascii() or not text.isdigit():
        raise _unknown(expression, one, part)
    if not one.low <= int(text) <= one.high:
        raise _wrong(expression, f"{one.name} {part!r}: {one.low} to {one.high} are possible")
    return int(text)


def _listed(one: _Field, values: set[int]) -> str:
    if len(values) == one.high - one.low + 1:
        return "*"
    texts = (_DAYS[value - 1].lower() if one.name == "day of week" else str(value) for value in sorted(values))
    return ",".join(texts)
