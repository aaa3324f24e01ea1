"""New directory ids (R-STORE-15).

Source: Kafka's ``MetaPropertiesEnsemble.Copier``; KIP-858 "Reserved UUIDs".
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection

from jbod_model.ids import Uuid, reserved


def secure_long() -> int:
    """64 random bits from the operating system, as a signed number."""
    return secrets.randbits(64) - 2**63


def generate_directory_id(used: Collection[Uuid], next_long: Callable[[], int] = secure_long) -> Uuid:
    """An id for a directory: 128 random bits, drawn again if the id cannot be used.

    Ids cannot be used if their text starts with "-" (command lines would read an option), if they are reserved, or if
    they are in ``used``, the ids of the node's other directories.
    """
    while True:
        candidate = Uuid(next_long(), next_long())
        if not str(candidate).startswith("-") and not reserved(candidate) and candidate not in used:
            return candidate
