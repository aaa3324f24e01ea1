"""Objects, files and leases on S3, on obstore's store in memory: no server, no network."""

from __future__ import annotations

import time

import duckdb
import pyarrow.fs as pafs
import pytest
from obstore.exceptions import AlreadyExistsError, PreconditionError
from obstore.store import MemoryStore

from jbod_model.errors import JbodError, Retriable, UsageError
from pipelines.lake import lock
from pipelines.lake.lock import RunWatch, alone, check_held, only_run
from pipelines.lake.uris import home_of
from pipelines.storage import duck, objects
from pipelines.storage.filesystem import filesystem_of, read_at
from pipelines.storage.objects import fault_of_storage

AT = "s3://bucket/lake"


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    memory = MemoryStore()
    monkeypatch.setattr(objects, "_store", lambda *_: memory)
    monkeypatch.setattr(lock, "POLL", 0.01)
    return memory


def test_a_put_on_a_condition_keeps_what_is_there() -> None:
    tag = objects.put(f"{AT}/x", b"1", only="new")
    with pytest.raises(AlreadyExistsError):
        objects.put(f"{AT}/x", b"2", only="new")
    objects.put(f"{AT}/x", b"3", only=tag)
    with pytest.raises(PreconditionError):
        objects.put(f"{AT}/x", b"4", only=tag)
    assert objects.get(f"{AT}/x") == b"3"


def test_ranges_end_where_the_object_ends() -> None:
    objects.put(f"{AT}/x", b"0123456789")
    assert objects.get_range(f"{AT}/x", 2, 5) == b"234"
    assert objects.get_range(f"{AT}/x", 8, 100) == b"89"
    assert objects.get_range(f"{AT}/x", 5, 5) == b""
    fs, root = filesystem_of(AT)
    assert read_at(fs, f"{root}/x", 0, 3) == b"012"
    with pytest.raises(FileNotFoundError):
        read_at(fs, f"{root}/y", 0, 3)


def test_folders_come_and_go_with_their_objects() -> None:
    fs, root = filesystem_of(AT)
    assert root == "bucket/lake"
    fs.create_dir(f"{root}/table")
    assert fs.get_file_info(f"{root}/table").type == pafs.FileType.NotFound
    with fs.open_output_stream(f"{root}/table/part=1/file") as out:
        out.write(b"rows")
        assert out.tell() == 4
    assert fs.get_file_info(f"{root}/table").type == pafs.FileType.Directory
    info = fs.get_file_info(f"{root}/table/part=1/file")
    assert (info.type, info.size) == (pafs.FileType.File, 4)
    below = fs.get_file_info(pafs.FileSelector(root))
    assert [(file_info.path, file_info.type) for file_info in below] == [(f"{root}/table", pafs.FileType.Directory)]
    deep = fs.get_file_info(pafs.FileSelector(root, recursive=True))
    assert [file_info.path for file_info in deep] == [f"{root}/table/part=1/file"]
    with fs.open_input_file(f"{root}/table/part=1/file") as source:
        assert source.read() == b"rows"
    fs.delete_dir(f"{root}/table")
    assert fs.get_file_info(pafs.FileSelector(root, allow_not_found=True)) == []


def test_duckdb_reads_small_objects_whole_and_large_ones_in_parts(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("d") / "rows.parquet"
    duckdb.execute(f"COPY (SELECT range AS n, hash(range) AS h FROM range(100000)) TO '{path}'")
    objects.put(f"{AT}/a*b.parquet", path.read_bytes())
    expected = duckdb.execute(f"SELECT count(*), sum(n), max(h) FROM '{path}'").fetchall()
    for whole in (1 << 30, 1 << 10):
        monkeypatch.setattr(duck, "WHOLE", whole)
        duck._kept.clear()
        with duckdb.connect() as connection:
            duck.register(connection)
            rows = connection.execute(f"SELECT count(*), sum(n), max(h) FROM read_parquet(['{AT}/a[*]b.parquet'])")
            assert rows.fetchall() == expected
        assert bool(duck._kept) == (whole > 1 << 20)


def test_the_lock_is_reentrant_and_free_again_afterwards() -> None:
    with alone(AT), alone(AT), only_run(AT):
        check_held(AT)
        other = lock.Lease(f"{AT}/_lock")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lock, "BEAT", 0.05)
            assert not _free(f"{AT}/_lock")
            del other
    assert _free(f"{AT}/_lock")
    with alone(AT):
        assert not _free(f"{AT}/_lock")


def test_run_is_over_for_another_process_when_its_lease_is_free_or_another_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with only_run(AT) as first:
        watch = RunWatch(AT, first)
        watch.check()
    with pytest.raises(JbodError, match="the run that started this query has ended"):
        watch.check()
    with only_run(AT) as second:
        RunWatch(AT, second).check()
        with pytest.raises(JbodError, match="has ended"):
            RunWatch(AT, "another").check()
        monkeypatch.setattr(lock, "LEASE", 0.0)
        watch = RunWatch(AT, second)
        with pytest.raises(JbodError, match="has ended"):
            watch.check()


def _free(location: str) -> bool:
    import json

    return not json.loads(objects.get(location))["held"]


def test_a_lease_that_is_not_renewed_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "LEASE", 0.3)
    monkeypatch.setattr(lock, "BEAT", 0.05)
    dead, heir = lock.Lease(f"{AT}/_run"), lock.Lease(f"{AT}/_run")
    dead.acquire(0)
    assert dead._end is not None
    dead._end.set()  # its thread ends, as if the process hung
    began = time.monotonic()
    heir.acquire(0)
    assert time.monotonic() - began >= 0.3
    with pytest.raises(lock.Lost):
        dead.check()
    dead.release()
    heir.check()
    assert not _free(f"{AT}/_run")
    heir.release()


def test_a_lease_that_is_renewed_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "LEASE", 0.4)
    monkeypatch.setattr(lock, "BEAT", 0.05)
    owner, other = lock.Lease(f"{AT}/_run"), lock.Lease(f"{AT}/_run")
    owner.acquire(0)
    with pytest.raises(lock.HeldLease, match="process"):
        other.acquire(1.0)
    owner.check()
    owner.release()
    other.acquire(0)
    other.release()


def test_a_lease_of_a_process_of_this_machine_that_is_gone_is_lost_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "LEASE", 60.0)
    dead = lock.Lease(f"{AT}/_run")
    with monkeypatch.context() as patch:
        patch.setattr(lock, "_started", lambda _: "another time")
        dead.acquire(0)
        assert dead._end is not None
        dead._end.set()
    began = time.monotonic()
    lock.Lease(f"{AT}/_run").acquire(0)
    assert time.monotonic() - began < 5


def test_a_storage_that_ignores_conditions_has_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    put = objects.put
    monkeypatch.setattr(objects, "put", lambda location, content, *, only=None: put(location, content))
    with pytest.raises(UsageError, match="conditional put"), alone(f"{AT}-plain"):
        pass


def test_a_checkpoint_is_in_the_lake_or_for_s3_on_a_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert home_of("/data/lake") == "/data/lake"
    assert home_of(AT).startswith("/cache/jbod/checkpoints/")
    assert home_of(AT) == home_of(f"{AT}/") != home_of(f"{AT}2")
    assert home_of(AT, "hdfs://name/checkpoints/").startswith("hdfs://name/checkpoints/")


@pytest.mark.parametrize(
    ("response", "kind", "line"),
    [
        ("404 <Code>NoSuchBucket</Code>", UsageError, "there is no such bucket"),
        ("403 Forbidden: <Code>SignatureDoesNotMatch</Code>", UsageError, "does not accept the credentials"),
        ("403 Forbidden: <Code>AccessDenied</Code>", UsageError, "access denied"),
        ("request to http://169.254.169.254/latest/api/token: error sending request", UsageError, "no credentials"),
        ("301 Moved: <Code>PermanentRedirect</Code>", UsageError, "set AWS_REGION"),
        (
            "after 10 retries: 503 Service Unavailable: <Code>SlowDown</Code>",
            Retriable,
            "overloaded or fails (status 503)",
        ),
        ("error sending request for url: client error (Connect): refused", Retriable, "does not answer"),
    ],
)
def test_a_fault_is_one_line(response: str, kind: type[JbodError], line: str) -> None:
    fault = fault_of_storage(AT, OSError(f"Generic S3 error\n  Error performing GET\n {response}\n"))
    assert type(fault) is kind
    assert str(fault).startswith(f"{AT}: ")
    assert line in str(fault)
    assert "\n" not in str(fault)


def test_other_problems_and_places_are_no_faults_of_s3() -> None:
    assert fault_of_storage(AT, ValueError("a column is missing")) is None
    assert fault_of_storage("/data/lake", OSError("503 Service Unavailable")) is None
    with pytest.raises(UsageError, match="BUCKET/PREFIX"):
        objects.parts("s3://bucket/lake?endpoint_override=x")


def test_keys_of_a_profile_come_from_the_shared_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shared = tmp_path_factory.mktemp("aws") / "credentials"
    shared.write_text("[default]\naws_access_key_id = a\n[mine]\naws_access_key_id = m\naws_secret_access_key = s%\n")
    for name in objects._CREDENTIALS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(shared))
    monkeypatch.setenv("AWS_PROFILE", "mine")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "")
    options = objects.storage_options(AT)
    import os

    assert options is not None
    assert (os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]) == ("m", "s%")
    assert objects.storage_options("/data/lake") is None
