"""Questions answered from a lake without a JVM: ``Lake.open`` and one function per question.

A name is imported when it is first used, as no question needs the modules of all. Questions that need the controller's
rules (risk, whatif, removal) are not named here, as they load more slowly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines.ask.incident_list import incidents
    from pipelines.ask.json_values import image
    from pipelines.ask.lake_status import directories, status
    from pipelines.ask.offline_replicas import offline
    from pipelines.ask.partition_history import history
    from pipelines.lake.reader import Lake

# No name here is a module's name too: importing a module would replace the function by the module.
_MODULES = {
    "Lake": "pipelines.lake.reader",
    "directories": "pipelines.ask.lake_status",
    "history": "pipelines.ask.partition_history",
    "image": "pipelines.ask.json_values",
    "incidents": "pipelines.ask.incident_list",
    "offline": "pipelines.ask.offline_replicas",
    "status": "pipelines.ask.lake_status",
}

__all__ = ["Lake", "directories", "history", "image", "incidents", "offline", "status"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
