"""What else than tables is kept in a lake on S3: places of jobs."""

from __future__ import annotations

import pytest
from obstore.store import MemoryStore

from pipelines.jobs.lock import Busy, held
from pipelines.storage import lease, objects

AT = "s3://bucket/of-commands"


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = MemoryStore()
    monkeypatch.setattr(objects, "_store", lambda *_: memory)
    monkeypatch.setattr(lease, "BEAT", 0.05)
    monkeypatch.setattr(lease, "POLL", 0.01)


def test_a_job_has_as_many_runs_as_it_may_have() -> None:
    with held("checks", AT, 2), held("checks", AT, 2), held("other", AT, 1), pytest.raises(Busy) as refused:
        held("checks", AT, 2).__enter__()
    assert "job checks is running on s3://bucket/of-commands: process" in str(refused.value)
    with held("checks", AT, 1):
        pass
