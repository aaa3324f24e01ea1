"""The seed of a checkpoint: the shards' states and their position in the log, in the folder of the new checkpoint.

A query with such a checkpoint begins at that position. A shard without state takes its state from the seed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pyarrow.fs as pafs

from pipelines.lake.files import lake_filesystem
from pipelines.replay.keys import VERSION
from pipelines.source.positions import Position

CHECKPOINT = "_checkpoint"
OF_REQUESTS = "_checkpoint_requests"
_NEXT = "_checkpoint.new"
_KEYS = f"keys-{VERSION}"


def write_seed(lake: str, states: Mapping[int, bytes], position: Position) -> None:
    """Writes a seed for ``take_seed``. The present checkpoint stays until then."""
    fs, root = lake_filesystem(lake)
    _remove(fs, f"{root}/{_NEXT}")
    folder = f"{root}/{_NEXT}/seed"
    fs.create_dir(folder)
    for shard, state in states.items():
        with fs.open_output_stream(f"{folder}/{shard:04d}") as sink:
            sink.write(state)
    with fs.open_output_stream(f"{folder}/position.json") as sink:
        sink.write(json.dumps(asdict(position)).encode())


def take_seed(lake: str) -> None:
    """Replaces the checkpoint by the seed that was written."""
    fs, root = lake_filesystem(lake)
    discard_checkpoint(lake)
    fs.move(f"{root}/{_NEXT}", f"{root}/{CHECKPOINT}")


def discard_checkpoint(lake: str, name: str = CHECKPOINT) -> None:
    """Removes a checkpoint. It is renamed first, so that no run takes the rest for a checkpoint."""
    fs, root = lake_filesystem(lake)
    old = f"{root}/{name}.old"
    _remove(fs, old)
    if fs.get_file_info(f"{root}/{name}").type == pafs.FileType.Directory:
        fs.move(f"{root}/{name}", old)
        _remove(fs, old)


def checkpoint_fits(lake: str, end_offset: int) -> bool:
    """Whether the checkpoint belongs to a lake that ends there: its last commit or its last plan ends there.

    A run that died between its ledger row and Spark's commit leaves a plan that was executed.
    """
    try:
        logs = _logs(lake, CHECKPOINT)
        if logs["offsets"] and not _is_keyed(lake):
            return False
        began = seed_position(lake)
        ends = {batch: int(plan[-1]["offset"]) for batch, plan in logs["offsets"].items()}
    except (ValueError, LookupError, TypeError):
        return False
    committed = ends.get(max(logs["commits"], default=-1), -1 if began is None else began.offset)
    planned = ends.get(max(ends, default=-1), committed)
    return end_offset in (committed, planned)


def lake_has_checkpoint(lake: str) -> bool:
    """Whether a run can resume from the lake's checkpoint."""
    fs, root = lake_filesystem(lake)
    parts = fs.get_file_info([f"{root}/{CHECKPOINT}/{part}" for part in ("offsets", "seed")])
    return any(part.type == pafs.FileType.Directory for part in parts)


def mark_keys(lake: str) -> None:
    """Records the version of the keys in a new checkpoint."""
    fs, root = lake_filesystem(lake)
    if fs.get_file_info(f"{root}/{CHECKPOINT}/offsets").type == pafs.FileType.Directory:
        return
    fs.create_dir(f"{root}/{CHECKPOINT}")
    with fs.open_output_stream(f"{root}/{CHECKPOINT}/{_KEYS}"):
        pass


def _is_keyed(lake: str) -> bool:
    fs, root = lake_filesystem(lake)
    return bool(fs.get_file_info(f"{root}/{CHECKPOINT}/{_KEYS}").type == pafs.FileType.File)


def is_readable(lake: str, name: str) -> bool:
    """Whether Spark can start from a checkpoint, judged by its two logs. True also if there is no checkpoint."""
    try:
        _logs(lake, name)
    except (ValueError, LookupError, TypeError):
        return False
    return True


def _logs(lake: str, name: str) -> dict[str, dict[int, list[Any]]]:
    """Reads the entries of a checkpoint for each batch that was planned (``offsets``) and committed (``commits``).

    Raises LookupError or ValueError if it is damaged. A run that died while it wrote its first plan left a partial file
    under another name, and Spark does not start in a folder that is not empty.
    """
    fs, root = lake_filesystem(lake)
    logs: dict[str, dict[int, list[Any]]] = {}
    # The first line is the version. In a plan, Spark's metadata follow, then the source's position.
    for log, first in (("offsets", 2), ("commits", 1)):
        there = fs.get_file_info(pafs.FileSelector(f"{root}/{name}/{log}", allow_not_found=True))
        batches = sorted(int(info.base_name) for info in there if info.base_name.isdigit())
        logs[log] = {batch: _lines(fs, f"{root}/{name}/{log}/{batch}", first) for batch in batches}
        if there and not logs["offsets"]:
            raise LookupError(log)
    if logs["offsets"] and "id" not in _lines(fs, f"{root}/{name}/metadata", 0)[0]:
        raise LookupError("metadata")
    return logs


def _lines(fs: pafs.FileSystem, path: str, first: int) -> list[Any]:
    """The lines of JSON in a file, from line ``first`` on. Raises LookupError if there are none."""
    if fs.get_file_info(path).type != pafs.FileType.File:
        raise LookupError(path)
    with fs.open_input_stream(path) as source:
        lines = source.read().decode().splitlines()
    found = [json.loads(line) for line in lines[first:]]
    if not found:
        raise LookupError(path)
    return found


def seed_position(lake: str) -> Position | None:
    """The position of the checkpoint's seed, None if it has none."""
    text = _seed_file(lake, "position.json")
    return None if text is None else Position(**json.loads(text))


def seed_state(lake: str, shard: int) -> bytes | None:
    """The state of a shard in the checkpoint's seed, None if it has none."""
    return _seed_file(lake, f"{shard:04d}")


def _seed_file(lake: str, name: str) -> bytes | None:
    fs, root = lake_filesystem(lake)
    path = f"{root}/{CHECKPOINT}/seed/{name}"
    if fs.get_file_info(path).type != pafs.FileType.File:
        return None
    with fs.open_input_stream(path) as source:
        content: bytes = source.read()
    return content


def _remove(fs: pafs.FileSystem, folder: str) -> None:
    if fs.get_file_info(folder).type == pafs.FileType.Directory:
        fs.delete_dir(folder)
