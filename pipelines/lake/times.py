"""Times as people write them: ``2026-11-21T02:21:05Z``, ``-10m``, ``2h ago``, ``yesterday 14:00``.

A time without a zone is UTC, as all times that jbod prints. ``yesterday 14:00 local`` means this machine's zone.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo

from jbod_model.errors import UsageError

_OLDEST = datetime(2011, 1, 1, tzinfo=UTC)
"""No Kafka log is older, so a smaller number is probably not in milliseconds."""
_UNITS = {"s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3_600, "hour": 3_600}
_UNITS |= {"d": 86_400, "day": 86_400, "w": 604_800, "week": 604_800}
_PART = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)\s*([a-z]+)\s*")
_DAY = re.compile(r"(?:(today|yesterday)\s+)?(\d{1,2}):(\d\d)(?::(\d\d))?\s*(local|z|utc|[+-]\d\d:?\d\d)?")
_HOW = "2026-11-21T02:21:05Z, -10m, 2h ago, yesterday 14:00, or milliseconds since 1970"


def parse_time(text: str, now: datetime | None = None, option: str = "--at-time") -> datetime:
    """Parses the time that ``option`` has. Raises UsageError for anything else.

    ISO 8601, milliseconds since 1970, a span before ``now``, or an hour of today or yesterday. UTC by default.
    """
    given = f"{option} {text}"
    if text.isascii() and text.isdigit():
        return _milliseconds(text, given)
    now = now or datetime.now(UTC)
    words = text.strip().lower()
    before = words[1:] if words.startswith("-") else words[:-3] if words.endswith("ago") else ""
    span = _span(before)
    if span is not None:
        if span > now - _OLDEST:
            raise UsageError(f"{given}: before Kafka existed")
        return now - span
    if match := _DAY.fullmatch(words):
        return _clock(given, match, now)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{given}: not a time: write {_HOW}") from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def is_exact(text: str) -> bool:
    """Whether the text names a moment by itself. If not, the command says how it understood the text."""
    try:
        return text.isdigit() or datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def parse_span(option: str, text: str) -> float:
    """Seconds of ``5s``, ``2m`` or ``1.5``. Raises UsageError for anything else, and for less than 0.1."""
    try:
        seconds = float(text)
    except ValueError:
        span = _span(text.strip().lower())
        seconds = -1 if span is None else span.total_seconds()
    if not 0.1 <= seconds <= 86_400:
        raise UsageError(f"{option} {text}: not a span of time: write 5s or 2m, from 0.1 s to one day")
    return seconds


def parse_age(option: str, text: str) -> float:
    """Seconds of ``30d`` or ``12h``. Raises UsageError for anything else."""
    span = _span(text.strip().lower())
    if span is None or span.total_seconds() <= 0:
        raise UsageError(f"{option} {text}: not an age: write 30d or 12h")
    return span.total_seconds()


def _span(words: str) -> timedelta | None:
    """``1h30m``, ``10 minutes``; None if the words are not a span."""
    seconds, at = 0.0, 0
    while at < len(words):
        part = _PART.match(words, at)
        unit = None if part is None else _UNITS.get(part[2]) or _UNITS.get(part[2].removesuffix("s"))
        if part is None or unit is None:
            return None
        seconds += float(part[1]) * unit
        at = part.end()
    return timedelta(seconds=seconds) if at and seconds < 10**10 else None


def _clock(given: str, match: re.Match[str], now: datetime) -> datetime:
    """An hour of today or yesterday."""
    zone = _zone(match[5])
    here = now.astimezone(zone)
    try:
        time = here.replace(hour=int(match[2]), minute=int(match[3]), second=int(match[4] or 0), microsecond=0, fold=0)
    except ValueError:
        raise UsageError(f"{given}: no such hour: write {_HOW}") from None
    if match[1] == "yesterday":
        day = (here - timedelta(days=1)).date()
        time = time.replace(year=day.year, month=day.month, day=day.day)
    if match[5] == "local":  # the offset from UTC may differ between now and then
        time = time.replace(tzinfo=None).astimezone()
    if time > now:
        raise UsageError(f"{given}: {time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ} is in the future")
    return time


def _zone(name: str | None) -> tzinfo | None:
    """A zone; None, which ``astimezone`` takes for the zone of the machine, for ``local``."""
    if name == "local":
        return None
    if name in (None, "z", "utc"):
        return UTC
    return datetime.strptime(name or "", "%z").tzinfo


def _milliseconds(text: str, given: str) -> datetime:
    try:
        time = datetime.fromtimestamp(int(text) / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"{given}: too many milliseconds since 1970") from None
    if time >= _OLDEST:
        return time
    raise UsageError(
        f"{given}: as milliseconds since 1970 that is {time:%Y-%m-%dT%H:%M:%SZ}, before Kafka existed"
        + _as_seconds(int(text))
    )


def _as_seconds(number: int) -> str:
    """The advice if ``number`` seems to be in seconds."""
    time = datetime.fromtimestamp(number, UTC)
    if time < _OLDEST:
        return ": write 2026-11-21T02:21:05Z, or milliseconds since 1970"
    return f"; if seconds are meant, write {number}000 or {time:%Y-%m-%dT%H:%M:%SZ}"
