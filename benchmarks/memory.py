"""Peak memory of a process and all that it starts, shared pages counted once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")


class Peak(threading.Thread):
    """Samples ten times a second until stopped. Without /proc the peak is 0."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid = pid
        self.peak_kb = 0
        self._done = threading.Event()

    def run(self) -> None:
        """Sample."""
        while True:
            self.peak_kb = max(self.peak_kb, sum(map(proportional_kb, family(self.pid))))
            if self._done.wait(0.1):
                return

    def stop(self) -> int:
        """The peak in MB."""
        self._done.set()
        self.join()
        return self.peak_kb // 1024


def family(pid: int) -> Iterator[int]:
    """The process and its descendants."""
    yield pid
    try:
        threads = [task / "children" for task in (PROC / str(pid) / "task").iterdir()]
        child_ids = [child for children in threads for child in children.read_text().split()]
    except OSError:  # the process or a thread ended meanwhile: the next sample sees its children
        return
    for child in child_ids:
        yield from family(int(child))


def proportional_kb(pid: int) -> int:
    """Memory of one process, a page shared by n of them counted as 1/n."""
    try:
        lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
