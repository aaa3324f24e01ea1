"""A real Kafka on this machine: controllers and brokers with several log directories, on loopback ports only."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CONTROLLER = 100
"""The controller whose log is read; the others may leave."""
LIBS = "KAFKA_LIBS"
"""Environment variable: the folder of the jars of Kafka's servers, as ``make live`` fetches them."""
TOOLS = "KAFKA_TOOLS"
"""Environment variable: the folder of the jars of Kafka's command line tools, which may be older than the servers."""
UNREGISTER = Path(__file__).parent / "UnregisterController.java"
"""No command line tool that is published unregisters a controller."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(what: str, ready: Any, seconds: float) -> Any:
    """What ``ready`` returns once it is true; AssertionError with the last answer after ``seconds``."""
    end = time.monotonic() + seconds
    while not (answer := ready()):
        assert time.monotonic() < end, f"{what}: not within {seconds} s; last answer {answer!r}"
        time.sleep(0.2)
    return answer


def mount(folder: Path, options: str) -> None:
    """Mounts a tmpfs. AssertionError with the way, if that is not allowed."""
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stderr}\nThis test mounts small disks: run it as root, or by unshare -rm"


def _mounted(root: Path) -> list[str]:
    """What is mounted below a folder, in the order in which it was."""
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    return [place for place in (line.split()[1] for line in lines) if Path(place).is_relative_to(root)]


@dataclass
class Cluster:
    """Nodes as processes; each has a folder with its directories, its settings and what it printed."""

    root: Path
    controllers: tuple[int, ...] = (CONTROLLER,)
    brokers: tuple[int, ...] = (1, 2, 3)
    disks: int = 3
    racks: tuple[str, ...] = ()
    """The rack of each of ``brokers``, if they have one."""
    cluster_id: str = "abcdefghijklmnopqrstuQ"
    formatting: tuple[str, ...] = ()
    """More words for ``kafka-storage format`` of controllers, as ``--feature NAME=LEVEL``."""
    settings: dict[str, str | int] = field(default_factory=dict)
    """More settings of every node."""
    heap: str = "256m"
    """Of every node."""
    disk_size: str = ""
    """As ``40m``: each disk of a broker is a tmpfs of this size. Otherwise disks are folders."""
    ports: dict[int, int] = field(default_factory=dict)
    nodes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self) -> None:
        """Format and start every node, and wait until all brokers are registered and unfenced."""
        for node in (*self.controllers, *self.brokers):
            self.ports[node] = free_port()
        for node in (*self.controllers, *self.brokers):
            self._configure(node)
            self.format(node)
            self.start_node(node)
        wait_for("brokers", lambda: len(self.log_dirs()) == len(self.brokers), 300)

    def stop(self) -> None:
        """End every node that this started."""
        for node in list(self.nodes):
            self.stop_node(node, signal.SIGKILL)
        for disk in reversed(_mounted(self.root)):
            subprocess.run(["umount", disk], check=True)

    def break_disk(self, disk: Path) -> None:
        """A tmpfs that cannot be written is mounted over a disk: what is opened by its path from now on fails."""
        mount(disk, "ro,size=4k")

    @property
    def metadata(self) -> Path:
        """The controller's metadata.log.dir."""
        return self.root / str(CONTROLLER) / "metadata"

    def disk(self, broker: int, number: int) -> Path:
        return self.root / str(broker) / f"disk{number}"

    def directory_id(self, path: Path) -> str:
        """directory.id of a formatted directory."""
        properties = (path / "meta.properties").read_text()
        ids: list[str] = re.findall(r"^directory\.id=(\S+)$", properties, re.MULTILINE)
        return ids[0]

    def format(self, node: int) -> None:
        """kafka-storage format of the directories that are not formatted yet."""
        words = ["format", "-t", self.cluster_id, "-c", str(self._settings(node)), "--ignore-formatted"]
        if node in self.controllers:
            words += ["--initial-controllers", ",".join(map(self._voter, self.controllers)), *self.formatting]
        self._run(LIBS, "kafka.tools.StorageTool", *words)

    def start_node(self, node: int) -> None:
        output = (self.root / str(node) / "out.log").open("ab")
        self.nodes[node] = subprocess.Popen(
            [
                *self.java(LIBS, f"-Xmx{self.heap}", f"-Dkafka.logs.dir={self.root}"),
                "kafka.Kafka",
                str(self._settings(node)),
            ],
            stdout=output,
            stderr=output,
        )

    def stop_node(self, node: int, how: signal.Signals = signal.SIGTERM) -> None:
        process = self.nodes.pop(node)
        process.send_signal(how)
        process.wait(60)

    def tool(self, name: str, *words: str) -> str:
        """Standard output of one of Kafka's command line tools."""
        return self._run(TOOLS, name, *words)

    def _run(self, jars: str, name: str, *words: str) -> str:
        done = subprocess.run([*self.java(jars, "-Xmx128m"), name, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{name} {words}: {done.stdout[-1000:]} {done.stderr[-2000:]}"
        return done.stdout

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.ports[broker]}" for broker in self.brokers if broker in self.nodes)

    def assign(self, topic: str, replicas: str, **config: str | int) -> None:
        """Create a topic with these replicas of its partitions, as ``1:2,3:1``."""
        words = ["--create", "--topic", topic, "--replica-assignment", replicas]
        for name, value in config.items():
            words += ["--config", f"{name.replace('_', '.')}={value}"]
        self.tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", self.bootstrap, *words)

    def reassign(self, topic: str, number: int, replicas: Sequence[int]) -> None:
        """Give a partition other replicas; it goes on when this returns."""
        plan = self.root / "reassignment.json"
        wanted = {"topic": topic, "partition": number, "replicas": list(replicas)}
        plan.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
        words = ("--bootstrap-server", self.bootstrap, "--reassignment-json-file", str(plan), "--execute")
        self.tool("org.apache.kafka.tools.reassign.ReassignPartitionsCommand", *words)

    def throttle(self, broker: int, rate: int | None) -> None:
        """The bytes in a second that a broker may fetch for replicas that are throttled and not in sync."""
        name = "follower.replication.throttled.rate"
        words = ("--delete-config", name) if rate is None else ("--add-config", f"{name}={rate}")
        of = ("--entity-type", "brokers", "--entity-name", str(broker))
        self.tool("kafka.admin.ConfigCommand", "--bootstrap-server", self.bootstrap, "--alter", *of, *words)

    def mount(self, broker: int, *numbers: int) -> None:
        """The disks that the broker has in log.dirs from its next start on."""
        disks = ",".join(str(self.disk(broker, number)) for number in numbers)
        settings = self._settings(broker).read_text()
        self._settings(broker).write_text(re.sub(r"(?m)^log\.dirs=.*$", f"log.dirs={disks}", settings))

    def create_topic(self, name: str, partitions: int, replication: int) -> None:
        self.tool(
            "org.apache.kafka.tools.TopicCommand",
            *("--bootstrap-server", self.bootstrap, "--create", "--topic", name),
            *("--partitions", str(partitions), "--replication-factor", str(replication)),
        )

    def delete_topic(self, name: str) -> None:
        words = ("--bootstrap-server", self.bootstrap, "--delete", "--topic", name)
        self.tool("org.apache.kafka.tools.TopicCommand", *words)

    def describe(self) -> dict[tuple[str, int], tuple[int, tuple[int, ...], tuple[int, ...]]]:
        """kafka-topics --describe: (leader, replicas, isr) of every partition; leader -1 where there is none."""
        output = self.tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", self.bootstrap, "--describe")
        partitions = {}
        for line in output.splitlines():
            row = dict(re.findall(r"(\w+): ([^\t]*)", line))
            if "Partition" in row:
                leader = int(row["Leader"]) if row["Leader"].strip().lstrip("-").isdigit() else -1
                replicas, isr = (tuple(int(n) for n in row[k].split(",") if n.strip()) for k in ("Replicas", "Isr"))
                partitions[(row["Topic"].strip(), int(row["Partition"]))] = (leader, replicas, isr)
        return partitions

    def log_dirs(self) -> dict[int, dict[str, tuple[str | None, set[tuple[str, int]]]]]:
        """kafka-log-dirs: by broker and path of a directory, (error, the replicas in it)."""
        words = ("--bootstrap-server", self.bootstrap, "--describe")
        try:
            output = self.tool("org.apache.kafka.tools.LogDirsCommand", *words)
        except AssertionError:
            return {}
        brokers = json.loads(output.splitlines()[-1])["brokers"]
        return {
            broker["broker"]: {
                place["logDir"]: (
                    place["error"],
                    {_parsed(each["partition"]) for each in place["partitions"] if not each["isFuture"]},
                )
                for place in broker["logDirs"]
            }
            for broker in brokers
        }

    def unregister(self, broker: int) -> None:
        words = ("unregister", "--bootstrap-server", self.bootstrap, "--id", str(broker))
        self.tool("org.apache.kafka.tools.ClusterTool", *words)

    def cordon(self, broker: int, *directories: Path) -> None:
        """cordoned.log.dirs of a broker: these directories take no new replicas; with none, all do again."""
        words = (
            ("--add-config", f"cordoned.log.dirs=[{','.join(map(str, directories))}]")
            if directories
            else ("--delete-config", "cordoned.log.dirs")
        )
        of = ("--entity-type", "brokers", "--entity-name", str(broker))
        self.tool("kafka.admin.ConfigCommand", "--bootstrap-server", self.bootstrap, "--alter", *of, *words)

    def cordoned(self, broker: int) -> set[Path]:
        """The broker's cordoned.log.dirs, as ``kafka-configs --describe`` has them."""
        of = ("--entity-type", "brokers", "--entity-name", str(broker))
        output = self.tool("kafka.admin.ConfigCommand", "--bootstrap-server", self.bootstrap, "--describe", *of)
        values = re.findall(r"^\s*cordoned\.log\.dirs=(\S*) sensitive", output, re.MULTILINE)
        return {Path(each) for paths in values for each in paths.split(",") if each}

    def voters(self) -> dict[int, str]:
        """``kafka-metadata-quorum describe``: directory id by voter."""
        to = ("--bootstrap-server", self.bootstrap)
        output = self.tool("org.apache.kafka.tools.MetadataQuorumCommand", *to, "describe", "--status")
        current_voters = json.loads(re.findall(r"^CurrentVoters:\s*(.*)$", output, re.MULTILINE)[0])
        return {voter["id"]: voter["directoryId"] for voter in current_voters}

    def remove_controller(self, controller: int) -> None:
        """Take a controller out of the voters, kill it, and take it out of the metadata."""
        which = ("--controller-id", str(controller), "--controller-directory-id", self.voters()[controller])
        words = ("--bootstrap-server", self.bootstrap, "remove-controller", *which)
        self.tool("org.apache.kafka.tools.MetadataQuorumCommand", *words)
        self.stop_node(controller, signal.SIGKILL)
        self._run(LIBS, str(UNREGISTER), self.bootstrap, str(controller))

    def java(self, jars: str, *options: str) -> list[str]:
        """The beginning of a command that runs a class of Kafka."""
        return [
            os.environ.get("JAVA", "java"),
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            *options,
            "-cp",
            f"{Path(os.environ[jars]).resolve()}/*",
        ]

    def _voter(self, controller: int) -> str:
        """A controller as ``--initial-controllers`` wants it. Its directory id says which it is."""
        identity = base64.urlsafe_b64encode(controller.to_bytes(2, "big") * 8).decode().rstrip("=")
        return f"{controller}@127.0.0.1:{self.ports[controller]}:{identity}"

    def _settings(self, node: int) -> Path:
        return self.root / str(node) / "server.properties"

    def _configure(self, node: int) -> None:
        shutil.rmtree(self.root / str(node), ignore_errors=True)
        (self.root / str(node)).mkdir(parents=True)
        for number in range(self.disks if self.disk_size and node in self.brokers else 0):
            self.disk(node, number).mkdir()
            mount(self.disk(node, number), f"size={self.disk_size}")
        voters = ",".join(f"127.0.0.1:{self.ports[controller]}" for controller in self.controllers)
        settings: dict[str, object] = {
            "node.id": node,
            "controller.quorum.bootstrap.servers": voters,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "offsets.topic.replication.factor": 1,
            "replica.high.watermark.checkpoint.interval.ms": 1000,
            "log.flush.offset.checkpoint.interval.ms": 1000,
            "log.dir.failure.timeout.ms": 60000,
            # Segments roll, snapshots are taken and old segments go while the lake follows.
            "internal.metadata.log.segment.bytes": 16384,
            "metadata.log.segment.ms": 10000,
            "metadata.log.max.record.bytes.between.snapshots": 8192,
            "metadata.max.retention.bytes": 65536,
            "log.retention.check.interval.ms": 5000,
        }
        if node in self.controllers:
            settings |= {
                "process.roles": "controller",
                "listeners": f"CONTROLLER://127.0.0.1:{self.ports[node]}",
                "log.dirs": self.root / str(node) / "metadata",
            }
        else:
            disks = [self.disk(node, number) for number in range(self.disks)]
            settings |= {
                "process.roles": "broker",
                "listeners": f"PLAINTEXT://127.0.0.1:{self.ports[node]}",
                "log.dirs": ",".join(map(str, disks)),
                "metadata.log.dir": self.root / str(node) / "metadata",
            }
            if self.racks:
                settings["broker.rack"] = self.racks[self.brokers.index(node)]
        settings |= self.settings
        self._settings(node).write_text("".join(f"{name}={value}\n" for name, value in settings.items()))


def _parsed(name: str) -> tuple[str, int]:
    topic, _, number = name.rpartition("-")
    return topic, int(number)
