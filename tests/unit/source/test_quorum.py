"""What directories settle is never taken back where it is called committed: random histories of a small Raft."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from pipelines.source.quorum import KEY, Held, Verdict, judge
from tests.support.volume import rare

Log = list[tuple[int, int]]
"""Epoch and a number that no other entry has."""


@dataclass
class Cluster:
    """Voters that elect, append, fetch and truncate as KRaft's do; nothing but their logs can be seen."""

    logs: list[Log]
    epochs: list[int]
    leads: list[bool]
    entries: int = 0
    safe: list[Log] = field(default_factory=list)
    """What was called committed."""

    @classmethod
    def of(cls, voters: int) -> Cluster:
        return cls([[] for _ in range(voters)], [0] * voters, [False] * voters)

    def step(self, chance: random.Random) -> None:
        one, other = chance.sample(range(len(self.logs)), 2)
        what = chance.random()
        if what < 0.12:
            self.elect(one, chance)
        elif what < 0.4:
            if self.leads[one]:
                self.append(one)
        elif self.leads[one] and self.epochs[other] <= self.epochs[one]:
            self.fetch(other, one, chance)

    def elect(self, one: int, chance: random.Random) -> None:
        """Whoever is reached moves to the new epoch; a vote goes to a log that is not older than one's own."""
        epoch = max(self.epochs[one] + 1, chance.choice(self.epochs) + 1)
        votes = 0
        for voter in range(len(self.logs)):
            if voter != one and (chance.random() < 0.4 or self.epochs[voter] >= epoch):
                continue
            self.epochs[voter], self.leads[voter] = epoch, False
            votes += age(self.logs[one]) >= age(self.logs[voter])
        if votes > len(self.logs) // 2:
            for log in self.safe:
                assert self.logs[one][: len(log)] == log, "taken back"
            self.leads[one] = True
            self.append(one)

    def append(self, one: int) -> None:
        self.entries += 1
        self.logs[one].append((self.epochs[one], self.entries))

    def fetch(self, follower: int, leader: int, chance: random.Random) -> None:
        """Truncating and appending are two steps."""
        self.epochs[follower], self.leads[follower] = self.epochs[leader], False
        mine, theirs = self.logs[follower], self.logs[leader]
        same = shared([mine, theirs])
        if same < len(mine):
            del mine[same:]
        else:
            mine += theirs[same : same + chance.randint(1, 3)]

    def committed(self) -> int:
        """What a leader knows to be committed: an entry of its epoch on a majority."""
        found = 0
        for one, log in enumerate(self.logs):
            for at, entry in enumerate(log, 1):
                if self.leads[one] and entry[0] == self.epochs[one]:
                    holders = sum(other[at - 1 : at] == [entry] for other in self.logs)
                    found = max(found, at) if holders > len(self.logs) // 2 else found
        return found


def age(log: Log) -> tuple[int, int]:
    return (log[-1][0] if log else 0, len(log))


def shared(logs: Sequence[Log]) -> int:
    """How many entries all logs begin with."""
    return next((at for at, each in enumerate(zip(*logs, strict=False)) if len(set(each)) > 1), min(map(len, logs)))


def held(log: Log) -> Held:
    found = np.empty(len(log), KEY)
    found["base"], found["end"] = np.arange(len(log)), np.arange(1, len(log) + 1)
    found["epoch"], found["crc"] = [epoch for epoch, _ in log], [number for _, number in log]
    return Held(found, age(log)[0], len(log))


def look(cluster: Cluster, seen: Sequence[int]) -> Verdict | None:
    return judge([held(cluster.logs[one]) for one in seen], voters=len(cluster.logs), given=len(seen))


@pytest.mark.parametrize("voters", [1, rare(2), 3, rare(4), 5])
def test_what_is_called_committed_is_in_the_log_of_every_later_leader(voters: int) -> None:
    """R-QUORUM-2, R-QUORUM-3, R-QUORUM-4."""
    committed = 0
    for seed in range(1 if voters == 1 else 250):
        chance = random.Random(seed)
        cluster = Cluster.of(max(voters, 2))
        for _ in range(120):
            cluster.step(chance)
            if chance.random() > 0.2:
                continue
            seen = chance.sample(range(len(cluster.logs)), chance.randint(1, len(cluster.logs)))
            verdict = look(cluster, seen)
            common = shared([cluster.logs[one] for one in seen])
            # What every directory holds may be read, all of identical ones.
            end = 0 if verdict is None else verdict.end
            assert end >= common
            if verdict is None:
                continue
            holder = cluster.logs[seen[int(np.flatnonzero(verdict.holders)[0])]]
            if len(seen) < len(cluster.logs):
                assert not verdict.is_committed
                assert all(cluster.logs[one][:end] == holder[: len(cluster.logs[one])][:end] for one in seen)
            else:
                assert end >= cluster.committed()
            if verdict.is_committed:
                cluster.safe.append(holder[:end])
                committed += end > 0
    assert voters == 1 or committed > 500


def test_leaders_record_on_one_copy_holds_back_that_record_alone() -> None:
    """The issue: three directories of one history, of which one has the new leader's first record."""
    log: Log = [(1, 1), (1, 2), (1, 3)]
    found = judge([held([*log, (2, 4)]), held(log), held(log)], voters=3, given=3)
    assert found is not None
    assert (found.end, found.is_committed, found.holders.tolist()) == (3, True, [True, True, True])


@pytest.mark.parametrize(
    ("logs", "voters", "end"),
    [
        # Raft, figure 8: an older epoch's entry on a majority, and a log without it that is of a newer epoch.
        ([[(1, 1), (2, 2), (4, 5)], [(1, 1), (2, 2)], [(1, 1), (3, 3)]], 3, 1),
        # The newer epoch is on a majority with it.
        ([[(1, 1), (2, 2), (4, 5)], [(1, 1), (2, 2), (4, 5)], [(1, 1), (3, 3)]], 3, 3),
        # Two of five are not seen: what a directory contradicts may be lost, what one only lacks is read.
        ([[(1, 1), (2, 2)], [(1, 1), (2, 2)], [(1, 1), (2, 2)], [(1, 1), (1, 9)]], 5, 1),
        ([[(1, 1), (2, 2)], [(1, 1), (2, 2)], [(1, 1), (2, 2)], [(1, 1)]], 5, 2),
        ([[(1, 1), (2, 2), (2, 3)], [(1, 1), (2, 2), (2, 3)], [(1, 1), (2, 2), (2, 3)], [(1, 1), (1, 9)]], 5, 1),
    ],
)
def test_entry_that_a_newer_log_may_replace_is_not_read(logs: list[Log], voters: int, end: int) -> None:
    """R-QUORUM-2, R-QUORUM-3."""
    found = judge([held(log) for log in logs], voters=voters, given=len(logs))
    assert found is not None
    assert found.end == end


def test_damaged_copy_votes_for_what_is_sound_in_it() -> None:
    """R-QUORUM-6."""
    log: Log = [(1, 1), (1, 2), (2, 3)]
    broken = held(log[:1])
    known = [held(log), held(log[:2]), Held(broken.batches, 1, 1, is_whole=False)]
    found = judge(known, voters=3, given=3)
    assert found is not None
    assert (found.end, found.is_committed) == (2, False)
