"""``python -m lab``: the commands of the laboratory. Exit codes: 0 clean, 1 findings, 2 bad usage or input."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from jbod_model.errors import JbodError
from lab.conformance.command import conform
from lab.control.command import control
from lab.explore.command import explore
from lab.simulation.command import simulate
from pipelines.cli.options import make_readable


def application() -> typer.Typer:
    """The application with its four commands."""
    app = typer.Typer(
        name="lab",
        help="How we know that the model is Kafka.",
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for command in (simulate, explore, conform, control):
        app.command()(command)
    make_readable(app)
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command and exits with its code. An error of usage or input is one line on standard error."""
    try:
        application()(arguments, prog_name="python -m lab")
    except (JbodError, OSError) as problem:
        print(f"lab: {' '.join(str(problem).split())}", file=sys.stderr)  # noqa: T201
        sys.exit(2)


if __name__ == "__main__":
    main()
