"""How full each log directory is, and what fills it: sizes from a source, joined with the metadata.

The log has ids of directories, and kafka-log-dirs has paths. A pairing of the two is *certain* if meta.properties says
it, or if every replica in the path is in one directory by the log, no other path of the broker has a replica of that
directory, and one of the replicas was never in another directory. It is *likely* if most replicas say it, if jbod label
keeps it, or if it is the only one left. Else it is *unknown*. Replicas that are being moved between disks do not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from jbod_model.errors import UsageError
from jbod_model.storage.problems import StorageProblem
from jbod_model.storage.properties import FILE_NAME
from pipelines.ask.configs import tiered_topics
from pipelines.ask.json_values import DatedAnswer
from pipelines.ask.log_dirs import (
    BrokerLogDir,
    held_in,
    is_log_dirs,
    mounted_disks,
    read_brokers,
    read_log_dirs,
    read_mounted,
)
from pipelines.lake.directory_sizes import TABLE, keep_sizes, newest_sizes
from pipelines.lake.kept_sizes import growth
from pipelines.lake.reader import Lake
from pipelines.quorum import KAFKA
from pipelines.settings import load

CERTAIN, LIKELY, UNKNOWN = "certain", "likely", "unknown"
MOST_TOPICS = 10
"""Topics that a directory names, the largest first."""
MAX_BYTES = 1 << 30
"""The largest file that is read: kafka-log-dirs prints about 100 bytes for each replica."""


@dataclass(frozen=True)
class TopicSize:
    """What a topic has in a directory."""

    topic: str
    replicas: int
    bytes: int


@dataclass(frozen=True)
class DirectorySize:
    """A directory of a broker. Sizes are null where no source says them."""

    broker_id: int
    path: str | None
    """None for a directory of the log that no path of the sources is."""
    directory_id: str | None
    """None if it is unknown."""
    pairing: str
    """certain, likely or unknown: how well it is known that the path has this id."""
    evidence: str
    """Why."""
    error: str = ""
    """Why the broker cannot read it; empty if it can."""
    replicas: int | None = None
    """Replicas in it by the source, without future ones."""
    bytes: int | None = None
    """Their log segments."""
    future_replicas: int | None = None
    """Copies that moves between disks are making."""
    future_bytes: int | None = None
    tiered_bytes: int | None = None
    """The part of ``bytes`` that topics with remote storage keep locally. No source has their remote bytes."""
    recorded: int | None = None
    """Replicas in it by the log; None if its id is unknown."""
    missing: int | None = None
    """Those among them that the source does not have there."""
    astray: int | None = None
    """Replicas that the source has there, and the log elsewhere or nowhere."""
    total_bytes: int | None = None
    """The size of its file system."""
    free_bytes: int | None = None
    cordoned: bool | None = None
    """Whether its broker places no new replica in it, by the source, else by the log."""
    time: datetime | None = None
    """When the source said it."""
    growth: int | None = None
    """Bytes a day that its replicas grow by, by what was kept. None if that is too little."""
    topics: Sequence[TopicSize] = ()
    """The largest topics in it."""
    also_in_json = ("used_percent", "days_until_full")

    @property
    def days_until_full(self) -> int | None:
        """Whole days at this growth. None if it does not grow, or if one of the two numbers is not known."""
        if self.free_bytes is None or not self.growth or self.growth < 0:
            return None
        return self.free_bytes // self.growth

    @property
    def used_percent(self) -> int | None:
        """How full the file system is."""
        if not self.total_bytes or self.free_bytes is None:
            return None
        return round(100 * (self.total_bytes - self.free_bytes) / self.total_bytes)


@dataclass(frozen=True)
class Sizes(DatedAnswer):
    """The answer."""

    directories: Sequence[DirectorySize]
    """By broker, the fullest first."""
    notes: Sequence[str]
    """What could not be used, a line each."""
    log_dirs: Sequence[BrokerLogDir] = ()
    """The same directories as the sources describe them, with each replica."""
    not_in_json = ("log_dirs",)


def sizes(lake: Lake, sources: Sequence[str], command_config: str = "") -> Sizes:
    """The directories of the sources, with their sizes, as of the lake's offset.

    A source is a file that kafka-log-dirs --describe printed, brokers (``kafka://HOST:PORT``), a mounted disk, or a
    folder that has mounted disks. If several sources have the same path of a broker, the last one counts.

    ``command_config``: a properties file for TLS and SASL, in place of the setting quorum.command_config. Raises
    UsageError for another source, and Fault if no broker can be asked.
    """
    notes: list[str] = []
    read: dict[tuple[int, str], BrokerLogDir] = {}
    for log_dir in _read(lake, sources, command_config, notes):
        if log_dir.broker_id is None:
            notes.append(f"{log_dir.source}: says no node.id: left out")
        else:
            read[log_dir.broker_id, log_dir.path] = log_dir
    log = _Log.of(lake)
    tiered = tiered_topics(lake)
    directories: list[DirectorySize] = []
    for broker in sorted({broker for broker, _ in read}):
        here = [log_dir for (of, _), log_dir in read.items() if of == broker]
        pairs = _paired(log, broker, here, lake)
        directories += [_size(log, log_dir, *pairs[log_dir.path], tiered) for log_dir in here]
        paired = {directory for directory, _, _ in pairs.values()}
        directories += [
            _without_path(log, broker, directory_id) for directory_id in sorted(log.of_broker(broker) - paired)
        ]
    return Sizes(lake.offset, lake.time, _ordered(lake, directories), notes, [*read.values()])


def kept(lake: Lake) -> Sizes:
    """The directories of each broker as the newest run of ``jbod sizes --keep`` that had the broker found them.

    Raises UsageError if none was kept up to the lake's offset.
    """
    rows = newest_sizes(lake)
    if not rows:
        raise UsageError(f"{lake.path}: no sizes are kept in it: name a source, and --keep to keep what it says")
    directories = [DirectorySize(evidence=f"kept as of offset {row.pop('log_offset')}", **row) for row in rows]
    return Sizes(lake.offset, lake.time, _ordered(lake, directories), ())


def keep(lake: Lake, answer: Sizes) -> int:
    """Appends the answer to the table directory_sizes. Returns how many directories were new to it.

    All rows have the time of the newest source. Raises UsageError if that is not possible, and Retriable if another
    process wrote at the same time.
    """
    listed = [directory for directory in answer.directories if directory.path is not None]
    time = max((directory.time for directory in listed if directory.time is not None), default=answer.time)
    names = [name for name in TABLE.schema.names if name not in ("time", "log_offset")]
    at = {"time": time, "log_offset": answer.offset}
    return keep_sizes(lake, [{**at, **{name: getattr(directory, name) for name in names}} for directory in listed])


def _ordered(lake: Lake, directories: Iterable[DirectorySize]) -> Sequence[DirectorySize]:
    """By broker, the fullest first; with their growth."""
    rates = growth(lake)
    grown = [
        replace(directory, growth=rates.get((directory.broker_id, directory.path or ""))) for directory in directories
    ]
    return sorted(
        grown,
        key=lambda directory: (
            directory.broker_id,
            -(directory.used_percent or 0),
            -(directory.bytes or 0),
            directory.path or "~",
        ),
    )


# SOURCES


def _read(lake: Lake, sources: Sequence[str], command_config: str, notes: list[str]) -> Iterator[BrokerLogDir]:
    for source in sources:
        if source.startswith(KAFKA):
            yield from _of_brokers(lake, source, command_config or load().quorum.command_config, notes)
            continue
        path = Path(source)
        if path.is_dir():
            for disk in mounted_disks(path):
                yield from _disk(lake, disk, notes)
            continue
        try:
            if path.stat().st_size > MAX_BYTES:
                raise UsageError(f"{path}: larger than {MAX_BYTES:,} bytes")
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise UsageError(f"{path}: not a text: name disks, or the output of kafka-log-dirs --describe") from None
        if not is_log_dirs(text):
            raise UsageError(f"{path}: not the output of kafka-log-dirs --describe")
        yield from read_log_dirs(path, text)


def _of_brokers(lake: Lake, url: str, command_config: str, notes: list[str]) -> Sequence[BrokerLogDir]:
    cluster, log_dirs, faults = read_brokers(url, command_config)
    ours = lake.published.cluster_id
    if ours and cluster != ours:
        raise UsageError(f"{url}: belongs to cluster {cluster}, not to {ours}: name brokers of the cluster of the log")
    notes += faults
    return log_dirs


def _disk(lake: Lake, disk: Path, notes: list[str]) -> Iterator[BrokerLogDir]:
    try:
        log_dir = read_mounted(disk)
    except (StorageProblem, OSError) as problem:
        notes.append(f"{disk}: {problem}")
        return
    ours = lake.published.cluster_id
    if ours and log_dir.cluster_id and log_dir.cluster_id != ours:
        notes.append(f"{log_dir.source}: belongs to cluster {log_dir.cluster_id}, not to {ours}: left out")
        return
    yield log_dir


# PAIRS


@dataclass(frozen=True)
class _Log:
    """Where the log has replicas."""

    held: Mapping[tuple[int, str], str]
    """(broker, partition) -> directory."""
    recorded: Counter[tuple[int, str]]
    """(broker, directory) -> replicas in it."""
    moved: frozenset[tuple[int, str]]
    """Replicas that were ever in another directory of the broker."""
    online: Mapping[int, frozenset[str]]
    """Broker -> the directories that it lists."""
    cordoned: frozenset[str]

    @classmethod
    def of(cls, lake: Lake) -> _Log:
        """The assignments at the lake's offset."""
        held = held_in(lake)
        moved = lake.query(
            f"SELECT broker_id, topic || '-' || partition FROM {lake.until('assignments')} WHERE kind = 'assigned' "
            "GROUP BY ALL HAVING count(DISTINCT directory_id) > 1"
        )
        online: dict[int, set[str]] = {}
        for broker, directory in lake.query(f"SELECT broker_id, directory_id FROM {lake.at('directories')}"):
            online.setdefault(broker, set()).add(directory)
        return cls(
            held,
            Counter((broker, directory) for (broker, _), directory in held.items()),
            frozenset(moved),
            {broker: frozenset(directories) for broker, directories in online.items()},
            frozenset(
                directory
                for (cordoned,) in lake.query(f"SELECT cordoned_log_dirs FROM {lake.at('brokers')}")
                for directory in cordoned or ()
            ),
        )

    def is_cordoned(self, directory: str | None) -> bool | None:
        """Whether a directory is cordoned. None if its id is not known."""
        return None if directory is None else directory in self.cordoned

    def of_broker(self, broker: int) -> set[str]:
        """The directories of a broker: those that it lists, and those that its replicas name."""
        return {directory for of, directory in self.recorded if of == broker} | self.online.get(broker, frozenset())


_Pair = tuple[str | None, str, str]
"""The directory, how well the pairing is known, and why."""


def _paired(log: _Log, broker: int, here: Sequence[BrokerLogDir], lake: Lake) -> dict[str, _Pair]:
    """Path -> its pair, for the directories of a broker in the sources."""
    moving = {replica.partition for log_dir in here for replica in log_dir.replicas if replica.future}
    votes = {log_dir.path: _votes(log, broker, log_dir, moving) for log_dir in here}
    listed = log.online.get(broker, frozenset())
    kept = {
        name.path: directory
        for directory, name in sorted(lake.names.by_id.items(), key=lambda item: (item[0] in listed, item[0]))
        if name.path is not None and directory in log.of_broker(broker)
    }
    pairs: dict[str, _Pair] = {}
    for log_dir in here:
        if log_dir.directory_id is not None:
            pairs[log_dir.path] = (log_dir.directory_id, CERTAIN, f"{FILE_NAME} says it")
        else:
            pairs[log_dir.path] = _by_replicas(log_dir.path, votes, kept.get(log_dir.path))
    _resolve(pairs)
    _eliminate(log, broker, here, pairs)
    return pairs


@dataclass(frozen=True)
class _Votes:
    """What the replicas in a path say about its id."""

    directories: Counter[str]
    """Directory -> replicas that the log has there."""
    settled: bool
    """Whether one of them was never in another directory: then not all of them moved since."""


def _votes(log: _Log, broker: int, log_dir: BrokerLogDir, moving: set[str]) -> _Votes:
    """``moving``: partitions with a future replica, of which the log may have either directory."""
    keys = [(broker, replica.partition) for replica in log_dir.replicas if replica.partition not in moving]
    voters = [key for key in keys if key in log.held]
    return _Votes(Counter(log.held[key] for key in voters), not log.moved.issuperset(voters))


def _by_replicas(path: str, votes: Mapping[str, _Votes], kept: str | None) -> _Pair:
    """The pair by the replicas in a path. ``kept``: the directory that jbod label has for the path."""
    mine = votes[path].directories.most_common()
    if not mine:
        return (kept, LIKELY, "jbod label has it") if kept else (None, UNKNOWN, "no replica in it tells its id")
    (directory, count), *others = mine
    elsewhere = sum(other.directories[directory] for name, other in votes.items() if name != path)
    if kept not in (None, directory):
        return None, UNKNOWN, f"its replicas say {directory}, and jbod label has {kept}"
    if not others and not elsewhere and votes[path].settled:
        return directory, CERTAIN, f"all of its {count:,} replicas, and no other path has one"
    if count > 2 * max([number for _, number in others] + [elsewhere]):
        contrary = sum(number for _, number in others) + elsewhere
        return directory, LIKELY, f"{count:,} of its replicas say it, {contrary:,} say otherwise"
    return None, UNKNOWN, "its replicas do not agree"


def _resolve(pairs: dict[str, _Pair]) -> None:
    """Two paths cannot have the same id: the better known pair stays, and none of two that are equally well known."""
    claims: dict[str, list[str]] = {}
    for path, (directory, _, _) in pairs.items():
        if directory is not None:
            claims.setdefault(directory, []).append(path)
    for directory, paths in claims.items():
        sure = [path for path in paths if pairs[path][1] == CERTAIN]
        for path in paths if len(paths) > 1 else ():
            if len(sure) != 1 or path != sure[0]:
                pairs[path] = (None, UNKNOWN, f"{' and '.join(paths)} both seem to be {directory}")


def _eliminate(log: _Log, broker: int, here: Sequence[BrokerLogDir], pairs: dict[str, _Pair]) -> None:
    """The only path without an id is the only directory that is left. Of a readable path, the broker lists the id."""
    listed, named = log.online.get(broker, frozenset()), log.of_broker(broker)
    for paths, ids in (([log_dir.path for log_dir in here if not log_dir.error], listed), ([*pairs], named)):
        open_paths = [path for path in paths if pairs[path][0] is None]
        open_ids = ids - {directory for directory, _, _ in pairs.values() if directory}
        if len(open_paths) == len(open_ids) == 1 and "jbod label" not in pairs[open_paths[0]][2]:
            (left,) = open_ids
            pairs[open_paths[0]] = (left, LIKELY, f"the only directory of broker {broker} that is left")


# SIZES


def _size(
    log: _Log, log_dir: BrokerLogDir, directory: str | None, pairing: str, why: str, tiered: frozenset[str]
) -> DirectorySize:
    current = [replica for replica in log_dir.replicas if not replica.future]
    future = [replica for replica in log_dir.replicas if replica.future]
    broker = log_dir.broker_id or 0
    there = {replica.partition for replica in current}
    right = sum(log.held.get((broker, name)) == directory for name in there)
    recorded = None if directory is None else log.recorded[broker, directory]
    return DirectorySize(
        broker_id=broker,
        path=log_dir.path,
        directory_id=directory,
        pairing=pairing,
        evidence=why,
        error=log_dir.error,
        replicas=None if log_dir.error else len(current),
        bytes=None if log_dir.error else sum(replica.bytes for replica in current),
        future_replicas=None if log_dir.error else len(future),
        future_bytes=None if log_dir.error else sum(replica.bytes for replica in future),
        tiered_bytes=None if log_dir.error else sum(each.bytes for each in current if _topic(each.partition) in tiered),
        recorded=recorded,
        missing=None if recorded is None else recorded - right,
        astray=None if directory is None or log_dir.error else len(there) - right,
        total_bytes=log_dir.total_bytes,
        free_bytes=log_dir.free_bytes,
        cordoned=log.is_cordoned(directory) if log_dir.cordoned is None else log_dir.cordoned,
        time=log_dir.time,
        topics=_topics((replica.partition, replica.bytes) for replica in log_dir.replicas),
    )


def _without_path(log: _Log, broker: int, directory: str) -> DirectorySize:
    recorded = log.recorded[broker, directory]
    why = "no path of the sources is known to be it"
    return DirectorySize(broker, None, directory, UNKNOWN, why, recorded=recorded, missing=recorded)


def _topics(replicas: Iterable[tuple[str, int]]) -> Sequence[TopicSize]:
    """The largest topics; of replicas that are being moved both copies count."""
    size: Counter[str] = Counter()
    number: Counter[str] = Counter()
    for name, many in replicas:
        size[_topic(name)] += many
        number[_topic(name)] += 1
    return [TopicSize(topic, number[topic], many) for topic, many in size.most_common(MOST_TOPICS)]


def _topic(partition: str) -> str:
    return partition.rpartition("-")[0]
