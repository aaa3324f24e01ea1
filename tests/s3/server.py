"""A real S3 server in a process of its own, behind a proxy that counts requests and can be told to fail."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.support.paths import ROOT

SERVER = Path(os.environ.get("S3_SERVER") or ROOT / "build" / "go" / "bin" / "versitygw")
HAS_CONDITIONS = not SERVER.name.startswith("rclone")
"""Whether the server keeps the conditions of puts. rclone ignores them, so it can hold logs, but no lake."""
ACCESS, SECRET = "jbod", "jbod-secret"
BUCKET = "kafka"
_DROPPED = {"connection", "keep-alive", "transfer-encoding", "te", "upgrade"}
_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


@dataclass
class Proxy:
    """Passes requests on to a server. ``log``: (method, path) of each request since ``forget``."""

    port: int = 0
    log: list[tuple[str, str]] = field(default_factory=list)
    failing: bool = False
    """Whether every request is answered with 503."""

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def forget(self) -> None:
        self.log.clear()

    def kinds(self) -> dict[str, int]:
        """The number of requests of each kind: LIST is a GET of a bucket."""
        counts: dict[str, int] = {}
        for method, path in self.log:
            kind = "LIST" if method == "GET" and "list-type" in parse_qs(urlsplit(path).query) else method
            counts[kind] = counts.get(kind, 0) + 1
        return counts


def environment(proxy: Proxy) -> dict[str, str]:
    """The variables by which a process reaches the server."""
    return {
        "AWS_ENDPOINT_URL": proxy.endpoint,
        "AWS_ACCESS_KEY_ID": ACCESS,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
    }


@contextmanager
def served(folder: Path) -> Iterator[Proxy]:
    """A server on a folder, with one bucket."""
    (folder / BUCKET).mkdir(parents=True, exist_ok=True)
    port = _free_port()
    command = [str(SERVER), "--port", f"127.0.0.1:{port}", "--quiet", "--keep-alive", "posix", str(folder)]
    if not HAS_CONDITIONS:
        command = [str(SERVER), "serve", "s3", "--addr", f"127.0.0.1:{port}", "--auth-key", f"{ACCESS},{SECRET}"]
        command += ["--vfs-cache-mode", "off", str(folder)]
    with (folder.parent / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            env=os.environ | {"ROOT_ACCESS_KEY": ACCESS, "ROOT_SECRET_KEY": SECRET},
            stdout=log,
            stderr=log,
        )
    try:
        _wait(port, process)
        with proxied(port) as proxy:
            yield proxy
    finally:
        process.terminate()
        process.wait(10)


@contextmanager
def proxied(port: int) -> Iterator[Proxy]:
    """A proxy before a server on this machine."""
    proxy = Proxy()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def setup(self) -> None:
            super().setup()
            self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._server: http.client.HTTPConnection | None = None

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            proxy.log.append((self.command, self.path))
            if proxy.failing:
                self._answer(503, [("Content-Type", "application/xml")], _SLOW_DOWN)
                return
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _DROPPED}
            for attempt in (1, 2):
                if self._server is None:
                    self._server = http.client.HTTPConnection("127.0.0.1", port)
                try:
                    self._server.request(self.command, self.path, body or None, headers)
                    answer = self._server.getresponse()
                    content = answer.read()
                    break
                except (http.client.HTTPException, OSError):
                    self._server = None
                    if attempt == 2:
                        raise
            self._answer(answer.status, answer.getheaders(), content)

        def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
            self.send_response_only(status)
            length = str(len(content))
            for name, value in headers:
                if name.lower() == "content-length":
                    length = value
                elif name.lower() not in _DROPPED:
                    self.send_header(name, value)
            self.send_header("Content-Length", length)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)
            self.wfile.flush()

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that is killed in mid-request is no error."""

    server = Server(("127.0.0.1", 0), Handler)
    proxy.port = server.server_port
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        assert process.poll() is None, f"{SERVER} ended with {process.returncode}"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(f"{SERVER} does not answer")
