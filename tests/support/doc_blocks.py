"""The code blocks of pages, and the names in them that stand for the reader's own paths."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.support.paths import ROOT

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "tests" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "benchmarks").glob("*.md")),
    ROOT / "notebooks" / "README.md",
    *sorted((ROOT / "lab").rglob("README.md")),
]
NOT_RUN = ("airflow", "SparkSession.builder", "CREATE EXTERNAL LOCATION")
"""Blocks with these need Airflow, a session of their own or Unity Catalog: they are only parsed."""


class Block(NamedTuple):
    """A code block of a page."""

    language: str
    text: str

    @property
    def is_run(self) -> bool:
        """Whether a test can run it."""
        return not any(mark in self.text for mark in NOT_RUN)


def blocks(page: Path, *languages: str) -> list[Block]:
    """The code blocks of a page in one of the languages, in order."""
    matches = re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [Block(*match) for match in matches if match[0] in languages]


def with_paths(text: str, paths: Mapping[str, str]) -> str:
    """The text with other paths in place of the page's own."""
    for page, ours in paths.items():
        text = text.replace(page, ours)
    return text


def commands(text: str) -> list[str]:
    """The commands of a console block, each on one line and without its comment."""
    joined = re.sub(r"\\\n\s*", "", text)
    return [re.split(r"\s#\s", line[2:])[0].strip() for line in joined.splitlines() if line.startswith("$ ")]
