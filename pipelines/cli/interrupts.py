"""Ctrl-C and SIGTERM: a command that can end well is asked to, a second signal insists."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def interrupt_by_exception() -> None:
    """From now on Ctrl-C raises KeyboardInterrupt, if it ended the process before."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def interrupt_by_signal() -> None:
    """From now on Ctrl-C ends the process, if it raised KeyboardInterrupt before: nothing is left to clean up."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


class Stopped(SystemExit):
    """The command ended for a signal and said so: exit code 130 for Ctrl-C, 143 for SIGTERM."""


class Interrupts:
    """The signals that came while the block ran. KeyboardInterrupt for the first, unless ``stop`` takes it."""

    def __init__(self) -> None:
        self.signal = 0
        """The first that came, 0 for none."""
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
        """Take the signals again: a Spark session that is made takes Ctrl-C, and breaks into calls to the JVM."""
        for number in self._before:
            signal.signal(number, self._asked)

    @property
    def exit_code(self) -> int:
        """As shells tell a process that died of the signal."""
        return 128 + self.signal

    def _asked(self, number: int, _frame: FrameType | None) -> None:
        is_first, self.signal = not self.signal, self.signal or number
        if is_first and self.stop is not None:
            self.stop()
        else:
            raise KeyboardInterrupt
