"""Why a record value is refused, in the words of the plain codec: one truth for both readers."""

from __future__ import annotations

from jbod_model.errors import MalformedLog
from jbod_model.formats import codec


def refusal(value: bytes, file: str, offset: int) -> MalformedLog:
    """The plain codec's refusal of ``value``."""
    try:
        codec.decode(value, file=file, offset=offset)
    except MalformedLog as problem:
        return problem
    return MalformedLog(file, offset, "the two readers disagree about this record: a defect of jbod, please report it")
