"""`trimaran certs issue`: one more certificate, or a new one in the place of one that expires."""

from __future__ import annotations

from typing import Annotated

import typer

from ....service_api.access.identity import Identity
from ....service_api.cluster_id import format_cluster_id
from ....service_api.tls.issuing import Authority
from .development import DEFAULT_DAYS, DaysOption, DirectoryArgument, HostOption, issue_one, read_cluster_id


def issue(
    directory: DirectoryArgument,
    identity: Annotated[
        str, typer.Argument(metavar="ROLE/NAME", help="Such as member/3, client/app, observer/spark or operator/ops.")
    ],
    host: HostOption = None,
    days: DaysOption = DEFAULT_DAYS,
) -> None:
    """Sign a certificate with the authority of `trimaran certs init`. A running process takes it within a second."""
    cluster_id = read_cluster_id(directory)
    whose = Identity.parse(f"trimaran://{format_cluster_id(cluster_id)}/{identity}")
    files = issue_one(Authority.load(directory), whose, hosts=host or (), days=days)
    typer.echo(f"issued {whose}: {files.certificate} {files.key}")
