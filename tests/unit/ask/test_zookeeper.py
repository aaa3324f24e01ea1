"""A cluster on its way from ZooKeeper to KRaft (KIP-866): what its log lacks, and how its brokers fail."""

from __future__ import annotations

import pytest

from pipelines.ask.removal import safe_to_remove
from pipelines.ask.restart import NOT_DECIDABLE, NOT_SAFE, safe_to_restart
from pipelines.ask.restart_plan import restart_plan
from pipelines.ask.risk import risk
from pipelines.ask.whatif import whatif
from pipelines.lake.reader import Lake
from pipelines.run.log_lake import LogLake
from pipelines.source.log_options import LogOptions
from tests.support.paths import metadata_dir

WAITS, BEGUN, KRAFT = 23, 58, 175
"""Offsets: all brokers have registered in ZooKeeper mode, the topics are copied, all brokers run under KRaft."""
DISK = "RiKnOpB7F-zJ2eBkFtwHUg"
"""One of two of broker 1, which leads seven partitions, and zksolo-1 alone."""


def real(offset: int) -> Lake:
    """The log of a real cluster of 3.9.2."""
    return LogLake.of(LogOptions(str(metadata_dir("kafka-3.9.2-zk-migration"))), offset)


def test_nothing_is_allowed_while_the_topics_are_in_zookeeper_only() -> None:
    """Every broker could be restarted at once, and its disks pulled: no topic is in the log."""
    lake = real(WAITS)
    answer, batches = safe_to_restart(lake, [1, 2, 3]), restart_plan(lake)
    assert (answer.verdict, answer.as_known) == (NOT_DECIDABLE, NOT_DECIDABLE)
    assert [text[:37] for text in answer.undecided] == ["the topics are not in the log yet: th"]
    assert (batches.next.state, batches.next.batch) == (NOT_DECIDABLE, ())
    assert not safe_to_remove(lake, f"1:{DISK}").safe


def test_topics_that_are_copied_decide() -> None:
    assert [safe_to_restart(real(offset), [1]).verdict for offset in (BEGUN, KRAFT)] == [NOT_SAFE, NOT_SAFE]


@pytest.mark.parametrize(("offset", "stops"), [(BEGUN, True), (KRAFT, False)])
def test_broker_in_zookeeper_mode_stops_when_any_of_its_disks_fails(offset: int, stops: bool) -> None:
    """R-ZK-2: of two disks one had no replica in it, as no record places them, and its failure cost nothing."""
    lake = real(offset)
    exposed = {exposure.directory_id: exposure for exposure in risk(lake).directories}[DISK]
    assert exposed.stops_broker is stops
    answer, whole = whatif(lake, [f"1:{DISK}"]), whatif(lake, ["1"])
    assert (answer.changes == whole.changes) is stops
    assert (answer.replicas == whole.replicas) is stops
