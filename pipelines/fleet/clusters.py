"""The file of a fleet: its clusters, each with a log, a lake and settings of its own.

    clusters:
      - name: orders
        log: /srv/logs/orders
        lake: /srv/lakes/orders
        labels: [/srv/labels/orders.txt]      # labels.sources
        settings: {check: {stale_seconds: 600}}
      - log: s3://logs/*/metadata             # a cluster for each folder, with its name
        lake: s3://lakes/*

Paths are relative to the file.
"""

from __future__ import annotations

import threading
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from os.path import realpath
from pathlib import Path
from typing import Any

from jbod_model.errors import JbodError, UsageError, first_line_of
from pipelines.lake.delta import is_table, local_path, refuse_tilde
from pipelines.lake.uris import LakeUri
from pipelines.settings import Settings, load, read_yaml
from pipelines.storage import objects

_KEYS = ("name", "log", "lake", "labels", "settings")
_PLACES = (("labels", "sources"), ("quorum", "command_config"), ("replay", "checkpoints"))
"""The settings that are paths."""
AGAIN_SECONDS = 60.0
"""The time between two readings of a file that is followed."""
ANY = "*"
"""What stands for the name of a cluster in a pattern."""


@dataclass(frozen=True)
class FleetCluster:
    """A cluster of a fleet. ``settings`` name its lake."""

    name: str
    log: str
    settings: Settings
    file: Path
    """The file that lists it."""

    @property
    def lake(self) -> str:
        """Where its lake is."""
        return self.settings.lake


def read_fleet(path: Path) -> list[FleetCluster]:
    """The clusters of a file. Raises UsageError that names the file, the cluster and what is wrong."""
    content = read_yaml(path, "clusters")
    listed = content.get("clusters")
    if unknown := [key for key in content if key != "clusters"]:
        raise UsageError(f"{path}: {unknown[0]}: no such key; there is clusters")
    if not isinstance(listed, list) or not listed:
        raise UsageError(f"{path}: clusters: is no list of clusters, each with name, log and lake")
    common = load()
    clusters: list[FleetCluster] = []
    for number, raw in enumerate(listed, 1):
        try:
            clusters += _clusters(path, raw, common)
        except UsageError as problem:
            raise UsageError(f"{path}: cluster {_name(raw) or number}: {problem}") from None
    if not clusters:
        raise UsageError(f"{path}: its patterns match no folder")
    lakes = [local_path(cluster.lake) for cluster in clusters]
    for what, values in (
        ("name", [cluster.name for cluster in clusters]),
        ("lake", [lake if "://" in lake else realpath(lake) for lake in lakes]),
    ):
        if twice := next((value for value in values if values.count(value) > 1), None):
            raise UsageError(f"{path}: two clusters have the {what} {twice}")
    return clusters


class FollowedFile:
    """The clusters of a file over days. It is read again once a minute: a pattern may match another folder.

    ``tell`` gets what is wrong with a file that was changed, or with its patterns: its clusters are those of before.
    """

    def __init__(self, path: Path, tell: Callable[[str], None], seconds: float = AGAIN_SECONDS) -> None:
        """Raises UsageError as ``read_fleet`` does."""
        self._path = path
        self._tell = tell
        self._seconds = seconds
        self._clusters = read_fleet(path)
        self._began = time.monotonic()
        self._thread = threading.Thread()

    def __iter__(self) -> Iterator[FleetCluster]:
        """Those that are known. Whoever iterates does not wait for a reading: a folder may hang."""
        if time.monotonic() - self._began > self._seconds and not self._thread.is_alive():
            self._began = time.monotonic()
            self._thread = threading.Thread(target=self._read_again, daemon=True)
            self._thread.start()
        return iter(self._clusters)

    def _read_again(self) -> None:
        try:
            self._clusters = read_fleet(self._path)
        except Exception as problem:  # whatever a storage raises
            self._tell(first_line_of(problem))


def _clusters(path: Path, raw: Any, common: Settings) -> Iterator[FleetCluster]:
    if not isinstance(raw, Mapping):
        raise UsageError("is no mapping of name, log and lake")
    if unknown := [key for key in raw if key not in _KEYS]:
        raise UsageError(f"{unknown[0]}: no such key; there are {', '.join(_KEYS)}")
    for key in ("log", "lake"):
        _check_text(raw, key)
    log, lake = (_placed(path, raw[key]) for key in ("log", "lake"))
    own = _own(path, raw)
    if ANY not in raw["log"]:  # the folder of the file may have one
        _check_text(raw, "name")
        yield FleetCluster(raw["name"], log, _settings(own, common, lake), path)
        return
    if raw["log"].count(ANY) != 1 or raw["lake"].count(ANY) != 1 or "name" in raw:
        raise UsageError(f"a pattern has one {ANY} in log and in lake, which is the name, and no name")
    for name in sorted(_matches(log, lake)):
        _refuse_unprintable("name", name)
        yield FleetCluster(name, _filled(log, name), _settings(own, common, _filled(lake, name)), path)


def _check_text(raw: Mapping[str, Any], key: str) -> None:
    """Raises UsageError for a key that is not there, or whose value YAML takes for a number, a date or a boolean."""
    text = raw.get(key)
    if text in (None, ""):
        raise UsageError(f"{key} is missing")
    if not isinstance(text, str):
        raise UsageError(f"{key} is no text but {text}, as YAML reads it: put it in quotes")
    _refuse_unprintable(key, text)


def _name(raw: Any) -> str:
    """What an error calls a cluster; empty if it has no name that can be printed."""
    name = raw.get("name") if isinstance(raw, Mapping) else None
    return name if isinstance(name, str) and name.isprintable() else ""


def _refuse_unprintable(key: str, text: str) -> None:
    """Raises UsageError for a control character, or half a surrogate pair: lines and files of answers have the text."""
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in text):
        raise UsageError(f"{key} {text!r}: has a character that cannot be printed")


def _placed(path: Path, location: str) -> str:
    refuse_tilde(location)
    return location if "://" in location else str(path.absolute().parent / location)


def _own(path: Path, raw: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a cluster, as nested mappings."""
    own = raw.get("settings") or {}
    if not isinstance(own, Mapping):
        raise UsageError("settings are a mapping, as in conf/jbod.yaml")
    for key in ("lake", "spark"):
        if key in own:
            raise UsageError(f"settings.{key}: " + ("lake names it" if key == "lake" else "all clusters share"))
    labels = raw.get("labels") or []
    if not isinstance(labels, list):
        raise UsageError("labels are a list of sources, as jbod label takes them")
    own = {**own, "labels": {"sources": [str(source) for source in labels]}} if labels else dict(own)
    for section, key in _PLACES:
        within = own.get(section)
        if isinstance(within, Mapping) and (named := within.get(key)):
            own[section] = {**within, key: _all_placed(path, named)}
    return own


def _all_placed(path: Path, named: Any) -> Any:
    """A location, or a list of them. Another value is left to validation."""
    if isinstance(named, list):
        return [_all_placed(path, each) for each in named]
    return _placed(path, named) if isinstance(named, str) else named


def _settings(own: Mapping[str, Any], common: Settings, lake: LakeUri) -> Settings:
    if not own:
        return replace(common, lake=lake)
    try:
        return load(None, "settings", lake=lake, **own)
    except TypeError as problem:
        raise UsageError(str(problem)) from None


def _is_folder(path: Path) -> bool:
    """Whether there is a folder, or may be: the replay says why it cannot be read, and only of this cluster."""
    try:
        return path.is_dir()
    except OSError:
        return True


def _matches(log: str, lake: LakeUri) -> list[str]:
    """What the star of a log's pattern stands for: folders of logs, and lakes whose log is gone.

    Where one of both cannot be listed, the other has the names: the replay of each says what is wrong.
    """
    if "://" in log and not objects.is_object(log):
        raise UsageError(f"{log}: a pattern is of folders on a disk or on S3")
    names: list[str] = []
    refused: JbodError | None = None
    try:
        names = _folders(log)
    except OSError as problem:
        refused = UsageError(f"{log}: {problem.strerror}")
    except JbodError as problem:
        refused = problem
    with suppress(OSError, JbodError):
        names += [name for name in _folders(lake) if name not in names and is_table(f"{_filled(lake, name)}/ledger")]
    if refused is not None and not names:
        raise refused
    return names


def _filled(pattern: str, name: str) -> str:
    """A pattern with a name for its star, which is the last one."""
    before, _, after = pattern.rpartition(ANY)
    return f"{before}{name}{after}"


def _folders(pattern: str) -> list[str]:
    """What the star stands for: the folders that exist."""
    before, _, after = pattern.rpartition(ANY)
    folder, _, begins = before.rpartition("/")
    ends, _, rest = after.partition("/")
    if objects.is_object(pattern):
        names = [name.rstrip("/").rpartition("/")[2] for name in objects.children(folder)[0]]
    else:
        names = [entry.name for entry in Path(folder or "/").iterdir() if _is_folder(entry / rest)]
    size = len(begins) + len(ends)
    return [
        name[len(begins) : len(name) - len(ends)]
        for name in names
        if len(name) > size and name.startswith(begins) and name.endswith(ends)
    ]
