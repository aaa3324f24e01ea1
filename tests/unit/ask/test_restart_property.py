"""Verdicts about restarts against an exhaustive play of the model: every order of stops and of returns."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from jbod_model.formats.responses import ControllerFault
from jbod_model.ids import Uuid
from jbod_model.profiles import KAFKA
from jbod_model.replay.image import Image
from pipelines.ask.restart import safe_to_restart
from tests.support.images import images, in_memory_of
from tests.support.volume import amount
from tests.unit.ask.restart_play import played

REPAIRED = replace(KAFKA, controller=KAFKA.controller.without())
met: dict[str, int] = {}


def with_directories(image: Image) -> Image:
    """Every broker registers a directory, as all do since Kafka 3.7."""
    listed = {
        number: replace(registration, directories=registration.directories or (Uuid(number, 1000),))
        for number, registration in image.brokers.items()
    }
    return replace(image, brokers=listed)


@settings(
    max_examples=amount(6, 2000),
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(image=images().map(with_directories), data=st.data())
def test_verdict_about_any_image_is_what_every_order_of_the_restart_does(image: Image, data: st.DataObject) -> None:
    chosen = data.draw(st.sets(st.sampled_from(sorted(image.brokers)), min_size=1, max_size=3))
    brokers = data.draw(st.permutations(sorted(chosen)))
    kill = data.draw(st.booleans())
    answer = safe_to_restart(in_memory_of(image), brokers, kill=kill)
    try:
        expected = played(image, brokers, kill=kill)
    except ControllerFault:
        expected = played(image, brokers, kill=kill, profile=REPAIRED)
    harms_of = {(stake.topic_id, stake.partition): {*stake.harms} - {"acks1_at_risk"} for stake in answer.stakes}
    already = {(stake.topic_id, stake.partition): {*stake.already} for stake in answer.stakes}
    # In order, a broker is let go some time after it asked: the play has two of these schedules, the answer others.
    others = {"unclean_election"} if not kill and len(brokers) > 1 else set[str]()
    for (topic_id, number), caused in expected.caused.items():
        key = str(topic_id), number
        harms = harms_of.get(key, set())
        assert caused <= harms, "a harm is missed"
        assert harms - caused <= others
        if {*brokers} & {*image.topics[topic_id].partitions[number].replicas}:
            assert already.get(key, set()) == expected.already[topic_id, number] - harms
        for harm in caused:
            met[harm] = met.get(harm, 0) + 1
    harmless = not any(harms_of.values()) and not answer.fault
    # A start with a disk that is not online is judged by itself: tests/unit/ask/test_next_start_property.py.
    if answer.verdict == "safe" or not answer.starts:
        assert (answer.verdict == "safe") == harmless
    reasons = answer.blocking or answer.refused or answer.fault or (answer.quorum and not answer.quorum.safe)
    assert answer.verdict == "safe" or reasons, "an answer that is not safe says why"
