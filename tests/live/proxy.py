"""A network that delays, cuts, doubles and garbles what passes: a proxy before one port."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections import Counter
from contextlib import suppress

_PIECE = 1 << 14
_IDLE_SECONDS = 0.5
"""A connection on which both sides wait, as after a garbled length, is cut."""


class FaultyProxy:
    """Forwards connections to a port of this machine. Every tenth piece of bytes or so meets a fault."""

    def __init__(self, target: int, seed: int) -> None:
        self.kinds: Counter[str] = Counter()
        self._target = target
        self._closed = False
        self._chance = random.Random(seed)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def faults(self) -> int:
        """How many there were so far."""
        return sum(self.kinds.values())

    def close(self) -> None:
        self._closed = True
        self._server.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._server.accept()
                server = socket.create_connection(("127.0.0.1", self._target), timeout=_IDLE_SECONDS)
            except OSError:  # a connection that fails is one fault more, not the end of all
                time.sleep(_IDLE_SECONDS / 10)
                continue
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._forward, args=(source, sink), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        source.settimeout(_IDLE_SECONDS)
        with suppress(OSError):
            while data := source.recv(_PIECE):
                sink.sendall(self._through(data))
        for connection in (source, sink):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _through(self, data: bytes) -> bytes:
        """The bytes as they arrive. Raises OSError where the connection is cut."""
        if self._chance.random() < 0.9:
            return data
        kind = self._chance.choice(("delay", "cut", "double", "garble"))
        self.kinds[kind] += 1
        at = self._chance.randrange(len(data))
        if kind == "delay":
            time.sleep(self._chance.random() / 50)
        elif kind == "double":
            return data[:at] + data[at:] * 2
        elif kind == "garble":
            return data[:at] + bytes([data[at] ^ self._chance.randrange(1, 256)]) + data[at + 1 :]
        elif kind == "cut":
            raise ConnectionResetError
        return data
