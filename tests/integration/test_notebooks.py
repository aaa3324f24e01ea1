"""The notebooks run, and their committed outputs are what a run gives, byte for byte."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

from notebooks.execute import cleaned, executed, notebooks, written
from tests.support.lakes import write_lake
from tests.support.logs import read_log
from tests.support.paths import metadata_dir
from tests.support.volume import rare

NOTEBOOKS = notebooks()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("notebooks") / "lake"
    write_lake(path, read_log(metadata_dir("kafka-4.1.2")))
    return path


def test_there_are_notebooks() -> None:
    assert [path.name[:2] for path in NOTEBOOKS] == ["01", "02", "03", "04"]


@pytest.mark.parametrize("path", [*NOTEBOOKS[:-1], rare(NOTEBOOKS[-1])], ids=lambda path: path.stem)
def test_notebook_run_again_gives_the_committed_outputs(
    path: Path, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JBOD_LAKE", str(lake))
    # A notebook's JVM works for seconds: the second compiler only takes time.
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
    again = executed(path)
    for number, (before, after) in enumerate(zip(nbformat.read(path, as_version=4).cells, again.cells, strict=True)):
        assert before.get("outputs") == after.get("outputs"), f"cell {number} gives something else: {before.source}"
    assert written(again) == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_short_small_and_of_no_machine(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    notebook = nbformat.reads(text, as_version=4)
    assert written(cleaned(notebook)) == text
    assert len(notebook.cells) <= 14
    assert len(text) < 120_000
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert {output.output_type for output in outputs} <= {"display_data", "stream"}
    assert any("image/png" in output.get("data", {}) for output in outputs)
    output_text = "".join(
        str(output.get("text", "")) + str(output.get("data", {}).get("text/plain", "")) for output in outputs
    )
    assert re.search(r"0x[0-9a-f]{6}|(?<!\w)/(?:home|tmp|usr)/", output_text) is None
