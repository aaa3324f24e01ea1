"""Questions to all lakes of a fleet, a line for each, worst first; and the page with every cluster in a few lines.

A lake is asked as any question asks it, in one of several processes. What it answered is kept on this machine until a
record comes that may change it: a live controller appends a NoOpRecord every half second, and nothing else for hours.
So most lakes are answered by their ledgers and the types of their newest records. ``jbod fleet`` keeps the status of a
cluster that it has replayed.

A lake may hang, as a dead mount does: no call returns, and nothing can end its thread (``Patience``).
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import threading
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow.compute as pc

from jbod_model.errors import JbodError, first_line_of
from jbod_model.formats.records import NoOpRecord
from jbod_model.formats.schema import TYPE_NAMES
from pipelines.fleet.clusters import FleetCluster
from pipelines.lake import files
from pipelines.lake.delta import NoLake, data_files, open_table
from pipelines.lake.kept_sizes import DIRECTORY_SIZES, MEND
from pipelines.lake.ledger import open_ledger
from pipelines.lake.reader import Lake
from pipelines.lake.side_tables import side_table
from pipelines.lake.tables import LEDGER, RECORDS
from pipelines.lake.uris import LakeUri
from pipelines.settings import Settings
from pipelines.show.answers import TROUBLES
from pipelines.show.text import age, many, not_known
from pipelines.start.process import cores
from pipelines.start.session import cache_dir

if TYPE_CHECKING:
    from deltalake import DeltaTable


UNREACHABLE, STALE, WRONG, CLEAN = "unreachable", "stale", "wrong", "clean"
"""The states of a cluster, worst first. A stale one may be wrong as well: its counts are those of its last record."""
STATES = (UNREACHABLE, STALE, WRONG, CLEAN)
PATIENCE = 60.0
"""Seconds after which a lake that has not answered counts as unreachable."""
STALE_AFTER = timedelta(minutes=15)
"""The age of a lake's newest record from which on its answer may be out of date: three rounds of five minutes. As far
in the future, a record does not tell the age."""


_COUNTED = {
    **TROUBLES,
    "brokers_fenced": ("fenced broker", "fenced brokers"),
    "critical": ("critical finding", "critical findings"),
    "warning": ("warning", "warnings"),
    "without_leader": TROUBLES["partitions_without_leader"],
    "last_replicas": ("partition without a replica online", "partitions without a replica online"),
    "unclean": ("unclean election", "unclean elections"),
    "under_min_isr": TROUBLES["partitions_under_min_isr"],
    "stalled": ("partition whose writes wait", "partitions whose writes wait"),
    "perhaps_offline": ("replica perhaps offline", "replicas perhaps offline"),
    "perhaps_unserved": ("partition perhaps unserved", "partitions perhaps unserved"),
}
"""Count of an answer -> what it counts, one and several."""


@dataclass(frozen=True)
class FleetAnswer:
    """What a question has to say about one cluster."""

    name: str
    lake: LakeUri
    state: str
    offset: int | None = None
    time: datetime | None = None
    """When the newest record was appended."""
    counts: Mapping[str, int] | None = None
    """What the question counts, the worst first."""
    line: str = ""
    todo: str = ""
    """The command that says more, empty if there is nothing to do."""

    @property
    def badness(self) -> tuple[int, ...]:
        """Sort key, from worst to best."""
        return (STATES.index(self.state), *(-count for count in (self.counts or {}).values()))

    @property
    def what(self) -> str:
        """The counts that are not zero, the worst first, and the line."""
        counted = (many(count, *_COUNTED[name]) for name, count in (self.counts or {}).items() if count)
        return "; ".join(filter(None, (", ".join(counted), self.line)))


def states_of(answers: Iterable[FleetAnswer]) -> dict[str, int]:
    """How many clusters are in each state, the worst first."""
    counts = Counter(answer.state for answer in answers)
    return {state: counts[state] for state in STATES if counts[state]}


def headline(answers: Sequence[FleetAnswer]) -> str:
    """``3 clusters: 1 unreachable, 2 clean``"""
    states = ", ".join(f"{count} {state}" for state, count in states_of(answers).items())
    return f"{many(len(answers), 'cluster', 'clusters')}: {states}"


Counts = tuple[dict[str, int], str]
"""What a question counts, the worst first, all 0 if nothing is wrong; and a line about it."""


def _status(lake: Lake, settings: Settings) -> Counts:
    from pipelines.ask.lake_status import status

    totals = status(lake, settings.ask.min_insync_replicas, settings.check.losses_accepted_until)
    counts = {
        "partitions_data_lost": totals.partitions_data_lost,
        "partitions_data_unreachable": totals.partitions_data_unreachable,
        "partitions_without_leader": totals.partitions_without_leader,
        "partitions_led_from_offline": totals.partitions_led_from_offline,
        "partitions_under_min_isr": totals.partitions_under_min_isr,
        "partitions_may_lack_writes": totals.partitions_may_lack_writes,
        "offline_replicas": totals.offline_replicas,
        "brokers_fenced": totals.brokers_fenced,
    }
    size = (
        many(totals.brokers, "broker"),
        many(totals.directories, "directory", "directories"),
        many(totals.partitions, "partition"),
    )
    return counts, ", ".join(size)


def _offline(lake: Lake, settings: Settings) -> Counts:
    from pipelines.ask.lost_data import perhaps_offline

    rows = lake.query(
        f"SELECT reason, count(*), count(DISTINCT (broker_id, directory_id)) FROM {lake.at('offline_replicas')} "
        "GROUP BY reason ORDER BY count(*) DESC, reason"
    )
    perhaps = perhaps_offline(lake, settings.ask.min_insync_replicas)
    counts = {
        "offline_replicas": sum(count for _, count, _ in rows),
        "perhaps_offline": sum(map(len, perhaps.values())),
    }
    return counts, ", ".join(
        f"{reason}: {count:,} in {many(places, 'directory', 'directories')}" for reason, count, places in rows
    )


def _check(lake: Lake, settings: Settings) -> Counts:
    from pipelines.check.catalogue import run_checks
    from pipelines.check.definition import SEVERITIES

    findings = run_checks(lake, [], settings)
    severities = Counter(finding.severity for finding in findings)
    counts = {severity: severities[severity] for severity in ("critical", "warning")}
    worst = min(findings, key=lambda finding: SEVERITIES.index(finding.severity), default=None)
    return counts, "" if worst is None else f"{worst.check.id} {worst.subject}: {worst.finding}"


def _risk(lake: Lake, settings: Settings) -> Counts:
    from pipelines.ask.risk import risk

    answer = risk(lake, settings.ask.min_insync_replicas)
    exposures = (*answer.directories, *answer.brokers)
    worst = max((each for each in exposures if not each.harmless), key=lambda each: each.harms, default=None)
    counts = {
        name: 0 if worst is None else getattr(worst, name)
        for name in ("without_leader", "last_replicas", "unclean", "under_min_isr", "stalled", "perhaps_unserved")
    }
    if not answer.brokers:
        return counts, "no broker is unfenced: all is offline already"
    if worst is None:
        return counts, "the failure of one disk or broker would only change leaders"
    what = "" if worst.directory_id is None else f"directory {worst.directory_id} of "
    return counts, f"worst: the failure of {what}broker {worst.broker_id}"


QUESTIONS: Mapping[str, Callable[[Lake, Settings], Counts]] = {
    "status": _status,
    "offline": _offline,
    "check": _check,
    "risk": _risk,
}
_MORE = {"status": "offline"}
"""The command that says more, where it is not the question itself."""
_OF_LOSSES = ("status", "check")
"""The questions whose lines count losses."""


def ask_all(question: str, clusters: Sequence[FleetCluster], *, now: datetime | None = None) -> Iterator[FleetAnswer]:
    """The answers of all clusters, in any order, as they come. A lake that cannot be read is an answer, too."""
    now = now or datetime.now(UTC)
    stamp = _code()
    processes = min(len(clusters), cores())
    if processes < 2:
        yield from (_ask(question, cluster, now, stamp) for cluster in clusters)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("forkserver")) as pool:
        size = max(min(len(clusters) // (4 * processes), 25), 1)
        count = len(clusters)
        yield from pool.map(_ask, [question] * count, clusters, [now] * count, [stamp] * count, chunksize=size)


def _ask(question: str, cluster: FleetCluster, now: datetime, stamp: str) -> FleetAnswer:
    more = f"jbod {_MORE.get(question, question)} --lake {quote(cluster.lake)}"
    try:
        answer = Patience(PATIENCE).ask(cluster.lake, lambda: _kept(question, cluster, stamp))
    except Exception as problem:  # whatever a damaged table raises
        line = " ".join(first_line_of(problem).split())
        todo = f"jbod status --lake {quote(cluster.lake)}"
        if isinstance(problem, NoLake):
            line, todo = f"{cluster.lake}: there is no lake yet", f"jbod fleet {quote(str(cluster.file))}"
        return FleetAnswer(cluster.name, cluster.lake, UNREACHABLE, line=line, todo=todo)
    time, counts = datetime.fromisoformat(answer["time"]), answer["counts"]
    state = STALE if abs(now - time) > STALE_AFTER else WRONG if any(counts.values()) or answer["incomplete"] else CLEAN
    if state == STALE:
        more = f"jbod replay {quote(cluster.log)} --lake {quote(cluster.lake)}"
    line = "; ".join(filter(None, (answer["incomplete"], answer["line"])))
    return FleetAnswer(
        cluster.name, cluster.lake, state, answer["offset"], time, counts, line, "" if state == CLEAN else more
    )


def keep_status(cluster: FleetCluster) -> None:
    """Keeps the status of a cluster that was just replayed, so that ``jbod fleet status`` need not ask its lake.

    Does nothing if it cannot: the question says why.
    """
    with suppress(Exception):
        _kept("status", cluster, _code())


def _kept(question: str, cluster: FleetCluster, stamp: str) -> dict[str, Any]:
    """The answer that was kept if no record came since that may change it, or a new one."""
    settings = cluster.settings
    key = json.dumps([question, cluster.lake, asdict(settings.ask), asdict(settings.check), stamp])
    kept = cache_dir() / "fleet" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
    ledger = open_ledger(cluster.lake)
    files = {file["path"]: file["max.end_offset"] or 0 for file in data_files(ledger)}
    # A lake that was restored from a backup, and goes on, has the id and perhaps the version, but another newest file.
    newest = [ledger.metadata().id, ledger.version(), max(files, key=files.__getitem__, default="")]
    if question == "check" and (sizes := side_table(cluster.lake, DIRECTORY_SIZES, MEND)) is not None:
        newest += [sizes.metadata().id, sizes.version()]  # not in the ledger
    answer = None
    with suppress(OSError, ValueError, LookupError, TypeError):
        known: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
        if known["version"] == newest:
            return known
        if known["version"][2] in files and question != "check":  # checks look at ages, too
            answer = _advanced(cluster.lake, ledger, known)
    answer = {**(answer or _answered(question, cluster)), "version": newest}
    with suppress(OSError):  # without a cache, answers only take longer
        kept.parent.mkdir(parents=True, exist_ok=True)
        scratch = kept.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        try:
            scratch.write_text(json.dumps(answer), encoding="utf-8")
            scratch.replace(kept)
        finally:
            scratch.unlink(missing_ok=True)
    return answer


def _answered(question: str, cluster: FleetCluster) -> dict[str, Any]:
    lake = Lake.open(cluster.lake)
    counts, line = QUESTIONS[question](lake, cluster.settings)
    if lake.first and question in _OF_LOSSES:
        line = "; ".join(filter(None, (line, not_known(lake.first))))
    incomplete = lake.incomplete_since
    lake.connection.close()
    return {
        "tables": lake.published.versions,
        "offset": lake.offset,
        "time": lake.time.isoformat(),
        "counts": counts,
        "line": line,
        "incomplete": "" if incomplete is None else str(incomplete),
    }


def _advanced(lake: LakeUri, ledger: DeltaTable, known: Mapping[str, Any]) -> dict[str, Any] | None:
    """The known answer at the newest record of the lake, None if another record than a NoOpRecord came since."""
    newest = max(data_files(ledger), key=lambda file: file["max.end_offset"] or 0)
    columns = ["end_offset", "end_time", "published_time", "versions"]
    rows = files.read(lake, LEDGER, [newest["path"]], columns).to_pylist()
    row = max(rows, key=lambda publication: (publication["end_offset"], publication["published_time"]))
    versions, offset = dict(row["versions"]), known["offset"]
    if row["end_offset"] <= offset or {**versions, RECORDS.name: 0} != {**known["tables"], RECORDS.name: 0}:
        return None
    records = open_table(lake, RECORDS.name, versions[RECORDS.name])
    later = [file["path"] for file in data_files(records) if (file["max.log_offset"] or row["end_offset"]) > offset]
    later_records = files.read(lake, RECORDS, later, ["log_offset", "record_type"])
    types = pc.unique(later_records.filter(pc.field("log_offset") > offset)["record_type"]).to_pylist()
    if types != [TYPE_NAMES[NoOpRecord]]:
        return None
    return {**known, "tables": versions, "offset": row["end_offset"] - 1, "time": row["end_time"].isoformat()}


@cache
def _code() -> str:
    """What changes with the code that answers: its version, and the sizes and times of its modules."""
    root = Path(__file__).parents[2]
    modules = sorted((root / "pipelines").rglob("*.py")) + sorted((root / "jbod_model").rglob("*.py"))
    stats = [(path.name, (stat := path.stat()).st_size, stat.st_mtime_ns) for path in modules]
    return hashlib.sha256(f"{version('jbod')} {stats}".encode()).hexdigest()


T = TypeVar("T")


class Patience:
    """Waits for some seconds. A thread that hangs is left alone. Until it has ended, nothing is asked there again."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._asking: set[str] = set()

    def ask(self, where: str, question: Callable[[], T]) -> T:
        """What ``question`` returns or raises; JbodError if the storage at ``where`` hangs."""
        answers: queue.SimpleQueue[tuple[T | None, Exception | None]] = queue.SimpleQueue()

        def run() -> None:
            answer: tuple[T | None, Exception | None]
            try:
                answer = question(), None
            except Exception as problem:
                answer = None, problem
            self._asking.discard(where)
            answers.put(answer)

        if where not in self._asking:
            self._asking.add(where)
            threading.Thread(target=run, daemon=True).start()
            try:
                answer, problem = answers.get(timeout=self._seconds)
            except queue.Empty:
                pass
            else:
                if problem is not None:
                    raise problem
                return answer  # type: ignore[return-value]
        raise JbodError(f"{where}: no answer in {self._seconds:.0f} s: does its storage hang?")


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
    from pipelines.report.page import STYLE, templates

    template = templates(_HERE).get_template("page.html.j2")
    return template.render(
        answers=answers,
        headline=headline(answers),
        verdict=_verdict(answers),
        tiles={label: sum((answer.counts or {}).get(name, 0) for answer in answers) for name, label in _TILES.items()},
        colors={UNREACHABLE: "critical", STALE: "warning", WRONG: "failed", CLEAN: "online"},
        pages={answer.name: page for answer in answers if (page := _page_of(answer.name, out))},
        ago=lambda time: age(time, now),
        now=now,
        style=STYLE,
    )


def _verdict(answers: Sequence[FleetAnswer]) -> str:
    """Critical if data is lost, clients are affected, or a lake cannot be read."""
    if any((answer.counts or {}).get(name) for answer in answers for name in _CRITICAL):
        return "critical"
    return _VERDICTS[min((answer.state for answer in answers), key=STATES.index)]


def _page_of(name: str, out: Path) -> str:
    """The address of a cluster's own page, empty if there is none."""
    page = out.parent / f"{name}.html"
    return urllib.parse.quote(page.name) if "/" not in name and page != out and page.is_file() else ""
