"""What the notebooks share: the bundled log, the lake made of it, one look for pictures and one for tables."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from datetime import datetime
from html import escape
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib_inline.backend_inline import set_matplotlib_formats

from pipelines.lake.reader import Lake
from pipelines.show.text import when

ROOT = Path(__file__).resolve().parent.parent
CLUSTER = ROOT / "tests" / "fixtures" / "clusters" / "kafka-4.1.2"
LOG = CLUSTER / "metadata" / "controller-100"
"""The metadata.log.dir of a real cluster: four brokers with disks that fail, one controller."""

COLOURS = {
    "online": "#2d807a",
    "leader": "#1d5fbf",
    "directory offline": "#c0392b",
    "directory lost": "#8c2f4a",
    "broker fenced": "#d9a528",
    "broker missing": "#7a64b0",
    "unassigned": "#93a1b3",
    "ink": "#1b2430",
}
"""The colours of the report."""

plt.rcParams |= {
    "figure.figsize": (9, 3.2),
    "figure.dpi": 80,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#93a1b3",
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.labelcolor": "#566273",
    "xtick.color": "#566273",
    "ytick.color": "#566273",
    "font.size": 9,
    "legend.frameon": False,
}
# A picture says nothing of the program that drew it, so that drawing it again gives the same bytes.
set_matplotlib_formats("png", bbox_inches="tight", metadata={"Software": None})


def lake(at_offset: int | None = None) -> Lake:
    """The lake that JBOD_LAKE names, else that of ``make demo``; made of the log where there is none yet."""
    path = Path(os.environ.get("JBOD_LAKE", ROOT / "build" / "demo" / "lake"))
    if not path.exists():
        command = [sys.executable, "-m", "pipelines.cli.main", "replay", str(LOG), "--lake", str(path)]
        subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    return Lake.open(path, at_offset)


def _text(cell: object) -> str:
    if cell is None:
        return ""
    return when(cell) if isinstance(cell, datetime) else str(cell)


class Table:
    """Rows under headings, as text and as HTML."""

    def __init__(self, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
        self.columns = list(columns)
        self.rows = [[_text(cell) for cell in row] for row in rows]

    def __repr__(self) -> str:
        lines = [self.columns, *self.rows]
        widths = [max(len(line[at]) for line in lines) for at in range(len(self.columns))]
        return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(column)}</th>" for column in self.columns)
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>\n" for row in self.rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>"


def table(things: Iterable[object], *names: str) -> Table:
    """A table of attributes of things."""
    return Table([name.replace("_", " ") for name in names], ([getattr(it, name) for name in names] for it in things))
