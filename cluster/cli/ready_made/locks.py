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
import uvloop

from ....archive.tool.output import EXIT_FAILED, new_group, print_line
from ....client.ready_made import SyncLocksClient
from ....service_api.errors import ConfigurationError
from ....service_api.ready_made.locks import LockHolder
from ..shared.setting_flags import with_client_flags
from .client import (
    EntryLimitOption,
    NamePrefixArgument,
    UserOption,
    WaitOption,
    as_text,
    config_of_client,
    connected,
    errors_as_exits,
)
from .locked_command import LockedCommand

app: Final = new_group("Locks of a cluster that serves them.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The lock.", show_default=False)]


@app.command("list", epilog="Example: trimaran locks list reports/ --config trimaran-data/cluster.toml")
@with_client_flags
def list_locks_command(
    prefix: NamePrefixArgument = "",
    limit: EntryLimitOption = 1_000,
    user: UserOption = "",
    timeout: WaitOption = 5.0,
    **settings: Any,
) -> None:
    """Print the locks that are held by name, one JSON object on each line."""
    with connected(SyncLocksClient, settings, user, timeout) as locks:
        for lock in islice(locks.scan(prefix), limit):
            print_line(
                {
                    "name": lock.name,
                    "is_exclusive": lock.is_exclusive,
                    "token": lock.token,
                    "holder_count": lock.holder_count,
                    "waiter_count": lock.waiter_count,
                }
            )


@app.command("show", epilog="Example: trimaran locks show reports/daily --config trimaran-data/cluster.toml")
@with_client_flags
def show_lock_command(name: NameArgument, user: UserOption = "", timeout: WaitOption = 5.0, **settings: Any) -> None:
    """Print who holds a lock and who waits for it, in order; exit status 1 if nobody holds it."""
    with connected(SyncLocksClient, settings, user, timeout) as locks:
        state = locks.inspect(name)
    print_line({"name": state.name, "holders": [*map(_shown, state.holders)], "waiters": [*map(_shown, state.waiters)]})
    if not state.holders:
        raise typer.Exit(EXIT_FAILED)


def _shown(holder: LockHolder) -> dict[str, object]:
    return {
        "session_id": holder.session_id,
        "is_exclusive": holder.is_exclusive,
        "value": as_text(holder.value),
        "token": holder.token,
    }


@app.command(
    "run", epilog="Example: trimaran locks run daily --wait 60 --config trimaran-data/cluster.toml -- make report"
)
@with_client_flags
def run_locked_command(
    name: NameArgument,
    command: Annotated[
        list[str],
        typer.Argument(metavar="COMMAND", help="What to run, with its arguments, after --.", show_default=False),
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
        str, typer.Option("--value", metavar="TEXT", help="What others see of you. [default: host and process id]")
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
        status = uvloop.run(locked.run(config))
    raise typer.Exit(status)
