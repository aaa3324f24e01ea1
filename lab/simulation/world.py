"""The whole simulated cluster, and the actions on it (R-SIM-4).

Messages take time, machines can be cut off or hang, and disks can fail; the seed decides the rest. Requests of brokers
go to the controller and back. Committed records reach every connected broker. Leaders change in-sync sets when
followers fall behind or catch up, and future replicas catch up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from jbod_model.broker import lifecycle, process
from jbod_model.broker.assignments import GlobalFailure, Replica
from jbod_model.broker.lifecycle import Shutdown
from jbod_model.broker.replicas import assigned_directories, local_changes
from jbod_model.errors import UsageError
from jbod_model.formats.metadata_version import METADATA_VERSION, directories_supported
from jbod_model.formats.records import BrokerEndpoint, BrokerFeature, NoOpRecord, VersionedRecord
from jbod_model.formats.requests import (
    AlterPartitionRequest,
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    Request,
)
from jbod_model.formats.responses import (
    AssignReplicasToDirsResponse,
    BrokerHeartbeatResponse,
    BrokerRegistrationResponse,
    RequestRefused,
    Response,
)
from jbod_model.ids import ID_TABLES
from jbod_model.ids import random as random_id
from jbod_model.profiles import PROFILES, REFERENCE, SUPPORTED_FEATURES
from jbod_model.replay.image import Image
from jbod_model.storage.problems import StorageProblem
from lab.simulation.controller_node import ControllerNode
from lab.simulation.host import Disk, Host, Reading, changed
from lab.simulation.replication import Replication
from lab.simulation.scheduler import Scheduler

REQUEST_TIMEOUT_MS = 4_500
NO_OP_INTERVAL_MS = 500


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request that the controller answered, in the form of its request log."""

    time_ms: int
    client_id: str
    correlation_id: int
    request: Request
    response: Response | RequestRefused
    waited_ms: int


@dataclass(slots=True)
class World:
    """A cluster under one scheduler. ``story`` describes the events for people."""

    scheduler: Scheduler
    controller: ControllerNode
    hosts: dict[int, Host] = field(default_factory=dict)
    exchanges: list[Exchange] = field(default_factory=list)
    story: list[tuple[int, str]] = field(default_factory=list)
    gauges: list[Reading] = field(default_factory=list)
    release: Mapping[str, tuple[int, int]] = field(default_factory=lambda: dict(SUPPORTED_FEATURES[REFERENCE]))
    _correlation: dict[str, int] = field(default_factory=dict)

    @classmethod
    def create(cls, seed: int, profile: str = "kafka", ids: str = "kafka") -> World:
        """An empty world with a controller. Raises :class:`UsageError` for a profile or table that does not exist."""
        if profile not in PROFILES:
            raise UsageError(f"profile {profile!r} is not known; known are {', '.join(PROFILES)}")
        if ids not in ID_TABLES:
            raise UsageError(f"table of ids {ids!r} is not known; known are {', '.join(ID_TABLES)}")
        scheduler = Scheduler(seed)
        cluster_id = str(random_id(scheduler.random))
        seed_of_placer = scheduler.random.getrandbits(48)
        controller = ControllerNode.create(PROFILES[profile], cluster_id, seed_of_placer, ID_TABLES[ids])
        world = cls(scheduler, controller)
        scheduler.every(NO_OP_INTERVAL_MS, world._idle)
        scheduler.every(500, lambda: world._commit(lambda: controller.expire_sessions(scheduler.now)))
        Replication(world).begin()
        return world

    @property
    def now(self) -> int:
        """Milliseconds since the start."""
        return self.scheduler.now

    @property
    def image(self) -> Image:
        """The metadata as the controller has it."""
        return self.controller.image

    def tell(self, text: str) -> None:
        """Add a line to the story, with the present time."""
        self.story.append((self.now, text))

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.scheduler.run(int(seconds * 1000))

    # CONTROLLER

    def write(self, *records: VersionedRecord) -> None:
        """Commit records that no request of this model causes: the first ones, or those of a migration."""
        self._commit(lambda: self.controller.append(records, self.now))

    def ask(self, request: Request, *, client: str = "admin", topic_ids: int = 0) -> Response:
        """Answer an operator's request at once. Raises the error of a refused request."""
        new_ids = tuple(random_id(self.scheduler.random) for _ in range(topic_ids))
        answers: list[Response | RequestRefused] = []
        self._commit(lambda: answers.append(self.controller.handle(request, self.now, new_ids)))
        self._log(client, request, answers[0], 2)
        if isinstance(answers[0], RequestRefused):
            raise answers[0]
        return answers[0]

    def fail_over(self, *, from_snapshot: bool = False) -> None:
        """Another controller takes over, with the whole log or with a snapshot and the log after it."""
        self.controller.fail_over(self.now, from_snapshot=from_snapshot)
        self.tell("another controller takes over")

    def _idle(self) -> None:
        if self.image.features:
            self.write(VersionedRecord(NoOpRecord(), 0))

    def _commit(self, change: Callable[[], object]) -> None:
        """Run a function that may commit records, then deliver the records to the brokers."""
        before = len(self.controller.log)
        change()
        if len(self.controller.log) > before:
            for host in self.hosts.values():
                self._deliver(host)

    # HOSTS

    def add_host(self, node_id: int, disks: int, *, metadata_dir: str | None = None) -> Host:
        """A machine with formatted disks ``/disks/N-a``, ``/disks/N-b`` and so on; nothing runs on it yet."""
        paths = [f"/disks/{node_id}-{chr(ord('a') + i)}" for i in range(disks)]
        random = self.scheduler.random
        host = Host(
            node_id=node_id,
            cluster_id=self.controller.cluster_id,
            rules=self.controller.profile.broker,
            next_long=lambda: random.getrandbits(64) - 2**63,
            disks={path: Disk() for path in paths},
            log_dirs=paths,
            metadata_dir=metadata_dir or paths[0],
            ids=self.image.ids,
        )
        host.format()
        self.hosts[node_id] = host
        return host

    def start_broker(self, node_id: int, *, zookeeper: bool = False) -> StorageProblem | None:
        """Start the machine's broker. The problems that prevent it are reported and returned."""
        host = self.hosts[node_id]
        started = host.start(self.now, random_id(self.scheduler.random), zookeeper=zookeeper)
        if isinstance(started, StorageProblem):
            self.tell(f"broker {node_id} does not start: {started}")
            return started
        mode = " in ZooKeeper mode" if zookeeper else ""
        self.tell(f"broker {node_id} starts{mode} with {len(host.log_dirs)} log directories")
        self._act(host, started)
        self._deliver(host)
        return None

    def stop_broker(self, node_id: int) -> None:
        """Shut the broker down cleanly: it asks the controller first."""
        self.tell(f"broker {node_id} is asked to stop")
        self._broker_event(self.hosts[node_id], lambda broker: process.begin_shutdown(broker, self.now))

    def kill_broker(self, node_id: int) -> None:
        """Kill the broker."""
        self.tell(f"broker {node_id} is killed")
        self.hosts[node_id].end(clean=False)

    def restart_broker(self, node_id: int, seconds: float = 60) -> None:
        """Shut the broker down cleanly, wait until it has ended, and start it again."""
        self.stop_broker(node_id)
        for _ in range(int(seconds * 10)):
            if self.hosts[node_id].broker is None:
                break
            self.run(0.1)
        else:
            self.kill_broker(node_id)
        self.start_broker(node_id)

    def break_disk(self, node_id: int, path: str) -> None:
        """A disk fails; a running broker notices it."""
        host = self.hosts[node_id]
        directory = host.directory_id(path)
        host.disks[path].works = False
        self.tell(f"disk {path} of broker {node_id} fails, directory {directory}")
        if directory is not None:
            failed = directory
            self._broker_event(host, lambda broker: process.fail_directory(broker, failed, self.now))

    def move_replica(self, node_id: int, replica: Replica, path: str) -> int:
        """AlterReplicaLogDirs: the error code."""
        host = self.hosts[node_id]
        directory = host.directory_id(path)
        if host.broker is None or directory is None:
            raise UsageError(f"broker {node_id} does not run, or {path} has no directory id")
        host.broker, error = process.alter_replica_log_dir(host.broker, replica, directory, self.now)
        self.tell(f"broker {node_id} is asked to move {self.name(replica)} to {path}: error {error}")
        self.after_event(host)
        return error

    def set_connected(self, node_id: int, connected: bool) -> None:
        """Disconnect a machine from the controller, or connect it again."""
        host = self.hosts[node_id]
        host.connected = connected
        self.tell(f"broker {node_id} is {'connected again' if connected else 'cut off from the controller'}")
        if connected:
            self._deliver(host)

    def set_paused(self, node_id: int, paused: bool) -> None:
        """Let a machine hang, or resume it: everything that it missed then happens at once."""
        host = self.hosts[node_id]
        host.paused = paused
        self.tell(f"broker {node_id} {'hangs' if paused else 'goes on'}")
        if not paused:
            self._deliver(host)
            self._tick(host, host.generation)

    def name(self, replica: Replica) -> str:
        """``topic-partition`` for people."""
        topic = self.image.topics.get(replica.topic_id)
        return f"{topic.name if topic else replica.topic_id}-{replica.partition}"

    # BROKER PROCESSES

    def _broker_event(self, host: Host, event: Callable[[process.Broker], process.Next]) -> None:
        if host.broker is None:
            return
        host.broker, actions = event(host.broker)
        self._act(host, actions)
        self.after_event(host)

    def after_event(self, host: Host) -> None:
        """After any event of a process: save its logs, and schedule its next action."""
        host.save()
        waiting = None if host.broker is None else host.broker.queue.pending
        reading = Reading(self.now, host.node_id, host.rules.queue_metric, waiting)
        if changed(self.gauges, reading):
            self.gauges.append(reading)
        if host.broker is not None and host.broker.timers:
            generation = host.generation
            self.scheduler.at(host.broker.timers[0], lambda: self._tick(host, generation))

    def _tick(self, host: Host, generation: int) -> None:
        broker = host.broker
        if broker is None or host.generation != generation or host.paused:
            return
        if broker.timers and broker.timers[0] <= self.now:
            self._broker_event(host, lambda current: process.tick(current, self.now))

    def _act(self, host: Host, actions: tuple[process.Action, ...]) -> None:
        for action in actions:
            if isinstance(action, Shutdown):
                self.tell(f"broker {host.node_id} {'halts' if action.halt else 'shuts down'}: {action.reason}")
                host.end(clean=action.allowed)
            else:
                self._send(host, self._complete(host, action))

    def _complete(self, host: Host, request: Request) -> Request:
        """The registration with listeners and features, which the model of the broker leaves out."""
        if not isinstance(request, BrokerRegistrationRequest):
            return request
        listener = BrokerEndpoint(name="PLAINTEXT", host=f"host-{host.node_id}", port=9092)
        features = tuple(
            BrokerFeature(name=name, min_supported_version=least, max_supported_version=most)
            for name, (least, most) in self.release.items()
        )
        return replace(request, listeners=(listener,), features=features)

    def _send(self, host: Host, request: Request) -> None:
        """Deliver a request to the controller and the answer back; lost messages time out."""
        generation = host.generation
        sent = self.now

        def arrive() -> None:
            if not host.connected:
                self.scheduler.at(sent + REQUEST_TIMEOUT_MS, lambda: self._answer(host, generation, request, None))
                return
            answers: list[Response | RequestRefused] = []
            self._commit(lambda: answers.append(self.controller.handle(request, self.now)))
            self._log(str(host.node_id), request, answers[0], self.now - sent)
            self.scheduler.soon(1, 10, lambda: back(answers[0]))

        def back(answer: Response | RequestRefused) -> None:
            if host.connected:
                self._answer(host, generation, request, answer)
            else:
                self.scheduler.at(sent + REQUEST_TIMEOUT_MS, lambda: self._answer(host, generation, request, None))

        self.scheduler.soon(1, 10, arrive)

    def _answer(self, host: Host, generation: int, request: Request, answer: Response | RequestRefused | None) -> None:
        if host.broker is None or host.generation != generation:
            return
        if host.paused:
            self.scheduler.after(100, lambda: self._answer(host, generation, request, answer))
            return
        if isinstance(request, BrokerRegistrationRequest):
            epoch = answer.broker_epoch if isinstance(answer, BrokerRegistrationResponse) else None
            host.broker = process.answer_registration(host.broker, epoch, self.now)
        elif isinstance(request, BrokerHeartbeatRequest):
            heard = answer if isinstance(answer, BrokerHeartbeatResponse) else None
            self._broker_event(host, lambda broker: process.answer_heartbeat(broker, heard, self.now))
        elif isinstance(request, AssignReplicasToDirsRequest):
            known: AssignReplicasToDirsResponse | GlobalFailure = GlobalFailure.TIMEOUT
            if isinstance(answer, RequestRefused):
                known = AssignReplicasToDirsResponse(error_code=answer.code.value)
            elif isinstance(answer, AssignReplicasToDirsResponse):
                known = answer
            host.broker = process.answer_assignments(host.broker, known, self.now)
        self.after_event(host)

    def alter_partition(self, host: Host, request: AlterPartitionRequest, done: Callable[[], None]) -> None:
        """Deliver a leader's change of in-sync sets to the controller; ``done`` is called after the answer."""

        def arrive() -> None:
            if host.connected and host.broker is not None:
                self._commit(lambda: self._log_answer(host, request))
            done()

        self.scheduler.soon(1, 10, arrive)

    def _log_answer(self, host: Host, request: AlterPartitionRequest) -> None:
        self._log(str(host.node_id), request, self.controller.handle(request, self.now), 3)

    # METADATA

    def _deliver(self, host: Host) -> None:
        """Deliver the newest metadata to a broker after a delay."""
        generation = host.generation
        self.scheduler.soon(5, 40, lambda: self._apply(host, generation))

    def _apply(self, host: Host, generation: int) -> None:
        broker = host.broker
        if broker is None or host.generation != generation or host.paused or not host.connected:
            return
        if not self.controller.may_act_as_broker(host.node_id):
            return
        image = self.image
        changes, deletes = local_changes(host.applied, image, host.node_id, host.rules)
        registration = image.brokers.get(host.node_id)
        version = image.features.get(METADATA_VERSION, 0)
        changed = host.applied.brokers.get(host.node_id) is not registration
        raised = host.applied.features.get(METADATA_VERSION, 0) != version
        warning = lifecycle.upgrade_warning(broker.life, directories_supported(version))
        if raised and warning is not None:
            self.tell(warning)
        changed = changed or raised
        host.broker = process.apply_metadata(
            broker,
            offset=self.controller.next_offset - 1,
            changes=changes,
            deletes=deletes,
            assigned=assigned_directories(image, host.node_id),
            registration=None if registration is None else (registration.epoch, registration.directories),
            registration_changed=changed,
            directories_supported=directories_supported(version),
            now=self.now,
        )
        host.applied = image
        self.after_event(host)

    # REQUEST LOG

    def _log(self, client: str, request: Request, response: Response | RequestRefused, waited_ms: int) -> None:
        correlation = self._correlation.get(client, -1) + 1
        self._correlation[client] = correlation
        self.exchanges.append(Exchange(self.now, client, correlation, request, response, waited_ms))
