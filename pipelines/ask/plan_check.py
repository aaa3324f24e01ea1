"""Judges a reassignment file before it runs: ours, Cruise Control's or a person's.

The model's controller plays the plan (``jbod_model.plan``) on the partitions that the file names.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jbod_model.controller.cluster import MIN_ISR
from jbod_model.errors import UsageError
from jbod_model.ids import Uuid
from jbod_model.plan import Outcome, Target, can_join, outcomes
from jbod_model.replay.image import BrokerRegistration, Image, Partition
from pipelines.ask.advice import brokers_in_words
from pipelines.ask.configs import MinIsr, forgotten, min_isr, oldest_rules
from pipelines.ask.json_values import DatedAnswer, NamedPartition, members
from pipelines.ask.lost_data import losses, perhaps_offline
from pipelines.ask.starting import not_taken_back, until_restart, without_a_disk
from pipelines.ask.whatif_places import as_repaired, directories_by_path, image_of
from pipelines.lake.reader import Lake

MAX_BYTES = 256 << 20
MOST = 1 << 31
GENERATED = "Current partition replica assignment"
"""How the output of ``kafka-reassign-partitions --generate`` begins."""
REFUSED, NO_COPY, UNCLEAN, STUCK, UNDER_MIN_ISR, DIRECTORY, NO_ROOM = (
    "refused",
    "no complete copy",
    "unclean election",
    "never done",
    "under min.insync.replicas",
    "directory",
    "no room",
)
NEVER_ENDS = (
    "a replica that is being added would be removed, which a controller of release 4.3 or later never ends: cancel the "
    "reassignment first (kafka-reassign-partitions --cancel)"
)
"""Why a reassignment back to some of the replicas is never done (R-RELEASE-4)."""
NO_WAY_BACK = "do not cancel it while no old replica is in sync: Kafka refuses that, or elects one that may lack writes"
"""R-REASSIGN-3, R-REASSIGN-5."""
BLOCKING = (REFUSED, NO_COPY, UNCLEAN, STUCK, UNDER_MIN_ISR, DIRECTORY, NO_ROOM)
"""What a plan must not have. Directory: one that a replica is to be placed in is offline, cordoned or elsewhere."""
RACKS, FEWER, REPLACES, CANCEL, PATH, NOTHING = (
    "fewer racks",
    "fewer replicas",
    "replaces a reassignment",
    "one replica to go back to",
    "unknown path",
    "nothing to do",
)


@dataclass(frozen=True)
class Planned(NamedPartition):
    """A partition of the file."""

    replicas: Sequence[int]
    target: Sequence[int]
    leader: int = -1
    leader_after: int = -1
    """-1: nobody."""
    in_sync: int = 0
    in_sync_after: int = 0
    """When every replica that can has joined."""
    min_isr_after: int = 0
    racks: int = 0
    racks_after: int = 0
    disk_moves: int = 0
    """Replicas that stay on their broker, and for which the file names a directory."""
    refused: str = ""
    """Why the controller refuses it; empty if it does not."""
    why: Mapping[str, str] = field(default_factory=dict)
    """Finding -> what it is about: the broker or directory."""

    @property
    def findings(self) -> Sequence[str]:
        """What is found."""
        return tuple(self.why)

    @property
    def reason(self) -> str:
        """What all findings are about."""
        return "; ".join(dict.fromkeys(why for why in self.why.values() if why))

    @property
    def adds(self) -> Sequence[int]:
        """Brokers that get a replica."""
        return [broker for broker in self.target if broker not in self.replicas]

    @property
    def removes(self) -> Sequence[int]:
        """Brokers that lose theirs."""
        return [broker for broker in self.replicas if broker not in self.target]

    @property
    def blocks(self) -> bool:
        """Whether the plan must not run as it is."""
        return any(finding in BLOCKING for finding in self.findings)

    @property
    def leader_moves(self) -> bool:
        """Whether another replica leads in the end."""
        return self.leader >= 0 and self.leader_after not in (-1, self.leader)


@dataclass(frozen=True)
class PlanCheck(DatedAnswer):
    """The answer."""

    partitions: Sequence[Planned]
    """Those with findings that block first, then by topic and number."""
    notes: Sequence[str] = ()
    """What could not be used or checked, a line each."""
    fault: str = ""
    """Defects that Kafka's controller (4.1) would meet. The answer is that of a repaired controller. Usually empty."""

    @property
    def ok(self) -> bool:
        """Whether nothing blocks."""
        return not any(partition.blocks for partition in self.partitions)

    @property
    def groups(self) -> Mapping[str, Sequence[Planned]]:
        """Finding -> its partitions, those that block first."""
        partitions_of: dict[str, list[Planned]] = {}
        for finding in (*BLOCKING, RACKS, FEWER, REPLACES, CANCEL, PATH, NOTHING):
            hit = [partition for partition in self.partitions if finding in partition.findings]
            if hit:
                partitions_of[finding] = hit
        return partitions_of

    @property
    def copies(self) -> Mapping[int, int]:
        """Broker -> replicas that it has to copy. As of both counts below, partitions that are refused have none."""
        return dict(sorted(Counter(broker for partition in self._accepted for broker in partition.adds).items()))

    @property
    def leaders_move(self) -> int:
        """Partitions that another replica leads in the end."""
        return sum(partition.leader_moves for partition in self._accepted)

    @property
    def disk_moves(self) -> int:
        """Replicas that stay on their broker, and for which the file names a directory."""
        return sum(partition.disk_moves for partition in self._accepted)

    @property
    def _accepted(self) -> Sequence[Planned]:
        return [partition for partition in self.partitions if REFUSED not in partition.why]

    def as_json(self) -> dict[str, Any]:
        """One JSON object."""
        return {
            **members(self, "offset", "time", "ok"),
            "findings": {finding.replace(" ", "_"): len(partitions) for finding, partitions in self.groups.items()},
            "copies": {str(broker): count for broker, count in self.copies.items()},
            **members(self, "leaders_move", "disk_moves", "partitions", "notes", "fault"),
        }


def check_plan(lake: Lake, file: str, default_min_isr: int = 1) -> PlanCheck:
    """Judges a file as ``kafka-reassign-partitions --execute`` takes it, at the lake's offset.

    Raises UsageError if it is no such file.
    """
    return judge(lake, read_plan(file), without_a_disk(lake), default_min_isr)


def judge(
    lake: Lake,
    entries: Mapping[Target, ReassignedPartition],
    broken: Collection[int],
    default_min_isr: int = 1,
    paths: Mapping[tuple[int, str], str] | None = None,
    refusal: Callable[[int, str], str] = lambda _broker, _path: "",
) -> PlanCheck:
    """The same for partitions of a file.

    ``broken``: brokers that have lost a disk (R-HOST-5). ``paths``: (broker, path) -> directory, besides what the lake
    knows. ``refusal``: why a broker refuses a path, by sources; empty if they say nothing against it.
    """
    select_wanted(lake, entries)
    image = image_of(lake, "(topic, partition) IN (SELECT (topic, partition) FROM plan_wanted)")
    known = {key: entry for key, entry in entries.items() if _find(image, key) is not None}
    plan = {key: entry.replicas for key, entry in known.items()}
    static = {MIN_ISR: str(default_min_isr)}
    played, fault = as_repaired(
        lambda rules: outcomes(image, plan, profile=rules, static_configs=static), oldest_rules(lake)
    )
    judged = _Judge(
        lake,
        image,
        played,
        min_isr(lake, default_min_isr),
        _uncopied(lake, image, default_min_isr),
        directories_by_path(lake, paths),
        broken,
        refusal,
        not_taken_back(lake),
        perhaps_offline(lake, default_min_isr),
    )
    partitions = [judged.planned(key, entry) for key, entry in entries.items()]
    return PlanCheck(lake.offset, lake.time, by_finding(partitions), fault=fault)


def by_finding(partitions: Sequence[Planned]) -> Sequence[Planned]:
    """Those that are blocked first, then those with findings, by topic and number."""
    return sorted(
        partitions,
        key=lambda partition: (not partition.blocks, not partition.findings, partition.topic, partition.partition),
    )


# THE FILE


@dataclass(frozen=True)
class ReassignedPartition:
    """A partition in a reassignment file."""

    replicas: tuple[int, ...]
    log_dirs: tuple[str, ...] = ()
    """A path for each replica, or ``any``; empty if the file names none."""

    @property
    def places(self) -> Sequence[tuple[int, str]]:
        """(broker, path), with ``any`` where the file names none."""
        return [*zip(self.replicas, self.log_dirs or ["any"] * len(self.replicas), strict=False)]


def read_plan(file: str) -> dict[Target, ReassignedPartition]:
    """The partitions of a reassignment file. Raises UsageError for anything else."""
    path = Path(file)
    if path.is_file() and path.stat().st_size > MAX_BYTES:
        raise UsageError(f"{file}: larger than {MAX_BYTES:,} bytes, so it is no reassignment")
    try:
        text = path.read_text(encoding="utf-8")
        if text.startswith(GENERATED):
            raise UsageError(f"{file}: printed by --generate: keep only the line below 'Proposed partition ...'")
        content = json.loads(text)
        if content.get("version", 1) != 1:
            raise UsageError(f"{file}: version {content['version']}: kafka-reassign-partitions takes version 1")
        listed = content["partitions"]
        entries: dict[Target, ReassignedPartition] = {}
        for partition in listed:
            key, entry = _entry(partition)
            if key in entries:
                raise UsageError(f"{file}: names {key[0]}-{key[1]} twice")
            if "log_dirs" in partition and len(entry.log_dirs) != len(entry.replicas):
                raise UsageError(
                    f"{file}: {key[0]}-{key[1]} has {len(entry.log_dirs)} log_dirs for {len(entry.replicas)} replicas"
                )
            entries[key] = entry
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        fault = f"{problem} is missing" if isinstance(problem, KeyError) else problem
        raise UsageError(f"{file}: not a file that kafka-reassign-partitions takes: {fault}") from None
    if not entries:
        raise UsageError(f"{file}: names no partition")
    return entries


def _entry(partition: Mapping[str, Any]) -> tuple[Target, ReassignedPartition]:
    replicas, log_dirs = partition["replicas"], partition.get("log_dirs") or []
    if not isinstance(replicas, list) or not isinstance(log_dirs, list):
        raise TypeError("replicas and log_dirs are lists")
    # Half a surrogate pair is no text: it cannot be encoded.
    topic, *paths = (str(name).encode().decode() for name in (partition["topic"], *log_dirs))
    return (topic, _number(partition["partition"])), ReassignedPartition(tuple(map(_number, replicas)), tuple(paths))


def _number(value: object) -> int:
    """An INT32 of Kafka's protocol."""
    if type(value) is not int or not -MOST <= value < MOST:
        raise ValueError(f"{value!r}: not the number of a broker or partition")
    return value


def select_wanted(lake: Lake, entries: Mapping[Target, ReassignedPartition]) -> None:
    """Makes the temporary table plan_wanted: topic, partition and target (the brokers) of each partition."""
    rows = [(topic, number, [*entry.replicas]) for (topic, number), entry in entries.items()]
    lake.make("plan_wanted", "topic VARCHAR, partition INT, target INT[]", rows)


def _find(image: Image, key: Target) -> Partition | None:
    topic = image.topic(key[0])
    return None if topic is None else topic.partitions.get(key[1])


def _uncopied(lake: Lake, image: Image, default_min_isr: int) -> frozenset[str]:
    """The partitions that have no complete copy online: a reassignment copies nothing then (R-ACT-6)."""
    led = all(
        partition.leader in image.brokers
        and not image.brokers[partition.leader].fenced
        and _is_listed(image, partition)
        for topic in image.topics.values()
        for partition in topic.partitions.values()
    )
    if led:
        return frozenset()
    shapes = losses(lake, default_min_isr).last_copies.shapes
    return frozenset(f"{topic}-{number}" for _, members in shapes for topic, number in members)


def _is_listed(image: Image, partition: Partition) -> bool:
    """Whether the leader's directory is online, or none is known."""
    if partition.leader not in partition.replicas:
        return False
    directory, listed = partition.directory(partition.leader), image.brokers[partition.leader].directories
    return image.ids.kind(directory) == "assigned" and (not listed or directory in listed)


# JUDGEMENT


@dataclass(frozen=True)
class _Judge:
    lake: Lake
    image: Image
    played: Mapping[Target, Outcome]
    min_isr: MinIsr
    uncopied: frozenset[str]
    paths: Mapping[tuple[int, str], str]
    """(broker, path) -> directory, for the paths that the lake knows."""
    broken: Collection[int]
    refusal: Callable[[int, str], str]
    not_taken_back: Mapping[tuple[str, int, int], str]
    """Topic, partition, broker -> the directory that failed with a replica (R-HOST-3)."""
    perhaps_offline: Mapping[tuple[str, int], Collection[int]]
    """Topic id, partition -> the brokers whose replica counts as online, and may not be (R-ACT-1)."""

    def planned(self, key: Target, entry: ReassignedPartition) -> Planned:
        """One partition, with its findings."""
        topic, number = key
        was = _find(self.image, key)
        if was is None:
            why = f"there is no partition {topic}-{number} at offset {self.lake.offset}"
            return Planned(topic, number, (), entry.replicas, refused=why, why={REFUSED: why})
        outcome = self.played[key]
        partition = Planned(
            topic=topic,
            partition=number,
            replicas=was.replicas,
            target=entry.replicas,
            leader=was.leader,
            leader_after=outcome.leader,
            in_sync=len(was.isr),
            in_sync_after=len(outcome.isr),
            min_isr_after=self.min_isr.of(topic, len(entry.replicas)),
            racks=self._racks([each for each in was.replicas if each not in was.adding_replicas]),
            racks_after=self._racks(entry.replicas),
            disk_moves=sum(
                path != "any" and broker in was.replicas
                for broker, path in zip(entry.replicas, entry.log_dirs, strict=False)
            ),
            refused=outcome.refused,
        )
        reasons: dict[str, list[str]] = {}
        for finding, why in [*self._findings(partition, was, outcome), *self._places(entry, was)]:
            reasons.setdefault(finding, []).append(why)
        return replace(partition, why={finding: "; ".join(filter(None, whys)) for finding, whys in reasons.items()})

    def _findings(self, partition: Planned, was: Partition, done: Outcome) -> Iterator[tuple[str, str]]:
        if partition.refused:
            yield REFUSED, partition.refused
            return
        if partition.name in self.uncopied and (partition.adds or partition.removes):
            yield NO_COPY, "no complete copy is online"
        perhaps = self.perhaps_offline.get((str(self.image.topic_ids[partition.topic]), partition.partition), ())
        if partition.removes and {*partition.target} <= {*perhaps}:  # nothing is copied before the others are deleted
            yield NO_COPY, f"{brokers_in_words(partition.target)} may have it in a directory that is not online"
        if done.begun_recovery > was.leader_recovery_state or done.begun_leader not in (-1, was.leader, *was.named):
            yield UNCLEAN, f"broker {done.begun_leader} is elected, which lacks writes"
        dead = [broker for broker in partition.target if not _runs(self.image.brokers.get(broker))]
        new = [broker for broker in dead if broker in partition.adds]
        if done.adding or done.removing or (new and partition.adds):
            yield STUCK, self._why_stuck(was, done, new or dead, partition)
        elif kept := [broker for broker in partition.target if broker not in done.replicas]:  # R-REASSIGN-7
            yield (
                STUCK,
                f"the reassignment under way removes {brokers_in_words(kept)}, and a file that removes no other "
                "replica does not take that back: cancel it first (kafka-reassign-partitions --cancel)",
            )
        elif (partition.adds or partition.removes) and was.leader >= 0 > done.leader:
            yield STUCK, "no replica would lead in the end"
        elif failed := self._failed(partition):
            yield STUCK, "; ".join(until_restart(*place) for place in failed)
        elif down := [broker for broker in dead if self.image.brokers[broker].fenced]:  # it knows no fenced brokers
            yield REFUSED, f"kafka-reassign-partitions takes no file with {brokers_in_words(down)}: fenced"
        if partition.in_sync_after < partition.min_isr_after <= partition.in_sync:
            yield UNDER_MIN_ISR, f"{partition.in_sync_after} in sync, {partition.min_isr_after} needed"
        # Replicas that are being added count: Kafka's effectiveMinIsr is at most the number of all replicas.
        needed = self.min_isr.of(partition.topic, len({*was.replicas, *partition.target}))
        if partition.adds and self.min_isr.of(partition.topic, len(was.replicas)) <= partition.in_sync < needed:
            yield (
                UNDER_MIN_ISR,
                f"{partition.in_sync} in sync, {needed} needed until the copy is done: set min.insync.replicas of "
                f"{partition.topic} to {partition.in_sync} before it begins{forgotten(self.lake, partition.topic)}",
            )
        if partition.racks_after < partition.racks:
            yield RACKS, f"{partition.racks_after} in place of {partition.racks}"
        size = len(was.replicas) - len(was.adding_replicas)
        if len(partition.target) < size:
            yield FEWER, f"{len(partition.target)} in place of {size}"
        if was.adding_replicas or was.removing_replicas:
            dropped = [broker for broker in was.adding_replicas if broker not in partition.target]
            yield REPLACES, f"{brokers_in_words(dropped)} may have copied already" if dropped else ""
            yield REPLACES, NO_WAY_BACK if leaves_none_in_sync(was.isr, was.adding_replicas) else ""
        kept = [
            broker for broker in was.isr if broker not in was.adding_replicas and _runs(self.image.brokers.get(broker))
        ]
        if partition.adds and len(kept) == 1:  # R-REASSIGN-3, R-REASSIGN-5
            yield CANCEL, f"only broker {kept[0]}"
        if (
            not partition.adds
            and not partition.removes
            and not partition.disk_moves
            and tuple(partition.target) == tuple(was.replicas)
        ):
            yield NOTHING, ""

    def _failed(self, partition: Planned) -> Sequence[tuple[int, str]]:
        """The brokers that do not take the replica back, and the directory that failed with it."""
        key = partition.topic, partition.partition
        back = [broker for broker in partition.target if (*key, broker) in self.not_taken_back]
        return [(broker, self.not_taken_back[*key, broker]) for broker in back]

    def _why_stuck(self, was: Partition, done: Outcome, dead: Sequence[int], partition: Planned) -> str:
        if done.begun_leader < 0:
            named = sorted(was.named)
            return "no replica leads, so there is nothing to copy from" + (
                f": in sync or eligible is {brokers_in_words(named)}" if named else ""
            )
        if {*done.adding} & {*done.removing}:
            return NEVER_ENDS
        if dead:
            return f"{brokers_in_words(dead)} cannot copy: fenced, or shutting down"
        away = [broker for broker in partition.target if broker not in done.isr]
        if never := [broker for broker in away if not can_join(self.image, was, broker)]:
            return f"the replica on {brokers_in_words(never)} is in a directory that is not online: jbod plan repair"
        return f"{brokers_in_words(away) if away else 'a replica that stays'} is not in sync"

    def _places(self, entry: ReassignedPartition, was: Partition) -> Iterator[tuple[str, str]]:
        """The directories that the file names."""
        held = dict(zip(was.replicas, map(str, was.directories), strict=False))
        for broker, path in entry.places:
            known = self.image.brokers.get(broker)
            if path == "any":
                full = known is not None and known.directories and {*known.directories} <= {*_cordoned(known)}
                if full and broker not in held:
                    yield DIRECTORY, f"every directory of broker {broker} is cordoned"
                continue
            named = self.paths.get((broker, path))
            if not path.startswith("/"):
                yield DIRECTORY, f"{path!r} of broker {broker} is not the whole path of a log directory, nor any"
            elif refusal := self.refusal(broker, path):
                yield DIRECTORY, refusal
            elif named is None:
                yield PATH, f"{path} of broker {broker}"
            elif known is None or (known.directories and named not in map(str, known.directories)):
                yield DIRECTORY, f"{path} of broker {broker} is not online"
            elif named in map(str, _cordoned(known)):
                yield DIRECTORY, f"{path} of broker {broker} is cordoned"
            elsewhere = broker in self.broken and held.get(broker, named) != named
            if elsewhere and self.image.ids.kind(was.directory(broker)) == "assigned":
                yield DIRECTORY, f"broker {broker} has lost a disk: it moves nothing between its disks until a restart"

    def _racks(self, brokers: Sequence[int]) -> int:
        known = [self.image.brokers[broker].rack for broker in brokers if broker in self.image.brokers]
        return len({rack for rack in known if rack is not None})


def _cordoned(broker: BrokerRegistration) -> Sequence[Uuid]:
    return broker.cordoned_directories or ()


def _runs(broker: BrokerRegistration | None) -> bool:
    return broker is not None and broker.is_active


def leaves_none_in_sync(isr: Sequence[int], adding: Sequence[int]) -> bool:
    """Whether no replica in sync is left once a reassignment is cancelled (R-REASSIGN-3)."""
    return {*isr} <= {*adding}
