"""What a change of a configuration or of a feature does to the partitions, by the model's controller.

Only the partitions that the change can matter to are asked about: those without a leader, with eligible leaders, or
with a replica that is not in sync.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from jbod_model.controller import Context
from jbod_model.controller.cluster import MIN_ISR
from jbod_model.errors import UsageError
from jbod_model.formats.metadata_version import ELR_FEATURE
from jbod_model.formats.records import BrokerFeature
from jbod_model.formats.requests import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    AlterableConfig,
    AlterConfigsResource,
    FeatureUpdate,
    IncrementalAlterConfigsRequest,
    UpdateFeaturesRequest,
)
from jbod_model.formats.responses import RequestRefused
from jbod_model.profiles import PROFILES
from jbod_model.replay.image import Image, Partition
from jbod_model.whatif import configured
from pipelines.ask.configs import (
    UNCLEAN_ELECTION,
    ConfigValues,
    features,
    of_active_controller,
    setting,
    tiered_topics,
)
from pipelines.ask.json_values import DatedAnswer, NamedPartition, members
from pipelines.ask.lost_data import complete_copies
from pipelines.ask.whatif_places import as_repaired, image_of
from pipelines.lake.delta import literal
from pipelines.lake.reader import Lake

KNOWN = (MIN_ISR, UNCLEAN_ELECTION, ELR_FEATURE)


@dataclass(frozen=True)
class ReconfiguredPartition(NamedPartition):
    """A partition that the change matters to."""

    replicas: Sequence[int]
    leader: int
    leader_after: int
    """-1: nobody."""
    isr: Sequence[int]
    isr_after: Sequence[int]
    eligible: Sequence[int]
    """Replicas that may be elected although they are not in sync (ELR), or the last known leader if nobody else may."""
    eligible_after: Sequence[int]
    min_isr: int
    min_isr_after: int
    lacks_writes: bool = False
    """A replica would be elected that does not have every acknowledged write."""
    tiered: bool = False
    """Whether only the local part of its data is at stake, which was not copied to remote storage yet."""

    @property
    def refuses_writes(self) -> bool:
        """Writes with acks=all would be refused, and are accepted now."""
        return self.leader_after >= 0 and len(self.isr) >= self.min_isr and len(self.isr_after) < self.min_isr_after

    @property
    def accepts_writes(self) -> bool:
        """Writes with acks=all would be accepted, and are refused now."""
        refused = self.leader < 0 or len(self.isr) < self.min_isr
        return refused and self.leader_after >= 0 and len(self.isr_after) >= self.min_isr_after

    @property
    def loses_eligible(self) -> bool:
        """It would lose eligible leaders."""
        return not self.elects and not {*self.eligible} <= {*self.eligible_after}

    @property
    def stranded(self) -> bool:
        """Without a leader, and no replica could be elected any more but uncleanly."""
        return self.loses_eligible and self.leader_after < 0 and not self.isr_after and not self.eligible_after

    @property
    def elects(self) -> bool:
        """It would elect a leader at once."""
        return self.leader < 0 <= self.leader_after

    @property
    def matters(self) -> bool:
        """Whether anything changes for clients or for later elections."""
        return self.refuses_writes or self.accepts_writes or self.loses_eligible or self.elects


@dataclass(frozen=True)
class ConfigEffect(DatedAnswer):
    """The answer."""

    name: str
    value: str
    topics: Sequence[str]
    """The topics for which it is set; empty: for all brokers, or for single ones."""
    brokers: Sequence[int]
    before: Mapping[str, str]
    """The values now: of each topic or broker that is named, or "" for all brokers. Left out where none is set."""
    refused: str
    """Why the controller refuses it; empty if it does not."""
    changes: Sequence[ReconfiguredPartition]
    """The partitions that it matters to, those that lose writes or service first."""
    at_limit: int
    """Partitions with a leader that would refuse writes as soon as one more replica leaves the in-sync set, and do not
    now."""
    removed_from: Sequence[int] = ()
    """Brokers whose own value of min.insync.replicas is removed (R-FEAT-4)."""
    fault: str = ""
    """Defects that Kafka's controller (4.1) would meet. The answer is that of a repaired controller. Usually empty."""

    @property
    def unchanged(self) -> bool:
        """Whether it has this value already, wherever it would be set."""
        scopes = [*self.topics, *map(str, self.brokers)] or [""]
        return all(self.before.get(scope) == self.value for scope in scopes)

    def chosen(self, what: str) -> list[ReconfiguredPartition]:
        """The changes for which a property of `ReconfiguredPartition` holds."""
        return [change for change in self.changes if getattr(change, what)]

    def as_json(self) -> dict[str, Any]:
        """One JSON object."""
        counts = ("refuses_writes", "accepts_writes", "loses_eligible", "stranded", "elects", "lacks_writes")
        return {
            **members(self, "offset", "time"),
            "config": {"name": self.name, "value": self.value, "topics": self.topics, "brokers": self.brokers},
            **members(self, "before", "unchanged", "refused"),
            **{what: len(self.chosen(what)) for what in counts},
            **members(self, "at_limit", "removed_from", "changes", "fault"),
        }


def whatif_config(
    lake: Lake,
    text: str,
    topics: Sequence[str] = (),
    brokers: Sequence[int] = (),
    default_min_isr: int = 1,
) -> ConfigEffect:
    """What the change ``NAME=VALUE`` does, for all brokers, for topics (names, or patterns with ``*``), or for brokers.

    Raises UsageError for an unknown configuration, topic or broker.
    """
    name, given, value = text.partition("=")
    if not given or name not in KNOWN:
        raise UsageError(f"--config {text}: write NAME=VALUE, with one of {', '.join(KNOWN)}")
    if name != UNCLEAN_ELECTION and not (value.isascii() and value.isdecimal() and len(value) < 10):
        raise UsageError(f"--config {text}: {name} is a number")
    if name == UNCLEAN_ELECTION and value.lower() not in ("true", "false"):
        raise UsageError(f"--config {text}: {name} is true or false")
    if (name == ELR_FEATURE and (topics or brokers)) or (name == UNCLEAN_ELECTION and brokers) or (topics and brokers):
        where = {MIN_ISR: "either --topic or --broker", UNCLEAN_ELECTION: "--topic or neither", ELR_FEATURE: "neither"}
        raise UsageError(f"--config {name}: give {where[name]}")
    named = _named(lake, topics) if topics else []
    player = _Player(lake, name, value, named, brokers, default_min_isr, setting(lake, MIN_ISR))
    return player.answer()


def _named(lake: Lake, patterns: Sequence[str]) -> list[str]:
    known = [topic for (topic,) in lake.query(f"SELECT DISTINCT topic FROM {lake.at('partitions')} ORDER BY topic")]
    topics = {topic for pattern in patterns for topic in known if fnmatchcase(topic, pattern)}
    missing = [pattern for pattern in patterns if not any(fnmatchcase(topic, pattern) for topic in known)]
    if missing:
        raise UsageError(f"--topic {missing[0]}: no such topic at offset {lake.offset}")
    return sorted(topics)


# PLAY


@dataclass
class _Player:
    """Plays one change."""

    lake: Lake
    name: str
    value: str
    topics: Sequence[str]
    brokers: Sequence[int]
    default_min_isr: int
    min_isr: ConfigValues
    fault: str = field(default="", init=False)

    def answer(self) -> ConfigEffect:
        """What the change does."""
        image = self._played(self._image(), IncrementalAlterConfigsRequest())  # what happens without the change
        refused, after = "", image
        try:
            after = self._played(image, self._request())
        except RequestRefused as problem:
            refused = problem.problem
        changes = [] if refused else list(self._changes(image, after))
        removed = self.min_isr.brokers if self.name == ELR_FEATURE and int(self.value) else {}
        return ConfigEffect(
            offset=self.lake.offset,
            time=self.lake.time,
            name=self.name,
            value=self.value,
            topics=self.topics,
            brokers=self.brokers,
            before=self._before(),
            refused=refused,
            changes=sorted(self._judged(changes), key=_order),
            at_limit=0 if refused or self.name != MIN_ISR else self._at_limit(),
            removed_from=sorted(removed),
            fault=self.fault,
        )

    def _image(self) -> Image:
        """The partitions that the change can matter to; every broker supports every level of a feature."""
        named = ", ".join(map(literal, self.topics)) or "NULL"
        doubtful = (
            "(leader = -1 OR len(elr) > 0 OR len(last_known_elr) > 0 OR len(isr) < len(replicas) "
            f"OR (partition = 0 AND topic IN ({named})))"
        )
        image = image_of(self.lake, doubtful)
        every = (BrokerFeature(name=ELR_FEATURE, min_supported_version=0, max_supported_version=1),)
        brokers = {number: replace(broker, features=every) for number, broker in image.brokers.items()}
        single = {(BROKER_RESOURCE, str(broker)): {MIN_ISR: value} for broker, value in self.min_isr.brokers.items()}
        own = of_active_controller(self.lake, setting(self.lake, UNCLEAN_ELECTION))
        if own is not None:  # it stays before a new value of all (R-CFG-1)
            single[BROKER_RESOURCE, str(Context().controller_id)] = {UNCLEAN_ELECTION: own}
        return replace(image, brokers=brokers, configs={**image.configs, **single})

    def _played(self, image: Image, request: IncrementalAlterConfigsRequest | UpdateFeaturesRequest) -> Image:
        static = {MIN_ISR: str(self.default_min_isr)}
        then, fault = as_repaired(
            lambda rules: configured(image, request, profile=rules, static_configs=static),
            PROFILES[self.lake.published.profile],
        )
        self.fault = fault or self.fault
        return then

    def _request(self) -> IncrementalAlterConfigsRequest | UpdateFeaturesRequest:
        if self.name == ELR_FEATURE:
            kind = UPGRADE if int(self.value) >= self._level else UNSAFE_DOWNGRADE
            update = FeatureUpdate(feature=ELR_FEATURE, max_version_level=int(self.value), upgrade_type=kind)
            return UpdateFeaturesRequest(feature_updates=(update,))
        resources = [(TOPIC_RESOURCE, topic) for topic in self.topics]
        resources += [(BROKER_RESOURCE, str(broker)) for broker in self.brokers]
        config = (AlterableConfig(name=self.name, value=self.value),)
        return IncrementalAlterConfigsRequest(
            resources=tuple(
                AlterConfigsResource(resource_type=kind, resource_name=of, configs=config)
                for kind, of in resources or [(BROKER_RESOURCE, "")]
            )
        )

    @property
    def _level(self) -> int:
        return features(self.lake).get(ELR_FEATURE, 0)

    def _before(self) -> dict[str, str]:
        if self.name == ELR_FEATURE:
            return {"": str(self._level)}
        values = setting(self.lake, self.name)
        if self.topics:
            return {topic: values.topics[topic] for topic in self.topics if topic in values.topics}
        if self.brokers:
            return {str(broker): values.brokers[broker] for broker in self.brokers if broker in values.brokers}
        return {} if values.cluster is None else {"": values.cluster}

    def _changes(self, before: Image, after: Image) -> Iterator[ReconfiguredPartition]:
        tiered = tiered_topics(self.lake)
        for topic_id, topic in before.topics.items():
            for number, was in topic.partitions.items():
                will = after.topics[topic_id].partitions[number]
                change = ReconfiguredPartition(
                    topic=topic.name,
                    partition=number,
                    replicas=was.replicas,
                    leader=was.leader,
                    leader_after=will.leader,
                    isr=was.isr,
                    isr_after=will.isr,
                    eligible=_eligible(before, was),
                    eligible_after=_eligible(after, will),
                    min_isr=self._min_isr(topic.name, was, before),
                    min_isr_after=self._min_isr(topic.name, will, after),
                    tiered=topic.name in tiered,
                )
                if change.matters:
                    yield change

    def _min_isr(self, topic: str, partition: Partition, image: Image) -> int:
        """The effective value: of the topic, of the leader's broker, of all brokers, the default."""
        value = str(self.default_min_isr)
        for scope in ((BROKER_RESOURCE, ""), (BROKER_RESOURCE, str(partition.leader)), (TOPIC_RESOURCE, topic)):
            value = image.configs.get(scope, {}).get(MIN_ISR, value)
        return min(int(value), len(partition.replicas))

    def _judged(self, changes: Sequence[ReconfiguredPartition]) -> Iterator[ReconfiguredPartition]:
        """The changes, with the elections of replicas that are not complete."""
        ids = dict(self.lake.query(f"SELECT DISTINCT topic, topic_id FROM {self.lake.at('partitions')}"))
        electing = [(ids[change.topic], change.partition) for change in changes if change.elects]
        complete = complete_copies(self.lake, electing, self.default_min_isr) if electing else {}
        for change in changes:
            copies = complete.get((ids[change.topic], change.partition)) if change.elects else None
            yield change if copies is None else replace(change, lacks_writes=change.leader_after not in copies)

    def _at_limit(self) -> int:
        rows = self.lake.query(
            f"""
            SELECT topic, leader, len(replicas), len(isr), count(*) FROM {self.lake.at("partitions")}
            WHERE leader >= 0 AND len(isr) = least({int(self.value)}, len(replicas)) GROUP BY ALL
            """
        )
        values, partitions = self.min_isr, 0
        of_all = str(self.default_min_isr) if values.cluster is None else values.cluster
        for topic, leader, size, in_sync, count in rows:
            own = topic in values.topics or (leader in values.brokers and not self.brokers)
            set_here = topic in self.topics if self.topics else not own and leader in (self.brokers or (leader,))
            present = values.topics.get(topic) or values.brokers.get(leader) or of_all
            partitions += count if set_here and min(int(present), size) < in_sync else 0
        return partitions


def _eligible(image: Image, partition: Partition) -> tuple[int, ...]:
    """The replicas that may be elected although none is in sync. Without the feature there are none (R-ELIG-3)."""
    if not image.features.get(ELR_FEATURE):
        return ()
    if partition.eligible_leader_replicas or partition.isr:
        return partition.eligible_leader_replicas
    return partition.last_known_elr


def _order(change: ReconfiguredPartition) -> tuple[bool, bool, str, int]:
    worst = change.lacks_writes or change.stranded or change.refuses_writes
    return not worst, change.accepts_writes and not change.elects, change.topic, change.partition
