"""The names of pipelines.ask, in whatever order its modules are imported."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from pipelines import ask


def test_names_of_ask_are_functions_after_each_of_its_modules_is_imported() -> None:
    """A module that had the name of its function replaced it: ``ask.offline(lake)`` was a TypeError."""
    modules = {module.name for module in pkgutil.iter_modules(ask.__path__)}
    assert not modules & set(ask.__all__)
    for module in modules:
        import_module(f"pipelines.ask.{module}")
    assert all(callable(getattr(ask, name)) for name in ask.__all__)
