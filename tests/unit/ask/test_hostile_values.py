"""Times, offsets and names that nobody should have, through the whole job and the questions asked afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from jbod_model.errors import MalformedLog
from jbod_model.formats import records as r
from jbod_model.formats.batch import LAST_TIME, write_batch
from jbod_model.formats.codec import encode
from jbod_model.formats.log import read_file
from jbod_model.formats.records import Record, VersionedRecord
from jbod_model.ids import Uuid
from pipelines import ask
from pipelines.cli import main
from tests.support import local
from tests.support.volume import rare
from tests.support.written import TIME
from tests.unit.fold.histories import LAST

LOG = "__cluster_metadata-0"
QUESTIONS = ("status", "offline", "check", "incidents", "directories", "risk", "moves", "image")
NAMES = ("../../etc/passwd", "..", "a/b\\c", "$(touch hacked)`id`", "x'; DROP TABLE t; --", "%2e%2e%2f", "x" * 32_000)


def log_of(folder: Path, batches: Sequence[tuple[int, int, Record]]) -> Path:
    """A metadata.log.dir with a batch for each (offset, time, record)."""
    (folder / LOG).mkdir(parents=True)
    (folder / "meta.properties").write_text("cluster.id=abcdefghijklmnopqrstuv\n")
    with (folder / LOG / f"{0:020d}.log").open("wb") as segment:
        for offset, time, record in batches:
            value = encode(VersionedRecord(record, LAST[type(record)]))
            segment.write(write_batch([value], base_offset=offset, epoch=1, timestamp=time))
    return folder


def topic(name: str, number: int) -> list[Record]:
    made = r.PartitionRecord(topic_id=Uuid(7, number), partition_id=0, replicas=(1,), isr=(1,), leader=1)
    return [r.TopicRecord(name=name, topic_id=Uuid(7, number)), made]


def ask_everything(lake: Path, *more: str) -> None:
    for question in QUESTIONS:
        with pytest.raises(SystemExit) as left:
            main.main([question, "--lake", str(lake), *more])
        assert left.value.code in (0, 1), question


@pytest.mark.parametrize(
    "times",
    [
        rare((TIME + 1000, TIME, TIME - 10**6, 0)),
        rare((0, 0, 0, 0)),
        rare((-1, -1, -1, -1)),
        (TIME, LAST_TIME, TIME, LAST_TIME),
    ],
    ids=["backwards", "zero", "none", "far future"],
)
def test_clock_that_is_wrong_is_kept_as_it_was_and_every_question_is_answered(
    tmp_path: Path, times: tuple[int, ...]
) -> None:
    records = [*topic("a", 1), *topic("b", 2)]
    log = log_of(
        tmp_path / "log", [(at, time, record) for at, (time, record) in enumerate(zip(times, records, strict=True))]
    )
    local.replay(log, tmp_path / "lake")
    lake = ask.Lake.open(tmp_path / "lake")
    rows = lake.query(f"SELECT epoch_ms(append_time) FROM {lake.records()} ORDER BY log_offset")
    assert [time for (time,) in rows] == list(times)
    ask_everything(tmp_path / "lake")


@pytest.mark.parametrize("time", [LAST_TIME + 1, 2**62, 2**63 - 1, -2, -(2**63)])
def test_time_that_no_calendar_has_is_refused_by_both_readers_at_its_offset(tmp_path: Path, time: int) -> None:
    """Microseconds of 2**62 milliseconds do not fit a long: they would be another time, silently."""
    log = log_of(tmp_path / "log", [(0, TIME, r.NoOpRecord()), (1, time, r.NoOpRecord())])
    with pytest.raises(MalformedLog, match=r"00\.log: offset 1: timestamp of the batch is out of range"):
        local.replay(log, tmp_path / "lake")
    with pytest.raises(MalformedLog, match=f"offset 1: batch at byte .*: timestamp is {time}"):
        list(read_file(log / LOG / f"{0:020d}.log"))


@pytest.mark.parametrize("offset", [-5, 5, 2**62, 2**63 - 2])
def test_offset_that_does_not_follow_is_refused_by_name(tmp_path: Path, offset: int) -> None:
    log = log_of(tmp_path / "log", [(0, TIME, r.NoOpRecord()), (offset, TIME, r.NoOpRecord())])
    with pytest.raises(MalformedLog, match=r"00\.log: offset 1: base offset of the batch does not follow"):
        local.replay(log, tmp_path / "lake")


def test_names_that_are_paths_shell_or_sql_stay_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file is made by such a name, and each can be asked for."""
    monkeypatch.chdir(tmp_path)
    records = [record for number, name in enumerate(NAMES, 1) for record in topic(name, number)]
    log = log_of(tmp_path / "log", [(at, TIME + at, record) for at, record in enumerate(records)])
    local.replay(log, tmp_path / "lake")
    folders = sorted(path.name for path in tmp_path.iterdir())
    assert folders == ["lake", "log"]
    for name in NAMES:
        assert ask.history(ask.Lake.open(tmp_path / "lake"), f"{name}-0").events
    ask_everything(tmp_path / "lake")
    with pytest.raises(SystemExit) as left:
        main.main(["report", "--lake", str(tmp_path / "lake"), "--out", str(tmp_path / "report.html")])
    assert left.value.code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lake", "log", "report.html"]
