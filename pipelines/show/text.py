"""Text for people: aligned columns in a pipe, tables that fit a terminal, times and counts in words."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Callable, Container, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import zip_longest
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console
from rich.text import Text

from pipelines.ask.configs import in_zookeeper
from pipelines.ask.weights import COPY_RATE
from pipelines.lake.names import Name, Names
from pipelines.lake.reader import TODO
from pipelines.show.rows import Chosen

if TYPE_CHECKING:
    from pipelines.lake.reader import Lake

Row = TypeVar("Row")
Column = tuple[str, str | Callable[[Row], object]]
"""A heading, after a ``>`` if the column is right-aligned, and a row's attribute or function that is the cell."""
SCREENFUL = 40
"""Rows of a list, unless all are asked for."""
GAP = 2
"""Spaces between two columns."""
PROSE, LEAST = 40, 20
"""A column that is wider than the first is prose, and is not made narrower than the second."""
SHORT = 8
"""Letters of an id that is cut."""
_ID = re.compile(r"(?<![A-Za-z0-9_-])[A-Za-z0-9_-]{22}(?![A-Za-z0-9_-])")
_WITH_IDS = {"DIRECTORY", "FROM", "TO", "RECORDED", "METADATA DIRECTORY", "WHAT"}
"""Headings of columns whose ids are cut in a narrow terminal. In others, an id could be the name of a partition."""


class Screen(Console):
    """Standard output, on which directories have their names beside their ids. In a pipe lines are never wrapped."""

    def __init__(self, names: Names | None = None, **options: Any) -> None:
        piped: dict[str, Any] = {} if sys.stdout.isatty() else {"soft_wrap": True, "color_system": None}
        super().__init__(**{"highlight": False, **piped, **options})
        self.names = names or Names()


def called(text: str, names: Names) -> str:
    """``text`` with the names of directories that are known: ``/data/disk1b (r60Jqw..., rack 7 slot 3)``."""
    return _with_names(text, names, Name.in_full)


def plain(text: str, names: Names) -> str:
    """``text`` with names of directories, and without control characters."""
    return harmless(called(text, names))


def short_name(directory: str, names: Names) -> str:
    """A directory in few letters: ``/data/disk1b (r60JqwAF)``, or the beginning of its id."""
    name = names.get(directory)
    return directory[:SHORT] if name is None else name.behind(directory, SHORT)


def _with_names(text: str, names: Names, called: Callable[[Name, str], str]) -> str:
    def name_of(match: re.Match[str]) -> str:
        name = names.get(match[0])
        return match[0] if name is None else called(name, match[0])

    return _ID.sub(name_of, text) if names.by_id else text


def with_names(answer: Any, names: Names) -> Any:
    """A JSON document in which ``directory_path`` and ``directory_label`` follow each ``directory_id`` that has a name.

    The same for ``source`` and ``target`` of moves. The ids themselves do not change.
    """
    if not names.by_id:
        return answer
    if isinstance(answer, list):
        return [with_names(member, names) for member in answer]
    if not isinstance(answer, dict):
        return answer
    document = {}
    for key, value in answer.items():
        document[key] = with_names(value, names)
        if key in ("directory_id", "source", "target") and isinstance(value, str):
            name = names.get(value)
            if name is not None:
                prefix = key.removesuffix("_id")
                document |= {f"{prefix}_path": name.path, f"{prefix}_label": name.label}
    return document


def show_incomplete(out: Screen, lake: Lake) -> None:
    """The first line of every answer if the log has unknown records (R-REC-4), or has no topics yet."""
    if lake.incomplete_since is not None:
        say(out, f"{lake.incomplete_since}: {TODO}", "bold red")
    for text in in_zookeeper(lake):
        say(out, f"{text}.", "bold red")


def not_known(first: int) -> str:
    """What an answer about failures and losses lacks if the history begins with a snapshot, at offset ``first``."""
    return f"failures and losses before offset {first} are not known: the history begins with a snapshot"


def say(out: Screen, text: str = "", style: str = "", hang: int = 0) -> None:
    """Prints text without markup. If it is wrapped, the lines after the first are indented by ``hang``."""
    text = plain(text, out.names)
    if out.is_terminal and len(text) > out.width:
        text = textwrap.fill(text, out.width, subsequent_indent=" " * hang, break_on_hyphens=False)
    out.print(Text(text, style))


def say_command(out: Screen, text: str) -> None:
    """Prints a command on one line, however narrow the terminal is: copied from several lines it would not run."""
    out.print(Text(plain(text, out.names)), soft_wrap=True)


def show_title(out: Screen, title: str) -> None:
    """An empty line, and what the lines below it are."""
    say(out)
    say(out, title, "bold")


def show_selection(out: Screen, chosen: Chosen) -> None:
    """How many rows are shown because of filters and a limit, if there are any."""
    if chosen.line:
        say(out, f"{chosen.line}.", "bold yellow")


def show_table(out: Screen, columns: Sequence[Column[Row]], rows: Iterable[Row], optional: Container[str] = ()) -> None:
    """Prints rows under headings, without those of the ``optional`` columns in which no row has anything but 0.

    A terminal that is too narrow shows ids by their first letters, and names without their ids. If that is not enough,
    it wraps the widest texts, then the headings of numbers, or folds each row into a few lines.
    """
    rows = [*rows]
    columns = [
        (heading, of)
        for heading, of in columns
        if heading.removeprefix(">") not in optional or any(_value(row, of) not in (None, "", "-", 0) for row in rows)
    ]
    _show_cells(out, *headings_and_cells(columns, rows))


def headings_and_cells(
    columns: Sequence[Column[Row]], rows: Iterable[Row]
) -> tuple[list[str], list[list[str]], set[int]]:
    """The headings, the cells of each row as text, and the indexes of the columns that are right-aligned."""
    cells = [[_text(_value(row, of)) for _, of in columns] for row in rows]
    right = {index for index, (heading, _) in enumerate(columns) if heading.startswith(">")}
    return [heading.removeprefix(">") for heading, _ in columns], cells, right


def _value(row: Row, of: str | Callable[[Row], object]) -> object:
    return of(row) if callable(of) else attrgetter(of)(row)


def _text(value: object) -> str:
    return when(value) if isinstance(value, datetime) else "" if value is None else str(value)


def _show_cells(out: Screen, columns: Sequence[str], cell_texts: list[list[str]], right: set[int]) -> None:
    name = _behind_short if out.is_terminal else Name.behind
    cells = [[*map(harmless, row)] for row in _named(cell_texts, out.names, name)]
    if not out.is_terminal:
        # Without rich, which takes a second for 20,000 lines.
        out.file.write("".join(line + "\n" for line in _lines([[*columns], *cells], _widths(columns, cells), right)))
        return
    widths = _widths(columns, cells)
    if _width(widths) > out.width:
        cut = [heading in _WITH_IDS for heading in columns]
        cells = [[*map(harmless, row)] for row in _named(cell_texts, out.names, _without_id)]
        cells = [[_cut_ids(cell) if has else cell for cell, has in zip(row, cut, strict=True)] for row in cells]
        widths = _widths(columns, cells)
    if _width(widths) <= out.width:
        _print(out, *(_lines(rows, widths, right) for rows in ([columns], cells)))
        return
    # Headings of numbers are wider than the numbers.
    stacked = [max([_least([heading], 0), *map(len, column)]) for heading, *column in zip(columns, *cells, strict=True)]
    narrow = [stacked[index] if index in right else width for index, width in enumerate(widths)]
    ways = [_fitted(columns, cells, wanted, right, out.width) for wanted in (widths, narrow)]
    forms = [partial(_lines, widths=way, right=right) for way in ways if _width(way) <= out.width]
    if not forms or max(widths) <= PROSE:
        forms.append(partial(_folded, widths=widths, right=right, most=out.width))
    _print(out, *min(([form([columns]), form(cells)] for form in forms), key=lambda lines: sum(map(len, lines))))


def show_list(out: Screen, columns: Sequence[Column[Row]], rows: Sequence[Row], every: bool) -> None:
    """``show_table`` of the first rows, or of ``every`` one, and how many more there are."""
    shown = rows if every else rows[:SCREENFUL]
    show_table(out, columns, shown)
    show_rest(out, len(rows) - len(shown))


def show_chosen(out: Screen, chosen: Chosen, columns: Sequence[Column[Row]], rows: Sequence[Row], every: bool) -> None:
    """``show_list`` of ``rows``, which are some of the chosen ones, after an empty line and what was chosen."""
    say(out)
    show_selection(out, chosen)
    show_list(out, columns, rows, every)


def show_rest(out: Screen, more: int, what: str = "", indent: str = "") -> None:
    """How many more there are than were shown, if there are any."""
    if more > 0:
        say(out, f"{indent}and {many(more, what) if what else f'{more:,}'} more: --all, or --json", "dim")


def show_steps(out: Screen, steps: Iterable[str], title: str = "What to do") -> None:
    """The steps in order, each of them once. Nothing if there are none."""
    for number, text in enumerate(dict.fromkeys(steps), 1):
        if number == 1:
            show_title(out, title)
        say(out, f"  {number}. {text}", hang=5)


def show_fault(out: Screen, fault: str | None) -> None:
    """The failure of Kafka's own controller, if there is one."""
    if fault:
        say(out, f"Kafka's own controller (4.1) would fail on this: {fault}", "bold red")


def _least(column: Sequence[str], width: int) -> int:
    """The least width of a column whose text is wrapped: no word is cut."""
    if width > PROSE:
        return LEAST
    return max((len(word) for cell in column for word in cell.split()), default=0)


def _named(cells: list[list[str]], names: Names, name: Callable[[Name, str], str]) -> list[list[str]]:
    return [[_with_names(cell, names, name) for cell in row] for row in cells] if names.by_id else cells


def _without_id(name: Name, _directory: str) -> str:
    return name.path or name.label or ""


def _behind_short(name: Name, directory: str) -> str:
    return name.behind(directory, SHORT)


def _cut_ids(text: str) -> str:
    return _ID.sub(lambda match: match[0][:SHORT], text)


def _widths(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(columns, *cells, strict=True)]


def _width(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _lines(cells: Iterable[Sequence[str]], widths: Sequence[int], right: set[int]) -> list[str]:
    """The rows as lines. A cell that is wider than its column is wrapped."""
    line = (" " * GAP).join(f"{{:{'>' if index in right else '<'}{width}}}" for index, width in enumerate(widths))
    lines = []
    for row in cells:
        if all(len(cell) <= width for cell, width in zip(row, widths, strict=True)):
            lines.append(line.format(*row).rstrip())
            continue
        parts = [textwrap.wrap(cell, width, break_on_hyphens=False) for cell, width in zip(row, widths, strict=True)]
        lines += [line.format(*row).rstrip() for row in zip_longest(*parts, fillvalue="")]
    return lines


def _fitted(
    columns: Sequence[str], cells: Sequence[Sequence[str]], widths: Sequence[int], right: set[int], most: int
) -> list[int]:
    """The widths after texts were made narrower, the widest first, as far as their words allow."""
    fitting = [*widths]
    texts = sorted((index for index in range(1, len(columns)) if index not in right), key=lambda at: -widths[at])
    for index in texts:
        excess = max(0, _width(fitting) - most)
        least = _least([columns[index], *(row[index] for row in cells)], fitting[index])
        fitting[index] -= min(excess, max(0, fitting[index] - least))
    return fitting


def _folded(rows: Iterable[Sequence[str]], widths: Sequence[int], right: set[int], most: int) -> list[str]:
    """The rows, each on a few lines in columns of their own. Lines after the first are indented."""
    parts: list[list[int]] = [[]]
    widths = [min(width, most - 2 * GAP) for width in widths]
    for index, width in enumerate(widths):
        room = most - 2 * GAP if parts[1:] else most
        if parts[-1] and _width([*(widths[at] for at in parts[-1]), width]) > room:
            parts.append([])
        parts[-1].append(index)
    lines = []
    for row in rows:
        for number, part in enumerate(parts):
            numbers = {place for place, index in enumerate(part) if index in right}
            below = _lines([[row[index] for index in part]], [widths[index] for index in part], numbers)
            lines += [" " * 2 * GAP * bool(number) + line for line in below if line]
    return lines


def _print(out: Screen, heading: Sequence[str], lines: Sequence[str]) -> None:
    for line in heading:
        out.print(Text(line, "bold"))
    out.file.write("".join(line + "\n" for line in lines))


def harmless(text: str) -> str:
    """Maps control characters to escapes, because names in a log may contain any character."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def when(time: datetime) -> str:
    """``2026-11-21 02:21:05.123Z``. It sorts as text and is valid for --at-time."""
    return f"{time:%Y-%m-%d %H:%M:%S}.{time.microsecond // 1000:03d}Z"


_LONG = (("d", 86_400), ("h", 3_600), ("min", 60))
"""Units of time, in seconds."""


def age(since: datetime, now: datetime) -> str:
    """How long ago: ``14 s``, ``3 min``, ``2 h``, ``6 d``, whole units rounded down."""
    seconds = int((now - since).total_seconds())
    for unit, size in _LONG:
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{max(seconds, 0)} s"


def at_most(seconds: float | None) -> str:
    """``40 s``, ``4 min``, ``2 h``, ``3 d``: whole units, rounded up; ``-`` for an unknown time."""
    if seconds is None:
        return "-"
    for unit, size in _LONG:
        if seconds > size:
            return f"{-int(-seconds // size)} {unit}"
    return f"{-int(-seconds // 1)} s"


def about(seconds: float | None) -> str:
    """``40 s``, ``12 min``, ``3.5 h``, ``2.1 d``: the nearest; ``-`` for an unknown time."""
    if seconds is None:
        return "-"
    for unit, size in _LONG:
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}" if unit in "dh" else f"{seconds / size:.0f} {unit}"
    return f"{max(1, round(seconds))} s" if seconds > 0 else "0 s"


def lasted(span: timedelta) -> str:
    """``14 ms``, ``6.5 s``, ``3 min 20 s``, ``2 h 5 min``, ``6 d 2 h``: two units, rounded down."""
    seconds = max(span.total_seconds(), 0)  # another controller's clock may be behind
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    units = (*_LONG, ("s", 1))
    largest = next(index for index, (_, size) in enumerate(units) if whole >= size)
    parts = []
    for unit, size in units[largest : largest + 2]:
        parts.append(f"{whole // size} {unit}")
        whole %= size
    return " ".join(parts)


def partition_name(row: Any) -> str:
    """``orders-3``: the partition that a row is about."""
    return f"{row.topic}-{row.partition}"


def led_by(leader: int) -> str:
    """The id of a leader, or ``none``."""
    return "none" if leader == -1 else str(leader)


def many(count: int, what: str, plural: str = "") -> str:
    """``1 replica``, ``1,200 replicas``."""
    return f"{count:,} {what if count == 1 else plural or what + 's'}"


_OF_ONE = {"are": "is", "become": "becomes", "come": "comes", "have": "has", "leave": "leaves", "move": "moves"}


def agreeing(count: int, phrase: str) -> str:
    """``are blocked``, and of one ``is blocked``: a phrase that begins with the verb of several."""
    verb, blank, rest = phrase.partition(" ")
    return f"{_OF_ONE.get(verb, verb)}{blank}{rest}" if count == 1 else phrase


def listed(names: Sequence[str], most: int = 8) -> str:
    """The first few of the names, and how many more there are."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest:,} more" if rest > 0 else "")


_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def in_units(number: int | None) -> str:
    """``12.3 GiB``; ``-`` for an unknown number."""
    if number is None:
        return "-"
    size, unit = float(number), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{number} B" if not unit else f"{size:.1f} {_UNITS[unit]}"


def rate_in_words(rate: int = COPY_RATE) -> str:
    """``50 MB/s`` for 50,000,000 bytes a second, which is what ``--rate 50M`` means."""
    power = (len(str(rate)) - 1) // 3
    return f"{rate / 1000**power:g} {('', 'k', 'M', 'G', 'T', 'P', 'E')[power]}B/s"


def copying(held: int, seconds: int) -> str:
    """``3.4 TiB, 21 h to copy again at 50 MB/s``"""
    return f"{in_units(held)}, {at_most(seconds)} to copy again at {rate_in_words()}"
