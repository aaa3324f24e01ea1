from __future__ import annotations

import pytest

from jbod_model.formats.records import RegisterBrokerRecord
from jbod_model.ids import KAFKA_IDS, Uuid
from jbod_model.profiles import PROFILES
from jbod_model.replay.image import BrokerRegistration, Image, Partition
from jbod_model.replay.offline import has_online_dir, offline_replicas
from lab.conformance.trace import image_as_json

LISTED, OTHER, UNLISTED = Uuid(5, 5), Uuid(6, 6), Uuid(9, 9)
RESERVED = Uuid(0, 50)
IDS = {
    "listed": LISTED,
    "unlisted": UNLISTED,
    "unassigned": KAFKA_IDS.unassigned,
    "migrating": KAFKA_IDS.migrating,
    "lost": KAFKA_IDS.lost,
    "reserved": RESERVED,
}
REGISTERED = {0: (), 1: (LISTED,), 2: (LISTED, OTHER)}

# (assigned, registered directories): online in kafka, in kip858, in draft, in draft with offline directories
TRUTH = {
    ("listed", 1): (True, True, True, True),
    ("listed", 2): (True, True, True, True),
    ("unlisted", 0): (True, True, True, False),
    ("unlisted", 1): (False, True, True, False),
    ("unlisted", 2): (False, False, False, False),
    ("unassigned", 0): (True, True, True, False),
    ("unassigned", 1): (True, True, True, False),
    ("unassigned", 2): (True, False, False, False),
    ("migrating", 0): (True, True, True, False),
    ("migrating", 1): (True, True, True, False),
    ("migrating", 2): (True, False, False, False),
    ("lost", 0): (False, False, False, False),
    ("lost", 1): (False, False, False, False),
    ("lost", 2): (False, False, False, False),
    ("reserved", 0): (True, True, True, False),
    ("reserved", 1): (False, True, True, False),
    ("reserved", 2): (False, False, False, False),
}


def broker(broker_id: int, *directories: Uuid, fenced: bool = False, flag: bool = False) -> BrokerRegistration:
    return BrokerRegistration(
        broker_id=broker_id,
        epoch=1,
        incarnation_id=Uuid(1, 1),
        fenced=fenced,
        directories=directories,
        has_offline_directories=flag,
    )


@pytest.mark.parametrize(("cell", "online"), TRUTH.items(), ids=str)
def test_directory_is_online_by_the_rule_of_each_profile(cell: tuple[str, int], online: tuple[bool, ...]) -> None:
    """R-OFF-4, R-OFF-5, R-OFF-6, R-OFF-7, R-OFF-8, R-OFF-9: every cell."""
    directory, registered = IDS[cell[0]], REGISTERED[cell[1]]
    assert online == (
        has_online_dir(broker(1, *registered), directory, KAFKA_IDS, PROFILES["kafka"]),
        has_online_dir(broker(1, *registered), directory, KAFKA_IDS, PROFILES["kip858"]),
        has_online_dir(broker(1, *registered), directory, KAFKA_IDS, PROFILES["draft"]),
        has_online_dir(broker(1, *registered, flag=True), directory, KAFKA_IDS, PROFILES["draft"]),
    )


@pytest.mark.parametrize(
    ("directories", "offline"),
    [
        ((LISTED, KAFKA_IDS.lost), {1: "directory lost"}),
        ((UNLISTED, KAFKA_IDS.unassigned), {0: "directory offline"}),
        ((KAFKA_IDS.migrating, OTHER), {}),
    ],
)
def test_offline_replicas_of_kafkas_own_case(directories: tuple[Uuid, ...], offline: dict[int, str]) -> None:
    """R-OFF-1: MetadataCacheTest.testGetOfflineReplicasConsidersDirAssignment."""
    image = Image(brokers={0: broker(0, LISTED), 1: broker(1, OTHER)})
    partition = Partition(replicas=(0, 1), directories=directories, isr=(0, 1))
    assert offline_replicas(image, partition) == offline


def test_offline_replicas_reasons_in_order_of_replicas() -> None:
    """R-OFF-2, R-OFF-3: the broker comes before its directory; controlled shutdown is not offline."""
    image = Image(brokers={1: broker(1, LISTED, fenced=True), 2: broker(2, LISTED)})
    partition = Partition(replicas=(3, 1, 2), directories=(KAFKA_IDS.lost, KAFKA_IDS.lost, LISTED), isr=())
    assert list(offline_replicas(image, partition).items()) == [(3, "broker missing"), (1, "broker fenced")]


def test_image_as_json_of_nothing() -> None:
    assert image_as_json(Image(), 7) == {"op": "image", "offset": 7, "partitions": [], "brokers": []}


@pytest.mark.parametrize(("cordons", "listed"), [(None, [False, True]), (True, [True, True]), (False, [False, False])])
def test_image_as_json_lists_cordons_of_brokers_that_have_a_list(cordons: bool | None, listed: list[bool]) -> None:
    """R-CORDON-1: as Kafka's image of that release does; by default where there is a list."""
    image = Image()
    for broker_id, cordoned in ((1, None), (2, (OTHER,))):
        record = RegisterBrokerRecord(broker_id=broker_id, log_dirs=(Uuid(broker_id, 1),), cordoned_log_dirs=cordoned)
        image = image.apply(record, 0)
    brokers = image_as_json(image, 0, cordons=cordons)["brokers"]
    assert ["cordonedLogDirs" in broker for broker in brokers] == listed
