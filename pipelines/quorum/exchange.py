"""One connection to a controller or broker without its socket: requests become bytes, bytes become answers.

The connection has one request at a time. An answer that is not the one to it, or longer than it may be, is a
BadMessage: nothing is allocated for a length that was only announced.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from pipelines.quorum.messages import (
    API_VERSIONS,
    NAMES,
    SASL_HANDSHAKE,
    VERSIONS,
    BadMessage,
    Message,
    decode,
    encode,
)

CLIENT_ID = b"jbod"
MOST_BYTES = 1 << 20
"""The most bytes of an answer that carries no records."""
_LENGTH = struct.Struct(">i")
_HEAD = struct.Struct(">hhi")
_BEFORE_FLEXIBLE = (API_VERSIONS, SASL_HANDSHAKE)
"""Their answers have a header without tagged fields, at every version."""
_UNSUPPORTED_VERSION = 35
_HTTP = (b"HTTP", b"<htm", b"<!DO")


class Exchange:
    """The state of a connection: the versions that the server has, and the request that waits for its answer."""

    def __init__(self) -> None:
        self._versions: dict[int, int] = {api: low for api, (low, _) in VERSIONS.items() if api in _BEFORE_FLEXIBLE}
        self._received = bytearray()
        self._number = 0
        self._asked: tuple[int, int, int] | None = None
        """The API of the request that waits, its version, and the most bytes of its answer."""

    def version(self, api: int) -> int | None:
        """The version of requests to an API, None if the server has none that is known here."""
        return self._versions.get(api)

    def request(self, api: int, message: Mapping[str, Any], most: int = MOST_BYTES) -> bytes:
        """The bytes of a request, whose answer may have ``most`` bytes."""
        if self._asked is not None:
            raise ValueError("the request before waits for its answer")
        version = self._versions[api]
        self._number += 1
        self._asked = api, version, most
        head = _HEAD.pack(api, version, self._number) + struct.pack(">h", len(CLIENT_ID)) + CLIENT_ID
        if api == SASL_HANDSHAKE:
            name: bytes = message["mechanism"].encode()
            body = struct.pack(">h", len(name)) + name
        else:
            body = b"\0" + encode(f"{NAMES[api]}Request", version, message)
        return _LENGTH.pack(len(head) + len(body)) + head + body

    def receive(self, data: bytes | memoryview) -> Message | None:
        """Takes bytes of the server. Returns the answer once it is complete."""
        self._received += data
        if len(self._received) < _LENGTH.size:
            return None
        if self._asked is None:
            raise BadMessage("bytes came that nobody asked for")
        api, version, most = self._asked
        (size,) = _LENGTH.unpack_from(self._received)
        if not _LENGTH.size <= size <= most:
            raise BadMessage(self._what_else(size))
        if len(self._received) < _LENGTH.size + size:
            return None
        if len(self._received) > _LENGTH.size + size:
            raise BadMessage("more bytes came than the answer has")
        answer = memoryview(self._received)[_LENGTH.size :]  # records are a part of it, without a copy
        self._received = bytearray()
        self._asked = None
        return self._answer(api, version, answer)

    def _answer(self, api: int, version: int, answer: memoryview) -> Message:
        (number,) = _LENGTH.unpack_from(answer)
        if number != self._number:
            raise BadMessage(f"an answer to request {number} came, {self._number} waits for its own")
        if api == SASL_HANDSHAKE:
            return _handshake(answer)
        at = _LENGTH.size
        if api == API_VERSIONS:
            if bytes(answer[at : at + 2]) == _UNSUPPORTED_VERSION.to_bytes(2, "big"):
                raise BadMessage("it is older than Kafka 3.7, and jbod asks no older one")
        elif bytes(answer[at : at + 1]) != b"\0":
            raise BadMessage("the header of an answer has fields that are not known")
        else:
            at += 1
        message = decode(f"{NAMES[api]}Response", version, answer, at)
        if api == API_VERSIONS:
            self._learn(message)
        return message

    def _learn(self, message: Message) -> None:
        for one in message["api_keys"]:
            api = one["api_key"]
            if api in VERSIONS and api not in _BEFORE_FLEXIBLE:
                low, high = VERSIONS[api]
                common = min(high, one["max_version"])
                if max(low, one["min_version"]) <= common:
                    self._versions[api] = common

    def _what_else(self, size: int) -> str:
        """Guesses what speaks, by the first bytes."""
        head = bytes(self._received[:4])
        if head[:2] == b"\x15\x03":
            return "it speaks TLS: set security.protocol=SSL or SASL_SSL"
        if head in _HTTP:
            return "it is an HTTP server, not Kafka"
        return f"an answer of {size:,} bytes is announced, which none may have"


def _handshake(answer: memoryview) -> Message:
    """SaslHandshakeResponse, which was never made flexible."""
    try:
        at = _LENGTH.size
        error, count = struct.unpack_from(">hi", answer, at)
        at += 6
        if not 0 <= count <= len(answer):
            raise BadMessage("SaslHandshake: more mechanisms are announced than bytes remain")
        names = []
        for _ in range(count):
            (size,) = struct.unpack_from(">h", answer, at)
            names.append(bytes(answer[at + 2 : at + 2 + size]).decode("utf-8", "replace"))
            at += 2 + max(size, 0)
    except struct.error:
        raise BadMessage("SaslHandshake: ends inside a field") from None
    if at != len(answer):
        raise BadMessage("SaslHandshake: has another length than its fields")
    return {"error_code": error, "mechanisms": names}
