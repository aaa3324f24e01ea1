"""Places new partitions round-robin over racks, like Kafka's default placer (docs/spec/controller.md).

Source: Kafka's ``metadata.placement.StripedReplicaPlacer``. It ignores directories.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from jbod_model.formats.responses import InvalidReplicationFactor
from jbod_model.java import JavaRandom, hash_order, string_hash


@dataclass(frozen=True, slots=True)
class UsableBroker:
    """A registered broker that is not shutting down."""

    id: int
    rack: str | None
    fenced: bool


class _BrokerRing:
    """The fenced or the unfenced brokers of one rack, used in turn. Each epoch begins one broker later."""

    def __init__(self, brokers: list[int], random: JavaRandom) -> None:
        self.brokers = sorted(brokers)
        self.offset = random.next_int(len(brokers)) if brokers else 0
        self.epoch = 0
        self.index = 0

    def next(self, epoch: int) -> int | None:
        if self.epoch != epoch:
            self.epoch = epoch
            self.index = 0
            self.offset += 1
        if self.index >= len(self.brokers):
            return None
        broker = self.brokers[(self.index + self.offset) % len(self.brokers)]
        self.index += 1
        return broker


class _Rack:
    def __init__(self, brokers: list[UsableBroker], random: JavaRandom) -> None:
        self.fenced = _BrokerRing([broker.id for broker in brokers if broker.fenced], random)
        self.unfenced = _BrokerRing([broker.id for broker in brokers if not broker.fenced], random)

    def next(self, epoch: int) -> int | None:
        broker = self.unfenced.next(epoch)
        return self.fenced.next(epoch) if broker is None else broker


class _Racks:
    def __init__(self, brokers: list[UsableBroker], random: JavaRandom) -> None:
        self.random = random
        self.unfenced = sum(not broker.fenced for broker in brokers)
        by_rack: dict[str | None, list[UsableBroker]] = {}
        for broker in brokers:
            by_rack.setdefault(broker.rack, []).append(broker)
        names = hash_order(by_rack, lambda name: 0 if name is None else string_hash(name))
        self.racks = {name: _Rack(by_rack[name], random) for name in names}
        self.names = sorted(by_rack, key=_rack_order)
        self.offset = random.next_int(len(self.names)) if self.names else 0
        self.epoch = 0

    def place(self, replication_factor: int) -> tuple[int, ...]:
        """One partition: an unfenced leader, then racks in turn, unfenced brokers of each before fenced ones."""
        if self.epoch == self.unfenced and self.unfenced > 1:
            self._shuffle()
            self.epoch = 0
        if self.offset == len(self.names):
            self.offset = 0
        leader_rack: int | None
        leader, leader_rack = self._leader()
        placed = [leader]
        at = self.offset
        while len(placed) < replication_factor:
            broker = None
            if at == leader_rack:
                leader_rack = None
            else:
                broker = self.racks[self.names[at]].next(self.epoch)
            at = (at + 1) % len(self.names)
            if broker is not None:
                placed.append(broker)
        self.epoch += 1
        self.offset += 1
        return tuple(placed)

    def _leader(self) -> tuple[int, int]:
        at = self.offset
        while True:
            broker = self.racks[self.names[at]].unfenced.next(self.epoch)
            if broker is not None:
                return broker, at
            at = (at + 1) % len(self.names)

    def _shuffle(self) -> None:
        self.random.shuffle(self.names)
        for rack in self.racks.values():
            self.random.shuffle(rack.fenced.brokers)
            self.random.shuffle(rack.unfenced.brokers)


def _rack_order(name: str | None) -> tuple[bool, bytes]:
    return name is not None, (name or "").encode("utf-16-be", "surrogatepass")


def place(
    brokers: Iterable[UsableBroker], partitions: int, replication_factor: int, random: JavaRandom
) -> list[tuple[int, ...]]:
    """The replicas of ``partitions`` new partitions, preferred leader first (R-PLACE-2).

    ``random`` advances as Kafka's does, so the same state and calls give the same placements.
    InvalidReplicationFactor if the brokers cannot host that many replicas (R-PLACE-1).
    """
    usable = list(brokers)
    racks = _Racks(usable, random)
    if replication_factor <= 0:
        raise InvalidReplicationFactor(f"replication factor {replication_factor} is not positive")
    if racks.unfenced == 0:
        raise InvalidReplicationFactor("all brokers are fenced")
    if replication_factor > len(usable):
        raise InvalidReplicationFactor(
            f"{replication_factor} replicas need as many brokers, and there are {len(usable)}"
        )
    return [racks.place(replication_factor) for _ in range(partitions)]
