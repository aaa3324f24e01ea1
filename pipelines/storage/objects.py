"""Objects of S3 by URI: read, write, list, delete. One request each, and one line for each fault, also of a disk.

Settings and credentials come from the ``AWS_*`` variables, as for delta-rs: both use the Rust crate object_store.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from jbod_model.errors import JbodError, Retriable, UsageError

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import S3Store

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
            words = f" (status {status[1]})" if status else ""
            return Retriable(f"{location}: {what}{words}: run again later; what was published is whole and stays")
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


def to_read(problem: OSError) -> str:
    """What to do about a file that the system does not let this user read, to end a line with; else empty."""
    return ": give this user the right to read it" if isinstance(problem, PermissionError) else ""


def to_write(problem: OSError) -> str:
    """What to do about a file that cannot be written, to end a line with; empty if it is not known."""
    return f": {_ADVICE[problem.errno]}" if problem.errno in _ADVICE else ""


SCHEME = "s3://"
_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
PATIENCE = 60
"""Seconds for which a request is repeated while the store does not answer or is overloaded."""
RETRIES = 10
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 8.0
"""Seconds before the second attempt, which double with each further one, and their maximum."""


def is_object(location: str) -> bool:
    """Whether a location is on object storage."""
    return location.startswith(SCHEME)


def parts(location: str) -> tuple[str, str]:
    """Bucket and key of a URI. Raises UsageError if it names no bucket, or has a query."""
    uri = urlsplit(location)
    if not uri.netloc or uri.query or uri.username:
        raise UsageError(
            f"{location.partition('?')[0]}: is not s3://BUCKET/PREFIX; endpoint, region and credentials come from the "
            "variables AWS_* (docs/object-storage.md)"
        )
    return uri.netloc, uri.path.strip("/")


def storage_options(location: str) -> dict[str, str] | None:
    """delta-rs' options for a table at ``location``: how long it repeats a request. None for a local path."""
    if not is_object(location):
        return None
    parts(location)
    _prepare()
    return {
        "max_retries": str(RETRIES),
        "retry_timeout": f"{PATIENCE}s",
        "backoff_config.init_backoff": f"{FIRST_PAUSE}s",
        "backoff_config.max_backoff": f"{LONGEST_PAUSE}s",
    }


def get(location: str) -> bytes:
    """The content of an object. Raises FileNotFoundError if it is not there."""
    return get_tagged(location)[0]


def get_range(location: str, start: int, end: int) -> bytes:
    """Bytes ``[start, end)`` of an object, fewer if it ends before. Raises FileNotFoundError if it is not there."""
    return get_range_tagged(location, start, end)[0]


def get_range_tagged(location: str, start: int, end: int) -> tuple[bytes, str]:
    """The same, and the ETag of the object, empty if the store does not name it."""
    if end <= start:
        return b"", ""
    store, key = _place(location)
    with one_line_faults(location):
        try:
            answer = _obstore().get(store, key, options={"range": (start, end)})
            return bytes(answer.bytes()), answer.meta.get("e_tag") or ""
        except _obstore().exceptions.GenericError as problem:
            if "416" in str(problem) or "InvalidRange" in str(problem):
                return b"", ""
            if "non-partial response" not in str(problem):
                raise
            # Some servers answer with the whole object, if the range holds all of it.
            answer = _obstore().get(store, key)
            return bytes(answer.bytes())[start:end], answer.meta.get("e_tag") or ""


Tag = dict[str, str]
"""The version of an object, as the store names it: the condition of the next ``put``."""


def put(location: str, content: bytes, *, only: Literal["new"] | Tag | None = None) -> Tag:
    """Writes an object and returns its tag. ``only``: if there is none yet, or if it is still the version of a tag.

    Raises obstore's AlreadyExistsError or PreconditionError if that does not hold.
    """
    store, key = _place(location)
    with one_line_faults(location):
        return _tag(_obstore().put(store, key, content, mode="create" if only == "new" else only))


def head(location: str) -> ObjectMeta | None:
    """Size, time and tag of an object, None if it is not there."""
    store, key = _place(location)
    with one_line_faults(location):
        try:
            metadata: ObjectMeta = _obstore().head(store, key)
            return metadata
        except FileNotFoundError:
            return None


def get_tagged(location: str) -> tuple[bytes, Tag]:
    """The content of an object with its tag. Raises FileNotFoundError if it is not there."""
    store, key = _place(location)
    with one_line_faults(location):
        answer = _obstore().get(store, key)
        return bytes(answer.bytes()), _tag(answer.meta)


def _tag(metadata: Any) -> Tag:
    return {name: metadata[name] for name in ("e_tag", "version") if metadata.get(name)}


def get_small(location: str, most: int) -> tuple[bytes | None, int]:
    """The content of an object, None if it is larger than ``most``, and its size: one request."""
    store, key = _place(location)
    with one_line_faults(location):
        answer = _obstore().get(store, key)
        size = int(answer.meta["size"])
        return (bytes(answer.bytes()) if size <= most else None), size


def listed(location: str, *, after: str | None = None) -> Iterator[ObjectMeta]:
    """All objects below a prefix, a request for each thousand. Paths are keys of the bucket.

    ``after``: only those whose name below the prefix sorts after this one.
    """
    store, key = _place(location)
    prefix = f"{key}/" if key else ""
    with one_line_faults(location):
        for chunk in _obstore().list(store, prefix=prefix or None, offset=None if after is None else prefix + after):
            yield from chunk


def children(location: str) -> tuple[list[str], list[ObjectMeta]]:
    """The prefixes and objects directly below a prefix, as keys of the bucket: one request for each thousand."""
    store, key = _place(location)
    with one_line_faults(location):
        listing = _obstore().list_with_delimiter(store, prefix=f"{key}/" if key else None)
    return list(listing["common_prefixes"]), [metadata for metadata in listing["objects"] if metadata["path"] != key]


def exists_below(location: str) -> bool:
    """Whether any object is below a prefix."""
    prefixes, objects = children(location)
    return bool(prefixes or objects)


def delete(locations: Sequence[str]) -> None:
    """Deletes objects of one bucket, a request for each thousand. An object that is not there is no error."""
    if not locations:
        return
    store, _ = _place(locations[0])
    with one_line_faults(locations[0]):
        _obstore().delete(store, [parts(location)[1] for location in locations])


@contextmanager
def one_line_faults(location: str) -> Iterator[None]:
    """Raises the one-line error for a fault of the storage. FileNotFoundError passes if only the object is missing."""
    try:
        yield
    except Exception as problem:
        fault = fault_of_storage(location, problem)
        if fault is None:
            raise
        raise fault from None


def _place(location: str) -> tuple[S3Store, str]:
    bucket, key = parts(location)
    return _store(bucket, os.getpid()), key


@cache
def _store(bucket: str, _process: int) -> S3Store:
    from obstore.store import S3Store

    _prepare()
    return S3Store(
        bucket,
        retry_config={
            "max_retries": RETRIES,
            "retry_timeout": timedelta(seconds=PATIENCE),
            "backoff": {
                "init_backoff": timedelta(seconds=FIRST_PAUSE),
                "max_backoff": timedelta(seconds=LONGEST_PAUSE),
                "base": 2,
            },
        },
        client_options={"allow_http": os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("true", "1")},
    )


def forget_stores() -> None:
    """Forgets the open stores: the next call reads the ``AWS_*`` variables again."""
    _store.cache_clear()


def _prepare() -> None:
    """Completes the variables ``AWS_*`` of this process, from which this module and delta-rs take everything.

    An endpoint with http:// is used without TLS. Keys of a profile come from the shared credentials file.
    """
    if not any(os.environ.get(name) for name in _CREDENTIALS):
        import configparser

        shared = Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or Path.home() / ".aws" / "credentials")
        credentials = configparser.ConfigParser(interpolation=None)
        with suppress(OSError, configparser.Error):
            credentials.read(shared)
        profile = os.environ.get("AWS_PROFILE") or "default"
        for name in _KEYS if credentials.has_section(profile) else ():
            if value := credentials.get(profile, name, fallback=""):
                os.environ[name.upper()] = value
    named = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    if named.startswith("http://"):
        os.environ.setdefault("AWS_ALLOW_HTTP", "true")
    if named:
        os.environ.setdefault("AWS_ENDPOINT_URL", named)


def _obstore() -> Any:
    import obstore

    return obstore
