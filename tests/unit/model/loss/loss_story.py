"""A hand-made history of one partition, an event at a time."""

from __future__ import annotations

from collections.abc import Mapping

from jbod_model.ids import KAFKA_IDS, Uuid
from jbod_model.loss.copies import BrokerChanged, Copy, Loss, MinIsrChanged, Registration, Removed, Version
from jbod_model.loss.fate import Fate
from jbod_model.replay.registrations import Partition

UNASSIGNED, LOST, MIGRATING = KAFKA_IDS.unassigned, KAFKA_IDS.lost, KAFKA_IDS.migrating
A, B, C, D = (Uuid(9, number) for number in range(4))


class Story:
    """Brokers and one partition. Every method is one event, and one offset."""

    def __init__(self, min_isr: int = 1) -> None:
        self.fate = Fate(min_isr=min_isr)
        self.offset = 0

    def broker(
        self,
        broker_id: int,
        *directories: Uuid,
        process: int = 1,
        unclean: bool = False,
        fenced: bool = False,
        starting: bool = False,
        first: int | None = None,
    ) -> Story:
        """The broker registers, or its directories change; ``first``: the first offset of the append."""
        known = Registration(
            directories=frozenset(directories), incarnation=Uuid(5, process), fenced=fenced, starting=starting
        )
        return self._then(
            BrokerChanged(offset=self.offset, broker_id=broker_id, registration=known, unclean=unclean, first=first)
        )

    def unregister(self, broker_id: int) -> Story:
        return self._then(BrokerChanged(offset=self.offset, broker_id=broker_id, registration=None))

    def version(
        self,
        directories: Mapping[int, Uuid],
        *,
        isr: tuple[int, ...] = (),
        leader: int = -1,
        elr: tuple[int, ...] = (),
        last_known: tuple[int, ...] = (),
        recovering: bool = False,
        in_snapshot: bool = False,
        superseded: bool = False,
    ) -> Story:
        """The partition's state; ``directories`` by replica."""
        state = Partition(
            replicas=tuple(directories),
            directories=tuple(directories.values()),
            isr=isr,
            leader=leader,
            eligible_leader_replicas=elr,
            last_known_elr=last_known,
            leader_recovery_state=int(recovering),
        )
        version = Version(offset=self.offset, state=state, in_snapshot=in_snapshot, superseded=superseded)
        return self._then(version)

    def min_isr(self, value: int) -> Story:
        return self._then(MinIsrChanged(offset=self.offset, value=value))

    def delete(self) -> Story:
        return self._then(Removed(offset=self.offset))

    def _then(self, event: Version | Removed | BrokerChanged | MinIsrChanged) -> Story:
        self.fate = self.fate.after(event)
        self.offset += 1
        return self

    # WHAT IS TOLD

    @property
    def losses(self) -> tuple[Loss, ...]:
        return self.fate.losses

    @property
    def loss(self) -> Loss:
        """The only loss."""
        (loss,) = self.fate.losses
        return loss

    def copy(self, broker_id: int) -> Copy:
        return self.fate.copies[broker_id]

    @property
    def complete(self) -> tuple[int, ...]:
        """The brokers whose copies hold everything."""
        return tuple(copy.broker_id for copy in self.fate.complete)


def alone(where: Uuid = A, *directories: Uuid) -> Story:
    """A partition of one copy, on broker 1."""
    return Story().broker(1, *(directories or (A, B))).version({1: where}, isr=(1,), leader=1)


def pair(min_isr: int = 1) -> Story:
    """A partition of two copies in sync: broker 1 leads from A, broker 2 follows in C."""
    story = Story(min_isr).broker(1, A, B).broker(2, C, D)
    return story.version({1: A, 2: C}, isr=(1, 2), leader=1)
