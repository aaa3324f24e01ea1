"""A mirror for the time of a command: caught up when the command begins, and followed beside it if it follows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from jbod_model.errors import JbodError
from pipelines.mirror.folder import MirrorFolder
from pipelines.mirror.follow import Mirror
from pipelines.quorum.client import QuorumClient, addresses_of
from pipelines.quorum.connection import Halted
from pipelines.quorum.security import security_of

PREFIX = "jbod-quorum-"
"""What the name of a private folder with the log of a quorum begins with."""
_PATIENCE = 60.0
_TICK = 0.2


@contextmanager
def mirrored(
    url: str,
    folder: str,
    command_config: str,
    told: Callable[[str], None],
    *,
    failed: Callable[[], bool] | None = None,
) -> Iterator[Mirror]:
    """The mirror of a quorum in a folder, with all that is committed now.

    ``failed``: the mirror follows during the block. If it cannot go on, it calls this until it returns True, and the
    end of the block raises the error. Raises JbodError if the quorum cannot be read.
    """
    ended = threading.Event()
    patience = _PATIENCE if failed is None else float("inf")
    files = MirrorFolder(folder)
    quorum = QuorumClient(
        addresses_of(url), security_of(command_config), stop=ended.is_set, patience=patience, told=told
    )
    mirror = Mirror(quorum, files, told)
    problems: list[JbodError] = []

    def follow() -> None:
        try:
            while not ended.is_set():
                mirror.step()
        except Halted:
            pass
        except JbodError as problem:
            problems.append(problem)
            while failed is not None and not failed() and not ended.wait(_TICK):
                pass

    following = threading.Thread(target=follow, daemon=True, name="mirror")
    try:
        mirror.begin()
        while not mirror.step(0):
            pass
        if failed is not None:
            following.start()
        yield mirror
    finally:
        ended.set()
        if following.ident is not None:
            following.join()
        quorum.close()
        files.close()
    if problems:
        raise problems[0]


def committed(url: str, command_config: str, told: Callable[[str], None]) -> tuple[TemporaryDirectory[str], str]:
    """A private folder with all that a quorum has committed now, and from where on it has history.

    The caller removes it. Raises JbodError if the quorum cannot be read.
    """
    folder = TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True)
    try:
        with mirrored(url, folder.name, command_config, told) as mirror:
            return folder, mirror.progress.begins
    except BaseException:
        folder.cleanup()
        raise
