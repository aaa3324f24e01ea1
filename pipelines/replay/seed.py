"""The seed of a checkpoint: the shards' states and the position they belong to, written where the checkpoint is to be.

A query that begins in such a checkpoint begins at that position, and a shard that has no state yet takes the seed's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict

import pyarrow.fs as pafs

from pipelines.lake.files import lake_filesystem
from pipelines.source.pieces import Position

CHECKPOINT = "_checkpoint"
_NEXT = "_checkpoint.new"
_OLD = "_checkpoint.old"


def write_seed(lake: str, states: Mapping[int, bytes], position: Position) -> None:
    """Put a seed where ``take_seed`` finds it; the checkpoint that is there stays for now."""
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
    """Make the seed that was written the checkpoint."""
    fs, root = lake_filesystem(lake)
    discard_checkpoint(lake)
    fs.move(f"{root}/{_NEXT}", f"{root}/{CHECKPOINT}")


def discard_checkpoint(lake: str) -> None:
    """Remove the checkpoint: at once under its name, so that no half of it is taken for one."""
    fs, root = lake_filesystem(lake)
    _remove(fs, f"{root}/{_OLD}")
    if fs.get_file_info(f"{root}/{CHECKPOINT}").type == pafs.FileType.Directory:
        fs.move(f"{root}/{CHECKPOINT}", f"{root}/{_OLD}")
        _remove(fs, f"{root}/{_OLD}")


def checkpoint_fits(lake: str, end_offset: int) -> bool:
    """Whether the checkpoint belongs to a lake that ends there: what it committed ends there, or what it planned.

    A run that died between its ledger row and its commit left a plan that was carried out. One that died while it wrote
    its first plan left half of it under another name, and Spark does not begin where anything lies.
    """
    fs, root = lake_filesystem(lake)
    ends: dict[str, dict[int, int]] = {}
    for log in ("offsets", "commits"):
        there = fs.get_file_info(pafs.FileSelector(f"{root}/{CHECKPOINT}/{log}", allow_not_found=True))
        ends[log] = {int(info.base_name): 0 for info in there if info.base_name.isdigit()}
        if there and not ends[log] and not ends["offsets"]:
            return False
    for batch in ends["offsets"]:
        with fs.open_input_stream(f"{root}/{CHECKPOINT}/offsets/{batch}") as source:
            ends["offsets"][batch] = int(json.loads(source.read().decode().splitlines()[-1])["offset"])
    began = seed_position(lake)
    committed = ends["offsets"].get(max(ends["commits"], default=-1), -1 if began is None else began.offset)
    planned = ends["offsets"].get(max(ends["offsets"], default=-1), committed)
    return end_offset in (committed, planned)


def seed_position(lake: str) -> Position | None:
    """Where the seed of the checkpoint begins, None where it has none."""
    text = _seed_file(lake, "position.json")
    return None if text is None else Position(**json.loads(text))


def seed_state(lake: str, shard: int) -> bytes | None:
    """The state of a shard that the checkpoint began with, None where it began with none."""
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
