"""The engine: columnar decode and replay of metadata logs into Delta tables, and the questions asked of them.

from pipelines import open_lake, read_log

open_lake("lake").table("offline_replicas").to_pandas()
read_log("/var/lib/kafka/metadata").table("offline_replicas").to_arrow()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines.frames import open_lake, read_log

__all__ = ["open_lake", "read_log"]


def __getattr__(name: str) -> Any:
    """Imports the functions when they are first used: every command imports this package, and few need them."""
    if name in __all__:
        from pipelines import frames

        return getattr(frames, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
