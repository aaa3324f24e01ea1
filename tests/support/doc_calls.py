"""Runs the code blocks of a page in the process of a Spark session (tests.support.spark_engine)."""

from __future__ import annotations

import io
import os
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_blocks(spark: SparkSession, page: str, languages_and_blocks: list[list[str]], folder: str) -> int:
    """Runs blocks of Python and SQL one after the other, as a reader of the page would. Returns their number."""
    os.chdir(folder)
    names: dict[str, Any] = {"spark": spark}
    with redirect_stdout(io.StringIO()):  # the process answers on its standard output
        _run(names, page, languages_and_blocks)
    return len(languages_and_blocks)


def _run(names: dict[str, Any], page: str, languages_and_blocks: list[list[str]]) -> None:
    for number, (language, block) in enumerate(languages_and_blocks):
        if language == "python":
            exec(compile(block, f"{page}, block {number}", "exec"), names)
        else:
            for statement in filter(str.strip, block.split(";")):
                names["spark"].sql(statement).collect()
