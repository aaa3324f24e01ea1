"""Help and errors of commands that name no types of Python: ``TEXT``, a flag without a type, one sentence."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

# Both classes below have these methods; only at run time does a mixin need no base.
if TYPE_CHECKING:
    Base = TyperCommand
else:
    Base = object

_TYPES = {bool: None, int: "INTEGER", float: "NUMBER"}
"""Type of an option's value -> what the help shows. A flag has no value. Every other type is TEXT."""


def make_readable(app: typer.Typer) -> None:
    """Gives readable help and errors to every command of ``app`` and of its groups."""
    app.info.cls = Group
    for command in app.registered_commands:
        command.cls = Command
    for group in app.registered_groups:
        if group.typer_instance is not None:
            make_readable(group.typer_instance)


class _Readable(Base):
    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, which show their types in the words of a shell."""
        parameters: list[Any] = super().get_params(ctx)
        for one in parameters:
            one.display_type_rich = partial(_type, one)
        return parameters

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the words of the command line. The error about a wrong value is one sentence."""
        try:
            rest: list[str] = super().parse_args(ctx, args)
        except typer.BadParameter as problem:
            if hasattr(problem.__cause__, "errors"):
                problem.message = _sentence(problem.__cause__)
            raise
        return rest


class Command(_Readable, TyperCommand):
    """A command with readable help and errors."""


class Group(_Readable, TyperGroup):
    """A group of commands with readable help and errors."""


def _type(parameter: Any, ctx: Any) -> str | None:  # noqa: ARG001
    """What the help shows as the type of a parameter's value; None for an argument, whose name says it."""
    if parameter.metavar is not None and parameter.param_type_name == "option":
        return str(parameter.metavar)
    kind = parameter.type_descriptor
    if kind.choices is not None:
        return f"[{'|'.join(str(getattr(one, 'value', one)) for one in kind.choices)}]"
    return None if parameter.param_type_name == "argument" else _TYPES.get(kind.annotation, "TEXT")


def _sentence(problem: Any) -> str:
    """``'x' is not a valid integer.``: the first error, of a ``pydantic.ValidationError``, in the words of Click."""
    first = problem.errors()[0]
    value, kind, details = first["input"], first["type"], first.get("ctx", {})
    if hasattr(error := details.get("error"), "errors"):  # of one value of several
        return _sentence(error)
    if error is not None:
        return str(error)
    if kind.startswith("int_"):
        return f"{value!r} is not a valid integer."
    if kind.startswith("float_"):
        return f"{value!r} is not a valid number."
    if kind == "greater_than_equal":
        return f"{value} is less than {details['ge']}."
    if kind == "less_than_equal":
        return f"{value} is more than {details['le']}."
    return f"{value!r}: {first['msg']}."
