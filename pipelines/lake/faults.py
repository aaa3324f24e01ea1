"""One-line errors for a disk that is full, read-only or broken, whichever library reports it."""

from __future__ import annotations

import errno
import os

from jbod_model.errors import JbodError, UsageError
from pipelines.storage.faults import fault_of_storage

_ADVICE = {
    errno.ENOSPC: "make room",
    errno.EDQUOT: "make room",
    errno.EFBIG: "raise the limit on the size of files",
    errno.EROFS: "mount it for writing",
    errno.EACCES: "give this user the right to write there",
    errno.EPERM: "give this user the right to write there",
    errno.EIO: "see the kernel's log for the disk",
}


def fault_of_disk(location: str, problem: BaseException) -> JbodError | None:
    """Returns the error for a fault of a disk, or of S3, that delta-rs, Arrow, Hadoop or Spark reports, otherwise None.

    Their messages contain the system's message. The error number would be better, but Spark does not pass it on.
    """
    text = str(problem)
    for number, advice in _ADVICE.items():
        if os.strerror(number) in text:
            return UsageError(
                f"{location}: {os.strerror(number)}: {advice} and run again; what was published is whole and stays"
            )
    return fault_of_storage(location, problem)
