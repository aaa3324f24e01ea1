"""An HTTP server that Prometheus scrapes: the metrics of a lake, measured again when the lake has advanced.

Beside them it says whether a broker can be restarted (``probe``).
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.registry import Collector

from jbod_model.errors import JbodError, UsageError
from pipelines.ask.restart import MAX_AGE, NOT_DECIDABLE, SAFE, node_ids, safe_to_restart
from pipelines.lake.ledger import Published, open_ledger
from pipelines.lake.reader import Lake
from pipelines.lake.times import parse_span
from pipelines.lake.uris import LakeUri
from pipelines.metrics import declared
from pipelines.metrics.measure import behind, gauge, of_lake, of_log, of_moment, version

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

PATH = "/safe-to-restart"
STATUS = {SAFE: HTTPStatus.OK, NOT_DECIDABLE: HTTPStatus.SERVICE_UNAVAILABLE}
"""The status of a verdict; of any other: 409."""
_PARAMETERS = {"broker", "kill", "max_age"}


@dataclass(frozen=True)
class Probe:
    """Answers at ``PATH``, and leaves every other path to ``otherwise``. One question at a time."""

    lake: LakeUri
    otherwise: WSGIApplication
    default_min_isr: int = 1
    accepted_until: int = -1
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """The WSGI application."""
        if environ.get("PATH_INFO") != PATH:
            return self.otherwise(environ, start_response)
        status, answer = self._answer(environ.get("QUERY_STRING", ""))
        return _respond(start_response, status, "application/json", json.dumps(answer) + "\n")

    def _answer(self, query: str) -> tuple[HTTPStatus, dict[str, Any]]:
        try:
            nodes, kill, max_age = _parse_query(query)
        except UsageError as problem:
            return HTTPStatus.BAD_REQUEST, {"error": str(problem)}
        try:
            with self._lock:
                answer = safe_to_restart(
                    Lake.open(self.lake),
                    nodes,
                    self.default_min_isr,
                    kill=kill,
                    accepted_until=self.accepted_until,
                    max_age=max_age,
                )
        except JbodError as problem:
            undecided = {"verdict": NOT_DECIDABLE.replace(" ", "_"), "undecided": [str(problem)]}
            return STATUS[NOT_DECIDABLE], undecided
        return STATUS.get(answer.verdict, HTTPStatus.CONFLICT), answer.as_json()


def _parse_query(query: str) -> tuple[list[int], bool, float]:
    """The nodes, whether they are killed, and the longest age. Raises UsageError."""
    given = parse_qs(query, keep_blank_values=True)
    if unknown := sorted(given.keys() - _PARAMETERS):
        raise UsageError(f"{', '.join(unknown)}: no such parameter: there are {', '.join(sorted(_PARAMETERS))}")
    nodes = node_ids(given.get("broker", ()))
    if not nodes:
        raise UsageError("name a broker: /safe-to-restart?broker=3")
    kill = given.get("kill", ["false"])[-1].lower()
    if kill not in ("", "true", "false"):
        raise UsageError(f"kill={kill}: true or false")
    age = given.get("max_age")
    return nodes, kill != "false", MAX_AGE if age is None else parse_span("max_age", age[-1])


def _at_its_path(metrics: WSGIApplication) -> WSGIApplication:
    """Refuses every other path: a probe takes the status 200 for "safe"."""

    def answer(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        if environ.get("PATH_INFO") in ("/", "/metrics"):
            return metrics(environ, start_response)
        text = "nothing here: the metrics are at /metrics\n"
        return _respond(start_response, HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", text)

    return answer


def _respond(start_response: StartResponse, status: HTTPStatus, kind: str, text: str) -> Iterable[bytes]:
    body = text.encode()
    headers = [("Content-Type", kind), ("Content-Length", str(len(body)))]
    start_response(f"{status.value} {status.phrase}", headers)
    return [body]


_CLIENT_SECONDS = 30
"""The longest wait for a client's request, or for a client to take more of the answer."""


@dataclass(eq=False)
class Measured(Collector):
    """The metrics of a lake. Scrapes that come at once wait for one measurement and share it.

    ``tell`` gets a line when the lake or the log cannot be read, and when it can be read again.
    """

    lake: LakeUri
    tell: Callable[[str], None]
    log_dir: str | None = None
    default_min_isr: int = 1
    accepted_until: int = -1
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _seen: object = None
    """The versions of the tables that ``_families`` was measured from."""
    _families: Sequence[GaugeMetricFamily] = ()
    _published: Published | None = None
    _problems: dict[str, str] = field(default_factory=dict)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The metrics as of now, or that the lake cannot be read."""
        with self._lock:
            published = self._refresh()
            families = list(self._families)
            end = None if published is None else published.end_offset
            log = [] if self.log_dir is None or end is None else self._log(self.log_dir, end)
        if published is None:
            yield gauge(declared.LAKE_READABLE, 0)
            return
        yield from of_moment(self.lake, published, datetime.now(UTC))
        yield from log
        yield from families

    def _refresh(self) -> Published | None:
        """Measures again if a publication or a run of checks is new. None if the lake cannot be read."""
        try:
            now = (open_ledger(self.lake).version(), version(self.lake))
            if now != self._seen:
                lake = Lake.open(self.lake)
                self._families = list(
                    of_lake(lake, default_min_isr=self.default_min_isr, accepted_until=self.accepted_until)
                )
                self._published, self._seen = lake.published, now
        except Exception as problem:  # whatever a damaged table raises
            self._seen = self._published = None
            self._say(
                "lake", f"{type(problem).__name__}: {problem}" if not isinstance(problem, JbodError) else f"{problem}"
            )
        else:
            self._say("lake", "")
        return self._published

    def _log(self, log_dir: str, seen: int) -> list[GaugeMetricFamily]:
        try:
            families = list(of_log(behind(log_dir, seen)))
        except (JbodError, OSError) as problem:
            self._say("log", str(problem))
            return [gauge(declared.LOG_READABLE, 0)]
        self._say("log", "")
        return families

    def _say(self, what: str, problem: str) -> None:
        """Reports a problem once, and its end."""
        before = self._problems.get(what, "")
        self._problems[what] = problem
        if problem and problem != before:
            self.tell(f"the {what} cannot be read: {problem}")
        elif before and not problem:
            self.tell(f"the {what} can be read again")


class _Handler(WSGIRequestHandler):
    timeout = _CLIENT_SECONDS

    def log_message(self, *_: object) -> None:
        """Scrapes are not logged."""


class _Server(ThreadingWSGIServer):
    request_queue_size = 64

    def server_bind(self) -> None:
        """Binds without looking up the name of the address, which may take seconds."""
        TCPServer.server_bind(self)
        host, port = self.socket.getsockname()[:2]
        self.server_name, self.server_port = str(host), int(port)
        self.setup_environ()

    def handle_error(self, *_: object) -> None:
        """A client that went away is no error of ours."""


class MetricsServer:
    """The server, bound to an address. Raises UsageError if the address is none, or is taken."""

    def __init__(self, address: str, measured: Collector) -> None:
        host, port = _parsed(address)
        registry = CollectorRegistry()
        registry.register(measured)

        class Server(_Server):
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

        try:
            application = _at_its_path(make_wsgi_app(registry))
            if isinstance(measured, Measured):
                application = Probe(measured.lake, application, measured.default_min_isr, measured.accepted_until)
            self._server = make_server(host, port, application, Server, _Handler)
        except OSError as problem:
            raise UsageError(f"--listen {address}: {problem.strerror}") from None
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._server.server_port}/metrics"

    def serve(self) -> None:
        """Serves until ``stop`` is called."""
        with self._server:
            self._server.serve_forever()

    def stop(self) -> None:
        """Ends ``serve``. May be called by a signal handler in the thread that serves."""
        with suppress(RuntimeError):
            threading.Thread(target=self._server.shutdown, daemon=True).start()


def _parsed(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise UsageError(f"--listen {address}: not an address like 127.0.0.1:9465")
    return host, int(port)
