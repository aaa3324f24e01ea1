"""``/safe-to-restart?broker=3`` beside the metrics: a verdict for the controllers of a platform (docs/restart.md)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from jbod_model.errors import JbodError, UsageError
from pipelines.ask.restart import MAX_AGE, NOT_DECIDABLE, SAFE, node_ids, safe_to_restart
from pipelines.lake.reader import Lake
from pipelines.lake.times import parse_span
from pipelines.lake.uris import LakeUri

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
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """The WSGI application."""
        if environ.get("PATH_INFO") != PATH:
            return self.otherwise(environ, start_response)
        status, said = self._answer(environ.get("QUERY_STRING", ""))
        body = json.dumps(said).encode() + b"\n"
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        start_response(f"{status.value} {status.phrase}", headers)
        return [body]

    def _answer(self, query: str) -> tuple[HTTPStatus, dict[str, Any]]:
        try:
            nodes, kill, max_age = _asked(query)
        except UsageError as problem:
            return HTTPStatus.BAD_REQUEST, {"error": str(problem)}
        try:
            with self._lock:
                answer = safe_to_restart(Lake.open(self.lake), nodes, self.default_min_isr, kill=kill, max_age=max_age)
        except JbodError as problem:
            undecided = {"verdict": NOT_DECIDABLE.replace(" ", "_"), "undecided": [str(problem)]}
            return STATUS[NOT_DECIDABLE], undecided
        return STATUS.get(answer.verdict, HTTPStatus.CONFLICT), answer.as_json()


def _asked(query: str) -> tuple[list[int], bool, float]:
    """The nodes, whether they are killed, and the longest age. Raises UsageError."""
    given = parse_qs(query, keep_blank_values=True)
    if unknown := sorted(given.keys() - _PARAMETERS):
        raise UsageError(f"{', '.join(unknown)}: no such parameter: there are {', '.join(sorted(_PARAMETERS))}")
    nodes = [node for text in given.get("broker", ()) for node in node_ids(text)]
    if not nodes:
        raise UsageError("name a broker: /safe-to-restart?broker=3")
    kill = given.get("kill", ["false"])[-1].lower()
    if kill not in ("", "true", "false"):
        raise UsageError(f"kill={kill}: true or false")
    age = given.get("max_age")
    return nodes, kill != "false", MAX_AGE if age is None else parse_span("max_age", age[-1])
