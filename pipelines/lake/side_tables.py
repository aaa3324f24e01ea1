"""Tables beside those of the ledger, as ``labels``: a replay, rollback or rebuild does not change them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from jbod_model.errors import Retriable, UsageError, first_line_of
from pipelines.lake.delta import delta_at, uri_of
from pipelines.lake.uris import LakeUri
from pipelines.storage.objects import fault_of_disk, storage_options

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from pipelines.lake.tables import Table


def side_table(lake: LakeUri, name: str, mend: str) -> DeltaTable | None:
    """A table beside those of the ledger, None if there is none.

    Raises UsageError if it cannot be opened, with what to do (``mend``).
    """
    location = f"{lake}/{name}"
    if "://" not in lake and not Path(location).is_dir():
        return None
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        return delta_at(uri_of(location))
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as problem:
        what = first_line_of(problem)
        raise UsageError(f"{location}: cannot be opened ({what}): {mend}") from None


def write_side_table(
    lake: LakeUri, table: Table, rows: Sequence[Mapping[str, Any]], mode: Literal["append", "overwrite"], other: str
) -> None:
    """Appends rows in one commit, or puts them in place of those of before.

    Raises UsageError if that is not possible, and Retriable if ``other`` wrote at the same time.
    """
    import pyarrow as pa
    from deltalake import write_deltalake
    from deltalake.exceptions import CommitFailedError, DeltaError

    location = f"{lake}/{table.name}"
    target = uri_of(location)
    try:
        write_deltalake(
            target,
            pa.Table.from_pylist([dict(row) for row in rows], schema=table.schema),
            mode=mode,
            name=table.name,
            description=table.comment,
            storage_options=storage_options(target),
        )
    except CommitFailedError:
        raise Retriable(f"{location}: {other} wrote at the same time: run again") from None
    except (DeltaError, OSError) as problem:
        cannot = UsageError(f"{location}: cannot be written ({first_line_of(problem)})")
        raise fault_of_disk(location, problem) or cannot from None
