"""An action that may have written the next records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jbod_model.formats.records import Record
from jbod_model.formats.requests import Request
from jbod_model.ids import Uuid
from jbod_model.replay.image import Image
from lab.behaviour.registrations import Registrations


@dataclass(frozen=True, slots=True)
class Guess:
    """A request, or work of the controller's own, and what the controller knows beside the metadata."""

    request: Request
    circumstances: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `jbod_model.controller.Context`."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """The state, and the records that are to be explained from here to the end of their batch."""

    image: Image
    records: Sequence[Record]
    offset: int
    """Of the first of them."""
    registrations: Registrations
    lost: Uuid | None = None
    """The id for lost directories, where the profile's brokers assign replicas to it."""
