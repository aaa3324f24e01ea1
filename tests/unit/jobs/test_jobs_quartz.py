"""Quartz expressions fire when Quartz says; the examples are those of Quartz's own tutorial, or worked out by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from jbod_model.errors import UsageError
from pipelines.jobs.quartz import cron_trigger

SATURDAY = datetime(2026, 11, 21, 12, 0, 1, tzinfo=UTC)


def fires(expression: str, zone: str = "UTC", count: int = 3) -> list[str]:
    trigger, now, found = cron_trigger(expression, zone), SATURDAY, []
    for _ in range(count):
        now = trigger.get_next_fire_time(None, now)
        found.append(f"{now.astimezone(UTC):%a %y-%m-%d %H:%M:%S}")
        now += timedelta(seconds=1)
    return found


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 0/5 * * * ?", ["Sat 26-11-21 12:05:00", "Sat 26-11-21 12:10:00", "Sat 26-11-21 12:15:00"]),
        ("0 3/20 * * * ?", ["Sat 26-11-21 12:03:00", "Sat 26-11-21 12:23:00", "Sat 26-11-21 12:43:00"]),
        ("*/25 * * * * ?", ["Sat 26-11-21 12:00:25", "Sat 26-11-21 12:00:50", "Sat 26-11-21 12:01:00"]),
        # 1 is Sunday, not Monday and not Tuesday.
        ("0 0 12 ? * 1", ["Sun 26-11-22 12:00:00", "Sun 26-11-29 12:00:00", "Sun 26-12-06 12:00:00"]),
        ("0 0 12 ? * 7", ["Sat 26-11-28 12:00:00", "Sat 26-12-05 12:00:00", "Sat 26-12-12 12:00:00"]),
        ("0 15 10 ? * MON-FRI", ["Mon 26-11-23 10:15:00", "Tue 26-11-24 10:15:00", "Wed 26-11-25 10:15:00"]),
        ("0 15 10 ? * 2-6", ["Mon 26-11-23 10:15:00", "Tue 26-11-24 10:15:00", "Wed 26-11-25 10:15:00"]),
        ("0 0 0 ? * FRI-MON", ["Sun 26-11-22 00:00:00", "Mon 26-11-23 00:00:00", "Fri 26-11-27 00:00:00"]),
        ("0 0 0 ? * 1/3", ["Sun 26-11-22 00:00:00", "Wed 26-11-25 00:00:00", "Sat 26-11-28 00:00:00"]),
        ("0 0 22-1 * * ?", ["Sat 26-11-21 22:00:00", "Sat 26-11-21 23:00:00", "Sun 26-11-22 00:00:00"]),
        ("0 15 10 L * ?", ["Mon 26-11-30 10:15:00", "Thu 26-12-31 10:15:00", "Sun 27-01-31 10:15:00"]),
        ("0 15 10 ? * 6L", ["Fri 26-11-27 10:15:00", "Fri 26-12-25 10:15:00", "Fri 27-01-29 10:15:00"]),
        ("0 15 10 ? * 6#3", ["Fri 26-12-18 10:15:00", "Fri 27-01-15 10:15:00", "Fri 27-02-19 10:15:00"]),
        ("0 15 10 ? * L", ["Sat 26-11-28 10:15:00", "Sat 26-12-05 10:15:00", "Sat 26-12-12 10:15:00"]),
        ("0 0 12 1/15 * ?", ["Tue 26-12-01 12:00:00", "Wed 26-12-16 12:00:00", "Thu 26-12-31 12:00:00"]),
        ("0 11 11 11 nov ?", ["Thu 27-11-11 11:11:00", "Sat 28-11-11 11:11:00", "Sun 29-11-11 11:11:00"]),
        ("0 0,30 9 1 JAN,JUL ? 2028", ["Sat 28-01-01 09:00:00", "Sat 28-01-01 09:30:00", "Sat 28-07-01 09:00:00"]),
    ],
)
def test_expression_fires_when_quartz_does(expression: str, expected: list[str]) -> None:
    assert fires(expression) == expected


def test_expression_counts_in_its_time_zone() -> None:
    assert fires("0 30 5 * * ?", "Europe/Berlin", 1) == ["Sun 26-11-22 04:30:00"]


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("0/5 * * * *", "5 fields"),
        ("0 0 0 * * *", "one of day of month and day of week is ?"),
        ("0 0 0 ? * ?", "one of day of month and day of week is ?"),
        ("0 ? 0 * * ?", "minute '?' is not understood"),
        ("0 0 24 * * ?", "hour '24': 0 to 23 are possible"),
        ("0 0 0 ? * 0", "day of week '0': 1 to 7 are possible"),
        ("0 0 0 ? * 8", "day of week '8': 1 to 7 are possible"),
        ("0 0/0 * * * ?", "minute '0/0': a step is 1 to 60"),
        ("0 0/90 * * * ?", "minute '0/90': a step is 1 to 60"),
        ("0 0 0 15W * ?", "day of month '15W' is not understood"),
        ("0 0 0 L-3 * ?", "day of month 'L-3' is not understood"),
        ("0 0 0 ? * MON#6", "day of week 'MON#6' is not understood"),
        ("0 0 0 ? * XYZL", "day of week 'XYZL' is not understood"),
        ("0 0 0 1 1 ? 2030-2028", "year '2030-2028' goes backwards"),
        ("0 0 0 31 2 ?", "never comes"),
        ("0 0 0 1 1 ? 1999", "never comes"),
        ("0 ,5 * * * ?", "minute '' is not understood"),
    ],
)
def test_wrong_expression_is_refused_with_the_field_that_is_wrong(expression: str, problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        cron_trigger(expression, "UTC")
    assert problem in str(refused.value)
    assert repr(expression) in str(refused.value)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "../UTC", "Europe"])
def test_unknown_time_zone_is_refused(zone: str) -> None:
    with pytest.raises(UsageError, match="no such time zone"):
        cron_trigger("0 0 0 * * ?", zone)
