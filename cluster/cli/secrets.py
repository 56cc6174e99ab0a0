"""`trimaran secrets`: who may open sessions with a cluster whose authenticator is `password`.

A secret is asked for where somebody types, and read from the first line of standard input otherwise. It is never an
argument: arguments are seen by everybody on the machine, and kept in the shell's history.
"""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.text import Text

from ...archive.tool.output import (
    EXIT_FAILED,
    OutputFormat,
    OutputOption,
    fail,
    make_console,
    new_group,
    new_table,
    print_rows,
)
from ...service_api import ConfigurationError
from ...service_api.access.password_proof import encode_principal
from ..auth.secrets_file import SECRET_LIMIT, SecretsFile

app: Final = new_group("Manage who may open sessions: add, remove and list principals.")

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The secrets file; `add` creates it.")]
PrincipalArgument = Annotated[str, typer.Argument(metavar="PRINCIPAL", help="A name without blanks.")]

_NEXT: Final = "give every member this file; it counts for connections from a second later on"


@app.command()
def add(file: FileArgument, principal: PrincipalArgument) -> None:
    """Add a principal, or change its secret. The command asks for the secret, or reads it from standard input.

    A change ends the sessions that the old secret opened, within 3 s of the leader having the file.
    """
    encode_principal(principal)
    contents = SecretsFile.load(file) if file.exists() else SecretsFile.empty(secrets.token_bytes)
    is_known = principal.encode() in contents.verifiers
    contents.add(principal, _read_secret(principal), secrets.token_bytes)
    contents.save(file)
    typer.echo(f"{'changed' if is_known else 'added'} {principal}: {_NEXT}")


@app.command()
def remove(file: FileArgument, principal: PrincipalArgument) -> None:
    """Remove a principal. The leader ends its sessions within 3 s of having the file."""
    contents = SecretsFile.load(file)
    if contents.verifiers.pop(principal.encode("utf-8", "replace"), None) is None:
        fail(f"principal not found: principal={principal!r} file={file}", EXIT_FAILED)
    contents.save(file)
    typer.echo(f"removed {principal}: {_NEXT}")


@app.command(name="list")
def list_principals(file: FileArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """List the principals."""
    names = [principal.decode() for principal in SecretsFile.load(file).verifiers]
    if output is not OutputFormat.TABLE:
        print_rows(({"principal": name} for name in names), output)
        return
    table = new_table("principal")
    for name in names:
        table.add_row(Text(name))
    make_console().print(table)


def _read_secret(principal: str) -> str:
    if sys.stdin.isatty():
        typed: str = typer.prompt(f"Secret of {principal}", hide_input=True, confirmation_prompt=True)
        return typed
    line = sys.stdin.readline(SECRET_LIMIT + 2)
    secret = line.removesuffix("\n")
    if not secret:
        raise ConfigurationError("no secret on standard input: expected it on the first line")
    return secret
