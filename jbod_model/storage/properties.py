"""The syntax of a Java properties file, as far as meta.properties needs it (R-STORE-1).

Source: the format that ``java.util.Properties`` documents; Kafka's ``PropertiesUtils`` loads and stores with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

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
