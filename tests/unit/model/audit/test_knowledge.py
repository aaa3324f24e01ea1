"""What an audit knows at a request besides the image."""

from __future__ import annotations

import pytest

from jbod_model.audit.expect import RIGHT, expect
from jbod_model.audit.knowledge import Knowledge
from jbod_model.formats.records import FeatureLevelRecord, VersionedRecord, ZkMigrationStateRecord
from jbod_model.formats.request_log import RequestLine, parse_line
from jbod_model.formats.requests import BrokerHeartbeatRequest, FeatureUpdate, UpdateFeaturesRequest
from jbod_model.formats.responses import InvalidUpdateVersion, StaleBrokerEpoch
from tests.unit.model.audit.audit_world import log_line


@pytest.mark.parametrize(("state", "is_refused"), [(0, False), (1, True), (2, True), (3, False)])
def test_metadata_version_while_the_log_says_that_a_migration_is_in_progress_does_not_change(
    state: int, is_refused: bool
) -> None:
    """R-FEAT-2: 1 is MIGRATION, 2 PRE_MIGRATION, 3 POST_MIGRATION."""
    known = Knowledge()
    known.apply(VersionedRecord(FeatureLevelRecord(name="metadata.version", feature_level=20), 0), 0)
    known.apply(VersionedRecord(ZkMigrationStateRecord(zk_migration_state=state), 0), 1)
    line = parse_line(log_line(BrokerHeartbeatRequest(broker_id=1, broker_epoch=1), StaleBrokerEpoch("1"), 0).encode())
    assert isinstance(line, RequestLine)
    raised = UpdateFeaturesRequest(feature_updates=(FeatureUpdate(feature="metadata.version", max_version_level=21),))
    outcome = expect(known.image, raised, known.context(line), RIGHT)
    assert (outcome.answer == InvalidUpdateVersion.code.value) == is_refused == (not outcome.records)
