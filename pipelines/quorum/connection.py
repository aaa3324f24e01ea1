"""A connection to one controller or broker: its socket, TLS, the versions of its messages, and the login.

Each step has a deadline, and ends soon after ``stop`` says so. A fault is a `Fault`: a passing one may be over the next
time, another one needs a person.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

from jbod_model.errors import JbodError
from pipelines.quorum.exchange import MOST_BYTES, Exchange
from pipelines.quorum.messages import (
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    DESCRIBE_LOG_DIRS,
    FETCH,
    FETCH_SNAPSHOT,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    BadMessage,
    Message,
)
from pipelines.quorum.sasl import NotProven, conversation
from pipelines.quorum.security import Security

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
            said = f"answers what no {'broker' if self._broker else 'controller'} of Kafka does ({problem})"
            raise Fault(str(self.address), said, passes=self._answered) from None
        except OSError as problem:
            self._fail(problem)

    def _open(self, security: Security) -> socket.socket:
        try:
            opened = socket.create_connection(self.address, timeout=self._left())
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as problem:
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
        asked = {"software_name": "jbod", "software_version": "1.0.0"}
        self.call(API_VERSIONS, asked, self._left())
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
            said = next(talk)
            while True:
                answer = self.call(SASL_AUTHENTICATE, {"auth_bytes": said}, self._left())
                if answer["error_code"]:
                    raise Fault(
                        str(self.address), f"refuses the login by {security.mechanism}: user, password or token", False
                    )
                said = talk.send(answer["auth_bytes"])
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
        said = "closes the connection"
        if not self._answered and self._is_tls:
            said += ": does the port speak TLS, and does it know the client's certificate (ssl.keystore.location)?"
        elif not self._answered:
            said += ": does it want TLS (security.protocol=SSL or SASL_SSL), or SASL?"
        raise Fault(str(self.address), said) from None


def _tls(problem: ssl.SSLError) -> str:
    reason = (problem.reason or "").replace("_", " ").lower()
    if "wrong version" in reason or "http request" in reason or "record layer" in reason:
        return "speaks no TLS: set security.protocol=PLAINTEXT or SASL_PLAINTEXT, or another port"
    if "alert" in reason or "certificate required" in reason:
        return f"refuses the client's certificate, or wants one ({reason}): ssl.keystore.location names it"
    return f"TLS fails ({reason or type(problem).__name__})"


def _text(problem: OSError) -> str:
    if isinstance(problem, TimeoutError):
        return "no answer in time"
    return problem.strerror or type(problem).__name__
