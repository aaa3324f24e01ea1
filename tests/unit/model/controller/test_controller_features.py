"""Configuration and feature levels, and what they do to leaders (docs/spec/controller.md)."""

from __future__ import annotations

from typing import Any

import pytest

from jbod_model.controller.cluster import Cluster
from jbod_model.controller.context import Context
from jbod_model.formats.metadata_version import (
    LEVELS,
    controllers_register,
    directories_supported,
    partition_record_version,
    register_broker_record_version,
)
from jbod_model.formats.records import (
    BrokerFeature,
    ClearElrRecord,
    ConfigRecord,
    ControllerFeature,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionRecord,
    RegisterControllerRecord,
    TopicRecord,
)
from jbod_model.formats.requests import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    AlterableConfig,
    AlterConfigsResource,
    FeatureUpdate,
    IncrementalAlterConfigsRequest,
    UpdateFeaturesRequest,
)
from jbod_model.formats.responses import ControllerFault, InvalidUpdateVersion
from tests.unit.model.controller.controller_world import (
    MIGRATING,
    UNASSIGNED,
    World,
    changes,
    directory,
    of,
    plain,
    topic_id,
    versions,
)

MV, ELR = "metadata.version", "eligible.leader.replicas.version"
MIN_ISR, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"


def alter(
    resource_type: int, name: str, *configs: tuple[str, str | None], **fields: Any
) -> IncrementalAlterConfigsRequest:
    """A value of None deletes."""
    resource = AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=tuple(
            AlterableConfig(name=key, config_operation=0 if value is not None else 1, value=value)
            for key, value in configs
        ),
    )
    return IncrementalAlterConfigsRequest(resources=(resource,), **fields)


def alter_error(world: World, request: IncrementalAlterConfigsRequest) -> int:
    result = world.look(request)
    (answer,) = result.response.responses  # type: ignore[attr-defined]
    if answer.error_code:
        assert result.records == ()
    return int(answer.error_code)


# CONFIGURATION


def test_configs_topic_value_is_written_when_it_changes_a_brokers_always() -> None:
    """R-CFG-5: brokers reload what is written again."""
    world = World().brokers(0)
    world.topic("foo", (0,))
    record = ConfigRecord(resource_type=2, resource_name="foo", name=UNCLEAN, value="true")
    assert plain(world.ask(alter(2, "foo", (UNCLEAN, "true")))) == [record]
    assert plain(world.ask(alter(2, "foo", (UNCLEAN, "true")))) == []
    assert len(world.ask(alter(4, "0", ("x", "1"))).records) == 1
    assert len(world.ask(alter(4, "0", ("x", "1"))).records) == 1
    deleted = ConfigRecord(resource_type=2, resource_name="foo", name=UNCLEAN, value=None)
    assert plain(world.ask(alter(2, "foo", (UNCLEAN, None)))) == [deleted]
    assert (2, "foo") not in world.image.configs


def test_configs_only_validated_writes_nothing() -> None:
    world = World().brokers(0)
    world.topic("foo", (0,))
    assert world.look(alter(2, "foo", (UNCLEAN, "true"), validate_only=True)).records == ()


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (alter(2, "bar", ("x", "1")), 3),
        (alter(8, "foo", ("x", "1")), 42),
        (alter(4, "0", (MIN_ISR, "1")), 40),
        (alter(4, "0", (MIN_ISR, None)), 40),
        (alter(4, "", (MIN_ISR, None)), 40),
        (alter(4, "", ("x", "y" * 32768)), 40),
        (
            IncrementalAlterConfigsRequest(
                resources=(
                    AlterConfigsResource(
                        resource_type=4,
                        resource_name="",
                        configs=(AlterableConfig(name="x", config_operation=2, value="1"),),
                    ),
                )
            ),
            40,
        ),
    ],
)
def test_configs_that_cannot_be_are_refused(request_: IncrementalAlterConfigsRequest, code: int) -> None:
    """R-CFG-2, R-CFG-5, R-CTL-3: the first four only with eligible leaders."""
    assert alter_error(World(elr=True).brokers(0), request_) == code


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        *((MIN_ISR, "many", 40), (MIN_ISR, "0", 40), (MIN_ISR, "-1", 40), (MIN_ISR, "", 40), (MIN_ISR, "2", 0)),
        *((UNCLEAN, "perhaps", 40), (UNCLEAN, "TRUE", 0), (UNCLEAN, "false", 0), ("retention.ms", "soon", 0)),
    ],
)
def test_configs_of_topics_that_decide_about_leaders_are_checked(name: str, value: str, code: int) -> None:
    """R-CFG-6."""
    world = World().brokers(0)
    world.topic("foo", (0,))
    assert alter_error(world, alter(2, "foo", (name, value))) == code


def test_min_isr_that_is_no_number_is_a_fault() -> None:
    """R-CFG-3, R-CTL-1: a broker's value is not checked when it is set."""
    world = World().brokers(0)
    world.topic("foo", (0,))
    world.ask(alter(4, "", (MIN_ISR, "many")))
    assert world.refuse(ControllerFault, world.isr_request("foo", 0)).code == -1


def test_min_isr_without_a_partition_0_is_a_fault() -> None:
    """R-CFG-3: no controller writes such a topic."""
    world = World().brokers(0)
    world.apply(TopicRecord(name="odd", topic_id=topic_id(70)))
    world.apply(PartitionRecord(partition_id=1, topic_id=topic_id(70), replicas=(0,), isr=(0,), leader=0))
    world.refuse(ControllerFault, world.heartbeat(0, want_fence=True))


def test_configs_without_eligible_leaders_brokers_may_have_their_own_minimum() -> None:
    """R-CFG-2."""
    world = World().brokers(0)
    assert alter_error(world, alter(4, "0", (MIN_ISR, "1"))) == 0
    assert alter_error(world, alter(4, "", (MIN_ISR, None))) == 0


@pytest.mark.parametrize(("resource_type", "name", "cleared"), [(2, "foo", "foo"), (4, "", "")])
def test_configs_new_minimum_clears_eligible_leaders(resource_type: int, name: str, cleared: str) -> None:
    """R-CFG-4 (testElrsRemovedOnMinIsrUpdate): only partitions that have some change their epoch."""
    world = World(elr=True, min_isr=2).brokers(0, 1)
    world.topic("foo", (0, 1), (0, 1))
    world.ask(world.isr_request("foo", 0))
    assert world.partition("foo").eligible_leader_replicas == (1,)
    epochs = [world.partition("foo", index).partition_epoch for index in (0, 1)]
    result = world.ask(alter(resource_type, name, (MIN_ISR, "1")))
    assert of(result, ClearElrRecord) == [ClearElrRecord(topic_name=cleared)]
    assert world.partition("foo").eligible_leader_replicas == ()
    assert [world.partition("foo", index).partition_epoch for index in (0, 1)] == [epochs[0] + 1, epochs[1]]


def test_configs_without_eligible_leaders_nothing_is_cleared() -> None:
    """R-CFG-4."""
    assert of(World().ask(alter(4, "", (MIN_ISR, "1"))), ClearElrRecord) == []


def test_topic_config_in_force_is_the_nearest() -> None:
    """R-CFG-1: topic, this controller, all brokers, its file, the default."""
    world = World().brokers(0)
    world.topic("foo", (0,))

    def value(**context: Any) -> str:
        return Cluster(world.image, world.profile, Context(**context)).topic_config("foo", UNCLEAN)

    assert value() == "false"
    assert value(static_configs={UNCLEAN: "file"}) == "file"
    world.config("", UNCLEAN, "brokers")
    assert value(static_configs={UNCLEAN: "file"}) == "brokers"
    world.config("7", UNCLEAN, "controller")
    assert (value(), value(controller_id=7)) == ("brokers", "controller")
    world.config("foo", UNCLEAN, "topic", resource_type=2)
    assert value(controller_id=7) == "topic"
    with pytest.raises(ControllerFault):
        Cluster(world.image, world.profile, Context()).topic_config("foo", "no.such.key")


def test_min_isr_is_at_most_the_replicas_of_partition_0() -> None:
    """R-CFG-3 (testEligibleLeaderReplicas_EffectiveMinIsr): the minimum is 5, the replicas are 2."""
    world = World(elr=True, min_isr=5).brokers(0, 1)
    world.topic("foo", (0, 1))
    world.ask(world.isr_request("foo", 0))
    assert world.partition("foo").eligible_leader_replicas == (1,)
    world.ask(world.isr_request("foo", 0, 1))
    assert world.partition("foo").eligible_leader_replicas == ()


# RECORD VERSIONS


@pytest.mark.parametrize(
    ("level", "partition", "broker", "directories", "controllers"),
    [
        ("3.3-IV3", 0, 1, False, False),
        ("3.4-IV0", 0, 2, False, False),
        ("3.7-IV0", 0, 2, False, True),
        ("3.7-IV1", 0, 2, False, True),
        ("3.7-IV2", 1, 3, True, True),
        ("4.0-IV0", 1, 3, True, True),
        ("4.0-IV1", 2, 3, True, True),
        ("4.1-IV1", 2, 3, True, True),
    ],
)
def test_metadata_version_decides_fields_and_versions(
    level: str, partition: int, broker: int, directories: bool, controllers: bool
) -> None:
    """R-FEAT-1."""
    number = LEVELS[level]
    assert partition_record_version(number) == partition
    assert register_broker_record_version(number) == broker
    assert directories_supported(number) is directories
    assert controllers_register(number) is controllers


def test_metadata_version_missing_is_a_fault() -> None:
    """R-CTL-1: no request is served before one is written."""
    world = World()
    world.image = world.image.emptied()
    world.refuse(ControllerFault, world.registration(0, directory(0)))


# FEATURES


def update(feature: str, level: int, kind: int = UPGRADE, **fields: Any) -> UpdateFeaturesRequest:
    change = FeatureUpdate(feature=feature, max_version_level=level, upgrade_type=kind)
    return UpdateFeaturesRequest(feature_updates=(change,), **fields)


FEATURE_ERRORS: dict[str, tuple[UpdateFeaturesRequest, str]] = {
    "unknown kind": (update(MV, 28, 9), "upgrade type"),
    "unknown feature": (update("nosuch", 0), "no such feature"),
    "negative": (update(ELR, -1), "negative"),
    "not supported by this controller": (update(MV, 30), "this controller"),
    "not supported by a broker": (update("group.version", 1), "broker 0"),
    "down without saying so": (update(MV, 26), "downgrade type"),
    "up as a downgrade": (update(MV, 28, SAFE_DOWNGRADE), "no downgrade"),
    "down across a change (R-FEAT-3)": (update(MV, 22, SAFE_DOWNGRADE), "lose metadata"),
    "down across directories (R-FEAT-3)": (update(MV, 16, UNSAFE_DOWNGRADE), "lose metadata"),
    "kraft.version down": (update("kraft.version", 0, SAFE_DOWNGRADE), "kraft.version"),
}


@pytest.mark.parametrize("case", FEATURE_ERRORS)
def test_update_features_refuses_with_95(case: str) -> None:
    """R-FEAT-2 (testUpdateFeatures and its kin)."""
    request, problem = FEATURE_ERRORS[case]
    features = (
        *(BrokerFeature(name=MV, min_supported_version=7, max_supported_version=30),),
        *(BrokerFeature(name="kraft.version", min_supported_version=0, max_supported_version=1),),
    )
    world = World()
    world.ask(world.registration(0, directory(0), features=features))
    refused = world.refuse(InvalidUpdateVersion, request, kraft_version=1)
    assert refused.code == 95
    assert problem in str(refused)


def test_update_features_while_a_migration_is_in_progress_changes_no_metadata_version() -> None:
    """R-FEAT-2: Kafka 3.9 answers "Unable to modify metadata.version while a ZK migration is in progress"."""
    world = World()
    assert "migration" in str(world.refuse(InvalidUpdateVersion, update(MV, 28), migrates=True))
    assert len(world.look(update("kraft.version", 1), migrates=True).records) == 1


def test_update_features_asks_registered_controllers_too() -> None:
    """R-FEAT-2: from 3.7-IV0 on, where they register; this controller itself is not asked twice."""
    world = World()
    world.apply(
        RegisterControllerRecord(
            controller_id=3,
            features=(ControllerFeature(name=MV, min_supported_version=7, max_supported_version=27),),
        )
    )
    assert "controller 3" in str(world.refuse(InvalidUpdateVersion, update(MV, 28)))
    assert len(world.look(update(MV, 28), controller_id=3).records) == 1


def test_update_features_all_or_nothing() -> None:
    """R-FEAT-2, R-CTL-2."""
    world = World()
    good, bad = FeatureUpdate(feature=MV, max_version_level=28), FeatureUpdate(feature=ELR, max_version_level=9)
    world.refuse(InvalidUpdateVersion, UpdateFeaturesRequest(feature_updates=(good, bad)))


def test_update_features_metadata_version_goes_up_and_harmlessly_down() -> None:
    """R-FEAT-3: 4.1-IV1 to 4.0-IV1 brought nothing."""
    world = World()
    assert plain(world.ask(update(MV, 28))) == [FeatureLevelRecord(name=MV, feature_level=28)]
    assert plain(world.ask(update(MV, 23, SAFE_DOWNGRADE))) == [FeatureLevelRecord(name=MV, feature_level=23)]


def test_update_features_only_validated_writes_nothing() -> None:
    """R-FEAT-2."""
    assert World().look(update(MV, 28, validate_only=True)).records == ()


def test_update_features_kraft_version_is_no_metadata() -> None:
    """R-FEAT-2: an offset to wait for is all that is written."""
    assert plain(World().look(update("kraft.version", 1))) == [NoOpRecord()]


def test_update_features_to_the_present_level_writes_it_again_whatever_the_type() -> None:
    """R-FEAT-2: it is neither up nor down."""
    world = World()
    level = world.image.features[MV]
    for upgrade_type in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        result = world.look(update(MV, level, upgrade_type))
        assert plain(result) == [FeatureLevelRecord(name=MV, feature_level=level)]
        assert versions(result.records) == [0]
    kraft = update("kraft.version", 1, SAFE_DOWNGRADE)
    assert world.look(kraft, kraft_version=1).records == ()
    waited_for = world.look(update("kraft.version", 1), kraft_version=1)
    assert (plain(waited_for), versions(waited_for.records)) == ([NoOpRecord()], [0])
    assert plain(world.look(update(ELR, 0))) == [FeatureLevelRecord(name=ELR, feature_level=0)]


def test_update_features_of_the_minimum_in_sync_size_has_version_0() -> None:
    """R-FEAT-4."""
    world = World()
    world.config("", MIN_ISR, None)
    assert versions(world.look(update(ELR, 1)).records) == [0, 0]


def test_update_features_metadata_version_that_no_release_has_is_refused() -> None:
    """R-FEAT-3: even if the controller's range has it."""
    refused = World().refuse(InvalidUpdateVersion, update(MV, 900), supported_features={MV: (7, 1000)})
    assert "there is no level 900" in str(refused)


def test_update_features_eligible_leaders_need_their_metadata_version() -> None:
    """R-FEAT-4: also one that is raised in the same request."""
    world = World("4.0-IV0")
    world.refuse(InvalidUpdateVersion, update(ELR, 1))
    both = UpdateFeaturesRequest(
        feature_updates=(
            FeatureUpdate(feature=MV, max_version_level=23),
            FeatureUpdate(feature=ELR, max_version_level=1),
        )
    )
    names = [record.name for record in of(world.look(both), FeatureLevelRecord)]
    assert names == [MV, ELR]


def test_update_features_switching_eligible_leaders_on_pins_the_minimum() -> None:
    """R-FEAT-4, R-ELIG-1 (testUpgradeElrFeatureLevel): for all brokers if not set, never for single ones."""
    world = World()
    world.config("", MIN_ISR, None)
    world.config("1", MIN_ISR, "2")
    world.config("0", "other", "2")
    result = world.ask(update(ELR, 1), static_configs={MIN_ISR: "3"})
    assert plain(result) == [
        ConfigRecord(resource_type=4, resource_name="", name=MIN_ISR, value="3"),
        ConfigRecord(resource_type=4, resource_name="1", name=MIN_ISR, value=None),
        FeatureLevelRecord(name=ELR, feature_level=1),
    ]
    assert of(World().ask(update(ELR, 1)), ConfigRecord) == []
    assert of(World().ask(update(ELR, 0, SAFE_DOWNGRADE)), ConfigRecord) == []


def test_upgrade_across_directories_rewrites_nothing_and_assigns_from_then_on() -> None:
    """R-REG-13, R-NEWDIR-1, R-FEAT-1: the story of an upgrade from 3.6."""
    world = World("3.6-IV2").brokers(0, 1)
    world.topic("old", (0, 1))
    assert len(world.ask(update(MV, 17)).records) == 1
    assert world.partition("old").directories == (MIGRATING, MIGRATING)
    world.topic("early", (0, 1))
    assert world.partition("early").directories == (MIGRATING, MIGRATING)
    for broker_id in (0, 1):
        dirs = tuple(directory(broker_id, number) for number in range(1 + broker_id))
        world.ask(world.registration(broker_id, *dirs), has_valid_session=True)
    world.topic("new", (0, 1))
    assert world.partition("new").directories == (directory(0), UNASSIGNED)
    result = world.assign(1, directory(1), "old")
    assert versions(result.records) == [1]
    assert world.partition("old").directories == (MIGRATING, directory(1))
    assert changes(world.ask(world.heartbeat(1, directory(1)))) == [{"isr": (0,)}]


def test_upgrade_to_eligible_leaders_makes_them_count() -> None:
    """R-ELIG-1, R-ELIG-2: the next shrink keeps who left eligible; switched off again, they are emptied (R-ELIG-3)."""
    world = World("3.9-IV0", min_isr=2).brokers(0, 1)
    world.topic("foo", (0, 1))
    world.ask(world.isr_request("foo", 0))
    assert world.partition("foo").eligible_leader_replicas == ()
    world.ask(world.isr_request("foo", 0, 1))
    world.ask(update(MV, 27))
    world.ask(update(ELR, 1))
    assert versions(world.ask(world.isr_request("foo", 0)).records) == [2]
    assert world.partition("foo").eligible_leader_replicas == (1,)
    world.ask(update(ELR, 0, SAFE_DOWNGRADE))
    assert changes(world.assign(0, directory(0), "foo"))[0]["eligible_leader_replicas"] == ()


def test_partition_records_of_a_new_topic_carry_no_eligible_leaders() -> None:
    """R-CREATE-6."""
    world = World(elr=True, min_isr=2).brokers(0)
    world.topic("foo", (0,))
    assert PartitionRecord().eligible_leader_replicas is None
    assert world.partition("foo").eligible_leader_replicas == ()
