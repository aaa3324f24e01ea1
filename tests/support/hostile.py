"""A log whose topics have hostile names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from jbod_model.formats.records import TopicRecord
from tests.support.logs import Entry

NAMES = {
    "orders": "<script>alert(1)</script>",
    "clicks": "\"><img src=x onerror='alert(1)'>",
    "solo": "'; DROP TABLE partitions; --",
    "pinned": "</script><!-- {{ 7 * 7 }} &lt;b&gt;",
    "degraded": "\u202eevil\u0000\u001b[31m\u2028",
    "late": "x" * 249,
}
"""Topics of the bundled clusters, and their new names."""


def with_hostile_names(entries: Iterable[Entry]) -> list[Entry]:
    """The same log with the names changed."""
    return [_renamed(entry) if isinstance(entry.record, TopicRecord) else entry for entry in entries]


def _renamed(entry: Entry) -> Entry:
    assert entry.versioned is not None
    assert isinstance(entry.record, TopicRecord)
    record = replace(entry.record, name=NAMES.get(entry.record.name, entry.record.name))
    return replace(entry, versioned=replace(entry.versioned, record=record))
