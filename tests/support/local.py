"""The main job in this process, without Spark: the load of the product."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from shutil import copytree

from pipelines.lake.publish import LakeWriter
from pipelines.lake.written_lake import Identity
from pipelines.run.options import Replay
from pipelines.run.rollback import RolledBack
from pipelines.run.runner import Runner
from pipelines.run.seed import discard_checkpoint
from pipelines.source.log_dir import LogDir
from pipelines.source.log_options import Settle
from tests.support.templates import new_folder


def replay(
    log_dir: Path,
    lake_dir: Path | str,
    *,
    most: int | None = None,
    shards: int = 2,
    lag: Settle | None = None,
    replace: bool = False,
    profile: str = "kafka",
    template: bool = True,
) -> RolledBack | None:
    """Roll the lake back if the log was rewritten, then replay to the log's end; returns the rollback.

    ``template``: a new lake is a copy of an empty one, so all have the same table ids. False: it is created as by jbod.

    Each run rebuilds its state from the records of the lake: the checkpoint of the one before is discarded.
    """
    if template and isinstance(lake_dir, Path) and not lake_dir.exists():
        identity = Identity(LogDir(str(log_dir)).cluster_id(), profile, "kafka", shards)
        copytree(_empty_lake(identity), lake_dir)
    runner = Runner(
        Replay(
            str(log_dir),
            str(lake_dir),
            profile=profile,
            shards=shards,
            settle=lag or Settle(),
            replace_history=replace,
            max_records=most or 1_000_000,
        )
    )
    discard_checkpoint(runner.lake.home)
    done = runner.load().rolled_back
    return done[-1] if done else None


@cache
def _empty_lake(identity: Identity) -> Path:
    """A new lake, to copy: to make one takes longer than most replays of tests."""
    made = new_folder()
    LakeWriter.create_or_open(str(made / "lake"), identity)
    return made / "lake"
