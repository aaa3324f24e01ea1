"""What a question to a log imports, and options that are taken without pydantic."""

from __future__ import annotations

import subprocess
import sys
from enum import StrEnum
from typing import Annotated, Any

import pytest
import typer
import typer.core
from typer._coercion import build_runtime_param
from typer.testing import CliRunner

from pipelines.start.typer_import import without_pydantic
from tests.support.paths import ROOT, metadata_dir

NOT_NEEDED = ("pydantic", "deltalake", "pandas", "numba", "scipy", "pyspark", "pyarrow.compute", "pyarrow.parquet")
"""Each takes a tenth of a second or more to import."""


def test_question_to_a_small_log_imports_no_library_that_it_does_not_use() -> None:
    program = (
        "import sys\nfrom pipelines.cli.main import main\n"
        "try:\n    main(sys.argv[2:])\nexcept SystemExit:\n    pass\n"
        "print([name for name in sys.argv[1].split(',') if name in sys.modules], file=sys.stderr)"
    )
    question = ["offline", "--log", str(metadata_dir("kafka-4.1.2")), "--at-offset", "200", "--limit=3", "--format=csv"]
    words = [sys.executable, "-c", program, ",".join(NOT_NEEDED), *question]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=True, timeout=120)
    assert len(done.stdout.splitlines()) == 4
    assert done.stderr.splitlines()[-1] == "[]"


class Form(StrEnum):
    table = "table"
    json = "json"


def _app() -> typer.Typer:
    app = typer.Typer()

    @app.command()
    def show(
        words: Annotated[list[str] | None, typer.Argument()] = None,
        text: Annotated[str | None, typer.Option("--text")] = None,
        number: Annotated[int | None, typer.Option("--number")] = None,
        few: Annotated[int, typer.Option("--few", min=0, max=9)] = 1,
        many: Annotated[list[str] | None, typer.Option("--many")] = None,
        form: Annotated[Form, typer.Option("--form")] = Form.table,
    ) -> None:
        typer.echo(repr((words, text, number, few, many, form)))

    return app


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["a", "b", "--text", "7"],
        ["--number", "7", "--form", "json"],
        ["--number", "x"],
        ["--number", "-7", "--few", "9"],
        ["--number", "+7"],
        ["--number", "1_0"],
        ["--number", "\u0667"],
        ["--number", str(10**30)],
        ["--few", "10"],
        ["--few", "-1"],
        ["--form", "JSON"],
        ["--form", "xml"],
        ["--many", "a", "--many", "b", "--text", ""],
    ],
    ids=" ".join,
)
def test_options_have_the_same_values_and_errors_with_and_without_pydantic(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    def said() -> Any:
        result = CliRunner().invoke(_app(), arguments)
        return result.exit_code, result.output

    monkeypatch.setattr("typer.core.build_runtime_param", build_runtime_param)
    monkeypatch.setenv("JBOD_SPARK__FAST_START", "false")
    without_pydantic()
    assert vars(typer.core)["build_runtime_param"] is build_runtime_param
    before = said()
    monkeypatch.setenv("JBOD_SPARK__FAST_START", "true")
    without_pydantic()
    assert vars(typer.core)["build_runtime_param"] is not build_runtime_param
    assert said() == before


def test_typer_without_the_private_function_keeps_its_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("typer.core.build_runtime_param")
    without_pydantic()
    assert "build_runtime_param" not in vars(typer.core)
