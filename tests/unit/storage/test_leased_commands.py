"""What else than tables is kept in a lake on S3: places of jobs, and what alerts were delivered."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from obstore.store import MemoryStore

from jbod_model.errors import JbodError
from pipelines.jobs.lock import Busy, held
from pipelines.metrics import alerts
from pipelines.metrics.alerts import State
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


def test_one_run_sends_alerts_and_the_next_knows_what_was_sent() -> None:
    to = Mock(id="webhook-1", shown="http://host")
    with alerts._only_one(f"{AT}/alerts", to) as file:
        assert alerts._read(file) is None
        alerts._write(file, State(7, {"a@1": "new"}))
        with pytest.raises(JbodError, match="another run is sending"), alerts._only_one(f"{AT}/alerts", to):
            pass
    with alerts._only_one(f"{AT}/alerts", to) as file:
        assert alerts._read(file) == State(7, {"a@1": "new"})
