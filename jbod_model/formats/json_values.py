"""Kafka's JSON form of records, requests and responses: schema names in camelCase, ids in base64 (R-JSON-1)."""

from __future__ import annotations

import base64
import dataclasses
import enum
import functools
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from jbod_model.ids import Uuid

T = TypeVar("T")


class JsonMismatch(ValueError):
    """A JSON value that does not have the form of its field; the message names the field."""


def camel_case(name: str) -> str:
    """``last_known_elr`` -> ``lastKnownElr``."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


@functools.cache
def _fields(cls: Any) -> Mapping[str, tuple[str, Any]]:
    """camelCase name -> (attribute, type) of every field that has a JSON form."""
    hints = typing.get_type_hints(cls)
    return {
        camel_case(field.name): (field.name, hints[field.name])
        for field in dataclasses.fields(cls)
        if field.name != "unknown_tags"
    }


def read(cls: type[T], value: Any) -> T:
    """The ``cls`` that ``value`` describes; a missing field has its default.

    JsonMismatch if it does not describe one.
    """
    if not isinstance(value, dict):
        raise JsonMismatch(f"{cls.__name__}: an object is needed, not {value!r:.60}")
    kind: Any = cls
    fields = _fields(kind)
    unknown = sorted(set(value) - set(fields))
    if unknown:
        raise JsonMismatch(f"{cls.__name__}: there is no field {unknown[0]}")
    known = {fields[name][0]: _read(f"{cls.__name__}.{name}", fields[name][1], item) for name, item in value.items()}
    try:
        return cls(**known)
    except TypeError as problem:
        raise JsonMismatch(f"{cls.__name__}: {problem}") from None


def _read(where: str, hint: Any, value: Any) -> Any:
    if isinstance(hint, types.UnionType):
        if value is None:
            return None
        (hint,) = (choice for choice in typing.get_args(hint) if choice is not types.NoneType)
    if typing.get_origin(hint) is tuple:
        if not isinstance(value, list):
            raise JsonMismatch(f"{where}: a list is needed, not {value!r:.60}")
        return tuple(_read(where, typing.get_args(hint)[0], item) for item in value)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return read(hint, value)
    if hint is Uuid or hint is bytes:
        return _read_text(where, hint, value)
    if hint is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if type(value) is not hint:
        raise JsonMismatch(f"{where}: {hint.__name__} is needed, not {value!r:.60}")
    return value


def _read_text(where: str, hint: Any, value: Any) -> Any:
    if not isinstance(value, str):
        raise JsonMismatch(f"{where}: a text is needed, not {value!r:.60}")
    try:
        return Uuid.parse(value) if hint is Uuid else base64.b64decode(value, validate=True)
    except ValueError as problem:
        raise JsonMismatch(f"{where}: {problem}") from None


def write(value: Any) -> Any:
    """The JSON value of a dataclass, with every field."""
    if isinstance(value, Uuid):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, tuple):
        return [write(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: write(getattr(value, attribute)) for name, (attribute, _) in _fields(type(value)).items()}
    return int(value) if isinstance(value, enum.IntEnum) else value
