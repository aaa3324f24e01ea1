"""The state of shards in checkpoints: lakes of earlier releases go on."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from jbod_model.formats import records as r
from jbod_model.ids import Uuid
from pipelines.source.log_dir import LogDir
from pipelines.source.plan import Planner
from pipelines.source.positions import Position
from tests.support import engine
from tests.support.paths import FIXTURES
from tests.unit.replay.histories import log_of

STATES = FIXTURES / "states" / "shards.json"
TOPIC = Uuid(7, 1)
A, B, C = (Uuid(8, number) for number in range(1, 4))
BEFORE = (
    r.RegisterBrokerRecord(broker_id=1, broker_epoch=0, fenced=False, log_dirs=(A, B)),
    r.TopicRecord(name="t", topic_id=TOPIC),
    r.PartitionRecord(topic_id=TOPIC, partition_id=0, replicas=(1, 2), isr=(1,), directories=(A, C)),
    r.PartitionRecord(topic_id=TOPIC, partition_id=1, replicas=(2,), isr=(2,)),
    r.FeatureLevelRecord(name="metadata.version", feature_level=20),
    r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=0, log_dirs=(B,)),
)
AFTER = (
    r.PartitionChangeRecord(topic_id=TOPIC, partition_id=0, leader=1),
    r.PartitionChangeRecord(topic_id=TOPIC, partition_id=0, directories=(B, C)),
    r.FenceBrokerRecord(id=1, epoch=0),
)


def test_states_of_the_first_release_go_on(tmp_path: Path) -> None:
    """Names of columns in a shard's checkpoint are kept: the rest of the log gives the same rows after an old state."""
    planner = Planner(LogDir(str(log_of(tmp_path, *BEFORE, *AFTER))))
    middle = planner.advance(Position(0), len(BEFORE))
    assert middle.offset == len(BEFORE)
    whole, rest = engine.Run(shards=1), engine.Run(shards=1)
    for run in (whole, rest):
        run.add(planner.slices(Position(0), middle))
    rest.states[0] = stored()[0]
    for run in (whole, rest):
        run.add(planner.slices(middle, planner.advance(middle)))
    assert rest.tables == whole.tables


def stored() -> dict[int, bytes]:
    """The states after BEFORE, as the first release packed them."""
    return {int(shard): base64.b64decode(text) for shard, text in json.loads(STATES.read_text()).items()}
