"""How full small disks are while something runs."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType


class Gauges:
    """Looks at file systems every few milliseconds, in a thread, until the ``with`` ends."""

    def __init__(self, disks: Sequence[Path], seconds: float = 0.02) -> None:
        self.disks, self.seconds = disks, seconds
        self.fullest = dict.fromkeys(disks, 0.0)
        """The part of each disk that was used at most: 0 to 1."""
        self.looks = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Gauges:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(self.seconds):
            for disk in self.disks:
                at = os.statvfs(disk)
                self.fullest[disk] = max(self.fullest[disk], 1 - at.f_bavail / at.f_blocks)
            self.looks += 1
