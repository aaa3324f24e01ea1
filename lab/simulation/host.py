"""A machine of a simulated cluster: disks that can fail, a configuration, and at most one broker process (R-SIM-3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jbod_model.broker import process
from jbod_model.broker.assignments import Replica
from jbod_model.broker.disks import Disks
from jbod_model.broker.lifecycle import Lifecycle
from jbod_model.broker.process import Broker
from jbod_model.broker.replicas import Replicas
from jbod_model.ids import KAFKA_IDS, IdTable, Uuid
from jbod_model.profiles import BrokerRules
from jbod_model.replay.image import Image
from jbod_model.storage.ensemble import DirectoryState, Ensemble, plan_format, plan_start, registered_directories
from jbod_model.storage.problems import NotFormatted, StorageProblem, UnreadableDirectory
from jbod_model.storage.properties import MetaProperties


@dataclass(slots=True)
class Disk:
    """The content of a disk, working or not: its meta.properties and its logs (True for a future log)."""

    works: bool = True
    meta: MetaProperties | None = None
    logs: dict[Replica, bool] = field(default_factory=dict)

    def state(self, path: str) -> DirectoryState:
        """What a process sees of the disk at ``path``."""
        if not self.works:
            return UnreadableDirectory(path, "I/O error")
        return self.meta or NotFormatted(path, "has no meta.properties")


@dataclass(slots=True)
class Host:
    """A machine. ``disks`` are the mounted disks by path; ``log_dirs`` and ``metadata_dir`` are the configuration."""

    node_id: int
    cluster_id: str
    rules: BrokerRules
    next_long: Callable[[], int]
    disks: dict[str, Disk]
    log_dirs: list[str]
    metadata_dir: str
    ids: IdTable = KAFKA_IDS
    broker: Broker | None = None
    applied: Image = field(default_factory=Image)
    connected: bool = True
    paused: bool = False
    clean_epoch: int = -1
    generation: int = 0

    def ensemble(self) -> Ensemble:
        """The configured directories, as a starting process finds them."""
        paths = sorted({*self.log_dirs, self.metadata_dir})
        return Ensemble(
            directories={path: self.disks.setdefault(path, Disk()).state(path) for path in paths},
            metadata_dir=self.metadata_dir,
        )

    def format(self) -> None:
        """Format the disks as ``kafka-storage format --ignore-formatted`` does."""
        plan = plan_format(
            self.ensemble(),
            cluster_id=self.cluster_id,
            node_id=self.node_id,
            ignore_formatted=True,
            add_missing_ids=self.rules.format_adds_missing_ids,
            next_long=self.next_long,
        )
        self._write(plan)

    def start(
        self, now: int, incarnation: Uuid, *, zookeeper: bool = False
    ) -> tuple[process.Action, ...] | StorageProblem:
        """Start a process on the directories, or return the problems that prevent it.

        ``zookeeper``: in ZooKeeper mode.
        """
        ensemble = self.ensemble()
        try:
            plan = plan_start(ensemble, node_id=self.node_id, next_long=self.next_long)
        except StorageProblem as problem:
            return problem
        self._write(plan)
        ensemble = self.ensemble()
        directories = registered_directories(ensemble, self.log_dirs)
        life = Lifecycle(
            node_id=self.node_id,
            cluster_id=self.cluster_id,
            incarnation_id=incarnation,
            log_dirs=directories,
            previous_epoch=self.clean_epoch,
            zookeeper=zookeeper,
            rules=self.rules,
        )
        self.clean_epoch = -1
        readable = [path for path in self.log_dirs if path in ensemble.properties]
        configured = tuple(id_ for path in readable if (id_ := ensemble.properties[path].directory_id) is not None)
        disks = Disks(
            configured=configured,
            unreadable=len(self.log_dirs) - len(readable),
            metadata_dir=ensemble.properties[self.metadata_dir].directory_id,
            current=self._logs(readable, future=False),
            future=self._logs(readable, future=True),
        )
        self.generation += 1
        self.applied = Image(ids=self.ids)
        self.broker = Broker(life=life, replicas=Replicas(disks=disks, rules=self.rules, ids=self.ids))
        self.broker, actions = process.start(self.broker, now)
        return actions

    def end(self, *, clean: bool) -> None:
        """The process has ended. After a clean shutdown its epoch is on disk."""
        if clean and self.broker is not None:
            self.clean_epoch = self.broker.life.epoch
        self.broker = None

    def save(self) -> None:
        """Put the logs where the process has them; disks that it lost keep their logs."""
        if self.broker is None:
            return
        disks = self.broker.replicas.disks
        for path in self.log_dirs:
            disk = self.disks[path]
            directory = None if disk.meta is None else disk.meta.directory_id
            if directory in disks.online:
                disk.logs = {replica: False for replica, where in disks.current.items() if where == directory}
                disk.logs |= {replica: True for replica, where in disks.future.items() if where == directory}

    def directory_id(self, path: str) -> Uuid | None:
        """The id of the disk mounted at ``path``."""
        meta = self.disks[path].meta
        return None if meta is None else meta.directory_id

    def serves(self, replica: Replica) -> bool:
        """Whether the process runs, is connected and has the replica's log in a working directory."""
        reachable = self.broker is not None and self.connected and not self.paused
        return reachable and self.broker is not None and replica in self.broker.replicas.disks.current

    def _logs(self, paths: list[str], *, future: bool) -> dict[Replica, Uuid]:
        return {
            replica: directory
            for path in paths
            if (directory := self.directory_id(path)) is not None
            for replica, is_future in self.disks[path].logs.items()
            if is_future == future
        }

    def _write(self, plan: Mapping[str, MetaProperties]) -> None:
        for directory, meta in plan.items():
            self.disks[directory].meta = replace(meta)


@dataclass(frozen=True, slots=True)
class Reading:
    """A value of the gauge of a broker's queue of assignments at a time (milliseconds), with the name that the profile
    gives it (R-SIM-9). None after the broker's process has ended."""

    time_ms: int
    node_id: int
    name: str
    value: int | None


def changed(readings: Sequence[Reading], reading: Reading) -> bool:
    """Whether a reading differs from the broker's newest one, or is its first."""
    newest = next((known.value for known in reversed(readings) if known.node_id == reading.node_id), None)
    return newest != reading.value
