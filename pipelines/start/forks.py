"""The process from which the parents of Spark's Python workers are forked, with everything loaded once.

Spark starts a parent for each kind of worker (pipelines.start.daemon), one after the other, and each would load the
same modules. This process loads them while the JVM starts. A parent then only hands its files over: a fork goes on in
its place. Without this process, or if it has ended, a parent loads the modules itself.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from pipelines.start.switch import PRELOAD

ADDRESS = "_JBOD_FORKS"
"""The variable of parents that holds the address of this process, a Unix socket."""

# What every worker imports, whatever it runs.
_MODULES = (
    "pandas",
    "pyspark.worker",
    "pyspark.daemon",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.streaming.stateful_processor_api_client",
    "pyspark.sql.streaming.stateful_processor_util",
    # Imported at the first call of the state, which takes a quarter of a second in each worker.
    "pyspark.sql.streaming.proto.StateMessage_pb2",
)
# Numbers of malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
_MODULE = "pipelines.start.forks"
_LENGTH_BYTES = 8
_MOST_BYTES = 1 << 24


def load_modules() -> None:
    """Imports what workers need, and calls ``warm()`` of the module that the variable PRELOAD names."""
    for name in _MODULES:
        importlib.import_module(name)
    keep_memory()
    if os.environ.get(PRELOAD):
        importlib.import_module(os.environ[PRELOAD]).warm()


def keep_memory() -> None:
    """Makes the workers reuse freed memory, as fresh pages cost a tenth of a fold. Only glibc supports this."""
    import ctypes

    import pyarrow as pa

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_MAX, 0)
    mallopt(_M_TRIM_THRESHOLD, 1 << 30)
    pa.set_memory_pool(pa.system_memory_pool())


# -- in the process that starts Spark ---------------------------------------------------------------------------------


class Forks:
    """The process to fork from. Parents may call its address before it is started: they wait."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="jbod-forks-"))
        atexit.register(self.remove)
        self.address = str(self._folder / "s")
        self._calls = socket.socket(socket.AF_UNIX)
        self._calls.bind(self.address)
        self._calls.listen()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, preload: str, log: Path) -> None:
        """Starts the process, once. Its output goes to ``log``. It ends with this process, which holds its input."""
        if self.process is not None:
            return
        number = self._calls.fileno()
        with log.open("ab") as output:
            self.process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", _MODULE, str(number)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=os.environ | {PRELOAD: preload, "PYTHONHASHSEED": "0"},
                pass_fds=(number,),
                start_new_session=True,
            )
        self._calls.close()

    def remove(self) -> None:
        """Removes the socket. Whoever calls it afterwards loads the modules itself."""
        shutil.rmtree(self._folder, ignore_errors=True)


# -- in a parent of workers -------------------------------------------------------------------------------------------


def hand_over() -> bool:
    """Lets a fork go on in the place of this process, and waits for its end. False: nobody took over."""
    address = os.environ.get(ADDRESS)
    if not address:
        return False
    said = json.dumps([dict(os.environ), sys.argv, sys.path, str(Path.cwd())]).encode()
    try:
        with socket.socket(socket.AF_UNIX) as call:
            call.connect(address)
            socket.send_fds(call, [len(said).to_bytes(_LENGTH_BYTES, "big")], [0, 1, 2])
            call.sendall(said)
            if not call.recv(1):
                return False
            with suppress(OSError):
                call.recv(1)
    except OSError:
        return False
    return True


# -- in the process to fork from --------------------------------------------------------------------------------------


def serve(calls: socket.socket) -> None:
    """Loads the modules, then forks for each call, until standard input ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    load_modules()
    ready = select.poll()
    ready.register(0, select.POLLIN)
    ready.register(calls, select.POLLIN)
    while True:
        numbers = [number for number, _ in ready.poll()]
        if 0 in numbers:
            return
        call, _ = calls.accept()
        with call, suppress(OSError, ValueError):
            length, files, _, _ = socket.recv_fds(call, _LENGTH_BYTES, 3)
            said = _received(call, int.from_bytes(length, "big"))
            if os.fork() == 0:
                calls.close()
                _go_on(call, said, files)
            for file in files:
                os.close(file)


def _received(call: socket.socket, size: int) -> bytes:
    if not 0 < size <= _MOST_BYTES:
        raise ValueError("not a call")
    said = bytearray()
    while len(said) < size:
        part = call.recv(size - len(said))
        if not part:
            raise ValueError("the call ended early")
        said += part
    return bytes(said)


def _go_on(call: socket.socket, said: bytes, files: list[int]) -> NoReturn:
    """Becomes the parent that called: its variables, arguments, folder and files."""
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        env, sys.argv[:], sys.path[:], folder = json.loads(said)
        os.environ.clear()
        os.environ.update(env)
        os.chdir(folder)
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        call.sendall(b"1")
        from pyspark.daemon import manager

        manager()
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    finally:
        os._exit(status)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
