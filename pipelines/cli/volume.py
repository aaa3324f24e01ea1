"""``-q`` and ``-v`` of every command: what it prints on standard error beside errors."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from jbod_model.errors import UsageError
from pipelines.cli import progress

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress and no notices, only errors.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also print what the command decides, and why.")]


def add_volume(app: typer.Typer) -> None:
    """Gives ``-q`` and ``-v`` to every command of ``app`` and of its groups."""
    for command in app.registered_commands:
        if command.callback is not None:
            command.callback = _with_volume(command.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            add_volume(group.typer_instance)


def _with_volume(command: Callable[..., None]) -> Callable[..., None]:
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=False)
        for name, kind in (("quiet", Quiet), ("verbose", Verbose))
    ]
    parameters = [*inspect.signature(command, eval_str=True).parameters.values(), *added]

    @wraps(command)
    def run(*, quiet: bool, verbose: bool, **values: Any) -> None:
        if quiet and verbose:
            raise UsageError("--quiet and --verbose: give one of them")
        progress.set_volume(quiet=quiet, verbose=verbose)
        if verbose:
            _tell_settings()
        command(**values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    del run.__wrapped__
    return run


def _tell_settings() -> None:
    from pipelines.settings import found_files, named_files

    files = [str(file) for file in found_files(named_files())]
    progress.decision(f"settings of {', '.join(files)}" if files else "no file of settings")
