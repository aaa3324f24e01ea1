"""Fixtures and settings of all tests."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, settings

from pipelines.cli import progress
from tests.support import templates, volume


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--exhaustive``: the switch between a sample and all cases."""
    parser.addoption(
        "--exhaustive", action="store_true", help="run every seed, case and kill point instead of a sample of them"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Test modules use both when they are imported."""
    # A shell without job control starts background processes with SIGINT ignored, and their children inherit this.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    volume.set_exhaustive(config.getoption("exhaustive"))
    settings.register_profile(
        "jbod",
        max_examples=volume.amount(50, 500),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("jbod")


def pytest_unconfigure() -> None:
    """Remove the folders that tests copied from, and what ``pytest_collection_finish`` kept."""
    templates.remove_folders()
    gc.unfreeze()
    gc.collect()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector away: what collection makes stays, and it would go through it again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the cases beyond the sample."""
    if config.getoption("exhaustive"):
        return
    rest = [item for item in items if item.get_closest_marker("exhaustive")]
    if rest:
        config.hook.pytest_deselected(items=rest)
        items[:] = [item for item in items if not item.get_closest_marker("exhaustive")]


def pytest_collection_finish() -> None:
    """Keep the garbage collector away from what collection made: thousands of items and all modules."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


@pytest.fixture(autouse=True)
def _settings_of_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove settings in the environment, so that they do not affect the tests."""
    for name in [name for name in os.environ if name.startswith("JBOD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("JBOD_CONF", "")  # so that what a command sets is undone
    monkeypatch.setattr(progress, "EVERY", 600.0)  # a busy machine adds no line to what a test compares


_connect = duckdb.connect


@cache
def _database() -> duckdb.DuckDBPyConnection:
    # Answers in tests are small: a second thread costs more than it saves.
    return _connect(config={"threads": 1})


@pytest.fixture(autouse=True, scope="session")
def _one_database() -> Iterator[None]:
    """Connections without a file are cursors of one database: to make one takes as long as five questions.

    Settings of a session and temporary tables belong to the cursor, as they belong to a database of its own.
    """

    def connect(*arguments: Any, **options: Any) -> duckdb.DuckDBPyConnection:
        return _connect(*arguments, **options) if arguments or options else _database().cursor()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(duckdb, "connect", connect)
        yield
    # DuckDB's binding reports objects that exist when Python ends as leaked.
    if _database.cache_info().currsize:
        _database().close()
        _database.cache_clear()
    gc.collect()


@pytest.fixture(scope="session")
def cluster_lakes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Path]]:
    """The lake of each bundled cluster, to read from."""
    from tests.support.cluster_lakes import ClusterLakes

    mine = tmp_path_factory.getbasetemp()
    lakes = ClusterLakes((mine.parent if "PYTEST_XDIST_WORKER" in os.environ else mine) / "clusters")
    yield lakes
    assert lakes.changed() == []
