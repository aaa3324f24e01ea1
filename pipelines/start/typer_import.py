"""Keeps pydantic out of commands whose options need none. Typer imports it for the first option of a command."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, get_args

import typer.core
from typer._coercion import RuntimeParam, build_runtime_param

from pipelines.start.switch import is_on

_TEXT = (str, str | None)
_TEXTS = (list[str], list[str] | None)


def without_pydantic() -> None:
    """Lets Typer take a text for a text and a list of texts for a list; it validates other values as before."""
    if is_on("typer"):
        vars(typer.core)["build_runtime_param"] = _Taken.of


@dataclass(frozen=True)
class _Taken(RuntimeParam):
    """The value of an option that needs no conversion, or the value as Typer converts it."""

    descriptor: Any

    @classmethod
    def of(cls, descriptor: Any) -> RuntimeParam:
        """The same as Typer's ``build_runtime_param``."""
        plain = descriptor.file_annotation is None and getattr(descriptor.parameter_info, "parser", None) is None
        if not plain:
            return build_runtime_param(descriptor)
        return cls(parameter_info=descriptor.parameter_info, annotation=descriptor.annotation, descriptor=descriptor)

    @cached_property
    def _by_typer(self) -> RuntimeParam:
        return build_runtime_param(self.descriptor)

    def _coerce_value(self, value: Any, param: Any, ctx: Any) -> Any:
        kind: Any = self.annotation
        if isinstance(value, str) and kind in _TEXT:
            return value
        if isinstance(value, (list, tuple)) and kind in _TEXTS and all(isinstance(one, str) for one in value):
            return [*value]
        if isinstance(value, Enum) and type(value) in (kind, *get_args(kind)):
            return value
        return self._by_typer._coerce_value(value, param, ctx)
