from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from jbod_model.errors import MalformedLog
from jbod_model.formats.json_values import dump_lines
from jbod_model.formats.log import MetadataLog
from jbod_model.formats.records import UnregisterControllerRecord
from jbod_model.formats.schema import API_KEYS
from tests.support import kafka_dump
from tests.support.paths import CLUSTERS, GOLDEN, KAFKAS, metadata_dir
from tests.support.written import EVERY_TYPE, write_files


def without_control_content(line: dict[str, Any]) -> dict[str, Any]:
    return {**line, "control": None} if "control" in line else line


@pytest.mark.parametrize("kafka", KAFKAS)
def test_dump_equals_kafkas_own_of_every_record(kafka: str) -> None:
    """R-REC-3: offsets, epochs, batches and JSON; Kafkas before 4.0 print nothing of a control record."""
    expected = list(kafka_dump.lines(gzip.decompress((CLUSTERS / kafka / "dump-log.txt.gz").read_bytes()).decode()))
    ours = [line for s in MetadataLog.open(metadata_dir(kafka)).segments for line in dump_lines(s.path)]
    if any(line.get("control") for line in expected):
        assert ours == expected
    else:
        assert list(map(without_control_content, ours)) == list(map(without_control_content, expected))


def test_dump_of_written_files_equals_kafkas(tmp_path: Path) -> None:
    """R-LOG-8, R-LOG-9, R-LOG-10: Kafka's tool read these very bytes, its CRCs in the golden dump say so."""

    def stable(line: dict[str, Any]) -> dict[str, Any]:
        if line["batch"]["codec"] == "gzip":
            return {**line, "batch": {**line["batch"], "size": None, "crc": None}}
        return line

    ours = [stable(line) for path in write_files(tmp_path) for line in dump_lines(path)]
    text = (GOLDEN / "written_dump_4.1.2.txt").read_text(encoding="utf-8")
    assert ours == [stable(line) for line in kafka_dump.lines(text)]
    assert {type(record) for record, _ in EVERY_TYPE} == set(API_KEYS.values()) - {UnregisterControllerRecord}


def test_dump_of_a_newer_kafkas_log_equals_that_of_the_older_tool_except_for_records_it_cannot_read() -> None:
    """R-REC-3: Kafka 4.3.1's tool, the newest that is published, skips the record that came with 4.4."""
    text = gzip.decompress((CLUSTERS / "kafka-4.4.0" / "dump-log.txt.gz").read_bytes()).decode()
    readable = "".join(line for line in text.splitlines(keepends=True) if "Unknown metadata id 29" not in line)
    expected = {line["offset"]: line for line in kafka_dump.lines(readable) if "payload" in line or "control" in line}
    ours = [line for s in MetadataLog.open(metadata_dir("kafka-4.4.0")).segments for line in dump_lines(s.path)]
    (unknown,) = [line for line in ours if line["offset"] not in expected]
    assert unknown["payload"] == {"type": "UNREGISTER_CONTROLLER_RECORD", "version": 0, "data": {"controllerId": 102}}
    assert [line for line in ours if line is not unknown] == list(expected.values())


def test_dump_of_a_cut_off_file_ends_with_an_error(tmp_path: Path) -> None:
    segment = write_files(tmp_path)[0]
    segment.write_bytes(segment.read_bytes()[:-1])
    lines = dump_lines(segment)
    assert next(lines)["offset"] == 0
    with pytest.raises(MalformedLog, match="cut off"):
        list(lines)
