"""Records that are not known: the run goes on, every answer says so, and a jbod that knows them heals the lake."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from jbod_model.errors import MalformedLog
from jbod_model.formats import records as r
from jbod_model.formats.log import LogWriter
from jbod_model.formats.records import Record, VersionedRecord
from jbod_model.formats.schema import API_KEYS
from jbod_model.ids import Uuid
from pipelines.check.catalogue import run_checks
from pipelines.cli import main
from pipelines.formats import records
from pipelines.formats.programs import programs
from pipelines.lake.reader import Lake
from pipelines.run.log_lake import LogLake
from pipelines.source.log_options import LogOptions
from pipelines.upkeep.rebuild import rebuild
from tests.support import local
from tests.support.tables import differences, rows_of
from tests.support.volume import sampled
from tests.support.written import TIME
from tests.unit.fold.histories import LAST

BROKER = r.RegisterBrokerRecord(broker_id=1, broker_epoch=1, fenced=False, log_dirs=(Uuid(1, 1),))
GONE = r.UnregisterBrokerRecord(broker_id=1, broker_epoch=1)
FUTURE = r.UnknownRecord(api_key=35, body=b"x")
LATER_CONFIG = r.UnknownRecord(api_key=4, body=b"later")
NOOP = r.NoOpRecord()
COMMANDS = (
    ["offline"], ["status"], ["directories"], ["incidents"], ["risk"], ["whatif", "--fail", "1"],
    ["check", "--no-keep"],
)  # fmt: skip


def log_of(directory: Path, *records: Record, epochs: Sequence[int] = ()) -> Path:
    """A metadata.log.dir with a batch for each record; what is not known is of version 1."""
    writer = LogWriter()
    for number, record in enumerate(records):
        versioned = VersionedRecord(record, LAST.get(type(record), 1))
        writer.append([versioned], epoch=epochs[number] if epochs else 1, timestamp=TIME + 1000 * number)
    (directory / "__cluster_metadata-0").mkdir(parents=True, exist_ok=True)
    (directory / "meta.properties").write_text("version=1\ncluster.id=abcdefghijklmnopqrstuv\nnode.id=1\n")
    writer.write(directory / "__cluster_metadata-0")
    return directory


def ask(*words: str) -> tuple[int, str]:
    """Exit code and standard output of a command."""
    ran = CliRunner().invoke(main.application(words), words)
    if ran.exception and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    return ran.exit_code, ran.stdout


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Unknown from offset 2 on; a later version of a configuration at offset 4."""
    log = log_of(tmp_path / "log", NOOP, BROKER, FUTURE, NOOP, LATER_CONFIG, FUTURE)
    local.replay(log, tmp_path / "lake")
    return tmp_path / "lake"


def test_unknown_record_is_kept_and_the_run_goes_on(lake: Path) -> None:
    """R-REC-4."""
    rows = rows_of(lake)
    assert [row["record_type"] for row in rows["records"]][2:] == [
        "UNKNOWN_35", "NO_OP_RECORD", "CONFIG_RECORD", "UNKNOWN_35",
    ]  # fmt: skip
    assert rows["records"][2]["value"] == b"\x01\x23\x01x"
    assert len(rows["brokers"]) == 1


def test_lake_is_incomplete_from_the_first_unknown_record_on(lake: Path) -> None:
    assert str(Lake.open(lake).incomplete_since) == (
        "incomplete since offset 2: record type 35, ConfigRecord version 1"
    )
    assert str(Lake.open(lake, 3).incomplete_since) == "incomplete since offset 2: record type 35"
    assert Lake.open(lake, 1).incomplete_since is None
    (row,) = DeltaTable(str(lake / "ledger")).to_pyarrow_table().to_pylist()
    assert (row["unknown_from"], dict(row["unknown_types"])) == (2, {"record type 35": 2, "ConfigRecord version 1": 4})


def test_log_is_incomplete_as_its_lake_is(lake: Path) -> None:
    log_lake = LogLake.of(LogOptions(path=str(lake.parent / "log")))
    assert log_lake.incomplete_since == Lake.open(lake).incomplete_since
    assert log_lake._at(1).incomplete_since is None
    assert list(run_checks(log_lake, ["B-36"])) == list(run_checks(Lake.open(lake), ["B-36"]))


@pytest.mark.parametrize("words", sampled(COMMANDS, 3), ids=lambda words: words[0])
def test_every_answer_says_that_it_is_incomplete(lake: Path, words: list[str]) -> None:
    _, output = ask(*words, "--lake", str(lake))
    assert output.startswith("incomplete since offset 2: record type 35, ConfigRecord version 1: upgrade jbod")
    assert output.count("incomplete since") == 1
    _, output = ask(*words, "--lake", str(lake), "--json")
    assert json.loads(output)["incomplete_since"] == {
        "offset": 2,
        "records": ["record type 35", "ConfigRecord version 1"],
    }
    for more in ([], ["--json"]):
        assert "incomplete" not in ask(*words, "--lake", str(lake), "--at-offset", "1", *more)[1]


def test_image_and_metrics_say_that_they_are_incomplete(lake: Path) -> None:
    assert json.loads(ask("image", "--lake", str(lake))[1])["incomplete_since"]["offset"] == 2
    assert "incomplete_since" not in json.loads(ask("image", "--lake", str(lake), "--at-offset", "1")[1])
    output = ask("metrics", "--lake", str(lake))[1]
    assert output.startswith("# HELP")
    assert "jbod_lake_incomplete 1.0\n" in output
    assert 'jbod_lake_unknown_records_offset{record="ConfigRecord version 1"} 4.0\n' in output


def test_check_finds_unknown_records_and_leaves_with_1_whatever_is_asked_for(lake: Path) -> None:
    (finding,) = run_checks(Lake.open(lake), ["B-36"])
    assert (finding.severity, finding.from_offset, finding.subject) == ("critical", 2, "the cluster")
    assert finding.finding == "not known: record type 35, ConfigRecord version 1"
    assert round(finding.from_time.timestamp() * 1000) == TIME + 2000
    assert run_checks(Lake.open(lake, 1), ["B-36"]) == []
    assert ask("check", "--lake", str(lake), "--only", "B-01", "--no-keep")[0] == 1
    assert ask("check", "--lake", str(lake), "--only", "B-01", "--at-offset", "1")[0] == 0


def test_mark_stays_when_more_is_published(lake: Path) -> None:
    other = r.UnknownRecord(api_key=36, body=b"")
    more = (NOOP, BROKER, FUTURE, NOOP, LATER_CONFIG, FUTURE, NOOP, other)
    local.replay(log_of(lake.parent / "log", *more), lake)
    open_lake = Lake.open(lake)
    assert open_lake.published.unknown == {"record type 35": 2, "ConfigRecord version 1": 4, "record type 36": 7}


def test_mark_goes_with_the_records_that_are_taken_back(lake: Path) -> None:
    """An election replaced what came from offset 3 on: only the first kind is left."""
    log = log_of(lake.parent / "log", NOOP, BROKER, FUTURE, NOOP, NOOP, epochs=(1, 1, 1, 2, 2))
    local.replay(log, lake)
    assert Lake.open(lake).published.unknown == {"record type 35": 2}
    log = log_of(lake.parent / "log", NOOP, BROKER, NOOP, epochs=(1, 1, 3))
    local.replay(log, lake)
    assert Lake.open(lake).incomplete_since is None


def test_later_version_of_a_record_of_the_tables_stops_the_run(tmp_path: Path) -> None:
    newest = LAST[r.BrokerRegistrationChangeRecord]
    later = VersionedRecord(r.UnknownRecord(api_key=17, body=b"later"), newest + 1)
    log = log_of(tmp_path / "log", NOOP)
    writer = LogWriter()
    writer.append([VersionedRecord(NOOP, 0), later], epoch=1, timestamp=TIME)
    writer.write(log / "__cluster_metadata-0")
    problem = f"offset 1: BrokerRegistrationChangeRecord version {newest + 1}: this jbod knows up to {newest}: upgrade"
    with pytest.raises(MalformedLog, match=problem):
        local.replay(log, tmp_path / "lake")


def test_rebuild_by_a_jbod_that_knows_the_record_heals_the_lake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-REC-4: the broker's unregistration was not known."""
    log = log_of(tmp_path / "log", NOOP, BROKER, GONE, NOOP)
    local.replay(log, tmp_path / "fresh")
    monkeypatch.delitem(API_KEYS, 1)
    monkeypatch.setattr(records, "_OF_THE_TABLES", np.array([0], np.int32))
    programs.cache_clear()
    local.replay(log, tmp_path / "lake")
    rebuild(str(tmp_path / "lake"), say=lambda _: None)
    assert str(Lake.open(tmp_path / "lake").incomplete_since) == "incomplete since offset 2: record type 1"
    assert [row["to_offset"] for row in rows_of(tmp_path / "lake")["brokers"]] == [None]
    monkeypatch.undo()
    programs.cache_clear()
    assert Lake.open(tmp_path / "lake").incomplete_since is not None
    local.replay(log, tmp_path / "lake")
    assert [row["to_offset"] for row in rows_of(tmp_path / "lake")["brokers"]] == [None]
    rebuild(str(tmp_path / "lake"), say=lambda _: None)
    assert Lake.open(tmp_path / "lake").incomplete_since is None
    assert differences(rows_of(tmp_path / "lake"), rows_of(tmp_path / "fresh")) == []
