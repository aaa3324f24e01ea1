"""Explains why a record value is refused, with the plain codec's message, so that both readers agree."""

from __future__ import annotations

from jbod_model.errors import MalformedLog
from jbod_model.formats import codec


def refusal(value: bytes, file: str, offset: int) -> MalformedLog:
    """Returns the plain codec's error for ``value``."""
    try:
        codec.decode(value, file=file, offset=offset)
    except MalformedLog as problem:
        return problem
    return MalformedLog(file, offset, "the two readers disagree about this record: a defect of jbod, please report it")
