"""Compare the record schemas here with those in a jar of any Kafka: ``make kafka-schema JAR=kafka-metadata-4.4.0.jar``.

Kafka keeps the JSON definition of each record in its jars: metadata records in kafka-metadata, control records in
kafka-clients. It prints one line for each difference from the schemas of this project. The exit code is 1
if there are any, and 2 for a jar that cannot be read or holds no definitions.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jbod_model.formats.schema import API_KEYS, SCHEMAS, Schema

DEFINITION = re.compile(r"common/(?:metadata|message)/(\w+(?:Record|Message))\.json")
CONTROL = frozenset(
    {"LeaderChangeMessage", "SnapshotHeaderRecord", "SnapshotFooterRecord", "KRaftVersionRecord", "VotersRecord"}
)
"""Definitions among Kafka's messages that stand in a metadata log."""
_COMMENT = re.compile(r"^\s*//.*$", re.M)
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NAMES = {("VotersRecord", "Voter"): "QuorumVoter"}
"""(record, struct of the definition) -> the name of the struct here, if two records share a name."""
LARGEST = 1 << 20
"""Bytes of a definition; Kafka's have some thousand."""


def definitions(jar: Path) -> Iterator[Mapping[str, Any]]:
    """The definitions of records in the jar; OSError, ValueError or BadZipFile if it is not a jar of Kafka."""
    with zipfile.ZipFile(jar) as archive:
        for entry in sorted(archive.infolist(), key=lambda member: member.filename):
            name = DEFINITION.fullmatch(entry.filename)
            if name is None or ("/message/" in entry.filename and name[1] not in CONTROL):
                continue
            if entry.file_size > LARGEST:
                raise ValueError(f"{entry.filename} has {entry.file_size} bytes")
            yield json.loads(_COMMENT.sub("", archive.read(entry).decode("utf-8")))


def news(definition: Mapping[str, Any]) -> Iterator[str]:
    """The parts of a definition that are unknown here."""
    name, key = str(definition["name"]), definition.get("apiKey")
    newest = int(str(definition["validVersions"]).rpartition("-")[2])
    schema = SCHEMAS.get(name)
    if schema is None:
        yield f"{name}: a new record" + (f", api key {key}" if key is not None else "") + f", versions up to {newest}"
        return
    if key is not None and API_KEYS.get(key) is not schema.cls:
        yield f"{name}: api key {key} is {API_KEYS[key].__name__ if key in API_KEYS else 'not known'} here"
    if newest != schema.max_version:
        yield f"{name}: versions up to {newest}, here up to {schema.max_version}"
    structs = {str(struct["name"]): struct.get("fields", []) for struct in definition.get("commonStructs", [])}
    yield from _fields(name, schema, definition["fields"], structs, name)


def _fields(where: str, schema: Schema, fields: Any, structs: Mapping[str, Any], record: str) -> Iterator[str]:
    known = {field.name: field for field in schema.fields}
    for given in fields:
        name = _WORD.sub("_", str(given["name"])).lower()
        kind = str(given["type"]).removeprefix("[]")
        field = known.pop(name, None)
        if field is None:
            yield f"{where}.{name}: a new field, {given['type']} from version {_since(given)} on"
            continue
        ours = (field.array, field.nullable, field.since, field.tag)
        theirs = (str(given["type"]).startswith("[]"), "nullableVersions" in given, _since(given), given.get("tag"))
        if ours != theirs:
            yield f"{where}.{name}: (array, nullable, since, tag) is {theirs}, here {ours}"
        nested = given.get("fields") or structs.get(kind)
        if nested:
            inner = SCHEMAS.get(_NAMES.get((record, kind), kind)) or SCHEMAS.get(field.type)
            if inner is None:
                yield f"{where}.{name}: a new struct {kind}"
            else:
                yield from _fields(f"{where}.{name}", inner, nested, structs, record)
        elif kind != field.type:
            yield f"{where}.{name}: type {kind}, here {field.type}"
    for name in known:
        yield f"{where}.{name}: is not in Kafka's definition"


def _since(given: Mapping[str, Any]) -> int:
    return int(re.split(r"[+-]", str(given["versions"]))[0])


def compare(jar: Path) -> list[str]:
    """The differences of a jar, a line each; ValueError without definitions."""
    record_definitions = list(definitions(jar))
    if not record_definitions:
        raise ValueError("it holds no record definitions: use kafka-metadata or kafka-clients")
    return [line for definition in record_definitions for line in news(definition)]


def main(words: list[str]) -> int:
    """Print the differences of each jar."""
    if not words:
        print("usage: make kafka-schema JAR=kafka-metadata-VERSION.jar", file=sys.stderr)
        return 2
    code = 0
    for word in words:
        try:
            lines = compare(Path(word))
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as problem:
            print(f"{word}: {problem}", file=sys.stderr)
            return 2
        for line in lines:
            print(line)
        print(f"{word}: {len(lines)} differences from the schemas here", file=sys.stderr)
        code = code or int(bool(lines))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
