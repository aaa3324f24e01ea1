"""Which Spark can do what. Questions need none; reading needs 4.0.1; a stream of a log, and so a replay, needs 4.2.

Before 4.2 a Python source cannot limit its micro-batches: Spark calls ``latestOffset`` without the stream's position,
so after a restart the source does not know where the next batch begins.

Every process of a query imports this module: keep it light.
"""

from __future__ import annotations

from jbod_model.errors import UsageError

_OF_STREAMS = (4, 2)


def check_version(version: str, what: str = "a replay") -> None:
    """Raises UsageError for a Spark without streams of a log."""
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < _OF_STREAMS:
        raise UsageError(
            f"Spark {version}: {what} needs Spark 4.2 or later, where a Python source can limit its batches; "
            "questions to a lake or a log need no Spark"
        )


def check_installed() -> None:
    """Raises UsageError if the installed PySpark cannot replay."""
    import pyspark

    check_version(pyspark.__version__)


def check_streams() -> None:
    """Raises UsageError if the installed PySpark cannot stream a log."""
    import pyspark

    check_version(pyspark.__version__, "a stream of a log")
