"""Cordoned directories in images and in the list of directories: of a cluster of Kafka 4.4.0, and made up."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from jbod_model.formats.log import LogWriter
from jbod_model.formats.records import BrokerRegistrationChangeRecord, RegisterBrokerRecord
from jbod_model.ids import Uuid
from lab.conformance.trace import image_as_json
from pipelines.ask import Lake, image
from pipelines.ask.lake_status import directories
from pipelines.ask.removal import safe_to_remove
from pipelines.cli import main
from pipelines.run.log_lake import LogLake
from pipelines.source.log_options import LogOptions
from tests.support.kafka_images import kafka_images
from tests.support.lakes import write_lake
from tests.unit.ask.test_ask import entries

KAFKA = "kafka-4.4.0"
A, B = Uuid(11, 1), Uuid(11, 2)


@pytest.fixture(scope="module")
def lake(cluster_lakes: Mapping[str, Path]) -> Path:
    return cluster_lakes[KAFKA]


def cordoned(lake: Path, offset: int) -> dict[tuple[int, str], int]:
    """(broker, directory) -> the offset since when it is cordoned."""
    return {
        (directory.broker_id, directory.directory_id): directory.cordoned_from_offset
        for directory in directories(Lake.open(lake, at_offset=offset))
        if directory.cordoned_from_offset is not None
    }


def test_image_at_every_recorded_offset_equals_kafkas_but_for_the_cordons_it_leaves_out(lake: Path) -> None:
    images = kafka_images(KAFKA)
    assert len(images) > 30
    cordons = 0
    for expected in images:
        answer = image(Lake.open(lake, at_offset=expected["offset"]))
        for broker in answer["brokers"]:
            cordons += bool(broker.pop("cordonedLogDirs", None))
        assert answer == expected
    assert cordons > 5


def test_directories_say_since_when_they_are_cordoned(lake: Path) -> None:
    """One disk, then all of broker 2; broker 1 restarts at offset 301 and says so again at 304."""
    disk = (1, "1TkQ7EMOjliux5vaBNBajg")
    two = {"j7V7l-5SKJWD0pnIQILK2w", "ywtUzzwHZ4ON0rmyfERKXg", "6cLQ-K8oN_hcNhEMdGs-jA"}
    assert cordoned(lake, 112) == {}
    assert cordoned(lake, 113) == {disk: 113}
    assert cordoned(lake, 150) == {disk: 113, **dict.fromkeys(((2, directory) for directory in two), 145)}
    assert cordoned(lake, 302) == {}
    assert cordoned(lake, 350) == {disk: 113}
    assert cordoned(lake, 415) == {}


def test_removal_of_a_cordoned_disk_takes_the_cordon_back(lake: Path) -> None:
    """A real Kafka 4.4.0 started without the disk, applied no configuration of the broker, and refused every change."""
    reasons = safe_to_remove(Lake.open(lake, at_offset=113), "1:1TkQ7EMOjliux5vaBNBajg").reasons
    (advice,) = [reason.advice for reason in reasons if reason.finding.startswith("it is cordoned")]
    assert advice.startswith("take its path out of cordoned.log.dirs once the broker runs without it")


def test_cordon_that_was_lifted_begins_anew(tmp_path: Path) -> None:
    def cordons(*listed: Uuid, epoch: int = 0) -> BrokerRegistrationChangeRecord:
        return BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, cordoned_log_dirs=listed)

    register = RegisterBrokerRecord(broker_id=1, log_dirs=(A, B))
    again = RegisterBrokerRecord(broker_id=1, broker_epoch=5, log_dirs=(A, B))
    records = (
        register,
        cordons(A),
        cordons(A, B),
        cordons(B),
        cordons(B, A),
        again,
        cordons(A, A, epoch=5),
        cordons(epoch=5),
    )
    write_lake(tmp_path / "lake", entries(*records))
    seen = [cordoned(tmp_path / "lake", offset) for offset in range(len(records))]
    a, b = (1, str(A)), (1, str(B))
    assert seen == [{}, {a: 1}, {a: 1, b: 2}, {b: 2}, {a: 4, b: 2}, {}, {a: 4}, {}]


def test_cordon_that_only_a_snapshot_says_began_at_or_before_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The text and the JSON named the offset of the snapshot as that of the record that cordoned it."""
    register = RegisterBrokerRecord(broker_id=1, log_dirs=(A, B))
    taken = entries(register, BrokerRegistrationChangeRecord(broker_id=1, cordoned_log_dirs=(A,)), snapshot_at=9)
    later = entries(register, BrokerRegistrationChangeRecord(broker_id=1, cordoned_log_dirs=(A, B)), first=9)[1:]
    write_lake(tmp_path / "lake", taken, later)
    seen = {directory.directory_id: directory for directory in directories(Lake.open(tmp_path / "lake"))}
    assert [(seen[str(each)].cordoned_from_offset, seen[str(each)].cordoned_from_snapshot) for each in (A, B)] == [
        (9, True),
        (10, False),
    ]
    with pytest.raises(SystemExit):
        main.main(["directories", "--lake", str(tmp_path / "lake")])
    out = capsys.readouterr().out
    assert "cordoned at or before 9" in out
    assert "cordoned at 10" in out


def test_image_of_a_broker_that_said_nothing_has_no_cordons_and_of_one_that_said_none_an_empty_list(
    tmp_path: Path,
) -> None:
    change = BrokerRegistrationChangeRecord(broker_id=1, cordoned_log_dirs=())
    reference = write_lake(tmp_path / "lake", entries(RegisterBrokerRecord(broker_id=1, log_dirs=(A,)), change))
    assert "cordonedLogDirs" not in image(Lake.open(tmp_path / "lake", at_offset=0))["brokers"][0]
    answer = image(Lake.open(tmp_path / "lake"))
    assert answer["brokers"][0]["cordonedLogDirs"] == []
    assert answer == image_as_json(reference.image, 1)
    assert "cordonedLogDirs" not in image_as_json(reference.image, 1, cordons=False)["brokers"][0]


def test_image_of_a_broker_lists_its_cordons_in_the_order_of_the_record_as_kafkas_does(tmp_path: Path) -> None:
    """Of a lake and of a log. jbod image had them sorted, so it was not Kafka's image."""
    change = BrokerRegistrationChangeRecord(broker_id=1, cordoned_log_dirs=(B, A))
    written = entries(RegisterBrokerRecord(broker_id=1, log_dirs=(A, B)), change)
    reference = write_lake(tmp_path / "lake", written)
    log = LogWriter()
    log.append([entry.versioned for entry in written if entry.versioned], epoch=1, timestamp=0)
    log.write(tmp_path)
    for source in (Lake.open(tmp_path / "lake"), LogLake.of(LogOptions(path=str(tmp_path)))):
        answer = image(source)
        assert answer["brokers"][0]["cordonedLogDirs"] == [str(B), str(A)]
        assert answer == image_as_json(reference.image, 1)
