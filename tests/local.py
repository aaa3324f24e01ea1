"""The main job in this process, without Spark: the same stages, the same tables, the same ledger."""

from __future__ import annotations

from pathlib import Path

from pipelines.lake.publish import Identity, Lake
from pipelines.replay.collect import batch_of
from pipelines.replay.job import Job
from pipelines.replay.rollback import RolledBack, settle
from pipelines.replay.rules import rules
from pipelines.replay.seed import discard_checkpoint, seed_position, seed_state
from pipelines.replay.stages import decode_slice, fold_shard
from pipelines.source.log_dir import LogDir
from pipelines.source.plan import Planner
from pipelines.source.settle import Settle


def replay(
    log_dir: Path,
    lake_dir: Path,
    *,
    most: int | None = None,
    shards: int = 2,
    lag: Settle | None = None,
    replace: bool = False,
) -> RolledBack | None:
    """Settle the lake with the log, then replay to the log's end; what was taken back.

    There is no checkpoint: every run makes its state again from the records of the lake.
    """
    log = LogDir(str(log_dir))
    lake = Lake.create_or_open(str(lake_dir), Identity(log.cluster_id(), "kafka", "kafka", shards))
    job = Job(str(lake_dir), lake.identity.shards, rules("kafka", "kafka"))
    discard_checkpoint(str(lake_dir))
    done = settle(lake, job, Planner(log), has_checkpoint=False, replace=replace)
    planner = Planner(log, settle=lag)
    position = seed_position(str(lake_dir)) or planner.begin()
    states = {shard: seed_state(str(lake_dir), shard) for shard in range(job.shards + 1)}
    while (end := planner.advance(position, most)) != position:
        rows = [
            row
            for number, piece in enumerate(planner.slices(position, end))
            for row in decode_slice(job, number, piece)
        ]
        reports = [row for row in rows if row[0] < 0]
        for shard in sorted({row[0] for row in rows if row[0] >= 0}):
            states[shard], out = fold_shard(job, shard, states[shard], [row for row in rows if row[0] == shard])
            reports += out
        known = lake.ledger["metadata_version"] if lake.ledger else -1
        batch = batch_of(str(lake_dir), [(kind, payload) for _, _, kind, payload in reports], known)
        assert batch is not None
        lake.publish(batch)
        position = end
    return done
