"""What copies of one log agree on by Raft's rules: how far they may be read, and whether that is committed.

A log that lacks a batch can replace it only if its controller wins an election. A majority holds the batch and votes
for no older log, so the winner's last epoch must be newer than the batch's. LogCopies of all voters thus prove what is
committed.
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
    """The batches of one voter's copy from some offset on (KEY, in log order) and the newest epoch in it.

    ``end`` is the offset after its last batch. ``is_whole`` is false if damage follows: its contents are unknown.
    """

    batches: np.ndarray
    epoch: int
    end: int
    is_whole: bool = True


@dataclass(frozen=True)
class Verdict:
    """The offset up to which copies may be read, and which copies hold all before it (bool[copies])."""

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


def judge(copies: Sequence[Held], *, voters: int, given: int, least: int = 0) -> Verdict | None:
    """Returns what the readable ones of ``given`` copies settle in a quorum of ``voters``, None if nothing.

    ``least`` is the offset from which on the copies' batches are given.
    """
    batches, inverse = np.unique(np.concatenate([copy.batches for copy in copies]), return_inverse=True)
    if not len(batches):
        return None
    has = np.zeros((len(copies), len(batches)), np.bool_)
    has[np.repeat(np.arange(len(copies)), [len(copy.batches) for copy in copies]), inverse.ravel()] = True
    ends = np.array([[copy.end] for copy in copies])
    # R-QUORUM-6
    unknown = ~has & np.array([[not copy.is_whole] for copy in copies]) & (batches["end"] > ends)
    lacks = ~has & ~unknown
    count = has.sum(axis=0)
    # R-QUORUM-2: a voter that lacks the batch cannot be elected.
    epochs = np.array([[copy.epoch] for copy in copies])
    holds = (count > voters // 2) & (np.where(lacks, epochs, -1).max(axis=0) <= batches["epoch"])
    # R-QUORUM-3: a voter whose copy is missing may have a newer epoch.
    seen = (len(copies) >= voters) & ~unknown.any(axis=0)
    denied = np.zeros(len(batches), np.bool_)
    for one, other in itertools.permutations(range(len(copies)), 2):
        common = batches["end"][has[one] & has[other]].max(initial=least)
        if copies[one].end > common:  # the copy continues with other batches
            denied |= lacks[one] & has[other]
    # R-QUORUM-4
    shared = ~lacks.any(axis=0) & (count > given // 2)
    agreed = np.flatnonzero((holds & (seen | ~denied)) | shared)
    if not len(agreed):
        return None
    last = agreed[-1]
    return Verdict(int(batches["end"][last]), bool(holds[last] & seen[last]), has[:, last])
