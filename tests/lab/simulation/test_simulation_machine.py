"""A simulated cluster under any order of events (docs/spec/simulation.md), with the invariants after each."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jbod_model.broker.assignments import Replica
from lab.explore.invariants import check_state
from lab.simulation.host import Disk
from lab.simulation.scenario import cluster, topic
from lab.simulation.world import World
from tests.support.volume import amount

NODES = st.integers(1, 3)
LETTERS = st.sampled_from("abc")


class ClusterMachine(RuleBasedStateMachine):
    """Three brokers with three disks each; the metadata directory is the first disk and stays whole."""

    @initialize(seed=st.integers(0, 2**32), profile=st.sampled_from(["kafka", "kip858"]), elr=st.booleans())
    def begin(self, seed: int, profile: str, elr: bool) -> None:
        self.profile = profile
        self.world = World.create(seed, profile)
        cluster(self.world, (3, 3, 3), elr=elr)
        topic(self.world, "first", 3, 3)
        self.topics = 1

    @rule(node=NODES, letter=st.sampled_from("bc"))
    def a_disk_dies(self, node: int, letter: str) -> None:
        path = f"/disks/{node}-{letter}"
        if self.world.hosts[node].disks[path].works:
            self.world.break_disk(node, path)

    @rule(node=NODES)
    def dead_disks_are_replaced(self, node: int) -> None:
        host = self.world.hosts[node]
        for path in host.log_dirs:
            if not host.disks[path].works:
                host.disks[path] = Disk()
        host.format()
        self._restart(node)

    @rule(node=NODES, clean=st.booleans())
    def a_broker_restarts(self, node: int, clean: bool) -> None:
        if clean:
            self._restart(node)
        else:
            self.world.kill_broker(node)
            self.world.start_broker(node)

    @rule(node=NODES, number=st.integers(0, 2), letter=LETTERS)
    def a_replica_moves(self, node: int, number: int, letter: str) -> None:
        host = self.world.hosts[node]
        topic_id = self.world.image.topic_ids["first"]
        if host.broker is not None and host.disks[f"/disks/{node}-{letter}"].works:
            self.world.move_replica(node, Replica(topic_id, number), f"/disks/{node}-{letter}")

    @rule(node=NODES, seconds=st.sampled_from([1, 12]), hangs=st.booleans())
    def a_broker_is_out_of_reach(self, node: int, seconds: int, hangs: bool) -> None:
        change = self.world.set_paused if hangs else (lambda n, out: self.world.set_connected(n, not out))
        change(node, True)
        self.world.run(seconds)
        change(node, False)

    @rule(partitions=st.integers(1, 3), replication=st.integers(1, 2))
    def a_topic_is_created(self, partitions: int, replication: int) -> None:
        if sum(not broker.fenced for broker in self.world.image.brokers.values()) >= replication:
            topic(self.world, f"topic-{self.topics}", partitions, replication)
            self.topics += 1

    @rule()
    def the_controller_changes(self) -> None:
        self.world.fail_over()

    @rule(seconds=st.sampled_from([0.02, 0.2, 2, 40]))
    def time_passes(self, seconds: float) -> None:
        self.world.run(seconds)

    @invariant()
    @precondition(lambda self: hasattr(self, "world"))
    def the_metadata_is_sound(self) -> None:
        broken = {breach.number for breach in check_state(self.world.image)}
        assert broken <= ({9} if self.profile == "kafka" else set())

    def teardown(self) -> None:
        """With nothing more to come, every running broker has its replicas where the metadata says (R-INV-31)."""
        if not hasattr(self, "world"):
            return
        for node, host in self.world.hosts.items():
            if host.broker is None:
                self.world.start_broker(node)
        self.world.run(90)
        for node, host in self.world.hosts.items():
            assert host.broker is not None
            assert host.broker.queue.pending == 0
            for replica, directory in host.broker.replicas.disks.current.items():
                partition = self.world.image.topics[replica.topic_id].partitions[replica.partition]
                assert partition.directory(node) == directory

    def _restart(self, node: int) -> None:
        if self.world.hosts[node].broker is None:
            self.world.start_broker(node)
        else:
            self.world.restart_broker(node)


TestClusterMachine = ClusterMachine.TestCase
TestClusterMachine.settings = settings(max_examples=amount(5, 30), stateful_step_count=12, deadline=None)
