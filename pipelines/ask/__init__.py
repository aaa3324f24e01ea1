"""Questions answered from a lake without a JVM: ``Lake.open`` and one function per question.

A name is imported when it is first used, as no question needs the modules of all. Questions that need the controller's
rules (risk, whatif, removal) are not named here, as they load more slowly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines.ask.directories import directories
    from pipelines.ask.history import history
    from pipelines.ask.image import image
    from pipelines.ask.incidents import incidents
    from pipelines.ask.offline import offline
    from pipelines.ask.status import status
    from pipelines.lake.reader import Lake

__all__ = ["Lake", "directories", "history", "image", "incidents", "offline", "status"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "pipelines.lake.reader" if name == "Lake" else f"{__name__}.{name}"
    found = getattr(import_module(module), name)
    globals()[name] = found  # the import of the module set the name to the module
    return found
