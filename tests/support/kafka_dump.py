"""The output of Kafka's own log dump, as data."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

_BATCH = re.compile(
    r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .*partitionLeaderEpoch: (\d+) .*isControl: (\w+) .*"
    r"position: (\d+) CreateTime: (-?\d+) size: (\d+) magic: 2 compresscodec: (\w+) crc: (\d+) isvalid: true"
)
_RECORD = re.compile(r"\| offset: (\d+) .*?headerKeys: \[\] ?(.*)")


def lines(text: str) -> Iterator[dict[str, Any]]:
    """Each record as ``formats.json_values.dump_lines`` has it. Older Kafkas print no content of control records."""
    batch: dict[str, Any] = {}
    for line in text.splitlines():
        if match := _BATCH.match(line):
            base, last, count, epoch, control, position, time, size, codec, crc = match.groups()
            facts = {
                "baseOffset": int(base),
                "lastOffset": int(last),
                "count": int(count),
                "position": int(position),
                "size": int(size),
                "codec": codec,
                "crc": int(crc),
                "isControl": control == "true",
            }
            batch = {"timestamp": int(time), "epoch": int(epoch), "batch": facts}
        elif match := _RECORD.match(line):
            yield {"offset": int(match[1]), **batch, **_content(match[2])}


def _content(text: str) -> dict[str, Any]:
    if text.startswith("payload: "):
        return {"payload": json.loads(text.removeprefix("payload: "))}
    match = re.fullmatch(r"(\w+):? (\{.*)", text)
    return {"control": {match[1]: json.loads(match[2])} if match else None}
