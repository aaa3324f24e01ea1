"""What directories of one log agree on by Raft's rules: how far they may be read, and whether that is committed.

A log that lacks a batch can replace it only if its controller wins an election. A majority holds the batch and votes
for no older log, so the winner's last epoch must be newer than the batch's. The directories of all voters thus prove
what is committed.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

KEY = np.dtype([("base", np.int64), ("epoch", np.int32), ("end", np.int64), ("crc", np.uint32)])
"""Identity of a batch. By Raft's log matching, two logs with the same batch have the same batches before it."""


@dataclass(frozen=True)
class Held:
    """The batches of one voter's directory from some offset on (KEY, in log order) and the newest epoch in it.

    ``end`` is the offset after its last batch. ``is_whole`` is false if damage follows: its contents are unknown.
    """

    batches: np.ndarray
    epoch: int
    end: int
    is_whole: bool = True


@dataclass(frozen=True)
class Verdict:
    """The offset up to which directories may be read, and which directories hold all before it (bool[directories])."""

    end: int
    is_committed: bool
    holders: np.ndarray


def keys_of(headers: np.ndarray, least: int) -> np.ndarray:
    """The batches (KEY) of ``headers`` (BATCH_DTYPE) that end at offset ``least`` or later."""
    ends = headers["base_offset"] + headers["count"]
    kept = ends >= least
    found = np.empty(int(kept.sum()), KEY)
    found["base"], found["end"] = headers["base_offset"][kept], ends[kept]
    found["epoch"], found["crc"] = headers["epoch"][kept], headers["crc"][kept]
    return found


def judge(held: Sequence[Held], *, voters: int, given: int, least: int = 0) -> Verdict | None:
    """Returns what the readable ones of ``given`` directories agree on in a quorum of ``voters``, None if nothing.

    ``least`` is the offset from which on the directories' batches are given.
    """
    batches, inverse = np.unique(np.concatenate([one.batches for one in held]), return_inverse=True)
    if not len(batches):
        return None
    has = np.zeros((len(held), len(batches)), np.bool_)
    has[np.repeat(np.arange(len(held)), [len(one.batches) for one in held]), inverse.ravel()] = True
    ends = np.array([[one.end] for one in held])
    # R-QUORUM-6
    unknown = ~has & np.array([[not one.is_whole] for one in held]) & (batches["end"] > ends)
    lacks = ~has & ~unknown
    count = has.sum(axis=0)
    # R-QUORUM-2: a voter that lacks the batch cannot be elected.
    epochs = np.array([[one.epoch] for one in held])
    holds = (count > voters // 2) & (np.where(lacks, epochs, -1).max(axis=0) <= batches["epoch"])
    # R-QUORUM-3: a voter whose directory is missing may have a newer epoch.
    seen = (len(held) >= voters) & ~unknown.any(axis=0)
    denied = np.zeros(len(batches), np.bool_)
    for one, other in itertools.permutations(range(len(held)), 2):
        common = batches["end"][has[one] & has[other]].max(initial=least)
        if held[one].end > common:  # the directory continues with other batches
            denied |= lacks[one] & has[other]
    # R-QUORUM-4
    shared = ~lacks.any(axis=0) & (count > given // 2)
    agreed = np.flatnonzero((holds & (seen | ~denied)) | shared)
    if not len(agreed):
        return None
    last = agreed[-1]
    return Verdict(int(batches["end"][last]), bool(holds[last] & seen[last]), has[:, last])
