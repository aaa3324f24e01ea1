"""What every test may use."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("jbod", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("jbod")


@pytest.fixture(autouse=True)
def _settings_of_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings in the environment of whoever runs the tests do not reach them."""
    for name in [name for name in os.environ if name.startswith("JBOD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("JBOD_CONF", "")  # so that what a command sets is undone
