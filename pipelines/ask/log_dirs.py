"""What sources say of log directories: sizes and replicas, and the paths and labels by which people know them.

A source is the output of kafka-log-dirs, brokers, or disks that are mounted; of names also a server.properties and a
file of labels. The log has ids only. A mounted disk has its id in a file. ``kafka-log-dirs`` names paths and the
partitions in them, so the directory is the one in which the lake has these partitions. A path that nothing else
explains belongs to the only id of its broker that has no path: so a failed disk, which cannot be read, gets its name.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from jbod_model.errors import UsageError
from jbod_model.ids import Uuid
from jbod_model.storage.problems import StorageProblem
from jbod_model.storage.properties import FILE_NAME, MetaProperties, read_meta_properties, read_server_config
from pipelines.lake.names import Names, Statement
from pipelines.lake.reader import Lake
from pipelines.quorum import KAFKA
from pipelines.quorum.client import addresses_of
from pipelines.quorum.live import describe_log_dirs, error_name
from pipelines.quorum.security import security_of
from pipelines.storage.objects import to_read

_FOLDER = re.compile(r"(?P<partition>.+-\d{1,10})(?:\.[0-9A-Za-z_-]{22,32}-(?P<kind>future|delete|stray))?")


class ReplicaSize(NamedTuple):
    """A replica in a directory."""

    partition: str
    """``topic-0``"""
    bytes: int
    """The size of its log segments. Indexes are not counted."""
    future: bool
    """Whether it is the copy that a move between disks makes."""


@dataclass(frozen=True)
class BrokerLogDir:
    """A log directory of a broker."""

    source: str
    broker_id: int | None
    """None for a mounted disk that says no node id."""
    path: str
    error: str
    """Why its broker cannot read it; empty if it can."""
    replicas: Sequence[ReplicaSize]
    time: datetime
    """When the source said it: of a file, when it was written."""
    directory_id: str | None = None
    """The id in meta.properties; None if the source names paths only."""
    cluster_id: str | None = None
    total_bytes: int | None = None
    """The size of its file system, if the source says it."""
    free_bytes: int | None = None
    cordoned: bool | None = None
    """Whether its broker places no new replica in it; None if the source does not say it."""


def read_log_dirs(path: Path, text: str) -> Iterator[BrokerLogDir]:
    """The directories in the output of ``kafka-log-dirs --describe``. Other lines of the tool are passed over.

    Raises UsageError if it is no such output.
    """
    time = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    for line in text.splitlines():
        if not line.lstrip().startswith("{"):
            continue
        try:
            for broker in json.loads(line)["brokers"]:
                for log_dir in broker["logDirs"]:
                    yield BrokerLogDir(
                        source=str(path),
                        broker_id=_int32(broker["broker"]),
                        path=str(log_dir["logDir"]),
                        error=str(log_dir.get("error") or ""),
                        replicas=[
                            ReplicaSize(
                                str(replica["partition"]),
                                _size(replica.get("size", 0)),
                                bool(replica.get("isFuture")),
                            )
                            for replica in log_dir["partitions"]
                        ],
                        time=time,
                        total_bytes=_bytes(log_dir.get("totalBytes")),
                        free_bytes=_bytes(log_dir.get("usableBytes")),
                    )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
            raise UsageError(f"{path}: not the output of kafka-log-dirs --describe ({problem!r})") from None


def is_log_dirs(text: str) -> bool:
    """Whether a text can be the output of ``kafka-log-dirs --describe``."""
    return '"logDirs"' in text and re.search(r"^\s*\{", text, re.MULTILINE) is not None


def read_brokers(url: str, command_config: str) -> tuple[str, list[BrokerLogDir], list[str]]:
    """What the brokers of a cluster answer (``kafka://HOST:PORT[,HOST:PORT...]``): the cluster id, the directories, and
    why a broker did not answer, a line each.

    Raises UsageError for another URL, and Fault if none can be asked.
    """
    now = datetime.now(UTC)
    answer = describe_log_dirs(addresses_of(url), security_of(command_config))
    log_dirs = [
        BrokerLogDir(
            source=f"{KAFKA}{broker.address}",
            broker_id=broker.broker_id,
            path=directory["log_dir"],
            error=error_name(directory["error_code"]),
            replicas=[
                ReplicaSize(f"{topic['name']}-{each['index']}", max(0, each["size"]), each["is_future"])
                for topic in directory["topics"]
                for each in topic["partitions"]
            ],
            time=now,
            total_bytes=_bytes(directory["total_bytes"]),
            free_bytes=_bytes(directory["usable_bytes"]),
            cordoned=directory.get("is_cordoned"),
        )
        for broker in answer.brokers
        for directory in broker.directories
    ]
    return answer.cluster_id, log_dirs, [f"broker {broker} is left out: {fault}" for broker, fault in answer.faults]


def mounted_disks(path: Path) -> list[Path]:
    """The directory if it is a mounted disk, else the mounted disks in it. Raises UsageError if there is none."""
    if (path / FILE_NAME).exists():
        return [path]
    inside = sorted(disk for disk in path.iterdir() if (disk / FILE_NAME).is_file())
    if not inside:
        raise UsageError(f"{path}: neither it nor a directory in it has a {FILE_NAME}: name the disks of a broker")
    return inside


def read_mounted(directory: Path) -> BrokerLogDir:
    """A mounted disk with its meta.properties. Raises StorageProblem or OSError if it cannot be read."""
    meta = read_meta_properties(str(directory))
    usage = shutil.disk_usage(directory)
    return BrokerLogDir(
        source=str(directory / FILE_NAME),
        broker_id=meta.node_id,
        path=str(directory.absolute()),
        error="",
        replicas=[*_folders(directory)],
        time=datetime.now(UTC),
        directory_id=None if meta.directory_id is None else str(meta.directory_id),
        cluster_id=meta.cluster_id,
        total_bytes=usage.total,
        free_bytes=usage.free,
    )


def _folders(directory: Path) -> Iterator[ReplicaSize]:
    """The replicas in a directory. A folder that Kafka is about to delete counts until it is gone."""
    for folder in sorted(directory.iterdir()):
        match = _FOLDER.fullmatch(folder.name)
        if match is not None and folder.is_dir():
            segments = (file.stat().st_size for file in folder.iterdir() if file.suffix == ".log")
            name = match["partition"] if match["kind"] in (None, "future") else folder.name
            yield ReplicaSize(name, sum(segments), match["kind"] == "future")


def _bytes(value: object) -> int | None:
    """A number of bytes. Kafka says -1 if it does not know."""
    return value if isinstance(value, int) and 0 <= value < 1 << 63 else None


def _size(value: object) -> int:
    if not isinstance(value, int) or value >= 1 << 63:
        raise ValueError(f"{value!r} is not a number of bytes")
    return max(0, value)


def _int32(value: object) -> int:
    if not isinstance(value, int) or not 0 <= value < 1 << 31:
        raise ValueError(f"{value!r} is not the id of a broker")
    return value


MOUNTED, FILE, LOG_DIRS, LEFT_OVER = "meta.properties", "labels file", "kafka-log-dirs", "elimination"
MAX_BYTES = 256 << 20
"""The largest file that is read: kafka-log-dirs prints about 100 bytes for each replica."""
_LINE = re.compile(r"(?:broker\s+(?P<broker>\d{1,10})\s+)?(?P<key>\S.*?)\s*=\s*(?P<value>\S.*?)\s*")


@dataclass
class Read:
    """The statements of the sources."""

    statements: list[Statement] = field(default_factory=list)
    left_over: list[tuple[int, str, str]] = field(default_factory=list)
    """Broker, path, source: configured directories whose id cannot be read."""
    notes: list[str] = field(default_factory=list)
    """What could not be used, a line each."""


def read_sources(lake: Lake, sources: Iterable[str], known: Sequence[Statement] = ()) -> Read:
    """Reads files and directories. ``known``: statements that were read before.

    A directory is a mounted disk, or holds mounted disks. A file is recognised by its content. Raises UsageError for a
    source that is not there or that is none of these.
    """
    reading, now = Read(), datetime.now(UTC)
    for source in sources:
        path = Path(source)
        try:
            if path.is_dir():
                for disk in mounted_disks(path):
                    _read_disk(lake, disk, reading, now)
            elif path.name == FILE_NAME:
                _read_disk(lake, path.parent, reading, now)
            else:
                _read_file(lake, path, reading, now)
        except OSError as problem:
            raise UsageError(f"{problem.filename or source}: {problem.strerror}{to_read(problem)}") from None
    _eliminate(lake, reading, known, now)
    return reading


def merged(before: Iterable[Statement], new: Sequence[Statement]) -> list[Statement]:
    """The statements after a reading: a new one replaces that of the same kind about the same directory.

    A file of labels replaces all its earlier statements. A disk that is no longer mounted keeps its name.
    """
    files = {_file(statement) for statement in new if statement.kind == FILE}
    about = {*map(_about, new)}
    kept = [
        statement
        for statement in before
        if not (statement.kind == FILE and _file(statement) in files) and _about(statement) not in about
    ]
    return [*kept, *new]


def _about(statement: Statement) -> tuple[object, ...]:
    """Its kind, and the directory that it is about."""
    path = statement.path if statement.directory_id is None else ""
    return statement.kind, statement.broker_id, statement.directory_id, path


def _file(statement: Statement) -> str:
    return statement.source.rpartition(" line ")[0] or statement.source


# MOUNTED DISKS


def _read_disk(lake: Lake, directory: Path, reading: Read, now: datetime, broker: int | None = None) -> bool:
    """Reads the id of a mounted disk. Returns False, with a note, if there is none for this cluster."""
    try:
        meta = read_meta_properties(str(directory))
    except (StorageProblem, OSError) as problem:
        reading.notes.append(f"{directory}: {problem}")
        return False
    if unusable := _unusable(lake, meta, broker):
        reading.notes.append(f"{directory}/{FILE_NAME}: {unusable}")
        return False
    directory_id = str(meta.directory_id)
    path = str(directory.absolute())
    reading.statements.append(Statement(MOUNTED, f"{path}/{FILE_NAME}", meta.node_id, directory_id, path, None, now))
    holder = _holders(lake).get(directory_id)
    if holder is not None and meta.node_id is not None and holder != meta.node_id:
        reading.notes.append(
            f"{path}/{FILE_NAME}: says broker {meta.node_id}; the log has directory {directory_id} on broker {holder}"
        )
    return True


def _unusable(lake: Lake, meta: MetaProperties, broker: int | None) -> str:
    ours = lake.published.cluster_id
    if ours and meta.cluster_id and meta.cluster_id != ours:
        return f"belongs to cluster {meta.cluster_id}, not to {ours}: left out"
    if meta.directory_id is None:
        return "has no directory.id yet: left out"
    if broker is not None and meta.node_id is not None and meta.node_id != broker:
        return f"says node {meta.node_id}, and the server.properties says {broker}: left out"
    return ""


def _holders(lake: Lake) -> dict[str, int]:
    """Directory -> the broker that had it last."""
    return dict(
        lake.query(
            f"SELECT directory_id, arg_max(broker_id, from_offset) FROM {lake.until('directories')} GROUP BY ALL"
        )
    )


# FILES


def _read_file(lake: Lake, path: Path, reading: Read, now: datetime) -> None:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UsageError(f"{path}: larger than {MAX_BYTES:,} bytes, so it is no source of names")
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not a text: name disks, a server.properties, JSON or a file of labels") from None
    if is_log_dirs(text):
        _read_log_dirs(lake, path, text, reading, now)
    elif re.search(r"^\s*log\.dirs?\s*[=:]", text, re.MULTILINE):
        _read_config(lake, path, reading, now)
    else:
        _read_labels(path, text, reading, now)


def _read_config(lake: Lake, path: Path, reading: Read, now: datetime) -> None:
    config = read_server_config(str(path))
    if config.node_id is None:
        raise UsageError(f"{path}: sets no node.id: whose directories they are is not known")
    for log_dir in config.log_dirs:
        if not _read_disk(lake, Path(log_dir), reading, now, config.node_id):
            reading.left_over.append((config.node_id, log_dir, str(path)))


def _read_labels(path: Path, text: str, reading: Read, now: datetime) -> None:
    for number, line in enumerate(text.splitlines(), 1):
        plain = line.strip()
        if not plain or plain.startswith("#"):
            continue
        match = _LINE.fullmatch(plain)
        if match is None:
            raise UsageError(f"{path} line {number}: write KEY = LABEL, for instance broker 1 /data/disk1b = rack 7")
        key, value = match["key"], match["value"]
        broker = None if match["broker"] is None else int(match["broker"])
        directory = _directory_id(key)
        if directory is None and not key.startswith("/"):
            raise UsageError(f"{path} line {number}: {key}: neither the id of a directory nor an absolute path")
        source = f"{path} line {number}"
        if directory is not None and value.startswith("/"):
            reading.statements.append(Statement(FILE, source, broker, directory, value, None, now))
        else:
            log_dir = None if directory is not None else key
            reading.statements.append(Statement(FILE, source, broker, directory, log_dir, value, now))
            if log_dir is not None and broker is not None:
                reading.left_over.append((broker, log_dir, source))


def _directory_id(text: str) -> str | None:
    try:
        return str(Uuid.parse(text)) if len(text) == 22 else None
    except ValueError:
        return None


def _read_log_dirs(lake: Lake, path: Path, text: str, reading: Read, now: datetime) -> None:
    held = held_in(lake)
    for broker_log_dir in read_log_dirs(path, text):
        broker, log_dir = broker_log_dir.broker_id or 0, broker_log_dir.path
        there = ((broker, replica.partition) for replica in broker_log_dir.replicas if not replica.future)
        ids = Counter(held[key] for key in there if key in held)
        if not ids:
            reading.left_over.append((broker, log_dir, str(path)))
            continue
        (directory, count), *others = ids.most_common()
        if others and count <= 2 * others[0][1]:
            reading.notes.append(
                f"{path}: broker {broker} {log_dir}: the log has its replicas in {len(ids)} directories: left out"
            )
            continue
        if others:
            astray = sum(number for _, number in others)
            reading.notes.append(
                f"{path}: broker {broker} {log_dir}: taken for directory {directory}, in which the log has {count} of "
                f"its replicas; {astray} are elsewhere"
            )
        reading.statements.append(Statement(LOG_DIRS, str(path), broker, directory, log_dir, None, now))


def held_in(lake: Lake) -> Mapping[tuple[int, str], str]:
    """(broker, partition) -> directory, by the assignments at the lake's offset."""
    rows = lake.query(
        f"SELECT broker_id, topic || '-' || partition, directory_id FROM {lake.at('assignments')} "
        "WHERE kind = 'assigned'"
    )
    return {(broker, name): directory for broker, name, directory in rows}


# WHAT IS LEFT OVER


def _eliminate(lake: Lake, reading: Read, known: Sequence[Statement], now: datetime) -> None:
    """Gives the only path without an id to the only id without a path, broker by broker."""
    if not reading.left_over:
        return
    statements = [*reading.statements, *known]
    named = Names.of(statements).by_id
    paths = {
        (statement.broker_id, statement.path)
        for statement in statements
        if statement.path is not None and statement.directory_id is not None
    }
    now_there: dict[int, set[str]] = {}
    ever_there: dict[int, set[str]] = {}
    for broker, directory, there in lake.query(
        f"""
        SELECT broker_id, directory_id, true FROM {lake.at("directories")}
        UNION ALL
        SELECT broker_id, directory_id, true FROM {lake.at("assignments")} WHERE kind = 'assigned'
        UNION ALL
        SELECT broker_id, directory_id, false FROM {lake.until("directories")}
        """
    ):
        if not (name := named.get(directory)) or name.path is None:
            (now_there if there else ever_there).setdefault(broker, set()).add(directory)
    left: dict[int, dict[str, str]] = {}
    for broker, path, source in reading.left_over:
        if (broker, path) not in paths:
            left.setdefault(broker, {})[path] = source
    for broker, open_paths in left.items():
        open_ids = now_there.get(broker) or ever_there.get(broker, set())
        if len(open_paths) == len(open_ids) == 1:
            ((path, source),) = open_paths.items()
            (directory,) = open_ids
            where = f"{source}, the only directory of broker {broker} that was left"
            reading.statements.append(Statement(LEFT_OVER, where, broker, directory, path, None, now))
        elif not all(" line " in source for source in open_paths.values()):
            without = ", ".join(sorted(open_ids)) or "none"
            reading.notes.append(
                f"broker {broker}: {', '.join(open_paths)}: no id could be read; directories without a path: {without}"
            )
