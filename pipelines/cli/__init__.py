"""The command line: a module per group of commands; ``main`` runs them."""

from __future__ import annotations

import signal


def run() -> None:
    """The console script. During imports, Ctrl-C ends the process by the signal, without a traceback.

    A KeyboardInterrupt within an import would print a traceback. If Ctrl-C is ignored, it stays ignored.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from pipelines.cli.main import run as run_command

    run_command()
