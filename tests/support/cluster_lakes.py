"""Lakes of the bundled clusters, which tests only read. The first worker that needs a lake makes it, once in a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from filelock import FileLock

from tests.support.lakes import write_lake
from tests.support.logs import read_log
from tests.support.paths import EVERY_KAFKA, metadata_dir


class ClusterLakes(Mapping[str, Path]):
    """Cluster -> lake of all its records, in a folder that all workers of the run share."""

    def __init__(self, root: Path) -> None:
        root.mkdir(exist_ok=True)
        self._root = root
        self._files: dict[Path, list[tuple[Path, int]]] = {}

    def __getitem__(self, kafka: str) -> Path:
        lake = self._root / kafka
        with FileLock(f"{lake}.lock"):
            if not lake.exists():
                part = self._root / f"{kafka}.part"
                write_lake(part, read_log(metadata_dir(kafka)))
                part.rename(lake)
            self._files.setdefault(lake, _files(lake))
        return lake

    def __iter__(self) -> Iterator[str]:
        return iter(EVERY_KAFKA)

    def __len__(self) -> int:
        return len(EVERY_KAFKA)

    def changed(self) -> list[Path]:
        """Lakes that a test changed."""
        return [lake for lake, files in self._files.items() if _files(lake) != files]


def _files(lake: Path) -> list[tuple[Path, int]]:
    return sorted((path, path.stat().st_mtime_ns) for path in lake.rglob("*") if path.is_file())
