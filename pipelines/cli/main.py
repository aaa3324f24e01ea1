"""``jbod``: the command line. Exit codes: 0 done, 1 no or something wrong, 2 bad usage, input or lake, 3 own fault.

Exit code 3 also means that another run published first: try again.

Exit code 141 means that the reader of the output has closed it (``jbod image | head``), as after a SIGPIPE.

Data goes to standard output, progress and errors to standard error. Each command imports its modules when it runs, so
a question does not wait for the import of Spark.
"""

from __future__ import annotations

import errno
import importlib
import os
import re
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from jbod_model.errors import JbodError, Retriable, UsageError, first_line_of
from pipelines.cli.options import make_readable
from pipelines.cli.progress import (
    READER_GONE,
    SIGNALS,
    Quiet,
    Stopped,
    Verbose,
    add_volume,
    heartbeat,
    interrupt_by_exception,
    interrupt_by_signal,
    interruptible,
    output,
    reader_gone,
    set_volume,
)
from pipelines.start.process import collect_rarely, without_blas_threads
from pipelines.storage.objects import fault_of_storage

MODULES: Mapping[str, Sequence[str]] = {
    "ask": (
        *("offline", "status", "directories", "history", "image", "dump", "incidents"),
        *("risk", "whatif", "safe-to-remove", "quorum", "upgrade-check", "report", "sizes"),
    ),
    "restart": ("safe-to-restart", "restart-plan"),
    "check": ("check",),
    "requests": ("audit", "moves", "assignments"),
    "replay": ("replay", "mirror", "label"),
    "fleet": ("fleet",),
    "plan": ("plan",),
    "jobs": ("jobs",),
    "upkeep": ("metrics", "optimize", "vacuum", "rebuild", "verify", "warm"),
    "storage": ("disks",),
    "overview": ("settings",),
}
"""The commands of each ``pipelines/cli/NAME.py``: functions of these names."""
GROUPS = ("jobs", "fleet", "plan")
"""Those that are groups of commands: their functions return them."""
PANELS: Mapping[str, Sequence[str]] = {
    "What is wrong, and why": ("offline", "check", "status", "incidents", "history", "report"),
    "What may be done": (
        *("risk", "whatif", "safe-to-remove", "safe-to-restart", "restart-plan", "plan", "upgrade-check"),
    ),
    "The disks and the controllers": ("directories", "sizes", "moves", "assignments", "quorum"),
    "Fill a lake": ("replay", "mirror", "label"),
    "Many clusters": ("fleet",),
    "Monitor a cluster": ("metrics", "jobs"),
    "A broker's own disks": ("disks",),
    "Maintain a lake": ("verify", "optimize", "vacuum", "rebuild"),
    "This program": ("settings", "warm"),
    "For engineers": ("dump", "image", "audit"),
}
"""The panels of the help, in order: the operator's questions first, the engineer's tools last."""
COMPLETE = "_JBOD_COMPLETE"
"""The variable that a shell sets to ask for completions; `--show-completion` prints what makes it do so."""
_INTERRUPTED = 130
_SECRET = re.compile(r"://[^/@\s]*:[^/@\s]*@")
"""A name and a password in a URI."""


def application(arguments: Sequence[str] = ()) -> typer.Typer:
    """Builds the application with only the commands that ``arguments`` may name, to import fewer modules."""
    app = typer.Typer(
        name="jbod",
        help="What every disk of a Kafka cluster holds, and what is lost when one fails.",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_for_all_commands)
    wanted = [name for name, commands in MODULES.items() if any(word in commands for word in arguments[:4])]
    for name in MODULES if COMPLETE in os.environ or not wanted else wanted:
        module = importlib.import_module(f"pipelines.cli.{name}")
        for command in MODULES[name]:
            _add(app, command, getattr(module, command.replace("-", "_")))
    _into_panels(app)
    add_volume(app)
    make_readable(app)
    return app


def _add(app: typer.Typer, name: str, function: Any) -> None:
    if name in GROUPS:
        app.add_typer(function(), name=name)
    else:
        app.command(name)(function)


def _into_panels(app: typer.Typer) -> None:
    """Sorts the commands into the panels of the help."""
    places = {command: (panel, at) for panel, commands in PANELS.items() for at, command in enumerate(commands)}
    order = [*PANELS]
    for command in app.registered_commands:
        command.rich_help_panel = places[command.name or ""][0]
    for group in app.registered_groups:
        group.rich_help_panel = places[group.name or ""][0]
    app.registered_commands.sort(key=lambda info: (order.index(places[info.name or ""][0]), places[info.name or ""][1]))


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"jbod {version('jbod')}")
        raise typer.Exit


def _for_all_commands(
    context: typer.Context,
    conf: Annotated[list[str] | None, typer.Option(help="A file of settings; of several, later ones win.")] = None,
    _version: Annotated[
        bool, typer.Option("--version", help="The version of jbod.", is_eager=True, callback=_show_version)
    ] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    set_volume(quiet=quiet, verbose=verbose)
    if conf:
        os.environ["JBOD_CONF"] = os.pathsep.join(conf)
    if context.invoked_subcommand is None:
        from pipelines.cli.overview import show_sight

        if not show_sight([]):
            typer.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exits with its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    set_volume(quiet=False, verbose=False)
    try:
        _settle_home()
        _settle_width()
        _refuse_secrets(words)
        if len(words) == 1 and _is_place(words[0]):
            from pipelines.cli.overview import show_sight

            if show_sight(words):
                sys.exit(0)
            from pipelines.source.log_dir import LogDir

            LogDir(words[0])  # which says what is there in place of a log
        with interruptible(), heartbeat(_long_command(words)):
            run_command = application(words)
            interrupt_by_exception()
            run_command(words, prog_name="jbod")
    except Stopped:
        raise
    except KeyboardInterrupt:
        print("jbod: interrupted", file=sys.stderr)  # noqa: T201
        sys.exit(_INTERRUPTED)
    except SystemExit as left:
        if left.code == _INTERRUPTED:
            print("jbod: interrupted", file=sys.stderr)  # noqa: T201
        raise
    except Retriable as problem:
        _refuse(str(problem), 3)
    except JbodError as problem:
        _refuse(str(problem))
    except OSError as problem:
        if (fault := _fault_of_s3(words, problem)) is not None:
            _refuse(str(fault), 3 if isinstance(fault, Retriable) else 2)
        if "No usable temporary directory" in str(problem):
            _refuse(f"{problem.strerror}: TMPDIR names a folder that this user can write")
        where = problem.filename or ("the answer could not be written" if problem.errno == errno.ENOSPC else "")
        _refuse(f"{where}: {problem.strerror}" if where else str(problem))
    except UnicodeEncodeError as problem:  # Arrow, delta-rs and Spark take no other path
        _refuse(f"{ascii(problem.object)[1:-1]}: is no text in UTF-8: name a link to it whose path is")
    except Exception as problem:
        if _damaged_table(problem):
            _refuse(f"a file of a table is damaged ({first_line_of(problem)}): restore it, or rebuild the lake")
        if (fault := _fault_of_s3(words, problem)) is not None:
            _refuse(str(fault), 3 if isinstance(fault, Retriable) else 2)
        # Python's exit code for this is 1, but jbod's 1 is an answer.
        traceback.print_exc()
        sys.exit(3)


def _fault_of_s3(words: Sequence[str], problem: Exception) -> JbodError | None:
    """The fault of S3 behind an error that no module expected. The error does not name the lake or log."""
    if "S3" not in str(problem):
        return None
    return fault_of_storage(next((word for word in words if word.startswith("s3://")), "s3://"), problem)


def _damaged_table(problem: Exception) -> bool:
    """Whether Arrow could not read a Parquet file: bad input, in any command."""
    return type(problem).__module__.startswith("pyarrow") and "Parquet" in str(problem)


def run() -> None:
    """Runs ``main`` and writes all output, so that a failure to write it has an exit code."""
    sys.stdout, sys.stderr = output(sys.stdout), output(sys.stderr)
    collect_rarely()
    without_blas_threads()
    try:
        main()
        code: object = 0
    except SystemExit as left:
        code = left.code
    interrupt_by_signal()
    if code in (None, 0, 1, *(128 + number for number in SIGNALS)) and (
        session := sys.modules.get("pipelines.spark.session")
    ):
        session.discard_log()
    if not (code is None or isinstance(code, int)):
        sys.exit(str(code))
    try:
        sys.stdout.flush()
        if reader_gone(sys.stdout):
            code = READER_GONE
    except SystemExit as left:
        code = left.code
    except OSError as problem:
        if code in (None, 0, 1):  # not reported yet
            print(f"jbod: the answer could not be written: {problem.strerror}", file=sys.stderr)  # noqa: T201
        code = 2
    with suppress(OSError, SystemExit):
        sys.stderr.flush()
    sys.exit(code)


def _long_command(words: Sequence[str]) -> str:
    """The command that may take long, empty for none. Commands that ``jobs`` runs report their own progress."""
    known = {command for commands in MODULES.values() for command in commands} - {"jobs"}
    return next((word for word in words if word in known), "") if "jobs" not in words[:3] else ""


def _is_place(word: str) -> bool:
    """Whether a word is a path, or the name of something that exists, and no command."""
    is_command = any(word in commands for commands in MODULES.values())
    return not word.startswith("-") and not is_command and (os.sep in word or Path(word).exists())


def _settle_home() -> None:
    """Gives a process without HOME, whose user /etc/passwd lacks, the home that runtimes of containers give."""
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = "/"


def _settle_width() -> None:
    """Forgets COLUMNS=0, of a terminal whose size is not known: rich takes it for a width, and prints no text."""
    if os.environ.get("COLUMNS", "").strip("0") == "":
        os.environ.pop("COLUMNS", None)


def _refuse_secrets(words: Sequence[str]) -> None:
    """Raises UsageError if the location of a log or lake contains a password."""
    for word in words:
        if _SECRET.search(word) and not word.startswith("http"):
            raise UsageError(
                f"{word}: a list of processes shows a password in a URI: let the environment (AWS_ACCESS_KEY_ID and "
                "so on), a profile or the machine's role give the credentials"
            )


def _refuse(problem: str, code: int = 2) -> None:
    """Prints one line on standard error, after all output so far. It hides passwords in URIs."""
    with suppress(OSError):
        sys.stdout.flush()
    print("jbod:", _SECRET.sub("://***@", " ".join(problem.split())), file=sys.stderr)  # noqa: T201
    sys.exit(code)


if __name__ == "__main__":
    run()
