"""The main job in this process, without Spark: the same stages, the same tables, the same ledger."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace
from typing import Any

from pipelines.fold.rules import rules
from pipelines.lake.changes import next_generation
from pipelines.lake.create import Identity
from pipelines.lake.publish import LakeWriter
from pipelines.run.batch import batch_of
from pipelines.run.load import Load
from pipelines.run.options import RunOutcome
from pipelines.run.rollback import RolledBack, reconcile
from pipelines.run.runner import Runner
from pipelines.run.seed import discard_checkpoint, seed_position, seed_state
from pipelines.run.stage_options import Job
from pipelines.run.stages import decode_slice, fold_shard
from pipelines.source.log_dir import LogDir
from pipelines.source.log_options import Options
from pipelines.source.plan import Planner
from pipelines.source.tail import Settle
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

    There is no checkpoint: every run rebuilds its state from the records of the lake.
    """
    log = LogDir(str(log_dir))
    identity = Identity(log.cluster_id(), profile, "kafka", shards)
    if template and isinstance(lake_dir, Path) and not lake_dir.exists():
        copytree(_empty_lake(identity), lake_dir)
    lake = LakeWriter.create_or_open(str(lake_dir), identity)
    job = Job(str(lake_dir), lake.identity.shards, rules(profile, "kafka"))
    discard_checkpoint(lake.home)
    done = reconcile(lake, job, Planner(log), has_checkpoint=False, replace=replace)
    job = dataclasses.replace(job, generation=next_generation(lake))
    planner = Planner(log, settle=lag)
    position = seed_position(lake.home) or planner.begin()
    states = {shard: seed_state(lake.home, shard) for shard in range(job.shards + 1)}
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


@cache
def _empty_lake(identity: Identity) -> Path:
    """A new lake, to copy: to make one takes longer than most replays of tests."""
    made = new_folder()
    LakeWriter.create_or_open(str(made / "lake"), identity)
    return made / "lake"


@dataclass(frozen=True)
class Frame:
    """The rows of one micro-batch, as the driver collects them from Spark."""

    rows: list[tuple[str, bytes]]

    def select(self, *_: str) -> Frame:
        """A row of kind and payload."""
        return self

    def collect(self) -> list[tuple[str, bytes]]:
        """The rows."""
        return self.rows


class LocalRunner(Runner):
    """A Runner whose queries run in this process."""

    def go(self) -> RunOutcome:
        """The run."""
        return self.run(SimpleNamespace(version="4.2.0"))  # type: ignore[arg-type]

    def _run(self, spark: Any) -> None:
        job = self._job()  # before the function takes the open tables
        publish = self._publications.function()

        def reported(reports: Sequence[tuple[str, bytes]]) -> None:
            publish(Frame([*reports]), 0)  # type: ignore[arg-type]

        try:
            Load(job, reported, lambda _: None).run(Options.read(self._options()), self._stop)
        finally:
            self._publications.look(last=True)
