"""`trimaran log trust`: whose log is valid, where the logs of members differ and no majority can say it.

Exit status: 0 every member that holds was told; 1 a member refused or did not answer; 2 wrong usage.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Annotated, Any, Final

import typer

from ....archive.tool.output import EXIT_FAILED, EXIT_USAGE, fail
from ....service_api import ClusterError
from ...documents.operations import Operation, run_operation
from ..shared.setting_flags import AskedCluster, load_asked_cluster, with_member_flags

_TIMEOUT_S: Final = 5.0


@with_member_flags
def trust(
    member: Annotated[
        int,
        typer.Option("--member", metavar="ID", help="The member whose log is valid.", show_default=False),
    ],
    confirm: Annotated[
        bool, typer.Option("--confirm", help="The other members lose what they have in that range.")
    ] = False,
    **settings: Any,
) -> None:
    """Say whose log is valid where members hold before a range in which their logs differ.

    Members hold where no majority of independent copies has the same bytes; `trimaran health` names the range and the
    members. Look at the range on each of them first: `trimaran archive grep DIR --log`. Each member that has other
    bytes then takes those of the member that you name, and all go on.
    """
    cluster = load_asked_cluster(settings)
    cluster.only(member)
    if not confirm:
        fail("other members lose what they have there: look at it first, then repeat with --confirm", EXIT_USAGE)
    refusals = asyncio.run(_tell_all(cluster, member))
    if refusals:
        fail("; ".join(refusals), EXIT_FAILED)


async def _tell_all(cluster: AskedCluster, trusted_id: int) -> list[str]:
    """Tell each member; give what those said that refused, or did not answer."""
    refusals = []
    for member_id, endpoint in cluster.endpoints.items():
        try:
            asking = run_operation(
                endpoint,
                Operation.TRUST_LOG,
                _TIMEOUT_S,
                cluster_id=cluster.cluster_id,
                target_member_id=trusted_id,
                network=cluster.network,
            )
            async with aclosing(asking) as steps:
                async for step in steps:
                    typer.echo(f"member {member_id}: {step.step}: {step.detail}")
                    if step.is_final and step.step != "done":
                        refusals.append(f"member {member_id}: {step.step}: {step.detail}")
        except ClusterError as error:
            refusals.append(f"member {member_id}: {error}")
    return refusals
