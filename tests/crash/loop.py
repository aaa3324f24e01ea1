"""Kills runs at random moments, in chains: a lake is replayed by runs that are killed, until one may end.

A chain begins with no lake, and has two parts. Between them its log changes, by one of the ``STORIES``.
"""

from __future__ import annotations

import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from shutil import copy, rmtree

from jbod_model.formats.batch import write_batch
from jbod_model.formats.codec import encode
from jbod_model.formats.records import TopicRecord, VersionedRecord
from jbod_model.ids import Uuid
from pipelines.lake.uris import home_of
from pipelines.storage.filesystem import filesystem_of
from tests.crash.check import History, complete, readable, uninterrupted
from tests.crash.points import CHECKPOINT
from tests.crash.runs import forked, spark_run
from tests.support.logs import first_batches, read_file, read_log, segments

LOG = "__cluster_metadata-0"
BATCHES = (7, 30, 100)
"""Records of a micro-batch: small ones, so that most moments lie in a publication."""
MOST_KILLS = 8
"""The most kills on one lake and log before a run may end."""
STORIES = {
    "rewritten": "a log from 0 on, whose end an election rewrites once it was read",
    "snapshot": "the same of a log that begins with a snapshot",
    "retention": "what was not read yet of a log from 0 on is deleted: a snapshot stands in",
}

Run = Callable[[Path, str], bool]
"""Starts a run on (log, lake) and kills it; False if it ended first."""


@dataclass
class Counts:
    """The counts of a loop."""

    kills: int = 0
    ended_first: int = 0
    """Runs that ended before the moment at which they should have been killed."""
    unread: int = 0
    """Kills of runs that had published nothing."""
    published: int = 0
    """Kills of runs that had published something."""
    lost_checkpoints: int = 0
    compared: int = 0
    """Lakes whose rows were compared after a last run."""
    by: dict[str, int] = field(default_factory=dict)
    """Kills by what was killed, and when."""


class Killer:
    """One loop on one log."""

    def __init__(
        self, log_dir: Path, root: Path, seed: int, *, spark: bool, story: str = "rewritten", lakes: str = ""
    ) -> None:
        """``lakes``: where the lakes that are killed are, ``root`` if empty."""
        self._chance = random.Random(seed)
        self._root = root
        self._lakes = lakes or str(root)
        self._spark = spark
        self.counts = Counts()
        self._start_seconds = 10.0
        self._run_seconds = 2.0
        make = {"rewritten": segments, "snapshot": retained, "retention": deleted}[story]
        self._before = make(log_dir, root / "before")
        self._after = retained(log_dir, root / "after") if story == "retention" else make(log_dir, root / "after")
        self._is_rewritten = story != "retention"
        if self._is_rewritten:
            rewrite(self._after, self._chance)
        self._history = uninterrupted(self._before, root / "before-lake")
        self._then: dict[int, History] = {}

    def run(self, kills: int) -> Counts:
        """AssertionError if a lake was wrong, or did not become that of an uninterrupted run."""
        chain = 0
        while self.counts.kills < kills:
            chain += 1
            lake = f"{self._lakes}/lake-{chain}"
            histories = [self._history]
            self._kills(self._before, lake, histories, self._some(kills))
            if self._is_rewritten:
                self._finish(self._before, lake)
                complete(lake, self._history)
                self.counts.compared += 1
            histories.append(self._next(readable(lake, histories)))
            self._kills(self._after, lake, histories, self._some(kills))
            self._finish(self._after, lake)
            complete(lake, histories[1])
            self.counts.compared += 1
            remove(lake)
        return self.counts

    def _some(self, kills: int) -> int:
        return min(self._chance.randint(1, MOST_KILLS), kills - self.counts.kills)

    def _next(self, end: int) -> History:
        """The result of the second part of a chain for a lake that ends there."""
        if end not in self._then:
            lake = self._root / f"then-{end}"
            if end and not self._is_rewritten:
                uninterrupted(until(self._before, end, self._root / f"until-{end}"), lake)
            self._then[end] = uninterrupted(self._after, lake)
        return self._then[end]

    def _kills(self, log: Path, lake: str, histories: list[History], most: int) -> None:
        end = readable(lake, histories)
        done = self.counts.kills
        while self.counts.kills - done < most:
            checkpoint = Path(home_of(lake), "_checkpoint")
            if self._chance.random() < 0.1 and checkpoint.is_dir():
                rmtree(checkpoint)
                self.counts.lost_checkpoints += 1
            if not (self._kill_spark if self._spark else self._kill_forked)(log, lake):
                self.counts.ended_first += 1
                return
            before, end = end, readable(lake, histories)
            # Only the rewritten part may be rolled back.
            assert end >= before or (len(histories) == 2 and end >= histories[1].end - 1), (before, end)
            self.counts.unread += end == 0
            self.counts.published += end > before
            print(f"\r{self.counts}", end="", file=sys.stderr, flush=True)

    def _kill_forked(self, log: Path, lake: str) -> bool:
        started = time.monotonic()
        process = forked(log, lake, self._chance.choice(BATCHES))
        process.join(self._chance.uniform(0, self._run_seconds))
        if process.exitcode is not None:
            self._run_seconds = time.monotonic() - started
            assert process.exitcode == 0, process.exitcode
            return False
        process.kill()
        process.join()
        self._run_seconds *= 1.02
        return self._killed("process")

    def _kill_spark(self, log: Path, lake: str) -> bool:
        started = time.monotonic()
        whom = self._chance.choice(("driver", "group", "session"))
        point = self._chance.choice(CHECKPOINT) if self._chance.random() < 0.25 else None
        with spark_run(log, lake, self._chance.choice(BATCHES), point) as run:
            if point is not None:
                code = run.ended(300)
                if code == -signal.SIGKILL:
                    return self._killed(point)
            elif self._chance.random() < 0.15:
                when, code = "starting", run.ended(self._chance.uniform(0, self._start_seconds))
            elif not run.is_ready():
                # A run without new records starts no Spark.
                when, code = "starting", run.ended(10)
            else:
                self._start_seconds = time.monotonic() - started
                when, code = "running", run.ended(self._chance.uniform(0, 2.5 * self._start_seconds))
            if code is not None:
                assert code == 0, (code, run.errors)
                return False
            run.kill(whom)
            # Surviving processes run for a moment, until they notice that the others have ended.
            time.sleep(self._chance.uniform(0, 1))
            return self._killed(f"{whom}, {when}")

    def _killed(self, what: str) -> bool:
        self.counts.kills += 1
        self.counts.by[what] = self.counts.by.get(what, 0) + 1
        return True

    def _finish(self, log: Path, lake: str) -> None:
        """A run to the end."""
        if self._spark:
            with spark_run(log, lake, 1000) as run:
                code = run.ended(600)
                assert code == 0, (code, run.errors)
            return
        process = forked(log, lake, None)
        process.join(600)
        assert process.exitcode == 0, process.exitcode


def remove(lake: str) -> None:
    """Deletes a lake, on a disk or on S3, and its checkpoints."""
    fs, root = filesystem_of(lake)
    fs.delete_dir(root)
    rmtree(home_of(lake), ignore_errors=True)


def retained(source: Path, target: Path) -> Path:
    """A copy with its newest snapshot and the segments that the snapshot does not fully cover."""
    segments(source, target)
    newest = max((source / LOG).glob("*.checkpoint"))
    copy(newest, target / LOG)
    for path in _contained(target, newest):
        path.unlink()
    return target


def deleted(source: Path, target: Path) -> Path:
    """A copy of the segments that ``retained`` no longer has."""
    segments(source, target)
    kept = {path.name for path in _contained(target, max((source / LOG).glob("*.checkpoint")))}
    for path in (target / LOG).glob("*.log"):
        if path.name not in kept:
            path.unlink()
    return target


def _contained(log_dir: Path, snapshot: Path) -> list[Path]:
    files = sorted((log_dir / LOG).glob("*.log"))
    return [path for path, after in pairwise(files) if int(after.stem) <= int(snapshot.name[:20])]


def until(source: Path, end_offset: int, target: Path) -> Path:
    """A copy of the batches below an offset."""
    segments(source, target)
    for path in (target / LOG).glob("*.log"):
        path.write_bytes(first_batches(path.read_bytes(), end_offset))
        if not path.stat().st_size:
            path.unlink()
    return target


def rewrite(log_dir: Path, chance: random.Random) -> None:
    """An election: some last batches are cut off, and a leader of the next epoch writes a topic."""
    path = max((log_dir / LOG).glob("*.log"))
    entries = list(read_file(path))
    fork = chance.choice(sorted({entry.batch_offset for entry in entries})[1:])
    epoch = max(entry.epoch for entry in read_log(log_dir)) + 1
    topic = encode(VersionedRecord(TopicRecord(name="elected", topic_id=Uuid(77, 77)), 0))
    last = write_batch([topic], base_offset=fork, epoch=epoch, timestamp=1_900_000_000_000)
    path.write_bytes(first_batches(path.read_bytes(), fork) + last)
