"""``python -m lab explore --trace``: exit codes, text, JSON, and bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from jbod_model.formats.log import LogReader, LogWriter, MetadataLog
from jbod_model.formats.records import RegisterBrokerRecord, UnknownRecord, VersionedRecord
from lab.__main__ import main
from tests.support.paths import CLUSTERS, ROOT, metadata_dir

KAFKA = "kafka-4.1.2"
LOG_DIR = metadata_dir(KAFKA)
REQUESTS = CLUSTERS / KAFKA / "requests-100.log.gz"


def run(*words: Any) -> int:
    with pytest.raises(SystemExit) as left:
        main(["explore", *(str(word) for word in words)])
    return int(left.value.code or 0)


def written(directory: Path, offset: int, change: Callable[[VersionedRecord], VersionedRecord]) -> Path:
    """The real log with another record at an offset."""
    log = LogWriter()
    for _, batch in groupby(LogReader(MetadataLog.open(LOG_DIR)), key=lambda entry: entry.header):
        entries = list(batch)
        records: list[Any] = [entry.record for entry in entries]
        if offset in (offsets := [entry.offset for entry in entries]):
            records[offsets.index(offset)] = change(records[offsets.index(offset)])
        log.append(records, epoch=entries[0].epoch, timestamp=entries[0].timestamp)
    log.write(directory)
    return directory


def test_a_behaviour_leaves_with_0_and_counts_its_actions(capsys: pytest.CaptureFixture[str]) -> None:
    """R-BEHAVE-9: what elr_wipe breaks is told, and is no finding."""
    assert run("--trace", LOG_DIR) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "A behaviour of the specification: 155 batches, 125 actions, up to offset 629."
    assert "replicas assigned to directories                40" in lines
    assert "By the known flaw or older rule elr_wipe: 3 actions." in lines
    assert "R-INV-17 is broken by elr_wipe at offset 224: solo-6: an assignment took the eligible leaders [1]." in lines


def test_as_json_with_requests(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--trace", LOG_DIR, "--requests", REQUESTS, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["behaviour"], answer["decidable"], answer["end"]) == (True, True, None)
    assert (answer["batches"], answer["records"], answer["next_offset"]) == (155, 630, 630)
    assert answer["actions"]["replicas assigned to directories"] == 32
    assert answer["not_modelled"]["NoOpRecord"] == 70
    assert answer["flaws"] == {"elr_wipe": 3}
    assert [(breach["invariant"], breach["offset"], breach["flaw"]) for breach in answer["breaches"]] == [
        ("R-INV-17", offset, "elr_wipe") for offset in (224, 477, 478)
    ]


def test_a_forged_log_leaves_with_1_and_names_offset_batch_and_nearest_action(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-BEHAVE-10."""

    def other_epoch(versioned: VersionedRecord) -> VersionedRecord:
        assert isinstance(versioned.record, RegisterBrokerRecord)
        return replace(versioned, record=replace(versioned.record, broker_epoch=99))

    log_dir = written(tmp_path, 14, other_epoch)
    assert run("--trace", log_dir) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(
        "Not a behaviour of the specification: at offset 14, in the batch of offsets 12 to 14: no"
    )
    assert "  The nearest action is: registration." in lines
    assert "  REGISTER_BROKER_RECORD.brokerEpoch: it would have written 14, found 99" in lines
    assert run("--trace", log_dir, "--json") == 1
    end = json.loads(capsys.readouterr().out)["end"]
    assert (end["offset"], end["batch"], end["nearest"]) == (14, [12, 14], "registration")
    assert [record["data"]["brokerEpoch"] for record in (*end["found"], *end["expected"])] == [99, 14]


def test_what_is_newer_leaves_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """R-BEHAVE-8."""
    log_dir = written(tmp_path, 300, lambda _: VersionedRecord(UnknownRecord(api_key=99, body=b""), 0))
    assert run("--trace", log_dir) == 2
    printed = capsys.readouterr()
    assert printed.out.startswith("Not decidable from offset 300 on: record type 99 version 0 is not known")
    assert "not decidable from offset 300 on" in printed.err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--trace", LOG_DIR, "--brokers", 2], "--brokers bounds a search"),
        (["--trace", LOG_DIR, "--profile", "kip858", "--requests", REQUESTS], "--requests are of a Kafka"),
        (["--trace", LOG_DIR, "--requests", "nothing.log"], "nothing.log: there is no such file"),
        (["--trace", ROOT / "docs"], "holds no segment and no snapshot"),
        (["--requests", REQUESTS], "give --trace LOG_DIR too"),
        (["--trace", LOG_DIR, "--config", "color=red"], "--config color=red"),
    ],
)
def test_bad_usage_leaves_with_2(words: list[Any], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*words) == 2
    assert problem in capsys.readouterr().err


def test_the_page_shows_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "spec" / "behaviour.md").read_text(encoding="utf-8")
    assert run("--trace", metadata_dir("kafka-3.9.2-upgrade")) == 0
    assert capsys.readouterr().out in page
