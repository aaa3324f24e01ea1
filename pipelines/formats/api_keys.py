"""Numbers of record types, which Kafka calls api keys."""

from __future__ import annotations

from jbod_model.formats.records import API_KEYS, Record

KEY_OF: dict[type[Record], int] = {kind: key for key, kind in API_KEYS.items()}
