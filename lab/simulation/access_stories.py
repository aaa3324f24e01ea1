"""Scenarios about the permission that brokers need to talk to the controller (R-AUTH-1, R-AUTH-2, R-SIM-11)."""

from __future__ import annotations

from jbod_model.controller.context import ALLOW, CLUSTER_ACTION, CLUSTER_NAME, CLUSTER_RESOURCE, LITERAL
from jbod_model.formats.records import AccessControlEntryRecord, RemoveAccessControlEntryRecord, VersionedRecord
from jbod_model.ids import Uuid
from lab.simulation.controller_node import principal_of
from lab.simulation.scenario import bootstrap, replicas_in, run_for, scenario, topic
from lab.simulation.world import World


@scenario(
    "permission-revoked",
    "Brokers lose CLUSTER_ACTION: their assignments and failures do not arrive until they have it again.",
    "AssignReplicasToDirs",
)
def permission_revoked(world: World) -> None:
    world.controller.authorizes = True
    bootstrap(world, extra=tuple(map(_entry, (1, 2, 3))))
    for node_id in (1, 2, 3):
        world.add_host(node_id, 3)
        world.start_broker(node_id)
    run_for(world)
    topic(world, "orders")
    _revoke(world, 1)
    for replica in replicas_in(world, 1, "/disks/1-a"):
        world.move_replica(1, replica, "/disks/1-b")
    run_for(world, 15)
    _allow(world, 1)
    run_for(world)
    world.restart_broker(3)  # which then leads no partition
    run_for(world)
    for node_id in (2, 3):
        _revoke(world, node_id)
        world.break_disk(node_id, f"/disks/{node_id}-b")
    run_for(world, 60)
    for node_id in (2, 3):
        _allow(world, node_id)
    run_for(world)


def _allow(world: World, node_id: int) -> None:
    world.write(VersionedRecord(_entry(node_id), 0))
    world.tell(f"{principal_of(node_id)} has CLUSTER_ACTION again")


def _revoke(world: World, node_id: int) -> None:
    world.write(VersionedRecord(RemoveAccessControlEntryRecord(id=_entry(node_id).id), 0))
    world.tell(f"{principal_of(node_id)} loses CLUSTER_ACTION")


def _entry(node_id: int) -> AccessControlEntryRecord:
    """The permission of one broker."""
    return AccessControlEntryRecord(
        id=Uuid(3, node_id),
        resource_type=CLUSTER_RESOURCE,
        resource_name=CLUSTER_NAME,
        pattern_type=LITERAL,
        principal=principal_of(node_id),
        host="*",
        operation=CLUSTER_ACTION,
        permission_type=ALLOW,
    )
