"""Paths that mean the same in every process of a query. All of them import this module: keep it light."""

from __future__ import annotations

from pathlib import Path


def for_all(location: str) -> str:
    """Returns a path or URI that does not depend on the working directory, as executors have another one."""
    return location if "://" in location else str(Path(location).absolute())


def for_spark(location: str) -> str:
    """The same for Spark. To Spark, a plain path may mean another file system, such as HDFS on many clusters."""
    return location if "://" in location else f"file://{for_all(location)}"
