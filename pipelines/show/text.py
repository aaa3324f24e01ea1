"""Text for people: aligned columns in a pipe, tables on a terminal, times and counts in words."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Sequence
from datetime import datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipelines.show.incomplete import first_line


def console() -> Console:
    """Standard output. In a pipe lines are never wrapped. An answer that is incomplete begins by saying so."""
    out = Console(highlight=False)
    if not sys.stdout.isatty():
        out = Console(highlight=False, soft_wrap=True, color_system=None)
    line = first_line()
    if line is not None:
        say(out, line, "bold red")
    return out


def say(out: Console, text: str = "", style: str = "", hang: int = 0) -> None:
    """Prints text without markup. If it is wrapped, the lines after the first are indented by ``hang``."""
    text = harmless(text)
    if out.is_terminal and len(text) > out.width:
        text = textwrap.fill(text, out.width, subsequent_indent=" " * hang, break_on_hyphens=False)
    out.print(Text(text, style))


def show_table(
    out: Console, columns: Sequence[str], rows: Iterable[Sequence[object]], numbers: Iterable[int] = ()
) -> None:
    """Prints rows under headings. The columns at the indexes ``numbers`` are right-aligned."""
    cells = [["" if cell is None else harmless(str(cell)) for cell in row] for row in rows]
    right = set(numbers)
    if out.is_terminal:
        table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
        for index, column in enumerate(columns):
            table.add_column(column, justify="right" if index in right else "left", overflow="fold")
        for row in cells:
            table.add_row(*(Text(cell) for cell in row))
        out.print(table)
        return
    cells.insert(0, list(columns))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    line = "  ".join(f"{{:{'>' if index in right else '<'}{width}}}" for index, width in enumerate(widths))
    # Without rich, which takes a second for 20,000 lines.
    out.file.write("".join(line.format(*row).rstrip() + "\n" for row in cells))


def harmless(text: str) -> str:
    """Maps control characters to escapes, because names in a log may contain any character."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def when(time: datetime) -> str:
    """``2026-11-21 02:21:05.123Z``. It sorts as text and is valid for --at-time."""
    return f"{time:%Y-%m-%d %H:%M:%S}.{time.microsecond // 1000:03d}Z"


def age(since: datetime, now: datetime) -> str:
    """How long ago: ``14 s``, ``3 min``, ``2 h``, ``6 d``, whole units rounded down."""
    seconds = int((now - since).total_seconds())
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{max(seconds, 0)} s"


def many(count: int, what: str, plural: str = "") -> str:
    """``1 replica``, ``1,200 replicas``."""
    return f"{count:,} {what if count == 1 else plural or what + 's'}"


def listed(names: Sequence[str], most: int = 8) -> str:
    """The first few of the names, and how many more there are."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest:,} more" if rest > 0 else "")
