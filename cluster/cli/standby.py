"""`trimaran standby`: make a cluster of its own of a standby.

Exit status: 0 success; 1 the directory cannot be used; 2 wrong usage, or the directory is no standby's; 12 refused: a
process uses the directory.
"""

from __future__ import annotations

from typing import Annotated, Final

import typer

from ...archive.tool.output import EXIT_REFUSED, OutputFormat, OutputOption, fail, new_group
from ..operating.backup.restoring import transition_standby
from ..operating.salvage.holding import read_holding
from ..runtime.ground.system_clock import SystemClock
from ..settings.member_endpoints import parse_members
from .backup.restore import print_restored
from .interchange.passes import pass_bar
from .recover.command import locked
from .shared.new_cluster import NewClusterIdOption, NewDirectoryOption, NewMembersOption, choose_cluster_id

app: Final = new_group("Make a cluster of its own of a standby.")


@app.callback()
def group() -> None:
    """Make a cluster of its own of a standby."""


@app.command(
    "transition",
    epilog="Example: trimaran standby transition data/node-3 --members 0=10.1.0.1:9000 --directory apart",
)
def transition(
    source: Annotated[str, typer.Argument(metavar="DIR", help="The directory of a standby that is stopped.")],
    members: NewMembersOption,
    directory: NewDirectoryOption,
    cluster_id: NewClusterIdOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Write the directories of a new cluster that goes on from what a standby holds.

    The old cluster may be lost or may run on: the new one has another cluster id, so nothing of the old one can join
    it. The standby's directory stays as it is. Copy each new directory to the machine of its member.
    """
    new_id, now_ms = choose_cluster_id(cluster_id), SystemClock().epoch_time()
    with pass_bar("reading and writing", None) as on_progress:
        holding = read_holding(source, now_ms=now_ms, on_progress=on_progress)
        if holding.running is not None:
            fail(f"{source}: {holding.running}", EXIT_REFUSED)
        with locked([holding], now_ms):
            made = transition_standby(
                holding,
                parse_members(members),
                directory,
                cluster_id=new_id,
                now_ms=now_ms,
                on_progress=on_progress,
            )
    print_restored(made, new_id, output)
