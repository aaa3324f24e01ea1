"""One-line errors for faults of a disk or of object storage, whichever library reports them."""

from __future__ import annotations

import errno
import os
import re

from jbod_model.errors import JbodError, Retriable, UsageError

_ADVICE = {
    errno.ENOSPC: "make room",
    errno.EDQUOT: "make room",
    errno.EFBIG: "raise the limit on the size of files",
    errno.EROFS: "mount it for writing",
    errno.EACCES: "give this user the right to write there",
    errno.EPERM: "give this user the right to write there",
    errno.EIO: "see the kernel's log for the disk",
}
# What obstore, delta-rs, DuckDB and Spark pass on of S3's answer, in the order in which they decide.
_REFUSED = (
    (r"NoSuchBucket", "there is no such bucket: create it, or name another one"),
    (
        r"InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken|ExpiredToken|TokenRefreshRequired|Unauthenticated"
        r"|401 Unauthorized",
        "the storage does not accept the credentials: check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and "
        "AWS_SESSION_TOKEN",
    ),
    (
        r"AccessDenied|AllAccessDisabled|403 Forbidden|status: 403|PermissionDenied",
        "access denied: the credentials lack a right on this bucket (docs/object-storage.md lists the rights)",
    ),
    (
        r"169\.254\.169\.254|[Nn]o (AWS )?credentials|CredentialsNotLoaded|not loaded from .*provider"
        r"|credential provider was not enabled",
        "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run where the machine or the container "
        "has a role (docs/object-storage.md)",
    ),
    (r"AuthorizationHeaderMalformed|PermanentRedirect|301 Moved", "the bucket is in another region: set AWS_REGION"),
    (r"allow_http|URL scheme is not allowed", "the endpoint is http: set AWS_ALLOW_HTTP=true"),
)
_AWAY = (
    (
        r"SlowDown|ServiceUnavailable|InternalError|50[0234] (Service|Internal|Bad|Gateway)|status: 50[0234]"
        r"|Server returned error response|429 Too",
        "the storage is overloaded or fails",
    ),
    (
        r"error sending request|[Cc]onnect(ion)? (error|refused|reset|closed)|dns error|timed out"
        r"|client error \(Connect\)",
        "the storage does not answer",
    ),
)
_STATUS = re.compile(r"\b(50\d|429)\b")


def fault_of_storage(location: str, problem: BaseException) -> JbodError | None:
    """Returns the error for a fault of object storage that a library reports, None for any other problem."""
    if isinstance(problem, JbodError) or not location.startswith("s3://"):
        return None
    text = f"{type(problem).__name__}: {problem}"
    for pattern, advice in _REFUSED:
        if re.search(pattern, text):
            return UsageError(f"{location}: {advice}")
    for pattern, what in _AWAY:
        if re.search(pattern, text):
            status = _STATUS.search(text)
            said = f" (status {status[1]})" if status else ""
            return Retriable(f"{location}: {what}{said}: run again later; what was published is whole and stays")
    return None


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
