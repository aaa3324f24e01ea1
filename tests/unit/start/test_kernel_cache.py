"""Where compiled kernels are kept."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.volume import rare

PROGRAM = """
import numpy as np
from pipelines.formats.kernels import columns_of
print([column.tolist() for column in columns_of(np.array([[1, 2], [3, 4]]), np.array([1]))])
"""


@pytest.mark.parametrize("mode", [rare(0o700), 0o777], ids=["own", "others write it"])
def test_kernels_where_no_other_folder_can_be_written_are_kept_below_tmpdir(tmp_path: Path, mode: int) -> None:
    """numba raised RuntimeError in a container whose root is read-only: it keeps kernels or compiles none."""
    packages, temporary = tmp_path / "packages", tmp_path / "temporary"
    temporary.mkdir()
    kept = temporary / f"jbod-kernels-{os.getuid()}"
    kept.mkdir()
    kept.chmod(mode)
    for name in ("jbod_model", "pipelines"):
        shutil.copytree(ROOT / name, packages / name, ignore=shutil.ignore_patterns("__pycache__"))
    (packages / "pipelines" / "formats" / "__pycache__").touch()  # a file: no folder of this name can be made
    (tmp_path / "cache").touch()
    own = {"PYTHONPATH": str(packages), "XDG_CACHE_HOME": str(tmp_path / "cache"), "TMPDIR": str(temporary)}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "_JBOD"))}

    ran = subprocess.run(
        [sys.executable, "-B", "-c", PROGRAM],
        cwd=tmp_path,
        env=inherited | own,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ran.stdout, ran.stderr) == ("[[3], [4]]\n", "")
    assert bool([*kept.glob("**/*.nbi")]) == (mode == 0o700)
