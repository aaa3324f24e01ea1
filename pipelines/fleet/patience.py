"""Calls that may hang, as those to a dead mount do: no call returns, and nothing can end its thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

from jbod_model.errors import JbodError

T = TypeVar("T")


class Patience:
    """Waits for some seconds. A thread that hangs is left alone. Until it has ended, nothing is asked there again."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._asked: dict[str, threading.Thread] = {}

    def ask(self, where: str, question: Callable[[], T]) -> T:
        """What ``question`` returns or raises; JbodError if the storage at ``where`` hangs."""
        answers: queue.SimpleQueue[tuple[T | None, Exception | None]] = queue.SimpleQueue()

        def run() -> None:
            try:
                answers.put((question(), None))
            except Exception as problem:
                answers.put((None, problem))

        before = self._asked.get(where)
        if before is None or not before.is_alive():
            self._asked[where] = threading.Thread(target=run, daemon=True)
            self._asked[where].start()
            try:
                found, problem = answers.get(timeout=self._seconds)
            except queue.Empty:
                pass
            else:
                if problem is not None:
                    raise problem
                return found  # type: ignore[return-value]
        raise JbodError(f"{where}: no answer in {self._seconds:.0f} s: does its storage hang?")
