"""``jbod man`` and ``jbod completion``: the manual page made from the help, and what shells complete."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from enum import StrEnum
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.main import get_command

_EXIT_CODES = (
    ("0", "every question that was answered"),
    ("1", "a check that found something"),
    ("2", "bad usage, bad input, a damaged lake, or an audit that could not decide"),
    ("3", "a defect of jbod, a run that another run overtook, or a failed task of a job"),
    ("130", "Ctrl-C"),
    ("141", "the reader of the output has closed it"),
)
_FILES = (
    ("/etc/jbod/jbod.yaml", "settings of the machine"),
    ("~/.config/jbod/jbod.yaml", "settings of the user"),
)


class Shell(StrEnum):
    """A shell that completes words."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command("man")(man)
    app.command("completion")(completion)


def man() -> None:
    """Print the manual page: jbod man | man -l -"""
    from pipelines.cli.main import application

    sys.stdout.write("".join(f"{line}\n" for line in manual(get_command(application(["man"])))))


def completion(shell: Annotated[Shell, typer.Argument(help="The shell that is to complete.")]) -> None:
    """Print what makes a shell complete commands and options: eval "$(jbod completion bash)"."""
    from typer import completion as scripts

    from pipelines.cli.main import COMPLETE

    typer.echo(
        scripts.get_completion_script(  # type: ignore[attr-defined]
            prog_name="jbod", complete_var=COMPLETE, shell=shell.value
        )
    )


def manual(command: Any) -> Iterator[str]:
    """The lines of the page in roff, from the application."""
    yield f'.TH JBOD 1 "" "jbod {version("jbod")}" "User Commands"'
    yield ".SH NAME"
    yield f"jbod \\- {_text(command.help or '')}"
    yield ".SH SYNOPSIS"
    yield ".B jbod"
    yield "[\\fB\\-\\-conf\\fR \\fIFILE\\fR] \\fICOMMAND\\fR [\\fIOPTION\\fR]..."
    yield ".SH OPTIONS"
    yield from _options(command)
    panel = None
    for name, one in command.commands.items():
        if one.rich_help_panel != panel:
            panel = one.rich_help_panel
            yield f".SH {_text(str(panel)).upper()}"
        yield from _command(f"jbod {name}", one)
    yield ".SH EXIT STATUS"
    yield from _pairs(_EXIT_CODES)
    yield ".SH FILES"
    yield from _pairs(_FILES)
    yield ".SH ENVIRONMENT"
    yield "JBOD_* variables are settings: JBOD_REPLAY__MAX_RECORDS=1000 is replay.max_records."


def _command(name: str, command: Any) -> Iterator[str]:
    arguments = (one for one in command.params if one.param_type_name == "argument")
    yield " ".join((f".SS {_text(name)}", *(f"\\fI{_text(_metavar(one))}\\fR" for one in arguments)))
    yield _text(command.help or "")
    yield from _options(command)
    for inner, one in getattr(command, "commands", {}).items():
        yield from _command(f"{name} {inner}", one)


def _options(command: Any) -> Iterator[str]:
    for one in command.params:
        if getattr(one, "hidden", False):
            continue
        if one.param_type_name == "argument":
            if one.help:
                yield ".TP"
                yield f"\\fI{_text(_metavar(one))}\\fR"
                yield _text(one.help)
            continue
        names = ", ".join(f"\\fB{_text(name)}\\fR" for name in (*one.opts, *one.secondary_opts))
        value = "" if one.is_flag else f" \\fI{_text(_metavar(one))}\\fR"
        yield ".TP"
        yield names + value
        yield _text(one.help or "")


def _metavar(one: Any) -> str:
    return str(one.metavar or one.name.replace("_", "-").upper())


def _pairs(pairs: tuple[tuple[str, str], ...]) -> Iterator[str]:
    for name, about in pairs:
        yield ".TP"
        yield f"\\fB{_text(name)}\\fR"
        yield _text(about)


def _text(text: str) -> str:
    """Text in roff: a hyphen that can be copied, and no line that begins with a control character."""
    plain = re.sub(r"\s+", " ", text).strip().replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain
