"""`trimaran locks`: the locks of a cluster that serves them (`trimaran up locks`).

Exit status: 0; 1 the service said no, nobody holds the lock, or it was not granted or was lost; 2 wrong usage; 3 no
leader in time; 12 refused. `run` otherwise has the status of its command, or 128 and the number of the signal that
ended it.
"""

from __future__ import annotations

import os
import platform
import shutil
from itertools import islice
from typing import Annotated, Any, Final

import typer

from ....client.ready_made import SyncLocksClient
from ....service_api.errors import ConfigurationError
from ....service_api.ready_made.locks import LockState, ReadLock
from ..shared.event_loop import run_command_loop
from ..shared.setting_flags import with_client_flags
from .client import EntryLimitOption, UserOption, WaitOption, config_of_client, errors_as_exits, expect_text
from .locked_command import LockedCommand
from .service_commands import FieldFlag, ServiceCommands, exit_unless, show_row, show_rows

_LOCKS: Final = ServiceCommands("locks", "Locks of a cluster that serves them.", SyncLocksClient)
app: Final = _LOCKS.app

_NAME: Final = FieldFlag("The lock.")


def _show_state(state: LockState) -> int:
    show_row(state)
    return exit_unless(state.holders)


_LOCKS.message(
    "show reports/daily",
    ReadLock,
    "Print who holds a lock and who waits for it, in order; exit status 1 if nobody holds it.",
    show=_show_state,
    name=_NAME,
)


@_LOCKS.command("list reports/")
def list_locks(
    locks: SyncLocksClient,
    prefix: Annotated[str, typer.Argument(metavar="PREFIX", help="Only names that begin so.")] = "",
    limit: EntryLimitOption = 1_000,
) -> None:
    """Print the locks that are held by name, one JSON object on each line."""
    show_rows(islice(locks.scan(prefix), limit))


@app.command(
    "run", epilog="Example: trimaran locks run daily --wait 60 --config trimaran-data/cluster.toml -- make report"
)
@with_client_flags
def run_locked_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help=_NAME.help, show_default=False)],
    command: Annotated[
        list[str],
        typer.Argument(metavar="COMMAND", help="The program to run, with its arguments, after --.", show_default=False),
    ],
    wait: Annotated[
        float | None,
        typer.Option("--wait", min=0, metavar="SECONDS", help="How long to wait for the lock. [default: for ever]"),
    ] = None,
    lease: Annotated[
        float,
        typer.Option("--lease", min=0.1, metavar="SECONDS", help="How long the lock outlives a client that is silent."),
    ] = 10.0,
    shared: Annotated[bool, typer.Option("--shared", help="Hold the lock beside other shared holders.")] = False,
    value: Annotated[
        str, typer.Option("--value", metavar="TEXT", help="The text that others see. [default: host and process id]")
    ] = "",
    grace: Annotated[
        float,
        typer.Option("--grace", min=0, metavar="SECONDS", help="After SIGTERM, how long until SIGKILL."),
    ] = 10.0,
    user: UserOption = "",
    timeout: WaitOption = 5.0,
    **settings: Any,
) -> None:
    """Hold a lock while a command runs, and exit with its status.

    The command gets the fencing token in the variable LOCK_TOKEN. If the lock is lost meanwhile, the command gets
    SIGTERM, and SIGKILL later. Nothing runs if the lock is not granted.
    """
    expect_text("NAME", name)
    expect_text("--value", value)
    if shutil.which(command[0]) is None:
        raise ConfigurationError(f"COMMAND={command[0]} expected a program that can be run")
    locked = LockedCommand(
        name,
        tuple(command),
        is_shared=shared,
        wait_s=wait,
        lease_s=lease,
        value=value or f"{platform.node()} pid {os.getpid()}",
        grace_s=grace,
    )
    config = config_of_client(settings, user, timeout)
    with errors_as_exits():
        status = run_command_loop(locked.run(config))
    raise typer.Exit(status)
