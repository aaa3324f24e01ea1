"""The tables of a lake as its writer knows them: each at one version, and opened when it is first needed.

To open a table, its log is read: dozens of requests on S3. Whether it has a newer version takes one request, because
the name of the next commit follows from the known version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from pipelines.lake.commit import Overtaken
from pipelines.lake.create import cannot_be_opened
from pipelines.lake.delta import delta_at, is_newest
from pipelines.lake.tables import BY_NAME


class OpenTables(Mapping[str, DeltaTable]):
    """The tables of a lake by name. ``tables[name]`` raises Overtaken if there is a version after the known one."""

    def __init__(self, lake: str) -> None:
        self._lake = lake
        self._versions: dict[str, int] = {}
        self._opened: dict[str, DeltaTable] = {}

    def __getitem__(self, name: str) -> DeltaTable:
        version = self._versions[name]
        delta = self._newest(name) if name not in self._opened or self._opened[name].version() < version else None
        delta = delta or self._opened[name]
        if delta.version() != version:
            raise Overtaken(f"{self._lake}/{name}: something else wrote at the same time: run again")
        return delta

    def __setitem__(self, name: str, delta: DeltaTable) -> None:
        self._opened[name] = delta
        self._versions[name] = delta.version()

    def __contains__(self, name: object) -> bool:
        return name in self._versions

    def __iter__(self) -> Iterator[str]:
        return iter(self._versions)

    def __len__(self) -> int:
        return len(self._versions)

    @property
    def versions(self) -> Mapping[str, int]:
        """The known version of each table. Opens none."""
        return self._versions

    def note(self, name: str, version: int) -> bool:
        """Takes a version as known if it is the table's newest one. Returns whether it is."""
        newest = is_newest(f"{self._lake}/{name}", version)
        if newest:
            self._versions[name] = version
        return newest

    def handed_over(self) -> OpenTables:
        """The same tables at the same versions. The open ones are with the result: two writers share none."""
        mine = OpenTables(self._lake)
        mine._versions = dict(self._versions)
        mine._opened, self._opened = self._opened, {}
        return mine

    def __getstate__(self) -> dict[str, object]:
        """What another process gets: names and versions. It opens the tables itself."""
        return {"_lake": self._lake, "_versions": self._versions, "_opened": {}}

    def take(self, versions: Mapping[str, int]) -> None:
        """Takes versions as known, which another writer of the same run published."""
        self._versions |= versions

    def committed(self, name: str) -> None:
        """Notes that this process committed the version after the known one."""
        self._versions[name] += 1

    def refresh(self, name: str) -> bool:
        """Looks for a newer version of a table, and takes it as known. Returns whether there was one."""
        known = self._versions[name]
        if is_newest(f"{self._lake}/{name}", known):
            return False
        self._versions[name] = self._newest(name).version()
        return self._versions[name] != known

    def _newest(self, name: str) -> DeltaTable:
        try:
            if name in self._opened:
                self._opened[name].update_incremental()
            else:
                self._opened[name] = delta_at(f"{self._lake}/{name}")
        except (DeltaError, OSError) as problem:
            raise cannot_be_opened(self._lake, BY_NAME[name], problem) from None
        return self._opened[name]
