"""A broker of our own, which answers DescribeCluster and DescribeLogDirs as Kafka's do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipelines.quorum.messages import API_VERSIONS, DESCRIBE_CLUSTER, DESCRIBE_LOG_DIRS, FETCH, Message
from tests.support.controller import OFFERED, Controller, Log

OF_BROKERS = {api: OFFERED[api] for api in (API_VERSIONS, 17, 36, FETCH, DESCRIBE_CLUSTER)} | {
    DESCRIBE_LOG_DIRS: (1, 5)
}


def log_dir(path: str, topics: Sequence[Message] = (), **fields: Any) -> Message:
    """A result of DescribeLogDirs."""
    description = {"error_code": 0, "log_dir": path, "topics": [*topics], "total_bytes": 1000, "usable_bytes": 400}
    return {**description, "is_cordoned": False, **fields}


def topic(name: str, *sizes: int, future: bool = False) -> Message:
    """Partitions 0, 1 and so on of these sizes."""
    return {
        "name": name,
        "partitions": [
            {"index": index, "size": size, "offset_lag": 0, "is_future": future} for index, size in enumerate(sizes)
        ],
    }


class Broker(Controller):
    """A server on loopback. ``peers``: the brokers of the cluster, itself included."""

    def __init__(self, node: int, directories: Sequence[Message] = (), **options: Any) -> None:
        self.directories = directories
        super().__init__(Log(), node, **{"offered": OF_BROKERS, **options})

    def _answer(self, api: int, request: Message) -> Message:
        if api == DESCRIBE_LOG_DIRS:
            error = 31 if self.denied else 0
            return {"throttle_time_ms": 0, "error_code": error, "results": [] if error else self.directories}
        answer = super()._answer(api, request)
        if api == DESCRIBE_CLUSTER:
            answer["brokers"] = [
                {"node_id": node, "host": "127.0.0.1", "port": peer.port, "rack": None}
                for node, peer in self.peers.items()
            ]
        return answer
