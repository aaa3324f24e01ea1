"""A small cluster whose disks really hold logs: the truth that the model of data loss is measured against.

One partition of one topic at a time. The reference controller writes the metadata, with the flaws of the released
Kafka. Brokers create, recreate, move and delete logs by Kafka's rules. A log is a list of writes, and a write is
acknowledged when every member of the in-sync set has it and enough are in sync.

Two kinds of truth. ``acked`` and ``Log.entries`` are what really happened. ``presumed`` and ``Log.sure`` hold a write
for every stretch in which the metadata allows one to be acknowledged, whether or not the brokers were able to: no
reader of the metadata can know better.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from jbod_model.controller import Context, Controller
from jbod_model.formats.batch import BatchHeader
from jbod_model.formats.log import LogEntry
from jbod_model.formats.metadata_version import LEVELS
from jbod_model.formats.records import BrokerFeature, ConfigRecord, FeatureLevelRecord, VersionedRecord
from jbod_model.formats.requests import (
    AssignedDirectory,
    AssignedPartition,
    AssignedTopic,
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ReplicaAssignment,
    Request,
    SessionExpired,
)
from jbod_model.formats.responses import ControllerFault, RequestRefused
from jbod_model.ids import KAFKA_IDS, Uuid
from jbod_model.loss.fate import Fate
from jbod_model.loss.log import Fates
from jbod_model.profiles import KAFKA
from jbod_model.replay.image import Image
from jbod_model.replay.registrations import Partition
from tests.unit.model.loss.loss_disks import Broker, Disk, Log
from tests.unit.model.loss.loss_truth import judge, starting

FEATURES = tuple(
    BrokerFeature(name=name, min_supported_version=0, max_supported_version=29)
    for name in ("metadata.version", "eligible.leader.replicas.version")
)
TOPIC = "t"


class World:
    """The cluster. ``story`` tells what happened, for people."""

    def __init__(self, seed: int, *, lossy_crashes: bool = False) -> None:
        self.random = Random(seed)
        self.fates = Fates()
        self.offset = 0
        self.ids = 1000
        self.writes = 0
        self.story: list[str] = []
        self.elr = self.random.random() < 0.6
        self.lossy_crashes = self.elr or lossy_crashes
        self.acked: set[int] = set()
        self.every_acked: set[int] = set()
        """With those that the partition went on without."""
        self.presumed: set[int] = set()
        self.at: dict[int, Disk] = {}
        """The disk with the copy of each replica that has one."""
        self.places: dict[int, set[Uuid]] = {}
        """The directories that were online when a replica's first log was created."""
        self.unnamed: dict[int, set[Uuid]] = {}
        """The places of a replica's log that no record had named when its broker created another."""
        self.unmade: set[int] = set()
        """Brokers that were down when their replica came: they make its log when they start, where they like."""
        self.absences: dict[int, int] = {}
        """How often a broker started without the directory of its copy."""
        self.parted: set[int] = set()
        """Brokers whose copy was given up with their registration."""
        self.led = False
        self.excused = False
        """Something happened that no record can tell."""
        self.told_before = False
        """A loss was told for a leader before it served, or before it said where it was recreated."""
        self.counts: dict[str, int] = {}
        self.brokers = {
            i: Broker(i, [self.new_disk() for _ in range(self.random.choice((1, 2, 2, 3)))]) for i in (1, 2, 3)
        }
        self.append(FeatureLevelRecord(name="metadata.version", feature_level=LEVELS["4.1-IV1"]))
        if self.elr:
            self.append(FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1))
        self.append(self.config(4, "", "min.insync.replicas", str(self.random.choice((1, 1, 2, 2, 3)))))
        if self.random.random() < 0.5:
            self.append(self.config(4, "", "unclean.leader.election.enable", "true"))
        for broker in self.brokers.values():
            self.start(broker)
            if self.random.random() < 0.9:
                self.heartbeat(broker)
        self.create_topic()

    # METADATA

    @property
    def image(self) -> Image:
        return self.fates.image

    @property
    def partition(self) -> Partition | None:
        topic = self.image.topic(TOPIC)
        return None if topic is None else topic.partitions.get(0)

    @property
    def fate(self) -> Fate:
        topic = self.image.topic(TOPIC)
        assert topic is not None
        return self.fates.of[topic.topic_id, 0]

    def config(self, kind: int, resource: str, name: str, value: str) -> ConfigRecord:
        return ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)

    def append(self, *records: object) -> None:
        """Commit records as one batch, and weigh what they mean."""
        versioned = [each if isinstance(each, VersionedRecord) else VersionedRecord(each, 0) for each in records]  # type: ignore[arg-type]
        header = BatchHeader(
            position=0,
            base_offset=self.offset,
            length=0,
            epoch=1,
            crc=0,
            attributes=0,
            last_offset_delta=len(versioned) - 1,
            base_timestamp=0,
            max_timestamp=0,
            count=len(versioned),
        )
        self.fates.apply([LogEntry(self.offset + i, 1, 0, each, header) for i, each in enumerate(versioned)])
        first, self.offset = self.offset, self.offset + len(versioned)
        self.follow_metadata(first)

    def ask(self, request: Request, **context: object) -> bool:
        """Let the controller answer a request; whether it wrote anything."""
        circumstances = Context(next_offset=self.offset, **context)  # type: ignore[arg-type]
        try:
            result = Controller(KAFKA).handle(self.image, request, circumstances)
        except (RequestRefused, ControllerFault) as refused:
            self.tell(f"  refused: {refused}")
            return False
        if result.records:
            self.append(*result.records)
        return bool(result.records)

    def tell(self, text: str) -> None:
        self.story.append(f"{self.offset}: {text}")

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def new_disk(self) -> Disk:
        self.ids += 1
        return Disk(Uuid(1, self.ids))

    def new_write(self) -> int:
        self.writes += 1
        return self.writes

    # TOPIC

    def create_topic(self) -> None:
        replicas = self.random.sample(sorted(self.brokers), self.random.choice((1, 1, 2, 2, 3)))
        self.ids += 1
        self.acked, self.presumed, self.at, self.places, self.parted, self.led = set(), set(), {}, {}, set(), False
        self.unmade, self.unnamed, self.every_acked = set(), {}, set()
        assignment = ReplicaAssignment(partition_index=0, broker_ids=tuple(replicas))
        request = CreateTopicsRequest(topics=(CreatableTopic(name=TOPIC, assignments=(assignment,)),))
        self.tell(f"create topic on {replicas}")
        self.ask(request, new_topic_ids=(Uuid(7, self.ids),))

    def delete_topic(self) -> None:
        topic = self.image.topic(TOPIC)
        if topic is None:
            return
        self.tell("delete topic")
        for broker in self.brokers.values():
            for disk in [*broker.disks, *broker.shelf]:
                disk.log = None
        self.ask(DeleteTopicsRequest(topic_ids=(topic.topic_id,)))
        self.create_topic()

    # PROCESSES

    def start(self, broker: Broker, *, early: bool = False) -> None:
        """Start a process: it registers what it can read, and recreates what it misses by Kafka's rules.

        ``early``: it reports before it registers, whether or not the process before it was fenced.
        """
        usable = [disk for disk in broker.disks if disk.works]
        if broker.up or not usable:
            return
        marks = {disk.clean_epoch if disk.works else -1 for disk in broker.disks}
        for disk in usable:
            disk.clean_epoch = -1
        self.ids += 1
        broker.up, broker.online, broker.incarnation = True, usable, Uuid(5, self.ids)
        self.tell(f"start {broker.id} with {[d.id.lsb for d in usable]} of {[d.id.lsb for d in broker.disks]}")
        if broker.id in self.unmade:
            self.unmade.discard(broker.id)
            self.places[broker.id] |= {disk.id for disk in usable}
        partition = self.partition
        if partition and broker.id in partition.replicas:
            listed = partition.directory(broker.id) in {disk.id for disk in usable}
            self.absences[broker.id] = 0 if listed else self.absences.get(broker.id, 0) + 1
        before = self.image.brokers.get(broker.id)
        if before is not None and (early or (before.fenced and self.random.random() < 0.3)):
            blank = [disk for disk in usable if disk.id not in before.directories] if early else None
            lay = self.at.get(broker.id)
            self.open_logs(broker, blank)
            now = self.at.get(broker.id)
            self.excused |= now is not None and now is not lay and not before.fenced and now.id in before.directories
            self.report(broker)  # with the epoch of the process before
        request = BrokerRegistrationRequest(
            broker_id=broker.id,
            incarnation_id=broker.incarnation,
            features=FEATURES,
            log_dirs=tuple(sorted(disk.id for disk in usable)),
            previous_broker_epoch=marks.pop() if len(marks) == 1 else -1,
        )
        if not self.ask(request, cluster_id=None):
            for disk in [*broker.disks, *broker.shelf]:
                if disk.log is not None:
                    disk.log.unplaced = True  # it may have reported another: no record tells that it died
            broker.up = False
            return
        broker.epoch = self.image.brokers[broker.id].epoch
        self.open_logs(broker)

    def report(self, broker: Broker) -> None:
        """A broker says where its replica is, if the metadata says something else."""
        partition = self.partition
        if partition is None or broker.id not in partition.replicas or self.serving(broker.id) is None:
            return
        if partition.directory(broker.id) != self.at[broker.id].id:
            self.assign(broker, self.at[broker.id])

    def assign(self, broker: Broker, disk: Disk) -> bool:
        """AssignReplicasToDirs. The epoch is that of the metadata, also before the process registered."""
        topic, registration = self.image.topic(TOPIC), self.image.brokers.get(broker.id)
        if topic is None or registration is None:
            return False
        self.tell(f"{broker.id} reports {disk.id.lsb}")
        where = AssignedTopic(topic_id=topic.topic_id, partitions=(AssignedPartition(partition_index=0),))
        directories = (AssignedDirectory(id=disk.id, topics=(where,)),)
        self.ask(
            AssignReplicasToDirsRequest(broker_id=broker.id, broker_epoch=registration.epoch, directories=directories)
        )
        return True

    def open_logs(self, broker: Broker, among: Sequence[Disk] | None = None) -> None:
        """What ``ReplicaManager.applyDelta`` and ``LogManager.getOrCreateLog`` do when a broker learns its replicas."""
        partition = self.partition
        if partition is None or not broker.up or broker.id not in partition.replicas:
            return
        target = partition.directory(broker.id)
        online = {disk.id for disk in broker.online}
        missing = target == KAFKA_IDS.unassigned and not self.places.get(broker.id, set()) <= online
        logs = [disk.log for disk in broker.online if disk.log]
        if logs:
            logs[0].unplaced |= missing
            return
        if target in online or len(online) == len(broker.disks) or target == KAFKA_IDS.unassigned:
            choice = (broker.online if among is None else among) or broker.online
            disk = next((each for each in broker.online if each.id == target), self.random.choice(choice))
            before = self.copy(broker.id)
            if before is not None and not before.named:
                self.unnamed.setdefault(broker.id, self.places.get(broker.id, set()))
            places = self.unnamed.get(broker.id, set())
            unplaced = missing or (disk.id in places and not places <= online)
            for older in [*broker.disks, *broker.shelf]:
                if older.log is not None and not older.log.named:
                    older.log.unplaced |= unplaced  # either of the two may be where a record says
            disk.log = Log(recreated=True, unplaced=unplaced, synced=partition.leader >= 0)
            disk.log.vague = partition.leader == broker.id or self.absences.get(broker.id, 0) > 1
            self.at[broker.id] = disk
            self.tell(f"  {broker.id} creates a log on {disk.id.lsb}")

    def place(self, broker: Broker, target: Uuid) -> None:
        """A new replica. On a broker or disk that is not there it is empty until it is: as good as created now."""
        registration = self.image.brokers.get(broker.id)
        self.places[broker.id] = set(registration.directories) if registration else set()
        if target == KAFKA_IDS.unassigned:
            places = self.places[broker.id] or {self.new_disk().id}
            mounted = [disk for disk in broker.online or broker.disks if disk.id in places]
            disk = self.random.choice(mounted or [Disk(each, works=False) for each in sorted(places)])
        else:
            everything = [*broker.online, *broker.disks, *broker.shelf]
            disk = next((disk for disk in everything if disk.id == target), Disk(target, works=False))
        disk.log = Log(doubt=not broker.up)
        if not broker.up:
            self.unmade.add(broker.id)
        self.at[broker.id] = disk
        self.tell(f"  {broker.id} creates a log on {disk.id.lsb}")

    def end(self, broker: Broker, *, clean: bool) -> None:
        for disk in broker.online:
            if clean:
                disk.clean_epoch = broker.epoch
        log = self.copy(broker.id)
        if not clean:
            self.doubt(broker)
        if log is not None and not clean and self.lossy_crashes and self.random.random() < 0.5:
            log.entries = log.entries[: self.random.randint(0, len(log.entries))]
            self.excused |= not self.elr
        broker.up, broker.online = False, []

    def doubt(self, broker: Broker) -> None:
        """A process ended without a trace of its order. R-LOSS-5 does not ask which disks it had."""
        for log in (self.copy(broker.id), *(disk.log for disk in broker.shelf)):
            if log is not None:
                log.doubt = True

    def heartbeat(self, broker: Broker, *, stop: bool = False) -> None:
        registration = self.image.brokers.get(broker.id)
        if not broker.up or registration is None or registration.epoch != broker.epoch:
            return
        online = {disk.id for disk in broker.online}
        offline = tuple(each for each in registration.directories if each not in online)
        request = BrokerHeartbeatRequest(
            broker_id=broker.id,
            broker_epoch=broker.epoch,
            current_metadata_offset=self.offset,
            want_shut_down=stop,
            offline_log_dirs=offline,
        )
        self.tell(f"heartbeat of {broker.id} stop={stop} offline={[o.lsb for o in offline]}")
        self.ask(request)

    def shut_down(self, broker: Broker) -> None:
        """In order: the controller moves leaderships away, then lets it stop."""
        if not broker.up:
            return
        for _ in range(2):
            self.heartbeat(broker, stop=True)
        registration = self.image.brokers.get(broker.id)
        if not (registration and registration.in_controlled_shutdown):
            self.doubt(broker)  # R-LOSS-5: a broker that leads nothing stops without a trace of its order
        self.tell(f"stop {broker.id}")
        self.end(broker, clean=True)

    def expire(self, broker: Broker) -> None:
        """The controller has not heard of a broker for too long."""
        registration = self.image.brokers.get(broker.id)
        if registration is not None and not registration.fenced:
            self.tell(f"the session of {broker.id} expires")
            self.ask(SessionExpired(broker_id=broker.id))

    # DATA

    def serving(self, broker_id: int) -> Log | None:
        """The log that a running broker serves."""
        disk = self.at.get(broker_id)
        return disk.log if disk is not None and disk in self.brokers[broker_id].online else None

    def copy(self, broker_id: int) -> Log | None:
        disk = self.at.get(broker_id)
        return None if disk is None else disk.log

    def sync(self, broker_id: int, limit: int | None = None) -> None:
        """A follower truncates to its leader's log and fetches from it."""
        partition = self.partition
        mine, leaders = self.serving(broker_id), partition and self.serving(partition.leader)
        if mine is None or not leaders or mine is leaders:
            return
        common = next(
            (i for i, (a, b) in enumerate(zip(mine.entries, leaders.entries, strict=False)) if a != b),
            min(len(mine.entries), len(leaders.entries)),
        )
        if limit is None:
            mine.entries = list(leaders.entries)
        else:
            mine.entries = leaders.entries[: common + limit]
        mine.sure &= leaders.sure

    def write(self) -> None:
        """A write that the leader takes; it is acknowledged where it can be."""
        partition = self.partition
        leader = partition and self.serving(partition.leader)
        if partition is None or not leader or starting(self, partition.leader):
            return
        write = self.new_write()
        leader.entries.append(write)
        members = [self.serving(member) for member in partition.isr]
        if all(members) and len(partition.isr) >= self.min_isr:
            for member in partition.isr:
                self.sync(member)
            self.acked.add(write)
            self.every_acked.add(write)

    @property
    def min_isr(self) -> int:
        partition = self.partition
        wanted = self.image.configs.get((2, TOPIC), {}).get("min.insync.replicas")
        of_all = self.image.configs[4, ""]["min.insync.replicas"]
        return min(int(wanted or of_all), len(partition.replicas) if partition else 1)

    def follow_metadata(self, first: int) -> None:
        """After an append: brokers follow the metadata, and what the model says is compared with what happened."""
        partition = self.partition
        if partition is None:
            return
        for broker_id in list(self.at):
            if broker_id not in partition.replicas:
                self.at.pop(broker_id).log = None
                for kept in self.brokers[broker_id].shelf:
                    kept.unknowable |= kept.log is not None
        for broker_id in partition.replicas:
            if broker_id not in self.at:
                self.place(self.brokers[broker_id], partition.directory(broker_id))
        left: set[int] = set()
        parted = set(self.parted)
        for broker_id in partition.replicas:
            registration, disk = self.image.brokers.get(broker_id), self.at.get(broker_id)
            if registration is None:
                left |= {broker_id} - self.parted
                self.parted.add(broker_id)
            elif disk is not None and disk.id in registration.directories:
                self.parted.discard(broker_id)
            if disk is not None and disk.log is not None:
                disk.log.parted = broker_id in self.parted
        judge(self, first, left, parted - self.parted)
