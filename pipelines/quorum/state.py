"""What a mirror knows of its quorum, in a file beside the log: ``status``, metrics and checks read it.

A lake of a quorum has its mirror in ``LAKE.mirror``, or a link there to where ``--mirror`` says.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from jbod_model.errors import UsageError

_NAME = "quorum.json"
_MOST_BYTES = 1 << 16


@dataclass(frozen=True)
class WatchedQuorum:
    """The quorum, as its leader answered last."""

    high_watermark: int
    """Offset after the last committed record."""
    leader_id: int
    controller: str
    """HOST:PORT of the controller that answered."""
    answered_time: datetime
    silent_since: datetime | None = None
    """Since when no leader was found. None: one answers, or nobody asks any more."""

    def write(self, mirror: Path) -> None:
        """Replaces the file in one step. A disk that is full costs no record: the next step writes it again."""
        part = mirror / f"{_NAME}.part"
        with suppress(OSError):
            part.write_text(json.dumps(asdict(self), default=str), encoding="utf-8")
            part.replace(mirror / _NAME)

    def silent(self, since: datetime) -> WatchedQuorum:
        """The same quorum, without a leader that answers."""
        return replace(self, silent_since=since)


def read_state(mirror: Path) -> WatchedQuorum | None:
    """The state that a mirror keeps; None if the folder is no mirror, or its quorum never answered."""
    try:
        with (mirror / _NAME).open("rb") as file:
            kept = json.loads(file.read(_MOST_BYTES))
        silent = kept["silent_since"]
        return WatchedQuorum(
            int(kept["high_watermark"]),
            int(kept["leader_id"]),
            str(kept["controller"]),
            _time(kept["answered_time"]),
            None if silent is None else _time(silent),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def mirror_of(lake: str) -> Path:
    """Where the mirror of a lake's log is, if the log comes from a quorum."""
    return Path(f"{lake.rstrip('/')}.mirror")


def link_mirror(lake: str, mirror: str) -> None:
    """Makes ``LAKE.mirror`` a link to a mirror elsewhere. Raises UsageError if the lake has a mirror of its own."""
    place, target = mirror_of(lake), Path(mirror).absolute()
    if "://" in lake or place.absolute() == target:
        return
    if place.is_dir() and not place.is_symlink():
        raise UsageError(f"--mirror {mirror}: {place} is this lake's mirror: leave out --mirror, or move that folder")
    if not place.is_symlink() or place.readlink() != target:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        place.symlink_to(target)


def _time(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
