"""``jbod completion``: what makes a shell complete commands and options."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Shell(StrEnum):
    """A shell that completes words."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("completion")(completion)


def completion(shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="The shell that is to complete.")]) -> None:
    """Print what makes a shell complete commands and options: eval "$(jbod completion bash)"."""
    from typer import completion as scripts

    from pipelines.cli.main import COMPLETE

    typer.echo(
        scripts.get_completion_script(  # type: ignore[attr-defined]
            prog_name="jbod", complete_var=COMPLETE, shell=shell.value
        )
    )
