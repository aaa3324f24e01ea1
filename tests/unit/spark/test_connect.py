"""Spark Connect without a server: what a session costs is one line when it cannot start."""

from __future__ import annotations

import sys

import pytest

from jbod_model.errors import JbodError, UsageError
from pipelines.run.errors import explained, is_sparks
from pipelines.settings import Spark, load
from pipelines.spark import session
from pipelines.spark.session import is_of_this_process, spark_session, tasks_of
from pipelines.start.process import cores


def test_server_that_is_not_there_is_named_without_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "PATIENCE", 0.3)
    with pytest.raises(UsageError) as refusal:
        spark_session(Spark(remote="sc://127.0.0.1:1/;token=secret"))
    assert str(refusal.value).startswith(
        "spark.remote: sc://127.0.0.1:1/: no Spark Connect server accepts a connection"
    )


def test_variable_of_pyspark_names_the_server_where_no_setting_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://a:1")
    assert session.remote_of(Spark()) == "sc://a:1"
    assert session.remote_of(Spark(remote="sc://b:2")) == "sc://b:2"


def test_missing_packages_are_told_with_the_extra_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("pyspark.sql.connect")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "grpc", None)
    # The main module of pytest's workers has no file, so PySpark believes that it runs doctests, and exits.
    monkeypatch.setattr(sys.modules["__main__"], "__file__", __file__, raising=False)
    with pytest.raises(
        UsageError, match=r"^spark\.remote: Spark Connect needs more packages: pip install 'jbod\[connect\]'"
    ):
        session.connected("sc://127.0.0.1:1", {})


@pytest.mark.parametrize("remote", ["sc://host", "sc://host:443/;token=x", "local", "local[2]", "local[*]", ""])
def test_remotes_of_pyspark_are_accepted(remote: str) -> None:
    assert load(spark={"remote": remote}).spark.remote == remote


@pytest.mark.parametrize("remote", ["http://host", "host:15002", "locale", "sc://"])
def test_other_remotes_are_refused(remote: str) -> None:
    with pytest.raises(UsageError, match=r"spark\.remote"):
        load(spark={"remote": remote})


@pytest.mark.parametrize(
    ("server_error", "advice"),
    [
        ("ModuleNotFoundError: No module named 'pipelines'", "install this jbod, with its extra connect"),
        (
            "[UNSUPPORTED_FEATURE.STORE_BACKEND_NOT_SUPPORTED_FOR_TWS] Store backend ...",
            "a replay keeps its state in RocksDB",
        ),
    ],
)
def test_what_a_server_lacks_is_one_line(server_error: str, advice: str) -> None:
    error = explained("lake", RuntimeError(f"Job aborted\n  {server_error}\n"))
    assert isinstance(error, UsageError)
    assert advice in str(error)
    assert "\n" not in str(error)


def test_server_that_goes_away_is_one_line_and_says_nothing_about_the_checkpoint() -> None:
    from pyspark.errors.exceptions.connect import SparkConnectGrpcException, StreamingQueryException

    gone = SparkConnectGrpcException("<_MultiThreadedRendezvous>\n\tstatus = StatusCode.UNAVAILABLE")
    assert type(explained("lake", gone)) is JbodError
    assert "run again" in str(explained("lake", gone))
    assert not is_sparks(gone)
    assert is_sparks(StreamingQueryException("state store: no file"))


@pytest.mark.parametrize(
    ("settings", "theirs", "expected"),
    [
        (Spark(), None, True),
        (Spark(master="local[2]"), None, True),
        (Spark(master="spark://there:7077"), None, False),
        (Spark(remote="sc://there:15002"), None, False),
        (Spark(), object(), False),
    ],
    ids=["default", "local", "cluster", "server", "session of others"],
)
def test_session_is_of_this_process_if_it_is_local_and_jbod_starts_it(
    monkeypatch: pytest.MonkeyPatch, settings: Spark, theirs: object, expected: bool
) -> None:
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    monkeypatch.setattr("pipelines.spark.session._theirs", lambda: theirs)
    assert is_of_this_process(settings) == expected


@pytest.mark.parametrize(
    ("master", "tasks"),
    [("local", 1), ("local[3]", 3), ("local[4, 2]", 4), ("local[*]", cores()), ("local[*, 2]", cores())],
)
def test_local_master_runs_as_many_tasks_at_once_as_it_says(master: str, tasks: int) -> None:
    assert tasks_of(master) == tasks
