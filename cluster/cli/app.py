"""The command `trimaran`: the table of its commands, `--version`, and how an error ends the process.

A user's mistake ends in one line and exit status 2, as wrong usage does. What ends a node whose settings are right is
the last event of its log, with status 2 for a user's mistake and 1 for a node that stops itself to stay safe. A stack
trace is a bug.
"""

from __future__ import annotations

import errno
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final, NamedTuple

import typer

from ...archive.tool.output import EXIT_FAILED, EXIT_STATUSES, EXIT_USAGE, new_group, print_error, status_of_failure
from ...service_api.process_start import end_first_process_on_signals, open_missing_streams


class CliCommand(NamedTuple):
    """One command of `trimaran`."""

    target: str
    """The module, and the function or the group of commands in it."""
    help: str
    """Its line in the list of commands."""
    panel: str
    """The part of the list where it stands."""
    example: str
    """What `trimaran COMMAND --help` ends with."""


START: Final = "Start a cluster"
WATCH: Final = "Watch a running cluster"
OPERATE: Final = "Operate a running cluster"
USE: Final = "Use a service that is ready to run"
READ: Final = "Work on a member's directory or an archive"
TEST: Final = "Test a service"

COMMANDS: Final = {
    "up": CliCommand(
        "trimaran.cluster.cli.up:up",
        "Start a cluster for development on this machine.",
        START,
        "trimaran up --members 5 --service counter:Counter --dir /tmp/counters",
    ),
    "node": CliCommand(
        "trimaran.cluster.cli.node:node",
        "Run one member of a cluster.",
        START,
        "trimaran node --config /etc/trimaran/node.toml --member-id 2",
    ),
    "config": CliCommand(
        "trimaran.cluster.cli.config:app",
        "Show the settings of a member, and each one's source.",
        START,
        "trimaran config show --config node.toml -o json",
    ),
    "certs": CliCommand(
        "trimaran.cluster.cli.certs:app",
        "Make certificates for development; explain any.",
        START,
        "trimaran certs init certs; trimaran certs show certs/member-0.pem",
    ),
    "secrets": CliCommand(
        "trimaran.cluster.cli.secrets:app",
        "Add, remove and list principals and their secrets.",
        START,
        "trimaran secrets add /etc/trimaran/secrets ops; trimaran secrets list /etc/trimaran/secrets",
    ),
    "check-disk": CliCommand(
        "trimaran.cluster.cli.check_disk:check_disk",
        "Measure what syncs cost in a directory.",
        START,
        "trimaran check-disk /var/lib/trimaran && systemctl start trimaran",
    ),
    "status": CliCommand(
        "trimaran.cluster.cli.status:status",
        "Show the status of every member.",
        WATCH,
        "trimaran status --config trimaran-data/cluster.toml --watch 1",
    ),
    "health": CliCommand(
        "trimaran.cluster.cli.health:health",
        "Check a cluster: exit status 0, 3, 10 or 11.",
        WATCH,
        "trimaran health --members 0=10.0.0.1:9000,1=10.0.0.2:9000,2=10.0.0.3:9000 --wait 60 || exit",
    ),
    "top": CliCommand(
        "trimaran.cluster.cli.top:top",
        "Watch members and the busiest sessions.",
        WATCH,
        "trimaran top --config trimaran-data/cluster.toml",
    ),
    "sessions": CliCommand(
        "trimaran.cluster.cli.sessions_timers:sessions",
        "Show the open client sessions, or close some.",
        WATCH,
        "trimaran sessions --config trimaran-data/cluster.toml; trimaran sessions close 17",
    ),
    "timers": CliCommand(
        "trimaran.cluster.cli.sessions_timers:show_timers",
        "Show the timers that the services have set.",
        WATCH,
        "trimaran timers --config trimaran-data/cluster.toml --watch 0.5",
    ),
    "errors": CliCommand(
        "trimaran.cluster.cli.errors:errors",
        "Show the errors of members that run, or of one.",
        WATCH,
        "trimaran errors --since 1h --config trimaran-data/cluster.toml; trimaran errors data/node-0 --traces",
    ),
    "member-log": CliCommand(
        "trimaran.cluster.cli.member_log:app",
        "Show the members' log lines; change their level.",
        WATCH,
        "trimaran member-log tail --level warning --config trimaran-data/cluster.toml",
    ),
    "bundle": CliCommand(
        "trimaran.cluster.cli.bundle:bundle",
        "Write what all members say into one archive.",
        WATCH,
        "trimaran bundle incident.tar.gz --config trimaran-data/cluster.toml",
    ),
    "log": CliCommand(
        "trimaran.cluster.cli.log:app",
        "Show its last entries; skip or trust entries.",
        WATCH,
        "trimaran log tail -f --config trimaran-data/cluster.toml",
    ),
    "subscribe": CliCommand(
        "trimaran.cluster.cli.subscribe:hand_out_entries",
        "Hand out each committed entry once.",
        WATCH,
        "trimaran subscribe --config trimaran-data/cluster.toml --kind request --position-file position.txt",
    ),
    "member": CliCommand(
        "trimaran.cluster.cli.member:app",
        "List, add, promote, remove, move, replace members.",
        OPERATE,
        "trimaran member add --endpoint 10.0.0.4:9000 --config trimaran-data/cluster.toml",
    ),
    "leader": CliCommand(
        "trimaran.cluster.cli.operate.leader:app",
        "Hand leadership over to another member.",
        OPERATE,
        "trimaran leader transfer --to 2 --config trimaran-data/cluster.toml",
    ),
    "snapshot": CliCommand(
        "trimaran.cluster.cli.snapshot:app",
        "Take, list, describe, verify, invalidate snapshots.",
        OPERATE,
        "trimaran snapshot take --config trimaran-data/cluster.toml; trimaran snapshot list data/node-0",
    ),
    "backup": CliCommand(
        "trimaran.cluster.cli.backup:app",
        "Back up, check the backup, restore from it.",
        OPERATE,
        "trimaran backup run --directory backup --config trimaran-data/cluster.toml; trimaran backup status backup",
    ),
    "suspend": CliCommand(
        "trimaran.cluster.cli.operate.suspend:suspend",
        "Stop accepting input; clients wait.",
        OPERATE,
        "trimaran suspend --config trimaran-data/cluster.toml",
    ),
    "resume": CliCommand(
        "trimaran.cluster.cli.operate.resume:resume",
        "Accept input again after `suspend`.",
        OPERATE,
        "trimaran resume --config trimaran-data/cluster.toml",
    ),
    "shutdown": CliCommand(
        "trimaran.cluster.cli.operate.shutdown:shutdown",
        "Stop every member, with a snapshot.",
        OPERATE,
        "trimaran shutdown --config trimaran-data/cluster.toml",
    ),
    "abort": CliCommand(
        "trimaran.cluster.cli.operate.abort:abort",
        "Stop every member, without a snapshot.",
        OPERATE,
        "trimaran abort --config trimaran-data/cluster.toml",
    ),
    "scrub": CliCommand(
        "trimaran.cluster.cli.operate.scrub:scrub",
        "Show the search for damage, or begin it now.",
        OPERATE,
        "trimaran scrub --start --wait 600 --config trimaran-data/cluster.toml",
    ),
    "code": CliCommand(
        "trimaran.cluster.cli.code:code",
        "Print the digest of the services' code.",
        OPERATE,
        "trimaran code --service counter:Counter",
    ),
    "feature-level": CliCommand(
        "trimaran.cluster.cli.feature_level:app",
        "Show or raise the level of newer behaviour.",
        OPERATE,
        "trimaran feature-level raise --to 2 --config trimaran-data/cluster.toml",
    ),
    "outbox": CliCommand(
        "trimaran.cluster.cli.outbox:app",
        "List, retry, drop effects that workers gave up.",
        OPERATE,
        "trimaran outbox list --config trimaran-data/cluster.toml",
    ),
    "kv": CliCommand(
        "trimaran.cluster.cli.ready_made.kv:app",
        "Keys and values.",
        USE,
        "trimaran kv put jobs/1 waiting --config trimaran-data/cluster.toml",
    ),
    "counters": CliCommand(
        "trimaran.cluster.cli.ready_made.counters:app",
        "Counters and rate limits.",
        USE,
        "trimaran counters add visits 5 --config trimaran-data/cluster.toml",
    ),
    "locks": CliCommand(
        "trimaran.cluster.cli.ready_made.locks:app",
        "Locks; run a command under a lock.",
        USE,
        "trimaran locks run reports/daily --config trimaran-data/cluster.toml -- make report",
    ),
    "queue": CliCommand(
        "trimaran.cluster.cli.ready_made.queue:app",
        "Queues and schedules.",
        USE,
        "trimaran queue send mail 'to: ann' --config trimaran-data/cluster.toml",
    ),
    "state": CliCommand(
        "trimaran.cluster.cli.state:member_state",
        "Show a member's node state and mark files.",
        READ,
        "trimaran state data/node-0 -o json",
    ),
    "recording-log": CliCommand(
        "trimaran.cluster.cli.recording_log:recording_log",
        "Show the terms and snapshots of a member.",
        READ,
        "trimaran recording-log data/node-0 -o jsonl",
    ),
    "recovery-plan": CliCommand(
        "trimaran.cluster.cli.recovery_plan:recovery_plan",
        "Show what a member would start from.",
        READ,
        "trimaran recovery-plan data/node-0",
    ),
    "archive": CliCommand(
        "trimaran.cluster.cli.archive:app",
        "Read, check, search and maintain recordings.",
        READ,
        "trimaran archive verify data/node-0/archive",
    ),
    "report": CliCommand(
        "trimaran.cluster.cli.report:report",
        "Make an HTML page about the logs of members.",
        READ,
        "trimaran report data/node-0 data/node-1 data/node-2 --node-log logs/node-0.log -o report.html",
    ),
    "recover": CliCommand(
        "trimaran.cluster.cli.recover:app",
        "Make a cluster of what is left without a majority.",
        READ,
        "trimaran recover plan data/node-0 data/node-1",
    ),
    "standby": CliCommand(
        "trimaran.cluster.cli.standby:app",
        "Make a cluster of its own of a standby.",
        READ,
        "trimaran standby transition data/node-3 --members 0=10.1.0.1:9000 --directory apart",
    ),
    "reset-candidate-term": CliCommand(
        "trimaran.cluster.cli.reset_candidate_term:reset_candidate_term",
        "Lower an absurd term of a stopped member.",
        READ,
        "trimaran reset-candidate-term data/node-0",
    ),
    "demo": CliCommand(
        "trimaran.cluster.cli.demo:demo",
        "Kill the leader halfway, and check every reply.",
        TEST,
        "trimaran demo --members 5 --json report.json",
    ),
    "check": CliCommand(
        "trimaran.cluster.cli.check:check",
        "Find in the source what may make members differ.",
        TEST,
        "trimaran check counter:Counter; trimaran check services/ -o json",
    ),
    "sim": CliCommand(
        "trimaran.cluster.cli.sim:sim",
        "Simulate clusters with faults, seed by seed.",
        TEST,
        "trimaran sim --seeds 0:1000; trimaran sim --seeds 417 --trace",
    ),
    "replay": CliCommand(
        "trimaran.cluster.cli.replay:replay",
        "Replay a log: its state, or what other code does.",
        TEST,
        "trimaran replay data/node-0 --service access_quota:AccessQuota --position 65536",
    ),
}

_MEANINGS: Final = [f"{status} {meaning.split(':')[0]}" for status, meaning in EXIT_STATUSES.items()]
EXIT_HELP: Final = f"Exit status: {'; '.join(_MEANINGS)}."


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; ends the process."""
    open_missing_streams()
    end_first_process_on_signals()
    argv = list(sys.argv[1:] if arguments is None else arguments)
    os.umask(0o077)  # what a command writes may hold what clients sent: it is for the user alone
    try:
        app = build_app(argv)
        gc.freeze()  # what is imported stays: no collection walks through it, not even the last one at exit
        status = app(args=argv, prog_name="trimaran", standalone_mode=True)
    except Exception as error:
        raise SystemExit(report_error(error)) from error
    raise SystemExit(status)


def build_app(argv: Sequence[str]) -> typer.Typer:
    """The typer app for these arguments: the command they name is imported, the others are names only."""
    app = new_group("Trimaran: replicated Python services on a recorded log.")
    app.info.epilog = EXIT_HELP
    app.callback()(_root)
    wanted = next((argument for argument in argv if not argument.startswith("-")), None)
    for name, command in COMMANDS.items():
        function = _import_target(command.target) if name == wanted else _not_imported
        panel, example = command.panel, f"Example: {command.example}"
        if isinstance(function, typer.Typer):
            app.add_typer(function, name=name, help=command.help, rich_help_panel=panel, epilog=example)
        else:
            own_help = None if name == wanted else command.help
            app.command(name=name, help=own_help, rich_help_panel=panel, epilog=example)(function)
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
            help="Print the version, the directory of the packages and the installer.",
            callback=_print_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Trimaran: replicated Python services on a recorded log."""


def report_error(error: BaseException) -> int:
    """Print a line on standard error for each problem, and return the exit status.

    Raises:
        BaseException: as `exit_status_of`.
    """
    from ...service_api.errors import leaves_of

    status = exit_status_of(error)
    for line in dict.fromkeys(line for cause in leaves_of(error) for line in _describe(cause).splitlines()):
        print_error(line)
    return status


def exit_status_of(error: BaseException) -> int:
    """Return the status with which an error ends the process.

    Raises:
        BaseException: `error` itself, if it is not one for users: that is a bug, and shown in full.
    """
    from ...archive.disk_errors import store_failure_of
    from ...service_api.errors import ClusterError, ErrorCategory, leaves_of

    causes = leaves_of(error)
    if not all(isinstance(cause, ClusterError | OSError) for cause in causes):
        raise error
    failures = [failure for failure in map(store_failure_of, causes) if failure is not None]
    if failures:
        return max(map(status_of_failure, failures))
    is_fatal = any(isinstance(cause, ClusterError) and cause.category is ErrorCategory.FATAL for cause in causes)
    return EXIT_FAILED if is_fatal or any(map(_is_of_store, causes)) else EXIT_USAGE


def _is_of_store(cause: BaseException) -> bool:
    """Return whether a store has something else than it should; only what a later call may mend can be that."""
    from ...service_api.errors import ClusterError

    if not isinstance(cause, ClusterError) or not cause.retriable:
        return False
    from ...archive.stored.cluster_store import StoreError

    return isinstance(cause, StoreError)


def _describe(cause: BaseException) -> str:
    if isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE:
        return f"port in use: {cause.strerror or cause}"
    if isinstance(cause, OSError) and not isinstance(cause, ConnectionError):
        from ...archive.disk_errors import ADVICE, StoreFailure, explain_error

        if cause.errno in ADVICE and not isinstance(cause, StoreFailure):
            return str(explain_error(cause, "use"))
    return str(cause)
