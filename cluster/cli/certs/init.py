"""`trimaran certs init`: an authority for development, and the certificates of a cluster and its users."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from ....archive.tool.output import OutputFormat, OutputOption, print_rows
from ....service_api.cluster_id import format_cluster_id, parse_cluster_id
from .development import (
    AUTHORITY_DAYS,
    DEFAULT_DAYS,
    OPERATOR_NAME,
    DaysOption,
    DirectoryArgument,
    HostOption,
    draw_cluster_id,
    make_certificates,
)


def init(
    directory: DirectoryArgument,
    members: Annotated[int, typer.Option("--members", min=1, max=99, help="Number of members.")] = 3,
    host: HostOption = None,
    cluster_id: Annotated[
        str, typer.Option("--cluster-id", metavar="ID", help="The cluster's id. [default: drawn]", show_default=False)
    ] = "",
    days: DaysOption = DEFAULT_DAYS,
    authority_days: Annotated[
        int, typer.Option("--authority-days", min=1, max=36_500, help="How long the authority's certificate is valid.")
    ] = AUTHORITY_DAYS,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Make an authority in a new directory, with a certificate for each member, a client, an operator and an observer.

    For development: the authority's key lies in the directory without a password. Who has it can make certificates of
    anybody. Give each member and each user their own two files, and `authorities.pem`.
    """
    cluster = parse_cluster_id(cluster_id) or draw_cluster_id()
    made = make_certificates(
        directory,
        cluster_id=cluster,
        member_count=members,
        hosts=host or (),
        days=days,
        authority_days=authority_days,
    )
    rows = [{"identity": name, "certificate": files.certificate, "key": files.key} for name, files in made.items()]
    print_rows(rows, output)
    if output is not OutputFormat.TABLE:
        return
    place, operator = shlex.quote(str(directory)), f"operator-{OPERATOR_NAME}"
    typer.echo(
        f"cluster   {format_cluster_id(cluster)}\n"
        f"authority {directory / 'authorities.pem'}\n"
        f"node      trimaran node --tls-authorities {place}/authorities.pem "
        f"--tls-certificate {place}/member-0.pem --tls-key {place}/member-0.key ...\n"
        f"command   TRIMARAN_TLS_AUTHORITIES={place}/authorities.pem TRIMARAN_TLS_CERTIFICATE={place}/{operator}.pem "
        f"TRIMARAN_TLS_KEY={place}/{operator}.key trimaran status ..."
    )
