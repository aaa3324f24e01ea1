"""Queries of the handlers about the state before a request (R-CTL-6). They change nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from jbod_model.controller.context import Context
from jbod_model.controller.partition_change import Acceptable, Election, Surroundings, Wish, partition_change
from jbod_model.formats.metadata_version import (
    ELR_FEATURE,
    METADATA_VERSION,
    cordons_supported,
    directories_supported,
)
from jbod_model.formats.records import VersionedRecord
from jbod_model.formats.requests import BROKER_RESOURCE, TOPIC_RESOURCE
from jbod_model.formats.responses import ControllerFault, StaleBrokerEpoch
from jbod_model.ids import Uuid
from jbod_model.profiles import REFERENCE, SUPPORTED_FEATURES, ControllerRules, Profile, Quirk, Release, release_of
from jbod_model.replay.image import BrokerRegistration, Image, Partition, Topic, is_number
from jbod_model.replay.offline import has_online_dir

MIN_ISR = "min.insync.replicas"
UNCLEAN_ELECTION = "unclean.leader.election.enable"
TOPIC_CONFIG_DEFAULTS: Mapping[str, str] = {MIN_ISR: "1", UNCLEAN_ELECTION: "false"}


@dataclass(frozen=True, slots=True)
class PartitionAt:
    """A partition with its topic and number."""

    topic: Topic
    partition_id: int
    partition: Partition


@dataclass(frozen=True, slots=True)
class Cluster:
    """The state before a request, the rules and the context."""

    image: Image
    profile: Profile
    context: Context

    @property
    def rules(self) -> ControllerRules:
        """The controller's part of the profile, without the flaws that its release repaired (R-RELEASE-2)."""
        return self.profile.controller

    @property
    def metadata_version(self) -> int:
        """The finalized level of metadata.version; ControllerFault without one, as no request is served then."""
        level = self.image.features.get(METADATA_VERSION)
        if level is None:
            raise ControllerFault("no metadata.version is finalized: write a FeatureLevelRecord first")
        return level

    @property
    def directories_supported(self) -> bool:
        """Whether registrations and partitions carry directories."""
        return directories_supported(self.metadata_version)

    @property
    def elr_enabled(self) -> bool:
        """Whether eligible leader replicas are on (R-ELIG-1)."""
        return self.image.features.get(ELR_FEATURE, 0) >= 1

    @property
    def release(self) -> Release:
        """This controller's release: from the context, else from its registration, else from the metadata.version
        (R-RELEASE-3)."""
        if self.context.release is not None:
            return self.context.release
        controllers = self.image.controllers
        leading = controllers.get(self.context.controller_id)
        releases = [
            release_of(feature.max_supported_version)
            for controller in (controllers.values() if leading is None else [leading])
            for feature in controller.features
            if feature.name == METADATA_VERSION
        ]
        finalized = release_of(self.image.features.get(METADATA_VERSION, 0))
        return max(finalized, min(releases, default=REFERENCE))

    @property
    def supported_features(self) -> Mapping[str, tuple[int, int]]:
        """(lowest, highest) level of each feature that this controller can run with (R-FEAT-2)."""
        given = self.context.supported_features
        return SUPPORTED_FEATURES[self.release] if given is None else given

    @property
    def cordons_supported(self) -> bool:
        """Whether registrations carry cordoned directories (R-CORDON-1)."""
        return cordons_supported(self.metadata_version)

    def takes_replicas(self, broker_id: int) -> bool:
        """Whether a registered broker has a directory for new replicas (R-CORDON-4)."""
        registration = self.image.brokers.get(broker_id)
        return registration is None or registration.takes_replicas

    # BROKERS

    def broker(self, broker_id: int, epoch: int) -> BrokerRegistration:
        """The registration of a request's sender; StaleBrokerEpoch if the request has another epoch (R-HB-1)."""
        registration = self.image.brokers.get(broker_id)
        if registration is None:
            raise StaleBrokerEpoch(f"broker {broker_id} is not registered")
        if registration.epoch != epoch:
            raise StaleBrokerEpoch(f"broker {broker_id} has epoch {registration.epoch}, the request says {epoch}")
        return registration

    def active(self, broker_id: int) -> bool:
        """Registered, not fenced and not shutting down."""
        registration = self.image.brokers.get(broker_id)
        return registration is not None and registration.is_active

    def has_online_dir(self, broker_id: int, directory: Uuid) -> bool:
        """Whether the directory is online on a registered broker (R-OFF-4)."""
        registration = self.image.brokers.get(broker_id)
        return registration is not None and has_online_dir(registration, directory, self.image.ids, self.profile)

    def default_dir(self, broker_id: int) -> Uuid:
        """The directory of a new replica on a broker (R-NEWDIR-1)."""
        ids = self.image.ids
        if not self.directories_supported:
            return ids.migrating
        registration = self.image.brokers.get(broker_id)
        if registration is None:
            return ids.unassigned
        if not registration.directories and self.rules.migrating_without_directories:
            return ids.migrating
        if len(registration.directories) == 1 and self.rules.preselects_single_directory:
            return registration.directories[0]
        return ids.unassigned

    # PARTITIONS

    def partitions(self) -> Iterator[PartitionAt]:
        """Every partition, by topic in the order of creation."""
        for topic in self.image.topics.values():
            for partition_id, partition in topic.partitions.items():
                yield PartitionAt(topic, partition_id, partition)

    def partitions_in_sync_on(self, broker_id: int) -> list[PartitionAt]:
        """Partitions with the broker in their in-sync set."""
        return [at for at in self.partitions() if broker_id in at.partition.isr]

    def partitions_eligible_on(self, broker_id: int) -> list[PartitionAt]:
        """Partitions with the broker among their eligible leaders; ControllerFault on a stale entry (R-QUIRK-6)."""
        memory = self.context.memory
        if memory is not None and self.rules.has(Quirk.STALE_ELR_INDEX):
            return [self._indexed(topic_id, partition_id) for topic_id, partition_id in memory.eligible(broker_id)]
        return [at for at in self.partitions() if broker_id in at.partition.eligible_leader_replicas]

    def partitions_without_leader(self) -> list[PartitionAt]:
        """Partitions without a leader."""
        return [at for at in self.partitions() if at.partition.leader < 0]

    def partitions_in(self, directory: Uuid) -> list[PartitionAt]:
        """Partitions with a replica in the directory; ControllerFault on an entry that leaked (R-QUIRK-2)."""
        memory = self.context.memory
        if memory is not None and self.rules.has(Quirk.INDEX_LEAK):
            for topic_id, partition_id in memory.leaked(directory, self.image):
                self._indexed(topic_id, partition_id)
        return [at for at in self.partitions() if directory in at.partition.directories]

    def _indexed(self, topic_id: Uuid, partition_id: int) -> PartitionAt:
        """The partition of an index entry; ControllerFault if it was deleted (R-QUIRK-2, R-QUIRK-6)."""
        topic = self.image.topics.get(topic_id)
        if topic is None or partition_id not in topic.partitions:
            raise ControllerFault(
                f"an index names {topic_id}-{partition_id}, which was deleted: restart the controller from a snapshot"
            )
        return PartitionAt(topic, partition_id, topic.partitions[partition_id])

    def leads(self, broker_id: int) -> bool:
        """Whether the broker leads a partition."""
        return any(at.partition.leader == broker_id for at in self.partitions())

    # CHANGES

    def acceptable(
        self, partition: Partition, alive: Acceptable | None = None, failing: frozenset[Uuid] = frozenset()
    ) -> Acceptable:
        """Who may lead the partition: alive, with the replica's directory online and not ``failing`` (R-ELECT-1).

        A candidate that is no replica is a fault in Kafka, and never acceptable without that flaw (R-QUIRK-3).
        """
        base = alive or self.active

        def test(broker_id: int) -> bool:
            if not base(broker_id):
                return False
            if broker_id not in partition.replicas:
                if self.rules.has(Quirk.STALE_ELR):
                    raise ControllerFault(f"broker {broker_id} is eligible to lead but is no replica of the partition")
                return False
            directory = partition.directory(broker_id)
            return directory not in failing and self.has_online_dir(broker_id, directory)

        return test

    def change(
        self, at: PartitionAt, wish: Wish, acceptable: Acceptable | None = None, *, elr: bool = True
    ) -> VersionedRecord | None:
        """The record that makes the requested change, or None if nothing would change.

        With ``elr`` False the feature counts as off (R-QUIRK-1).
        """
        surroundings = Surroundings(
            acceptable=acceptable or self.acceptable(at.partition),
            metadata_version=self.metadata_version,
            elr_enabled=elr and self.elr_enabled,
            min_isr=self.min_isr(at.topic),
            default_dir=self.default_dir,
            keep_stale_elr=self.rules.has(Quirk.STALE_ELR),
            fenced_last_leader=self.rules.has(Quirk.FENCED_LAST_LEADER),
            last_leader_of_empty_isr=self.rules.last_known_leader == "empty in-sync set",
            added_suffice=self.rules.reassignment_completion == "added in sync",
        )
        return partition_change(at.topic.topic_id, at.partition_id, at.partition, wish, surroundings)

    # CONFIGURATION

    def topic_config(self, topic_name: str, key: str) -> str:
        """The effective value: of the topic, else this controller, all brokers, the controller's file, the default
        (R-CFG-1)."""
        for scope in (
            self.image.configs.get((TOPIC_RESOURCE, topic_name), {}),
            self.image.configs.get((BROKER_RESOURCE, str(self.context.controller_id)), {}),
            self.image.configs.get((BROKER_RESOURCE, ""), {}),
            self.context.static_configs,
            TOPIC_CONFIG_DEFAULTS,
        ):
            if key in scope:
                return scope[key]
        raise ControllerFault(f"configuration {key} has no default")

    def min_isr(self, topic: Topic) -> int:
        """The minimum in-sync size, at most the replicas of partition 0; ControllerFault if either does not exist
        (R-CFG-3)."""
        value = self.topic_config(topic.name, MIN_ISR)
        if 0 not in topic.partitions:
            raise ControllerFault(f"topic {topic.name} has no partition 0")
        if not is_number(value):
            raise ControllerFault(f"{MIN_ISR} of topic {topic.name} is {value!r}, which is not a number: set it")
        return min(int(value), len(topic.partitions[0].replicas))

    def unclean_election(self, topic_name: str) -> Election:
        """UNCLEAN where the topic allows it, else ONLINE (R-ELECT-8)."""
        allowed = self.topic_config(topic_name, UNCLEAN_ELECTION).lower() == "true"
        return Election.UNCLEAN if allowed else Election.ONLINE
