"""`trimaran kv`: the key-value store of a cluster that serves it (`trimaran up kv`).

Keys and values are the bytes that the shell passes, usually text in UTF-8; in lists, bytes that are no such text are
shown as \\xNN.

Exit status: 0; 1 the service said no, or there is no such key; 2 wrong usage; 3 no leader in time; 12 refused.
"""

from __future__ import annotations

import os
from itertools import islice
from typing import Annotated, Final

import typer

from ....client.ready_made import SyncKvClient
from ....service_api.ready_made.kv import KvEntry, PutKey, ReadKey, key_range
from .client import EntryLimitOption
from .service_commands import FieldFlag, ServiceCommands, exit_unless, show_rows

_KV: Final = ServiceCommands("kv", "The key-value store of a cluster that serves it.", SyncKvClient)
app: Final = _KV.app

_KEY: Final = FieldFlag("The key.")
KeyArgument = Annotated[bytes, typer.Argument(metavar="KEY", parser=os.fsencode, help=_KEY.help)]
PrefixArgument = Annotated[bytes, typer.Argument(metavar="PREFIX", parser=os.fsencode, help="Only keys that begin so.")]


def _show_value(entry: KvEntry | None) -> int:
    if entry is not None:
        typer.echo(entry.value)
    return exit_unless(entry)


_KV.message(
    "put jobs/1 waiting --ttl 60",
    PutKey,
    "Write a key, and print the revision.",
    show=typer.echo,
    key=_KEY,
    value=FieldFlag("'-' reads standard input."),
    expected_revision=FieldFlag(
        "Only if the key has this revision; 0: if there is none.", name="expected", metavar="REVISION"
    ),
    ttl_s=FieldFlag("Delete the key after this."),
)
_KV.message(
    "get jobs/1", ReadKey, "Print a key's value; exit status 1 if there is no such key.", show=_show_value, key=_KEY
)


@_KV.command("delete jobs/ --prefix")
def delete_keys(
    kv: SyncKvClient,
    key: KeyArgument,
    prefix: Annotated[bool, typer.Option("--prefix", help="Delete all keys that begin so, at most 1,000.")] = False,
) -> int:
    """Delete a key, or those of a prefix, and print how many; exit status 1 if there is none."""
    count = kv.delete_range(*key_range(key)) if prefix else int(kv.delete(key))
    typer.echo(count)
    return exit_unless(count)


@_KV.command("list jobs/")
def list_keys(kv: SyncKvClient, prefix: PrefixArgument = b"", limit: EntryLimitOption = 1_000) -> None:
    """Print keys with their values in the order of keys, one JSON object on each line."""
    show_rows(islice(kv.scan(prefix), limit))


@_KV.command("watch jobs/ --from 1")
def watch_keys(
    kv: SyncKvClient,
    prefix: PrefixArgument = b"",
    from_revision: Annotated[
        int | None, typer.Option("--from", min=1, metavar="REVISION", help="Begin there. [default: now]")
    ] = None,
    limit: Annotated[int | None, typer.Option("-n", "--limit", min=1, help="End after this many.")] = None,
) -> None:
    """Print each change, one JSON object on each line, until Ctrl-C; the value of a deletion is null."""
    show_rows(islice(kv.watch(prefix=prefix, from_revision=from_revision), limit))
