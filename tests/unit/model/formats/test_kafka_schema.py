"""The list of what a newer Kafka's records have, made from its jar."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.kafka_schema import compare, main

COORDINATES = {"name": "ControllerId", "type": "int32", "versions": "0+"}
CORDONED = {
    "name": "CordonedLogDirs",
    "type": "[]uuid",
    "versions": "3+",
    "taggedVersions": "3+",
    "tag": 3,
    "nullableVersions": "3+",
}
CHANGE: list[dict[str, Any]] = [
    {"name": "BrokerId", "type": "int32", "versions": "0+"},
    {"name": "BrokerEpoch", "type": "int64", "versions": "0+"},
    {"name": "Fenced", "type": "int8", "versions": "0+", "tag": 0},
    {"name": "InControlledShutdown", "type": "int8", "versions": "1+", "tag": 1},
    {"name": "LogDirs", "type": "[]uuid", "versions": "2+", "tag": 2},
    CORDONED,
]


def jar(path: Path, *definitions: dict[str, Any]) -> Path:
    """A jar with definitions as Kafka's have them, a comment before each."""
    with zipfile.ZipFile(path / "kafka-metadata.jar", "w") as archive:
        archive.writestr("org/apache/kafka/A.class", b"\xca\xfe")
        for definition in definitions:
            archive.writestr(f"common/metadata/{definition['name']}.json", "// Licensed\n" + json.dumps(definition))
    return path / "kafka-metadata.jar"


def record(name: str, key: int, versions: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"apiKey": key, "type": "metadata", "name": name, "validVersions": versions, "fields": list(fields)}


def test_known_records_are_no_news(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = jar(
        tmp_path,
        record("UnregisterControllerRecord", 29, "0", COORDINATES),
        record("BrokerRegistrationChangeRecord", 17, "0-3", *CHANGE),
    )
    assert compare(path) == []
    assert main([str(path)]) == 0
    assert capsys.readouterr().out == ""


def test_new_records_versions_fields_and_forms_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rack = {"name": "Rack", "type": "string", "versions": "4+"}
    path = jar(
        tmp_path,
        record("ClusterIdRecord", 30, "0-1"),
        record("UnregisterControllerRecord", 31, "0", {**COORDINATES, "type": "int64"}),
        record("BrokerRegistrationChangeRecord", 17, "0-4", *CHANGE[:5], {**CORDONED, "tag": 4}, rack),
    )
    assert compare(path) == [
        "BrokerRegistrationChangeRecord: versions up to 4, here up to 3",
        "BrokerRegistrationChangeRecord.cordoned_log_dirs: (array, nullable, since, tag) is (True, True, 3, 4), "
        "here (True, True, 3, 3)",
        "BrokerRegistrationChangeRecord.rack: a new field, string from version 4 on",
        "ClusterIdRecord: a new record, api key 30, versions up to 1",
        "UnregisterControllerRecord: api key 31 is not known here",
        "UnregisterControllerRecord.controller_id: type int64, here int32",
    ]
    assert main([str(path)]) == 1
    assert "ClusterIdRecord" in capsys.readouterr().out


def test_what_is_no_jar_of_kafka_leaves_with_2_and_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "a.jar"
    text.write_text("no jar")
    for words in ([], [str(text)], [str(jar(tmp_path))], [str(tmp_path / "absent.jar")]):
        assert main(words) == 2
        assert capsys.readouterr().err.count("\n") == 1
