"""Draw docs/offline.svg: what ``jbod offline`` prints on a terminal, from a lake. Run: docs/pictures.py LAKE OFFSET."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from pipelines.ask import Lake, offline
from pipelines.show.answers import show_offline
from pipelines.show.columns import OFFLINE
from pipelines.show.selection import Wanted

# Any monospaced font of the reader's: no font is fetched.
FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace("Fira Code", "monospace")
THEME = TerminalTheme(
    (24, 27, 33),
    (214, 218, 226),
    [
        (24, 27, 33),
        (242, 112, 112),
        (128, 200, 140),
        (229, 192, 110),
        (110, 165, 240),
        (198, 140, 220),
        (100, 190, 200),
        (214, 218, 226),
    ],
)


def draw(lake: str, offset: int) -> None:
    """Write the picture beside this file."""
    printed = io.StringIO()
    terminal = Console(force_terminal=True, width=100, file=printed, highlight=False)
    answer = offline(Lake.open(lake, at_offset=offset))
    show_offline(answer, Wanted().choose(OFFLINE, answer.replicas), out=terminal)
    # Rows are written to the file itself, so a recording of the terminal lacks them.
    out = Console(record=True, width=100, file=io.StringIO(), highlight=False)
    out.print(Text.from_ansi(printed.getvalue()))
    picture = Path(__file__).with_name("offline.svg")
    title = f"jbod offline --at-offset {offset}"
    picture.write_text(out.export_svg(title=title, theme=THEME, code_format=FORMAT), encoding="utf-8")


if __name__ == "__main__":
    draw(sys.argv[1], int(sys.argv[2]))
