"""The draft of a version: the version before, changed by a record.

The draft is row ``draft`` of ``versions``, the version before is row ``before`` (unused for the first version).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jbod_model.replay.registrations import KEEP_RECOVERY_STATE, NO_LEADER_CHANGE
from pipelines.formats.kernels import helper
from pipelines.formats.partitions import (
    DIRECTORIES,
    LEADER,
    LEADER_EPOCH,
    PARTITION_EPOCH,
    RECOVERY,
    REPLICAS,
)
from pipelines.replay import fold_columns as c
from pipelines.replay.fold_columns import Lists


@helper
def is_absent(directories: Any, start: int, size: int, absent_directory: int) -> bool:
    """Whether a directory list gives no directory: it is empty or holds only the absent directory (R-PART-3)."""
    for k in range(size):
        if directories[start + k] != absent_directory:
            return False
    return True


@helper
def same_list(values: Any, starts: Any, sizes: Any, one: Any, other: Any) -> bool:
    """Whether two references name equal lists (null, EMPTY and [] are equal)."""
    if one == other:
        return True
    size = max(sizes[one], 0) if one >= 0 else 0
    if size != (max(sizes[other], 0) if other >= 0 else 0):
        return False
    for k in range(size):
        if values[starts[one] + k] != values[starts[other] + k]:
            return False
    return True


@helper
def size_of(lists: Lists, versions: Any, row: int) -> Any:
    """The number of replicas of a version."""
    replicas = versions[row, c.V_LISTS + REPLICAS]
    return np.int64(max(lists.sizes[REPLICAS, replicas], 0)) if replicas >= 0 else np.int64(0)


@helper
def _merge_lists(
    lists: Lists, versions: Any, draft: int, before: int, is_change: bool, row: int, absent_directory: int
) -> int:
    """Sets the draft's references: those of source row ``row``, or of the version before if the row gives none."""
    # LISTS (R-PART-1, R-PART-4, R-MERGE-1)
    for k in range(DIRECTORIES):
        if lists.sizes[k, row] >= 0:
            versions[draft, c.V_LISTS + k] = row
        else:
            versions[draft, c.V_LISTS + k] = versions[before, c.V_LISTS + k] if is_change else c.EMPTY
    count = size_of(lists, versions, draft)
    # DIRECTORIES (R-PART-2, R-PART-3, R-MERGE-2, R-MERGE-3, R-MERGE-4)
    given = lists.directory_sizes[row]
    if is_change:
        if given > 0 and lists.sizes[REPLICAS, row] >= 0 and given != count:
            return c.ARITY_CHANGE
        reference = row if given >= 0 else np.int64(versions[before, c.V_LISTS + DIRECTORIES])
    else:
        if given > 0 and given != count:
            return c.ARITY_RECORD
        reference = row if given > 0 else np.int64(c.ABSENT)
    if reference >= 0:
        if is_absent(
            lists.directories, lists.directory_starts[reference], lists.directory_sizes[reference], absent_directory
        ):
            reference = np.int64(c.ABSENT)
        elif lists.directory_sizes[reference] != count:
            return c.ARITY_MERGED
    versions[draft, c.V_LISTS + DIRECTORIES] = reference
    return c.FINE


@helper
def _merge_scalars(change: Any, e: int, versions: Any, draft: int, before: int, is_change: bool) -> int:
    """Sets the scalars of the draft (R-MERGE-5, R-MERGE-6, R-MERGE-7)."""
    recovery = change[RECOVERY, e]
    if is_change and recovery == KEEP_RECOVERY_STATE:
        recovery = versions[before, c.V_SCALARS + RECOVERY]
    if recovery != 0 and recovery != 1:
        return c.BAD_RECOVERY
    leader = change[LEADER, e]
    leader_epoch = change[LEADER_EPOCH, e]
    partition_epoch = change[PARTITION_EPOCH, e]
    if is_change:
        partition_epoch = versions[before, c.V_SCALARS + PARTITION_EPOCH] + 1
        leader_epoch = versions[before, c.V_SCALARS + LEADER_EPOCH]
        if leader == NO_LEADER_CHANGE:
            leader = versions[before, c.V_SCALARS + LEADER]
        else:
            leader_epoch += 1
    versions[draft, c.V_SCALARS + LEADER] = leader
    versions[draft, c.V_SCALARS + LEADER_EPOCH] = leader_epoch
    versions[draft, c.V_SCALARS + PARTITION_EPOCH] = partition_epoch
    versions[draft, c.V_SCALARS + RECOVERY] = recovery
    return c.FINE


@helper
def merge(
    lists: Lists,
    scalars: Any,
    e: int,
    row: int,
    versions: Any,
    draft: int,
    before: int,
    is_change: bool,
    absent_directory: int,
) -> int:
    """Fills the lists and scalars of the draft from event e (source row ``row``) and the version before."""
    status = _merge_lists(lists, versions, draft, before, is_change, row, absent_directory)
    return _merge_scalars(scalars, e, versions, draft, before, is_change) if status == c.FINE else status


@helper
def repeats(lists: Lists, versions: Any, draft: int, before: int) -> bool:
    """Whether all lists and scalars of the draft equal those of the version before (R-REPLAY-2)."""
    for k in range(c.V_SCALARS, c.VERSION_COLUMNS):
        if versions[draft, k] != versions[before, k]:
            return False
    for k in range(DIRECTORIES):
        if not same_list(
            lists.values,
            lists.starts[k],
            lists.sizes[k],
            versions[draft, c.V_LISTS + k],
            versions[before, c.V_LISTS + k],
        ):
            return False
    one, other = versions[draft, c.V_LISTS + DIRECTORIES], versions[before, c.V_LISTS + DIRECTORIES]
    if one < 0 or other < 0:
        return bool(one == other)
    return same_list(lists.directories, lists.directory_starts, lists.directory_sizes, one, other)


@helper
def is_moved(versions: Any, draft: int, before: int) -> bool:
    """Whether a version may have other slots than the one before: its references differ."""
    replicas, directories = c.V_LISTS + REPLICAS, c.V_LISTS + DIRECTORIES
    return bool(
        versions[draft, replicas] != versions[before, replicas]
        or versions[draft, directories] != versions[before, directories]
    )
