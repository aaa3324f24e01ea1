"""One-line errors for a disk that is full, read-only or broken, whichever library reports it."""

from __future__ import annotations

import errno
import os

from jbod_model.errors import UsageError

_ADVICE = {
    errno.ENOSPC: "make room",
    errno.EDQUOT: "make room",
    errno.EFBIG: "raise the limit on the size of files",
    errno.EROFS: "mount it for writing",
    errno.EACCES: "give this user the right to write there",
    errno.EPERM: "give this user the right to write there",
    errno.EIO: "see the kernel's log for the disk",
}


def fault_of_disk(location: str, problem: BaseException) -> UsageError | None:
    """Returns the error for a disk fault that delta-rs, Arrow, Hadoop or Spark reports, None for any other problem.

    Their messages contain the system's message. The error number would be better, but Spark does not pass it on.
    """
    text = str(problem)
    for number, advice in _ADVICE.items():
        if os.strerror(number) in text:
            return UsageError(
                f"{location}: {os.strerror(number)}: {advice} and run again; what was published is whole and stays"
            )
    return None
