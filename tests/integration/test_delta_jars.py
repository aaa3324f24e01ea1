"""A session with Delta Lake where no repository of Maven can be reached."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from pipelines.start.session import cache_dir
from tests.support.lakes import write_lake
from tests.support.logs import read_log
from tests.support.paths import KAFKAS, metadata_dir

OPENS = """
import sys
from pipelines import open_lake
lake = open_lake(sys.argv[1]).in_spark()
print(lake.has_delta, lake.table("ledger").count())
"""


def opened(lake: Path, home: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    """Opens a lake in a process whose JVM has an empty home, and proxies that nobody listens at."""
    proxies = [f"-D{scheme}.proxy{part}" for scheme in ("http", "https") for part in ("Host=127.0.0.1", "Port=9")]
    java = " ".join((f"-Duser.home={home}", *proxies))
    environment = {**os.environ, "JAVA_TOOL_OPTIONS": java, "XDG_CACHE_HOME": str(cache)}
    return subprocess.run(
        [sys.executable, "-c", OPENS, str(lake)], capture_output=True, text=True, env=environment, timeout=300
    )


@pytest.mark.exhaustive
def test_session_has_delta_lake_without_a_network_only_if_its_jars_are_kept(tmp_path: Path) -> None:
    """``make setup`` runs the module, so it has nothing to do here unless the jars could not be fetched then."""
    subprocess.run([sys.executable, "-m", "pipelines.upkeep.warm", "--delta"], check=True, timeout=300)
    lake, home = tmp_path / "lake", tmp_path / "home"
    home.mkdir()
    write_lake(lake, read_log(metadata_dir(KAFKAS[0]), "log")[:50])

    with ThreadPoolExecutor(2) as pool:
        done, refused = pool.map(partial(opened, lake, home), (cache_dir().parent, tmp_path / "cache"))
    assert done.stdout.split() == ["True", "1"], done.stderr
    assert refused.returncode == 1
    assert "run jbod warm --delta once" in refused.stderr.splitlines()[-1]
