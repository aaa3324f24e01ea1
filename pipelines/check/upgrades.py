"""Checks of what blocks an upgrade to the next release, as in ``jbod upgrade-check``."""

from pipelines.check.definition import Check

GHOST = Check(
    id="B-34",
    name="ghost-registration",
    severity="warning",
    title="Registrations of nodes that no longer exist block a feature level",
    why="Kafka asks every registration whether it supports a level, also that of a controller which was replaced and "
    "of a broker that never came back, and refuses the upgrade. Below metadata.version 4.4-IV2 no command unregisters "
    "a controller.",
    sql="""
        SELECT broker_id, since_offset, since_time, finding, advice FROM held_back WHERE ghost
    """,
    message="{finding}",
    todo="{advice}",
    source="KIP-1312; FeatureControlManager.reasonNotSupported",
)

BEHIND = Check(
    id="B-35",
    name="feature-held-back",
    severity="info",
    title="Nodes support lower feature levels than others, and block raising them",
    why="Normal while a cluster is upgraded node by node. Afterwards it is a node that was left out.",
    sql="""
        SELECT broker_id, since_offset, since_time, finding, advice FROM held_back WHERE NOT ghost
    """,
    message="{finding}",
    todo="{advice}",
    source="KIP-584; FeatureControlManager.reasonNotSupported",
)

CHECKS = (GHOST, BEHIND)
