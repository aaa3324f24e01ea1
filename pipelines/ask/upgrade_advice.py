"""The advice about a node that blocks a feature level, with a command that can be run without changes.

``kafka-cluster.sh unregister`` unregisters brokers, and ``kafka-metadata-quorum.sh remove-controller`` removes voters
of a dynamic quorum (3.9 and later). ``kafka-cluster.sh unregister-controller`` and ``remove-controller --unregister``
came with 4.4 (KIP-1312), and the controllers accept them from metadata.version 4.4-IV2 on (R-UNREG-3).
"""

from __future__ import annotations

from collections.abc import Sequence

from jbod_model.formats.metadata_version import controllers_unregister
from pipelines.ask.advice import few
from pipelines.ask.quorum import ALIVE, GHOST, LEADER, OBSERVER, UNKNOWN, Node, Quorum


def broker_advice(node: Node, needed: str, who: Quorum, last: Sequence[str]) -> tuple[str, str | None]:
    """What to do about a broker that lacks a level, and the command, where one helps.

    ``last``: the partitions whose last complete copy an unregistration gives up (R-ACT-4).
    """
    number = node.node_id
    install = f"start broker {number} with {needed} or later"
    if node.state == ALIVE:
        return install, None
    if last:
        return f"{install}; do not unregister it: its disks have the last complete copies of {few(last)}", None
    command = f"kafka-cluster.sh unregister --id {number} --bootstrap-server {server(who)}"
    return f"{install}; if it never comes back, move its replicas to other brokers and unregister it", command


def controller_advice(
    node: Node, registered: bool, needed: str, who: Quorum, metadata_version: int
) -> tuple[str, str | None]:
    """What to do about a controller that lacks a level, and the command, where one helps."""
    number, to = node.node_id, server(who)
    install = f"start controller {number} with {needed} or later"
    if not registered:
        return f"start controller {number}, or see why it does not register: Kafka asks for all voters", None
    if node.state in (LEADER, OBSERVER, UNKNOWN):
        return install, None
    if node.state == GHOST:
        look = f"see that controller {number} does not run (kafka-metadata-quorum.sh describe --replication)"
        if controllers_unregister(metadata_version):
            command = f"kafka-cluster.sh unregister-controller --id {number} --bootstrap-server {to}"
            return f"{look}, then unregister it with the tools of Kafka 4.4 or later", command
        # No release has a command for this: UnregisterController needs the very level that the ghost blocks.
        return (
            f"{look}; no command unregisters a controller below metadata.version 4.4-IV2: start one with node.id "
            f"{number} and {needed} or later, which registers in its place, and stop it once the level is raised",
            None,
        )
    voter = next((voter for voter in who.voters if voter.node_id == number), None)
    if voter is None or voter.directory_id is None or not who.kraft_version:
        gone = "if it is gone for good, start another with its node.id: the voters of this quorum are static"
        return f"{install}; {gone}", None
    command = (
        f"kafka-metadata-quorum.sh --bootstrap-server {to} remove-controller --controller-id {number} "
        f"--controller-directory-id {voter.directory_id}"
    )
    also = "" if controllers_unregister(metadata_version) else "; its registration stays, and is a ghost then"
    return f"{install}; if it is gone for good, remove it from the voters{also}", command + (
        " --unregister" if controllers_unregister(metadata_version) else ""
    )


def server(who: Quorum) -> str:
    """``host:port`` of a broker that runs."""
    for node in who.brokers:
        if node.state == ALIVE and node.endpoints:
            return node.endpoints[0].partition("://")[2]
    return "HOST:PORT"
