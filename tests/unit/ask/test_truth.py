"""What is told of two clusters, beside what consumers read there: partition by partition, at every checkpoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby

import pytest

from jbod_model.formats.log import LogReader, MetadataLog
from jbod_model.ids import Uuid
from jbod_model.loss.log import Key, fates
from jbod_model.loss.losses import Loss
from jbod_model.replay.history import images
from jbod_model.replay.offline import image_as_json
from pipelines.ask.incident_list import incidents
from pipelines.ask.offline_replicas import offline
from pipelines.check.evaluate import run_checks
from pipelines.run.log_lake import LogLake
from pipelines.source.log_options import Options
from tests.support.truth import (
    EMPTY,
    KILLED,
    LOST,
    MAY_LACK,
    NOTHING,
    RIGHT,
    TRUE_KAFKAS,
    UNREACHABLE,
    WIPED,
    checkpoints,
    kafka_images,
    metadata_dir,
)
from tests.support.volume import amount

JUDGED = {
    "kafka-4.0.1": {RIGHT: 207, EMPTY: 10},
    "kafka-4.2.0": {RIGHT: 435, EMPTY: 17, WIPED: 4, KILLED: 14},
}
"""Cells by judgement: none is wrong, and each case that no metadata can tell is in docs/spec/loss.md."""

CHECKS = {"B-32": LOST, "B-33": MAY_LACK, "B-37": UNREACHABLE}


def worst(kinds: Iterable[str]) -> str:
    """Of several losses of a partition, the one that says most."""
    return min(kinds, key=(LOST, UNREACHABLE, MAY_LACK, NOTHING).index, default=NOTHING)


def of_model(kafka: str) -> Iterator[tuple[int, Mapping[str, str]]]:
    """(offset, what the model says of each partition then) at each checkpoint."""
    reader = LogReader(MetadataLog.open(metadata_dir(kafka)))
    *_, (_, last) = images(LogReader(MetadataLog.open(metadata_dir(kafka))))
    names = {topic_id: topic.name for topic_id, topic in last.topics.items()}
    waiting = sorted(checkpoints(kafka))
    known: Mapping[Key, tuple[Loss, ...]] = {}
    for offset, found in fates(reader):
        while waiting and offset > waiting[0]:
            yield waiting.pop(0), _told(known, names)
        known = {key: fate.losses for key, fate in found.items()}
    for offset in waiting:
        yield offset, _told(known, names)


def _told(losses: Mapping[Key, tuple[Loss, ...]], names: Mapping[Uuid, str]) -> dict[str, str]:
    return {
        f"{names[key[0]]}-{key[1]}": worst(loss.kind for loss in told if loss.until is None)
        for key, told in losses.items()
    }


@pytest.mark.parametrize("kafka", TRUE_KAFKAS)
def test_what_the_model_says_of_each_partition_is_what_consumers_read(kafka: str) -> None:
    judged: Counter[str] = Counter()
    for offset, told in of_model(kafka):
        for cell in checkpoints(kafka)[offset]:
            judged[cell.judge(told.get(cell.partition, NOTHING))] += 1
    assert judged == JUDGED[kafka]


@pytest.mark.parametrize("kafka", TRUE_KAFKAS)
def test_what_check_and_offline_say_of_each_partition_is_what_consumers_read(kafka: str) -> None:
    """At each checkpoint, as ``--at-offset`` of it answers."""
    judged: Counter[str] = Counter()
    log = LogLake.of(Options(path=str(metadata_dir(kafka))))
    for number, (offset, cells) in enumerate(checkpoints(kafka).items()):
        lake = replace(log, offset=offset)
        found = sorted((one.subject, CHECKS[one.check.id]) for one in run_checks(lake, [*CHECKS]))
        if number % amount(4, 1) == 0:
            assert found == sorted({(one.name, one.kind) for one in offline(lake).data.losses})
        told = {name: worst(kind for _, kind in of) for name, of in groupby(found, key=lambda one: one[0])}
        for cell in cells:
            judged[cell.judge(told.get(cell.partition, NOTHING))] += 1
    assert judged == JUDGED[kafka]


@pytest.mark.parametrize("kafka", TRUE_KAFKAS)
def test_image_of_a_cluster_whose_partitions_were_read_equals_kafkas(kafka: str) -> None:
    ours = dict(images(LogReader(MetadataLog.open(metadata_dir(kafka)))))
    for image in kafka_images(kafka):
        assert image_as_json(ours[image["offset"]], image["offset"], cordons=False) == image


@pytest.mark.parametrize(
    ("kafka", "partition", "broker"),
    [
        ("kafka-4.2.0", "af3u-0", 1),
        ("kafka-4.2.0", "ag2u-0", 3),
        ("kafka-4.0.1", "af3u-0", 1),
        ("kafka-4.0.1", "ag2u-0", 3),
    ],
)
def test_unclean_election_belongs_to_the_directory_that_failed(kafka: str, partition: str, broker: int) -> None:
    """Those that stand before the failure's record in the same append were dropped, or blamed on an older loss."""
    lake = LogLake.of(Options(path=str(metadata_dir(kafka))))
    first, *_ = (one for one in incidents(lake) if partition in one.may_lack_writes)
    assert (first.what, first.broker_id) == (f"broker {broker}: directory failed", broker)
