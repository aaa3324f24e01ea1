"""Reads the answers in a controller's request log."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping
from typing import Any

from jbod_model.formats import responses
from jbod_model.formats.json_values import camel_case, read
from jbod_model.formats.responses import BrokerHeartbeatResponse, Response


def read_answer(cls: type[Any], value: dict[str, Any], error_code: int) -> Response:
    """The answer of class ``cls`` that ``value`` describes; empty if the request was refused as a whole."""
    if cls is Response or error_code != 0:
        return Response()
    if cls is BrokerHeartbeatResponse:
        value = {**value, "inControlledShutdown": False}  # the controller's own state, which is not sent
    parsed: Response = read(cls, _known(cls, value))
    return parsed


def _known(cls: Any, value: Any) -> Any:
    """``value`` without the fields that ``cls`` does not have, at any depth."""
    if not isinstance(value, dict):
        return value
    fields = _fields(cls)
    return {name: _known_items(fields[name], item) for name, item in value.items() if name in fields}


def _known_items(cls: Any, value: Any) -> Any:
    if cls is None or not isinstance(value, list):
        return value
    return [_known(cls, item) for item in value]


@functools.cache
def _fields(cls: Any) -> Mapping[str, Any]:
    """camelCase name -> the class of its items, if they have one."""
    return {camel_case(one.name): _element(one.type) for one in dataclasses.fields(cls)}


def _element(hint: Any) -> type[Any] | None:
    """The dataclass X in ``tuple[X, ...]``, the type of lists in responses."""
    found = re.fullmatch(r"tuple\[(\w+), \.\.\.\]", str(hint))
    cls = getattr(responses, found[1], None) if found else None
    return cls if isinstance(cls, type) and dataclasses.is_dataclass(cls) else None
