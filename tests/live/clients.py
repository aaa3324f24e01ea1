"""Kafka's own clients beside a cluster: what they wrote, what was acknowledged, and what they read."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.live.kafka import TOOLS, Cluster

SURE = "acks=all\nenable.idempotence=true\nretries=2147483647\ndelivery.timeout.ms=600000\n"


class Client:
    """A process that prints what it does, a JSON object a line."""

    def __init__(self, cluster: Cluster, output: Path, name: str, *words: str) -> None:
        self.output = output
        servers = ",".join(f"127.0.0.1:{cluster.ports[broker]}" for broker in cluster.brokers)
        java = [*cluster.java(TOOLS, "-Xmx128m"), f"org.apache.kafka.tools.{name}", "--bootstrap-server", servers]
        with output.open("wb") as out:
            self.process = subprocess.Popen([*java, *words], stdout=out, stderr=out)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def events(self, name: str) -> Iterator[dict[str, Any]]:
        """What it printed of one kind."""
        for line in self.output.read_text(encoding="utf-8", errors="replace").splitlines():
            if f'"name":"{name}"' in line and line.endswith("}"):
                yield json.loads(line)


class Producer(Client):
    """Writes integers with acks=all and idempotence until it is stopped, or ``most`` of them."""

    def __init__(self, cluster: Cluster, folder: Path, topic: str, *, most: int = -1, throughput: int = 40) -> None:
        config = folder / f"{topic}.properties"
        config.write_text(SURE)
        words = ["--topic", topic, "--throughput", str(throughput), "--max-messages", str(most)]
        words += ["--repeating-keys", "64", "--command-config", str(config)]
        super().__init__(cluster, folder / f"{topic}.written", "VerifiableProducer", *words)

    @property
    def acknowledged(self) -> set[str]:
        return {event["value"] for event in self.events("producer_send_success")}

    @property
    def errors(self) -> list[str]:
        return [event["message"] for event in self.events("producer_send_error")]


class Consumer(Client):
    """Reads a topic from its beginning until it is stopped."""

    def __init__(self, cluster: Cluster, folder: Path, topic: str) -> None:
        words = ("--topic", topic, "--group-id", topic, "--verbose", "--reset-policy", "earliest")
        super().__init__(cluster, folder / f"{topic}.read", "VerifiableConsumer", *words)

    @property
    def read(self) -> set[str]:
        return {event["value"] for event in self.events("record_data")}
