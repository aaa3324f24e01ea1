"""Great Expectations over a lake: the tables' contracts and the checks as suites, validated on DuckDB or Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipelines.settings import Settings


def expectations_folder(settings: Settings) -> Path:
    """The folder for suites, results and Data Docs of a lake. For a lake on S3 it is on this machine."""
    from pipelines.lake.delta import local_path
    from pipelines.lake.uris import home_of

    return Path(settings.check.expectations or f"{local_path(home_of(settings.lake))}/expectations")


def docs_page(folder: Path) -> Path:
    """The first page of the Data Docs in that folder."""
    return folder / "gx" / "uncommitted" / "data_docs" / "local_site" / "index.html"
