"""The page of a fleet: every cluster in a few lines, worst first, in one file that loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pipelines.fleet.answers import CLEAN, STALE, STATES, UNREACHABLE, WRONG, FleetAnswer, headline
from pipelines.report.page import STYLE
from pipelines.show.text import age, when

_HERE = Path(__file__).parent
_VERDICTS = {UNREACHABLE: "critical", STALE: "degraded", WRONG: "degraded", CLEAN: "well"}
_TILES = {
    "offline_replicas": "Offline replicas",
    "partitions_without_leader": "Without a leader",
    "partitions_under_min_isr": "Under min ISR",
    "partitions_data_lost": "Data lost",
    "partitions_data_unreachable": "Data unreachable",
    "partitions_may_lack_writes": "May lack writes",
}
"""The counts of all clusters at the top of the page."""
_CRITICAL = (
    "partitions_data_lost",
    "partitions_data_unreachable",
    "partitions_without_leader",
    "partitions_led_from_offline",
    "partitions_under_min_isr",
)
"""What makes the page of a cluster critical, too (pipelines.report.content)."""


def fleet_page(answers: Sequence[FleetAnswer], out: Path, now: datetime) -> str:
    """One HTML document of the answers to the question ``status``, worst first.

    The name of a cluster links to its own page if there is one beside ``out``: NAME.html, as ``jbod report`` writes it.
    """
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"when": when, "number": "{:,}".format}
    return environment.get_template("page.html.j2").render(
        answers=answers,
        headline=headline(answers),
        verdict=_verdict(answers),
        tiles={label: sum((one.counts or {}).get(name, 0) for one in answers) for name, label in _TILES.items()},
        colors={UNREACHABLE: "critical", STALE: "warning", WRONG: "failed", CLEAN: "online"},
        pages={one.name: page for one in answers if (page := _page_of(one.name, out))},
        ago=lambda time: age(time, now),
        now=now,
        style=STYLE,
    )


def _verdict(answers: Sequence[FleetAnswer]) -> str:
    """Critical if data is lost, clients are affected, or a lake cannot be read."""
    if any((one.counts or {}).get(name) for one in answers for name in _CRITICAL):
        return "critical"
    return _VERDICTS[min((one.state for one in answers), key=STATES.index)]


def _page_of(name: str, out: Path) -> str:
    """The address of a cluster's own page, empty if there is none."""
    page = out.parent / f"{name}.html"
    return quote(page.name) if "/" not in name and page != out and page.is_file() else ""
