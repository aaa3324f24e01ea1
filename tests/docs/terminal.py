"""docs/offline.svg: what ``jbod offline`` prints on a terminal about a bundled log."""

from __future__ import annotations

import io
import re

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from pipelines.ask.offline_replicas import offline
from pipelines.run.log_lake import LogLake
from pipelines.show.answers import show_offline
from pipelines.show.columns import OFFLINE
from pipelines.show.rows import Wanted
from pipelines.show.text import Screen
from pipelines.source.log_options import LogOptions
from tests.support.paths import metadata_dir

OFFSET = 200
WIDTH = 100
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


def offline_picture() -> str:
    """The picture as SVG. It fetches no font: any monospaced font of the reader's will do."""
    printed = io.StringIO()
    terminal = Screen(force_terminal=True, width=WIDTH, file=printed, color_system="auto", soft_wrap=False)
    answer = offline(LogLake.of(LogOptions(str(metadata_dir("kafka-4.1.2"))), at_offset=OFFSET))
    show_offline(terminal, answer, Wanted().choose(OFFLINE, answer.replicas))
    # Rows are written to the file itself, so a recording of the terminal lacks them.
    out = Console(record=True, width=WIDTH, file=io.StringIO(), highlight=False)
    out.print(Text.from_ansi(printed.getvalue()))
    picture = out.export_svg(title=f"jbod offline --at-offset {OFFSET}", theme=THEME)
    return re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL).replace("Fira Code", "monospace")
