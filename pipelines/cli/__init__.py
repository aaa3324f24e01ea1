"""The command line: a module per group of commands; ``main`` runs them."""

from __future__ import annotations

import signal


def run() -> None:
    """The console script. Until all is imported, Ctrl-C ends the process as it does one that is not Python.

    A KeyboardInterrupt within an import would print a traceback. Where Ctrl-C is ignored, it stays so.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from pipelines.cli.main import run as run_command

    run_command()
