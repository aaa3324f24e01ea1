"""docs/answers.md shows what the commands print; ``...`` stands for lines left out."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from pipelines.cli import main
from tests.support.lakes import write_lake
from tests.support.logs import read_log
from tests.support.paths import ROOT, metadata_dir


def test_page_shows_what_the_command_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lake(tmp_path / "lake", read_log(metadata_dir("kafka-4.1.2")))
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "answers.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```console\n(\$ jbod .*?)```", text, re.DOTALL)
    shown = [block for block in blocks if " --lake lake" in block and block.count("\n") > 1]
    assert len(shown) > 4
    for block in shown:
        command, _, output = block.partition("\n")
        with pytest.raises(SystemExit) as left:
            main.main(shlex.split(command)[2:])
        assert left.value.code in (0, 1)
        printed = capsys.readouterr().out
        kept = [re.escape(part) for part in re.split(r"^\.\.\.\n", output, flags=re.MULTILINE)]
        assert re.fullmatch("(?s:.*)".join(kept), printed), command
