"""A broker's next start with other disks: the replicas that it recreates empty, the leaders, and the data given up.

Theory of operation. The broker stops in order if it runs. Its next process registers with the directories that can be
read. It opens the logs of its replicas by the table of decisions (R-DECIDE-1 to R-DECIDE-12, R-DISK-4), reports each
directory that differs from the metadata, and is unfenced: then every partition without a leader holds an election
(R-RESTART-3). The report can come before the registration (R-COPY-12) or after the election, in which the replica then
counts as offline. The controller answers each request, and each record that it writes
changes the fates of the partitions (R-LOSS-1 to R-LOSS-12).

No record says where a log lies that was never placed. If some of its possible places are missing at the start, its
replica counts as recreated, and as *perhaps* recreated in the answer.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from jbod_model.broker.replicas import ReplicaStep, classify_holding, classify_target, decide
from jbod_model.controller import Context, Controller
from jbod_model.formats.metadata_version import METADATA_VERSION, directories_supported
from jbod_model.formats.records import BrokerFeature, PartitionChangeRecord, VersionedRecord
from jbod_model.formats.requests import (
    AssignedDirectory,
    AssignedPartition,
    AssignedTopic,
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    Request,
)
from jbod_model.formats.responses import RequestRefused
from jbod_model.ids import Uuid
from jbod_model.loss.copies import BrokerChanged, Copy, Event, Registration, Version
from jbod_model.loss.fate import Fate
from jbod_model.profiles import KAFKA, Profile
from jbod_model.replay.image import BrokerRegistration, Image, Partition
from jbod_model.whatif import applied

Key = tuple[Uuid, int]
"""Topic id and number of a partition."""

NEXT_PROCESS = Uuid(0x6A626F64, 1)
"""The incarnation of the next process."""
BLANK = 0x6A626F64
"""Upper half of the ids of blank directories, which no record knows."""
FAR = 1 << 62
"""An offset that every broker has read."""


class ReportTime(enum.Enum):
    """When the process first reports the directories that differ from the metadata: no record tells before."""

    EARLY = "before it registers"
    """With the epoch of the process before (R-COPY-12)."""
    REGISTERED = "before it is unfenced"
    LATE = "after it is unfenced"
    """A leaderless partition elects without the replica, and stays leaderless after the report (R-ASSIGN-6)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStart:
    """How a broker starts."""

    broker_id: int
    directories: tuple[Uuid, ...]
    """The directories with which it registers: those that can be read. Empty: the process does not start."""
    has_offline: bool
    """Whether log.dirs has further directories, which cannot be read."""
    clean: bool
    """Whether every directory of log.dirs has the mark of the last shutdown in order: a blank disk has none."""
    reports: ReportTime = ReportTime.REGISTERED
    """When it first reports its directories."""
    was_stopped: bool = True
    """For a broker that is not registered: whether its last process was shut down in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The cluster after the start."""

    image: Image
    fates: Mapping[Key, Fate]
    recreated: frozenset[Key] = frozenset()
    """Partitions whose replica the broker creates empty."""
    perhaps: frozenset[Key] = frozenset()
    """Those among them whose log may be there all the same: no record says where it lies."""
    without: frozenset[Key] = frozenset()
    """Partitions whose replica is hosted without a log, because a directory is offline (R-HOST-7)."""
    reported: bool = False
    """Whether it has directories to report: if not, it does not matter when it would (``ReportTime``)."""
    refused: str = ""
    """Why the broker does not start, or is not registered. Then nothing else happens."""


def start(
    image: Image,
    fates: Mapping[Key, Fate],
    how: NextStart,
    *,
    offset: int,
    profile: Profile = KAFKA,
    static_configs: Mapping[str, str] | None = None,
) -> Started:
    """The cluster after the next start of a broker.

    ``image``: at least the partitions in question. ``fates``: of those that can lose data. ``offset``: of the next
    record. ControllerFault if Kafka's controller itself would fail.
    """
    play = _Play(image, dict(fates), offset, profile, static_configs or {})
    known = image.brokers.get(how.broker_id)
    if known is not None and not known.fenced:
        play.stop(how.broker_id)
    if not how.directories:
        return Started(image=play.image, fates=play.fates, refused="no directory of log.dirs can be read")
    listed = frozenset() if known is None else frozenset(known.directories)
    logs: Mapping[Key, _Log] | None = None
    if how.reports is ReportTime.EARLY and known is not None:
        logs = dict(_logs(play.image, play.fates, how, listed, profile))
        play.report(how.broker_id, logs)
    try:
        play.register(how)
    except RequestRefused as refused:
        return Started(image=play.image, fates=play.fates, refused=refused.problem)
    if logs is None:
        logs = dict(_logs(play.image, play.fates, how, listed, profile))
    if how.reports is not ReportTime.LATE:
        play.report(how.broker_id, logs)
    play.unfence(how.broker_id)
    play.report(how.broker_id, logs)
    created = {key: log for key, log in logs.items() if log.created}
    return Started(
        image=play.image,
        fates=play.fates,
        recreated=frozenset(created),
        perhaps=frozenset(key for key, log in created.items() if log.perhaps),
        without=frozenset(key for key, log in logs.items() if log.directory is None),
        reported=play.reported,
    )


# LOGS


@dataclass(frozen=True, slots=True)
class _Log:
    """The log of a replica after the start."""

    directory: Uuid | None
    """None: the broker deliberately creates none."""
    created: bool = False
    perhaps: bool = False


def _logs(
    image: Image, fates: Mapping[Key, Fate], how: NextStart, listed: frozenset[Uuid], profile: Profile
) -> Iterator[tuple[Key, _Log]]:
    """The log of each of the broker's replicas, opened by the table of decisions. ``listed``: the directories that
    the process before it registered."""
    online = frozenset(how.directories)
    for topic_id, topic in image.topics.items():
        for number, partition in topic.partitions.items():
            if how.broker_id not in partition.replicas:
                continue
            key = topic_id, number
            assigned = partition.directory(how.broker_id)
            places = _places(image, fates.get(key), how.broker_id, assigned, listed, online)
            there = places & online
            whole = bool(there) and places <= online
            current = (assigned if assigned in there else min(there)) if whole else None
            target = classify_target(assigned, online, image.ids)
            chosen = decide(target, classify_holding(assigned, current, None), how.has_offline, profile.broker)
            if chosen.step is ReplicaStep.SKIP:
                yield key, _Log(None)
            elif current is not None:
                yield key, _Log(current)
            else:
                elsewhere = [directory for directory in how.directories if directory not in places]
                free = assigned if target.name == "ONLINE" else (elsewhere or list(how.directories))[-1]
                yield key, _Log(free, created=True, perhaps=bool(there) or not places)


def _places(
    image: Image, fate: Fate | None, broker_id: int, assigned: Uuid, listed: frozenset[Uuid], online: frozenset[Uuid]
) -> frozenset[Uuid]:
    """The directories where the log can lie. Empty: anywhere."""
    copy = None if fate is None else fate.copies.get(broker_id)
    if fate is None or copy is None:
        return frozenset({assigned}) if image.ids.kind(assigned) == "assigned" else listed
    older = _older(fate, copy, online)
    if older is not None:
        return older
    return copy.places if copy.directory is None else frozenset({copy.directory})


def _older(fate: Fate, copy: Copy, online: frozenset[Uuid]) -> frozenset[Uuid] | None:
    """Where a last copy lies whose replica was recreated elsewhere, if its disk is back: its newer folder leaves before
    the start (R-ACT-7), as no replica leads yet."""
    pending = fate.losses and fate.losses[-1].went_on is None and fate.losses[-1].until is None
    if not pending or copy.usable:
        return None
    for old in fate.gone:
        places = old.places if old.directory is None else frozenset({old.directory})
        if old.broker_id == copy.broker_id and old.given_up == "recreated" and places and places <= online:
            return places
    return None


# RECORDS


@dataclass
class _Play:
    """The cluster while the broker starts."""

    image: Image
    fates: dict[Key, Fate]
    offset: int
    profile: Profile
    static_configs: Mapping[str, str]
    reported: bool = False

    def stop(self, broker_id: int) -> None:
        """Shut the broker down in order: its leaderships move, then it may stop (R-HB-2)."""
        for _ in range(2):
            epoch = self.image.brokers[broker_id].epoch
            self._ask(
                BrokerHeartbeatRequest(
                    broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=FAR, want_shut_down=True
                )
            )

    def register(self, how: NextStart) -> None:
        """The next process registers. Raises RequestRefused."""
        known = self.image.brokers.get(how.broker_id)
        levels = self.image.features.items()
        request = BrokerRegistrationRequest(
            broker_id=how.broker_id,
            incarnation_id=NEXT_PROCESS,
            features=tuple(
                BrokerFeature(name=name, min_supported_version=0, max_supported_version=level) for name, level in levels
            ),
            rack=None if known is None else known.rack,
            log_dirs=tuple(sorted(how.directories)),
            previous_broker_epoch=known.epoch if how.clean and known is not None else -1,
        )
        in_order = how.was_stopped if known is None else known.fenced and known.in_controlled_shutdown
        self._ask(request, unclean=not in_order)

    def unfence(self, broker_id: int) -> None:
        """The process has caught up."""
        epoch = self.image.brokers[broker_id].epoch
        self._ask(BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=FAR))

    def report(self, broker_id: int, logs: Mapping[Key, _Log]) -> None:
        """The process reports where its logs are, if the metadata says something else."""
        if not directories_supported(self.image.features.get(METADATA_VERSION, 0)):
            return
        moved: dict[Uuid, dict[Uuid, list[int]]] = {}
        for (topic_id, number), log in logs.items():
            partition = self.image.topics[topic_id].partitions[number]
            if broker_id not in partition.replicas:  # R-QUEUE-4
                continue
            if log.directory is not None and log.directory != partition.directory(broker_id):
                moved.setdefault(log.directory, {}).setdefault(topic_id, []).append(number)
        if moved:
            self.reported = True
            directories = tuple(
                AssignedDirectory(id=directory, topics=_topics(topics)) for directory, topics in moved.items()
            )
            epoch = self.image.brokers[broker_id].epoch
            self._ask(AssignReplicasToDirsRequest(broker_id=broker_id, broker_epoch=epoch, directories=directories))

    def _ask(self, request: Request, *, unclean: bool = False) -> None:
        """Let the controller answer, and apply what it writes."""
        context = Context(next_offset=self.offset, static_configs=self.static_configs)
        answer = Controller(self.profile).handle(self.image, request, context)
        before, records = self.image, answer.records
        self.image = applied(before, records, self.profile)
        for key, event in _events(before, records, self.offset, self.profile, unclean=unclean):
            for partition_key in self.fates if key is None else [key]:
                if partition_key in self.fates:
                    self.fates[partition_key] = _after(self.fates[partition_key], event)
        self.offset += len(records)


def _topics(topics: Mapping[Uuid, Sequence[int]]) -> tuple[AssignedTopic, ...]:
    return tuple(
        AssignedTopic(
            topic_id=topic_id, partitions=tuple(AssignedPartition(partition_index=number) for number in numbers)
        )
        for topic_id, numbers in topics.items()
    )


def _events(
    image: Image, records: Sequence[VersionedRecord], first: int, profile: Profile, *, unclean: bool
) -> Iterator[tuple[Key | None, Event]]:
    """What the records of an append are for the partitions; the key is None for all of them."""
    states: dict[Key, Partition] = {}
    last = {key: place for place, key in enumerate(map(_key, records)) if key is not None}
    for place, versioned in enumerate(records):
        record, offset, key = versioned.record, first + place, _key(versioned)
        if key is not None and isinstance(record, PartitionChangeRecord):
            before = states.get(key) or image.topics[key[0]].partitions[key[1]]
            states[key] = before.merge(record, image.ids, profile)
            yield key, Version(offset=offset, state=states[key], superseded=place < last[key])
            continue
        after = image.apply(record, offset, profile=profile)
        for broker_id in _changed(image, after):
            registration = _registration(after.brokers.get(broker_id))
            yield (
                None,
                BrokerChanged(
                    offset=offset, broker_id=broker_id, registration=registration, unclean=unclean, first=first
                ),
            )
        image = after


def _key(versioned: VersionedRecord) -> Key | None:
    record = versioned.record
    return (record.topic_id, record.partition_id) if isinstance(record, PartitionChangeRecord) else None


def _changed(before: Image, after: Image) -> Iterable[int]:
    """Brokers whose registration changed in a way that matters to copies."""
    brokers = {*before.brokers, *after.brokers}
    return sorted(
        broker_id
        for broker_id in brokers
        if _registration(before.brokers.get(broker_id)) != _registration(after.brokers.get(broker_id))
    )


def _registration(broker: BrokerRegistration | None) -> Registration | None:
    if broker is None:
        return None
    return Registration(
        directories=frozenset(broker.directories), incarnation=broker.incarnation_id, fenced=broker.fenced
    )


def _after(fate: Fate, event: Event) -> Fate:
    """The fate after an event. It knows the brokers of its replicas, and whether a later process of one reported before
    it registered (R-COPY-12), which no record here changes."""
    if isinstance(event, BrokerChanged):
        known = fate.brokers.get(event.broker_id)
        if event.broker_id not in fate.copies:
            return fate
        if known is not None and event.registration is not None and known.incarnation == event.registration.incarnation:
            event = replace(event, registration=replace(event.registration, starting=known.starting))
    return fate.after(event)
