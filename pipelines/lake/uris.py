"""Names of places that every process of a query understands. Light: all of them import it."""

from __future__ import annotations

from pathlib import Path


def for_all(location: str) -> str:
    """A path or URI that means the same whatever the working directory: an executor has one of its own."""
    return location if "://" in location else str(Path(location).absolute())


def for_spark(location: str) -> str:
    """The same for Spark, to which a path alone may mean another file system: a cluster's default is often HDFS."""
    return location if "://" in location else f"file://{for_all(location)}"
