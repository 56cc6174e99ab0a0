"""The command line as a whole: which commands there are, `--version`, and how an error ends the process.

A user's mistake ends in one clear line and exit status 2, as wrong usage does; a node that stops itself to
stay safe ends in one line and status 1. A stack trace is a bug of ours.
"""

from __future__ import annotations

import errno
import importlib
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

COMMANDS: Final = {
    "node": ("cluster.cli.node:node", "Run one member of a cluster."),
    "status": ("cluster.cli.status:status", "Show how every member of a cluster is."),
    "health": ("cluster.cli.health:health", "Tell whether a cluster is well: exit status 0, 3, 10 or 11."),
    "members": ("cluster.cli.inspect:members", "Show the members as their leader sees them: links, positions, lag."),
    "sessions": ("cluster.cli.inspect:sessions", "Show the client sessions that are open."),
    "timers": ("cluster.cli.inspect:timers", "Show the timers that are set."),
    "errors": ("cluster.cli.errors:errors", "Show what has gone wrong in a member, running or dead."),
    "config": ("cluster.cli.show_config:app", "Show the settings of a node and where each came from."),
    "demo": ("cluster.cli.demo:demo", "Run three nodes, kill the leader half-way, check every reply."),
    "sim": ("cluster.cli.sim:sim", "Simulate clusters with faults, seed by seed; replay and shrink what fails."),
    "snapshot": ("cluster.cli.snapshot:app", "Take, list, verify and invalidate snapshots."),
    "secrets": ("cluster.cli.secrets:app", "Say who may open sessions: add, remove and list principals."),
    "log": ("cluster.cli.log:app", "Read the log: its last entries as they come, or all of it."),
    "recording-log": (
        "cluster.cli.recording_log:recording_log",
        "Show a member's terms and snapshots, as on its disk.",
    ),
    "recovery-plan": ("cluster.cli.recovery_plan:recovery_plan", "Show what a member would start from."),
    "archive": ("cluster.cli.archive:app", "Look into recordings: describe, verify, dump."),
}
"""Command to the function or group of commands behind it, and its line in the list of commands."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; ends the process."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    try:
        status = build_app(argv)(args=argv, prog_name="quorate", standalone_mode=True)
    except Exception as error:
        raise SystemExit(report_error(error)) from error
    raise SystemExit(status)


def build_app(argv: Sequence[str]) -> typer.Typer:
    """The typer app for these arguments: the command they name is imported, the others are names only."""
    app = typer.Typer(
        help="Quorate: replicated Python services on a recorded log.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    wanted = next((argument for argument in argv if not argument.startswith("-")), None)
    for name, (target, help_line) in COMMANDS.items():
        command = _import_target(target) if name == wanted else _not_imported
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, help=help_line)
        else:
            app.command(name=name, help=help_line if name != wanted else None)(command)
    return app


def _import_target(target: str) -> Any:  # a typer group or a command function, whichever the module offers
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _not_imported() -> None:
    """Stand for a command that these arguments do not name."""


def _print_version(wanted: bool) -> None:
    if not wanted:
        return
    from .version import version_lines

    for line in version_lines():
        typer.echo(line)
    raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version, and where the packages lie and who installed them.",
            callback=_print_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Quorate: replicated Python services on a recorded log."""


def report_error(error: BaseException) -> int:
    """Say what went wrong on standard error, a line for each problem; the result is the exit status.

    Raises:
        BaseException: `error` itself, if it is none that a user can be told about: that is a bug, shown in
        full.
    """
    from service_api.errors import ClusterError, ErrorCategory

    from .output import EXIT_FAILED, EXIT_USAGE

    causes = _leaves(error)
    status = EXIT_USAGE
    for cause in causes:
        if not isinstance(cause, ClusterError | OSError):
            raise error
    for line in dict.fromkeys(line for cause in causes for line in _describe(cause).splitlines()):
        typer.echo(f"quorate: {line}", err=True)
    if any(isinstance(cause, ClusterError) and cause.category is ErrorCategory.FATAL for cause in causes):
        status = EXIT_FAILED
    return status


def _describe(cause: BaseException) -> str:
    if isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE:
        return f"port in use: {cause.strerror or cause}"
    return str(cause)


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]
