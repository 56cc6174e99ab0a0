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

from trimaran.archive.tool.output import EXIT_FAILED, EXIT_STATUSES, EXIT_USAGE, print_error

COMMANDS: Final = {
    "up": ("trimaran.cluster.cli.up:up", "Start a cluster for development on this machine."),
    "node": ("trimaran.cluster.cli.node:node", "Run one member of a cluster."),
    "config": ("trimaran.cluster.cli.show_config:app", "Show the settings of a node and where each came from."),
    "status": ("trimaran.cluster.cli.status:status", "Show how every member of a cluster is."),
    "health": ("trimaran.cluster.cli.health:health", "Tell whether a cluster is well: exit status 0, 3, 10 or 11."),
    "members": (
        "trimaran.cluster.cli.inspect:members",
        "Show the members as their leader sees them: links, positions, lag.",
    ),
    "sessions": ("trimaran.cluster.cli.inspect:sessions", "Show the client sessions that are open."),
    "timers": ("trimaran.cluster.cli.inspect:timers", "Show the timers that are set."),
    "snapshot": ("trimaran.cluster.cli.snapshot:app", "Take, list, describe, verify and invalidate snapshots."),
    "suspend": ("trimaran.cluster.cli.operation:suspend", "Have a cluster take no input; clients wait."),
    "resume": ("trimaran.cluster.cli.operation:resume", "Have a suspended cluster go on."),
    "shutdown": (
        "trimaran.cluster.cli.operation:shutdown",
        "Stop every member at one position, with a snapshot of it.",
    ),
    "abort": ("trimaran.cluster.cli.operation:abort", "Stop every member at one position, without a snapshot."),
    "secrets": ("trimaran.cluster.cli.secrets:app", "Say who may open sessions: add, remove and list principals."),
    "log": ("trimaran.cluster.cli.log:app", "Read the log: its last entries as they come, or all of it."),
    "errors": ("trimaran.cluster.cli.errors:errors", "Show what has gone wrong in a member, running or dead."),
    "recording-log": (
        "trimaran.cluster.cli.recording_log:recording_log",
        "Show a member's terms and snapshots, as on its disk.",
    ),
    "recovery-plan": ("trimaran.cluster.cli.recovery_plan:recovery_plan", "Show what a member would start from."),
    "replay": (
        "trimaran.cluster.cli.replay:replay",
        "Replay a service from a member's directory: its state then, what if.",
    ),
    "report": (
        "trimaran.cluster.cli.report:report",
        "Make a page of what a log tells: leaders, traffic, sessions, damage.",
    ),
    "state": ("trimaran.cluster.cli.state:state", "Show a member's node state and mark files, as on its disk."),
    "archive": ("trimaran.cluster.cli.archive:app", "Look into recordings, and look after them."),
    "demo": ("trimaran.cluster.cli.demo:demo", "Run three nodes, kill the leader half-way, check every reply."),
    "sim": (
        "trimaran.cluster.cli.sim:sim",
        "Simulate clusters with faults, seed by seed; replay and shrink what fails.",
    ),
}
"""Command to the function or group of commands behind it, and its line in the list of commands."""

PANELS: Final = {
    "Run": ("up", "node", "config", "secrets"),
    "Watch a cluster": ("status", "health", "members", "sessions", "timers"),
    "Act on a cluster": ("snapshot", "suspend", "resume", "shutdown", "abort"),
    "Look into a member's directory, running or dead": (
        *("log", "report", "replay", "errors", "recording-log", "recovery-plan", "state", "archive"),
    ),
    "Try": ("demo", "sim"),
}
"""How the list of commands is grouped."""

EXAMPLES: Final = {
    "up": "trimaran up --members 5 --service counter:Counter --dir /tmp/counters",
    "node": "trimaran node --config /etc/trimaran/node.toml --member-id 2",
    "config": "trimaran config show --config node.toml -o json",
    "secrets": "trimaran secrets add /etc/trimaran/secrets ops; trimaran secrets list /etc/trimaran/secrets",
    "status": "trimaran status --config trimaran-data/cluster.toml --watch 1",
    "health": "trimaran health --members 0=10.0.0.1:9000,1=10.0.0.2:9000,2=10.0.0.3:9000 --wait 60 || exit",
    "members": "trimaran members --config trimaran-data/cluster.toml -o jsonl",
    "sessions": "trimaran sessions --config trimaran-data/cluster.toml --offset 100 --limit 100",
    "timers": "trimaran timers --config trimaran-data/cluster.toml --watch 0.5",
    "snapshot": "trimaran snapshot take --config trimaran-data/cluster.toml; trimaran snapshot list data/node-0",
    "suspend": "trimaran suspend --config trimaran-data/cluster.toml",
    "resume": "trimaran resume --config trimaran-data/cluster.toml",
    "shutdown": "trimaran shutdown --config trimaran-data/cluster.toml",
    "abort": "trimaran abort --config trimaran-data/cluster.toml",
    "log": "trimaran log tail -f --config trimaran-data/cluster.toml; trimaran log dump data/node-0 -o jsonl",
    "errors": "trimaran errors data/node-0 --traces",
    "recording-log": "trimaran recording-log data/node-0 -o jsonl",
    "recovery-plan": "trimaran recovery-plan data/node-0",
    "replay": "trimaran replay data/node-0 --service access_quota:AccessQuota --position 65536",
    "report": "trimaran report data/node-0 data/node-1 data/node-2 --node-log logs/node-0.log -o report.html",
    "state": "trimaran state data/node-0 -o json",
    "archive": "trimaran archive verify data/node-0/archive",
    "demo": "trimaran demo --members 5 --json report.json",
    "sim": "trimaran sim --seeds 0:1000; trimaran sim --seeds 417 --trace",
}
"""What `trimaran COMMAND --help` ends with."""

_MEANINGS: Final = [f"{status} {meaning.split(':')[0]}" for status, meaning in EXIT_STATUSES.items()]
EXIT_HELP: Final = f"Exit status: {'; '.join(_MEANINGS)}."


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; ends the process."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    try:
        status = build_app(argv)(args=argv, prog_name="trimaran", standalone_mode=True)
    except Exception as error:
        raise SystemExit(report_error(error)) from error
    raise SystemExit(status)


def build_app(argv: Sequence[str]) -> typer.Typer:
    """The typer app for these arguments: the command they name is imported, the others are names only."""
    app = typer.Typer(
        help="Trimaran: replicated Python services on a recorded log.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog=EXIT_HELP,
    )
    app.callback()(_root)
    panels = {name: panel for panel, names in PANELS.items() for name in names}
    wanted = next((argument for argument in argv if not argument.startswith("-")), None)
    for name, (target, help_line) in COMMANDS.items():
        command = _import_target(target) if name == wanted else _not_imported
        example = f"Example: {EXAMPLES[name]}"
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, help=help_line, rich_help_panel=panels[name], epilog=example)
        else:
            own_help = None if name == wanted else help_line
            app.command(name=name, help=own_help, rich_help_panel=panels[name], epilog=example)(command)
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
    """Trimaran: replicated Python services on a recorded log."""


def report_error(error: BaseException) -> int:
    """Say what went wrong on standard error, a line for each problem; the result is the exit status.

    Raises:
        BaseException: `error` itself, if it is none that a user can be told about: that is a bug, shown in
        full.
    """
    from trimaran.service_api.errors import ClusterError, ErrorCategory

    causes = _leaves(error)
    status = EXIT_USAGE
    for cause in causes:
        if not isinstance(cause, ClusterError | OSError):
            raise error
    for line in dict.fromkeys(line for cause in causes for line in _describe(cause).splitlines()):
        print_error(line)
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
