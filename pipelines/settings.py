"""Settings. Later ones win: the machine's file, the user's file, ``--conf`` files, ``JBOD_*`` variables, options.

``conf/jbod.yaml`` of the current directory is still read, after the user's file and before the named files. The next
release reads it only if it is named, because any directory may hold a file of that name.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from jbod_model.errors import UsageError
from pipelines.start.switch import Trick

MACHINE_FILE = Path("/etc/jbod/jbod.yaml")
LOCAL_FILE = Path("conf/jbod.yaml")
"""In the current directory. Deprecated unless ``--conf`` names it."""

CONF = "JBOD_CONF"
"""Names more files, separated as in PATH. ``jbod --conf`` sets it."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Replay(_Section):
    """How a log is read and replayed."""

    profile: Literal["kafka", "kip858", "draft"] = "kafka"
    max_records: int = Field(default=10_000_000, ge=1)
    """Records of one micro-batch."""
    tail: Literal["wait", "stop"] = "wait"
    """What to do about an incomplete batch at the end of the log."""
    keep_unknown: bool = False
    follow_seconds: float = Field(default=1.0, gt=0)
    changes: bool = True
    """Whether a new lake has the table ``changes``, which makes it about a fifth larger (docs/streaming.md)."""
    checkpoints: str = ""
    """The folder for Spark's checkpoints of lakes on S3, the user's cache if empty. Not on S3, which cannot rename."""


class Requests(_Section):
    """How request logs are read and joined."""

    time_zone: str = "UTC"
    """The zone of the controllers' clocks: log4j writes times without a zone."""
    clock_skew_seconds: float = Field(default=0.5, ge=0, le=3600)
    """How far a record's time may lie outside its request's interval."""
    max_bytes: int = Field(default=134_217_728, ge=1)
    """Uncompressed bytes of the logs in one micro-batch."""


# The master URLs that Spark accepts: local, or a cluster by scheme or name.
_MASTER = r"^(local(\[(\*|[1-9][0-9]*)(, *[1-9][0-9]*)?\])?|local-cluster\[.+\]|[a-z0-9]+://.+|yarn)$"
# Of Spark Connect: a server, or a local one that PySpark starts.
_REMOTE = r"^(|local(\[(\*|[1-9][0-9]*)\])?|sc://.+)$"


class Spark(_Section):
    """The Spark session."""

    master: str = Field(default="local[*]", pattern=_MASTER)
    """A local master, or that of a cluster (docs/clusters.md)."""
    remote: str = Field(default="", pattern=_REMOTE)
    """A server of Spark Connect (docs/spark.md): then ``master`` and settings of the JVM have no effect."""
    driver_memory: str = Field(default="4g", pattern=r"^[1-9][0-9]*[kmgt]$")
    shuffle_partitions: int = Field(default=0, ge=0)
    """0: as many as this machine has cores, at most eight; eight on a cluster. A checkpoint keeps its number."""
    fast_start: bool | tuple[Trick, ...] = True
    """Start-up tricks: all, none, or a list of names (docs/start-up.md)."""
    java_options: str = "-XX:+UseParallelGC"
    log_level: Literal["ALL", "DEBUG", "ERROR", "FATAL", "INFO", "OFF", "TRACE", "WARN"] = "ERROR"
    conf: dict[str, str] = {}
    """More of Spark's settings. They win over jbod's."""


class Ask(_Section):
    """How questions are answered."""

    min_insync_replicas: int = Field(default=1, ge=1)
    """The value for a topic if neither the topic nor the cluster's dynamic default sets it."""


class Check(_Section):
    """The limits of checks. Times are the log's, a leap year at most."""

    grace_seconds: float = Field(default=30, ge=0, le=31_622_400)
    """How long a replica may be unassigned while its broker runs: three times the longest wait between two attempts."""
    grace_offsets: int = Field(default=10, ge=0)
    """How many records must pass as well, so that a quiet log does not count as a long time."""
    window_hours: float = Field(default=168, gt=0, le=8_784)
    """How long an event is reported."""
    soon_seconds: int = Field(default=600, ge=0, le=31_622_400)
    """Two events within this time probably belong together."""
    flaps: int = Field(default=4, ge=2)
    """This many changes of one replica's directory ..."""
    flap_seconds: float = Field(default=3600, gt=0, le=31_622_400)
    """... within this time are too many."""
    refusals: int = Field(default=3, ge=2)
    """An assignment that is refused this many times in a row counts as a retry loop."""
    offline_hours: float = Field(default=1, ge=0, le=8_784)
    """How long a directory may be away, and a broker fenced before only its registration counts as left."""
    cordon_hours: float = Field(default=168, ge=0, le=8_784)
    """How long a directory may be cordoned."""
    stale_seconds: float = Field(default=60, gt=0)
    """How old the newest record may be when it is published."""
    blast_partitions: int = Field(default=100, ge=1)
    """A warning is given if a directory's failure would leave this many partitions without a leader."""
    skew_factor: float = Field(default=2, gt=1)
    """A directory holds too much if it holds this many times the mean of its broker's directories ..."""
    skew_replicas: int = Field(default=10, ge=1)
    """... and at least this many replicas more."""
    losses_accepted_until: int = Field(default=-1, ge=-1)
    """Lost data up to this offset is accepted: it is shown, but no longer fails a check."""
    expectations: str = ""
    """The folder for suites, results and Data Docs of --validate, LAKE/expectations if empty."""
    engine: Literal["auto", "duckdb", "spark"] = "auto"
    """What --validate decides rules with: DuckDB in this process, or Spark; auto: Spark above 5,000,000 rows."""
    keep_validations: int = Field(default=50, ge=1)
    """The number of runs to keep."""


class Alert(_Section):
    """Where findings are sent, and the time limits."""

    webhook: str = ""
    command: str = ""
    timeout_seconds: float = Field(default=10, gt=0, le=600)
    """Time for a message, including name resolution and connection."""
    tries: int = Field(default=3, ge=1, le=20)


class Labels(_Section):
    """Names of directories (docs/labels.md)."""

    sources: list[str] = []
    """Mounted disks, server.properties, output of kafka-log-dirs and files of labels. Each replay reads them again."""


class Settings(BaseSettings):
    """All settings. Immutable."""

    model_config = SettingsConfigDict(env_prefix="JBOD_", env_nested_delimiter="__", extra="forbid", frozen=True)

    lake: str = "lake"
    replay: Replay = Replay()
    requests: Requests = Requests()
    spark: Spark = Spark()
    ask: Ask = Ask()
    check: Check = Check()
    alert: Alert = Alert()
    labels: Labels = Labels()

    _files: ClassVar[list[dict[str, Any]]] = []

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        files = [InitSettingsSource(settings_cls, content) for content in reversed(cls._files)]
        return (init_settings, env_settings, *files)


def user_file() -> Path:
    """The user's settings file: ``jbod/jbod.yaml`` in XDG_CONFIG_HOME, or in ``~/.config``."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config", "jbod", "jbod.yaml")


def named_files() -> list[Path]:
    """The files that ``--conf`` or JBOD_CONF names."""
    return [Path(file) for file in os.environ.get(CONF, "").split(os.pathsep) if file]


def found_files(named: Iterable[Path]) -> list[Path]:
    """The files to read, in order: those of the search path that exist, then the named ones."""
    return [*(file for file in (MACHINE_FILE, user_file(), LOCAL_FILE) if file.is_file()), *named]


def unnamed_local_file() -> Path | None:
    """The file of the current directory if it changes a setting and is not named, otherwise None.

    Raises UsageError for an invalid file.
    """
    if not LOCAL_FILE.is_file() or LOCAL_FILE.resolve() in [file.resolve() for file in named_files()]:
        return None
    defaults = Settings.model_construct().model_dump()
    return LOCAL_FILE if any(leaf not in _leaves(defaults) for leaf in _leaves(_read(LOCAL_FILE))) else None


def _leaves(content: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """The values of nested mappings by dotted name. An empty mapping is a value."""
    found: list[tuple[str, Any]] = []
    for name, value in content.items():
        nested = isinstance(value, Mapping) and value
        found += _leaves(value, f"{prefix}{name}.") if nested else [(f"{prefix}{name}", value)]
    return found


class Setting(NamedTuple):
    """An effective setting."""

    name: str
    """With dots: ``replay.max_records``."""
    value: Any
    source: str
    """The file or variable that sets it, or ``default``."""
    is_default: bool


def settings_in_force() -> list[Setting]:
    """Every setting of ``load()``."""
    defaults = _leaves(Settings.model_construct().model_dump())
    contents = {file: _read(file) for file in found_files(named_files())}
    found = []
    for name, value in _leaves(_validated(contents, {}).model_dump()):
        source = _source(name.split("."), contents, {})
        found.append(
            Setting(name, value, "default" if source == "settings" else source, is_default=(name, value) in defaults)
        )
    return found


def load(files: Iterable[str | os.PathLike[str]] | None = None, **options: Any) -> Settings:
    """The settings of the files found, ``files`` in order, the environment and ``options`` (nested mappings).

    Without ``files``, those that JBOD_CONF lists are read. An option that is None counts as not given. Raises
    UsageError that names file and key of an invalid value.
    """
    named = named_files() if files is None else [Path(file) for file in files]
    return _validated({file: _read(file) for file in found_files(named)}, _without_none(options))


def _validated(contents: dict[Path, dict[str, Any]], given: dict[str, Any]) -> Settings:
    """The settings of the content of files, in order, the environment and the ``given`` options."""
    _check_variables()
    scoped = type("Settings", (Settings,), {"_files": list(contents.values()), "__module__": __name__})
    try:
        found = scoped(**given)
    except ValidationError as problem:
        raise UsageError(_explain(problem, contents, given)) from None
    return Settings.model_construct(**{name: getattr(found, name) for name in Settings.model_fields})


def _check_variables() -> None:
    """Raises UsageError for a JBOD_* variable that sets nothing: the mistake would go unnoticed."""
    for name in os.environ:
        if name.startswith("JBOD_") and name != CONF:
            fields: Any = Settings
            keys = name.removeprefix("JBOD_").lower().split("__")
            for depth, key in enumerate(keys):
                known = getattr(fields, "model_fields", {})
                if key not in known:
                    raise UsageError(f"{name}: no such setting{_suggestion(keys[: depth + 1])}")
                fields = known[key].annotation


def _parsed(text: str) -> Any:
    """The content of YAML, by libyaml if PyYAML has it: Python's loader takes ten times as long."""
    try:
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  both are safe
    except yaml.YAMLError:
        return yaml.safe_load(text)  # its errors name the right line


def _read(file: Path) -> dict[str, Any]:
    try:
        content = _parsed(file.read_text(encoding="utf-8"))
    except OSError as problem:
        raise UsageError(f"{file}: cannot read the settings: {problem.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as problem:
        mark = getattr(problem, "problem_mark", None)
        where = f" line {mark.line + 1}:" if mark else ""
        what = getattr(problem, "problem", None) or "no UTF-8 text"
        raise UsageError(f"{file}:{where} not valid YAML: {what}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise UsageError(f"{file}: settings are a mapping of names to values, not a {type(content).__name__}")
    return content


def _without_none(options: Mapping[str, Any]) -> dict[str, Any]:
    cleaned = {}
    for name, value in options.items():
        kept = _without_none(value) if isinstance(value, Mapping) else value
        if kept is not None and kept != {}:
            cleaned[name] = kept
    return cleaned


def _explain(problem: ValidationError, files: dict[Path, dict[str, Any]], options: Mapping[str, Any]) -> str:
    """The first error as one line: the source of the value, its key, what is wrong."""
    first = problem.errors()[0]
    keys = [str(key) for key in first["loc"]]
    if first["type"] == "extra_forbidden":
        wrong = "no such setting" + _suggestion(keys)
    else:
        shown = repr(first["input"])
        wrong = f"{shown[:60]} is invalid: {first['msg'][:1].lower()}{first['msg'][1:]}"
    return f"{_source(keys, files, options)}: {'.'.join(keys)}: {wrong}"


def _source(keys: list[str], files: dict[Path, dict[str, Any]], options: Mapping[str, Any]) -> str:
    if _has(options, keys):
        return "options"
    for name in os.environ:
        if name.upper() == "JBOD_" + "__".join(keys).upper():
            return name
    for file in reversed(files):
        if _has(files[file], keys):
            return str(file)
    return "settings"


def _has(content: object, keys: list[str]) -> bool:
    for key in keys:
        if not isinstance(content, Mapping) or key not in content:
            return False
        content = content[key]
    return True


def _suggestion(keys: list[str]) -> str:
    fields: Any = Settings
    for key in keys[:-1]:
        fields = fields.model_fields[key].annotation
    if not hasattr(fields, "model_fields"):
        return f"; {keys[-2]} is a single value"
    near = difflib.get_close_matches(keys[-1], fields.model_fields, 1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(fields.model_fields)}"
