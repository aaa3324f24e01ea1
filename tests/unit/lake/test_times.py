"""Times and spans on the command line."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from jbod_model.errors import UsageError
from pipelines.lake.times import is_exact, parse_span, parse_time

NOW = datetime(2026, 11, 22, 15, 30, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-10m", NOW - timedelta(minutes=10)),
        ("-1h30m", NOW - timedelta(minutes=90)),
        ("2h ago", NOW - timedelta(hours=2)),
        ("10 minutes ago", NOW - timedelta(minutes=10)),
        ("1 day ago", NOW - timedelta(days=1)),
        ("yesterday 14:00", datetime(2026, 11, 21, 14, tzinfo=UTC)),
        ("today 09:30:05", datetime(2026, 11, 22, 9, 30, 5, tzinfo=UTC)),
        ("15:30", datetime(2026, 11, 22, 15, 30, tzinfo=UTC)),
        ("yesterday 14:00 +02:00", datetime(2026, 11, 21, 12, tzinfo=UTC)),
        ("2026-11-21 02:21", datetime(2026, 11, 21, 2, 21, tzinfo=UTC)),
    ],
)
def test_time_before_now_and_hours_are_utc(text: str, expected: datetime) -> None:
    assert parse_time(text, NOW) == expected


def test_hour_with_local_is_of_the_machines_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert parse_time("yesterday 14:00 local", NOW) == datetime(2026, 11, 21, 13, tzinfo=UTC)
        # Clocks were set back on 2026-10-25 at 03:00: noon of that day is CET, noon of the day before was CEST.
        autumn = datetime(2026, 10, 25, 20, tzinfo=UTC)
        assert parse_time("yesterday 12:00 local", autumn) == datetime(2026, 10, 24, 10, tzinfo=UTC)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("text", ["-10", "-10x", "ago", "yesterday", "yesterday 25:00", "16:00", "-999999999w", "-"])
def test_text_that_is_no_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(UsageError, match=f"--at-time {text}: "):
        parse_time(text, NOW)


def test_only_a_time_with_a_zone_is_exact() -> None:
    assert [is_exact(text) for text in ("2026-11-21T02:21:05Z", "1795227665000", "-10m", "2026-11-21 02:21")] == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(("text", "seconds"), [("5s", 5), ("2m", 120), ("0.5", 0.5), ("0.2s", 0.2), ("1h", 3600)])
def test_span_is_in_seconds_unless_it_says_otherwise(text: str, seconds: float) -> None:
    assert parse_span("--watch", text) == seconds


@pytest.mark.parametrize("text", ["", "0", "-5", "5x", "nan", "2d"])
def test_span_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--watch"):
        parse_span("--watch", text)
