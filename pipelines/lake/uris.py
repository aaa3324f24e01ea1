"""Paths that mean the same in every process of a query. All of them import this module: keep it light."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TypeAlias

LakeUri: TypeAlias = str
"""The path or URI of a lake: a folder in which each table is a folder."""


def for_all(location: str) -> str:
    """Returns a path or URI that does not depend on the working directory, as executors have another one."""
    return location if "://" in location else str(Path(location).absolute())


def home_of(lake: LakeUri, named: str = "") -> str:
    """Where Spark's checkpoints of a lake are: in the lake, or, for a lake on S3, in a folder below ``named``.

    A checkpoint is renamed and deleted as a folder, which S3 cannot do. If it is lost, or if the next run is on another
    machine, the state is rebuilt from the lake's records. ``named`` is by default the user's cache on
    this machine; on a cluster it must be a folder or URI that all executors share.
    """
    if not lake.startswith("s3://"):
        return lake
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    name = hashlib.sha256(lake.rstrip("/").encode()).hexdigest()[:16]
    return f"{(named or str(Path(cache, 'jbod', 'checkpoints'))).rstrip('/')}/{name}"


def commit_path(table: str, version: int) -> str:
    """The commit of a version of the table at a path or URI (Delta's protocol)."""
    return f"{table}/_delta_log/{commit_name(version)}"


def commit_name(version: int) -> str:
    """The name of that file."""
    return f"{version:020d}.json"


def for_spark(location: str) -> str:
    """The same for Spark. To Spark, a plain path may mean another file system, such as HDFS on many clusters."""
    return location if "://" in location else f"file://{for_all(location)}"
