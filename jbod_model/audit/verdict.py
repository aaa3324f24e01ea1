"""The results of an audit: about a request, and about records that no request explains."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from jbod_model.formats.records import VersionedRecord
from jbod_model.formats.request_log import NewerLine, RequestLine


class Verdict(enum.Enum):
    """How the written records compare with the expected ones."""

    SAME = "same"
    ORDER = "differs in order"
    QUIRK = "explained by a known quirk"
    DIFFERS = "differs"
    UNDECIDED = "not decidable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A request with its verdict."""

    line: RequestLine | NewerLine
    verdict: Verdict
    quirk: str | None = None
    """The names of the flaws or older rules that explain the difference, joined by commas."""
    reason: str | None = None
    """Why the verdict is not SAME, or what the audit took from the log or the answer to decide."""
    from_offset: int | None = None
    """Offset of the first record that the request caused."""
    expected: tuple[VersionedRecord, ...] = ()
    """What a controller without flaws writes."""
    found: tuple[VersionedRecord, ...] = ()
    """What the log has."""
    answer: tuple[tuple[str, Any, Any], ...] = ()
    """Field, expected and found, where the answer is another."""
    newer: bool = False
    """Whether the audit cannot decide because the request, or the cluster then, is newer than the reference
    controller."""


def undecided(line: RequestLine | NewerLine, reason: str, *, newer: bool = False) -> Judged:
    """A request that the audit cannot judge."""
    return Judged(line=line, verdict=Verdict.UNDECIDED, reason=reason, newer=newer)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnWork:
    """Records that the controller wrote by itself, or whose request is not in the request log."""

    cause: str
    """``session expired``, ``leaders balanced``, ``unclean leaders elected``, or ``unexplained`` and the record's type.

    A record that no audited request can cause has its type alone, for example ``NoOpRecord``.
    """
    from_offset: int
    records: tuple[VersionedRecord, ...]
    unexplained: bool = False
    """Whether a request should have caused the records and none in the log did."""
    nearest: tuple[RequestLine, tuple[VersionedRecord, ...]] | None = None
    """Of an unexplained record: a request that could have begun with it, and what that should have written."""
    newer: bool = False
    """Whether the audit cannot decide its cause because the record is newer than the reference controller."""
