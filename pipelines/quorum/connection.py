"""A connection to one controller or broker: its socket, TLS, the versions of its messages, and the login.

Each step has a deadline, and ends soon after ``stop`` says so. A fault is a `Fault`: a passing one may be over the next
time, another one needs a person. Without the socket: each SASL mechanism is a generator that yields what to send, and
is sent each answer. A connection has one request at a time. An answer that is not the one to it, or longer than it may
be, is a BadMessage: nothing is allocated for a length that was only announced.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple, NoReturn

from jbod_model.errors import JbodError, UsageError, first_line_of
from pipelines.quorum.messages import (
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    DESCRIBE_LOG_DIRS,
    FETCH,
    FETCH_SNAPSHOT,
    NAMES,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    VERSIONS,
    BadMessage,
    Message,
    decode,
    encode,
)
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
        self._open_request: tuple[int, int, int] | None = None
        """The API of the request that waits, its version, and the most bytes of its answer."""

    def version(self, api: int) -> int | None:
        """The version of requests to an API, None if the server has none that is known here."""
        return self._versions.get(api)

    def request(self, api: int, message: Mapping[str, Any], most: int = MOST_BYTES) -> bytes:
        """The bytes of a request, whose answer may have ``most`` bytes."""
        if self._open_request is not None:
            raise ValueError("the request before waits for its answer")
        version = self._versions[api]
        self._number += 1
        self._open_request = api, version, most
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
        if self._open_request is None:
            raise BadMessage("bytes came that nobody asked for")
        api, version, most = self._open_request
        (size,) = _LENGTH.unpack_from(self._received)
        if not _LENGTH.size <= size <= most:
            raise BadMessage(self._what_else(size))
        if len(self._received) < _LENGTH.size + size:
            return None
        if len(self._received) > _LENGTH.size + size:
            raise BadMessage("more bytes came than the answer has")
        answer = memoryview(self._received)[_LENGTH.size :]  # records are a part of it, without a copy
        self._received = bytearray()
        self._open_request = None
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
        for version_range in message["api_keys"]:
            api = version_range["api_key"]
            if api in VERSIONS and api not in _BEFORE_FLEXIBLE:
                low, high = VERSIONS[api]
                common = min(high, version_range["max_version"])
                if max(low, version_range["min_version"]) <= common:
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


_TICK = 0.2
"""Seconds after which a wait looks at ``stop``."""
_PIECE = 1 << 20
_UNSUPPORTED_MECHANISM, _AUTHENTICATION_FAILED = 33, 58


class Address(NamedTuple):
    """Where a controller or broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Fault(JbodError):
    """What went wrong with a controller or broker, in one line. ``passes``: it may be over the next time."""

    FIELDS = ("address", "problem", "passes")

    def __init__(self, address: str, problem: str, passes: bool = True) -> None:
        self.address = address
        self.problem = problem
        self.passes = passes
        super().__init__(f"{address}: {problem}")


class Halted(Exception):
    """``stop`` said so."""


class Connection:
    """An open connection, ready for requests. Raises Fault if there is none."""

    def __init__(
        self,
        address: Address,
        security: Security,
        stop: Callable[[], bool],
        seconds: float,
        *,
        known: bool = False,
        broker: bool = False,
    ) -> None:
        """``broker``: a broker is meant, else a controller.

        ``known``: these settings have led to one before, so that what is no answer is a passing fault.
        """
        self.address = address
        self._stop = stop
        self._broker = broker
        self._exchange = Exchange()
        self._end = time.monotonic() + seconds
        self._answered = known
        """Whether the server ever answered as Kafka does."""
        self._is_tls = security.context is not None
        self._socket = self._open(security)
        try:
            self._prepare(security)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()

    def version(self, api: int) -> int | None:
        """The version of requests to an API, None if the server has none."""
        return self._exchange.version(api)

    def call(self, api: int, message: Mapping[str, Any], seconds: float, most: int = MOST_BYTES) -> Message:
        """The answer to a request, which may take ``seconds`` and have ``most`` bytes. Raises Fault, or Halted."""
        self._end = time.monotonic() + seconds
        data = self._exchange.request(api, message, most)
        try:
            self._socket.settimeout(seconds)
            self._socket.sendall(data)
            while True:
                answer = self._exchange.receive(self._receive())
                if answer is not None:
                    self._answered = True
                    return answer
        except BadMessage as problem:
            sentence = f"answers what no {'broker' if self._broker else 'controller'} of Kafka does ({problem})"
            raise Fault(str(self.address), sentence, passes=self._answered) from None
        except OSError as problem:
            self._fail(problem)

    def _open(self, security: Security) -> socket.socket:
        try:
            opened = socket.create_connection(self.address, timeout=self._left())
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except (OSError, ValueError) as problem:  # ValueError: a name that DNS cannot have
            raise Fault(str(self.address), f"cannot be reached ({_text(problem)})") from None
        if security.context is None:
            return opened
        try:
            opened.settimeout(self._left())
            return security.context.wrap_socket(opened, server_hostname=self.address.host)
        except OSError as problem:
            opened.close()
            self._fail(problem)

    def _prepare(self, security: Security) -> None:
        request = {"software_name": "jbod", "software_version": "1.0.0"}
        self.call(API_VERSIONS, request, self._left())
        if security.uses_sasl:
            self._log_in(security)
        needed = (DESCRIBE_LOG_DIRS, DESCRIBE_CLUSTER) if self._broker else (FETCH_SNAPSHOT, FETCH)
        if all(self.version(api) is not None for api in needed):
            return
        problem = (
            "is a controller, or older than Kafka 3.7: name brokers, as for --bootstrap-server"
            if self._broker
            else "is a broker, or older than Kafka 3.7: name the controllers (controller.quorum.bootstrap.servers)"
        )
        raise Fault(str(self.address), problem, passes=False)

    def _log_in(self, security: Security) -> None:
        handshake = self.call(SASL_HANDSHAKE, {"mechanism": security.mechanism}, self._left())
        if handshake["error_code"]:
            offered = ", ".join(handshake["mechanisms"])[:200] or "none"
            raise Fault(str(self.address), f"takes no {security.mechanism}, but: {ascii(offered)[1:-1]}", passes=False)
        talk = conversation(security)
        try:
            auth_bytes = next(talk)
            while True:
                answer = self.call(SASL_AUTHENTICATE, {"auth_bytes": auth_bytes}, self._left())
                if answer["error_code"]:
                    raise Fault(
                        str(self.address), f"refuses the login by {security.mechanism}: user, password or token", False
                    )
                auth_bytes = talk.send(answer["auth_bytes"])
        except StopIteration:
            return
        except NotProven:
            problem = f"does not prove by {security.mechanism} that it knows the password: it is not to be trusted"
            raise Fault(str(self.address), problem, passes=False) from None

    def _receive(self) -> bytes:
        while True:
            if self._stop():
                raise Halted
            self._socket.settimeout(min(_TICK, self._left()))
            try:
                data = self._socket.recv(_PIECE)
            except (TimeoutError, ssl.SSLWantReadError):
                continue
            if not data:
                raise ConnectionResetError("closed")
            return data

    def _left(self) -> float:
        left = self._end - time.monotonic()
        if left <= 0:
            raise Fault(str(self.address), "does not answer in time")
        return left

    def _fail(self, problem: OSError) -> NoReturn:
        if isinstance(problem, ssl.SSLCertVerificationError):
            raise Fault(
                str(self.address),
                f"its certificate is not accepted ({problem.verify_message}): ssl.truststore.location names the CA",
                passes=False,
            ) from None
        if isinstance(problem, ssl.SSLError) and not isinstance(problem, ssl.SSLEOFError):
            raise Fault(str(self.address), _tls(problem), passes=False) from None
        if isinstance(problem, TimeoutError):
            raise Fault(str(self.address), "does not answer in time") from None
        sentence = "closes the connection"
        if not self._answered and self._is_tls:
            sentence += ": does the port speak TLS, and does it know the client's certificate (ssl.keystore.location)?"
        elif not self._answered:
            sentence += ": does it want TLS (security.protocol=SSL or SASL_SSL), or SASL?"
        raise Fault(str(self.address), sentence) from None


def _tls(problem: ssl.SSLError) -> str:
    reason = (problem.reason or "").replace("_", " ").lower()
    if "wrong version" in reason or "http request" in reason or "record layer" in reason:
        return "speaks no TLS: set security.protocol=PLAINTEXT or SASL_PLAINTEXT, or another port"
    if "alert" in reason or "certificate required" in reason:
        return f"refuses the client's certificate, or wants one ({reason}): ssl.keystore.location names it"
    return f"TLS fails ({reason or type(problem).__name__})"


def _text(problem: Exception) -> str:
    if isinstance(problem, TimeoutError):
        return "no answer in time"
    return getattr(problem, "strerror", None) or first_line_of(problem)
