"""What is told of two clusters, beside what consumers read there: partition by partition, at every checkpoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby

import pytest

from jbod_model.formats.log import LogReader, MetadataLog
from jbod_model.ids import Uuid
from jbod_model.loss.copies import Loss
from jbod_model.loss.log import Key, fates
from jbod_model.replay.transactions import images
from lab.conformance.trace import image_as_json
from pipelines.ask.incident_list import incidents
from pipelines.ask.moves import directory_changes, moves
from pipelines.ask.offline_replicas import offline
from pipelines.ask.partition_history import history
from pipelines.ask.removal import safe_to_remove
from pipelines.ask.whatif import whatif
from pipelines.check.catalogue import run_checks
from pipelines.cli import main
from pipelines.run.log_lake import LogLake
from pipelines.source.log_options import LogOptions
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
from tests.support.volume import amount, rare, sampled

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
    for offset, fate_of in fates(reader):
        while waiting and offset > waiting[0]:
            yield waiting.pop(0), _worst_kinds(known, names)
        known = {key: fate.losses for key, fate in fate_of.items()}
    for offset in waiting:
        yield offset, _worst_kinds(known, names)


def _worst_kinds(losses: Mapping[Key, tuple[Loss, ...]], names: Mapping[Uuid, str]) -> dict[str, str]:
    return {
        f"{names[key[0]]}-{key[1]}": worst(loss.kind for loss in partition_losses if loss.until is None)
        for key, partition_losses in losses.items()
    }


@pytest.mark.parametrize("kafka", TRUE_KAFKAS)
def test_what_the_model_says_of_each_partition_is_what_consumers_read(kafka: str) -> None:
    judged: Counter[str] = Counter()
    for offset, kinds in of_model(kafka):
        for cell in checkpoints(kafka)[offset]:
            judged[cell.judge(kinds.get(cell.partition, NOTHING))] += 1
    assert judged == JUDGED[kafka]


@pytest.mark.parametrize("kafka", sampled(TRUE_KAFKAS, 1))
def test_what_check_and_offline_say_of_each_partition_is_what_consumers_read(kafka: str) -> None:
    """At each checkpoint, as ``--at-offset`` of it answers."""
    judged: Counter[str] = Counter()
    log = LogLake.of(LogOptions(path=str(metadata_dir(kafka))))
    for number, (offset, cells) in enumerate(checkpoints(kafka).items()):
        lake = replace(log, offset=offset)
        findings = sorted((finding.subject, CHECKS[finding.check.id]) for finding in run_checks(lake, [*CHECKS]))
        if number % amount(12, 1) == 0:
            assert findings == sorted({(loss.name, loss.kind) for loss in offline(lake).data.losses})
        kinds = {name: worst(kind for _, kind in of) for name, of in groupby(findings, key=lambda finding: finding[0])}
        for cell in cells:
            judged[cell.judge(kinds.get(cell.partition, NOTHING))] += 1
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
        rare("kafka-4.2.0", "ag2u-0", 3),
        ("kafka-4.0.1", "af3u-0", 1),
        rare("kafka-4.0.1", "ag2u-0", 3),
    ],
)
def test_unclean_election_belongs_to_the_directory_that_failed(kafka: str, partition: str, broker: int) -> None:
    """Those that stand before the failure's record in the same append were dropped, or blamed on an older loss."""
    lake = LogLake.of(LogOptions(path=str(metadata_dir(kafka))))
    first, *_ = (incident for incident in incidents(lake) if partition in incident.may_lack_writes)
    assert (first.what, first.broker_id) == (f"broker {broker}: directory failed", broker)


def test_history_moves_and_incidents_say_the_same_of_a_replica_on_a_new_disk() -> None:
    """Broker 4 is killed and starts within its session, with a blank disk in the place of the old one. Its reports
    (517 to 523) come before its registration (542). History said "moved", moves said "recreated"."""
    lake = LogLake.of(LogOptions(path=str(metadata_dir("kafka-4.0.1"))))
    moves_by_offset = {move.accepted_offset: move for move in moves(lake) if 517 <= move.accepted_offset <= 523}
    assert {move.outcome for move in moves_by_offset.values()} == {"recreated"}
    for offset in (517, 519, 520, 523):
        move = moves_by_offset[offset]
        (text,) = (
            event.what
            for event in history(lake, f"{move.topic}-0").events
            if event.offset == offset and move.target in event.what
        )
        assert text == f"replica on 4 recreated empty in {move.target} (its data was in {move.source})"
    (gone,) = (
        incident for incident in incidents(lake) if incident.kind == "directory gone" and incident.from_offset == 542
    )
    assert "7 replicas recreated empty in other directories of the broker" in [event.what for event in gone.events]


def test_start_that_has_not_registered_yet_is_told_alike_and_no_disk_of_it_may_be_wiped() -> None:
    """At 530 its reports are there, its registration is not. ``offline`` said to bring the blank disk back ("holds
    the only complete copy"), ``safe-to-remove`` that the old one could go, ``history`` that the replica moved."""
    lake = replace(LogLake.of(LogOptions(path=str(metadata_dir("kafka-4.0.1")))), offset=530)
    new, old, other = "xnWvO701RhWOVniwivJerQ", "vrdTs6cClfegDF5jaNp1PA", "A_NnMt_Wt11DYpKzV5UIVg"
    five = ("__consumer_offsets-0", "ah1-0", "am1-0", "am3-0", "ara3-0")
    (cause,) = offline(lake).causes
    assert cause.finding == f"a new process of broker 4 reported directory {new}, and has not registered yet"
    assert [step.action for step in cause.steps] == ["look", "look", "replace"]
    assert cause.steps[-1].forbidden
    assert (cause.steps[-1].cost, {*cause.steps[-1].directories}) == (five, {new, old, other})
    (newest,) = (incident for incident in incidents(lake) if incident.going_on)
    assert (newest.kind, newest.from_offset, newest.directory_id) == ("directory not registered", 517, new)
    assert (newest.ending, newest.advice) == ("not registered yet", cause.advice)
    removal = safe_to_remove(lake, f"4:{old}")
    assert not removal.safe
    assert removal.reasons[0].advice == cause.advice
    assert {move.outcome for move in moves(lake) if move.accepted_offset >= 517} == {"undecided"}
    assert next(event.what for event in history(lake, "am1-0").events if event.offset == 519).startswith(
        f"replica on 4 is in {new} (was {old}): moved, or recreated empty"
    )
    (*_, at_risk) = whatif(lake, [f"4:{old}"]).last_offline
    assert not at_risk.certain
    assert {copy.directory_id for copy in at_risk.copies} == {new, old}
    whole = replace(lake, offset=559)
    (story,) = (incident for incident in incidents(whole) if incident.directory_id == new)
    assert (story.kind, story.ending) == ("directory not registered", "the broker registered with it")


def test_disks_not_to_wipe_are_one_or_the_other_while_a_start_is_under_way(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main.main(["offline", "--log", str(metadata_dir("kafka-4.0.1")), "--at-offset", "530"])
    assert (
        "  directory xnWvO701RhWOVniwivJerQ of broker 4 or directory vrdTs6cClfegDF5jaNp1PA of broker 4 holds the only "
        "complete copy of 4 partitions: __consumer_offsets-0, am1-0, am3-0, ara3-0\n"
    ) in capsys.readouterr().out


@pytest.mark.exhaustive
def test_history_and_moves_say_the_same_of_every_change_of_a_directory() -> None:
    """Broker 4 of 4.2.0 has its old disk back: some replicas move back, others are empty there."""
    lake = LogLake.of(LogOptions(path=str(metadata_dir("kafka-4.2.0"))))
    meanings = {
        (topic, at): what
        for topic, at, what in lake.query(f"SELECT topic, at_offset, meaning FROM {directory_changes(lake)}")
    }
    words = {"moved": "moved: ", "recreated": "recreated empty in", "returned": "again, with the log there"}
    for (topic, at), meaning in meanings.items():
        if topic in ("ah1", "am1", "amvs"):
            texts = [event.what for event in history(lake, f"{topic}-0").events if event.offset == at]
            assert any(words[meaning] in what for what in texts), (topic, at)
    outcomes = {(move.topic, move.accepted_offset): move.outcome for move in moves(lake)}
    for place, outcome in outcomes.items():
        assert (meanings[place] == "moved") == (outcome in ("promoted", "accepted", "reverted"))
    assert (meanings["ah1", 575], meanings["ah1", 645]) == ("recreated", "moved")


def test_disk_that_failed_as_another_replica_was_elected_without_it_is_to_be_saved() -> None:
    """It said that the copy there was truncated when it followed, and to restore a backup: the election stands before
    the failure in the same append."""
    lake = replace(LogLake.of(LogOptions(path=str(metadata_dir("kafka-4.0.1")))), offset=360)
    (loss,) = [data_loss for data_loss in offline(lake).data.losses if data_loss.name == "ag2u-0"]
    assert loss.advice.startswith("save directory HjYyzLLEbQypaXoSvh86dw of broker 3 before broker 3 starts with it")
    (loss,) = [data_loss for data_loss in offline(replace(lake, offset=391)).data.losses if data_loss.name == "ag2u-0"]
    assert loss.advice.startswith("do not wipe directory HjYyzLLEbQypaXoSvh86dw of broker 3")
    assert "move the partition's folder away from it: Kafka does not start with two" in loss.advice


def test_no_move_is_called_undone_where_the_replica_was_recreated_in_between() -> None:
    """B-14 took the reports of a process that had not registered for moves of the one before it."""
    lake = LogLake.of(LogOptions(path=str(metadata_dir("kafka-4.2.0"))))
    assert run_checks(lake, ["B-05", "B-14"]) == []
