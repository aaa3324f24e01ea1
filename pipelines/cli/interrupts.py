"""Ctrl-C and SIGTERM: the first signal asks a command to stop cleanly, the second one ends it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def interrupt_by_exception() -> None:
    """Makes Ctrl-C raise KeyboardInterrupt, if it ended the process before."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def interrupt_by_signal() -> None:
    """Makes Ctrl-C end the process, if it raised KeyboardInterrupt before: nothing is left to clean up."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


class Stopped(SystemExit):
    """The command ended because of a signal and reported it: exit code 130 for Ctrl-C, 143 for SIGTERM."""


class Interrupts:
    """The signals during the block. The first one raises KeyboardInterrupt, unless ``stop`` takes it."""

    def __init__(self) -> None:
        self.signal = 0
        """The first signal, 0 for none."""
        self.stop: Callable[[], None] | None = None
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in SIGNALS}
            self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def listen(self) -> None:
        """Installs the handlers again: a new Spark session replaces that of Ctrl-C, and its own breaks JVM calls."""
        for number in self._before:
            signal.signal(number, self._asked)

    @property
    def exit_code(self) -> int:
        """The exit code that shells report for a process that the signal ended."""
        return 128 + self.signal

    def _asked(self, number: int, _frame: FrameType | None) -> None:
        is_first, self.signal = not self.signal, self.signal or number
        if is_first and self.stop is not None:
            self.stop()
        else:
            raise KeyboardInterrupt
