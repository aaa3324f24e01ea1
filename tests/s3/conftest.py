"""A server for the whole run, and lakes on it."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.lake import lock
from pipelines.storage import objects
from tests.s3.server import BUCKET, HAS_CONDITIONS, SERVER, Proxy, environment, served

_numbers = itertools.count()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the tests of lakes where the server cannot hold one."""
    if not HAS_CONDITIONS:
        of_lakes = [item for item in items if "lake" in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=of_lakes)
        items[:] = [item for item in items if item not in of_lakes]


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """A server, which this process and those that it starts reach."""
    assert shutil.which(str(SERVER)), f"{SERVER}: is not there: make s3 builds it"
    root = tmp_path_factory.mktemp("s3")
    with pytest.MonkeyPatch.context() as patch, served(root / "buckets") as proxy:
        for name, value in {**environment(proxy), "XDG_CACHE_HOME": str(root / "cache")}.items():
            patch.setenv(name, value)
        patch.delenv("AWS_PROFILE", raising=False)
        objects.forget_stores()
        yield proxy
        for lease, holders in lock._leases.values():
            assert not holders, f"{lease.location} is still held"
    os.environ.pop("AWS_ALLOW_HTTP", None)


@pytest.fixture
def lake(s3: Proxy) -> str:
    """The place of a new lake."""
    return f"s3://{BUCKET}/lake-{next(_numbers)}"


def upload(folder: Path, to: str) -> str:
    """Copies a log to S3."""
    for path in folder.rglob("*"):
        if path.is_file():
            objects.put(f"{to}/{path.relative_to(folder)}", path.read_bytes())
    return to
