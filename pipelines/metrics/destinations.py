"""Destinations of alerts: a webhook, or a command that reads them on its standard input.

Printed text contains only the host of a URL and only the first word of a command, because both may hold secrets.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import os
import shlex
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol
from urllib.parse import unquote, urlsplit

from jbod_model.errors import UsageError

RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})


class Undelivered(Exception):
    """A message probably did not arrive. ``again``: whether another attempt may help."""

    def __init__(self, problem: str, *, again: bool) -> None:
        self.again = again
        super().__init__(problem)


class Destination(Protocol):
    """Takes messages. ``shown`` is its name in output, ``id`` its name in the state file."""

    shown: str
    id: str

    def send(self, message: bytes, key: str, seconds: float) -> None:
        """Delivers a JSON object. Raises Undelivered if that fails. ``key`` stays the same for every attempt."""


class Webhook:
    """An http or https URL that messages are posted to; ``user:password@`` in it becomes a header."""

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            fine = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
        except ValueError:
            fine = False
        if not fine or not url.isascii() or any(char <= " " for char in url):
            raise UsageError("--webhook: not a URL like https://host/path (it is not shown, it may hold a secret)")
        place = parts.netloc.rpartition("@")[2]
        self.shown = f"{parts.scheme}://{place}"
        self.id = f"webhook-{_digest(url)}"
        self._url = parts._replace(netloc=place, fragment="").geturl()
        self._headers = {"Content-Type": "application/json", "User-Agent": "jbod"}
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            self._headers["Authorization"] = "Basic " + base64.b64encode(login).decode()

    def send(self, message: bytes, key: str, seconds: float) -> None:
        """Sends a POST. The time limit is for the whole exchange, not for each wait."""
        headers = {**self._headers, "Idempotency-Key": key}
        request = urllib.request.Request(self._url, message, headers, method="POST")  # noqa: S310
        _within(seconds, lambda: _post(request, seconds))


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: urllib would follow with a GET and lose the message."""

    def redirect_request(self, *_: object) -> None:
        return None


def _post(request: urllib.request.Request, seconds: float) -> None:
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=seconds):
            return
    except urllib.error.HTTPError as problem:
        problem.close()
        hint = ": redirects are not followed, give the final URL" if 300 <= problem.code < 400 else ""
        raise Undelivered(f"it answered {problem.code}{hint}", again=problem.code in RETRIED) from None
    except TimeoutError:
        raise Undelivered(_late(seconds), again=True) from None
    except urllib.error.URLError as problem:
        if isinstance(problem.reason, TimeoutError):
            raise Undelivered(_late(seconds), again=True) from None
        what = problem.reason.strerror if isinstance(problem.reason, OSError) else None
        raise Undelivered(f"no connection ({what or type(problem.reason).__name__})", again=True) from None
    except (OSError, http.client.HTTPException, ValueError) as problem:
        # The messages of these exceptions may contain the URL.
        raise Undelivered(f"no proper answer ({type(problem).__name__})", again=True) from None


def _within(seconds: float, call: Callable[[], None]) -> None:
    """Ends a call after some seconds, also during name resolution, the connection or a slow answer."""
    problems: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise Undelivered(_late(seconds), again=True)
    if problems:
        raise problems[0]


class Command:
    """A program with its arguments, started without a shell; its output goes to standard error."""

    def __init__(self, line: str) -> None:
        try:
            self._words = shlex.split(line)
        except ValueError as problem:
            raise UsageError(f"--command: {str(problem).lower()}") from None
        if not self._words:
            raise UsageError("--command: names no program")
        self.shown = self._words[0]
        self.id = f"command-{_digest(line)}"

    def send(self, message: bytes, key: str, seconds: float) -> None:  # noqa: ARG002
        """Runs the program with the message as input. Exit code 0 means delivered. Kills it, with children, if late."""
        try:
            running = subprocess.Popen(self._words, stdin=subprocess.PIPE, stdout=2, start_new_session=True)  # noqa: S603
        except OSError as problem:
            raise Undelivered(f"it cannot be started: {problem.strerror}", again=False) from None
        try:
            running.communicate(message, timeout=seconds)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            running.wait()
            raise Undelivered(f"it was not done within {seconds:g} s", again=True) from None
        if running.returncode:
            raise Undelivered(f"it left with exit code {running.returncode}", again=True)


def _late(seconds: float) -> str:
    return f"no answer within {seconds:g} s"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
