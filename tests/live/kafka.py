"""A real Kafka on this machine: one controller and brokers with several log directories, on loopback ports only."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CONTROLLER = 100
LIBS = "KAFKA_LIBS"
"""Environment variable: the folder of Kafka's jars, as ``make live`` fetches them."""


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


@dataclass
class Cluster:
    """Nodes as processes; each has a folder with its directories, its settings and what it printed."""

    root: Path
    brokers: tuple[int, ...] = (1, 2, 3)
    disks: int = 3
    cluster_id: str = "abcdefghijklmnopqrstuQ"
    ports: dict[int, int] = field(default_factory=dict)
    nodes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self) -> None:
        """Format and start every node, and wait until all brokers are registered and unfenced."""
        for node in (CONTROLLER, *self.brokers):
            self.ports[node] = free_port()
        for node in (CONTROLLER, *self.brokers):
            self._configure(node)
            self.format(node)
            self.start_node(node)
        wait_for("brokers", lambda: len(self.log_dirs()) == len(self.brokers), 120)

    def stop(self) -> None:
        """End every node that this started."""
        for node in list(self.nodes):
            self.stop_node(node, signal.SIGKILL)

    @property
    def metadata(self) -> Path:
        """The controller's metadata.log.dir."""
        return self.root / str(CONTROLLER) / "metadata"

    def disk(self, broker: int, number: int) -> Path:
        return self.root / str(broker) / f"disk{number}"

    def directory_id(self, path: Path) -> str:
        """directory.id of a formatted directory."""
        said = (path / "meta.properties").read_text()
        found: list[str] = re.findall(r"^directory\.id=(\S+)$", said, re.MULTILINE)
        return found[0]

    def format(self, node: int) -> None:
        """kafka-storage format of the directories that are not formatted yet."""
        words = ["format", "-t", self.cluster_id, "-c", str(self._settings(node)), "--ignore-formatted"]
        self.tool("kafka.tools.StorageTool", *words)

    def start_node(self, node: int) -> None:
        said = (self.root / str(node) / "out.log").open("ab")
        self.nodes[node] = subprocess.Popen(
            [*self._java("-Xmx256m", f"-Dkafka.logs.dir={self.root}"), "kafka.Kafka", str(self._settings(node))],
            stdout=said,
            stderr=said,
        )

    def stop_node(self, node: int, how: signal.Signals = signal.SIGTERM) -> None:
        process = self.nodes.pop(node)
        process.send_signal(how)
        process.wait(60)

    def tool(self, name: str, *words: str) -> str:
        """Standard output of one of Kafka's command line tools."""
        done = subprocess.run([*self._java("-Xmx128m"), name, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{name} {words}: {done.stderr[-2000:]}"
        return done.stdout

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.ports[broker]}" for broker in self.brokers if broker in self.nodes)

    def create_topic(self, name: str, partitions: int, replication: int) -> None:
        self.tool(
            "org.apache.kafka.tools.TopicCommand",
            *("--bootstrap-server", self.bootstrap, "--create", "--topic", name),
            *("--partitions", str(partitions), "--replication-factor", str(replication)),
        )

    def describe(self) -> dict[tuple[str, int], tuple[int, tuple[int, ...], tuple[int, ...]]]:
        """kafka-topics --describe: (leader, replicas, isr) of every partition; leader -1 where there is none."""
        said = self.tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", self.bootstrap, "--describe")
        found = {}
        for line in said.splitlines():
            row = dict(re.findall(r"(\w+): ([^\t]*)", line))
            if "Partition" in row:
                leader = int(row["Leader"]) if row["Leader"].strip().lstrip("-").isdigit() else -1
                replicas, isr = (tuple(int(n) for n in row[k].split(",") if n.strip()) for k in ("Replicas", "Isr"))
                found[(row["Topic"].strip(), int(row["Partition"]))] = (leader, replicas, isr)
        return found

    def log_dirs(self) -> dict[int, dict[str, tuple[str | None, set[tuple[str, int]]]]]:
        """kafka-log-dirs: by broker and path of a directory, (error, the replicas in it)."""
        words = ("--bootstrap-server", self.bootstrap, "--describe")
        try:
            said = self.tool("org.apache.kafka.tools.LogDirsCommand", *words)
        except AssertionError:
            return {}
        brokers = json.loads(said.splitlines()[-1])["brokers"]
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

    def _java(self, *options: str) -> list[str]:
        return [
            os.environ.get("JAVA", "java"),
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            *options,
            "-cp",
            f"{Path(os.environ[LIBS]).resolve()}/*",
        ]

    def _settings(self, node: int) -> Path:
        return self.root / str(node) / "server.properties"

    def _configure(self, node: int) -> None:
        shutil.rmtree(self.root / str(node), ignore_errors=True)
        (self.root / str(node)).mkdir(parents=True)
        voter = f"{CONTROLLER}@127.0.0.1:{self.ports[CONTROLLER]}"
        settings = {
            "node.id": node,
            "controller.quorum.voters": voter,
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
        if node == CONTROLLER:
            settings |= {
                "process.roles": "controller",
                "listeners": f"CONTROLLER://127.0.0.1:{self.ports[node]}",
                "log.dirs": self.metadata,
            }
        else:
            disks = [self.disk(node, number) for number in range(self.disks)]
            settings |= {
                "process.roles": "broker",
                "listeners": f"PLAINTEXT://127.0.0.1:{self.ports[node]}",
                "log.dirs": ",".join(map(str, disks)),
                "metadata.log.dir": self.root / str(node) / "metadata",
            }
        self._settings(node).write_text("".join(f"{name}={value}\n" for name, value in settings.items()))


def _parsed(name: str) -> tuple[str, int]:
    topic, _, number = name.rpartition("-")
    return topic, int(number)
