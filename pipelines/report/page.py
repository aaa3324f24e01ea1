"""The page: template, style and script in one file. It loads nothing else, and its security policy forbids it."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from jbod_model.errors import UsageError
from pipelines.ask.incident_list import Incident
from pipelines.ask.json_values import jsonable
from pipelines.ask.lake_status import Directory, Status
from pipelines.ask.risk import Exposure
from pipelines.check.definition import SEVERITIES, Check, Finding
from pipelines.lake.names import Names
from pipelines.report.content import Content
from pipelines.report.tables import kind_of, tables
from pipelines.show.incidents import moves_in_words, queue_in_words
from pipelines.show.text import age, called, harmless, lasted, listed, many, not_known, plain, when

_LANES = 40
"""The most incidents drawn as lanes, the newest ones."""

_ROWS = 40
"""The most brokers drawn with their assignment queues, those with the most requests."""

_BARS = 15
"""The most failures drawn as bars, the worst ones. The table has the others."""

_HERE = Path(__file__).parent
_PLOTLY = _HERE / "plotly" / "plotly.min.js.gz"
"""The part of plotly.js that the pictures need (plotly/build.sh). The page unpacks it: that saves two thirds."""

STYLE = (_HERE / "page.css").read_text(encoding="utf-8")


def page(content: Content) -> str:
    """One HTML document."""
    environment = templates(_HERE)
    environment.filters |= {
        "plain": partial(plain, names=content.names),
        "listed": listed,
        "many": many,
        "not_known": not_known,
        "lasted": lasted,
        "kind_of": kind_of,
        "moves_in_words": moves_in_words,
        "queue_in_words": queue_in_words,
        "sentence": _sentence,
    }
    packed, script = _PLOTLY.read_bytes(), (_HERE / "page.js").read_text(encoding="utf-8")
    return environment.get_template("page.html.j2").render(
        content=content,
        tables=tables(content),
        pictures=_for_script(pictures(content)),
        tiles=_tiles(content.status),
        sections=_sections(content),
        states=_states(content),
        reasons=_reasons(content),
        severities=_severities(content),
        finding_groups=_finding_groups(content),
        measures=_measures(content),
        queued=min(len({queue.broker_id for queue in content.queue}), _ROWS),
        stories=content.incidents[:_LANES],
        ago=lambda time: age(time, content.status.time),
        style=STYLE,
        plotly=base64.b64encode(packed).decode(),
        script=script,
        policy=_policy((gzip.decompress(packed).decode(), script)),
    )


def templates(folder: Path) -> Environment:
    """The templates in a folder, in which times and numbers have filters."""
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"when": when, "number": "{:,}".format}
    return environment


def pictures(content: Content) -> dict[str, Any]:
    """The data of the script, in columns, so that a thousand directories stay small."""
    series = content.over_time
    cells, names = content.cells, content.names
    return {
        "end": [_time(content.status.time), content.status.offset],
        "map": {
            "broker": [cell.directory.broker_id for cell in cells],
            "broker_is": [cell.directory.broker for cell in cells],
            "directory": [called(cell.directory.directory_id, names) for cell in cells],
            "name": [_name(cell.directory, names) for cell in cells],
            "is": [cell.directory.state for cell in cells],
            "state": [cell.state for cell in cells],
            "replicas": [cell.directory.replicas for cell in cells],
            "leaders": [cell.directory.leaders for cell in cells],
            "offline": [cell.offline for cell in cells],
            "since": [_time(cell.directory.from_time) for cell in cells],
        },
        "over_time": {
            "offset": series.offsets,
            "time": [_time(time) for time in series.times],
            "offline": series.offline,
            "leaderless": series.leaderless,
        },
        "incidents": [_incident(incident, names) for incident in content.incidents[:_LANES]],
        "queue": _queue(content),
        "risk": {
            "directory": [_exposure(exposure, names) for exposure in content.risk.directories[:_BARS]],
            "broker": [_exposure(exposure, names) for exposure in content.risk.brokers[:_BARS]],
        },
    }


def _name(directory: Directory, names: Names) -> str | None:
    """The text in the cell of a directory: its state if it is a reserved id, else its path; None shows the id."""
    if directory.state in ("unassigned", "lost", "migrating"):
        return directory.state
    name = called(directory.directory_id, names)
    return None if name == directory.directory_id else name.split(" (")[0]


def _incident(incident: Incident, names: Names) -> dict[str, Any]:
    return {
        "number": incident.number,
        "what": incident.what,
        "directory": incident.directory_id and called(incident.directory_id, names),
        "kind": kind_of(incident),
        "from": _time(incident.from_time),
        "to": _time(incident.to_time),
        "from_offset": incident.from_offset,
        "to_offset": incident.to_offset,
        "ending": harmless(incident.ending),
        "replicas": incident.replicas_taken,
        "longest": lasted(incident.longest_offline),
        "leaders": incident.leaders,
        "successors": [[broker, count] for broker, count in sorted(incident.successors.items())],
        "without_leader": incident.without_leader,
        "data_lost": len(incident.data_lost),
        "may_lack_writes": len(incident.may_lack_writes),
    }


def _queue(content: Content) -> dict[str, Any]:
    """Steps counted from the first one. Steps in which no replica began or ended to wait are left out."""
    assignments = Counter[int]()
    for queue in content.queue:
        assignments[queue.broker_id] += queue.entries
    brokers = sorted(sorted(assignments, key=lambda broker: (-assignments[broker], broker))[:_ROWS])
    drawn = [queue for queue in content.queue if queue.broker_id in set(brokers)]
    start, step = content.queue[0].start if content.queue else content.status.time, content.queue_step
    end = max(content.status.time, content.queue[-1].start if content.queue else start)
    return {
        "start": _time(start),
        "step": step // timedelta(milliseconds=1),
        "steps": (end - start) // step + 1,
        "brokers": brokers,
        "broker": [queue.broker_id for queue in drawn],
        "at": [(queue.start - start) // step for queue in drawn],
        "entries": [queue.entries for queue in drawn],
        "waiting": [queue.waiting for queue in drawn],
        "retries": [queue.retries for queue in drawn],
        "refused": [queue.refused for queue in drawn],
    }


def _exposure(exposure: Exposure, names: Names) -> dict[str, Any]:
    return {
        "broker": exposure.broker_id,
        "directory": exposure.directory_id and called(exposure.directory_id, names),
        "replicas": exposure.replicas,
        "without_leader": exposure.without_leader,
        "last_replicas": exposure.last_replicas,
        "under_min_isr": exposure.under_min_isr,
    }


def write_page(path: str, text: str) -> int:
    """Writes the whole page or nothing, and creates its folder. Returns the size in bytes. Raises UsageError."""
    target = Path(path).resolve()
    if target.is_dir():
        raise UsageError(f"--out {path}: that is a directory: name a file in it")
    if target.exists() and not target.is_file():  # it would be replaced, for root even /dev/null
        raise UsageError(f"--out {path}: that is no file: name one")
    part = target.with_name(f".{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        size = part.write_bytes(text.encode())
        part.replace(target)
    except OSError as problem:
        with suppress(OSError):
            part.unlink()
        raise UsageError(f"--out {path}: cannot be written: {problem.strerror}") from None
    return size


@dataclass(frozen=True)
class Tile:
    """A number at the top of the page."""

    name: str
    value: int
    of: int | None = None
    trouble: bool = False
    """Whether any value above zero is bad."""


def _sentence(text: str) -> str:
    """The text with a capital letter, unless it begins with a command."""
    return text if text.startswith(("jbod ", "kafka-")) else text[:1].upper() + text[1:]


def _tiles(counts: Status) -> list[Tile]:
    return [
        Tile("Offline replicas", counts.offline_replicas, sum(counts.replicas.values()), trouble=True),
        Tile("Without a leader", counts.partitions_without_leader, counts.partitions, trouble=True),
        Tile("Under min ISR", counts.partitions_under_min_isr, counts.partitions, trouble=True),
        Tile("Under-replicated", counts.partitions_under_replicated, counts.partitions, trouble=True),
        Tile("Data lost", counts.partitions_data_lost, counts.partitions, trouble=True),
        Tile("Data unreachable", counts.partitions_data_unreachable, counts.partitions, trouble=True),
        Tile("May lack writes", counts.partitions_may_lack_writes, counts.partitions, trouble=True),
        Tile("Brokers unfenced", counts.brokers - counts.brokers_fenced, counts.brokers),
        Tile("Directories registered", counts.directories),
    ]


_STATES = (
    ("online", "online"),
    ("failed", "failed"),
    ("gone", "gone"),
    ("fenced", "broker fenced"),
    ("missing", "broker missing"),
    ("waiting", "no directory yet"),
)


def _states(content: Content) -> list[tuple[str, str, int]]:
    """The states on the map, each with its number of directories."""
    counts = Counter(cell.state for cell in content.cells)
    return [(state, label, counts[state]) for state, label in _STATES if counts[state]]


def _reasons(content: Content) -> list[tuple[str, str, None]]:
    """Those that ever counted."""
    series = content.over_time
    reasons = [(reason, reason, None) for reason, values in series.offline.items() if any(values)]
    return [*reasons, ("leaderless", "partitions without a leader", None)]


def _sections(content: Content) -> list[tuple[str, str]]:
    why = [("why", "What to do")] if content.causes else []
    why += [("leaderless", "Without a leader")] if content.leaderless else []
    data = [("data", "Lost data")] if content.data.groups or content.data.held or content.data.perhaps else []
    perhaps = [("perhaps", "Perhaps offline")] if content.perhaps else []
    return [
        *data,
        *why,
        *perhaps,
        ("map", "Directories"),
        ("over-time", "Over time"),
        ("incidents", "Incidents"),
        ("moves", "Moves"),
        ("risk", "Risk"),
        ("findings", "Findings"),
    ]


@dataclass(frozen=True)
class FindingGroup:
    """The findings of one check."""

    check: Check
    severity: str
    findings: Sequence[Finding]

    @property
    def steps(self) -> list[tuple[str, list[Finding]]]:
        """Each advice, and the findings that it is about: most findings first."""
        by_advice: dict[str, list[Finding]] = {}
        for finding in self.findings:
            by_advice.setdefault(finding.advice, []).append(finding)
        return sorted(by_advice.items(), key=lambda step: -len(step[1]))


def _finding_groups(content: Content) -> list[FindingGroup]:
    """The findings by severity and check, in their order."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in content.findings:
        groups.setdefault((finding.severity, finding.check.id), []).append(finding)
    return [FindingGroup(members[0].check, severity, members) for (severity, _), members in groups.items()]


def _severities(content: Content) -> list[tuple[str, str, int]]:
    counts = Counter(finding.severity for finding in content.findings)
    return [(severity, severity, counts[severity]) for severity in SEVERITIES if counts[severity]]


_MEASURES = (
    ("entries", "assignments asked for"),
    ("waiting", "replicas that waited at the end"),
    ("retries", "retries"),
    ("refused", "refused"),
)


def _measures(content: Content) -> list[tuple[str, str]]:
    """Those that ever counted."""
    return [(name, label) for name, label in _MEASURES if any(getattr(queue, name) for queue in content.queue)]


def _time(time: datetime | None) -> str | None:
    """A time for Plotly, without a zone: Plotly would convert it to the reader's zone."""
    return None if time is None else f"{time:%Y-%m-%d %H:%M:%S.%f}"[:-3]


def _for_script(value: Any) -> str:
    """JSON that cannot close the HTML element around it."""
    return json.dumps(jsonable(value), separators=(",", ":")).replace("<", "\\u003c")


def _policy(scripts: Sequence[str]) -> str:
    """A content security policy that permits only these scripts, and the styles and images that Plotly makes."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
