"""The seed of a checkpoint: the shards' states and their position in the log, in the folder of the new checkpoint.

A query with such a checkpoint begins at that position. A shard without state takes its state from the seed.

``home`` is the folder that holds the checkpoints: the lake, or another one for a lake on S3 (pipelines.lake.uris).
There the lake may have been written from another machine, so a stamp says to which row of the ledger the checkpoint
belongs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pyarrow.fs as pafs

from pipelines.run.stage_options import VERSION
from pipelines.source.positions import Position
from pipelines.storage.filesystem import filesystem_of

if TYPE_CHECKING:
    from pipelines.lake.publish import LakeWriter

CHECKPOINT = "_checkpoint"
OF_REQUESTS = "_checkpoint_requests"
NEXT = "_checkpoint.new"
_POSITION = "seed.json"
"""Beside the folder of the states, so that a seed is missed whose folder is gone."""
_STAMP = "stamp.json"
_VERSION = f"version-{VERSION}"


def write_seed(home: str, states: Mapping[int, bytes], position: Position) -> None:
    """Writes a seed for ``take_seed``. The present checkpoint stays until then."""
    fs, root = filesystem_of(home)
    _remove(fs, f"{root}/{NEXT}")
    folder = f"{root}/{NEXT}/seed"
    fs.create_dir(folder)
    for shard, state in states.items():
        with fs.open_output_stream(f"{folder}/{shard:04d}") as sink:
            sink.write(state)
    sizes = {f"{shard:04d}": len(state) for shard, state in states.items()}
    with fs.open_output_stream(f"{root}/{NEXT}/{_POSITION}") as sink:
        sink.write(json.dumps({**asdict(position), "sizes": sizes}).encode())


def take_seed(home: str) -> None:
    """Replaces the checkpoint by the seed that was written."""
    fs, root = filesystem_of(home)
    discard_checkpoint(home)
    fs.move(f"{root}/{NEXT}", f"{root}/{CHECKPOINT}")


def discard_checkpoint(home: str, name: str = CHECKPOINT) -> None:
    """Removes a checkpoint. It is renamed first, so that no run takes the rest for a checkpoint."""
    fs, root = filesystem_of(home)
    old = f"{root}/{name}.old"
    _remove(fs, old)
    if fs.get_file_info(f"{root}/{name}").type == pafs.FileType.Directory:
        fs.move(f"{root}/{name}", old)
        _remove(fs, old)


def checkpoint_fits(home: str, end_offset: int) -> bool:
    """Whether the checkpoint belongs to a lake that ends there: its last commit or its last plan ends there.

    A run that died between its ledger row and Spark's commit leaves a plan that was executed.
    """
    try:
        logs = _logs(home, CHECKPOINT)
        has_version = _read(home, f"{CHECKPOINT}/{_VERSION}") is not None
        if (logs["offsets"] and not has_version) or not _seed_is_whole(home):
            return False
        began = seed_position(home)
        ends = {batch: int(plan[-1]["offset"]) for batch, plan in logs["offsets"].items()}
    except (ValueError, LookupError, TypeError):
        return False
    committed = ends.get(max(logs["commits"], default=-1), -1 if began is None else began.offset)
    planned = ends.get(max(ends, default=-1), committed)
    return end_offset in (committed, planned)


def planned(home: str, name: str) -> dict[str, Any] | None:
    """The source's offset at the end of the last micro-batch that a checkpoint planned, executed or not, else None."""
    plans = _logs(home, name)["offsets"]
    return plans[max(plans)][-1] if plans else None


def lake_has_checkpoint(home: str) -> bool:
    """Whether a run can resume from the lake's checkpoint."""
    fs, root = filesystem_of(home)
    parts = fs.get_file_info([f"{root}/{CHECKPOINT}/{part}" for part in ("offsets", "seed")])
    return any(part.type == pafs.FileType.Directory for part in parts)


def is_seed(home: str) -> bool:
    """Whether the checkpoint is a seed that no query of Spark has taken."""
    fs, root = filesystem_of(home)
    seed, taken = fs.get_file_info([f"{root}/{CHECKPOINT}/{part}" for part in ("seed", "offsets")])
    return bool(seed.type == pafs.FileType.Directory and taken.type == pafs.FileType.NotFound)


def mark_version(home: str) -> None:
    """Records the version of the states in a new checkpoint."""
    fs, root = filesystem_of(home)
    if fs.get_file_info(f"{root}/{CHECKPOINT}/offsets").type == pafs.FileType.Directory:
        return
    fs.create_dir(f"{root}/{CHECKPOINT}")
    with fs.open_output_stream(f"{root}/{CHECKPOINT}/{_VERSION}"):
        pass


def stamp(lake: LakeWriter) -> None:
    """Notes that the checkpoint belongs to the newest row of the lake's ledger."""
    if lake.home != lake.path:
        fs, root = filesystem_of(lake.home)
        fs.create_dir(root)
        with fs.open_output_stream(f"{root}/{_STAMP}") as sink:
            sink.write(json.dumps({"lake": lake.path, "row": _row_of(lake)}).encode())


def is_stamped(lake: LakeWriter) -> bool:
    """Whether nothing was published since the checkpoint was last stamped. True for a checkpoint in the lake."""
    if lake.home == lake.path:
        return True
    try:
        return bool(_lines(lake.home, _STAMP, 0)[0]["row"] == _row_of(lake))
    except (ValueError, LookupError, TypeError):
        return False


def _row_of(lake: LakeWriter) -> str:
    row = lake.ledger
    return "" if row is None else f"{row['end_offset']} {row['published_time'].isoformat()}"


def is_readable(home: str, name: str) -> bool:
    """Whether Spark can start from a checkpoint, judged by its two logs. True also if there is no checkpoint."""
    try:
        _logs(home, name)
    except (ValueError, LookupError, TypeError):
        return False
    return True


def _logs(home: str, name: str) -> dict[str, dict[int, list[Any]]]:
    """Reads the entries of a checkpoint for each batch that was planned (``offsets``) and committed (``commits``).

    Raises LookupError or ValueError if it is damaged. A run that died while it wrote its first plan left a partial file
    under another name, and Spark does not start in a folder that is not empty.
    """
    fs, root = filesystem_of(home)
    logs: dict[str, dict[int, list[Any]]] = {}
    # The first line is the version. In a plan, Spark's metadata follow, then the source's position.
    for log, first in (("offsets", 2), ("commits", 1)):
        there = fs.get_file_info(pafs.FileSelector(f"{root}/{name}/{log}", allow_not_found=True))
        batches = sorted(int(info.base_name) for info in there if info.base_name.isdigit())
        logs[log] = {batch: _lines(home, f"{name}/{log}/{batch}", first) for batch in batches}
        if there and not logs["offsets"]:
            raise LookupError(log)
    if logs["offsets"] and "id" not in _lines(home, f"{name}/metadata", 0)[0]:
        raise LookupError("metadata")
    return logs


def _lines(home: str, path: str, first: int) -> list[Any]:
    """The lines of JSON in a file, from line ``first`` on. Raises LookupError if there are none."""
    content = _read(home, path) or b""
    documents = [json.loads(line) for line in content.decode().splitlines()[first:]]
    if not documents:
        raise LookupError(path)
    return documents


def seed_position(home: str) -> Position | None:
    """The position of the checkpoint's seed, None if it has none."""
    text = _read(home, f"{CHECKPOINT}/{_POSITION}")
    if text is None:
        return None
    fields = json.loads(text)
    del fields["sizes"]
    return Position(**fields)


def _seed_is_whole(home: str) -> bool:
    """Whether the seed, if there is one, has the state of every shard with which it was written.

    A shard whose state is gone would begin without its partitions. Raises LookupError or ValueError if it is damaged.
    """
    fs, root = filesystem_of(home)
    folder = f"{root}/{CHECKPOINT}/seed"
    there = {info.base_name: info.size for info in fs.get_file_info(pafs.FileSelector(folder, allow_not_found=True))}
    position = _read(home, f"{CHECKPOINT}/{_POSITION}")
    if not there and position is None:
        return True
    sizes: dict[str, int] = json.loads(position or "{}")["sizes"]
    return sizes.items() <= there.items()


def seed_state(home: str, shard: int) -> bytes | None:
    """The state of a shard in the checkpoint's seed, None if it has none."""
    return _read(home, f"{CHECKPOINT}/seed/{shard:04d}")


def _read(home: str, path: str) -> bytes | None:
    """The content of a file, None if there is none."""
    fs, root = filesystem_of(home)
    if fs.get_file_info(f"{root}/{path}").type != pafs.FileType.File:
        return None
    with fs.open_input_stream(f"{root}/{path}") as source:
        content: bytes = source.read()
    return content


def _remove(fs: pafs.FileSystem, folder: str) -> None:
    if fs.get_file_info(folder).type == pafs.FileType.Directory:
        fs.delete_dir(folder)
