"""Settings. Later ones win: the machine's file, the user's file, ``--conf`` files, ``JBOD_*`` variables, options."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le

from jbod_model.errors import UsageError, first_line_of
from pipelines.start.process import TRICKS, Trick
from pipelines.storage.objects import to_read

if TYPE_CHECKING:
    from pydantic import ValidationError

MACHINE_FILE = Path("/etc/jbod/jbod.yaml")

CONF = "JBOD_CONF"
"""Names more files, separated as in PATH. ``jbod --conf`` sets it."""


@dataclass(frozen=True)
class Pattern:
    """The form of a text: a regular expression."""

    pattern: str

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """The schema of pydantic, which is imported only to validate a setting."""
        from pydantic import Field

        return handler.generate_schema(Annotated[source, Field(pattern=self.pattern)])


@dataclass(frozen=True)
class Choice:
    """What a value of several types may be: an error says it, instead of why the value is not of the first type."""

    text: str

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """The schema of pydantic with this message."""
        message = f"input should be {self.text}"
        return {**handler(source), "custom_error_type": "choice", "custom_error_message": message}


PathText = Annotated[str, Pattern(r"^[^\x00]*$")]
"""A path or URI: no system has a file with the character 0 in its name."""


class _Section:
    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}


@dataclass(frozen=True)
class ReplaySettings(_Section):
    """How a log is read and replayed."""

    profile: Literal["kafka", "kip858"] = "kafka"
    max_records: Annotated[int, Ge(1)] = 10_000_000
    """Records of one micro-batch."""
    tail: Literal["wait", "stop"] = "wait"
    """What to do about an incomplete batch at the end of the log."""
    follow_seconds: Annotated[float, Gt(0)] = 1.0
    changes: bool = True
    """Whether a new lake has the table ``changes``, which makes it about a fifth larger (docs/spark.md)."""
    load_bytes: Annotated[int, Ge(0)] = 67_108_864
    """A log of this size is loaded without Spark into a lake that Spark has not continued, if Spark would run on this
    machine; 0: never."""
    checkpoints: PathText = ""
    """The folder for Spark's checkpoints of lakes on S3, the user's cache if empty. Not on S3, which cannot rename."""


@dataclass(frozen=True)
class QuorumSettings(_Section):
    """How controllers are asked for their log."""

    command_config: PathText = ""
    """A properties file of Kafka's clients, for TLS and SASL (docs/mirror.md)."""


@dataclass(frozen=True)
class RequestSettings(_Section):
    """How request logs are read and joined."""

    time_zone: str = "UTC"
    """The zone of the controllers' clocks: log4j writes times without a zone."""
    clock_skew_seconds: Annotated[float, Ge(0), Le(3600)] = 0.5
    """How far a record's time may lie outside its request's interval."""


# The master URLs that Spark accepts: local, or a cluster by scheme or name.
_MASTER = r"^(local(\[(\*|[1-9][0-9]*)(, *[1-9][0-9]*)?\])?|local-cluster\[.+\]|[a-z0-9]+://.+|yarn)$"
# Of Spark Connect: a server, or a local one that PySpark starts.
_REMOTE = r"^(|local(\[(\*|[1-9][0-9]*)\])?|sc://.+)$"


@dataclass(frozen=True)
class Spark(_Section):
    """The Spark session."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _Section.__pydantic_config__ | {"coerce_numbers_to_str": True}

    master: Annotated[str, Pattern(_MASTER)] = "local[*]"
    """A local master, or that of a cluster (docs/spark.md)."""
    remote: Annotated[str, Pattern(_REMOTE)] = ""
    """A server of Spark Connect (docs/spark.md): then ``master`` and settings of the JVM have no effect."""
    driver_memory: Annotated[str, Pattern(r"^[1-9][0-9]*[kmgt]$")] = "1g"
    fast_start: Annotated[bool | tuple[Trick, ...], Choice(f"true, false or a list of {', '.join(TRICKS)}")] = True
    """Start-up tricks: all, none, or a list of names (docs/architecture.md)."""
    java_options: str = (
        "-XX:+UseSerialGC -Xms64m -XX:MetaspaceSize=160m -XX:MinHeapFreeRatio=10 -XX:MaxHeapFreeRatio=30"
    )
    """By default, the collector that takes the least memory: the JVM moves bytes, and keeps 200 MB of objects."""
    conf: dict[str, str] = field(default_factory=dict)
    """More of Spark's settings. They win over jbod's."""


@dataclass(frozen=True)
class Ask(_Section):
    """How questions are answered."""

    min_insync_replicas: Annotated[int, Ge(1)] = 1
    """The value for a topic if neither the topic nor the cluster's dynamic default sets it."""


@dataclass(frozen=True)
class CheckSettings(_Section):
    """The limits of checks. Times are the log's, a leap year at most."""

    grace_seconds: Annotated[float, Ge(0), Le(31_622_400)] = 30
    """How long a replica may be unassigned while its broker runs: three times the longest wait between two attempts."""
    window_hours: Annotated[float, Gt(0), Le(8_784)] = 168
    """How long an event is reported."""
    soon_seconds: Annotated[int, Ge(0), Le(31_622_400)] = 600
    """Two events within this time probably belong together."""
    flaps: Annotated[int, Ge(2)] = 4
    """This many changes of one replica's directory ..."""
    flap_seconds: Annotated[float, Gt(0), Le(31_622_400)] = 3600
    """... within this time are too many."""
    refusals: Annotated[int, Ge(2)] = 3
    """An assignment that is refused this many times in a row counts as a retry loop."""
    offline_hours: Annotated[float, Ge(0), Le(8_784)] = 1
    """How long a directory may be away, and a broker fenced before only its registration counts as left."""
    cordon_hours: Annotated[float, Ge(0), Le(8_784)] = 168
    """How long a directory may be cordoned."""
    stale_seconds: Annotated[float, Gt(0)] = 60
    """How old the newest record may be when it is published."""
    blast_partitions: Annotated[int, Ge(1)] = 100
    """A warning is given if a directory's failure would leave this many partitions without a leader."""
    skew_factor: Annotated[float, Gt(1)] = 2
    """A directory holds too much if it has this many times the mean of its broker's directories, and ten more."""
    full_percent: Annotated[int, Ge(1), Le(100)] = 90
    """How full a disk may be, by the sizes that jbod sizes --keep kept."""
    full_days: Annotated[int, Ge(0), Le(366)] = 7
    """A disk that is full within this number of days fills too fast."""
    losses_accepted_until: Annotated[int, Ge(-1)] = -1
    """Lost data up to this offset is accepted: it is shown, but no longer fails a check."""
    expectations: PathText = ""
    """The folder for suites, results and Data Docs of --validate, LAKE/expectations if empty."""
    engine: Literal["auto", "duckdb", "spark"] = "auto"
    """What --validate decides rules with: DuckDB in this process, or Spark; auto: Spark above 5,000,000 rows."""


@dataclass(frozen=True)
class Labels(_Section):
    """Names of directories (docs/asking.md)."""

    sources: list[PathText] = field(default_factory=list)
    """Mounted disks, server.properties, output of kafka-log-dirs and files of labels. Each replay reads them again."""


@dataclass(frozen=True)
class Settings(_Section):
    """All settings. Immutable."""

    lake: Annotated[str, Pattern(r"^[^\x00]+$")] = "lake"
    replay: ReplaySettings = ReplaySettings()
    quorum: QuorumSettings = QuorumSettings()
    requests: RequestSettings = RequestSettings()
    spark: Spark = field(default_factory=Spark)
    ask: Ask = Ask()
    check: CheckSettings = CheckSettings()
    labels: Labels = field(default_factory=Labels)


def user_file() -> Path:
    """The user's settings file: ``jbod/jbod.yaml`` in XDG_CONFIG_HOME, or in ``~/.config``."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config", "jbod", "jbod.yaml")


def named_files() -> list[Path]:
    """The files that ``--conf`` or JBOD_CONF names."""
    return [Path(file) for file in os.environ.get(CONF, "").split(os.pathsep) if file]


def existing_files(named: Iterable[Path]) -> list[Path]:
    """The files to read, in order: those of the search path that exist, then the named ones."""
    return [*(file for file in (MACHINE_FILE, user_file()) if file.is_file()), *named]


def _changes(content: Mapping[str, Any]) -> bool:
    """Whether the content of a file differs from the defaults."""
    defaults = _leaves(asdict(Settings()))
    return any(leaf not in defaults for leaf in _leaves(content))


def _leaves(content: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """The values of nested mappings by dotted name. An empty mapping is a value."""
    leaves: list[tuple[str, Any]] = []
    for name, value in content.items():
        nested = isinstance(value, Mapping) and value
        leaves += _leaves(value, f"{prefix}{name}.") if nested else [(f"{prefix}{name}", value)]
    return leaves


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
    defaults = _leaves(asdict(Settings()))
    contents = {file: read_yaml(file) for file in existing_files(named_files())}
    settings = []
    for name, value in _leaves(asdict(_validated(contents, {}))):
        source = _source(name.split("."), contents, {})
        settings.append(
            Setting(name, value, "default" if source == "settings" else source, is_default=(name, value) in defaults)
        )
    return settings


def load(files: Iterable[str | os.PathLike[str]] | None = None, source: str = "options", /, **options: Any) -> Settings:
    """The settings of the files found, ``files`` in order, the environment and ``options`` (nested mappings).

    Without ``files``, those that JBOD_CONF lists are read. An option that is None counts as not given. Raises
    UsageError that names file and key of an invalid value, and ``source`` if it is that of an option.
    """
    named = named_files() if files is None else [Path(file) for file in files]
    return _validated({file: read_yaml(file) for file in existing_files(named)}, _without_none(options), source)


def _validated(contents: dict[Path, dict[str, Any]], given: dict[str, Any], source: str = "options") -> Settings:
    """The settings of the content of files, in order, the environment and the ``given`` options.

    pydantic loads slowly. So nothing is validated where nothing but the lake is set, which is any text.
    """
    variables = _variables()
    if not variables and not {*given} - {"lake"} and not any(map(_changes, contents.values())):
        return Settings(**given)
    from pydantic import TypeAdapter, ValidationError

    merged: dict[str, Any] = {}
    for content in (*contents.values(), variables, given):
        merged = _merged(merged, content)
    try:
        return TypeAdapter(Settings).validate_python(merged)
    except ValidationError as problem:
        raise UsageError(_explain(problem, contents, given, source)) from None


def _merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Both contents; ``second`` wins where both have a value."""
    both = [name for name in second if isinstance(first.get(name), Mapping) and isinstance(second[name], Mapping)]
    return {**first, **second, **{name: _merged(first[name], second[name]) for name in both}}


def _variables() -> dict[str, Any]:
    """The content of the variables JBOD_*: ``JBOD_REPLAY__TAIL=stop``. Values that are no text or number are JSON.

    Raises UsageError for a variable that sets nothing: the mistake would go unnoticed.
    """
    settings: dict[str, Any] = {}
    for name, value in sorted(os.environ.items()):
        if name.startswith("JBOD_") and name != CONF:
            keys = name.removeprefix("JBOD_").lower().split("__")
            kind: Any = Settings
            for depth, key in enumerate(keys):
                if key not in _names(kind):
                    raise UsageError(f"{name}: no such setting{_suggestion(keys[: depth + 1])}")
                kind = get_type_hints(kind)[key]
            content: Any = _from_json(value) if _is_nested(kind) else value
            for key in reversed(keys):
                content = {key: content}
            settings = _merged(settings, content)
    return settings


def _names(kind: Any) -> list[str]:
    """The settings of a section, none for a single value."""
    return [field.name for field in fields(kind)] if is_dataclass(kind) else []


def _is_nested(kind: Any) -> bool:
    """Whether a value of this type may be a section, a list or a mapping."""
    parts = get_args(kind) or (kind,)
    return is_dataclass(kind) or any(get_origin(part) in (list, dict, tuple) for part in (kind, *parts))


def _from_json(text: str) -> Any:
    with suppress(ValueError, RecursionError):  # another text is refused later, unless it is a valid value
        return json.loads(text)
    return text


def _parsed(text: str) -> Any:
    """The content of YAML, by libyaml if PyYAML has it: Python's loader takes ten times as long."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        content = yaml.load(text, Loader=loader)  # noqa: S506  both are safe
    except yaml.YAMLError:
        return yaml.safe_load(text)  # its errors name the right line
    _refuse_duplicates(yaml.compose(text, Loader=loader))
    return content


def _refuse_duplicates(node: Any) -> None:
    """Raises YAMLError for a key that a mapping has twice: PyYAML would drop the first one."""
    import yaml

    if isinstance(node, yaml.MappingNode):
        keys = [key.value for key, _ in node.value]
        for place, (key, value) in enumerate(node.value):
            if key.value in keys[:place]:
                raise yaml.MarkedYAMLError(problem=f"{key.value} is there twice", problem_mark=key.start_mark)
            _refuse_duplicates(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _refuse_duplicates(value)


def read_yaml(file: Path, what: str = "settings") -> dict[str, Any]:
    """The content of a file, empty if it has none. Raises UsageError that names the file, and the line if it can."""
    from yaml import YAMLError

    try:
        content = _parsed(file.read_text(encoding="utf-8"))
    except OSError as problem:
        raise UsageError(f"{file}: cannot read the {what}: {problem.strerror}{to_read(problem)}") from None
    except (YAMLError, ValueError, OverflowError, AttributeError) as problem:  # ValueError: February 30
        mark = getattr(problem, "problem_mark", None)
        where = f" line {mark.line + 1}:" if mark else ""
        wrong = getattr(problem, "problem", None) or first_line_of(problem)
        raise UsageError(f"{file}:{where} not valid YAML: {wrong}") from None
    except RecursionError:
        raise UsageError(f"{file}: {what} are nested too deeply") from None
    if not isinstance(content, dict | None):
        raise UsageError(f"{file}: {what} are a mapping of names to values, not a {type(content).__name__}")
    return content or {}


def _without_none(options: Mapping[str, Any]) -> dict[str, Any]:
    cleaned = {}
    for name, value in options.items():
        kept = _without_none(value) if isinstance(value, Mapping) else value
        if kept is not None and kept != {}:
            cleaned[name] = kept
    return cleaned


def _explain(
    problem: ValidationError, files: dict[Path, dict[str, Any]], options: Mapping[str, Any], source: str
) -> str:
    """The first error as one line: the source of the value, its key, what is wrong."""
    first = problem.errors()[0]
    keys = [str(key) for key in first["loc"]]
    if first["type"] == "unexpected_keyword_argument":
        wrong = "no such setting" + _suggestion(keys)
    else:
        wrong = f"{repr(first['input'])[:60]} is invalid: {first['msg'][:1].lower()}{first['msg'][1:]}"
    return f"{_source(keys, files, options, source)}: {'.'.join(keys)}: {wrong}"


def _source(keys: list[str], files: dict[Path, dict[str, Any]], options: Mapping[str, Any], given: str = "") -> str:
    if _has(options, keys):
        return given
    for name, text in os.environ.items():
        own = name.lower().removeprefix("jbod_").split("__")
        if name.startswith("JBOD_") and own == keys[: len(own)] and _has(_from_json(text), keys[len(own) :]):
            return name
    for file in reversed(files):
        if _has(files[file], keys):
            return str(file)
    if len(keys) > 1:  # an element of a list, for instance
        return _source(keys[:-1], files, options, given)
    return "settings"


def _has(content: object, keys: list[str]) -> bool:
    if not keys or not isinstance(content, Mapping):
        return not keys  # below, the rest may be one key: names of Spark's settings have dots
    return ".".join(keys) in content or (keys[0] in content and _has(content[keys[0]], keys[1:]))


def _suggestion(keys: list[str]) -> str:
    import difflib

    kind: Any = Settings
    for key in keys[:-1]:
        kind = get_type_hints(kind)[key]
    names = _names(kind)
    if not names:
        return f"; {keys[-2]} is a single value"
    near = difflib.get_close_matches(keys[-1], names, 1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(names)}"
