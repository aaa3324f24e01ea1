"""Findings for a terminal: the answer first, then the findings, most severe first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from pipelines.check.catalogue import CHECKS, ELSEWHERE
from pipelines.check.definition import SEVERITIES, Check, Finding
from pipelines.show.rows import Chosen
from pipelines.show.text import Screen, age, listed, many, say, show_selection, show_table, show_title, when

if TYPE_CHECKING:
    from pipelines.check.expectations.validate import Validation

_MOST = 8
"""The most causes of a check, and subjects of a cause, that are listed without --all."""
_STYLES = {"critical": "bold red", "warning": "bold yellow", "info": "bold"}


def show_findings(
    out: Screen,
    offset: int,
    time: datetime,
    ran: Sequence[Check],
    findings: Sequence[Finding],
    chosen: Chosen,
    every: bool = False,
) -> None:
    """The chosen findings by check and by cause, with a few subjects of each, or ``every`` one."""
    since = partial(_since, time=time)
    say(out, f"At offset {offset}, {when(time)}: {_answer(ran, findings)}.", "bold")
    show_selection(out, chosen)
    for (severity, check), group in groupby(chosen.rows, key=lambda row: (row.severity, row.check)):
        say(out)
        say(out, f"{severity.upper()} {check.id} {check.name}: {check.title}", _STYLES[severity], hang=2)
        causes = _causes(group)
        for (finding, advice), members in list(causes.items())[: None if every else _MOST]:
            if len(members) == 1:
                say(out, f"  {members[0].subject}: {finding} ({since(members[0])})", hang=4)
            else:
                _show_members(out, finding, members, since, every)
            say(out, f"    do: {advice}", hang=8)
        if len(causes) > _MOST and not every:
            say(out, f"  and {many(len(causes) - _MOST, 'more cause', 'more causes')} (--all)", hang=4)
        say(out, f"  why it matters: {check.why}", "dim", hang=4)


def _show_members(
    out: Screen, finding: str, members: Sequence[Finding], since: Callable[[Finding], str], every: bool
) -> None:
    """Several subjects of one cause, in groups that began together."""
    begun = [list(group) for _, group in groupby(sorted(members, key=_begin), key=_begin)]
    most = len(members) if every else _MOST
    if len(begun) == 1:
        say(out, f"  {finding} ({since(members[0])})", hang=4)
        say(out, f"    {len(members):,}: {listed([member.subject for member in members], most)}", hang=6)
        return
    say(out, f"  {finding}", hang=4)
    for group in begun[:most]:
        named = listed([member.subject for member in group], most)
        say(out, f"    {len(group):,} {since(group[0])}: {named}", hang=6)
    if len(begun) > most:
        rest = sum(map(len, begun[most:]))
        say(out, f"    and {rest:,} more since offset {begun[most][0].from_offset} and later (--all)", hang=6)


def _begin(finding: Finding) -> int:
    return finding.from_offset


def _since(finding: Finding, time: datetime) -> str:
    since = "at or before" if finding.from_snapshot else "since"
    return f"{since} offset {finding.from_offset}, {age(finding.from_time, time)}"


def show_validation(out: Screen, validation: Validation) -> None:
    """The result of Great Expectations for the tables, and the path of the Data Docs."""
    say(out)
    unmet = [failure for failure in validation.failures if failure.suite != "checks"]
    met = "the tables are as they should be" if not unmet else f"{len(unmet):,} about the tables are not met"
    say(out, f"Great Expectations: {many(validation.expectations, 'expectation')}, {met}.", "bold")
    for failure in unmet:
        rows = "" if failure.unexpected is None else f": {many(failure.unexpected, 'row')}"
        say(
            out,
            f"  {failure.severity.upper()} {failure.suite}: {failure.rule}{rows}",
            _STYLES[failure.severity],
            hang=4,
        )
    for broken in validation.broken[:8]:
        say(out, f"    {broken.contract.name}: {broken.what}", hang=6)
    say(out, f"  Data Docs: {validation.docs}", hang=4)


def show_catalogue(out: Screen) -> None:
    """Every check, and the commands for those that the tables cannot decide."""
    show_table(out, (("ID", "id"), ("NAME", "name"), ("SEVERITY", "severity"), ("WHAT IT FINDS", "title")), CHECKS)
    show_title(out, "The tables cannot decide these:")
    show_table(out, (("ID", "id"), ("NAME", "name"), ("WHAT", "title"), ("DECIDED BY", "decided_by")), ELSEWHERE)


def _answer(ran: Sequence[Check], findings: Sequence[Finding]) -> str:
    checks = many(len(ran), "check")
    if not findings:
        return f"{checks}, nothing found"
    counts = Counter(finding.severity for finding in findings)
    by_severity = ", ".join(f"{counts[severity]:,} {severity}" for severity in SEVERITIES if counts[severity])
    return f"{checks}, {many(len(findings), 'finding')}: {by_severity}"


def _causes(findings: Iterable[Finding]) -> dict[tuple[str, str], list[Finding]]:
    """Groups findings with the same cause and the same advice, the worst first, then the largest."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.finding, finding.advice), []).append(finding)
    return dict(sorted(groups.items(), key=lambda item: (item[1][0].grade, -len(item[1]), item[0])))
