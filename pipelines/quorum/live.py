"""What only the quorum knows: how far every voter and observer is behind its leader, at this moment."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from jbod_model.ids import Uuid
from pipelines.quorum.client import QuorumClient
from pipelines.quorum.messages import Message

_NO_DIRECTORY = Uuid(0, 0)


@dataclass(frozen=True)
class Follower:
    """A voter or an observer, as the leader sees it."""

    kind: str
    """``voter`` or ``observer``."""
    node_id: int
    directory_id: str | None
    log_end_offset: int | None
    lag: int | None
    """Records that it has not fetched yet, None if the leader never heard of it."""
    last_fetch_time: datetime | None
    """When it fetched last. None for the leader itself."""
    last_caught_up_time: datetime | None


@dataclass(frozen=True)
class LiveQuorum:
    """The answer of DescribeQuorum."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    time: datetime
    followers: tuple[Follower, ...]


def live_quorum(quorum: QuorumClient) -> LiveQuorum:
    """Asks the leader. Raises Fault."""
    said = quorum.describe()
    end = max([one["log_end_offset"] for one in said["voters"]], default=-1)
    followers = [
        _follower(kind, one, end) for kind, key in (("voter", "voters"), ("observer", "observers")) for one in said[key]
    ]
    return LiveQuorum(
        said["leader_id"], said["leader_epoch"], said["high_watermark"], datetime.now(UTC), tuple(followers)
    )


def _follower(kind: str, one: Message, end: int) -> Follower:
    directory: Uuid | None = one.get("directory_id")
    known = one["log_end_offset"] >= 0
    return Follower(
        kind,
        one["replica_id"],
        None if directory is None or directory == _NO_DIRECTORY else str(directory),
        one["log_end_offset"] if known else None,
        max(end - one["log_end_offset"], 0) if known else None,
        _time(one.get("last_fetch_timestamp", -1)),
        _time(one.get("last_caught_up_timestamp", -1)),
    )


def _time(millis: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(millis / 1000, UTC) if millis >= 0 else None
    except (ValueError, OverflowError, OSError):
        return None
