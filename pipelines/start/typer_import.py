"""Keeps pydantic out of commands whose options need none. Typer imports it for the first option of a command."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, get_args

import typer.core

from pipelines.start.switch import is_on

_BUILD = "build_runtime_param"
_TEXT = (str, str | None)
_NUMBER = (int, int | None)
_DECIMAL = re.compile("-?[0-9]{1,18}")
_TEXTS = (list[str], list[str] | None)


def without_pydantic() -> None:
    """Takes texts, lists of texts, whole numbers within their limits and names of choices without pydantic.

    Typer converts every other value as before, and refuses those that are wrong.

    A Typer that does not have the private function keeps its own way.
    """
    build = vars(typer.core).get(_BUILD)
    if is_on("typer") and build is not None and not isinstance(build, _Build):
        vars(typer.core)[_BUILD] = _Build(build)


@dataclass(frozen=True)
class _Build:
    """Replaces Typer's ``build_runtime_param``."""

    by_typer: Callable[[Any], Any]

    def __call__(self, descriptor: Any) -> Any:
        parameter = getattr(descriptor, "parameter_info", None)
        plain = getattr(descriptor, "file_annotation", None) is None and getattr(parameter, "parser", None) is None
        return _Taken(descriptor, self.by_typer) if plain else self.by_typer(descriptor)


@dataclass(frozen=True)
class _Taken:
    """The value of an option as it is if it needs no conversion, else as Typer converts it."""

    descriptor: Any
    build: Callable[[Any], Any]

    @cached_property
    def _by_typer(self) -> Any:
        return self.build(self.descriptor)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._by_typer, name)

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        kind: Any = getattr(self.descriptor, "annotation", None)
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if isinstance(value, str) and kind in _TEXT:
            return value
        if isinstance(value, (list, tuple)) and kind in _TEXTS and all(isinstance(one, str) for one in value):
            return [*value]
        if isinstance(value, str) and kind in _NUMBER and _DECIMAL.fullmatch(value) and self._allows(int(value)):
            return int(value)
        for choices in (kind, *get_args(kind)):
            if (
                isinstance(choices, type)
                and issubclass(choices, Enum)
                and (isinstance(value, choices) or value in _names(choices))
            ):
                return choices(value)
        return self._by_typer.coerce(value, param=param, ctx=ctx)

    def _allows(self, number: int) -> bool:
        parameter = self.descriptor.parameter_info
        least, most = getattr(parameter, "min", None), getattr(parameter, "max", None)
        return (least is None or number >= least) and (most is None or number <= most)


def _names(choices: type[Enum]) -> list[object]:
    return [choice.value for choice in choices]
