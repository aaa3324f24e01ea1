"""The conversation of each SASL mechanism, without I/O: a generator yields what to send, and is sent each answer."""

from __future__ import annotations

from collections.abc import Generator

from jbod_model.errors import UsageError
from pipelines.quorum.security import Security

Conversation = Generator[bytes, bytes, None]
"""It ends after the last answer."""


class NotProven(Exception):
    """The server did not prove that it knows the password, or answers what the mechanism does not have."""


def conversation(security: Security) -> Conversation:
    """The conversation of the mechanism that is set."""
    if security.mechanism == "PLAIN":
        return _plain(security)
    if security.mechanism == "OAUTHBEARER":
        return _oauthbearer(security)
    return _scram(security)


def _plain(security: Security) -> Conversation:
    yield b"\0" + security.user.encode() + b"\0" + security.password.encode()


def _oauthbearer(security: Security) -> Conversation:
    problem = yield b"n,,\x01auth=Bearer " + security.token().encode("ascii", "replace") + b"\x01\x01"
    if problem:
        yield b"\x01"


def _scram(security: Security) -> Conversation:
    try:
        from scramp import ScramClient, ScramException
    except ImportError:
        raise UsageError(f"{security.mechanism} needs the package scramp: pip install 'jbod[scram]'") from None
    try:
        client = ScramClient([security.mechanism], security.user, security.password)
        answer = yield client.get_client_first().encode()
        client.set_server_first(answer.decode())
        answer = yield client.get_client_final().encode()
        client.set_server_final(answer.decode())
    except (ScramException, ValueError) as problem:
        raise NotProven(type(problem).__name__) from None
