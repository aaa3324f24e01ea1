"""Java properties files: their syntax (R-STORE-1), and the settings that name a node's directories (R-STORE-17).

Source: the format that ``java.util.Properties`` documents; Kafka's ``PropertiesUtils``,
``StorageTool.configToLogDirectories``, ``KafkaConfig`` (log.dirs before log.dir, the metadata directory defaults to the
first log directory, node.id before broker.id).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from jbod_model.errors import UsageError

# A meta.properties file has a few hundred bytes; what is larger is something else under that name.
MAX_PROPERTIES_BYTES = 64 * 1024

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"


def parse_properties(data: bytes) -> dict[str, str]:
    """Keys and values of a properties file; of a repeated key the last value counts.

    Raises ``ValueError`` for a broken ``\\uXXXX`` escape and for a file larger than :data:`MAX_PROPERTIES_BYTES`.
    """
    if len(data) > MAX_PROPERTIES_BYTES:
        raise ValueError(f"{len(data)} bytes, more than the {MAX_PROPERTIES_BYTES} that such a file may have")
    found = {}
    for line in _logical_lines(data.decode("latin-1")):
        key_end = _end_of_key(line)
        value_start = _skip_blanks(line, key_end)
        if value_start < len(line) and line[value_start] in "=:":
            value_start = _skip_blanks(line, value_start + 1)
        found[_unescape(line[:key_end])] = _unescape(line[value_start:])
    return found


def render_properties(properties: Mapping[str, str], written: datetime | None = None) -> bytes:
    """The file that holds ``properties`` in their order; ``written`` becomes the date line that Java writes."""
    lines = ["#"]
    if written is not None:
        lines.append(f"#{written:%a %b %d %H:%M:%S} {written.tzname() or 'UTC'} {written:%Y}")
    lines += [f"{_escape(key, key=True)}={_escape(value, key=False)}" for key, value in properties.items()]
    return ("\n".join(lines) + "\n").encode("ascii")


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blank lines; an odd number of backslashes at its end continues a line."""
    pending = ""
    continued = False
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        stripped = line.lstrip(_BLANKS)
        if not continued and (not stripped or stripped[0] in "#!"):
            continue
        backslashes = len(stripped) - len(stripped.rstrip("\\"))
        continued = backslashes % 2 == 1
        pending += stripped[:-1] if continued else stripped
        if not continued:
            yield pending
            pending = ""
    if pending:
        yield pending


def _end_of_key(line: str) -> int:
    at = 0
    while at < len(line) and line[at] not in "=:" and line[at] not in _BLANKS:
        at += 2 if line[at] == "\\" else 1
    return min(at, len(line))


def _skip_blanks(line: str, at: int) -> int:
    while at < len(line) and line[at] in _BLANKS:
        at += 1
    return at


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "\\" and at < len(text):
            char = text[at]
            at += 1
            if char == "u":
                digits = text[at : at + 4]
                if len(digits) != 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                    raise ValueError(f"\\u is followed by {digits!r}, not by four hexadecimal digits")
                char = chr(int(digits, 16))
                at += 4
            else:
                char = _ESCAPES.get(char, char)
        out.append(char)
    return "".join(out)


def _escape(text: str, *, key: bool) -> str:
    out = []
    for at, char in enumerate(text):
        if char == " " and (key or at == 0):
            out.append("\\ ")
        elif char in "\\=:#!":
            out.append("\\" + char)
        elif char in "\t\n\r\f":
            out.append("\\" + {"\t": "t", "\n": "n", "\r": "r", "\f": "f"}[char])
        elif " " <= char <= "~":
            out.append(char)
        else:
            units = char.encode("utf-16-be", "surrogatepass")
            out += [f"\\u{units[i] << 8 | units[i + 1]:04X}" for i in range(0, len(units), 2)]
    return "".join(out)


DEFAULT_FAILURE_TIMEOUT_MS, LEAST_FAILURE_TIMEOUT_MS = 30_000, 1
ALL_LOG_DIRS = "*"
DEFAULT_LOG_DIR = "/tmp/kafka-logs"  # noqa: S108 - Kafka's own default


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """``log_dirs`` as configured, the directory of the metadata log, the node's id where one is set."""

    log_dirs: tuple[str, ...]
    metadata_dir: str
    node_id: int | None = None
    failure_timeout_ms: int = DEFAULT_FAILURE_TIMEOUT_MS
    cordoned_log_dirs: tuple[str, ...] = ()
    """Those of ``log_dirs`` that the file cordons in effect. A dynamic configuration of the broker wins over it."""

    @property
    def directories(self) -> tuple[str, ...]:
        """Every directory of the node, each once, by path."""
        return tuple(sorted({*self.log_dirs, self.metadata_dir}))


def parse_server_config(data: bytes, source: str) -> ServerConfig:
    """The directories that a server.properties configures. Raises :class:`UsageError` naming ``source``."""
    try:
        settings = parse_properties(data)
    except ValueError as error:
        raise UsageError(f"{source}: {error}") from None
    listed = settings.get("log.dirs") or settings.get("log.dir") or DEFAULT_LOG_DIR
    log_dirs = tuple(path for path in (part.strip() for part in listed.split(",")) if path)
    if not log_dirs:
        raise UsageError(f"{source}: log.dirs names no directory")
    metadata_dir = settings.get("metadata.log.dir", "").strip() or log_dirs[0]
    node_text = settings.get("node.id", settings.get("broker.id", "")).strip()
    try:
        node_id = int(node_text) if node_text else None
    except ValueError:
        raise UsageError(f"{source}: node.id is {node_text!r}, not a number") from None
    return ServerConfig(
        log_dirs=log_dirs,
        metadata_dir=metadata_dir,
        node_id=node_id,
        failure_timeout_ms=_failure_timeout(settings, source),
        cordoned_log_dirs=_cordoned(settings, log_dirs, source),
    )


def _cordoned(settings: Mapping[str, str], log_dirs: tuple[str, ...], source: str) -> tuple[str, ...]:
    """cordoned.log.dirs: entries of log.dirs as they stand there, or * for all (R-STORE-23)."""
    listed = [part.strip() for part in settings.get("cordoned.log.dirs", "").split(",")]
    cordoned = tuple(path for path in listed if path)
    if cordoned == (ALL_LOG_DIRS,):
        return log_dirs
    for path in cordoned:
        if path not in log_dirs:
            raise UsageError(
                f"{source}: cordoned.log.dirs names {path!r}, which log.dirs does not list: name it as log.dirs does, "
                "or * alone for all"
            )
    # Kafka accepts a relative path, and does not cordon it (KAFKA-20901).
    return tuple(path for path in cordoned if Path(path).is_absolute())


def _failure_timeout(settings: Mapping[str, str], source: str) -> int:
    """log.dir.failure.timeout.ms, at least 1 (R-LIFE-11)."""
    text = settings.get("log.dir.failure.timeout.ms", "").strip() or str(DEFAULT_FAILURE_TIMEOUT_MS)
    if re.fullmatch(r"-?[0-9]{1,18}", text, re.ASCII) is None or int(text) < LEAST_FAILURE_TIMEOUT_MS:
        raise UsageError(f"{source}: log.dir.failure.timeout.ms is {text!r}: set it to a number from 1 on")
    return int(text)


def read_server_config(path: str) -> ServerConfig:
    """:func:`parse_server_config` of a file. Raises :class:`UsageError` if it cannot be read."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror or error}); give the broker's own file") from None
    return parse_server_config(data, path)
