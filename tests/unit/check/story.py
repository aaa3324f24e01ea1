"""Short logs written by hand, a record a second, each a batch of its own; and requests beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from jbod_model.formats import records as r
from jbod_model.formats.codec import encode, write_struct
from jbod_model.formats.control_records import LeaderChangeMessage, QuorumVoter, Voter, VotersRecord
from jbod_model.formats.records import Record, VersionedRecord
from jbod_model.ids import KAFKA_IDS, Uuid
from pipelines.lake.directory_sizes import TABLE, keep_sizes
from pipelines.lake.reader import Lake
from pipelines.upkeep.verify_reference import Row, time_of
from tests.support.lakes import write_lake
from tests.support.logs import Entry

START = 1_700_000_000
KINDS = {"unassigned": KAFKA_IDS.unassigned, "lost": KAFKA_IDS.lost, "migrating": KAFKA_IDS.migrating}


def disk(name: str) -> Uuid:
    """The id of the directory called ``name``: a letter, or a reserved id by its name."""
    return KINDS[name] if name in KINDS else Uuid(ord(name), 1)


def topic_id(name: str, life: int = 1) -> Uuid:
    return Uuid(sum(map(ord, name)), 1000 + life)


class Story:
    """Builds a log; every method appends one record and returns the story."""

    def __init__(self, version: int | None = 17) -> None:
        self.entries: list[Entry] = []
        self.time = START
        self.level = version or -1
        self.epochs: dict[int, int] = {}
        self.replicas: dict[tuple[str, int], dict[int, str]] = {}
        self.lives: dict[str, int] = {}
        self.hurried = False
        self.requests: list[Row] = []
        self.sizes: list[Row] = []
        if version is None:
            self.append(r.NoOpRecord(), 0)
        else:
            self.append(r.FeatureLevelRecord(name="metadata.version", feature_level=version), 0)

    def append(self, record: Record, version: int) -> Story:
        self.time += 0 if self.hurried else 1
        offset = len(self.entries)
        versioned = VersionedRecord(record, version)
        value = encode(versioned)
        self.entries.append(Entry(offset, 1, self.time * 1_000_000, offset, value, versioned=versioned))
        return self

    def wait(self, seconds: int) -> Story:
        """Time passes, a record now and then."""
        for _ in range(15):
            self.time += seconds // 15
            self.append(r.NoOpRecord(), 0)
        return self

    def pause(self, seconds: int) -> Story:
        """Time passes without records, until one at its end; nobody else is there to write any."""
        self.level = -1
        self.time += seconds
        return self.append(r.NoOpRecord(), 0)

    def chatter(self) -> Story:
        """Records without time passing."""
        self.hurried = True
        for _ in range(15):
            self.append(r.NoOpRecord(), 0)
        self.hurried = False
        return self

    def crowded(self) -> Story:
        """Others, who are well, each after troubles of its own; no time passes. Not before directories are recorded."""
        if self.level < 17:
            return self
        self.hurried = True
        self.broker(7, "pqr").broker(8, "stu").broker(9, "vwx").fence(7).fence(7, up=True)
        calm = ({7: "p", 8: "s"}, {8: "unassigned", 7: "q"}, {9: "v", 7: "r"}, {7: "p", 8: "u"}, {9: "x", 8: "s"})
        self.topic("calm", *calm, {9: "x", 8: "t"}).configure("calm", "2").topic("gone", {8: "s", 7: "p"}).remove(
            "gone"
        )
        self.assign("calm", 1, 8, "t").assign("calm", 0, 7, "q").left(9, "vx").assign("calm", 5, 9, "v")
        self.change("calm", 2, leader=-1).change("calm", 2, leader=9)
        self.change("calm", 3, isr=(7,)).change("calm", 3, isr=(7, 8))
        self.change("calm", 4, adding_replicas=(7,)).change("calm", 4, adding_replicas=())
        self.broker(8, "stu", process=2)
        self.hurried = False
        return self

    def version(self, level: int) -> Story:
        self.level = level
        return self.append(r.FeatureLevelRecord(name="metadata.version", feature_level=level), 0)

    def broker(
        self,
        broker: int,
        disks: str = "",
        *,
        process: int = 1,
        fenced: bool = False,
        epoch: int | None = None,
        cordoned: str | None = None,
    ) -> Story:
        """Registers; an epoch of its own where none is given."""
        self.epochs[broker] = len(self.entries) if epoch is None else epoch
        return self.append(
            r.RegisterBrokerRecord(
                broker_id=broker,
                incarnation_id=Uuid(broker, 5000 + process),
                broker_epoch=self.epochs[broker],
                fenced=fenced,
                log_dirs=tuple(disk(name) for name in disks),
                cordoned_log_dirs=None if cordoned is None else tuple(disk(name) for name in cordoned),
            ),
            3 if cordoned is None else 4,
        )

    def broker_with(self, broker: int, *ids: Uuid) -> Story:
        """Registers with directories of these ids."""
        return self.append(r.RegisterBrokerRecord(broker_id=broker, fenced=False, log_dirs=ids), 3)

    def supporting(self, broker: int, level: int, fenced: bool = False) -> Story:
        """A broker registers that supports metadata.version up to ``level``."""
        self.epochs[broker] = len(self.entries)
        features = (r.BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=level),)
        record = r.RegisterBrokerRecord(
            broker_id=broker,
            broker_epoch=len(self.entries),
            fenced=fenced,
            features=features,
            log_dirs=(disk(str(broker)),),
        )
        return self.append(record, 3)

    def controller(self, number: int, level: int) -> Story:
        """A controller registers that supports metadata.version up to ``level``."""
        features = (r.ControllerFeature(name="metadata.version", min_supported_version=7, max_supported_version=level),)
        return self.append(r.RegisterControllerRecord(controller_id=number, features=features), 0)

    def lead(self, leader: int, *others: int) -> Story:
        """An election among these voters, all of whom voted for the leader."""
        voters = tuple(Voter(voter_id=voter) for voter in (leader, *others))
        value = write_struct(LeaderChangeMessage(leader_id=leader, voters=voters, granting_voters=voters), 0)
        self.time += 1
        offset = len(self.entries)
        self.entries.append(Entry(offset, 1, self.time * 1_000_000, offset, value, control="LEADER_CHANGE"))
        return self

    def voters(self, disks: Mapping[int, str]) -> Story:
        """The voters of the quorum, each with the directory of its metadata log."""
        voters = tuple(QuorumVoter(voter_id=node, voter_directory_id=disk(name)) for node, name in disks.items())
        value = write_struct(VotersRecord(voters=voters), 0)
        self.time += 1
        offset = len(self.entries)
        self.entries.append(Entry(offset, 1, self.time * 1_000_000, offset, value, control="KRAFT_VOTERS"))
        return self

    def left(self, broker: int, disks: str) -> Story:
        """The broker reports that only these disks are left."""
        change = r.BrokerRegistrationChangeRecord(
            broker_id=broker, broker_epoch=self.epochs[broker], log_dirs=tuple(disk(name) for name in disks)
        )
        return self.append(change, 2)

    def unregister(self, broker: int) -> Story:
        return self.append(r.UnregisterBrokerRecord(broker_id=broker, broker_epoch=self.epochs[broker]), 0)

    def nothing(self, broker: int) -> Story:
        """A change that changes nothing, in the first version of the record."""
        return self.append(r.BrokerRegistrationChangeRecord(broker_id=broker, broker_epoch=self.epochs[broker]), 0)

    def fence(self, broker: int, up: bool = False) -> Story:
        change = r.BrokerRegistrationChangeRecord(
            broker_id=broker, broker_epoch=self.epochs[broker], fenced=-1 if up else 1
        )
        return self.append(change, 0)

    def topic(self, name: str, *partitions: Mapping[int, str], isr: Sequence[int] | None = None) -> Story:
        """A topic whose partitions are led by the first of ``{broker: disk}``; in sync all, or ``isr``."""
        self.lives[name] = self.lives.get(name, 0) + 1
        self.append(r.TopicRecord(name=name, topic_id=self._id(name)), 0)
        for number, placed in enumerate(partitions):
            self.replicas[name, number] = dict(placed)
            brokers = tuple(placed)
            in_sync = brokers if isr is None else tuple(isr)
            self.append(
                r.PartitionRecord(
                    topic_id=self._id(name),
                    partition_id=number,
                    replicas=brokers,
                    isr=in_sync,
                    leader=in_sync[0],
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=tuple(disk(where) for where in placed.values()),
                ),
                1,
            )
        return self

    def assign(self, name: str, number: int, broker: int, where: str) -> Story:
        """The broker's replica is now in another directory."""
        placed = self.replicas[name, number]
        placed[broker] = where
        directories = tuple(disk(disk_name) for disk_name in placed.values())
        return self.change(name, number, directories=directories)

    def join(self, name: str, number: int, broker: int, where: str) -> Story:
        """A broker becomes one more replica."""
        placed = self.replicas[name, number]
        placed[broker] = where
        directories = tuple(disk(disk_name) for disk_name in placed.values())
        return self.change(name, number, replicas=tuple(placed), directories=directories)

    def change(self, name: str, number: int, **fields: object) -> Story:
        record = r.PartitionChangeRecord(topic_id=self._id(name), partition_id=number, **fields)  # type: ignore[arg-type]
        return self.append(record, 1)

    def remove(self, name: str) -> Story:
        return self.append(r.RemoveTopicRecord(topic_id=self._id(name)), 0)

    def configure(self, name: str, value: str | None) -> Story:
        """Sets min.insync.replicas of a topic."""
        return self.append(
            r.ConfigRecord(resource_type=2, resource_name=name, name="min.insync.replicas", value=value), 0
        )

    def request(
        self, name: str, number: int, broker: int, where: str, *, error: int = 0, realised: int | None = None
    ) -> Story:
        """The broker asks for a directory, and is refused or not, a second after what was before."""
        self.time += 1
        now = time_of(self.time * 1_000_000)
        assignment: Row = {
            "broker_id": broker,
            "topic_id": str(topic_id(name, self.lives.get(name, 1))),
            "partition": number,
            "directory_id": str(disk(where)),
        }
        before = [row for row in self.requests if row.items() >= assignment.items()][-1:]
        again = before[0] if before and before[0]["error"] else None
        outcome = "refused" if error else "pending" if realised is None else "recorded"
        self.requests.append(
            {
                **assignment,
                "broker_epoch": self.epochs[broker],
                "topic": name if name in self.lives else None,
                "requested_time": now,
                "answered_time": now,
                "attempt": again["attempt"] + 1 if again else 1,
                "first_requested_time": again["first_requested_time"] if again else now,
                "error": error,
                "outcome": outcome,
                "why": None,
                "realised_offset": realised,
                "realised_time": None if realised is None else now,
                "latency_ms": None if realised is None else 0,
                "controller": "localhost:9093",
                "connection": str(broker),
                "correlation_id": len(self.requests),
                "entry": 0,
                "entries": 1,
            }
        )
        return self

    def sized(self, broker: int, **disks: tuple[int, int, int] | int) -> Story:
        """jbod sizes --keep finds the broker's disks: GiB of replicas, or these, the size of the disk and what is free.

        Of the disk ``_NAME`` the id is not known.
        """
        for name, numbers in disks.items():
            held, total, free = numbers if isinstance(numbers, tuple) else (numbers, None, None)
            row = dict.fromkeys(TABLE.schema.names) | {
                "time": time_of(self.time * 1_000_000),
                "log_offset": len(self.entries) - 1,
                "broker_id": broker,
                "path": f"/data/{name}",
                "directory_id": None if name[0] == "_" else str(disk(name)),
                "pairing": "unknown" if name[0] == "_" else "certain",
                "error": "",
                "replicas": 1,
                "bytes": held << 30,
                "total_bytes": None if total is None else total << 30,
                "free_bytes": None if free is None else free << 30,
            }
            self.sizes.append(row)
        return self

    def lake(self, path: Path) -> Lake:
        write_lake(path, self.entries, requests=self.requests)
        lake = Lake.open(path)
        if self.sizes:
            keep_sizes(lake, self.sizes)
        return lake

    def _id(self, name: str) -> Uuid:
        return topic_id(name, self.lives[name])


def waiting() -> Story:
    """Four replicas of broker 1 have no directory; the last of them joined a partition that existed."""
    placed = {1: "unassigned", 2: "c"}
    story = Story().broker(1, "ab").broker(2, "cd").topic("t", placed, placed, placed, {2: "c"})
    return story.join("t", 3, 1, "unassigned")


def asking() -> Story:
    """Of them one was requested, one refused twice, and nothing else was asked."""
    story = waiting().request("t", 0, 1, "a").request("t", 1, 1, "a", error=6).request("t", 1, 1, "a", error=6)
    return story.wait(60)
